//! Trial and probation: how another version of a policy takes the place of one that runs.
//!
//! The new version is evaluated once on what everybody sees, and nothing of it counts. If that goes well, it takes the place between
//! two ticks: its first evaluation that counts says all that it wants, and what it does not want is given back in the same
//! transaction. For a while it is on probation: should it fail, the version before comes back. Whatever goes wrong, somebody is in
//! charge of the knobs at each tick, and they are never given back in between.

use std::collections::BTreeMap;

use qosm_engine::{Cause, Grants};
use qosm_model::unit::Micros;

use crate::agent::Agent;
use crate::columns::Readings;
use crate::policy::{Evaluated, Health, LoadedPolicy, Now, Policy};
use crate::roster::{Newer, Running, TakenBack};

/// Failures after which a version on trial is refused, and one on probation gives way. One may be the node's fault.
const MOST_FAILURES: u64 = 2;

/// A version that has yet to show that it works.
pub(crate) struct Trial {
    /// What is evaluated without counting.
    pub(crate) policy: Policy,
    loaded: LoadedPolicy,
    grants: Grants,
    generation: Option<i64>,
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
        let policy = Policy::new(loaded.clone(), grants.clone());
        Self { policy, loaded, grants, generation }
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
}

impl Agent {
    /// Has a version tried out at the next step. One that is tried already makes room.
    pub(crate) fn try_out(&mut self, mut trial: Trial) {
        let name = trial.policy.name().clone();
        tracing::info!(policy = %name, module = %trial.policy.module.digest(), "another version is tried out");
        self.make_ready(&mut trial.policy);
        self.trials.retain(|other| *other.policy.name() != name);
        self.trials.push(trial);
    }

    /// Tells a policy of the pods and layers that there are.
    pub(crate) fn make_ready(&self, policy: &mut Policy) {
        policy.reconfigure(&self.sources.config_maps, &self.sources.node, &self.pods);
        for id in self.pods.ids() {
            policy.reckon(id, &self.pods, true);
        }
    }

    /// Evaluates the versions on trial, and has those that work take their places. The last thing in a step: what they do comes to
    /// nothing yet, and what they take the place of was applied.
    pub(crate) fn rehearse(&mut self, readings: &Readings, now: Now) {
        for mut trial in std::mem::take(&mut self.trials) {
            // One that failed once waits as any policy does before it is tried again.
            if trial.policy.due(now).is_none() {
                self.trials.push(trial);
                continue;
            }
            let outcome = trial.policy.evaluate(&self.engine, Cause::ConfigChanged, readings, &self.pods, now);
            match outcome {
                Evaluated::Staged { .. } => self.switch(trial, now),
                Evaluated::Failed { .. } if trial.policy.failures < MOST_FAILURES => self.trials.push(trial),
                Evaluated::Failed { error } | Evaluated::Parked { error, .. } => {
                    let why = format!("its first evaluation, which did not count yet, failed: {error}");
                    self.metrics.swapped("refused");
                    self.refuse(trial.policy.name(), &trial.loaded, trial.generation, why);
                }
            }
        }
    }

    fn switch(&mut self, trial: Trial, now: Now) {
        let Trial { loaded, grants, generation, .. } = trial;
        let (name, digest) = (loaded.config.name.clone(), loaded.module.digest().to_owned());
        let Some(place) = self.policies.iter().position(|policy| policy.mode().is_active() && **policy.name() == *name)
        else {
            return;
        };
        let mut policy = Policy::new(loaded, grants);
        policy.generation = generation;
        let Some(before) = self.policies.get(place) else { return };
        policy.begin_with(before.saved());
        self.make_ready(&mut policy);
        let Some(before) = self.policies.get_mut(place) else { return };
        let before = std::mem::replace(before, policy);
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
        tracing::info!(policy = name, from = %before.module.digest(), "another version took its place; it is on probation");
        self.reorder();
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

    fn reorder(&mut self) {
        self.policies.sort_by(Policy::before);
        self.metrics.modules(&self.policies);
        self.versions_changed = true;
        self.alarms.is_stale = true;
    }
}
