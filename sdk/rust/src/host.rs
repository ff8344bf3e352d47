//! What a policy may ask and stage: one trait for each interface of the contract, and [`Host`] for all of them.
//!
//! A policy's entry points take `H: Host`; its own functions do well to take what they use, e.g. `&mut impl CpuBandwidth`.

use crate::{
    Bandwidth, CacheDomain, CacheUsage, ClassSample, ClassState, ContainerId, ContainerUsage, CpuSample, EventKind,
    Level, MemorySample, MigrationProgress, NodeSample, NumaNode, NumaSample, PodFacts, PodId, PressureSample,
    Protection, Share, Target,
};

/// What the policy has to say to the operator. Always granted. Lines beyond the host's bound are dropped and counted.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Level, Log};
///
/// let mut host = MockHost::default();
/// host.log(Level::Info, "3 quotas raised");
/// assert_eq!(host.log, [(Level::Info, "3 quotas raised".to_owned())]);
/// ```
pub trait Log {
    /// Writes one line.
    fn log(&mut self, level: Level, message: &str);
}

/// A small memory that survives a restart of the agent and a new version of the policy. Always granted.
///
/// ```
/// use qosm_sdk::State;
/// use qosm_sdk::mock::MockHost;
///
/// let mut host = MockHost::default();
/// assert!(host.load_state().is_empty(), "nothing was saved yet");
/// host.save_state(b"what the next instance should know")?;
/// host.commit();
/// assert_eq!(host.load_state(), b"what the next instance should know");
/// # Ok::<(), String>(())
/// ```
pub trait State {
    /// What was saved last; empty at first.
    fn load_state(&mut self) -> Vec<u8>;

    /// Replaces it, when the call returns normally.
    ///
    /// # Errors
    ///
    /// More than 65536 bytes; what was there stays.
    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// Facts about the node, and its CPU use.
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
pub trait Node {
    /// Reads the node.
    fn node(&mut self) -> NodeSample;
}

/// CPU time, throttling and CFS bandwidth.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Bandwidth, CpuSample, CpuStat, Target};
///
/// let mut host = MockHost::default();
/// host.columns.cpu =
///     vec![CpuSample { container: 7, usage_usec: 480_000, nr_periods: 10, nr_throttled: 4, throttled_usec: 90_000 }];
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
    /// CPU time and throttling of every running container over the window. A container is missing until it was read twice.
    fn cpu(&mut self) -> Vec<CpuSample>;

    /// CFS quotas of pods and running containers; those whose quota cannot be read are missing.
    fn bandwidth(&mut self) -> Vec<Bandwidth>;

    /// Grows when [`CpuStat::bandwidth`] differs from what it was at the evaluation before. Quotas seldom change, and a column
    /// that was read at this generation need not be handed over again.
    fn bandwidth_generation(&mut self) -> u64;
}

/// Memory use.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{MemorySample, MemoryStat};
///
/// let sample = MemorySample {
///     container: 7, usage_bytes: 3 << 20, anon_bytes: 2 << 20, file_bytes: 1 << 20, inactive_file_bytes: 0, high_events: 0,
///     max_events: 0, oom_kills: 0,
/// };
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
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Pressure, PressureSample, Stall};
///
/// let calm = Stall { some_usec: 0, full_usec: 0 };
/// let waits = Stall { some_usec: 150_000, full_usec: 20_000 };
/// let mut host = MockHost::default();
/// host.columns.pressure = vec![PressureSample { container: 7, cpu: calm, memory: waits, io: calm }];
/// assert_eq!(host.pressure()[0].memory.some_usec, 150_000);
/// ```
pub trait Pressure {
    /// Time lost by every running container within the window; containers without pressure files are missing.
    fn pressure(&mut self) -> Vec<PressureSample>;
}

/// NUMA nodes, and where containers run and have their memory.
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
    /// The NUMA nodes that are online, by number.
    fn numa_nodes(&mut self) -> Vec<NumaNode>;

    /// Running containers of the pods that are configured for this policy. Empty on a machine whose memory is on one node.
    fn numa(&mut self) -> Vec<NumaSample>;
}

