//! The keys of the cluster ConfigMap with their texts, for policies that read them themselves.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::ConfigMap;
use super::document::{Document, MAX_DEPTH, take};
use super::known_fields;
use super::maps::{self, GoodTexts, clusters, consequence, is_slip, outranked, unread};
use super::rules::hint;
use super::selector::Selector;
use crate::pod::Node;
use crate::problem::Problem;
use crate::setting::KeyProblem;

/// Keys of the cluster ConfigMap. Koordinator: `apis/configuration/slo_controller_config.go`.
const KEYS: [&str; 8] = [
    "resource-qos-config",
    "cpu-burst-config",
    "resource-threshold-config",
    "system-config",
    "host-application-config",
    "colocation-config",
    "cpu-normalization-config",
    "resource-amplification-config",
];

/// All keys of the cluster ConfigMaps, each from the ConfigMap that takes precedence.
///
/// A text that is not a JSON object, or whose strategies cannot be read, is refused as a whole. The last good text of
/// that key in that ConfigMap counts instead, or else the text in the next ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterConfig {
    keys: BTreeMap<String, ConfigKey>,
    /// The ConfigMap of each key.
    maps: BTreeMap<String, String>,
    /// Of each key, the entry of `nodeStrategies` that is merged into its strategy.
    entries: BTreeMap<String, Entry>,
    /// The last usable text of each ConfigMap and key.
    good: GoodTexts,
}

/// An entry of `nodeStrategies`.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// Its place, such as `nodeStrategies[2]` for the third.
    path: String,
    fields: Map<String, Value>,
}

/// One key of the cluster ConfigMap.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigKey {
    /// Its text, unchanged.
    pub text: String,
    /// `clusterStrategy`, merged with the first entry of `nodeStrategies` that matches this node: the text of a JSON
    /// object, `{}` if there is neither.
    pub strategy: String,
}

impl ClusterConfig {
    /// Reads the cluster ConfigMaps for this node; `previous` has the [good texts](Self::good_texts) of the previous result. Each
    /// problem is returned with its key; that of a misspelt key, which nothing reads, with an empty one.
    pub fn read(maps: &[ConfigMap], node: &Node, previous: Option<&GoodTexts>) -> (Self, Vec<(String, Problem)>) {
        let maps = clusters(maps);
        let names: BTreeSet<&String> = maps.iter().flat_map(|map| map.data.keys()).collect();
        let mut read = Self::default();
        let mut problems = misspelt(&maps);
        for key in names {
            let mut chosen: Option<(String, Body)> = None;
            for map in maps.iter().copied() {
                let Some(text) = map.data.get(key) else { continue };
                let mut problem = |path: &str, message: String| {
                    let field = Some(maps::field(key, path));
                    problems
                        .push((key.clone(), Problem { object: format!("ConfigMap {}", map.key()), field, message }));
                };
                let place = (map.key(), key.clone());
                let body = match Body::parse(key, text, node) {
                    Ok((body, notes)) => {
                        for (path, message) in notes {
                            problem(&path, message);
                        }
                        Some(body)
                    }
                    Err((path, what)) => {
                        let last = previous.and_then(|previous| previous.get(&place));
                        let last = last.and_then(|text| Some(Body::parse(key, text, node).ok()?.0));
                        problem(&path, format!("{what}; {}; write a JSON object", consequence(last.is_some())));
                        last
                    }
                };
                let Some(body) = body else { continue };
                read.good.insert(place, body.text.clone());
                match &chosen {
                    None => chosen = Some((map.key(), body)),
                    Some((_, first)) if first.value == body.value => {}
                    Some((first, _)) => problem("", outranked(first)),
                }
            }
            if let Some((map, Body { text, strategy, entry, .. })) = chosen {
                read.entries.extend(entry.map(|entry| (key.clone(), entry)));
                read.maps.insert(key.clone(), map);
                read.keys.insert(key.clone(), ConfigKey { text, strategy: Value::Object(strategy).to_string() });
            }
        }
        (read, problems)
    }

    /// A key by its name; `None` if it does not exist or was never readable.
    pub fn get(&self, key: &str) -> Option<&ConfigKey> {
        self.keys.get(key)
    }

    /// The ConfigMap that a key is from, as `namespace/name`; `None` if there is no such key.
    pub fn map_of(&self, key: &str) -> Option<&str> {
        self.maps.get(key).map(String::as_str)
    }

