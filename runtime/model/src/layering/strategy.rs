//! A key of the cluster ConfigMap: the strategy of the cluster and those of groups of nodes.

use std::collections::BTreeMap;

use super::Class;
use super::compiled::{CompiledProtocol, ENABLE, LayerFields, POLICY};
use super::document::{Document, take};
use super::known_fields::{CLASSED, FEATURES, nearly};
use super::merge::join;
use super::rules::{Violation, hint};
use super::selector::Selector;
use crate::pod::Node;
use qosm_schema::Budget;
use serde_json::Value;

/// A key's configuration for one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Strategy {
    pub(super) cluster: Level,
    /// The first strategy whose selector matches the node, and its name.
    pub(super) node: Option<(String, Level)>,
}

/// One strategy: by class if the protocol has classes, else under `None`.
pub(super) type Level = BTreeMap<Option<Class>, ClassLevel>;

/// One class of a strategy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClassLevel {
    pub(super) fields_of_layer: LayerFields,
    /// The class's switch; `None` when absent.
    pub(super) enable: Option<bool>,
}

/// A remark on one field that does not prevent the use of the others: path and message.
pub(super) type Note = (String, String);

/// Parses the text of a key.
///
/// # Errors
///
/// All invalid fields. No part of the key is used then.
pub(super) fn parse(
    protocol: &CompiledProtocol,
    node: &Node,
    text: &str,
    budget: &Budget,
) -> Result<(Strategy, Vec<Note>), Vec<Violation>> {
    let whole = |what: String| {
        vec![Violation { path: String::new(), what, expected: "a JSON object with `clusterStrategy`".into() }]
    };
    if text.trim().is_empty() {
        return Err(whole("the text is empty".into()));
    }
    let document = Document::parse(text).map_err(|error| whole(format!("it is not JSON ({error})")))?;
    let mut fields = match document {
        Document::Fields(fields) => fields,
        other if other.is_null() => Vec::new(),
        _ => return Err(whole("it is not a JSON object".into())),
    };
    let mut reader = Reader { protocol, budget, notes: Vec::new(), violations: Vec::new() };
    let cluster = match take(&mut fields, "clusterStrategy") {
        Some(document) => reader.level(document, "clusterStrategy"),
        None => Level::default(),
    };
    let strategies = match take(&mut fields, "nodeStrategies") {
        None => Vec::new(),
        Some(Document::Items(strategies)) => strategies,
        Some(_) => {
            reader.wrong("nodeStrategies", "it is not a list", "a list of strategies");
            Vec::new()
        }
    };
    let node = reader.first_match(strategies, node);
    for (name, value) in &fields {
        if !value.is_null() {
            reader.unknown(name, hint(name, &["clusterStrategy", "nodeStrategies"]));
        }
    }
    let Reader { notes, violations, .. } = reader;
    if violations.is_empty() { Ok((Strategy { cluster, node }, notes)) } else { Err(violations) }
}

struct Reader<'p> {
    protocol: &'p CompiledProtocol,
    budget: &'p Budget,
    notes: Vec<Note>,
    violations: Vec<Violation>,
}

