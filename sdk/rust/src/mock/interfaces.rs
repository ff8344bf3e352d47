//! The interfaces of the contract, over a [`MockHost`].

use super::{
    CPU_BURST, CPU_IDLE, CPU_QUOTA, CPU_WEIGHT, CPUSET_MEMS, Event, Migration, MockHost, STATE_LIMIT_BYTES, Value, node,
};
use crate::{
    Bandwidth, Bound, ContainerId, CpuBandwidth, CpuSample, CpuStat, CpuWeight, Cpuset, EventKind, Level, Log,
    MemoryProtection, MemorySample, MemoryStat, MigrationProgress, Node, NodeSample, NumaNode, NumaSample, NumaStat,
    PageMigration, PodEvent, PodId, Pressure, PressureSample, Protection, State, Target,
};

/// NUMA nodes with numbers from here on have no bit.
const NODE_BITS: u32 = 63;

impl MockHost {
    /// A column, for an evaluation: before it there is nothing to measure.
    fn column<T: Clone>(&mut self, interface: &'static str, column: impl Fn(&Self) -> &Vec<T>) -> Vec<T> {
        self.calls(interface);
        if self.is_blind { Vec::new() } else { column(self).clone() }
    }
}

impl Log for MockHost {
    fn log(&mut self, level: Level, message: &str) {
        self.calls("log");
        self.log.push((level, message.into()));
    }
}

impl State for MockHost {
    fn load_state(&mut self) -> Vec<u8> {
        self.calls("state");
        self.staged_state.clone().unwrap_or_else(|| self.state.clone())
    }

    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.calls("state");
        if bytes.len() > STATE_LIMIT_BYTES {
            return Err(format!("{} bytes are more than the {STATE_LIMIT_BYTES} that are kept", bytes.len()));
        }
        self.staged_state = Some(bytes.to_vec());
        Ok(())
    }
}

impl Node for MockHost {
    /// `columns.node`; a node of which nothing is known when that is `None`.
    fn node(&mut self) -> NodeSample {
        self.calls("node");
        if self.is_blind && !self.has_measured {
            self.refuse("it reads `node` before its first evaluation, when nothing has been measured yet".into());
        }
        self.columns.node.unwrap_or_else(|| node(0, 0))
    }
}

impl CpuStat for MockHost {
    fn cpu(&mut self) -> Vec<CpuSample> {
        self.column("cpu-stat", |host| &host.columns.cpu)
    }

    fn bandwidth(&mut self) -> Vec<Bandwidth> {
        self.column("cpu-stat", |host| &host.columns.bandwidth)
    }

    fn bandwidth_generation(&mut self) -> u64 {
        self.calls("cpu-stat");
        if self.bandwidth_before != self.columns.bandwidth {
            self.bandwidth_before.clone_from(&self.columns.bandwidth);
            self.generation += 1;
        }
        self.generation
    }
}

impl MemoryStat for MockHost {
    fn memory(&mut self) -> Vec<MemorySample> {
        self.column("memory-stat", |host| &host.columns.memory)
    }
}

impl Pressure for MockHost {
    fn pressure(&mut self) -> Vec<PressureSample> {
        self.column("pressure", |host| &host.columns.pressure)
    }
}

impl NumaStat for MockHost {
    fn numa_nodes(&mut self) -> Vec<NumaNode> {
        self.column("numa-stat", |host| &host.columns.numa_nodes)
    }

    fn numa(&mut self) -> Vec<NumaSample> {
        self.column("numa-stat", |host| &host.columns.numa)
    }
}

impl PageMigration for MockHost {
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
        self.calls("page-migration");
        self.require(Target::Container(container));
        self.text("reason", reason);
        let way = Some((from.to_vec(), to.to_vec()));
        self.migrations.push(Migration { container, way, token, reason: reason.into() });
    }

    fn stop_migration(&mut self, container: ContainerId) {
        self.calls("page-migration");
        self.require(Target::Container(container));
        self.migrations.push(Migration { container, way: None, token: 0, reason: String::new() });
    }

    fn migrations(&mut self) -> Vec<MigrationProgress> {
        self.column("page-migration", |host| &host.columns.migrations)
    }
}

