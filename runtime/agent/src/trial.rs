//! Trial and probation: how another version of a policy takes the place of one that runs.
//!
//! The new version is made ready and evaluated once on a thread of its own, on what everybody sees, and nothing of it counts yet: the
//! loop waits for none of that. If it goes well, it is the new version that is evaluated the next time it is its policy's turn. It then
//! says what it wants beyond what it said already, and what it does not want is given back in the same transaction. If that fails, the
//! version before is evaluated in the same step. For a while the new one is on probation: should it fail, the version before comes
//! back. Whatever goes wrong, somebody is in charge of the knobs at each tick, and they are never given back in between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use qosm_engine::{Cause, Engine, Grants, Interface, Staged};
use qosm_model::knob::Target;
use qosm_model::layering::ConfigMap;
use qosm_model::pod::Node;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::agent::Agent;
use crate::columns::Readings;
use crate::event::AgentEvent;
use crate::policy::{Evaluated, Health, LoadedPolicy, Now, Policy};
use crate::roster::{Newer, Running, TakenBack};
use crate::table::Pods;

/// Failures after which a version on trial is refused, and one on probation gives way. One may be the node's fault.
const MOST_FAILURES: u64 = 2;

/// A version that has yet to show that it works.
pub(crate) struct Trial {
    name: Arc<str>,
    loaded: LoadedPolicy,
    grants: Grants,
    generation: Option<i64>,
    failures: u64,
    stage: Stage,
}

enum Stage {
    /// It is evaluated on what the next step reads, from this moment on.
    Waiting(Micros),
    /// It is under way on a thread of its own.
    Away(JoinHandle<Rehearsed>),
    /// It works so far, and counts when it is its policy's turn.
    Ready(Box<Ready>),
}

struct Ready {
    policy: Policy,
    /// What it asked for, and does not say again.
    staged: Vec<Staged>,
    seen: Seen,
}

/// What a version was made ready for.
struct Seen {
    pods: Pods,
    config_maps: Vec<ConfigMap>,
    node: Node,
}

struct Rehearsed {
    policy: Policy,
    outcome: Evaluated,
    seen: Seen,
}

/// A version that has just taken the place of another.
pub(crate) struct Probation {
    policy: String,
    before: LoadedPolicy,
    grants: Grants,
    generation: Option<i64>,
    saved: Vec<u8>,
    until: Micros,
}

impl Trial {
    pub(crate) fn new(loaded: LoadedPolicy, grants: Grants, generation: Option<i64>) -> Self {
        let name = loaded.config.name.as_str().into();
        Self { name, loaded, grants, generation, failures: 0, stage: Stage::Waiting(Micros(0)) }
    }

    /// Whether it is what this entry asks for as well.
    pub(crate) fn is_of(&self, loaded: &LoadedPolicy, grants: &Grants) -> bool {
        let same_module = self.loaded.module.digest() == loaded.module.digest();
        same_module && self.loaded.config == loaded.config && self.grants == *grants
    }

    /// The same for another generation of its PolicyModule.
    pub(crate) fn of_generation(self, generation: Option<i64>) -> Self {
        Self { generation, ..self }
    }

    /// What is told of it until it has shown that it works.
    pub(crate) fn newer(&self) -> Newer {
        Newer {
            generation: self.generation,
            module: self.loaded.origin.reference.to_string(),
            is_pending: true,
            why: "it is evaluated once before it counts".to_owned(),
        }
    }

    pub(crate) fn imports(&self, interface: Interface) -> bool {
        self.loaded.module.imports().contains(&interface)
    }

    /// Whoever is configured for the pods as it is, or will be.
    pub(crate) fn to_see<'a>(&'a self, policies: &'a [Policy]) -> Option<&'a Policy> {
        match &self.stage {
            Stage::Ready(ready) => Some(&ready.policy),
            Stage::Waiting(_) | Stage::Away(_) => policies.iter().find(|policy| *policy.name() == self.name),
        }
    }

