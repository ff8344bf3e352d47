//! Interfaces through which a policy stages changes.

use crate::{
    ClassState, ContainerId, EvictionState, IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLimits, IoVolume,
    MigrationProgress, NodeKnob, NodeKnobState, Offer, PodId, Protection, ResourceState, Share, Target, Urgency,
};

/// CFS bandwidth. Each evaluation sets what the policy wants (see [`Declare`](crate::Declare)); a target that vanishes releases its
/// settings.
///
/// ```
/// use qosm_sdk::mock::{CPU_BURST, CPU_QUOTA, MockHost, Value};
/// use qosm_sdk::{CpuBandwidth, Target};
///
/// let (web, app) = (Target::Pod(1), Target::Container(7));
/// let mut host = MockHost::default();
/// host.set_quota(app, Some(60_000), "throttled in 4 of 10 periods");
/// host.set_quota(web, None, "it must not hold its containers back");
/// host.set_burst(app, 50_000, "asked for");
/// host.commit();
/// host.assert_held(app, CPU_QUOTA, 60_000);
/// host.assert_held(web, CPU_QUOTA, Value::Max);
///
/// host.release_quota(app);
/// host.release_burst(app);
/// host.commit();
/// host.assert_free(app, CPU_QUOTA);
/// host.assert_free(app, CPU_BURST);
/// ```
pub trait CpuBandwidth {
    /// CFS quota for each enforcement period, in microseconds; `None` lifts the limit.
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str);

    /// CFS burst in microseconds: unused quota that the cgroup may carry over to later periods. Where the kernel caps it at the quota, so
    /// does the host.
    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str);

    /// Releases the quota; the value of the next policy or the baseline applies again.
    fn release_quota(&mut self, target: Target);

    /// Releases the burst; the value of the next policy or the baseline applies again.
    fn release_burst(&mut self, target: Target);
}

/// CPU priority under contention. Each evaluation sets what the policy wants (see [`Declare`](crate::Declare)).
///
/// ```
/// use qosm_sdk::mock::{CPU_IDLE, CPU_WEIGHT, MockHost, Value};
/// use qosm_sdk::{CpuWeight, Target};
///
/// let app = Target::Container(7);
/// let mut host = MockHost::default();
/// host.set_weight(app, 200, "twice what a new cgroup has");
/// host.set_idle(7, true, "batch work");
/// host.assert_held(app, CPU_WEIGHT, 200);
/// host.assert_held(app, CPU_IDLE, 1);
/// host.set_shares(app, 2, "what a kubelet gives a pod without a request");
/// host.assert_held(app, CPU_WEIGHT, Value::Shares(2));
/// host.release_idle(7);
/// host.release_weight(app);
/// host.assert_free(app, CPU_IDLE);
/// ```
pub trait CpuWeight {
    /// CPU weight, 1 to 10000 as in cgroup v2; a new cgroup has 100. It is relative to the weights of sibling cgroups. While `cpu.idle` is
    /// set on the container, the weight is not written.
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str);

    /// Releases the weight; the value of the next policy or the baseline applies again.
    fn release_weight(&mut self, target: Target);

    /// The weight in shares of cgroup v1, 2 to 262144, the kubelet's unit: 1024 for each requested CPU. On v2 the host converts it by the
    /// formula of KEP-2254. Since 0.1.3.
    fn set_shares(&mut self, target: Target, shares: u32, reason: &str);

    /// `cpu.idle`: whether the container runs only on CPUs that no other container wants. Where the kernel lacks it, the host sets the
    /// lowest weight instead. While it is set, the container's CPU cannot be resized in place.
    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str);

    /// Releases `cpu.idle`; the value of the next policy or the baseline applies again, and the weight is restored.
    fn release_idle(&mut self, container: ContainerId);
}

