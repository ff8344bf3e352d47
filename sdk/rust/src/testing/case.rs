//! What stands in a case file, and what it says of pods and the node.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::expectation::RejectionExpectation;
use super::node_use::NodeMemoryRow;
use super::tick::{PressureRow, Quota, TickFacts};

/// A case: pods, then ticks with what is measured and what is expected.
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
    /// What it shows, in a sentence.
    pub about: String,
    /// Policy-level configuration.
    #[serde(default)]
    pub config: Map<String, Json>,
    /// The node at first.
    #[serde(default)]
    pub node: NodeFacts,
    /// Pods at first.
    #[serde(default)]
    pub pods: Vec<PodDescription>,
    /// Pods that are refused at first.
    #[serde(default)]
    pub rejections: Vec<RejectionExpectation>,
    /// What happens.
    pub ticks: Vec<TickFacts>,
}

/// The node. A field that a tick leaves out stays as it was.
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
    /// Logical CPUs; 8 at first.
    pub cpus: Option<u32>,
    /// Physical memory; 32 GiB at first.
    pub memory_capacity_bytes: Option<u64>,
    /// What pods may have of it; the capacity at first.
    pub memory_allocatable_bytes: Option<u64>,
    /// Page size; 4096 at first.
    pub page_size_bytes: Option<u64>,
    /// CPU time that was spent within the window: a number, or `unknown`, as at first.
    pub cpu_usage_usec: Option<Measure>,
    /// `MemAvailable`; unknown at first.
    pub memory_available_bytes: Option<Measure>,
    /// All of its memory; unknown at first.
    pub memory: Option<NodeMemoryRow>,
    /// Its pressure; unknown at first.
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
    /// It is known.
    Known(u64),
    /// It is not.
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
    /// The number, if it is known.
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

/// A pod in the contract's terms.
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
    /// `namespace/name`; another pod of the same name replaces this one.
    pub name: String,
    /// The UID; follows from the name when left out.
    pub uid: Option<String>,
    /// The class that it declares: `LSE`, `LSR`, `LS`, `BE`, `SYSTEM`.
    pub declared_qos: Option<String>,
    /// `Guaranteed`, `Burstable` (when left out) or `BestEffort`.
    pub kube_qos: Option<String>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// Whether it is pending or running; yes when left out.
    pub active: Option<bool>,
    /// `spec.hostPID`.
    #[serde(default)]
    pub host_pid: bool,
    /// Whether the kubelet runs it from a manifest of its own.
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
    /// Pod-level request.
    pub memory_request_bytes: Option<u64>,
    /// Pod-level limit.
    pub memory_limit_bytes: Option<u64>,
    /// Pod-level limit.
    pub cpu_limit_milli: Option<u64>,
    /// Effective configuration; left out when the pod is not configured.
    #[serde(default)]
    pub config: Map<String, Json>,
    /// Whether an annotation is part of that; yes when left out, and there is any.
    pub annotated: Option<bool>,
    /// The pod's quota beneath all leases; what a kubelet would write when left out.
    pub quota_usec: Option<Quota>,
    /// The pod's enforcement period; 100000 when left out.
    pub period_usec: Option<u64>,
}

/// A container.
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
    /// Name in the pod.
    pub name: String,
    /// `regular` (when left out), `init` or `sidecar`.
    pub kind: Option<String>,
    /// `waiting`, `running` (when left out) or `terminated`.
    pub state: Option<String>,
    /// Another number makes it a restarted container, with a new id.
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
    /// Other resources by name.
    #[serde(default)]
    pub extended_resources: BTreeMap<String, ExtendedResourceFacts>,
    /// CPUs set aside for it alone.
    pub exclusive_cpus: Option<u32>,
    /// Its quota beneath all leases; what a kubelet would write when left out.
    pub quota_usec: Option<Quota>,
    /// Its enforcement period; the pod's when left out.
    pub period_usec: Option<u64>,
}

/// Request and limit of one resource.
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
    /// Requested.
    pub request: Option<u64>,
    /// Limited to.
    pub limit: Option<u64>,
}
