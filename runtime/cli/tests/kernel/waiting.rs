//! Waits for events outside the test, on a real kernel or in a real cluster.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{PATIENCE, PAUSE};

/// Polls until `look` returns a value.
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

/// Reports a wait that took more than a third of its timeout, bypassing libtest, which hides the output of passing tests: the run
/// lists such waits at its end, before one of them takes too long.
pub(crate) fn tell_if_slow(what: &str, took: Duration) {
    if took > PATIENCE / 3 {
        // A failed report does not fail the test.
        let _ = writeln!(std::io::stdout(), "slow: {} s of {} for: {what}", took.as_secs(), PATIENCE.as_secs());
    }
}

/// Polls until `look` returns `true`.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    wait_for(what, || look().then_some(()));
}
