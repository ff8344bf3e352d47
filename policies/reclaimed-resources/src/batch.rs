//! The batch amount: the capacity less the safety margin, the system's use and the high-priority pods.
//!
//! Koordinator: `pkg/slo-controller/noderesource/plugins/batchresource/plugin.go`, `…/plugins/util/util.go`.

use std::fmt;

use crate::amounts::{Amounts, Resource, bounded, share};
use crate::decimal::Decimal;
use crate::strategy::{CalculatePolicy, Strategy};

/// The facts about a high-priority pod that the formula needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HighPod {
    /// The pod's request.
    pub request: Amounts,
    /// The pod's use; `None` if it has not been measured.
    pub usage: Option<Amounts>,
    /// Whether its QoS class is LSE, so that its CPUs are not reclaimed even if unused.
    pub is_exclusive: bool,
    /// NUMA nodes assigned to the pod; empty = all.
    pub numa_nodes: Vec<u32>,
}

/// Sums over high-priority pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct High {
    /// Their use; the request of pods without measurements.
    pub used: Amounts,
    /// Their requests.
    pub request: Amounts,
    /// The larger of use and request of each pod, summed up.
    pub max: Amounts,
}

impl High {
    /// Adds a pod. A pod without measurements counts with its request in all three sums, so that a new pod does not count as using nothing.
    pub fn add(&mut self, request: Amounts, usage: Option<Amounts>, is_exclusive: bool) {
        let used = match usage {
            None => request,
            Some(usage) if is_exclusive => Amounts::new(request.cpu_milli, usage.memory_bytes),
            Some(usage) => usage,
        };
        self.used = self.used.plus(used);
        self.request = self.request.plus(request);
        self.max = self.max.plus(request.max(usage.unwrap_or_default()));
    }

    /// Adds the use of processes that belong to no listed pod.
    pub fn add_dangling(&mut self, usage: Amounts) {
        self.used = self.used.plus(usage);
        self.max = self.max.plus(usage);
    }
}

/// The inputs of the formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Capacity of the node, or allocatable amounts of the zone.
    pub capacity: Amounts,
    /// Amounts that pods may not use.
    pub reserved: Amounts,
    /// Use of the system, including host applications of the classes prod and mid.
    pub system: Amounts,
    /// Sums over the high-priority pods.
    pub high: High,
}

/// An amount and the terms it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The resource.
    pub resource: Resource,
    /// The result, in thousandths of a CPU or in bytes.
    pub value: u64,
    /// Which sum of the pods was subtracted.
    pub policy: CalculatePolicy,
    /// Capacity of the node or zone.
    pub capacity: u64,
    /// The safety margin; negative if the node is overcommitted.
    pub margin: i128,
    /// The system's use or the reservation, depending on the policy.
    pub system: u64,
    /// The amount subtracted for high-priority pods.
    pub high: u64,
    /// The cap; `None` if it is not below the result of the formula.
    pub cap: Option<u64>,
}

impl Amount {
    /// Computes the amount of a resource under a strategy.
    pub fn new(resource: Resource, strategy: &Strategy, terms: &Terms) -> Self {
        let capacity = terms.capacity.of(resource);
        let margin = share(capacity, strategy.margin_percent(resource));
        let reserved = terms.reserved.of(resource);
        let used = terms.system.of(resource).max(reserved);
        let policy = strategy.policy(resource);
        let (system, high) = match policy {
            CalculatePolicy::Usage => (used, terms.high.used),
            CalculatePolicy::Request => (reserved, terms.high.request),
            CalculatePolicy::MaxUsageRequest => (used, terms.high.max),
        };
        let high = high.of(resource);
        let left = bounded(i128::from(capacity) - margin - i128::from(system) - i128::from(high));
        let cap = strategy.batch_threshold_percent(resource).map(|percent| bounded(share(capacity, percent.into())));
        let cap = cap.filter(|cap| *cap < left);
        Self { resource, value: cap.unwrap_or(left), policy, capacity, margin, system, high, cap }
    }

