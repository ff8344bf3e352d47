//! What a restore would put back, and what it could not restore.

use std::borrow::Cow;

use crate::ledger::Ledger;
use crate::restored::{FAILED, LEFT, RESTORED, Restored, UNDER_WAY, WOULD_RESTORE};
use crate::table::{Access, PodTable};

impl Ledger {
    /// The knobs that a restore would put back.
    pub(crate) fn restorable(&self) -> Vec<Restored> {
        let held = self.held.iter().map(|(&(_, knob), held)| Restored {
            cgroup: held.cgroup.clone(),
            knob: knob.to_string(),
            value: held.baseline.into(),
            outcome: Cow::Borrowed(WOULD_RESTORE),
            why: None,
        });
        held.chain(self.orphans.iter().map(|record| Restored::new(record, WOULD_RESTORE, None))).collect()
    }

    /// The outcome of a restore for each knob in `before`, which [`Self::restorable`] returned.
    pub(crate) fn restored(&self, pods: &PodTable, before: Vec<Restored>) -> Vec<Restored> {
        let after = self.unrestored(pods);
        let outcome = |row: Restored| {
            let is_it = |other: &&Restored| other.cgroup == row.cgroup && other.knob == row.knob;
            match after.iter().find(is_it) {
                Some(left) => left.clone(),
                None => Restored { outcome: Cow::Borrowed(RESTORED), ..row },
            }
        };
        before.into_iter().map(outcome).collect()
    }

    /// The knobs that are not restored, and why.
    pub(crate) fn unrestored(&self, pods: &PodTable) -> Vec<Restored> {
        let held = self.held.iter().map(|(&(target, knob), held)| {
            let is_paused = pods.of(target).is_some_and(|entry| entry.access == Access::Paused);
            let (outcome, why) = match self.refusals.get(&(target, knob)) {
                _ if is_paused => (LEFT, "the pod is paused".to_owned()),
                _ if held.pending.is_some() => (UNDER_WAY, "the kernel has not finished".to_owned()),
                Some(refusal) => (FAILED, refusal.why.clone()),
                None => (FAILED, "it was not come to".to_owned()),
            };
            Restored {
                cgroup: held.cgroup.clone(),
                knob: knob.to_string(),
                value: held.baseline.into(),
                outcome: Cow::Borrowed(outcome),
                why: Some(why),
            }
        });
        let orphans = self.orphans.iter().map(|record| {
            let why = self.unreadable.get(&(record.knob, record.cgroup.clone()));
            Restored::new(record, FAILED, Some(why.cloned().unwrap_or_else(|| "it was not come to".to_owned())))
        });
        held.chain(orphans).collect()
    }
}
