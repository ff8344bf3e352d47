//! Lists of namespaces in which a policy is switched on or off.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::{Document, take};
use super::rules::hint;
use crate::namespace;

const ENABLED: &str = "enabledNamespaces";
const DISABLED: &str = "disabledNamespaces";

/// The namespaces of one policy, each with the ConfigMap that lists it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Namespaces {
    enabled: BTreeMap<String, String>,
    disabled: BTreeMap<String, String>,
}

/// The lists in one key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lists {
    enabled: Vec<String>,
    disabled: Vec<String>,
    /// Unknown fields, each with a hint.
    pub(super) unknown: Vec<(String, String)>,
    /// Names that are not valid for a namespace: the list, and what is wrong.
    pub(super) impossible: Vec<(&'static str, String)>,
}

impl Namespaces {
    /// Adds the lists of one ConfigMap.
    pub(super) fn add(&mut self, lists: Lists, map: &str) {
        for (from, to) in [(lists.enabled, &mut self.enabled), (lists.disabled, &mut self.disabled)] {
            for namespace in from {
                to.entry(namespace).or_insert_with(|| map.to_owned());
            }
        }
    }

    /// The word of `policy` for a namespace's pods, and the ConfigMap that lists it. Disabled takes precedence over enabled.
    pub(super) fn word(&self, namespace: &str) -> Option<(&'static str, &str)> {
        let off = self.disabled.get(namespace).map(|map| ("none", map.as_str()));
        off.or_else(|| self.enabled.get(namespace).map(|map| ("auto", map.as_str())))
    }

    /// Namespaces in both lists, with the ConfigMap that enables and the one that disables them.
    pub(super) fn contradictions(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.enabled.iter().filter_map(|(namespace, enables)| {
            self.disabled.get(namespace).map(|disables| (namespace.as_str(), enables.as_str(), disables.as_str()))
        })
    }
}

impl Lists {
    /// Parses the text of a key.
    ///
    /// # Errors
    ///
    /// The invalid field (empty for the whole text), and what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, (String, String)> {
        let whole = |what: String| (String::new(), what);
        if text.trim().is_empty() {
            return Err(whole("the text is empty".into()));
        }
        let mut fields = match Document::parse(text) {
            Ok(Document::Fields(fields)) => fields,
            Ok(other) if other.is_null() => Vec::new(),
            Ok(_) => return Err(whole("it is not a JSON object".into())),
            Err(error) => return Err(whole(format!("it is not JSON ({error})"))),
        };
        let mut list = |name: &str| match take(&mut fields, name) {
            None => Ok(Vec::new()),
            Some(Document::Items(items)) => items
                .into_iter()
                .map(|item| match item {
                    Document::Scalar(Value::String(namespace)) => Some(namespace),
                    _ => None,
                })
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| (name.to_owned(), "it holds something else than strings".to_owned())),
            Some(_) => Err((name.to_owned(), "it is not a list".to_owned())),
        };
        let (enabled, disabled) = (list(ENABLED)?, list(DISABLED)?);
        let unknown = fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, _)| {
                let hint = hint(&name, &[ENABLED, DISABLED]);
                (name, hint)
            })
            .collect();
        let faults = |list: &'static str, names: &[String]| -> Vec<(&'static str, String)> {
            names.iter().filter_map(|name| Some((list, namespace::fault(name)?))).collect()
        };
        let impossible = [faults(ENABLED, &enabled), faults(DISABLED, &disabled)].concat();
        Ok(Self { enabled, disabled, unknown, impossible })
    }
}
