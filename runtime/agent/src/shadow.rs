//! Shadow: a policy that is evaluated on the same columns as the others, and whose settings are compared instead of written.
//!
//! Its settings go into a stack of leases of its own, which only the comparison reads: they are not resolved, planned, journalled or
//! written. Its events are counted and not sent, and its saved state is kept under a key of its own.
//!
//! It sees the node as the active policies shape it: the quotas in the column of bandwidths are those in force, and their baselines
//! are what lies beneath the active leases. So each tick answers one question, "what would this version do next, standing where the
//! active one stands?", and errors do not accumulate. A replay of both ([`crate::compare`]) shows what each version would have made of
//! a node by itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use qosm_model::eviction::Eviction;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Lease, Leases, Timestamp};
use qosm_model::node_resource::{Offer, ResourceName};

use crate::now::Now;

/// What a shadow would do.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// The active policy that it is compared with; `None` = the values in force.
    pub(crate) of: Option<Arc<str>>,
    /// The leases that the shadow would hold. Never applied.
    pub(crate) leases: Leases,
    /// The last tick's comparison; `None` while the shadow does not run.
    pub(crate) now: Option<Comparison>,
    pub(crate) totals: Totals,
}

/// All comparisons so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// When the first comparison was made.
    pub(crate) since: Option<Timestamp>,
    /// Number of comparisons: one a tick while the shadow runs.
    pub(crate) ticks: u64,
    /// Number of comparisons that found a difference.
    pub(crate) differing_ticks: u64,
    pub(crate) counts: BTreeMap<Knob, Counts>,
    /// Events that were not sent.
    pub(crate) events_withheld: u64,
    /// Containers' pages that were not moved.
    pub(crate) migrations_withheld: u64,
    /// Definitions of classes, and members of them.
    pub(crate) classes_withheld: u64,
    /// Resources that the shadow would publish.
    pub(crate) resources_withheld: BTreeMap<ResourceName, (Offer, Arc<str>)>,
    /// Number of evictions that the shadow asked for.
    pub(crate) evictions_withheld: u64,
    /// The latest of these evictions, each with its reason.
    pub(crate) latest_evictions: VecDeque<String>,
}

/// Maximum number of a shadow's evictions that are shown.
const SHOWN_EVICTIONS: usize = 20;

/// How two versions' settings of one knob differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Both ask for it, with different values.
    Differs,
    /// The first asks for it, the second does not.
    OnlyFirst,
    /// The second asks for it, the first does not.
    OnlySecond,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Differs, Self::OnlyFirst, Self::OnlySecond];

    /// How two settings of one knob differ; `None` = they do not.
    pub(crate) fn of(first: Option<Value>, second: Option<Value>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => (first != second).then_some(Self::Differs),
            (Some(_), None) => Some(Self::OnlyFirst),
            (None, Some(_)) => Some(Self::OnlySecond),
            (None, None) => None,
        }
    }

    /// Name of the kind, where the first is the active version and the second its shadow.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Differs => "differs",
            Self::OnlyFirst => "only-active",
            Self::OnlySecond => "only-shadow",
        }
    }
}

/// How often two versions agreed on one knob, and how often they did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) agreed: u64,
    pub(crate) differed: u64,
    pub(crate) only_first: u64,
    pub(crate) only_second: u64,
}

impl Counts {
    pub(crate) fn count(&mut self, kind: Option<Kind>) {
        match kind {
            None => self.agreed += 1,
            Some(Kind::Differs) => self.differed += 1,
            Some(Kind::OnlyFirst) => self.only_first += 1,
            Some(Kind::OnlySecond) => self.only_second += 1,
        }
    }

    pub(crate) fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Differs => self.differed,
            Kind::OnlyFirst => self.only_first,
            Kind::OnlySecond => self.only_second,
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.agreed += more.agreed;
        self.differed += more.differed;
        self.only_first += more.only_first;
        self.only_second += more.only_second;
    }
}

/// One tick's comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) counts: BTreeMap<Knob, Counts>,
    /// Sorted.
    pub(crate) differing: Vec<(Target, Knob, Kind)>,
}

/// The lease on a knob that a shadow's lease is compared with: that of the policy `of`; without `of`, the first.
pub(crate) fn compared_with<'a>(stack: &'a [Lease], of: Option<&str>) -> Option<&'a Lease> {
    stack.iter().find(|lease| of.is_none_or(|of| *lease.holder.policy == *of))
}

impl Comparison {
    /// Compares what `of` holds in `active` with what the shadow would hold. Without `of`, each knob that the shadow asks for is
    /// compared with the policy that holds it; knobs that it does not ask for are not compared then.
    pub(crate) fn new(active: &Leases, of: Option<&str>, shadow: &Leases) -> Self {
        let mut comparison = Self::default();
        let theirs = |target, knob| compared_with(active.stack(target, knob), of).map(|lease| lease.value);
        for (target, knob, stack) in shadow.held() {
            let own = stack.first().map(|lease| lease.value);
            comparison.count(target, knob, Kind::of(theirs(target, knob), own));
        }
        if of.is_some() {
            for (target, knob, _) in active.held() {
                if shadow.effective(target, knob).is_none() && theirs(target, knob).is_some() {
                    comparison.count(target, knob, Some(Kind::OnlyFirst));
                }
            }
        }
        comparison.differing.sort_unstable();
        comparison
    }

