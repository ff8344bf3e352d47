//! Schemas and annotations that are designed to keep the agent busy.

use qosm_model::layering::{check_config, check_config_schema};

use super::*;

/// Each definition refers twice to the previous one: 2²⁶ checks of one value, in two kilobytes.
fn doubling() -> Value {
    let mut defs = Map::new();
    defs.insert("d0".into(), json!({"type": "integer"}));
    for level in 1..=26 {
        let below = format!("#/$defs/d{}", level - 1);
        defs.insert(format!("d{level}"), json!({"allOf": [{"$ref": below}, {"$ref": below}]}));
    }
    json!({"type": "object", "$defs": defs, "properties": {"x": {"$ref": "#/$defs/d26"}}})
}

fn with_schema(schema: Value, defaults: Value) -> Protocol {
    Protocol {
        annotation_keys: vec!["example.com/x".into()],
        config_map_key: Some("x-config".into()),
        class_field: None,
        namespace_list_key: None,
        defaults: object(defaults),
        presets: vec![],
        schema,
        node_only_fields: vec![],
    }
}

#[test]
fn a_schema_that_is_too_expensive_refuses_the_module() {
    for defaults in [json!({}), json!({"x": 1})] {
        let problem = CompiledProtocol::compile(with_schema(doubling(), defaults)).unwrap_err();
        insta::allow_duplicates! {
            insta::assert_snapshot!(problem, @"protocol: schema: it has more than 8192 parts once its references stand for what they name; write fewer, or refer to each fewer times; mend the description of the module");
        }
    }
    let problems = check_config("p", Some(&doubling()), &object(json!({"x": 1})));
    insta::assert_snapshot!(problems[0], @"policy p: config: the module's schema: it has more than 8192 parts once its references stand for what they name; write fewer, or refer to each fewer times; mend the description of the module");
    assert!(check_config_schema(&doubling()).is_err());

    // Patterns that take exponential time are refused.
    let schema = json!({"properties": {"x": {"type": "string", "pattern": "^(a|aa)+\\1$"}}});
    let problem = CompiledProtocol::compile(with_schema(schema, json!({}))).unwrap_err();
    insta::assert_snapshot!(problem, @r#"protocol: schema: the pattern "^(a|aa)+\\1$" is none, is too large, or looks around or back; write a plain regular expression, or an `enum`; mend the description of the module"#);
}

#[test]
fn a_schema_that_refers_to_itself_is_taken_and_its_documents_are_charged() {
    let twice = json!({"$ref": "#/$defs/node"});
    let schema = json!({
        "type": "object",
        "properties": {"tree": twice},
        "$defs": {"node": {"type": "object", "additionalProperties": false, "properties": {
            "weight": {"type": "integer"}, "left": twice, "right": twice}}},
    });
    let layers = built(with_schema(schema, json!({})), &[]);
    let good =
        layers.for_pod(&annotated("example.com/x", r#"{"tree": {"left": {"weight": 1}, "right": {"left": {}}}}"#));
    assert_eq!((good.problems, good.values.len()), (vec![], 1));
    let wrong = layers.for_pod(&annotated("example.com/x", r#"{"tree": {"left": {"weight": "x"}}}"#));
    assert_eq!(wrong.problems.len(), 1);

    // Each level is checked twice against the schema of the level below.
    let twice = json!({"$ref": "#/$defs/node"});
    let schema = json!({
        "type": "object",
        "properties": {"tree": twice},
        "$defs": {"node": {"allOf": [{"properties": {"a": twice}}, {"properties": {"a": twice}}]}},
    });
    let deep = (0..40).fold(json!({}), |inner, _| json!({"a": inner}));
    let layers = built(with_schema(schema, json!({})), &[]);
    let effective = layers.for_pod(&annotated("example.com/x", &json!({"tree": deep}).to_string()));
    assert_eq!(effective.values, Map::new());
    insta::assert_snapshot!(texts(&effective.problems).join("\n"), @"pod default/web: annotation example.com/x: checking it against the schema takes more than 20000 steps; the whole annotation is ignored and the next lower layer counts; write fewer fields, or have the schema in the policy's module made simpler");

    let config = json!({"clusterStrategy": {"tree": deep}}).to_string();
    let twice = json!({"$ref": "#/$defs/node"});
    let schema = json!({
        "type": "object",
        "properties": {"tree": twice},
        "$defs": {"node": {"allOf": [{"properties": {"a": twice}}, {"properties": {"a": twice}}]}},
    });
    let (_, problems) = build(with_schema(schema, json!({})), &[ack("x-config", &config)]);
    assert!(problems[0].contains("takes more than 1000000 steps"), "{problems:?}");
}

#[test]
fn an_annotation_that_is_too_long_is_refused_before_it_is_read() {
    let names: Map<String, Value> = (0..2_000).map(|n| (format!("unknown{n}"), json!(1))).collect();
    let text = Value::Object(names).to_string();
    assert!(text.len() > 16 << 10);
    let effective = built(burst(), &[]).for_pod(&annotated("koordinator.sh/cpuBurst", &text));
    let problems = texts(&effective.problems);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("bytes, and 16384 are taken; the whole annotation is ignored"), "{problems:?}");
}

#[test]
fn an_annotation_that_is_nested_too_deep_is_refused_alone() {
    let layers = built(with_schema(json!({"type": "object", "properties": {"x": {"type": "array"}}}), json!({})), &[]);
    for (depth, problems) in [(63, 0), (64, 1), (110, 1)] {
        let text = format!(r#"{{"x": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        let effective = layers.for_pod(&annotated("example.com/x", &text));
        let found = texts(&effective.problems);
        assert_eq!(found.len(), problems, "{depth}: {found:?}");
        assert!(found.iter().all(|problem| problem.contains("it is nested deeper than 64 levels")), "{found:?}");
    }
}

#[test]
fn of_very_many_wrong_fields_some_are_reported() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}});
    let words: Vec<Value> = (0..500).map(|n| json!(format!("w{n}"))).collect();
    let layers = built(with_schema(schema, json!({})), &[]);
    let effective = layers.for_pod(&annotated("example.com/x", &json!({"x": words}).to_string()));
    assert_eq!(effective.problems.len(), 50);
}
