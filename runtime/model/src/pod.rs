//! Pods and containers as in their manifests and status, and the node on which they run.

use std::collections::BTreeMap;
use std::fmt;

use crate::spelling;
use crate::unit::{Bytes, MilliCpu};

mod resources;

pub use self::resources::{Moment, Resources};

/// Id of a pod on this node. Stable for the life of the pod; never reused while the agent runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// Id of a container on this node. A restarted container gets a new id.
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
    /// Parses the value of a QoS class label. Matching is exact; `None` for anything else.
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
    /// No request or limit is set.
    BestEffort,
}

impl KubeQos {
    /// The QoS class of a pod that declares none.
    pub fn default_class(self) -> QosClass {
        match self {
            Self::Guaranteed => QosClass::Lsr,
            Self::Burstable => QosClass::Ls,
            Self::BestEffort => QosClass::Be,
        }
    }

    /// The tier in which the pod's cgroup lies.
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

/// The role of a container in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContainerKind {
    /// Listed under `spec.containers`.
    Regular,
    /// An init container that runs to completion.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
}

/// The state of a container.
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
    /// The request; `None` if absent.
    pub request: Option<u64>,
    /// The limit; `None` if absent.
    pub limit: Option<u64>,
}

/// How to find a container's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCgroup {
    /// By the container ID in the status, `<runtime>://<id>`.
    Runtime(String),
    /// A path below each hierarchy's root, from the manifest.
    Bound(String),
    /// A directory of this name below the pod's cgroup, which the agent creates when it runs without a kubelet.
    Named(String),
    /// Not started yet.
    Unknown,
}

impl ContainerCgroup {
    /// The container ID without the runtime.
    pub fn runtime_id(&self) -> Option<&str> {
        match self {
            Self::Runtime(id) => Some(id.split_once("://").map_or(id.as_str(), |(_, id)| id)),
            Self::Bound(_) | Self::Named(_) | Self::Unknown => None,
        }
    }
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Name in the pod.
    pub name: String,
    /// Its role in the pod.
    pub kind: ContainerKind,
    /// Its state.
    pub state: ContainerState,
    /// How to find its cgroup.
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
    /// CPU and memory of the specification if the node does not run them yet; the fields above hold those that it runs.
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
    /// The pod's cgroup below each hierarchy's root, from the manifest; `None` for the place where a kubelet puts it.
    pub cgroup: Option<String>,
    /// The containers in the order of the specification: init containers and sidecars, then regular ones.
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
    /// `spec.resources` if the node does not run them yet; the fields above hold those that it runs.
    pub next: Option<Resources>,
    /// The kubelet's message about a resize that it has not carried out, e.g. `Infeasible: Node didn't have enough capacity`.
    pub resize: Option<String>,
    /// Creation, deletion and ownership of the pod.
    pub lifecycle: PodLifecycle,
}

/// Whether the kubelet restarts a pod's containers.
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

/// The object that created and manages a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Its kind, e.g. `DaemonSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// Creation, deletion and ownership of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLifecycle {
    /// `metadata.creationTimestamp`, in seconds since 1970; `None` if absent.
    pub created: Option<i64>,
    /// Whether it has a `metadata.deletionTimestamp`.
    pub deleting: bool,
    /// Seconds between SIGTERM and SIGKILL: `metadata.deletionGracePeriodSeconds` of a pod that is being deleted, else
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_period: Option<u32>,
    /// Whether the kubelet created the object to mirror a static pod.
    pub mirror: bool,
    /// The entry of `metadata.ownerReferences` that is marked as the controller, else the first.
    pub owner: Option<PodOwner>,
    /// `spec.restartPolicy`.
    pub restart_policy: RestartPolicy,
}

/// Labels and annotations in which a pod can declare its QoS class; the first present one counts.
const QOS_PLACES: [&str; 5] = [
    "label koordinator.sh/qosClass",
    "label alibabacloud.com/qosClass",
    "annotation koordinator.sh/qosClass",
    "annotation alibabacloud.com/qosClass",
    "label alibabacloud.com/qos",
];

/// Other labels and annotations that qosm and its policies read as they are. Annotations of the configuration have their protocols.
const OTHER_PLACES: [&str; 15] = [
    "annotation cpuset-scheduler",
    "annotation node.koordinator.sh/extended-resource-spec",
    "annotation qosm.io/paused",
    "annotation qosm.io/hold",
    "annotation qosm.io/cgroup",
    "annotation scheduling.koordinator.sh/resource-status",
    "annotation scheduling.koordinator.sh/resource-spec",
    "annotation scheduling.koordinator.sh/numa-topology-spec",
    "annotation koordinator.sh/eviction-policy",
    "annotation koordinator.sh/eviction-priority",
    "label koordinator.sh/priority-class",
    "label koordinator.sh/priority",
    "label koordinator.sh/eviction-enabled",
    "label koordinator.sh/core-sched-policy",
    "label koordinator.sh/core-sched-group-id",
];

