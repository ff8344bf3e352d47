//! Who is being throttled, seen from CPU time alone. The kernel counts a throttled period when it is over, up to 100 ms too late
//! to help; but a container whose CPU time has reached its quota within a period, and has come to a halt, is throttled now.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use qosm_model::pod::ContainerId;
use qosm_model::unit::Micros;

use crate::parse;

/// Of its quota, what a container has used when it is throttled, in percent: CPUs hold back small slices of it that they took and
/// did not need.
const USED_UP_PERCENT: u64 = 85;
/// Of the time between two looks, what a container that has come to a halt may still have used, in percent.
const HALTED_PERCENT: u128 = 10;
/// Looks closer together say nothing: the kernel brings CPU time up to date at its own ticks.
const LEAST: Duration = Duration::from_millis(3);

/// A container that could be throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttleable {
    /// Which.
    pub container: ContainerId,
    /// Its CFS quota.
    pub quota: Micros,
    /// For each period of this length.
    pub period: Micros,
}

/// How a file tells CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageFile {
    /// `cpuacct.usage`: nanoseconds.
    Nanos,
    /// `cpu.stat` of v2: `usage_usec`.
    Stat,
}

impl UsageFile {
    fn parse(self, text: &[u8]) -> Option<u64> {
        match self {
            Self::Nanos => parse::number(text).map(|nanos| nanos / 1000),
            Self::Stat => parse::keyed(text, ["usage_usec"])[0],
        }
    }
}

/// A container that is looked at.
pub(super) struct Sampled {
    pub(super) about: Throttleable,
    file: File,
    form: UsageFile,
    looks: Looks,
}

impl Sampled {
    pub(super) fn new(about: Throttleable, file: File, form: UsageFile) -> Self {
        Self { about, file, form, looks: Looks::default() }
    }

    /// Whether it has come to be throttled since the last look. `None`: it is gone.
    pub(super) fn look(&mut self, now: Instant) -> Option<bool> {
        let mut buffer = [0_u8; 512];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        let usage = self.form.parse(buffer.get(..length)?)?;
        Some(self.looks.add(now, usage, &self.about))
    }
}

/// CPU time over the last period.
#[derive(Debug, Default)]
struct Looks {
    at: VecDeque<(Instant, u64)>,
    /// It was told; not again before it goes on.
    told: bool,
}

impl Looks {
    fn add(&mut self, now: Instant, usage: u64, about: &Throttleable) -> bool {
        let Some(&(last, before)) = self.at.back() else {
            self.at.push_back((now, usage));
            return false;
        };
        let since = now.saturating_duration_since(last);
        if since < LEAST {
            return false;
        }
        let period = Duration::from_micros(about.period.0);
        // One look from before the period is kept: what was used since then covers all of it.
        while self.at.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= period) {
            self.at.pop_front();
        }
        let from = self.at.front().map_or(before, |(_, usage)| *usage);
        self.at.push_back((now, usage));
        let grown = u128::from(usage.saturating_sub(before));
        let has_halted = grown * 100 <= since.as_micros() * HALTED_PERCENT;
        if !has_halted {
            self.told = false;
            return false;
        }
        let used = u128::from(usage.saturating_sub(from));
        let is_used_up = used * 100 >= u128::from(about.quota.0) * u128::from(USED_UP_PERCENT);
        let is_new = is_used_up && !self.told;
        self.told |= is_new;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: Throttleable =
        Throttleable { container: ContainerId(1), quota: Micros(40_000), period: Micros(100_000) };

    /// Looks each 5 ms at a container that runs as `running` says, and tells when an alarm was raised, in ms.
    fn play(millis: u64, running: impl Fn(u64) -> bool) -> Vec<u64> {
        let start = Instant::now();
        let mut looks = Looks::default();
        let (mut usage, mut alarms) = (0, Vec::new());
        for at in 0..millis {
            if at % 5 == 0 && looks.add(start + Duration::from_millis(at), usage, &ABOUT) {
                alarms.push(at);
            }
            usage += if running(at) { 1_000 } else { 0 };
        }
        alarms
    }

    #[test]
    fn a_container_that_comes_to_a_halt_at_its_quota_is_throttled() {
        // Busy without end from 250 ms on: 40 ms in each period.
        let alarms = play(600, |at| at >= 250 && (at - 250) % 100 < 40);
        assert_eq!(alarms, [295, 395, 495, 595]);
    }

    #[test]
    fn one_that_rests_of_its_own_accord_is_not() {
        assert_eq!(play(1_000, |at| at % 100 < 30), [0_u64; 0]);
        assert_eq!(play(1_000, |_| false), [0_u64; 0]);
        // 27 ms in 100, in small pieces.
        assert_eq!(play(1_000, |at| at % 15 < 4), [0_u64; 0]);
    }

    #[test]
    fn one_that_runs_on_is_not() {
        assert_eq!(play(1_000, |_| true), [0_u64; 0]);
    }
}
