//! Containers that wait for their first instruction, and how long they may wait.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Number of waits that may time out one after the other before containers no longer wait for the loop, which may be in a long step. A
/// loop that hangs delays this many containers by the budget, and the others not at all.
const MAX_OVERDUE: usize = 4;

/// Containers that are about to start, each by the stream of its request.
#[derive(Debug)]
pub(crate) struct Starts {
    budget: Duration,
    waiting: VecDeque<(u32, Instant)>,
    /// Streams that timed out and whose reply is still to come. Containers that did not wait are not included: otherwise a caller that has
    /// caught up would be skipped while containers keep starting.
    overdue: HashSet<u32>,
}

impl Starts {
    pub(crate) fn new(budget: Duration) -> Self {
        Self { budget, waiting: VecDeque::new(), overdue: HashSet::new() }
    }

    /// Adds a container that is about to start. Returns `false` if it is to be answered at once.
    pub(crate) fn begin(&mut self, stream: u32, now: Instant) -> bool {
        let waits = self.overdue.len() < MAX_OVERDUE;
        if waits {
            self.waiting.push_back((stream, now));
        }
        waits
    }

    /// Takes the caller's reply. Returns how long the container waited; `None` if it was answered before.
    pub(crate) fn done(&mut self, stream: u32, now: Instant) -> Option<Duration> {
        self.overdue.remove(&stream);
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == stream)?;
        let (_, since) = self.waiting.remove(place)?;
        Some(now.saturating_duration_since(since))
    }

    /// When the first wait times out; `None` if no container waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|(_, since)| *since + self.budget)
    }

    /// Takes a container whose wait has timed out.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<(u32, Duration)> {
        let (stream, since) = *self.waiting.front()?;
        let waited = now.saturating_duration_since(since);
        if waited < self.budget {
            return None;
        }
        self.waiting.pop_front();
        self.overdue.insert(stream);
        Some((stream, waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = ms(50);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_caller_has_the_budget_for_each_container() {
        let mut starts = Starts::new(BUDGET);
        let begun = Instant::now();
        assert!(starts.begin(1, begun));
        assert!(starts.begin(3, begun + ms(10)));
        assert_eq!(starts.done(1, begun + ms(12)), Some(ms(12)));
        assert_eq!(starts.due(), Some(begun + ms(60)));
        assert_eq!(starts.expire(begun + ms(59)), None);
        assert_eq!(starts.expire(begun + ms(60)), Some((3, ms(50))));
        assert!(starts.begin(5, begun + ms(61)), "a step may be long");
        assert_eq!(starts.done(3, begun + ms(80)), None, "answered before");
        assert_eq!(starts.done(5, begun + ms(81)), Some(ms(20)));
        assert_eq!(starts.due(), None);
    }

    #[test]
    fn a_caller_that_hangs_costs_some_containers_the_budget_and_the_others_nothing() {
        let mut starts = Starts::new(BUDGET);
        let mut now = Instant::now();
        let count = u32::try_from(MAX_OVERDUE).unwrap();
        for stream in 0..count {
            assert!(starts.begin(stream, now));
            now += BUDGET;
            assert_eq!(starts.expire(now), Some((stream, BUDGET)));
        }
        assert!(!starts.begin(count, now), "it hangs");
        assert_eq!(starts.due(), None);
        // The caller continues with the overdue ones: from here on containers wait again, though it has not handled those that did not.
        assert_eq!(starts.done(0, now), None);
        assert!(starts.begin(count + 1, now));
        assert_eq!(starts.done(count, now), None);
        assert_eq!(starts.done(count + 1, now + ms(2)), Some(ms(2)));
    }
}
