//! Shadow: a policy that is evaluated on what everybody else sees, and whose settings are compared instead of written.
//!
//! What it asks for goes into a stack of leases of its own, which nothing but the comparison looks at: no verdict is taken from it,
//! so there is nothing to plan, to journal or to write. Its events are counted and go no further, and what it saves is kept under
//! a key of its own.
//!
//! It sees the node as the active policies shape it: the quotas in the column of bandwidths are those in force, and their baselines
//! are what lies beneath the active leases. So each tick answers one question, "what would this version do next, standing where the
//! active one stands?", and an error does not add up. Where each version would have led a node by itself is what a replay of both
//! tells ([`crate::versus`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_engine::Staged;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Leases, Timestamp};
use qosm_model::setting::Setting;

use crate::agent::{Agent, Unloaded};
use crate::arbitrate::log;
use crate::policy::{Health, Now, Policy};

/// What a shadow would do.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// The active policy that it is compared with; `None` = whatever is in force.
    pub(crate) of: Option<Arc<str>>,
    /// What it would hold. Never applied.
    pub(crate) leases: Leases,
    /// The last tick's comparison; `None` while the shadow does not run.
    pub(crate) now: Option<Comparison>,
    pub(crate) totals: Totals,
}

/// All comparisons so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// When the first one was made.
    pub(crate) since: Option<Timestamp>,
    /// How many were made: one a tick while the shadow runs.
    pub(crate) ticks: u64,
    /// How many of them found a difference.
    pub(crate) differing_ticks: u64,
    pub(crate) counts: BTreeMap<Knob, Counts>,
    /// Events that pods' owners were not told.
    pub(crate) events_withheld: u64,
    /// Containers' pages that were not moved.
    pub(crate) migrations_withheld: u64,
    /// Definitions of classes, and members of them.
    pub(crate) classes_withheld: u64,
}

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

    /// The word for it where the first is the active version and the second its shadow.
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
    /// In order.
    pub(crate) differing: Vec<(Target, Knob, Kind)>,
}

