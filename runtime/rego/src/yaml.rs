//! `yaml.*`: parsed with serde-saphyr, written like go-yaml.

use serde_saphyr::options::DuplicateKeyPolicy;

use crate::builtin::{Fault, Outcome, excerpt};
use crate::context::Text;
use crate::documents::{by_text, key_json};
use crate::go::float;
use crate::operand::Operands;
use crate::{Context, Value, limit};

pub(crate) fn is_valid(arguments: &[Value], context: &Context) -> Outcome {
    let text = Operands(arguments).any(0)?.as_str();
    Ok(Some(Value::Bool(text.is_some_and(|text| read(text, context).is_ok()))))
}

pub(crate) fn unmarshal(arguments: &[Value], context: &Context) -> Outcome {
    read(Operands(arguments).text(0)?, context).map(Some)
}

pub(crate) fn marshal(arguments: &[Value], context: &Context) -> Outcome {
    let mut text = Text::of_call(context);
    block(Operands(arguments).any(0)?, 0, &mut text)?;
    Ok(Some(Value::from(text.take())))
}

/// Work of parsing a byte.
const READ: usize = 120;

/// Maximum expansion of aliases, in events and in bytes.
const REPLAYED: usize = 4_096;

/// Parses the first document of a text; the whole text must be YAML.
fn read(text: &str, context: &Context) -> Result<Value, Fault> {
    context.work(text.len().saturating_mul(READ).saturating_add(5_000))?;
    if text.contains('*') {
        context.work(REPLAYED * 300)?;
    }
    // An element or pair weighs most if it is alone in its collection.
    let nodes = (context.weight_left() / 2 / 720).min(limit::ELEMENTS).min(text.len().saturating_add(REPLAYED));
    context.charge(text.len().saturating_mul(4))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limit::DEPTH / 2,
            max_nodes: nodes,
            max_events: limit::ELEMENTS * 4,
            max_total_scalar_bytes: limit::TEXT_BYTES,
            max_documents: 1_024,
            max_aliases: 1_024,
            max_anchors: 1_024,
            max_recorded_anchor_events: REPLAYED,
            max_recorded_anchor_bytes: REPLAYED,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED },
        strict_booleans: true,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| excerpt(&error.to_string()).to_owned())?;
    Ok(documents.into_iter().next().unwrap_or(Value::Null))
}

/// Writes a value at the start of a line or after `- `, with a trailing line feed.
fn block(value: &Value, indent: usize, to: &mut Text<'_>) -> Result<(), Fault> {
    match value {
        Value::Object(pairs) if !pairs.is_empty() => {
            let context = to.context();
            let text = |key: &Value| match key {
                Value::String(text) => Ok(text.clone()),
                other => key_json(other, context),
            };
            let pairs = by_text(pairs, context, text)?;
            for (index, (key, value)) in pairs.into_iter().enumerate() {
                if index > 0 {
                    to.push_times(" ", indent)?;
                }
                one_line(&key, to)?;
                to.push(':')?;
                if is_nested(value) {
                    let indent = indent.saturating_add(2);
                    to.push('\n')?;
                    to.push_times(" ", indent)?;
                    block(value, indent, to)?;
                } else {
                    to.push(' ')?;
                    block(value, indent, to)?;
                }
            }
        }
        Value::Array(elements) if !elements.is_empty() => list(elements, indent, to)?,
        Value::Set(elements) if !elements.is_empty() => list(elements, indent, to)?,
        scalar => {
            write_scalar(scalar, indent, to)?;
            to.push('\n')?;
        }
    }
    Ok(())
}

/// Whether a value is written on lines of its own.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(pairs) => !pairs.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Set(elements) => !elements.is_empty(),
        _ => false,
    }
}

fn list<'a>(elements: impl IntoIterator<Item = &'a Value>, indent: usize, to: &mut Text<'_>) -> Result<(), Fault> {
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            to.push_times(" ", indent)?;
        }
        to.push_str("- ")?;
        block(element, indent.saturating_add(2), to)?;
    }
    Ok(())
}

fn write_scalar(value: &Value, indent: usize, to: &mut Text<'_>) -> Result<(), Fault> {
    match value {
        Value::Object(_) => to.push_str("{}"),
        Value::Array(_) | Value::Set(_) => to.push_str("[]"),
        Value::Null | Value::Bool(_) => to.push_str(&value.to_string()),
        Value::Number(number) => match number.to_string() {
            text if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() => to.push_str(&text),
            // Go reads a number that is not a 64-bit integer as a float.
            text => {
                to.context().work(text.len().saturating_mul(20).saturating_add(1_000))?;
                to.push_str(&float::format(number.as_f64(), 'g', None))
            }
        },
        Value::String(text) if text.contains('\n') && can_be_block(text) => literal(text, indent, to),
        Value::String(text) => one_line(text, to),
    }
}

