//! The knobs of block devices that an instance holds. A kind has one knob for each device, so a bit mask of kinds cannot
//! represent them.

use std::collections::{BTreeSet, HashMap};

use qosm_model::knob::{Knob, Target};

#[derive(Default)]
pub(super) struct StagedDevices {
    held: HashMap<Target, BTreeSet<Knob>>,
    /// Number of held knobs on all targets.
    count: usize,
    /// The changes of this call, the latest last, each with whether the knob was held before.
    undo: Vec<(Target, Knob, bool)>,
}

impl StagedDevices {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn holds(&self, target: Target, knob: Knob) -> bool {
        self.held.get(&target).is_some_and(|knobs| knobs.contains(&knob))
    }

    pub(super) fn acquire(&mut self, target: Target, knob: Knob) {
        if self.set(target, knob, true) {
            self.undo.push((target, knob, false));
        }
    }

    pub(super) fn release(&mut self, target: Target, knob: Knob) {
        if self.set(target, knob, false) {
            self.undo.push((target, knob, true));
        }
    }

    /// Sets whether a knob is held. Returns whether that changes anything.
    fn set(&mut self, target: Target, knob: Knob, is_held: bool) -> bool {
        let knobs = self.held.entry(target).or_default();
        let is_change = if is_held { knobs.insert(knob) } else { knobs.remove(&knob) };
        if knobs.is_empty() {
            self.held.remove(&target);
        }
        if is_change {
            self.count = if is_held { self.count.saturating_add(1) } else { self.count.saturating_sub(1) };
        }
        is_change
    }

    /// Drops a target that is gone, with all knobs held on it.
    pub(super) fn forget(&mut self, target: Target) {
        let gone = self.held.remove(&target).map_or(0, |knobs| knobs.len());
        self.count = self.count.saturating_sub(gone);
    }

    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    pub(super) fn discard(&mut self) {
        while let Some((target, knob, was_held)) = self.undo.pop() {
            self.set(target, knob, was_held);
        }
    }
}
