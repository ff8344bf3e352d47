//! Schemas that are designed to keep a validator busy, and schemas that only look so.

use std::time::{Duration, Instant};

use qosm_schema::{Bounds, Budget, Refusal, Schema, Spent};
use serde_json::{Map, Value, json};

/// Budget of an annotation in steps.
const STEPS: u64 = 20_000;

fn compile(schema: Value) -> Result<Schema, Refusal> {
    Schema::compile(schema, &Bounds::default())
}

fn wrong(schema: &Schema, document: &Value) -> Result<usize, Spent> {
    Ok(schema.errors(document, &Budget::of(STEPS))?.len())
}

/// A value nested in this many objects.
fn nested(depth: usize, name: &str, innermost: Value) -> Value {
    (0..depth).fold(innermost, |inner, _| json!({name: inner}))
}

#[test]
fn a_schema_that_doubles_at_each_reference_is_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut defs = Map::new();
        defs.insert("d0".into(), json!({"type": "object"}));
        for level in 1..=26 {
            let below = format!("#/$defs/d{}", level - 1);
            defs.insert(format!("d{level}"), json!({keyword: [{"$ref": below}, {"$ref": below}]}));
        }
        let schema = json!({"$defs": defs, "properties": {"x": {"$ref": "#/$defs/d26"}}});
        assert_eq!(compile(schema).err(), Some(Refusal::TooLarge { most: 8192 }), "{keyword}");
    }
}

#[test]
fn what_cannot_be_bounded_is_refused_by_name() {
    let wide: Vec<Value> = (0..9_000).map(Value::from).collect();
    let patterns: Map<String, Value> = (0..33).map(|n| (format!("^a{n}$"), json!({}))).collect();
    let around: Map<String, Value> = (0..9)
        .map(|n| {
            let others: Vec<Value> =
                (0..9).filter(|m| *m != n).map(|m| json!({"$ref": format!("#/$defs/{m}")})).collect();
            (n.to_string(), json!({"anyOf": others}))
        })
        .collect();
    let names: Map<String, Value> = (0..200).map(|n| (n.to_string(), json!({}))).collect();
    for (schema, word) in [
        (json!({"enum": wide}), "parts"),
        (json!({"oneOf": (0..9_000).map(|n| json!({"const": n})).collect::<Vec<_>>()}), "parts"),
        (json!({"patternProperties": patterns}), "patterns"),
        (json!({"$dynamicRef": "#node", "$dynamicAnchor": "node"}), "$dynamicRef"),
        (json!({"properties": {"a": {"$recursiveRef": "#"}}}), "$recursiveRef"),
        (json!({"properties": {"a": {"$ref": "http://127.0.0.1/a.json"}}}), "names no part"),
        (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "names no part"),
        (json!({"$defs": {"a": {"$id": "b"}}, "$ref": "#/$defs/a"}), "at the root alone"),
        (json!({"properties": {"a": {"pattern": "^(?=.*a)(?=.*b)"}}}), "plain regular expression"),
        (json!({"properties": {"a": {"pattern": "^(a|b)\\1$"}}}), "plain regular expression"),
        (json!({"properties": {"a": {"pattern": "((a{1,100}){1,100}){1,100}"}}}), "plain regular expression"),
        (nested(70, "not", json!({})), "deep"),
        (json!({"$defs": around, "$ref": "#/$defs/0"}), "parts"),
        // The compiler keeps a part's name with each part below it.
        (json!({"properties": {"x".repeat(20_000): {"properties": names}}}), "parts"),
    ] {
        let shown = schema.to_string().chars().take(100).collect::<String>();
        match compile(schema) {
            Err(refusal) => assert!(refusal.to_string().contains(word), "{shown}: {refusal}"),
            Ok(_) => panic!("{shown} is taken"),
        }
    }
}

#[test]
fn nested_unevaluated_fields_do_not_multiply() {
    let mut schema = json!({"properties": {"a": {}}});
    for level in 0..40 {
        schema = json!({"allOf": [schema], "properties": {level.to_string(): {}}, "unevaluatedProperties": false});
    }
    assert_eq!(compile(schema).err(), Some(Refusal::TooLarge { most: 8192 }));
    let flattened = json!({
        "$defs": {"inner": {"type": "object", "properties": {"b": {"type": "integer"}}}},
        "allOf": [{"$ref": "#/$defs/inner"}], "properties": {"a": {}}, "unevaluatedProperties": false,
    });
    let flattened = compile(flattened).unwrap();
    assert_eq!(wrong(&flattened, &json!({"a": 1, "b": 2})), Ok(0));
    assert_eq!(wrong(&flattened, &json!({"a": 1, "c": 2})), Ok(1));
}