    /// A problem that a policy found in a key, with the ConfigMap that the key is from, and the layer that the field is from.
    pub fn problem(&self, policy: &str, KeyProblem { key, field, message }: &KeyProblem) -> Problem {
        let object =
            self.map_of(key).map_or_else(|| "the cluster ConfigMap".to_owned(), |map| format!("ConfigMap {map}"));
        let path = match self.layer_of(key, field) {
            Some(layer) => format!("{layer}.{field}"),
            None => field.clone(),
        };
        Problem { object, field: Some(maps::field(key, &path)), message: format!("{message} (policy {policy})") }
    }

    /// Where a field of a key's strategy is written: an entry of `nodeStrategies`, or `clusterStrategy`; `None` if in neither.
    fn layer_of(&self, key: &str, field: &str) -> Option<&str> {
        if let Some(entry) = self.entries.get(key).filter(|entry| has_field(&entry.fields, field)) {
            return Some(&entry.path);
        }
        let strategy: Map<String, Value> = serde_json::from_str(&self.get(key)?.strategy).ok()?;
        has_field(&strategy, field).then_some("clusterStrategy")
    }

    /// The last usable text of each key that the ConfigMaps have.
    pub fn good_texts(&self) -> &GoodTexts {
        &self.good
    }

    /// All keys, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ConfigKey)> {
        self.keys.iter().map(|(name, key)| (name.as_str(), key))
    }
}

impl FromIterator<(String, ConfigKey)> for ClusterConfig {
    fn from_iter<I: IntoIterator<Item = (String, ConfigKey)>>(keys: I) -> Self {
        Self { keys: keys.into_iter().collect(), ..Self::default() }
    }
}

/// Whether there is a field at this path, such as `beClass.blkioQOS.blocks[0].type`: up to the first list, whose items belong together.
fn has_field(fields: &Map<String, Value>, path: &str) -> bool {
    let (name, below) = path.split_once('.').map_or((path, None), |(name, below)| (name, Some(below)));
    let (name, is_item) = name.split_once('[').map_or((name, false), |(name, _)| (name, true));
    let value = fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match (value, below) {
        (Some(Value::Object(fields)), Some(below)) if !is_item => has_field(fields, below),
        (value, _) => value.is_some(),
    }
}

/// Koordinator's keys whose texts have the fields `clusterStrategy` and `nodeStrategies`, and no others. A key of another name may have any
/// fields, which its policy reads itself.
const LAYERED: [&str; 4] = ["cpu-burst-config", "resource-qos-config", "resource-threshold-config", "system-config"];

/// Problems for keys that are probably misspelt.
fn misspelt(maps: &[&ConfigMap]) -> Vec<(String, Problem)> {
    let mut problems = Vec::new();
    for map in maps {
        for written in map.data.keys().filter(|written| !KEYS.contains(&written.as_str())) {
            let meant = KEYS.iter().find(|key| !map.data.contains_key(**key) && is_slip(written, key));
            if let Some(meant) = meant {
                let (object, field) = (format!("ConfigMap {}", map.key()), Some(written.clone()));
                problems.push((String::new(), Problem { object, field, message: unread(meant) }));
            }
        }
    }
    problems
}

/// A parsed text of a key.
struct Body {
    text: String,
    value: Document,
    strategy: Map<String, Value>,
    entry: Option<Entry>,
}

/// A remark on one field that does not prevent the use of the others: path and message.
type Note = (String, String);

