//! The cost of patterns.

use regex::RegexBuilder;

/// Maximum size of one compiled pattern in bytes. Matching takes time proportional to the size times the text's length.
pub(crate) const COMPILED_BYTES: usize = 64 << 10;

/// Approximate bytes of one state of a compiled pattern.
const STATE_BYTES: usize = 32;

/// Number of states that one step visits.
const STATES: u64 = 16;

/// An upper bound for the number of states of a compiled pattern, at most twice the real number. Each byte of a text may
/// visit each state.
pub(crate) fn states(pattern: &str) -> u64 {
    let mut bytes = 1 << 10;
    while bytes < COMPILED_BYTES && RegexBuilder::new(pattern).size_limit(bytes).build().is_err() {
        bytes *= 2;
    }
    u64::try_from(bytes / STATE_BYTES).unwrap_or(u64::MAX)
}

/// The steps of matching a text against a pattern with this many states.
pub(crate) fn steps(states: u64, text: &str) -> u64 {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    1 + states.saturating_mul(bytes) / STATES
}
