//! The ConfigMaps that policies read, and their precedence.

use std::collections::{BTreeMap, BTreeSet};

use super::compiled::CompiledProtocol;
use super::namespaces::{Lists, Namespaces};
use super::rules::Violation;
use super::strategy::{self, Strategy};
use super::{ConfigMap, Layer};
use crate::pod::Node;
use crate::problem::Problem;
use qosm_schema::Budget;

/// Names and home namespaces of the cluster ConfigMaps, in the order of precedence: Koordinator's own, then the product's.
const CLUSTER: [(&str, &str); 2] = [("slo-controller-config", "koordinator-system"), ("ack-slo-config", "kube-system")];
/// The ConfigMap of namespace lists; its documentation names both namespaces.
const LISTS: &str = "ack-slo-pod-config";
const NAMESPACES: [&str; 2] = ["koordinator-system", "kube-system"];

/// Budget of steps for the last good text of a key, which was accepted before.
const LAST_STEPS: u64 = super::CONFIG_MAP_STEPS;

/// The ConfigMaps that a source must watch, as (namespace, name).
pub fn config_maps() -> impl Iterator<Item = (&'static str, &'static str)> {
    let clusters = CLUSTER.into_iter().map(|(name, home)| (home, name));
    clusters.chain(NAMESPACES.into_iter().map(|namespace| (namespace, LISTS)))
}

/// The last usable text by ConfigMap (`namespace/name`) and key.
pub type GoodTexts = BTreeMap<(String, String), String>;

/// The result of reading the ConfigMaps.
pub(super) struct Reading {
    pub(super) strategy: Option<Chosen>,
    pub(super) namespaces: Namespaces,
    pub(super) good: GoodTexts,
    pub(super) problems: Vec<Problem>,
}

/// The strategy in force, with its ConfigMap and key.
pub(super) struct Chosen {
    pub(super) map: String,
    pub(super) key: String,
    pub(super) strategy: Strategy,
}

pub(super) fn read(
    protocol: &CompiledProtocol,
    maps: &[ConfigMap],
    node: &Node,
    previous: &GoodTexts,
    budget: &Budget,
) -> Reading {
    let mut reader = Reader { protocol, node, previous, budget, good: GoodTexts::new(), problems: Vec::new() };
    let maps = reader.admit(maps);
    let keys = protocol.protocol();
    let strategy = keys.config_map_key.as_deref().and_then(|key| reader.strategy(&maps, key));
    let namespaces = keys.namespace_list_key.as_deref().map(|key| reader.namespaces(&maps, key)).unwrap_or_default();
    reader.misplaced(&maps);
    Reading { strategy, namespaces, good: reader.good, problems: reader.problems }
}

/// The cluster ConfigMaps in a known namespace, without duplicates, in the order of precedence.
pub(super) fn clusters(maps: &[ConfigMap]) -> Vec<&ConfigMap> {
    let mut seen = BTreeSet::new();
    let counts = |map: &&ConfigMap| map.namespace.as_deref().is_none_or(|namespace| NAMESPACES.contains(&namespace));
    by_precedence(maps.iter().filter(counts).filter(|map| seen.insert(map.key())))
}

/// The cluster ConfigMaps, in the order of precedence.
fn by_precedence<'m>(maps: impl Iterator<Item = &'m ConfigMap>) -> Vec<&'m ConfigMap> {
    // The documented namespace comes first, then no namespace, then the other one.
    let place = |map: &ConfigMap| {
        let (rank, (_, home)) = CLUSTER.iter().enumerate().find(|(_, (name, _))| *name == map.name)?;
        let namespace = match map.namespace.as_deref() {
            Some(namespace) if namespace == *home => 0,
            None => 1,
            Some(_) => 2,
        };
        Some((rank, namespace))
    };
    let mut named: Vec<_> = maps.filter_map(|map| Some((place(map)?, map))).collect();
    named.sort_by_key(|(place, _)| *place);
    named.into_iter().map(|(_, map)| map).collect()
}

/// The message for a key that a ConfigMap of higher precedence overrides.
pub(super) fn outranked(first: &str) -> String {
    format!(
        "ignored: ConfigMap {first} holds this key too, says something else and comes first; remove the key from one of them"
    )
}

struct Reader<'r> {
    protocol: &'r CompiledProtocol,
    node: &'r Node,
    previous: &'r GoodTexts,
    budget: &'r Budget,
    good: GoodTexts,
    problems: Vec<Problem>,
}

