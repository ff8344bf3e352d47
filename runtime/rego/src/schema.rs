//! `json.match_schema` and `json.verify_schema`, with the crate `jsonschema`; and [`Schema`], for other crates that check
//! third-party schemas.
//!
//! That crate cannot be interrupted, so its cost is counted in advance: references are replaced by their targets, and
//! then schema and document are walked as the crate will walk them. The walk itself costs about as much as it charges,
//! and stops when the budget is spent.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value as Json};

use crate::budget::Spent;
use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::Operands;
use crate::pattern::{Kind, Pattern};
use crate::{Context, Value, limit, re2, weight};

/// Maximum number of violations that are reported for one document.
const MAX_VIOLATIONS: usize = 100;

/// Keywords whose value is an object of schemas by name.
const OF_NAMES: [&str; 4] = ["dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Keywords whose value contains no schemas.
const OF_VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// Work and memory of compiling an object in a schema, which is also validated against the draft's meta-schema.
const PART: (usize, usize) = (14_000, 4_096);
/// Like [`PART`], for any other value in a schema.
const VALUE: (usize, usize) = (2_500, 512);

/// Work and memory of a keyword that checks a value and may report a violation.
const EVALUATION: (usize, usize) = (150, 400);

/// Maximum bytes of an automaton of the crate `regex` during a search, in each direction.
const SEARCH_BYTES: usize = 256 * 1024;

/// Work of one state of such an automaton for each byte of a text.
const STATE: usize = 12;

/// A schema, compiled within the budget of an evaluation.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    /// The schema with references replaced by their targets.
    inlined: Json,
    /// Number of states of each pattern's automaton.
    patterns: HashMap<String, usize>,
}

/// Why a schema or a document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema or document exceeds the [`Budget`](crate::Budget) of the [`Context`].
    #[error("it takes more {0} than it may: it has too many parts, references or patterns, or too large ones")]
    Spent(Spent),
    /// The schema is invalid or uses an unsupported keyword.
    #[error("{0}")]
    Wrong(String),
}

/// A violation of a schema by a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The place, as names separated by points; `(root)` for the whole document.
    pub field: String,
    /// The violated keyword of the schema.
    pub keyword: String,
    /// The message, cut to a maximum length.
    pub words: String,
}

impl Schema {
    /// Compiles a schema. The default is draft 7, unless `$schema` names another.
    ///
    /// # Errors
    ///
    /// If the schema is invalid, if its references leave the document or are circular, or if the budget is spent.
    pub fn new(schema: &Json, context: &Context) -> Result<Self, SchemaError> {
        Self::compile(schema, context).map_err(|fault| of(fault, context))
    }

    /// The violations of a document, at most 100.
    ///
    /// # Errors
    ///
    /// If the check would exceed the budget.
    pub fn violations(&self, document: &Json, context: &Context) -> Result<Vec<Violation>, SchemaError> {
        self.judge(document, context).map_err(|fault| of(fault, context))
    }

    fn compile(schema: &Json, context: &Context) -> Result<Self, Fault> {
        let draft = schema.get("$schema").and_then(Json::as_str);
        let mut inliner = Inliner {
            root: schema,
            // From draft 2019-09 on, keywords beside a reference apply too.
            keeps_siblings: draft.is_some_and(|draft| draft.contains("2019-09") || draft.contains("2020-12")),
            open: Vec::new(),
            patterns: HashMap::new(),
            context,
        };
        let inlined = inliner.schema(schema)?;
        let patterns = inliner.patterns;
        let pattern_options = PatternOptions::regex().size_limit(limit::COMPILED_BYTES).dfa_size_limit(SEARCH_BYTES);
        let mut options = jsonschema::options()
            .with_pattern_options(pattern_options)
            // Go's syntax of regular expressions. The crate's own check would compile the expression without a size limit.
            .with_format("regex", |text| text.len() <= limit::PATTERN_BYTES && re2::translate(text).is_ok());
        if draft.is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        let validator = options.build(&inlined).map_err(|error| cut(&error))?;
        Ok(Self { validator, inlined, patterns })
    }

    fn judge(&self, document: &Json, context: &Context) -> Result<Vec<Violation>, Fault> {
        let walk = Walk { patterns: &self.patterns, grown: RefCell::default(), context };
        walk.judge(&self.inlined, document, 0, 1)?;
        let mut violations = Vec::new();
        for error in self.validator.iter_errors(document).take(MAX_VIOLATIONS) {
            let path = error.instance_path().to_string();
            let words = cut(&error);
            let length = path.len().saturating_mul(4).saturating_add(words.len().saturating_mul(4));
            context.charge(length.saturating_add(1_024))?;
            context.work(length.saturating_mul(8).saturating_add(2_000))?;
            let field = match path.trim_start_matches('/') {
                "" => "(root)".to_owned(),
                path => path.replace('/', "."),
            };
            violations.push(Violation { field, keyword: error.kind().keyword().to_owned(), words });
        }
        Ok(violations)
    }
}