/// Scheduling priority by group identity, and core scheduling groups, where the kernel has them. Each evaluation sets what the policy wants
/// (see [`Declare`](crate::Declare)). Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::{CPU_BVT, MockHost};
/// use qosm_sdk::{CpuIdentity, Target};
///
/// let mut host = MockHost::default();
/// assert!(host.identity_support().is_err(), "a kernel has none unless a test says so");
/// host.columns.group_identity = true;
/// assert_eq!(host.identity_support(), Ok(()));
/// host.set_identity(Target::Pod(1), -1, "batch");
/// host.assert_held(Target::Pod(1), CPU_BVT, -1);
/// host.release_identity(Target::Pod(1));
/// host.assert_free(Target::Pod(1), CPU_BVT);
/// ```
///
/// Core scheduling keeps containers of different groups off the threads of one core:
///
/// ```
/// use qosm_sdk::mock::{CORE_GROUP, MockHost};
/// use qosm_sdk::{CpuIdentity, Target, core_group};
///
/// let mut host = MockHost::default();
/// assert!(host.core_scheduling_support().is_err(), "a kernel has none unless a test says so");
/// host.columns.core_scheduling = true;
/// assert_eq!(host.core_scheduling_support(), Ok(()));
/// host.set_core_group(7, core_group("tenant a"), "the pod's group");
/// host.assert_held(Target::Container(7), CORE_GROUP, core_group("tenant a") as i64);
/// host.release_core_group(7);
/// host.assert_free(Target::Container(7), CORE_GROUP);
/// ```
pub trait CpuIdentity {
    /// Whether group identities can take effect on this node. If so, the node's switches may still have to be set through [`NodeKnobs`]:
    /// [`NodeKnob::SchedCore`] to 0 and [`NodeKnob::GroupIdentity`] to 1, if the kernel has them.
    ///
    /// # Errors
    ///
    /// What is missing, as text.
    fn identity_support(&mut self) -> Result<(), String>;

    /// Identity, -1 to 2: -1 is batch, 0 the value of a new cgroup, and 1 and 2 run first.
    fn set_identity(&mut self, target: Target, identity: i8, reason: &str);

    /// Releases the identity; the value of the next policy or the baseline applies again.
    fn release_identity(&mut self, target: Target);

    /// Whether containers can join core scheduling groups on this node.
    ///
    /// # Errors
    ///
    /// What is missing, as text.
    fn core_scheduling_support(&mut self) -> Result<(), String>;

    /// Puts a container into a core scheduling group: its threads share cores only with threads of containers in the same group, whichever
    /// policy put them there. `group` is 1 to 2^53 - 1, e.g. from [`core_group`](crate::core_group); 0 = in no group.
    fn set_core_group(&mut self, container: ContainerId, group: u64, reason: &str);

    /// Releases the group; the value of the next policy or the baseline applies again.
    fn release_core_group(&mut self, container: ContainerId);
}

/// Protection, throttling and reclaim of a memory cgroup.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Bound, MemoryProtection, Protection, Target};
///
/// let app = Target::Container(7);
/// let mut host = MockHost::default();
/// host.protect(app, &Protection { high: Some(Bound::Bytes(1 << 30)), ..Protection::NONE }, "80 % of the limit");
/// host.assert_held(app, "memory.high", 1 << 30);
///
/// host.protect(app, &Protection { min_bytes: Some(1 << 20), ..Protection::NONE }, "asked for");
/// host.assert_free(app, "memory.high");
/// host.release_protection(app);
/// host.assert_free(app, "memory.min");
/// ```
pub trait MemoryProtection {
    /// Replaces all values that the policy holds on the target's memory; fields that are `None` are released.
    fn protect(&mut self, target: Target, protection: &Protection, reason: &str);

    /// Releases all of them.
    fn release_protection(&mut self, target: Target);
}

