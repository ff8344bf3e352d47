//! Properties of values: their text parses to an equal value, their order is total, and JSON keeps what it can represent.

use std::cmp::Ordering;

use proptest::prelude::*;
use qosm_rego::{Number, Value, limit};

fn numbers() -> impl Strategy<Value = Value> {
    let decimal = "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,10})?([eE][+-]?[0-9]{1,3})?";
    prop_oneof![
        any::<i64>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        decimal.prop_map(|text| Value::Number(Number::parse(&text).unwrap())),
    ]
}

fn values() -> impl Strategy<Value = Value> {
    let scalars = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        numbers(),
        any::<String>().prop_map(Value::String),
        "[a-c]{0,2}".prop_map(Value::String),
    ];
    scalars.prop_recursive(4, 48, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_set(inner.clone(), 0..4).prop_map(Value::Set),
            prop::collection::btree_map(inner.clone(), inner, 0..4).prop_map(Value::Object),
        ]
    })
}

proptest! {
    #[test]
    fn the_text_of_a_value_reads_back(value in values()) {
        let text = value.to_string();
        let read = Value::parse(&text).unwrap();
        prop_assert_eq!(&read, &value);
        prop_assert_eq!(read.to_string(), text, "with its numbers as they were written");
    }

    #[test]
    fn the_order_is_total(a in values(), b in values(), c in values()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
    }

    #[test]
    fn numbers_are_ordered_by_what_they_are_worth(a: f64, b: f64) {
        let number = |float: f64| Number::from_f64(float);
        if let (Some(one), Some(other)) = (number(a), number(b)) {
            prop_assert_eq!(Some(one.cmp(&other)), a.partial_cmp(&b));
            prop_assert_eq!(one.as_f64(), a);
        }
    }

    #[test]
    fn json_reads_back_where_it_can_say_the_value(value in values()) {
        let json = Value::from_json(&value.to_json()).unwrap();
        prop_assert_eq!(json.to_json(), Value::from_json(&json.to_json()).unwrap().to_json());
        if is_json(&value) {
            prop_assert_eq!(&json, &value);
            match serde_json::from_str::<Value>(&value.to_json()) {
                Ok(through_serde) => prop_assert_eq!(through_serde.type_name(), value.type_name()),
                // Floats have a limited range, these numbers have not.
                Err(error) => prop_assert!(error.to_string().contains("out of range"), "{}", error),
            }
        }
    }

    #[test]
    fn no_text_upsets_the_reader(text: String) {
        let _ = (Value::parse(&text), Value::from_json(&text));
    }
}

fn is_json(value: &Value) -> bool {
    match value {
        Value::Set(_) => false,
        Value::Array(elements) => elements.iter().all(is_json),
        Value::Object(pairs) => pairs.iter().all(|(key, value)| key.as_str().is_some() && is_json(value)),
        _ => true,
    }
}

#[test]
fn types_are_ordered_as_opa_orders_them() {
    let ordered = [
        "null", "false", "true", "-1", "0.5", "2", "\"\"", "\"a\"", "\"b\"", "[]", "[1]", "{}", "{1: 2}", "set()",
        "{1}",
    ];
    let values: Vec<Value> = ordered.iter().map(|text| Value::parse(text).unwrap()).collect();
    assert!(values.is_sorted_by(|one, other| one < other));
}

#[test]
fn what_the_module_writes_is_read() {
    for (text, written) in [
        ("{1,2 , \"a\"}", "{1, 2, \"a\"}"),
        ("set( )", "set()"),
        ("{ }", "{}"),
        ("{[1]: {true: null}, \"a\": set()}", "{\"a\": set(), [1]: {true: null}}"),
        ("[1.50, 1e3, -0, 12345678901234567890]", "[1.50, 1e3, -0, 12345678901234567890]"),
        (r#""\u00e9\ud83d\ude00\ud800\/""#, "\"é😀\u{fffd}/\""),
        ("[0500, 00, -05, 00.5]", "[500, 0, -5, 0.5]"),
        ("{1, 1.0}", "{1}"),
        ("{\"a\": 1, \"a\": 2}", "{\"a\": 2}"),
    ] {
        assert_eq!(Value::parse(text).map(|value| value.to_string()).as_deref(), Ok(written), "{text}");
    }
}

#[test]
fn what_is_no_value_is_refused() {
    for text in [
        "",
        "nul",
        "1 2",
        "[1,]",
        "[1 2]",
        "{1: 2, 3}",
        "{1, 2: 3}",
        "{,}",
        "{1,}",
        "set(1)",
        "set",
        ".",
        "e5",
        "1..",
        "+1",
        "--1",
        "1e",
        "NaN",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\n\"",
        "{\"a\" 1}",
        "[",
        "{",
        "\"\\ud800",
    ] {
        assert!(Value::parse(text).is_err(), "{text}");
    }
    for text in ["{1: 2}", "{1}", "set()", "{\"a\"}", "1.", ".5", "[.5]", "01"] {
        assert!(Value::from_json(text).is_err(), "{text}");
    }
}

#[test]
fn a_number_that_cannot_be_read_is_quoted() {
    let long = "1".repeat(limit::DIGITS + 1);
    for (text, quoted) in [("[7, 1e]", "1e"), ("{\"a\": .}", "."), ("-", "-"), ("e5", "e5"), (&long, &long[..64])] {
        let error = Value::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("`{quoted}` is not a number, or one whose digits or exponent exceed 4096"));
    }
}

#[test]
fn nesting_and_numbers_are_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Value::parse(&nested(limit::DEPTH)).is_ok());
    assert!(Value::parse(&nested(limit::DEPTH + 2)).is_err());
    assert!(Value::parse(&"{".repeat(100_000)).is_err());
    for number in ["1e999999999", "1e-999999999", "1e99999999999999999999"] {
        assert_eq!(Number::parse(number), None);
    }
    assert_eq!(Number::parse(&"1".repeat(limit::DIGITS + 1)), None);
}
