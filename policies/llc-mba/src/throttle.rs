//! The profile `dynamic`: the current reduction of BE's shares on each domain.

use std::collections::BTreeMap;

use qosm_sdk::{BandwidthShare, CacheDomain, CacheShare, Ewma, Share};

use crate::config::{ALL, Class, Settings, Shared};
use crate::plan::{ClassSpec, of_class};
use crate::signal::{Columns, Measured, Sensitive};
use crate::stepper::{Bounds, PressureLevel, Stepper};

/// Windows shorter than this, in microseconds, say nothing about traffic.
const MIN_WINDOW_USEC: u64 = 100_000;
/// Minimum bandwidth that is assumed if none is configured, in MB/s: a single memory channel moves more.
const MIN_MAX_MBPS: u64 = 10_000;
/// Half-life of the largest traffic seen.
const MAX_HALF_LIFE_USEC: u64 = 3_600_000_000;
/// Half-life of the average traffic of latency-sensitive containers.
const AVERAGE_HALF_LIFE_USEC: u64 = 60_000_000;
/// Maximum length of a class's reason, including those of all domains; the host accepts reasons of 4096 bytes.
const MAX_REASON_BYTES: usize = 3_000;
/// Microseconds in a second.
const MICROS: u64 = 1_000_000;

/// The reductions on all domains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    domains: BTreeMap<u32, Domain>,
    /// Time of windows that were too short to evaluate.
    pending_usec: u64,
}

/// The reductions on one domain.
#[derive(Clone, Debug)]
struct Domain {
    cache: Stepper,
    bandwidth: Stepper,
    /// The largest traffic that was seen, in MB/s.
    most: Ewma,
    /// Traffic of latency-sensitive containers, in MB/s.
    average: Ewma,
}

/// The saved state by domain: reduction of the ways, reduction of the bandwidth, and the largest traffic seen in MB/s.
pub(crate) type SavedState = BTreeMap<u32, (u32, u32, u64)>;

impl Default for Domain {
    fn default() -> Self {
        Self {
            cache: Stepper::default(),
            bandwidth: Stepper::default(),
            most: Ewma::with_half_life(MAX_HALF_LIFE_USEC),
            average: Ewma::with_half_life(AVERAGE_HALF_LIFE_USEC),
        }
    }
}

impl Throttle {
    /// Continues from a saved state.
    pub(crate) fn restore(saved: SavedState) -> Self {
        let restored = saved.into_iter().map(|(id, (cache, bandwidth, most))| {
            let mut domain =
                Domain { cache: Stepper::taken(cache), bandwidth: Stepper::taken(bandwidth), ..Domain::default() };
            if most > 0 {
                domain.most.add(most, 0);
            }
            (id, domain)
        });
        Self { domains: restored.collect(), pending_usec: 0 }
    }

    /// The state to save.
    pub(crate) fn saved_state(&self) -> SavedState {
        let saved = self.domains.iter().map(|(&id, domain)| {
            let (cache, bandwidth) = (domain.cache.within(ALL), domain.bandwidth.within(ALL));
            (id, (cache, bandwidth, domain.most.level().unwrap_or(0)))
        });
        saved.filter(|(_, saved)| *saved != (0, 0, 0)).collect()
    }

    /// Whether the window is too short to evaluate; if so, its time is added to the next one.
    pub(crate) fn is_too_short(&mut self, window_usec: u64) -> bool {
        let is_short = window_usec < MIN_WINDOW_USEC;
        if is_short {
            self.pending_usec = self.pending_usec.saturating_add(window_usec);
        }
        is_short
    }

    /// Takes or gives back steps, based on the counts of a window.
    pub(crate) fn update(
        &mut self,
        columns: &Columns,
        sensitive: &Sensitive,
        be: Shared,
        settings: &Settings,
        window_usec: u64,
    ) {
        let passed = window_usec.saturating_add(std::mem::take(&mut self.pending_usec));
        if columns.domains.is_empty() {
            // Nothing was counted yet, or there is no cache domain.
            return;
        }
        // The state of a domain that went offline is dropped.
        self.domains.retain(|id, _| columns.domains.iter().any(|domain| domain.id == *id));
        for domain in &columns.domains {
            let own = self.domains.entry(domain.id).or_default();
            own.update(domain, columns, sensitive, be, settings, (window_usec, passed));
        }
    }

