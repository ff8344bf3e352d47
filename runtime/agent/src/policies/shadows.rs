//! Shadows among the policies: which active policy each is compared with, and what it would do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_engine::{Cause, LogLevel, LogLine, Staged};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::Leases;
use qosm_model::node_resource::{Offer, ResourceName};
use qosm_model::setting::Setting;

use crate::columns::Readings;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policies::Policies;
use crate::policy::{Evaluated, Health, Policy};
use crate::policy_set::resolved::LoadFailed;
use crate::report::ShadowDecision;
use crate::saved_state::SavedState;
use crate::shadow::Comparison;
use crate::table::PodTable;

/// A shadow that cannot be compared as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShadowError {
    /// `shadowOf` is set for an active policy.
    #[error("policy `{0}` has `shadowOf` but is active; add `mode: shadow`, or take `shadowOf` away")]
    NotAShadow(String),
    /// `shadowOf` names no active policy.
    #[error("policy `{policy}`: shadowOf: no active policy `{of}` is configured; there are: {known}")]
    Unknown {
        /// The shadow.
        policy: String,
        /// The policy that `shadowOf` names.
        of: String,
        /// Names of the active policies.
        known: String,
    },
}

/// Finds out which active policy each shadow is compared with: the one that its entry names, else the first whose module has
/// the same name. A shadow without saved state begins with the saved state of that policy, as a new version of it would.
///
/// # Errors
///
/// [`ShadowError`] names the entry that does not fit.
pub(super) fn pair(policies: &mut [Policy], load_failed: &[LoadFailed]) -> Result<(), ShadowError> {
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
        // A policy that is configured but not loaded holds nothing: all that the shadow asks for counts as a difference.
        let is_unloaded = |of: &str| load_failed.iter().any(|other| other.mode.is_active() && other.policy == of);
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
        let state = found.filter(|_| policy.saved().bytes.is_empty()).map(|found| found.saved().clone());
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

impl Policies {
    /// Evaluates shadows, and returns what they want and did not want before. Settings of active policies are written by then.
    pub(crate) fn evaluate_shadows(
        &mut self,
        due: Vec<(usize, Cause)>,
        readings: &Readings,
        pods: &PodTable,
        metrics: &Metrics,
        now: Now,
    ) -> Vec<ShadowDecision> {
        let mut decisions = Vec::new();
        for (place, cause) in due {
            if let Some(Evaluated::Staged { staged, anew }) = self.run(place, cause, readings, pods, metrics, now) {
                self.take_shadowed(place, staged, anew, pods, now, &mut decisions);
            }
        }
        decisions
    }

    /// Takes what a shadow staged: only its own leases change. `Staged` is destructured field by field, so that a new kind of
    /// request has to be kept from the node here.
    fn take_shadowed(
        &mut self,
        place: usize,
        staged: Vec<Staged>,
        anew: bool,
        pods: &PodTable,
        now: Now,
        decisions: &mut Vec<ShadowDecision>,
    ) {
        let Some(policy) = self.running.get_mut(place) else { return };
        let (holder, key) = (policy.holder.clone(), policy.state_key());
        policy.module_log.write_all(&holder.policy, &staged, now.monotonic);
        let Some(shadow) = &mut policy.shadow else { return };
        // The values that the shadow wanted before, for all knobs that may have changed.
        let mut knobs: BTreeMap<(Target, Knob), Option<Value>> = BTreeMap::new();
        let earlier = shadow.totals.resources_withheld.clone();
        if anew {
            shadow.totals.resources_withheld.clear();
        }
        let mut undeclared: BTreeSet<_> =
            if anew { shadow.leases.held_by(&holder.policy).collect() } else { BTreeSet::new() };
        let mut evictions = Vec::new();
        for part in staged {
            let Staged { settings, events, state, rejections: _, remarks: _, key_problems: _, log: _, log_dropped: _ } =
                part;
            shadow.totals.events_withheld += u64::try_from(events.len()).unwrap_or(u64::MAX);
            if let Some(state) = state {
                self.changes.saved.push((key.clone(), SavedState::new(state, now)));
            }
            for setting in settings {
                match setting {
                    Setting::Hold { target, knob, value, reason } => {
                        undeclared.remove(&(target, knob));
                        knobs.entry((target, knob)).or_insert_with(|| wanted(&shadow.leases, target, knob));
                        shadow.leases.acquire(&holder, target, knob, value, reason, now.wall);
                    }
                    Setting::Release { target, knob } => {
                        knobs.entry((target, knob)).or_insert_with(|| wanted(&shadow.leases, target, knob));
                        shadow.leases.release(&holder.policy, target, knob);
                    }
                    // The shadow sees no progress: to it, the migration is queued.
                    Setting::Migrate(_) => shadow.totals.migrations_withheld += 1,
                    Setting::StopMigration { container: _ } => {}
                    // Nor does the shadow see classes of its own: to it, none is in force.
                    Setting::DefineClass { .. } | Setting::AssignClass { .. } => shadow.totals.classes_withheld += 1,
                    Setting::UndefineClass { class: _ } | Setting::ReleaseClass { target: _ } => {}
                    Setting::Publish { name, offer, reason } => {
                        shadow.totals.resources_withheld.insert(name, (offer, reason));
                    }
                    Setting::Withdraw { name } => {
                        shadow.totals.resources_withheld.remove(&name);
                    }
                    Setting::StaleAfter { seconds: _ } | Setting::WithdrawEviction { pod: _ } => {}
                    Setting::Evict(wanted) => {
                        let pod = pods.get(wanted.pod).map(|entry| entry.pod.key()).unwrap_or_default();
                        shadow.evict(&pod, &wanted);
                        evictions.push(ShadowDecision::evict(&holder.policy, pod, wanted));
                    }
                }
            }
        }
        for (target, knob) in undeclared {
            knobs.entry((target, knob)).or_insert_with(|| wanted(&shadow.leases, target, knob));
            shadow.leases.release(&holder.policy, target, knob);
        }
        let denied: Vec<_> = knobs.keys().map(|&(target, _)| policy.out_of_reach(pods, target)).collect();
        let Some(shadow) = &mut policy.shadow else { return };
        for (&(target, knob), why) in knobs.keys().zip(denied) {
            shadow.leases.deny(&holder.policy, target, knob, why);
        }
        for ((target, knob), before) in knobs {
            let lease = shadow.leases.effective(target, knob);
            if lease.map(|lease| lease.value) != before {
                decisions.push(ShadowDecision::of_knob(&holder.policy, pods.shown(target), knob, lease));
            }
        }
        let resources = &shadow.totals.resources_withheld;
        let gone = earlier.keys().filter(|name| !resources.contains_key(name)).map(|name| (name, None));
        let is_new = |(name, (offer, _)): &(&ResourceName, &(Offer, Arc<str>))| {
            earlier.get(*name).is_none_or(|(before, _)| before != offer)
        };
        let published = resources.iter().filter(is_new).map(|(name, published)| (name, Some(published)));
        let asked = gone.chain(published).map(|(name, published)| {
            ShadowDecision::of_resource(&holder.policy, name, published.map(|(offer, reason)| (offer, &**reason)))
        });
        let asked: Vec<_> = asked.chain(evictions).collect();
        // Limited to the rate of the module's own log: a shadow that asks for something else each time must not fill the node's disk.
        let line = |decision: &ShadowDecision| LogLine { level: LogLevel::Info, message: decision.to_string() };
        let lines: Vec<_> = asked.iter().map(line).collect();
        policy.module_log.write(&holder.policy, &lines, 0, now.monotonic);
        decisions.extend(asked);
    }

    /// Compares each shadow that runs with its active policy, or with the values in force.
    pub(crate) fn compare_shadows(&mut self, leases: &Leases, metrics: &Metrics, now: Now) {
        for policy in &mut self.running {
            let name = Arc::clone(policy.name());
            let runs = policy.health == Health::Running && policy.evaluations > 0;
            let Some(shadow) = &mut policy.shadow else { continue };
            if !runs {
                shadow.now = None;
                continue;
            }
            let comparison = Comparison::new(leases, shadow.of.as_deref(), &shadow.leases);
            metrics.compared(&name, &comparison);
            shadow.compared(comparison, now);
        }
    }

    /// Drops all leases on this target, those of shadows included.
    pub(crate) fn forget_target(&mut self, target: Target) {
        for shadow in self.running.iter_mut().filter_map(|policy| policy.shadow.as_mut()) {
            shadow.leases.forget(target);
        }
    }
}

/// The value that a shadow wants for a knob; `None` if it does not hold the knob.
fn wanted(leases: &Leases, target: Target, knob: Knob) -> Option<Value> {
    leases.effective(target, knob).map(|lease| lease.value)
}