    fn count(&mut self, target: Target, knob: Knob, kind: Option<Kind>) {
        self.counts.entry(knob).or_default().count(kind);
        self.differing.extend(kind.map(|kind| (target, knob, kind)));
    }
}

impl Shadow {
    /// Records an eviction that the shadow asked for. The shadow gets no answer.
    pub(crate) fn evict(&mut self, pod: &str, wanted: &Eviction) {
        let totals = &mut self.totals;
        totals.evictions_withheld += 1;
        if totals.latest_evictions.len() >= SHOWN_EVICTIONS {
            totals.latest_evictions.pop_front();
        }
        let (urgency, reason, message) = (wanted.urgency.as_str(), &wanted.reason, &wanted.message);
        totals.latest_evictions.push_back(format!("{pod} ({urgency}, {reason}): {message}"));
    }

    pub(crate) fn compared(&mut self, comparison: Comparison, now: Now) {
        let totals = &mut self.totals;
        totals.since.get_or_insert(now.wall);
        totals.ticks += 1;
        totals.differing_ticks += u64::from(!comparison.differing.is_empty());
        for (&knob, counts) in &comparison.counts {
            totals.counts.entry(knob).or_default().add(counts);
        }
        self.now = Some(comparison);
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::lease::{Holder, Priority};
    use qosm_model::pod::ContainerId;

    use super::*;

    const APP: Target = Target::Container(ContainerId(1));
    const OTHER: Target = Target::Container(ContainerId(2));

    fn leases(rows: &[(&str, i32, Target, Knob, i64)]) -> Leases {
        let mut leases = Leases::default();
        for &(policy, priority, target, knob, value) in rows {
            let holder = Holder { policy: policy.into(), priority: Priority(priority) };
            leases.acquire(&holder, target, knob, Value::Number(value), "".into(), Timestamp(0));
        }
        leases
    }

    #[track_caller]
    fn check(active: &Leases, of: Option<&str>, shadow: &Leases, expected: &[(Target, Knob, Kind)], agreed: u64) {
        let comparison = Comparison::new(active, of, shadow);
        assert_eq!(comparison.differing, expected);
        assert_eq!(comparison.counts.values().map(|counts| counts.agreed).sum::<u64>(), agreed);
        let differing: u64 = comparison.counts.values().flat_map(|counts| Kind::ALL.map(|kind| counts.of(kind))).sum();
        assert_eq!(differing, u64::try_from(expected.len()).unwrap_or_default());
    }

    #[test]
    fn a_shadow_is_compared_knob_by_knob() {
        let active = leases(&[
            ("burst", 100, APP, Knob::CfsQuota, 12),
            ("burst", 100, APP, Knob::CfsBurst, 10),
            ("burst", 100, OTHER, Knob::CfsBurst, 10),
        ]);
        let shadow = leases(&[
            ("next", 100, APP, Knob::CfsQuota, 20),
            ("next", 100, APP, Knob::CfsBurst, 10),
            ("next", 100, OTHER, Knob::CfsQuota, 30),
        ]);
        let expected = [
            (APP, Knob::CfsQuota, Kind::Differs),
            (OTHER, Knob::CfsQuota, Kind::OnlySecond),
            (OTHER, Knob::CfsBurst, Kind::OnlyFirst),
        ];
        check(&active, Some("burst"), &shadow, &expected, 1);
    }

    #[test]
    fn what_other_policies_hold_is_no_difference_to_the_version_beside_it() {
        let active = leases(&[
            ("louder", 200, APP, Knob::CfsQuota, 99),
            ("burst", 100, APP, Knob::CfsQuota, 12),
            ("louder", 200, OTHER, Knob::CfsQuota, 99),
        ]);
        check(&active, Some("burst"), &leases(&[("next", 100, APP, Knob::CfsQuota, 12)]), &[], 1);
    }

    #[test]
    fn a_shadow_of_nobody_is_compared_with_whoever_has_its_knobs() {
        let active = leases(&[("louder", 200, APP, Knob::CfsQuota, 99), ("burst", 100, APP, Knob::CfsQuota, 12)]);
        let shadow = leases(&[("next", 100, APP, Knob::CfsQuota, 12), ("next", 100, OTHER, Knob::CfsBurst, 1)]);
        let expected = [(APP, Knob::CfsQuota, Kind::Differs), (OTHER, Knob::CfsBurst, Kind::OnlySecond)];
        check(&active, None, &shadow, &expected, 0);
        check(&active, None, &Leases::default(), &[], 0);
    }

    #[test]
    fn totals_add_up_over_ticks() {
        let active = leases(&[("burst", 100, APP, Knob::CfsQuota, 12)]);
        let mut shadow = Shadow { of: Some("burst".into()), ..Shadow::default() };
        for (tick, value) in [12, 13, 12].into_iter().enumerate() {
            shadow.leases = leases(&[("next", 100, APP, Knob::CfsQuota, value)]);
            let wall = Timestamp(1000 * i64::try_from(tick).unwrap_or_default());
            let comparison = Comparison::new(&active, shadow.of.as_deref(), &shadow.leases);
            shadow.compared(comparison, Now { wall, ..Now::default() });
        }
        let Totals { since, ticks, differing_ticks, counts, .. } = &shadow.totals;
        assert_eq!((*since, *ticks, *differing_ticks), (Some(Timestamp(0)), 3, 1));
        assert_eq!(counts.get(&Knob::CfsQuota), Some(&Counts { agreed: 2, differed: 1, ..Counts::default() }));
    }
}
