//! What the watches have brought, each object reduced to what the agent works with.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::api::DynamicObject;
use kube::runtime::watcher::{Error, Event};
use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;
use serde_json::Value;

use super::trouble;
use crate::object::{API_SERVER, Read};
use crate::policy_module::{PolicyModule, policy_module_from_value};
use crate::{Snapshot, config_map_from_value, node_from_value, pod_from_value};

/// What the API server says of this node.
pub(super) struct Mirror {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// One watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The pods of this node.
    Pods,
    /// This node.
    Node,
    /// All PolicyModules.
    PolicyModules,
    /// One ConfigMap: its place among those that count.
    ConfigMap(usize),
}

#[derive(Debug)]
struct State {
    pods: Kept<Pod>,
    node: Kept<Node>,
    policy_modules: Kept<PolicyModule>,
    config_maps: Vec<Kept<ConfigMap>>,
    /// What cannot be written, and why.
    unwritten: BTreeMap<&'static str, String>,
    /// The node as it last was: one that is deleted and registers anew keeps its labels meanwhile.
    last_node: Option<Node>,
    /// Since the loop last asked.
    changed: bool,
}

/// What one watch has brought.
#[derive(Debug)]
struct Kept<T> {
    /// What is watched, for people.
    what: String,
    read: fn(Value, &str) -> Result<Read<T>, Problem>,
    objects: BTreeMap<String, Entry<T>>,
    /// What a list has brought so far. It counts when it is complete: until then what was known counts.
    listed: Option<BTreeMap<String, Entry<T>>>,
    is_synced: bool,
    /// Why nothing arrives at the moment.
    trouble: Option<Problem>,
}

/// One object: as it was last read, and what about it cannot be.
#[derive(Clone, Debug, PartialEq)]
struct Entry<T> {
    object: Option<T>,
    problems: Vec<Problem>,
}

impl<T: Clone + PartialEq> Kept<T> {
    fn new(what: impl Into<String>, read: fn(Value, &str) -> Result<Read<T>, Problem>) -> Self {
        let (objects, listed, is_synced, trouble) = (BTreeMap::new(), None, false, None);
        Self { what: what.into(), read, objects, listed, is_synced, trouble }
    }

    /// Takes one event. `true` if something is different now.
    fn take(&mut self, event: Result<Event<DynamicObject>, Error>) -> bool {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let told = trouble::of_watch(&self.what, &error);
                // A watch that has grown old is listed anew: that is how watches go on.
                return told.is_some_and(|told| self.trouble.replace(told.clone()) != Some(told));
            }
        };
        let was_troubled = self.trouble.is_some();
        let changed = match event {
            Event::Init => {
                self.listed = Some(BTreeMap::new());
                return false;
            }
            Event::InitApply(object) => {
                let (name, entry) = self.entry(object);
                self.listed.get_or_insert_default().insert(name, entry);
                return false;
            }
            Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                let changed = !self.is_synced || listed != self.objects;
                self.is_synced = true;
                self.objects = listed;
                changed
            }
            Event::Apply(object) => {
                let (name, entry) = self.entry(object);
                let changed = self.objects.get(&name) != Some(&entry);
                self.objects.insert(name, entry);
                changed
            }
            Event::Delete(object) => self.objects.remove(&key(&object)).is_some(),
        };
        self.trouble = None;
        changed || was_troubled
    }

    /// Reads an object. One that cannot be read stays as it was last known.
    fn entry(&self, object: DynamicObject) -> (String, Entry<T>) {
        let name = key(&object);
        let read = serde_json::to_value(object).map_err(|error| Problem {
            object: format!("{} {name}", self.what),
            field: None,
            message: format!("{error}; it is not read"),
        });
        let entry = match read.and_then(|value| (self.read)(value, API_SERVER)) {
            Ok(Read { object, problems }) => Entry { object: Some(object), problems },
            Err(problem) => {
                let object = self.objects.get(&name).and_then(|known| known.object.clone());
                let counts = if object.is_some() { "; what was there before counts on" } else { "" };
                let problem = Problem {
                    object: format!("{} {name}", self.what),
                    message: format!("{}{counts}", problem.message),
                    ..problem
                };
                Entry { object, problems: vec![problem] }
            }
        };
        (name, entry)
    }

    fn mended(&mut self) -> bool {
        self.is_synced && self.trouble.take().is_some()
    }

    fn objects(&self) -> impl Iterator<Item = T> {
        self.objects.values().filter_map(|entry| entry.object.clone())
    }

    /// Those that are there and were never understood.
    fn unread(&self) -> impl Iterator<Item = String> {
        self.objects.iter().filter(|(_, entry)| entry.object.is_none()).map(|(name, _)| name.clone())
    }

    fn problems(&self) -> impl Iterator<Item = Problem> {
        self.objects.values().flat_map(|entry| entry.problems.iter().cloned())
    }

    fn waits_for(&self) -> Option<String> {
        if self.is_synced {
            return None;
        }
        let why = self.trouble.as_ref().map(|problem| format!(" ({})", problem.message)).unwrap_or_default();
        Some(format!("{}{why}", self.what))
    }
}

