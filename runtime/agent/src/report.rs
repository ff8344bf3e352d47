//! What `-o json` and the admin API say: decisions, held knobs, refusals, pods, policies. The names of the fields are stable.

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
    /// What a file says of a device.
    Line(DeviceLine),
}

/// What a file says of a device, as the kernel writes it; `default` = nothing.
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
    /// Of an emulated knob: by what the host acts in the kernel's place, its own limit, one above it, or the node's memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emulation: Option<String>,
    /// What it holds; `None` where it could not be read.
    pub current: Option<WireValue>,
    /// What it is to hold.
    pub value: WireValue,
    /// The policy whose lease it is, or was.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// Why.
    pub reason: String,
    /// What the policy asked for, where a kernel rule or a guard rail changed it, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// Why it was not written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

fn native() -> String {
    "native".to_owned()
}

fn is_native(support: &str) -> bool {
    support == "native"
}

/// A value that is not the one that the policy asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjusted {
    /// What it asked for.
    pub wanted: WireValue,
    /// Why it got something else.
    pub why: String,
}

impl Decision {
    /// `namespace/name`, or nothing for a tier.
    pub fn pod_key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    /// What it is about, for people.
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
    /// What it is about: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The container; empty above.
    pub container: String,
    /// The knob.
    pub knob: String,
    /// The file's full path.
    pub path: String,
    /// `native`, or `emulated`: the host does what the kernel would.
    #[serde(default = "native")]
    pub support: String,
    /// How it is emulated, and how that goes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emulation: Option<String>,
    /// What the kernel showed last.
    pub value: WireValue,
    /// What another writer last put there.
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
    /// The layers of the policy's configuration for this pod, beside its built-in defaults; see [`PodPolicyReport::fields`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub configured_by: Vec<String>,
    /// Since when this value is wanted (RFC 3339).
    pub since: String,
    /// Leases beneath the winning one: policy and value.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub beneath: Vec<(String, WireValue)>,
    /// What the policy asked for, where it got something else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// What another writer did to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<String>,
    /// Of `memory.min` and `memory.low`: which group above grants less than this one holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capped: Option<String>,
    /// Until when it is left alone because of that (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hands_off_until: Option<String>,
}

/// One setting that is not in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalReport {
    /// What it is about.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The knob.
    pub knob: String,
    /// What was wanted.
    pub wanted: WireValue,
    /// By which policy.
    pub policy: String,
    /// `refused` by the kernel or a guard rail, or `unavailable` on this host.
    pub kind: String,
    /// Why.
    pub why: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// What a policy wanted of a knob and did not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemarkReport {
    /// What it is about.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The knob.
    pub knob: String,
    /// By which policy.
    pub policy: String,
    /// Why not.
    pub why: String,
}

/// A field of a pod's effective configuration, and which layer said it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FieldReport {
    /// Dotted path.
    pub field: String,
    /// Its value.
    pub value: serde_json::Value,
    /// The layer.
    pub layer: String,
}

/// A version of a policy that was asked for and does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingUpdateReport {
    /// As its entry names it.
    pub module: String,
    /// Whether it is only on its way.
    pub pending: bool,
    /// Why it does not run.
    pub why: String,
}

/// A pod's configuration for one policy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodPolicyReport {
    /// The policy.
    pub policy: String,
    /// `active`, or `shadow`: then it only says what it would do.
    pub mode: String,
    /// `running`, `backing-off`, `parked`, `not-loaded` or `fetching`. Only a running policy takes the configuration to heart.
    pub health: String,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// For a module that is an artefact: which one, and why it is believed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub artifact: Option<String>,
    /// Its effective configuration.
    pub fields: Vec<FieldReport>,
    /// Whether it may act on each pod, configured for it or not: by the grant `all-pods`.
    #[serde(rename = "actsOnAllPods", default)]
    pub acts_on_all_pods: bool,
    /// Why the module turned the pod down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<String>,
    /// What is wrong with what was written for it.
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
    /// Its pages elsewhere.
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
    /// From these NUMA nodes.
    pub from: Vec<u32>,
    /// To these.
    pub to: Vec<u32>,
    /// Who wants it.
    pub policy: String,
    /// Why.
    pub reason: String,
    /// Why it is not done; missing where it is.
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

/// How far a migration is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationReport {
    /// Whose it is.
    pub policy: String,
    /// `waiting`, `moving`, `paused`, `done`, `failed` or `stopped`.
    pub state: String,
    /// From these NUMA nodes.
    pub from: Vec<u32>,
    /// To these.
    pub to: Vec<u32>,
    /// Pages that were found in the wrong place so far.
    pub pages_found: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that stay, by error.
    pub pages_failed: std::collections::BTreeMap<String, u64>,
    /// Pages for which the target had no room.
    pub pages_without_room: u64,
    /// Processes that there were.
    pub processes: u64,
    /// Those that were worked on to the end.
    pub processes_done: u64,
    /// Those that could not be: the first ones.
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
    /// The class that policies go by.
    pub qos: String,
    /// Whether the pod declares it.
    pub qos_declared: bool,
    /// Kubernetes' QoS.
    pub kube_qos: String,
    /// The pod's cgroup; empty while it is not there.
    pub cgroup: String,
    /// Containers with an open cgroup, of all.
    pub containers: String,
    /// Knobs held on the pod and its containers.
    pub held: usize,
    /// Settings that are not in force.
    pub refused: usize,
    /// What policies wanted and did not do.
    #[serde(default)]
    pub remarks: usize,
    /// Problems with what was written for the pod.
    pub problems: usize,
    /// Where its containers' memory lies, as far as a policy watches that.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub locality: Vec<LocalityReport>,
    /// The classes of shares that its containers are in.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub classes: Vec<MembershipReport>,
    /// The request to evict it, and what became of that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub eviction: Option<EvictionReport>,
    /// By whom it is paused, and until when.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused: Option<String>,
    /// Baselines that lie above what its limits give.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub high_baselines: Vec<String>,
    /// A resize that the kubelet has not carried out: its words, and then what the node runs and what is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub resize: Vec<String>,
}

