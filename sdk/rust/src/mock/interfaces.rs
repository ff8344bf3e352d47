//! The interfaces of the contract, over a [`MockHost`].

use super::host::Named;
use super::{
    CORE_GROUP, CPU_BURST, CPU_BVT, CPU_IDLE, CPU_QUOTA, CPU_WEIGHT, CPUSET_CPUS, CPUSET_MEMS, ClassChange, Classes,
    Cpus, Event, KeyProblem, MAX_CPUS, MEMORY_MAX, Migration, MockHost, STATE_LIMIT_BYTES, Value, node, topology,
};
use crate::{
    ApplicationUse, Bandwidth, BandwidthShare, Bound, CacheDomain, CacheShare, CacheUsage, ClassSample, ClassState,
    ClusterConfig, ContainerId, ContainerUsage, CpuBandwidth, CpuIdentity, CpuSample, CpuSet, CpuStat, CpuTopology,
    CpuWeight, Cpuset, EventKind, GroupUse, Level, Log, MemoryLimit, MemoryProtection, MemorySample, MemoryStat,
    MigrationProgress, Node, NodeMemory, NodeObject, NodeObjectFacts, NodePressure, NodeSample, NumaNode, NumaSample,
    NumaStat, PageMigration, PodEvent, PodId, PodObject, PodObjectFacts, Pressure, PressureSample, Protection,
    ResctrlAllocation, ResctrlMonitor, Share, State, Target, Topology,
};

/// Maximum number of classes of a policy.
const MAX_CLASSES: usize = 256;
/// Maximum number of domains with shares of their own in a class.
const MAX_DOMAINS: usize = 256;
/// NUMA node numbers from here on do not fit into the bit mask.
const NODE_BITS: u32 = 63;
/// Error of a mock kernel without group identities.
const NO_IDENTITIES: &str = "this kernel has no cpu.bvt_warp_ns";
/// Error of a mock kernel without core scheduling.
const NO_CORE_SCHEDULING: &str = "this kernel has no core scheduling";

impl MockHost {
    /// Reads a column; empty except in an evaluation.
    pub(super) fn column<T: Clone>(&mut self, interface: &'static str, column: impl Fn(&Self) -> &Vec<T>) -> Vec<T> {
        self.called(interface);
        if self.is_blind { Vec::new() } else { column(self).clone() }
    }
}

impl Log for MockHost {
    fn log(&mut self, level: Level, message: &str) {
        self.called("log");
        self.log.push((level, message.into()));
    }

    fn remark(&mut self, target: Target, knob: &str, reason: &str) {
        self.called("log");
        self.note_remark(target, knob, reason);
    }

    fn problem(&mut self, key: &str, field: &str, message: &str) {
        self.called("log");
        self.note_key_problem(KeyProblem { key: key.into(), field: field.into(), message: message.into() });
    }
}

impl State for MockHost {
    fn load_state(&mut self) -> Vec<u8> {
        self.called("state");
        self.staged_state.clone().unwrap_or_else(|| self.state.clone())
    }

    fn state_age_usec(&mut self) -> Option<u64> {
        self.called("state");
        self.state_age_usec
    }

    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.called("state");
        if bytes.len() > STATE_LIMIT_BYTES {
            return Err(format!("{} bytes are more than the {STATE_LIMIT_BYTES} that are kept", bytes.len()));
        }
        self.staged_state = Some(bytes.to_vec());
        Ok(())
    }
}

impl Node for MockHost {
    /// `columns.node`; if that is `None`, a node with 0 CPUs and 0 bytes of memory.
    fn node(&mut self) -> NodeSample {
        self.called("node");
        if self.is_blind && !self.has_measured {
            self.refuse("it reads `node` before its first evaluation, when nothing has been measured yet".into());
        }
        self.columns.node.unwrap_or_else(|| node(0, 0))
    }

    fn node_memory(&mut self) -> Option<NodeMemory> {
        self.called("node");
        self.columns.node_memory.filter(|_| !self.is_blind)
    }

    fn node_pressure(&mut self) -> Option<NodePressure> {
        self.called("node");
        self.columns.node_pressure.filter(|_| !self.is_blind)
    }

