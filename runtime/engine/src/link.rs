//! The imports: what a module's calls do. An interface is linked only if it was granted; without the grant there is no symbol.

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_model::alarm::Alarm;
use qosm_model::column::{BandwidthSample, CpuSample, MemorySample, NodeSample, PressureSample};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, MigrationSample, NumaColumn, NumaId};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::ResctrlColumn;
use qosm_model::setting::EventKind;
use qosm_model::unit::Bytes;
use wasmtime::ResourceLimiter;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, HasSelf, Linker};

use crate::bindings::qosm::policy::{
    cpu_bandwidth, cpu_stat, cpu_weight, cpuset, log, memory_protection, memory_stat, node, numa_stat, page_migration,
    pod_event, pressure, resctrl_allocation, resctrl_monitor, state, types,
};
use crate::convert;
use crate::error::{Exhausted, Rule};
use crate::interface::{ExternName, Interface};
use crate::limits::{Limits, words};
use crate::staging::{LogLevel, Stage};
use crate::watchdog::Deadline;

/// The columns of one evaluation. Those that the module does not import may be missing; a missing one reads as empty.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The node. A module may read the last one it was shown in other calls too.
    pub node: Option<NodeSample>,
    /// CPU time and throttling, one sample a container.
    pub cpu: Option<Arc<[CpuSample]>>,
    /// Quotas, one sample a pod or container.
    pub bandwidth: Option<Arc<[BandwidthSample]>>,
    /// Memory, one sample a container.
    pub memory: Option<Arc<[MemorySample]>>,
    /// Pressure, one sample a container.
    pub pressure: Option<Arc<[PressureSample]>>,
    /// NUMA nodes, and where memory lies.
    pub numa: Option<Arc<NumaColumn>>,
    /// How far the policy's migrations are.
    pub migrations: Option<Arc<[MigrationSample]>>,
    /// Who uses caches and memory bandwidth, and how the policy's classes fare.
    pub resctrl: Option<Arc<ResctrlColumn>>,
    /// What fired since the policy's last evaluation.
    pub alarms: Vec<Alarm>,
}

/// What an instance's imports work on: all that the module can reach.
pub(crate) struct Host {
    pub(crate) stage: Stage,
    pub(crate) columns: Columns,
    pub(crate) node: Option<NodeSample>,
    /// The column of quotas as it was last shown, and how often it has changed.
    bandwidth: (Option<Arc<[BandwidthSample]>>, u64),
    pub(crate) memory: MemoryBound,
    pub(crate) deadline: Deadline,
    /// While the module is instantiated its imports do nothing yet.
    pub(crate) starting: bool,
}

impl Host {
    pub(crate) fn new(limits: &Limits, state: Vec<u8>, deadline: Deadline) -> Self {
        Self {
            stage: Stage::new(limits.clone(), state),
            columns: Columns::default(),
            node: None,
            bandwidth: (None, 0),
            memory: MemoryBound::new(limits),
            deadline,
            starting: true,
        }
    }

    /// Takes the columns of one evaluation.
    pub(crate) fn show(&mut self, columns: &Columns) {
        self.columns = columns.clone();
        self.node = columns.node.or(self.node);
        let (shown, generation) = &mut self.bandwidth;
        if *shown != columns.bandwidth {
            shown.clone_from(&columns.bandwidth);
            *generation += 1;
        }
    }

    /// The stage, for an interface that a module has just called.
    fn stage(&mut self, interface: Interface) -> Result<&mut Stage, Rule> {
        if self.starting { Err(Rule::ImportAtStart { interface }) } else { Ok(&mut self.stage) }
    }

    /// The stage, for a control of this target.
    fn control(&mut self, interface: Interface, target: types::Target) -> Result<(&mut Stage, Target), Rule> {
        let stage = self.stage(interface)?;
        let target = convert::target(target);
        stage.require(target)?;
        Ok((stage, target))
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
        Interface::CpuBandwidth => cpu_bandwidth::add_to_linker::<_, Own>(linker, host),
        Interface::CpuWeight => cpu_weight::add_to_linker::<_, Own>(linker, host),
        Interface::MemoryProtection => memory_protection::add_to_linker::<_, Own>(linker, host),
        Interface::Cpuset => cpuset::add_to_linker::<_, Own>(linker, host),
        Interface::PageMigration => page_migration::add_to_linker::<_, Own>(linker, host),
        Interface::ResctrlAllocation => resctrl_allocation::add_to_linker::<_, Own>(linker, host),
        Interface::PodEvent => pod_event::add_to_linker::<_, Own>(linker, host),
    }
}

/// Links every function of these interfaces to a broken rule: the component can be instantiated, and not reach them.
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

