//! An agent's requests to the controller in its report, and the controller's answers.
//!
//! An agent may write only its own report, neither the Node's status nor an eviction. So it publishes resources and evicts pods
//! through the controller, which checks each request before it acts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of resources in a report.
pub const MAX_RESOURCES: usize = 32;
/// Maximum number of NUMA nodes of one resource.
pub const MAX_ZONES: usize = 64;
/// Maximum number of evictions in a report. An agent keeps the rest until there is room.
pub const MAX_EVICTIONS: usize = 64;

/// An extended resource that the node's Node is to have, in capacity and allocatable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedResource {
    /// The resource's name, such as `kubernetes.io/batch-cpu`.
    #[schemars(length(max = 317))]
    pub name: String,
    /// The amount, in the resource's own unit: thousandths of a CPU for `batch-cpu`, bytes for `batch-memory`.
    pub amount: u64,
    /// The share of each NUMA node, for its zone in the NodeResourceTopology.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub zones: Vec<ReportedZone>,
    /// The amount before what other schedulers have given away of it was subtracted; none if nothing was. For the
    /// Node's annotation `node.koordinator.sh/originExtendedAllocatable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<u64>,
    /// The policy that publishes it.
    pub policy: String,
    /// The policy's reason.
    pub reason: String,
}

/// A NUMA node's share of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedZone {
    /// The NUMA node.
    pub zone: u32,
    /// Its share, in the resource's unit.
    pub amount: u64,
}

/// A pod of this node that is to be evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedEviction {
    /// The pod's UID: a pod of the same name that came later is another one.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The policy that asks for it.
    pub policy: String,
    /// How long it can wait.
    pub urgency: Urgency,
    /// Seconds between SIGTERM and SIGKILL; none leaves the pod's own `terminationGracePeriodSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// The reason as one word, such as `MemoryUsage`.
    pub reason: String,
    /// The reason as a sentence: what was exceeded by how much, and why it is this pod.
    pub message: String,
    /// When the agent wrote the request, by its node's clock. Not for freshness: the clock may be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,
}

/// How long an eviction can wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// Tried until the controller has evicted the pod, or refuses for good.
    #[default]
    Soon,
    /// The node ends the pod itself if the controller does not answer in time.
    Now,
}

/// What the controller has made of a report. The controller alone writes it; what an agent writes leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerAnswer {
    /// When it was written, by the controller's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Of each resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub resources: Vec<ResourceAnswer>,
    /// Of each eviction that the report asks for. An eviction that left the report leaves here too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub evictions: Vec<EvictionAnswer>,
}

/// What became of a published resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceAnswer {
    /// The resource.
    pub name: String,
    /// The amount that stands on the Node.
    pub amount: u64,
    /// Whether that is the amount the report asks for.
    pub in_force: bool,
    /// Why not, and what to do; empty when in force.
    pub message: String,
}

/// What became of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionAnswer {
    /// The pod's UID.
    pub uid: String,
    /// What became of it.
    pub outcome: EvictionOutcome,
    /// Why: what the API server or a budget says.
    #[serde(default)]
    pub message: String,
    /// When the outcome was reached, by the controller's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Time>,
}

/// What became of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvictionOutcome {
    /// The API server accepted it: the pod terminates.
    Accepted,
    /// One of the controller's own budgets is spent. The controller evicts the pod when there is room, while the report asks.
    Pending,
    /// A PodDisruptionBudget or a rule forbids it. The controller tries again with back-off where time can change that, while the
    /// report asks.
    Refused,
    /// There is no such pod any more.
    Gone,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{NodePolicyReport, NodePolicyReportStatus};
    use super::*;
    use kube::CustomResourceExt as _;

    #[test]
    fn requests_and_answers_are_spelled_as_the_schema_spells_them() {
        let written = json!({
            "resources": [{
                "name": "kubernetes.io/batch-cpu", "amount": 12_000, "origin": 14_000,
                "zones": [{"zone": 0, "amount": 7_000}, {"zone": 1, "amount": 5_000}],
                "policy": "reclaimed-resources", "reason": "usage",
            }],
            "resourcesStaleAfterSeconds": 900,
            "evictions": [{
                "uid": "u1", "namespace": "batch", "name": "job-0", "policy": "eviction", "urgency": "now",
                "gracePeriodSeconds": 5, "reason": "MemoryUsage", "message": "94.2 % of memory is used",
                "requestedAt": "2026-11-23T17:00:00Z",
            }],
            "controller": {
                "at": "2026-11-23T17:00:02Z",
                "resources": [{"name": "kubernetes.io/batch-cpu", "amount": 12_000, "inForce": true, "message": ""}],
                "evictions": [{"uid": "u1", "outcome": "refused", "message": "a PDB", "at": "2026-11-23T17:00:01Z"}],
            },
        });
        let read: NodePolicyReportStatus = serde_json::from_value(written.clone()).unwrap();
        let again = serde_json::to_value(&read).unwrap();
        let schema = serde_json::to_value(NodePolicyReport::crd()).unwrap();
        let status =
            schema.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties").unwrap().clone();
        for field in ["resources", "resourcesStaleAfterSeconds", "evictions", "controller"] {
            assert_eq!(again[field], written[field], "{field}");
            assert!(status.get(field).is_some(), "the API server would drop {field}");
        }
        assert_eq!(read.controller.unwrap().evictions[0].outcome, EvictionOutcome::Refused);
        assert_eq!(status.pointer("/evictions/maxItems"), Some(&json!(MAX_EVICTIONS)));
        assert_eq!(status.pointer("/resources/maxItems"), Some(&json!(MAX_RESOURCES)));
        assert_eq!(status.pointer("/resources/items/properties/zones/maxItems"), Some(&json!(MAX_ZONES)));
    }

    #[test]
    fn a_report_without_requests_writes_none_of_these_fields() {
        let status = serde_json::to_value(NodePolicyReportStatus::default()).unwrap();
        for field in ["resources", "resourcesStaleAfterSeconds", "evictions", "controller"] {
            assert_eq!(status.get(field), None, "{field}");
        }
    }
}
