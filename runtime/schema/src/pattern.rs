//! Patterns: how dear they are.

use regex::RegexBuilder;

/// What one pattern may be compiled to, in bytes. Matching takes time in proportion to this times the text.
pub(crate) const COMPILED_BYTES: usize = 64 << 10;

/// Bytes that one state of a compiled pattern takes, about.
const STATE_BYTES: usize = 32;

/// States that are visited in one step.
const STATES: u64 = 16;

/// The states of a compiled pattern: an upper bound, within a factor of two. Each byte of a text may visit each state.
pub(crate) fn states(pattern: &str) -> u64 {
    let mut bytes = 1 << 10;
    while bytes < COMPILED_BYTES && RegexBuilder::new(pattern).size_limit(bytes).build().is_err() {
        bytes *= 2;
    }
    u64::try_from(bytes / STATE_BYTES).unwrap_or(u64::MAX)
}

/// The steps of searching a text for a pattern with this many states.
pub(crate) fn steps(states: u64, text: &str) -> u64 {
    let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    1 + states.saturating_mul(bytes) / STATES
}
