//! Ratios that stand: what is compared runs in turns, so that whatever else the machine does hits all of it alike, and the ratio
//! is taken turn by turn. CPU time of this thread counts, the kernel's part included: nothing here waits for anything, and what
//! other processes take in between is not ours.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::figures::Figure;

/// Most turns; fewer where the time runs out.
const TURNS: usize = 400;
const MIN_TURNS: usize = 40;
const TIME: Duration = Duration::from_secs(3);

/// CPU time that each runner took at each turn, in seconds.
pub struct Turns<const N: usize>(Vec<[f64; N]>);

/// Runs all of them again and again, forwards and then backwards: the second finds the kernel's data in the caches that
/// the first has filled, so each comes second as often as the other. A turn's time is the mean of both. Each gets the number of
/// times it ran before.
///
/// # Errors
///
/// The first that a runner returns.
pub fn run<const N: usize>(runners: &mut [&mut dyn FnMut(usize) -> anyhow::Result<()>; N]) -> anyhow::Result<Turns<N>> {
    let begun = Instant::now();
    let (most, least) = (crate::length(TURNS, 2), crate::length(MIN_TURNS, 2));
    let mut turns = Vec::with_capacity(most);
    while turns.len() < most && (turns.len() < least || begun.elapsed() < TIME) {
        let mut turn = [0.0; N];
        for (pass, place) in (0..N).map(|place| (0, place)).chain((0..N).rev().map(|place| (1, place))) {
            let start = cpu_time();
            runners[place](turns.len() * 2 + pass)?;
            turn[place] += cpu_time().saturating_sub(start).as_secs_f64() / 2.0;
        }
        turns.push(turn);
    }
    Ok(Turns(turns))
}

impl<const N: usize> Turns<N> {
    /// A figure computed from each turn.
    pub fn figure(&self, compute: impl Fn(&[f64; N]) -> f64) -> Figure {
        Figure::of(self.0.iter().map(compute).collect())
    }
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
