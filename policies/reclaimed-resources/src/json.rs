//! Reads fields of JSON objects; errors name the field and how to fix it.
//!
//! Follows the protocol's rules: field names match in any letter case, as in Go's decoder, with the exact spelling first; `null` counts as
//! absent; unknown fields are ignored; a field of the wrong type is an error. A number such as `95.0` is not a whole number.

use std::fmt;

use serde_json::{Map, Value};

use crate::decimal::{Decimal, DecimalError};

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field; empty for the whole text.
    pub field: String,
    /// What is wrong, and how to fix it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{} {}", self.field, self.message) }
    }
}

impl Fault {
    /// Creates a fault of a field.
    pub(crate) fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }

    /// Prefixes the path of the field with `path`.
    #[must_use]
    pub(crate) fn within(mut self, path: &str) -> Self {
        self.field = if self.field.is_empty() { path.to_owned() } else { format!("{path}.{}", self.field) };
        self
    }
}

/// Parses text that holds a JSON object.
///
/// # Errors
///
/// Fails if the text is not valid JSON (which includes numbers such as `1e400`); the error names the last field before the fault.
pub(crate) fn parse(text: &str) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Fault::new("", "is no JSON object; write {\"field\": value, …}")),
        Err(error) => {
            let field = field_before(text, error.line(), error.column());
            Err(Fault::new(field, format!("cannot be read: {error}; write valid JSON with numbers within their range")))
        }
    }
}

/// The last field name before a position; line and column count from 1.
fn field_before(text: &str, line: usize, column: usize) -> &str {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let end = before.saturating_add(column).min(text.len());
    let Some(read) = text.get(..end) else { return "" };
    let Some(name) = read.rfind(':').and_then(|colon| read[..colon].trim_end().strip_suffix('"')) else { return "" };
    name.rfind('"').map_or("", |quote| &name[quote + 1..])
}

/// The field with this name; `None` if it is absent or `null`.
pub(crate) fn field<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Value> {
    let in_any_case =
        || fields.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back();
    fields.get(name).or_else(in_any_case).filter(|value| !value.is_null())
}

/// Reads a whole number within a range.
pub(crate) fn whole(fields: &Map<String, Value>, name: &str, least: u64, most: u64) -> Result<Option<u64>, Fault> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    match value.as_u64() {
        Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ => {
            let way_out = format!("set a whole number from {least} to {most}, or leave it out");
            Err(Fault::new(name, format!("is {}; {way_out}", shown(value))))
        }
    }
}

/// Reads a percentage from 0 to `most`.
pub(crate) fn percent(fields: &Map<String, Value>, name: &str, most: u32) -> Result<Option<u32>, Fault> {
    // The range check above ensures that it fits.
    Ok(whole(fields, name, 0, most.into())?.and_then(|percent| u32::try_from(percent).ok()))
}

/// Reads a boolean.
pub(crate) fn switch(fields: &Map<String, Value>, name: &str) -> Result<Option<bool>, Fault> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::Bool(is_on)) => Ok(Some(*is_on)),
        Some(value) => Err(Fault::new(name, format!("is {}; set true or false", shown(value)))),
    }
}

/// Reads one of several words; an empty word counts as absent.
pub(crate) fn word<T: Copy>(
    fields: &Map<String, Value>,
    name: &str,
    words: &[(&'static str, T)],
) -> Result<Option<T>, Fault> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    if value.as_str() == Some("") {
        return Ok(None);
    }
    match words.iter().find(|(word, _)| value.as_str() == Some(word)) {
        Some((_, meant)) => Ok(Some(*meant)),
        None => {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            Err(Fault::new(name, format!("is {}; set one of {}", shown(value), known.join(", "))))
        }
    }
}

/// Reads a decimal number above 0.
pub(crate) fn decimal(fields: &Map<String, Value>, name: &str) -> Result<Option<Decimal>, Fault> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    let number = match value {
        Value::Number(number) => Decimal::parse(&number.to_string()),
        _ => Err(DecimalError::NoNumber),
    };
    match number {
        Ok(number) if number > Decimal::default() => Ok(Some(number)),
        Ok(_) => Err(Fault::new(name, "is 0; set a number above 0, e.g. 0.1, or leave it out")),
        Err(error) => Err(Fault::new(name, format!("is {}, which {error}; set a number such as 0.1", shown(value)))),
    }
}

