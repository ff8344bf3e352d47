//! The token bucket that bounds how long a container may stay above its limit. Tokens are percent-seconds of the limit.

use qosm_sdk::{MilliCpu, Rate};

/// Use of the limit in percent from which tokens are spent.
const SPENDS_PERCENT: u64 = 100;
/// Use of the limit in percent below which tokens are earned; in between they stay.
const EARNS_PERCENT: u64 = 60;
/// A bucket starts with its capacity divided by this: the middle of the range from which the specification draws at random.
const START_DIVISOR: i64 = 4;
/// Number of periods without settling after which a bucket starts again.
const FORGOTTEN_AFTER_PERIODS: u64 = 2;

const USEC: u64 = 1_000_000;

/// Length and size of a bucket, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// `cfsQuotaBurstPeriodSeconds`, 0 or more.
    pub(crate) period_secs: u64,
    /// `cfsQuotaBurstPercent`, 100 or more.
    pub(crate) percent: u64,
}

impl Terms {
    /// Maximum number of tokens that can be saved up or owed.
    pub(crate) fn capacity(self) -> i64 {
        i64::try_from(self.period_secs.saturating_mul(self.percent.saturating_sub(100))).unwrap_or(i64::MAX)
    }
}

/// The tokens of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// From `-capacity` to `capacity`.
    pub(crate) tokens: i64,
    /// The capacity that the bucket was created for.
    pub(crate) capacity: i64,
    /// Time when tokens were last settled. It advances by whole seconds, so that fractions of a second are carried over.
    pub(crate) settled_usec: u64,
}

impl Bucket {
    /// A new bucket at the time `now_usec`.
    pub(crate) fn new(terms: Terms, now_usec: u64) -> Self {
        let capacity = terms.capacity();
        Self { tokens: capacity / START_DIVISOR, capacity, settled_usec: now_usec }
    }

    /// Whether the bucket has to be replaced, since its terms changed or it was not settled for too long.
    pub(crate) fn is_stale(&self, terms: Terms, now_usec: u64) -> bool {
        let forgotten = terms.period_secs.saturating_mul(FORGOTTEN_AFTER_PERIODS).saturating_mul(USEC);
        self.capacity != terms.capacity() || now_usec.saturating_sub(self.settled_usec) > forgotten.max(USEC)
    }

    /// Spends or earns tokens for the time since the last settling, at a use of `usage_percent` of the limit. If the use is `None`
    /// (unknown), tokens stay, and the time is not made up for later.
    pub(crate) fn settle(&mut self, usage_percent: Option<u64>, now_usec: u64) {
        let secs = now_usec.saturating_sub(self.settled_usec) / USEC;
        self.settled_usec = self.settled_usec.saturating_add(secs.saturating_mul(USEC));
        let Some(usage) = usage_percent else { return };
        let secs = i64::try_from(secs).unwrap_or(i64::MAX);
        let percent = |percent: u64| i64::try_from(percent).unwrap_or(i64::MAX);
        let change = if usage >= SPENDS_PERCENT {
            percent(usage - SPENDS_PERCENT).saturating_mul(secs).saturating_neg()
        } else if usage < EARNS_PERCENT {
            percent(SPENDS_PERCENT - usage).saturating_mul(secs)
        } else {
            0
        };
        self.tokens = self.tokens.saturating_add(change).clamp(-self.capacity, self.capacity);
    }

    /// Whether the container may be above its limit.
    pub(crate) fn allows(&self) -> bool {
        self.tokens > 0
    }
}

/// Use of the limit in whole percent; `None` for an empty window or no limit.
pub(crate) fn usage_percent(usage_usec: u64, window_usec: u64, limit_milli: u64) -> Option<u64> {
    let used = Rate::of(usage_usec, window_usec).filter(|_| limit_milli > 0)?;
    Some(used.percent_of(MilliCpu(limit_milli)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tokens_move_as_specified() {
        for (start, period_secs, percent, secs, usage, after, allowed) in [
            (5000, 100, 150, 10, 150, 4500, true),
            (50, 100, 150, 10, 200, -950, false),
            (5, 10, 150, 10, 200, -500, false),
            (500, 100, 150, 10, 40, 1100, true),
            (4500, 100, 150, 10, 40, 5000, true),
            (70, 100, 150, 10, 60, 70, true),
            (70, 100, 150, 10, 99, 70, true),
            (70, 100, 150, 10, 100, 70, true),
            (0, 100, 150, 10, 80, 0, false),
        ] {
            let mut bucket = Bucket { tokens: start, ..Bucket::new(Terms { period_secs, percent }, 0) };
            bucket.settle(Some(usage), secs * USEC);
            assert_eq!((bucket.tokens, bucket.allows()), (after, allowed), "{start} tokens, {usage} % for {secs} s");
        }
    }

    #[test]
    fn nothing_is_ever_allowed_without_capacity() {
        for terms in [Terms { period_secs: 0, percent: 300 }, Terms { period_secs: 60, percent: 100 }] {
            let mut bucket = Bucket::new(terms, 0);
            assert!(!bucket.allows());
            bucket.settle(Some(0), 100 * USEC);
            assert!(!bucket.allows());
        }
    }

    #[test]
    fn fractions_of_a_second_are_carried_over() {
        let mut bucket = Bucket { tokens: 1000, ..Bucket::new(Terms { period_secs: 100, percent: 300 }, 0) };
        for step in 1..=10 {
            bucket.settle(Some(200), step * 999_900);
        }
        assert_eq!(bucket.tokens, 1000 - 9 * 100);
    }

    #[test]
    fn unknown_use_moves_nothing() {
        let mut bucket = Bucket { tokens: 1000, ..Bucket::new(Terms { period_secs: 100, percent: 300 }, 0) };
        bucket.settle(None, 50 * USEC);
        bucket.settle(Some(200), 51 * USEC);
        assert_eq!(bucket.tokens, 900);
    }

    #[test]
    fn a_bucket_starts_anew_when_its_terms_change_or_it_was_not_settled_for_long() {
        let terms = Terms { period_secs: 100, percent: 150 };
        let bucket = Bucket::new(terms, 0);
        assert!(!bucket.is_stale(terms, 200 * USEC));
        assert!(bucket.is_stale(terms, 200 * USEC + 1));
        assert!(bucket.is_stale(Terms { period_secs: 101, ..terms }, 0));
    }

    #[test]
    fn use_is_truncated_to_whole_percent() {
        for (usage, window, limit, percent) in [
            (1_500_000, 1_000_000, 1_000, Some(150)),
            (1_999_999, 1_000_000, 1_000, Some(199)),
            (500_000, 1_000_000, 2_000, Some(25)),
            (1, 0, 1_000, None),
            (1, 1_000_000, 0, None),
        ] {
            assert_eq!(usage_percent(usage, window, limit), percent);
        }
    }

    proptest! {
        #[test]
        fn tokens_stay_within_the_capacity(
            period_secs: u64, percent in 100_u64.., steps in proptest::collection::vec((any::<Option<u64>>(), any::<u64>()), 0..20),
        ) {
            let mut bucket = Bucket::new(Terms { period_secs, percent }, 0);
            for (usage, now) in steps {
                bucket.settle(usage, now);
                prop_assert!(bucket.tokens >= -bucket.capacity && bucket.tokens <= bucket.capacity);
            }
        }
    }
}
