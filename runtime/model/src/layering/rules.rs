//! A compiled JSON schema, and its violations in readable words.

use jsonschema::error::ValidationErrorKind;
use qosm_schema::{Bounds, Budget, Schema, Spent};
use serde_json::{Map, Value};

use super::merge::join;
use super::schema::{Shape, clip, nearest, show, shown};

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Violation {
    /// Dotted path; empty for the whole object.
    pub(super) path: String,
    /// What is wrong, e.g. `150 is above 100`.
    pub(super) what: String,
    /// What to write, e.g. `a whole number from 0 to 100`.
    pub(super) expected: String,
}

/// How to treat a missing field that the schema requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// The document is one of several layers; another may have the field.
    MayBeInAnotherLayer,
    /// The document is complete; the missing field is a violation.
    IsMissing,
}

/// Maximum number of violations that are reported for one document.
const MAX_VIOLATIONS: usize = 50;

/// The first whole number that an integer of 64 bits cannot hold.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// A schema to check values against.
#[derive(Debug)]
pub(super) struct Rules(Schema);

/// The violation of a document that would exceed the budget; it replaces those of its fields.
pub(super) fn too_expensive(spent: Spent) -> Violation {
    Violation {
        path: String::new(),
        what: spent.to_string(),
        expected: "fewer fields, or have the schema in the policy's module made simpler".into(),
    }
}

impl Rules {
    /// # Errors
    ///
    /// Why the schema is invalid or too expensive.
    pub(super) fn compile(schema: Value) -> Result<Self, String> {
        Schema::compile(schema, &Bounds::default()).map(Self).map_err(|refusal| shown(&refusal.to_string()))
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape::of(self.0.document())
    }

    /// All wrong fields, without duplicates. A document that may exceed the rest of the budget is not checked, and has
    /// that one violation.
    pub(super) fn violations(&self, values: &Map<String, Value>, lacking: Lacking, budget: &Budget) -> Vec<Violation> {
        let instance = Value::Object(values.clone());
        let errors = match self.0.errors(&instance, budget) {
            Ok(errors) => errors,
            Err(spent) => return vec![too_expensive(spent)],
        };
        let mut violations = Vec::new();
        let shape = self.shape();
        for (name, value) in values {
            check_whole(value, shape.field(name).as_ref(), name, &mut violations);
        }
        for error in errors {
            if violations.len() >= MAX_VIOLATIONS {
                break;
            }
            let place = Place::find(error.instance_path().as_str(), &instance, &shape);
            match error.kind() {
                ValidationErrorKind::Required { property } if !place.in_list => {
                    if lacking == Lacking::IsMissing {
                        violations.push(place.missing(property.as_str().unwrap_or_default()));
                    }
                    continue;
                }
                ValidationErrorKind::AdditionalProperties { unexpected } => {
                    violations.extend(unexpected.iter().map(|name| place.unknown(name)));
                    continue;
                }
                _ => {}
            }
            if violations.iter().any(|known| known.path == place.path) {
                continue;
            }
            let kind = place.shape.as_ref().map_or("what the schema asks for", |shape| shape.kind());
            let value = error.instance();
            let what = match error.kind() {
                ValidationErrorKind::Maximum { limit } => format!("{} is above {limit}", show(value)),
                ValidationErrorKind::Minimum { limit } => format!("{} is below {limit}", show(value)),
                ValidationErrorKind::ExclusiveMaximum { limit } => format!("{} is not below {limit}", show(value)),
                ValidationErrorKind::ExclusiveMinimum { limit } => format!("{} is not above {limit}", show(value)),
                ValidationErrorKind::Type { .. } => format!("{} is not {kind}", show(value)),
                ValidationErrorKind::Enum { .. } => unknown_word(value, place.shape.as_ref()),
                ValidationErrorKind::AnyOf { .. } | ValidationErrorKind::OneOfNotValid { .. } => {
                    let shape = place.shape.as_ref();
                    match shape.and_then(Shape::words) {
                        Some(_) => unknown_word(value, shape),
                        None => format!("{} does not fit", show(value)),
                    }
                }
                _ => clip(&error.to_string()),
            };
            let expected = place.shape.as_ref().map_or_else(|| kind.to_owned(), Shape::expectation);
            violations.push(Violation { path: place.path, what, expected });
        }
        violations.truncate(MAX_VIOLATIONS);
        violations
    }
}

