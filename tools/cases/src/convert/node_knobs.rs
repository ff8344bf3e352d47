//! Settings of the node's kernel.

use qosm_model::knob::{Knob, Value};
use qosm_model::node::NodeKnobSample;
use qosm_sdk::NodeKnob;
use qosm_sdk::mock;

fn model(knob: NodeKnob) -> Knob {
    match knob {
        NodeKnob::MinFreeKbytes => Knob::MinFreeKbytes,
        NodeKnob::WatermarkScaleFactor => Knob::WatermarkScaleFactor,
        NodeKnob::MemcgReaper => Knob::MemcgReaper,
        NodeKnob::GroupIdentity => Knob::GroupIdentity,
        NodeKnob::IdleSaverWmark => Knob::IdleSaverWmark,
        NodeKnob::PageCacheLimit => Knob::PageCacheLimit,
        NodeKnob::SchedCore => Knob::SchedCore,
    }
}

fn sdk(knob: Knob) -> Option<NodeKnob> {
    NodeKnob::ALL.into_iter().find(|other| model(*other) == knob)
}

/// The settings that the kernel has.
pub(super) fn samples(columns: &mock::Columns) -> Vec<NodeKnobSample> {
    let sample = |state: &qosm_sdk::NodeKnobState| {
        Some(NodeKnobSample { knob: model(state.knob), value: state.value?, baseline: state.baseline? })
    };
    columns.node_knobs.iter().filter_map(sample).collect()
}

/// A staged change of a kernel setting; `None` for another knob.
pub(super) fn change(knob: Knob, value: Option<Value>, reason: &str) -> Option<mock::NodeKnobChange> {
    let value = match value {
        Some(Value::Number(number)) => Some(u64::try_from(number).unwrap_or_default()),
        _ => None,
    };
    Some(mock::NodeKnobChange { knob: sdk(knob)?, value, reason: reason.into() })
}

pub(super) fn remark(knob: Knob, reason: &str) -> Option<mock::NodeRemark> {
    Some(mock::NodeRemark { knob: sdk(knob)?, reason: reason.into() })
}
