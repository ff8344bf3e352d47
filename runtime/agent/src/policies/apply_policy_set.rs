//! Applies a new policy set between two ticks: policies are added, replaced and unloaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::metrics::Metrics;
use crate::policies::canary::{Canary, make_ready};
use crate::policies::shadows::{ShadowError, pair};
use crate::policies::{Context, Policies};
use crate::policy::Policy;
use crate::policy_set::resolved::{LoadFailed, PendingUpdate, PolicySet, ResolvedPolicy};
use crate::saved_state::SavedState;

impl Policies {
    /// Applies a policy set. A policy whose module and grants stay the same keeps running, possibly with another configuration. Another
    /// module runs as a canary first. A policy whose grants or limits change restarts at once with its saved state, and its leases stay
    /// until its first evaluation, which stages all that it wants. A policy that is gone, or becomes a shadow, releases its leases.
    pub(crate) fn apply_policy_set(&mut self, set: PolicySet, saved: &dyn Fn(&str) -> SavedState, at: &Context<'_>) {
        self.changes.reach = true;
        let PolicySet { policies: resolved, load_failed, problems, number } = set;
        self.set_number = number;
        let mut running: BTreeMap<Arc<str>, Policy> =
            std::mem::take(&mut self.running).into_iter().map(|policy| (Arc::clone(policy.name()), policy)).collect();
        let mut refused = Vec::new();
        // A canary does not change the problems of pods.
        let mut changes_problems = self.set_problems != problems;
        let mut canaries = std::mem::take(&mut self.canaries);
        for ResolvedPolicy { policy: loaded, generation, pending_update, is_fallback } in resolved {
            let name = loaded.config.name.clone();
            let (loaded, pending_update, is_fallback) = match (self.refused.get(&name), is_fallback) {
                // The policy set was resolved before the failure was known.
                (Some(refused), false) if refused.is_of(&loaded) => {
                    let why = &refused.why;
                    let module = loaded.origin.reference.to_string();
                    let pending_update = PendingUpdate { generation, module, is_pending: false, why: why.clone() };
                    (loaded, Some(pending_update), true)
                }
                (known, _) => {
                    if known.is_some() {
                        self.refused.remove(&name);
                    }
                    (loaded, pending_update, is_fallback)
                }
            };
            if is_fallback && let Some(mut policy) = running.remove(name.as_str()) {
                policy.pending_update = pending_update;
                self.running.push(policy);
                continue;
            }
            let grants = match loaded.config.granted() {
                Ok(grants) => grants,
                Err(error) => {
                    let (mode, error) = (loaded.config.mode, error.to_string());
                    refused.push(LoadFailed { policy: name, mode, error, is_pending: false });
                    continue;
                }
            };
            let before = running.remove(name.as_str());
            let mut policy = match before {
                Some(mut policy) if policy.can_keep_running(&loaded, &grants) => {
                    policy.take_entry(loaded);
                    policy
                }
                // The new version is promoted once it has shown that it works; until then the running version stays as it is.
                Some(mut policy) if policy.is_replaced_by(&loaded) => {
                    match canaries.iter().position(|canary| canary.is_of(&loaded, &grants)) {
                        Some(place) => self.canaries.push(canaries.swap_remove(place).of_generation(generation)),
                        None => self.start_canary(Canary::new(loaded, grants, generation)),
                    }
                    policy.pending_update = self.canaries.last().map(Canary::pending_update);
                    self.running.push(policy);
                    continue;
                }
                before => {
                    changes_problems = true;
                    let mut policy = Policy::new(loaded, grants);
                    match before {
                        Some(before) if before.mode() == policy.mode() => {
                            policy.begin_with(before.saved());
                            policy.begin_with_texts(before.good_texts());
                        }
                        before => {
                            policy.begin_with(&saved(&policy.state_key()));
                            if let Some(texts) = self.good_texts.get(&policy.state_key()) {
                                policy.begin_with_texts(texts);
                            }
                            if let Some(before) = before {
                                self.unload(&before, at.metrics);
                            }
                        }
                    }
                    tracing::info!(
                        policy = name,
                        mode = policy.mode().as_str(),
                        module = %policy.module.digest(),
                        "policy resolved"
                    );
                    // Without sources it would look as if the ConfigMaps had been removed, with their last good texts.
                    if self.has_sources {
                        make_ready(&mut policy, at.pods, at.sources);
                    }
                    policy
                }
            };
            (policy.generation, policy.pending_update) = (generation, pending_update);
            self.running.push(policy);
        }
        changes_problems |= !running.is_empty();
        for policy in running.into_values() {
            tracing::info!(policy = %policy.name(), "policy unloaded");
            self.unload(&policy, at.metrics);
        }
        let before = std::mem::replace(&mut self.load_failed, load_failed);
        self.load_failed.extend(refused);
        self.order(at);
        at.metrics.load_failed(&before, &self.load_failed);
        at.metrics.modules(&self.running);
        self.changes.versions = true;
        self.set_problems = problems;
        self.changes.watches = true;
        self.changes.problems |= changes_problems;
    }

    /// Sorts the policies, because a replay must reproduce the order of evaluation. A shadow that cannot be paired does not run.
    fn order(&mut self, at: &Context<'_>) {
        self.running.sort_by(Policy::before);
        while let Err(error) = pair(&mut self.running, &self.load_failed) {
            let (ShadowError::NotAShadow(name) | ShadowError::Unknown { policy: name, .. }) = &error;
            let place = self.running.iter().position(|policy| **policy.name() == **name);
            let Some(policy) = place.map(|place| self.running.remove(place)) else { return };
            self.unload(&policy, at.metrics);
            let (mode, error) = (policy.mode(), error.to_string());
            self.load_failed.push(LoadFailed { policy: name.clone(), mode, error, is_pending: false });
        }
    }

    /// Releases what an unloaded policy holds.
    fn unload(&mut self, policy: &Policy, metrics: &Metrics) {
        metrics.unload(policy.name(), policy.mode());
        self.good_texts.remove(&policy.state_key());
        if policy.mode().is_active() {
            self.changes.released.push(Arc::clone(policy.name()));
        }
    }
}
