//! The types behind `-o json` and the admin API: decisions, held knobs, refusals, pods, policies. The names of the fields are stable.

mod class;
mod diff;
pub(crate) mod inspect;
mod knobs;
mod node_status;
mod pod_events;
mod problems;
mod requests;
mod resize;
mod shadow;
mod topology;
pub(crate) mod usage;
pub(crate) mod view;

use std::collections::BTreeMap;

use jiff::Timestamp;
use qosm_model::cpus::{CpuSet, NotCpus};
use qosm_model::knob::{NotAValue, Value};
use qosm_model::lease;
use serde::{Deserialize, Serialize};

pub use class::{ClassDecision, ClassReport, MembershipReport, UsageReport};
pub use requests::{EvictionDecision, EvictionReport, NodeResourceReport, ResourceDecision};
pub use shadow::{ShadowAction, ShadowDecision};
pub use usage::{
    BurstUsage, ContainerUsage, HeldUsage, MemoryUsage, NodeUsage, PodUsage, PolicyUsage, QuotaUsage, RefusedUsage,
    RemarkUsage, ShadowUsage, ShadowedUsage,
};

/// A knob's value on the wire: a number, the string `max`, for a weight on cgroup v1 a string such as `2 shares`, or a list of CPUs
/// such as `0-3,8`, which is a string too where it is a single one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WireValue {
    /// A number in the knob's own unit.
    Number(i64),
    /// No bound.
    Max(MaxWord),
    /// A weight that is no whole number.
    Shares(Shares),
    /// A set of CPUs.
    Cpus(Cpus),
    /// The line of a device in a cgroup's file.
    Line(DeviceLine),
}

/// The line of a device in a cgroup's file, as the kernel writes it; `default` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceLine(Value);

impl From<DeviceLine> for String {
    fn from(line: DeviceLine) -> Self {
        line.0.to_string()
    }
}

impl TryFrom<String> for DeviceLine {
    type Error = NotAValue;

    fn try_from(text: String) -> Result<Self, NotAValue> {
        match text.parse::<Value>()? {
            value @ (Value::Unset | Value::IoLimits(_) | Value::IoCostQos(_) | Value::IoCostModel(_)) => {
                Ok(Self(value))
            }
            _ => Err(NotAValue(text)),
        }
    }
}

/// A set of CPUs, written `0-3,8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(pub CpuSet);

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.0.to_string()
    }
}

impl TryFrom<String> for Cpus {
    type Error = NotCpus;

    fn try_from(text: String) -> Result<Self, NotCpus> {
        text.parse().map(Self)
    }
}

/// `cpu.shares` of cgroup v1, written `2 shares`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shares(pub i64);

impl From<Shares> for String {
    fn from(shares: Shares) -> Self {
        Value::Shares(shares.0).to_string()
    }
}

impl TryFrom<String> for Shares {
    type Error = NotAValue;

    fn try_from(text: String) -> Result<Self, NotAValue> {
        match text.parse::<Value>()? {
            Value::Shares(shares) => Ok(Self(shares)),
            _ => Err(NotAValue(text)),
        }
    }
}

/// The word `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaxWord {
    /// The word.
    #[serde(rename = "max")]
    Max,
}

impl From<Value> for WireValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Shares(shares) => Self::Shares(Shares(shares)),
            Value::Cpus(cpus) => Self::Cpus(Cpus(cpus)),
            Value::Max => Self::Max(MaxWord::Max),
            Value::Unset | Value::IoLimits(_) | Value::IoCostQos(_) | Value::IoCostModel(_) => {
                Self::Line(DeviceLine(value))
            }
        }
    }
}

impl std::fmt::Display for WireValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Max(_) => f.write_str("max"),
            Self::Shares(Shares(shares)) => Value::Shares(*shares).fmt(f),
            Self::Cpus(Cpus(cpus)) => cpus.fmt(f),
            Self::Line(DeviceLine(value)) => value.fmt(f),
        }
    }
}

/// One knob that is, or would be, written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `node`, `tier`, `pod` or `container`.
    pub level: String,
    /// `kubepods`, `burstable` or `besteffort`; `None` below the tiers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<String>,
    /// The pod's namespace; `None` for a tier and the node.
    pub namespace: Option<String>,
    /// The pod's name; `None` for a tier and the node.
    pub pod: Option<String>,
    /// The container's name; `None` for tiers and pods.
    pub container: Option<String>,
    /// The knob.
    pub knob: String,
    /// The file's name.
    pub file: String,
    /// The file's full path.
    pub path: String,
    /// `native`, `emulated` (the host does what the kernel would) or `unavailable`. Left out where it is native.
    #[serde(skip_serializing_if = "is_native", default = "native")]
    pub support: String,
    /// For an emulated knob: what the host measures against, the cgroup's own limit, one above it, or the node's memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emulation: Option<String>,
    /// Current value; `None` if it could not be read.
    pub current: Option<WireValue>,
    /// Value to write.
    pub value: WireValue,
    /// The policy whose lease sets the knob, or did until it was released.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// Reason in the policy's words, or that the baseline comes back.
    pub reason: String,
    /// What the policy asked for, where a kernel rule or a guard rail changed it, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// Why the knob was not written; `None` if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

