//! Lists the fields of a JSON schema as text.

use qosm_model::foreign;
use serde_json::{Map, Value};

use crate::print;

/// Maximum nesting of listed fields, since a schema may refer to itself.
const DEPTH: usize = 4;

/// Maximum number of listed fields, since a schema that refers to itself may have any number.
const MAX_ROWS: usize = 500;

/// Maximum number of characters of a cell.
const MAX_SHOWN: usize = 1_000;

/// A table of the fields with their valid values, defaults and meaning. Empty for a schema without fields.
pub fn table(schema: &Value) -> String {
    let rows = rows(schema);
    if rows.is_empty() {
        return String::new();
    }
    print::table(&HEAD, rows)
}

/// Column headers of the table.
pub const HEAD: [&str; 4] = ["field", "takes", "default", "meaning"];

/// The rows of the table of fields.
pub fn rows(schema: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    collect(schema, schema, "", DEPTH, &mut rows);
    // The whole text comes from a third party.
    for cell in rows.iter_mut().flatten() {
        *cell = foreign::shown(cell, MAX_SHOWN);
    }
    rows
}

fn collect(root: &Value, schema: &Value, prefix: &str, depth: usize, rows: &mut Vec<Vec<String>>) {
    let Some(properties) = resolved(root, schema).get("properties").and_then(Value::as_object) else { return };
    for (name, field) in properties {
        if rows.len() >= MAX_ROWS {
            return;
        }
        let (path, resolved) = (format!("{prefix}{name}"), resolved(root, field));
        // Keywords beside a reference describe this field, those of its target describe its type.
        let said = |key: &str| field.get(key).or_else(|| resolved.get(key));
        let default = said("default").map(Value::to_string).unwrap_or_default();
        let meaning = said("description").and_then(Value::as_str).unwrap_or_default();
        let meaning = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        if resolved.contains_key("properties") && depth > 0 {
            rows.push(vec![path.clone(), "fields:".to_owned(), default, meaning]);
            collect(root, field, &format!("{path}."), depth - 1, rows);
        } else {
            rows.push(vec![path, takes(root, field, depth), default, meaning]);
        }
    }
}

/// The schema to which references within the document lead.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Map<String, Value> {
    static NOTHING: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let mut found = schema;
    for _ in 0..DEPTH {
        let Some(reference) = found.get("$ref").and_then(Value::as_str) else { break };
        let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else { break };
        found = target;
    }
    found.as_object().unwrap_or(&NOTHING)
}

fn takes(root: &Value, schema: &Value, depth: usize) -> String {
    let schema = resolved(root, schema);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return values.iter().map(word).collect::<Vec<_>>().join(", ");
    }
    if let Some(value) = schema.get("const") {
        return word(value);
    }
    let ways = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    if let Some(ways) = ways.filter(|_| depth > 0) {
        return ways.iter().map(|way| takes(root, way, depth - 1)).collect::<Vec<_>>().join(", or ");
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => return "anything".to_owned(),
    };
    types.into_iter().map(|name| of_type(root, schema, name, depth)).collect::<Vec<_>>().join(", or ")
}

fn of_type(root: &Value, schema: &Map<String, Value>, name: &str, depth: usize) -> String {
    let bound = |key: &str| schema.get(key).map(Value::to_string);
    match name {
        "integer" | "number" => {
            let kind = if name == "integer" { "whole number" } else { "number" };
            match (bound("minimum"), bound("maximum")) {
                (Some(least), Some(most)) => format!("{kind}, {least} to {most}"),
                (Some(least), None) => format!("{kind}, {least} or more"),
                (None, Some(most)) => format!("{kind}, {most} or less"),
                (None, None) => kind.to_owned(),
            }
        }
        "boolean" => "true, false".to_owned(),
        "string" => bound("pattern").map_or_else(|| "text".to_owned(), |pattern| format!("text like {pattern}")),
        "array" => match schema.get("items").filter(|_| depth > 0) {
            Some(items) => format!("list of: {}", takes(root, items, depth - 1)),
            None => "list".to_owned(),
        },
        other => other.to_owned(),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_told_with_what_they_take() {
        let schema = json!({
            "$defs": {"share": {"type": "integer", "minimum": 0, "maximum": 100, "description": "a share"}},
            "properties": {
                "policy": {"enum": ["auto", "none", ""], "description": "what is\n  done"},
                "percent": {"$ref": "#/$defs/share", "default": 20},
                "nodes": {"type": "array", "items": {"type": "integer", "minimum": 0}, "default": []},
                "limits": {"type": "object", "properties": {
                    "high": {"type": ["integer", "null"], "maximum": 7},
                    "is-on": {"type": "boolean", "default": true},
                }},
                "name": {"anyOf": [{"const": "x"}, {"type": "string", "pattern": "^y"}]},
                "rest": {},
            },
        });
        insta::assert_snapshot!(table(&schema), @r#"
        FIELD         TAKES                             DEFAULT  MEANING
        limits        fields:
        limits.high   whole number, 7 or less, or null
        limits.is-on  true, false                       true
        name          x, or text like "^y"
        nodes         list of: whole number, 0 or more  []
        percent       whole number, 0 to 100            20       a share
        policy        auto, none, ""                             what is done
        rest          anything
        "#);
        assert_eq!(table(&json!({"type": "object"})), "");
        assert_eq!(table(&json!(true)), "");
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({"properties": {"child": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}}});
        assert!(table(&schema).lines().count() < 20);
    }
}
