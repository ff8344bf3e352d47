//! What a policy asked for.

use std::collections::BTreeMap;

use super::Value;
use crate::{
    ApplicationUse, Bandwidth, CacheDomain, CacheUsage, ClassSample, ClassState, ContainerId, ContainerUsage,
    CpuSample, CpuSet, EventKind, EvictionState, GroupUse, IoDeviceInfo, IoVolume, MemorySample, MigrationProgress,
    NodeKnob, NodeKnobState, NodeMemory, NodeObjectFacts, NodePressure, NodeSample, NumaNode, NumaSample, Offer, PodId,
    PodObjectFacts, PressureSample, ResourceState, Share, Target, Topology, Urgency,
};

/// One staged change of leases.
///
/// ```
/// use qosm_sdk::mock::{CPU_QUOTA, MockHost, Staged, Value};
/// use qosm_sdk::{CpuBandwidth, Target};
///
/// let mut host = MockHost::default();
/// host.set_quota(Target::Container(7), None, "it is batch work");
/// let staged = Staged {
///     target: Target::Container(7),
///     knob: CPU_QUOTA,
///     value: Some(Value::Max),
///     reason: "it is batch work".into(),
/// };
/// assert_eq!(host.staged(), [staged]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// On which cgroup.
    pub target: Target,
    /// Which tunable, e.g. [`CPU_QUOTA`](super::CPU_QUOTA).
    pub knob: &'static str,
    /// What to hold; `None` gives it up.
    pub value: Option<Value>,
    /// Why, in the policy's words; empty when given up.
    pub reason: String,
}

/// An event for a pod's owner.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{EventKind, PodEvent};
///
/// let mut host = MockHost::default();
/// host.emit(1, EventKind::Normal, "Raised", "the quota was raised");
/// assert_eq!(host.events[0].reason, "Raised");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The pod.
    pub pod: PodId,
    /// How much it matters.
    pub kind: EventKind,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
}

/// What a policy wanted of a knob and did not do.
///
/// ```
/// use qosm_sdk::mock::{CPU_QUOTA, MockHost, Remark};
/// use qosm_sdk::{Log, Target};
///
/// let mut host = MockHost::default();
/// host.remark(Target::Container(7), CPU_QUOTA, "not raised: the node is busy");
/// let remark =
///     Remark { target: Target::Container(7), knob: CPU_QUOTA.into(), reason: "not raised: the node is busy".into() };
/// assert_eq!(host.remarks, [remark]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Of which cgroup.
    pub target: Target,
    /// Which tunable.
    pub knob: String,
    /// Why not, in the policy's words.
    pub reason: String,
}

/// A staged change of a setting of the node's kernel.
///
/// ```
/// use qosm_sdk::mock::{MockHost, NodeKnobChange};
/// use qosm_sdk::{NodeKnob, NodeKnobs};
///
/// let mut host = MockHost::default();
/// host.set_node_knob(NodeKnob::MemcgReaper, 1, "asked for");
/// let change = NodeKnobChange { knob: NodeKnob::MemcgReaper, value: Some(1), reason: "asked for".into() };
/// assert_eq!(host.take_node_knob_changes(), [change]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKnobChange {
    /// Which.
    pub knob: NodeKnob,
    /// What to hold; `None` gives it up.
    pub value: Option<u64>,
    /// Why, in the policy's words; empty when given up.
    pub reason: String,
}

/// What a policy wanted of a setting of the node's kernel and did not do.
///
/// ```
/// use qosm_sdk::mock::{MockHost, NodeRemark};
/// use qosm_sdk::{NodeKnob, NodeKnobs};
///
/// let mut host = MockHost::default();
/// host.remark_node_knob(NodeKnob::MemcgReaper, "this kernel has none");
/// let remark = NodeRemark { knob: NodeKnob::MemcgReaper, reason: "this kernel has none".into() };
/// assert_eq!(host.node_remarks, [remark]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRemark {
    /// Of which.
    pub knob: NodeKnob,
    /// Why not, in the policy's words.
    pub reason: String,
}

/// What a policy can measure.
///
/// ```
/// use qosm_sdk::CpuStat;
/// use qosm_sdk::mock::{self, Columns, MockHost};
///
/// let mut host = MockHost::default();
/// host.columns = Columns { cpu: vec![mock::cpu(7)], ..Columns::default() };
/// assert_eq!(host.cpu(), [mock::cpu(7)]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The node.
    pub node: Option<NodeSample>,
    /// Memory of the node.
    pub node_memory: Option<NodeMemory>,
    /// Pressure of the node.
    pub node_pressure: Option<NodePressure>,
    /// What tiers, pods and all else use.
    pub groups: Vec<GroupUse>,
    /// What applications beside Kubernetes use.
    pub applications: Vec<ApplicationUse>,
    /// The machine's CPUs.
    pub cpu_topology: Option<Topology>,
    /// CPUs in force.
    pub cpu_sets: Vec<CpuSet>,
    /// CPU time and throttling.
    pub cpu: Vec<CpuSample>,
    /// Quotas.
    pub bandwidth: Vec<Bandwidth>,
    /// Memory use.
    pub memory: Vec<MemorySample>,
    /// Pressure.
    pub pressure: Vec<PressureSample>,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaNode>,
    /// Where memory lies.
    pub numa: Vec<NumaSample>,
    /// How far migrations are.
    pub migrations: Vec<MigrationProgress>,
    /// Caches that can be divided or counted.
    pub cache_domains: Vec<CacheDomain>,
    /// What classes use.
    pub class_usage: Vec<ClassSample>,
    /// What containers use of caches and memory bandwidth.
    pub container_usage: Vec<ContainerUsage>,
    /// What those use that are in no class.
    pub rest_usage: Vec<CacheUsage>,
    /// How classes fare.
    pub class_states: Vec<ClassState>,
    /// The Node object; `None` = not known.
    pub node_object: Option<NodeObjectFacts>,
    /// What Pod objects say.
    pub pod_objects: Vec<PodObjectFacts>,
    /// The cluster ConfigMap, by key.
    pub cluster_config: BTreeMap<String, ConfigKey>,
    /// Whether group identities can be brought into force.
    pub group_identity: bool,
    /// Whether containers can be put into core scheduling groups.
    pub core_scheduling: bool,
    /// Settings of the node's kernel.
    pub node_knobs: Vec<NodeKnobState>,
    /// The block devices of the node.
    pub block_devices: Vec<IoDeviceInfo>,
    /// Volumes of pods on them.
    pub pod_volumes: Vec<IoVolume>,
    /// How published resources fare.
    pub resource_states: Vec<ResourceState>,
    /// What became of evictions.
    pub evictions: Vec<EvictionState>,
}

