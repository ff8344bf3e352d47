//! Memory and pressure of the node, and what its tiers and pods use: parts of `input.node`.

use std::collections::BTreeMap;

use qosm_model::application::ApplicationSample;
use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, NodeMemory};
use qosm_model::pod::QosClass;

use super::{Id, PressureRow, StallRow};
use crate::link::Columns;

/// Usage of the node; parts that were not measured are left out.
#[derive(serde::Serialize)]
pub(super) struct NodeUseRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure: Option<PressureRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<GroupRows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applications: Option<BTreeMap<String, ApplicationRow>>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MemoryRow {
    total_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    active_file_bytes: u64,
    inactive_file_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_mark_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    low_mark_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high_mark_bytes: Option<u64>,
}

#[derive(Default, serde::Serialize)]
struct GroupRows {
    tiers: BTreeMap<String, GroupRow>,
    pods: Pods,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<GroupRow>,
}

/// Usage of pods by id.
#[derive(Default)]
struct Pods(Vec<(Id, GroupRow)>);

impl serde::Serialize for Pods {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, row)| (id, row)))
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_usage_usec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_throttled_usec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_pressure: Option<StallRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<GroupMemoryRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oom_kills: Option<u64>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupMemoryRow {
    usage_bytes: u64,
    active_file_bytes: u64,
    inactive_file_bytes: u64,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplicationRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    qos: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_usage_usec: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<GroupMemoryRow>,
}

impl NodeUseRow {
    pub(super) fn of(columns: &Columns) -> Self {
        Self {
            memory: columns.node_memory.as_ref().map(memory),
            pressure: columns.node_pressure.map(pressure),
            groups: columns.groups.as_deref().map(groups),
            applications: columns.applications.as_deref().map(applications),
        }
    }
}

fn memory(memory: &NodeMemory) -> MemoryRow {
    MemoryRow {
        total_bytes: memory.total.0,
        free_bytes: memory.free.0,
        available_bytes: memory.available.0,
        active_file_bytes: memory.active_file.0,
        inactive_file_bytes: memory.inactive_file.0,
        min_mark_bytes: memory.marks.min.map(|bytes| bytes.0),
        low_mark_bytes: memory.marks.low.map(|bytes| bytes.0),
        high_mark_bytes: memory.marks.high.map(|bytes| bytes.0),
    }
}

fn stall(stall: Stall) -> StallRow {
    StallRow { some_usec: stall.some.0, full_usec: stall.full.0 }
}

fn pressure(delta: PressureCounters) -> PressureRow {
    PressureRow { cpu: stall(delta.cpu), memory: stall(delta.memory), io: stall(delta.io) }
}

fn groups(samples: &[GroupSample]) -> GroupRows {
    let mut rows = GroupRows::default();
    for sample in samples {
        let row = group(sample.used);
        match sample.group {
            Group::Tier(tier) => drop(rows.tiers.insert(tier.to_string(), row)),
            Group::Pod(pod) => rows.pods.0.push((Id(pod.0), row)),
            Group::Outside => rows.outside = Some(row),
        }
    }
    rows
}

fn applications(samples: &[ApplicationSample]) -> BTreeMap<String, ApplicationRow> {
    let row = |ApplicationSample { application, used }: &ApplicationSample| {
        let row = ApplicationRow {
            qos: application.qos.map(QosClass::as_str),
            priority: application.priority.clone(),
            tier: application.tier.map(|tier| tier.to_string()),
            cpu_usage_usec: used.cpu_usage.map(|micros| micros.0),
            memory: used.memory.map(group_memory),
        };
        (application.name.clone(), row)
    };
    samples.iter().map(row).collect()
}

fn group_memory(memory: GroupMemory) -> GroupMemoryRow {
    GroupMemoryRow {
        usage_bytes: memory.usage.0,
        active_file_bytes: memory.active_file.0,
        inactive_file_bytes: memory.inactive_file.0,
    }
}

fn group(used: GroupCounters) -> GroupRow {
    GroupRow {
        cpu_usage_usec: used.cpu_usage.map(|micros| micros.0),
        cpu_throttled_usec: used.cpu_throttled.map(|micros| micros.0),
        cpu_pressure: used.cpu_pressure.map(stall),
        memory: used.memory.map(group_memory),
        max_events: used.max_events,
        oom_kills: used.oom_kills,
    }
}
