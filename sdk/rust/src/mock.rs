//! A host for unit tests: columns are what the test puts in, settings become leases that the test looks up.
//!
//! Settings are staged as with the real host. [`MockHost::held`] shows what will be held; [`MockHost::commit`] and
//! [`MockHost::discard`] end an evaluation.

use std::collections::BTreeMap;
use std::fmt;

use crate::{
    Bandwidth, Bound, Cause, Container, ContainerId, ContainerKind, ContainerState, CpuBandwidth, CpuSample, CpuStat,
    CpuWeight, Cpuset, EventKind, KubeQos, Level, Log, MemoryProtection, MemorySample, MemoryStat, MigrationProgress,
    Node, NodeSample, NumaNode, NumaSample, NumaStat, PageMigration, PodEvent, PodFacts, PodId, Pressure,
    PressureSample, Protection, QosClass, State, Target, Tick,
};

/// Name of the knob behind `set_quota`, as plans and metrics spell it.
pub const CPU_QUOTA: &str = "cpu.quota";
/// Name of the knob behind `set_burst`.
pub const CPU_BURST: &str = "cpu.burst";
/// Name of the knob behind `set_weight`.
pub const CPU_WEIGHT: &str = "cpu.weight";
/// Name of the knob behind `set_idle`; 0 or 1.
pub const CPU_IDLE: &str = "cpu.idle";
/// The knobs behind `protect`, in the order of [`Protection`]'s fields.
pub const MEMORY_KNOBS: [&str; 12] = [
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.wmark_ratio",
    "memory.wmark_scale_factor",
    "memory.wmark_min_adj",
    "memory.priority",
    "memory.use_priority_oom",
    "memory.oom.group",
    "memory.pagecache_limit.enable",
    "memory.pagecache_limit.size",
    "memory.pagecache_limit.sync",
];
/// Name of the knob behind `set_memory_nodes`; it holds a bit for each node.
pub const CPUSET_MEMS: &str = "cpuset.mems";
/// Most bytes that `save_state` takes.
pub const STATE_LIMIT_BYTES: usize = 65_536;

/// What a knob holds, in the knob's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number; switches are 0 and 1.
    Number(i64),
    /// No bound.
    Max,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl From<u64> for Value {
    /// What lies beyond `i64` becomes its maximum.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// One staged change of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// On which cgroup.
    pub target: Target,
    /// Which tunable, e.g. [`CPU_QUOTA`].
    pub knob: &'static str,
    /// What to hold; `None` gives it up.
    pub value: Option<Value>,
    /// Why, in the policy's words; empty when given up.
    pub reason: String,
}

/// An event for a pod's owner.
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

/// What a policy can measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The node.
    pub node: Option<NodeSample>,
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
}

/// A staged start or stop of a migration.
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

/// A host without a node beneath it.
#[derive(Clone, Debug, Default)]
pub struct MockHost {
    /// What the policy will measure.
    pub columns: Columns,
    /// What it wrote to the log.
    pub log: Vec<(Level, String)>,
    /// The events that it emitted.
    pub events: Vec<Event>,
    /// Its memory, as of the last commit.
    pub state: Vec<u8>,
    bandwidth_before: Vec<Bandwidth>,
    generation: u64,
    staged: Vec<Staged>,
    migrations: Vec<Migration>,
    staged_state: Option<Vec<u8>>,
    leases: BTreeMap<(Target, &'static str), Value>,
}

impl MockHost {
    /// What is held, or will be when the evaluation ends well.
    pub fn held(&self, target: Target, knob: &str) -> Option<Value> {
        match self.staged.iter().rev().find(|staged| staged.target == target && staged.knob == knob) {
            Some(staged) => staged.value,
            None => {
                self.leases.iter().find(|((held, name), _)| *held == target && *name == knob).map(|(_, value)| *value)
            }
        }
    }

    /// All that is held since the last commit.
    pub fn leases(&self) -> &BTreeMap<(Target, &'static str), Value> {
        &self.leases
    }

    /// What was staged since the last commit or discard, in order.
    pub fn staged(&self) -> &[Staged] {
        &self.staged
    }

    /// The migrations that were started or stopped since the last commit, discard or call of this, in order.
    pub fn take_migrations(&mut self) -> Vec<Migration> {
        std::mem::take(&mut self.migrations)
    }

    /// Ends an evaluation well: what was staged is held, and the rows of `columns.bandwidth` show quotas that are held, or
    /// their baseline. Returns what was staged.
    pub fn commit(&mut self) -> Vec<Staged> {
        for staged in &self.staged {
            let key = (staged.target, staged.knob);
            match staged.value {
                Some(value) => self.leases.insert(key, value),
                None => self.leases.remove(&key),
            };
        }
        for row in &mut self.columns.bandwidth {
            row.quota_usec = match self.leases.get(&(row.target, CPU_QUOTA)) {
                Some(Value::Number(quota)) => u64::try_from(*quota).ok(),
                Some(Value::Max) => None,
                None => row.baseline_quota_usec,
            };
        }
        if let Some(state) = self.staged_state.take() {
            self.state = state;
        }
        std::mem::take(&mut self.staged)
    }