fn of(fault: Fault, context: &Context) -> SchemaError {
    match context.spent() {
        Some(spent) => SchemaError::Spent(spent),
        None => SchemaError::Wrong(excerpt(&fault.0).to_owned()),
    }
}

/// The message of an error, cut to the length of a line, since it may quote the whole document.
fn cut(error: &impl std::fmt::Display) -> String {
    struct Line(String);
    impl Write for Line {
        fn write_str(&mut self, part: &str) -> std::fmt::Result {
            let room = limit::LOG_LINE_BYTES.saturating_sub(self.0.len());
            let kept = part.get(..part.floor_char_boundary(room)).unwrap_or_default();
            self.0.push_str(kept);
            if kept.len() < part.len() { Err(std::fmt::Error) } else { Ok(()) }
        }
    }
    let mut line = Line(String::new());
    // An error here only means that the message was cut.
    let _ = write!(line, "{error}");
    line.0
}

/// `json.verify_schema`: returns `[true, null]` or `[false, reason]`.
pub(crate) fn verify_schema(arguments: &[Value], context: &Context) -> Outcome {
    let schema = document(Operands(arguments).any(0)?, context);
    let provider = match schema.and_then(|schema| Schema::compile(&schema, context)) {
        Ok(_) => [Value::Bool(true), Value::Null],
        Err(Fault(reason)) => [Value::Bool(false), Value::from(format!("jsonschema: {}", excerpt(&reason)))],
    };
    Ok(Some(Value::Array(provider.to_vec())))
}

/// `json.match_schema`: returns `[whether it matches, violations]`.
pub(crate) fn match_schema(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let instance = document(operands.any(0)?, context)?;
    let schema = Schema::compile(&document(operands.any(1)?, context)?, context)?;
    let violations = schema.judge(&instance, context)?.into_iter().map(|Violation { field, keyword, words }| {
        let complaint = [("error", format!("{field}: {words}")), ("type", keyword), ("field", field), ("desc", words)];
        Value::Object(complaint.into_iter().map(|(name, text)| (Value::from(name), Value::from(text))).collect())
    });
    let violations: Vec<Value> = violations.collect();
    Ok(Some(Value::Array(vec![Value::Bool(violations.is_empty()), Value::Array(violations)])))
}

/// Reads a document: JSON text, or an object or array.
fn document(value: &Value, context: &Context) -> Result<Json, Fault> {
    match value {
        Value::String(text) => {
            let read = Value::from_json_in(text, context).map_err(|_| Fault::from("invalid JSON string"))?;
            json(&read, context)
        }
        Value::Object(_) | Value::Array(_) => json(value, context),
        _ => Err("wrong type, expected string or object".into()),
    }
}

/// Converts a value to `serde_json`. Keys within keys double the text at each level, up to the bound of a text.
fn json(value: &Value, context: &Context) -> Result<Json, Fault> {
    let weight = value.weight();
    context.charge(weight.saturating_mul(2))?;
    context.work(weight.saturating_mul(4))?;
    serde_json::to_value(value).map_err(|error| {
        // A key's text was built up to its bound.
        let _ = context.work(limit::TEXT_BYTES * 8);
        error.to_string().into()
    })
}

/// Approximate bytes of a value, a measure for the cost of comparing or copying it.
fn size(value: &Json) -> usize {
    let inner = match value {
        Json::Array(elements) => elements.iter().map(size).fold(0, usize::saturating_add),
        Json::Object(pairs) => {
            let both = |(key, value): (&String, &Json)| key.len().saturating_add(size(value));
            pairs.iter().map(both).fold(0, usize::saturating_add)
        }
        Json::String(text) => text.len(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    };
    inner.saturating_add(weight::ELEMENT)
}

/// Walks a schema and a document as the crate `jsonschema` will.
struct Walk<'a> {
    patterns: &'a HashMap<String, usize>,
    /// Bytes to which each pattern's automaton may have grown.
    grown: RefCell<HashMap<&'a str, usize>>,
    context: &'a Context,
}

