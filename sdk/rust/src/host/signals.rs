//! Interfaces through which a policy reads the node.

use crate::{
    ApplicationUse, Bandwidth, CacheDomain, CacheUsage, ClassSample, ContainerUsage, CpuSample, CpuSet, GroupUse,
    MemorySample, NodeMemory, NodeObjectFacts, NodePressure, NodeSample, NumaNode, NumaSample, PodObjectFacts,
    PressureSample, Topology,
};

/// Facts about the node, and its CPU and memory use.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{Node, NodeSample};
///
/// let mut host = MockHost::default();
/// host.columns.node = Some(NodeSample { cpu_usage_usec: Some(6_000_000), ..mock::node(8, 32 << 30) });
/// let node = host.node();
/// assert_eq!((node.cpus, node.cpu_usage_usec), (8, Some(6_000_000)));
/// ```
///
/// Use by tiers and pods:
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{Group, GroupUse, Node, Tier};
///
/// let mut host = MockHost::default();
/// host.columns.groups =
///     vec![GroupUse { cpu_usage_usec: Some(2_000_000), ..mock::group_use(Group::Tier(Tier::BestEffort)) }];
/// let batch = host.group_use().into_iter().find(|used| used.group == Group::Tier(Tier::BestEffort));
/// assert_eq!(batch.and_then(|batch| batch.cpu_usage_usec), Some(2_000_000));
/// assert!(host.node_memory().is_none() && host.node_pressure().is_none(), "nothing was said of them");
/// ```
///
/// Use by applications outside Kubernetes:
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{ApplicationUse, Node};
///
/// let mut host = MockHost::default();
/// host.columns.applications = vec![ApplicationUse {
///     name: "etl".into(), qos: None, priority: Some("koord-batch".into()), tier: None, cpu_usage_usec: Some(3_000_000), memory: None,
/// }];
/// assert_eq!(host.application_use()[0].cpu_usage_usec, Some(3_000_000));
/// ```
pub trait Node {
    /// The node's CPUs, memory and use.
    fn node(&mut self) -> NodeSample;

    /// Memory of the whole node, with the kernel's watermarks. `None` if it cannot be read. Since 0.1.3.
    fn node_memory(&mut self) -> Option<NodeMemory>;

    /// Pressure of the whole node over the window. `None` if the kernel does not count it, or before the second reading. Since 0.1.3.
    fn node_pressure(&mut self) -> Option<NodePressure>;

    /// Use by the tiers, by every pod with a cgroup, and by everything outside of kubepods. The host reads it only for policies that call
    /// this function. Since 0.1.3.
    fn group_use(&mut self) -> Vec<GroupUse>;

    /// Use by applications outside Kubernetes that the cluster's ConfigMap lists (`host-application-config`); applications without a cgroup
    /// are missing. The host reads it only for policies that call this function. Since 0.1.3.
    fn application_use(&mut self) -> Vec<ApplicationUse>;
}

/// CPU time, throttling and CFS bandwidth.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{Bandwidth, CpuSample, CpuStat, Target};
///
/// let mut host = MockHost::default();
/// host.columns.cpu = vec![CpuSample { nr_periods: 10, nr_throttled: 4, ..mock::cpu(7) }];
/// let quota = Some(50_000);
/// host.columns.bandwidth = vec![Bandwidth {
///     target: Target::Container(7), quota_usec: quota, baseline_quota_usec: quota, period_usec: 100_000,
/// }];
/// assert!(host.cpu().iter().any(|sample| sample.nr_throttled * 3 > sample.nr_periods));
///
/// let seen = host.bandwidth_generation();
/// assert_eq!(host.bandwidth()[0].quota_usec, quota);
/// assert_eq!(host.bandwidth_generation(), seen, "nothing changed: there is no need to read it again");
/// ```
pub trait CpuStat {
    /// CPU time and throttling of every running container over the window. A container is missing before its second reading.
    fn cpu(&mut self) -> Vec<CpuSample>;

    /// CFS quotas of the tier BestEffort, of pods and of running containers. Cgroups whose quota cannot be read are missing.
    fn bandwidth(&mut self) -> Vec<Bandwidth>;

