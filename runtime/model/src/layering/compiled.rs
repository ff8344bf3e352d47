//! A checked protocol, and how it reads configuration objects from users.

use qosm_schema::{Budget, Spent};
use serde_json::{Map, Value};

use super::Class;
use super::document::{Document, put};
use super::merge::join;
use super::rules::{Lacking, Rules, Violation, hint, too_expensive};
use super::schema::{Shape, clip, one_of, show};
use crate::problem::Problem;
use crate::protocol::{Preset, Protocol};

/// The word that counts as absent: the next lower layer with a word applies.
const DEFAULT: &str = "default";
/// The word that switches the policy off.
const NONE: &str = "none";
/// The field that holds the word.
pub(super) const POLICY: &str = "policy";
/// Budget of steps for checking all of a protocol's own values against its schema.
const OWN_STEPS: u64 = 200_000;
/// The switch of a class.
pub(super) const ENABLE: &str = "enable";

/// A protocol whose schema compiles and whose own defaults and presets fit it.
#[derive(Debug)]
pub struct CompiledProtocol {
    protocol: Protocol,
    rules: Rules,
}

/// The fields of one layer without `policy`, and the word of `policy` unless it counts as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LayerFields {
    pub(super) fields: Map<String, Value>,
    pub(super) word: Option<String>,
}

/// A part that is ignored, while the rest counts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    /// Dotted path.
    pub(super) path: String,
    /// What is wrong, what happens instead, and how to correct it.
    pub(super) message: String,
}

impl CompiledProtocol {
    /// Compiles the schema and checks the protocol's own values against it.
    ///
    /// # Errors
    ///
    /// The first thing in the module's description that contradicts itself; `object` is `protocol`.
    pub fn compile(protocol: Protocol) -> Result<Self, Problem> {
        let wrong = |field: &str, message: String| Problem {
            object: "protocol".into(),
            field: Some(field.into()),
            message: format!("{message}; mend the description of the module"),
        };
        if !protocol.schema.get("properties").is_some_and(Value::is_object) {
            return Err(wrong("schema", "it is not an object with `properties`".into()));
        }
        let rules = Rules::compile(protocol.schema.clone()).map_err(|message| wrong("schema", message))?;
        if protocol.annotation_keys.iter().any(String::is_empty) {
            return Err(wrong("annotation-keys", "one of them is empty".into()));
        }
        let compiled = Self { protocol, rules };
        let budget = Budget::of(OWN_STEPS);
        compiled.check_values(&compiled.protocol.defaults, &budget).map_err(|message| wrong("defaults", message))?;
        let mut words: Vec<&str> = Vec::new();
        for preset in &compiled.protocol.presets {
            let field = format!("presets: {}", preset.policy);
            if preset.policy.is_empty() || preset.policy == DEFAULT {
                return Err(wrong(
                    &field,
                    format!("`{}` means that nothing is said and cannot stand for values", preset.policy),
                ));
            }
            if words.contains(&preset.policy.as_str()) {
                return Err(wrong(&field, "the word is described twice".into()));
            }
            words.push(&preset.policy);
            compiled.check_values(&preset.values, &budget).map_err(|message| wrong(&field, message))?;
        }
        if compiled.protocol.namespace_list_key.is_some() {
            words.extend(["auto", "none"]);
        }
        for word in words {
            if let Err(violation) = compiled.check_word(word, &budget) {
                let message = format!("the schema's `policy` does not take the word `{word}`: {}", violation.what);
                return Err(wrong("schema", message));
            }
        }
        Ok(compiled)
    }

    /// The protocol as the module described it.
    pub fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    /// Why no pod can have this effective configuration: the first field that is not in the schema or does not fit it, and
    /// what to write; `None` if a pod can. Fields that the schema requires may be missing, and names may differ in letter
    /// case.
    pub fn refusal(&self, config: &Map<String, Value>) -> Option<String> {
        let shape = self.shape();
        let unknown = config.keys().find(|name| !shape.is_open() && shape.canonical(name).is_none());
        if let Some(name) = unknown {
            return Some(format!("`{name}` is not in the schema; {}", hint(name, &shape.names())));
        }
        let Violation { path, what, expected } = self.check(config, &Budget::of(OWN_STEPS)).into_iter().next()?;
        let place = if path.is_empty() { String::new() } else { format!("{path}: ") };
        Some(format!("{place}{what}; write {expected}"))
    }