    /// Makes it ready and evaluates it, on a thread of its own.
    fn begin(&mut self, engine: &Engine, saved: &[u8], readings: &Readings, seen: Seen, now: Now) {
        let mut policy = Policy::new(self.loaded.clone(), self.grants.clone());
        policy.generation = self.generation;
        policy.begin_with(saved);
        let (engine, readings) = (engine.clone(), readings.clone());
        let rehearse = move || {
            policy.reconfigure(&seen.config_maps, &seen.node, &seen.pods);
            for id in seen.pods.ids() {
                policy.reckon(id, &seen.pods, true);
            }
            let outcome = policy.evaluate(&engine, Cause::ConfigChanged, &readings, &seen.pods, now);
            Rehearsed { policy, outcome, seen }
        };
        match Builder::new().name("rehearsal".to_owned()).spawn(rehearse) {
            Ok(thread) => self.stage = Stage::Away(thread),
            Err(error) => tracing::warn!(policy = %self.name, %error, "no thread to try a version out on; it waits"),
        }
    }

    /// Takes what came of it, if it is at an end.
    fn come_back(&mut self) -> Result<(), (String, Health)> {
        if !matches!(&self.stage, Stage::Away(thread) if thread.is_finished()) {
            return Ok(());
        }
        let Stage::Away(thread) = std::mem::replace(&mut self.stage, Stage::Waiting(Micros(0))) else { return Ok(()) };
        let panicked = |_| ("the agent itself failed at it; this is a defect of qosm".to_owned(), Health::Running);
        let Rehearsed { policy, outcome, seen } = thread.join().map_err(panicked)?;
        match outcome {
            Evaluated::Staged { staged, .. } => {
                self.stage = Stage::Ready(Box::new(Ready { policy, staged, seen }));
                Ok(())
            }
            Evaluated::Failed { error } | Evaluated::Parked { error, .. } => Err((error, policy.health)),
        }
    }