impl<'a> Walk<'a> {
    /// Charges for checking a value against a schema. `path` is the length of the value's path, and `times` the number of
    /// checks: in `anyOf` and similar, each schema is first checked for a match and then for its violations.
    fn judge(&self, schema: &'a Json, value: &Json, path: usize, times: usize) -> Result<(), Fault> {
        let (work, weight) = EVALUATION;
        self.work(work, times)?;
        let Json::Object(keywords) = schema else { return Ok(()) };
        for (keyword, asked) in keywords {
            self.work(work, times)?;
            self.context.charge(weight.saturating_add(path))?;
            match (keyword.as_str(), asked) {
                ("properties", Json::Object(names)) => {
                    self.work(names.len().saturating_mul(60), times)?;
                    for (name, asked) in names {
                        if let Some(value) = value.get(name) {
                            self.judge(asked, value, path.saturating_add(name.len()).saturating_add(1), times)?;
                        }
                    }
                }
                ("patternProperties", Json::Object(patterns)) => {
                    for (pattern, asked) in patterns {
                        for (key, value) in value.as_object().into_iter().flatten() {
                            // Fields are matched against the patterns a second time to find additional ones.
                            self.search(pattern, key, times.saturating_mul(2))?;
                            self.judge(asked, value, path.saturating_add(key.len()).saturating_add(1), times)?;
                        }
                    }
                }
                ("dependencies" | "dependentSchemas", Json::Object(names)) => {
                    for (name, asked) in names {
                        if value.get(name).is_some() {
                            self.judge(asked, value, path, times)?;
                            self.work(size(asked), times)?;
                        }
                    }
                }
                ("allOf", Json::Array(all)) => {
                    all.iter().try_for_each(|asked| self.judge(asked, value, path, times))?
                }
                ("anyOf" | "oneOf", Json::Array(all)) => {
                    let times = times.saturating_mul(3);
                    all.iter().try_for_each(|asked| self.judge(asked, value, path, times))?;
                }
                ("not" | "if" | "then" | "else", asked) => self.judge(asked, value, path, times.saturating_mul(3))?,
                ("propertyNames", asked) => {
                    for key in value.as_object().into_iter().flatten().map(|(key, _)| key) {
                        self.work(key.len(), times)?;
                        self.context.charge(key.len())?;
                        self.judge(asked, &Json::String(key.clone()), path, times)?;
                    }
                }
                ("unevaluatedProperties" | "unevaluatedItems", asked) => {
                    // All keywords beside it are checked again.
                    self.children(asked, value, path, times.saturating_mul(3))?;
                    self.work(size(schema), times)?;
                    self.context.charge(size(schema).saturating_mul(2))?;
                    let beside = keywords.iter().filter(|(other, _)| *other != keyword);
                    let beside = Map::from_iter(beside.map(|(name, asked)| (name.clone(), asked.clone())));
                    Walk { patterns: self.patterns, grown: RefCell::default(), context: self.context }.judge(
                        &Json::Object(beside),
                        value,
                        path,
                        times.saturating_mul(3),
                    )?;
                }
                ("enum" | "const", asked) => {
                    let size = size(asked);
                    self.work(size.saturating_add(self::size(value)), times)?;
                    // The violation quotes the expected value.
                    self.context.charge(size.saturating_mul(2))?;
                }
                ("required", Json::Array(names)) => {
                    self.work(names.len().saturating_mul(80), times)?;
                    self.context.charge(names.len().saturating_mul(weight.saturating_add(path)))?;
                }
                ("uniqueItems", _) => self.work(size(value).saturating_mul(32), times)?,
                ("pattern", Json::String(pattern)) => {
                    if let Json::String(text) = value {
                        self.search(pattern, text, times)?;
                    }
                }
                ("format", asked) => self.format(asked, value, times)?,
                ("minLength" | "maxLength" | "contentEncoding" | "contentMediaType", _) => {
                    self.work(value.as_str().map_or(0, str::len).saturating_mul(8), times)?;
                    self.context.charge(value.as_str().map_or(0, str::len).saturating_mul(4))?;
                }
                ("multipleOf" | "divisibleBy", _) => self.work(4_000, times)?,
                // Schemas for the parts of a value, one for all or one for each.
                (_, Json::Object(_)) => self.children(asked, value, path, times)?,
                ("items" | "prefixItems", Json::Array(each)) => {
                    for (asked, value) in each.iter().zip(value.as_array().into_iter().flatten()) {
                        self.judge(asked, value, path.saturating_add(8), times)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn children(&self, asked: &'a Json, value: &Json, path: usize, times: usize) -> Result<(), Fault> {
        match value {
            Json::Array(elements) => {
                elements.iter().try_for_each(|value| self.judge(asked, value, path.saturating_add(8), times))
            }
            Json::Object(pairs) => pairs.iter().try_for_each(|(key, value)| {
                self.judge(asked, value, path.saturating_add(key.len()).saturating_add(1), times)
            }),
            _ => Ok(()),
        }
    }

    fn format(&self, format: &Json, value: &Json, times: usize) -> Result<(), Fault> {
        let Json::String(text) = value else { return Ok(()) };
        self.context.charge(text.len().saturating_mul(8))?;
        let a_byte = if format == "regex" { 600 } else { 200 };
        self.work(text.len().saturating_mul(a_byte).saturating_add(2_000), times)
    }

    fn search(&self, pattern: &'a str, text: &str, times: usize) -> Result<(), Fault> {
        let states = self.patterns.get(pattern).copied().unwrap_or(limit::COMPILED_BYTES / 16);
        let length = text.len().saturating_add(8);
        self.work(length.saturating_mul(states).saturating_mul(STATE), times)?;
        let most = length.saturating_mul(states.saturating_add(1_024)).min(2 * SEARCH_BYTES);
        let mut all = self.grown.borrow_mut();
        let grown = all.entry(pattern).or_default();
        self.context.charge(most.saturating_sub(*grown))?;
        *grown = most.max(*grown);
        Ok(())
    }

    fn work(&self, units: usize, times: usize) -> Result<(), Fault> {
        self.context.work(units.saturating_mul(times))
    }
}

/// Replaces references by their targets.
struct Inliner<'a> {
    root: &'a Json,
    keeps_siblings: bool,
    /// References that are being followed.
    open: Vec<String>,
    /// Number of states of the patterns found so far.
    patterns: HashMap<String, usize>,
    context: &'a Context,
}

impl Inliner<'_> {
    /// Charges for copying a value and for compiling the copy.
    fn charge(&self, (work, weight): (usize, usize), bytes: usize) -> Result<(), Fault> {
        self.context.work(bytes.saturating_mul(24).saturating_add(work))?;
        self.context.charge(bytes.saturating_mul(8).saturating_add(weight))
    }

    fn schema(&mut self, schema: &Json) -> Result<Json, Fault> {
        let Json::Object(keywords) = schema else {
            self.charge(VALUE, schema.as_str().map_or(0, str::len))?;
            return Ok(schema.clone());
        };
        self.charge(PART, 0)?;
        let mut inlined = Map::new();
        for (keyword, value) in keywords {
            self.charge(VALUE, keyword.len())?;
            let value = match (keyword.as_str(), value) {
                ("$ref", Json::String(_)) | ("definitions" | "$defs", _) => continue,
                ("$dynamicRef" | "$recursiveRef", _) => return Err(format!("`{keyword}` is not known here").into()),
                (keyword, value) if OF_VALUES.contains(&keyword) => {
                    // The draft's meta-schema compares the values of an `enum` with each other.
                    self.charge(VALUE, size(value))?;
                    value.clone()
                }
                (keyword, Json::Object(names)) if OF_NAMES.contains(&keyword) => {
                    let mut named = Map::new();
                    for (name, schema) in names {
                        self.charge(VALUE, name.len())?;
                        if keyword == "patternProperties" {
                            self.pattern(name)?;
                        }
                        named.insert(name.clone(), self.schema(schema)?);
                    }
                    Json::Object(named)
                }
                ("pattern", Json::String(pattern)) => {
                    self.pattern(pattern)?;
                    self.schema(value)?
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

    /// Compiles a pattern to measure it, and charges for the crate's own compilations, forwards and backwards.
    fn pattern(&mut self, pattern: &str) -> Result<(), Fault> {
        let compiled: Arc<Pattern> = self.context.pattern(pattern, Kind::Matches)?;
        self.context.work(compiled.cost().saturating_mul(4))?;
        self.context.charge(compiled.bytes().saturating_mul(6).saturating_add(24 * 1024))?;
        self.patterns.insert(pattern.to_owned(), compiled.states());
        Ok(())
    }

    fn target(&mut self, reference: &str) -> Result<Json, Fault> {
        self.charge(VALUE, reference.len())?;
        let pointer = reference
            .strip_prefix('#')
            .ok_or_else(|| format!("`$ref` {} is no part of the schema", excerpt(reference)))?;
        self.context.work(self.open.len().saturating_mul(20))?;
        if self.open.iter().any(|open| open == reference) {
            return Err(format!("`$ref` {} goes around in a circle", excerpt(reference)).into());
        }
        if self.open.len() >= limit::DEPTH {
            return Err("its references lead to too many others".into());
        }
        let root = self.root;
        let target = root.pointer(pointer).ok_or_else(|| format!("`$ref` {} names nothing", excerpt(reference)))?;
        self.open.push(reference.to_owned());
        let inlined = self.schema(target);
        self.open.pop();
        inlined
    }
}
