//! Computes an upper bound for the cost of validating a document, without validating it.
//!
//! It visits every schema and value that a validator may visit, and does not skip a branch because an earlier one
//! matched. So the bound is never too low, and the computation stops when the budget is spent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::keyword::{Applied, beneath, count, own_size, size, target, text_size};
use crate::pattern;
use crate::{Budget, Spent};

/// Maximum recursion depth of a validator, which uses the thread's stack at each level.
const MAX_DEPTH: usize = 320;

/// A pass of a validator: it tests whether a value is valid, lists its errors, or marks the evaluated fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Test,
    List,
    Mark,
}

/// The subject that is validated against a schema.
#[derive(Clone, Copy)]
enum Subject<'i> {
    Value(&'i Value),
    /// A field's name.
    Name(&'i str),
}

/// The position in the document, and the recursion depth of the validator.
#[derive(Clone, Copy)]
struct At {
    depth: usize,
    /// Steps that the value's path adds to each error about it.
    path: u64,
}

/// Charges a budget for validating a document.
pub(crate) struct Cost<'c> {
    pub(crate) root: &'c Value,
    pub(crate) patterns: &'c BTreeMap<String, u64>,
    pub(crate) budget: &'c Budget,
}

impl<'c> Cost<'c> {
    /// Charges the maximum cost of listing the errors of a document.
    pub(crate) fn charge(&self, document: &'c Value) -> Result<(), Spent> {
        self.visit(self.root, Subject::Value(document), Pass::List, At { depth: 0, path: 0 })
    }

