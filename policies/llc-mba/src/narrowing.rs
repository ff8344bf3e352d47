//! The profile `dynamic`: on each domain, how much of BE's shares is taken at present.

use std::collections::BTreeMap;

use qosm_sdk::{BandwidthShare, CacheDomain, CacheShare, Ewma, Share};

use crate::config::{ALL, Class, Settings, Shared};
use crate::plan::{Wish, of_class};
use crate::signal::{Columns, Measured, Sensitive};
use crate::valve::{Bounds, Valve, Verdict};

/// Windows that are shorter say nothing of traffic.
const LEAST_WINDOW_USEC: u64 = 100_000;
/// What a domain's memory is taken to move at least while nobody said how much it is, in MB/s: a single channel moves more.
const LEAST_MOST_MBPS: u64 = 10_000;
/// The most that was seen is forgotten so slowly.
const MOST_HALF_LIFE_USEC: u64 = 3_600_000_000;
/// What the traffic of latency-sensitive containers is compared with.
const AVERAGE_HALF_LIFE_USEC: u64 = 60_000_000;
/// Longest story of all domains; the host takes reasons of 4096 bytes.
const STORY_BYTES: usize = 3_000;
/// Microseconds in a second.
const MICROS: u64 = 1_000_000;

/// Of all domains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrowing {
    domains: BTreeMap<u32, Domain>,
    /// Time that passed in windows too short to judge.
    pending_usec: u64,
}

/// Of one domain.
#[derive(Clone, Debug)]
struct Domain {
    cache: Valve,
    bandwidth: Valve,
    /// The largest traffic that was seen, in MB/s.
    most: Ewma,
    /// Traffic of latency-sensitive containers, in MB/s.
    average: Ewma,
}

/// What outlives a restart: taken of the cache, of the bandwidth, and the largest traffic seen.
pub(crate) type Remembered = BTreeMap<u32, (u32, u32, u64)>;

impl Default for Domain {
    fn default() -> Self {
        Self {
            cache: Valve::default(),
            bandwidth: Valve::default(),
            most: Ewma::with_half_life(MOST_HALF_LIFE_USEC),
            average: Ewma::with_half_life(AVERAGE_HALF_LIFE_USEC),
        }
    }
}

impl Narrowing {
    /// Goes on where another left off.
    pub(crate) fn restore(remembered: Remembered) -> Self {
        let restored = remembered.into_iter().map(|(id, (cache, bandwidth, most))| {
            let mut domain =
                Domain { cache: Valve::taken(cache), bandwidth: Valve::taken(bandwidth), ..Domain::default() };
            if most > 0 {
                domain.most.add(most, 0);
            }
            (id, domain)
        });
        Self { domains: restored.collect(), pending_usec: 0 }
    }

    /// What is worth remembering.
    pub(crate) fn remembered(&self) -> Remembered {
        let remembered = self.domains.iter().map(|(&id, domain)| {
            let (cache, bandwidth) = (domain.cache.within(ALL), domain.bandwidth.within(ALL));
            (id, (cache, bandwidth, domain.most.level().unwrap_or(0)))
        });
        remembered.filter(|(_, remembered)| *remembered != (0, 0, 0)).collect()
    }

    /// Lets time pass without a look.
    pub(crate) fn is_too_short(&mut self, window_usec: u64) -> bool {
        let is_short = window_usec < LEAST_WINDOW_USEC;
        if is_short {
            self.pending_usec = self.pending_usec.saturating_add(window_usec);
        }
        is_short
    }

    /// Looks at what was counted over a window, and takes or gives back.
    pub(crate) fn turn(
        &mut self,
        columns: &Columns,
        sensitive: &Sensitive,
        be: Shared,
        settings: &Settings,
        window_usec: u64,
    ) {
        let passed = window_usec.saturating_add(std::mem::take(&mut self.pending_usec));
        if columns.domains.is_empty() {
            // Nothing was looked at yet, or there is nothing to look at.
            return;
        }
        // A domain that went offline comes back with nothing taken.
        self.domains.retain(|id, _| columns.domains.iter().any(|domain| domain.id == *id));
        for domain in &columns.domains {
            let own = self.domains.entry(domain.id).or_default();
            own.turn(domain, columns, sensitive, be, settings, (window_usec, passed));
        }
    }

