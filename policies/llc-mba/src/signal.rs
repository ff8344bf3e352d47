//! Decides whether latency-sensitive pods are squeezed on a domain: by traffic to its memory, or out of its cache.

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{
    CacheDomain, CacheShare, CacheUsage, ClassSample, ContainerId, ContainerState, ContainerUsage, Host, PodId, Share,
};

use crate::config::{ALL, Class, Settings, Shared};
use crate::plan::Tracked;
use crate::stepper::PressureLevel;

/// Percent of its share of a cache from which BE fills it; others may have lines in the same ways.
const FULL_PERCENT: u64 = 80;
/// Percent of its average at which traffic has risen ...
const RISEN_PERCENT: u64 = 125;
/// ... and up to which it is calm again.
const STEADY_PERCENT: u64 = 110;
/// Traffic in MB/s below which a rise is ignored.
const MIN_MBPS: u64 = 100;

/// The host's counts over a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) domains: Vec<CacheDomain>,
    classes: Vec<ClassSample>,
    containers: Vec<ContainerUsage>,
    rest: Vec<CacheUsage>,
    window_usec: u64,
}

impl Columns {
    /// Reads the columns.
    pub(crate) fn read<H: Host>(host: &mut H, window_usec: u64) -> Self {
        Self {
            domains: host.cache_domains(),
            classes: host.class_usage(),
            containers: host.container_usage(),
            rest: host.rest_usage(),
            window_usec,
        }
    }
}

/// Containers of latency-sensitive pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sensitive {
    /// The running containers, and the share that each may use.
    shares: BTreeMap<ContainerId, Share>,
    overrides: BTreeMap<ContainerId, BTreeMap<u32, Share>>,
}

impl Sensitive {
    /// The sensitive containers of these pods.
    pub(crate) fn of(pods: &BTreeMap<PodId, Tracked>, shared: &BTreeMap<Class, Shared>) -> Self {
        let mut sensitive = Self::default();
        let all = Share { cache: None, bandwidth: None };
        for tracked in pods.values().filter(|tracked| tracked.pod.active && tracked.class().is_latency_sensitive()) {
            let (share, domains) = match &tracked.own {
                Some(own) => (own.all, own.domains.clone()),
                None => (shared.get(&tracked.class()).map_or(all, |shared| shared.share()), BTreeMap::new()),
            };
            for container in tracked.pod.containers.iter().filter(|one| one.state == ContainerState::Running) {
                sensitive.shares.insert(container.id, share);
                if !domains.is_empty() {
                    sensitive.overrides.insert(container.id, domains.clone());
                }
            }
        }
        sensitive
    }

    fn ways(&self, container: ContainerId, domain: u32) -> (u32, u32) {
        let own = self.overrides.get(&container).and_then(|domains| domains.get(&domain)?.cache);
        match own.or_else(|| self.shares.get(&container)?.cache) {
            Some(CacheShare::Percent(range)) => range,
            Some(CacheShare::Mask(_)) | None => (0, ALL),
        }
    }
}

/// Measurements of one domain. `None` if a part of a sum was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Whether a latency-sensitive container may run there.
    pub(crate) is_used: bool,
    /// Total traffic, in MB/s.
    pub(crate) traffic: Option<u64>,
    /// Traffic of BE, in MB/s.
    pub(crate) be_traffic: Option<u64>,
    /// Traffic of latency-sensitive containers, in MB/s.
    pub(crate) ls_traffic: Option<u64>,
    /// Cache occupancy of latency-sensitive containers, in bytes, ...
    pub(crate) ls_occupancy: Option<u64>,
    /// ... and what they may use.
    pub(crate) ls_may: Option<u64>,
    /// Cache occupancy of BE, in bytes, ...
    pub(crate) be_occupancy: Option<u64>,
    /// ... and what it may use.
    pub(crate) be_may: Option<u64>,
}

