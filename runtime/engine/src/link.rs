//! Host functions of the interfaces that modules import. An interface is linked only if it is granted; without the grant
//! the symbol does not exist.

mod block_io;

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_model::alarm::Alarm;
use qosm_model::application::ApplicationSample;
use qosm_model::block_io::BlockDevices;
use qosm_model::column::{BandwidthSample, CpuSample, MemorySample, NodeSample, PressureCounters, PressureSample};
use qosm_model::cpu_topology::{CpuSet, CpuTopology};
use qosm_model::eviction::{Eviction, EvictionState, Urgency};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::layering::ClusterConfig;
use qosm_model::node::{GroupSample, NodeKnobSample, NodeMemory};
use qosm_model::node_resource::ResourceState;
use qosm_model::numa::{Migration, MigrationSample, NumaColumn, NumaId};
use qosm_model::object::PodObject;
use qosm_model::pod::{ContainerId, Node, PodId};
use qosm_model::resctrl::ResctrlColumn;
use qosm_model::setting::{EventKind, KeyProblem};
use qosm_model::unit::Bytes;
use wasmtime::ResourceLimiter;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::bindings::qosm::policy::block_io as block_io_interface;
use crate::bindings::qosm::policy::{
    cluster_config, cpu_bandwidth, cpu_identity, cpu_stat, cpu_topology, cpu_weight, cpuset, eviction, log,
    memory_limit, memory_protection, memory_stat, node, node_knobs, node_object, node_resource, numa_stat,
    page_migration, pod_event, pod_object, pressure, resctrl_allocation, resctrl_monitor, state, types,
};
use crate::convert;
use crate::error::{Exhausted, Rule};
use crate::interface::{ExternName, Interface};
use crate::limits::{Limits, words};
use crate::staging::{InheritedState, LogLevel, Transaction};
use crate::watchdog::Deadline;

/// The columns of one evaluation. Columns that the module does not import may be `None`, which reads as empty.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The node. Other calls may read the node of the last evaluation.
    pub node: Option<NodeSample>,
    /// Memory of the node.
    pub node_memory: Option<NodeMemory>,
    /// Pressure of the node.
    pub node_pressure: Option<PressureCounters>,
    /// Usage of tiers, pods and everything else on the node.
    pub groups: Option<Arc<[GroupSample]>>,
    /// Usage of applications outside Kubernetes.
    pub applications: Option<Arc<[ApplicationSample]>>,
    /// CPU time and throttling, one sample for each container.
    pub cpu: Option<Arc<[CpuSample]>>,
    /// Quotas, one sample for each pod or container.
    pub bandwidth: Option<Arc<[BandwidthSample]>>,
    /// Memory, one sample for each container.
    pub memory: Option<Arc<[MemorySample]>>,
    /// Pressure, one sample for each container.
    pub pressure: Option<Arc<[PressureSample]>>,
    /// NUMA nodes, and where memory lies.
    pub numa: Option<Arc<NumaColumn>>,
    /// Progress of the policy's page migrations.
    pub migrations: Option<Arc<[MigrationSample]>>,
    /// Usage of caches and memory bandwidth, and the state of the policy's classes.
    pub resctrl: Option<Arc<ResctrlColumn>>,
    /// The Node object, completed with facts about the machine.
    pub node_object: Option<Arc<Node>>,
    /// Fields of Pod objects, one row for each pod.
    pub pod_objects: Option<Arc<[PodObject]>>,
    /// The keys of the cluster ConfigMap.
    pub cluster_config: Option<Arc<ClusterConfig>>,
    /// The machine's CPUs.
    pub cpu_topology: Option<Arc<CpuTopology>>,
    /// The CPUs that cgroups may use.
    pub cpu_sets: Option<Arc<[CpuSet]>>,
    /// Whether group identities can be applied; the error says why not.
    pub group_identity: Option<Result<(), Arc<str>>>,
    /// Whether containers can be put into core scheduling groups; the error says why not.
    pub core_scheduling: Option<Result<(), Arc<str>>>,
    /// The settings of the node that its kernel supports.
    pub node_knobs: Option<Arc<[NodeKnobSample]>>,
    /// The node's block devices, and the volumes on them. The policy sees only volumes of pods that it was given.
    pub block_devices: Option<Arc<BlockDevices>>,
    /// State of the resources that the policy publishes.
    pub resources: Option<Arc<[ResourceState]>>,
    /// State of the policy's evictions.
    pub evictions: Option<Arc<[EvictionState]>>,
    /// Triggers that fired since the policy's last evaluation.
    pub alarms: Vec<Alarm>,
}

