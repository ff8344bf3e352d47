//! Canaries and rollback windows: how a new version of a policy replaces the running one.
//!
//! The new version is configured and evaluated once on a separate thread, on the columns of the last step and without effect; the
//! loop does not wait for it. If this dry run succeeds, the new version is evaluated at its policy's next turn. It stages what it did
//! not stage in the dry run, and knobs that it does not want are released in the same transaction. If that evaluation fails, the
//! previous version is evaluated in the same step. Then the rollback window opens: if the new version fails within it, the previous
//! version comes back. In each tick exactly one version holds the policy's knobs; they are not released in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use qosm_engine::{Cause, Engine, Grants, Interface, Part, Staged};
use qosm_model::knob::Target;
use qosm_model::layering::ConfigMap;
use qosm_model::pod::Node;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::columns::Readings;
use crate::loaded::LoadedPolicy;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::policies::{Context, Policies, StagedPolicy};
use crate::policy::{Evaluated, Health, Policy};
use crate::policy_set::resolved::{PendingUpdate, RolledBack, Running};
use crate::saved_state::SavedState;
use crate::sources::Sources;
use crate::table::PodTable;

/// Number of failures after which a canary is refused, or a version is rolled back within its window. One failure may be the node's fault.
const MAX_FAILURES: u64 = 2;

/// A new version of a policy that is not promoted yet.
pub(crate) struct Canary {
    name: Arc<str>,
    loaded: LoadedPolicy,
    grants: Grants,
    generation: Option<i64>,
    failures: u64,
    phase: CanaryPhase,
}

enum CanaryPhase {
    /// The dry run begins at the end of the next step from this time on.
    Waiting(Micros),
    /// The dry run is running on its own thread.
    Away { thread: JoinHandle<DryRun>, begun: Instant },
    /// The dry run succeeded. The version is promoted at its policy's next turn.
    Ready(Box<Ready>),
}

struct Ready {
    policy: Policy,
    /// What the version staged in the dry run, and does not stage again.
    staged: Vec<Staged>,
    seen: Seen,
}

/// The state that the version was configured with.
struct Seen {
    pods: PodTable,
    config_maps: Vec<ConfigMap>,
    node: Node,
}

struct DryRun {
    policy: Policy,
    outcome: Evaluated,
    seen: Seen,
}

/// The rollback window of a policy: the version that comes back if the new one fails.
pub(crate) struct RollbackWindow {
    policy: String,
    before: LoadedPolicy,
    grants: Grants,
    generation: Option<i64>,
    saved: SavedState,
    until: Micros,
}

/// Maximum wall clock time of a dry run: it starts, configures and evaluates a module, each within the module's time
/// limit, and on a node without free CPU time each may take twenty times that.
fn max_duration(evaluation: Duration) -> Duration {
    evaluation.saturating_mul(4 * 20).max(Duration::from_secs(5))
}

/// The error of a dry run that takes too long. Its thread cannot be stopped, and is abandoned.
fn overdue(limit: Duration) -> String {
    format!("it has not ended after {} s", limit.as_secs())
}

impl Canary {
    pub(crate) fn new(loaded: LoadedPolicy, grants: Grants, generation: Option<i64>) -> Self {
        let name = loaded.config.name.as_str().into();
        Self { name, loaded, grants, generation, failures: 0, phase: CanaryPhase::Waiting(Micros(0)) }
    }

    /// Whether the canary has the module, the configuration and the grants of this entry.
    pub(crate) fn is_of(&self, loaded: &LoadedPolicy, grants: &Grants) -> bool {
        let same_module = self.loaded.module.digest() == loaded.module.digest();
        same_module && self.loaded.config == loaded.config && self.grants == *grants
    }

    /// The same canary for another generation of its PolicyModule.
    pub(crate) fn of_generation(self, generation: Option<i64>) -> Self {
        Self { generation, ..self }
    }

