//! Merges one layer over another, and records the origin of each field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Layer;

/// Merged values, and the layer that each leaf came from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layered {
    pub(super) values: Map<String, Value>,
    pub(super) origins: BTreeMap<String, Layer>,
}

impl Layered {
    /// Merges `fields` on top: objects are merged field by field to any depth, everything else is replaced.
    pub(super) fn put(&mut self, fields: &Map<String, Value>, layer: &Layer) {
        merge(&mut self.values, fields, &mut self.origins, "", layer);
    }

    /// Removes one field.
    pub(super) fn remove(&mut self, field: &str) {
        self.values.remove(field);
        forget(&mut self.origins, field);
    }
}

fn merge(
    values: &mut Map<String, Value>,
    fields: &Map<String, Value>,
    origins: &mut BTreeMap<String, Layer>,
    above: &str,
    layer: &Layer,
) {
    for (name, new) in fields {
        let path = join(above, name);
        match (values.get_mut(name), new) {
            (Some(Value::Object(old)), Value::Object(new)) if !old.is_empty() => merge(old, new, origins, &path, layer),
            _ => {
                forget(origins, &path);
                values.insert(name.clone(), new.clone());
                remember(origins, path, new, layer);
            }
        }
    }
}

fn remember(origins: &mut BTreeMap<String, Layer>, path: String, value: &Value, layer: &Layer) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                remember(origins, join(&path, name), value, layer);
            }
        }
        _ => {
            origins.insert(path, layer.clone());
        }
    }
}

fn forget(origins: &mut BTreeMap<String, Layer>, path: &str) {
    origins.retain(|known, _| !known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')));
}

/// The path of a field below `above`; the name alone if `above` is empty.
pub(super) fn join(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}
