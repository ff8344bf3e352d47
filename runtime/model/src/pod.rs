//! Pods and containers by their manifests and status, and the node that they run on.

use std::collections::BTreeMap;
use std::fmt;

use crate::spelling;
use crate::unit::{Bytes, MilliCpu};

mod resources;

pub use self::resources::{Moment, Resources};

/// A pod on this node. Stable while the pod lives; never given to another pod while the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A container on this node. A restarted container gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(pub u32);

/// Koordinator's QoS class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Latency-sensitive, exclusive CPUs.
    Lse,
    /// Latency-sensitive, reserved CPUs.
    Lsr,
    /// Latency-sensitive.
    Ls,
    /// Best effort.
    Be,
    /// System components.
    System,
}

impl QosClass {
    /// Reads the value of a QoS class label. Matching is exact; anything else is no class.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "LSE" => Some(Self::Lse),
            "LSR" => Some(Self::Lsr),
            "LS" => Some(Self::Ls),
            "BE" => Some(Self::Be),
            "SYSTEM" => Some(Self::System),
            _ => None,
        }
    }

    /// The class as labels spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lse => "LSE",
            Self::Lsr => "LSR",
            Self::Ls => "LS",
            Self::Be => "BE",
            Self::System => "SYSTEM",
        }
    }
}

/// Kubernetes' QoS of a pod; decides the tier of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubeQos {
    /// Requests equal limits everywhere.
    Guaranteed,
    /// A request or limit is set.
    Burstable,
    /// Nothing is.
    BestEffort,
}

impl KubeQos {
    /// The class that a pod without a declared one is given.
    pub fn default_class(self) -> QosClass {
        match self {
            Self::Guaranteed => QosClass::Lsr,
            Self::Burstable => QosClass::Ls,
            Self::BestEffort => QosClass::Be,
        }
    }

    /// The tier under which such a pod's cgroup stands.
    pub fn tier(self) -> Tier {
        match self {
            Self::Guaranteed => Tier::Guaranteed,
            Self::Burstable => Tier::Burstable,
            Self::BestEffort => Tier::BestEffort,
        }
    }

    /// As `status.qosClass` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// A cgroup above the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The kubepods group itself, parent of Guaranteed pods and of the other two tiers.
    Guaranteed,
    /// `burstable`.
    Burstable,
    /// `besteffort`.
    BestEffort,
}

impl Tier {
    /// All tiers, the parent of the others first.
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burstable, Self::BestEffort];
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guaranteed => "kubepods",
            Self::Burstable => "burstable",
            Self::BestEffort => "besteffort",
        })
    }
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Listed under `spec.containers`.
    Regular,
    /// An init container that runs to its end.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Not started.
    Waiting,
    /// Started.
    Running,
    /// Ended.
    Terminated,
}

/// One extended resource of a container, in the unit of that resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedResource {
    /// Full name, e.g. `kubernetes.io/batch-memory`.
    pub name: String,
    /// `None` when absent.
    pub request: Option<u64>,
    /// `None` when absent.
    pub limit: Option<u64>,
}

/// Where a container's cgroup is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCgroup {
    /// By the status' container ID, `<runtime>://<id>`.
    Runtime(String),
    /// A path below each hierarchy's root, as the manifest binds it.
    Bound(String),
    /// In a directory of this name below the pod's: what the agent makes when it runs without a kubelet.
    Named(String),
    /// Not started yet.
    Unknown,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name in the pod.
    pub name: String,
    /// What it is to its pod.
    pub kind: ContainerKind,
    /// Where it is in its life.
    pub state: ContainerState,
    /// Where its cgroup is.
    pub cgroup: ContainerCgroup,
    /// `requests.cpu`, as the node runs it.
    pub cpu_request: Option<MilliCpu>,
    /// `limits.cpu`, as the node runs it.
    pub cpu_limit: Option<MilliCpu>,
    /// `requests.memory`, as the node runs it.
    pub memory_request: Option<Bytes>,
    /// `limits.memory`, as the node runs it.
    pub memory_limit: Option<Bytes>,
    /// All other resources.
    pub extended_resources: Vec<ExtendedResource>,
    /// CPU and memory of the specification, where the node runs others: those above.
    pub next: Option<Resources>,
}

/// A pod, from a manifest or the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// The UID that the pod's cgroup is named after; for a static pod `kubernetes.io/config.hash`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// `status.qosClass`, else computed from the specification.
    pub kube_qos: KubeQos,
    /// Whether the phase is Pending or Running.
    pub active: bool,
    /// `spec.hostPID`.
    pub host_pid: bool,
    /// A cgroup that the manifest binds the pod to, below each hierarchy's root; `None` = where a kubelet would put it.
    pub cgroup: Option<String>,
    /// In the order of the specification: init containers and sidecars, then regular ones.
    pub containers: Vec<Container>,
    /// `spec.overhead.cpu`.
    pub cpu_overhead: MilliCpu,
    /// `spec.overhead.memory`.
    pub memory_overhead: Bytes,
    /// `spec.resources.requests.memory`.
    pub memory_request: Option<Bytes>,
    /// `spec.resources.limits.memory`.
    pub memory_limit: Option<Bytes>,
    /// `spec.resources.limits.cpu`.
    pub cpu_limit: Option<MilliCpu>,
    /// `spec.resources.requests.cpu`.
    pub cpu_request: Option<MilliCpu>,
    /// `spec.resources`, where the node runs others: those above.
    pub next: Option<Resources>,
    /// What the kubelet says of a resize that it has not carried out, e.g. `Infeasible: Node didn't have enough capacity`.
    pub resize: Option<String>,
    /// How it came about, and how it ends.
    pub lifecycle: PodLifecycle,
}