/// The CPUs on which processes may run, and the NUMA nodes on which a container may have memory. When those nodes are full, the container
/// reclaims memory, and in the end the kernel kills it.
///
/// ```
/// use qosm_sdk::mock::{CPUSET_CPUS, CPUSET_MEMS, MockHost};
/// use qosm_sdk::{Cpuset, Target, Tier};
///
/// let mut host = MockHost::default();
/// host.set_memory_nodes(7, &[0, 2], "it runs there");
/// host.assert_held(Target::Container(7), CPUSET_MEMS, 0b101);
/// host.release_memory_nodes(7);
/// host.assert_free(Target::Container(7), CPUSET_MEMS);
///
/// let tier = Target::Tier(Tier::BestEffort);
/// host.set_cpus(tier, &[2, 3, 70], "the others are busy");
/// host.assert_held(tier, CPUSET_CPUS, &[2, 3, 70]);
/// assert_eq!(host.held(tier, CPUSET_CPUS).map(|value| value.to_string()), Some("2-3,70".to_owned()));
/// host.release_cpus(tier);
/// host.assert_free(tier, CPUSET_CPUS);
/// ```
pub trait Cpuset {
    /// `cpuset.mems`: at least one node, with numbers below 63. On cgroup v2 the kernel moves pages from other nodes immediately and
    /// without a rate limit.
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str);

    /// Releases the nodes; the value of the next policy or the baseline applies again.
    fn release_memory_nodes(&mut self, container: ContainerId);

    /// `cpuset.cpus`: at least one CPU, with numbers below 1024. Cgroups below run within these CPUs. Since 0.1.3.
    fn set_cpus(&mut self, target: Target, cpus: &[u32], reason: &str);

    /// Releases the CPUs; the value of the next policy or the baseline applies again. Since 0.1.3.
    fn release_cpus(&mut self, target: Target);
}

/// Memory limits of pods and containers. Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::{MEMORY_MAX, MockHost, Value};
/// use qosm_sdk::{MemoryLimit, Target};
///
/// let mut host = MockHost::default();
/// host.set_memory_limit(Target::Pod(1), Some(1 << 30), "its batch memory");
/// host.assert_held(Target::Pod(1), MEMORY_MAX, 1 << 30);
/// host.set_memory_limit(Target::Pod(1), None, "one of its containers has no limit");
/// host.assert_held(Target::Pod(1), MEMORY_MAX, Value::Max);
/// host.release_memory_limit(Target::Pod(1));
/// host.assert_free(Target::Pod(1), MEMORY_MAX);
/// ```
pub trait MemoryLimit {
    /// `memory.max` in bytes; `None` = unlimited. The host raises it immediately, and lowers it as fast as memory can be reclaimed, never
    /// below the current use.
    fn set_memory_limit(&mut self, target: Target, bytes: Option<u64>, reason: &str);

    /// Releases the limit; the value of the next policy or the baseline applies again.
    fn release_memory_limit(&mut self, target: Target);
}

/// Settings of the node's kernel that apply to the whole node. Each evaluation sets what the policy wants (see
/// [`Declare`](crate::Declare)). Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{NodeKnob, NodeKnobState, NodeKnobs};
///
/// let mut host = MockHost::default();
/// let scale = NodeKnob::WatermarkScaleFactor;
/// host.columns.node_knobs = vec![NodeKnobState { knob: scale, value: Some(10), baseline: Some(10) }];
/// host.set_node_knob(scale, 150, "batch pods allocate in bursts");
/// host.commit();
/// assert_eq!(host.node_knob(scale), Some(150));
/// assert_eq!(host.node_knobs()[0].value, Some(150));
///
/// host.remark_node_knob(NodeKnob::MinFreeKbytes, "not raised: too little memory is free");
/// assert_eq!(host.node_remarks[0].knob, NodeKnob::MinFreeKbytes);
/// host.release_node_knob(scale);
/// assert_eq!(host.node_knob(scale), None);
/// ```
pub trait NodeKnobs {
    /// Sets a kernel setting. The host limits [`NodeKnob::MinFreeKbytes`] to 5 % of memory.
    fn set_node_knob(&mut self, knob: NodeKnob, value: u64, reason: &str);

    /// Releases it; the value of the next policy or the baseline applies again.
    fn release_node_knob(&mut self, knob: NodeKnob);

    /// The current state of all settings.
    fn node_knobs(&mut self) -> Vec<NodeKnobState>;

    /// Reports that the policy wanted to change a setting but did not, and why: [`Log::remark`](crate::Log::remark) for settings of the
    /// node.
    fn remark_node_knob(&mut self, knob: NodeKnob, reason: &str);
}

