//! Kubernetes label selectors: `matchLabels` and `matchExpressions`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::json::{self, Fault};

/// A selector; without any term it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    ///
    /// Returns the field that cannot be used.
    pub(crate) fn read(fields: &Map<String, Value>) -> Result<Self, Fault> {
        let mut terms = Vec::new();
        for (key, value) in json::object(fields, "matchLabels")?.into_iter().flatten() {
            let Value::String(value) = value else {
                return Err(Fault::new(
                    &format!("matchLabels.{key}"),
                    format!("is {}; write a string", json::shown(value)),
                ));
            };
            terms.push(Term { key: key.clone(), operator: Operator::In, values: vec![value.clone()] });
        }
        for (index, item) in json::list(fields, "matchExpressions")?.into_iter().flatten().enumerate() {
            terms.push(Term::read(item).map_err(|fault| fault.within(&format!("matchExpressions[{index}]")))?);
        }
        Ok(Self { terms })
    }

    /// Whether the selector matches these labels.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            let is_listed = value.is_some_and(|value| term.values.contains(value));
            match term.operator {
                Operator::In => is_listed,
                // As in Kubernetes, `NotIn` also matches objects without the label.
                Operator::NotIn => !is_listed,
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Term {
    fn read(item: &Value) -> Result<Self, Fault> {
        let Value::Object(fields) = item else {
            return Err(Fault::new(
                "",
                format!("is {}; write an object with key, operator and values", json::shown(item)),
            ));
        };
        let key = match json::field(fields, "key") {
            Some(Value::String(key)) if !key.is_empty() => key.clone(),
            _ => return Err(Fault::new("key", "is missing; name a label")),
        };
        let operators = [
            ("In", Operator::In),
            ("NotIn", Operator::NotIn),
            ("Exists", Operator::Exists),
            ("DoesNotExist", Operator::DoesNotExist),
        ];
        let operator = json::word(fields, "operator", &operators)?
            .ok_or_else(|| Fault::new("operator", "is missing; set one of In, NotIn, Exists, DoesNotExist"))?;
        let mut values = Vec::new();
        for value in json::list(fields, "values")?.into_iter().flatten() {
            match value {
                Value::String(value) => values.push(value.clone()),
                other => return Err(Fault::new("values", format!("has {}; write strings", json::shown(other)))),
            }
        }
        let wants_values = matches!(operator, Operator::In | Operator::NotIn);
        if wants_values == values.is_empty() {
            let way_out = if wants_values { "is empty; write at least one value" } else { "must be left out here" };
            return Err(Fault::new("values", way_out));
        }
        Ok(Self { key, operator, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_select_by_labels() {
        let labels: BTreeMap<_, _> = [("pool", "batch"), ("zone", "a")].map(|(k, v)| (k.into(), v.into())).into();
        for (json, matches) in [
            ("{}", true),
            (r#"{"matchLabels":{"pool":"batch"}}"#, true),
            (r#"{"matchLabels":{"pool":"batch","zone":"b"}}"#, false),
            (r#"{"matchLabels":{"other":"x"}}"#, false),
            (r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}"#, false),
            (r#"{"matchExpressions":[{"key":"other","operator":"NotIn","values":["a"]}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"Exists"}]}"#, true),
            (r#"{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}"#, false),
            (r#"{"matchLabels":{"pool":"batch"},"matchExpressions":[{"key":"gpu","operator":"DoesNotExist"}]}"#, true),
        ] {
            let selector = Selector::read(&json::parse(json).unwrap()).unwrap();
            assert_eq!(selector.matches(&labels), matches, "{json}");
        }
    }

    #[test]
    fn a_wrong_term_is_named() {
        for (json, field) in [
            (r#"{"matchLabels":{"pool":1}}"#, "matchLabels.pool"),
            (r#"{"matchLabels":"pool"}"#, "matchLabels"),
            (r#"{"matchExpressions":{}}"#, "matchExpressions"),
            (r#"{"matchExpressions":["pool"]}"#, "matchExpressions[0]"),
            (r#"{"matchExpressions":[{"operator":"Exists"}]}"#, "matchExpressions[0].key"),
            (r#"{"matchExpressions":[{"key":"a"}]}"#, "matchExpressions[0].operator"),
            (r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}"#, "matchExpressions[0].operator"),
            (r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#, "matchExpressions[0].values"),
            (r#"{"matchExpressions":[{"key":"a","operator":"In","values":[1]}]}"#, "matchExpressions[0].values"),
            (r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}"#, "matchExpressions[0].values"),
        ] {
            assert_eq!(Selector::read(&json::parse(json).unwrap()).unwrap_err().field, field, "{json}");
        }
    }
}
