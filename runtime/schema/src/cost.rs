//! What it costs to hold a document against a schema, without doing it.
//!
//! It goes where a validator may go, and takes each turn that a validator may take: nothing is left out because an earlier branch
//! fitted. So it is never too little, and it stops where the budget does.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::keyword::{Applied, beneath, count, own_size, size, target, text_size};
use crate::pattern;
use crate::{Budget, Spent};

/// How deep a validator may go into itself: each level takes some of the thread's stack.
const MAX_DEPTH: usize = 320;

/// A validator decides whether a value fits, lists its errors, or finds the evaluated fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Test,
    List,
    Mark,
}

/// What is held against a schema.
#[derive(Clone, Copy)]
enum Subject<'i> {
    Value(&'i Value),
    /// A field's name.
    Name(&'i str),
}

/// Where in the document and how deep in the validator.
#[derive(Clone, Copy)]
struct At {
    depth: usize,
    /// What the value's path adds to each complaint about it.
    path: u64,
}

/// A document that is charged for.
pub(crate) struct Cost<'c> {
    pub(crate) root: &'c Value,
    pub(crate) patterns: &'c BTreeMap<String, u64>,
    pub(crate) budget: &'c Budget,
}

impl<'c> Cost<'c> {
    /// Charges all that it may take to list what is wrong with a document.
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
                // To mark, each branch is validated first, and then its evaluated fields are collected.
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
        // Evaluated fields are found by names alone, except for those that no other keyword evaluates.
        let inner = if pass == Pass::Mark { Pass::Test } else { pass };
        let goes_in = pass != Pass::Mark || applied == Applied::UnevaluatedFields;
        match applied {
            Applied::Field => match fields.get(name) {
                Some(value) if goes_in => self.visit(schema, Subject::Value(value), inner, below(name)),
                _ => Ok(()),
            },
            Applied::FieldsByPattern => fields.iter().try_for_each(|(field, value)| {
                // `additionalProperties` asks the pattern again.
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
        // The survey saw every pattern that can be met.
        let states = self.patterns.get(pattern).copied().unwrap_or(u64::MAX);
        self.budget.charge(pattern::steps(states, text))
    }
}
