//! Detects throttling from CPU time alone. The kernel counts a throttled period only at its end, up to 100 ms too late
//! to help; but a container that has used up its quota within a period and has stopped running is throttled now.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use qosm_model::pod::ContainerId;
use qosm_model::unit::Micros;

/// Percent of its quota that a container has used when it is throttled: CPUs hold back small slices of the quota that
/// they took and did not need.
const USED_UP_PERCENT: u64 = 85;
/// Percent of the time between two samples that a halted container may still have used.
const HALTED_PERCENT: u128 = 10;
/// Minimum time between samples: the kernel updates CPU time at its own ticks.
pub(super) const MIN: Duration = Duration::from_millis(3);

/// A container that could be throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttleable {
    /// The container.
    pub container: ContainerId,
    /// Its CFS quota.
    pub quota: Micros,
    /// Length of the period of the quota.
    pub period: Micros,
}

impl Throttleable {
    /// Length of a period.
    pub(super) fn period(&self) -> Duration {
        Duration::from_micros(self.period.0)
    }

    fn is_used_up_by(&self, used: u64) -> bool {
        u128::from(used) * 100 >= u128::from(self.quota.0) * u128::from(USED_UP_PERCENT)
    }
}

/// What a sample of a container shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleOutcome {
    /// The container has quota left, or its throttling was already reported.
    Unchanged,
    /// The quota is nearly used up, and the container still runs: the next sample decides.
    NearQuota,
    /// The container was throttled since the last sample.
    Throttled,
}

/// The CPU time of one container over the last period.
#[derive(Debug)]
pub(super) struct UsageWindow {
    at: VecDeque<(Instant, u64)>,
    /// Throttling was reported, and is not reported again until the container runs.
    reported: bool,
}

impl UsageWindow {
    /// Begins with a container whose total CPU time is `usage` now, of which `used` was used since `since`.
    pub(super) fn begin(now: Instant, usage: u64, since: Instant, used: u64) -> Self {
        Self { at: VecDeque::from([(since, usage.saturating_sub(used)), (now, usage)]), reported: false }
    }

    /// CPU time used within the last period, or a little more than that.
    pub(super) fn used(&self) -> u64 {
        match (self.at.front(), self.at.back()) {
            (Some((_, from)), Some((_, to))) => to.saturating_sub(*from),
            _ => 0,
        }
    }

    /// Adds a sample of a container without a quota.
    pub(super) fn record(&mut self, now: Instant, usage: u64, period: Duration) {
        // Keep one sample from before the period, so that the window covers all of the period.
        while self.at.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= period) {
            self.at.pop_front();
        }
        self.at.push_back((now, usage));
    }

    /// Adds a sample of a container with a quota.
    pub(super) fn add(&mut self, now: Instant, usage: u64, throttleable: &Throttleable) -> SampleOutcome {
        let Some(&(last, before)) = self.at.back() else {
            self.at.push_back((now, usage));
            return SampleOutcome::Unchanged;
        };
        let since = now.saturating_duration_since(last);
        if since < MIN {
            return SampleOutcome::Unchanged;
        }
        self.record(now, usage, throttleable.period());
        let is_used_up = throttleable.is_used_up_by(self.used());
        let grown = u128::from(usage.saturating_sub(before));
        let has_halted = grown * 100 <= since.as_micros() * HALTED_PERCENT;
        match (has_halted, is_used_up) {
            (false, _) => {
                self.reported = false;
                if is_used_up { SampleOutcome::NearQuota } else { SampleOutcome::Unchanged }
            }
            (true, true) if !std::mem::replace(&mut self.reported, true) => SampleOutcome::Throttled,
            (true, _) => SampleOutcome::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Throttleable =
        Throttleable { container: ContainerId(1), quota: Micros(40_000), period: Micros(100_000) };

    /// Samples a container every 5 ms, which runs when `running` returns `true`; returns when it was reported as throttled, in ms.
    fn throttled_at(millis: u64, running: impl Fn(u64) -> bool) -> Vec<u64> {
        let start = Instant::now();
        let mut window = UsageWindow::begin(start, 0, start, 0);
        let (mut usage, mut alarms) = (0, Vec::new());
        for at in 0..millis {
            if at % 5 == 0 && window.add(start + Duration::from_millis(at), usage, &QUOTA) == SampleOutcome::Throttled {
                alarms.push(at);
            }
            usage += if running(at) { 1_000 } else { 0 };
        }
        alarms
    }

    #[test]
    fn a_container_that_halts_at_its_quota_is_throttled() {
        // Busy from 250 ms on: 40 ms in each period.
        let alarms = throttled_at(600, |at| at >= 250 && (at - 250) % 100 < 40);
        assert_eq!(alarms, [295, 395, 495, 595]);
    }

    #[test]
    fn an_idle_container_is_not_throttled() {
        assert_eq!(throttled_at(1_000, |at| at % 100 < 30), [0_u64; 0]);
        assert_eq!(throttled_at(1_000, |_| false), [0_u64; 0]);
        // 27 ms in each 100 ms, in small pieces.
        assert_eq!(throttled_at(1_000, |at| at % 15 < 4), [0_u64; 0]);
    }

    #[test]
    fn a_container_that_runs_on_is_not_throttled() {
        assert_eq!(throttled_at(1_000, |_| true), [0_u64; 0]);
    }

    #[test]
    fn cpu_time_used_before_the_first_sample_counts() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut window = UsageWindow::begin(at(100), 500_000, at(60), 40_000);
        assert_eq!(window.add(at(105), 500_000, &QUOTA), SampleOutcome::Throttled);
        assert_eq!(window.add(at(110), 500_000, &QUOTA), SampleOutcome::Unchanged, "reported once");
        let mut window = UsageWindow::begin(at(100), 500_000, at(60), 30_000);
        assert_eq!(window.add(at(105), 505_000, &QUOTA), SampleOutcome::NearQuota);
        assert_eq!(window.add(at(109), 505_000, &QUOTA), SampleOutcome::Throttled);
    }
}
