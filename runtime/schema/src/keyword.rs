//! Which keywords of a schema hold schemas, and to what these are applied.

use serde_json::{Map, Value};

/// To what a schema beneath a keyword is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// To the value itself, and its complaints are the value's complaints.
    InPlace,
    /// To the value itself; only whether it fits counts.
    InPlaceAsTest,
    /// To the value itself: first whether it fits, then its complaints.
    InPlaceTwice,
    /// To the field of this name.
    Field,
    /// To each field whose name a pattern takes.
    FieldsByPattern,
    /// To each field that `properties` does not list.
    OtherFields,
    /// To each field that no other keyword evaluates.
    UnevaluatedFields,
    /// To each field's name.
    Names,
    /// To the element at this position.
    Element(usize),
    /// To each element.
    Elements,
    /// To each element; only whether it fits counts.
    ElementsAsTest,
    /// To each element that no other keyword evaluates.
    UnevaluatedElements,
}

/// Keywords whose references do not say by themselves where they lead.
pub(crate) const UNBOUNDED: [&str; 2] = ["$dynamicRef", "$recursiveRef"];

/// Keywords with schemas that apply only by reference.
const KEPT: [&str; 2] = ["$defs", "definitions"];

/// Calls `each` for every schema that stands directly beneath one: the keyword's name, the name or pattern of the field where the
/// keyword has names, what the schema is applied to, and the schema.
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
            // Of the other form of `dependencies`, lists of names, nothing is applied.
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

/// What a schema itself holds beside the schemas beneath it, in values.
pub(crate) fn own_size(schema: &Map<String, Value>) -> u64 {
    schema.iter().fold(1, |sum: u64, (keyword, value)| sum.saturating_add(own_size_of(keyword, value)))
}

fn own_size_of(keyword: &str, value: &Value) -> u64 {
    match (keyword, value) {
        // Nothing is held against these here.
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

/// Values in a document; a long text counts for more than one.
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

/// What it takes to read a text.
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