    fn group_use(&mut self) -> Vec<GroupUse> {
        self.column("node", |host| &host.columns.groups)
    }

    fn application_use(&mut self) -> Vec<ApplicationUse> {
        self.column("node", |host| &host.columns.applications)
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
        self.called("cpu-stat");
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

impl CpuTopology for MockHost {
    /// `columns.cpu_topology`; if that is `None`, a topology without CPUs.
    fn cpu_topology(&mut self) -> Topology {
        self.called("cpu-topology");
        let known = self.columns.cpu_topology.clone().filter(|_| !self.is_blind);
        known.unwrap_or_else(|| topology(0))
    }

    fn cpu_topology_generation(&mut self) -> u64 {
        self.called("cpu-topology");
        if self.topology_before != self.columns.cpu_topology {
            self.topology_before.clone_from(&self.columns.cpu_topology);
            self.topology_generation += 1;
        }
        self.topology_generation
    }

    fn cpu_sets(&mut self) -> Vec<CpuSet> {
        self.column("cpu-topology", |host| &host.columns.cpu_sets)
    }
}

impl PageMigration for MockHost {
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
        self.called("page-migration");
        self.require(Target::Container(container));
        let way = Some((from.to_vec(), to.to_vec()));
        self.migrations.push(Migration { container, way, token, reason: reason.into() });
    }

    fn stop_migration(&mut self, container: ContainerId) {
        self.called("page-migration");
        self.require(Target::Container(container));
        self.migrations.push(Migration { container, way: None, token: 0, reason: String::new() });
    }

    fn migrations(&mut self) -> Vec<MigrationProgress> {
        self.column("page-migration", |host| &host.columns.migrations)
    }
}

impl CpuBandwidth for MockHost {
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
        self.called("cpu-bandwidth");
        let value = quota_usec.map_or(Value::Max, |quota| self.number("quota", quota));
        self.stage(target, CPU_QUOTA, Some(value), reason);
    }

    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
        self.called("cpu-bandwidth");
        let value = self.number("burst", burst_usec);
        self.stage(target, CPU_BURST, Some(value), reason);
    }

    fn release_quota(&mut self, target: Target) {
        self.called("cpu-bandwidth");
        self.stage(target, CPU_QUOTA, None, "");
    }

    fn release_burst(&mut self, target: Target) {
        self.called("cpu-bandwidth");
        self.stage(target, CPU_BURST, None, "");
    }
}

impl CpuWeight for MockHost {
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
        self.called("cpu-weight");
        self.stage(target, CPU_WEIGHT, Some(Value::Number(weight.into())), reason);
    }

    fn release_weight(&mut self, target: Target) {
        self.called("cpu-weight");
        self.stage(target, CPU_WEIGHT, None, "");
    }

    fn set_shares(&mut self, target: Target, shares: u32, reason: &str) {
        self.called("cpu-weight");
        self.stage(target, CPU_WEIGHT, Some(Value::Shares(shares.into())), reason);
    }

    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
        self.called("cpu-weight");
        self.stage(Target::Container(container), CPU_IDLE, Some(Value::Number(idle.into())), reason);
    }

    fn release_idle(&mut self, container: ContainerId) {
        self.called("cpu-weight");
        self.stage(Target::Container(container), CPU_IDLE, None, "");
    }
}

impl CpuIdentity for MockHost {
    fn identity_support(&mut self) -> Result<(), String> {
        self.called("cpu-identity");
        if self.is_blind || !self.columns.group_identity { Err(NO_IDENTITIES.into()) } else { Ok(()) }
    }

    fn set_identity(&mut self, target: Target, identity: i8, reason: &str) {
        self.called("cpu-identity");
        self.stage(target, CPU_BVT, Some(Value::Number(identity.into())), reason);
    }

    fn release_identity(&mut self, target: Target) {
        self.called("cpu-identity");
        self.stage(target, CPU_BVT, None, "");
    }

