//! Ties: leases of equal priority on one knob of one target that want different values. The policies' names then decide which one is in
//! force, although no operator chose them for that.
//!
//! Two policies that may set the same knob are no tie: the default policies share interfaces, and use them for different settings.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::knob::Knob;
use qosm_model::lease::{Lease, Priority};

use crate::ledger::{Key, Ledger};

/// Two policies and a knob on which they want different values. One knob stands for all devices, so that there are few ties.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tie {
    /// The policy whose lease is in force, since its name sorts first.
    pub(crate) winner: Arc<str>,
    pub(crate) other: Arc<str>,
    pub(crate) knob: Knob,
}

/// All ties that were seen. A tie is kept while both policies run with equal priority, even while they want the same: a value that
/// changes at each tick must not be reported each time.
#[derive(Debug, Default)]
pub(super) struct Ties {
    known: BTreeMap<Tie, Priority>,
    /// Knobs of several policies that were staged in this step.
    staged: BTreeSet<Key>,
}

impl Ledger {
    /// Notes a staged knob with several leases. They are compared once all policies have staged: until then one lease is new and another
    /// old.
    pub(super) fn note_shared(&mut self, key: Key) {
        if self.leases.stack(key.0, key.1).len() > 1 {
            self.ties.staged.insert(key);
        }
    }

    /// Compares what was staged, and forgets ties between policies whose priorities are not equal any more. Returns `true` if the ties
    /// changed.
    pub(crate) fn ties_changed(&mut self, priority: impl Fn(&str) -> Option<Priority>) -> bool {
        let has_one = |tie: &Tie, of_both: Priority| {
            [&tie.winner, &tie.other].into_iter().all(|policy| priority(policy) == Some(of_both))
        };
        let before = self.ties.known.len();
        self.ties.known.retain(|tie, of_both| has_one(tie, *of_both));
        let mut changed = self.ties.known.len() != before;
        for (target, knob) in std::mem::take(&mut self.ties.staged) {
            for (winner, other) in tied(self.leases.stack(target, knob)) {
                let policy = |lease: &Lease| Arc::clone(&lease.holder.policy);
                let tie = Tie { winner: policy(winner), other: policy(other), knob: knob.kind() };
                // A lease has the priority at which it was staged last.
                if has_one(&tie, winner.holder.priority) {
                    changed |= self.ties.known.insert(tie, winner.holder.priority).is_none();
                }
            }
        }
        changed
    }

    /// All ties, each with the priority that both policies have.
    pub(crate) fn ties(&self) -> impl Iterator<Item = (&Tie, Priority)> {
        self.ties.known.iter().map(|(tie, priority)| (tie, *priority))
    }
}

/// The lease in force of a sorted stack, paired with each lease of equal priority that wants another value.
fn tied(stack: &[Lease]) -> impl Iterator<Item = (&Lease, &Lease)> {
    let counts = |lease: &&Lease| lease.denied.is_none();
    let first = stack.first().filter(counts);
    first.into_iter().flat_map(move |first| {
        let equals = stack.iter().skip(1).filter(counts);
        let equals = equals.take_while(|lease| lease.holder.priority == first.holder.priority);
        equals.filter(|lease| lease.value != first.value).map(move |lease| (first, lease))
    })
}
