//! Limits of one call of a built-in function. The limit of all calls of an evaluation together is its [`Budget`](crate::Budget).

/// Maximum nesting of arrays, objects and sets in a parsed value.
pub const DEPTH: usize = 256;

/// Maximum bytes of text that one call may create.
pub const TEXT_BYTES: usize = 1 << 20;

/// Maximum number of elements of arrays, sets and objects that one call may create, all levels together.
pub const ELEMENTS: usize = 65_536;

/// Maximum number of digits of a number, and maximum absolute value of its exponent.
pub const DIGITS: usize = 4_096;

/// Maximum bytes of a text that a message quotes.
pub const MESSAGE_BYTES: usize = 1_024;

/// Maximum number of lines that `print` and `trace` write in one evaluation; further lines are only counted.
pub const LOG_LINES: usize = 256;

/// Maximum bytes of one such line; the rest is cut off.
pub const LOG_LINE_BYTES: usize = 4_096;

/// Maximum bytes of a regular expression's text.
pub const PATTERN_BYTES: usize = 4_096;

/// Maximum bytes of a compiled regular expression.
pub const COMPILED_BYTES: usize = 512 * 1024;

/// Maximum bytes of a regular expression's cached states during a search; older states are discarded.
pub const SEARCH_BYTES: usize = 1 << 20;

/// Maximum number of compiled regular expressions that are kept.
pub const PATTERNS: usize = 64;
