//! resctrl trees of several machines, in a temporary directory. They enforce nothing: `tests/kernel` tests the kernel's
//! reactions to writes.

use std::fs;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use tempfile::TempDir;

use super::availability::{MountOptions, Vendor};
use super::groups::Groups;

pub(crate) struct Fixture {
    directory: TempDir,
    pub(crate) root: Dir,
}

impl Fixture {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(directory.path(), ambient_authority()).unwrap();
        let fixture = Self { directory, root };
        fixture.add(files);
        fixture
    }

    pub(crate) fn add(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = self.directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.directory.path().join(path)).unwrap()
    }

    pub(crate) fn dir(&self, path: &str) -> Dir {
        self.root.open_dir(path).unwrap()
    }

    pub(crate) fn groups(&self, vendor: Vendor) -> Groups {
        Groups::open(self.root.try_clone().unwrap(), "/r", vendor, MountOptions::default()).unwrap()
    }
}

const INTEL_MB: [(&str, &str); 5] = [
    ("info/MB/num_closids", "8\n"),
    ("info/MB/min_bandwidth", "10\n"),
    ("info/MB/bandwidth_gran", "10\n"),
    ("info/MB/delay_linear", "1\n"),
    ("info/MB/thread_throttle_mode", "max\n"),
];

const MONITORING: [(&str, &str); 3] = [
    ("info/L3_MON/num_rmids", "176\n"),
    ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
    ("info/L3_MON/max_threshold_occupancy", "65536\n"),
];

fn with(files: &[(&str, &str)], more: &[&[(&str, &str)]]) -> Fixture {
    let fixture = Fixture::new(files);
    more.iter().for_each(|files| fixture.add(files));
    fixture
}

/// Two caches of 11 ways; bandwidth limits the number of CLOSIDs to 8.
pub(crate) fn intel() -> Fixture {
    let files = [
        ("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
        ("tasks", "1\n2\n"),
        ("info/last_cmd_status", "ok\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/cbm_mask", "7ff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/shareable_bits", "600\n"),
        ("info/L3/sparse_masks", "0\n"),
        ("info/L3/bit_usage", "0=XXSSSSSSSSS;1=XXSSSSSSSSS\n"),
    ];
    with(&files, &[&INTEL_MB, &MONITORING])
}

/// Four caches of 20 ways.
pub(crate) fn intel_20_ways() -> Fixture {
    let files = [
        ("schemata", "    MB:0=100;1=100;2=100;3=100\n    L3:0=fffff;1=fffff;2=fffff;3=fffff\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/cbm_mask", "fffff\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("info/L3/shareable_bits", "0\n"),
    ];
    with(&files, &[&INTEL_MB, &MONITORING])
}

/// Four CLOSIDs, masks of at least two ways, the upper two used by I/O; no bandwidth.
pub(crate) fn haswell() -> Fixture {
    Fixture::new(&[
        ("schemata", "L3:0=fffff;1=fffff\n"),
        ("info/L3/num_closids", "4\n"),
        ("info/L3/cbm_mask", "fffff\n"),
        ("info/L3/min_cbm_bits", "2\n"),
        ("info/L3/shareable_bits", "c0000\n"),
    ])
}

/// Cache ids with gaps, values padded as before Linux 6.15.
pub(crate) fn amd() -> Fixture {
    let files = [
        ("schemata", "    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n"),
        ("info/L3/num_closids", "16\n"),
        ("info/L3/cbm_mask", "ffff\n"),
        ("info/L3/min_cbm_bits", "0\n"),
        ("info/L3/shareable_bits", "0\n"),
        ("info/L3/sparse_masks", "1\n"),
        ("info/MB/num_closids", "16\n"),
        ("info/MB/min_bandwidth", "0\n"),
        ("info/MB/bandwidth_gran", "1\n"),
        ("info/MB/delay_linear", "0\n"),
        ("info/MB/thread_throttle_mode", "undefined\n"),
        ("info/SMBA/num_closids", "16\n"),
        ("info/SMBA/min_bandwidth", "0\n"),
        ("info/SMBA/bandwidth_gran", "1\n"),
        ("info/SMBA/delay_linear", "0\n"),
    ];
    let slow: [(&str, &str); 1] = [("schemata", "  SMBA:0=2048;8=2048\n    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n")];
    with(&files, &[&slow, &MONITORING])
}

/// Code and data separate, which halves the CLOSIDs.
pub(crate) fn cdp() -> Fixture {
    let files = ["L3CODE", "L3DATA"].into_iter().flat_map(|name| {
        [("num_closids", "8\n"), ("cbm_mask", "7ff\n"), ("min_cbm_bits", "1\n"), ("shareable_bits", "0\n")]
            .map(|(file, text)| (format!("info/{name}/{file}"), text))
    });
    let fixture = Fixture::new(&[("schemata", "L3DATA:0=7ff;1=7ff\nL3CODE:0=7ff;1=7ff\n")]);
    for (path, text) in files {
        fixture.add(&[(&path, text)]);
    }
    fixture
}

/// Level 2 only, as on small cores.
pub(crate) fn l2_only() -> Fixture {
    Fixture::new(&[
        ("schemata", "L2:0=ff;1=ff;2=ff\n"),
        ("info/L2/num_closids", "16\n"),
        ("info/L2/cbm_mask", "ff\n"),
        ("info/L2/min_cbm_bits", "1\n"),
        ("info/L2/shareable_bits", "0\n"),
    ])
}

/// Bandwidth only.
pub(crate) fn mb_only() -> Fixture {
    with(&[("schemata", "MB:0=100\n")], &[&INTEL_MB])
}

/// Monitoring only.
pub(crate) fn monitoring_only() -> Fixture {
    with(&[("tasks", "")], &[&MONITORING])
}