impl CpuBandwidth for MockHost {
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
        self.calls("cpu-bandwidth");
        let value = quota_usec.map_or(Value::Max, |quota| self.number("quota", quota));
        self.stage(target, CPU_QUOTA, Some(value), reason);
    }

    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
        self.calls("cpu-bandwidth");
        let value = self.number("burst", burst_usec);
        self.stage(target, CPU_BURST, Some(value), reason);
    }

    fn release_quota(&mut self, target: Target) {
        self.calls("cpu-bandwidth");
        self.stage(target, CPU_QUOTA, None, "");
    }

    fn release_burst(&mut self, target: Target) {
        self.calls("cpu-bandwidth");
        self.stage(target, CPU_BURST, None, "");
    }
}

impl CpuWeight for MockHost {
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
        self.calls("cpu-weight");
        self.stage(target, CPU_WEIGHT, Some(Value::Number(weight.into())), reason);
    }

    fn release_weight(&mut self, target: Target) {
        self.calls("cpu-weight");
        self.stage(target, CPU_WEIGHT, None, "");
    }

    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
        self.calls("cpu-weight");
        self.stage(Target::Container(container), CPU_IDLE, Some(Value::Number(idle.into())), reason);
    }

    fn release_idle(&mut self, container: ContainerId) {
        self.calls("cpu-weight");
        self.stage(Target::Container(container), CPU_IDLE, None, "");
    }
}

impl MemoryProtection for MockHost {
    fn protect(&mut self, target: Target, wanted: &Protection, reason: &str) {
        self.calls("memory-protection");
        let switch = |on: bool| Value::Number(on.into());
        let small = |number: u32| Value::Number(number.into());
        let values = [
            wanted.min_bytes.map(|bytes| self.number("min", bytes)),
            wanted.low_bytes.map(|bytes| self.number("low", bytes)),
            wanted.high.map(|high| match high {
                Bound::Unlimited => Value::Max,
                Bound::Bytes(bytes) => self.number("high", bytes),
            }),
            wanted.wmark_ratio_percent.map(small),
            wanted.wmark_scale_permyriad.map(small),
            wanted.wmark_min_adj_percent.map(Value::from),
            wanted.oom_priority.map(small),
            wanted.use_oom_priority.map(switch),
            wanted.oom_group.map(switch),
            wanted.page_cache_limit_enable.map(switch),
            wanted.page_cache_limit_bytes.map(|bytes| self.number("page cache limit", bytes)),
            wanted.page_cache_reclaim_sync.map(switch),
        ];
        self.stage_memory(target, values, reason);
    }

    fn release_protection(&mut self, target: Target) {
        self.calls("memory-protection");
        self.stage_memory(target, [None; 12], "");
    }
}

impl Cpuset for MockHost {
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
        self.calls("cpuset");
        if nodes.is_empty() {
            self.refuse("its number of NUMA nodes is 0, which no cgroup file can hold".into());
        }
        if let Some(node) = nodes.iter().find(|node| **node >= NODE_BITS) {
            self.refuse(format!("its NUMA node is {node}, which no cgroup file can hold"));
        }
        let mask = nodes.iter().fold(0_u64, |mask, &node| mask | 1_u64.checked_shl(node).unwrap_or(0));
        self.stage(Target::Container(container), CPUSET_MEMS, Some(Value::from(mask)), reason);
    }

    fn release_memory_nodes(&mut self, container: ContainerId) {
        self.calls("cpuset");
        self.stage(Target::Container(container), CPUSET_MEMS, None, "");
    }
}

impl PodEvent for MockHost {
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
        self.calls("pod-event");
        self.event(Event { pod, kind, reason: reason.into(), message: message.into() });
    }
}
