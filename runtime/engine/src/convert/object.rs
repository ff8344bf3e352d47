//! Conversion of Kubernetes objects to the contract's types.

use std::collections::BTreeMap;

use qosm_model::object::PodObject;
use qosm_model::pod::{Node, NodeResource, RestartPolicy};

use crate::bindings::qosm::policy::{node_object, pod_object};

pub(crate) fn node(node: &Node) -> node_object::Object {
    let zone = |zone: &qosm_model::pod::NodeZone| node_object::Zone {
        id: zone.id,
        resources: zone.resources.iter().map(amount).collect(),
    };
    node_object::Object {
        name: node.name.clone(),
        labels: pairs(&node.labels),
        annotations: pairs(&node.annotations),
        resources: node.resources.iter().map(amount).collect(),
        zones: node.zones.iter().map(zone).collect(),
    }
}

fn amount(resource: &NodeResource) -> node_object::Amount {
    node_object::Amount { name: resource.name.clone(), capacity: resource.capacity, allocatable: resource.allocatable }
}

fn pairs(map: &BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub(crate) fn pod(row: &PodObject) -> pod_object::Object {
    let lifecycle = &row.lifecycle;
    pod_object::Object {
        pod: row.pod.0,
        annotations: pairs(&row.annotations),
        created_at_sec: lifecycle.created,
        deleting: lifecycle.deleting,
        grace_period_sec: lifecycle.grace_period,
        mirror: lifecycle.mirror,
        owner_kind: lifecycle.owner.as_ref().map(|owner| owner.kind.clone()),
        owner_name: lifecycle.owner.as_ref().map(|owner| owner.name.clone()),
        cpu_request_milli: row.cpu_request.map(|milli| milli.0),
        restart_policy: match lifecycle.restart_policy {
            RestartPolicy::Always => pod_object::RestartPolicy::Always,
            RestartPolicy::OnFailure => pod_object::RestartPolicy::OnFailure,
            RestartPolicy::Never => pod_object::RestartPolicy::Never,
        },
    }
}
