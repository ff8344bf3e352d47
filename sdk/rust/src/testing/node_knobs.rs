//! Settings of the node's kernel in case files: their values, and the expected settings.

use std::collections::BTreeMap;

use super::expectation::{Expectation, Expected};
use crate::mock::{NodeKnobChange, Value};
use crate::{NodeKnob, NodeKnobState};

/// Name of the target that stands for the node.
pub(super) const NODE: &str = "node";

/// The values of the settings without the policy, and those that the policy holds.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSettings {
    baselines: BTreeMap<NodeKnob, u64>,
    held: BTreeMap<NodeKnob, u64>,
}

impl NodeSettings {
    /// Takes the settings of a case file. Fails on a name that is no setting.
    pub(super) fn take(&mut self, rows: &BTreeMap<String, u64>) -> Result<(), String> {
        let mut baselines = BTreeMap::new();
        for (name, value) in rows {
            let knob = NodeKnob::ALL.into_iter().find(|knob| knob.as_str() == name);
            let known = || NodeKnob::ALL.map(NodeKnob::as_str).join(", ");
            let knob = knob.ok_or_else(|| format!("`{name}` is no setting of the node; there are {}", known()))?;
            baselines.insert(knob, *value);
        }
        self.baselines = baselines;
        Ok(())
    }

    pub(super) fn change(&mut self, change: &NodeKnobChange) {
        match change.value {
            Some(value) => self.held.insert(change.knob, value),
            None => self.held.remove(&change.knob),
        };
    }

    /// The settings as the policy reads them.
    pub(super) fn states(&self) -> Vec<NodeKnobState> {
        let state = |knob| {
            let baseline = self.baselines.get(&knob).copied();
            let value = baseline.map(|baseline| self.held.get(&knob).copied().unwrap_or(baseline));
            NodeKnobState { knob, value, baseline }
        };
        NodeKnob::ALL.into_iter().map(state).collect()
    }

    /// Settings that changed.
    pub(super) fn since(&self, before: &Self) -> Vec<Expectation> {
        let number = |value: u64| Expected::Held(Value::from(value));
        let changed = |knob: NodeKnob| {
            let value = match (self.held.get(&knob), before.held.get(&knob)) {
                (now, then) if now == then => return None,
                (Some(now), _) => number(*now),
                (None, _) => Expected::Released,
            };
            Some(Expectation { target: NODE.into(), knob: knob.as_str().into(), value })
        };
        NodeKnob::ALL.into_iter().filter_map(changed).collect()
    }
}