fn native() -> String {
    "native".to_owned()
}

fn is_native(support: &str) -> bool {
    support == "native"
}

/// How a value differs from what the policy asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjusted {
    /// What the policy asked for.
    pub wanted: WireValue,
    /// Why the value is another.
    pub why: String,
}

impl Decision {
    /// `namespace/name`; empty for a tier and the node.
    pub fn pod_key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    /// The target for people: `tier burstable`, `node`, `namespace/name` or `namespace/name/container`.
    pub fn subject(&self) -> String {
        match (&self.tier, &self.container) {
            (Some(tier), _) => format!("tier {tier}"),
            (None, Some(container)) => format!("{}/{container}", self.pod_key()),
            (None, None) if self.pod.is_none() => self.level.clone(),
            (None, None) => self.pod_key(),
        }
    }
}

/// One held knob.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnobReport {
    /// `node`, `tier`, `pod` or `container`.
    pub level: String,
    /// The target: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The container; empty for a pod, a tier and the node.
    pub container: String,
    /// The knob.
    pub knob: String,
    /// The file's full path.
    pub path: String,
    /// `native`, or `emulated`: the host does what the kernel would.
    #[serde(default = "native")]
    pub support: String,
    /// How the knob is emulated, and the state of the emulation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emulation: Option<String>,
    /// What the kernel showed last.
    pub value: WireValue,
    /// Value that another program last wrote; restored in the end.
    pub baseline: WireValue,
    /// `held`; `pending` while the kernel still works on it; `drifted` where another writer changed it and is left alone; `paused`
    /// while its pod is; `releasing` where no lease is left and the baseline is not back yet.
    pub state: String,
    /// The policy whose lease wins, or did until it was released.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// The policy's stated reason.
    pub reason: String,
    /// The layers of the policy's configuration for this pod, other than its built-in defaults; see [`PodPolicyReport::fields`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub configured_by: Vec<String>,
    /// Since when this value is wanted (RFC 3339).
    pub since: String,
    /// Leases beneath the winning one: policy and value.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub beneath: Vec<(String, WireValue)>,
    /// What the policy asked for, if the value is another.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// What another program wrote to it, in words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<String>,
    /// For `memory.min` and `memory.low`: the group above that grants less than this one holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capped: Option<String>,
    /// Until when the knob is left alone because of drift (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hands_off_until: Option<String>,
}

/// One setting that is not in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalReport {
    /// The target: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The knob.
    pub knob: String,
    /// Value that the policy wanted.
    pub wanted: WireValue,
    /// The policy that wanted it.
    pub policy: String,
    /// `refused` by the kernel or a guard rail, `unavailable` on this host, or `denied` since the policy may not act there.
    pub kind: String,
    /// Why the setting is not in force.
    pub why: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// A remark of a policy: what it wanted of a knob and did not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemarkReport {
    /// The target: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The knob.
    pub knob: String,
    /// The policy that wanted it.
    pub policy: String,
    /// Why not, in the policy's words.
    pub why: String,
}

/// A field of a pod's effective configuration, and the layer that set it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FieldReport {
    /// Dotted path of the field.
    pub field: String,
    /// Its value.
    pub value: serde_json::Value,
    /// The layer.
    pub layer: String,
}

/// A version of a policy that is requested and does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingUpdateReport {
    /// Reference of the module, as in the policy's entry.
    pub module: String,
    /// Whether the version is still on its way: being fetched, loaded or evaluated as a canary.
    pub pending: bool,
    /// Why it does not run.
    pub why: String,
}

/// A pod's configuration for one policy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodPolicyReport {
    /// The policy.
    pub policy: String,
    /// `active`, or `shadow`: a shadow only reports what it would do.
    pub mode: String,
    /// `running`, `backing-off`, `parked`, `not-loaded` or `fetching`. Only a running policy uses the configuration.
    pub health: String,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// For a module that is an artefact: its reference, and why it is trusted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub artifact: Option<String>,
    /// Fields of the pod's effective configuration.
    pub fields: Vec<FieldReport>,
    /// Whether the grant `all-pods` lets the policy act on each pod, configured for it or not.
    #[serde(rename = "actsOnAllPods", default)]
    pub acts_on_all_pods: bool,
    /// Why the module rejected the pod's configuration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<String>,
    /// Problems of the pod's configuration.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// Where a container's memory lies.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalityReport {
    /// The container's name.
    pub container: String,
    /// NUMA nodes of the CPUs that it may run on.
    pub cpu_nodes: Vec<u32>,
    /// Its pages on these nodes, in percent of all; missing while not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_percent: Option<u64>,
    /// Number of its pages on other nodes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remote_pages: Option<u64>,
    /// The latest migration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub migration: Option<MigrationReport>,
}

