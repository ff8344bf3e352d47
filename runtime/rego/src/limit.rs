//! How much one call of a built-in function may take and give. What all calls of an evaluation may take together is its
//! [`Budget`](crate::Budget).

/// Levels of arrays, objects and sets in a value that is read.
pub const DEPTH: usize = 256;

/// Bytes of text that one call may make.
pub const TEXT_BYTES: usize = 1 << 20;

/// Elements that one call may make: of an array, a set or an object, all levels together.
pub const ELEMENTS: usize = 65_536;

/// Digits of a number, and how far its exponent may be from zero.
pub const DIGITS: usize = 4_096;

/// Bytes of a text that a message quotes.
pub const MESSAGE_BYTES: usize = 1_024;

/// Lines that `print` and `trace` may write in one evaluation; those after them are counted, not kept.
pub const LOG_LINES: usize = 256;

/// Bytes of one such line; the rest of it is cut off.
pub const LOG_LINE_BYTES: usize = 4_096;

/// Bytes of a regular expression, and of a compiled one.
pub const PATTERN_BYTES: usize = 4_096;

/// Bytes that a compiled regular expression may take.
pub const COMPILED_BYTES: usize = 512 * 1024;

/// Bytes that the states of a compiled regular expression may take while a text is searched; those found first are given up.
pub const SEARCH_BYTES: usize = 1 << 20;

/// Regular expressions that are kept compiled.
pub const PATTERNS: usize = 64;
