//! Configurations that a policy accepts: the default of `bench --pod-config`, and the example of `doc`.

use qosm_model::protocol::{Description, Protocol};
use serde_json::{Map, Value};

/// The field that chooses a preset.
const POLICY: &str = "policy";

/// Values of it that switch the policy off.
const NOTHING: [&str; 4] = ["none", "default", "off", ""];

/// A preset if there is one, else the schema's example, else a value for each field; empty for a policy without a protocol.
pub(super) fn of(description: &Description) -> Map<String, Value> {
    description.protocol.as_ref().map(configuration).unwrap_or_default()
}

/// The required fields of a configuration, each with a value that its schema accepts where that is obvious, else `...`.
pub(crate) fn required(schema: &Value) -> Map<String, Value> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let sample = |name: &str| schema.get("properties").and_then(|fields| value(fields.get(name)?));
    names.map(|name| (name.to_owned(), sample(name).unwrap_or_else(|| "...".into()))).collect()
}

fn configuration(protocol: &Protocol) -> Map<String, Value> {
    let only = |word: &str| Map::from_iter([(POLICY.to_owned(), word.into())]);
    if let Some(preset) =
        protocol.presets.iter().find(|preset| !preset.alone && !NOTHING.contains(&preset.policy.as_str()))
    {
        return only(&preset.policy);
    }
    if let Some(example) = protocol.schema.get("examples").and_then(|examples| examples.get(0)?.as_object()) {
        return example.clone();
    }
    let Some(properties) = protocol.schema.get("properties").and_then(Value::as_object) else { return Map::new() };
    let words = properties.get(POLICY).map(words).unwrap_or_default();
    let word = words.iter().find(|word| **word == "auto").or_else(|| words.iter().find(|word| !NOTHING.contains(word)));
    if let Some(word) = word {
        return only(word);
    }
    let fields = properties.iter().filter(|(name, _)| *name != POLICY && !protocol.node_only_fields.contains(name));
    fields.filter_map(|(name, schema)| Some((name.clone(), value(schema)?))).collect()
}

/// The values that a field's `enum` lists.
fn words(schema: &Value) -> Vec<&str> {
    let alternatives = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let lists = std::iter::once(schema).chain(alternatives).filter_map(|schema| schema.get("enum")?.as_array());
    lists.flatten().filter_map(Value::as_str).collect()
}

/// A value that a field accepts; `None` where the schema has neither default, example, constant, enum nor a type with an obvious value.
fn value(schema: &Value) -> Option<Value> {
    let keyword = |key: &str| schema.get(key).filter(|value| !value.is_null()).cloned();
    let first = |key: &str| schema.get(key)?.get(0).cloned();
    let found = keyword("default").or_else(|| first("examples")).or_else(|| keyword("const")).or_else(|| first("enum"));
    found.or_else(|| match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => Some(true.into()),
        Some("integer" | "number") => keyword("minimum").or_else(|| keyword("maximum")).or(Some(1.into())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use qosm_model::protocol::Preset;
    use serde_json::json;

    use super::*;

    fn sample(schema: Value, presets: Vec<Preset>) -> Value {
        let protocol = Protocol {
            annotation_keys: Vec::new(),
            config_map_key: None,
            class_field: None,
            namespace_list_key: None,
            defaults: Map::new(),
            presets,
            schema,
            node_only_fields: vec!["secret".to_owned()],
        };
        Value::Object(configuration(&protocol))
    }

    #[test]
    fn a_word_with_values_comes_first() {
        let preset = |policy: &str, alone| Preset { policy: policy.to_owned(), values: Map::new(), alone };
        let schema = json!({"properties": {"percent": {"type": "integer"}}});
        assert_eq!(sample(schema, vec![preset("none", true), preset("auto", false)]), json!({"policy": "auto"}));
    }

    #[test]
    fn a_word_of_the_schema_asks_for_something() {
        let schema = |policy| json!({"properties": {"policy": policy, "percent": {"type": "integer"}}});
        assert_eq!(sample(schema(json!({"enum": ["none", "some", "auto"]})), vec![]), json!({"policy": "auto"}));
        let either = json!({"anyOf": [{"enum": ["none", "bestEffort"]}, {"type": "string"}]});
        assert_eq!(sample(schema(either), vec![]), json!({"policy": "bestEffort"}));
    }

    #[test]
    fn required_fields_are_there_and_others_are_not() {
        let schema = json!({"required": ["percent", "name", "unlisted"], "properties": {
            "percent": {"type": "integer", "minimum": 5},
            "name": {"type": "string"},
            "other": {"type": "integer"},
        }});
        assert_eq!(Value::Object(required(&schema)), json!({"percent": 5, "name": "...", "unlisted": "..."}));
        assert_eq!(required(&json!({"properties": {"percent": {"type": "integer"}}})), Map::new());
    }

    #[test]
    fn fields_get_what_they_take() {
        let schema = json!({"properties": {
            "percent": {"type": "integer", "minimum": 5, "maximum": 9},
            "most": {"type": "integer", "maximum": 9},
            "on": {"type": "boolean"},
            "how": {"enum": ["slowly", "fast"]},
            "given": {"type": "integer", "default": 80},
            "secret": {"type": "integer"},
            "list": {"type": "array"},
        }});
        let expected = json!({"percent": 5, "most": 9, "on": true, "how": "slowly", "given": 80});
        assert_eq!(sample(schema, vec![]), expected);
        assert_eq!(sample(json!({"examples": [{"percent": 3}]}), vec![]), json!({"percent": 3}));
        assert_eq!(sample(json!({}), vec![]), json!({}));
    }
}
