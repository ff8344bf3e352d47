//! The clock: advances occupancies, byte counters, and RMIDs in limbo.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Tree;
use super::controls::Closid;
use super::membership::Slot;
use crate::load::{Claim, Demand, Source, share_out};
use crate::profile::{Domain, Scale};
use crate::rmid::Rmid;

/// The kernel's interval for checking whether RMIDs have left limbo (`CQM_LIMBOCHECK_INTERVAL`).
const LIMBO_CHECK: Duration = Duration::from_secs(1);

/// The sum of all demands of one RMID.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    occupancy: u64,
    bandwidth: u64,
    local: u64,
}

/// The resources that one RMID gets.
#[derive(Clone, Copy, Debug, Default)]
struct Granted {
    occupancy: u64,
    bandwidth: u64,
    local: u64,
}

impl Tree {
    /// Advances the clock: occupancies move towards their shares, bytes are counted, and once a second RMIDs without
    /// lines in a cache leave limbo.
    pub fn advance(&mut self, by: Duration) {
        self.refresh();
        let end = self.clock.saturating_add(by);
        while self.clock < end {
            let into = Duration::from_nanos(u64::from(self.clock.subsec_nanos()));
            let step = LIMBO_CHECK.saturating_sub(into).min(end - self.clock);
            self.step(step);
            self.clock += step;
            if self.clock.subsec_nanos() == 0 {
                self.check_limbo();
            }
        }
    }

    /// Time since the tree was created, by its own clock.
    pub fn clock(&self) -> Duration {
        self.clock
    }

    fn step(&mut self, by: Duration) {
        let domains: Vec<Domain> = self.monitored_domains().cloned().collect();
        for domain in domains {
            let granted = self.grant(&domain);
            // At this pace, a whole cache is replaced within the turnover time.
            let turnover = u128::from(self.profile.cache_turnover_millis) * 1_000_000;
            let replaced = (u128::from(domain.cache_size.0) * by.as_nanos()).checked_div(turnover);
            let replaced = replaced.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(u64::MAX);
            for &rmid in granted.keys() {
                self.counters.entry((rmid, domain.id)).or_default();
            }
            for ((rmid, _), counter) in self.counters.iter_mut().filter(|((_, id), _)| *id == domain.id) {
                let Granted { occupancy, bandwidth, local } = granted.get(rmid).copied().unwrap_or_default();
                counter.occupancy = if counter.occupancy < occupancy {
                    counter.occupancy.saturating_add(replaced).min(occupancy)
                } else {
                    counter.occupancy.saturating_sub(replaced).max(occupancy)
                };
                counter.total_nanobytes += u128::from(bandwidth) * by.as_nanos();
                counter.local_nanobytes += u128::from(local) * by.as_nanos();
            }
        }
    }

    fn check_limbo(&mut self) {
        let (counters, threshold) = (&self.counters, self.max_threshold_occupancy.0);
        let unit = self.profile.monitoring.as_ref().map_or(1, |monitoring| monitoring.counter_unit.0.max(1));
        self.rmids.settle(|rmid, domain| {
            let occupancy = counters.get(&(rmid, domain)).map_or(0, |counter| counter.occupancy);
            occupancy / unit * unit >= threshold
        });
    }

    /// Shares out one L3 domain: first among the classes, then among the RMIDs of each class.
    fn grant(&self, domain: &Domain) -> BTreeMap<Rmid, Granted> {
        let mut classes: BTreeMap<Closid, BTreeMap<Rmid, Wanted>> = BTreeMap::new();
        for (source, demand) in self.load.within(domain.id) {
            let Some(slot) = self.slot_of(source) else { continue };
            let wanted = classes.entry(slot.closid).or_default().entry(slot.rmid).or_default();
            let Demand { occupancy, bandwidth, local_percent } = demand;
            wanted.occupancy = wanted.occupancy.saturating_add(occupancy.0);
            wanted.bandwidth = wanted.bandwidth.saturating_add(bandwidth.0);
            wanted.local = wanted.local.saturating_add(portion(bandwidth.0, u64::from(local_percent), 100));
        }
        let ways = self.profile.l3.as_ref().map_or(1, |cache| cache.ways().max(1));
        let way = domain.cache_size.0 / u64::from(ways);
        let pools = vec![way; usize::try_from(ways).unwrap_or(0)];
        let total = |wanted: &BTreeMap<Rmid, Wanted>, of: fn(&Wanted) -> u64| {
            wanted.values().map(of).fold(0, u64::saturating_add)
        };
        let lines: Vec<Claim> = classes
            .iter()
            .map(|(&closid, wanted)| Claim {
                pools: self.l3_ways(domain.id, closid),
                wanted: total(wanted, |wanted| wanted.occupancy),
            })
            .collect();
        let traffic: Vec<Claim> = classes
            .iter()
            .map(|(&closid, wanted)| Claim {
                pools: 1,
                wanted: total(wanted, |wanted| wanted.bandwidth).min(self.bandwidth_limit(domain.id, closid)),
            })
            .collect();
        let lines = share_out(&pools, &lines);
        let traffic = share_out(&[self.profile.memory_bandwidth.0], &traffic);
        let mut granted = BTreeMap::new();
        for ((wanted, lines), traffic) in classes.values().zip(lines).zip(traffic) {
            let claims = |of: fn(&Wanted) -> u64| -> Vec<Claim> {
                wanted.values().map(|wanted| Claim { pools: 1, wanted: of(wanted) }).collect()
            };
            let lines = share_out(&[lines], &claims(|wanted| wanted.occupancy));
            let traffic = share_out(&[traffic], &claims(|wanted| wanted.bandwidth));
            for (((&rmid, wanted), occupancy), bandwidth) in wanted.iter().zip(lines).zip(traffic) {
                let local = portion(bandwidth, wanted.local, wanted.bandwidth);
                granted.insert(rmid, Granted { occupancy, bandwidth, local });
            }
        }
        granted
    }

    fn slot_of(&self, source: Source) -> Option<Slot> {
        match source {
            Source::Task(tid) => self.members.get(&tid).map(|member| member.slot),
            Source::Group(id) => self.groups.get(&id).map(|group| group.slot()),
        }
    }

    /// The bandwidth limit of a class, in bytes per second.
    fn bandwidth_limit(&self, domain: u32, closid: Closid) -> u64 {
        let Some(mb) = self.profile.mb.as_ref() else { return u64::MAX };
        let value = self.mb_value(domain, closid);
        match mb.scale {
            _ if value >= mb.max => u64::MAX,
            Scale::Percent => portion(self.profile.memory_bandwidth.0, u64::from(value), 100),
            Scale::EighthGigabytePerSecond => u64::from(value) * 125_000_000,
        }
    }
}

/// `of * part / whole`; 0 if `whole` is 0.
fn portion(of: u64, part: u64, whole: u64) -> u64 {
    let portion = (u128::from(of) * u128::from(part)).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(portion).unwrap_or(u64::MAX)
}
