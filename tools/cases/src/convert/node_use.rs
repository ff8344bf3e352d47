//! Memory and pressure of the node, and use by tiers, pods and applications.

use std::sync::Arc;

use qosm_model::application::{Application, ApplicationSample};
use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, Marks, NodeMemory};
use qosm_model::pod::{PodId, Tier};
use qosm_model::unit::{Bytes, Micros};

pub(super) fn memory(memory: qosm_sdk::NodeMemory) -> NodeMemory {
    NodeMemory {
        total: Bytes(memory.total_bytes),
        free: Bytes(memory.free_bytes),
        available: Bytes(memory.available_bytes),
        active_file: Bytes(memory.active_file_bytes),
        inactive_file: Bytes(memory.inactive_file_bytes),
        marks: Marks {
            min: memory.min_mark_bytes.map(Bytes),
            low: memory.low_mark_bytes.map(Bytes),
            high: memory.high_mark_bytes.map(Bytes),
        },
    }
}

fn stall(stall: qosm_sdk::NodeStall) -> Stall {
    Stall { some: Micros(stall.some_usec), full: Micros(stall.full_usec) }
}

pub(super) fn pressure(pressure: qosm_sdk::NodePressure) -> PressureCounters {
    PressureCounters { cpu: stall(pressure.cpu), memory: stall(pressure.memory), io: stall(pressure.io) }
}

fn group_memory(memory: qosm_sdk::GroupMemory) -> GroupMemory {
    GroupMemory {
        usage: Bytes(memory.usage_bytes),
        active_file: Bytes(memory.active_file_bytes),
        inactive_file: Bytes(memory.inactive_file_bytes),
    }
}

fn tier(tier: qosm_sdk::Tier) -> Tier {
    match tier {
        qosm_sdk::Tier::Guaranteed => Tier::Guaranteed,
        qosm_sdk::Tier::Burstable => Tier::Burstable,
        qosm_sdk::Tier::BestEffort => Tier::BestEffort,
    }
}

pub(super) fn application(used: &qosm_sdk::ApplicationUse) -> ApplicationSample {
    let application = Application {
        name: used.name.clone(),
        qos: used.qos.map(super::qos_class),
        priority: used.priority.clone(),
        tier: used.tier.map(tier),
        cgroup: used.name.clone(),
    };
    ApplicationSample {
        application: Arc::new(application),
        used: GroupCounters {
            cpu_usage: used.cpu_usage_usec.map(Micros),
            memory: used.memory.map(group_memory),
            ..GroupCounters::default()
        },
    }
}

pub(super) fn group(used: &qosm_sdk::GroupUse) -> GroupSample {
    GroupSample {
        group: match used.group {
            qosm_sdk::Group::Tier(of) => Group::Tier(tier(of)),
            qosm_sdk::Group::Pod(pod) => Group::Pod(PodId(pod)),
            qosm_sdk::Group::Outside => Group::Outside,
        },
        used: GroupCounters {
            cpu_usage: used.cpu_usage_usec.map(Micros),
            cpu_throttled: used.cpu_throttled_usec.map(Micros),
            cpu_pressure: used.cpu_pressure.map(stall),
            memory: used.memory.map(group_memory),
            max_events: used.max_events,
            oom_kills: used.oom_kills,
        },
    }
}
