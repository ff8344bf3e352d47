//! An agent's requests to the controller in its report, and the controller's answers.
//!
//! An agent may write only its own report, neither the Node's status nor an eviction. So it publishes resources and evicts pods
//! through the controller, which checks each request before it acts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of resources in a report.
pub const MAX_RESOURCES: usize = 32;
/// Age in seconds at which published resources become stale if no policy sets it.
pub const STALE_AFTER_SECONDS: u32 = 900;
/// Maximum number of NUMA nodes of one resource.
pub const MAX_ZONES: usize = 64;
/// Maximum number of evictions in a report. An agent keeps the rest until there is room.
pub const MAX_EVICTIONS: usize = 64;

/// An extended resource to publish on the Node, in its capacity and allocatable.
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
    /// The amount before subtraction of what other schedulers have allocated; absent if nothing was subtracted. For the Node's
    /// annotation `node.koordinator.sh/originExtendedAllocatable`.
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
    /// The pod's UID. It excludes a later pod of the same name.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The policy that requests the eviction.
    pub policy: String,
    /// How long the eviction can wait.
    pub urgency: Urgency,
    /// Seconds between SIGTERM and SIGKILL. Default: the pod's own `terminationGracePeriodSeconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// The reason as one word, such as `MemoryUsage`.
    pub reason: String,
    /// The reason as a sentence: what was exceeded by how much, and why it is this pod.
    pub message: String,
    /// When the agent wrote the request, by its node's clock. Does not show the age of the request: the clock may be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Time>,
}

/// How long an eviction can wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    /// The request stays until the controller has evicted the pod, or refuses for good.
    #[default]
    Soon,
    /// The node ends the pod itself if the controller does not answer in time.
    Now,
}

/// The controller's answer to a report. Only the controller writes it; the agent's writes leave it unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerAnswer {
    /// When the answer was written, by the controller's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Answers for the resources in the report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub resources: Vec<ResourceAnswer>,
    /// Answers for the evictions in the report. An eviction that leaves the report leaves this list, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub evictions: Vec<EvictionAnswer>,
}

/// Outcome for a published resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceAnswer {
    /// The resource.
    pub name: String,
    /// The amount on the Node.
    pub amount: u64,
    /// Whether this is the amount that the report requests.
    pub in_force: bool,
    /// Why the amount is not in force, and what to do; empty if it is in force.
    pub message: String,
}

/// Outcome of an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionAnswer {
    /// The pod's UID.
    pub uid: String,
    /// The outcome.
    pub outcome: EvictionOutcome,
    /// Reason of the outcome, from the API server or a budget.
    #[serde(default)]
    pub message: String,
    /// When the outcome was reached, by the controller's clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Time>,
}

/// Outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EvictionOutcome {
    /// The API server accepted it: the pod terminates.
    Accepted,
    /// One of the controller's own budgets is spent. The controller evicts the pod when the budget allows it, as long as the report
    /// requests it.
    Pending,
    /// A PodDisruptionBudget or a rule forbids it. If time can change that, the controller tries again with back-off, as long as
    /// the report requests it.
    Refused,
    /// The pod no longer exists.
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