    /// Increases when [`CpuStat::bandwidth`] differs from the previous evaluation. Quotas seldom change: a policy that already read the
    /// column at this generation need not read it again.
    fn bandwidth_generation(&mut self) -> u64;
}

/// Memory use.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{MemorySample, MemoryStat};
///
/// let sample = MemorySample { usage_bytes: 3 << 20, anon_bytes: 2 << 20, ..mock::memory(7) };
/// let mut host = MockHost::default();
/// host.columns.memory = vec![sample];
/// assert_eq!(host.memory(), [sample]);
/// ```
pub trait MemoryStat {
    /// Memory of every running container.
    fn memory(&mut self) -> Vec<MemorySample>;
}

/// Pressure stall information.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{Pressure, PressureSample, Stall};
///
/// let waits = Stall { some_usec: 150_000, full_usec: 20_000 };
/// let mut host = MockHost::default();
/// host.columns.pressure = vec![PressureSample { memory: waits, ..mock::pressure(7) }];
/// assert_eq!(host.pressure()[0].memory.some_usec, 150_000);
/// ```
pub trait Pressure {
    /// Stall time of every running container over the window; containers without pressure files are missing.
    fn pressure(&mut self) -> Vec<PressureSample>;
}

/// NUMA nodes, and the nodes on which containers run and have their memory.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{NumaNode, NumaSample, NumaShare, NumaStat};
///
/// let node = |id, distances| NumaNode {
///     id, cpus: 4, memory_bytes: 1 << 34, free_bytes: 1 << 33, available_bytes: 1 << 33, distances,
/// };
/// let mut host = MockHost::default();
/// host.columns.numa_nodes = vec![node(0, vec![10, 20]), node(1, vec![20, 10])];
/// host.columns.numa = vec![NumaSample {
///     container: 7, identity: 1, cpu_nodes: vec![1], memory_nodes: vec![0, 1],
///     pages: vec![NumaShare { node: 0, pages: 57_000 }],
/// }];
/// assert_eq!(host.numa_nodes().len(), 2);
/// assert!(host.numa().iter().any(|sample| sample.pages.iter().any(|share| !sample.cpu_nodes.contains(&share.node))));
/// ```
pub trait NumaStat {
    /// The NUMA nodes that are online, by number; empty while no pod is configured.
    fn numa_nodes(&mut self) -> Vec<NumaNode>;

    /// Running containers of the pods that are configured for this policy. Empty on a machine with memory on one NUMA node only.
    fn numa(&mut self) -> Vec<NumaSample>;
}

/// The machine's CPUs, and which cgroups may run on which CPUs. Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{CpuManager, CpuSet, CpuTopology, Target, Tier, Topology};
///
/// let mut host = MockHost::default();
/// host.columns.cpu_topology = Some(Topology { manager: CpuManager::Static, ..mock::topology(4) });
/// host.columns.cpu_sets = vec![CpuSet { target: Target::Tier(Tier::BestEffort), cpus: vec![0, 1] }];
/// let seen = host.cpu_topology_generation();
/// assert_eq!(host.cpu_topology().cpus.len(), 4);
/// assert_eq!(host.cpu_topology_generation(), seen, "nothing changed: there is no need to read it again");
/// assert_eq!(host.cpu_sets()[0].cpus, [0, 1]);
/// ```
pub trait CpuTopology {
    /// All CPUs that are present, and those that are not available to every pod.
    fn cpu_topology(&mut self) -> Topology;

    /// Increases when [`CpuTopology::cpu_topology`] differs from the previous evaluation.
    fn cpu_topology_generation(&mut self) -> u64;

    /// The CPUs in force for the tiers, and for pods and running containers of the tier BestEffort. The host reads them only for policies
    /// that call this function.
    fn cpu_sets(&mut self) -> Vec<CpuSet>;
}

