//! Budget of the built-in functions of one evaluation, for all calls together.
//!
//! These functions are native code, which the engine's deadline cannot interrupt. Each function charges the bytes that it
//! holds and its work before it does it. Both are counted, so that an evaluation has the same result on every machine;
//! the thread's CPU time is checked in addition, for machines on which a unit of work takes longer.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::builtin::Fault;

/// Limits of the built-in functions of one evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes of the calls' arguments and results. They are not returned when a call ends.
    pub weight: usize,
    /// Units of work of about a nanosecond each.
    pub work: u64,
    /// The CPU time of the thread ([`cpu_time`]) at which the evaluation ends, regardless of the counted work.
    pub until: Option<Duration>,
}

impl Budget {
    /// Budget of an evaluation with these limits of memory in bytes and CPU time. The budget is smaller than the limits:
    /// calls between the module and its host are not counted, and a machine rarely runs at full speed.
    pub fn of(memory: u64, time: Duration) -> Self {
        Self {
            weight: usize::try_from(memory / 4 * 3).unwrap_or(usize::MAX),
            work: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) / 5 * 3,
            until: None,
        }
    }
}

impl Default for Budget {
    /// The budget for 32 MiB and 50 ms.
    fn default() -> Self {
        Self::of(32 << 20, Duration::from_millis(50))
    }
}

/// The resource that an evaluation has used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Spent {
    /// The memory of [`Budget::weight`].
    #[error("memory")]
    Weight,
    /// The work of [`Budget::work`], or the CPU time.
    #[error("CPU time")]
    Work,
}

/// The thread's CPU time, which does not advance while the thread waits for a CPU.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Units of work between two reads of the clock.
const CLOCK_INTERVAL: u64 = 500_000;

/// The rest of a budget.
#[derive(Debug)]
pub(crate) struct Meter {
    weight: Cell<usize>,
    work: Cell<u64>,
    /// The value of `work` at which the clock is read next.
    next_clock_read: Cell<u64>,
    until: Option<Duration>,
    spent: Cell<Option<Spent>>,
}

impl Meter {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            weight: Cell::new(budget.weight),
            work: Cell::new(budget.work),
            next_clock_read: Cell::new(budget.work.saturating_sub(CLOCK_INTERVAL)),
            until: budget.until,
            spent: Cell::new(None),
        }
    }

    pub(crate) fn spent(&self) -> Option<Spent> {
        self.spent.get()
    }

    pub(crate) fn weight_left(&self) -> usize {
        self.weight.get()
    }

    pub(crate) fn work_left(&self) -> u64 {
        self.work.get()
    }

    pub(crate) fn charge(&self, bytes: usize) -> Result<(), Fault> {
        match self.weight.get().checked_sub(bytes) {
            Some(left) => {
                self.weight.set(left);
                Ok(())
            }
            None => Err(self.end(Spent::Weight)),
        }
    }

    pub(crate) fn work(&self, units: u64) -> Result<(), Fault> {
        let Some(left) = self.work.get().checked_sub(units) else { return Err(self.end(Spent::Work)) };
        self.work.set(left);
        if left < self.next_clock_read.get() {
            self.next_clock_read.set(left.saturating_sub(CLOCK_INTERVAL));
            if self.until.is_some_and(|until| cpu_time() >= until) {
                return Err(self.end(Spent::Work));
            }
        }
        Ok(())
    }

    /// Sets the rest of the budget to 0, so that an evaluation that ignores the fault gets no further.
    fn end(&self, spent: Spent) -> Fault {
        self.weight.set(0);
        self.work.set(0);
        self.spent.set(self.spent.get().or(Some(spent)));
        Fault::from("it takes more than an evaluation may use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_spent_stays_spent() {
        let meter = Meter::new(Budget { weight: 10, work: 10, until: None });
        assert_eq!((meter.charge(10), meter.work(10), meter.spent()), (Ok(()), Ok(()), None));
        assert!(meter.charge(1).is_err());
        assert!(meter.work(1).is_err());
        assert_eq!(meter.spent(), Some(Spent::Weight), "the first exhausted budget counts");
    }

    #[test]
    fn the_clock_ends_an_evaluation_whose_work_takes_longer_than_it_should() {
        let meter = Meter::new(Budget { weight: 0, work: CLOCK_INTERVAL * 4, until: Some(Duration::ZERO) });
        let worked = (0..4).take_while(|_| meter.work(CLOCK_INTERVAL).is_ok()).count();
        assert!(worked < 3, "{worked}");
        assert_eq!(meter.spent(), Some(Spent::Work));
    }
}