impl Columns {
    /// Whether group identities can be applied; the error says why not.
    pub(crate) fn identity_support(&self) -> Result<(), &str> {
        match &self.group_identity {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(why),
            None => Err("the node was not asked for group identities"),
        }
    }

    /// Whether containers can be put into core scheduling groups; the error says why not.
    pub(crate) fn core_scheduling_support(&self) -> Result<(), &str> {
        match &self.core_scheduling {
            Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(why),
            None => Err("the node was not asked for core scheduling"),
        }
    }
}

/// State behind an instance's imports: everything that the module can reach.
pub(crate) struct Host {
    pub(crate) transaction: Transaction,
    pub(crate) columns: Columns,
    pub(crate) node: Option<NodeSample>,
    /// Columns that rarely change.
    bandwidth: Seldom<[BandwidthSample]>,
    node_object: Seldom<Node>,
    pod_objects: Seldom<[PodObject]>,
    cluster_config: Seldom<ClusterConfig>,
    cpu_topology: Seldom<CpuTopology>,
    pub(crate) memory: MemoryBound,
    pub(crate) deadline: Deadline,
    /// Whether the module is being instantiated; its imports fail until that is done.
    pub(crate) starting: bool,
}

/// A column as the module last saw it, and the number of its changes.
struct Seldom<T: ?Sized> {
    shown: Option<Arc<T>>,
    generation: u64,
}

impl<T: ?Sized> Default for Seldom<T> {
    fn default() -> Self {
        Self { shown: None, generation: 0 }
    }
}

impl<T: ?Sized + PartialEq> Seldom<T> {
    fn show(&mut self, column: &Option<Arc<T>>) {
        let is_same = match (&self.shown, column) {
            (Some(shown), Some(column)) => Arc::ptr_eq(shown, column) || shown == column,
            (shown, column) => shown.is_none() && column.is_none(),
        };
        if !is_same {
            self.shown.clone_from(column);
            self.generation += 1;
        }
    }
}

impl Host {
    pub(crate) fn new(limits: &Limits, state: InheritedState, deadline: Deadline) -> Self {
        Self {
            transaction: Transaction::new(limits.clone(), state),
            columns: Columns::default(),
            node: None,
            bandwidth: Seldom::default(),
            node_object: Seldom::default(),
            pod_objects: Seldom::default(),
            cluster_config: Seldom::default(),
            cpu_topology: Seldom::default(),
            memory: MemoryBound::new(limits),
            deadline,
            starting: true,
        }
    }

    /// Sets the columns of one evaluation.
    pub(crate) fn show(&mut self, columns: &Columns) {
        self.columns = columns.clone();
        self.node = columns.node.or(self.node);
        self.bandwidth.show(&columns.bandwidth);
        self.node_object.show(&columns.node_object);
        self.pod_objects.show(&columns.pod_objects);
        self.cluster_config.show(&columns.cluster_config);
        self.cpu_topology.show(&columns.cpu_topology);
    }

    /// The transaction for a call of an interface; an error during instantiation.
    fn transaction(&mut self, interface: Interface) -> Result<&mut Transaction, Rule> {
        if self.starting { Err(Rule::ImportAtStart { interface }) } else { Ok(&mut self.transaction) }
    }