/// Use of the last-level caches and the memory bandwidth. Since 0.1.2.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{CacheDomain, CacheUsage, ClassSample, ContainerUsage, ResctrlMonitor};
///
/// let mut host = MockHost::default();
/// let usage = CacheUsage { domain: 0, occupancy_bytes: Some(6 << 20), local_bytes: None, total_bytes: Some(900 << 20) };
/// host.columns.container_usage = vec![ContainerUsage { container: 7, usage: vec![usage] }];
/// assert_eq!(host.container_usage()[0].usage[0].occupancy_bytes, Some(6 << 20));
///
/// host.columns.cache_domains = vec![CacheDomain { id: 0, cache_ways: 11, cache_bytes: None, divides_bandwidth: true }];
/// assert_eq!(host.cache_domains()[0].cache_ways, 11);
///
/// host.columns.class_usage = vec![ClassSample { class: "be".into(), usage: vec![usage] }];
/// host.columns.rest_usage = vec![usage];
/// assert_eq!((host.class_usage().len(), host.rest_usage().len()), (1, 1));
/// ```
pub trait ResctrlMonitor {
    /// The domains that are online; empty on a machine without resctrl.
    fn cache_domains(&mut self) -> Vec<CacheDomain>;

    /// Use by those of this policy's classes that are in force.
    fn class_usage(&mut self) -> Vec<ClassSample>;

    /// Use by running containers of the pods that are configured for this policy. Containers that the processor does not count are missing.
    fn container_usage(&mut self) -> Vec<ContainerUsage>;

    /// Use by everything that is in no class.
    fn rest_usage(&mut self) -> Vec<CacheUsage>;
}

/// The Kubernetes Node object. Since 0.1.3.
///
/// ```
/// use qosm_sdk::NodeObject;
/// use qosm_sdk::mock::{self, MockHost};
///
/// let mut host = MockHost::default();
/// assert_eq!(host.node_object(), None, "not known yet");
/// host.columns.node_object = Some(mock::node_object("edge-7", 8, 32 << 30));
/// assert_eq!(host.node_object().map(|node| node.name), Some("edge-7".into()));
///
/// let seen = host.node_object_generation();
/// assert_eq!(host.node_object_generation(), seen, "nothing changed: there is no need to read it again");
/// ```
pub trait NodeObject {
    /// Labels, annotations, and capacity and allocatable of each resource; `None` before the first evaluation.
    fn node_object(&mut self) -> Option<NodeObjectFacts>;

    /// Increases when the object differs from the previous evaluation.
    fn node_object_generation(&mut self) -> u64;
}

/// Fields of Pod objects beyond those in [`PodFacts`](crate::PodFacts). Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::{self, MockHost};
/// use qosm_sdk::{PodObject, PodObjectFacts};
///
/// let mut host = MockHost::default();
/// host.columns.pod_objects = vec![PodObjectFacts { deleting: true, ..mock::pod_object(1) }];
/// assert!(host.pod_objects().iter().any(|object| object.pod == 1 && object.deleting));
/// assert_eq!(host.pod_objects_generation(), 1);
/// ```
pub trait PodObject {
    /// The objects of all pods that the policy was given.
    fn pod_objects(&mut self) -> Vec<PodObjectFacts>;

    /// Increases when [`PodObject::pod_objects`] differs from the previous evaluation.
    fn pod_objects_generation(&mut self) -> u64;
}

/// The cluster ConfigMap, by key. Since 0.1.3.
///
/// ```
/// use qosm_sdk::ClusterConfig;
/// use qosm_sdk::mock::{ConfigKey, MockHost};
///
/// let key = ConfigKey {
///     text: r#"{"clusterStrategy": {"enable": true}}"#.into(),
///     strategy: r#"{"enable":true}"#.into(),
/// };
/// let mut host = MockHost::default();
/// host.columns.cluster_config.insert("resource-threshold-config".into(), key);
/// assert_eq!(host.config_strategy("resource-threshold-config"), r#"{"enable":true}"#);
/// assert_eq!((host.config_text("colocation-config"), host.config_strategy("colocation-config")), (None, "{}".into()));
/// assert_eq!(host.config_generation(), 1);
/// ```
pub trait ClusterConfig {
    /// The text of a key, as written; `None` if there is no such key. It is a JSON object.
    fn config_text(&mut self, key: &str) -> Option<String>;

    /// The strategy for this node: a key's `clusterStrategy`, merged with the first of its `nodeStrategies` that matches this node. A JSON
    /// object; `{}` if the key has neither.
    fn config_strategy(&mut self, key: &str) -> String;

    /// Increases when a key's text or strategy differs from the previous evaluation.
    fn config_generation(&mut self) -> u64;
}