/// `namespace/name`, or the name alone.
fn key(object: &DynamicObject) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

impl Mirror {
    pub(super) fn new(config_maps: &[(String, String)], wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let map = |(namespace, name): &(String, String)| {
            Kept::new(format!("ConfigMap {namespace}/{name}"), config_map_from_value)
        };
        let state = State {
            pods: Kept::new("pod", pod_from_value),
            node: Kept::new("node", node_from_value),
            policy_modules: Kept::new("PolicyModule", policy_module_from_value),
            config_maps: config_maps.iter().map(map).collect(),
            unwritten: BTreeMap::new(),
            last_node: None,
            changed: false,
        };
        Self { state: Mutex::new(state), wake }
    }

    /// Takes what a watch brought, and wakes the loop where that changes something.
    pub(super) fn take(&self, watch: &Watch, event: Result<Event<DynamicObject>, Error>) {
        let mut state = self.state();
        let changed = match watch {
            Watch::Pods => state.pods.take(event),
            Watch::Node => state.node.take(event),
            Watch::PolicyModules => state.policy_modules.take(event),
            Watch::ConfigMap(place) => state.config_maps.get_mut(*place).is_some_and(|kept| kept.take(event)),
        };
        state.changed |= changed;
        let is_awaited = state.changed && state.waits_for().is_none();
        drop(state);
        if changed && is_awaited {
            (self.wake)();
        }
    }

    /// Nothing has come of a watch for so long that it must have been taken up again: errors repeat while they last.
    pub(super) fn quiet(&self, watch: &Watch) {
        let mut state = self.state();
        let mended = match watch {
            Watch::Pods => state.pods.mended(),
            Watch::Node => state.node.mended(),
            Watch::PolicyModules => state.policy_modules.mended(),
            Watch::ConfigMap(place) => state.config_maps.get_mut(*place).is_some_and(Kept::mended),
        };
        state.changed |= mended;
        drop(state);
        if mended {
            (self.wake)();
        }
    }

    /// Notes whether something could be written: it is told beside what cannot be read.
    pub(super) fn written(&self, what: &'static str, outcome: Result<(), String>) {
        let mut state = self.state();
        let is_news = match outcome {
            Ok(()) => state.unwritten.remove(what).is_some(),
            Err(why) => state.unwritten.insert(what, why.clone()) != Some(why),
        };
        state.changed |= is_news;
        drop(state);
        if is_news {
            (self.wake)();
        }
    }

    /// Everything, where it has changed since it was last asked for and is complete.
    pub(super) fn changed(&self) -> Option<Snapshot> {
        let mut state = self.state();
        if !state.changed || state.waits_for().is_some() {
            return None;
        }
        state.changed = false;
        Some(state.snapshot())
    }

    pub(super) fn has_news(&self) -> bool {
        let state = self.state();
        state.changed && state.waits_for().is_none()
    }

    pub(super) fn waits_for(&self) -> Option<String> {
        self.state().waits_for()
    }

    /// How many nodes there are, as far as somebody has counted them.
    pub(super) fn fleet(&self) -> u32 {
        let state = self.state();
        let counted = state.policy_modules.objects.values().filter_map(|entry| entry.object.as_ref()?.status.as_ref());
        counted.map(|status| status.nodes).max().unwrap_or(0)
    }

    /// What was kept before somebody panicked is as good as ever: each change is made in one piece.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Without all pods, the node's labels and every ConfigMap nothing can be decided: what is missing would look like removed.
    fn waits_for(&self) -> Option<String> {
        let single = [self.pods.waits_for(), self.node.waits_for(), self.policy_modules.waits_for()];
        let maps = self.config_maps.iter().map(Kept::waits_for);
        let is_nobody = self.node.is_synced && self.node.objects.is_empty() && self.last_node.is_none();
        let nobody = is_nobody.then(|| "this node (there is none of the name that was given)".to_owned());
        let waits: Vec<_> = single.into_iter().chain(maps).chain([nobody]).flatten().collect();
        (!waits.is_empty()).then(|| format!("the API server's first answer on {}", waits.join(", ")))
    }

    fn snapshot(&mut self) -> Snapshot {
        self.last_node = self.node.objects().next().or(self.last_node.take());
        let maps = || self.config_maps.iter();
        Snapshot {
            pods: self.pods.objects().collect(),
            config_maps: maps().flat_map(Kept::objects).collect(),
            policy_modules: self.policy_modules.objects().collect(),
            unread_modules: self.policy_modules.unread().collect(),
            node: self.last_node.clone(),
            problems: (self.pods.problems())
                .chain(self.node.problems())
                .chain(self.policy_modules.problems())
                .chain(maps().flat_map(Kept::problems))
                .collect(),
            troubles: [&self.pods.trouble, &self.node.trouble, &self.policy_modules.trouble]
                .into_iter()
                .chain(maps().map(|kept| &kept.trouble))
                .flatten()
                .cloned()
                .chain(self.unwritten.iter().map(|(what, why)| Problem {
                    object: format!("writing {what}"),
                    field: None,
                    message: format!("{why}; tried again"),
                }))
                .collect(),
        }
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