    /// The transaction and the target for a call of a control; an error if the instance was not given the target.
    fn control(&mut self, interface: Interface, target: types::Target) -> Result<(&mut Transaction, Target), Rule> {
        let transaction = self.transaction(interface)?;
        let target = convert::target(target);
        transaction.require(target)?;
        Ok((transaction, target))
    }
}

/// Links one interface.
pub(crate) fn link(linker: &mut Linker<Host>, interface: Interface) -> wasmtime::Result<()> {
    type Own = HasSelf<Host>;
    fn host(host: &mut Host) -> &mut Host {
        host
    }
    match interface {
        Interface::Log => log::add_to_linker::<_, Own>(linker, host),
        Interface::State => state::add_to_linker::<_, Own>(linker, host),
        Interface::Node => node::add_to_linker::<_, Own>(linker, host),
        Interface::CpuStat => cpu_stat::add_to_linker::<_, Own>(linker, host),
        Interface::MemoryStat => memory_stat::add_to_linker::<_, Own>(linker, host),
        Interface::Pressure => pressure::add_to_linker::<_, Own>(linker, host),
        Interface::NumaStat => numa_stat::add_to_linker::<_, Own>(linker, host),
        Interface::ResctrlMonitor => resctrl_monitor::add_to_linker::<_, Own>(linker, host),
        Interface::NodeObject => node_object::add_to_linker::<_, Own>(linker, host),
        Interface::PodObject => pod_object::add_to_linker::<_, Own>(linker, host),
        Interface::ClusterConfig => cluster_config::add_to_linker::<_, Own>(linker, host),
        Interface::CpuTopology => cpu_topology::add_to_linker::<_, Own>(linker, host),
        Interface::CpuBandwidth => cpu_bandwidth::add_to_linker::<_, Own>(linker, host),
        Interface::CpuWeight => cpu_weight::add_to_linker::<_, Own>(linker, host),
        Interface::CpuIdentity => cpu_identity::add_to_linker::<_, Own>(linker, host),
        Interface::MemoryProtection => memory_protection::add_to_linker::<_, Own>(linker, host),
        Interface::Cpuset => cpuset::add_to_linker::<_, Own>(linker, host),
        Interface::MemoryLimit => memory_limit::add_to_linker::<_, Own>(linker, host),
        Interface::NodeKnobs => node_knobs::add_to_linker::<_, Own>(linker, host),
        Interface::BlockIo => block_io_interface::add_to_linker::<_, Own>(linker, host),
        Interface::PageMigration => page_migration::add_to_linker::<_, Own>(linker, host),
        Interface::ResctrlAllocation => resctrl_allocation::add_to_linker::<_, Own>(linker, host),
        Interface::NodeResource => node_resource::add_to_linker::<_, Own>(linker, host),
        Interface::Eviction => eviction::add_to_linker::<_, Own>(linker, host),
        Interface::PodEvent => pod_event::add_to_linker::<_, Own>(linker, host),
    }
}

/// Links every function of these interfaces to one that fails with `rule`: the component can be instantiated, but cannot
/// use them.
pub(crate) fn link_to_nothing(
    linker: &mut Linker<Host>,
    component: &Component,
    interfaces: &BTreeSet<Interface>,
    rule: fn(String) -> Rule,
) -> wasmtime::Result<()> {
    let engine = linker.engine().clone();
    for (name, import) in component.component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else { continue };
        let ExternName::Interface(interface) = ExternName::parse(name).0 else { continue };
        if !interfaces.contains(&interface) {
            continue;
        }
        let mut linked = linker.instance(name)?;
        for (function, export) in instance.exports(&engine) {
            if let ComponentItem::ComponentFunc(_) = export.ty {
                let import = format!("{name}#{function}");
                linked.func_new(function, move |_, _, _, _| Err(rule(import.clone()).into()))?;
            }
        }
    }
    Ok(())
}

