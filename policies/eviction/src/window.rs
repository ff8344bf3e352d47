//! Averages over the last seconds or minutes, exact and in bounded memory.

use std::collections::VecDeque;

use crate::input::INTERVAL_USEC;

/// Maximum number of parts; longer windows have coarser parts.
const MAX_PARTS: u64 = 256;

/// Neighbouring samples that are summed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part<const N: usize> {
    /// When the first sample was taken.
    from_usec: u64,
    /// When the last sample was taken.
    to_usec: u64,
    sums: [u128; N],
    count: u64,
}

/// Samples of `N` amounts over a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window<const N: usize> {
    parts: VecDeque<Part<N>>,
}

/// Sums over a window; the average is a sum divided by the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums<const N: usize> {
    /// The sums of the amounts.
    pub sums: [u128; N],
    /// Number of samples; never 0.
    pub count: u64,
}

impl<const N: usize> Sums<N> {
    /// The sums of a single sample.
    pub fn of(amounts: [u64; N]) -> Self {
        Self { sums: amounts.map(u128::from), count: 1 }
    }
}

impl<const N: usize> Window<N> {
    /// Adds a sample and drops those that are older than the window. A sample that comes less than half an interval after the last one is
    /// ignored, so that evaluations between two intervals do not count as seconds.
    pub fn add(&mut self, amounts: [u64; N], at_usec: u64, window_seconds: u64) {
        let window_usec = window_seconds.saturating_mul(1_000_000);
        let part_usec = (window_usec / MAX_PARTS).max(INTERVAL_USEC / 2);
        if let Some(last) = self.parts.back_mut() {
            if at_usec < last.to_usec {
                // The clock restarted.
                self.parts.clear();
            } else if at_usec - last.to_usec < INTERVAL_USEC / 2 {
                return;
            } else if at_usec - last.from_usec < part_usec {
                last.to_usec = at_usec;
                last.count += 1;
                for (sum, amount) in last.sums.iter_mut().zip(amounts) {
                    *sum += u128::from(amount);
                }
                return;
            }
        }
        self.parts.push_back(Part { from_usec: at_usec, to_usec: at_usec, sums: amounts.map(u128::from), count: 1 });
        while self.parts.front().is_some_and(|part| at_usec - part.to_usec >= window_usec) {
            self.parts.pop_front();
        }
    }

    /// The sums over the window that ends now; `None` if it has no samples.
    pub fn sums(&self, now_usec: u64, window_seconds: u64) -> Option<Sums<N>> {
        let window_usec = window_seconds.saturating_mul(1_000_000);
        let inside = self.parts.iter().filter(|part| now_usec.saturating_sub(part.to_usec) < window_usec);
        let mut all = Sums { sums: [0; N], count: 0 };
        for part in inside {
            all.count += part.count;
            for (sum, more) in all.sums.iter_mut().zip(part.sums) {
                *sum = sum.saturating_add(more);
            }
        }
        (all.count > 0).then_some(all)
    }

    /// Whether samples cover a third of a window: samples × interval ≥ window / 3, in whole seconds.
    pub fn is_covered(count: u64, window_seconds: u64) -> bool {
        count.saturating_mul(crate::input::INTERVAL_SECONDS) >= window_seconds / 3
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_window_averages_what_lies_in_it() {
        let mut window = Window::<1>::default();
        assert_eq!(window.sums(0, 3), None);
        for (second, amount, sum, count) in
            [(0, 10, 10, 1), (1, 20, 30, 2), (2, 30, 60, 3), (3, 40, 90, 3), (7, 5, 5, 1)]
        {
            window.add([amount], second * SECOND, 3);
            assert_eq!(window.sums(second * SECOND, 3), Some(Sums { sums: [sum], count }), "{second}");
        }
        assert_eq!(window.sums(10 * SECOND, 3), None, "too old");
    }

    #[test]
    fn what_comes_between_two_intervals_does_not_count() {
        let mut window = Window::<1>::default();
        for at in [0, 400_000, 499_999, 950_000, 1_400_000, 1_949_000] {
            window.add([1], at, 60);
        }
        assert_eq!(window.sums(2 * SECOND, 60).map(|sums| sums.count), Some(3));
    }

    #[test]
    fn a_clock_that_began_anew_empties_it() {
        let mut window = Window::<2>::default();
        window.add([1, 2], 50 * SECOND, 60);
        window.add([3, 4], SECOND, 60);
        assert_eq!(window.sums(SECOND, 60), Some(Sums { sums: [3, 4], count: 1 }));
    }

    #[test]
    fn a_third_of_the_window_is_enough() {
        for (count, window, is_covered) in
            [(1, 1, true), (0, 2, true), (0, 3, false), (3, 10, true), (2, 10, false), (20, 60, true), (19, 60, false)]
        {
            assert_eq!(Window::<1>::is_covered(count, window), is_covered, "{count} of {window}");
        }
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_averages_lie_between_the_samples(
            seconds in 1..100_000_u64, amounts in proptest::collection::vec(0..1_000_u64, 1..2_000), step in 500_000..3_000_000_u64,
        ) {
            let mut window = Window::<1>::default();
            let mut now = 0;
            for amount in &amounts {
                now += step;
                window.add([*amount], now, seconds);
                prop_assert!(window.parts.len() <= 514);
            }
            let sums = window.sums(now, seconds).unwrap();
            let count = u128::from(sums.count);
            let (least, most) = (*amounts.iter().min().unwrap(), *amounts.iter().max().unwrap());
            prop_assert!(sums.sums[0] >= u128::from(least) * count && sums.sums[0] <= u128::from(most) * count);
            if u64::try_from(amounts.len()).unwrap() * step < seconds * SECOND {
                prop_assert_eq!(sums.count, u64::try_from(amounts.len()).unwrap());
            }
        }
    }
}
