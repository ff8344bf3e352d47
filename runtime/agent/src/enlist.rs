//! Taking a new roster while running: policies come, go, and change places between two ticks.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::{Agent, Unloaded};
use crate::policy::{Now, Policy};
use crate::roster::{Enlisted, Roster};
use crate::shadow::{self, ShadowError};

impl Agent {
    /// Takes a roster. A policy whose module and grants stay goes on, at most with another configuration; one that is replaced hands
    /// its saved state over, and its leases stay until the first evaluation of the new one, which declares anew what it wants;
    /// one that is gone, or put into the shadow, releases what it holds.
    pub fn enlist(&mut self, roster: Roster, now: Now) {
        let Roster { policies: enlisted, unloaded, problems } = roster;
        let mut running: BTreeMap<Arc<str>, Policy> =
            std::mem::take(&mut self.policies).into_iter().map(|policy| (Arc::clone(policy.name()), policy)).collect();
        let mut refused = Vec::new();
        for Enlisted { policy: loaded, origin } in enlisted {
            let name = loaded.config.name.clone();
            let grants = match loaded.config.granted() {
                Ok(grants) => grants,
                Err(error) => {
                    refused.push(Unloaded { policy: name, mode: loaded.config.mode, error: error.to_string() });
                    continue;
                }
            };
            let before = running.remove(name.as_str());
            let mut policy = match before {
                Some(mut policy) if policy.may_go_on(&loaded, &grants) => {
                    policy.take_entry(loaded.config);
                    policy
                }
                before => {
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
                    policy.reconfigure(&self.sources.config_maps, &self.sources.node, &self.pods);
                    for id in self.pods.ids() {
                        policy.reckon(id, &self.pods, true);
                    }
                    policy
                }
            };
            policy.origin = origin;
            self.policies.push(policy);
        }
        for policy in running.into_values() {
            tracing::info!(policy = %policy.name(), "policy dismissed");
            self.dismiss(&policy);
        }
        let before = std::mem::replace(&mut self.unloaded, unloaded);
        self.unloaded.extend(refused);
        self.order();
        self.metrics.unloaded(&before, &self.unloaded);
        self.roster_problems = problems;
        self.alarms.is_stale = true;
        self.collect_problems(now);
    }

    /// The order of evaluation is part of what a replay must reproduce. A shadow that cannot be paired does not run.
    fn order(&mut self) {
        self.policies.sort_by(Policy::before);
        while let Err(error) = shadow::pair(&mut self.policies, &self.unloaded) {
            let (ShadowError::NotAShadow(name) | ShadowError::Unknown { policy: name, .. }) = &error;
            let place = self.policies.iter().position(|policy| **policy.name() == **name);
            let Some(policy) = place.map(|place| self.policies.remove(place)) else { return };
            self.dismiss(&policy);
            self.unloaded.push(Unloaded { policy: name.clone(), mode: policy.mode(), error: error.to_string() });
        }
    }

    /// Gives up what a policy that no longer counts holds.
    fn dismiss(&mut self, policy: &Policy) {
        self.metrics.dismiss(policy.name(), policy.mode());
        if policy.mode().is_active() {
            self.locality.stop_policy(policy.name());
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