/// Limits the instance's allocations, and records which limit was exceeded.
pub(crate) struct MemoryBound {
    limit: Bytes,
    table_limit: usize,
    used: usize,
}

impl MemoryBound {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limit: limits.memory, table_limit: limits.table_elements, used: 0 }
    }

    pub(crate) fn limit(&self) -> Bytes {
        self.limit
    }

    pub(crate) fn used(&self) -> Bytes {
        Bytes(self.used as u64)
    }
}

impl ResourceLimiter for MemoryBound {
    fn memory_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > words(self.limit) {
            return Err(Exhausted::Memory { wanted: Bytes(desired as u64), limit: self.limit }.into());
        }
        let allowed = maximum.is_none_or(|maximum| desired <= maximum);
        if allowed {
            self.used = desired;
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > self.table_limit {
            return Err(Exhausted::Table { wanted: desired, limit: self.table_limit }.into());
        }
        Ok(maximum.is_none_or(|maximum| desired <= maximum))
    }

    // A module and the shims for its imports and exports are three or four instances; a language that links its runtime
    // from shared libraries, as Python does, has dozens. Inspection bounds what they take.
    fn instances(&self) -> usize {
        128
    }

    fn tables(&self) -> usize {
        16
    }

    fn memories(&self) -> usize {
        1
    }
}

impl log::Host for Host {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
        };
        self.transaction(Interface::Log)?.log(level, message);
        Ok(())
    }

    fn remark(&mut self, target: types::Target, knob: String, reason: String) -> wasmtime::Result<()> {
        let target = convert::target(target);
        Ok(self.transaction(Interface::Log)?.remark(target, &knob, reason)?)
    }

    fn problem(&mut self, key: String, field: String, message: String) -> wasmtime::Result<()> {
        Ok(self.transaction(Interface::Log)?.key_problem(KeyProblem { key, field, message })?)
    }
}

impl state::Host for Host {
    fn load(&mut self) -> wasmtime::Result<Vec<u8>> {
        Ok(self.transaction(Interface::State)?.state().to_vec())
    }

    fn save(&mut self, bytes: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        Ok(self.transaction(Interface::State)?.save(bytes))
    }

    fn age_usec(&mut self) -> wasmtime::Result<Option<u64>> {
        Ok(self.transaction(Interface::State)?.inherited_age().map(|age| age.0))
    }
}

impl node::Host for Host {
    fn read(&mut self) -> wasmtime::Result<node::Sample> {
        self.transaction(Interface::Node)?;
        Ok(convert::node(&self.node.ok_or(Rule::NothingMeasured)?))
    }

    fn read_memory(&mut self) -> wasmtime::Result<Option<node::Memory>> {
        self.transaction(Interface::Node)?;
        Ok(self.columns.node_memory.as_ref().map(convert::node_use::memory))
    }

    fn read_pressure(&mut self) -> wasmtime::Result<Option<node::NodePressure>> {
        self.transaction(Interface::Node)?;
        Ok(self.columns.node_pressure.map(convert::node_use::pressure))
    }

    fn read_use(&mut self) -> wasmtime::Result<Vec<node::GroupUse>> {
        self.transaction(Interface::Node)?;
        Ok(self.columns.groups.iter().flat_map(|column| column.iter()).map(convert::node_use::group).collect())
    }

    fn read_applications(&mut self) -> wasmtime::Result<Vec<node::ApplicationUse>> {
        self.transaction(Interface::Node)?;
        let column = self.columns.applications.iter().flat_map(|column| column.iter());
        Ok(column.map(convert::node_use::application).collect())
    }
}

impl cpu_stat::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<cpu_stat::Sample>> {
        self.transaction(Interface::CpuStat)?;
        Ok(self.columns.cpu.iter().flat_map(|column| column.iter()).map(convert::cpu).collect())
    }

    fn read_bandwidth(&mut self) -> wasmtime::Result<Vec<cpu_stat::Bandwidth>> {
        self.transaction(Interface::CpuStat)?;
        Ok(self.columns.bandwidth.iter().flat_map(|column| column.iter()).filter_map(convert::bandwidth).collect())
    }

    fn bandwidth_generation(&mut self) -> wasmtime::Result<u64> {
        self.transaction(Interface::CpuStat)?;
        Ok(self.bandwidth.generation)
    }
}

