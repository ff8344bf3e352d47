//! Kubernetes objects, and the keys of the cluster ConfigMap.

use std::collections::BTreeMap;

use qosm_model::layering::ClusterConfig;
use qosm_model::object::PodObject;
use qosm_model::pod::{Node, NodeResource};
use serde::ser::{Serialize, Serializer};
use serde_json::error::Result;

use super::Id;

#[derive(serde::Serialize)]
pub(super) struct NodeObjectRow<'a> {
    name: &'a str,
    labels: &'a BTreeMap<String, String>,
    annotations: &'a BTreeMap<String, String>,
    resources: Resources<'a>,
    zones: Vec<ZoneRow<'a>>,
}

#[derive(serde::Serialize)]
struct ZoneRow<'a> {
    id: u32,
    resources: Resources<'a>,
}

/// Amounts by the name of the resource.
struct Resources<'a>(&'a [NodeResource]);

#[derive(serde::Serialize)]
struct AmountRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocatable: Option<i64>,
}

impl Serialize for Resources<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let row = |own: &NodeResource| AmountRow { capacity: own.capacity, allocatable: own.allocatable };
        serializer.collect_map(self.0.iter().map(|own| (&own.name, row(own))))
    }
}

pub(super) fn node(node: &Node) -> NodeObjectRow<'_> {
    NodeObjectRow {
        name: &node.name,
        labels: &node.labels,
        annotations: &node.annotations,
        resources: Resources(&node.resources),
        zones: node.zones.iter().map(|zone| ZoneRow { id: zone.id, resources: Resources(&zone.resources) }).collect(),
    }
}

/// The column of Pod objects, by pod.
pub(super) struct PodObjects<'a>(pub(super) &'a [PodObject]);

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct PodObjectRow<'a> {
    annotations: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at_sec: Option<i64>,
    deleting: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_sec: Option<u32>,
    mirror: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_request_milli: Option<u64>,
    restart_policy: &'static str,
}

impl Serialize for PodObjects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|own| (Id(own.pod.0), pod(own))))
    }
}

fn pod(own: &PodObject) -> PodObjectRow<'_> {
    let lifecycle = &own.lifecycle;
    PodObjectRow {
        annotations: &own.annotations,
        created_at_sec: lifecycle.created,
        deleting: lifecycle.deleting,
        grace_period_sec: lifecycle.grace_period,
        mirror: lifecycle.mirror,
        owner_kind: lifecycle.owner.as_ref().map(|owner| owner.kind.as_str()),
        owner_name: lifecycle.owner.as_ref().map(|owner| owner.name.as_str()),
        cpu_request_milli: own.cpu_request.map(|milli| milli.0),
        restart_policy: lifecycle.restart_policy.as_str(),
    }
}

/// Writes all keys with their values. The texts are spliced in unparsed, so that their numbers do not change.
pub(super) fn config(text: &mut String, config: Option<&ClusterConfig>) -> Result<()> {
    text.push('{');
    for (index, (name, key)) in config.iter().flat_map(|config| config.iter()).enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&serde_json::to_string(name)?);
        text.push_str(":{\"value\":");
        text.push_str(&key.text);
        text.push_str(",\"strategy\":");
        text.push_str(&key.strategy);
        text.push('}');
    }
    text.push('}');
    Ok(())
}
