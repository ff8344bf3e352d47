//! Names of files that no simulated kernel has, and contents that no kernel prints.

use qosm_model::knob::Knob;

use super::Simulation;
use crate::knob_table::row;
use crate::mounts::CgroupVersion;
use crate::parse;

impl Simulation {
    /// Whether a simulated kernel of some kind and cgroup version has a cgroup file of this name.
    pub fn is_known(&self, file: &str) -> bool {
        self.rules.is_known(file)
    }

    /// Whether a cgroup's file may have these contents: files of knobs have what a kernel prints there, other files may have anything.
    pub fn is_readable(&self, file: &str, contents: &str) -> bool {
        let page = i64::try_from(self.rules.page_size()).unwrap_or(i64::MAX);
        let of_cgroups =
            Knob::ALL.into_iter().map(row).filter(|row| row.controller().is_some() && row.line().is_none());
        let mut readings = of_cgroups
            .flat_map(|row| [CgroupVersion::V1, CgroupVersion::V2].map(|version| (row, version)))
            .filter(|(row, version)| row.file(*version) == file)
            .map(|(row, version)| parse::knob(row.encoding, version, page, contents.as_bytes()).is_some())
            .peekable();
        readings.peek().is_none() || readings.any(|is_readable| is_readable)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::*;

    #[test]
    fn files_of_knobs_have_what_a_kernel_prints() {
        let simulation = Simulation::new(&Spec::default()).unwrap();
        for (file, good, bad) in [
            ("cpu.max", "max 100000", "15O000 100000"),
            ("cpu.max", "150000 100000\n", "150000"),
            ("cpu.cfs_quota_us", "-1", "max"),
            ("cpu.shares", "1024", "1k"),
            ("cpuset.cpus", "", "3-0"),
            ("cpuset.mems", "0-1", "zero"),
            ("memory.max", "max", "1Gi"),
            ("memory.limit_in_bytes", "9223372036854771712", "1Gi"),
        ] {
            assert!(simulation.is_readable(file, good), "{file} {good}");
            assert!(!simulation.is_readable(file, bad), "{file} {bad}");
        }
        for file in ["cpu.stat", "memory.stat", "io.max", "vendor.file"] {
            assert!(simulation.is_readable(file, "anything"), "{file}");
        }
    }
}
