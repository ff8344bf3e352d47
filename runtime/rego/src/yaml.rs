//! `yaml.*`: read by serde-saphyr, written as go-yaml does.

use std::collections::BTreeMap;

use serde_saphyr::options::DuplicateKeyPolicy;

use crate::builtin::{Fault, Outcome};
use crate::go::float;
use crate::operand::{Operands, too_long};
use crate::{Context, Value, limit};

pub(crate) fn is_valid(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).any(0)?.as_str();
    Ok(Some(Value::Bool(text.is_some_and(|text| read(text).is_ok()))))
}

pub(crate) fn unmarshal(arguments: &[Value], _: &Context) -> Outcome {
    read(Operands(arguments).text(0)?).map(Some)
}

pub(crate) fn marshal(arguments: &[Value], _: &Context) -> Outcome {
    let mut text = String::new();
    block(Operands(arguments).any(0)?, 0, &mut text)?;
    Ok(Some(Value::from(text)))
}

/// The first document of a text; all of it has to be YAML.
fn read(text: &str) -> Result<Value, Fault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: limit::DEPTH / 2,
            max_nodes: limit::ELEMENTS,
            max_events: limit::ELEMENTS * 4,
            max_total_scalar_bytes: limit::TEXT_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: limit::ELEMENTS },
        strict_booleans: true,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().next().unwrap_or(Value::Null))
}

/// Writes a value where a line begins, or behind `- `; with a line feed at its end.
fn block(value: &Value, indent: usize, to: &mut String) -> Result<(), Fault> {
    if to.len().saturating_add(indent) > limit::TEXT_BYTES {
        return Err(too_long());
    }
    match value {
        Value::Object(pairs) if !pairs.is_empty() => {
            let text = |key: &Value| key.as_str().map_or_else(|| key.to_json(), str::to_owned);
            let pairs: BTreeMap<String, &Value> = pairs.iter().map(|(key, value)| (text(key), value)).collect();
            for (index, (key, value)) in pairs.into_iter().enumerate() {
                if index > 0 {
                    to.push_str(&" ".repeat(indent));
                }
                to.push_str(&key_text(&key));
                to.push(':');
                if is_nested(value) {
                    let indent = indent.saturating_add(2);
                    to.push('\n');
                    to.push_str(&" ".repeat(indent));
                    block(value, indent, to)?;
                } else {
                    to.push(' ');
                    block(value, indent, to)?;
                }
            }
        }
        Value::Array(elements) if !elements.is_empty() => list(elements, indent, to)?,
        Value::Set(elements) if !elements.is_empty() => list(elements, indent, to)?,
        scalar => {
            to.push_str(&scalar_text(scalar, indent));
            to.push('\n');
        }
    }
    Ok(())
}

/// Whether a value takes lines of its own.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(pairs) => !pairs.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Set(elements) => !elements.is_empty(),
        _ => false,
    }
}

fn list<'a>(elements: impl IntoIterator<Item = &'a Value>, indent: usize, to: &mut String) -> Result<(), Fault> {
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            to.push_str(&" ".repeat(indent));
        }
        to.push_str("- ");
        block(element, indent.saturating_add(2), to)?;
    }
    Ok(())
}

fn scalar_text(value: &Value, indent: usize) -> String {
    match value {
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) | Value::Set(_) => "[]".to_owned(),
        Value::Null | Value::Bool(_) => value.to_string(),
        Value::Number(number) => match number.to_string() {
            text if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() => text,
            // Go reads what is no integer of 64 bits as a float.
            _ => float::format(number.as_f64(), 'g', None),
        },
        Value::String(text) if text.contains('\n') && can_be_block(text) => literal(text, indent),
        Value::String(text) => key_text(text),
    }
}

/// A string of one line: bare, in single quotes where it would be taken for structure, else in double quotes.
fn key_text(text: &str) -> String {
    if is_ambiguous(text) || !text.chars().all(is_printable) {
        return double_quoted(text);
    }
    if is_structure(text) { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() }
}

/// What go-yaml writes as it is; breaks of lines other than the line feed are left out.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{fffd}') && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// Whether a bare string would be read as another type, by some reader at least.
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

/// Whether a bare string would be taken for a part of the structure around it.
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

/// Whether a string of several lines can stand as it is.
fn can_be_block(text: &str) -> bool {
    let are_printable = text.chars().all(|c| c == '\n' || is_printable(c));
    are_printable && !text.ends_with(' ') && !text.contains(" \n") && !text.starts_with([' ', '\n'])
}

/// A block of lines, with a sign that says what becomes of the line feeds at its end.
fn literal(text: &str, indent: usize) -> String {
    let chomping = match text.strip_suffix('\n') {
        None => "-",
        Some(rest) if rest.ends_with('\n') || rest.is_empty() => "+",
        Some(_) => "",
    };
    let margin = " ".repeat(indent.max(2));
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    let lines = lines.map(|line| if line.is_empty() { String::new() } else { format!("{margin}{line}") });
    format!("|{chomping}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\0' => quoted.push_str("\\0"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\r' => quoted.push_str("\\r"),
            '\u{1b}' => quoted.push_str("\\e"),
            '\u{85}' => quoted.push_str("\\N"),
            '\u{2028}' => quoted.push_str("\\L"),
            '\u{2029}' => quoted.push_str("\\P"),
            c if is_printable(c) => quoted.push(c),
            c => {
                let code = u32::from(c);
                let escaped = match code {
                    ..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                quoted.push_str(&escaped);
            }
        }
    }
    quoted.push('"');
    quoted
}
