//! What a policy may ask and stage: one trait for each interface of the contract, and [`Host`] for all of them.
//!
//! A policy's entry points take `H: Host`; its own functions do well to take what they use, e.g. `&mut impl CpuBandwidth`.

use crate::{
    Bandwidth, ContainerId, CpuSample, EventKind, Level, MemorySample, MigrationProgress, NodeSample, NumaNode,
    NumaSample, PodId, PressureSample, Protection, Target,
};

/// What the policy has to say to the operator. Always granted. Lines beyond the host's bound are dropped and counted.
pub trait Log {
    /// Writes one line.
    fn log(&mut self, level: Level, message: &str);
}

/// A small memory that survives a restart of the agent and a new version of the policy. Always granted.
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
pub trait Node {
    /// Reads the node.
    fn node(&mut self) -> NodeSample;
}

/// CPU time, throttling and CFS bandwidth.
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
pub trait MemoryStat {
    /// Memory of every running container.
    fn memory(&mut self) -> Vec<MemorySample>;
}

/// Pressure stall information.
pub trait Pressure {
    /// Time lost by every running container within the window; containers without pressure files are missing.
    fn pressure(&mut self) -> Vec<PressureSample>;
}

/// NUMA nodes, and where containers run and have their memory.
pub trait NumaStat {
    /// The NUMA nodes that are online, by number.
    fn numa_nodes(&mut self) -> Vec<NumaNode>;

    /// Running containers of the pods that are configured for this policy. Empty on a machine whose memory is on one node.
    fn numa(&mut self) -> Vec<NumaSample>;
}

/// Moving pages between NUMA nodes. A page that was moved stays: there is nothing to give back.
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
pub trait MemoryProtection {
    /// Replaces all that the policy holds on the target's memory: fields that are `None` are released.
    fn protect(&mut self, target: Target, protection: &Protection, reason: &str);

    /// Gives up all of it.
    fn release_protection(&mut self, target: Target);
}

/// On which NUMA nodes a container may have memory. Where they are full, the container reclaims, and is killed in the end.
pub trait Cpuset {
    /// `cpuset.mems`: these nodes, at least one, with numbers below 63. On cgroup v2 the kernel moves pages that lie elsewhere, at
    /// once and without a bound.
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str);

    /// Gives it up; what lies beneath comes back.
    fn release_memory_nodes(&mut self, container: ContainerId);
}

/// Events that the pod's owner sees.
pub trait PodEvent {
    /// Records an event on a pod. `reason` is one word in camel case.
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str);
}

/// All of it. What a policy does not call its component does not import.
pub trait Host:
    Log
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
    + PodEvent
{
}

impl<T> Host for T where
    T: Log
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

    impl PodEvent for Granted {
        fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
            import::pod_event::emit(pod, kind, reason, message);
        }
    }
}

impl Protection {
    /// Holds nothing; the start of `Protection { min_bytes: Some(4096), ..Protection::NONE }`.
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
