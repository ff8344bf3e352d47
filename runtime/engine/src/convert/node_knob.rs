//! Conversion of the settings of the node's kernel between the contract's types and the model's.

use qosm_model::knob::Knob;
use qosm_model::node::NodeKnobSample;

use crate::bindings::qosm::policy::node_knobs;

const NAMES: [(node_knobs::Knob, Knob); 7] = [
    (node_knobs::Knob::MinFreeKbytes, Knob::MinFreeKbytes),
    (node_knobs::Knob::WatermarkScaleFactor, Knob::WatermarkScaleFactor),
    (node_knobs::Knob::MemcgReaper, Knob::MemcgReaper),
    (node_knobs::Knob::GroupIdentity, Knob::GroupIdentity),
    (node_knobs::Knob::IdleSaverWmark, Knob::IdleSaverWmark),
    (node_knobs::Knob::PageCacheLimit, Knob::PageCacheLimit),
    (node_knobs::Knob::SchedCore, Knob::SchedCore),
];

/// The model's knob for a setting of the contract.
pub(crate) fn of(knob: node_knobs::Knob) -> Knob {
    match knob {
        node_knobs::Knob::MinFreeKbytes => Knob::MinFreeKbytes,
        node_knobs::Knob::WatermarkScaleFactor => Knob::WatermarkScaleFactor,
        node_knobs::Knob::MemcgReaper => Knob::MemcgReaper,
        node_knobs::Knob::GroupIdentity => Knob::GroupIdentity,
        node_knobs::Knob::IdleSaverWmark => Knob::IdleSaverWmark,
        node_knobs::Knob::PageCacheLimit => Knob::PageCacheLimit,
        node_knobs::Knob::SchedCore => Knob::SchedCore,
    }
}

/// The states of all settings; a setting that the kernel lacks has no value.
pub(crate) fn states(samples: &[NodeKnobSample]) -> Vec<node_knobs::State> {
    let state = |(name, knob): (node_knobs::Knob, Knob)| {
        let sample = samples.iter().find(|sample| sample.knob == knob);
        node_knobs::State {
            knob: name,
            value: sample.map(|sample| sample.value),
            baseline: sample.map(|sample| sample.baseline),
        }
    };
    NAMES.into_iter().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_of_the_node_has_its_name_in_the_contract() {
        assert_eq!(NAMES.map(|(_, knob)| knob), Knob::OF_NODE);
        assert!(NAMES.into_iter().all(|(name, knob)| of(name) == knob));
    }

    #[test]
    fn what_the_kernel_lacks_has_no_value() {
        let samples = [NodeKnobSample { knob: Knob::WatermarkScaleFactor, value: 150, baseline: 10 }];
        let states = states(&samples);
        assert_eq!(states.len(), 7);
        assert_eq!((states[1].value, states[1].baseline), (Some(150), Some(10)));
        assert_eq!((states[0].value, states[0].baseline), (None, None));
    }
}
