//! The policies of the node: which run, what they ask for, and how one version of a policy replaces another.

mod apply_policy_set;
mod canary;
mod shadows;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_engine::{Cause, Engine, Interface, Part, Staged};
use qosm_host::Fired;
use qosm_model::knob::Target;
use qosm_model::layering::GoodTexts;
use qosm_model::lease::Holder;
use qosm_model::pod::PodId;
use qosm_model::problem::Problem;
use qosm_model::unit::Micros;

use crate::columns::Readings;
use crate::config::{AgentConfig, UnknownGrant};
use crate::loaded::LoadedPolicy;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policy::{Evaluated, Health, Policy};
use crate::policy_set::resolved::{LoadFailed, RolledBack};
use crate::saved_state::SavedState;
use crate::sources::Sources;
use crate::table::PodTable;

use self::canary::{Canary, RollbackWindow};

pub use self::shadows::ShadowError;

/// All policies of the node.
pub(crate) struct Policies {
    engine: Engine,
    /// In the order of evaluation.
    running: Vec<Policy>,
    load_failed: Vec<LoadFailed>,
    /// New versions that are not promoted yet.
    canaries: Vec<Canary>,
    /// Rollback windows of versions that were just promoted.
    rollback_windows: Vec<RollbackWindow>,
    /// Versions that failed, until [`Self::take_version_changes`] returns them.
    rolled_back: Vec<RolledBack>,
    /// Failed versions by policy, with the reason. A policy set that was made before the failure was known still contains them.
    refused: BTreeMap<String, RolledBack>,
    /// Number of the policy set that was applied last.
    set_number: u64,
    /// Problems of the policy set.
    set_problems: Vec<Problem>,
    /// The last good texts of ConfigMaps by [`Policy::state_key`], also of policies whose module is not loaded.
    good_texts: BTreeMap<String, GoodTexts>,
    /// Whether sources have been taken.
    has_sources: bool,
    /// Whether a version with another priority may have been promoted in this step.
    is_unordered: bool,
    changes: PolicyChanges,
}

/// What changed among the policies, for the other parts.
#[derive(Debug, Default)]
pub(crate) struct PolicyChanges {
    /// Whether the reach of policies is to be checked again.
    pub(crate) reach: bool,
    /// Whether the triggers that policies ask for may have changed.
    pub(crate) watches: bool,
    /// Whether problems of the configuration may have changed.
    pub(crate) problems: bool,
    /// Whether other versions run.
    pub(crate) versions: bool,
    /// Policies that are no longer active, and whose leases are to be released.
    pub(crate) released: Vec<Arc<str>>,
    /// State that modules saved, with the key under which the journal keeps it.
    pub(crate) saved: Vec<(String, SavedState)>,
}

/// Inputs for the evaluation of policies.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) pods: &'a PodTable,
    pub(crate) sources: &'a Sources,
    pub(crate) config: &'a AgentConfig,
    pub(crate) metrics: &'a Metrics,
    pub(crate) now: Now,
}

/// What an active policy staged.
pub(crate) struct StagedPolicy {
    pub(crate) holder: Holder,
    pub(crate) staged: Vec<Staged>,
    /// Whether settings that are not in `staged` are to be released.
    pub(crate) anew: bool,
    /// Whether another version with another protocol took its place, so problems of the configuration are to be computed again first.
    pub(crate) changes_problems: bool,
}

/// Result of the evaluation of an active policy.
pub(crate) enum Evaluation {
    Staged(StagedPolicy),
    /// The policy failed too often, and its leases are released.
    Released(Arc<str>),
}

