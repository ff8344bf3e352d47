//! The machine's CPUs, and who may run on which.

use crate::knob::Target;
use crate::pod::ContainerId;

/// A logical CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// Its physical core, numbered over the machine.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its NUMA node.
    pub numa_node: u32,
    /// Whether it is online.
    pub online: bool,
}

/// What the kubelet's CPU manager does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuManager {
    /// Nothing.
    None,
    /// It gives containers CPUs for themselves alone.
    Static,
    /// Not known.
    #[default]
    Unknown,
}

impl CpuManager {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Static, Self::Unknown];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
            Self::Unknown => "unknown",
        }
    }
}

/// CPUs that one container has for itself alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveCpus {
    /// The container; `None` = none that is known.
    pub container: Option<ContainerId>,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
}

/// The CPUs, and which of them not every pod may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// By id.
    pub cpus: Vec<Cpu>,
    /// What the kubelet's CPU manager does.
    pub manager: CpuManager,
    /// CPUs that no pod may use, ascending.
    pub reserved: Vec<u32>,
    /// CPUs that are given to containers alone.
    pub exclusive: Vec<ExclusiveCpus>,
}

/// The CPUs that the processes of a cgroup may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    /// The cgroup.
    pub target: Target,
    /// Ascending.
    pub cpus: Vec<u32>,
}