    /// Takes a failure. The error comes back when it was one too many.
    fn fails(&mut self, error: String, health: &Health) -> Result<(), String> {
        self.failures += 1;
        // It waits as any policy does before it is tried again.
        match health {
            Health::BackingOff { until, .. } if self.failures < MOST_FAILURES => {
                self.stage = Stage::Waiting(*until);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

impl Ready {
    /// Tells it what has changed since it was evaluated.
    fn catch_up(&mut self, agent: &Agent) {
        let Self { policy, staged, seen } = self;
        let (pods, sources) = (&agent.pods, &agent.sources);
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
        upserted.into_iter().for_each(|id| policy.reckon(id, pods, true));
        let is_there = |setting: &Setting| match setting {
            Setting::Hold { target, .. } | Setting::Release { target, .. } => {
                matches!(target, Target::Tier(_)) || pods.of(*target).is_some()
            }
            Setting::Migrate(migration) => pods.owner(migration.container).is_some(),
            Setting::StopMigration { container } => pods.owner(*container).is_some(),
            Setting::DefineClass { .. } | Setting::UndefineClass { .. } => true,
            Setting::AssignClass { target, .. } | Setting::ReleaseClass { target } => pods.of(*target).is_some(),
        };
        staged.iter_mut().for_each(|part| part.settings.retain(is_there));
    }
}

impl Agent {
    /// Has a version tried out from the next step on. One that is tried already makes room.
    pub(crate) fn try_out(&mut self, trial: Trial) {
        tracing::info!(policy = %trial.name, module = %trial.loaded.module.digest(), "another version is tried out");
        self.trials.push(trial);
    }

    /// Tells a policy of the pods and layers that there are.
    pub(crate) fn make_ready(&self, policy: &mut Policy) {
        policy.reconfigure(&self.sources.config_maps, &self.sources.node, &self.pods);
        for id in self.pods.ids() {
            policy.reckon(id, &self.pods, true);
        }
    }

    /// Begins the evaluation, without effect, of the versions that wait for one. The last thing in a step.
    pub(crate) fn rehearse(&mut self, readings: &Readings, now: Now) {
        for trial in &mut self.trials {
            if !matches!(trial.stage, Stage::Waiting(from) if from <= now.monotonic) {
                continue;
            }
            let Some(running) = self.policies.iter().find(|policy| *policy.name() == trial.name) else { continue };
            let seen = Seen {
                pods: self.pods.clone(),
                config_maps: self.sources.config_maps.clone(),
                node: self.sources.node.clone(),
            };
            trial.begin(&self.engine, running.saved(), readings, seen, now);
        }
    }

    /// Learns how the versions on trial did.
    pub(crate) fn hear_of_trials(&mut self) {
        for mut trial in std::mem::take(&mut self.trials) {
            match trial.come_back() {
                Err((error, health)) => self.failed_on_trial(trial, error, &health),
                Ok(()) => self.trials.push(trial),
            }
        }
    }

    fn failed_on_trial(&mut self, mut trial: Trial, error: String, health: &Health) {
        match trial.fails(error, health) {
            Ok(()) => self.trials.push(trial),
            Err(error) => {
                let why = format!("its first evaluation, which did not count yet, failed: {error}");
                self.metrics.swapped("refused");
                self.refuse(&trial.name, &trial.loaded, trial.generation, why);
            }
        }
    }

    /// Whether a version waits for the turn of this policy.
    pub(crate) fn has_successor(&self, policy: &Policy) -> bool {
        let is_ready = |trial: &Trial| matches!(trial.stage, Stage::Ready(_)) && trial.name == *policy.name();
        policy.mode().is_active() && self.trials.iter().any(is_ready)
    }

    /// Has the version that waits for a policy's turn take its place, if there is one and it still works. `false`: the one that runs is
    /// to be evaluated.
    pub(crate) fn succeed(
        &mut self,
        place: usize,
        readings: &Readings,
        now: Now,
        events: &mut Vec<AgentEvent>,
    ) -> bool {
        let Some(name) = self.policies.get(place).map(|policy| Arc::clone(policy.name())) else { return false };
        let is_ready = |trial: &Trial| matches!(trial.stage, Stage::Ready(_)) && trial.name == name;
        let Some(at) = self.trials.iter().position(is_ready) else { return false };
        let mut trial = self.trials.remove(at);
        let Stage::Ready(mut ready) = std::mem::replace(&mut trial.stage, Stage::Waiting(Micros(0))) else {
            return false;
        };
        ready.catch_up(self);
        let Ready { mut policy, mut staged, .. } = *ready;
        match policy.evaluate(&self.engine, Cause::ConfigChanged, readings, &self.pods, now) {
            Evaluated::Staged { staged: more, .. } => {
                self.metrics.evaluation(&name, policy.mode(), policy.last_evaluation_seconds);
                policy.begin_count();
                self.switch(place, policy, now);
                staged.extend(more);
                self.take_staged(place, staged, true, now, events);
                true
            }
            Evaluated::Failed { error } | Evaluated::Parked { error, .. } => {
                self.failed_on_trial(trial, error, &policy.health);
                false
            }
        }
    }

    fn switch(&mut self, place: usize, policy: Policy, now: Now) {
        let (name, digest) = (policy.name().to_string(), *policy.module.digest());
        let Some(before) = self.policies.get_mut(place) else { return };
        let before = std::mem::replace(before, policy);
        let digest_before = *before.module.digest();
        let understands_else =
            self.policies.get(place).is_none_or(|policy| policy.description.protocol != before.description.protocol);
        if understands_else {
            self.collect_problems(now);
        }
        let until = Micros(self.config.swaps.probation().0.saturating_add(now.monotonic.0));
        let place = self.probations.iter().position(|other| other.policy == name);
        match place.map(|place| self.probations.remove(place)) {
            // Nobody has seen the one that was there work: what it would have given way to still counts.
            Some(earlier) => {
                let is_back = *earlier.before.module.digest() == digest;
                self.probations.extend((!is_back).then_some(Probation { until, ..earlier }));
            }
            None => self.probations.push(Probation {
                policy: name.clone(),
                before: before.loaded(),
                grants: before.grants().clone(),
                generation: before.generation,
                saved: before.saved().to_vec(),
                until,
            }),
        }
        self.metrics.swapped("switched");
        tracing::info!(policy = name, from = %digest_before, "another version took its place; it is on probation");
        self.is_unordered = true;
        // To take an instance apart takes as long as several evaluations; without a thread for it, the loop does it after all.
        if let Err(error) = Builder::new().name("retired".to_owned()).spawn(move || drop(before)) {
            tracing::debug!(%error, "no thread to take the version before apart on");
        }
    }

    /// Has versions that fail on probation give way to what was there before.
    pub(crate) fn watch_probations(&mut self, now: Now) {
        for probation in std::mem::take(&mut self.probations) {
            let is_it = |policy: &&Policy| policy.mode().is_active() && **policy.name() == *probation.policy;
            let Some(policy) = self.policies.iter().find(is_it) else { continue };
            let never_worked = policy.failures > 0 && policy.evaluations == policy.failures;
            let error = policy.health.error().unwrap_or("it failed again and again").to_owned();
            if never_worked || policy.failures >= MOST_FAILURES || matches!(policy.health, Health::Parked { .. }) {
                self.bring_back(probation, &error);
            } else if now.monotonic < probation.until {
                self.probations.push(probation);
            } else {
                tracing::info!(policy = probation.policy, "probation is over");
            }
        }
        let on_probation = |name: &str| self.probations.iter().any(|probation| probation.policy == name);
        for policy in &mut self.policies {
            let works = policy.evaluations > policy.failures && policy.health == Health::Running;
            if works && !policy.is_proven && !on_probation(policy.name()) {
                policy.is_proven = true;
                self.versions_changed = true;
            }
        }
    }

    fn bring_back(&mut self, probation: Probation, error: &str) {
        let Probation { policy: name, before, grants, generation, saved, .. } = probation;
        let mut policy = Policy::new(before, grants);
        policy.generation = generation;
        policy.begin_with(&saved);
        self.make_ready(&mut policy);
        self.unsaved.retain(|(key, _)| *key != name);
        self.unsaved.push((name.clone(), saved));
        let place = self.policies.iter_mut().find(|other| other.mode().is_active() && **other.name() == *name);
        let Some(place) = place else { return };
        let failed = std::mem::replace(place, policy);
        let seconds = self.config.swaps.probation().0 / 1_000_000;
        let why =
            format!("it failed within {seconds} s of taking its place, and the version before came back: {error}");
        self.metrics.swapped("rolled-back");
        self.refuse(&name, &failed.loaded(), failed.generation, why);
        self.reorder();
    }

    /// Tells that a version is not taken.
    fn refuse(&mut self, name: &str, failed: &LoadedPolicy, generation: Option<i64>, why: String) {
        let digest = *failed.module.digest();
        tracing::error!(policy = name, module = %digest, error = why, "the version before runs on");
        let newer =
            Newer { generation, module: failed.origin.reference.to_string(), is_pending: false, why: why.clone() };
        let running = self.policies.iter_mut().find(|policy| policy.mode().is_active() && **policy.name() == *name);
        if let Some(running) = running {
            running.newer = Some(newer);
        }
        self.refused.insert(name.to_owned(), (digest, why.clone()));
        self.taken_back.push(TakenBack { entry: failed.config.clone(), digest, why });
    }

    /// What runs, and versions that failed since this was asked last; `None` = neither has changed.
    pub(crate) fn news_of_versions(&mut self) -> Option<(BTreeMap<String, Running>, Vec<TakenBack>)> {
        let failed = std::mem::take(&mut self.taken_back);
        if !std::mem::take(&mut self.versions_changed) && failed.is_empty() {
            return None;
        }
        let running = |policy: &Policy| {
            let probation = self.probations.iter().find(|probation| *probation.policy == **policy.name());
            let before = probation.map(|probation| probation.before.clone());
            Running { policy: policy.loaded(), before, is_proven: policy.is_proven }
        };
        let all = self.policies.iter().map(|policy| (policy.name().to_string(), running(policy))).collect();
        Some((all, failed))
    }

    /// Brings the policies into the order of evaluation again.
    pub(crate) fn reorder(&mut self) {
        self.policies.sort_by(Policy::before);
        self.metrics.modules(&self.policies);
        self.versions_changed = true;
        self.alarms.is_stale = true;
    }
}
