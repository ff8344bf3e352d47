//! What `-o json` and the admin API say: decisions, held knobs, refusals, pods, policies. The names of the fields are stable.

use jiff::Timestamp;
use qosm_model::knob::Value;
use qosm_model::lease;
use serde::{Deserialize, Serialize};

/// A knob's value on the wire: a number, or the string `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WireValue {
    /// A number in the knob's own unit.
    Number(i64),
    /// No bound.
    Max(MaxWord),
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
            Value::Max => Self::Max(MaxWord::Max),
        }
    }
}

impl std::fmt::Display for WireValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Max(_) => f.write_str("max"),
        }
    }
}

/// One knob that is, or would be, written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `tier`, `pod` or `container`.
    pub level: String,
    /// `kubepods`, `burstable` or `besteffort`; `None` below the tiers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<String>,
    /// The pod's namespace; `None` for a tier.
    pub namespace: Option<String>,
    /// The pod's name; `None` for a tier.
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
            (None, None) => self.pod_key(),
        }
    }
}

/// One held knob.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnobReport {
    /// `tier`, `pod` or `container`.
    pub level: String,
    /// What it is about: a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier.
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
    /// The policy whose lease wins; empty while a release is under way.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// The policy's stated reason.
    pub reason: String,
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
    /// The pod, `namespace/name`; empty for a tier.
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

/// A pod's configuration for one policy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PodPolicyReport {
    /// The policy.
    pub policy: String,
    /// `running`, `backing-off`, `parked` or `not-loaded`. Only a running policy takes the configuration to heart.
    pub health: String,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Its effective configuration.
    pub fields: Vec<FieldReport>,
    /// Why the module turned the pod down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<String>,
    /// What is wrong with what was written for it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
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
    /// Problems with what was written for the pod.
    pub problems: usize,
    /// Whether and until when it is on hold.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold: Option<String>,
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
    /// What its owner was told.
    pub events: Vec<serde_json::Value>,
}

/// One policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// Name and version that the module gives itself.
    pub module: String,
    /// Its digest.
    pub digest: String,
    /// `running`, `backing-off`, `parked` or `not-loaded`.
    pub health: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Weight of its leases.
    pub priority: i32,
    /// Knobs that it holds.
    pub leases: usize,
    /// Evaluations so far.
    pub evaluations: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How long the last one took, in microseconds.
    pub last_evaluation_usec: u64,
    /// What is wrong with its ConfigMaps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// A moment for people and scripts.
pub fn moment(at: lease::Timestamp) -> String {
    Timestamp::from_millisecond(at.0).map(|at| at.to_string()).unwrap_or_else(|_| at.0.to_string())
}