/// Moving pages between NUMA nodes. A page that was moved stays: there is nothing to give back.
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
    /// Has a container's pages moved from some nodes to others, in place of what is under way for it. `token` is the policy's own
    /// number for it.
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str);

    /// Calls a container's migration off.
    fn stop_migration(&mut self, container: ContainerId);

    /// How far the latest migration of each container is.
    fn migrations(&mut self) -> Vec<MigrationProgress>;
}

/// CFS bandwidth. A setting stays until it is set anew or released; a target that vanishes releases it.
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

    /// CFS burst in microseconds: unused quota that may be carried over. Where the kernel caps it at the quota, so does
    /// the host.
    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str);

    /// Gives up the quota; what lies beneath comes back.
    fn release_quota(&mut self, target: Target);

    /// Gives up the burst; what lies beneath comes back.
    fn release_burst(&mut self, target: Target);
}

/// Who goes first where more CPU time is wanted than there is. A setting stays until it is set anew or released.
///
/// ```
/// use qosm_sdk::mock::{CPU_IDLE, CPU_WEIGHT, MockHost};
/// use qosm_sdk::{CpuWeight, Target};
///
/// let app = Target::Container(7);
/// let mut host = MockHost::default();
/// host.set_weight(app, 200, "twice what a new cgroup has");
/// host.set_idle(7, true, "batch work");
/// host.assert_held(app, CPU_WEIGHT, 200);
/// host.assert_held(app, CPU_IDLE, 1);
/// host.release_idle(7);
/// host.release_weight(app);
/// host.assert_free(app, CPU_IDLE);
/// ```
pub trait CpuWeight {
    /// CPU weight, 1 to 10000 as in cgroup v2; a new cgroup has 100. What counts is how it compares with the siblings'. While the
    /// container is idle it waits.
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str);

    /// Gives up the weight; what lies beneath comes back.
    fn release_weight(&mut self, target: Target);

    /// `cpu.idle`: whether the container runs only on CPUs that no other wants. The lowest weight where the kernel lacks it. While
    /// it is set, the container's CPU cannot be resized in place.
    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str);

    /// Gives it up; what lies beneath comes back, the weight included.
    fn release_idle(&mut self, container: ContainerId);
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
    /// Replaces all that the policy holds on the target's memory: fields that are `None` are released.
    fn protect(&mut self, target: Target, protection: &Protection, reason: &str);

    /// Gives up all of it.
    fn release_protection(&mut self, target: Target);
}

/// On which NUMA nodes a container may have memory. Where they are full, the container reclaims, and is killed in the end.
///
/// ```
/// use qosm_sdk::mock::{CPUSET_MEMS, MockHost};
/// use qosm_sdk::{Cpuset, Target};
///
/// let mut host = MockHost::default();
/// host.set_memory_nodes(7, &[0, 2], "it runs there");
/// host.assert_held(Target::Container(7), CPUSET_MEMS, 0b101);
/// host.release_memory_nodes(7);
/// host.assert_free(Target::Container(7), CPUSET_MEMS);
/// ```
pub trait Cpuset {
    /// `cpuset.mems`: these nodes, at least one, with numbers below 63. On cgroup v2 the kernel moves pages that lie elsewhere, at
    /// once and without a bound.
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str);

    /// Gives it up; what lies beneath comes back.
    fn release_memory_nodes(&mut self, container: ContainerId);
}

/// Events that the pod's owner sees.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{EventKind, PodEvent};
///
/// let mut host = MockHost::default();
/// host.emit(1, EventKind::Warning, "NoMemoryLimit", "memory.high needs a memory limit; set resources.limits.memory");
/// assert_eq!(host.events.len(), 1);
/// ```
pub trait PodEvent {
    /// Records an event on a pod. `reason` is one word in camel case.
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str);
}

