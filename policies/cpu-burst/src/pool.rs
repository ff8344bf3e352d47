//! The share pool: the CPUs that are not exclusive to any pod, and how much of them is in use.

use qosm_sdk::{Rate, RecentRate, scale};

/// Window of the averages, in microseconds.
const AVERAGED_USEC: u64 = 5_000_000;
/// Percent of the threshold below which the node is idle.
const COOLING_PERCENT: u64 = 90;

const USEC: u64 = 1_000_000;

/// How busy the share pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// Below nine tenths of the threshold.
    Idle,
    /// From there up to the threshold.
    Cooling,
    /// At or above the threshold.
    Overload,
    /// Not measured.
    Unknown,
}

/// Average CPU use over the last seconds, in millionths of a CPU like all amounts in this module.
#[derive(Clone, Debug)]
pub(crate) struct Average(RecentRate);

impl Default for Average {
    fn default() -> Self {
        Self(RecentRate::over(AVERAGED_USEC))
    }
}

impl Average {
    /// Adds the use in the window that ends now. An empty window is ignored.
    pub(crate) fn add(&mut self, now_usec: u64, window_usec: u64, usage_usec: u64) {
        self.0.add(now_usec, window_usec, usage_usec);
    }

    /// The average now; `None` if nothing was measured recently.
    pub(crate) fn rate(&mut self, now_usec: u64) -> Option<u64> {
        self.0.at(now_usec).map(Rate::per_second)
    }

    /// Drops all measurements.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Use of the share pool in the last window. An alarm comes only milliseconds after the previous evaluation, in which the kernel's count of
/// the node's use hardly moves. Such short windows are merged with the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest {
    window_usec: u64,
    used_usec: u64,
    outside_usec: u64,
    last: Option<u64>,
}

impl Latest {
    /// Adds the node's use in a window; `outside` is the rate of use outside the pool.
    pub(crate) fn add(&mut self, window_usec: u64, used_usec: u64, outside: u64) {
        self.window_usec = self.window_usec.saturating_add(window_usec);
        self.used_usec = self.used_usec.saturating_add(used_usec);
        self.outside_usec = self.outside_usec.saturating_add(scale(outside, window_usec, USEC));
    }

    /// Ends the window and returns its use.
    pub(crate) fn close(&mut self) -> Option<u64> {
        let inside = self.used_usec.saturating_sub(self.outside_usec);
        *self = Self { last: rate(inside, self.window_usec), ..Self::default() };
        self.last
    }

    /// The use in the last completed window.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }
}

/// CPU time over wall time; `None` for an empty window.
pub(crate) fn rate(usage_usec: u64, window_usec: u64) -> Option<u64> {
    Rate::of(usage_usec, window_usec).map(Rate::per_second)
}

/// The share pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// Size of the pool.
    pub(crate) size: u64,
    /// Use over the last seconds; `None` if unknown.
    pub(crate) average: Option<u64>,
    /// Use in the last window; `None` if unknown.
    pub(crate) latest: Option<u64>,
}

impl Pool {
    /// The node's CPUs less the reserved ones.
    pub(crate) fn size(cpus: u32, reserved_milli: u64) -> u64 {
        (u64::from(cpus) * USEC).saturating_sub(reserved_milli.saturating_mul(1_000))
    }

    /// The use in percent of the pool: the larger of the latest use and the average; `None` if unknown.
    pub(crate) fn used_percent(&self) -> Option<u64> {
        let used = self.average.max(self.latest)?;
        Some(if self.size == 0 { 100 } else { scale(used, 100, self.size) })
    }

    /// The state by the average use, as in the specification.
    pub(crate) fn state(&self, threshold_percent: u64) -> NodeState {
        self.average.map_or(NodeState::Unknown, |usage| self.state_at(usage, threshold_percent))
    }

    /// The state at a given use. A pool without CPUs counts as fully used.
    fn state_at(&self, usage: u64, threshold_percent: u64) -> NodeState {
        let (usage, size) = if self.size == 0 { (1, 1) } else { (usage, self.size) };
        let threshold = threshold_percent.saturating_mul(size);
        if usage.saturating_mul(100) >= threshold {
            NodeState::Overload
        } else if usage.saturating_mul(10_000) >= threshold.saturating_mul(COOLING_PERCENT) {
            NodeState::Cooling
        } else {
            NodeState::Idle
        }
    }