/// Why the configured policies do not fit together.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PoliciesError {
    #[error(transparent)]
    Grant(#[from] UnknownGrant),
    #[error("{0}")]
    Duplicate(String),
    #[error(transparent)]
    Shadow(#[from] ShadowError),
}

impl Policies {
    /// Creates the policies at the agent's start. Each begins with the state that `saved` returns for it.
    ///
    /// # Errors
    ///
    /// [`PoliciesError`] names the policy that is at fault. A module that does not work is parked.
    pub(crate) fn new<E: From<PoliciesError>>(
        engine: Engine,
        loaded: Vec<LoadedPolicy>,
        load_failed: Vec<LoadFailed>,
        saved: impl Fn(&str) -> Result<SavedState, E>,
    ) -> Result<Self, E> {
        let mut running: Vec<Policy> = Vec::with_capacity(loaded.len());
        for policy in loaded {
            let name = policy.config.name.clone();
            if running.iter().any(|other| **other.name() == *name) {
                return Err(PoliciesError::Duplicate(name).into());
            }
            let grants = policy.config.granted().map_err(PoliciesError::from)?;
            let mut policy = Policy::new(policy, grants);
            policy.begin_with(&saved(&policy.state_key())?);
            running.push(policy);
        }
        // The order of evaluation is part of what a replay must reproduce.
        running.sort_by(Policy::before);
        shadows::pair(&mut running, &load_failed).map_err(PoliciesError::from)?;
        Ok(Self {
            engine,
            running,
            load_failed,
            canaries: Vec::new(),
            rollback_windows: Vec::new(),
            rolled_back: Vec::new(),
            refused: BTreeMap::new(),
            set_number: 0,
            set_problems: Vec::new(),
            good_texts: BTreeMap::new(),
            has_sources: false,
            is_unordered: false,
            changes: PolicyChanges { reach: true, versions: true, ..PolicyChanges::default() },
        })
    }

    /// Sets the last good texts that an earlier agent saved, by [`Policy::state_key`].
    pub(crate) fn begin_with_texts(&mut self, texts: BTreeMap<String, GoodTexts>) {
        for policy in &mut self.running {
            if let Some(texts) = texts.get(&policy.state_key()) {
                policy.begin_with_texts(texts);
            }
        }
        self.good_texts = texts;
    }

    /// The last good texts of ConfigMaps by [`Policy::state_key`], also of policies whose module is not loaded.
    pub(crate) fn good_texts(&mut self) -> &BTreeMap<String, GoodTexts> {
        for policy in &self.running {
            self.good_texts.insert(policy.state_key(), policy.good_texts().clone());
        }
        &self.good_texts
    }

    /// All policies that run, in the order of evaluation.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Policy> {
        self.running.iter()
    }

    /// All policies that run, as a slice.
    pub(crate) fn running(&self) -> &[Policy] {
        &self.running
    }

    /// The active policies.
    pub(crate) fn active(&self) -> impl Iterator<Item = &Policy> {
        self.running.iter().filter(|policy| policy.mode().is_active())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Policy> {
        self.running.iter().find(|known| **known.name() == *name)
    }

    /// Policies whose module is not loaded.
    pub(crate) fn load_failed(&self) -> &[LoadFailed] {
        &self.load_failed
    }

    pub(crate) fn set_number(&self) -> u64 {
        self.set_number
    }

    pub(crate) fn set_problems(&self) -> &[Problem] {
        &self.set_problems
    }

    /// Module and version of a policy; empty if there is none of that name.
    pub(crate) fn module_of(&self, policy: &str) -> String {
        let module = |known: &Policy| {
            format!("{}@{} {}", known.description.name, known.description.version, known.module.digest())
        };
        self.find(policy).map(module).unwrap_or_default()
    }

    /// What changed for the other parts since the last call. Changed versions stay for [`Self::take_version_changes`].
    pub(crate) fn take_changes(&mut self) -> PolicyChanges {
        let versions = self.changes.versions;
        std::mem::replace(&mut self.changes, PolicyChanges { versions, ..PolicyChanges::default() })
    }

    /// Updates the policies after a pod, or its view, has changed.
    pub(crate) fn pod_changed(&mut self, pod: PodId, pods: &PodTable) {
        for policy in &mut self.running {
            policy.recompute(pod, pods, true);
        }
    }

    /// Forgets a pod that is gone.
    pub(crate) fn forget_pod(&mut self, pod: PodId) {
        for policy in &mut self.running {
            policy.forget(pod);
        }
    }

    /// Updates the policies after the node, layers of configuration, or pods have changed.
    pub(crate) fn reconfigure(
        &mut self,
        sources: &Sources,
        pods: &PodTable,
        is_node_changed: bool,
        is_layer_changed: bool,
        upserted: &[PodId],
    ) {
        // Policies that were resolved before the first sources are configured with these.
        let is_first = !std::mem::replace(&mut self.has_sources, true);
        let is_layer_changed = is_layer_changed || is_first;
        for policy in &mut self.running {
            if is_node_changed {
                policy.node_changed();
            }
            if is_node_changed || is_layer_changed {
                policy.reconfigure(&sources.config_maps, &sources.node, pods);
            }
            for &id in upserted {
                policy.recompute(id, pods, true);
            }
        }
    }

    /// Makes the policies due that read a changed object.
    pub(crate) fn objects_changed(&mut self, changed: &[Interface]) {
        for policy in &mut self.running {
            if changed.iter().any(|&object| policy.imports(object)) {
                policy.object_changed();
            }
        }
    }

    /// Passes an alarm to the policies that asked for it. Returns `true` if one of them queues it.
    pub(crate) fn receive(&mut self, fired: Fired, pod: Option<PodId>, now: Now) -> bool {
        let mut is_received = false;
        for policy in &mut self.running {
            if policy.watches(&fired.alarm.trigger) && pod.is_none_or(|pod| policy.is_asked(pod)) {
                is_received |= policy.receive(fired, now);
            }
        }
        is_received
    }

    /// Passes the start alarm of a container to the policies that asked for it.
    pub(crate) fn receive_start(&mut self, fired: Fired, now: Now) {
        for policy in self.running.iter_mut().filter(|policy| policy.watches(&fired.alarm.trigger)) {
            policy.receive(fired, now);
        }
    }

    /// When the next evaluation is due because of an alarm.
    pub(crate) fn next_alarm(&self) -> Option<Micros> {
        self.running.iter().filter_map(Policy::next_alarm).min()
    }

    /// The policies that are to be evaluated now, and why.
    pub(crate) fn due(&self, now: Now) -> Vec<(usize, Cause)> {
        let due = |(place, policy): (usize, &Policy)| {
            let cause = policy.due(now).or_else(|| self.has_ready_canary(policy).then_some(Cause::ConfigChanged));
            cause.map(|cause| (place, cause))
        };
        self.running.iter().enumerate().filter_map(due).collect()
    }

    /// Whether the policy at this place is active.
    pub(crate) fn is_active(&self, place: usize) -> bool {
        self.running.get(place).is_some_and(|policy| policy.mode().is_active())
    }

    /// Whether a due policy or a canary reads a column.
    pub(crate) fn wants(&self, due: &[(usize, Cause)], column: Interface) -> bool {
        due.iter().filter_map(|&(place, _)| self.running.get(place)).any(|policy| policy.imports(column))
            || self.canaries.iter().any(|canary| canary.imports(column))
    }

    /// Whether a due policy or a canary reads a part of a signal.
    pub(crate) fn reads(&self, due: &[(usize, Cause)], part: Part) -> bool {
        due.iter().filter_map(|&(place, _)| self.running.get(place)).any(|policy| policy.reads(part))
            || self.canaries.iter().any(|canary| canary.reads(part))
    }

    /// The policies that read a column and are due, or stand for the configuration of a canary.
    pub(crate) fn readers(&self, due: &[(usize, Cause)], column: Interface) -> Vec<&Policy> {
        due.iter()
            .filter_map(|&(place, _)| self.running.get(place))
            .chain(self.canaries.iter().filter_map(|canary| canary.configured_like(&self.running)))
            .filter(|policy| policy.imports(column))
            .collect()
    }

    /// Evaluates the policies that are due, all on the same readings. A canary that is ready takes its policy's turn.
    pub(crate) fn evaluate(
        &mut self,
        due: Vec<(usize, Cause)>,
        readings: &Readings,
        at: &Context<'_>,
    ) -> Vec<Evaluation> {
        let mut evaluations = Vec::with_capacity(due.len());
        for (place, cause) in due {
            if let Some(promoted) = self.promote(place, readings, at) {
                evaluations.push(Evaluation::Staged(self.logged(place, promoted, at.now)));
                continue;
            }
            match self.run(place, cause, readings, at.pods, at.metrics, at.now) {
                Some(Evaluated::Staged { staged, anew }) => {
                    let Some(holder) = self.running.get(place).map(|policy| policy.holder.clone()) else { continue };
                    let staged = StagedPolicy { holder, staged, anew, changes_problems: false };
                    evaluations.push(Evaluation::Staged(self.logged(place, staged, at.now)));
                }
                Some(Evaluated::Parked { release: true, .. }) => {
                    let name = self.running.get(place).map(|policy| Arc::clone(policy.name()));
                    evaluations.extend(name.map(Evaluation::Released));
                }
                Some(Evaluated::Parked { .. } | Evaluated::Failed { .. }) | None => {}
            }
        }
        evaluations
    }

    /// Whether a policy reports other problems of the cluster's configuration than when this was last asked.
    pub(crate) fn take_key_problem_changes(&mut self) -> bool {
        let mut any = false;
        for policy in &mut self.running {
            any |= std::mem::take(&mut policy.are_key_problems_new);
        }
        any
    }

    /// Writes what a module logged.
    fn logged(&mut self, place: usize, staged: StagedPolicy, now: Now) -> StagedPolicy {
        if let Some(policy) = self.running.get_mut(place) {
            policy.module_log.write_all(&staged.holder.policy, &staged.staged, now.monotonic);
        }
        staged
    }

    /// Runs one policy; a failure is logged and counted.
    fn run(
        &mut self,
        place: usize,
        cause: Cause,
        readings: &Readings,
        pods: &PodTable,
        metrics: &Metrics,
        now: Now,
    ) -> Option<Evaluated> {
        let policy = self.running.get_mut(place)?;
        let (name, mode) = (Arc::clone(policy.name()), policy.mode());
        let _span = tracing::debug_span!("evaluate", policy = %name, mode = mode.as_str()).entered();
        let outcome = policy.evaluate(&self.engine, cause, readings, pods, now);
        metrics.evaluation(&name, mode, policy.last_evaluation_seconds);
        metrics.log_dropped(&name, mode, policy.module_log.take_dropped());
        match &outcome {
            Evaluated::Staged { .. } => {}
            Evaluated::Failed { error } => {
                tracing::warn!(policy = %name, mode = mode.as_str(), error, "evaluation discarded; the policy starts anew");
                metrics.failure(&name, mode);
            }
            Evaluated::Parked { error, release } => {
                tracing::error!(policy = %name, mode = mode.as_str(), error, release, "policy parked after repeated failure");
                metrics.failure(&name, mode);
            }
        }
        Some(outcome)
    }

    /// Whether a policy that publishes resources of the node has not said yet what it publishes, or may be among the modules that are being
    /// fetched or compiled.
    pub(crate) fn awaits_publishers(&self) -> bool {
        let is_silent = |policy: &Policy| policy.imports(Interface::NodeResource) && !policy.has_worked();
        self.active().any(is_silent)
            || self.load_failed.iter().any(|policy| policy.mode.is_active() && policy.is_pending)
    }

    /// Whether every active policy was evaluated once. A policy whose module is being fetched was not.
    pub(crate) fn have_all_evaluated(&self) -> bool {
        let is_struggling =
            |policy: &Policy| matches!(policy.health, Health::BackingOff { .. }) || policy.evaluations == 0;
        !self.active().any(is_struggling)
            && !self.load_failed.iter().any(|policy| policy.mode.is_active() && policy.is_pending)
    }

    /// Brings the policies into the order of evaluation again, if a version was promoted.
    pub(crate) fn order_again(&mut self, metrics: &Metrics) {
        if std::mem::take(&mut self.is_unordered) {
            self.reorder(metrics);
        }
    }

    /// State that modules saved last, with the key under which the journal keeps it.
    pub(crate) fn saved(&self) -> Vec<(String, SavedState)> {
        self.running.iter().map(|policy| (policy.state_key(), policy.saved().clone())).collect()
    }

    /// Tries a parked policy again. Returns `false` if there is no policy of that name.
    pub(crate) fn retry(&mut self, policy: &str) -> bool {
        match self.running.iter_mut().find(|known| **known.name() == *policy) {
            Some(known) => {
                known.retry();
                true
            }
            None => self.load_failed.iter().any(|load_failed| load_failed.policy == policy),
        }
    }

    /// Errors of the active policies; `None` if there are none.
    pub(crate) fn ailment(&self) -> Option<String> {
        let ailing: Vec<_> = self
            .active()
            .filter_map(|policy| policy.health.error().map(|error| format!("{}: {error}", policy.name())))
            .chain(
                self.load_failed
                    .iter()
                    .filter(|policy| policy.mode.is_active())
                    .map(|policy| format!("{}: {}", policy.policy, policy.error)),
            )
            .collect();
        (!ailing.is_empty()).then(|| ailing.join("; "))
    }

    /// Why a policy may not act on a target; `None` = it may.
    pub(crate) fn out_of_reach(&self, policy: &str, pods: &PodTable, target: Target) -> Option<Arc<str>> {
        self.find(policy)?.out_of_reach(pods, target)
    }
}
