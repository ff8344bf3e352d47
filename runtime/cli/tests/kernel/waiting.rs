//! Waiting for what happens beside the test, on a real kernel or in a real cluster.

use std::thread::sleep;
use std::time::Instant;

use crate::{PATIENCE, PAUSE};

/// Looks again and again until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
        sleep(PAUSE);
    }
}

/// Looks again and again until it is so.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    wait_for(what, || look().then_some(()));
}