impl memory_stat::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<memory_stat::Sample>> {
        self.transaction(Interface::MemoryStat)?;
        Ok(self.columns.memory.iter().flat_map(|column| column.iter()).map(convert::memory).collect())
    }
}

impl pressure::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<pressure::Sample>> {
        self.transaction(Interface::Pressure)?;
        Ok(self.columns.pressure.iter().flat_map(|column| column.iter()).map(convert::pressure).collect())
    }
}

impl numa_stat::Host for Host {
    fn read_nodes(&mut self) -> wasmtime::Result<Vec<numa_stat::NumaNode>> {
        self.transaction(Interface::NumaStat)?;
        Ok(self.columns.numa.iter().flat_map(|column| column.topology.iter()).map(convert::numa_node).collect())
    }

    fn read(&mut self) -> wasmtime::Result<Vec<numa_stat::Sample>> {
        self.transaction(Interface::NumaStat)?;
        Ok(self.columns.numa.iter().flat_map(|column| column.samples.iter()).map(convert::numa).collect())
    }
}

impl page_migration::Host for Host {
    fn start(
        &mut self,
        container: u32,
        from: Vec<u32>,
        to: Vec<u32>,
        token: u64,
        reason: String,
    ) -> wasmtime::Result<()> {
        let (transaction, _) = self.control(Interface::PageMigration, types::Target::Container(container))?;
        let reason = transaction.reason(reason);
        let nodes = |nodes: Vec<u32>| nodes.into_iter().map(NumaId).collect();
        let migration =
            Migration { container: ContainerId(container), from: nodes(from), to: nodes(to), token, reason };
        Ok(transaction.migrate(migration)?)
    }

    fn stop(&mut self, container: u32) -> wasmtime::Result<()> {
        let (transaction, _) = self.control(Interface::PageMigration, types::Target::Container(container))?;
        Ok(transaction.stop_migration(ContainerId(container))?)
    }

    fn read(&mut self) -> wasmtime::Result<Vec<page_migration::Progress>> {
        self.transaction(Interface::PageMigration)?;
        Ok(self.columns.migrations.iter().flat_map(|column| column.iter()).map(convert::migration).collect())
    }
}

impl resctrl_monitor::Host for Host {
    fn read_domains(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::Domain>> {
        self.transaction(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.domains).map(convert::resctrl::domain).collect())
    }

    fn read_classes(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::ClassSample>> {
        self.transaction(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.classes).map(convert::resctrl::class).collect())
    }

    fn read_containers(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::ContainerSample>> {
        self.transaction(Interface::ResctrlMonitor)?;
        let column = self.columns.resctrl.iter().flat_map(|column| &column.containers);
        Ok(column.map(convert::resctrl::container).collect())
    }

    fn read_rest(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::Usage>> {
        self.transaction(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.rest).map(convert::resctrl::usage).collect())
    }
}

impl node_object::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Option<node_object::Object>> {
        self.transaction(Interface::NodeObject)?;
        Ok(self.columns.node_object.as_deref().map(convert::object::node))
    }

    fn generation(&mut self) -> wasmtime::Result<u64> {
        self.transaction(Interface::NodeObject)?;
        Ok(self.node_object.generation)
    }
}

impl pod_object::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<pod_object::Object>> {
        self.transaction(Interface::PodObject)?;
        let rows = self.columns.pod_objects.iter().flat_map(|column| column.iter());
        // The module cannot name a pod that has just gone or that it was not given yet.
        Ok(rows
            .filter(|row| self.transaction.require(Target::Pod(row.pod)).is_ok())
            .map(convert::object::pod)
            .collect())
    }

    fn generation(&mut self) -> wasmtime::Result<u64> {
        self.transaction(Interface::PodObject)?;
        Ok(self.pod_objects.generation)
    }
}

