//! Counters: their content, and faults set by tests.

use rustix::io::Errno;

use super::info::largest_cache;
use super::{GroupId, Node, Tree, line};
use crate::load::{Demand, Source};
use crate::profile::{Domain, Event, Profile};
use crate::rmid::Rmid;
use crate::tasks::Tid;
use crate::unit::Bytes;

/// The counters of one RMID in one L3 domain. Traffic is stored in billionths of a byte, so that short steps lose nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    pub(crate) occupancy: u64,
    pub(crate) total_nanobytes: u128,
    pub(crate) local_nanobytes: u128,
}

/// The text that a counter shows instead of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFault {
    /// `Unavailable`: not counted yet.
    Unavailable,
    /// `Error`: the hardware reports an error.
    Error,
    /// `Unassigned`: no hardware counter is assigned (newer kernels, AMD).
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

/// The threshold at boot: the size of a cache divided by the number of RMIDs (`rdt_get_mon_l3_config`).
pub(crate) fn default_threshold(profile: &Profile) -> Bytes {
    let Some(monitoring) = &profile.monitoring else { return Bytes::default() };
    let (each, unit) = (largest_cache(profile).0 / u64::from(monitoring.num_rmids.max(1)), monitoring.counter_unit.0);
    Bytes(each / unit.max(1) * unit)
}

impl Tree {
    /// Sets the demand of a task on an L3 domain. It counts for the group that contains the task, and is dropped with the task.
    pub fn set_task_demand(&mut self, tid: Tid, domain: u32, demand: Demand) {
        self.load.set(Source::Task(tid), domain, demand);
    }

    /// Sets the demand of a group on an L3 domain, in addition to its tasks' demands. It is dropped with the group.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR` if the path is not a group's.
    pub fn set_group_demand(&mut self, group: &str, domain: u32, demand: Demand) -> Result<(), Errno> {
        let id = self.group_at(group)?;
        self.load.set(Source::Group(id), domain, demand);
        Ok(())
    }

    /// Makes a group's own counter show a fault, or with `None` a number again. A control group still shows the sum of
    /// the readable counters of its monitor groups (`mon_event_count`).
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR` if the path is not a group's.
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

    /// The monitored L3 domains with an online CPU.
    pub(crate) fn monitored_domains(&self) -> impl Iterator<Item = &Domain> + '_ {
        let domains = self.profile.monitoring.iter().flat_map(|_| &self.profile.l3_domains);
        domains.filter(|domain| self.is_online(domain))
    }

    pub(crate) fn in_counter_units(&self, bytes: u64) -> u64 {
        let unit = self.profile.monitoring.as_ref().map_or(1, |monitoring| monitoring.counter_unit.0.max(1));
        bytes / unit * unit
    }

    /// Resets an RMID's byte counters; its occupancy stays.
    pub(crate) fn begin_counting(&mut self, rmid: Rmid) {
        for (_, counter) in self.counters.iter_mut().filter(|((of, _), _)| *of == rmid) {
            *counter = Counter { occupancy: counter.occupancy, ..Counter::default() };
        }
    }

    /// `rdtgroup_mondata_show`
    pub(crate) fn read_counter(&self, id: GroupId, domain: u32, node: Option<u32>, event: Event) -> Vec<u8> {
        // A control group's value includes that of its monitor groups.
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
        // The nodes of sub-NUMA clustering have equal parts; the first also has the remainder, so that the sum is exact.
        let nodes =
            self.profile.l3_domains.iter().find(|one| one.id == domain).map_or(&[][..], |one| &one.sub_numa_nodes);
        let count = u64::try_from(nodes.len().max(1)).unwrap_or(u64::MAX);
        let value = self.in_counter_units(value);
        let part = self.in_counter_units(value / count);
        if nodes.first() == Some(&node) { value - part * (count - 1) } else { part }
    }
}