impl NodeKnob {
    /// All settings.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::NodeKnob::ALL[0].as_str(), "vm.min_free_kbytes");
    /// ```
    pub const ALL: [Self; 7] = [
        Self::MinFreeKbytes,
        Self::WatermarkScaleFactor,
        Self::MemcgReaper,
        Self::GroupIdentity,
        Self::IdleSaverWmark,
        Self::PageCacheLimit,
        Self::SchedCore,
    ];

    /// The name in plans and metrics.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::NodeKnob::WatermarkScaleFactor.as_str(), "vm.watermark_scale_factor");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MinFreeKbytes => "vm.min_free_kbytes",
            Self::WatermarkScaleFactor => "vm.watermark_scale_factor",
            Self::MemcgReaper => "memcg_reaper.reap_background",
            Self::GroupIdentity => "kernel.sched_group_identity_enabled",
            Self::IdleSaverWmark => "kernel.sched_idle_saver_wmark",
            Self::PageCacheLimit => "pagecache_limit.enabled",
            Self::SchedCore => "kernel.sched_core",
        }
    }
}

/// Limits and weights for reading from and writing to block devices, on cgroup v2. Each evaluation sets what the policy wants (see
/// [`Declare`](crate::Declare)); a target that vanishes releases its settings. The host refuses a device that the node does not have. Since
/// 0.1.3.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{BlockIo, IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLimits, IoVolume, Target, Tier};
///
/// let disk = IoDevice { major: 8, minor: 16 };
/// let mut host = MockHost::default();
/// host.columns.block_devices =
///     vec![IoDeviceInfo { device: disk, names: vec!["sdb".into()], partitions: vec![], volume_groups: vec!["data".into()] }];
/// host.columns.pod_volumes = vec![IoVolume { pod: 1, name: "pvc-1".into(), device: disk }];
/// assert_eq!(host.block_devices()[0].names, ["sdb"]);
/// assert_eq!(host.pod_volumes()[0].device, disk);
///
/// let batch = Target::Tier(Tier::BestEffort);
/// let limits = IoLimits { write_bps: Some(10 << 20), ..IoLimits::NONE };
/// host.set_io_max(batch, disk, &limits, "batch pods leave the disk to others");
/// host.set_io_weight(Target::Pod(1), disk, 200, "twice what a new cgroup has");
/// assert_eq!((host.io_max(batch, disk), host.io_weight(Target::Pod(1), disk)), (Some(limits), Some(200)));
/// host.release_io_max(batch, disk);
/// host.release_io_weight(Target::Pod(1), disk);
/// assert_eq!((host.io_max(batch, disk), host.io_weight(Target::Pod(1), disk)), (None, None));
///
/// let model = IoCostModel {
///     read_bps: 500 << 20, read_seq_iops: 90_000, read_rand_iops: 80_000, write_bps: 400 << 20, write_seq_iops: 70_000,
///     write_rand_iops: 60_000,
/// };
/// host.set_io_cost_model(disk, &model, "measured");
/// host.set_io_cost_qos(disk, &IoCostQos { enabled: true, latency: None }, "weights are to count");
/// assert_eq!(host.io_cost_qos(disk).map(|qos| qos.enabled), Some(true));
/// host.release_io_cost_qos(disk);
/// host.release_io_cost_model(disk);
/// assert_eq!(host.io_cost_model(disk), None);
///
/// host.remark_io_cost("this kernel has no cost model");
/// assert_eq!(host.io_remarks[0].reason, "this kernel has no cost model");
/// ```
pub trait BlockIo {
    /// The block devices of the node.
    fn block_devices(&mut self) -> Vec<IoDeviceInfo>;

    /// Volumes of the policy's pods that are file systems on one of these devices.
    fn pod_volumes(&mut self) -> Vec<IoVolume>;

    /// `io.max`: limits of a cgroup on one device, in bytes and operations per second, each at least 2. At least one field has to be a
    /// limit, and the policy then holds all four limits of the device. The kernel treats 4294967295 operations or more, and
    /// 18446744073709551615 bytes, as unlimited.
    fn set_io_max(&mut self, target: Target, device: IoDevice, limits: &IoLimits, reason: &str);

