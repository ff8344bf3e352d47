//! An exponentially weighted moving average in integers.

/// 1 in fixed point, with 32 fractional bits.
const ONE: u64 = 1 << 32;

/// 2 to the power of -1/2, -1/4, -1/8, …, in fixed point: the weight that a level keeps after that fraction of a half-life.
const ROOTS: [u64; 20] = [
    3_037_000_500,
    3_611_622_603,
    3_938_502_376,
    4_112_874_773,
    4_202_935_003,
    4_248_701_965,
    4_271_771_996,
    4_283_353_945,
    4_289_156_690,
    4_292_061_010,
    4_293_513_907,
    4_294_240_540,
    4_294_603_903,
    4_294_785_595,
    4_294_876_445,
    4_294_921_870,
    4_294_944_583,
    4_294_955_939,
    4_294_961_618,
    4_294_964_457,
];

/// An exponentially weighted moving average over time: each sample is weighted by the length of its window, and the weight halves with
/// every half-life. The result is the same whether a second is measured in one window or in ten, and evaluations between two intervals,
/// which alarms cause, do not distort it.
///
/// It uses integers with 32 fractional bits, so the result is the same on every machine and always lies within the range of the samples.
///
/// ```
/// use qosm_sdk::Ewma;
///
/// let mut used_milli = Ewma::with_half_life(10_000_000);
/// assert_eq!(used_milli.level(), None);
/// assert_eq!(used_milli.add(1000, 1_000_000), 1000, "the first sample is all there is");
/// assert_eq!(used_milli.add(0, 10_000_000), 500, "a half-life later half of it is left");
/// assert_eq!(used_milli.add(0, 10_000_000), 250);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ewma {
    half_life_usec: u64,
    /// In fixed point; `None` before the first sample.
    level: Option<u128>,
}

impl Ewma {
    /// An average without samples. With a half-life of 0, the latest sample is the average.
    ///
    /// ```
    /// let mut latest = qosm_sdk::Ewma::with_half_life(0);
    /// assert_eq!([7, 9].map(|sample| latest.add(sample, 1_000_000)), [7, 9]);
    /// ```
    pub fn with_half_life(half_life_usec: u64) -> Self {
        Self { half_life_usec, level: None }
    }

    /// Adds the sample of the window that ends now, and returns the average. A window of length 0 adds nothing, except for the first
    /// sample.
    ///
    /// ```
    /// let mut average = qosm_sdk::Ewma::with_half_life(1_000_000);
    /// average.add(100, 1_000_000);
    /// assert_eq!(average.add(900, 0), 100);
    /// assert_eq!(average.add(900, 1_000_000), 500);
    /// ```
    pub fn add(&mut self, sample: u64, window_usec: u64) -> u64 {
        let target = u128::from(sample) << 32;
        let left = u128::from(left_after(window_usec, self.half_life_usec));
        // Rounds towards the sample, so that the level reaches it and never overshoots. 96 bits times 32 bits fit into 128.
        let level = match self.level {
            None => target,
            Some(level) if level > target => target + (((level - target) * left) >> 32),
            Some(level) => target - (((target - level) * left) >> 32),
        };
        self.level = Some(level);
        rounded(level)
    }

    /// The average; `None` before the first sample.
    ///
    /// ```
    /// let mut average = qosm_sdk::Ewma::with_half_life(1_000_000);
    /// average.add(42, 1_000_000);
    /// assert_eq!(average.level(), Some(42));
    /// ```
    pub fn level(&self) -> Option<u64> {
        self.level.map(rounded)
    }
}

/// Converts from fixed point, rounding to the nearest integer.
fn rounded(level: u128) -> u64 {
    u64::try_from((level + u128::from(ONE / 2)) >> 32).unwrap_or(u64::MAX)
}

/// Weight that a level keeps after a window, in fixed point.
fn left_after(window_usec: u64, half_life_usec: u64) -> u64 {
    let (Some(halves), Some(rest)) = (window_usec.checked_div(half_life_usec), window_usec.checked_rem(half_life_usec))
    else {
        return 0;
    };
    let mut left = u32::try_from(halves).ok().and_then(|halves| ONE.checked_shr(halves)).unwrap_or(0);
    // The rest as a binary fraction of the half-life, most significant bit first.
    let mut rest = u128::from(rest);
    for root in ROOTS {
        rest *= 2;
        if rest >= u128::from(half_life_usec) {
            rest -= u128::from(half_life_usec);
            left = (left * root) >> 32;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_root_squared_is_the_one_before() {
        let befores = std::iter::once(ONE / 2).chain(ROOTS);
        for (before, root) in befores.zip(ROOTS) {
            let squared = (u128::from(root) * u128::from(root)) >> 32;
            assert!(squared.abs_diff(before.into()) <= 2, "{root} squared is {squared}, not {before}");
        }
    }

    #[test]
    fn ages_weigh_as_they_should() {
        for (window, half_life, left) in [
            (0, 10, ONE),
            (10, 10, ONE / 2),
            (20, 10, ONE / 4),
            (320, 10, 1),
            (u64::MAX, 10, 0),
            (5, 0, 0),
            (5_000_000, 10_000_000, 3_037_000_500),
        ] {
            assert_eq!(left_after(window, half_life), left, "{window} of {half_life}");
        }
    }

    proptest! {
        #[test]
        fn it_stays_among_its_samples(half_life: u64, samples in proptest::collection::vec(any::<(u64, u64)>(), 1..20)) {
            let mut average = Ewma::with_half_life(half_life);
            let (mut least, mut most) = (u64::MAX, 0);
            for (sample, window) in samples {
                (least, most) = (least.min(sample), most.max(sample));
                let level = average.add(sample, window);
                prop_assert!((least..=most).contains(&level), "{level} of {least}..={most}");
            }
        }

        #[test]
        fn a_window_may_be_told_in_parts(
            half_life in 1_000..100_000_000_u64, start in 0..1_000_000_u64, sample in 0..1_000_000_u64,
            parts in proptest::collection::vec(0..10_000_000_u64, 1..10),
        ) {
            let [mut whole, mut parted] = [Ewma::with_half_life(half_life); 2];
            whole.add(start, 1);
            parted.add(start, 1);
            whole.add(sample, parts.iter().sum());
            for part in &parts {
                parted.add(sample, *part);
            }
            let [whole, parted] = [whole, parted].map(|average| average.level().unwrap());
            // Each part's weight is off by at most 20 roundings of 2^-32 and 2^-20 of a half-life.
            prop_assert!(whole.abs_diff(parted) <= 1 + parts.len() as u64, "{whole} {parted}");
        }

        #[test]
        fn it_arrives(half_life in 1..1_000_000_u64, start: u32, sample: u32) {
            let mut average = Ewma::with_half_life(half_life);
            average.add(start.into(), 1);
            for _ in 0..40 {
                average.add(sample.into(), half_life);
            }
            prop_assert_eq!(average.level(), Some(sample.into()));
        }
    }
}
