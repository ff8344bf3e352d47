//! Quoting of strings and printing of values as in Go.

use std::fmt::{self, Write};

use unicode_general_category::{GeneralCategory as Category, get_general_category};

use crate::{Value, limit};

/// A string in double quotes, as by strconv.Quote; with `ascii`, everything beyond ASCII is escaped.
pub(crate) fn quoted(text: &str, ascii: bool) -> String {
    let mut quoted = String::new();
    quoted.push('"');
    for c in text.chars() {
        escape(c, '"', ascii, &mut quoted);
        // The caller refuses a text that is longer than a call may write.
        if quoted.len() > limit::TEXT_BYTES {
            break;
        }
    }
    quoted.push('"');
    quoted
}

/// A character in single quotes, as by strconv.QuoteRune.
pub(crate) fn quoted_char(c: char, ascii: bool) -> String {
    let mut quoted = String::from("'");
    escape(c, '\'', ascii, &mut quoted);
    quoted.push('\'');
    quoted
}

/// Whether a string can be written in back quotes.
pub(crate) fn can_backquote(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || (c >= ' ' && c != '`' && c != '\u{7f}' && c != '\u{feff}'))
}

/// Whether Go prints a character without an escape.
pub(crate) fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        _ => !matches!(
            get_general_category(c),
            Category::Control
                | Category::Format
                | Category::Surrogate
                | Category::PrivateUse
                | Category::Unassigned
                | Category::SpaceSeparator
                | Category::LineSeparator
                | Category::ParagraphSeparator
        ),
    }
}

/// Displays a value as OPA prints it: like [`Value`]'s `Display`, with Go's quoting.
pub(crate) struct Shown<'a>(pub(crate) &'a Value);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::String(text) => f.write_str(&quoted(text, false)),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.0.fmt(f),
            Value::Array(elements) => {
                f.write_char('[')?;
                separated(elements, f)?;
                f.write_char(']')
            }
            Value::Set(elements) if elements.is_empty() => f.write_str("set()"),
            Value::Set(elements) => {
                f.write_char('{')?;
                separated(elements, f)?;
                f.write_char('}')
            }
            Value::Object(pairs) => {
                f.write_char('{')?;
                for (index, (key, value)) in pairs.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{}: {}", Shown(key), Shown(value))?;
                }
                f.write_char('}')
            }
        }
    }
}

fn separated<'a>(elements: impl IntoIterator<Item = &'a Value>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (index, element) in elements.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}{}", Shown(element))?;
    }
    Ok(())
}

fn escape(c: char, quote: char, ascii: bool, to: &mut String) {
    let code = u32::from(c);
    let short = match c {
        '\u{7}' => Some('a'),
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '\u{b}' => Some('v'),
        '\\' => Some('\\'),
        _ if c == quote => Some(quote),
        _ => None,
    };
    if let Some(short) = short {
        to.push('\\');
        to.push(short);
    } else if is_printable(c) && (c.is_ascii() || !ascii) {
        to.push(c);
    } else {
        let escaped = match code {
            ..=0x7f => format!("\\x{code:02x}"),
            0x80..=0xffff => format!("\\u{code:04x}"),
            _ => format!("\\U{code:08x}"),
        };
        to.push_str(&escaped);
    }
}