impl Reader<'_> {
    /// Reads every strategy, so that all mistakes are found at once, and returns the first that matches this node.
    fn first_match(&mut self, strategies: Vec<Document>, node: &Node) -> Option<(String, Level)> {
        let mut chosen: Option<(String, Level)> = None;
        for (index, strategy) in strategies.into_iter().enumerate() {
            let path = format!("nodeStrategies[{index}]");
            let mut fields = match strategy {
                Document::Fields(fields) => fields,
                other if other.is_null() => continue,
                _ => {
                    self.wrong(&path, "it is not a JSON object", "a strategy with a `nodeSelector`");
                    continue;
                }
            };
            let name = match take(&mut fields, "name") {
                Some(Document::Scalar(Value::String(name))) if !name.is_empty() => name,
                None | Some(Document::Scalar(Value::String(_))) => path.clone(),
                Some(_) => {
                    self.notes.push((join(&path, "name"), "it is not a string, ignored; write it in quotes".into()));
                    path.clone()
                }
            };
            let selector = take(&mut fields, "nodeSelector");
            let level = self.level(Document::Fields(fields), &path);
            // By the protocol's rule a strategy without a selector matches no node, which is rarely intended.
            let Some(selector) = selector else {
                let message = "it has no nodeSelector and is therefore for no node; write `{}` to mean every node";
                self.notes.push((path, message.into()));
                continue;
            };
            match Selector::parse(selector) {
                Err(what) => {
                    let message = format!("{what}; the strategy is skipped, mend its selector");
                    self.notes.push((format!("{path}.nodeSelector"), message));
                }
                Ok(selector) if selector.matches(&node.labels) => match &chosen {
                    None => chosen = Some((name, level)),
                    Some((first, _)) => {
                        let message =
                            format!("`{first}` is for this node too and comes first, so this one has no effect here");
                        self.notes.push((format!("{path}.nodeSelector"), message));
                    }
                },
                Ok(_) => {}
            }
        }
        chosen
    }

    fn level(&mut self, document: Document, path: &str) -> Level {
        let Document::Fields(mut fields) = document else {
            self.wrong(path, "it is not a JSON object", "a strategy");
            return Level::default();
        };
        let Some(field) = &self.protocol.protocol().class_field else {
            return Level::from([(
                None,
                ClassLevel { fields_of_layer: self.fields_of_layer(fields, path), enable: None },
            )]);
        };
        // Other fields, within a class object and next to the classes, belong to other features.
        let mut level = Level::new();
        for class in Class::ALL {
            let path = join(path, class.name());
            let below = match take(&mut fields, class.name()) {
                None => continue,
                Some(Document::Fields(mut below)) => {
                    let own = take(&mut below, field);
                    self.note_misspelt(&below, &path, &FEATURES);
                    own
                }
                Some(_) => {
                    self.wrong(&path, "it is not a JSON object", "an object with one field a feature");
                    continue;
                }
            };
            let path = join(&path, field);
            match below {
                None => {}
                Some(Document::Fields(mut fields)) => {
                    let enable = self.enable(take(&mut fields, ENABLE), &path);
                    self.leave_out_word(&mut fields, &path);
                    let fields_of_layer = self.fields_of_layer(fields, &path);
                    level.insert(Some(class), ClassLevel { fields_of_layer, enable });
                }
                Some(_) => self.wrong(&path, "it is not a JSON object", "a JSON object with `enable`"),
            }
        }
        for (name, value) in &fields {
            if FEATURES.iter().any(|feature| feature.eq_ignore_ascii_case(name)) && !value.is_null() {
                let message = "ignored: it is a field of a class; put it into one, e.g. `lsClass`";
                self.notes.push((join(path, name), message.into()));
            }
        }
        self.note_misspelt(&fields, path, &CLASSED);
        level
    }

    /// Notes fields that are probably misspelt.
    fn note_misspelt(&mut self, fields: &[(String, Document)], path: &str, known: &[&'static str]) {
        for (name, meant) in nearly(fields, known) {
            self.unknown(&join(path, name), format!("did you mean `{meant}`?"));
        }
    }

    fn enable(&mut self, value: Option<Document>, path: &str) -> Option<bool> {
        match value {
            None => None,
            Some(Document::Scalar(Value::Bool(enable))) => Some(enable),
            Some(_) => {
                self.wrong(&join(path, ENABLE), "it is not true or false", "true or false");
                None
            }
        }
    }

    /// Beside the switch of a class there is no word: only annotations and lists of namespaces have it.
    fn leave_out_word(&mut self, fields: &mut Vec<(String, Document)>, path: &str) {
        if !(self.protocol.has_switch() && self.protocol.takes_words()) {
            return;
        }
        match take(fields, POLICY) {
            None => {}
            Some(Document::Scalar(Value::String(word))) if word.is_empty() => {}
            Some(_) => {
                let message = "ignored: only annotations can set it, a class has `enable`; the other fields count";
                self.notes.push((join(path, POLICY), message.into()));
            }
        }
    }

    fn fields_of_layer(&mut self, fields: Vec<(String, Document)>, path: &str) -> LayerFields {
        match self.protocol.read(fields, &|_| true, self.budget) {
            Ok((fields_of_layer, notes)) => {
                self.notes.extend(notes.into_iter().map(|note| (join(path, &note.path), note.message)));
                fields_of_layer
            }
            Err(violations) => {
                self.violations.extend(
                    violations
                        .into_iter()
                        .map(|violation| Violation { path: join(path, &violation.path), ..violation }),
                );
                LayerFields::default()
            }
        }
    }

    fn unknown(&mut self, path: &str, hint: String) {
        self.notes.push((path.to_owned(), format!("unknown field, ignored; the other fields count; {hint}")));
    }

    fn wrong(&mut self, path: &str, what: &str, expected: &str) {
        self.violations.push(Violation { path: path.into(), what: what.into(), expected: expected.into() });
    }
}
