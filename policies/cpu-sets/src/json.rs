//! Case-insensitive JSON objects, as Koordinator's decoder accepts them.

use serde_json::{Map, Value};

/// Renames fields that match one of `names` in another letter case to that name; a field with the exact spelling takes precedence.
///
/// ```
/// let fields = serde_json::from_str(r#"{"CPUSET": "0-1"}"#)?;
/// assert_eq!(cpu_sets::with_names(fields, &["cpuset"])["cpuset"], "0-1");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn with_names(mut fields: Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    for name in names.iter().filter(|name| !fields.contains_key(**name)).copied().collect::<Vec<_>>() {
        let other = fields.keys().rfind(|key| key.eq_ignore_ascii_case(name)).cloned();
        if let Some(value) = other.and_then(|key| fields.remove(&key)) {
            fields.insert(name.to_owned(), value);
        }
    }
    fields
}
