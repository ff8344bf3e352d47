//! Conversion of the usage of the node, its tiers and its pods to the contract's types.

use qosm_model::application::ApplicationSample;
use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::{Group, GroupMemory, GroupSample, NodeMemory};
use qosm_model::unit::{Bytes, Micros};

use crate::bindings::qosm::policy::node;

pub(crate) fn memory(memory: &NodeMemory) -> node::Memory {
    let bytes = |bytes: Bytes| bytes.0;
    node::Memory {
        total_bytes: memory.total.map_or(0, bytes),
        free_bytes: bytes(memory.free),
        available_bytes: bytes(memory.available),
        active_file_bytes: bytes(memory.active_file),
        inactive_file_bytes: bytes(memory.inactive_file),
        min_mark_bytes: memory.min_mark.map(bytes),
        low_mark_bytes: memory.low_mark.map(bytes),
        high_mark_bytes: memory.high_mark.map(bytes),
    }
}

pub(crate) fn pressure(delta: PressureCounters) -> node::NodePressure {
    node::NodePressure { cpu: stall(delta.cpu), memory: stall(delta.memory), io: stall(delta.io) }
}

fn stall(stall: Stall) -> node::Stall {
    node::Stall { some_usec: stall.some.0, full_usec: stall.full.0 }
}

fn group_memory(memory: GroupMemory) -> node::GroupMemory {
    node::GroupMemory {
        usage_bytes: memory.usage.0,
        active_file_bytes: memory.active_file.0,
        inactive_file_bytes: memory.inactive_file.0,
    }
}

pub(crate) fn application(sample: &ApplicationSample) -> node::ApplicationUse {
    let ApplicationSample { application, used } = sample;
    node::ApplicationUse {
        name: application.name.clone(),
        qos: application.qos.map(super::qos_class),
        priority: application.priority.clone(),
        tier: application.tier.map(super::tier),
        cpu_usage_usec: used.cpu_usage.map(|micros| micros.0),
        memory: used.memory.map(group_memory),
    }
}

pub(crate) fn group(sample: &GroupSample) -> node::GroupUse {
    let used = sample.used;
    let micros = |micros: Micros| micros.0;
    node::GroupUse {
        group: match sample.group {
            Group::Tier(tier) => node::Group::Tier(super::tier(tier)),
            Group::Pod(pod) => node::Group::Pod(pod.0),
            Group::Outside => node::Group::Outside,
        },
        cpu_usage_usec: used.cpu_usage.map(micros),
        memory: used.memory.map(group_memory),
        cpu_throttled_usec: used.cpu_throttled.map(micros),
        cpu_pressure: used.cpu_pressure.map(stall),
        max_events: used.max_events,
        oom_kills: used.oom_kills,
    }
}
