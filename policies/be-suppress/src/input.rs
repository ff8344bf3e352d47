//! What a decision is made from. A thin layer fills it from the host's columns.

use std::collections::BTreeMap;

use qosm_sdk::{ContainerId, KubeQos, MilliCpu, PodId, QosClass};

use crate::allowed::reserved;
use crate::{Cpu, CpuSet, Reservation, SystemQos};

/// Samples are taken so often, in microseconds.
pub const INTERVAL_USEC: u64 = 1_000_000;
/// A sample that is older says nothing.
pub const MAX_SAMPLE_AGE_USEC: u64 = 2 * INTERVAL_USEC;

/// All that is known at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Kubernetes node; `None` = not known.
    pub node: Option<Node>,
    /// CPU use of the whole node; `None` = not measured.
    pub node_used: Option<Sample>,
    /// All pods of the node; empty = not known, since a node without any pod has no kubelet.
    pub pods: Vec<Pod>,
    /// CPU use of pods, known or not; `None` = not measured.
    pub pods_used: Option<BTreeMap<PodId, Sample>>,
    /// Processes beside Kubernetes that the configuration names.
    pub host_apps: Vec<HostApp>,
    /// The CPUs that are online; empty = not known.
    pub cpus: Vec<Cpu>,
    /// What the kubelet does about CPUs by itself.
    pub kubelet: Kubelet,
    /// What the kernel says now.
    pub in_force: InForce,
    /// What can be written here.
    pub controls: Controls,
    /// Whether the pods outside of the tier BestEffort suddenly use more CPU than they did for some seconds.
    pub has_load_risen: bool,
}

/// A measured CPU use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In millionths of a CPU.
    pub micro_cpu: u64,
    /// When the window that it was measured in ended, on the clock of `now`.
    pub at_usec: u64,
}

impl Sample {
    /// The use, unless it was measured too long ago.
    pub fn fresh(&self, now_usec: u64) -> Option<u64> {
        (now_usec.saturating_sub(self.at_usec) <= MAX_SAMPLE_AGE_USEC).then_some(self.micro_cpu)
    }
}

/// The Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `status.capacity.cpu`.
    pub capacity: MilliCpu,
    /// `status.allocatable.cpu`.
    pub allocatable: MilliCpu,
    /// Annotation [`cpu_sets::RESERVATION`].
    pub reservation: Reservation,
    /// Annotation [`cpu_sets::SYSTEM_QOS`].
    pub system: SystemQos,
}

impl Node {
    /// CPU kept from pods: the kubelet's reservation or the annotation's, whichever is more.
    pub fn reserved(&self) -> MilliCpu {
        reserved(self.capacity, self.allocatable, MilliCpu(self.reservation.cpu_milli))
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Names it in samples and targets.
    pub id: PodId,
    /// The class of its label; `None` where it has none or one that does not exist.
    pub class: Option<QosClass>,
    /// Kubernetes' QoS of it: which tier it is in.
    pub kube_qos: KubeQos,
    /// Whether it is pending or running.
    pub is_active: bool,
    /// The CPUs that the annotation [`cpu_sets::RESOURCE_STATUS`] pins it to; empty where it does not.
    pub pinned: CpuSet,
    /// Whether that annotation chooses NUMA nodes for it.
    pub has_numa_nodes: bool,
    /// Its containers that have a cgroup.
    pub containers: Vec<ContainerId>,
    /// How long it waited for CPUs; `None` = not measured.
    pub pressure: Option<Pressure>,
    /// Whether the trigger [`crate::EARLY_TICK`] fired for it.
    pub is_alarmed: bool,
}

impl Pod {
    /// A running Burstable pod of no class, without containers.
    pub fn new(id: PodId) -> Self {
        Self {
            id,
            class: None,
            kube_qos: KubeQos::Burstable,
            is_active: true,
            pinned: CpuSet::default(),
            has_numa_nodes: false,
            containers: Vec::new(),
            pressure: None,
            is_alarmed: false,
        }
    }