    /// What BE may use at present, and why.
    pub(crate) fn wish(&self, be: Shared, settings: &Settings) -> Wish {
        let mut wish = of_class(Class::Be, be);
        for (id, domain) in &self.domains {
            let (ways, bandwidth) = domain.taken(be, settings);
            let share = Share {
                cache: (ways > 0).then(|| CacheShare::Percent((be.start, be.end.saturating_sub(ways)))),
                bandwidth: (bandwidth > 0)
                    .then(|| BandwidthShare::Percent(be.bandwidth.unwrap_or(ALL).saturating_sub(bandwidth))),
            };
            if share.cache.is_some() || share.bandwidth.is_some() {
                wish.shares.domains.insert(*id, share);
            }
            let now = wish.shares.on(*id);
            let ways = match now.cache {
                Some(CacheShare::Percent((start, end))) => format!("ways {start} to {end} %"),
                _ => String::new(),
            };
            let bandwidth = match now.bandwidth {
                Some(BandwidthShare::Percent(percent)) => format!("{percent} % of the memory bandwidth"),
                _ => "all of the memory bandwidth".to_owned(),
            };
            for (now, valve) in [(ways, &domain.cache), (bandwidth, &domain.bandwidth)] {
                let story = format!("; on cache {id} {now}: {}", valve.why());
                if !valve.why().is_empty() && wish.reason.len() + story.len() <= STORY_BYTES {
                    wish.reason.push_str(&story);
                }
            }
        }
        wish
    }
}

impl Domain {
    /// What is taken, in percentage points: of the ways, and of the memory bandwidth.
    fn taken(&self, be: Shared, settings: &Settings) -> (u32, u32) {
        let (ways, bandwidth) = most(be, settings);
        (self.cache.within(ways), self.bandwidth.within(bandwidth))
    }

    fn turn(
        &mut self,
        domain: &CacheDomain,
        columns: &Columns,
        sensitive: &Sensitive,
        be: Shared,
        settings: &Settings,
        (window_usec, passed_usec): (u64, u64),
    ) {
        let (most_ways, most_bandwidth) = most(be, settings);
        let (ways, taken) = self.taken(be, settings);
        let be_percent = be.end.saturating_sub(be.start).saturating_sub(ways);
        let measured = Measured::on(domain, columns, sensitive, be_percent);
        // While BE is held back the most that is seen says little of what there is.
        self.see(measured.traffic, window_usec, taken == 0);
        let bounds = |most, step| Bounds {
            most,
            step,
            step_usec: settings.step_seconds.saturating_mul(MICROS),
            calm_usec: settings.calm_seconds.saturating_mul(MICROS),
        };
        let not_divided = |told: String, is_divided: bool, verdict| match (is_divided, verdict) {
            (false, _) => (Verdict::Calm, "and it is not divided here".to_owned()),
            (true, verdict) => (verdict, told),
        };

        let (verdict, told) = measured.bandwidth(self.most_mbps(settings), settings);
        let (verdict, told) = not_divided(told, domain.divides_bandwidth, verdict);
        self.bandwidth.turn(verdict, || told, passed_usec, bounds(most_bandwidth, settings.bandwidth_step_percent));

        let (verdict, told) = measured.cache(self.average.level(), settings);
        let (verdict, told) = not_divided(told, domain.cache_ways > 0, verdict);
        self.cache.turn(verdict, || told, passed_usec, bounds(most_ways, settings.cache_step_percent));
        if let Some(traffic) = measured.ls_traffic {
            self.average.add(traffic, window_usec);
        }
    }

    fn see(&mut self, traffic: Option<u64>, window_usec: u64, forgets: bool) {
        let Some(traffic) = traffic else { return };
        if self.most.level().is_none_or(|most| traffic >= most) {
            self.most = Ewma::with_half_life(MOST_HALF_LIFE_USEC);
            self.most.add(traffic, window_usec);
        } else if forgets {
            self.most.add(traffic, window_usec);
        }
    }

    fn most_mbps(&self, settings: &Settings) -> u64 {
        match settings.max_bandwidth_mbps {
            0 => self.most.level().unwrap_or(0).max(LEAST_MOST_MBPS),
            said => said,
        }
    }
}

/// The most that may be taken, in percentage points: of the ways, and of the memory bandwidth.
fn most(be: Shared, settings: &Settings) -> (u32, u32) {
    let ways = be.end.saturating_sub(be.start).saturating_sub(settings.cache_floor_percent);
    let bandwidth = be.bandwidth.unwrap_or(ALL).saturating_sub(settings.bandwidth_floor_percent);
    (ways, bandwidth)
}
