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
    ReportedResource, ReportedZone, ResourceAnswer, Urgency,
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
    doc = "What the qosm agent of one node does: which modules it runs, how they fare, what the node offers.",
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

/// What the agent does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePolicyReportStatus {
    /// When the agent wrote it, by its node's clock. Half an hour apart where nothing changes; a report older than an
    /// hour means that the agent is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Time>,
    /// The agent's version.
    pub agent_version: String,
    /// How many policies run, of how many: `3/3`.
    pub summary: String,
    /// The policies.
    pub policies: Vec<ReportedPolicy>,
    /// How much of what there is. Brought up to date every few minutes where nothing else changes.
    pub counts: ReportedCounts,
    /// What the node offers.
    pub capabilities: ReportedCapabilities,
    /// What is wrong with what was written, without what is wrong with single pods: these have events.
    pub problems: Vec<ReportedProblem>,
    /// `Ready`: every policy that counts runs, and nothing is waited for. `ClockAgrees`: the node's clock is that of the API server.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// Extended resources that policies publish on the Node. The controller puts them there, and takes them away when
    /// they are no longer here, or the report is older than `resourcesStaleAfterSeconds`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub resources: Vec<ReportedResource>,
    /// The age of the report, in seconds by the API server's clock, at which its resources no longer hold. 900 where
    /// none is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_stale_after_seconds: Option<u32>,
    /// Pods that policies want evicted. One leaves the list when it is gone or no longer to be evicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub evictions: Vec<ReportedEviction>,
    /// CPUs and memory of the node; none unless a policy runs that sees CPUs (grant `cpu-topology`).
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
    /// Its name: the PolicyModule's, if it comes from one.
    pub name: String,
    /// The generation of the PolicyModule that runs here; none for policies of the agent's own file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// The module as the specification names it.
    pub module: String,
    /// Name and version that the module gives itself.
    pub version: String,
    /// `sha256:…` of the module; empty if it could not be loaded.
    pub digest: String,
    /// For a module from a registry: the digest of its manifest, which references are pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// For a module from a registry: why it is believed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<String>,
    /// `enforce` or `shadow`.
    pub mode: String,
    /// `running`, `backing-off`, `parked`, `not-loaded`, `fetching`; `ended` with the agent.
    pub state: String,
    /// What is wrong: why it does not run, or why a newer generation was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The generation that was not taken, where `error` speaks of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused_generation: Option<i64>,
}

/// How much of what there is.
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
    /// Held knobs that another program wrote and that are not written for now.
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
    /// How many NUMA nodes there are.
    pub numa_nodes: u32,
    /// Knobs: `native`, `emulated`, or why there is none.
    pub knobs: BTreeMap<String, String>,
}

/// Configuration that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedProblem {
    /// `ConfigMap kube-system/ack-slo-config`.
    pub object: String,
    /// The field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong, what is done instead, what to write.
    pub message: String,
}
