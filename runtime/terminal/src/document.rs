//! Reads files in qosm's own formats (the agent's file, facts) in YAML or JSON. Errors name the file and the field.

use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::Usage;

/// Reads a file; `-` is standard input.
///
/// # Errors
///
/// [`Usage`] with the file's name.
#[expect(clippy::disallowed_methods, reason = "a command reads the file that was typed")]
pub fn text(path: &Path) -> Result<String, Usage> {
    let read = if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| Usage(format!("cannot read {}: {error}", shown(path))))
}

/// Reads the JSON object that a flag holds.
///
/// # Errors
///
/// [`Usage`] with the flag's name.
pub fn object(json: &str, flag: &str) -> Result<serde_json::Map<String, serde_json::Value>, Usage> {
    serde_json::from_str(json).map_err(|error| Usage(format!("{flag}: not a JSON object: {error}")))
}

/// Reads a document from a file.
///
/// # Errors
///
/// [`Usage`] with the file, the place in it and the field.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Usage> {
    parse(&text(path)?, &shown(path))
}

fn parse<T: DeserializeOwned>(text: &str, shown: &str) -> Result<T, Usage> {
    if text.trim().is_empty() {
        return Err(Usage(format!("{shown} is empty")));
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let (field, error) = (field::<T>(text), error.to_string());
        Usage(format!("{shown}: {field}{}", plain(error.strip_prefix("error: ").unwrap_or(&error))))
    })
}

/// A parser's message without names of Rust types and functions.
pub fn plain(error: &str) -> String {
    const PHRASES: [(&str, &str); 9] = [
        ("expected sequence start", "write a list"),
        ("expected mapping start", "write fields (`name: value`)"),
        ("expected string scalar", "write one value"),
        ("externally tagged enum expected scalar or mapping", "write one value"),
        ("cannot deserialize null into string; use Option<String>", "it has no value; write a text"),
        ("invalid boolean", "write `true` or `false`"),
        ("invalid floating point", "write a number"),
        (", set DuplicateKeyPolicy in Options if acceptable", "; write each field once"),
        ("; use from_str_multiple or from_str_multiple_with_options", "; write one"),
    ];
    const NUMBERS: [(&str, &str); 9] = [
        ("u8", "a whole number, 0 to 255"),
        ("u16", "a whole number, 0 to 65535"),
        ("u32", "a whole number, 0 to 4294967295"),
        ("u64", "a whole number, 0 to 18446744073709551615"),
        ("usize", "a whole number, 0 or more"),
        ("i32", "a whole number, -2147483648 to 2147483647"),
        ("i64", "a whole number, -9223372036854775808 to 9223372036854775807"),
        ("f32", "a number"),
        ("f64", "a number"),
    ];
    let mut text = PHRASES.into_iter().fold(error.to_owned(), |text, (phrase, meaning)| text.replace(phrase, meaning));
    for (name, meaning) in NUMBERS {
        text = text.replace(&format!("invalid {name}"), &format!("write {meaning}"));
        text = text.replace(&format!("expected {name}"), &format!("expected {meaning}"));
    }
    let Some((before, after)) = text.split_once("expected struct ") else { return text };
    let rest = after.trim_start_matches(|char: char| char.is_ascii_alphanumeric());
    format!("{before}expected fields (`name: value`){rest}")
}

/// The path of the invalid field of a JSON text, as a prefix of the parser's message; empty if the text as a whole is invalid.
pub fn json_field<T: DeserializeOwned>(text: &str) -> String {
    let mut document = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut document) {
        Err(error) => prefix(&error.path().to_string()),
        Ok(_) => String::new(),
    }
}

/// The path of the invalid field, as a prefix of the message; the parser itself reports only lines.
fn field<T: DeserializeOwned>(text: &str) -> String {
    let mut field = String::new();
    let read = serde_saphyr::with_deserializer_from_str(text, |document| {
        serde_path_to_error::deserialize::<_, T>(document).map_err(|error| {
            field = error.path().to_string();
            error.into_inner()
        })
    });
    if read.is_ok() { String::new() } else { prefix(&field) }
}

fn prefix(field: &str) -> String {
    // A question mark stands for a key that could not be read.
    let field = field.trim_end_matches('?').trim_end_matches('.');
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

/// The name of a file in messages: `-` is standard input.
pub fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what cannot be read matters here")]
    struct Document {
        cpus: Option<u32>,
        weight: Option<i32>,
        bytes: Option<u64>,
        pods: Option<Vec<String>>,
        host: Option<BTreeMap<String, String>>,
        inner: Option<Inner>,
        live: Option<bool>,
        share: Option<f64>,
        kind: Option<Kind>,
        #[serde(default)]
        name: String,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        A,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what cannot be read matters here")]
    struct Inner {
        a: u32,
    }

    #[test]
    fn no_type_of_rust_is_named() {
        for (text, field, message) in [
            ("cpus: many", "cpus", "write a whole number, 0 to 4294967295"),
            ("cpus: -2", "cpus", "write a whole number, 0 to 4294967295"),
            ("weight: high", "weight", "write a whole number, -2147483648 to 2147483647"),
            ("bytes: 1Gi", "bytes", "write a whole number, 0 to 18446744073709551615"),
            ("pods: 5", "pods", "write a list"),
            ("host: 5", "host", "write fields (`name: value`)"),
            ("inner: 5", "inner", "write fields (`name: value`)"),
            ("cpus: [1]", "cpus", "write one value"),
            ("kind: [A]", "kind", "write one value"),
            ("live: maybe", "live", "write `true` or `false`"),
            ("share: half", "share", "write a number"),
            ("{name: , cpus: 1}", "name", "it has no value; write a text"),
            ("inner: {a: 1, a: 2}", "inner", "duplicate mapping key: a; write each field once"),
        ] {
            let Usage(told) = parse::<Document>(text, "a.yaml").unwrap_err();
            assert!(told.starts_with(&format!("a.yaml: {field}: line 1 column ")), "{told}");
            assert!(told.contains(message), "{told}");
            for leaked in ["u32", "i32", "u64", "Option", "expected", "error:"] {
                assert!(!told.contains(leaked), "{told}");
            }
        }
        let Usage(told) = parse::<Document>("cpus: 1\n---\ncpus: 2\n", "a.yaml").unwrap_err();
        assert!(told.starts_with("a.yaml: line 3 column 1: multiple YAML documents detected; write one"), "{told}");
    }

    #[test]
    fn a_line_of_json_has_its_field_and_no_type_of_rust() {
        for (text, field, message) in [
            (
                r#"{"cpus": "many"}"#,
                "cpus: ",
                r#"invalid type: string "many", expected a whole number, 0 to 4294967295"#,
            ),
            (
                r#"{"inner": {"a": -1}}"#,
                "inner.a: ",
                "invalid value: integer `-1`, expected a whole number, 0 to 4294967295",
            ),
            (r#"{"inner": 5}"#, "inner: ", "invalid type: integer `5`, expected fields (`name: value`)"),
        ] {
            assert_eq!(json_field::<Document>(text), field);
            let told = plain(&serde_json::from_str::<Document>(text).unwrap_err().to_string());
            assert!(told.starts_with(&format!("{message} at line 1 column ")), "{told}");
        }
        assert_eq!(json_field::<Document>("{"), "");
        assert_eq!(json_field::<Document>("{}"), "");
    }
}