    /// Ends an evaluation badly: what was staged is dropped.
    pub fn discard(&mut self) {
        self.staged.clear();
        self.migrations.clear();
        self.staged_state = None;
    }

    fn stage(&mut self, target: Target, knob: &'static str, value: Option<Value>, reason: &str) {
        self.staged.push(Staged { target, knob, value, reason: reason.into() });
    }

    fn stage_memory(&mut self, target: Target, values: [Option<Value>; 12], reason: &str) {
        for (knob, value) in MEMORY_KNOBS.into_iter().zip(values) {
            if value.is_some() || self.held(target, knob).is_some() {
                self.stage(target, knob, value, reason);
            }
        }
    }
}

impl Log for MockHost {
    fn log(&mut self, level: Level, message: &str) {
        self.log.push((level, message.into()));
    }
}

impl State for MockHost {
    fn load_state(&mut self) -> Vec<u8> {
        self.state.clone()
    }

    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() > STATE_LIMIT_BYTES {
            return Err(format!("{} bytes are more than {STATE_LIMIT_BYTES}", bytes.len()));
        }
        self.staged_state = Some(bytes.to_vec());
        Ok(())
    }
}

impl Node for MockHost {
    /// `columns.node`; a node of which nothing is known when that is `None`.
    fn node(&mut self) -> NodeSample {
        self.columns.node.unwrap_or(NodeSample {
            cpus: 0,
            memory_capacity_bytes: 0,
            memory_allocatable_bytes: 0,
            page_size_bytes: 4096,
            cpu_usage_usec: None,
            memory_available_bytes: None,
        })
    }
}

impl CpuStat for MockHost {
    fn cpu(&mut self) -> Vec<CpuSample> {
        self.columns.cpu.clone()
    }

    fn bandwidth(&mut self) -> Vec<Bandwidth> {
        self.columns.bandwidth.clone()
    }

    fn bandwidth_generation(&mut self) -> u64 {
        if self.bandwidth_before != self.columns.bandwidth {
            self.bandwidth_before.clone_from(&self.columns.bandwidth);
            self.generation += 1;
        }
        self.generation
    }
}

impl MemoryStat for MockHost {
    fn memory(&mut self) -> Vec<MemorySample> {
        self.columns.memory.clone()
    }
}

impl Pressure for MockHost {
    fn pressure(&mut self) -> Vec<PressureSample> {
        self.columns.pressure.clone()
    }
}

impl NumaStat for MockHost {
    fn numa_nodes(&mut self) -> Vec<NumaNode> {
        self.columns.numa_nodes.clone()
    }

    fn numa(&mut self) -> Vec<NumaSample> {
        self.columns.numa.clone()
    }
}

impl PageMigration for MockHost {
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
        let way = Some((from.to_vec(), to.to_vec()));
        self.migrations.push(Migration { container, way, token, reason: reason.into() });
    }

    fn stop_migration(&mut self, container: ContainerId) {
        self.migrations.push(Migration { container, way: None, token: 0, reason: String::new() });
    }

    fn migrations(&mut self) -> Vec<MigrationProgress> {
        self.columns.migrations.clone()
    }
}

impl CpuBandwidth for MockHost {
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
        self.stage(target, CPU_QUOTA, Some(quota_usec.map_or(Value::Max, Value::from)), reason);
    }

    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
        self.stage(target, CPU_BURST, Some(Value::from(burst_usec)), reason);
    }

    fn release_quota(&mut self, target: Target) {
        self.stage(target, CPU_QUOTA, None, "");
    }

    fn release_burst(&mut self, target: Target) {
        self.stage(target, CPU_BURST, None, "");
    }
}

impl CpuWeight for MockHost {
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
        self.stage(target, CPU_WEIGHT, Some(Value::Number(weight.into())), reason);
    }

    fn release_weight(&mut self, target: Target) {
        self.stage(target, CPU_WEIGHT, None, "");
    }

    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
        self.stage(Target::Container(container), CPU_IDLE, Some(Value::Number(idle.into())), reason);
    }

    fn release_idle(&mut self, container: ContainerId) {
        self.stage(Target::Container(container), CPU_IDLE, None, "");
    }
}

impl MemoryProtection for MockHost {
    fn protect(&mut self, target: Target, wanted: &Protection, reason: &str) {
        let switch = |on: bool| Value::Number(on.into());
        let number = |number: u32| Value::Number(number.into());
        let values = [
            wanted.min_bytes.map(Value::from),
            wanted.low_bytes.map(Value::from),
            wanted.high.map(|high| match high {
                Bound::Unlimited => Value::Max,
                Bound::Bytes(bytes) => Value::from(bytes),
            }),
            wanted.wmark_ratio_percent.map(number),
            wanted.wmark_scale_permyriad.map(number),
            wanted.wmark_min_adj_percent.map(|percent| Value::Number(percent.into())),
            wanted.oom_priority.map(number),
            wanted.use_oom_priority.map(switch),
            wanted.oom_group.map(switch),
            wanted.page_cache_limit_enable.map(switch),
            wanted.page_cache_limit_bytes.map(Value::from),
            wanted.page_cache_reclaim_sync.map(switch),
        ];
        self.stage_memory(target, values, reason);
    }

