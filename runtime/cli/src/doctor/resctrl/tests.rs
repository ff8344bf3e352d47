//! Each possible state of a machine, from files as kernels show them.

use std::fs;

use tempfile::TempDir;

use super::*;

const XEON: &str = "vendor_id\t: GenuineIntel\nflags\t\t: fpu cat_l3 cdp_l3 mba cqm_llc\n";
const EPYC: &str = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu cat_l3 mba\n";
const VIRTUAL: &str = "vendor_id\t: GenuineIntel\nflags\t\t: fpu\n";
const KNOWN: &str = "nodev\tresctrl\n";
const AT: &str = "/sys/fs/resctrl";

/// A machine's files, and its mounted resctrl.
#[derive(Default)]
struct Machine<'a> {
    cpuinfo: &'a str,
    filesystems: &'a str,
    command_line: &'a str,
    mounts: &'a str,
    at: Option<&'a str>,
    resctrl: &'a [(&'a str, &'a str)],
}

fn tree(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn look_at(machine: &Machine<'_>) -> Result<Capabilities, ResctrlError> {
    let proc = tree(&[
        ("self/mountinfo", machine.mounts),
        ("filesystems", machine.filesystems),
        ("cpuinfo", machine.cpuinfo),
        ("cmdline", machine.command_line),
    ]);
    let resctrl = tree(machine.resctrl);
    let open = |folder: &TempDir| Dir::open_ambient_dir(folder.path(), ambient_authority());
    resctrl::capabilities(&open(&proc).unwrap(), machine.at, |_| open(&resctrl))
}

fn rendered(machine: &Machine<'_>) -> String {
    rows(&look_at(machine), true).iter().map(|(name, text)| format!("{name:15}{text}\n")).collect()
}

fn mounted(options: &str) -> String {
    format!("50 24 0:44 / {AT} rw - resctrl resctrl rw{options}\n")
}

const INTEL: &[(&str, &str)] = &[
    ("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
    ("info/L3/num_closids", "16\n"),
    ("info/L3/cbm_mask", "7ff\n"),
    ("info/L3/min_cbm_bits", "1\n"),
    ("info/L3/shareable_bits", "600\n"),
    ("info/MB/num_closids", "8\n"),
    ("info/MB/min_bandwidth", "10\n"),
    ("info/MB/bandwidth_gran", "10\n"),
    ("info/MB/delay_linear", "1\n"),
    ("info/MB/thread_throttle_mode", "max\n"),
    ("info/L3_MON/num_rmids", "176\n"),
    ("info/L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
    ("info/L3_MON/max_threshold_occupancy", "65536\n"),
    ("qosm-llc-mba-be/schemata", "    MB:0=40;1=40\n    L3:0=7;1=607\n"),
    ("qosm-llc-mba-be/mon_groups/qosm-c1/tasks", ""),
    ("tenant-a/schemata", ""),
];

const AMD: &[(&str, &str)] = &[
    ("schemata", "    MB:0=2048;8=2048\n    L3:0=ffff;8=ffff\n"),
    ("info/L3/num_closids", "16\n"),
    ("info/L3/cbm_mask", "ffff\n"),
    ("info/L3/min_cbm_bits", "0\n"),
    ("info/L3/sparse_masks", "1\n"),
    ("info/MB/num_closids", "16\n"),
    ("info/MB/min_bandwidth", "0\n"),
    ("info/MB/bandwidth_gran", "1\n"),
    ("info/MB/delay_linear", "0\n"),
];

#[test]
fn a_machine_without_it_says_why() {
    let machine = Machine { cpuinfo: VIRTUAL, ..Machine::default() };
    insta::assert_snapshot!(rendered(&machine));
}

#[test]
fn a_kernel_without_it_says_what_to_change() {
    let built_without = Machine { cpuinfo: XEON, ..Machine::default() };
    let switched_off = Machine { command_line: "quiet rdt=!l3cat,!mba\n", ..built_without };
    insta::assert_snapshot!(rendered(&switched_off) + &rendered(&Machine { cpuinfo: XEON, ..Machine::default() }));
}

#[test]
fn one_that_is_not_mounted_says_who_mounts_it() {
    let found = look_at(&Machine { cpuinfo: XEON, filesystems: KNOWN, ..Machine::default() });
    assert!(is_usable(&found));
    let text = [true, false].map(|may_mount| {
        rows(&found, may_mount).iter().map(|(name, text)| format!("{name:15}{text}\n")).collect::<String>()
    });
    insta::assert_snapshot!(text.concat());
}

#[test]
fn one_that_is_not_where_it_was_said_to_be() {
    let machine = Machine {
        cpuinfo: VIRTUAL,
        at: Some("/mnt"),
        mounts: "60 24 0:50 / /mnt rw - tmpfs tmpfs rw\n",
        ..Machine::default()
    };
    let found = look_at(&machine);
    assert!(!is_usable(&found));
    insta::assert_snapshot!(rendered(&machine) + &rendered(&Machine { mounts: "", ..machine }));
}

#[test]
fn a_mounted_one_says_what_it_divides_and_who_has_it() {
    let mounts = mounted("");
    let machine = Machine { cpuinfo: XEON, filesystems: KNOWN, mounts: &mounts, resctrl: INTEL, ..Machine::default() };
    let found = look_at(&machine);
    assert!(is_usable(&found));
    insta::assert_snapshot!(rendered(&machine));
    insta::assert_json_snapshot!(document(&found));
}

#[test]
fn amd_counts_bandwidth_in_its_own_unit() {
    let mounts = mounted("");
    insta::assert_snapshot!(rendered(&Machine { cpuinfo: EPYC, mounts: &mounts, resctrl: AMD, ..Machine::default() }));
}

#[test]
fn code_and_data_apart_and_bandwidth_in_megabytes() {
    let files = [
        ("schemata", "    MB:0=4294967295\nL3DATA:0=7ff\nL3CODE:0=7ff\n"),
        ("info/L3CODE/num_closids", "8\n"),
        ("info/L3CODE/cbm_mask", "7ff\n"),
        ("info/L3CODE/min_cbm_bits", "1\n"),
        ("info/L3DATA/num_closids", "8\n"),
        ("info/L3DATA/cbm_mask", "7ff\n"),
        ("info/L3DATA/min_cbm_bits", "1\n"),
        ("info/MB/num_closids", "8\n"),
        ("info/MB/min_bandwidth", "10\n"),
        ("info/MB/bandwidth_gran", "10\n"),
        ("info/MB/delay_linear", "1\n"),
        ("info/MB/thread_throttle_mode", "per-thread\n"),
    ];
    let mounts = mounted(",cdp,mba_MBps");
    insta::assert_snapshot!(rendered(&Machine {
        cpuinfo: XEON,
        mounts: &mounts,
        resctrl: &files,
        ..Machine::default()
    }));
}

#[test]
fn an_emulation_says_that_it_is_one() {
    let mounts = "70 24 0:60 / /tmp/r rw - fuse.resctrl resctrl rw\n";
    let files = [
        ("schemata", "L3:0=f\n"),
        ("info/L3/num_closids", "2\n"),
        ("info/L3/cbm_mask", "f\n"),
        ("info/L3/min_cbm_bits", "1\n"),
        ("a/schemata", "L3:0=f\n"),
    ];
    let machine = Machine { cpuinfo: VIRTUAL, mounts, at: Some("/tmp/r"), resctrl: &files, ..Machine::default() };
    insta::assert_snapshot!(rendered(&machine));
    assert_eq!(document(&look_at(&machine))["emulated"], true);
}

#[test]
fn one_that_cannot_be_read_says_which_file() {
    let mounts = mounted("");
    let files = [("schemata", ""), ("info/L3/num_closids", "many\n")];
    let machine = Machine { cpuinfo: XEON, mounts: &mounts, resctrl: &files, ..Machine::default() };
    let found = look_at(&machine);
    assert!(!is_usable(&found));
    insta::assert_snapshot!(rendered(&machine));
    insta::assert_json_snapshot!(document(&found));
}
