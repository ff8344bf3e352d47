//! What a policy staged, and the columns that it reads.

use std::collections::BTreeMap;

use super::Value;
use crate::{
    ApplicationUse, Bandwidth, CacheDomain, CacheUsage, ClassSample, ClassState, ContainerId, ContainerUsage,
    CpuSample, CpuSet, EventKind, EvictionState, GroupUse, IoDeviceInfo, IoVolume, MemorySample, MigrationProgress,
    NodeKnob, NodeKnobState, NodeMemory, NodeObjectFacts, NodePressure, NodeSample, NumaNode, NumaSample, Offer, PodId,
    PodObjectFacts, PressureSample, ResourceState, Share, Target, Topology, Urgency,
};

/// A staged change of a lease.
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
    /// The cgroup.
    pub target: Target,
    /// The name of the knob, e.g. [`CPU_QUOTA`](super::CPU_QUOTA).
    pub knob: &'static str,
    /// The value to hold; `None` releases the knob.
    pub value: Option<Value>,
    /// The policy's reason; empty for a release.
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
    /// The pod that the event is about.
    pub pod: PodId,
    /// Normal or warning.
    pub kind: EventKind,
    /// One word in CamelCase, e.g. `NoMemoryLimit`.
    pub reason: String,
    /// The text of the event.
    pub message: String,
}

/// A setting of a knob that a policy wanted but did not make.
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
    /// The cgroup.
    pub target: Target,
    /// The name of the knob.
    pub knob: String,
    /// The policy's reason for not making the setting.
    pub reason: String,
}

/// A part of a key of the cluster ConfigMap that a policy cannot use as it is written.
///
/// ```
/// use qosm_sdk::Log;
/// use qosm_sdk::mock::{KeyProblem, MockHost};
///
/// let mut host = MockHost::default();
/// host.problem("system-config", "", "it is 3, ignored; give a JSON object");
/// let problem = KeyProblem {
///     key: "system-config".into(),
///     field: String::new(),
///     message: "it is 3, ignored; give a JSON object".into(),
/// };
/// assert_eq!(host.key_problems, [problem]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProblem {
    /// The key.
    pub key: String,
    /// Path of the field within the key; empty for the whole key.
    pub field: String,
    /// What is wrong, what counts instead, and what to write.
    pub message: String,
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
    /// The setting.
    pub knob: NodeKnob,
    /// The value to hold; `None` releases the setting.
    pub value: Option<u64>,
    /// The policy's reason; empty for a release.
    pub reason: String,
}

/// A setting of the node's kernel that a policy wanted but did not make.
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
    /// The setting.
    pub knob: NodeKnob,
    /// The policy's reason for not making the setting.
    pub reason: String,
}

