//! Detects a sudden rise of CPU use by pods outside BestEffort, so that a policy that limits batch pods can act before
//! its next interval. At best the kernel reports that tasks wait (PSI, cgroup v2), but with the kubelet's weights
//! latency-sensitive pods hardly wait.
//!
//! Use counts as a rise when it exceeds the maximum of the last 5 s. The detector reads no clock and opens no files:
//! the caller passes time and CPU time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time between samples.
pub(super) const INTERVAL: Duration = Duration::from_millis(20);
/// The shortest time over which use is measured, so that a late timer does not look like a rise.
const WINDOW: Duration = Duration::from_millis(35);
/// Age from which a window counts as history instead of as part of a load that begins now.
const SETTLED: Duration = Duration::from_millis(60);
/// Number of seconds whose peaks are kept.
const SECONDS: usize = 5;
/// Time after which a lasting rise is reported again.
const AGAIN: Duration = Duration::from_millis(100);
/// The smallest rise that is reported: the larger of this, in thousandths of a CPU …
const MIN_RISE_MILLI: u64 = 250;
/// … and this, in thousandths of the node's CPUs.
const MIN_RISE_PERMILLE: u64 = 30;

/// Detects rises from samples of CPU time.
#[derive(Debug)]
pub(super) struct LoadDetector {
    /// The smallest rise that is reported, in thousandths of a CPU.
    rise_milli: u64,
    /// Times of the samples in the window, and the CPU time in microseconds at each.
    samples: VecDeque<(Instant, u64)>,
    /// Recent windows: their end, and the use in them, in thousandths of a CPU.
    fresh: VecDeque<(Instant, u64)>,
    /// The highest use of each second in thousandths of a CPU, the current second last.
    peaks: VecDeque<u64>,
    second: Option<Instant>,
    /// After a reported rise: when to report it again, and the use from which to do so.
    told: Option<(Instant, u64)>,
}

impl LoadDetector {
    /// Creates a detector for a node with this number of CPUs.
    pub(super) fn new(cpus: u32) -> Self {
        Self {
            rise_milli: u64::from(cpus).saturating_mul(MIN_RISE_PERMILLE).max(MIN_RISE_MILLI),
            samples: VecDeque::new(),
            fresh: VecDeque::new(),
            peaks: VecDeque::new(),
            second: None,
            told: None,
        }
    }

    /// Adds a sample of the total CPU time. Returns `true` if use has risen above the recent maximum.
    pub(super) fn add(&mut self, now: Instant, usage_usec: u64) -> bool {
        self.samples.push_back((now, usage_usec));
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= WINDOW) {
            self.samples.pop_front();
        }
        let Some(&(then, before)) = self.samples.front() else { return false };
        let window = u64::try_from(now.saturating_duration_since(then).as_micros()).unwrap_or(u64::MAX);
        if now.saturating_duration_since(then) < WINDOW {
            return false;
        }
        let used = usage_usec.saturating_sub(before).saturating_mul(1000) / window.max(1);
        if let Some((again, above)) = self.told {
            if now < again {
                return false;
            }
            self.told = None;
            // From here on the new use is the normal one.
            self.fresh.clear();
            self.note(now, used);
            return used >= above;
        }
        let highest = self.peaks.iter().copied().max();
        self.fresh.push_back((now, used));
        while let Some(&(ended, past)) = self.fresh.front()
            && now.saturating_duration_since(ended) >= SETTLED
        {
            self.fresh.pop_front();
            self.note(now, past);
        }
        let above = highest.map(|highest| highest.saturating_add(self.rise_milli));
        let has_risen = above.is_some_and(|above| used >= above);
        self.told = above.filter(|_| has_risen).map(|above| (now + AGAIN, above));
        has_risen
    }

    fn note(&mut self, now: Instant, used: u64) {
        let begun = self.second.get_or_insert(now);
        if self.peaks.is_empty() || now.saturating_duration_since(*begun) >= Duration::from_secs(1) {
            *begun = now;
            self.peaks.push_back(0);
            if self.peaks.len() > SECONDS {
                self.peaks.pop_front();
            }
        }
        if let Some(peak) = self.peaks.back_mut() {
            *peak = used.max(*peak);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays phases of (milliseconds, use in thousandths of a CPU), and returns when rises were reported, in milliseconds.
    fn told(cpus: u32, load: &[(u64, u64)]) -> Vec<u64> {
        let (mut detector, start) = (LoadDetector::new(cpus), Instant::now());
        let (mut told, mut at, mut usage) = (Vec::new(), 0, 0);
        for &(millis, milli_cpu) in load {
            for _ in 0..millis {
                at += 1;
                usage += milli_cpu;
                if at % 20 == 0 && detector.add(start + Duration::from_millis(at), usage) {
                    told.push(at);
                }
            }
        }
        told
    }

    #[test]
    fn load_that_begins_is_told_within_two_samples_and_again_when_it_lasts() {
        assert_eq!(told(2, &[(2_000, 100), (1_000, 1_000)]), [2_020, 2_120]);
        assert_eq!(told(2, &[(2_005, 100), (1_000, 1_000)]), [2_020, 2_120]);
        assert_eq!(told(64, &[(2_000, 1_000), (1_000, 5_000)]), [2_020, 2_120]);
        // A short burst is reported once.
        assert_eq!(told(2, &[(2_000, 100), (60, 1_500), (2_000, 100)]), [2_020]);
    }

    #[test]
    fn load_that_comes_and_goes_is_no_news() {
        let bursts: Vec<_> = (0..40).flat_map(|_| [(100, 1_500), (150, 200)]).collect();
        let news = told(4, &bursts);
        assert!(news.iter().all(|at| *at < 1_000), "{news:?}");
        // After some seconds without load, it is reported again.
        let rested: Vec<_> = bursts.iter().copied().chain([(7_000, 200), (100, 1_500)]).collect();
        assert_eq!(told(4, &rested).iter().filter(|at| **at > 10_000).count(), 1);
    }

    #[test]
    fn small_rises_are_left_to_the_interval() {
        assert_eq!(told(2, &[(2_000, 100), (1_000, 300)]), [0; 0]);
        assert_eq!(told(64, &[(2_000, 1_000), (1_000, 2_800)]), [0; 0]);
        assert_eq!(told(2, &[(3_000, 1_500)]), [0; 0], "what it finds is no news");
        // Load that grows slowly is not sudden.
        let slowly: Vec<_> = (0..100).map(|step| (100, 100 + step * 10)).collect();
        assert_eq!(told(2, &slowly), [0; 0]);
    }
}
