//! Waiting for what happens beside the test, on a real kernel or in a real cluster.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{PATIENCE, PAUSE};

/// Polls until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            tell_if_slow(what, begun.elapsed());
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        sleep(PAUSE);
    }
}

/// Tells of a wait that took more than a third of what it may take, past libtest, which keeps what a passing test prints: the run lists
/// such waits at its end, before one of them is too long.
pub(crate) fn tell_if_slow(what: &str, took: Duration) {
    if took > PATIENCE / 3 {
        // A test that cannot tell has still waited.
        let _ = writeln!(std::io::stdout(), "slow: {} s of {} for: {what}", took.as_secs(), PATIENCE.as_secs());
    }
}

/// Polls until it is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    wait_for(what, || look().then_some(()));
}