#[test]
fn a_schema_may_refer_to_itself() {
    let tree = compile(json!({
        "type": "object", "additionalProperties": false,
        "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    }))
    .unwrap();
    assert_eq!(wrong(&tree, &json!({"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]})), Ok(0));
    assert_eq!(wrong(&tree, &json!({"children": [{"children": [{"value": "x"}]}]})), Ok(1));
    // About as deep as JSON parsers accept.
    let deep = (0..50).fold(json!({"value": "x"}), |inner, _| json!({"children": [inner]}));
    assert_eq!(wrong(&tree, &deep), Ok(1));

    let mutual = compile(json!({
        "$defs": {
            "even": {"properties": {"next": {"$ref": "#/$defs/odd"}}},
            "odd": {"required": ["next"], "properties": {"next": {"$ref": "#/$defs/even"}}},
        },
        "$ref": "#/$defs/even",
    }))
    .unwrap();
    assert_eq!(wrong(&mutual, &nested(4, "next", json!({}))), Ok(0));
    assert_eq!(wrong(&mutual, &nested(5, "next", json!({}))), Ok(1));
}

#[test]
fn a_document_that_is_too_expensive_is_refused_before_it_is_validated() {
    let twice = json!({"$ref": "#"});
    let doubling = json!({"allOf": [{"properties": {"a": twice}}, {"properties": {"a": twice}}]});
    let in_place = json!({"anyOf": [{"type": "null"}, {"properties": {"a": twice}}, {"properties": {"a": twice}}]});
    let numbers: Vec<Value> = (0..30_000).map(Value::from).collect();
    let names: Map<String, Value> = (0..3_000).map(|n| (format!("n{n}"), Value::Null)).collect();
    let words: Vec<Value> = (0..1_000).map(|n| json!(format!("word {n}"))).collect();
    for (schema, document) in [
        (doubling, nested(40, "a", json!({}))),
        (in_place, nested(40, "a", json!({}))),
        (json!({"properties": {"a": {"uniqueItems": true}}}), json!({"a": numbers})),
        (json!({"additionalProperties": {"enum": words}}), Value::Object(names.clone())),
        (json!({"propertyNames": {"pattern": "^(n[0-9]{1,9}){1,40}$"}}), Value::Object(names.clone())),
        (json!({"patternProperties": {"^(n[0-9]{1,9}){1,40}$": {}}}), Value::Object(names)),
        (json!({"properties": {"a": {"pattern": "([a-z]{1,30}[0-9]{1,30}){5}x"}}}), json!({"a": "a1".repeat(8_000)})),
        (json!({"$ref": "#"}), json!({})),
        (json!({"allOf": [{"$ref": "#"}]}), json!({})),
    ] {
        let shown = schema.to_string().chars().take(100).collect::<String>();
        let schema = compile(schema).unwrap_or_else(|refusal| panic!("{shown}: {refusal}"));
        assert_eq!(wrong(&schema, &document), Err(Spent { most: STEPS }), "{shown}");
    }
}

/// About a hundred times the real duration.
const MAX_DURATION: Duration = Duration::from_secs(1);

/// The steps correspond to time: a document within the budget is validated quickly.
#[test]
fn what_is_within_the_budget_does_not_take_long() {
    let words: Vec<Value> = (0..500).map(|n| json!(format!("word {n}"))).collect();
    let anything = json!({"anyOf": [{"type": "null"}, {"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
    let fields = |most: usize| Value::Object((0..most).map(|n| (format!("n{n}"), json!(n))).collect());
    let cases: [(Value, &dyn Fn(usize) -> Value); 6] = [
        (anything, &|size| nested(size, "a", json!({"b": 1}))),
        (json!({"additionalProperties": {"enum": words}}), &fields),
        (
            json!({"additionalProperties": {"anyOf": [{"type": "string"}, {"type": "null"}, {"minimum": 1_000_000}]}}),
            &fields,
        ),
        (json!({"propertyNames": {"pattern": "^(n[0-9]{1,9}){1,40}x$"}}), &fields),
        (json!({"items": {"type": "string"}}), &|size| Value::Array((0..size).map(Value::from).collect())),
        (
            json!({"allOf": [{"properties": {"b": {}}}, {"anyOf": [{"required": ["b"]}, {"properties": {"c": {}}}]}], "unevaluatedProperties": {"type": "string"}}),
            &fields,
        ),
    ];
    for (schema, document) in cases {
        let compiled = compile(schema.clone()).unwrap();
        let mut slowest = Duration::ZERO;
        for size in 1..200 {
            let document = document(size * 4);
            let Some(time) = time(&compiled, &document) else {
                if size > 100 {
                    break;
                }
                continue;
            };
            slowest = slowest.max(time);
        }
        println!("{slowest:?} {}", schema.to_string().chars().take(80).collect::<String>());
        assert!(slowest < MAX_DURATION, "{slowest:?} for {schema}");
    }
}

/// The time of a validation within the budget, the fastest of several, since a busy machine may delay some; `None` beyond
/// the budget.
fn time(schema: &Schema, document: &Value) -> Option<Duration> {
    let mut quickest = Duration::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        wrong(schema, document).ok()?;
        quickest = quickest.min(start.elapsed());
        if quickest < MAX_DURATION {
            break;
        }
    }
    Some(quickest)
}

#[test]
fn each_keyword_is_judged_as_before() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object", "additionalProperties": false, "required": ["a"], "minProperties": 1,
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 9, "multipleOf": 3},
            "b": {"oneOf": [{"const": "x"}, {"const": "y"}]},
            "c": {"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            "d": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
            "e": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}},
        },
        "dependentRequired": {"b": ["c"]},
    });
    let compiled = compile(schema.clone()).unwrap();
    let before = jsonschema::validator_for(&schema).unwrap();
    for document in [
        json!({"a": 3}),
        json!({"a": 4, "b": "z", "c": ["x", 1, 1], "d": "ABCD", "e": "1"}),
        json!({"b": "x", "e": 1, "f": 2}),
        json!({"a": 3, "b": "x", "c": ["s", 1, 2], "d": "abc", "e": null}),
        json!([]),
    ] {
        let budget = Budget::of(STEPS);
        let told = |error: &jsonschema::ValidationError<'_>| error.to_string();
        let now: Vec<String> = compiled.errors(&document, &budget).unwrap().iter().map(told).collect();
        let then: Vec<String> = before.iter_errors(&document).map(|error| told(&error)).collect();
        assert_eq!(now, then, "{document}");
        assert!(budget.used() > 0 && budget.used() < 500, "{} steps for {document}", budget.used());
    }
}
