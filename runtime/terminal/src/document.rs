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
    let text = text(path)?;
    if text.trim().is_empty() {
        return Err(Usage(format!("{} is empty", shown(path))));
    }
    serde_saphyr::from_str(&text).map_err(|error| Usage(format!("{}: {}{error}", shown(path), field::<T>(&text))))
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
    if read.is_ok() || field == "." || field.is_empty() { String::new() } else { format!("{field}: ") }
}

fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}
