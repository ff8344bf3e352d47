//! The format of a case file: the case, its node, its pods and their containers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::expectation::RejectionExpectation;
use super::tick::{PressureRow, Quota, TickFacts};
use crate::counters::NodeMemoryRow;

/// A case: pods, then ticks with samples and expectations.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: no pod is configured, nothing happens
///     pods:
///       - {name: default/web, containers: [{name: app, cpuLimitMilli: 500}]}
///     ticks:
///       - {}
///     ",
/// )?;
/// assert_eq!((case.pods.len(), case.ticks.len()), (1, 1));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// What the case shows, in one sentence.
    pub about: String,
    /// Policy-level configuration.
    #[serde(default)]
    pub config: Map<String, Json>,
    /// The node before the first tick.
    #[serde(default)]
    pub node: NodeFacts,
    /// The pods before the first tick.
    #[serde(default)]
    pub pods: Vec<PodDescription>,
    /// Pods whose initial configuration the policy rejects.
    #[serde(default)]
    pub rejections: Vec<RejectionExpectation>,
    /// The ticks, in order.
    pub ticks: Vec<TickFacts>,
}

/// Facts about the node. A field that a tick leaves out keeps its value.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a busy node
///     node: {cpus: 16, memoryCapacityBytes: 68719476736, cpuUsageUsec: 15000000}
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.node.cpus, Some(16));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeFacts {
    /// Logical CPUs; initially 8.
    pub cpus: Option<u32>,
    /// Physical memory; initially 32 GiB.
    pub memory_capacity_bytes: Option<u64>,
    /// Allocatable memory; initially the capacity.
    pub memory_allocatable_bytes: Option<u64>,
    /// Page size; initially 4096.
    pub page_size_bytes: Option<u64>,
    /// CPU time used within the window: a number, or `unknown`; initially `unknown`.
    pub cpu_usage_usec: Option<Measure>,
    /// `MemAvailable`; initially unknown.
    pub memory_available_bytes: Option<Measure>,
    /// Memory of the whole node; initially unknown.
    pub memory: Option<NodeMemoryRow>,
    /// Pressure of the whole node; initially unknown.
    pub pressure: Option<PressureRow>,
}

/// A number, or the word `unknown`.
///
/// ```
/// use qosm_sdk::testing::Measure;
///
/// assert_eq!(Measure::try_from(serde_json::json!(7)), Ok(Measure::Known(7)));
/// assert_eq!(Measure::try_from(serde_json::json!("unknown")), Ok(Measure::Unknown));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Json")]
pub enum Measure {
    /// A known number.
    Known(u64),
    /// An unknown number.
    Unknown,
}

impl TryFrom<Json> for Measure {
    type Error = String;

    fn try_from(json: Json) -> Result<Self, String> {
        match (&json, json.as_u64()) {
            (_, Some(number)) => Ok(Self::Known(number)),
            (Json::String(word), _) if word == "unknown" => Ok(Self::Unknown),
            _ => Err(format!("{json} is neither a number nor `unknown`")),
        }
    }
}

impl Measure {
    /// The number; `None` if unknown.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::testing::Measure::Known(7).known(), Some(7));
    /// ```
    pub fn known(self) -> Option<u64> {
        match self {
            Self::Known(number) => Some(number),
            Self::Unknown => None,
        }
    }
}

/// A pod, with the fields of the contract.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a batch pod that asks for something
///     pods:
///       - name: batch/report
///         kubeQos: BestEffort
///         declaredQos: BE
///         labels: {app: report}
///         config: {percent: 50}
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.pods[0].declared_qos.as_deref(), Some("BE"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodDescription {
    /// The pod, as `namespace/name`; another pod with this name replaces it.
    pub name: String,
    /// The UID; derived from the name when left out.
    pub uid: Option<String>,
    /// The QoS class that the pod declares: `LSE`, `LSR`, `LS`, `BE`, `SYSTEM`.
    pub declared_qos: Option<String>,
    /// `Guaranteed`, `Burstable` (the default) or `BestEffort`.
    pub kube_qos: Option<String>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// Whether the pod is pending or running; the default is yes.
    pub active: Option<bool>,
    /// `spec.hostPID`.
    #[serde(default)]
    pub host_pid: bool,
    /// Whether the kubelet runs the pod from a manifest of its own.
    #[serde(default)]
    pub static_pod: bool,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Containers in the order of the specification.
    #[serde(default)]
    pub containers: Vec<ContainerFacts>,
    /// `spec.overhead.cpu`.
    #[serde(default)]
    pub cpu_overhead_milli: u64,
    /// `spec.overhead.memory`.
    #[serde(default)]
    pub memory_overhead_bytes: u64,
    /// The pod-level memory request.
    pub memory_request_bytes: Option<u64>,
    /// The pod-level memory limit.
    pub memory_limit_bytes: Option<u64>,
    /// The pod-level CPU limit.
    pub cpu_limit_milli: Option<u64>,
    /// The effective configuration; left out if the pod is not configured.
    #[serde(default)]
    pub config: Map<String, Json>,
    /// Whether an annotation is part of the configuration; by default yes if there is a configuration.
    pub annotated: Option<bool>,
    /// The pod's quota without leases; by default what a kubelet writes.
    pub quota_usec: Option<Quota>,
    /// The pod's enforcement period; 100000 by default.
    pub period_usec: Option<u64>,
}

/// A container of a pod in a case file.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a container that was started again, and one whose quota another program removed
///     pods:
///       - name: default/web
///         containers:
///           - {name: app, restarts: 1, cpuLimitMilli: 500, memoryLimitBytes: 1073741824}
///           - {name: proxy, kind: sidecar, cpuLimitMilli: 100, quotaUsec: max}
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.pods[0].containers[0].restarts, 1);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerFacts {
    /// Name of the container in the pod.
    pub name: String,
    /// `regular` (the default), `init` or `sidecar`.
    pub kind: Option<String>,
    /// `waiting`, `running` (the default) or `terminated`.
    pub state: Option<String>,
    /// Number of restarts. A different number makes it a restarted container with a new id.
    #[serde(default)]
    pub restarts: u32,
    /// `requests.cpu`.
    pub cpu_request_milli: Option<u64>,
    /// `limits.cpu`.
    pub cpu_limit_milli: Option<u64>,
    /// `requests.memory`.
    pub memory_request_bytes: Option<u64>,
    /// `limits.memory`.
    pub memory_limit_bytes: Option<u64>,
    /// Other resources, by name.
    #[serde(default)]
    pub extended_resources: BTreeMap<String, ExtendedResourceFacts>,
    /// Number of CPUs that the kubelet assigned to this container exclusively.
    pub exclusive_cpus: Option<u32>,
    /// The container's quota without leases; by default what a kubelet writes.
    pub quota_usec: Option<Quota>,
    /// The container's enforcement period; by default the pod's.
    pub period_usec: Option<u64>,
}

/// Request and limit of an extended resource.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: batch memory
///     pods:
///       - name: batch/report
///         containers: [{name: job, extendedResources: {kubernetes.io/batch-memory: {request: 4096, limit: 8192}}}]
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.pods[0].containers[0].extended_resources["kubernetes.io/batch-memory"].limit, Some(8192));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtendedResourceFacts {
    /// The request; `None` when left out.
    pub request: Option<u64>,
    /// The limit; `None` when left out.
    pub limit: Option<u64>,
}
