//! Observe: each container is read once a tick for all policies. Each policy gets the difference to the reading that it got last.

mod block_devices;
mod cpu_topology;
mod node_use;

use std::sync::Arc;
use std::time::Instant;

use qosm_cluster::node_report::ControllerAnswer;
use qosm_engine::{Columns, Interface, Part};
use qosm_host::{Host, HostError, Support};
use qosm_model::block_io::BlockDevices;
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, MemoryCounters, MemorySample, NodeSample, PressureCounters, PressureSample,
};
use qosm_model::cpu_topology::{CpuSet, CpuTopology};
use qosm_model::eviction::EvictionState;
use qosm_model::knob::Target;
use qosm_model::layering::ClusterConfig;
use qosm_model::node::NodeKnobSample;
use qosm_model::node_resource::ResourceState;
use qosm_model::numa::{MigrationSample, NumaColumn};
use qosm_model::object::PodObject;
use qosm_model::pod::{ContainerId, Node};
use qosm_model::unit::{Bytes, Micros};

pub(crate) use self::block_devices::block_devices;
pub(crate) use self::cpu_topology::{cpu_sets, cpu_topology};
use self::node_use::NodeReadings;
use crate::controls::resctrl_totals::ResctrlTotals;

/// Readings in the order of container ids.
pub(crate) type Reading<T> = Arc<Vec<(ContainerId, T)>>;

/// The migrations of all policies, in the order of container ids.
pub(crate) type Moves = Arc<[(Arc<str>, MigrationSample)]>;

/// State of each request to the cluster, with the policy that made it.
pub(crate) type ByPolicy<T> = Arc<[(Arc<str>, T)]>;

/// The readings of one tick; a field is `None` if no due policy imports its interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub(crate) cpu: Option<Reading<CpuCounters>>,
    pub(crate) memory: Option<Reading<MemoryCounters>>,
    pub(crate) pressure: Option<Reading<PressureCounters>>,
    pub(crate) bandwidth: Option<Arc<[BandwidthSample]>>,
    pub(crate) numa: Option<Arc<NumaColumn>>,
    pub(crate) migrations: Option<Moves>,
    pub(crate) resctrl: Option<Arc<ResctrlTotals>>,
    pub(crate) cpu_topology: Option<Arc<CpuTopology>>,
    pub(crate) cpu_sets: Option<Arc<[CpuSet]>>,
    pub(crate) group_identity: Option<Result<(), Arc<str>>>,
    pub(crate) core_scheduling: Option<Result<(), Arc<str>>>,
    pub(crate) node_knobs: Option<Arc<[NodeKnobSample]>>,
    pub(crate) block_devices: Option<Arc<BlockDevices>>,
    /// The controller's answer to the node's last report.
    pub(crate) answer: Option<Arc<ControllerAnswer>>,
    /// State of the resources that policies publish.
    pub(crate) resources: Option<ByPolicy<ResourceState>>,
    /// State of the evictions that policies asked for.
    pub(crate) evictions: Option<ByPolicy<EvictionState>>,
    pub(crate) node: Option<NodeSample>,
    pub(crate) node_use: NodeReadings,
    pub(crate) node_object: Option<Arc<Node>>,
    pub(crate) pod_objects: Option<Arc<[PodObject]>>,
    pub(crate) cluster_config: Option<Arc<ClusterConfig>>,
    /// Running total of the busy time of the CPUs that pods may use, and how often this set of CPUs has changed.
    pub(crate) node_busy: Option<(Micros, u32)>,
}

/// How long a column took to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnCost {
    pub(crate) column: Interface,
    pub(crate) seconds: f64,
}

/// Reads the columns for which `wanted` returns `true`, for these containers. Adds containers whose cgroup is gone to `gone`.
#[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
pub(crate) fn read(
    host: &mut Host,
    containers: &[ContainerId],
    (reserved, generation): (&[u32], u32),
    wanted: &dyn Fn(Interface) -> bool,
    memory_allocatable: Option<Bytes>,
    gone: &mut Vec<ContainerId>,
    costs: &mut Vec<ColumnCost>,
) -> Readings {
    let mut readings = Readings::default();
    let mut timed = |column: Interface, read: &mut dyn FnMut()| {
        if wanted(column) {
            let start = Instant::now();
            read();
            costs.push(ColumnCost { column, seconds: start.elapsed().as_secs_f64() });
        }
    };
    timed(Interface::CpuStat, &mut || {
        readings.cpu = Some(column(containers, gone, |id| host.cpu_counters(id)));
    });
    timed(Interface::MemoryStat, &mut || {
        readings.memory = Some(column(containers, gone, |id| host.memory_counters(id)));
    });
    timed(Interface::Pressure, &mut || {
        readings.pressure = Some(column(containers, gone, |id| host.pressure_counters(id)));
    });
    timed(Interface::Node, &mut || {
        let memory = host.node_memory().ok();
        let capacity = memory.map_or(Bytes(0), |(capacity, _)| capacity);
        readings.node_busy = host.node_cpu_busy(reserved).ok().map(|busy| (busy, generation));
        let reserved = u32::try_from(reserved.len()).unwrap_or(u32::MAX);
        readings.node = Some(NodeSample {
            cpus: host.cpus().saturating_sub(reserved),
            memory_capacity: capacity,
            memory_allocatable: memory_allocatable.unwrap_or(capacity),
            page_size: host.page_size(),
            cpu_usage: None,
            memory_available: memory.map(|(_, available)| available),
        });
    });
    readings
}

