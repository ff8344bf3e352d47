//! The objects that the watches have delivered, each reduced to the fields that the agent uses.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use kube::runtime::watcher::{Error, Event};
use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;
use serde_json::Value;

use super::api_errors;
use crate::node_report::ControllerAnswer;
use crate::object::{API_SERVER, Read};
use crate::pod::mirror;
use crate::policy_module::{PolicyModule, policy_module_from_value};
use crate::{Giver, Snapshot, Topology, config_map_from_value, node_from_value, pod_from_value, topology_from_value};

/// The API server's objects that concern this node.
pub(super) struct Cache {
    state: Mutex<State>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The kind of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// The pods of this node.
    Pods,
    /// This node.
    Node,
    /// The node's NodeResourceTopology, if the cluster has that kind.
    Topology,
    /// All PolicyModules.
    PolicyModules,
    /// One ConfigMap, by its index in the list of watched ConfigMaps.
    ConfigMap(usize),
}

#[derive(Debug)]
struct State {
    pods: WatchedObjects<Pod>,
    node: WatchedObjects<Node>,
    topology: WatchedObjects<Topology>,
    policy_modules: WatchedObjects<PolicyModule>,
    config_maps: Vec<WatchedObjects<ConfigMap>>,
    /// Why writes fail, by the name of the written object.
    unwritten: BTreeMap<&'static str, String>,
    /// The last known Node: a Node that is deleted and registers again keeps its labels meanwhile.
    last_node: Option<Node>,
    /// UID of the last known Node.
    last_node_uid: Option<String>,
    /// The controller's answer in the node's report, as the API server last returned it.
    answer: Option<ControllerAnswer>,
    /// Whether anything has changed since the last [`Cache::changed`].
    changed: bool,
}

/// The objects of one watch.
#[derive(Debug)]
struct WatchedObjects<T> {
    /// The watched objects, as messages name them.
    what: String,
    read: fn(Value, &str) -> Result<Read<T>, Problem>,
    objects: BTreeMap<String, Entry<T>>,
    /// The objects of an unfinished list. Until the list is complete, the previous objects count.
    listed: Option<BTreeMap<String, Entry<T>>>,
    is_synced: bool,
    /// The watch's current error; `None` if it works.
    api_error: Option<Problem>,
}

/// One object in its last readable state, and its problems.
#[derive(Clone, Debug, PartialEq)]
struct Entry<T> {
    object: Option<T>,
    problems: Vec<Problem>,
    /// `metadata.uid`.
    uid: Option<String>,
    created: Option<Time>,
    /// The UID of the Node that owns it.
    node_owner: Option<String>,
}

impl<T: Clone + PartialEq> WatchedObjects<T> {
    fn new(what: impl Into<String>, read: fn(Value, &str) -> Result<Read<T>, Problem>) -> Self {
        let (objects, listed, is_synced, api_error) = (BTreeMap::new(), None, false, None);
        Self { what: what.into(), read, objects, listed, is_synced, api_error }
    }

    /// Applies one event. `true` if an object or the error has changed.
    fn take(&mut self, event: Result<Event<DynamicObject>, Error>) -> bool {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let problem = api_errors::of_watch(&self.what, &error);
                // An expired watch lists again: no problem.
                return problem.is_some_and(|problem| self.api_error.replace(problem.clone()) != Some(problem));
            }
        };
        let had_error = self.api_error.is_some();
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
        self.api_error = None;
        changed || had_error
    }

    /// Reads an object. An unreadable object keeps its last known state.
    fn entry(&self, object: DynamicObject) -> (String, Entry<T>) {
        let name = key(&object);
        let (uid, created) = (object.metadata.uid.clone(), object.metadata.creation_timestamp.clone());
        let node_owner = mirror::node_owner(object.metadata.owner_references.as_deref().unwrap_or_default());
        let node_owner = node_owner.map(str::to_owned);
        let read = serde_json::to_value(object).map_err(|error| Problem {
            object: format!("{} {name}", self.what),
            field: None,
            message: format!("{error}; it is not read"),
        });
        let entry = match read.and_then(|value| (self.read)(value, API_SERVER)) {
            Ok(Read { object, problems }) => Entry { object: Some(object), problems, uid, created, node_owner },
            Err(problem) => {
                let object = self.objects.get(&name).and_then(|known| known.object.clone());
                let counts = if object.is_some() { "; what was there before counts on" } else { "" };
                let problem = Problem {
                    object: format!("{} {name}", self.what),
                    message: format!("{}{counts}", problem.message),
                    ..problem
                };
                Entry { object, problems: vec![problem], uid, created, node_owner }
            }
        };
        (name, entry)
    }

    fn recovered(&mut self) -> bool {
        self.is_synced && self.api_error.take().is_some()
    }

    fn objects(&self) -> impl Iterator<Item = T> {
        self.objects.values().filter_map(|entry| entry.object.clone())
    }

    /// Names of the objects that exist and were never readable.
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
        let why = self.api_error.as_ref().map(|problem| format!(" ({})", problem.message)).unwrap_or_default();
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