    /// CPU that may still be given out; 0 unless the pool is idle both now and on average, so that one quiet second is not enough for a
    /// raise.
    pub(crate) fn free(&self, threshold_percent: u64) -> u64 {
        match (self.average, self.latest) {
            (Some(average), Some(latest)) => {
                let usage = average.max(latest);
                match self.state_at(usage, threshold_percent) {
                    NodeState::Idle => self.threshold(threshold_percent).saturating_sub(usage),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }

    /// By how much the pool exceeds its threshold both now and on average; `None` unless both do. A cut shows at once in the latest use but
    /// only later in the average, so it is not made twice.
    pub(crate) fn excess(&self, threshold_percent: u64) -> Option<u64> {
        let usage = self.average?.min(self.latest?);
        match self.state_at(usage, threshold_percent) {
            NodeState::Overload => Some(usage.saturating_sub(self.threshold(threshold_percent))),
            _ => None,
        }
    }

    fn threshold(&self, percent: u64) -> u64 {
        scale(self.size, percent, 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(cpus: u32, reserved_milli: u64, usage: u64) -> Pool {
        Pool { size: Pool::size(cpus, reserved_milli), average: Some(usage), latest: Some(usage) }
    }

    #[test]
    fn the_state_follows_the_threshold() {
        for (cpus, reserved, usage, threshold, state) in [
            (16, 8_000, 3_000_000, 50, NodeState::Idle),
            (16, 8_000, 5_000_000, 50, NodeState::Overload),
            (16, 8_000, 3_750_000, 50, NodeState::Cooling),
            (16, 8_000, 4_000_000, 50, NodeState::Overload),
            (16, 8_000, 3_999_999, 50, NodeState::Cooling),
            (16, 8_000, 3_600_000, 50, NodeState::Cooling),
            (16, 8_000, 3_599_999, 50, NodeState::Idle),
            (16, 0, 0, 0, NodeState::Overload),
            (16, 0, 15_999_999, 100, NodeState::Cooling),
            (16, 16_000, 0, 50, NodeState::Overload),
            (16, 20_000, 0, 100, NodeState::Overload),
        ] {
            let pool = used(cpus, reserved, usage);
            assert_eq!(pool.state(threshold), state, "{usage} of {} at {threshold} %", pool.size);
        }
    }

    #[test]
    fn nothing_measured_is_unknown_and_gives_nothing() {
        let pool = Pool { size: 8_000_000, average: None, latest: None };
        assert_eq!(pool.state(50), NodeState::Unknown);
        assert_eq!(pool.free(50), 0);
        assert_eq!(pool.excess(50), None);
    }

    #[test]
    fn a_raise_needs_now_and_average_and_a_cut_does_too() {
        let busy_now = Pool { size: 8_000_000, average: Some(1_000_000), latest: Some(5_000_000) };
        assert_eq!((busy_now.free(50), busy_now.excess(50)), (0, None));
        let calm_now = Pool { size: 8_000_000, average: Some(5_000_000), latest: Some(1_000_000) };
        assert_eq!((calm_now.free(50), calm_now.excess(50)), (0, None));
        assert_eq!(used(8, 0, 1_000_000).free(50), 3_000_000);
        assert_eq!(used(8, 0, 5_000_000).excess(50), Some(1_000_000));
        assert_eq!(used(8, 0, 4_000_000).excess(50), Some(0));
    }

    #[test]
    fn only_the_last_five_seconds_count() {
        let mut average = Average::default();
        for second in 1..=20 {
            average.add(second * USEC, USEC, if second > 15 { 2 * USEC } else { 9 * USEC });
        }
        assert_eq!(average.rate(20 * USEC), Some(2_000_000));
        assert_eq!(average.rate(24 * USEC), Some(2_000_000));
        assert_eq!(average.rate(25 * USEC), None);
        average.add(26 * USEC, 0, 5);
        assert_eq!(average.rate(26 * USEC), None);
    }
}
