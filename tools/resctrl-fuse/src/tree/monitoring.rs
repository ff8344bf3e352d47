//! Counters: their content, faults set by tests, and what each counts.

use rustix::io::Errno;

use super::info::largest_cache;
use super::{GroupId, Node, Tree, line};
use crate::load::{Demand, Source};
use crate::profile::{Domain, Event, Profile};
use crate::rmid::Rmid;
use crate::tasks::Tid;
use crate::unit::Bytes;

/// What is counted for one RMID in one L3 domain. Traffic is kept in billionths of a byte, so that short steps lose nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) occupancy: u64,
    pub(crate) total_nanobytes: u128,
    pub(crate) local_nanobytes: u128,
}

/// What a counter shows instead of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFault {
    /// `Unavailable`: not counted yet.
    Unavailable,
    /// `Error`: the hardware refuses.
    Error,
    /// `Unassigned`: no hardware counter is assigned to it (newer kernels, AMD).
    Unassigned,
}

impl CounterFault {
    const fn text(self) -> &'static str {
        match self {
            Self::Unavailable => "Unavailable",
            Self::Error => "Error",
            Self::Unassigned => "Unassigned",
        }
    }
}

/// The threshold at boot: as much of a cache as each RMID would have of it (`rdt_get_mon_l3_config`).
pub(crate) fn default_threshold(profile: &Profile) -> Bytes {
    let Some(monitoring) = &profile.monitoring else { return Bytes::default() };
    let (each, unit) = (largest_cache(profile).0 / u64::from(monitoring.num_rmids.max(1)), monitoring.counter_unit.0);
    Bytes(each / unit.max(1) * unit)
}

impl Tree {
    /// What a task would take of an L3 domain, wherever it is: it counts for the group in which the task is. Forgotten with the task.
    pub fn set_task_demand(&mut self, tid: Tid, domain: u32, demand: Demand) {
        self.load.set(Source::Task(tid), domain, demand);
    }

    /// What a group would take of an L3 domain beside what its tasks take. Forgotten with the group.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR` where the path is no group's.
    pub fn set_group_demand(&mut self, group: &str, domain: u32, demand: Demand) -> Result<(), Errno> {
        let id = self.group_at(group)?;
        self.load.set(Source::Group(id), domain, demand);
        Ok(())
    }

    /// Makes a group's own counter show a word instead of a number, or a number again. A control group still shows the sum of those of
    /// its monitor groups that can be read (`mon_event_count`).
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR` where the path is no group's.
    pub fn set_counter_fault(
        &mut self,
        group: &str,
        domain: u32,
        event: Event,
        fault: Option<CounterFault>,
    ) -> Result<(), Errno> {
        let key = (self.group_at(group)?, domain, event);
        match fault {
            Some(fault) => self.faults.insert(key, fault),
            None => self.faults.remove(&key),
        };
        Ok(())
    }

    fn group_at(&self, path: &str) -> Result<GroupId, Errno> {
        match self.resolve(path)? {
            Node::Group(id) => Ok(id),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// The L3 domains that are monitored and have a CPU online.
    pub(crate) fn monitored_domains(&self) -> impl Iterator<Item = &Domain> + '_ {
        let domains = self.profile.monitoring.iter().flat_map(|_| &self.profile.l3_domains);
        domains.filter(|domain| self.is_online(domain))
    }

    pub(crate) fn in_counter_units(&self, bytes: u64) -> u64 {
        let unit = self.profile.monitoring.as_ref().map_or(1, |monitoring| monitoring.counter_unit.0.max(1));
        bytes / unit * unit
    }

    /// Resets an RMID's byte counts; its lines in a cache stay.
    pub(crate) fn begin_counting(&mut self, rmid: Rmid) {
        for (_, counter) in self.counters.iter_mut().filter(|((of, _), _)| *of == rmid) {
            *counter = Counter { occupancy: counter.occupancy, ..Counter::default() };
        }
    }

    /// `rdtgroup_mondata_show`
    pub(crate) fn read_counter(&self, id: GroupId, domain: u32, node: Option<u32>, event: Event) -> Vec<u8> {
        // A control group's value is its own and its monitor groups'.
        let counted = self.groups.iter().filter(|(other, group)| **other == id || group.parent == Some(id));
        let mut sum = None;
        for (other, group) in counted {
            if !self.faults.contains_key(&(*other, domain, event)) {
                *sum.get_or_insert(0u64) += self.counter(group.rmid, domain, node, event);
            }
        }
        match (sum, self.faults.get(&(id, domain, event))) {
            (None, Some(fault)) => line(&fault.text()),
            (sum, _) => line(&sum.unwrap_or(0)),
        }
    }

    fn counter(&self, rmid: Rmid, domain: u32, node: Option<u32>, event: Event) -> u64 {
        let counter = self.counters.get(&(rmid, domain)).copied().unwrap_or_default();
        let bytes = |nanobytes: u128| u64::try_from(nanobytes / 1_000_000_000).unwrap_or(u64::MAX);
        let value = match event {
            Event::LlcOccupancy => counter.occupancy,
            Event::MbmTotalBytes => bytes(counter.total_nanobytes),
            Event::MbmLocalBytes => bytes(counter.local_nanobytes),
        };
        let Some(node) = node else { return self.in_counter_units(value) };
        // The nodes of sub-NUMA clustering have equal parts; the first has what does not divide, so that they add up.
        let nodes =
            self.profile.l3_domains.iter().find(|one| one.id == domain).map_or(&[][..], |one| &one.sub_numa_nodes);
        let count = u64::try_from(nodes.len().max(1)).unwrap_or(u64::MAX);
        let value = self.in_counter_units(value);
        let part = self.in_counter_units(value / count);
        if nodes.first() == Some(&node) { value - part * (count - 1) } else { part }
    }
}