    /// The built-in defaults; those of `class` if the protocol has classes.
    pub(super) fn defaults(&self, class: Option<Class>) -> Map<String, Value> {
        of_class(&self.protocol.defaults, class)
    }

    /// The preset of a word, and its values for this class.
    pub(super) fn preset(&self, word: &str, class: Option<Class>) -> Option<(&Preset, Map<String, Value>)> {
        let preset = self.protocol.presets.iter().find(|preset| preset.policy == word)?;
        Some((preset, of_class(&preset.values, class)))
    }

    /// Whether the module sees the word itself, not only the preset's values.
    pub(super) fn shows_word(&self) -> bool {
        self.shape().field(POLICY).is_some()
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        self.rules.shape()
    }

    /// Whether only operators may set the field.
    pub(super) fn is_node_only(&self, field: &str) -> bool {
        let listed = self.protocol.node_only_fields.iter().any(|known| known.eq_ignore_ascii_case(field));
        listed || (self.protocol.class_field.is_some() && field.eq_ignore_ascii_case(ENABLE))
    }

    /// Whether classes have a switch. Without one a class is enabled if a layer has any field of it.
    pub(super) fn has_switch(&self) -> bool {
        let listed = self.protocol.node_only_fields.iter().any(|known| known.eq_ignore_ascii_case(ENABLE));
        listed || self.shape().field(ENABLE).is_some()
    }

    /// Reads the fields of one layer: restores the declared spelling of names, drops `null`, and drops unknown fields
    /// with a problem.
    ///
    /// Hints for unknown fields name those that `offers` is true of.
    ///
    /// An unknown word of `policy` counts as `default` if the protocol has that word, else as `none`: as in Koordinator's
    /// agent, so that a typing error switches nothing on.
    ///
    /// # Errors
    ///
    /// All fields with invalid values.
    pub(super) fn read(
        &self,
        fields: Vec<(String, Document)>,
        offers: &dyn Fn(&str) -> bool,
        budget: &Budget,
    ) -> Result<(LayerFields, Vec<Note>), Vec<Violation>> {
        let mut notes = Vec::new();
        let extra = self.takes_words().then_some(POLICY);
        let mut values = canonical(fields, (&self.shape(), offers), "", extra, &mut notes, budget)
            .map_err(|spent| vec![too_expensive(spent)])?;
        let mut violations = Vec::new();
        let word = match values.remove(POLICY) {
            Some(Value::String(word)) if word.is_empty() || (word == DEFAULT && self.knows(DEFAULT, budget)) => None,
            Some(Value::String(word)) => match self.check_word(&word, budget) {
                Ok(()) => Some(word),
                Err(Violation { path, what, expected }) => {
                    let instead = [DEFAULT, NONE].into_iter().find(|word| self.knows(word, budget));
                    match instead {
                        Some(instead) => {
                            let message = format!("{what}; it counts as `{instead}`; write {expected}");
                            notes.push(Note { path, message });
                        }
                        None => violations.push(Violation { path, what, expected }),
                    }
                    instead.filter(|&word| word != DEFAULT).map(str::to_owned)
                }
            },
            Some(other) => {
                violations.extend(self.check_word_value(&other, budget).err());
                None
            }
            None => None,
        };
        violations.extend(self.check(&values, budget));
        if violations.is_empty() { Ok((LayerFields { fields: values, word }, notes)) } else { Err(violations) }
    }

    fn knows(&self, word: &str, budget: &Budget) -> bool {
        self.check_word(word, budget).is_ok()
    }

    /// Checks values against the schema. A layer or a sum of layers may lack fields that the schema requires.
    pub(super) fn check(&self, values: &Map<String, Value>, budget: &Budget) -> Vec<Violation> {
        self.rules.violations(values, Lacking::MayBeInAnotherLayer, budget)
    }

    /// Whether this protocol has the field `policy`.
    pub(super) fn takes_words(&self) -> bool {
        self.shows_word() || !self.protocol.presets.is_empty() || self.protocol.namespace_list_key.is_some()
    }

    fn check_word(&self, word: &str, budget: &Budget) -> Result<(), Violation> {
        self.check_word_value(&Value::String(word.to_owned()), budget)
    }