impl cluster_config::Host for Host {
    fn read(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        self.transaction(Interface::ClusterConfig)?;
        let key = self.columns.cluster_config.as_deref().and_then(|config| config.get(&key));
        Ok(key.map(|key| key.text.clone()))
    }

    fn strategy(&mut self, key: String) -> wasmtime::Result<String> {
        self.transaction(Interface::ClusterConfig)?;
        let key = self.columns.cluster_config.as_deref().and_then(|config| config.get(&key));
        Ok(key.map_or_else(|| "{}".to_owned(), |key| key.strategy.clone()))
    }

    fn generation(&mut self) -> wasmtime::Result<u64> {
        self.transaction(Interface::ClusterConfig)?;
        Ok(self.cluster_config.generation)
    }
}

impl cpu_topology::Host for Host {
    fn read(&mut self) -> wasmtime::Result<cpu_topology::Topology> {
        self.transaction(Interface::CpuTopology)?;
        let nothing = CpuTopology::default();
        Ok(convert::cpu_topology::topology(self.columns.cpu_topology.as_deref().unwrap_or(&nothing)))
    }

    fn generation(&mut self) -> wasmtime::Result<u64> {
        self.transaction(Interface::CpuTopology)?;
        Ok(self.cpu_topology.generation)
    }

    fn read_sets(&mut self) -> wasmtime::Result<Vec<cpu_topology::CpuSet>> {
        self.transaction(Interface::CpuTopology)?;
        Ok(self
            .columns
            .cpu_sets
            .iter()
            .flat_map(|column| column.iter())
            .filter_map(convert::cpu_topology::set)
            .collect())
    }
}

impl types::Host for Host {}

impl cpu_bandwidth::Host for Host {
    fn set_quota(&mut self, target: types::Target, quota: Option<u64>, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuBandwidth, target)?;
        let value = quota.map_or(Ok(Value::Max), |quota| number("quota", quota))?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CfsQuota, value, &reason)?)
    }

    fn set_burst(&mut self, target: types::Target, burst: u64, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuBandwidth, target)?;
        let value = number("burst", burst)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CfsBurst, value, &reason)?)
    }

    fn release_quota(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuBandwidth, target)?;
        Ok(transaction.release(target, Knob::CfsQuota)?)
    }

    fn release_burst(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuBandwidth, target)?;
        Ok(transaction.release(target, Knob::CfsBurst)?)
    }
}

impl cpu_weight::Host for Host {
    fn set_weight(&mut self, target: types::Target, weight: u32, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuWeight, target)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CpuWeight, Value::Number(weight.into()), &reason)?)
    }

    fn release_weight(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuWeight, target)?;
        Ok(transaction.release(target, Knob::CpuWeight)?)
    }

    fn set_shares(&mut self, target: types::Target, shares: u32, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuWeight, target)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CpuWeight, Value::Shares(shares.into()), &reason)?)
    }

    fn set_idle(&mut self, container: u32, idle: bool, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuWeight, types::Target::Container(container))?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CpuIdle, Value::Number(idle.into()), &reason)?)
    }

    fn release_idle(&mut self, container: u32) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuWeight, types::Target::Container(container))?;
        Ok(transaction.release(target, Knob::CpuIdle)?)
    }
}

impl cpu_identity::Host for Host {
    fn read_support(&mut self) -> wasmtime::Result<Result<(), String>> {
        self.transaction(Interface::CpuIdentity)?;
        Ok(self.columns.identity_support().map_err(|why| why.to_string()))
    }