/// Writes a string on one line: in double quotes if it is ambiguous or not printable, in single quotes if it would be
/// read as structure, else bare.
fn one_line(text: &str, to: &mut Text<'_>) -> Result<(), Fault> {
    to.context().work_on(text.len().saturating_mul(8).saturating_add(100))?;
    if is_ambiguous(text) || !text.chars().all(is_printable) {
        return double_quoted(text, to);
    }
    if !is_structure(text) {
        return to.push_str(text);
    }
    to.push('\'')?;
    for (index, part) in text.split('\'').enumerate() {
        to.push_str(if index > 0 { "''" } else { "" })?;
        to.push_str(part)?;
    }
    to.push('\'')
}

/// Whether go-yaml writes a character without an escape; line breaks other than the line feed are escaped.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{fffd}') && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Whether at least some YAML parsers would read a bare string as another type.
fn is_ambiguous(text: &str) -> bool {
    let words = [
        "", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", "y", "Y", "yes", "Yes",
        "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "<<",
    ];
    let first = text.bytes().next().unwrap_or_default();
    words.contains(&text)
        || ((first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) && is_number_or_time(text))
}

fn is_number_or_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let bare = lower.trim_start_matches(['+', '-']).replace('_', "");
    let has_radix = |prefix: &str, digits: &str| {
        bare.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| digits.contains(c)))
    };
    matches!(bare.as_str(), ".inf" | ".nan")
        || (bare.parse::<f64>().is_ok() && !bare.contains(['i', 'n']))
        || has_radix("0x", "0123456789abcdef")
        || has_radix("0o", "01234567")
        || has_radix("0b", "01")
        // Times of day in base 60, and dates.
        || (bare.contains(':') && bare.chars().all(|c| c.is_ascii_digit() || c == ':' || c == '.'))
        || is_date(text)
}

fn is_date(text: &str) -> bool {
    let date = text.split(['T', 't', ' ']).next().unwrap_or_default();
    let mut parts = date.split('-').map(|part| (part.len(), part.bytes().all(|byte| byte.is_ascii_digit())));
    let is_date = matches!(
        (parts.next(), parts.next(), parts.next(), parts.next()),
        (Some((4, true)), Some((1 | 2, true)), Some((1 | 2, true)), None)
    );
    is_date
        && text.get(date.len()..).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || " Tt:.Z+-".contains(c)))
}

/// Whether a bare string would be read as part of the surrounding structure.
fn is_structure(text: &str) -> bool {
    let is_blank = |c: Option<char>| c.is_none_or(|c| c == ' ');
    let first = text.chars().next();
    let second = text.chars().nth(1);
    text.starts_with(' ')
        || text.ends_with(' ')
        || text.starts_with("---")
        || text.starts_with("...")
        || first.is_some_and(|c| "#,[]{}&*!|>'\"%@`".contains(c))
        || (matches!(first, Some('-' | '?' | ':')) && is_blank(second))
        || text.contains(": ")
        || text.ends_with(':')
        || text.contains(" #")
}

/// Whether a string of several lines can be written as a block.
fn can_be_block(text: &str) -> bool {
    let are_printable = text.chars().all(|c| c == '\n' || is_printable(c));
    are_printable && !text.ends_with(' ') && !text.contains(" \n") && !text.starts_with([' ', '\n'])
}

/// Writes a block of lines, with the indicator for its trailing line feeds.
fn literal(text: &str, indent: usize, to: &mut Text<'_>) -> Result<(), Fault> {
    let chomping = match text.strip_suffix('\n') {
        None => "-",
        Some(rest) if rest.ends_with('\n') || rest.is_empty() => "+",
        Some(_) => "",
    };
    to.push_str("|")?;
    to.push_str(chomping)?;
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        to.push('\n')?;
        if !line.is_empty() {
            to.push_times(" ", indent.max(2))?;
            to.push_str(line)?;
        }
    }
    Ok(())
}

fn double_quoted(text: &str, quoted: &mut Text<'_>) -> Result<(), Fault> {
    quoted.push('"')?;
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\"")?,
            '\\' => quoted.push_str("\\\\")?,
            '\0' => quoted.push_str("\\0")?,
            '\u{7}' => quoted.push_str("\\a")?,
            '\u{8}' => quoted.push_str("\\b")?,
            '\t' => quoted.push_str("\\t")?,
            '\n' => quoted.push_str("\\n")?,
            '\u{b}' => quoted.push_str("\\v")?,
            '\u{c}' => quoted.push_str("\\f")?,
            '\r' => quoted.push_str("\\r")?,
            '\u{1b}' => quoted.push_str("\\e")?,
            '\u{85}' => quoted.push_str("\\N")?,
            '\u{2028}' => quoted.push_str("\\L")?,
            '\u{2029}' => quoted.push_str("\\P")?,
            c if is_printable(c) => quoted.push(c)?,
            c => {
                let code = u32::from(c);
                let escaped = match code {
                    ..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                quoted.push_str(&escaped)?;
            }
        }
    }
    quoted.push('"')
}
