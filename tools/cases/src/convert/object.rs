//! Kubernetes objects and the cluster ConfigMap.

use std::collections::BTreeMap;

use qosm_model::layering::{ClusterConfig, ConfigKey};
use qosm_model::object::PodObject;
use qosm_model::pod::{Node, NodeResource, NodeZone, PodId, PodLifecycle, PodOwner, RestartPolicy};
use qosm_model::unit::MilliCpu;
use qosm_sdk::mock;

pub(super) fn node(facts: &qosm_sdk::NodeObjectFacts) -> Node {
    let zone =
        |zone: &qosm_sdk::NodeZone| NodeZone { id: zone.id, resources: zone.resources.iter().map(resource).collect() };
    Node {
        name: facts.name.clone(),
        labels: facts.labels.iter().cloned().collect(),
        memory_allocatable: None,
        annotations: facts.annotations.iter().cloned().collect(),
        resources: facts.resources.iter().map(resource).collect(),
        zones: facts.zones.iter().map(zone).collect(),
    }
}

fn resource(amount: &qosm_sdk::NodeAmount) -> NodeResource {
    NodeResource { name: amount.name.clone(), capacity: amount.capacity, allocatable: amount.allocatable }
}

pub(super) fn pod(facts: &qosm_sdk::PodObjectFacts) -> PodObject {
    // An owner in a case has both kind and name.
    let owner = facts.owner_kind.as_ref().zip(facts.owner_name.as_ref());
    PodObject {
        pod: PodId(facts.pod),
        annotations: facts.annotations.iter().cloned().collect(),
        cpu_request: facts.cpu_request_milli.map(MilliCpu),
        lifecycle: PodLifecycle {
            created: facts.created_at_sec,
            deleting: facts.deleting,
            grace_period: facts.grace_period_sec,
            mirror: facts.mirror,
            owner: owner.map(|(kind, name)| PodOwner { kind: kind.clone(), name: name.clone() }),
            restart_policy: match facts.restart_policy {
                qosm_sdk::RestartPolicy::Always => RestartPolicy::Always,
                qosm_sdk::RestartPolicy::OnFailure => RestartPolicy::OnFailure,
                qosm_sdk::RestartPolicy::Never => RestartPolicy::Never,
            },
        },
    }
}

pub(super) fn config(keys: &BTreeMap<String, mock::ConfigKey>) -> ClusterConfig {
    let key = |key: &mock::ConfigKey| ConfigKey { text: key.text.clone(), strategy: key.strategy.clone() };
    keys.iter().map(|(name, own)| (name.clone(), key(own))).collect()
}