    fn core_scheduling_support(&mut self) -> Result<(), String> {
        self.called("cpu-identity");
        if self.is_blind || !self.columns.core_scheduling { Err(NO_CORE_SCHEDULING.into()) } else { Ok(()) }
    }

    fn set_core_group(&mut self, container: ContainerId, group: u64, reason: &str) {
        self.called("cpu-identity");
        let group = Value::Number(i64::try_from(group).unwrap_or(i64::MAX));
        self.stage(Target::Container(container), CORE_GROUP, Some(group), reason);
    }

    fn release_core_group(&mut self, container: ContainerId) {
        self.called("cpu-identity");
        self.stage(Target::Container(container), CORE_GROUP, None, "");
    }
}

impl MemoryProtection for MockHost {
    fn protect(&mut self, target: Target, wanted: &Protection, reason: &str) {
        self.called("memory-protection");
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
        self.called("memory-protection");
        self.stage_memory(target, [None; 12], "");
    }
}

impl Cpuset for MockHost {
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
        self.called("cpuset");
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
        self.called("cpuset");
        self.stage(Target::Container(container), CPUSET_MEMS, None, "");
    }

    fn set_cpus(&mut self, target: Target, cpus: &[u32], reason: &str) {
        self.called("cpuset");
        if cpus.is_empty() {
            self.refuse("its number of CPUs is 0, which no cgroup file can hold".into());
        }
        if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= MAX_CPUS) {
            self.refuse(format!("its CPU is {cpu}, which no cgroup file can hold"));
        }
        self.stage(target, CPUSET_CPUS, Some(Value::Cpus(Cpus::of(cpus))), reason);
    }

    fn release_cpus(&mut self, target: Target) {
        self.called("cpuset");
        self.stage(target, CPUSET_CPUS, None, "");
    }
}

impl MemoryLimit for MockHost {
    fn set_memory_limit(&mut self, target: Target, bytes: Option<u64>, reason: &str) {
        self.called("memory-limit");
        let value = bytes.map_or(Value::Max, |bytes| self.number("memory limit", bytes));
        self.stage(target, MEMORY_MAX, Some(value), reason);
    }

    fn release_memory_limit(&mut self, target: Target) {
        self.called("memory-limit");
        self.stage(target, MEMORY_MAX, None, "");
    }
}

impl ResctrlMonitor for MockHost {
    fn cache_domains(&mut self) -> Vec<CacheDomain> {
        self.column("resctrl-monitor", |host| &host.columns.cache_domains)
    }

    fn class_usage(&mut self) -> Vec<ClassSample> {
        self.column("resctrl-monitor", |host| &host.columns.class_usage)
    }

    fn container_usage(&mut self) -> Vec<ContainerUsage> {
        self.column("resctrl-monitor", |host| &host.columns.container_usage)
    }

    fn rest_usage(&mut self) -> Vec<CacheUsage> {
        self.column("resctrl-monitor", |host| &host.columns.rest_usage)
    }
}

/// The generation of a column. It increases when the column differs from the one before.
fn generation<T: Clone + PartialEq>((before, generation): &mut (T, u64), now: &T) -> u64 {
    if before != now {
        before.clone_from(now);
        *generation += 1;
    }
    *generation
}

impl NodeObject for MockHost {
    fn node_object(&mut self) -> Option<NodeObjectFacts> {
        self.called("node-object");
        self.columns.node_object.clone().filter(|_| !self.is_blind)
    }

    fn node_object_generation(&mut self) -> u64 {
        self.called("node-object");
        generation(&mut self.node_object, &self.columns.node_object)
    }
}

impl PodObject for MockHost {
    fn pod_objects(&mut self) -> Vec<PodObjectFacts> {
        self.column("pod-object", |host| &host.columns.pod_objects)
    }

    fn pod_objects_generation(&mut self) -> u64 {
        self.called("pod-object");
        generation(&mut self.pod_objects, &self.columns.pod_objects)
    }
}

impl ClusterConfig for MockHost {
    fn config_text(&mut self, key: &str) -> Option<String> {
        self.called("cluster-config");
        self.columns.cluster_config.get(key).filter(|_| !self.is_blind).map(|key| key.text.clone())
    }