/// Whether the kubelet starts a pod's containers again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whenever they end.
    #[default]
    Always,
    /// When they fail.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Always, Self::OnFailure, Self::Never];

    /// As `spec.restartPolicy` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }
}

/// The object that made a pod and takes care of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Its kind, e.g. `DaemonSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// How a pod came about, and how it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLifecycle {
    /// `metadata.creationTimestamp`, in seconds since 1970; `None` = not said.
    pub created: Option<i64>,
    /// Whether it has a `metadata.deletionTimestamp`.
    pub deleting: bool,
    /// Seconds that its processes have to end: `metadata.deletionGracePeriodSeconds` of a pod that is being deleted, else
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_period: Option<u32>,
    /// Whether it mirrors a static pod: the kubelet made the object.
    pub mirror: bool,
    /// Of `metadata.ownerReferences` the one that is marked as the controller, else the first.
    pub owner: Option<PodOwner>,
    /// `spec.restartPolicy`.
    pub restart_policy: RestartPolicy,
}

/// Where a pod declares its class; the first counts.
const QOS_PLACES: [&str; 5] = [
    "label koordinator.sh/qosClass",
    "label alibabacloud.com/qosClass",
    "annotation koordinator.sh/qosClass",
    "annotation alibabacloud.com/qosClass",
    "label alibabacloud.com/qos",
];

impl Pod {
    /// Labels and annotations that somebody meant to declare a class, each with the place that counts.
    pub fn misspelt_qos(&self) -> Vec<(String, &'static str)> {
        let nearly = |kind: &str, key: &str| {
            let place = QOS_PLACES.into_iter().find(|place| {
                place.split_once(' ').is_some_and(|(of, known)| of == kind && spelling::is_nearly(key, known))
            })?;
            Some((format!("{kind} {key}"), place))
        };
        let labels = self.labels.keys().filter_map(|key| nearly("label", key));
        labels.chain(self.annotations.keys().filter_map(|key| nearly("annotation", key))).collect()
    }

    /// Where the pod declares a class, and the word that stands there: the first of the places that the protocol knows, label
    /// before annotation and `koordinator.sh` before `alibabacloud.com`.
    pub fn qos_word(&self) -> Option<(&'static str, &str)> {
        QOS_PLACES.into_iter().find_map(|place| {
            let (kind, key) = place.split_once(' ')?;
            let of = if kind == "label" { &self.labels } else { &self.annotations };
            Some((place, of.get(key)?.as_str()))
        })
    }

    /// The class that the pod declares, see [`Self::qos_word`]. A word that is no class counts as none and does not fall
    /// through to the next place.
    pub fn declared_qos(&self) -> Option<QosClass> {
        self.qos_word().and_then(|(_, word)| QosClass::parse(word))
    }

    /// The declared class, else the one that follows from Kubernetes' QoS.
    pub fn qos(&self) -> QosClass {
        self.declared_qos().unwrap_or_else(|| self.kube_qos.default_class())
    }

    /// Whether the kubelet runs the pod from a manifest of its own; the kubelet notes the source in an annotation.
    pub fn is_static(&self) -> bool {
        self.annotations.get("kubernetes.io/config.source").is_some_and(|source| source != "api")
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What is known of the node that qosm runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name; empty when not known.
    pub name: String,
    /// Labels, for node strategies.
    pub labels: BTreeMap<String, String>,
    /// `status.allocatable.memory`; `None` = all that the machine has.
    pub memory_allocatable: Option<Bytes>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` and `status.allocatable`, in the order of the names. What cannot be expressed is left out.
    pub resources: Vec<NodeResource>,
    /// Zones of the NodeResourceTopology, in the order of their numbers; empty = there is none.
    pub zones: Vec<NodeZone>,
}

impl Node {
    /// Whether policies are configured alike on both: what follows from the other fields is read as a column.
    pub fn configures_like(&self, other: &Self) -> bool {
        self.name == other.name && self.labels == other.labels && self.memory_allocatable == other.memory_allocatable
    }
}

/// One resource of a node or of a NUMA zone: CPU in thousandths of a CPU, everything else in its own unit, e.g. bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResource {
    /// Full name, e.g. `cpu` or `kubernetes.io/batch-cpu`.
    pub name: String,
    /// All there is; `None` = not said.
    pub capacity: Option<i64>,
    /// What pods may have of it; `None` = not said.
    pub allocatable: Option<i64>,
}

/// A NUMA node as the NodeResourceTopology tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeZone {
    /// The kernel's number of it.
    pub id: u32,
    /// In the order of the names.
    pub resources: Vec<NodeResource>,
}
