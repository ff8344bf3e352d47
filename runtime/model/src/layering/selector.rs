//! Kubernetes label selectors in node strategies.

use std::collections::BTreeMap;

use super::document::{Document, take};

/// A parsed `metav1.LabelSelector`. All requirements must hold; a selector without requirements matches everything.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads `matchLabels` and `matchExpressions`.
    ///
    /// # Errors
    ///
    /// What is invalid; the field is named relative to the selector.
    pub(super) fn parse(document: Document) -> Result<Self, String> {
        let Document::Fields(mut fields) = document else {
            return Err("it is not a JSON object".into());
        };
        let mut requirements = Vec::new();
        match take(&mut fields, "matchLabels") {
            None => {}
            Some(Document::Fields(labels)) => {
                for (key, value) in labels {
                    let value = string(value).ok_or_else(|| format!("matchLabels.{key} is not a string"))?;
                    requirements.push(Requirement::new(key, Operator::In(vec![value]))?);
                }
            }
            Some(_) => return Err("matchLabels is not a JSON object".into()),
        }
        match take(&mut fields, "matchExpressions") {
            None => {}
            Some(Document::Items(expressions)) => {
                for (index, expression) in expressions.into_iter().enumerate() {
                    let requirement = Requirement::parse(expression);
                    requirements.push(requirement.map_err(|what| format!("matchExpressions[{index}]: {what}"))?);
                }
            }
            Some(_) => return Err("matchExpressions is not a list".into()),
        }
        match fields.first() {
            Some((name, _)) => Err(format!("{name} is neither matchLabels nor matchExpressions")),
            None => Ok(Self(requirements)),
        }
    }

    /// Whether the selector matches a node with these labels.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|Requirement { key, operator }| {
            let value = labels.get(key);
            match operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                // A node without the label counts as not being in the list.
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

impl Requirement {
    fn parse(document: Document) -> Result<Self, String> {
        let Document::Fields(mut fields) = document else {
            return Err("it is not a JSON object".into());
        };
        let key = take(&mut fields, "key").and_then(string).ok_or("key is missing")?;
        let operator = take(&mut fields, "operator").and_then(string).ok_or("operator is missing")?;
        let values = match take(&mut fields, "values") {
            None => Vec::new(),
            Some(Document::Items(values)) => values
                .into_iter()
                .map(string)
                .collect::<Option<_>>()
                .ok_or("values holds something else than strings")?,
            Some(_) => return Err("values is not a list".into()),
        };
        let operator = match (operator.as_str(), values.is_empty()) {
            ("In", false) => Operator::In(values),
            ("NotIn", false) => Operator::NotIn(values),
            ("Exists", true) => Operator::Exists,
            ("DoesNotExist", true) => Operator::DoesNotExist,
            ("In" | "NotIn", true) => return Err(format!("{operator} needs values")),
            ("Exists" | "DoesNotExist", false) => return Err(format!("{operator} takes no values")),
            _ => return Err(format!("operator `{operator}` is none of In, NotIn, Exists, DoesNotExist")),
        };
        Self::new(key, operator)
    }

    fn new(key: String, operator: Operator) -> Result<Self, String> {
        if !is_label_key(&key) {
            return Err(format!("`{key}` is not a label key"));
        }
        if let Operator::In(values) | Operator::NotIn(values) = &operator
            && let Some(bad) = values.iter().find(|value| !is_label_value(value))
        {
            return Err(format!("`{bad}` is not a label value"));
        }
        Ok(Self { key, operator })
    }
}

fn string(document: Document) -> Option<String> {
    match document {
        Document::Scalar(serde_json::Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Whether the key is `[prefix/]name` with a DNS subdomain as prefix and a non-empty label value as name.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let is_prefix = |prefix: &str| {
        prefix.len() <= 253
            && prefix.split('.').all(|part| {
                is_bounded_by_alphanumerics(part)
                    && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            })
    };
    prefix.is_none_or(is_prefix) && !name.is_empty() && is_label_value(name)
}

/// Whether the value is empty, or at most 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit.
fn is_label_value(value: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    value.is_empty() || (value.len() <= 63 && is_bounded_by_alphanumerics(value) && value.bytes().all(fits))
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}
