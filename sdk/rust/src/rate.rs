//! Rates: an amount per time, kept exactly.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::scale;

const SECOND_USEC: u64 = 1_000_000;

/// CPU in thousandths of a CPU, the unit of requests and limits.
///
/// ```
/// use qosm_sdk::MilliCpu;
///
/// let limit = MilliCpu(1500);
/// assert_eq!(limit.per_period(100_000), 150_000, "microseconds of CPU time in each enforcement period");
/// assert_eq!(limit.to_string(), "1500m");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpu(pub u64);

impl MilliCpu {
    /// CPU time in microseconds that this amount of CPU provides in one period, rounded down: the CFS quota of a CPU limit.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::MilliCpu(250).per_period(100_000), 25_000);
    /// ```
    pub fn per_period(self, period_usec: u64) -> u64 {
        scale(period_usec, self.0, 1000)
    }
}

impl std::fmt::Display for MilliCpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}m", self.0)
    }
}

/// An amount per time, kept as a fraction, so that comparing rates and adding windows is exact.
///
/// ```
/// use qosm_sdk::{MilliCpu, Rate};
///
/// // A container that used 0.9 s of CPU time in 600 ms.
/// let used = Rate::of(900_000, 600_000).ok_or("an empty window says nothing")?;
/// assert_eq!(used.cpu(), MilliCpu(1500));
/// assert_eq!(used.percent_of(MilliCpu(2000)), 75);
///
/// // 12 times throttled in 3 s.
/// assert_eq!(Rate::of(12, 3_000_000).map(Rate::per_second), Some(4));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    amount: u64,
    window_usec: u64,
}

impl Rate {
    /// The rate of `amount` in a window; `None` for a window of length 0.
    ///
    /// ```
    /// assert!(qosm_sdk::Rate::of(7, 0).is_none());
    /// ```
    pub fn of(amount: u64, window_usec: u64) -> Option<Self> {
        (window_usec > 0).then_some(Self { amount, window_usec })
    }

    /// The amount per second, rounded down.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::Rate::of(3, 2_000_000).map(|rate| rate.per_second()), Some(1));
    /// ```
    pub fn per_second(self) -> u64 {
        scale(self.amount, SECOND_USEC, self.window_usec)
    }

    /// The number of CPUs, rounded down to a thousandth, if the amount is CPU time in microseconds.
    ///
    /// ```
    /// use qosm_sdk::{MilliCpu, Rate};
    ///
    /// assert_eq!(Rate::of(500_000, 1_000_000).map(Rate::cpu), Some(MilliCpu(500)));
    /// ```
    pub fn cpu(self) -> MilliCpu {
        MilliCpu(scale(self.amount, 1000, self.window_usec))
    }

    /// The share of a CPU limit in percent, rounded down, if the amount is CPU time in microseconds. [`u64::MAX`] for a limit of 0.
    ///
    /// ```
    /// use qosm_sdk::{MilliCpu, Rate};
    ///
    /// assert_eq!(Rate::of(1_500_000, 1_000_000).map(|used| used.percent_of(MilliCpu(1000))), Some(150));
    /// ```
    pub fn percent_of(self, limit: MilliCpu) -> u64 {
        match self.window_usec.checked_mul(limit.0) {
            Some(0) => u64::MAX,
            Some(allowed) => scale(self.amount, 100_000, allowed),
            // Reached only with centuries of CPU time, where rounding twice does not matter.
            None => scale(self.cpu().0, 100, limit.0),
        }
    }

    /// The rate over two consecutive windows together.
    ///
    /// ```
    /// use qosm_sdk::{MilliCpu, Rate};
    ///
    /// let windows = [(100_000, 100_000), (0, 900_000)].map(|(used, window)| Rate::of(used, window));
    /// let [Some(short), Some(long)] = windows else { return };
    /// assert_eq!(short.and(long).cpu(), MilliCpu(100), "a mean of the two rates would say 500");
    /// ```
    pub fn and(self, next: Self) -> Self {
        Self {
            amount: self.amount.saturating_add(next.amount),
            window_usec: self.window_usec.saturating_add(next.window_usec),
        }
    }
}

impl PartialEq for Rate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rate {}

impl PartialOrd for Rate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rate {
    /// Compares by cross-multiplication, which is exact.
    fn cmp(&self, other: &Self) -> Ordering {
        let product = |amount: u64, window: u64| u128::from(amount) * u128::from(window);
        product(self.amount, other.window_usec).cmp(&product(other.amount, self.window_usec))
    }
}

