//! Runs test programs two at a time: most of them spend half of their time waiting for programs that they start. Each program's output is
//! printed as a whole when it ends.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use anyhow::{Result, anyhow};

use super::Tally;
use crate::interrupt::Interrupt;

/// Number of programs that run at a time.
pub(super) const AT_ONCE: usize = 2;

/// Takes the lines of a program's output.
pub(super) type Lines<'a> = &'a mut dyn FnMut(&str);

/// Runs a program, and counts its tests.
pub(super) type Job<'a> = Box<dyn FnOnce(&mut Tally, Lines<'_>) -> Result<()> + Send + 'a>;

/// Prints each line immediately.
pub(super) fn print(line: &str) {
    println!("{line}");
}

/// Runs all jobs, even if some fail, unless this process is asked to end. They begin in their order.
///
/// # Errors
///
/// One of the errors of the jobs.
pub(super) fn run(jobs: Vec<Job<'_>>, at_once: usize, interrupt: &Interrupt, tally: &mut Tally) -> Result<()> {
    let jobs = Mutex::new(VecDeque::from(jobs));
    let next = || jobs.lock().ok()?.pop_front().filter(|_| !interrupt.asked());
    let work = || {
        let (mut counts, mut result) = (Tally::default(), Ok(()));
        while let Some(job) = next() {
            let mut output = String::new();
            let ended = job(&mut counts, &mut |line| {
                output.push_str(line);
                output.push('\n');
            });
            print!("{output}");
            result = result.and(ended);
        }
        (counts, result)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut result = Ok(());
        for worker in workers {
            let (counts, ended) = worker.join().map_err(|_| anyhow!("a thread that ran test programs panicked"))?;
            tally.add(counts);
            result = result.and(ended);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn passes(tally: &mut Tally) {
        tally.passed += 1;
    }

    #[test]
    fn two_run_at_a_time_and_all_are_counted() {
        let both = Barrier::new(2);
        let job = || -> Job<'_> {
            Box::new(|tally, _| {
                both.wait();
                passes(tally);
                Ok(())
            })
        };
        let mut tally = Tally::default();
        run(vec![job(), job(), job(), job()], 2, &Interrupt::default(), &mut tally).unwrap();
        assert_eq!(tally.passed, 4);
    }

    #[test]
    fn one_that_cannot_be_run_does_not_keep_the_others_from_running() {
        let good = || -> Job<'_> {
            Box::new(|tally, lines| {
                lines("test one ... ok");
                passes(tally);
                Ok(())
            })
        };
        let bad: Job<'_> = Box::new(|_, _| Err(anyhow!("there is no such program")));
        let mut tally = Tally::default();
        let error = run(vec![good(), bad, good()], 1, &Interrupt::default(), &mut tally).unwrap_err();
        assert_eq!((error.to_string().as_str(), tally.passed), ("there is no such program", 2));
    }
}
