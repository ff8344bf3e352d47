//! The interval between sampling rounds, and the number of samples in each: short while a container is active, longer
//! on an idle node, and never more than a hundredth of a CPU on average.

use std::time::{Duration, Instant};

use super::sampler::Round;
use super::throttling::MIN;

/// Interval while a container is active.
const ACTIVE_INTERVAL: Duration = Duration::from_millis(5);
/// Interval while all containers are idle.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
/// Interval while a container may be throttled at any moment.
const NEAR_QUOTA_INTERVAL: Duration = MIN.saturating_add(Duration::from_micros(200));
/// Upper bound of the interval, whatever the cost: the length of a tick.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Sampling may use 1/`CPU_SHARE` of a CPU.
const CPU_SHARE: u32 = 100;
/// Upper bound of the unused CPU time that is saved for rounds in which many containers are due.
const MAX_SAVED: Duration = Duration::from_millis(5);
/// Assumed cost of a read before the first measurement.
const INITIAL_READ_COST: Duration = Duration::from_micros(2);
/// Minimum number of idle members that are sampled in each round, whatever the budget.
const MIN_READS: usize = 8;
/// Weight of the past in the moving average of the read cost; a measurement weighs 1.
const SMOOTHING: u32 = 8;

/// The budget of CPU time for sampling, measured by the thread's CPU clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct SamplingRate {
    /// Time of the last round, and the thread's CPU time then.
    settled: Option<(Instant, Duration)>,
    saved: Duration,
    debt: Duration,
    read_cost: Duration,
}

impl Default for SamplingRate {
    fn default() -> Self {
        Self { settled: None, saved: MAX_SAVED, debt: Duration::ZERO, read_cost: INITIAL_READ_COST }
    }
}

impl SamplingRate {
    /// Number of idle members that may be sampled in the next round.
    pub(super) fn allowance(&self) -> usize {
        let reads = self.saved.as_nanos() / self.read_cost.as_nanos().max(1);
        usize::try_from(reads).unwrap_or(usize::MAX).max(MIN_READS)
    }

    /// Returns the time until the next round. `cpu` is the CPU time of this thread so far.
    pub(super) fn next_interval(&mut self, round: &Round, now: Instant, cpu: Duration) -> Duration {
        let (then, before) = self.settled.replace((now, cpu)).unwrap_or((now, cpu));
        let spent = cpu.saturating_sub(before);
        if let Some(read) = u32::try_from(round.reads).ok().filter(|reads| *reads > 0).map(|reads| spent / reads) {
            self.read_cost = (self.read_cost * (SMOOTHING - 1) + read) / SMOOTHING;
        }
        let earned = now.saturating_duration_since(then) / CPU_SHARE + self.saved;
        let due = spent + self.debt;
        (self.saved, self.debt) = (earned.saturating_sub(due).min(MAX_SAVED), due.saturating_sub(earned));
        let interval = match (round.is_near_quota, round.has_activity) {
            (true, _) => NEAR_QUOTA_INTERVAL,
            (false, true) => ACTIVE_INTERVAL,
            (false, false) => IDLE_INTERVAL,
        };
        interval.max(self.debt * CPU_SHARE).min(MAX_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Round =
        Round { throttled: Vec::new(), reads: 1, is_near_quota: false, has_activity: false, has_lost: false };

    /// Milliseconds between rounds that cost `micros` each.
    fn intervals_of(round: &Round, micros: u64, rounds: u32) -> Vec<u128> {
        let (mut sampling_rate, mut now, mut cpu) = (SamplingRate::default(), Instant::now(), Duration::ZERO);
        let mut intervals = Vec::new();
        for _ in 0..rounds {
            cpu += Duration::from_micros(micros);
            let interval = sampling_rate.next_interval(round, now, cpu);
            now += interval;
            intervals.push(interval.as_millis());
        }
        intervals
    }

    #[test]
    fn rounds_are_closer_together_while_a_container_is_active() {
        let has_activity = Round { has_activity: true, ..IDLE };
        let near = Round { is_near_quota: true, ..Round { has_activity: true, ..IDLE } };
        assert_eq!(intervals_of(&IDLE, 5, 3), [10, 10, 10]);
        assert_eq!(intervals_of(&has_activity, 5, 3), [5, 5, 5]);
        assert_eq!(intervals_of(&near, 5, 3), [3, 3, 3]);
    }

    #[test]
    fn sampling_takes_at_most_a_hundredth_of_a_cpu() {
        for micros in [20, 300, 2_000, 9_000] {
            let has_activity = Round { has_activity: true, reads: 100, ..IDLE };
            let intervals = intervals_of(&has_activity, micros, 4_000);
            let (time, cost) = (intervals.iter().sum::<u128>() * 1_000, u128::from(micros) * 4_000);
            let bound = time / 100 + MAX_SAVED.as_micros() + 2 * u128::from(micros);
            // Fractions of milliseconds were cut off.
            assert!(cost <= bound + 4_000 * 10, "{micros} µs a round: {cost} µs in {time} µs");
        }
        // The interval is at most a tick.
        assert_eq!(intervals_of(&IDLE, 500_000, 2).last(), Some(&1_000));
    }

    #[test]
    fn unused_budget_is_saved_and_a_few_samples_are_always_taken() {
        let mut sampling_rate = SamplingRate::default();
        assert_eq!(sampling_rate.allowance(), 2_500);
        let (mut now, mut cpu) = (Instant::now(), Duration::ZERO);
        let has_activity = Round { has_activity: true, reads: 1_000, ..IDLE };
        for _ in 0..100 {
            cpu += Duration::from_millis(2);
            now += sampling_rate.next_interval(&has_activity, now, cpu);
        }
        assert_eq!(sampling_rate.allowance(), MIN_READS);
    }
}