    /// The pending update that is reported until the canary is promoted.
    pub(crate) fn pending_update(&self) -> PendingUpdate {
        PendingUpdate {
            generation: self.generation,
            module: self.loaded.origin.reference.to_string(),
            is_pending: true,
            why: "it is evaluated once before it counts".to_owned(),
        }
    }

    pub(crate) fn imports(&self, interface: Interface) -> bool {
        self.loaded.module.imports().contains(&interface)
    }

    /// Whether the canary reads a part of a signal.
    pub(crate) fn reads(&self, part: Part) -> bool {
        self.loaded.module.reads(part)
    }

    /// The policy with the configuration that the canary has, or will have.
    pub(crate) fn configured_like<'a>(&'a self, policies: &'a [Policy]) -> Option<&'a Policy> {
        match &self.phase {
            CanaryPhase::Ready(ready) => Some(&ready.policy),
            CanaryPhase::Waiting(_) | CanaryPhase::Away { .. } => {
                policies.iter().find(|policy| *policy.name() == self.name)
            }
        }
    }

    /// Begins the dry run on a separate thread: configures the version, and evaluates it.
    #[expect(clippy::disallowed_methods, reason = "a new module is tried, and an old one dropped, beside the loop")]
    fn begin(&mut self, engine: &Engine, running: &Policy, readings: &Readings, seen: Seen, now: Now) {
        let mut policy = Policy::new(self.loaded.clone(), self.grants.clone());
        policy.generation = self.generation;
        policy.begin_with(running.saved());
        policy.begin_with_texts(running.good_texts());
        let (engine, readings) = (engine.clone(), readings.clone());
        let dry_run = move || {
            policy.reconfigure(&seen.config_maps, &seen.node, &seen.pods);
            for id in seen.pods.ids() {
                policy.recompute(id, &seen.pods, true);
            }
            let outcome = policy.evaluate(&engine, Cause::ConfigChanged, &readings, &seen.pods, now);
            DryRun { policy, outcome, seen }
        };
        match Builder::new().name("dry-run".to_owned()).spawn(dry_run) {
            Ok(thread) => self.phase = CanaryPhase::Away { thread, begun: Instant::now() },
            Err(error) => tracing::warn!(policy = %self.name, %error, "no thread for a canary's dry run; it waits"),
        }
    }

    /// Takes the result of the dry run, if it has ended. Returns an error if it failed, or takes too long.
    fn finish(&mut self) -> Result<(), (String, Health)> {
        let CanaryPhase::Away { thread, begun } = &self.phase else { return Ok(()) };
        if !thread.is_finished() {
            let limit = max_duration(self.loaded.config.limits().evaluation);
            return if begun.elapsed() < limit { Ok(()) } else { Err((overdue(limit), Health::Running)) };
        }
        let CanaryPhase::Away { thread, .. } = std::mem::replace(&mut self.phase, CanaryPhase::Waiting(Micros(0)))
        else {
            return Ok(());
        };
        let panicked = |_| ("the agent itself failed at it; this is a defect of qosm".to_owned(), Health::Running);
        let DryRun { policy, outcome, seen } = thread.join().map_err(panicked)?;
        match outcome {
            Evaluated::Staged { staged, .. } => {
                self.phase = CanaryPhase::Ready(Box::new(Ready { policy, staged, seen }));
                Ok(())
            }
            Evaluated::Failed { error } | Evaluated::Parked { error, .. } => Err((error, policy.health)),
        }
    }

