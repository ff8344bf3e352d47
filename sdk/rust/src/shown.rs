//! Other people's texts in messages.

/// Maximum length in bytes.
const LIMIT: usize = 100;

/// A text that somebody else wrote, such as the value of a field, for a message: what is beyond 100 bytes is cut off, since the text may be
/// of any length.
///
/// ```
/// assert_eq!(qosm_sdk::shown("5000"), "5000");
/// assert_eq!(qosm_sdk::shown("x".repeat(101)), format!("{}…", "x".repeat(100)));
/// ```
#[must_use]
pub fn shown(text: impl Into<String>) -> String {
    let mut text = text.into();
    if text.len() > LIMIT {
        text = cut(text, LIMIT);
        text.push('…');
    }
    text
}

/// The text without what is beyond this number of bytes, and without a part of a letter.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}