impl Measured {
    /// The measurements of one domain on which BE may use `be_percent` of the ways.
    pub(crate) fn on(domain: &CacheDomain, columns: &Columns, sensitive: &Sensitive, be_percent: u32) -> Self {
        let here = |usage: &[CacheUsage]| usage.iter().find(|usage| usage.domain == domain.id).copied();
        let rate = |bytes: u64| bytes.checked_div(columns.window_usec);
        let be = columns.classes.iter().find(|sample| sample.class == Class::Be.name());
        // A class that is not in force has no row; its pods are counted with the rest.
        let be_here = be.map(|sample| here(&sample.usage));
        let be_traffic = be_here.map_or(Some(0), |usage| usage?.total_bytes);
        let of_classes = columns.classes.iter().map(|sample| here(&sample.usage)?.total_bytes);
        let traffic = of_classes.chain([here(&columns.rest).and_then(|usage| usage.total_bytes)]).sum::<Option<u64>>();

        let counted: Vec<(ContainerId, CacheUsage)> = columns
            .containers
            .iter()
            .filter(|sample| sensitive.shares.contains_key(&sample.container))
            .filter_map(|sample| Some((sample.container, here(&sample.usage)?)))
            .collect();
        let is_counted = |id: &ContainerId| columns.containers.iter().any(|sample| sample.container == *id);
        let somewhere = sensitive.shares.keys().any(|id| !is_counted(id));
        let moves = |usage: &CacheUsage| usage.total_bytes.is_none_or(|bytes| bytes > 0);
        let sum = |amount: fn(&CacheUsage) -> Option<u64>| {
            let sum = counted.iter().map(|(_, usage)| amount(usage)).sum::<Option<u64>>();
            sum.filter(|_| !counted.is_empty())
        };
        // Ranges of several classes may overlap.
        let may: BTreeSet<u32> = counted
            .iter()
            .map(|(id, _)| sensitive.ways(*id, domain.id))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .flat_map(|(start, end)| start..end)
            .collect();
        let ls_percent = u32::try_from(may.len()).unwrap_or(ALL);
        let part = |percent: u32| domain.cache_bytes.map(|bytes| bytes / u64::from(ALL) * u64::from(percent));
        Self {
            is_used: somewhere || counted.iter().any(|(_, usage)| moves(usage)),
            traffic: traffic.and_then(rate),
            be_traffic: be_traffic.and_then(rate),
            ls_traffic: sum(|usage| usage.total_bytes).and_then(rate),
            ls_occupancy: sum(|usage| usage.occupancy_bytes),
            ls_may: part(ls_percent).filter(|bytes| *bytes > 0),
            be_occupancy: be_here.and_then(|usage| usage?.occupancy_bytes),
            be_may: part(be_percent).filter(|bytes| *bytes > 0),
        }
    }

    /// Whether the memory is short because of BE. `most` is its bandwidth in MB/s.
    pub(crate) fn bandwidth(&self, most: u64, settings: &Settings) -> (PressureLevel, String) {
        let (Some(traffic), Some(be)) = (self.traffic, self.be_traffic) else {
            return (PressureLevel::Low, "and the traffic is not counted any more".to_owned());
        };
        let (percent, share) = (percent_of(traffic, most), percent_of(be, traffic));
        let reading = format!("{traffic} MB/s are {percent} % of {most} MB/s, and {share} % of them are BE's");
        let level = if !self.is_used || percent <= settings.bandwidth_low_percent.into() {
            PressureLevel::Low
        } else if percent >= settings.bandwidth_high_percent.into() && share >= settings.be_traffic_percent.into() {
            PressureLevel::High
        } else {
            PressureLevel::Normal
        };
        (level, reading)
    }

    /// Whether BE displaced latency-sensitive containers from the cache. `average` is their average traffic so far, in MB/s.
    pub(crate) fn cache(&self, average: Option<u64>, settings: &Settings) -> (PressureLevel, String) {
        let (Some(ls), Some(ls_may), Some(be), Some(be_may), Some(traffic), Some(average)) =
            (self.ls_occupancy, self.ls_may, self.be_occupancy, self.be_may, self.ls_traffic, average)
        else {
            return (PressureLevel::Low, "and the cache's use is not counted any more".to_owned());
        };
        let (has, fills, rise) = (percent_of(ls, ls_may), percent_of(be, be_may), percent_of(traffic, average));
        let reading = format!(
            "latency-sensitive containers have {} of {} MiB of the cache and move {traffic} MB/s, {average} MB/s on average; BE has {} \
             of {} MiB",
            ls >> 20,
            ls_may >> 20,
            be >> 20,
            be_may >> 20
        );
        let is_steady = traffic < MIN_MBPS || rise <= STEADY_PERCENT;
        let level = if has >= settings.occupancy_calm_percent.into() || is_steady {
            PressureLevel::Low
        } else if has < settings.occupancy_low_percent.into() && fills >= FULL_PERCENT && rise >= RISEN_PERCENT {
            PressureLevel::High
        } else {
            PressureLevel::Normal
        };
        (level, reading)
    }
}