    /// The amount in CPUs of the fleet's reference; memory is unchanged.
    #[must_use]
    pub fn normalized(self, ratio: Option<Decimal>) -> Self {
        match ratio {
            Some(ratio) if self.resource == Resource::Cpu => Self { value: ratio.times(self.value), ..self },
            _ => self,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |amount: u64| self.resource.show(amount.into());
        let margin = self.resource.show(self.margin);
        let (capacity, system, high) = (show(self.capacity), show(self.system), show(self.high));
        let (system_name, high_name) = match self.policy {
            CalculatePolicy::Usage => ("system", "high-priority use"),
            CalculatePolicy::Request => ("reserved", "high-priority requests"),
            CalculatePolicy::MaxUsageRequest => ("system", "high-priority max of use and request"),
        };
        write!(f, "capacity {capacity} - margin {margin} - {system_name} {system} - {high_name} {high}")?;
        match self.cap {
            Some(cap) => write!(f, ", capped at {}", show(cap)),
            None => Ok(()),
        }
    }
}

/// The amounts of CPU and memory.
pub(crate) fn amounts(strategy: &Strategy, terms: &Terms) -> [Amount; 2] {
    Resource::EACH.map(|resource| Amount::new(resource, strategy, terms))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy as _, *};

    use super::{Strategy, *};

    const G: u64 = 1_000_000_000;

    /// 100 CPUs and 100 GB, of which 5 CPUs and 10 GB are reserved. The system uses 7 CPUs and 12 GB. Pods use 30 CPUs and 20 GB, request
    /// 40 CPUs and 50 GB, and their maxima add up to 45 CPUs and 60 GB.
    fn terms() -> Terms {
        Terms {
            capacity: Amounts::new(100_000, 100 * G),
            reserved: Amounts::new(5000, 10 * G),
            system: Amounts::new(7000, 12 * G),
            high: High {
                used: Amounts::new(30_000, 20 * G),
                request: Amounts::new(40_000, 50 * G),
                max: Amounts::new(45_000, 60 * G),
            },
        }
    }

    fn strategy() -> Strategy {
        Strategy { cpu_reclaim_percent: 80, memory_reclaim_percent: 90, ..Strategy::default() }
    }

    fn values(strategy: &Strategy, terms: &Terms) -> (u64, u64) {
        let [cpu, memory] = amounts(strategy, terms).map(|amount| amount.value);
        (cpu, memory)
    }

    #[test]
    fn each_policy_takes_its_own_sum_off() {
        use CalculatePolicy::{MaxUsageRequest, Request, Usage};
        // CPU: 100 - 20 - 7 - 30 = 43, 100 - 20 - 7 - 45 = 28.
        // Memory: 100 - 10 - 12 - 20 = 58, 100 - 10 - 10 - 50 = 30, 100 - 10 - 12 - 60 = 18.
        for (cpu_policy, memory_policy, cpu, memory) in [
            (Usage, Usage, 43_000, 58 * G),
            (Usage, Request, 43_000, 30 * G),
            (MaxUsageRequest, Usage, 28_000, 58 * G),
            (Usage, MaxUsageRequest, 43_000, 18 * G),
            (MaxUsageRequest, MaxUsageRequest, 28_000, 18 * G),
        ] {
            let strategy = Strategy { cpu_policy, memory_policy, ..strategy() };
            assert_eq!(values(&strategy, &terms()), (cpu, memory), "{cpu_policy:?} {memory_policy:?}");
        }
    }

    #[test]
    fn the_system_counts_with_what_it_uses_or_what_is_reserved() {
        for (reserved, system, cpu) in
            [(5000, 7000, 43_000), (9000, 7000, 41_000), (0, 0, 50_000), (7000, 7000, 43_000)]
        {
            let terms = Terms { reserved: Amounts::new(reserved, 0), system: Amounts::new(system, 0), ..terms() };
            assert_eq!(values(&strategy(), &terms).0, cpu, "{reserved} {system}");
        }
    }

    #[test]
    fn the_margin_is_truncated_and_may_be_negative() {
        let none = Terms { capacity: Amounts::new(1001, 999), ..Terms::default() };
        for (percent, cpu, memory) in
            [(60, 601, 600), (100, 1001, 999), (65, 651, 650), (0, 0, 0), (120, 1201, 1198), (105, 1051, 1048)]
        {
            let strategy =
                Strategy { cpu_reclaim_percent: percent, memory_reclaim_percent: percent, ..Strategy::default() };
            assert_eq!(values(&strategy, &none), (cpu, memory), "{percent}");
        }
    }

    #[test]
    fn nothing_left_is_zero_and_never_less() {
        let mut full = terms();
        full.high.used = Amounts::new(200_000, 300 * G);
        assert_eq!(values(&strategy(), &full), (0, 0));
        full.high.used = Amounts::new(u64::MAX, u64::MAX);
        assert_eq!(values(&strategy(), &full), (0, 0));
        assert_eq!(values(&strategy(), &Terms::default()), (0, 0));
    }