/// Who uses the last-level caches and the memory bandwidth. Since 0.1.2.
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
    /// The domains that are online; empty where the machine has no resctrl.
    fn cache_domains(&mut self) -> Vec<CacheDomain>;

    /// What this policy's classes use that are in force.
    fn class_usage(&mut self) -> Vec<ClassSample>;

    /// The column: running containers of the pods that are configured for this policy, as far as they are counted.
    fn container_usage(&mut self) -> Vec<ContainerUsage>;

    /// What all those use that are in no class.
    fn rest_usage(&mut self) -> Vec<CacheUsage>;
}

/// Classes of containers, and what of the last-level caches and the memory bandwidth each may use. Since 0.1.2.
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
    /// Defines a class, or changes it: shares of every domain, and of those that differ.
    fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str);

    /// Gives up a class; its members are in none then.
    fn undefine_class(&mut self, class: &str);

    /// Puts a pod, or one container, into a class that this policy has defined.
    fn assign_class(&mut self, target: Target, class: &str, reason: &str);

    /// Takes it out again.
    fn release_class(&mut self, target: Target);

    /// How this policy's classes fare.
    fn class_states(&mut self) -> Vec<ClassState>;
}

/// What a [`Session`](crate::Session) tells a host that stands in for a node's. A node's own host knows it by itself.
#[doc(hidden)]
pub trait Rehearsal {
    /// A call begins. Only an evaluation has something to measure.
    fn begin(&mut self, is_evaluation: bool) {
        let _ = is_evaluation;
    }

    /// The policy is given pods, and others are gone.
    fn give(&mut self, upserted: &[PodFacts], removed: &[PodId]) {
        let _ = (upserted, removed);
    }

    /// The call has ended well, as far as the policy is concerned.
    ///
    /// # Errors
    ///
    /// The rule that was broken in it.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// All of it. What a policy does not call its component does not import.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{CpuBandwidth, CpuStat, Host, Target};
///
/// /// An entry point has all of it, ...
/// fn evaluate(host: &mut impl Host) {
///     lift(host);
/// }
///
/// /// ... and what it calls takes what it needs.
/// fn lift(host: &mut (impl CpuStat + CpuBandwidth)) {
///     for sample in host.cpu().into_iter().filter(|sample| sample.nr_throttled > 0) {
///         host.set_quota(Target::Container(sample.container), None, "it is throttled");
///     }
/// }
///
/// evaluate(&mut MockHost::default());
/// ```
pub trait Host:
    Rehearsal
    + Log
    + State
    + Node
    + CpuStat
    + MemoryStat
    + Pressure
    + NumaStat
    + CpuBandwidth
    + CpuWeight
    + MemoryProtection
    + Cpuset
    + PageMigration
    + ResctrlMonitor
    + ResctrlAllocation
    + PodEvent
{
}

impl<T> Host for T where
    T: Rehearsal
        + Log
        + State
        + Node
        + CpuStat
        + MemoryStat
        + Pressure
        + NumaStat
        + CpuBandwidth
        + CpuWeight
        + MemoryProtection
        + Cpuset
        + PageMigration
        + ResctrlMonitor
        + ResctrlAllocation
        + PodEvent
{
}

#[cfg(target_arch = "wasm32")]
pub use granted::Granted;

#[cfg(target_arch = "wasm32")]
mod granted {
    use super::*;
    use crate::bindings::qosm::policy as import;

    /// The host that runs the component.
    #[derive(Clone, Copy, Debug)]
    pub struct Granted;

    impl Rehearsal for Granted {}

    impl Log for Granted {
        fn log(&mut self, level: Level, message: &str) {
            import::log::write(level, message);
        }
    }

    impl State for Granted {
        fn load_state(&mut self) -> Vec<u8> {
            import::state::load()
        }

        fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
            import::state::save(bytes)
        }
    }

    impl Node for Granted {
        fn node(&mut self) -> NodeSample {
            import::node::read()
        }
    }

    impl CpuStat for Granted {
        fn cpu(&mut self) -> Vec<CpuSample> {
            import::cpu_stat::read()
        }