impl Comparison {
    /// Compares what `of` holds in `active` with what the shadow would hold. Without `of`, each knob that the shadow asks for is
    /// compared with whoever has it; knobs that it does not ask for are none of its business then.
    pub(crate) fn new(active: &Leases, of: Option<&str>, shadow: &Leases) -> Self {
        let mut comparison = Self::default();
        let theirs = |target, knob| {
            let mut stack = active.stack(target, knob).iter();
            let lease = match of {
                Some(of) => stack.find(|lease| *lease.holder.policy == *of),
                None => stack.next(),
            };
            lease.map(|lease| lease.value)
        };
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
    fn compared(&mut self, comparison: Comparison, now: Now) {
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

/// A shadow that cannot be compared as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// `shadowOf` beside a policy that counts.
    #[error("policy `{0}` has `shadowOf` but is active; add `mode: shadow`, or take `shadowOf` away")]
    NotAShadow(String),
    /// `shadowOf` names no active policy.
    #[error("policy `{policy}`: shadowOf: no active policy `{of}` is configured; there are: {known}")]
    Unknown {
        /// The shadow.
        policy: String,
        /// What it names.
        of: String,
        /// What there is.
        known: String,
    },
}

/// Finds out which active policy each shadow is compared with: the one that its entry names, else the first whose module gives
/// itself the same name. A shadow that saved nothing yet begins with what that policy saved, as a new version of it would.
///
/// # Errors
///
/// [`ShadowError`] names the entry that does not fit.
pub(crate) fn pair(policies: &mut [Policy], unloaded: &[Unloaded]) -> Result<(), ShadowError> {
    let mut pairs = Vec::new();
    for (place, policy) in policies.iter().enumerate() {
        let active = || policies.iter().filter(|other| other.mode().is_active());
        let named = policy.shadow_of();
        if policy.mode().is_active() {
            if named.is_some() {
                return Err(ShadowError::NotAShadow(policy.name().to_string()));
            }
            continue;
        }
        let found = match named {
            Some(named) => active().find(|other| **other.name() == *named),
            None => active().find(|other| other.description.name == policy.description.name),
        };
        // A policy that is there but was not loaded holds nothing: then all that the shadow asks for is its own.
        let is_unloaded = |of: &str| unloaded.iter().any(|other| other.mode.is_active() && other.policy == of);
        let of = match (found, named) {
            (Some(found), _) => Some(Arc::clone(found.name())),
            (None, Some(named)) if is_unloaded(named) => Some(named.into()),
            (None, Some(named)) => {
                return Err(ShadowError::Unknown {
                    policy: policy.name().to_string(),
                    of: named.to_owned(),
                    known: active().map(|other| other.name().to_string()).collect::<Vec<_>>().join(", "),
                });
            }
            (None, None) => None,
        };
        let state = found.filter(|_| policy.saved().is_empty()).map(|found| found.saved().to_vec());
        pairs.push((place, of, state));
    }
    for (place, of, state) in pairs {
        let Some(policy) = policies.get_mut(place) else { continue };
        if let Some(state) = state {
            policy.begin_with(&state);
        }
        if let Some(shadow) = &mut policy.shadow {
            shadow.of = of;
        }
    }
    Ok(())
}

impl Agent {
    /// Takes what a shadow staged: its leases change, and nothing else does. What a module may stage is taken apart field by field,
    /// so that whatever is added to it has to be kept from the node here.
    pub(crate) fn take_shadowed(&mut self, place: usize, staged: Vec<Staged>, anew: bool, now: Now) {
        let Some(policy) = self.policies.get_mut(place) else { return };
        let (holder, key) = (policy.holder.clone(), policy.state_key());
        let Some(shadow) = &mut policy.shadow else { return };
        let mut undeclared: BTreeSet<_> =
            if anew { shadow.leases.held_by(&holder.policy).collect() } else { BTreeSet::new() };
        for part in staged {
            let Staged { settings, events, rejections: _, state, log: lines, log_dropped: _ } = part;
            log(&holder.policy, &lines);
            shadow.totals.events_withheld += u64::try_from(events.len()).unwrap_or(u64::MAX);
            if let Some(state) = state {
                self.unsaved.retain(|(name, _)| *name != key);
                self.unsaved.push((key.clone(), state));
            }
            for setting in settings {
                match setting {
                    Setting::Hold { target, knob, value, reason } => {
                        undeclared.remove(&(target, knob));
                        shadow.leases.hold(&holder, target, knob, value, reason, now.wall);
                    }
                    Setting::Release { target, knob } => {
                        shadow.leases.release(&holder.policy, target, knob);
                    }
                    // It is not told of any progress: as far as it sees, the migration waits in line.
                    Setting::Migrate(_) => shadow.totals.migrations_withheld += 1,
                    Setting::StopMigration { container: _ } => {}
                    // Nor does it see classes of its own: to it, none is in force.
                    Setting::DefineClass { .. } | Setting::AssignClass { .. } => shadow.totals.classes_withheld += 1,
                    Setting::UndefineClass { class: _ } | Setting::ReleaseClass { target: _ } => {}
                }
            }
        }
        for (target, knob) in undeclared {
            shadow.leases.release(&holder.policy, target, knob);
        }
    }

    /// Compares each shadow that runs with what it stands beside.
    pub(crate) fn compare_shadows(&mut self, now: Now) {
        for policy in &mut self.policies {
            let name = Arc::clone(policy.name());
            let runs = policy.health == Health::Running && policy.evaluations > 0;
            let Some(shadow) = &mut policy.shadow else { continue };
            if !runs {
                shadow.now = None;
                continue;
            }
            let comparison = Comparison::new(&self.leases, shadow.of.as_deref(), &shadow.leases);
            self.metrics.compared(&name, &comparison);
            shadow.compared(comparison, now);
        }
    }

    /// Nobody holds anything on this target any more, in the light or in the shadow. Names the knobs that were held.
    pub(crate) fn forget_leases(&mut self, target: Target) {
        self.leases.forget(target);
        for shadow in self.policies.iter_mut().filter_map(|policy| policy.shadow.as_mut()) {
            shadow.leases.forget(target);
        }
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
            leases.hold(&holder, target, knob, Value::Number(value), "".into(), Timestamp(0));
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