    /// The current shares of BE, and the reason.
    pub(crate) fn spec(&self, be: Shared, settings: &Settings) -> ClassSpec {
        let mut spec = of_class(Class::Be, be);
        for (id, domain) in &self.domains {
            let (ways, bandwidth) = domain.taken(be, settings);
            let share = Share {
                cache: (ways > 0).then(|| CacheShare::Percent((be.start, be.end.saturating_sub(ways)))),
                bandwidth: (bandwidth > 0)
                    .then(|| BandwidthShare::Percent(be.bandwidth.unwrap_or(ALL).saturating_sub(bandwidth))),
            };
            if share.cache.is_some() || share.bandwidth.is_some() {
                spec.shares.domains.insert(*id, share);
            }
            let now = spec.shares.on(*id);
            let ways = match now.cache {
                Some(CacheShare::Percent((start, end))) => format!("ways {start} to {end} %"),
                _ => String::new(),
            };
            let bandwidth = match now.bandwidth {
                Some(BandwidthShare::Percent(percent)) => format!("{percent} % of the memory bandwidth"),
                _ => "all of the memory bandwidth".to_owned(),
            };
            for (now, stepper) in [(ways, &domain.cache), (bandwidth, &domain.bandwidth)] {
                let part = format!("; on cache {id} {now}: {}", stepper.why());
                if !stepper.why().is_empty() && spec.reason.len() + part.len() <= MAX_REASON_BYTES {
                    spec.reason.push_str(&part);
                }
            }
        }
        spec
    }
}

impl Domain {
    /// The current reductions, in percentage points: of the ways, and of the memory bandwidth.
    fn taken(&self, be: Shared, settings: &Settings) -> (u32, u32) {
        let (ways, bandwidth) = most(be, settings);
        (self.cache.within(ways), self.bandwidth.within(bandwidth))
    }

    fn update(
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
        // While BE is throttled, the traffic seen says little about the available bandwidth, so the maximum does not decay.
        self.see(measured.traffic, window_usec, taken == 0);
        let bounds = |most, step| Bounds {
            most,
            step,
            step_usec: settings.step_seconds.saturating_mul(MICROS),
            calm_usec: settings.calm_seconds.saturating_mul(MICROS),
        };
        let not_divided = |reading: String, is_divided: bool, level| match (is_divided, level) {
            (false, _) => (PressureLevel::Low, "and it is not divided here".to_owned()),
            (true, level) => (level, reading),
        };

        let (level, reading) = measured.bandwidth(self.most_mbps(settings), settings);
        let (level, reading) = not_divided(reading, domain.divides_bandwidth, level);
        self.bandwidth.update(level, || reading, passed_usec, bounds(most_bandwidth, settings.bandwidth_step_percent));

        let (level, reading) = measured.cache(self.average.level(), settings);
        let (level, reading) = not_divided(reading, domain.cache_ways > 0, level);
        self.cache.update(level, || reading, passed_usec, bounds(most_ways, settings.cache_step_percent));
        if let Some(traffic) = measured.ls_traffic {
            self.average.add(traffic, window_usec);
        }
    }

    fn see(&mut self, traffic: Option<u64>, window_usec: u64, forgets: bool) {
        let Some(traffic) = traffic else { return };
        if self.most.level().is_none_or(|most| traffic >= most) {
            self.most = Ewma::with_half_life(MAX_HALF_LIFE_USEC);
            self.most.add(traffic, window_usec);
        } else if forgets {
            self.most.add(traffic, window_usec);
        }
    }

    fn most_mbps(&self, settings: &Settings) -> u64 {
        match settings.max_bandwidth_mbps {
            0 => self.most.level().unwrap_or(0).max(MIN_MAX_MBPS),
            said => said,
        }
    }
}

/// The maximum reductions, in percentage points: of the ways, and of the memory bandwidth.
fn most(be: Shared, settings: &Settings) -> (u32, u32) {
    let ways = be.end.saturating_sub(be.start).saturating_sub(settings.cache_floor_percent);
    let bandwidth = be.bandwidth.unwrap_or(ALL).saturating_sub(settings.bandwidth_floor_percent);
    (ways, bandwidth)
}