    fn release_protection(&mut self, target: Target) {
        self.stage_memory(target, [None; 12], "");
    }
}

impl Cpuset for MockHost {
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
        let mask = nodes.iter().fold(0_u64, |mask, &node| mask | 1_u64.checked_shl(node).unwrap_or(0));
        self.stage(Target::Container(container), CPUSET_MEMS, Some(Value::from(mask)), reason);
    }

    fn release_memory_nodes(&mut self, container: ContainerId) {
        self.stage(Target::Container(container), CPUSET_MEMS, None, "");
    }
}

impl PodEvent for MockHost {
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
        self.events.push(Event { pod, kind, reason: reason.into(), message: message.into() });
    }
}

/// A Burstable pod that runs, declares no class, has no containers and that nobody configured. To be completed with `..`.
pub fn pod(id: PodId, namespace: &str, name: &str) -> PodFacts {
    PodFacts {
        id,
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-of-{namespace}-{name}"),
        declared_qos: None,
        qos: QosClass::Ls,
        kube_qos: KubeQos::Burstable,
        priority: None,
        active: true,
        host_pid: false,
        static_pod: false,
        labels: Vec::new(),
        containers: Vec::new(),
        cpu_overhead_milli: 0,
        memory_overhead_bytes: 0,
        memory_request_bytes: None,
        memory_limit_bytes: None,
        cpu_limit_milli: None,
        config: "{}".into(),
        annotated: false,
    }
}

/// A regular container that runs, without requests or limits. To be completed with `..`.
pub fn container(id: ContainerId, name: &str) -> Container {
    Container {
        id,
        name: name.into(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cpu_request_milli: None,
        cpu_limit_milli: None,
        memory_request_bytes: None,
        memory_limit_bytes: None,
        extended_resources: Vec::new(),
        exclusive_cpus: None,
    }
}

/// An evaluation because the policy's interval has passed.
pub fn tick(window_millis: u64) -> Tick {
    Tick { window_usec: window_millis.saturating_mul(1000), cause: Cause::Interval, alarms: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: Target = Target::Pod(1);

    #[test]
    fn what_is_staged_is_held_only_after_a_good_end() {
        let mut host = MockHost::default();
        host.set_quota(WEB, Some(5_000), "because");
        assert_eq!(host.held(WEB, CPU_QUOTA), Some(Value::Number(5_000)));
        host.discard();
        assert_eq!(host.held(WEB, CPU_QUOTA), None);
        host.set_quota(WEB, None, "because");
        assert_eq!(host.commit().len(), 1);
        assert_eq!(host.leases().get(&(WEB, CPU_QUOTA)), Some(&Value::Max));
        host.release_quota(WEB);
        assert_eq!(host.held(WEB, CPU_QUOTA), None);
    }

    #[test]
    fn a_weight_and_idle_are_leases_of_their_own() {
        let mut host = MockHost::default();
        let app = Target::Container(7);
        host.set_weight(app, 250, "because");
        host.set_idle(7, true, "because");
        host.commit();
        let held = [(&(app, CPU_IDLE), &Value::Number(1)), (&(app, CPU_WEIGHT), &Value::Number(250))];
        assert_eq!(host.leases().iter().collect::<Vec<_>>(), held);
        host.release_idle(7);
        host.release_weight(app);
        host.commit();
        assert!(host.leases().is_empty());
    }

    #[test]
    fn a_commit_shows_in_the_bandwidth_column() {
        let mut host = MockHost::default();
        let row =
            Bandwidth { target: WEB, quota_usec: Some(1), baseline_quota_usec: Some(100_000), period_usec: 100_000 };
        host.columns.bandwidth.push(row);
        for (quota, shown) in [(Some(Some(7_000)), Some(7_000)), (Some(None), None), (None, Some(100_000))] {
            match quota {
                Some(quota) => host.set_quota(WEB, quota, "because"),
                None => host.release_quota(WEB),
            }
            host.commit();
            assert_eq!(host.columns.bandwidth[0].quota_usec, shown);
        }
    }

    #[test]
    fn protection_replaces_what_was_held() {
        let mut host = MockHost::default();
        host.protect(WEB, &Protection { min_bytes: Some(4096), oom_group: Some(true), ..Protection::NONE }, "asked");
        host.commit();
        host.protect(WEB, &Protection { high: Some(Bound::Unlimited), ..Protection::NONE }, "asked");
        host.commit();
        assert_eq!(host.leases().iter().collect::<Vec<_>>(), [(&(WEB, "memory.high"), &Value::Max)]);
        host.release_protection(WEB);
        host.commit();
        assert!(host.leases().is_empty());
    }
}
