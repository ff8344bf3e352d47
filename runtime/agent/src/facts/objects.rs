//! Writes objects as manifests from which the same objects are read again.

use qosm_model::pod::{Node, NodeResource, PodLifecycle, RestartPolicy};
use serde_json::{Map, Value, json};

/// Writes a node as a manifest from which the same node is read again, except for its zones.
pub fn node_manifest(node: &Node) -> Value {
    let amounts = |amount: fn(&NodeResource) -> Option<i64>| -> Map<String, Value> {
        let text = |resource: &NodeResource| {
            let amount = amount(resource)?;
            Some(if resource.name == "cpu" { format!("{amount}m") } else { amount.to_string() })
        };
        node.resources.iter().filter_map(|own| Some((own.name.clone(), text(own)?.into()))).collect()
    };
    let mut metadata =
        Map::from_iter([("name".to_owned(), json!(node.name)), ("labels".to_owned(), json!(node.labels))]);
    if !node.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(node.annotations));
    }
    let mut status =
        Map::from_iter([("allocatable".to_owned(), Value::Object(amounts(|resource| resource.allocatable)))]);
    let capacity = amounts(|resource| resource.capacity);
    if !capacity.is_empty() {
        status.insert("capacity".to_owned(), capacity.into());
    }
    json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
}

/// Writes a node's zones as a manifest from which they are read again; `None` if the node has no zones.
pub fn topology_manifest(node: &Node) -> Option<Value> {
    let text = |name: &str, amount: i64| if name == "cpu" { format!("{amount}m") } else { amount.to_string() };
    let resource = |own: &NodeResource| {
        let mut fields = Map::from_iter([("name".to_owned(), json!(own.name))]);
        for (field, amount) in [("capacity", own.capacity), ("allocatable", own.allocatable)] {
            fields.extend(amount.map(|amount| (field.to_owned(), text(&own.name, amount).into())));
        }
        Value::Object(fields)
    };
    let zone = |zone: &qosm_model::pod::NodeZone| {
        let resources: Vec<_> = zone.resources.iter().map(resource).collect();
        json!({"name": format!("node-{}", zone.id), "type": "Node", "resources": resources})
    };
    let zones: Vec<_> = node.zones.iter().map(zone).collect();
    (!zones.is_empty()).then(|| {
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": {"name": node.name}, "zones": zones,
        })
    })
}

/// Adds the lifecycle of a pod to its manifest. Fields that are not set are left out.
pub(super) fn write_lifecycle(
    lifecycle: &PodLifecycle,
    metadata: &mut Map<String, Value>,
    spec: &mut Map<String, Value>,
) {
    let PodLifecycle { created, deleting, grace_period, mirror: _, owner, restart_policy } = lifecycle;
    let time = |seconds: i64| jiff::Timestamp::from_second(seconds).map(|at| at.to_string()).ok();
    if let Some(created) = created.and_then(time) {
        metadata.insert("creationTimestamp".to_owned(), created.into());
    }
    if *deleting {
        // The time of the deletion does not matter to policies.
        let at = created.and_then(time).or_else(|| time(0)).unwrap_or_default();
        metadata.insert("deletionTimestamp".to_owned(), at.into());
    }
    if let Some(seconds) = *grace_period {
        if *deleting {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.into());
        } else {
            spec.insert("terminationGracePeriodSeconds".to_owned(), seconds.into());
        }
    }
    if let Some(owner) = owner {
        // The API version counts only for the owner of a mirror pod.
        let api_version = if owner.kind == "Node" { "v1" } else { "" };
        metadata.insert(
            "ownerReferences".to_owned(),
            json!([{"apiVersion": api_version, "kind": owner.kind, "name": owner.name, "uid": "", "controller": true}]),
        );
    }
    if *restart_policy != RestartPolicy::Always {
        spec.insert("restartPolicy".to_owned(), restart_policy.as_str().into());
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::{NodeZone, PodOwner};
    use qosm_model::unit::MilliCpu;

    use super::*;
    use crate::facts::{manifest, read_objects};

    #[test]
    fn a_node_reads_back() {
        let resource =
            |name: &str, capacity, allocatable| NodeResource { name: name.to_owned(), capacity, allocatable };
        for resources in [
            vec![],
            vec![
                resource("cpu", Some(8_000), Some(7_910)),
                resource("kubernetes.io/batch-cpu", None, Some(0)),
                resource("memory", Some(32 << 30), None),
            ],
        ] {
            let node = Node {
                name: "edge-7".to_owned(),
                labels: [("pool".to_owned(), "batch".to_owned())].into(),
                annotations: [("a".to_owned(), "{}".to_owned())].into(),
                resources,
                zones: vec![
                    NodeZone { id: 0, resources: vec![resource("cpu", Some(4_000), Some(3_500))] },
                    NodeZone { id: 2, resources: vec![resource("memory", None, Some(7))] },
                ],
                ..Node::default()
            };
            let objects = [node_manifest(&node), topology_manifest(&node).unwrap()];
            let read = read_objects(&[], &[], &objects, "facts");
            assert!(read.problems.is_empty(), "{:?}", read.problems);
            assert_eq!(read.node, Some(node));
        }
    }

    #[test]
    fn what_a_pods_object_says_reads_back() {
        let objects = read_objects(
            &[json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}})],
            &[],
            None,
            "facts",
        );
        let owner = PodOwner { kind: "DaemonSet".to_owned(), name: "agent".to_owned() };
        let node = PodOwner { kind: "Node".to_owned(), name: "here".to_owned() };
        let usual = PodLifecycle::default();
        for (lifecycle, annotations) in [
            (usual.clone(), vec![]),
            (
                PodLifecycle {
                    created: Some(1_700_000_000),
                    deleting: true,
                    grace_period: Some(0),
                    owner: Some(owner.clone()),
                    restart_policy: RestartPolicy::OnFailure,
                    mirror: false,
                },
                vec![],
            ),
            (PodLifecycle { deleting: true, ..usual.clone() }, vec![]),
            (PodLifecycle { grace_period: Some(5), restart_policy: RestartPolicy::Never, ..usual.clone() }, vec![]),
            (
                PodLifecycle { mirror: true, owner: Some(node), ..usual },
                vec![("kubernetes.io/config.mirror", "uid"), ("kubernetes.io/config.source", "file")],
            ),
        ] {
            let mut pod = objects.pods[0].clone();
            pod.lifecycle = lifecycle;
            pod.cpu_request = Some(MilliCpu(1_500));
            pod.kube_qos = qosm_model::pod::KubeQos::Burstable;
            pod.annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            if pod.lifecycle.mirror {
                pod.uid = "uid".to_owned();
            }
            let read = read_objects(&[manifest(&pod)], &[], None, "facts");
            assert!(read.problems.is_empty(), "{:?}", read.problems);
            assert_eq!(read.pods, [pod]);
        }
    }
}
