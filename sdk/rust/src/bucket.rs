//! Tokens that come with time.

const SECOND_USEC: u64 = 1_000_000;

/// A token bucket that is filled by windows: so many tokens a second up to a capacity, to be taken for whatever must not happen too
/// often. Parts of a token are carried over from window to window, so that short windows lose nothing.
///
/// ```
/// use qosm_sdk::TokenBucket;
///
/// // Three events at once, and one each ten seconds in the long run.
/// let mut events = TokenBucket::full(3).refilled(1, 10_000_000);
/// assert_eq!([(); 4].map(|()| events.take(1)), [true, true, true, false]);
/// events.add(9_999_999);
/// assert!(!events.take(1));
/// events.add(1);
/// assert!(events.take(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    tokens: u64,
    refill: u64,
    each_usec: u64,
    /// Of a token, in parts of `each_usec`.
    carried: u64,
}

impl TokenBucket {
    /// A full bucket, into which nothing comes yet.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::TokenBucket::full(5).tokens(), 5);
    /// ```
    pub fn full(capacity: u64) -> Self {
        Self { capacity, tokens: capacity, refill: 0, each_usec: SECOND_USEC, carried: 0 }
    }

    /// An empty one.
    ///
    /// ```
    /// assert!(!qosm_sdk::TokenBucket::empty(5).take(1));
    /// ```
    pub fn empty(capacity: u64) -> Self {
        Self { tokens: 0, ..Self::full(capacity) }
    }

    /// How many tokens come in how much time; in no time: none.
    ///
    /// ```
    /// let mut bucket = qosm_sdk::TokenBucket::empty(100).refilled(30, 1_000_000);
    /// bucket.add(2_000_000);
    /// assert_eq!(bucket.tokens(), 60);
    /// ```
    #[must_use]
    pub fn refilled(mut self, tokens: u64, each_usec: u64) -> Self {
        (self.refill, self.each_usec, self.carried) = (tokens, each_usec, 0);
        self
    }

    /// Lets a window pass. What does not fit in flows over.
    ///
    /// ```
    /// let mut bucket = qosm_sdk::TokenBucket::empty(5).refilled(1, 1_000_000);
    /// bucket.add(3_600_000_000);
    /// assert_eq!(bucket.tokens(), 5);
    /// ```
    pub fn add(&mut self, window_usec: u64) {
        let parts = u128::from(window_usec) * u128::from(self.refill) + u128::from(self.carried);
        let each = u128::from(self.each_usec);
        let come =
            parts.checked_div(each).and_then(|tokens| u64::try_from(tokens).ok()).unwrap_or(match self.each_usec {
                0 => 0,
                _ => u64::MAX,
            });
        self.tokens = self.tokens.saturating_add(come).min(self.capacity);
        // A full bucket keeps no part of a token either.
        let rest = parts.checked_rem(each).and_then(|rest| u64::try_from(rest).ok()).unwrap_or(0);
        self.carried = if self.tokens == self.capacity { 0 } else { rest };
    }

    /// Takes so many tokens, if they are there; else none.
    ///
    /// ```
    /// let mut bucket = qosm_sdk::TokenBucket::full(5);
    /// assert!(!bucket.take(6));
    /// assert!(bucket.take(5));
    /// assert_eq!(bucket.tokens(), 0);
    /// ```
    pub fn take(&mut self, tokens: u64) -> bool {
        let left = self.tokens.checked_sub(tokens);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }

    /// Whole tokens in it.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::TokenBucket::empty(5).tokens(), 0);
    /// ```
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_comes_where_nothing_is_said_to_come() {
        for mut bucket in
            [TokenBucket::empty(9), TokenBucket::empty(9).refilled(4, 0), TokenBucket::empty(9).refilled(0, 7)]
        {
            bucket.add(u64::MAX);
            assert_eq!(bucket.tokens(), 0, "{bucket:?}");
        }
    }

    proptest! {
        #[test]
        fn windows_may_be_told_in_parts(
            capacity: u64, refill: u32, each in 1..u64::from(u32::MAX), parts in proptest::collection::vec(any::<u32>(), 0..20),
        ) {
            let [mut whole, mut parted] = [TokenBucket::empty(capacity).refilled(refill.into(), each); 2];
            whole.add(parts.iter().map(|part| u64::from(*part)).sum());
            for part in parts {
                parted.add(part.into());
            }
            prop_assert_eq!(whole, parted);
        }

        #[test]
        fn no_more_is_taken_than_came(
            capacity: u32, refill: u32, each in 1..10_000_000_u64, steps in proptest::collection::vec((any::<u32>(), any::<u32>()), 0..40),
        ) {
            let mut bucket = TokenBucket::full(capacity.into()).refilled(refill.into(), each);
            let (mut time, mut taken) = (0_u128, 0_u128);
            for (window, wanted) in steps {
                bucket.add(window.into());
                time += u128::from(window);
                taken += if bucket.take(wanted.into()) { u128::from(wanted) } else { 0 };
                prop_assert!(bucket.tokens() <= u64::from(capacity));
                prop_assert!(taken <= u128::from(capacity) + time * u128::from(refill) / u128::from(each));
            }
        }
    }
}
