//! Skips knobs that already have their resolved value, if the kernel reports foreign writes. They are neither read nor planned; after a
//! swap to a version that wants the same, that is all of them.

use std::collections::HashMap;
use std::sync::Arc;

use qosm_host::knob_table::row;
use qosm_host::{Host, Wanted};
use qosm_model::knob::{Knob, Target, Value};
use rustc_hash::FxHashSet;

use crate::inputs::Inputs;
use crate::ledger::Ledger;
use crate::ledger::resolved::{Resolved, number};
use crate::step::Mode;

impl Ledger {
    /// Leaves out knobs that are in force. If one knob of a cgroup must be planned, all of its knobs are: they depend on each other.
    pub(super) fn without_those_in_force(
        &mut self,
        host: &Host,
        inputs: &Inputs<'_>,
        mut wanted: Vec<Wanted>,
        resolutions: &HashMap<(Target, Knob), Resolved>,
    ) -> Vec<Wanted> {
        if inputs.mode != Mode::Enforce || !host.detects_writes() {
            return wanted;
        }
        let resolved = |wanted: &Wanted| resolutions.get(&(wanted.target, wanted.knob));
        let planned: FxHashSet<Target> = wanted
            .iter()
            .filter(|wanted| !resolved(wanted).is_some_and(|resolved| self.is_in_force(resolved)))
            .map(|wanted| wanted.target)
            .collect();
        wanted.retain(|wanted| {
            let is_planned = planned.contains(&wanted.target);
            let key = (wanted.target, wanted.knob);
            if !is_planned && let (Some(resolved), Some(held)) = (resolved(wanted), self.held.get_mut(&key)) {
                held.policy = Arc::clone(&resolved.policy);
                self.accepted(key, resolved);
            }
            is_planned
        });
        wanted
    }

    /// Whether the knob is held and has its resolved value.
    fn is_in_force(&self, resolved: &Resolved) -> bool {
        let Wanted { target, knob, value } = resolved.wanted;
        let Some(held) = self.held.get(&(target, knob)) else { return false };
        if resolved.restores || resolved.guarded.is_some() || held.pending.is_some() || held.hands_off_until.is_some() {
            return false;
        }
        match &held.adjusted {
            None => held.written == value,
            // A burst that was cut to the quota, which is still the same.
            Some((wanted, _)) if row(knob).is_within_quota() && *wanted == value => {
                let quota = self.quotas.get(target).and_then(|bandwidth| bandwidth.quota);
                quota.is_some_and(|quota| held.written == Value::Number(number(quota.0)))
            }
            Some(_) => false,
        }
    }
}
