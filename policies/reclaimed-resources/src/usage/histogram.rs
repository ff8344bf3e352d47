//! A histogram of values by the time for which they were seen; old weights decay, and the number of buckets is bounded.
//!
//! A bucket holds the numbers with the same leading five bits, so a value is off by at most a sixteenth; integer arithmetic gives the same
//! result on every machine. If there are too many buckets, two neighbours are merged into the upper one, so a percentile is never below the
//! values seen.

/// Maximum number of buckets.
pub(crate) const BUCKETS: usize = 20;
/// 2 to the power of -1/8, with 32 bits after the point: the factor by which weights decay in an eighth of the half-life.
const EIGHTH: u128 = 3_938_502_376;

/// A histogram with decaying weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Pairs of bucket and weight, sorted by bucket.
    buckets: Vec<(u16, u64)>,
    /// Time since the last decay, in microseconds.
    since_usec: u64,
}

impl Histogram {
    /// Adds a value with a weight.
    pub fn add(&mut self, value: u64, weight: u64) {
        if weight == 0 {
            return;
        }
        self.insert(bucket(value), weight);
        if self.buckets.len() > BUCKETS {
            self.merge();
        }
    }

    fn insert(&mut self, bucket: u16, weight: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(weight),
            Err(at) => self.buckets.insert(at, (bucket, weight)),
        }
    }

    /// Merges the bucket whose weight is moved up least into its upper neighbour.
    fn merge(&mut self) {
        let cost = |at: &usize| {
            let ((lower, weight), (upper, _)) = (self.buckets[*at], self.buckets[at + 1]);
            u128::from(weight) * u128::from(highest(upper) - highest(lower))
        };
        if let Some(at) = (0..self.buckets.len().saturating_sub(1)).min_by_key(cost) {
            let (_, weight) = self.buckets.remove(at);
            self.buckets[at].1 = self.buckets[at].1.saturating_add(weight);
        }
    }

    /// Lets time pass; weights halve after each half-life.
    pub fn age(&mut self, usec: u64, half_life_usec: u64) {
        let step = (half_life_usec / 8).max(1);
        self.since_usec = self.since_usec.saturating_add(usec);
        // After 64 half-lives every weight is 0.
        if self.since_usec / step >= 64 * 8 {
            self.buckets.clear();
            self.since_usec = 0;
        }
        while self.since_usec >= step {
            self.since_usec -= step;
            for (_, weight) in &mut self.buckets {
                *weight = u64::try_from((u128::from(*weight) * EIGHTH) >> 32).unwrap_or(u64::MAX);
            }
            self.buckets.retain(|(_, weight)| *weight > 0);
        }
    }

    /// The value that `percent` of the weight does not exceed, rounded up to the highest value of its bucket; `None` if the histogram is
    /// empty.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let total: u128 = self.buckets.iter().map(|(_, weight)| u128::from(*weight)).sum();
        let mut below = 0_u128;
        self.buckets.iter().find_map(|(bucket, weight)| {
            below += u128::from(*weight);
            (below * 100 >= total * u128::from(percent.min(100))).then(|| highest(*bucket))
        })
    }

    /// Buckets and weights, for the saved state.
    pub(crate) fn buckets(&self) -> &[(u16, u64)] {
        &self.buckets
    }

    /// Time since the last decay, for the saved state: without it, an instance that restarts often would never decay.
    pub(crate) fn since_usec(&self) -> u64 {
        self.since_usec
    }

    /// Restores a saved histogram; `None` if it is invalid.
    pub(crate) fn restore(buckets: Vec<(u16, u64)>, since_usec: u64) -> Option<Self> {
        let is_sorted = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_known = buckets.iter().all(|(bucket, weight)| *bucket <= LAST && *weight > 0);
        (is_sorted && is_known && buckets.len() <= BUCKETS).then_some(Self { buckets, since_usec })
    }
}

/// The bucket of the largest value.
const LAST: u16 = 61 * 16 - 1;

/// The bucket of a value: below 16 the value itself, then 16 buckets for each power of two.
fn bucket(value: u64) -> u16 {
    let Some(exponent) = value.checked_ilog2().filter(|exponent| *exponent >= 4) else {
        return u16::try_from(value).unwrap_or(0);
    };
    let leading = (value >> (exponent - 4)) & 15;
    u16::try_from(u64::from(exponent - 3) * 16 + leading).unwrap_or(LAST)
}