impl<'r> Reader<'r> {
    /// The known ConfigMaps, without duplicates. Others get a problem.
    fn admit<'m>(&mut self, maps: &'m [ConfigMap]) -> Vec<&'m ConfigMap> {
        let mut seen = BTreeSet::new();
        let mut admitted = Vec::new();
        for map in maps {
            let home = CLUSTER.iter().find(|(name, _)| *name == map.name).map(|(_, home)| *home);
            let known = home.is_some() || map.name == LISTS;
            if !known {
                let message = "ignored: no policy reads a ConfigMap of this name; known are slo-controller-config, \
                               ack-slo-config and ack-slo-pod-config";
                self.problem(map, None, message.into());
            } else if let Some(namespace) = map.namespace.as_deref()
                && !NAMESPACES.contains(&namespace)
            {
                let expected = home.unwrap_or("kube-system or koordinator-system");
                self.problem(map, None, format!("ignored: expected in namespace {expected}; move it there"));
            } else if !seen.insert(map.key()) {
                let message = "ignored: a ConfigMap of this namespace and name was read before; remove one of them";
                self.problem(map, None, message.into());
            } else {
                admitted.push(map);
            }
        }
        admitted
    }

    fn strategy(&mut self, maps: &[&ConfigMap], key: &str) -> Option<Chosen> {
        let mut chosen: Option<Chosen> = None;
        for map in by_precedence(maps.iter().copied()) {
            let Some(text) = self.text(map, key) else { continue };
            let Some(strategy) = self.usable_strategy(map, key, text) else { continue };
            match &chosen {
                None => chosen = Some(Chosen { map: map.key(), key: key.to_owned(), strategy }),
                Some(first) if first.strategy == strategy => {}
                Some(first) => self.problem(map, Some(key.to_owned()), outranked(&first.map)),
            }
        }
        chosen
    }

    fn usable_strategy(&mut self, map: &ConfigMap, key: &str, text: &str) -> Option<Strategy> {
        match strategy::parse(self.protocol, self.node, text, self.budget) {
            Ok((strategy, notes)) => {
                for (path, message) in notes {
                    self.problem(map, Some(field(key, &path)), message);
                }
                self.keep(map, key, text);
                Some(strategy)
            }
            Err(violations) => {
                let last = self.last_good(map, key, |text| {
                    strategy::parse(self.protocol, self.node, text, &Budget::of(LAST_STEPS)).ok()
                });
                let consequence = consequence(last.is_some());
                for Violation { path, what, expected } in violations {
                    let message = format!("{what}; {consequence}; write {expected}");
                    self.problem(map, Some(field(key, &path)), message);
                }
                let ((strategy, _), text) = last?;
                self.keep(map, key, &text);
                Some(strategy)
            }
        }
    }

    fn namespaces(&mut self, maps: &[&ConfigMap], key: &str) -> Namespaces {
        let mut namespaces = Namespaces::default();
        for map in maps.iter().copied().filter(|map| map.name == LISTS) {
            let Some(text) = self.text(map, key) else { continue };
            match Lists::parse(text) {
                Ok(lists) => {
                    for (path, hint) in &lists.unknown {
                        self.problem(map, Some(field(key, path)), format!("unknown field, ignored; {hint}"));
                    }
                    for (list, fault) in &lists.impossible {
                        self.problem(map, Some(field(key, list)), fault.clone());
                    }
                    self.keep(map, key, text);
                    namespaces.add(lists, &map.key());
                }
                Err((path, what)) => {
                    let last = self.last_good(map, key, |text| Lists::parse(text).ok());
                    let message = format!(
                        r#"{what}; {}; write {{"enabledNamespaces": [], "disabledNamespaces": []}} with names in quotes"#,
                        consequence(last.is_some())
                    );
                    self.problem(map, Some(field(key, &path)), message);
                    if let Some((lists, text)) = last {
                        self.keep(map, key, &text);
                        namespaces.add(lists, &map.key());
                    }
                }
            }
        }
        let contradictions = namespaces.contradictions().map(|(namespace, enables, disables)| Problem {
            object: format!("ConfigMap {disables}"),
            field: Some(field(key, "disabledNamespaces")),
            message: format!(
                "namespace {namespace} is disabled here and enabled in {}; it counts as disabled, remove it from one of the lists",
                Layer::NamespaceList { map: enables.to_owned() }
            ),
        });
        self.problems.extend(contradictions);
        namespaces
    }

    /// Reports this policy's keys in ConfigMaps in which they have no effect.
    fn misplaced(&mut self, maps: &[&ConfigMap]) {
        let keys = self.protocol.protocol();
        let [(first, _), (second, _)] = CLUSTER;
        for map in maps {
            let (key, place) = match map.name == LISTS {
                true => (&keys.config_map_key, format!("{first} or {second}")),
                false => (&keys.namespace_list_key, LISTS.to_owned()),
            };
            if let Some(key) = key.as_ref().filter(|key| map.data.contains_key(*key)) {
                let message = format!("ignored: no policy reads this key here; put it into ConfigMap {place}");
                self.problem(map, Some(key.clone()), message);
            }
        }
    }

    /// The key's text; a misspelt key gets a problem.
    fn text<'m>(&mut self, map: &'m ConfigMap, key: &str) -> Option<&'m str> {
        let text = map.data.get(key);
        if text.is_none()
            && let Some(close) = map.data.keys().find(|written| is_slip(written, key))
        {
            self.problem(map, Some(close.clone()), unread(key));
        }
        text.map(String::as_str)
    }

    fn last_good<T>(&self, map: &ConfigMap, key: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<(T, String)> {
        let text = self.previous.get(&(map.key(), key.to_owned()))?;
        Some((parse(text)?, text.clone()))
    }

    fn keep(&mut self, map: &ConfigMap, key: &str, text: &str) {
        self.good.insert((map.key(), key.to_owned()), text.to_owned());
    }

    fn problem(&mut self, map: &ConfigMap, field: Option<String>, message: String) {
        self.problems.push(Problem { object: format!("ConfigMap {}", map.key()), field, message });
    }
}

/// Whether a ConfigMap's key is probably `key`, misspelt: but for case and separators it has at most two other letters. Short keys of other
/// features are alike (`cpu-qos`, `cpu-burst`), so in these only one.
pub(super) fn is_slip(written: &str, key: &str) -> bool {
    let joined = |name: &str| name.replace(['-', '_', '.'], "").to_ascii_lowercase();
    let (written, key) = (joined(written), joined(key));
    let most = if key.len() < 9 { 1 } else { 2 };
    written.len() <= 64 && strsim::osa_distance(&written, &key) <= most
}

/// The message for a misspelt key.
pub(super) fn unread(meant: &str) -> String {
    format!("no policy reads this key; did you mean `{meant}`?")
}

pub(super) fn field(key: &str, path: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{key}: {path}") }
}

pub(super) fn consequence(has_last: bool) -> &'static str {
    if has_last {
        "the whole key is refused and its last good text counts on"
    } else {
        "the whole key is refused and says nothing"
    }
}
