//! Lists the fields of a JSON schema as text.

use qosm_model::foreign;
use qosm_model::protocol::Protocol;
use serde_json::{Map, Value};

use crate::print;

/// Maximum nesting of listed fields, since a schema may refer to itself.
const DEPTH: usize = 4;

/// Maximum number of listed fields, since a schema that refers to itself may have any number.
const MAX_ROWS: usize = 500;

/// Maximum number of characters of a cell.
const MAX_SHOWN: usize = 1_000;

/// A table of such rows. Empty if there are none.
pub fn table(rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    print::table(&HEAD, rows)
}

/// Column headers of the table.
pub const HEAD: [&str; 4] = ["field", "takes", "default", "meaning"];

/// The rows of the fields of a schema, with their valid values, defaults and meaning. Empty for a schema without fields.
pub fn rows(schema: &Value) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    collect(schema, schema, "", DEPTH, &mut rows);
    // The whole text comes from a third party.
    for cell in rows.iter_mut().flatten() {
        *cell = foreign::shown(cell, MAX_SHOWN);
    }
    rows
}

/// The rows of the fields of pods' configuration. A default of the protocol takes the place of the schema's; with classes it
/// is listed by class, unless all of them have the same.
pub fn rows_of(protocol: &Protocol) -> Vec<Vec<String>> {
    let mut rows = rows(&protocol.schema);
    for row in &mut rows {
        if let [path, _, default, _] = row.as_mut_slice()
            && let Some(declared) = declared(protocol, path)
        {
            *default = foreign::shown(&declared, MAX_SHOWN);
        }
    }
    rows
}

/// The protocol's default of the field with this path.
fn declared(protocol: &Protocol, path: &str) -> Option<String> {
    if protocol.class_field.is_none() {
        return at(&protocol.defaults, path).map(Value::to_string);
    }
    let by_class: Vec<(&String, Option<&Value>)> = protocol
        .defaults
        .iter()
        .map(|(class, fields)| (class, fields.as_object().and_then(|fields| at(fields, path))))
        .collect();
    let (_, first) = by_class.first()?;
    if by_class.iter().all(|(_, value)| value == first) {
        return first.map(Value::to_string);
    }
    let named = by_class.iter().filter_map(|(class, value)| value.map(|value| format!("{class} {value}")));
    Some(named.collect::<Vec<_>>().join(", "))
}

/// The value at a path such as `limits.high`.
fn at<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => fields.get(path),
        Some((first, rest)) => at(fields.get(first)?.as_object()?, rest),
    }
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
        insta::assert_snapshot!(table(rows(&schema)), @r#"
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
        assert_eq!(table(rows(&json!({"type": "object"}))), "");
        assert_eq!(table(rows(&json!(true))), "");
    }

    #[test]
    fn a_default_of_the_protocol_is_told_by_class_where_classes_differ() {
        let schema = json!({"properties": {
            "percent": {"type": "integer", "default": 1},
            "same": {"type": "integer"},
            "limits": {"type": "object", "properties": {"high": {"type": "integer"}}},
            "open": {"type": "integer", "default": 9},
        }});
        let defaults = |class_field: Option<&str>, defaults: Value| {
            let protocol = Protocol {
                annotation_keys: Vec::new(),
                config_map_key: None,
                class_field: class_field.map(str::to_owned),
                namespace_list_key: None,
                defaults: defaults.as_object().cloned().unwrap_or_default(),
                presets: Vec::new(),
                schema: schema.clone(),
                node_only_fields: Vec::new(),
            };
            let rows = rows_of(&protocol).into_iter();
            rows.map(|row| format!("{} {}", row[0], row[2]).trim_end().to_owned()).collect::<Vec<_>>()
        };
        let flat = defaults(None, json!({"percent": 80, "same": -1, "limits": {"high": 7}}));
        assert_eq!(flat, ["limits {\"high\":7}", "limits.high 7", "open 9", "percent 80", "same -1"]);
        let classes = json!({
            "beClass": {"percent": 50, "same": 5},
            "lsClass": {"percent": -25, "same": 5, "limits": {"high": 7}},
        });
        let by_class = defaults(Some("memoryQOS"), classes);
        let expected = [
            "limits lsClass {\"high\":7}",
            "limits.high lsClass 7",
            "open 9",
            "percent beClass 50, lsClass -25",
            "same 5",
        ];
        assert_eq!(by_class, expected);
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({"properties": {"child": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}}});
        assert!(table(rows(&schema)).lines().count() < 20);
    }
}
