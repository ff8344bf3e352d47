//! Backoff: how long a policy that failed waits, and when it is parked.

use qosm_model::unit::Micros;

/// Failures in a row after which a policy is parked.
const PARK_AFTER: u32 = 5;
/// Evaluations without failure after which earlier failures are forgotten.
const FORGIVE_AFTER: u32 = 10;
/// Interval at which a parked policy is tried again: it may have failed because the node had no CPU time left.
const PARKED: Micros = Micros(600_000_000);
/// The longest wait before a failed policy is started again.
const MAX_WAIT_SECONDS: u64 = 60;

/// Failures and successes of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures_in_row: u32,
    successes_in_row: u32,
}

/// What happens to a policy that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// It is started again at this time of the monotonic clock.
    RetryAt(Micros),
    /// It failed too often, and is parked until this time of the monotonic clock.
    ParkedUntil(Micros),
}

impl Backoff {
    /// An evaluation went well.
    pub(crate) fn succeeded(&mut self) {
        self.successes_in_row = self.successes_in_row.saturating_add(1);
        if self.successes_in_row >= FORGIVE_AFTER {
            self.failures_in_row = 0;
        }
    }

    /// An evaluation failed at this moment.
    pub(crate) fn failed(&mut self, now: Micros) -> AfterFailure {
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.successes_in_row = 0;
        let after = |micros: u64| Micros(now.0.saturating_add(micros));
        if self.failures_in_row >= PARK_AFTER {
            return AfterFailure::ParkedUntil(after(PARKED.0));
        }
        let seconds = (1u64 << (self.failures_in_row - 1)).min(MAX_WAIT_SECONDS);
        AfterFailure::RetryAt(after(seconds * 1_000_000))
    }

    /// An operator asks for a retry: earlier failures no longer count.
    pub(crate) fn reset(&mut self) {
        self.failures_in_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(backoff: &mut Backoff, times: u32) -> Vec<u64> {
        let wait = |backoff: &mut Backoff| match backoff.failed(Micros(0)) {
            AfterFailure::RetryAt(at) | AfterFailure::ParkedUntil(at) => at.0 / 1_000_000,
        };
        (0..times).map(|_| wait(backoff)).collect()
    }

    #[test]
    fn each_failure_in_a_row_doubles_the_wait_and_the_fifth_parks() {
        let mut backoff = Backoff::default();
        assert_eq!(fail(&mut backoff, 4), [1, 2, 4, 8]);
        assert_eq!(backoff.failed(Micros(5)), AfterFailure::ParkedUntil(Micros(600_000_005)));
    }

    #[test]
    fn a_parked_policy_that_fails_again_stays_parked() {
        let mut backoff = Backoff::default();
        assert_eq!(fail(&mut backoff, 7)[4..], [600, 600, 600]);
    }

    #[test]
    fn ten_successes_in_a_row_forget_failures_and_nine_do_not() {
        for (successes, wait) in [(0, 8), (9, 8), (10, 1), (11, 1)] {
            let mut backoff = Backoff::default();
            fail(&mut backoff, 3);
            (0..successes).for_each(|_| backoff.succeeded());
            assert_eq!(fail(&mut backoff, 1), [wait], "after {successes}");
        }
    }

    #[test]
    fn successes_count_only_in_a_row() {
        let mut backoff = Backoff::default();
        fail(&mut backoff, 2);
        (0..9).for_each(|_| backoff.succeeded());
        fail(&mut backoff, 1);
        (0..9).for_each(|_| backoff.succeeded());
        assert_eq!(fail(&mut backoff, 1), [8]);
    }

    #[test]
    fn another_try_that_somebody_asked_for_begins_from_the_start() {
        let mut backoff = Backoff::default();
        fail(&mut backoff, 5);
        backoff.reset();
        assert_eq!(fail(&mut backoff, 2), [1, 2]);
    }

    #[test]
    fn a_clock_at_its_end_does_not_overflow() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.failed(Micros(u64::MAX)), AfterFailure::RetryAt(Micros(u64::MAX)));
    }
}