/// Converts the support of a feature to what modules read.
pub(crate) fn support(support: Support) -> Result<(), Arc<str>> {
    match support {
        Support::Native | Support::Emulated { .. } => Ok(()),
        Support::Unavailable { why } => Err(why.into()),
    }
}

/// Reads the NUMA nodes, and where the memory of these containers lies. With one NUMA node the latter is known without reading.
#[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
pub(crate) fn numa(
    host: &mut Host,
    containers: &[ContainerId],
    gone: &mut Vec<ContainerId>,
    costs: &mut Vec<ColumnCost>,
) -> Arc<NumaColumn> {
    if containers.is_empty() {
        return Arc::default();
    }
    let start = Instant::now();
    let topology = host.numa_topology();
    let mut samples = Vec::new();
    if !topology.is_one_place() {
        samples.reserve(containers.len());
        for &id in containers {
            match host.numa_sample(id, &topology) {
                Ok(sample) => samples.push(sample),
                Err(HostError::Gone { .. }) => gone.push(id),
                Err(error) => tracing::debug!(container = id.0, %error, "NUMA sample missing"),
            }
        }
    }
    costs.push(ColumnCost { column: Interface::NumaStat, seconds: start.elapsed().as_secs_f64() });
    Arc::new(NumaColumn { topology, samples })
}

fn column<T>(
    containers: &[ContainerId],
    gone: &mut Vec<ContainerId>,
    mut read: impl FnMut(ContainerId) -> Result<T, HostError>,
) -> Reading<T> {
    let mut rows = Vec::with_capacity(containers.len());
    for &id in containers {
        match read(id) {
            Ok(row) => rows.push((id, row)),
            Err(HostError::Gone { .. }) => gone.push(id),
            // Missing for this tick; a policy treats a missing sample as "do not know".
            Err(error) => tracing::debug!(container = id.0, %error, "sample missing"),
        }
    }
    Arc::new(rows)
}

impl Readings {
    /// The readings from which the next differences are taken: these, or `earlier` for columns that were not read.
    pub(crate) fn carrying(&self, earlier: &Self, alive: impl Fn(ContainerId) -> bool + Copy) -> Self {
        Self {
            cpu: carried(&self.cpu, &earlier.cpu, alive),
            memory: carried(&self.memory, &earlier.memory, alive),
            pressure: carried(&self.pressure, &earlier.pressure, alive),
            bandwidth: None,
            numa: None,
            migrations: None,
            resctrl: self.resctrl.clone().or_else(|| earlier.resctrl.clone()),
            cpu_topology: None,
            cpu_sets: None,
            group_identity: None,
            core_scheduling: None,
            node_knobs: None,
            block_devices: None,
            answer: self.answer.clone().or_else(|| earlier.answer.clone()),
            resources: None,
            evictions: None,
            node: None,
            node_use: self.node_use.carrying(&earlier.node_use),
            node_object: None,
            pod_objects: None,
            cluster_config: None,
            node_busy: self.node_busy.or(earlier.node_busy),
        }
    }

    /// Reads these parts of the node's signals. Usage is read for all tiers, and for the pods in `groups`.
    #[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
    pub(crate) fn read_node(&mut self, host: &mut Host, parts: &[Part], groups: &[Target], costs: &mut [ColumnCost]) {
        let start = Instant::now();
        self.node_use = NodeReadings::read(host, parts, groups);
        // These parts belong to the node's column, which was read already.
        if let Some(cost) = costs.iter_mut().find(|cost| cost.column == Interface::Node) {
            cost.seconds += start.elapsed().as_secs_f64();
        }
    }

