//! Kubernetes objects and the cluster ConfigMap in case files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::mock::{self, ConfigKey};
use crate::{NodeAmount, NodeObjectFacts, NodeZone, PodId, PodObjectFacts, RestartPolicy};

/// The Node object in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a labelled node with batch resources
///     ticks:
///       - nodeObject:
///           name: edge-7
///           labels: {pool: batch}
///           resources: {cpu: {capacity: 8000, allocatable: 7900}, kubernetes.io/batch-cpu: {allocatable: 5000}}
///     ",
/// )?;
/// let Some(node) = &case.ticks[0].node_object else { return Ok(()) };
/// assert_eq!(node.resources["cpu"].allocatable, Some(7_900));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeObjectRow {
    /// Name of the node.
    pub name: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Capacity and allocatable by resource; CPU in thousandths of a CPU.
    pub resources: BTreeMap<String, AmountRow>,
    /// Capacity and allocatable of each NUMA node, by number and resource.
    pub zones: BTreeMap<u32, BTreeMap<String, AmountRow>>,
}

/// Capacity and allocatable of a resource.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse("{about: memory, ticks: [{nodeObject: {resources: {memory: {capacity: 4096}}}}]}")?;
/// let Some(node) = &case.ticks[0].node_object else { return Ok(()) };
/// assert_eq!(node.resources["memory"].allocatable, None);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AmountRow {
    /// `status.capacity`; unset when left out.
    pub capacity: Option<i64>,
    /// `status.allocatable`; unset when left out.
    pub allocatable: Option<i64>,
}

/// The Pod object in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a daemon that is being deleted
///     pods: [{name: kube-system/agent}]
///     ticks:
///       - podObjects: {kube-system/agent: {ownerKind: DaemonSet, deleting: true, gracePeriodSec: 5}}
///     ",
/// )?;
/// let Some(objects) = &case.ticks[0].pod_objects else { return Ok(()) };
/// assert!(objects["kube-system/agent"].deleting);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodObjectRow {
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// Creation time in seconds since 1970.
    pub created_at_sec: Option<i64>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Grace period for termination; 30 s by default.
    pub grace_period_sec: Option<u32>,
    /// Whether it is the mirror of a static pod, which the kubelet created.
    pub mirror: bool,
    /// Kind of the object's controller.
    pub owner_kind: Option<String>,
    /// Name of the object's controller; `owner` by default.
    pub owner_name: Option<String>,
    /// The pod-level CPU request.
    pub cpu_request_milli: Option<u64>,
    /// `Always` (when left out), `OnFailure` or `Never`.
    pub restart_policy: Option<RestartWord>,
}

/// When the kubelet restarts containers.
///
/// ```
/// use qosm_sdk::testing::{Case, RestartWord};
///
/// let case = Case::parse(
///     "{about: a job, pods: [{name: default/job}], ticks: [{podObjects: {default/job: {restartPolicy: Never}}}]}",
/// )?;
/// let Some(objects) = &case.ticks[0].pod_objects else { return Ok(()) };
/// assert!(matches!(objects["default/job"].restart_policy, Some(RestartWord::Never)));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum RestartWord {
    /// Whenever they exit.
    Always,
    /// When they fail.
    OnFailure,
    /// Not at all.
    Never,
}

/// One key of the cluster ConfigMap.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: suppression is configured
///     ticks:
///       - clusterConfig: {resource-threshold-config: {value: {clusterStrategy: {enable: true}}}}
///     ",
/// )?;
/// let Some(keys) = &case.ticks[0].cluster_config else { return Ok(()) };
/// assert!(keys["resource-threshold-config"].strategy.is_none());
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConfigKeyRow {
    /// The value of the key, as an object.
    pub value: Map<String, Json>,
    /// The strategy for this node; by default the value's `clusterStrategy`.
    pub strategy: Option<Map<String, Json>>,
}

impl NodeObjectRow {
    pub(super) fn facts(&self) -> NodeObjectFacts {
        let pairs = |map: &BTreeMap<String, String>| map.clone().into_iter().collect();
        let zone =
            |(&id, resources): (&u32, &BTreeMap<String, AmountRow>)| NodeZone { id, resources: amounts(resources) };
        NodeObjectFacts {
            name: self.name.clone(),
            labels: pairs(&self.labels),
            annotations: pairs(&self.annotations),
            resources: amounts(&self.resources),
            zones: self.zones.iter().map(zone).collect(),
        }
    }
}

fn amounts(rows: &BTreeMap<String, AmountRow>) -> Vec<NodeAmount> {
    let amount = |(name, row): (&String, &AmountRow)| NodeAmount {
        name: name.clone(),
        capacity: row.capacity,
        allocatable: row.allocatable,
    };
    rows.iter().map(amount).collect()
}

impl PodObjectRow {
    pub(super) fn facts(&self, pod: PodId) -> PodObjectFacts {
        let usual = mock::pod_object(pod);
        PodObjectFacts {
            pod,
            annotations: self.annotations.clone().into_iter().collect(),
            created_at_sec: self.created_at_sec,
            deleting: self.deleting,
            grace_period_sec: self.grace_period_sec.or(usual.grace_period_sec),
            mirror: self.mirror,
            owner_kind: self.owner_kind.clone(),
            owner_name: self.owner_name.clone().or_else(|| self.owner_kind.as_ref().map(|_| "owner".into())),
            cpu_request_milli: self.cpu_request_milli,
            restart_policy: match self.restart_policy {
                None | Some(RestartWord::Always) => RestartPolicy::Always,
                Some(RestartWord::OnFailure) => RestartPolicy::OnFailure,
                Some(RestartWord::Never) => RestartPolicy::Never,
            },
        }
    }
}

impl ConfigKeyRow {
    pub(super) fn key(&self) -> ConfigKey {
        let of_cluster = || self.value.get("clusterStrategy").and_then(Json::as_object).cloned();
        let strategy = self.strategy.clone().or_else(of_cluster).unwrap_or_default();
        ConfigKey { text: Json::Object(self.value.clone()).to_string(), strategy: Json::Object(strategy).to_string() }
    }
}
