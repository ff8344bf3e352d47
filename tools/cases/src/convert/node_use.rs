//! Memory and pressure of the node, and use by tiers, pods and applications.

use std::sync::Arc;

use qosm_model::application::{Application, ApplicationSample};
use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::{Group, GroupCounters, GroupSample, NodeMemory};
use qosm_model::pod::{PodId, Tier};
use qosm_model::unit::Micros;
use qosm_sdk::testing::{GroupMemoryRow, GroupRow, NodeMemoryRow};

use super::same_fields;

pub(super) fn memory(memory: qosm_sdk::NodeMemory) -> serde_json::Result<NodeMemory> {
    same_fields(NodeMemoryRow::from(memory))
}

fn stall(stall: qosm_sdk::NodeStall) -> Stall {
    Stall { some: Micros(stall.some_usec), full: Micros(stall.full_usec) }
}

pub(super) fn pressure(pressure: qosm_sdk::NodePressure) -> PressureCounters {
    PressureCounters { cpu: stall(pressure.cpu), memory: stall(pressure.memory), io: stall(pressure.io) }
}

fn tier(tier: qosm_sdk::Tier) -> Tier {
    match tier {
        qosm_sdk::Tier::Guaranteed => Tier::Guaranteed,
        qosm_sdk::Tier::Burstable => Tier::Burstable,
        qosm_sdk::Tier::BestEffort => Tier::BestEffort,
    }
}

pub(super) fn application(used: &qosm_sdk::ApplicationUse) -> serde_json::Result<ApplicationSample> {
    let application = Application {
        name: used.name.clone(),
        qos: used.qos.map(super::qos_class),
        priority: used.priority.clone(),
        tier: used.tier.map(tier),
        cgroup: used.name.clone(),
    };
    Ok(ApplicationSample {
        application: Arc::new(application),
        used: GroupCounters {
            cpu_usage: used.cpu_usage_usec.map(Micros),
            memory: used.memory.map(|memory| same_fields(GroupMemoryRow::from(memory))).transpose()?,
            ..GroupCounters::default()
        },
    })
}

pub(super) fn group(used: &qosm_sdk::GroupUse) -> serde_json::Result<GroupSample> {
    Ok(GroupSample {
        group: match used.group {
            qosm_sdk::Group::Tier(of) => Group::Tier(tier(of)),
            qosm_sdk::Group::Pod(pod) => Group::Pod(PodId(pod)),
            qosm_sdk::Group::Outside => Group::Outside,
        },
        used: same_fields(GroupRow::from(*used))?,
    })
}