    /// Releases the limits; the values of the next policy or the baseline apply again.
    fn release_io_max(&mut self, target: Target, device: IoDevice);

    /// `io.weight`: the share of a cgroup while several wait for the device, 1 to 10000; a new cgroup has 100. It takes effect only where
    /// the cost model of the device is enabled.
    fn set_io_weight(&mut self, target: Target, device: IoDevice, weight: u32, reason: &str);

    /// Releases the weight; the value of the next policy or the baseline applies again.
    fn release_io_weight(&mut self, target: Target, device: IoDevice);

    /// `io.cost.qos`: whether the cost model of a device is enabled, for the whole node, and the latency that its requests may have.
    fn set_io_cost_qos(&mut self, device: IoDevice, qos: &IoCostQos, reason: &str);

    /// Releases `io.cost.qos`; the value of the next policy or the baseline applies again.
    fn release_io_cost_qos(&mut self, device: IoDevice);

    /// `io.cost.model`: the speed of a device, for the whole node. All fields have to be at least 1.
    fn set_io_cost_model(&mut self, device: IoDevice, model: &IoCostModel, reason: &str);

    /// Releases `io.cost.model`; the value of the next policy or the baseline applies again.
    fn release_io_cost_model(&mut self, device: IoDevice);

    /// Reports that the policy wanted to change the cost model of devices but did not, and why. For `io.max` and `io.weight` of a cgroup,
    /// use [`Log::remark`](crate::Log::remark).
    fn remark_io_cost(&mut self, reason: &str);
}

/// Moves pages between NUMA nodes. Moved pages stay where they are: this is no lease, and nothing is released.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{MigrationProgress, MigrationState, PageMigration};
///
/// let mut host = MockHost::default();
/// host.start_migration(7, &[0], &[1], 1, "it runs on node 1");
/// host.columns.migrations = vec![MigrationProgress {
///     container: 7, token: 1, state: MigrationState::Moving, pages_found: 57_000, pages_moved: 20_000, pages_failed: vec![],
///     pages_without_room: 0, failures: vec![], why: String::new(),
/// }];
/// assert!(host.migrations().iter().any(|progress| progress.token == 1 && progress.state == MigrationState::Moving));
/// host.stop_migration(7);
/// ```
pub trait PageMigration {
    /// Starts to move a container's pages from some nodes to others, and replaces a migration of it that is in progress. `token` is a
    /// number of the policy's choice that identifies the migration.
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str);

    /// Stops a container's migration.
    fn stop_migration(&mut self, container: ContainerId);

    /// Progress of the latest migration of each container.
    fn migrations(&mut self) -> Vec<MigrationProgress>;
}

/// Classes of containers with shares of the last-level caches and the memory bandwidth (resctrl). Since 0.1.2.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{CacheShare, ClassState, ResctrlAllocation, Share, Target};
///
/// let narrow = Share { cache: Some(CacheShare::Percent((0, 30))), bandwidth: None };
/// let mut host = MockHost::default();
/// host.define_class("be", &narrow, &[], "batch work gets a third of the cache");
/// host.assign_class(Target::Pod(1), "be", "it is batch work");
/// host.commit();
/// assert_eq!(host.class_of(Target::Pod(1)), Some("be"));
///
/// let state = ClassState { class: "be".into(), in_force: false, why: "no CLOSID is left".into() };
/// host.columns.class_states = vec![state];
/// assert!(!host.class_states()[0].in_force);
///
/// host.release_class(Target::Pod(1));
/// assert_eq!(host.class_of(Target::Pod(1)), None);
/// host.undefine_class("be");
/// assert!(host.classes().defined.is_empty());
/// ```
pub trait ResctrlAllocation {
    /// Defines or changes a class: `share` applies to every domain, except those that `domains` lists with shares of their own.
    fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str);

    /// Gives up a class; its members are then in no class.
    fn undefine_class(&mut self, class: &str);

    /// Puts a pod, or one container, into a class that this policy defined.
    fn assign_class(&mut self, target: Target, class: &str, reason: &str);

    /// Takes a pod or container out of its class.
    fn release_class(&mut self, target: Target);

    /// Whether this policy's classes are in force, and why not.
    fn class_states(&mut self) -> Vec<ClassState>;
}

