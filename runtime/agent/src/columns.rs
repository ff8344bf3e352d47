//! Observe: one reading of every container a tick, shared by all policies; each policy sees the difference to its own last.

use std::sync::Arc;
use std::time::Instant;

use qosm_engine::{Columns, Interface};
use qosm_host::{Host, HostError};
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, MemoryCounters, MemorySample, NodeSample, PressureCounters, PressureSample,
};
use qosm_model::knob::Target;
use qosm_model::numa::{MigrationSample, NumaColumn};
use qosm_model::pod::ContainerId;
use qosm_model::unit::{Bytes, Micros};
use rustc_hash::FxHashMap;

use crate::locality::Moves;
use crate::resctrl::ResctrlTotals;

/// Readings in the order of container ids.
pub(crate) type Reading<T> = Arc<Vec<(ContainerId, T)>>;

/// What was read in one tick; `None` = nobody asked for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub(crate) cpu: Option<Reading<CpuCounters>>,
    pub(crate) memory: Option<Reading<MemoryCounters>>,
    pub(crate) pressure: Option<Reading<PressureCounters>>,
    pub(crate) bandwidth: Option<Arc<[BandwidthSample]>>,
    pub(crate) numa: Option<Arc<NumaColumn>>,
    pub(crate) migrations: Option<Moves>,
    pub(crate) resctrl: Option<Arc<ResctrlTotals>>,
    pub(crate) node: Option<NodeSample>,
    /// Running total of the time that all CPUs were busy.
    pub(crate) node_busy: Option<Micros>,
}

/// How long a column took to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnCost {
    pub(crate) column: Interface,
    pub(crate) seconds: f64,
}

/// Reads the columns that `wanted` names, of these containers. Containers whose cgroup is gone are named in `gone`.
pub(crate) fn read(
    host: &mut Host,
    containers: &[ContainerId],
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
        readings.node_busy = host.node_cpu_busy().ok();
        readings.node = Some(NodeSample {
            cpus: host.cpus(),
            memory_capacity: capacity,
            memory_allocatable: memory_allocatable.unwrap_or(capacity),
            page_size: host.page_size(),
            cpu_usage: None,
            memory_available: memory.map(|(_, available)| available),
        });
    });
    readings
}

/// Reads the NUMA nodes, and where the memory of these containers lies. Where there is one node, that is known without reading.
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
    /// What differences are to be taken from next.
    pub(crate) fn carrying(&self, earlier: &Self, alive: impl Fn(ContainerId) -> bool + Copy) -> Self {
        Self {
            cpu: carried(&self.cpu, &earlier.cpu, alive),
            memory: carried(&self.memory, &earlier.memory, alive),
            pressure: carried(&self.pressure, &earlier.pressure, alive),
            bandwidth: None,
            numa: None,
            migrations: None,
            resctrl: self.resctrl.clone().or_else(|| earlier.resctrl.clone()),
            node: None,
            node_busy: self.node_busy.or(earlier.node_busy),
        }
    }

    /// The columns for a policy that last read `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Columns {
        Columns {
            node: self.node.map(|node| NodeSample {
                cpu_usage: match (self.node_busy, earlier.node_busy) {
                    (Some(now), Some(then)) => Some(Micros(now.0.saturating_sub(then.0))),
                    _ => None,
                },
                ..node
            }),
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
            alarms: Vec::new(),
        }
    }

    /// How far the migrations of one policy are.
    pub(crate) fn migrations_of(&self, policy: &str) -> Option<Arc<[MigrationSample]>> {
        let moves = self.migrations.as_ref()?;
        Some(moves.iter().filter(|(of, _)| **of == *policy).map(|(_, sample)| sample.clone()).collect())
    }
}

/// What the next difference is taken from: this reading, and the last one of each living container that is missing from it.
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

/// Joins two readings, both in the order of ids, and keeps what is in both.
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

/// Reads after which a cgroup's limits are there.
const YOUNG_READS: u8 = 5;

/// The quotas in force, kept between ticks: reading all of them at each tick would cost as much as the tick itself.
#[derive(Debug, Default)]
pub(crate) struct Quotas {
    rows: FxHashMap<Target, qosm_host::Bandwidth>,
    /// Cgroups that have just appeared, and how many more times they are read in any case: their limits may not be written yet.
    young: FxHashMap<Target, u8>,
}

impl Quotas {
    /// What was last read.
    pub(crate) fn get(&self, target: Target) -> Option<qosm_host::Bandwidth> {
        self.rows.get(&target).copied()
    }

    /// The target has just appeared.
    pub(crate) fn born(&mut self, target: Target) {
        self.young.insert(target, YOUNG_READS);
    }

    /// Whether the target is so young that it is to be read now.
    pub(crate) fn is_young(&mut self, target: Target) -> bool {
        if self.young.is_empty() {
            return false;
        }
        let Some(left) = self.young.get_mut(&target) else { return false };
        *left -= 1;
        if *left == 0 {
            self.young.remove(&target);
        }
        true
    }

    /// Reads a target's bandwidth again. A target that cannot be read has no row.
    pub(crate) fn refresh(&mut self, host: &mut Host, target: Target) -> Option<qosm_host::Bandwidth> {
        match host.bandwidth(target) {
            Ok(bandwidth) => {
                self.rows.insert(target, bandwidth);
                Some(bandwidth)
            }
            Err(_) => {
                self.rows.remove(&target);
                None
            }
        }
    }

    pub(crate) fn forget(&mut self, target: Target) {
        self.rows.remove(&target);
        self.young.remove(&target);
    }
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