    fn set_identity(&mut self, target: types::Target, identity: i8, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuIdentity, target)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::BvtWarp, Value::Number(identity.into()), &reason)?)
    }

    fn release_identity(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuIdentity, target)?;
        Ok(transaction.release(target, Knob::BvtWarp)?)
    }

    fn read_core_scheduling(&mut self) -> wasmtime::Result<Result<(), String>> {
        self.transaction(Interface::CpuIdentity)?;
        Ok(self.columns.core_scheduling_support().map_err(|why| why.to_string()))
    }

    fn set_core_group(&mut self, container: u32, group: u64, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuIdentity, types::Target::Container(container))?;
        let reason = transaction.reason(reason);
        let group = Value::Number(i64::try_from(group).unwrap_or(i64::MAX));
        Ok(transaction.acquire(target, Knob::CoreGroup, group, &reason)?)
    }

    fn release_core_group(&mut self, container: u32) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::CpuIdentity, types::Target::Container(container))?;
        Ok(transaction.release(target, Knob::CoreGroup)?)
    }
}

impl cpuset::Host for Host {
    fn set_memory_nodes(&mut self, container: u32, nodes: Vec<u32>, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::Cpuset, types::Target::Container(container))?;
        let value = convert::node_mask(&nodes)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CpusetMems, value, &reason)?)
    }

    fn release_memory_nodes(&mut self, container: u32) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::Cpuset, types::Target::Container(container))?;
        Ok(transaction.release(target, Knob::CpusetMems)?)
    }

    fn set_cpus(&mut self, target: types::Target, cpus: Vec<u32>, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::Cpuset, target)?;
        let value = convert::cpu_set(&cpus)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::CpusetCpus, value, &reason)?)
    }

    fn release_cpus(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::Cpuset, target)?;
        Ok(transaction.release(target, Knob::CpusetCpus)?)
    }
}

impl memory_limit::Host for Host {
    fn set(&mut self, target: types::Target, bytes: Option<u64>, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::MemoryLimit, target)?;
        let value = bytes.map_or(Ok(Value::Max), |bytes| number("memory limit", bytes))?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(target, Knob::MemoryMax, value, &reason)?)
    }

    fn release(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::MemoryLimit, target)?;
        Ok(transaction.release(target, Knob::MemoryMax)?)
    }
}

impl node_knobs::Host for Host {
    fn set(&mut self, knob: node_knobs::Knob, value: u64, reason: String) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::NodeKnobs)?;
        let value = number("setting of the node", value)?;
        let reason = transaction.reason(reason);
        Ok(transaction.acquire(Target::Node, convert::node_knob::of(knob), value, &reason)?)
    }

    fn release(&mut self, knob: node_knobs::Knob) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::NodeKnobs)?;
        Ok(transaction.release(Target::Node, convert::node_knob::of(knob))?)
    }

    fn read(&mut self) -> wasmtime::Result<Vec<node_knobs::State>> {
        self.transaction(Interface::NodeKnobs)?;
        Ok(convert::node_knob::states(self.columns.node_knobs.as_deref().unwrap_or_default()))
    }

    fn remark(&mut self, knob: node_knobs::Knob, reason: String) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::NodeKnobs)?;
        Ok(transaction.remark(Target::Node, convert::node_knob::of(knob).kind_name(), reason)?)
    }
}

impl memory_protection::Host for Host {
    fn set(
        &mut self,
        target: types::Target,
        protection: memory_protection::Protection,
        reason: String,
    ) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::MemoryProtection, target)?;
        let wanted = convert::protection(&protection)?;
        let reason = transaction.reason(reason);
        for (knob, value) in wanted {
            match value {
                Some(value) => transaction.acquire(target, knob, value, &reason)?,
                None => transaction.release(target, knob)?,
            }
        }
        Ok(())
    }

    fn release(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::MemoryProtection, target)?;
        for (knob, _) in convert::protection(&convert::NOTHING_PROTECTED)? {
            transaction.release(target, knob)?;
        }
        Ok(())
    }
}