impl Body {
    /// # Errors
    ///
    /// The path of the field that makes the whole text unusable, and what is wrong with it.
    fn parse(key: &str, text: &str, node: &Node) -> Result<(Self, Vec<Note>), (String, String)> {
        let whole = |what: String| (String::new(), what);
        if text.trim().is_empty() {
            return Err(whole("the text is empty".into()));
        }
        let value = Document::parse(text).map_err(|error| whole(format!("it is not JSON ({error})")))?;
        if !value.is_shallow() {
            return Err(whole(format!("it is nested deeper than {MAX_DEPTH} levels")));
        }
        let mut fields = match value.clone() {
            Document::Fields(fields) => fields,
            other if other.is_null() => Vec::new(),
            _ => return Err(whole("it is not a JSON object".into())),
        };
        let mut notes: Vec<Note> = known_fields::misspelt(key, &fields)
            .into_iter()
            .map(|(path, meant)| {
                (path, format!("unknown field, ignored; the other fields count; did you mean `{meant}`?"))
            })
            .collect();
        let mut strategy = match take(&mut fields, "clusterStrategy") {
            Some(document) => object(document, "clusterStrategy")?,
            None => Map::new(),
        };
        let entries = match take(&mut fields, "nodeStrategies") {
            None => Vec::new(),
            Some(Document::Items(entries)) => entries,
            Some(_) => return Err(("nodeStrategies".into(), "it is not a list".into())),
        };
        let entry = first_match(entries, node, &mut notes)?;
        if let Some(entry) = &entry {
            merge(&mut strategy, entry.fields.clone());
        }
        if LAYERED.contains(&key) {
            for (name, _) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let hint = hint(name, &["clusterStrategy", "nodeStrategies"]);
                notes.push((name.clone(), format!("unknown field, ignored; the other fields count; {hint}")));
            }
        }
        Ok((Self { text: text.to_owned(), value, strategy, entry }, notes))
    }
}

/// The fields of the first entry whose selector matches the node. All entries are read, so that every node reports a
/// mistake, not only the one that the entry selects.
fn first_match(entries: Vec<Document>, node: &Node, notes: &mut Vec<Note>) -> Result<Option<Entry>, (String, String)> {
    let mut chosen: Option<(String, Entry)> = None;
    for (index, entry) in entries.into_iter().enumerate() {
        let path = format!("nodeStrategies[{index}]");
        let mut fields = match entry {
            Document::Fields(fields) => fields,
            other if other.is_null() => continue,
            _ => return Err((path, "it is not a JSON object".into())),
        };
        let name = match take(&mut fields, "name") {
            Some(Document::Scalar(Value::String(name))) if !name.is_empty() => name,
            None | Some(Document::Scalar(Value::String(_))) => path.clone(),
            Some(_) => {
                notes.push((format!("{path}.name"), "it is not a string, ignored; write it in quotes".into()));
                path.clone()
            }
        };
        let Some(selector) = take(&mut fields, "nodeSelector") else {
            let message = "it has no nodeSelector and is therefore for no node; write `{}` to mean every node";
            notes.push((path, message.into()));
            continue;
        };
        match (Selector::parse(selector), &chosen) {
            (Err(what), _) => {
                let message = format!("{what}; the strategy is skipped, mend its selector");
                notes.push((format!("{path}.nodeSelector"), message));
            }
            (Ok(selector), _) if !selector.matches(&node.labels) => {}
            (Ok(_), None) => {
                let fields = object(Document::Fields(fields), &path)?;
                chosen = Some((name, Entry { path, fields }));
            }
            (Ok(_), Some((first, _))) => {
                let message = format!("`{first}` is for this node too and comes first, so this one has no effect here");
                notes.push((format!("{path}.nodeSelector"), message));
            }
        }
    }
    Ok(chosen.map(|(_, entry)| entry))
}

/// The fields of a strategy, without those that count as absent.
fn object(document: Document, path: &str) -> Result<Map<String, Value>, (String, String)> {
    match document.with_one_spelling().without_nulls() {
        Value::Object(fields) => {
            let mut kept = Map::new();
            merge(&mut kept, fields);
            Ok(kept)
        }
        _ => Err((path.to_owned(), "it is not a JSON object".into())),
    }
}

/// Fields of words whose empty string counts as absent: Koordinator's types omit them when they are empty.
const WORDS: [&str; 3] = ["policy", "cpuSuppressPolicy", "cpuEvictPolicy"];

/// Merges `new` over `old`: objects are merged to any depth, everything else is replaced; an empty word counts as absent.
/// Field names are compared without letter case, as in Go's decoder.
fn merge(old: &mut Map<String, Value>, new: Map<String, Value>) {
    for (name, value) in new {
        if value.as_str() == Some("") && WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
            continue;
        }
        let known = old.keys().find(|known| known.eq_ignore_ascii_case(&name)).cloned().unwrap_or(name);
        match (old.get_mut(&known), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, Value::Object(new)) => {
                let mut fields = Map::new();
                merge(&mut fields, new);
                old.insert(known, Value::Object(fields));
            }
            (_, value) => {
                old.insert(known, value);
            }
        }
    }
}