/// One key of the cluster ConfigMap.
///
/// ```
/// use qosm_sdk::mock::ConfigKey;
///
/// let key = ConfigKey { text: "{}".into(), strategy: "{}".into() };
/// assert_eq!(key.text, key.strategy);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigKey {
    /// Its text.
    pub text: String,
    /// Its strategy for this node: the text of a JSON object.
    pub strategy: String,
}

/// Classes of shares, and who is in them.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{ResctrlAllocation, Share};
///
/// let mut host = MockHost::default();
/// host.define_class("ls", &Share { cache: None, bandwidth: None }, &[], "all of it");
/// assert!(host.classes().defined.contains_key("ls"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Classes {
    /// What each may use: on every domain, and on those that differ.
    pub defined: BTreeMap<String, (Share, Vec<(u32, Share)>)>,
    /// Who is in which.
    pub members: BTreeMap<Target, String>,
}

/// A staged change of classes, or of who is in them.
///
/// ```
/// use qosm_sdk::mock::{ClassChange, MockHost};
/// use qosm_sdk::{ResctrlAllocation, Target};
///
/// let mut host = MockHost::default();
/// host.release_class(Target::Pod(1));
/// assert_eq!(host.take_class_changes(), [ClassChange::Release { target: Target::Pod(1) }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassChange {
    /// A class is defined, or changed.
    Define {
        /// Its name.
        class: String,
        /// What it may use on every domain.
        share: Share,
        /// What it may use on those that differ.
        domains: Vec<(u32, Share)>,
        /// Why, in the policy's words.
        reason: String,
    },
    /// A class is given up; its members are in none then.
    Undefine {
        /// Its name.
        class: String,
    },
    /// A pod or container is put into a class.
    Assign {
        /// Whom.
        target: Target,
        /// Into which.
        class: String,
        /// Why, in the policy's words.
        reason: String,
    },
    /// It is taken out again.
    Release {
        /// Whom.
        target: Target,
    },
}

/// A staged start or stop of a migration.
///
/// ```
/// use qosm_sdk::PageMigration;
/// use qosm_sdk::mock::MockHost;
///
/// let mut host = MockHost::default();
/// host.start_migration(7, &[0], &[1], 1, "it runs on node 1");
/// assert_eq!(host.take_migrations()[0].way, Some((vec![0], vec![1])));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Whose pages.
    pub container: ContainerId,
    /// From which nodes to which; `None` stops it.
    pub way: Option<(Vec<u32>, Vec<u32>)>,
    /// The policy's number for it; 0 for a stop.
    pub token: u64,
    /// Why, in the policy's words; empty for a stop.
    pub reason: String,
}

/// A staged change of what is published.
///
/// ```
/// use qosm_sdk::NodeResource;
/// use qosm_sdk::mock::{MockHost, ResourceChange};
///
/// let mut host = MockHost::default();
/// host.stale_after(300);
/// assert_eq!(host.take_resource_changes(), [ResourceChange::StaleAfter { seconds: 300 }]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceChange {
    /// A resource is published, or changed.
    Publish {
        /// Its name.
        name: String,
        /// How much there is of it.
        offer: Offer,
        /// Why, in the policy's words.
        reason: String,
    },
    /// A resource is taken away.
    Withdraw {
        /// Its name.
        name: String,
    },
    /// How long resources hold without a word of the agent.
    StaleAfter {
        /// In seconds.
        seconds: u32,
    },
}

/// A staged request to evict a pod, or its withdrawal.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Eviction, Urgency};
///
/// let mut host = MockHost::default();
/// host.evict(1, Urgency::Now, None, "MemoryPressure", "memory is about to run out");
/// assert_eq!(host.take_evictions()[0].reason, "MemoryPressure");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRequest {
    /// The pod.
    pub pod: PodId,
    /// How long it can wait; `None` takes the request back.
    pub urgency: Option<Urgency>,
    /// Seconds between SIGTERM and SIGKILL; `None` = the pod's own.
    pub grace_period_sec: Option<u32>,
    /// One word in camel case; empty for a withdrawal.
    pub reason: String,
    /// A sentence; empty for a withdrawal.
    pub message: String,
}