impl Cache {
    pub(super) fn new(config_maps: &[(String, String)], wake: Box<dyn Fn() + Send + Sync>) -> Self {
        let map = |(namespace, name): &(String, String)| {
            WatchedObjects::new(format!("ConfigMap {namespace}/{name}"), config_map_from_value)
        };
        let state = State {
            pods: WatchedObjects::new("pod", |value, origin| pod_from_value(value, origin, Giver::ApiServer)),
            node: WatchedObjects::new("node", node_from_value),
            topology: WatchedObjects::new("NodeResourceTopology", topology_from_value),
            policy_modules: WatchedObjects::new("PolicyModule", policy_module_from_value),
            config_maps: config_maps.iter().map(map).collect(),
            unwritten: BTreeMap::new(),
            last_node: None,
            last_node_uid: None,
            answer: None,
            changed: false,
        };
        Self { state: Mutex::new(state), wake }
    }

    /// Applies an event of a watch, and wakes the loop if an object has changed and every awaited watch has listed.
    pub(super) fn take(&self, watch: &Watch, event: Result<Event<DynamicObject>, Error>) {
        let mut state = self.state();
        let changed = match watch {
            Watch::Pods => state.pods.take(event),
            Watch::Node => state.node.take(event),
            Watch::Topology => state.topology.take(event),
            Watch::PolicyModules => state.policy_modules.take(event),
            Watch::ConfigMap(place) => state.config_maps.get_mut(*place).is_some_and(|kept| kept.take(event)),
        };
        state.changed |= changed;
        let is_complete = state.changed && state.waits_for().is_none();
        drop(state);
        if changed && is_complete {
            (self.wake)();
        }
    }

    /// Clears the error of a watch that has been silent: errors repeat while they last.
    pub(super) fn recovered_silently(&self, watch: &Watch) {
        let mut state = self.state();
        let recovered = match watch {
            Watch::Pods => state.pods.recovered(),
            Watch::Node => state.node.recovered(),
            Watch::Topology => state.topology.recovered(),
            Watch::PolicyModules => state.policy_modules.recovered(),
            Watch::ConfigMap(place) => state.config_maps.get_mut(*place).is_some_and(WatchedObjects::recovered),
        };
        state.changed |= recovered;
        drop(state);
        if recovered {
            (self.wake)();
        }
    }

    /// Records the outcome of a write: failures are reported beside those of the watches.
    pub(super) fn written(&self, what: &'static str, outcome: Result<(), String>) {
        let mut state = self.state();
        let is_change = match outcome {
            Ok(()) => state.unwritten.remove(what).is_some(),
            Err(why) => state.unwritten.insert(what, why.clone()) != Some(why),
        };
        state.changed |= is_change;
        drop(state);
        if is_change {
            (self.wake)();
        }
    }

    /// Sets the controller's answer to the node's report.
    pub(super) fn answered(&self, answer: Option<ControllerAnswer>) {
        let mut state = self.state();
        let is_change = state.answer != answer;
        state.answer = answer;
        state.changed |= is_change;
        drop(state);
        if is_change {
            (self.wake)();
        }
    }

    /// A snapshot, if anything has changed since the last call and every awaited watch has listed.
    pub(super) fn changed(&self) -> Option<Snapshot> {
        let mut state = self.state();
        if !state.changed || state.waits_for().is_some() {
            return None;
        }
        state.changed = false;
        Some(state.snapshot())
    }

    pub(super) fn has_changes(&self) -> bool {
        let state = self.state();
        state.changed && state.waits_for().is_none()
    }

    pub(super) fn waits_for(&self) -> Option<String> {
        self.state().waits_for()
    }

