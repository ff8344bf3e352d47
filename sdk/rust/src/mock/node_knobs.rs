//! Settings of the node's kernel, over a [`MockHost`].

use std::collections::BTreeMap;

use super::{MockHost, NodeKnobChange, NodeRemark};
use crate::{NodeKnob, NodeKnobState, NodeKnobs};

impl MockHost {
    /// The value of a kernel setting: held now, or from the end of the evaluation on if it succeeds.
    ///
    /// ```
    /// use qosm_sdk::NodeKnob;
    ///
    /// assert_eq!(qosm_sdk::mock::MockHost::default().node_knob(NodeKnob::MemcgReaper), None);
    /// ```
    #[must_use]
    pub fn node_knob(&self, knob: NodeKnob) -> Option<u64> {
        self.staged_node_knobs.as_ref().unwrap_or(&self.held_node_knobs).get(&knob).copied()
    }

    /// Takes the changes of settings of the node's kernel since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{NodeKnob, NodeKnobs};
    ///
    /// let mut host = MockHost::default();
    /// host.set_node_knob(NodeKnob::MemcgReaper, 1, "asked for");
    /// assert_eq!(host.take_node_knob_changes().len(), 1);
    /// assert_eq!(host.take_node_knob_changes(), []);
    /// ```
    pub fn take_node_knob_changes(&mut self) -> Vec<NodeKnobChange> {
        std::mem::take(&mut self.node_knob_changes)
    }

    fn change_node_knobs(&mut self) -> &mut BTreeMap<NodeKnob, u64> {
        self.staged_node_knobs.get_or_insert_with(|| self.held_node_knobs.clone())
    }

    /// Makes staged settings held, and shows them in `columns.node_knobs`.
    pub(super) fn commit_node_knobs(&mut self) {
        if let Some(staged) = self.staged_node_knobs.take() {
            self.held_node_knobs = staged;
        }
        for row in &mut self.columns.node_knobs {
            let held = self.held_node_knobs.get(&row.knob).copied();
            // A setting without a baseline does not exist in this kernel, so it keeps no value.
            row.value = row.baseline.map(|baseline| held.unwrap_or(baseline));
        }
    }

    pub(super) fn discard_node_knobs(&mut self) {
        self.staged_node_knobs = None;
        self.node_knob_changes.clear();
        self.node_remarks.clear();
    }

    /// Releases what an earlier instance held and this one did not declare.
    pub(super) fn release_undeclared_node_knobs(&mut self) {
        let declared: Vec<NodeKnob> =
            self.node_knob_changes.iter().filter(|change| change.value.is_some()).map(|change| change.knob).collect();
        self.change_node_knobs().retain(|knob, _| declared.contains(knob));
    }
}

impl NodeKnobs for MockHost {
    fn set_node_knob(&mut self, knob: NodeKnob, value: u64, reason: &str) {
        self.called("node-knobs");
        self.number("setting of the node", value);
        self.change_node_knobs().insert(knob, value);
        self.node_knob_changes.push(NodeKnobChange { knob, value: Some(value), reason: reason.into() });
    }

    fn release_node_knob(&mut self, knob: NodeKnob) {
        self.called("node-knobs");
        if self.change_node_knobs().remove(&knob).is_some() {
            self.node_knob_changes.push(NodeKnobChange { knob, value: None, reason: String::new() });
        }
    }

    fn node_knobs(&mut self) -> Vec<NodeKnobState> {
        self.column("node-knobs", |host| &host.columns.node_knobs)
    }

    fn remark_node_knob(&mut self, knob: NodeKnob, reason: &str) {
        self.called("node-knobs");
        self.node_remarks.push(NodeRemark { knob, reason: reason.into() });
    }
}
