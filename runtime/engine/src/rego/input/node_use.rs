//! Memory and pressure of the node, and what its tiers and pods use: parts of `input.node`.

use std::collections::BTreeMap;

use qosm_model::application::ApplicationSample;
use qosm_model::column::PressureCounters;
use qosm_model::node::{Group, GroupCounters, GroupSample, NodeMemory};
use qosm_model::pod::QosClass;

use super::Id;
use crate::link::Columns;

/// Usage of the node; parts that were not measured are left out.
#[derive(serde::Serialize)]
pub(super) struct NodeUseRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<NodeMemory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pressure: Option<PressureCounters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<GroupRows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    applications: Option<BTreeMap<&'a str, ApplicationRow<'a>>>,
}

#[derive(Default, serde::Serialize)]
struct GroupRows {
    tiers: BTreeMap<String, GroupCounters>,
    pods: Pods,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<GroupCounters>,
}

/// Usage of pods by id.
#[derive(Default)]
struct Pods(Vec<(Id, GroupCounters)>);

impl serde::Serialize for Pods {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, used)| (id, used)))
    }
}

#[derive(serde::Serialize)]
struct ApplicationRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    qos: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    #[serde(flatten)]
    used: GroupCounters,
}

impl<'a> NodeUseRow<'a> {
    pub(super) fn of(columns: &'a Columns) -> Self {
        Self {
            memory: columns.node_memory,
            pressure: columns.node_pressure,
            groups: columns.groups.as_deref().map(groups),
            applications: columns.applications.as_deref().map(applications),
        }
    }
}

fn groups(samples: &[GroupSample]) -> GroupRows {
    let mut rows = GroupRows::default();
    for sample in samples {
        match sample.group {
            Group::Tier(tier) => drop(rows.tiers.insert(tier.to_string(), sample.used)),
            Group::Pod(pod) => rows.pods.0.push((Id(pod.0), sample.used)),
            Group::Outside => rows.outside = Some(sample.used),
        }
    }
    rows
}

fn applications(samples: &[ApplicationSample]) -> BTreeMap<&str, ApplicationRow<'_>> {
    samples.iter().map(|sample| (sample.application.name.as_str(), application(sample))).collect()
}

fn application(ApplicationSample { application, used }: &ApplicationSample) -> ApplicationRow<'_> {
    ApplicationRow {
        qos: application.qos.map(QosClass::as_str),
        priority: application.priority.as_deref(),
        tier: application.tier.map(|tier| tier.to_string()),
        // The contract has only these two of an application.
        used: GroupCounters { cpu_usage: used.cpu_usage, memory: used.memory, ..GroupCounters::default() },
    }
}