/// All about one pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The pod.
    pub pod: PodReport,
    /// Its configuration, policy by policy.
    pub policies: Vec<PodPolicyReport>,
    /// What is held.
    pub knobs: Vec<KnobReport>,
    /// What is not in force.
    pub refused: Vec<RefusalReport>,
    /// What policies wanted and did not do, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub remarks: Vec<RemarkReport>,
    /// What is wrong with what was written for it.
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
    /// `active`, or `shadow`: then it only says what it would do.
    pub mode: String,
    /// Name and version that the module gives itself.
    pub module: String,
    /// Its digest.
    pub digest: String,
    /// Where it came from, as its entry names it.
    #[serde(default)]
    pub reference: String,
    /// For an artefact: the digest of its manifest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub artifact: Option<String>,
    /// For an artefact: why it is believed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trusted: Option<String>,
    /// Number of the policy set that is reported, ascending.
    #[serde(default)]
    pub policy_set: u64,
    /// Another version that was asked for and does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pending_update: Option<PendingUpdateReport>,
    /// `running`, `backing-off`, `parked`, `not-loaded` or `fetching`.
    pub health: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Weight of its leases.
    pub priority: i32,
    /// Knobs that it holds, or as a shadow would hold.
    pub leases: usize,
    /// Evaluations so far.
    pub evaluations: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How long the last one took, in microseconds.
    pub last_evaluation_usec: u64,
    /// Triggers that cause an evaluation between intervals.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub triggers: Vec<TriggerReport>,
    /// What is wrong with its ConfigMaps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// A shadow beside the policy that it is compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// The shadow.
    pub shadow: VersionReport,
    /// The active policy; `None` = it is compared with the values in force.
    pub active: Option<VersionReport>,
    /// The shadow's health: `running`, `backing-off` or `parked`. While it does not run, nothing is compared.
    pub health: String,
    /// What went wrong with it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Knobs on which both agree now.
    pub agreements: u64,
    /// Knobs on which they do not.
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

/// One knob that the active policy and its shadow see differently.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceReport {
    /// `node`, `tier`, `pod` or `container`.
    pub level: String,
    /// What it is about: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier and the node.
    pub pod: String,
    /// The container; empty above.
    pub container: String,
    /// The knob.
    pub knob: String,
    /// `differs`, `only-active` or `only-shadow`.
    pub kind: String,
    /// What the active policy asks for.
    pub active: Option<AskedReport>,
    /// What the shadow would ask for.
    pub shadow: Option<AskedReport>,
    /// What the kernel holds; `None` where it cannot be read.
    pub in_force: Option<WireValue>,
}

/// What a policy asks for, before guard rails and the kernel's own bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedReport {
    /// The value.
    pub value: WireValue,
    /// Which policy.
    pub policy: String,
    /// Why, in the policy's words.
    pub reason: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// All comparisons of a shadow so far.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffTotals {
    /// When the first one was made (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<String>,
    /// Comparisons: one a tick while the shadow runs.
    pub ticks: u64,
    /// Those that found a difference.
    pub differing_ticks: u64,
    /// Knobs, summed over ticks.
    pub knobs: BTreeMap<String, DiffCounts>,
    /// Events that pods' owners would have had from it.
    pub events_withheld: u64,
    /// Migrations of containers' pages that it asked for and that did not take place.
    pub migrations_withheld: u64,
    /// Classes of shares that it defined, and pods and containers that it put into one, that came to nothing.
    #[serde(default)]
    pub classes_withheld: u64,
    /// What it would publish now, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub resources_withheld: BTreeMap<String, ResourceDecision>,
    /// Pods that it would have had evicted.
    #[serde(default)]
    pub evictions_withheld: u64,
    /// The latest of them, each with its reason.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub latest_evictions: Vec<String>,
}

/// Something that a policy asked to be woken by.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TriggerReport {
    /// What.
    pub trigger: String,
    /// Why it cannot be watched, for one of those whom it is asked for at least: the policy goes by its interval there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub missing: Option<String>,
}

/// Knobs of one kind, summed over ticks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffCounts {
    /// Both asked for the same.
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
    /// Evaluations so far.
    pub evaluations: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How long the last one took, in microseconds.
    pub last_evaluation_usec: u64,
    /// How long all of them took, in microseconds.
    pub all_evaluations_usec: u64,
}

/// A moment for people and scripts.
pub fn moment(at: lease::Timestamp) -> String {
    Timestamp::from_millisecond(at.0).map(|at| at.to_string()).unwrap_or_else(|_| at.0.to_string())
}
