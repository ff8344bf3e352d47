//! Computes the batch amount of each NUMA zone.
//!
//! The use of the system, the reservation and the use of dangling processes are not known by zone, so each zone gets an equal part. A pod's
//! amounts are divided among the zones assigned to it, or among all if none are.

use crate::amounts::Amounts;
use crate::batch::{Amount, High, HighPod, Terms, amounts};
use crate::decimal::Decimal;
use crate::node::Zone;
use crate::strategy::Strategy;

/// The batch amounts of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneAmount {
    /// Number of the NUMA node.
    pub id: u32,
    /// The amounts of CPU and memory.
    pub amounts: [Amount; 2],
}

impl ZoneAmount {
    /// The values of both amounts.
    pub fn values(&self) -> Amounts {
        let [cpu, memory] = self.amounts;
        Amounts::new(cpu.value, memory.value)
    }
}

/// Amounts of the whole node that are divided among the zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole<'p> {
    /// Amounts that pods may not use.
    pub reserved: Amounts,
    /// Use of the system.
    pub system: Amounts,
    /// Use of dangling processes of high priority.
    pub dangling: Amounts,
    /// The high-priority pods.
    pub pods: &'p [HighPod],
}

/// Computes the amounts of all zones, in their order.
pub fn zone_amounts(strategy: &Strategy, zones: &[Zone], whole: &Whole<'_>, ratio: Option<Decimal>) -> Vec<ZoneAmount> {
    let mut high = vec![High::default(); zones.len()];
    for pod in whole.pods {
        let is_given = |zone: &Zone| pod.numa_nodes.contains(&zone.id);
        // Zones that the node does not have are ignored.
        let given = zones.iter().filter(|zone| is_given(zone)).count();
        let parts = if given == 0 { zones.len() } else { given };
        let (request, usage) = (pod.request.part(parts), pod.usage.map(|usage| usage.part(parts)));
        for (_, high) in zones.iter().zip(&mut high).filter(|(zone, _)| given == 0 || is_given(zone)) {
            high.add(request, usage, pod.is_exclusive);
        }
    }
    let parts = zones.len();
    let one = |(zone, mut high): (&Zone, High)| {
        high.add_dangling(whole.dangling.part(parts));
        let terms = Terms {
            capacity: zone.allocatable,
            reserved: whole.reserved.part(parts),
            system: whole.system.part(parts),
            high,
        };
        ZoneAmount { id: zone.id, amounts: amounts(strategy, &terms).map(|amount| amount.normalized(ratio)) }
    };
    zones.iter().zip(high).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::CalculatePolicy;

    const ZONES: [Zone; 2] = [
        Zone { id: 0, allocatable: Amounts::new(50_000, 1000) },
        Zone { id: 1, allocatable: Amounts::new(40_000, 800) },
    ];

    fn strategy() -> Strategy {
        Strategy { cpu_reclaim_percent: 80, memory_reclaim_percent: 100, ..Strategy::default() }
    }

    fn pod(cpu: u64, memory: u64, numa_nodes: &[u32]) -> HighPod {
        let usage = Some(Amounts::new(cpu, memory));
        HighPod { request: Amounts::ZERO, usage, is_exclusive: false, numa_nodes: numa_nodes.to_vec() }
    }

    fn values(strategy: &Strategy, whole: &Whole<'_>) -> Vec<(u64, u64)> {
        let amounts = zone_amounts(strategy, &ZONES, whole, None);
        amounts.iter().map(|zone| (zone.values().cpu_milli, zone.values().memory_bytes)).collect()
    }

    #[test]
    fn each_zone_has_its_own_margin_and_an_even_part_of_the_rest() {
        // CPU: 50000 - 10000 - max(ceil(7001 / 2), ceil(1000 / 2)) - ceil(333 / 2), the second 40000 - 8000 - 3501 - 167.
        let whole = Whole {
            system: Amounts::new(7001, 10),
            reserved: Amounts::new(1000, 31),
            dangling: Amounts::new(333, 5),
            pods: &[],
        };
        assert_eq!(values(&strategy(), &whole), [(36_332, 981), (28_332, 781)]);
    }

    #[test]
    fn a_pod_counts_where_it_has_been_placed() {
        let empty = [(40_000, 1000), (32_000, 800)];
        let less = |first: (u64, u64), second: (u64, u64)| {
            [(empty[0].0 - first.0, empty[0].1 - first.1), (empty[1].0 - second.0, empty[1].1 - second.1)]
        };
        for (nodes, expected) in [
            (&[] as &[u32], less((501, 51), (501, 51))),
            (&[0, 1], less((501, 51), (501, 51))),
            (&[1], less((0, 0), (1001, 101))),
            (&[0], less((1001, 101), (0, 0))),
            (&[1, 7], less((0, 0), (1001, 101))),
            (&[7], less((501, 51), (501, 51))),
        ] {
            let pods = [pod(1001, 101, nodes)];
            assert_eq!(values(&strategy(), &Whole { pods: &pods, ..Whole::default() }), expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_pod_without_metric_and_an_exclusive_one_count_as_on_the_node() {
        let request = Amounts::new(2000, 200);
        let usage = Some(Amounts::new(1000, 300));
        for (usage, is_exclusive, policy, expected) in [
            (None, false, CalculatePolicy::Usage, (1000, 100)),
            (None, false, CalculatePolicy::MaxUsageRequest, (1000, 100)),
            (usage, false, CalculatePolicy::Usage, (500, 150)),
            (usage, true, CalculatePolicy::Usage, (1000, 150)),
            (usage, false, CalculatePolicy::MaxUsageRequest, (1000, 150)),
        ] {
            let pods = [HighPod { request, usage, is_exclusive, numa_nodes: vec![] }];
            let strategy = Strategy { cpu_policy: policy, memory_policy: policy, ..strategy() };
            let seen = values(&strategy, &Whole { pods: &pods, ..Whole::default() })[0];
            assert_eq!(seen, (40_000 - expected.0, 1000 - expected.1), "{usage:?} {is_exclusive} {policy:?}");
        }
        let pods = [HighPod { request, usage, ..HighPod::default() }];
        let strategy = Strategy { memory_policy: CalculatePolicy::Request, ..strategy() };
        assert_eq!(values(&strategy, &Whole { pods: &pods, ..Whole::default() })[0].1, 900);
    }

    #[test]
    fn cap_and_ratio_apply_to_a_zone_too() {
        let strategy = Strategy { batch_cpu_threshold_percent: Some(50), ..strategy() };
        let amounts = zone_amounts(&strategy, &ZONES, &Whole::default(), Some(Decimal::hundredths(150)));
        let cpu: Vec<_> = amounts.iter().map(|zone| zone.values().cpu_milli).collect();
        assert_eq!(cpu, [37_500, 30_000]);
        assert_eq!(zone_amounts(&strategy, &[], &Whole::default(), None), []);
    }
}