    fn check_word_value(&self, word: &Value, budget: &Budget) -> Result<(), Violation> {
        if self.shows_word() {
            let values = Map::from_iter([(POLICY.to_owned(), word.clone())]);
            let mut found = self.check(&values, budget).into_iter();
            let found = found.find(|violation| violation.path == POLICY || violation.path.is_empty());
            return found.map_or(Ok(()), Err);
        }
        // If the schema does not define `policy`, its words are those with a preset.
        let mut known: Vec<&str> = self.protocol.presets.iter().map(|preset| preset.policy.as_str()).collect();
        if self.protocol.namespace_list_key.is_some() {
            known.extend(["auto", "none"]);
        }
        known.push(DEFAULT);
        known.sort_unstable();
        known.dedup();
        if word.as_str().is_some_and(|word| known.contains(&word)) {
            return Ok(());
        }
        let what = format!("{} is not a word that is known here", show(word));
        Err(Violation { path: POLICY.into(), what, expected: one_of(&known) })
    }

    fn check_values(&self, values: &Map<String, Value>, budget: &Budget) -> Result<(), String> {
        let check = |values: &Map<String, Value>, above: &str| {
            if let Some(unknown) = self.unknown_in(values) {
                return Err(format!("`{}` is not in the schema", join(above, &unknown)));
            }
            match self.check(values, budget).into_iter().next() {
                Some(Violation { path, what, .. }) if path.is_empty() && above.is_empty() => Err(what),
                Some(Violation { path, what, .. }) => Err(format!("{}: {what}", join(above, &path))),
                None => Ok(()),
            }
        };
        if self.protocol.class_field.is_none() {
            return check(values, "");
        }
        for (class, values) in values {
            if !Class::ALL.iter().any(|known| known.name() == class) {
                let known: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
                return Err(format!("`{class}` is not {}", one_of(&known)));
            }
            match values {
                Value::Object(values) => check(values, class)?,
                _ => return Err(format!("{class}: it is not a JSON object")),
            }
        }
        Ok(())
    }

    fn unknown_in(&self, values: &Map<String, Value>) -> Option<String> {
        let shape = self.shape();
        values.keys().find(|name| !shape.is_open() && shape.field(name).is_none()).cloned()
    }
}

fn of_class(values: &Map<String, Value>, class: Option<Class>) -> Map<String, Value> {
    match class {
        None => values.clone(),
        Some(class) => values.get(class.name()).and_then(Value::as_object).cloned().unwrap_or_default(),
    }
}

fn canonical(
    fields: Vec<(String, Document)>,
    (shape, offers): (&Shape<'_>, &dyn Fn(&str) -> bool),
    above: &str,
    extra: Option<&'static str>,
    notes: &mut Vec<Note>,
    budget: &Budget,
) -> Result<Map<String, Value>, Spent> {
    let mut values = Map::new();
    // Each name in the document is compared with all known names.
    let known = u64::try_from(shape.names().len()).unwrap_or(u64::MAX);
    for (written, value) in fields {
        budget.charge(1 + known / 4 + u64::try_from(written.len() / 32).unwrap_or(u64::MAX))?;
        let extra = extra.filter(|extra| extra.eq_ignore_ascii_case(&written));
        let name = match shape.canonical(&written).or(extra) {
            Some(name) => name.to_owned(),
            None if shape.is_open() => written,
            None => {
                // `null` counts as absent and is not an error.
                if !value.is_null() {
                    budget.charge(8 + known.saturating_mul(4))?;
                    let mut names = shape.names();
                    names.retain(|name| offers(name));
                    let hint = hint(&written, &names);
                    let message = format!("unknown field, ignored; the other fields count; {hint}");
                    notes.push(Note { path: join(above, &clip(&written)), message });
                }
                continue;
            }
        };
        if value.is_null() {
            values.remove(&name);
            continue;
        }
        let below = shape.field(&name);
        let value = match (value, below) {
            (Document::Fields(fields), Some(below)) if below.has_fields() => {
                Value::Object(canonical(fields, (&below, &|_| true), &join(above, &name), None, notes, budget)?)
            }
            (value, _) => value.without_nulls(),
        };
        put(&mut values, name, value);
    }
    Ok(values)
}
