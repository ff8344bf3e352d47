//! How much CPU batch pods may use so that the node stays below its watermark.

use std::collections::BTreeMap;
use std::fmt;

use qosm_sdk::{KubeQos, MilliCpu, PodId, QosClass};

use crate::config::Thresholds;
use crate::input::{HostApp, Node, Pod};

/// Millionths of a CPU in a thousandth.
const MICRO_PER_MILLI: u64 = 1_000;

/// CPU use of the node by kind of user, in millionths of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Use of all pods, including unknown pods.
    pub pods: u64,
    /// Use of the pods among them that are not batch.
    pub non_be_pods: u64,
    /// Use of all host applications with a sample.
    pub host_apps: u64,
    /// Use of the host applications among them that are not batch.
    pub non_be_host_apps: u64,
}

impl Uses {
    /// Adds up samples. A sample of a pod that is not in `pods` counts as not batch, and so does `unlisted`, the use of pods outside the
    /// tier BestEffort without a sample of their own. The use of an application without a sample is part of the system's use.
    pub fn new(pods: &[Pod], samples: &BTreeMap<PodId, u64>, unlisted: u64, host_apps: &[HostApp]) -> Self {
        let known: BTreeMap<PodId, &Pod> = pods.iter().map(|pod| (pod.id, pod)).collect();
        let mut uses = Self { pods: unlisted, non_be_pods: unlisted, ..Self::default() };
        for (id, used) in samples {
            uses.pods = uses.pods.saturating_add(*used);
            if known.get(id).is_none_or(|pod| is_non_be(pod.class, pod.kube_qos)) {
                uses.non_be_pods = uses.non_be_pods.saturating_add(*used);
            }
        }
        for (app, used) in host_apps.iter().filter_map(|app| Some((app, app.used_micro_cpu?))) {
            uses.host_apps = uses.host_apps.saturating_add(used);
            if !app.is_be() {
                uses.non_be_host_apps = uses.non_be_host_apps.saturating_add(used);
            }
        }
        uses
    }

    /// Use of batch pods.
    pub fn be_pods(&self) -> u64 {
        self.pods.saturating_sub(self.non_be_pods)
    }
}

/// Whether a pod is not batch: its class is not `BE` and its Kubernetes QoS is not BestEffort.
///
/// Source: koordinator `pkg/koordlet/qosmanager/helpers/calculator.go`.
pub fn is_non_be(class: Option<QosClass>, kube_qos: KubeQos) -> bool {
    class != Some(QosClass::Be) && kube_qos != KubeQos::BestEffort
}

/// The CPU that batch pods may use, and the terms it is computed from. All amounts in thousandths of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Capacity of the node.
    pub capacity: i64,
    /// The watermark, in percent of the capacity.
    pub threshold_percent: i64,
    /// Use of pods that are not batch.
    pub non_be_pods: i64,
    /// Use of host applications that are not batch.
    pub non_be_host_apps: i64,
    /// Use of everything else; at least the reserved CPU.
    pub system: i64,
    /// Whether the reservation exceeds the system's use.
    pub is_reserved: bool,
    /// CPU that batch pods always keep (`cpuSuppressMinPercent`); `None` if not configured.
    pub floor: Option<i64>,
    /// The result. May be negative: the minimum of the mode applies then.
    pub milli: i64,
}

impl Allowed {
    /// `capacity × threshold % − non-BE pods − non-BE host applications − system`, at least the floor, where `system =
    /// max(node − all pods − all host applications, 0, reserved)` and `reserved = max(capacity − allocatable, annotation)`.
    ///
    /// Source: koordinator `pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go`,
    /// `pkg/koordlet/qosmanager/helpers/calculator.go`. As there, each term is rounded down to a thousandth by itself.
    pub fn new(strategy: &Thresholds, node: &Node, node_used_micro_cpu: u64, uses: &Uses) -> Self {
        let capacity = signed(node.capacity.0);
        let reserved = node.reserved().0.saturating_mul(MICRO_PER_MILLI);
        let rest = node_used_micro_cpu.saturating_sub(uses.pods).saturating_sub(uses.host_apps);
        let percent = |percent: i64| capacity.saturating_mul(percent) / 100;
        let threshold_percent = strategy.threshold();
        let (non_be_pods, non_be_host_apps) = (milli(uses.non_be_pods), milli(uses.non_be_host_apps));
        let system = milli(rest.max(reserved));
        let left = percent(threshold_percent)
            .saturating_sub(non_be_pods)
            .saturating_sub(non_be_host_apps)
            .saturating_sub(system);
        let floor = strategy.min_percent.map(percent);
        Self {
            capacity,
            threshold_percent,
            non_be_pods,
            non_be_host_apps,
            system,
            is_reserved: reserved > rest,
            floor,
            milli: left.max(floor.unwrap_or(left)),
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, threshold_percent, non_be_pods, non_be_host_apps, system, .. } = self;
        let what = if self.is_reserved { "reserved for the system" } else { "of the system" };
        write!(f, "{threshold_percent} % of {capacity}m, less {non_be_pods}m of latency-sensitive pods")?;
        if *non_be_host_apps > 0 {
            write!(f, ", {non_be_host_apps}m of host applications")?;
        }
        write!(f, " and {system}m {what}: {}m", self.milli)?;
        match self.floor {
            Some(floor) if floor == self.milli => f.write_str(" (cpuSuppressMinPercent)"),
            _ => Ok(()),
        }
    }
}