impl resctrl_allocation::Host for Host {
    fn define(
        &mut self,
        class: String,
        share: resctrl_allocation::Share,
        domains: Vec<(u32, resctrl_allocation::Share)>,
        reason: String,
    ) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::ResctrlAllocation)?;
        let reason = transaction.reason(reason);
        let class = convert::resctrl::name(&class)?;
        let shares = convert::resctrl::shares(&class, &share, &domains)?;
        Ok(transaction.define_class(class, shares, reason)?)
    }

    fn undefine(&mut self, class: String) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::ResctrlAllocation)?;
        Ok(transaction.undefine_class(&convert::resctrl::name(&class)?)?)
    }

    fn assign(&mut self, target: types::Target, class: String, reason: String) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::ResctrlAllocation, target)?;
        let reason = transaction.reason(reason);
        Ok(transaction.assign_class(target, convert::resctrl::name(&class)?, reason)?)
    }

    fn release(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (transaction, target) = self.control(Interface::ResctrlAllocation, target)?;
        Ok(transaction.release_class(target)?)
    }

    fn read_states(&mut self) -> wasmtime::Result<Vec<resctrl_allocation::ClassState>> {
        self.transaction(Interface::ResctrlAllocation)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.states).map(convert::resctrl::state).collect())
    }
}

impl node_resource::Host for Host {
    fn publish(&mut self, name: String, offer: node_resource::Offer, reason: String) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::NodeResource)?;
        let name = convert::resource::name(&name)?;
        let offer = convert::resource::offer(&name, &offer)?;
        let reason = transaction.reason(reason);
        Ok(transaction.publish(name, offer, reason)?)
    }

    fn withdraw(&mut self, name: String) -> wasmtime::Result<()> {
        let transaction = self.transaction(Interface::NodeResource)?;
        Ok(transaction.withdraw(convert::resource::name(&name)?)?)
    }

    fn stale_after(&mut self, seconds: u32) -> wasmtime::Result<()> {
        Ok(self.transaction(Interface::NodeResource)?.stale_after(seconds)?)
    }

    fn read_states(&mut self) -> wasmtime::Result<Vec<node_resource::State>> {
        self.transaction(Interface::NodeResource)?;
        Ok(self.columns.resources.iter().flat_map(|column| column.iter()).map(convert::resource::state).collect())
    }
}

impl eviction::Host for Host {
    fn evict(
        &mut self,
        pod: u32,
        urgency: eviction::Urgency,
        grace_period: Option<u32>,
        reason: String,
        message: String,
    ) -> wasmtime::Result<()> {
        let urgency = match urgency {
            eviction::Urgency::Soon => Urgency::Soon,
            eviction::Urgency::Now => Urgency::Now,
        };
        let wanted = Eviction { pod: PodId(pod), urgency, grace_period, reason, message };
        Ok(self.transaction(Interface::Eviction)?.evict(wanted)?)
    }

    fn withdraw(&mut self, pod: u32) -> wasmtime::Result<()> {
        Ok(self.transaction(Interface::Eviction)?.withdraw_eviction(PodId(pod))?)
    }

    fn read_evictions(&mut self) -> wasmtime::Result<Vec<eviction::State>> {
        self.transaction(Interface::Eviction)?;
        Ok(self.columns.evictions.iter().flat_map(|column| column.iter()).map(convert::resource::eviction).collect())
    }
}

impl pod_event::Host for Host {
    fn emit(&mut self, pod: u32, kind: pod_event::Kind, reason: String, message: String) -> wasmtime::Result<()> {
        let kind = match kind {
            pod_event::Kind::Normal => EventKind::Normal,
            pod_event::Kind::Warning => EventKind::Warning,
        };
        Ok(self.transaction(Interface::PodEvent)?.event(PodId(pod), kind, reason, message)?)
    }
}

/// A number that a knob can hold.
pub(crate) fn number(what: &'static str, value: u64) -> Result<Value, Rule> {
    i64::try_from(value).map(Value::Number).map_err(|_| Rule::OutOfRange { what, value })
}