/// The rate over a sliding window, made of the windows of the evaluations.
///
/// ```
/// use qosm_sdk::{MilliCpu, RecentRate};
///
/// let mut used = RecentRate::over(5_000_000);
/// let mut now_usec = 0;
/// for cpu_usec in [900_000, 900_000, 0, 0, 0, 0] {
///     now_usec += 1_000_000;
///     used.add(now_usec, 1_000_000, cpu_usec);
/// }
/// let rate = used.at(now_usec).ok_or("nothing was measured")?;
/// assert_eq!(rate.cpu(), MilliCpu(180), "the first second is longer ago than five");
/// assert_eq!(used.at(now_usec + 5_000_000), None, "and now all of it is");
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentRate {
    span_usec: u64,
    /// End, length and amount of each window, times in microseconds.
    windows: VecDeque<(u64, u64, u64)>,
}

impl RecentRate {
    /// A sliding window of `span_usec` microseconds.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::RecentRate::over(5_000_000).at(0), None, "nothing was measured yet");
    /// ```
    pub fn over(span_usec: u64) -> Self {
        Self { span_usec, windows: VecDeque::new() }
    }

    /// Adds the amount of the window that ends now. `now_usec` is the policy's own time, the sum of its windows. A window of length 0 adds
    /// nothing.
    ///
    /// ```
    /// let mut rate = qosm_sdk::RecentRate::over(5_000_000);
    /// rate.add(1_000_000, 1_000_000, 8);
    /// assert_eq!(rate.at(1_000_000).map(|rate| rate.per_second()), Some(8));
    /// ```
    pub fn add(&mut self, now_usec: u64, window_usec: u64, amount: u64) {
        if window_usec > 0 {
            self.windows.push_back((now_usec, window_usec, amount));
        }
    }

    /// The rate over all windows that ended less than the span ago; `None` if there are none.
    ///
    /// ```
    /// let mut rate = qosm_sdk::RecentRate::over(2_000_000);
    /// rate.add(1_000_000, 1_000_000, 8);
    /// assert!(rate.at(2_999_999).is_some());
    /// assert!(rate.at(3_000_000).is_none());
    /// ```
    pub fn at(&mut self, now_usec: u64) -> Option<Rate> {
        while self.windows.front().is_some_and(|(ended, ..)| now_usec.saturating_sub(*ended) >= self.span_usec) {
            self.windows.pop_front();
        }
        let sum = self.windows.iter().fold(Rate { amount: 0, window_usec: 0 }, |sum, &(_, window_usec, amount)| {
            sum.and(Rate { amount, window_usec })
        });
        Rate::of(sum.amount, sum.window_usec)
    }

    /// Drops all windows, for use after a time without measurements.
    ///
    /// ```
    /// let mut rate = qosm_sdk::RecentRate::over(2_000_000);
    /// rate.add(1_000_000, 1_000_000, 8);
    /// rate.clear();
    /// assert_eq!(rate.at(1_000_000), None);
    /// ```
    pub fn clear(&mut self) {
        self.windows.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_of_a_limit_is_rounded_down() {
        for (used, window, limit, percent) in [
            (1_999_999, 1_000_000, 1000, 199),
            (500_000, 1_000_000, 2000, 25),
            (1, 1, 0, u64::MAX),
            (0, u64::MAX, u64::MAX, 0),
            (u64::MAX, u64::MAX, 1000, 100),
        ] {
            let rate = Rate::of(used, window).unwrap();
            assert_eq!(rate.percent_of(MilliCpu(limit)), percent, "{used} in {window} of {limit}");
        }
    }

    proptest! {
        #[test]
        fn two_windows_together_lie_between_them(a: (u64, u64), b: (u64, u64)) {
            let half = |(amount, window): (u64, u64)| Rate::of(amount / 2, window / 2);
            let (Some(a), Some(b)) = (half(a), half(b)) else { return Ok(()) };
            let both = a.and(b);
            prop_assert!(a.min(b) <= both && both <= a.max(b), "{a:?} {b:?} {both:?}");
        }

        #[test]
        fn rates_compare_as_their_quotients(a: u32, b: u32, window in 1..u32::MAX) {
            let rate = |amount: u32| Rate::of(amount.into(), window.into());
            prop_assert_eq!(rate(a).cmp(&rate(b)), a.cmp(&b));
            prop_assert_eq!(rate(a), Rate::of(u64::from(a) * 7, u64::from(window) * 7));
        }

        #[test]
        fn the_recent_rate_is_that_of_the_windows_that_count(
            windows in proptest::collection::vec((1..3_000_000_u64, 0..4_000_000_u64), 1..40), span in 1..10_000_000_u64,
        ) {
            let (mut recent, mut now, mut ends) = (RecentRate::over(span), 0, Vec::new());
            for (window, amount) in windows {
                now += window;
                ends.push((now, window, amount));
                recent.add(now, window, amount);
                let counts = ends.iter().filter(|(end, ..)| now - end < span);
                let (windows, amounts) = counts.fold((0, 0), |(w, a), (_, window, amount)| (w + window, a + amount));
                prop_assert_eq!(recent.at(now), Rate::of(amounts, windows));
            }
        }
    }
}