/// The hint for an unknown field.
pub(super) fn hint(written: &str, known: &[&str]) -> String {
    match nearest(written, known.iter().copied()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if known.is_empty() => "there are no fields here".into(),
        None => format!("known here: {}", known.join(", ")),
    }
}

fn unknown_word(value: &Value, shape: Option<&Shape<'_>>) -> String {
    let words = shape.and_then(Shape::words).unwrap_or_default();
    let meant = value.as_str().and_then(|word| nearest(word, words));
    match meant {
        Some(meant) => format!("{} is not known here, did you mean `{meant}`", show(value)),
        None => format!("{} is not known here", show(value)),
    }
}

/// Checks that whole numbers are as Go reads them into an integer: no fraction, no exponent, within 64 bits.
fn check_whole(value: &Value, shape: Option<&Shape<'_>>, path: &str, violations: &mut Vec<Violation>) {
    let Some(shape) = shape else { return };
    match value {
        Value::Number(number) if shape.is_whole() && !number.is_i64() => {
            let what = match number.as_f64() {
                Some(float) if number.is_u64() || float >= BEYOND => format!("is above {}", i64::MAX),
                Some(float) if float < -BEYOND => format!("is below {}", i64::MIN),
                _ => "is not a whole number".into(),
            };
            violations.push(Violation {
                path: path.to_owned(),
                what: format!("{} {what}", show(value)),
                expected: shape.expectation(),
            });
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                check_whole(value, shape.field(name).as_ref(), &join(path, name), violations);
            }
        }
        Value::Array(items) => {
            let below = shape.items();
            for (index, item) in items.iter().enumerate() {
                check_whole(item, below.as_ref(), &format!("{path}[{index}]"), violations);
            }
        }
        _ => {}
    }
}

/// The place of a JSON pointer in a document, as a readable path.
struct Place<'s> {
    path: String,
    shape: Option<Shape<'s>>,
    in_list: bool,
}

impl<'s> Place<'s> {
    fn find(pointer: &str, instance: &Value, shape: &Shape<'s>) -> Self {
        let mut place = Self { path: String::new(), shape: Some(shape.clone()), in_list: false };
        let mut at = Some(instance);
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            if at.is_some_and(Value::is_array) {
                place.in_list = true;
                place.path.push_str(&format!("[{name}]"));
                place.shape = place.shape.and_then(|shape| shape.items());
                at = name.parse::<usize>().ok().and_then(|index| at?.get(index));
            } else {
                place.path = join(&place.path, &name);
                place.shape = place.shape.and_then(|shape| shape.field(&name));
                at = at.and_then(|value| value.get(&name));
            }
        }
        place
    }

    fn missing(&self, name: &str) -> Violation {
        let expected = self.shape.as_ref().and_then(|shape| shape.field(name)).map(|shape| shape.expectation());
        Violation {
            path: join(&self.path, name),
            what: "it is missing".into(),
            expected: expected.unwrap_or_else(|| "what the schema asks for".into()),
        }
    }

    fn unknown(&self, name: &str) -> Violation {
        let known = self.shape.as_ref().map(Shape::names).unwrap_or_default();
        let expected = match nearest(name, known.iter().copied()) {
            Some(meant) => format!("`{meant}`, if that is meant"),
            None if known.is_empty() => "no fields here".into(),
            None => format!("only {}", known.join(", ")),
        };
        Violation { path: join(&self.path, &clip(name)), what: "there is no such field".into(), expected }
    }
}
