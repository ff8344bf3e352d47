//! Settings of the node's kernel that the policy declared.

use std::collections::BTreeMap;

use super::{Declaration, Declared, RELEASED, ReleaseKnob, keep};
use crate::{Host, NodeKnob};

/// A setting that the host holds for this policy.
#[derive(Clone, Debug)]
struct Held {
    value: u64,
    reason: String,
    declared: Declared,
}

/// All settings of the node's kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeKnobs(BTreeMap<NodeKnob, Held>);

impl Declaration {
    fn change_node_knobs(&mut self) -> &mut NodeKnobs {
        if self.undo.node_knobs.is_none() {
            self.undo.node_knobs = Some(self.node_knobs.clone());
        }
        &mut self.node_knobs
    }

    /// Records a setting. Returns whether it differs from what the host has.
    pub(super) fn set_node_knob(&mut self, knob: NodeKnob, value: u64, reason: &str) -> bool {
        let declared = self.call;
        if let Some(known) = self.node_knobs.0.get_mut(&knob)
            && (known.value, known.reason.as_str()) == (value, reason)
        {
            known.declared = declared;
            return false;
        }
        let held = Held { value, reason: reason.to_owned(), declared };
        self.change_node_knobs().0.insert(knob, held);
        true
    }

    pub(super) fn unset_node_knob(&mut self, knob: NodeKnob) {
        if let Some(known) = self.node_knobs.0.get_mut(&knob) {
            known.declared = RELEASED;
        }
    }

    pub(super) fn keep_node_knobs(&mut self) {
        for known in self.node_knobs.0.values_mut() {
            keep(&mut known.declared, self.call);
        }
    }

    /// Restores the state before a failed call, and marks all settings as declared, so that the call releases none of them later.
    pub(super) fn discard_node_knobs(&mut self) {
        if let Some(node_knobs) = self.undo.node_knobs.take() {
            self.node_knobs = node_knobs;
        }
        for known in self.node_knobs.0.values_mut() {
            known.declared = self.call;
        }
    }

    /// Releases the settings for which `is_over` holds.
    pub(super) fn release_node_knobs<H: Host + 'static>(&mut self, host: &mut H, is_over: impl Fn(Declared) -> bool) {
        let over = self.node_knobs.0.iter().filter(|(_, known)| is_over(known.declared));
        let over: Vec<NodeKnob> = over.map(|(knob, _)| *knob).collect();
        let release: Option<ReleaseKnob<H>> = self.releases.node_knob::<H>();
        for knob in over {
            if let Some(release) = release {
                release(host, knob);
            }
            self.change_node_knobs().0.remove(&knob);
        }
    }
}
