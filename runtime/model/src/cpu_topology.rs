//! The machine's CPUs, and the CPUs on which cgroups may run.

use crate::knob::Target;
use crate::pod::ContainerId;

/// A logical CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub id: u32,
    /// Its physical core, numbered uniquely on the machine.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its NUMA node.
    pub numa_node: u32,
    /// Whether it is online.
    pub online: bool,
}

/// Policy of the kubelet's CPU manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuManager {
    /// The CPU manager is off: all pods share all CPUs.
    None,
    /// The CPU manager can assign containers exclusive CPUs.
    Static,
    /// The policy is unknown.
    #[default]
    Unknown,
}

impl CpuManager {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Static, Self::Unknown];

    /// The name of the policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
            Self::Unknown => "unknown",
        }
    }
}

/// Exclusive CPUs of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveCpus {
    /// The container; `None` if unknown.
    pub container: Option<ContainerId>,
    /// Its CPUs, ascending.
    pub cpus: Vec<u32>,
}

/// The machine's CPUs, and those that not every pod may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTopology {
    /// The CPUs, ordered by id.
    pub cpus: Vec<Cpu>,
    /// Policy of the kubelet's CPU manager.
    pub manager: CpuManager,
    /// CPUs that no pod may use, ascending.
    pub reserved: Vec<u32>,
    /// CPUs that are assigned exclusively to containers.
    pub exclusive: Vec<ExclusiveCpus>,
}

/// The CPUs on which the processes of a cgroup may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    /// The cgroup.
    pub target: Target,
    /// The CPUs, ascending.
    pub cpus: Vec<u32>,
}
