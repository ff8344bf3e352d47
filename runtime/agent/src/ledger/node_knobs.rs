//! The node's own settings, as policies see them.

use qosm_host::Host;
use qosm_model::knob::{Target, Value};
use qosm_model::node::NodeKnobSample;

use crate::ledger::Ledger;

impl Ledger {
    /// The node's knobs that this kernel has, with their baselines.
    pub(crate) fn read_node_knobs(&self, host: &Host) -> Vec<NodeKnobSample> {
        let number = |value: Value| u64::try_from(value.number()?).ok();
        let sample = |(knob, value): (_, Value)| {
            let held = self.held.get(&(Target::Node, knob));
            let baseline = held.map_or(value, |held| held.baseline);
            Some(NodeKnobSample { knob, value: number(value)?, baseline: number(baseline)? })
        };
        host.node_knobs().into_iter().filter_map(sample).collect()
    }
}