        fn bandwidth(&mut self) -> Vec<Bandwidth> {
            import::cpu_stat::read_bandwidth()
        }

        fn bandwidth_generation(&mut self) -> u64 {
            import::cpu_stat::bandwidth_generation()
        }
    }

    impl MemoryStat for Granted {
        fn memory(&mut self) -> Vec<MemorySample> {
            import::memory_stat::read()
        }
    }

    impl Pressure for Granted {
        fn pressure(&mut self) -> Vec<PressureSample> {
            import::pressure::read()
        }
    }

    impl NumaStat for Granted {
        fn numa_nodes(&mut self) -> Vec<NumaNode> {
            import::numa_stat::read_nodes()
        }

        fn numa(&mut self) -> Vec<NumaSample> {
            import::numa_stat::read()
        }
    }

    impl PageMigration for Granted {
        fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
            import::page_migration::start(container, from, to, token, reason);
        }

        fn stop_migration(&mut self, container: ContainerId) {
            import::page_migration::stop(container);
        }

        fn migrations(&mut self) -> Vec<MigrationProgress> {
            import::page_migration::read()
        }
    }

    impl CpuBandwidth for Granted {
        fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
            import::cpu_bandwidth::set_quota(target, quota_usec, reason);
        }

        fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
            import::cpu_bandwidth::set_burst(target, burst_usec, reason);
        }

        fn release_quota(&mut self, target: Target) {
            import::cpu_bandwidth::release_quota(target);
        }

        fn release_burst(&mut self, target: Target) {
            import::cpu_bandwidth::release_burst(target);
        }
    }

    impl CpuWeight for Granted {
        fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
            import::cpu_weight::set_weight(target, weight, reason);
        }

        fn release_weight(&mut self, target: Target) {
            import::cpu_weight::release_weight(target);
        }

        fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
            import::cpu_weight::set_idle(container, idle, reason);
        }

        fn release_idle(&mut self, container: ContainerId) {
            import::cpu_weight::release_idle(container);
        }
    }

    impl MemoryProtection for Granted {
        fn protect(&mut self, target: Target, protection: &Protection, reason: &str) {
            import::memory_protection::set(target, *protection, reason);
        }

        fn release_protection(&mut self, target: Target) {
            import::memory_protection::release(target);
        }
    }

    impl Cpuset for Granted {
        fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
            import::cpuset::set_memory_nodes(container, nodes, reason);
        }

        fn release_memory_nodes(&mut self, container: ContainerId) {
            import::cpuset::release_memory_nodes(container);
        }
    }

    impl ResctrlMonitor for Granted {
        fn cache_domains(&mut self) -> Vec<CacheDomain> {
            import::resctrl_monitor::read_domains()
        }

        fn class_usage(&mut self) -> Vec<ClassSample> {
            import::resctrl_monitor::read_classes()
        }

        fn container_usage(&mut self) -> Vec<ContainerUsage> {
            import::resctrl_monitor::read_containers()
        }

        fn rest_usage(&mut self) -> Vec<CacheUsage> {
            import::resctrl_monitor::read_rest()
        }
    }

    impl ResctrlAllocation for Granted {
        fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str) {
            import::resctrl_allocation::define(class, *share, domains, reason);
        }

        fn undefine_class(&mut self, class: &str) {
            import::resctrl_allocation::undefine(class);
        }

        fn assign_class(&mut self, target: Target, class: &str, reason: &str) {
            import::resctrl_allocation::assign(target, class, reason);
        }

        fn release_class(&mut self, target: Target) {
            import::resctrl_allocation::release(target);
        }

        fn class_states(&mut self) -> Vec<ClassState> {
            import::resctrl_allocation::read_states()
        }
    }

    impl PodEvent for Granted {
        fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
            import::pod_event::emit(pod, kind, reason, message);
        }
    }
}

impl Protection {
    /// Holds nothing; the start of `Protection { min_bytes: Some(4096), ..Protection::NONE }`.
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
