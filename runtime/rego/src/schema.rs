//! `json.match_schema` and `json.verify_schema`, by the crate `jsonschema`.
//!
//! References are put in place first: what is left then takes at most its size times the document's, whoever wrote it.

use std::collections::BTreeMap;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value as Json};

use crate::builtin::{Fault, Outcome};
use crate::operand::Operands;
use crate::{Context, Value, limit};

/// Parts of a schema once its references are in place.
const MOST_PARTS: usize = 8_192;

/// Complaints about one document; those after them are left out.
const MOST_COMPLAINTS: usize = 100;

/// Keywords under which names stand, and under these the schemas.
const OF_NAMES: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords under which no schemas stand.
const OF_VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// `[true, null]`, or `[false, why]`.
pub(crate) fn verify_schema(arguments: &[Value], _: &Context) -> Outcome {
    let verdict = match document(Operands(arguments).any(0)?).and_then(|schema| validator(&schema)) {
        Ok(_) => [Value::Bool(true), Value::Null],
        Err(Fault(reason)) => [Value::Bool(false), Value::from(format!("jsonschema: {reason}"))],
    };
    Ok(Some(Value::Array(verdict.to_vec())))
}

/// `[whether it matches, complaints]`.
pub(crate) fn match_schema(arguments: &[Value], _: &Context) -> Outcome {
    let operands = Operands(arguments);
    let instance = document(operands.any(0)?)?;
    let schema = document(operands.any(1)?)?;
    let (validator, parts) = validator(&schema)?;
    if size(&instance).saturating_mul(parts) > limit::STEPS {
        return Err("the document and the schema are too large".into());
    }
    let complaints: Vec<Value> = validator
        .iter_errors(&instance)
        .take(MOST_COMPLAINTS)
        .map(|error| {
            let path = error.instance_path().to_string();
            let field = match path.trim_start_matches('/') {
                "" => "(root)".to_owned(),
                path => path.replace('/', "."),
            };
            let mut words = error.to_string();
            words.truncate(words.floor_char_boundary(limit::LOG_LINE_BYTES));
            let complaint = [
                ("error", format!("{field}: {words}")),
                ("type", error.kind().keyword().to_owned()),
                ("field", field),
                ("desc", words),
            ];
            let complaint = complaint.map(|(name, text)| (Value::from(name), Value::from(text)));
            Value::Object(BTreeMap::from(complaint))
        })
        .collect();
    Ok(Some(Value::Array(vec![Value::Bool(complaints.is_empty()), Value::Array(complaints)])))
}

/// A document: JSON text, or a collection.
fn document(value: &Value) -> Result<Json, Fault> {
    match value {
        Value::String(text) => serde_json::from_str(text).map_err(|_| "invalid JSON string".into()),
        Value::Object(_) | Value::Array(_) => serde_json::to_value(value).map_err(|error| error.to_string().into()),
        _ => Err("wrong type, expected string or object".into()),
    }
}

/// What judges documents, and how many parts it has.
fn validator(schema: &Json) -> Result<(Validator, usize), Fault> {
    let draft = schema.get("$schema").and_then(Json::as_str);
    let mut inliner = Inliner {
        root: schema,
        // From 2019 on what stands beside a reference counts too.
        keeps_siblings: draft.is_some_and(|draft| draft.contains("2019-09") || draft.contains("2020-12")),
        open: Vec::new(),
        parts: 0,
    };
    let inlined = inliner.schema(schema)?;
    let parts = inliner.parts;
    let patterns = PatternOptions::regex().size_limit(limit::COMPILED_BYTES).dfa_size_limit(limit::COMPILED_BYTES * 4);
    let mut options = jsonschema::options().with_pattern_options(patterns);
    if draft.is_none() {
        options = options.with_draft(Draft::Draft7);
    }
    let validator = options.build(&inlined).map_err(|error| error.to_string())?;
    Ok((validator, parts))
}

/// Values in a document.
fn size(value: &Json) -> usize {
    let inner = match value {
        Json::Array(elements) => elements.iter().map(size).fold(0, usize::saturating_add),
        Json::Object(pairs) => pairs.values().map(size).fold(0, usize::saturating_add),
        // Patterns read a text to its end.
        Json::String(text) => text.len() / 32,
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    };
    inner.saturating_add(1)
}

/// Puts what references name in their place.
struct Inliner<'a> {
    root: &'a Json,
    keeps_siblings: bool,
    /// References that are being followed.
    open: Vec<String>,
    parts: usize,
}

impl Inliner<'_> {
    fn schema(&mut self, schema: &Json) -> Result<Json, Fault> {
        self.parts = self.parts.saturating_add(1);
        if self.parts > MOST_PARTS {
            return Err("the schema is too large".into());
        }
        let Json::Object(keywords) = schema else { return Ok(schema.clone()) };
        let mut inlined = Map::new();
        for (keyword, value) in keywords {
            let value = match (keyword.as_str(), value) {
                ("$ref", Json::String(_)) | ("definitions" | "$defs", _) => continue,
                ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("`{keyword}` is not known here").into()),
                (keyword, value) if OF_VALUES.contains(&keyword) => {
                    self.parts = self.parts.saturating_add(size(value));
                    value.clone()
                }
                (keyword, Json::Object(names)) if OF_NAMES.contains(&keyword) => {
                    let named = names.iter().map(|(name, schema)| Ok((name.clone(), self.schema(schema)?)));
                    Json::Object(named.collect::<Result<_, Fault>>()?)
                }
                (_, Json::Array(schemas)) => {
                    Json::Array(schemas.iter().map(|schema| self.schema(schema)).collect::<Result<_, _>>()?)
                }
                (_, value) => self.schema(value)?,
            };
            inlined.insert(keyword.clone(), value);
        }
        let Some(Json::String(reference)) = keywords.get("$ref") else { return Ok(Json::Object(inlined)) };
        let target = self.target(reference)?;
        if !self.keeps_siblings || inlined.is_empty() {
            return Ok(target);
        }
        Ok(Json::Object(Map::from_iter([("allOf".to_owned(), Json::Array(vec![target, Json::Object(inlined)]))])))
    }

    fn target(&mut self, reference: &str) -> Result<Json, Fault> {
        let pointer =
            reference.strip_prefix('#').ok_or_else(|| format!("`$ref` {reference} is no part of the schema"))?;
        if self.open.iter().any(|open| open == reference) {
            return Err(format!("`$ref` {reference} goes around in a circle").into());
        }
        let root = self.root;
        let target = root.pointer(pointer).ok_or_else(|| format!("`$ref` {reference} names nothing"))?;
        self.open.push(reference.to_owned());
        let inlined = self.schema(target);
        self.open.pop();
        inlined
    }
}