    /// The columns for a policy that last read `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Columns {
        let cpu_usage = match (self.node_busy, earlier.node_busy) {
            // There is no difference between the busy times of different sets of CPUs.
            (Some((now, of)), Some((then, before))) if of == before => Some(Micros(now.0.saturating_sub(then.0))),
            _ => None,
        };
        Columns {
            node: self.node.map(|node| NodeSample { cpu_usage, ..node }),
            node_memory: self.node_use.memory,
            node_pressure: self.node_use.pressure.zip(earlier.node_use.pressure).map(|(now, then)| now.since(then)),
            groups: self.node_use.groups_since(&earlier.node_use, cpu_usage),
            applications: self.node_use.applications_since(&earlier.node_use),
            cpu: differences(&self.cpu, &earlier.cpu, |container, now, then| CpuSample {
                container,
                delta: now.since(then),
            }),
            bandwidth: self.bandwidth.clone(),
            memory: differences(&self.memory, &earlier.memory, |container, now, then| MemorySample {
                container,
                memory: now.since(then),
            }),
            pressure: differences(&self.pressure, &earlier.pressure, |container, now, then| PressureSample {
                container,
                delta: now.since(then),
            }),
            numa: self.numa.clone(),
            migrations: None,
            resctrl: None,
            resources: None,
            evictions: None,
            node_object: self.node_object.clone(),
            pod_objects: self.pod_objects.clone(),
            cluster_config: self.cluster_config.clone(),
            cpu_topology: self.cpu_topology.clone(),
            cpu_sets: self.cpu_sets.clone(),
            group_identity: self.group_identity.clone(),
            core_scheduling: self.core_scheduling.clone(),
            node_knobs: self.node_knobs.clone(),
            block_devices: self.block_devices.clone(),
            alarms: Vec::new(),
        }
    }

    /// State of the resources of one policy.
    pub(crate) fn resources_of(&self, policy: &str) -> Option<Arc<[ResourceState]>> {
        of_policy(self.resources.as_ref()?, policy)
    }

    /// State of the evictions of one policy.
    pub(crate) fn evictions_of(&self, policy: &str) -> Option<Arc<[EvictionState]>> {
        of_policy(self.evictions.as_ref()?, policy)
    }

    /// Progress of the migrations of one policy.
    pub(crate) fn migrations_of(&self, policy: &str) -> Option<Arc<[MigrationSample]>> {
        let moves = self.migrations.as_ref()?;
        Some(moves.iter().filter(|(of, _)| **of == *policy).map(|(_, sample)| sample.clone()).collect())
    }
}

/// The entries of one policy.
fn of_policy<T: Clone>(all: &[(Arc<str>, T)], policy: &str) -> Option<Arc<[T]>> {
    Some(all.iter().filter(|(of, _)| **of == *policy).map(|(_, own)| own.clone()).collect())
}

/// The reading from which the next difference is taken: `now`, and the rows of `then` for live containers that are missing in `now`.
pub(crate) fn carried<T: Copy>(
    now: &Option<Reading<T>>,
    then: &Option<Reading<T>>,
    alive: impl Fn(ContainerId) -> bool,
) -> Option<Reading<T>> {
    let (Some(now), Some(then)) = (now, then) else { return now.clone().or_else(|| then.clone()) };
    let missing: Vec<_> = {
        let mut present = now.iter().peekable();
        then.iter()
            .filter(|(id, _)| {
                while present.next_if(|(other, _)| other < id).is_some() {}
                present.peek().is_none_or(|(other, _)| other != id) && alive(*id)
            })
            .copied()
            .collect()
    };
    if missing.is_empty() {
        return Some(Arc::clone(now));
    }
    let mut rows: Vec<_> = now.iter().copied().chain(missing).collect();
    rows.sort_unstable_by_key(|&(id, _)| id);
    Some(Arc::new(rows))
}

/// Joins two readings, both in the order of ids, and keeps the containers that are in both.
fn differences<T: Copy, S>(
    now: &Option<Reading<T>>,
    then: &Option<Reading<T>>,
    sample: impl Fn(ContainerId, T, T) -> S,
) -> Option<Arc<[S]>> {
    let now = now.as_ref()?;
    let empty = Vec::new();
    let mut earlier = then.as_deref().unwrap_or(&empty).iter().peekable();
    let mut samples = Vec::with_capacity(now.len());
    for &(id, row) in now.iter() {
        while earlier.next_if(|(other, _)| *other < id).is_some() {}
        if let Some(&(_, was)) = earlier.next_if(|(other, _)| *other == id) {
            samples.push(sample(id, row, was));
        }
    }
    Some(samples.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(rows: &[(u32, u64)]) -> Readings {
        let rows = rows
            .iter()
            .map(|&(id, usage)| (ContainerId(id), CpuCounters { usage: Micros(usage), ..CpuCounters::default() }))
            .collect();
        Readings { cpu: Some(Arc::new(rows)), ..Readings::default() }
    }

    #[test]
    fn a_container_is_missing_until_it_was_read_twice() {
        let columns = reading(&[(2, 50), (4, 70), (9, 5)]).since(&reading(&[(1, 1), (2, 20), (9, 9)]));
        let rows: Vec<_> =
            columns.cpu.iter().flat_map(|c| c.iter()).map(|s| (s.container.0, s.delta.usage.0)).collect();
        assert_eq!(rows, [(2, 30), (9, 0)]);
    }
}