/// The highest value of a bucket.
fn highest(bucket: u16) -> u64 {
    let (power, leading) = (u32::from(bucket) / 16, u64::from(bucket) % 16);
    if power == 0 {
        return leading;
    }
    // Adding in another order would overflow for the last bucket, whose upper end is 2^64.
    ((leading + 16) << (power - 1)) + ((1 << (power - 1)) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn buckets_are_exact_below_32_and_a_sixteenth_wide_above() {
        for (value, expected, top) in [
            (0, 0, 0),
            (15, 15, 15),
            (16, 16, 16),
            (31, 31, 31),
            (32, 32, 33),
            (33, 32, 33),
            (1000, 6 * 16 + 15, 1023),
            (1024, 7 * 16, 1087),
            (u64::MAX, LAST, u64::MAX),
        ] {
            assert_eq!((bucket(value), highest(bucket(value))), (expected, top), "{value}");
        }
    }

    #[test]
    fn percentiles_go_by_weight() {
        let mut seen = Histogram::default();
        assert_eq!(seen.percentile(95), None);
        for (value, weight) in [(10, 90), (20, 5), (30, 4), (40, 1), (50, 0)] {
            seen.add(value, weight);
        }
        for (percent, value) in [(0, 10), (50, 10), (90, 10), (91, 20), (95, 20), (96, 30), (99, 30), (100, 41)] {
            assert_eq!(seen.percentile(percent), Some(value), "p{percent}");
        }
    }

    #[test]
    fn weights_halve_with_each_half_life() {
        let mut seen = Histogram::default();
        seen.add(10, 1_000_000);
        seen.age(12 * HOUR, 12 * HOUR);
        assert!(seen.buckets()[0].1.abs_diff(500_000) <= 8, "{:?}", seen.buckets());
        for _ in 0..12 * 60 {
            seen.age(60_000_000, 12 * HOUR);
        }
        assert!(seen.buckets()[0].1.abs_diff(250_000) <= 16, "{:?}", seen.buckets());
        seen.add(20, 10_000_000);
        assert_eq!(seen.percentile(95), Some(20), "what is new outweighs what is old");
        seen.age(u64::MAX, 12 * HOUR);
        assert_eq!((seen.percentile(50), seen.buckets().len()), (None, 0));
    }

    #[test]
    fn a_rare_peak_stays_one_when_buckets_are_joined() {
        let mut seen = Histogram::default();
        for value in 0..2000_u64 {
            seen.add(1000 + value % 500, 60_000);
        }
        seen.add(64_000, 60_000);
        assert!(seen.buckets().len() <= BUCKETS);
        assert!(seen.percentile(95).unwrap() < 1600, "{:?}", seen.percentile(95));
        assert!(seen.percentile(100).unwrap() >= 64_000);
    }

    #[test]
    fn buckets_are_joined_where_the_least_is_lost() {
        let mut seen = Histogram::default();
        for value in 0..19 {
            seen.add(value, 1000);
        }
        seen.add(1000, 1);
        seen.add(1_000_000, 2);
        // The bucket with the smallest weight would be moved up most.
        let kept: Vec<_> = seen.buckets().iter().map(|(bucket, _)| *bucket).collect();
        assert!(kept.contains(&bucket(1000)) && !kept.contains(&0), "{kept:?}");
    }

    proptest! {
        #[test]
        fn a_percentile_is_never_below_what_was_seen(
            values in proptest::collection::vec((any::<u64>(), 1..100_u64), 1..80), percent in 0..=100_u32,
        ) {
            let mut seen = Histogram::default();
            for (value, weight) in &values {
                seen.add(*value, *weight);
            }
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let total: u64 = sorted.iter().map(|(_, weight)| weight).sum();
            let mut below = 0;
            let exact = sorted.iter().find_map(|(value, weight)| {
                below += weight;
                (below * 100 >= total * u64::from(percent)).then_some(*value)
            });
            prop_assert!(seen.percentile(percent) >= exact);
            prop_assert!(seen.buckets().len() <= BUCKETS);
            prop_assert_eq!(seen.buckets().iter().map(|(_, weight)| weight).sum::<u64>(), total, "no weight is lost");
            prop_assert_eq!(Histogram::restore(seen.buckets().to_vec(), seen.since_usec()), Some(seen));
        }

        #[test]
        fn a_bucket_holds_its_values(value: u64) {
            let top = highest(bucket(value));
            prop_assert!(top >= value && top - value <= value / 16);
        }

        #[test]
        fn any_buckets_are_restored_without_panic(buckets: Vec<(u16, u64)>, since: u64) {
            if let Some(mut restored) = Histogram::restore(buckets, since) {
                restored.age(since, 1000);
                let _ = restored.percentile(50);
            }
        }
    }
}