/// Extended resources of the Kubernetes Node, for schedulers to allocate. Since 0.1.3.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{NodeResource, Offer, ResourceState, ZoneShare};
///
/// let zones = vec![ZoneShare { zone: 0, amount: 8_000 }, ZoneShare { zone: 1, amount: 4_000 }];
/// let offer = Offer { amount: 12_000, zones, origin: None };
/// let mut host = MockHost::default();
/// host.publish("kubernetes.io/batch-cpu", &offer, "the node's pods use 4 of 16 CPUs");
/// host.stale_after(300);
/// host.commit();
/// assert_eq!(host.published()["kubernetes.io/batch-cpu"], offer);
///
/// let why = "the controller does not answer".to_owned();
/// host.columns.resource_states =
///     vec![ResourceState { name: "kubernetes.io/batch-cpu".into(), amount: 0, in_force: false, why }];
/// assert!(!host.resource_states()[0].in_force);
///
/// host.withdraw("kubernetes.io/batch-cpu");
/// assert!(host.published().is_empty());
/// ```
pub trait NodeResource {
    /// Publishes a resource, or changes one that is published under this name.
    fn publish(&mut self, name: &str, offer: &Offer, reason: &str);

    /// Withdraws a resource.
    fn withdraw(&mut self, name: &str);

    /// Seconds without a sign of life from the agent after which this policy's published resources become invalid: 60 to 86400, 900 by
    /// default.
    fn stale_after(&mut self, seconds: u32);

    /// Whether this policy's resources are in force on the Node, and why not.
    fn resource_states(&mut self) -> Vec<ResourceState>;
}

/// Evicts pods from the node. Since 0.1.3.
///
/// A request stands until the pod is gone, until the policy withdraws it, or until five minutes pass without an eviction. Unlike a setting
/// it is made once: an evaluation that does not repeat it leaves it unchanged.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Eviction, EvictionOutcome, EvictionState, Urgency};
///
/// let mut host = MockHost::default();
/// host.evict(1, Urgency::Soon, Some(10), "MemoryUsage", "94.2 % of memory is used, and this pod uses most");
/// assert_eq!(host.take_evictions()[0].urgency, Some(Urgency::Soon));
///
/// let why = "its PodDisruptionBudget allows none".to_owned();
/// host.columns.evictions =
///     vec![EvictionState { pod_uid: "7f0c".into(), outcome: EvictionOutcome::Refused, why, age_msec: 2_000 }];
/// assert_eq!(host.evictions()[0].outcome, EvictionOutcome::Refused);
///
/// host.withdraw_eviction(1);
/// assert_eq!(host.take_evictions()[0].urgency, None);
/// ```
pub trait Eviction {
    /// Requests the eviction of a pod. `reason` is one word in CamelCase, as in Kubernetes events.
    fn evict(&mut self, pod: PodId, urgency: Urgency, grace_period_sec: Option<u32>, reason: &str, message: &str);

    /// Withdraws a request. A pod that was already evicted stays evicted.
    fn withdraw_eviction(&mut self, pod: PodId);

    /// State of this policy's requests of the last ten minutes.
    fn evictions(&mut self) -> Vec<EvictionState>;
}

impl Protection {
    /// No settings; the base of `Protection { min_bytes: Some(4096), ..Protection::NONE }`.
    ///
    /// ```
    /// use qosm_sdk::Protection;
    ///
    /// let wanted = Protection { min_bytes: Some(4096), ..Protection::NONE };
    /// assert_eq!(wanted.low_bytes, None);
    /// ```
    pub const NONE: Self = Self {
        min_bytes: None,
        low_bytes: None,
        high: None,
        wmark_ratio_percent: None,
        wmark_scale_permyriad: None,
        wmark_min_adj_percent: None,
        oom_priority: None,
        use_oom_priority: None,
        oom_group: None,
        page_cache_limit_enable: None,
        page_cache_limit_bytes: None,
        page_cache_reclaim_sync: None,
    };
}
