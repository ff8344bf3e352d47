//! Resolving: the leases on a knob, the guard rails and the knobs that affect it give one value.

use std::sync::Arc;

use qosm_host::knob_table::row;
use qosm_host::{Host, Wanted};
use qosm_model::knob::{Knob, Target};
use qosm_model::lease::Lease;

use crate::inputs::Inputs;
use crate::ledger::Ledger;
use crate::ledger::refusal::Refusal;
use crate::ledger::resolved::{Resolved, is_composed};
use crate::ledger::specified::is_weight_next;
use crate::table::PodTable;

impl Ledger {
    /// The value that a knob should have now; `None` if it has no lease and is not held, or must not be written.
    pub(crate) fn resolve(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
    ) -> Option<Resolved> {
        host.attached_path(target)?;
        if self.is_left_alone(inputs, target, knob) || inputs.pods.is_paused(target, inputs.now.wall) {
            return None;
        }
        if let Some(entry) = inputs.pods.of(target)
            && inputs.config.guard_rails.protected_namespaces.contains(&entry.pod.namespace)
        {
            let why = format!("namespace {} is protected by the guard rails", entry.pod.namespace);
            let lease = self.leases.effective(target, knob);
            let refusal = lease.map(|lease| Refusal::new(lease.value, &lease.holder.policy, &why, inputs.now.wall));
            let is_refused = refusal.is_some();
            match refusal {
                Some(refusal) => drop(self.note_refusal(target, knob, refusal)),
                None => drop(self.refusals.remove(&(target, knob))),
            }
            // A knob that is held from before is restored.
            return self.restoring(target, knob).map(|resolved| Resolved { is_refused, ..resolved });
        }
        let asked = self.leases.effective(target, knob).map(|lease| host.as_held(knob, lease.value));
        let composed =
            asked.filter(|_| is_composed(target, knob)).map(|asked| self.covering(host, inputs, target, knob, asked));
        let ruled = composed.as_ref().map(|composed| composed.value).or(asked);
        if let Some(value) = ruled
            && let Err(why) = self.guarded(host, inputs, target, knob, value)
        {
            return self.refused_by_rails(inputs, target, knob, value, why);
        }
        if let Some(value) = ruled
            && let Some(lease) = self.leases.effective(target, knob)
            && let Some(why) = self.lacks_cpus(inputs.pods, &lease.holder.policy, (target, knob), value)
        {
            return self.refused_by_rails(inputs, target, knob, value, why);
        }
        if let Some(mask) = row(knob).masked
            && let Some(other) = self.masking(inputs.pods, target, knob)
        {
            let waiting = self.leases.effective(target, knob);
            let why = || format!("it waits while {} holds {}", other.holder.policy, mask.by);
            return Some(Resolved {
                wanted: Wanted { target, knob, value: mask.shows },
                policy: Arc::clone(&other.holder.policy),
                reason: Arc::clone(&other.reason),
                restores: false,
                guarded: waiting.map(|lease| (lease.value, why())),
                is_refused: false,
            });
        }
        let railed = ruled.and_then(|value| self.guarded(host, inputs, target, knob, value).ok());
        if let (Some(railed), Some(lease)) = (railed, self.leases.effective(target, knob)) {
            let (value, guarded) = composed.map_or(railed.clone(), |composed| composed.within(railed));
            let resolved = Resolved {
                wanted: Wanted { target, knob, value },
                policy: Arc::clone(&lease.holder.policy),
                reason: Arc::clone(&lease.reason),
                restores: false,
                guarded,
                is_refused: false,
            };
            return Some(match self.left_from_above(host, inputs, (target, knob), Some(value)) {
                Some(left) => left.over(value, resolved),
                None => resolved,
            });
        }
        if asked.is_none()
            && let Some(left) = self.left_from_above(host, inputs, (target, knob), None)
        {
            return Some(left.alone((target, knob)));
        }
        let restoring = self.restoring(target, knob);
        if restoring.is_none() {
            self.refusals.remove(&(target, knob));
        }
        restoring
    }

    /// Whether a knob is left alone: its last write is under way, or another writer has it for now. If one knob masks another, a write to
    /// either changes both: both are left alone then.
    pub(super) fn is_left_alone(&self, inputs: &Inputs<'_>, target: Target, knob: Knob) -> bool {
        let is_left = |knob: Knob| {
            let held = self.held.get(&(target, knob));
            held.is_some_and(|held| {
                // At the agent's end the baseline is queued behind a write that is still under way.
                let is_busy = held.pending.is_some() && !(self.is_ending && held.written != held.baseline);
                let is_others = !self.is_ending && held.hands_off_until.is_some_and(|until| inputs.now.wall < until);
                is_busy || is_others
            })
        };
        let row = row(knob);
        is_left(knob) || row.partner.filter(|_| row.is_of_a_mask()).is_some_and(is_left)
    }

    /// Resolves a held knob to its baseline; `None` if it is not held.
    fn restoring(&self, target: Target, knob: Knob) -> Option<Resolved> {
        let held = self.held.get(&(target, knob))?;
        Some(Resolved {
            wanted: Wanted { target, knob, value: held.baseline },
            policy: Arc::clone(&held.policy),
            reason: "released: the baseline comes back".into(),
            restores: true,
            guarded: None,
            is_refused: false,
        })
    }

    /// The lease on another knob that masks this one.
    pub(super) fn masking(&self, pods: &PodTable, target: Target, knob: Knob) -> Option<&Lease> {
        let mask = row(knob).masked.filter(|_| !is_weight_next(pods, target))?;
        let other = self.leases.effective(target, mask.by)?;
        (row(mask.by).levels.contains(&target.level()) && other.value == mask.when).then_some(other)
    }
}
