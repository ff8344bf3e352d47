//! The specification of a simulated node.

use std::collections::{BTreeMap, BTreeSet};

use qosm_model::block_io::BlockDevice;
use qosm_model::unit::Bytes;

use super::core_scheduling::CoreSchedulingKernel;
use crate::layout::Driver;
use crate::mounts::{CgroupVersion, Controller};

/// The simulated kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Upstream Linux ≥ 5.14: burst within the quota; memory QoS files on v2 only.
    Mainline,
    /// Alibaba Cloud Linux 3: burst beyond the quota; memory QoS, watermark, OOM priority and page cache files on both versions,
    /// and pressure files on v1.
    Alibaba,
}

/// Version of each controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// `cpu`.
    pub cpu: CgroupVersion,
    /// `cpuacct`.
    pub cpuacct: CgroupVersion,
    /// `cpuset`.
    pub cpuset: CgroupVersion,
    /// `memory`.
    pub memory: CgroupVersion,
}

impl Versions {
    /// All controllers on v1.
    pub const V1: Self = Self::all(CgroupVersion::V1);
    /// All controllers on v2.
    pub const V2: Self = Self::all(CgroupVersion::V2);

    /// All controllers on one version.
    pub const fn all(version: CgroupVersion) -> Self {
        Self { cpu: version, cpuacct: version, cpuset: version, memory: version }
    }

    pub(super) fn on(self, version: CgroupVersion) -> Vec<Controller> {
        [
            (Controller::Cpu, self.cpu),
            (Controller::Cpuacct, self.cpuacct),
            (Controller::Cpuset, self.cpuset),
            (Controller::Memory, self.memory),
            // v1 has another controller, which the host does not use.
            (Controller::Io, self.memory),
        ]
        .into_iter()
        .filter(|&(controller, on)| on == version && (controller, on) != (Controller::Io, CgroupVersion::V1))
        .map(|(controller, _)| controller)
        .collect()
    }
}

/// The specification of a simulated node.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Version of each controller.
    pub versions: Versions,
    /// Whether `cpu` and `cpuacct` share one v1 hierarchy.
    pub co_mounted: bool,
    /// The kubelet's cgroup driver; `None` if the host should detect it.
    pub driver: Option<Driver>,
    /// The kubelet's `cgroupRoot`.
    pub cgroup_root: String,
    /// Whether the root of a v2 hierarchy enables its controllers for children from the start, as under systemd.
    pub root_delegates: bool,
    /// The kernel.
    pub kernel: Kernel,
    /// Additional files of every cgroup, with their initial content. They accept any write.
    pub extra_files: BTreeMap<String, String>,
    /// Files that this kernel lacks.
    pub missing_files: BTreeSet<String>,
    /// Files that exist, but refuse every write with `EINVAL`.
    pub refusing_files: BTreeSet<String>,
    /// Whether all cgroup mounts are read-only.
    pub read_only: bool,
    /// Number of logical CPUs.
    pub cpus: u32,
    /// Physical memory.
    pub memory: Bytes,
    /// `MemAvailable`.
    pub memory_available: Bytes,
    /// Size of a page.
    pub page_size: Bytes,
    /// Number of NUMA nodes.
    pub numa_nodes: u32,
    /// Existing cgroups, and contents of their files that differ from the kernel's defaults. Parents are created
    /// implicitly. No rules apply to these contents; files that the kernel does not have are created.
    pub cgroups: BTreeMap<String, BTreeMap<String, String>>,
    /// Whole disks, and devices that the kernel presents as disks. They also appear in `/proc/partitions` and `/sys/block`.
    pub devices: Vec<BlockDevice>,
    /// The kernel's support for core scheduling.
    pub core_scheduling: CoreSchedulingKernel,
    /// Additional or different files below `/proc`.
    pub proc: BTreeMap<String, String>,
    /// Additional or different files below `/sys`.
    pub sys: BTreeMap<String, String>,
}

impl Default for Spec {
    /// Mainline, v2, 4 CPUs, 8 GiB, no cgroups.
    fn default() -> Self {
        Self {
            versions: Versions::V2,
            co_mounted: false,
            driver: None,
            cgroup_root: "/".to_owned(),
            root_delegates: true,
            kernel: Kernel::Mainline,
            extra_files: BTreeMap::new(),
            missing_files: BTreeSet::new(),
            refusing_files: BTreeSet::new(),
            read_only: false,
            cpus: 4,
            memory: Bytes(8 << 30),
            memory_available: Bytes(6 << 30),
            page_size: Bytes(4096),
            numa_nodes: 1,
            cgroups: BTreeMap::new(),
            devices: Vec::new(),
            core_scheduling: CoreSchedulingKernel::default(),
            proc: BTreeMap::new(),
            sys: BTreeMap::new(),
        }
    }
}
