//! Leases that do not count, since their policies may not act there.
//!
//! Such a lease stays in its stack, so that it counts once the pod is configured or the grant is given, without the module asking again.

use std::sync::Arc;

use qosm_host::Host;
use qosm_model::knob::{Knob, Target};
use qosm_model::lease::Lease;

use crate::inputs::Inputs;
use crate::ledger::tables::Denial;
use crate::ledger::{Applied, Ledger, decision};
use crate::policies::Policies;
use crate::table::PodTable;

impl Ledger {
    /// Sets whether a lease counts; `why` is the reason if it does not.
    pub(super) fn judge_lease(&mut self, policy: &Arc<str>, target: Target, knob: Knob, why: Option<Arc<str>>) {
        let was = self.leases.stack(target, knob).iter().find(|lease| lease.holder.policy == *policy);
        let was = was.and_then(|lease| lease.denied.clone());
        if was == why {
            return;
        }
        if let Some(why) = &why {
            self.denials.push(Denial { target, knob, why: Arc::clone(why), policy: Arc::clone(policy) });
        }
        if self.leases.deny(policy, target, knob, why) {
            self.dirty.insert((target, knob));
        }
    }

    /// Works out again which leases count. Returns `false` if pods, their configuration and grants are unchanged.
    pub(crate) fn judge_leases(&mut self, policies: &Policies, pods: &PodTable) -> bool {
        if !std::mem::take(&mut self.is_reach_stale) {
            return false;
        }
        for policy in policies.active() {
            let mut held: Vec<_> = self.leases.held_by(policy.name()).collect();
            held.sort_unstable();
            for (target, knob) in held {
                self.judge_lease(policy.name(), target, knob, policy.out_of_reach(pods, target));
            }
        }
        true
    }

    /// Marks all leases on tiers to be resolved again, since protected pods came or left.
    pub(crate) fn touch_tiers(&mut self) {
        let held = self.leases.held().map(|(target, knob, _)| (target, knob));
        self.dirty.extend(held.filter(|(target, _)| matches!(target, Target::Tier(_))));
    }

    /// Reports denied leases: one log line for each policy and reason, and a refusal for each lease.
    pub(super) fn notify_denials(&mut self, host: &Host, inputs: &Inputs<'_>, out: &mut Applied) {
        let mut reported: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for denial in std::mem::take(&mut self.denials) {
            let Denial { target, knob, why, policy } = denial;
            let stack = self.leases.stack(target, knob);
            let Some(lease) = stack.iter().find(|lease| lease.holder.policy == policy) else { continue };
            inputs.metrics.refusal(knob, "denied");
            let mut decision = decision::of_denied(host, inputs, target, knob, lease);
            decision.error = Some(why.to_string());
            out.refused.push(decision);
            let line = (Arc::clone(&policy), Arc::clone(&why));
            if !reported.contains(&line) {
                tracing::warn!(%policy, subject = inputs.pods.shown(target), %knob, error = %why, "setting refused");
                reported.push(line);
            }
        }
    }

    /// Leases that do not count, in order.
    pub(crate) fn denied(&self, wanted: impl Fn(Target) -> bool) -> Vec<(Target, Knob, &Lease)> {
        let mut denied: Vec<(Target, Knob, &Lease)> = self
            .leases
            .held()
            .filter(|(target, ..)| wanted(*target))
            .flat_map(|(target, knob, stack)| stack.iter().map(move |lease| (target, knob, lease)))
            .filter(|(.., lease)| lease.denied.is_some())
            .collect();
        denied.sort_by(|a, b| (a.0, a.1, &a.2.holder.policy).cmp(&(b.0, b.1, &b.2.holder.policy)));
        denied
    }
}