    /// Number of nodes, from the PolicyModules' status; 0 without a controller.
    pub(super) fn fleet(&self) -> u32 {
        let state = self.state();
        let counted = state.policy_modules.objects.values().filter_map(|entry| entry.object.as_ref()?.status.as_ref());
        counted.map(|status| status.nodes).max().unwrap_or(0)
    }

    /// The state stays valid after a panic: each change is one assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedObjects<Pod> {
    /// All pods, and a problem for each false mirror: a pod with a mirror's annotations whose owner is not the Node with the UID `node`.
    /// If two pods have one UID, the pod to which the API server gave the UID comes first; of mirrors with the same hash, the older.
    fn by_seniority(&self, node: Option<&str>) -> (Vec<Pod>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut pods: Vec<(&Entry<Pod>, Pod)> = Vec::new();
        for entry in self.objects.values() {
            let Some(mut pod) = entry.object.clone() else { continue };
            let misfit = node
                .filter(|_| pod.lifecycle.mirror)
                .and_then(|node| mirror::misfit(entry.node_owner.as_deref(), node));
            if let (Some(why), Some(own)) = (misfit, &entry.uid) {
                pod.uid.clone_from(own);
                pod.lifecycle.mirror = false;
                let (field, message) = mirror::refusal(&why);
                problems.push(Problem {
                    object: format!("pod {}", pod.key()),
                    field: Some(field),
                    message: format!("{message} (in {API_SERVER})"),
                });
            }
            pods.push((entry, pod));
        }
        pods.sort_by_key(|(entry, pod)| {
            let is_hash = entry.uid.as_deref() != Some(&pod.uid);
            (is_hash, if is_hash { entry.created.as_ref() } else { None })
        });
        (pods.into_iter().map(|(_, pod)| pod).collect(), problems)
    }
}

impl State {
    /// What has not been listed yet. Nothing can be decided without all pods, the node's labels and every ConfigMap: missing
    /// objects would look removed. NUMA zones are not awaited: few clusters have them.
    fn waits_for(&self) -> Option<String> {
        let single = [self.pods.waits_for(), self.node.waits_for(), self.policy_modules.waits_for()];
        let maps = self.config_maps.iter().map(WatchedObjects::waits_for);
        let is_unknown_node = self.node.is_synced && self.node.objects.is_empty() && self.last_node.is_none();
        let unknown_node = is_unknown_node.then(|| "this node (there is none of the name that was given)".to_owned());
        let waits: Vec<_> = single.into_iter().chain(maps).chain([unknown_node]).flatten().collect();
        (!waits.is_empty()).then(|| format!("the API server's first answer on {}", waits.join(", ")))
    }

    /// The node with the zones of its NodeResourceTopology.
    fn with_zones(&self, node: Node) -> Node {
        let topology = self.topology.objects().find(|topology| topology.node == node.name);
        Node { zones: topology.map(|topology| topology.zones).unwrap_or_default(), ..node }
    }

    fn snapshot(&mut self) -> Snapshot {
        self.last_node = self.node.objects().next().or(self.last_node.take());
        let node_uid = self.node.objects.values().find_map(|entry| entry.uid.clone());
        self.last_node_uid = node_uid.or(self.last_node_uid.take());
        let (pods, false_mirrors) = self.pods.by_seniority(self.last_node_uid.as_deref());
        let maps = || self.config_maps.iter();
        Snapshot {
            pods,
            // The API server gives only this node's.
            pod_nodes: BTreeMap::new(),
            config_maps: maps().flat_map(WatchedObjects::objects).collect(),
            policy_modules: self.policy_modules.objects().collect(),
            unread_modules: self.policy_modules.unread().collect(),
            node: self.last_node.clone().map(|node| self.with_zones(node)),
            answer: self.answer.clone(),
            problems: (self.pods.problems())
                .chain(false_mirrors)
                .chain(self.node.problems())
                .chain(self.topology.problems())
                .chain(self.policy_modules.problems())
                .chain(maps().flat_map(WatchedObjects::problems))
                .collect(),
            api_errors: [
                &self.pods.api_error,
                &self.node.api_error,
                &self.topology.api_error,
                &self.policy_modules.api_error,
            ]
            .into_iter()
            .chain(maps().map(|kept| &kept.api_error))
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

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
