//! The inputs of an evaluation. `sources` and `meter` fill them from the host's columns.

use std::collections::BTreeMap;

use qosm_sdk::{ContainerId, KubeQos, MilliCpu, PodId, QosClass};

use crate::allowed::reserved;
use crate::{Cpu, CpuSet, Reservation, SystemQos};

/// Interval between samples, in microseconds.
pub const INTERVAL_USEC: u64 = 1_000_000;
/// Age in microseconds above which a sample is ignored.
pub const MAX_SAMPLE_AGE_USEC: u64 = 2 * INTERVAL_USEC;

/// All inputs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Kubernetes node; `None` if unknown.
    pub node: Option<Node>,
    /// CPU use of the whole node; `None` if not measured.
    pub node_used: Option<Sample>,
    /// All pods of the node; empty if unknown, since a node with a kubelet always has pods.
    pub pods: Vec<Pod>,
    /// CPU use by pod, including unknown pods; `None` if not measured.
    pub pods_used: Option<BTreeMap<PodId, Sample>>,
    /// CPU use of pods outside the tier BestEffort that have no row in `pods_used`; `None` if not measured.
    pub unlisted_used: Option<Sample>,
    /// Host applications that the configuration names.
    pub host_apps: Vec<HostApp>,
    /// CPUs that are online; empty if unknown.
    pub cpus: Vec<Cpu>,
    /// State of the kubelet's CPU manager.
    pub kubelet: Kubelet,
    /// Values in force in the kernel.
    pub in_force: InForce,
    /// Which knobs can be written.
    pub controls: Controls,
    /// Whether the CPU use of pods outside the tier BestEffort suddenly exceeds that of the last few seconds.
    pub has_load_risen: bool,
}

/// A measured CPU use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// CPU use in millionths of a CPU.
    pub micro_cpu: u64,
    /// End of the measurement window, on the clock of `now`.
    pub at_usec: u64,
}

impl Sample {
    /// The use; `None` if the sample is older than [`MAX_SAMPLE_AGE_USEC`].
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
    /// CPU that the node keeps from pods: the kubelet's reservation or the annotation's, whichever is larger.
    pub fn reserved(&self) -> MilliCpu {
        reserved(self.capacity, self.allocatable, MilliCpu(self.reservation.cpu_milli))
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Id of the pod in samples and targets.
    pub id: PodId,
    /// The class of its label; `None` if it has none or an unknown one.
    pub class: Option<QosClass>,
    /// Kubernetes QoS of the pod, which decides its tier.
    pub kube_qos: KubeQos,
    /// Whether the pod is pending or running.
    pub is_active: bool,
    /// CPUs that the annotation [`cpu_sets::RESOURCE_STATUS`] pins the pod to; empty if it is not pinned.
    pub pinned: CpuSet,
    /// CPUs that the pod's containers are limited to: those of that annotation, or those that the kubelet gave each of them exclusively;
    /// empty if it is not known.
    pub limited_to: CpuSet,
    /// Whether that annotation assigns NUMA nodes to the pod.
    pub has_numa_nodes: bool,
    /// Containers of the pod that have a cgroup.
    pub containers: Vec<ContainerId>,
    /// CPU pressure of the pod; `None` if not measured.
    pub pressure: Option<Pressure>,
    /// Whether the trigger [`crate::EARLY_TICK`] fired for the pod.
    pub is_alarmed: bool,
}

impl Pod {
    /// An active Burstable pod without class and containers.
    pub fn new(id: PodId) -> Self {
        Self {
            id,
            class: None,
            kube_qos: KubeQos::Burstable,
            is_active: true,
            pinned: CpuSet::default(),
            limited_to: CpuSet::default(),
            has_numa_nodes: false,
            containers: Vec::new(),
            pressure: None,
            is_alarmed: false,
        }
    }

    /// Whether the pod is active and in the suppressed tier.
    pub fn is_in_tier(&self) -> bool {
        self.is_active && self.kube_qos == KubeQos::BestEffort
    }
}

/// CPU pressure (PSI) of a pod over a window, all in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited for a CPU (`some`).
    pub some_usec: u64,
    /// Time in which its own CFS quotas throttled the pod, which the kernel counts as waiting too.
    pub throttled_usec: u64,
    /// Length of the window.
    pub window_usec: u64,
}

impl Pressure {
    /// Time in which the pod waited for a CPU that others used.
    pub fn stalled_usec(&self) -> u64 {
        self.some_usec.saturating_sub(self.throttled_usec)
    }

    /// Whether the stall time is at least `percent` of the window.
    pub fn is_at_least(&self, percent: u32) -> bool {
        self.window_usec > 0
            && u128::from(self.stalled_usec()) * 100 >= u128::from(percent) * u128::from(self.window_usec)
    }
}

/// Where the cgroup of a host application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupBase {
    /// Below the tier BestEffort (`KubepodsBesteffort`).
    KubepodsBestEffort,
    /// Anywhere else, or not specified.
    Other,
}

/// A process outside Kubernetes, from `host-application-config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostApp {
    /// QoS class of the application.
    pub class: Option<QosClass>,
    /// Where its cgroup is.
    pub base: CgroupBase,
    /// CPU use in millionths of a CPU; `None` if not measured, or too long ago.
    pub used_micro_cpu: Option<u64>,
}

impl HostApp {
    /// Whether the application is batch: its class is BE and its cgroup is below the tier BestEffort.
    pub fn is_be(&self) -> bool {
        self.class == Some(QosClass::Be) && self.base == CgroupBase::KubepodsBestEffort
    }
}

/// State of the kubelet's CPU manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Whether its policy is `static`. The kubelet then writes the cpusets of pods itself.
    pub is_static: bool,
    /// CPUs that it gave to containers exclusively, from `cpu_manager_state`, and its reserved CPUs.
    pub exclusive: CpuSet,
}

/// A CFS quota in force in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time per period, in microseconds; `None` = unlimited.
    pub quota_usec: Option<u64>,
    /// Length of the period in microseconds.
    pub period_usec: u64,
}

/// Values in force in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Effective CPUs of the tier BestEffort; `None` if they cannot be read.
    pub tier_cpus: Option<CpuSet>,
    /// Effective CPUs of the tier's containers.
    pub container_cpus: BTreeMap<ContainerId, CpuSet>,
    /// CFS quota of the tier; `None` if it cannot be read.
    pub tier_quota: Option<Quota>,
}

impl InForce {
    /// CPUs that batch pods run on: those of the tier's containers, or of the tier while it has none; `None` if they cannot be read.
    pub fn batch_cpus(&self) -> Option<CpuSet> {
        let all = self.container_cpus.values().cloned().reduce(|all, cpus| all.union(&cpus));
        all.or_else(|| self.tier_cpus.clone())
    }
}

/// Which knobs can be written.
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
            // If the clock goes back, no sample becomes stale.
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
            // An empty window is never at least a percentage.
            (pressure(5, 0, 0), 10, false),
            (pressure(u64::MAX, 0, u64::MAX), 100, true),
        ] {
            assert_eq!(pressure.is_at_least(percent), at_least, "{pressure:?} {percent}");
        }
    }
}