/// Pages of a container that are, or would be, moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationDecision {
    /// `namespace/name`.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// NUMA nodes to move pages from.
    pub from: Vec<u32>,
    /// NUMA nodes to move pages to.
    pub to: Vec<u32>,
    /// The policy that wants the migration.
    pub policy: String,
    /// Reason in the policy's words.
    pub reason: String,
    /// Why the pages are not moved; missing if they are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

impl std::fmt::Display for MigrationDecision {
    /// `pages of default/redis/app from NUMA node 0 to 1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |nodes: &[u32]| qosm_model::numa::list_text(nodes.iter().copied());
        let (pod, container) = (&self.pod, &self.container);
        write!(f, "pages of {pod}/{container} from NUMA node {} to {}", list(&self.from), list(&self.to))
    }
}

/// Progress of a migration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    /// The policy that asked for the migration.
    pub policy: String,
    /// `waiting`, `moving`, `paused`, `done`, `failed` or `stopped`.
    pub state: String,
    /// NUMA nodes to move pages from.
    pub from: Vec<u32>,
    /// NUMA nodes to move pages to.
    pub to: Vec<u32>,
    /// Number of pages found on the wrong nodes so far.
    pub pages_found: u64,
    /// Number of pages moved.
    pub pages_moved: u64,
    /// Number of pages that stay, by error.
    pub pages_failed: std::collections::BTreeMap<String, u64>,
    /// Number of pages for which the target nodes had no room.
    pub pages_without_room: u64,
    /// Number of processes of the container.
    pub processes: u64,
    /// Number of processes that were handled to the end.
    pub processes_done: u64,
    /// The first processes that could not be handled, each with its error.
    pub failures: Vec<String>,
    /// Why it failed or waits.
    pub why: String,
    /// Why it was asked for.
    pub reason: String,
    /// When it was asked for (RFC 3339).
    pub since: String,
}

/// One pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// `namespace/name`.
    pub pod: String,
    /// The UID that its cgroup is named after.
    pub uid: String,
    /// The QoS class that policies use: LSE, LSR, LS, BE or SYSTEM.
    pub qos: String,
    /// Whether the pod declares this class.
    pub qos_declared: bool,
    /// Kubernetes QoS: Guaranteed, Burstable or BestEffort.
    pub kube_qos: String,
    /// The pod's cgroup; empty while it is not open.
    pub cgroup: String,
    /// Number of containers with an open cgroup, of all: `1/2`.
    pub containers: String,
    /// Number of knobs held on the pod and its containers.
    pub held: usize,
    /// Number of its settings that are not in force.
    pub refused: usize,
    /// Number of remarks of policies on it and the tiers above it.
    #[serde(default)]
    pub remarks: usize,
    /// Number of problems of the pod's configuration.
    pub problems: usize,
    /// Where its containers' memory lies, as far as a policy watches that.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub locality: Vec<LocalityReport>,
    /// The classes of shares that its containers are in.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub classes: Vec<MembershipReport>,
    /// The request to evict the pod, and its outcome.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub eviction: Option<EvictionReport>,
    /// What pauses the pod (annotation, operator or guard rail), and until when.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused: Option<String>,
    /// Notes on baselines above what its limits give.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub high_baselines: Vec<String>,
    /// A resize that the kubelet has not carried out: the kubelet's status, then the current and the requested resources.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resize: Vec<String>,
}

/// Everything about one pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The pod.
    pub pod: PodReport,
    /// Its configuration, policy by policy.
    pub policies: Vec<PodPolicyReport>,
    /// Knobs held on the pod and its containers.
    pub knobs: Vec<KnobReport>,
    /// Settings that are not in force.
    pub refused: Vec<RefusalReport>,
    /// Remarks of policies on the pod and the tiers above it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub remarks: Vec<RemarkReport>,
    /// Problems of the pod's configuration.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
    /// Its events.
    pub events: Vec<serde_json::Value>,
}