    fn config_strategy(&mut self, key: &str) -> String {
        self.called("cluster-config");
        let key = self.columns.cluster_config.get(key).filter(|_| !self.is_blind);
        key.map_or_else(|| "{}".into(), |key| key.strategy.clone())
    }

    fn config_generation(&mut self) -> u64 {
        self.called("cluster-config");
        generation(&mut self.cluster_config, &self.columns.cluster_config)
    }
}

impl MockHost {
    fn change_classes(&mut self) -> &mut Classes {
        self.staged_classes.get_or_insert_with(|| self.classes.clone())
    }

    fn class_name(&mut self, class: &str) {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=63).contains(&class.len()) || !class.bytes().all(fits) {
            self.refuse(format!(
                "it names a class: `{class}` is not the name of a class: give 1 to 63 letters, digits, `-` or `_`"
            ));
        }
    }

    fn share(&mut self, class: &str, domain: Option<u32>, share: &Share) {
        let why = match (share.cache, share.bandwidth) {
            (Some(CacheShare::Percent((start, end))), _) if start >= end || end > 100 => format!(
                "the range of ways {start} to {end} % is none: give a start below the end, and an end of at most 100"
            ),
            (Some(CacheShare::Mask(0)), _) => "a mask of no ways is none: set at least one bit".to_owned(),
            (_, Some(BandwidthShare::Percent(percent))) if !(1..=100).contains(&percent) => {
                format!("{percent} % of the memory bandwidth cannot be had: give 1 to 100")
            }
            _ => return,
        };
        let domain = domain.map(|domain| format!(" on domain {domain}")).unwrap_or_default();
        self.refuse(format!("its share for class `{class}`{domain}: {why}"));
    }
}

impl ResctrlAllocation for MockHost {
    fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str) {
        self.called("resctrl-allocation");
        self.class_name(class);
        self.share(class, None, share);
        for (domain, share) in domains {
            self.share(class, Some(*domain), share);
        }
        if domains.len() > MAX_DOMAINS {
            self.refuse(format!(
                "its class `{class}` has shares of its own on more than {MAX_DOMAINS} domains; what is the same on all is said once"
            ));
        }
        let defined = &mut self.change_classes().defined;
        defined.insert(class.into(), (*share, domains.to_vec()));
        if defined.len() > MAX_CLASSES {
            self.refuse(format!(
                "its class `{class}` is one more than the {MAX_CLASSES} that it may have; those that have no members can be given up"
            ));
        }
        self.class_changes.push(ClassChange::Define {
            class: class.into(),
            share: *share,
            domains: domains.to_vec(),
            reason: reason.into(),
        });
    }

    fn undefine_class(&mut self, class: &str) {
        self.called("resctrl-allocation");
        let classes = self.change_classes();
        classes.defined.remove(class);
        classes.members.retain(|_, own| own != class);
        self.class_changes.push(ClassChange::Undefine { class: class.into() });
    }

    fn assign_class(&mut self, target: Target, class: &str, reason: &str) {
        self.called("resctrl-allocation");
        self.require(target);
        if matches!(target, Target::Tier(_)) {
            self.refuse(format!("it puts {} into a class; only pods and containers can be in one", Named(target)));
        }
        if !self.classes().defined.contains_key(class) {
            self.refuse(format!(
                "it puts {} into class `{class}`, which it has not defined; each instance defines a class before it assigns members to it",
                Named(target)
            ));
        }
        self.change_classes().members.insert(target, class.into());
        self.class_changes.push(ClassChange::Assign { target, class: class.into(), reason: reason.into() });
    }

    fn release_class(&mut self, target: Target) {
        self.called("resctrl-allocation");
        self.require(target);
        self.change_classes().members.remove(&target);
        self.class_changes.push(ClassChange::Release { target });
    }

    fn class_states(&mut self) -> Vec<ClassState> {
        self.column("resctrl-allocation", |host| &host.columns.class_states)
    }
}

impl PodEvent for MockHost {
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
        self.called("pod-event");
        self.event(Event { pod, kind, reason: reason.into(), message: message.into() });
    }
}