    /// Counts a failure. Returns the error if the canary is to be refused.
    fn fails(&mut self, error: String, health: &Health) -> Result<(), String> {
        self.failures += 1;
        // The canary backs off as any policy does before it is tried again.
        match health {
            Health::BackingOff { until, .. } if self.failures < MAX_FAILURES => {
                self.phase = CanaryPhase::Waiting(*until);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

impl Ready {
    /// Updates the version with what has changed since its dry run, and drops settings whose target is gone.
    fn catch_up(&mut self, pods: &PodTable, sources: &Sources) {
        let Self { policy, staged, seen } = self;
        if sources.node != seen.node {
            policy.node_changed();
        }
        if sources.node != seen.node || sources.config_maps != seen.config_maps {
            policy.reconfigure(&sources.config_maps, &sources.node, pods);
        }
        let (upserted, gone) = pods.since(&seen.pods);
        if upserted.is_empty() && gone.is_empty() {
            return;
        }
        gone.into_iter().for_each(|id| policy.forget(id));
        upserted.into_iter().for_each(|id| policy.recompute(id, pods, true));
        let is_there = |setting: &Setting| match setting {
            Setting::Hold { target, .. } | Setting::Release { target, .. } => {
                matches!(target, Target::Node | Target::Tier(_)) || pods.of(*target).is_some()
            }
            Setting::Migrate(migration) => pods.owner(migration.container).is_some(),
            Setting::StopMigration { container } => pods.owner(*container).is_some(),
            Setting::DefineClass { .. } | Setting::UndefineClass { .. } => true,
            Setting::AssignClass { target, .. } | Setting::ReleaseClass { target } => pods.of(*target).is_some(),
            Setting::Publish { .. } | Setting::Withdraw { .. } | Setting::StaleAfter { .. } => true,
            Setting::Evict(eviction) => pods.get(eviction.pod).is_some(),
            Setting::WithdrawEviction { pod } => pods.get(*pod).is_some(),
        };
        staged.iter_mut().for_each(|part| part.settings.retain(is_there));
    }
}

impl Policies {
    /// Adds a canary. Its dry run begins at the end of the next step.
    pub(super) fn start_canary(&mut self, canary: Canary) {
        tracing::info!(policy = %canary.name, module = %canary.loaded.module.digest(), "canary of a new version started");
        self.canaries.push(canary);
    }

    /// Begins the dry runs of the versions that wait for one, as the last thing in a step.
    pub(crate) fn begin_dry_runs(&mut self, readings: &Readings, pods: &PodTable, sources: &Sources, now: Now) {
        for canary in &mut self.canaries {
            if !matches!(canary.phase, CanaryPhase::Waiting(from) if from <= now.monotonic) {
                continue;
            }
            let Some(running) = self.running.iter().find(|policy| *policy.name() == canary.name) else { continue };
            let seen =
                Seen { pods: pods.clone(), config_maps: sources.config_maps.clone(), node: sources.node.clone() };
            canary.begin(&self.engine, running, readings, seen, now);
        }
    }

    /// Takes the results of dry runs that have ended.
    pub(crate) fn finish_dry_runs(&mut self, metrics: &Metrics) {
        for mut canary in std::mem::take(&mut self.canaries) {
            match canary.finish() {
                Err((error, health)) => self.canary_failed(canary, error, &health, metrics),
                Ok(()) => self.canaries.push(canary),
            }
        }
    }

    fn canary_failed(&mut self, mut canary: Canary, error: String, health: &Health, metrics: &Metrics) {
        match canary.fails(error, health) {
            Ok(()) => self.canaries.push(canary),
            Err(error) => {
                let why = format!("its first evaluation, which did not count yet, failed: {error}");
                metrics.swapped("refused");
                self.refuse(&canary.name, &canary.loaded, canary.generation, why);
            }
        }
    }

    /// Whether a canary is ready and waits for the turn of this policy.
    pub(super) fn has_ready_canary(&self, policy: &Policy) -> bool {
        let is_ready = |canary: &Canary| matches!(canary.phase, CanaryPhase::Ready(_)) && canary.name == *policy.name();
        policy.mode().is_active() && self.canaries.iter().any(is_ready)
    }

    /// Rolls back versions that fail within their windows.
    pub(crate) fn watch_rollback_windows(&mut self, at: &Context<'_>) {
        for window in std::mem::take(&mut self.rollback_windows) {
            let is_it = |policy: &&Policy| policy.mode().is_active() && **policy.name() == *window.policy;
            let Some(policy) = self.running.iter().find(is_it) else { continue };
            let never_worked = policy.failures > 0 && policy.evaluations == policy.failures;
            let error = policy.health.error().unwrap_or("it failed again and again").to_owned();
            if never_worked || policy.failures >= MAX_FAILURES || matches!(policy.health, Health::Parked { .. }) {
                self.roll_back(window, &error, at);
            } else if at.now.monotonic < window.until {
                self.rollback_windows.push(window);
            } else {
                tracing::info!(policy = window.policy, "rollback window is over");
            }
        }
        let is_watched = |name: &str| self.rollback_windows.iter().any(|window| window.policy == name);
        for policy in &mut self.running {
            let works = policy.evaluations > policy.failures && policy.health == Health::Running;
            if works && !policy.is_verified && !is_watched(policy.name()) {
                policy.is_verified = true;
                self.changes.versions = true;
            }
        }
    }

    fn roll_back(&mut self, window: RollbackWindow, error: &str, at: &Context<'_>) {
        let RollbackWindow { policy: name, before, grants, generation, saved, .. } = window;
        let mut policy = Policy::new(before, grants);
        policy.generation = generation;
        policy.begin_with(&saved);
        let place = self.running.iter_mut().find(|other| other.mode().is_active() && **other.name() == *name);
        if let Some(failed) = &place {
            policy.begin_with_texts(failed.good_texts());
        }
        make_ready(&mut policy, at.pods, at.sources);
        self.changes.saved.push((name.clone(), saved));
        let Some(place) = place else { return };
        let failed = std::mem::replace(place, policy);
        self.changes.reach = true;
        self.changes.problems = true;
        let seconds = at.config.swaps.rollback_window().0 / 1_000_000;
        let why =
            format!("it failed within {seconds} s of taking its place, and the version before came back: {error}");
        at.metrics.swapped("rolled-back");
        self.refuse(&name, &failed.loaded(), failed.generation, why);
        self.reorder(at.metrics);
    }

    /// Records and logs that a version is refused.
    fn refuse(&mut self, name: &str, failed: &LoadedPolicy, generation: Option<i64>, why: String) {
        let digest = *failed.module.digest();
        tracing::error!(policy = name, module = %digest, error = why, "new version refused; the previous one keeps running");
        let pending_update = PendingUpdate {
            generation,
            module: failed.origin.reference.to_string(),
            is_pending: false,
            why: why.clone(),
        };
        let running = self.running.iter_mut().find(|policy| policy.mode().is_active() && **policy.name() == *name);
        if let Some(running) = running {
            running.pending_update = Some(pending_update);
        }
        let refused = RolledBack { entry: failed.config.clone(), digest, why };
        self.refused.insert(name.to_owned(), refused.clone());
        self.rolled_back.push(refused);
    }

    /// The running policies, and versions that failed since the last call; `None` = neither has changed.
    pub(crate) fn take_version_changes(&mut self) -> Option<(BTreeMap<String, Running>, Vec<RolledBack>)> {
        let failed = std::mem::take(&mut self.rolled_back);
        if !std::mem::take(&mut self.changes.versions) && failed.is_empty() {
            return None;
        }
        let running = |policy: &Policy| {
            let window = self.rollback_windows.iter().find(|window| *window.policy == **policy.name());
            let before = window.map(|window| window.before.clone());
            Running { policy: policy.loaded(), before, is_verified: policy.is_verified }
        };
        let all = self.running.iter().map(|policy| (policy.name().to_string(), running(policy))).collect();
        Some((all, failed))
    }

    /// Brings the policies into the order of evaluation again.
    pub(crate) fn reorder(&mut self, metrics: &Metrics) {
        self.running.sort_by(Policy::before);
        metrics.modules(&self.running);
        self.changes.versions = true;
        self.changes.watches = true;
    }

    /// Promotes the canary that waits for a policy's turn, if there is one and it still works. Returns `None` if the running version is to
    /// be evaluated.
    pub(super) fn promote(&mut self, place: usize, readings: &Readings, at: &Context<'_>) -> Option<StagedPolicy> {
        let name = self.running.get(place).map(|policy| Arc::clone(policy.name()))?;
        let is_ready = |canary: &Canary| matches!(canary.phase, CanaryPhase::Ready(_)) && canary.name == name;
        let found = self.canaries.iter().position(is_ready)?;
        let mut canary = self.canaries.remove(found);
        let CanaryPhase::Ready(mut ready) = std::mem::replace(&mut canary.phase, CanaryPhase::Waiting(Micros(0)))
        else {
            return None;
        };
        ready.catch_up(at.pods, at.sources);
        let Ready { mut policy, mut staged, .. } = *ready;
        match policy.evaluate(&self.engine, Cause::ConfigChanged, readings, at.pods, at.now) {
            Evaluated::Staged { staged: more, .. } => {
                at.metrics.evaluation(&name, policy.mode(), policy.last_evaluation_seconds);
                policy.begin_count();
                let changes_problems = self.switch(place, policy, at);
                staged.extend(more);
                let holder = self.running.get(place)?.holder.clone();
                Some(StagedPolicy { holder, staged, anew: true, changes_problems })
            }
            Evaluated::Failed { error } | Evaluated::Parked { error, .. } => {
                self.canary_failed(canary, error, &policy.health, at.metrics);
                None
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a new module is tried, and an old one dropped, beside the loop")]
    fn switch(&mut self, place: usize, policy: Policy, at: &Context<'_>) -> bool {
        let (name, digest) = (policy.name().to_string(), *policy.module.digest());
        let Some(before) = self.running.get_mut(place) else { return false };
        let before = std::mem::replace(before, policy);
        self.changes.reach = true;
        let digest_before = *before.module.digest();
        let changes_problems = self.running.get(place).is_none_or(|policy| {
            policy.description.protocol != before.description.protocol || policy.key_problems != before.key_problems
        });
        let until = Micros(at.config.swaps.rollback_window().0.saturating_add(at.now.monotonic.0));
        let place = self.rollback_windows.iter().position(|other| other.policy == name);
        match place.map(|place| self.rollback_windows.remove(place)) {
            // The replaced version was never verified, so the window keeps the version that it would be rolled back to.
            Some(earlier) => {
                let is_back = *earlier.before.module.digest() == digest;
                self.rollback_windows.extend((!is_back).then_some(RollbackWindow { until, ..earlier }));
            }
            None => self.rollback_windows.push(RollbackWindow {
                policy: name.clone(),
                before: before.loaded(),
                grants: before.grants().clone(),
                generation: before.generation,
                saved: before.saved().clone(),
                until,
            }),
        }
        at.metrics.swapped("switched");
        tracing::info!(policy = name, from = %digest_before, "new version in force; its rollback window is open");
        self.is_unordered = true;
        // Dropping an instance takes as long as several evaluations, so a separate thread does it. Without a thread, the loop does.
        if let Err(error) = Builder::new().name("drop-policy".to_owned()).spawn(move || drop(before)) {
            tracing::debug!(%error, "no thread to drop the previous version");
        }
        changes_problems
    }
}

#[cfg(test)]
impl Policies {
    /// Waits until all dry runs have ended.
    pub(crate) fn wait_for_dry_runs(&self) {
        let is_under_way =
            |canary: &Canary| matches!(&canary.phase, CanaryPhase::Away { thread, .. } if !thread.is_finished());
        while self.canaries.iter().any(is_under_way) {
            std::thread::yield_now();
        }
    }
}

/// Configures a policy with the current pods and layers.
pub(super) fn make_ready(policy: &mut Policy, pods: &PodTable, sources: &Sources) {
    policy.reconfigure(&sources.config_maps, &sources.node, pods);
    for id in pods.ids() {
        policy.recompute(id, pods, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_may_take_as_long_as_its_calls_and_no_longer() {
        for (evaluation, limit) in [(0, 5_000), (50, 5_000), (100, 8_000), (1_000, 80_000)] {
            assert_eq!(max_duration(Duration::from_millis(evaluation)), Duration::from_millis(limit));
        }
        assert!(max_duration(Duration::MAX) == Duration::MAX, "whatever an operator allows");
    }
}
