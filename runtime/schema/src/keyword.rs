//! Keywords that contain schemas, and the values to which these are applied.

use serde_json::{Map, Value};

/// The values to which a schema below a keyword is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The value itself; errors of the schema are errors of the value.
    InPlace,
    /// The value itself; only whether it is valid counts.
    InPlaceAsTest,
    /// The value itself: first whether it is valid, then its errors.
    InPlaceTwice,
    /// The field of this name.
    Field,
    /// Each field whose name matches a pattern.
    FieldsByPattern,
    /// Each field that `properties` does not list.
    OtherFields,
    /// Each field that no other keyword evaluates.
    UnevaluatedFields,
    /// Each field's name.
    Names,
    /// The element at this position.
    Element(usize),
    /// Each element.
    Elements,
    /// Each element; only whether it is valid counts.
    ElementsAsTest,
    /// Each element that no other keyword evaluates.
    UnevaluatedElements,
}

/// Keywords of references whose target depends on the evaluation path.
pub(crate) const UNBOUNDED: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Keywords with schemas that apply only by reference.
const KEPT: [&str; 2] = ["$defs", "definitions"];

/// Calls `each` for every schema directly below a schema, with the field's name or pattern if the keyword has names, the
/// values to which the schema is applied, and the schema.
pub(crate) fn beneath<'s, E>(
    schema: &'s Map<String, Value>,
    mut each: impl FnMut(Option<&'s str>, Applied, &'s Value) -> Result<(), E>,
) -> Result<(), E> {
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("allOf", Value::Array(branches)) => {
                branches.iter().try_for_each(|branch| each(None, Applied::InPlace, branch))?;
            }
            ("anyOf" | "oneOf", Value::Array(branches)) => {
                branches.iter().try_for_each(|branch| each(None, Applied::InPlaceTwice, branch))?;
            }
            ("then" | "else", value) => each(None, Applied::InPlace, value)?,
            ("if", value) => each(None, Applied::InPlaceTwice, value)?,
            ("not", value) => each(None, Applied::InPlaceAsTest, value)?,
            // The other form of `dependencies`, lists of names, contains no schemas.
            ("dependentSchemas" | "dependencies", Value::Object(schemas)) => schemas
                .values()
                .filter(|schema| schema.is_object() || schema.is_boolean())
                .try_for_each(|schema| each(None, Applied::InPlace, schema))?,
            ("properties", Value::Object(schemas)) => {
                schemas.iter().try_for_each(|(name, schema)| each(Some(name), Applied::Field, schema))?;
            }
            ("patternProperties", Value::Object(schemas)) => schemas
                .iter()
                .try_for_each(|(pattern, schema)| each(Some(pattern), Applied::FieldsByPattern, schema))?,
            ("additionalProperties", value) => each(None, Applied::OtherFields, value)?,
            ("unevaluatedProperties", value) => each(None, Applied::UnevaluatedFields, value)?,
            ("propertyNames", value) => each(None, Applied::Names, value)?,
            ("prefixItems" | "items", Value::Array(schemas)) => schemas
                .iter()
                .enumerate()
                .try_for_each(|(index, schema)| each(None, Applied::Element(index), schema))?,
            ("items" | "additionalItems", value) => each(None, Applied::Elements, value)?,
            ("contains", value) => each(None, Applied::ElementsAsTest, value)?,
            ("unevaluatedItems", value) => each(None, Applied::UnevaluatedElements, value)?,
            _ => {}
        }
    }
    Ok(())
}

/// The number of values in a schema, without the schemas below it.
pub(crate) fn own_size(schema: &Map<String, Value>) -> u64 {
    schema.iter().fold(1, |sum: u64, (keyword, value)| sum.saturating_add(own_size_of(keyword, value)))
}

fn own_size_of(keyword: &str, value: &Value) -> u64 {
    match (keyword, value) {
        // These schemas apply only by reference.
        (keyword, _) if KEPT.contains(&keyword) => 0,
        // Annotations for readers.
        ("title" | "description" | "$comment" | "examples" | "default", _) => 1,
        ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => count(schemas.len()),
        ("items", Value::Array(schemas)) => count(schemas.len()),
        ("properties" | "patternProperties" | "dependentSchemas", Value::Object(schemas)) => count(schemas.len()),
        ("dependencies", Value::Object(schemas)) => schemas.values().fold(1, |sum: u64, value| match value {
            Value::Array(names) => sum.saturating_add(count(names.len())),
            _ => sum.saturating_add(1),
        }),
        (
            "not"
            | "if"
            | "then"
            | "else"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "items"
            | "additionalItems"
            | "contains"
            | "unevaluatedItems",
            _,
        ) => 1,
        (_, value) => size(value),
    }
}

/// The number of values in a document; a long text counts as several.
pub(crate) fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text_size(text),
        Value::Array(elements) => elements.iter().fold(1, |sum: u64, element| sum.saturating_add(size(element))),
        Value::Object(fields) => fields
            .iter()
            .fold(1, |sum: u64, (name, value)| sum.saturating_add(text_size(name)).saturating_add(size(value))),
    }
}

/// Steps of reading a text.
pub(crate) fn text_size(text: &str) -> u64 {
    1 + count(text.len() / 32)
}

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The part of a schema that a reference names.
pub(crate) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(reference.strip_prefix('#')?)
}
