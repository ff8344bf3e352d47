//! Taking a new roster while running: policies come, go, and change places between two ticks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::{Agent, Unloaded};
use crate::policy::{Now, Policy};
use crate::roster::{Enlisted, Newer, Roster};
use crate::shadow::{self, ShadowError};
use crate::trial::Trial;

impl Agent {
    /// Takes a roster. A policy whose module and grants stay goes on, at most with another configuration; another module is tried out
    /// first; one whose grants or bounds change starts anew at once with what it saved, and its leases stay until its first
    /// evaluation, which declares anew what it wants; one that is gone, or put into the shadow, releases what it holds.
    pub fn enlist(&mut self, roster: Roster, now: Now) {
        let Roster { policies: enlisted, unloaded, problems, number } = roster;
        self.roster = number;
        let mut running: BTreeMap<Arc<str>, Policy> =
            std::mem::take(&mut self.policies).into_iter().map(|policy| (Arc::clone(policy.name()), policy)).collect();
        let mut refused = Vec::new();
        // A version on trial is no reason to look through all pods.
        let mut changes_problems = self.roster_problems != problems;
        let mut trials = std::mem::take(&mut self.trials);
        for Enlisted { policy: loaded, generation, newer, stands_in } in enlisted {
            let name = loaded.config.name.clone();
            let (loaded, newer, stands_in) = match (self.refused.get(&name), stands_in) {
                // It was asked for before anybody could know that it fails.
                (Some((digest, why)), false) if digest == loaded.module.digest() => {
                    let module = loaded.origin.reference.to_string();
                    let newer = Newer { generation, module, is_pending: false, why: why.clone() };
                    (loaded, Some(newer), true)
                }
                (known, _) => {
                    if known.is_some() {
                        self.refused.remove(&name);
                    }
                    (loaded, newer, stands_in)
                }
            };
            if stands_in && let Some(mut policy) = running.remove(name.as_str()) {
                policy.newer = newer;
                self.policies.push(policy);
                continue;
            }
            let grants = match loaded.config.granted() {
                Ok(grants) => grants,
                Err(error) => {
                    let (mode, error) = (loaded.config.mode, error.to_string());
                    refused.push(Unloaded { policy: name, mode, error, is_pending: false });
                    continue;
                }
            };
            let before = running.remove(name.as_str());
            let mut policy = match before {
                Some(mut policy) if policy.may_go_on(&loaded, &grants) => {
                    policy.take_entry(loaded);
                    policy
                }
                // Its place is taken when it has shown that it works; until then the one that runs goes on as it is.
                Some(mut policy) if policy.is_succeeded_by(&loaded) => {
                    match trials.iter().position(|trial| trial.is_of(&loaded, &grants)) {
                        Some(place) => self.trials.push(trials.swap_remove(place).of_generation(generation)),
                        None => self.try_out(Trial::new(loaded, grants, generation)),
                    }
                    policy.newer = self.trials.last().map(Trial::newer);
                    self.policies.push(policy);
                    continue;
                }
                before => {
                    changes_problems = true;
                    let mut policy = Policy::new(loaded, grants);
                    match before {
                        Some(before) if before.mode() == policy.mode() => policy.begin_with(before.saved()),
                        before => {
                            policy.begin_with(&self.kept_state(&policy.state_key()));
                            if let Some(before) = before {
                                self.dismiss(&before);
                            }
                        }
                    }
                    tracing::info!(
                        policy = name,
                        mode = policy.mode().as_str(),
                        module = %policy.module.digest(),
                        "policy enlisted"
                    );
                    self.make_ready(&mut policy);
                    policy
                }
            };
            (policy.generation, policy.newer) = (generation, newer);
            self.policies.push(policy);
        }
        changes_problems |= !running.is_empty();
        for policy in running.into_values() {
            tracing::info!(policy = %policy.name(), "policy dismissed");
            self.dismiss(&policy);
        }
        let before = std::mem::replace(&mut self.unloaded, unloaded);
        self.unloaded.extend(refused);
        self.order();
        self.metrics.unloaded(&before, &self.unloaded);
        self.metrics.modules(&self.policies);
        self.versions_changed = true;
        self.roster_problems = problems;
        self.alarms.is_stale = true;
        if changes_problems {
            self.collect_problems(now);
        }
    }

    /// The order of evaluation is part of what a replay must reproduce. A shadow that cannot be paired does not run.
    fn order(&mut self) {
        self.policies.sort_by(Policy::before);
        while let Err(error) = shadow::pair(&mut self.policies, &self.unloaded) {
            let (ShadowError::NotAShadow(name) | ShadowError::Unknown { policy: name, .. }) = &error;
            let place = self.policies.iter().position(|policy| **policy.name() == **name);
            let Some(policy) = place.map(|place| self.policies.remove(place)) else { return };
            self.dismiss(&policy);
            let (mode, error) = (policy.mode(), error.to_string());
            self.unloaded.push(Unloaded { policy: name.clone(), mode, error, is_pending: false });
        }
    }

    /// Gives up what a policy that no longer counts holds.
    fn dismiss(&mut self, policy: &Policy) {
        self.metrics.dismiss(policy.name(), policy.mode());
        if policy.mode().is_active() {
            self.locality.stop_policy(policy.name());
            self.resctrl.classes.release_policy(policy.name());
            self.dirty.extend(self.leases.release_policy(policy.name()));
        }
    }

    /// What the journal, or what is yet to be written there, keeps of a policy.
    fn kept_state(&self, key: &str) -> Vec<u8> {
        if let Some((_, state)) = self.unsaved.iter().find(|(known, _)| known == key) {
            return state.clone();
        }
        let kept = self.journal.as_ref().map(|journal| journal.state(key));
        kept.and_then(Result::ok).unwrap_or_default()
    }
}