fn milli(micro_cpu: u64) -> i64 {
    signed(micro_cpu / MICRO_PER_MILLI)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// CPU that the node keeps from pods: the kubelet's reservation or the annotation's, whichever is larger.
pub(crate) fn reserved(capacity: MilliCpu, allocatable: MilliCpu, annotation: MilliCpu) -> MilliCpu {
    MilliCpu(capacity.0.saturating_sub(allocatable.0)).max(annotation)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::input::CgroupBase;

    const CPU: u64 = 1_000_000;

    fn pod(id: PodId, class: Option<QosClass>, kube_qos: KubeQos) -> Pod {
        Pod { class, kube_qos, ..Pod::new(id) }
    }

    fn strategy(threshold: i64, min: Option<i64>) -> Thresholds {
        Thresholds { threshold_percent: Some(threshold), min_percent: min, ..Thresholds::default() }
    }

    #[test]
    fn a_pod_is_batch_by_label_or_by_kubernetes_qos() {
        use KubeQos::{BestEffort, Burstable, Guaranteed};
        for (class, kube_qos, non_be) in [
            (None, Guaranteed, true),
            (None, Burstable, true),
            (None, BestEffort, false),
            (Some(QosClass::Be), Guaranteed, false),
            (Some(QosClass::Be), BestEffort, false),
            (Some(QosClass::Ls), Burstable, true),
            (Some(QosClass::Ls), BestEffort, false),
            (Some(QosClass::Lsr), Guaranteed, true),
            (Some(QosClass::Lse), Guaranteed, true),
            (Some(QosClass::System), BestEffort, false),
        ] {
            assert_eq!(is_non_be(class, kube_qos), non_be, "{class:?} {kube_qos:?}");
        }
    }

    #[test]
    fn uses_are_added_up_by_kind() {
        let pods = [pod(1, Some(QosClass::Ls), KubeQos::Burstable), pod(2, Some(QosClass::Be), KubeQos::BestEffort)];
        let samples = BTreeMap::from([(1, 8 * CPU), (2, 2 * CPU), (9, CPU)]);
        let app = |class, base, used| HostApp { class, base, used_micro_cpu: used };
        let apps = [
            app(Some(QosClass::Be), CgroupBase::KubepodsBestEffort, Some(100)),
            app(Some(QosClass::Be), CgroupBase::Other, Some(20)),
            app(Some(QosClass::Ls), CgroupBase::KubepodsBestEffort, Some(3)),
            app(None, CgroupBase::Other, None),
        ];
        let uses = Uses::new(&pods, &samples, 3 * CPU, &apps);
        // Pod 9 is unknown, so it counts as not batch, as do the 3 CPUs of pods without a sample.
        assert_eq!(uses, Uses { pods: 14 * CPU, non_be_pods: 12 * CPU, host_apps: 123, non_be_host_apps: 23 });
        assert_eq!(uses.be_pods(), 2 * CPU);
    }

    #[test]
    fn the_formula_by_hand() {
        struct Case {
            allocatable: u64,
            annotation: u64,
            node_used: u64,
            ls: u64,
            be: u64,
            threshold: i64,
            min: Option<i64>,
            system: i64,
            milli: i64,
        }
        let base = Case {
            allocatable: 16_000,
            annotation: 0,
            node_used: 12 * CPU,
            ls: 8 * CPU,
            be: 2 * CPU,
            threshold: 70,
            min: None,
            system: 2_000,
            milli: 1_200,
        };
        for (case, expected) in [
            // 11200 − 8000 − (12000 − 10000)
            ("16 CPUs at 70 %", base),
            ("system never below 0", Case { node_used: 9 * CPU, system: 0, milli: 3_200, ..base_of() }),
            ("kubelet's reservation", Case { allocatable: 13_000, system: 3_000, milli: 200, ..base_of() }),
            ("the annotation's", Case { annotation: 4_000, system: 4_000, milli: -800, ..base_of() }),
            (
                "the larger one",
                Case { allocatable: 11_000, annotation: 4_000, system: 5_000, milli: -1_800, ..base_of() },
            ),
            ("smaller than what is used", Case { allocatable: 15_000, system: 2_000, milli: 1_200, ..base_of() }),
            // 10400 − 8000 − 2000
            ("the default watermark", Case { threshold: 65, milli: 400, ..base_of() }),
            ("a floor below", Case { min: Some(5), milli: 1_200, ..base_of() }),
            // 16000 × 20 %
            ("a floor above", Case { min: Some(20), milli: 3_200, ..base_of() }),
            ("a floor of nothing", Case { threshold: 0, min: Some(0), milli: 0, ..base_of() }),
            ("negative", Case { threshold: 0, milli: -10_000, ..base_of() }),
            // 1.2345 CPUs become 1234m, and 0.9999 of the rest 999m: each term is rounded down separately.
            ("rounding", Case { node_used: 4_234_400, ls: 1_234_500, system: 999, milli: 8_967, ..base_of() }),
            ("an idle node", Case { node_used: 0, ls: 0, be: 0, system: 0, milli: 11_200, ..base_of() }),
        ] {
            let node = Node {
                capacity: MilliCpu(16_000),
                allocatable: MilliCpu(expected.allocatable),
                reservation: crate::Reservation { cpu_milli: expected.annotation, ..Default::default() },
                ..Node::default()
            };
            let pods = expected.ls + expected.be;
            let uses = Uses { pods, non_be_pods: expected.ls, ..Uses::default() };
            let allowed = Allowed::new(&strategy(expected.threshold, expected.min), &node, expected.node_used, &uses);
            assert_eq!((allowed.system, allowed.milli), (expected.system, expected.milli), "{case}: {allowed}");
        }

        fn base_of() -> Case {
            Case {
                allocatable: 16_000,
                annotation: 0,
                node_used: 12 * CPU,
                ls: 8 * CPU,
                be: 2 * CPU,
                threshold: 70,
                min: None,
                system: 2_000,
                milli: 1_200,
            }
        }
    }

    #[test]
    fn it_says_what_it_came_from() {
        let node = Node { capacity: MilliCpu(16_000), allocatable: MilliCpu(13_000), ..Node::default() };
        let uses = Uses { pods: 10 * CPU, non_be_pods: 8 * CPU, host_apps: CPU / 2, non_be_host_apps: CPU / 2 };
        let allowed = Allowed::new(&strategy(70, None), &node, 12 * CPU, &uses);
        insta::assert_snapshot!(allowed, @"70 % of 16000m, less 8000m of latency-sensitive pods, 500m of host applications and 3000m reserved for the system: -300m");
        let allowed = Allowed::new(&strategy(70, Some(10)), &node, 12 * CPU, &uses);
        insta::assert_snapshot!(allowed, @"70 % of 16000m, less 8000m of latency-sensitive pods, 500m of host applications and 3000m reserved for the system: 1600m (cpuSuppressMinPercent)");
    }

    proptest! {
        #[test]
        fn more_load_never_allows_more(
            capacity in 0..512_000_u64, node_used: u32, pods: u32, ls: u32, more: u32, threshold in 0..=100_i64, min in proptest::option::of(0..=100_i64),
        ) {
            let node = Node { capacity: MilliCpu(capacity), allocatable: MilliCpu(capacity), ..Node::default() };
            let ls = ls.min(pods);
            let uses = |more: u32| Uses {
                pods: u64::from(pods) + u64::from(more), non_be_pods: u64::from(ls) + u64::from(more), ..Uses::default()
            };
            let at = |more: u32| Allowed::new(&strategy(threshold, min), &node, u64::from(node_used) + u64::from(more), &uses(more)).milli;
            prop_assert!(at(more) <= at(0));
            prop_assert!(at(0) <= (i64::try_from(capacity).unwrap() * threshold / 100).max(min.unwrap_or(0) * i64::try_from(capacity).unwrap() / 100));
        }

        #[test]
        fn no_number_makes_it_panic(capacity: u64, allocatable: u64, node_used: u64, pods: u64, ls: u64, threshold: i64, min: Option<i64>) {
            let node = Node { capacity: MilliCpu(capacity), allocatable: MilliCpu(allocatable), ..Node::default() };
            let uses = Uses { pods, non_be_pods: ls, host_apps: pods, non_be_host_apps: ls };
            let _ = Allowed::new(&strategy(threshold, min), &node, node_used, &uses).to_string();
        }
    }
}