    fn visit(&self, schema: &Value, subject: Subject<'_>, pass: Pass, at: At) -> Result<(), Spent> {
        if at.depth > MAX_DEPTH {
            return Err(self.budget.spent());
        }
        let Value::Object(keywords) = schema else { return self.budget.charge(1 + at.path) };
        self.budget.charge(own_size(keywords).saturating_add(at.path))?;
        match subject {
            Subject::Name(text) => self.text(keywords, text)?,
            Subject::Value(Value::String(text)) => self.text(keywords, text)?,
            Subject::Value(value @ Value::Array(_)) if keywords.contains_key("uniqueItems") && pass != Pass::Mark => {
                self.budget.charge(size(value).saturating_mul(2))?;
            }
            Subject::Value(Value::Number(_)) if keywords.contains_key("multipleOf") => self.budget.charge(8)?,
            Subject::Value(_) => {}
        }
        let at = At { depth: at.depth + 1, ..at };
        let unevaluated =
            ["unevaluatedProperties", "unevaluatedItems"].into_iter().any(|word| keywords.contains_key(word));
        if unevaluated && pass != Pass::Mark {
            self.visit(schema, subject, Pass::Mark, at)?;
        }
        beneath(keywords, |name, applied, schema| self.apply(keywords, name, applied, schema, subject, pass, at))?;
        let Some(Value::String(reference)) = keywords.get("$ref") else { return Ok(()) };
        match target(self.root, reference) {
            Some(target) => self.visit(target, subject, pass, at),
            None => Ok(()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one schema beneath a keyword, and where it is met")]
    fn apply(
        &self,
        keywords: &Map<String, Value>,
        name: Option<&str>,
        applied: Applied,
        schema: &Value,
        subject: Subject<'_>,
        pass: Pass,
        at: At,
    ) -> Result<(), Spent> {
        match applied {
            Applied::InPlace | Applied::InPlaceTwice | Applied::InPlaceAsTest => {
                // For marking, a validator first tests each branch and then collects its evaluated fields.
                let tests = pass != Pass::List || applied != Applied::InPlace;
                if tests {
                    self.visit(schema, subject, Pass::Test, at)?;
                }
                let goes_on = match pass {
                    Pass::Test => false,
                    Pass::List => applied != Applied::InPlaceAsTest,
                    Pass::Mark => true,
                };
                if goes_on { self.visit(schema, subject, pass, at) } else { Ok(()) }
            }
            _ => match subject {
                Subject::Name(_) => Ok(()),
                Subject::Value(Value::Object(fields)) => self.fields(keywords, name, applied, schema, fields, pass, at),
                Subject::Value(Value::Array(elements)) => self.elements(applied, schema, elements, pass, at),
                Subject::Value(_) => Ok(()),
            },
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one schema beneath a keyword, and where it is met")]
    fn fields(
        &self,
        keywords: &Map<String, Value>,
        name: Option<&str>,
        applied: Applied,
        schema: &Value,
        fields: &Map<String, Value>,
        pass: Pass,
        at: At,
    ) -> Result<(), Spent> {
        let name = name.unwrap_or_default();
        let below = |name: &str| At { path: at.path.saturating_add(text_size(name) - 1), ..at };
        // Evaluated fields are found by their names alone, except for those that no other keyword evaluates.
        let inner = if pass == Pass::Mark { Pass::Test } else { pass };
        let goes_in = pass != Pass::Mark || applied == Applied::UnevaluatedFields;
        match applied {
            Applied::Field => match fields.get(name) {
                Some(value) if goes_in => self.visit(schema, Subject::Value(value), inner, below(name)),
                _ => Ok(()),
            },
            Applied::FieldsByPattern => fields.iter().try_for_each(|(field, value)| {
                // `additionalProperties` matches the pattern a second time.
                self.pattern(name, field)?;
                self.pattern(name, field)?;
                if goes_in { self.visit(schema, Subject::Value(value), inner, below(field)) } else { Ok(()) }
            }),
            Applied::OtherFields | Applied::UnevaluatedFields => {
                let listed = keywords.get("properties").filter(|_| applied == Applied::OtherFields);
                fields.iter().try_for_each(|(field, value)| {
                    self.budget.charge(text_size(field))?;
                    let is_listed = listed.is_some_and(|listed| listed.get(field).is_some());
                    if is_listed || !goes_in {
                        return Ok(());
                    }
                    self.visit(schema, Subject::Value(value), inner, below(field))
                })
            }
            Applied::Names if pass != Pass::Mark => {
                fields.keys().try_for_each(|field| self.visit(schema, Subject::Name(field), inner, below(field)))
            }
            _ => Ok(()),
        }
    }

    fn elements(&self, applied: Applied, schema: &Value, elements: &[Value], pass: Pass, at: At) -> Result<(), Spent> {
        let inner = if pass == Pass::List { Pass::List } else { Pass::Test };
        let is_test = applied == Applied::ElementsAsTest;
        match applied {
            Applied::Element(index) if pass != Pass::Mark => match elements.get(index) {
                Some(element) => self.visit(schema, Subject::Value(element), inner, at),
                None => Ok(()),
            },
            Applied::Elements if pass != Pass::Mark => {
                elements.iter().try_for_each(|element| self.visit(schema, Subject::Value(element), inner, at))
            }
            Applied::ElementsAsTest | Applied::UnevaluatedElements => {
                let inner = if is_test { Pass::Test } else { inner };
                elements.iter().try_for_each(|element| self.visit(schema, Subject::Value(element), inner, at))
            }
            _ => self.budget.charge(count(elements.len() / 16)),
        }
    }

    fn text(&self, keywords: &Map<String, Value>, text: &str) -> Result<(), Spent> {
        self.budget.charge(text_size(text))?;
        match keywords.get("pattern") {
            Some(Value::String(pattern)) => self.pattern(pattern, text),
            _ => Ok(()),
        }
    }

    fn pattern(&self, pattern: &str, text: &str) -> Result<(), Spent> {
        // The survey has measured every pattern that can occur.
        let states = self.patterns.get(pattern).copied().unwrap_or(u64::MAX);
        self.budget.charge(pattern::steps(states, text))
    }
}