/// The columns and other facts that a policy reads.
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
    /// CPUs, memory and use of the node; `None` = a node with 0 CPUs and 0 bytes of memory.
    pub node: Option<NodeSample>,
    /// Memory of the node; `None` = cannot be read.
    pub node_memory: Option<NodeMemory>,
    /// Pressure of the node; `None` = not counted.
    pub node_pressure: Option<NodePressure>,
    /// Use by tiers, pods, and everything outside of kubepods.
    pub groups: Vec<GroupUse>,
    /// Use by applications outside Kubernetes.
    pub applications: Vec<ApplicationUse>,
    /// The machine's CPUs; `None` = no CPUs.
    pub cpu_topology: Option<Topology>,
    /// CPUs in force, by cgroup.
    pub cpu_sets: Vec<CpuSet>,
    /// CPU time and throttling of containers.
    pub cpu: Vec<CpuSample>,
    /// CFS quotas.
    pub bandwidth: Vec<Bandwidth>,
    /// Memory of containers.
    pub memory: Vec<MemorySample>,
    /// Pressure of containers.
    pub pressure: Vec<PressureSample>,
    /// NUMA nodes.
    pub numa_nodes: Vec<NumaNode>,
    /// Memory of containers, by NUMA node.
    pub numa: Vec<NumaSample>,
    /// Progress of migrations.
    pub migrations: Vec<MigrationProgress>,
    /// Caches and memory bandwidth domains.
    pub cache_domains: Vec<CacheDomain>,
    /// Cache and memory bandwidth use by classes.
    pub class_usage: Vec<ClassSample>,
    /// Cache and memory bandwidth use by containers.
    pub container_usage: Vec<ContainerUsage>,
    /// Cache and memory bandwidth use by everything that is in no class.
    pub rest_usage: Vec<CacheUsage>,
    /// Whether classes are in force.
    pub class_states: Vec<ClassState>,
    /// The Node object; `None` = unknown.
    pub node_object: Option<NodeObjectFacts>,
    /// The pods' objects.
    pub pod_objects: Vec<PodObjectFacts>,
    /// The cluster ConfigMap, by key.
    pub cluster_config: BTreeMap<String, ConfigKey>,
    /// Whether group identities can take effect.
    pub group_identity: bool,
    /// Whether containers can join core scheduling groups.
    pub core_scheduling: bool,
    /// Settings of the node's kernel.
    pub node_knobs: Vec<NodeKnobState>,
    /// The block devices of the node.
    pub block_devices: Vec<IoDeviceInfo>,
    /// Volumes of pods on block devices.
    pub pod_volumes: Vec<IoVolume>,
    /// Whether published resources are in force.
    pub resource_states: Vec<ResourceState>,
    /// States of eviction requests.
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
    /// The text of the key.
    pub text: String,
    /// The strategy for this node: the text of a JSON object.
    pub strategy: String,
}

/// Classes with shares of caches and memory bandwidth, and their members.
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
    /// Shares by class: for every domain, and for domains with shares of their own.
    pub defined: BTreeMap<String, (Share, Vec<(u32, Share)>)>,
    /// Class by member.
    pub members: BTreeMap<Target, String>,
}

/// A staged change of a class or its members.
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
    /// Defines or changes a class.
    Define {
        /// Name of the class.
        class: String,
        /// Share on every domain that `domains` does not list.
        share: Share,
        /// Shares of individual domains.
        domains: Vec<(u32, Share)>,
        /// The policy's reason.
        reason: String,
    },
    /// Gives up a class; its members are then in no class.
    Undefine {
        /// Name of the class.
        class: String,
    },
    /// Puts a pod or container into a class.
    Assign {
        /// The pod or container.
        target: Target,
        /// Name of the class.
        class: String,
        /// The policy's reason.
        reason: String,
    },
    /// Takes a pod or container out of its class.
    Release {
        /// The pod or container.
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
    /// The container.
    pub container: ContainerId,
    /// Source and destination nodes; `None` stops the migration.
    pub way: Option<(Vec<u32>, Vec<u32>)>,
    /// The policy's token for the migration; 0 for a stop.
    pub token: u64,
    /// The policy's reason; empty for a stop.
    pub reason: String,
}

/// A staged change of a published resource.
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
    /// Publishes or changes a resource.
    Publish {
        /// Name of the resource.
        name: String,
        /// Amount of the resource.
        offer: Offer,
        /// The policy's reason.
        reason: String,
    },
    /// Withdraws a resource.
    Withdraw {
        /// Name of the resource.
        name: String,
    },
    /// Sets how long resources stay valid without a sign of life from the agent.
    StaleAfter {
        /// The time in seconds.
        seconds: u32,
    },
}

/// A staged request to evict a pod, or the withdrawal of one.
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
    /// How long the eviction can wait; `None` withdraws the request.
    pub urgency: Option<Urgency>,
    /// Seconds between SIGTERM and SIGKILL; `None` = the pod's own grace period.
    pub grace_period_sec: Option<u32>,
    /// One word in CamelCase; empty for a withdrawal.
    pub reason: String,
    /// The message; empty for a withdrawal.
    pub message: String,
}
