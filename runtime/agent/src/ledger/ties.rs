//! Ties: leases of equal priority on one knob of one target that want different values. Which of them is in force is then a matter of
//! the policies' names, which nobody chose for that.
//!
//! That two policies may set the same knob is no tie: the default ones share interfaces, and set different things by them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::knob::Knob;
use qosm_model::lease::{Lease, Priority};

use crate::ledger::{Key, Ledger};

/// Two policies and a knob on which they met. One knob stands for all devices, so that there are few of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tie {
    /// Whose name sorts first.
    pub(crate) winner: Arc<str>,
    pub(crate) other: Arc<str>,
    pub(crate) knob: Knob,
}

/// All that were seen. One is kept while both policies run with one priority, also while they want the same: a value that changes at
/// each tick must not be told each time.
#[derive(Debug, Default)]
pub(super) struct Ties {
    known: BTreeMap<Tie, Priority>,
    /// Knobs of several policies that were staged in this step.
    staged: BTreeSet<Key>,
}

impl Ledger {
    /// Notes a knob that was staged, to look at it once all policies have staged: until then one has its new value and another its old one.
    pub(super) fn note_shared(&mut self, key: Key) {
        if self.leases.stack(key.0, key.1).len() > 1 {
            self.ties.staged.insert(key);
        }
    }

    /// Looks at what was staged, and forgets ties between policies that do not have one priority any more. `true` if there are others
    /// than before.
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

/// The lease of a sorted stack that is in force, with each that has its priority and wants something else.
fn tied(stack: &[Lease]) -> impl Iterator<Item = (&Lease, &Lease)> {
    let counts = |lease: &&Lease| lease.denied.is_none();
    let first = stack.first().filter(counts);
    first.into_iter().flat_map(move |first| {
        let equals = stack.iter().skip(1).filter(counts);
        let equals = equals.take_while(|lease| lease.holder.priority == first.holder.priority);
        equals.filter(|lease| lease.value != first.value).map(move |lease| (first, lease))
    })
}
