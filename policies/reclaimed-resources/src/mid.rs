//! The mid amount: what prod pods are expected to leave unused, plus a share of the unallocated capacity.
//!
//! Koordinator: `pkg/slo-controller/noderesource/plugins/midresource/plugin.go`, `…/plugins/util/util.go`.

use std::fmt;

use crate::amounts::{Amounts, Resource, bounded, share};
use crate::strategy::{MidMode, Strategy};

/// The inputs of the formula.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MidTerms {
    /// Capacity of the node.
    pub capacity: Amounts,
    /// Amounts that pods may not use.
    pub reserved: Amounts,
    /// Use of the system, including host applications of the class prod.
    pub system: Amounts,
    /// Requests of prod pods and pods without a class.
    pub prod_request: Amounts,
    /// What these pods are expected to leave unused; `None` if unknown.
    pub prod_reclaimable: Option<Amounts>,
    /// Use of the whole node; `None` if unknown.
    pub node_used: Option<Amounts>,
}

/// An amount and the terms it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MidAmount {
    /// The resource.
    pub resource: Resource,
    /// The result, in thousandths of a CPU or in bytes.
    pub value: u64,
    /// The formula.
    pub mode: MidMode,
    /// What prod pods are expected to leave unused; 0 in the static mode.
    pub reclaimable: u64,
    /// What is not in use at the moment; 0 in the static mode.
    pub unused: u64,
    /// The added share of the unallocated capacity; in the static mode the fixed share of the capacity.
    pub added: u64,
    /// The upper bound of the result.
    pub cap: u64,
}

impl MidAmount {
    /// Computes the amount of a resource under a strategy.
    pub fn new(resource: Resource, strategy: &Strategy, terms: &MidTerms) -> Self {
        let of = |amounts: Amounts| i128::from(amounts.of(resource));
        let capacity = terms.capacity.of(resource);
        let cap = bounded(share(capacity, strategy.mid_threshold_percent(resource).into()));
        if strategy.mid_mode == MidMode::Static {
            let added = bounded(share(capacity, strategy.mid_static_percent(resource).into()));
            return Self {
                resource,
                value: added.min(cap),
                mode: MidMode::Static,
                reclaimable: 0,
                unused: 0,
                added,
                cap,
            };
        }
        let reclaimable = terms.prod_reclaimable.map_or(0, |amounts| amounts.of(resource));
        // Without measurements, nothing counts as unused.
        let unused = terms.node_used.map_or(0, |used| bounded(i128::from(capacity) - of(used)));
        let kept = of(terms.system).max(of(terms.reserved));
        let unallocated = bounded(i128::from(capacity) - kept - of(terms.prod_request));
        let added = bounded(share(unallocated, strategy.mid_unallocated_percent.into()));
        let value = reclaimable.min(unused).saturating_add(added).min(cap);
        Self { resource, value, mode: MidMode::Reclaim, reclaimable, unused, added, cap }
    }
}

impl fmt::Display for MidAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |amount: u64| self.resource.show(amount.into());
        match self.mode {
            MidMode::Static => write!(f, "static share {} of the capacity", show(self.added))?,
            MidMode::Reclaim => {
                let (reclaimable, unused) = (show(self.reclaimable), show(self.unused));
                write!(f, "min of prod-reclaimable {reclaimable} and unused {unused}")?;
                write!(f, " + {} of what is not allocated", show(self.added))?;
            }
        }
        write!(f, ", at most {}", show(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 CPUs, of which the system keeps 8; prod pods request 60 and are expected to leave 30 unused; 45 are in use.
    fn terms() -> MidTerms {
        MidTerms {
            capacity: Amounts::new(100_000, 1000),
            reserved: Amounts::new(5000, 50),
            system: Amounts::new(8000, 40),
            prod_request: Amounts::new(60_000, 600),
            prod_reclaimable: Some(Amounts::new(30_000, 300)),
            node_used: Some(Amounts::new(45_000, 750)),
        }
    }

    fn values(strategy: &Strategy, terms: &MidTerms) -> (u64, u64) {
        let [cpu, memory] = Resource::EACH.map(|resource| MidAmount::new(resource, strategy, terms).value);
        (cpu, memory)
    }

    #[test]
    fn the_smaller_of_reclaimable_and_unused_and_a_share_of_the_unallocated() {
        // Unused: 55 CPUs, 250 B. Unallocated: 100 - 8 - 60 = 32 CPUs, 1000 - 50 - 600 = 350 B.
        for (unallocated, cpu_cap, memory_cap, expected) in [
            (0, 100, 100, (30_000, 250)),
            (50, 100, 100, (46_000, 425)),
            (100, 100, 100, (62_000, 600)),
            (100, 40, 30, (40_000, 300)),
            (33, 100, 100, (40_560, 365)),
            (0, 0, 100, (0, 250)),
        ] {
            let strategy = Strategy {
                mid_unallocated_percent: unallocated,
                mid_cpu_threshold_percent: cpu_cap,
                mid_memory_threshold_percent: memory_cap,
                ..Strategy::default()
            };
            assert_eq!(values(&strategy, &terms()), expected, "{unallocated} {cpu_cap} {memory_cap}");
        }
    }

    #[test]
    fn what_is_not_known_gives_nothing() {
        let unallocated = Strategy { mid_unallocated_percent: 10, ..Strategy::default() };
        for terms in [
            MidTerms { prod_reclaimable: None, ..terms() },
            MidTerms { node_used: None, ..terms() },
            MidTerms { node_used: Some(Amounts::new(200_000, 2000)), ..terms() },
        ] {
            assert_eq!(values(&Strategy::default(), &terms), (0, 0));
            assert_eq!(values(&unallocated, &terms), (3200, 35), "what is not allocated is known all the same");
        }
        let full = MidTerms { prod_request: Amounts::new(99_000, 990), ..terms() };
        assert_eq!(values(&unallocated, &full), (30_000, 250), "overallocated: nothing is unallocated");
    }

    #[test]
    fn the_static_mode_goes_by_the_capacity_alone() {
        for (cpu, memory, cap, expected) in [
            (20, 30, 100, (20_000, 300)),
            (20, 30, 25, (20_000, 250)),
            (0, 0, 100, (0, 0)),
            (150, 200, 100, (100_000, 1000)),
        ] {
            let strategy = Strategy {
                mid_mode: MidMode::Static,
                mid_static_cpu_percent: cpu,
                mid_static_memory_percent: memory,
                mid_cpu_threshold_percent: cap,
                mid_memory_threshold_percent: cap,
                mid_unallocated_percent: 100,
                ..Strategy::default()
            };
            assert_eq!(values(&strategy, &terms()), expected, "{cpu} {memory} {cap}");
            let unknown = MidTerms { node_used: None, prod_reclaimable: None, ..terms() };
            assert_eq!(values(&strategy, &unknown), expected);
        }
    }

    #[test]
    fn a_reason_holds_every_term() {
        let fixed = Strategy { mid_mode: MidMode::Static, mid_static_cpu_percent: 20, ..Strategy::default() };
        let shared = Strategy { mid_unallocated_percent: 50, ..Strategy::default() };
        assert_eq!(
            MidAmount::new(Resource::Cpu, &fixed, &terms()).to_string(),
            "static share 20000m of the capacity, at most 100000m"
        );
        assert_eq!(
            MidAmount::new(Resource::Cpu, &shared, &terms()).to_string(),
            "min of prod-reclaimable 30000m and unused 55000m + 16000m of what is not allocated, at most 100000m"
        );
    }
}
