//! `NodePolicyReport`: what the agent of one node does. Cluster-scoped, and named like the node. Its agent writes it; the
//! controller writes only its answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

pub use self::colocation::{
    ControllerAnswer, EvictionAnswer, EvictionOutcome, MAX_EVICTIONS, MAX_RESOURCES, MAX_ZONES, ReportedEviction,
    ReportedResource, ReportedZone, ResourceAnswer, STALE_AFTER_SECONDS, Urgency,
};
pub use self::topology::{MAX_EXCLUSIVE, ReportedCores, ReportedExclusiveCpus, ReportedNumaNode, ReportedTopology};
use crate::policy_module::conditions;

mod colocation;
mod topology;

/// Interval at which an unchanged report is written again: this restores a deleted report, and an older report
/// shows that its agent is gone.
pub const REFRESH_INTERVAL: Duration = Duration::from_secs(1800);
/// Reason of the condition `Ready` of an agent that has ended.
pub const ENDED: &str = "Ended";

/// The node's name.
#[derive(Clone, Debug, PartialEq, Eq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "qosm.io",
    version = "v1alpha1",
    kind = "NodePolicyReport",
    shortname = "npr",
    category = "qosm",
    status = "NodePolicyReportStatus",
    derive = "PartialEq",
    doc = "State of the qosm agent of one node: its modules and their health, and what the node offers.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Policies","type":"string","jsonPath":".status.summary"}"#,
    printcolumn = r#"{"name":"Pods","type":"integer","jsonPath":".status.counts.managedPods"}"#,
    printcolumn = r#"{"name":"Knobs","type":"integer","jsonPath":".status.counts.knobs"}"#,
    printcolumn = r#"{"name":"Refused","type":"integer","jsonPath":".status.counts.refusals"}"#,
    printcolumn = r#"{"name":"Agent","type":"string","jsonPath":".status.agentVersion"}"#,
    printcolumn = r#"{"name":"Reported","type":"date","jsonPath":".status.reportedAt"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodePolicyReportSpec {
    /// The node.
    pub node: String,
}

/// State of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePolicyReportStatus {
    /// When the agent wrote the report, by its node's clock. An unchanged report is written again every half hour; a report older
    /// than an hour means that the agent is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Time>,
    /// The agent's version.
    pub agent_version: String,
    /// Number of running policies, and of all: `3/3`.
    pub summary: String,
    /// The policies.
    pub policies: Vec<ReportedPolicy>,
    /// Numbers of pods, knobs and problems. Updated every few minutes if nothing else changes.
    pub counts: ReportedCounts,
    /// What the node offers.
    pub capabilities: ReportedCapabilities,
    /// Problems of the configuration. Problems of single pods are reported as events instead.
    pub problems: Vec<ReportedProblem>,
    /// `Ready`: every active policy runs, and the agent waits for nothing. `ClockAgrees`: the node's clock agrees with that of the
    /// API server.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// Extended resources that policies publish on the Node. The controller writes them to the Node, and removes them when they
    /// leave this list or the report is older than `resourcesStaleAfterSeconds`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub resources: Vec<ReportedResource>,
    /// Age of the report, in seconds by the API server's clock, from which its resources are no longer valid. Default: 900.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_stale_after_seconds: Option<u32>,
    /// Pods that policies want to evict. A pod leaves the list when it is gone or no longer to be evicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub evictions: Vec<ReportedEviction>,
    /// CPUs and memory of the node. Absent unless a policy with the grant `cpu-topology` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<ReportedTopology>,
    /// The controller's answer, which an agent reads and never writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAnswer>,
}

/// One policy on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedPolicy {
    /// Name of the policy: that of its PolicyModule, if it has one.
    pub name: String,
    /// The generation of the PolicyModule that runs here; absent for policies of the agent's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The module as the specification names it.
    pub module: String,
    /// Name and version that the module gives itself.
    pub version: String,
    /// `sha256:…` of the module; empty if it could not be loaded.
    pub digest: String,
    /// For a module from a registry: the digest of its manifest, for use in pinned references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// For a module from a registry: why it is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<String>,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// `running`, `backing-off`, `parked`, `not-loaded`, `fetching`; `ended` with the agent.
    pub state: String,
    /// Why the policy does not run, or why a newer generation was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation that was not taken, if `error` is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_generation: Option<i64>,
}

/// Numbers of pods, knobs and problems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedCounts {
    /// Pods of the node.
    pub pods: u32,
    /// Pods with held knobs.
    pub managed_pods: u32,
    /// Held knobs.
    pub knobs: u32,
    /// Settings that are not in force because the kernel or a rule refuses them.
    pub refusals: u32,
    /// Held knobs that another program changed and that the agent does not write for now.
    pub drifted: u32,
    /// Annotations, ConfigMaps and modules with a problem.
    pub problems: u32,
}

/// What a node offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedCapabilities {
    /// The hierarchy of the CPU controller: `v1` or `v2`.
    pub cgroup: String,
    /// Number of NUMA nodes.
    pub numa_nodes: u32,
    /// State of each knob: `native`, `emulated`, or why it is missing.
    pub knobs: BTreeMap<String, String>,
}

/// Configuration that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedProblem {
    /// The object, such as `ConfigMap kube-system/ack-slo-config`.
    pub object: String,
    /// The field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong, what the agent does instead, and what to write.
    pub message: String,
}