/// One policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// `active`, or `shadow`: a shadow only reports what it would do.
    pub mode: String,
    /// Name and version that the module gives itself.
    pub module: String,
    /// Its digest.
    pub digest: String,
    /// Reference of the module, as in the policy's entry.
    #[serde(default)]
    pub reference: String,
    /// For an artefact: the digest of its manifest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub artifact: Option<String>,
    /// For an artefact: why it is trusted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trusted: Option<String>,
    /// Number of the policy set that is reported, ascending.
    #[serde(default)]
    pub policy_set: u64,
    /// Another version that is requested and does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pending_update: Option<PendingUpdateReport>,
    /// `running`, `backing-off`, `parked`, `not-loaded` or `fetching`.
    pub health: String,
    /// What went wrong, if anything.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Priority of its leases.
    pub priority: i32,
    /// Number of knobs that it holds, or would hold as a shadow.
    pub leases: usize,
    /// Number of evaluations so far.
    pub evaluations: u64,
    /// Number of evaluations that failed.
    pub failures: u64,
    /// Duration of the last evaluation, in microseconds.
    pub last_evaluation_usec: u64,
    /// Triggers that cause an evaluation between intervals.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub triggers: Vec<TriggerReport>,
    /// Problems of its ConfigMaps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// A shadow beside the policy that it is compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// The shadow.
    pub shadow: VersionReport,
    /// The active policy; `None` if each knob is compared with the policy that holds it.
    pub active: Option<VersionReport>,
    /// The shadow's health: `running`, `backing-off` or `parked`. While it does not run, nothing is compared.
    pub health: String,
    /// The error of a shadow that does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Number of knobs on which both agree now.
    pub agreements: u64,
    /// Knobs on which they differ now.
    pub differences: Vec<DifferenceReport>,
    /// All comparisons so far.
    pub totals: DiffTotals,
    /// What the shadow costs.
    pub cost: CostReport,
}

/// A policy, and the module that it runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VersionReport {
    /// Its name.
    pub policy: String,
    /// Name and version that the module gives itself; empty if it was not loaded.
    pub module: String,
    /// The module's digest; empty if it was not loaded.
    pub digest: String,
}

/// One knob for which the active policy and its shadow want different values.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceReport {
    /// `node`, `tier`, `pod` or `container`.
    pub level: String,
    /// The target: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The container; empty for a pod, a tier and the node.
    pub container: String,
    /// The knob.
    pub knob: String,
    /// `differs`, `only-active` or `only-shadow`.
    pub kind: String,
    /// What the active policy asks for.
    pub active: Option<AskedReport>,
    /// What the shadow would ask for.
    pub shadow: Option<AskedReport>,
    /// Value in the kernel; `None` if it cannot be read.
    pub in_force: Option<WireValue>,
}

/// What a policy asks for, before guard rails and the kernel's own bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedReport {
    /// The value.
    pub value: WireValue,
    /// The policy that asks.
    pub policy: String,
    /// Reason in the policy's words.
    pub reason: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// All comparisons of a shadow so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffTotals {
    /// Time of the first comparison (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
    /// Number of comparisons: one per tick while the shadow runs.
    pub ticks: u64,
    /// Number of comparisons that found a difference.
    pub differing_ticks: u64,
    /// Counts by knob, summed over ticks.
    pub knobs: BTreeMap<String, DiffCounts>,
    /// Number of events that it would have sent to pods' owners.
    pub events_withheld: u64,
    /// Number of page migrations that it asked for; none took place.
    pub migrations_withheld: u64,
    /// Number of classes of shares that it defined, and of members that it put into one; none took effect.
    #[serde(default)]
    pub classes_withheld: u64,
    /// Resources of the node that it would publish now, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub resources_withheld: BTreeMap<String, ResourceDecision>,
    /// Number of pods that it would have had evicted.
    #[serde(default)]
    pub evictions_withheld: u64,
    /// The latest of these evictions, each with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latest_evictions: Vec<String>,
}

/// A trigger that makes a policy's evaluation due between intervals.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerReport {
    /// The trigger.
    pub trigger: String,
    /// Why the trigger cannot be watched for at least one of its targets: there the policy is evaluated by its interval only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missing: Option<String>,
}

/// Knobs of one kind, summed over ticks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffCounts {
    /// Both asked for the same value.
    pub agreed: u64,
    /// Both asked, for different values.
    pub differed: u64,
    /// Only the active policy asked.
    pub only_active: u64,
    /// Only the shadow asked.
    pub only_shadow: u64,
}

/// What evaluating a policy costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CostReport {
    /// Number of evaluations so far.
    pub evaluations: u64,
    /// Number of evaluations that failed.
    pub failures: u64,
    /// Duration of the last evaluation, in microseconds.
    pub last_evaluation_usec: u64,
    /// Duration of all evaluations, in microseconds.
    pub all_evaluations_usec: u64,
}

/// A time as RFC 3339, or in milliseconds since 1970 if it is out of range.
pub fn moment(at: lease::Timestamp) -> String {
    Timestamp::from_millisecond(at.0).map(|at| at.to_string()).unwrap_or_else(|_| at.0.to_string())
}