    #[test]
    fn a_cap_in_percent_of_the_capacity_bounds_the_amount() {
        for (cap, cpu, capped) in [
            (None, 43_000, false),
            (Some(50), 43_000, false),
            (Some(43), 43_000, false),
            (Some(42), 42_000, true),
            (Some(0), 0, true),
        ] {
            let strategy = Strategy { batch_cpu_threshold_percent: cap, ..strategy() };
            let [amount, memory] = amounts(&strategy, &terms());
            assert_eq!((amount.value, amount.cap.is_some()), (cpu, capped), "{cap:?}");
            assert_eq!(memory.value, 58 * G, "each resource has its own cap");
        }
        let strategy = Strategy { batch_memory_threshold_percent: Some(7), ..strategy() };
        assert_eq!(values(&strategy, &terms()), (43_000, 7 * G));
    }

    #[test]
    fn a_pod_counts_by_what_is_known_of_it() {
        let (request, usage) = (Amounts::new(4000, 8 * G), Amounts::new(1000, 9 * G));
        let max = Amounts::new(4000, 9 * G);
        for (given, is_exclusive, used, most) in [
            (Some(usage), false, usage, max),
            (Some(usage), true, Amounts::new(4000, 9 * G), max),
            (None, false, request, request),
            (None, true, request, request),
        ] {
            let mut high = High::default();
            high.add(request, given, is_exclusive);
            assert_eq!(high, High { used, request, max: most }, "{given:?} {is_exclusive}");
        }
    }

    #[test]
    fn dangling_usage_counts_as_used_but_is_not_requested() {
        let mut high = High::default();
        high.add_dangling(Amounts::new(1, 2));
        assert_eq!(high, High { used: Amounts::new(1, 2), request: Amounts::ZERO, max: Amounts::new(1, 2) });
    }

    #[test]
    fn the_ratio_multiplies_cpu_alone_and_only_above_one() {
        let [cpu, memory] = amounts(&strategy(), &terms());
        let ratio = Some(Decimal::hundredths(120));
        assert_eq!((cpu.normalized(ratio).value, memory.normalized(ratio).value), (51_600, 58 * G));
        assert_eq!(cpu.normalized(None).value, 43_000);
    }

    #[test]
    fn a_reason_holds_every_term() {
        let capped = Strategy { batch_cpu_threshold_percent: Some(10), ..strategy() };
        let request = Strategy { memory_policy: CalculatePolicy::Request, ..strategy() };
        let over = Strategy { cpu_reclaim_percent: 110, cpu_policy: CalculatePolicy::MaxUsageRequest, ..strategy() };
        for (amount, text) in [
            (
                Amount::new(Resource::Cpu, &capped, &terms()),
                "capacity 100000m - margin 20000m - system 7000m - high-priority use 30000m, capped at 10000m",
            ),
            (
                Amount::new(Resource::Memory, &request, &terms()),
                "capacity 97656250 KiB - margin 9765625 KiB - reserved 9765625 KiB - high-priority requests 48828125 KiB",
            ),
            (
                Amount::new(Resource::Cpu, &over, &terms()),
                "capacity 100000m - margin -10000m - system 7000m - high-priority max of use and request 45000m",
            ),
        ] {
            assert_eq!(amount.to_string(), text);
        }
    }

    fn any_amounts() -> impl proptest::strategy::Strategy<Value = Amounts> {
        (any::<u64>(), any::<u64>()).prop_map(|(cpu, memory)| Amounts::new(cpu, memory))
    }

    proptest! {
        #[test]
        fn up_to_a_hundred_percent_it_is_never_beyond_the_capacity(
            capacity in any_amounts(), reserved in any_amounts(), system in any_amounts(), used in any_amounts(),
            request in any_amounts(), percent in 0..=100_u32, cap: Option<u16>, policy in 0..3_usize,
        ) {
            let policies = [CalculatePolicy::Usage, CalculatePolicy::Request, CalculatePolicy::MaxUsageRequest];
            let strategy = Strategy {
                cpu_reclaim_percent: percent,
                memory_reclaim_percent: percent,
                memory_policy: policies[policy],
                batch_memory_threshold_percent: cap.map(u32::from),
                ..Strategy::default()
            };
            let mut high = High::default();
            high.add(request, Some(used), false);
            let terms = Terms { capacity, reserved, system, high };
            for amount in amounts(&strategy, &terms) {
                prop_assert!(amount.value <= capacity.of(amount.resource));
            }
        }

        #[test]
        fn more_use_never_gives_more(used in 0..200_000_u64, more in 0..200_000_u64) {
            let at = |used| {
                let mut terms = terms();
                terms.high.used.cpu_milli = used;
                values(&strategy(), &terms).0
            };
            prop_assert!(at(used + more) <= at(used));
        }
    }
}