/// Bounds what the instance allocates, and says which bound was hit.
pub(crate) struct MemoryBound {
    limit: Bytes,
    table_limit: usize,
    used: usize,
}

impl MemoryBound {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limit: limits.memory, table_limit: limits.table_elements, used: 0 }
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

    // A module and the shims that lead its imports and exports in and out are three or four; a language that links its runtime from
    // shared libraries, as Python does, has dozens. What they take is bounded by what inspection counts.
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
        self.stage(Interface::Log)?.log(level, message);
        Ok(())
    }
}

impl state::Host for Host {
    fn load(&mut self) -> wasmtime::Result<Vec<u8>> {
        Ok(self.stage(Interface::State)?.state().to_vec())
    }

    fn save(&mut self, bytes: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        Ok(self.stage(Interface::State)?.save(bytes))
    }
}

impl node::Host for Host {
    fn read(&mut self) -> wasmtime::Result<node::Sample> {
        self.stage(Interface::Node)?;
        Ok(convert::node(&self.node.ok_or(Rule::NothingMeasured)?))
    }
}

impl cpu_stat::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<cpu_stat::Sample>> {
        self.stage(Interface::CpuStat)?;
        Ok(self.columns.cpu.iter().flat_map(|column| column.iter()).map(convert::cpu).collect())
    }

    fn read_bandwidth(&mut self) -> wasmtime::Result<Vec<cpu_stat::Bandwidth>> {
        self.stage(Interface::CpuStat)?;
        Ok(self.columns.bandwidth.iter().flat_map(|column| column.iter()).map(convert::bandwidth).collect())
    }

    fn bandwidth_generation(&mut self) -> wasmtime::Result<u64> {
        self.stage(Interface::CpuStat)?;
        Ok(self.bandwidth.1)
    }
}

impl memory_stat::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<memory_stat::Sample>> {
        self.stage(Interface::MemoryStat)?;
        Ok(self.columns.memory.iter().flat_map(|column| column.iter()).map(convert::memory).collect())
    }
}

impl pressure::Host for Host {
    fn read(&mut self) -> wasmtime::Result<Vec<pressure::Sample>> {
        self.stage(Interface::Pressure)?;
        Ok(self.columns.pressure.iter().flat_map(|column| column.iter()).map(convert::pressure).collect())
    }
}

impl numa_stat::Host for Host {
    fn read_nodes(&mut self) -> wasmtime::Result<Vec<numa_stat::NumaNode>> {
        self.stage(Interface::NumaStat)?;
        Ok(self.columns.numa.iter().flat_map(|column| column.topology.iter()).map(convert::numa_node).collect())
    }

    fn read(&mut self) -> wasmtime::Result<Vec<numa_stat::Sample>> {
        self.stage(Interface::NumaStat)?;
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
        let (stage, _) = self.control(Interface::PageMigration, types::Target::Container(container))?;
        let reason = stage.reason(reason)?;
        let nodes = |nodes: Vec<u32>| nodes.into_iter().map(NumaId).collect();
        let migration =
            Migration { container: ContainerId(container), from: nodes(from), to: nodes(to), token, reason };
        Ok(stage.migrate(migration)?)
    }

    fn stop(&mut self, container: u32) -> wasmtime::Result<()> {
        let (stage, _) = self.control(Interface::PageMigration, types::Target::Container(container))?;
        Ok(stage.stop_migration(ContainerId(container))?)
    }

    fn read(&mut self) -> wasmtime::Result<Vec<page_migration::Progress>> {
        self.stage(Interface::PageMigration)?;
        Ok(self.columns.migrations.iter().flat_map(|column| column.iter()).map(convert::migration).collect())
    }
}

impl resctrl_monitor::Host for Host {
    fn read_domains(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::Domain>> {
        self.stage(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.domains).map(convert::resctrl::domain).collect())
    }

    fn read_classes(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::ClassSample>> {
        self.stage(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.classes).map(convert::resctrl::class).collect())
    }

    fn read_containers(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::ContainerSample>> {
        self.stage(Interface::ResctrlMonitor)?;
        let column = self.columns.resctrl.iter().flat_map(|column| &column.containers);
        Ok(column.map(convert::resctrl::container).collect())
    }

    fn read_rest(&mut self) -> wasmtime::Result<Vec<resctrl_monitor::Usage>> {
        self.stage(Interface::ResctrlMonitor)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.rest).map(convert::resctrl::usage).collect())
    }
}

impl types::Host for Host {}