/// Whether qosm and its policies read this label (`kind` is `label`) or annotation as it is.
pub(crate) fn is_read(kind: &str, key: &str) -> bool {
    let mut places = QOS_PLACES.into_iter().chain(OTHER_PLACES);
    places.any(|place| place.split_once(' ') == Some((kind, key)))
}

impl Pod {
    /// Labels and annotations whose keys differ from known ones in letter case or separators, each with the correct one.
    pub fn misspelt_keys(&self) -> Vec<(String, &'static str)> {
        let nearly = |kind: &str, key: &str| {
            let place = QOS_PLACES.into_iter().chain(OTHER_PLACES).find(|place| {
                place.split_once(' ').is_some_and(|(of, known)| of == kind && spelling::is_nearly(key, known))
            })?;
            Some((format!("{kind} {key}"), place))
        };
        let labels = self.labels.keys().filter_map(|key| nearly("label", key));
        labels.chain(self.annotations.keys().filter_map(|key| nearly("annotation", key))).collect()
    }

    /// Annotations below `qosm.io/` that qosm does not read, each with the similar key that it reads.
    pub fn slips(&self) -> Vec<(&str, &'static str)> {
        let own = || OTHER_PLACES.into_iter().filter_map(|place| place.strip_prefix("annotation qosm.io/"));
        let slips = self.annotations.keys().filter_map(|key| {
            let name = key.strip_prefix("qosm.io/")?;
            Some((key.as_str(), own().find(|known| spelling::is_slip(name, known))?))
        });
        slips.collect()
    }

    /// The label or annotation in which the pod declares its class, and its value. Labels precede annotations,
    /// `koordinator.sh` precedes `alibabacloud.com`.
    pub fn qos_word(&self) -> Option<(&'static str, &str)> {
        QOS_PLACES.into_iter().find_map(|place| {
            let (kind, key) = place.split_once(' ')?;
            let of = if kind == "label" { &self.labels } else { &self.annotations };
            Some((place, of.get(key)?.as_str()))
        })
    }

    /// The class that the pod declares, see [`Self::qos_word`]. An invalid value counts as no class; the next label or
    /// annotation is not tried.
    pub fn declared_qos(&self) -> Option<QosClass> {
        self.qos_word().and_then(|(_, word)| QosClass::parse(word))
    }

    /// The declared class, else the one that follows from Kubernetes' QoS.
    pub fn qos(&self) -> QosClass {
        self.declared_qos().unwrap_or_else(|| self.kube_qos.default_class())
    }

    /// Whether the kubelet runs the pod from a manifest of its own, which it records in an annotation.
    pub fn is_static(&self) -> bool {
        self.annotations.get("kubernetes.io/config.source").is_some_and(|source| source != "api")
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What is known about the node on which qosm runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name; empty if unknown.
    pub name: String,
    /// Labels, for node strategies.
    pub labels: BTreeMap<String, String>,
    /// `status.allocatable.memory`; `None` for all memory of the machine.
    pub memory_allocatable: Option<Bytes>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` and `status.allocatable`, ordered by name. Quantities that [`NodeResource`] cannot represent are
    /// left out.
    pub resources: Vec<NodeResource>,
    /// Zones of the NodeResourceTopology, ordered by number; empty if there is none.
    pub zones: Vec<NodeZone>,
}

impl Node {
    /// Whether policies have the same configuration on both nodes. The other fields do not affect it: policies read them
    /// as a column.
    pub fn configures_like(&self, other: &Self) -> bool {
        self.name == other.name && self.labels == other.labels && self.memory_allocatable == other.memory_allocatable
    }
}

/// One resource of a node or of a NUMA zone: CPU in thousandths of a CPU, everything else in its own unit, e.g. bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeResource {
    /// Full name, e.g. `cpu` or `kubernetes.io/batch-cpu`.
    pub name: String,
    /// Total amount; `None` if unknown.
    pub capacity: Option<i64>,
    /// Amount for pods; `None` if unknown.
    pub allocatable: Option<i64>,
}

/// A NUMA node in the NodeResourceTopology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeZone {
    /// The kernel's number of the NUMA node.
    pub id: u32,
    /// Its resources, ordered by name.
    pub resources: Vec<NodeResource>,
}