    /// Whether it is within the tier that is suppressed.
    pub fn is_in_tier(&self) -> bool {
        self.is_active && self.kube_qos == KubeQos::BestEffort
    }
}

/// PSI of a pod's CPU over a window, all in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited for a CPU (`some`).
    pub some_usec: u64,
    /// Time for which its own CFS quotas held it back, which the kernel counts as waiting too.
    pub throttled_usec: u64,
    /// Length of the window.
    pub window_usec: u64,
}

impl Pressure {
    /// Time that it waited for others.
    pub fn stalled_usec(&self) -> u64 {
        self.some_usec.saturating_sub(self.throttled_usec)
    }

    /// Whether that is at least so many percent of the window.
    pub fn is_at_least(&self, percent: u32) -> bool {
        self.window_usec > 0
            && u128::from(self.stalled_usec()) * 100 >= u128::from(percent) * u128::from(self.window_usec)
    }
}

/// Where the cgroup of a host application begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupBase {
    /// Below the tier BestEffort (`KubepodsBesteffort`).
    KubepodsBestEffort,
    /// Anywhere else, also where nothing is said.
    Other,
}

/// A process beside Kubernetes, from `host-application-config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostApp {
    /// Its class.
    pub class: Option<QosClass>,
    /// Where its cgroup is.
    pub base: CgroupBase,
    /// Its CPU use in millionths of a CPU; `None` = not measured, or too long ago.
    pub used_micro_cpu: Option<u64>,
}

impl HostApp {
    /// Whether it is batch: by class and by place.
    pub fn is_be(&self) -> bool {
        self.class == Some(QosClass::Be) && self.base == CgroupBase::KubepodsBestEffort
    }
}

/// What the kubelet's CPU manager does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Whether its policy is `static`: it then writes the cpusets of pods by itself.
    pub is_static: bool,
    /// CPUs that it has given to containers alone, from `cpu_manager_state`.
    pub exclusive: CpuSet,
}

/// A CFS quota as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time for each period, in microseconds; `None` = unlimited.
    pub quota_usec: Option<u64>,
    /// Length of the period in microseconds.
    pub period_usec: u64,
}

/// What the kernel says now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// CPUs of the tier BestEffort (effective); `None` = cannot be read.
    pub tier_cpus: Option<CpuSet>,
    /// CPUs of the tier's containers (effective).
    pub container_cpus: BTreeMap<ContainerId, CpuSet>,
    /// CFS quota of the tier; `None` = cannot be read.
    pub tier_quota: Option<Quota>,
}

/// What can be written here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    /// `cpuset.cpus`, down to containers.
    pub cpuset: bool,
    /// CFS quota of the tier.
    pub quota: bool,
    /// `cpu.idle` of the tier (Linux 5.15).
    pub idle: bool,
    /// CPU weight of the tier.
    pub weight: bool,
}

impl Default for Controls {
    fn default() -> Self {
        Self { cpuset: true, quota: true, idle: true, weight: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lasts_two_intervals() {
        for (at_usec, now_usec, fresh) in [
            (0, 0, Some(7)),
            (0, 2_000_000, Some(7)),
            (0, 2_000_001, None),
            (5, 2_000_005, Some(7)),
            // A clock that went back makes nothing old.
            (9_000_000, 1_000_000, Some(7)),
        ] {
            assert_eq!(Sample { micro_cpu: 7, at_usec }.fresh(now_usec), fresh, "{at_usec} {now_usec}");
        }
    }

    #[test]
    fn waiting_for_ones_own_quota_is_no_pressure() {
        let pressure = |some_usec, throttled_usec, window_usec| Pressure { some_usec, throttled_usec, window_usec };
        for (pressure, percent, at_least) in [
            (pressure(100_000, 0, 1_000_000), 10, true),
            (pressure(99_999, 0, 1_000_000), 10, false),
            (pressure(500_000, 400_001, 1_000_000), 10, false),
            (pressure(100, 900, 1_000_000), 1, false),
            (pressure(0, 0, 1_000_000), 0, true),
            // An empty window says nothing.
            (pressure(5, 0, 0), 10, false),
            (pressure(u64::MAX, 0, u64::MAX), 100, true),
        ] {
            assert_eq!(pressure.is_at_least(percent), at_least, "{pressure:?} {percent}");
        }
    }
}
