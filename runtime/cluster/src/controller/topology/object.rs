//! The content of a node's NodeResourceTopology, and the patch that brings an existing one up to date.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::Wanted;
use crate::topology::GROUP;

/// Marks the objects that the controller made.
pub(super) const LABEL: &str = "qosm.io/node-topology";
/// Label by which Koordinator's own programs find these objects.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub(super) const CPU_TOPOLOGY: &str = "node.koordinator.sh/cpu-topology";
pub(super) const CPU_MANAGER: &str = "kubelet.koordinator.sh/cpu-manager-policy";
pub(super) const CPU_ALLOCS: &str = "node.koordinator.sh/pod-cpu-allocs";
/// Annotations of a Node that koordlet copies into this object, where Koordinator's scheduler reads them.
pub(super) const OF_NODE: [&str; 2] = ["node.koordinator.sh/reservation", "node.koordinator.sh/system-qos-resource"];
/// Only koordlet writes this annotation: an object that has it belongs to koordlet, whoever created it.
const SHARED_POOLS: &str = "node.koordinator.sh/cpu-shared-pools";
/// Resources that the controller writes into a zone; others stay.
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// Koordinator's scheduler tries all combinations of zones: with more than this, it would not finish.
const MAX_ZONES: usize = 16;

/// Whether an object belongs to the controller. A koordlet that starts on the node takes it over.
pub(super) fn is_own(there: &DynamicObject) -> bool {
    there.labels().contains_key(LABEL) && !there.annotations().contains_key(SHARED_POOLS)
}

/// Builds the object of a node.
///
/// # Errors
///
/// What is inconsistent in the report.
pub(super) fn object(node: &str, wanted: &Wanted) -> Result<Value, String> {
    let topology = &wanted.topology;
    let cpus = topology.cpus()?;
    let detail: Vec<Value> = (cpus.iter())
        .map(|cpu| json!({"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa_node}))
        .collect();
    let mut manager = json!({"policy": topology.cpu_manager, "reservedCPUs": topology.reserved});
    if topology.cpu_manager == "unknown" {
        manager["policy"] = json!("");
    }
    let allocs: Vec<Value> = (topology.exclusive.iter())
        .map(|pod| {
            json!({"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "cpuset": pod.cpus, "managedByKubelet": true})
        })
        .collect();
    // A pod cannot be bound to a NUMA node without CPUs.
    let with_cpus = topology.numa_nodes.iter().filter(|numa| !numa.cores.is_empty());
    let zones: Vec<Value> = with_cpus
        .map(|numa| {
            let count = cpus.iter().filter(|cpu| cpu.numa_node == numa.id).count();
            let [cpu, memory] = RESOURCES;
            let amounts = [amount(cpu, &count.to_string()), amount(memory, &numa.memory_bytes.to_string())];
            json!({"name": format!("node-{}", numa.id), "type": "Node", "resources": amounts})
        })
        .collect();
    if zones.len() > MAX_ZONES {
        return Err(format!(
            "{} NUMA nodes have CPUs, and at most {MAX_ZONES} are published for schedulers",
            zones.len()
        ));
    }
    let mut annotations = json!({
        CPU_TOPOLOGY: json!({"detail": detail}).to_string(),
        CPU_MANAGER: manager.to_string(),
        CPU_ALLOCS: Value::from(allocs).to_string(),
    });
    for (key, value) in &wanted.of_node {
        annotations[key] = value.as_str().into();
    }
    Ok(json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "labels": {LABEL: "", MANAGED_BY: "Koordinator"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": wanted.uid}],
            "annotations": annotations,
        },
        "topologyPolicies": ["None"],
        "zones": zones,
    }))
}

pub(super) fn amount(name: &str, amount: &str) -> Value {
    json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount})
}

/// The patch that brings an existing object up to date; `None` if nothing changes. Resources with other names stay in their zones.
pub(super) fn change(there: &DynamicObject, made: &Value) -> Option<Value> {
    let before = there.data.get("zones").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut zones = made["zones"].as_array().cloned().unwrap_or_default();
    for zone in &mut zones {
        let Some(old) = before.iter().find(|old| old["name"] == zone["name"]) else { continue };
        let is_others = |resource: &&Value| !RESOURCES.iter().any(|name| resource["name"] == *name);
        let others = old["resources"].as_array().into_iter().flatten().filter(is_others).cloned();
        if let Some(resources) = zone["resources"].as_array_mut() {
            resources.extend(others);
        }
    }
    let metadata = &made["metadata"];
    let has = |there: &BTreeMap<String, String>, wanted: &Value| {
        wanted
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| there.get(key).map(String::as_str) == value.as_str())
    };
    let mut annotations = metadata["annotations"].clone();
    let is_left = |key: &&str| there.annotations().contains_key(*key) && metadata["annotations"].get(key).is_none();
    let left: Vec<&str> = OF_NODE.into_iter().filter(is_left).collect();
    left.iter().for_each(|key| annotations[*key] = Value::Null);
    let owners = serde_json::to_value(there.owner_references()).unwrap_or_default();
    if left.is_empty()
        && same_zones(&before, &zones)
        && has(there.annotations(), &metadata["annotations"])
        && has(there.labels(), &metadata["labels"])
        && owners == metadata["ownerReferences"]
    {
        return None;
    }
    Some(json!({
        "metadata": {
            "resourceVersion": there.resource_version(), "labels": metadata["labels"], "annotations": annotations,
            "ownerReferences": metadata["ownerReferences"],
        },
        "zones": zones,
    }))
}

/// Whether zones are equal regardless of the order of their resources.
fn same_zones(one: &[Value], other: &[Value]) -> bool {
    let sorted = |zones: &[Value]| {
        let mut zones = zones.to_vec();
        for zone in &mut zones {
            if let Some(resources) = zone["resources"].as_array_mut() {
                resources.sort_by_key(|resource| resource["name"].to_string());
            }
        }
        zones
    };
    sorted(one) == sorted(other)
}
