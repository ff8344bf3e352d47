//! Differences of a group's counters between two readings.

use qosm_model::resctrl::{DomainId, Usage};

use super::counters::{CacheSample, Counters};
use super::group::Group;
use super::groups::Groups;

/// A group's counters, and their last values.
#[derive(Debug, Default)]
pub(crate) struct CounterDelta {
    counters: Option<Counters>,
    last: Vec<CacheSample>,
}

impl CounterDelta {
    /// The current values, with the traffic since the last reading. Files stay open as far as `budget` allows. Empty for a removed group.
    pub(crate) fn read(&mut self, groups: &Groups, group: Option<&Group>, budget: &mut usize) -> Vec<Usage> {
        let mut counters = match self.counters.take() {
            Some(counters) => {
                *budget = budget.saturating_add(counters.open_files());
                counters
            }
            None => match Counters::open(groups, group) {
                Ok(counters) => counters,
                Err(_) => return Vec::new(),
            },
        };
        let is_whole = counters.read().is_ok();
        let known = |sample: &&CacheSample| is_whole || sample.mbm_total.is_some() || sample.llc_occupancy.is_some();
        let usages = counters.samples().iter().filter(known).map(|sample| self.since_last(sample)).collect();
        self.last.clear();
        self.last.extend_from_slice(counters.samples());
        // The next read opens the counters of a removed cache or group again.
        if is_whole && counters.open_files() <= *budget {
            *budget -= counters.open_files();
            self.counters = Some(counters);
        }
        usages
    }

    fn since_last(&self, sample: &CacheSample) -> Usage {
        let last = self.last.iter().find(|last| last.cache == sample.cache);
        let traffic = last.map(|last| sample.traffic_since(last)).unwrap_or_default();
        Usage {
            domain: DomainId(sample.cache.0),
            occupancy: sample.llc_occupancy,
            local: traffic.local,
            total: traffic.total,
        }
    }

    /// Closes the files, since the caches have changed. The last values stay.
    pub(crate) fn close(&mut self, budget: &mut usize) {
        if let Some(counters) = self.counters.take() {
            *budget = budget.saturating_add(counters.open_files());
        }
    }
}