/// The percentage of a part; of a whole of 0, any part is 100 %.
fn percent_of(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * u128::from(ALL);
    percent
        .checked_div(whole.into())
        .map_or(if part > 0 { 100 } else { 0 }, |percent| u64::try_from(percent).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_short_where_there_is_much_traffic_and_be_causes_some_of_it() {
        let settings = Settings::default();
        for (is_used, traffic, be, level) in [
            (true, Some(800), Some(160), PressureLevel::High),
            (true, Some(799), Some(799), PressureLevel::Normal),
            (true, Some(800), Some(159), PressureLevel::Normal),
            (true, Some(610), Some(610), PressureLevel::Normal),
            (true, Some(600), Some(600), PressureLevel::Low),
            (true, Some(5_000), Some(5_000), PressureLevel::High),
            (true, Some(0), Some(0), PressureLevel::Low),
            (false, Some(1_000), Some(1_000), PressureLevel::Low),
            (true, None, Some(1_000), PressureLevel::Low),
            (true, Some(1_000), None, PressureLevel::Low),
        ] {
            let measured = Measured { is_used, traffic, be_traffic: be, ..Measured::default() };
            assert_eq!(measured.bandwidth(1_000, &settings).0, level, "{measured:?}");
        }
    }

    #[test]
    fn cache_is_lost_where_it_is_low_and_be_is_full_and_misses_rise() {
        let settings = Settings::default();
        let lost = Measured {
            is_used: true,
            ls_traffic: Some(1_250),
            ls_occupancy: Some(9 * MIB),
            ls_may: Some(20 * MIB),
            be_occupancy: Some(5 * MIB),
            be_may: Some(6 * MIB),
            ..Measured::default()
        };
        for (measured, average, level) in [
            (lost, Some(1_000), PressureLevel::High),
            (lost, Some(1_100), PressureLevel::Normal),
            (lost, Some(1_200), PressureLevel::Low),
            (Measured { ls_occupancy: Some(10 * MIB), ..lost }, Some(1_000), PressureLevel::Normal),
            (Measured { ls_occupancy: Some(14 * MIB), ..lost }, Some(1_000), PressureLevel::Low),
            (Measured { be_occupancy: Some(4 * MIB), ..lost }, Some(1_000), PressureLevel::Normal),
            (Measured { ls_traffic: Some(99), ..lost }, Some(1), PressureLevel::Low),
            (lost, None, PressureLevel::Low),
            (Measured { ls_occupancy: None, ..lost }, Some(1_000), PressureLevel::Low),
            (Measured { be_occupancy: None, ..lost }, Some(1_000), PressureLevel::Low),
            (Measured { ls_traffic: None, ..lost }, Some(1_000), PressureLevel::Low),
            (Measured { ls_may: None, ..lost }, Some(1_000), PressureLevel::Low),
        ] {
            assert_eq!(measured.cache(average, &settings).0, level, "{measured:?} {average:?}");
        }
    }

    #[test]
    fn percents_hold_for_any_number() {
        assert_eq!((percent_of(0, 0), percent_of(1, 0), percent_of(1, 3)), (0, 100, 33));
        assert_eq!(percent_of(u64::MAX, 1), u64::MAX);
    }

    fn usage(domain: u32, occupancy: Option<u64>, total: Option<u64>) -> CacheUsage {
        CacheUsage { domain, occupancy_bytes: occupancy, local_bytes: None, total_bytes: total }
    }

    #[test]
    fn what_is_counted_on_a_domain_is_added_up_there() {
        let domain = CacheDomain { id: 8, cache_ways: 10, cache_bytes: Some(100 * MIB), divides_bandwidth: true };
        let class = |class: &str, usage| ClassSample { class: class.to_owned(), usage };
        let columns = Columns {
            domains: vec![domain],
            classes: vec![
                class("be", vec![usage(0, Some(7), Some(7)), usage(8, Some(20 * MIB), Some(300))]),
                class("ls", vec![usage(8, None, Some(500))]),
            ],
            containers: vec![
                ContainerUsage { container: 1, usage: vec![usage(8, Some(10 * MIB), Some(200))] },
                ContainerUsage { container: 2, usage: vec![usage(8, Some(5 * MIB), Some(300))] },
                ContainerUsage { container: 9, usage: vec![usage(8, Some(20 * MIB), Some(300))] },
            ],
            rest: vec![usage(8, None, Some(200))],
            window_usec: 10,
        };
        let ways = |start, end| Share { cache: Some(CacheShare::Percent((start, end))), bandwidth: None };
        let sensitive = Sensitive {
            shares: BTreeMap::from([(1, ways(0, 50)), (2, ways(40, 60))]),
            overrides: BTreeMap::from([(2, BTreeMap::from([(0, ways(0, 100))]))]),
        };
        let expected = Measured {
            is_used: true,
            traffic: Some(100),
            be_traffic: Some(30),
            ls_traffic: Some(50),
            ls_occupancy: Some(15 * MIB),
            ls_may: Some(60 * MIB),
            be_occupancy: Some(20 * MIB),
            be_may: Some(30 * MIB),
        };
        assert_eq!(Measured::on(&domain, &columns, &sensitive, 30), expected);

        // If one part of a sum is unknown, the sum is unknown.
        let mut unknown = columns.clone();
        unknown.rest = vec![usage(8, None, None)];
        assert_eq!(Measured::on(&domain, &unknown, &sensitive, 30).traffic, None);
        let elsewhere = CacheDomain { id: 3, ..domain };
        let nothing = Measured::on(&elsewhere, &columns, &sensitive, 30);
        assert_eq!((nothing.is_used, nothing.traffic, nothing.ls_occupancy), (false, None, None));
        // A container that is not counted may run on any domain.
        let sensitive = Sensitive { shares: BTreeMap::from([(3, ways(0, 50))]), ..Sensitive::default() };
        assert!(Measured::on(&elsewhere, &columns, &sensitive, 30).is_used);
    }
}