impl cpu_bandwidth::Host for Host {
    fn set_quota(&mut self, target: types::Target, quota: Option<u64>, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuBandwidth, target)?;
        let value = quota.map_or(Ok(Value::Max), |quota| number("quota", quota))?;
        let reason = stage.reason(reason)?;
        Ok(stage.hold(target, Knob::CfsQuota, value, &reason)?)
    }

    fn set_burst(&mut self, target: types::Target, burst: u64, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuBandwidth, target)?;
        let value = number("burst", burst)?;
        let reason = stage.reason(reason)?;
        Ok(stage.hold(target, Knob::CfsBurst, value, &reason)?)
    }

    fn release_quota(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuBandwidth, target)?;
        Ok(stage.release(target, Knob::CfsQuota)?)
    }

    fn release_burst(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuBandwidth, target)?;
        Ok(stage.release(target, Knob::CfsBurst)?)
    }
}

impl cpu_weight::Host for Host {
    fn set_weight(&mut self, target: types::Target, weight: u32, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuWeight, target)?;
        let reason = stage.reason(reason)?;
        Ok(stage.hold(target, Knob::CpuWeight, Value::Number(weight.into()), &reason)?)
    }

    fn release_weight(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuWeight, target)?;
        Ok(stage.release(target, Knob::CpuWeight)?)
    }

    fn set_idle(&mut self, container: u32, idle: bool, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuWeight, types::Target::Container(container))?;
        let reason = stage.reason(reason)?;
        Ok(stage.hold(target, Knob::CpuIdle, Value::Number(idle.into()), &reason)?)
    }

    fn release_idle(&mut self, container: u32) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::CpuWeight, types::Target::Container(container))?;
        Ok(stage.release(target, Knob::CpuIdle)?)
    }
}

impl cpuset::Host for Host {
    fn set_memory_nodes(&mut self, container: u32, nodes: Vec<u32>, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::Cpuset, types::Target::Container(container))?;
        let value = convert::node_mask(&nodes)?;
        let reason = stage.reason(reason)?;
        Ok(stage.hold(target, Knob::CpusetMems, value, &reason)?)
    }

    fn release_memory_nodes(&mut self, container: u32) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::Cpuset, types::Target::Container(container))?;
        Ok(stage.release(target, Knob::CpusetMems)?)
    }
}

impl memory_protection::Host for Host {
    fn set(
        &mut self,
        target: types::Target,
        protection: memory_protection::Protection,
        reason: String,
    ) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::MemoryProtection, target)?;
        let wanted = convert::protection(&protection)?;
        let reason = stage.reason(reason)?;
        for (knob, value) in wanted {
            match value {
                Some(value) => stage.hold(target, knob, value, &reason)?,
                None => stage.release(target, knob)?,
            }
        }
        Ok(())
    }

    fn release(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::MemoryProtection, target)?;
        for (knob, _) in convert::protection(&convert::NOTHING_PROTECTED)? {
            stage.release(target, knob)?;
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
        let stage = self.stage(Interface::ResctrlAllocation)?;
        let reason = stage.reason(reason)?;
        let class = convert::resctrl::name(&class)?;
        let shares = convert::resctrl::shares(&class, &share, &domains)?;
        Ok(stage.define_class(class, shares, reason)?)
    }

    fn undefine(&mut self, class: String) -> wasmtime::Result<()> {
        let stage = self.stage(Interface::ResctrlAllocation)?;
        Ok(stage.undefine_class(&convert::resctrl::name(&class)?)?)
    }

    fn assign(&mut self, target: types::Target, class: String, reason: String) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::ResctrlAllocation, target)?;
        let reason = stage.reason(reason)?;
        Ok(stage.assign_class(target, convert::resctrl::name(&class)?, reason)?)
    }

    fn release(&mut self, target: types::Target) -> wasmtime::Result<()> {
        let (stage, target) = self.control(Interface::ResctrlAllocation, target)?;
        Ok(stage.release_class(target)?)
    }

    fn read_states(&mut self) -> wasmtime::Result<Vec<resctrl_allocation::ClassState>> {
        self.stage(Interface::ResctrlAllocation)?;
        Ok(self.columns.resctrl.iter().flat_map(|column| &column.states).map(convert::resctrl::state).collect())
    }
}

impl pod_event::Host for Host {
    fn emit(&mut self, pod: u32, kind: pod_event::Kind, reason: String, message: String) -> wasmtime::Result<()> {
        let kind = match kind {
            pod_event::Kind::Normal => EventKind::Normal,
            pod_event::Kind::Warning => EventKind::Warning,
        };
        Ok(self.stage(Interface::PodEvent)?.event(PodId(pod), kind, reason, message)?)
    }
}

/// A number that a knob can hold.
pub(crate) fn number(what: &'static str, value: u64) -> Result<Value, Rule> {
    i64::try_from(value).map(Value::Number).map_err(|_| Rule::OutOfRange { what, value })
}