/// Reads an object within an object.
pub(crate) fn object<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<Option<&'f Map<String, Value>>, Fault> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(value) => Err(Fault::new(name, format!("is {}; write an object", shown(value)))),
    }
}

/// Reads a list within an object.
pub(crate) fn list<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<Option<&'f [Value]>, Fault> {
    match field(fields, name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(value) => Err(Fault::new(name, format!("is {}; write a list", shown(value)))),
    }
}

/// Formats a value for a message; cut to 40 characters, since it may be of any length.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Map<String, Value> {
        parse(json).unwrap()
    }

    #[test]
    fn a_field_is_found_in_any_letter_case_and_null_is_absent() {
        for (json, found) in [
            (r#"{"midUnallocatedPercent":5}"#, Some(5)),
            (r#"{"midunallocatedpercent":5}"#, Some(5)),
            (r#"{"MIDUNALLOCATEDPERCENT":5,"midUnallocatedPercent":6}"#, Some(6)),
            (r#"{"midUnallocatedPercent":null}"#, None),
            (r#"{"other":5}"#, None),
        ] {
            assert_eq!(percent(&fields(json), "midUnallocatedPercent", 100), Ok(found), "{json}");
        }
    }

    #[test]
    fn a_wrong_value_names_the_field_and_the_way_out() {
        let read = |json: &str| percent(&fields(json), "p", 100).unwrap_err().to_string();
        for (json, message) in [
            (r#"{"p":101}"#, "p is `101`; set a whole number from 0 to 100, or leave it out"),
            (r#"{"p":-1}"#, "p is `-1`; set a whole number from 0 to 100, or leave it out"),
            (r#"{"p":95.0}"#, "p is `95.0`; set a whole number from 0 to 100, or leave it out"),
            (r#"{"p":"95"}"#, "p is `\"95\"`; set a whole number from 0 to 100, or leave it out"),
            (r#"{"p":1e30}"#, "p is `1e+30`; set a whole number from 0 to 100, or leave it out"),
        ] {
            assert_eq!(read(json), message);
        }
        assert_eq!(switch(&fields(r#"{"on":1}"#), "on").unwrap_err().to_string(), "on is `1`; set true or false");
        let words = [("usage", 1), ("request", 2)];
        assert_eq!(word(&fields(r#"{"w":""}"#), "w", &words), Ok(None));
        assert_eq!(word(&fields(r#"{"w":"request"}"#), "w", &words), Ok(Some(2)));
        let error = word(&fields(r#"{"w":"Usage"}"#), "w", &words).unwrap_err().to_string();
        assert_eq!(error, "w is `\"Usage\"`; set one of usage, request");
        for (json, message) in [
            (r#"{"d":0}"#, "d is 0; set a number above 0, e.g. 0.1, or leave it out"),
            (r#"{"d":-0.5}"#, "d is `-0.5`, which is negative; set a number such as 0.1"),
            (r#"{"d":"0.1"}"#, "d is `\"0.1\"`, which is no decimal number; set a number such as 0.1"),
            (r#"{"d":1e300}"#, "d is `1e+300`, which is too large; set a number such as 0.1"),
        ] {
            assert_eq!(decimal(&fields(json), "d").unwrap_err().to_string(), message);
        }
        let long = format!(r#"{{"p":"{}"}}"#, "ü".repeat(100));
        assert!(read(&long).len() < 160);
    }

    #[test]
    fn text_that_is_no_json_names_the_field_before_the_error() {
        for (text, field) in [
            (r#"{"a": 1, "resourceDiffThreshold": 1e400}"#, "resourceDiffThreshold"),
            ("{\n  \"a\": 1,\n  \"b\" : NaN\n}", "b"),
            (r#"{"a": {"c": -}}"#, "c"),
            ("", ""),
            ("[", ""),
            ("{ü", ""),
        ] {
            let fault = parse(text).unwrap_err();
            assert_eq!(fault.field, field, "{text:?}: {fault}");
        }
        assert_eq!(parse("[1]").unwrap_err().to_string(), "is no JSON object; write {\"field\": value, …}");
    }
}
