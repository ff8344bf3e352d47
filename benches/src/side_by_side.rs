//! Fair ratios: what is compared runs in turns, so that other load on the machine affects all runners alike, and the ratio is computed for
//! each turn. The CPU time of this thread is measured, in user and kernel mode: the runners never wait, and the time of other processes
//! does not count.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::figures::Figure;

/// Maximum number of turns; fewer if the time runs out.
const TURNS: usize = 400;
const MIN_TURNS: usize = 40;
const TIME: Duration = Duration::from_secs(3);

/// CPU time of each runner in each turn, in seconds.
pub struct Turns<const N: usize>(Vec<[f64; N]>);

/// Runs all runners repeatedly, forwards and then backwards: the second runner finds the kernel's data in the caches that the first has
/// filled, so each comes second equally often. The time of a turn is the mean of both. Each runner gets the number of its earlier runs.
///
/// # Errors
///
/// The first error of a runner.
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
    /// A figure that is computed from each turn.
    pub fn figure(&self, compute: impl Fn(&[f64; N]) -> f64) -> Figure {
        Figure::of(self.0.iter().map(compute).collect())
    }
}

/// CPU time of this thread so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
