//! Reads objects of all kinds from a text, each with its place in the text.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;
use serde_json::Value;

use crate::node_report::ControllerAnswer;
use crate::pod::{Giver, is_name};
use crate::policy_module::{PolicyModule, policy_module_from_value};
use crate::text::documents;
use crate::topology::{Topology, topology_from_value};
use crate::typed::Misfit;
use crate::{config_map_from_value, node_from_value, pod_from_value};

/// The `apiVersion` of qosm's own kinds.
pub(crate) const API_VERSION: &str = "qosm.io/v1alpha1";
/// The origin of objects that did not come from a text.
pub(crate) const API_SERVER: &str = "the API server";

/// Maximum depth of lists within lists.
const MAX_DEPTH: usize = 4;

/// The objects of manifests or of an API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objects {
    /// Pods, in the order of the text, each once.
    pub pods: Vec<Pod>,
    /// `spec.nodeName` of the pods whose manifests have it, by `namespace/name`.
    pub pod_nodes: BTreeMap<String, String>,
    /// ConfigMaps, in the order of the text, each once.
    pub config_maps: Vec<ConfigMap>,
    /// PolicyModules, in the order of the text, each once.
    pub policy_modules: Vec<PolicyModule>,
    /// Names of PolicyModules that exist, cannot be read, and have no known earlier state.
    pub unread_modules: BTreeSet<String>,
    /// The first Node, with the zones of its NodeResourceTopology.
    pub node: Option<Node>,
    /// The controller's answer to the node's report.
    pub answer: Option<ControllerAnswer>,
    /// Objects and fields that cannot be used.
    pub problems: Vec<Problem>,
    /// Errors of the API server: failing watches, and objects that cannot be written.
    pub api_errors: Vec<Problem>,
}

impl Objects {
    /// Leaves out the pods of other nodes, if the Node is known: `kubectl get pods -A` lists those of all nodes. Each becomes a problem.
    pub fn leave_out_other_nodes(&mut self) {
        let Some(here) = self.node.as_ref().map(|node| node.name.as_str()).filter(|name| !name.is_empty()) else {
            return;
        };
        let (nodes, problems) = (&self.pod_nodes, &mut self.problems);
        self.pods.retain(|pod| {
            let Some(node) = nodes.get(&pod.key()).filter(|node| *node != here) else { return true };
            problems.push(Problem {
                object: format!("pod {}", pod.key()),
                field: Some("spec.nodeName".into()),
                message: format!(
                    "it runs on node {node}, and the Node here is {here}; it is ignored, leave it out (`--field-selector spec.nodeName={here}`)"
                ),
            });
            false
        });
    }
}

/// An object, and its unusable fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<T> {
    /// The object.
    pub object: T,
    /// Problems of single fields.
    pub problems: Vec<Problem>,
}

/// Reads manifests: a YAML stream or JSON, of kinds `Pod`, `ConfigMap`, `PolicyModule`, `Node`, `NodeResourceTopology`, their lists, and
/// `List` of any of them.
///
/// `origin` is the text's name in problems, e.g. a file name. Never fails: a document that cannot be read becomes a problem, and
/// the others count. Of two objects with one name, and of two pods with one UID, the first counts.
pub fn parse_objects(text: &str, origin: &str) -> Objects {
    collect(&[&parse(text, origin)])
}

/// The objects of one text, before duplicates are removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parsed {
    pub(crate) found: Vec<Found>,
    pub(crate) problems: Vec<Problem>,
    /// Keys of unreadable objects; `None` if not even the name is readable.
    pub(crate) broken: Vec<Option<ObjectKey>>,
}

/// One object, and its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) key: ObjectKey,
    pub(crate) origin: String,
    pub(crate) object: Object,
    /// `spec.nodeName` of a pod.
    pub(crate) node: Option<String>,
    pub(crate) problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Pod(Box<Pod>),
    ConfigMap(ConfigMap),
    PolicyModule(Box<PolicyModule>),
    Node(Node),
    Topology(Topology),
}

/// Kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pod,
    ConfigMap,
    PolicyModule,
    Node,
    Topology,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Pod => "pod",
            Kind::ConfigMap => "ConfigMap",
            Kind::PolicyModule => "PolicyModule",
            Kind::Node => "node",
            Kind::Topology => "NodeResourceTopology",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// Reads one text.
pub(crate) fn parse(text: &str, origin: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for document in documents(text) {
        let origin = format!("{origin}, document {}", document.number);
        match document.value {
            Ok(value) => add(&mut parsed, value, None, &origin, MAX_DEPTH),
            Err(message) => {
                parsed.broken.push(None);
                parsed.problems.push(Problem {
                    object: origin,
                    field: None,
                    message: format!("{message}; the document is not read, the others are"),
                });
            }
        }
    }
    parsed
}

/// Merges several texts, the more important first.
pub(crate) fn collect(parsed: &[&Parsed]) -> Objects {
    let mut objects = Objects::default();
    let mut names: BTreeMap<&ObjectKey, &str> = BTreeMap::new();
    let mut uids: BTreeMap<&str, (&ObjectKey, &str)> = BTreeMap::new();
    let mut node: Option<&str> = None;
    let mut topologies: Vec<(&Topology, &str)> = Vec::new();
    for parsed in parsed {
        objects.problems.extend(parsed.problems.iter().cloned());
        for found in &parsed.found {
            let twice = |message: String| Problem {
                object: found.key.to_string(),
                field: None,
                message: format!("{message}; what stands in {} is ignored, remove one of them", found.origin),
            };
            match names.entry(&found.key) {
                Entry::Occupied(first) => {
                    objects.problems.push(twice(format!("it stands in {} already", first.get())));
                    continue;
                }
                Entry::Vacant(place) => place.insert(&found.origin),
            };
            match &found.object {
                Object::Pod(pod) => {
                    if let Some((first, origin)) = uids.get(pod.uid.as_str()) {
                        objects.problems.push(twice(format!("{first} in {origin} has the same UID {}", pod.uid)));
                        continue;
                    }
                    uids.insert(&pod.uid, (&found.key, &found.origin));
                    objects.pods.push(Pod::clone(pod));
                    objects.pod_nodes.extend(found.node.clone().map(|node| (pod.key(), node)));
                }
                Object::ConfigMap(map) => objects.config_maps.push(map.clone()),
                Object::PolicyModule(module) => objects.policy_modules.push(PolicyModule::clone(module)),
                Object::Node(read) => {
                    if let Some(first) = node {
                        objects.problems.push(twice(format!("there is a Node in {first} already, and one counts")));
                        continue;
                    }
                    node = Some(&found.origin);
                    objects.node = Some(read.clone());
                }
                Object::Topology(read) => topologies.push((read, &found.origin)),
            }
            objects.problems.extend(found.problems.iter().cloned());
        }
    }
    for (topology, origin) in topologies {
        match &mut objects.node {
            Some(node) if node.name == topology.node => node.zones.clone_from(&topology.zones),
            _ => objects.problems.push(Problem {
                object: format!("NodeResourceTopology {}", topology.node),
                field: Some("metadata.name".into()),
                message: format!(
                    "there is no Node of this name here; it is ignored, write the Node as well (in {origin})"
                ),
            }),
        }
    }
    objects.leave_out_other_nodes();
    let broken = parsed.iter().flat_map(|parsed| parsed.broken.iter().flatten());
    let unread = broken.filter(|key| key.kind == Kind::PolicyModule && !names.contains_key(key));
    objects.unread_modules = unread.map(|key| key.name.clone()).collect();
    objects
}

fn add(parsed: &mut Parsed, mut value: Value, kind: Option<&str>, origin: &str, depth: usize) {
    let problem = |field: Option<&str>, message: String| Problem {
        object: origin.to_owned(),
        field: field.map(str::to_owned),
        message,
    };
    let Some(fields) = value.as_object_mut() else {
        parsed.broken.push(None);
        parsed.problems.push(problem(None, "it is not an object; write `apiVersion`, `kind` and `metadata`".into()));
        return;
    };
    let kind = match (fields.get("kind"), kind) {
        (Some(Value::String(kind)), _) => kind.clone(),
        // Items of a typed list do not repeat their kind.
        (None | Some(Value::Null), Some(kind)) => kind.to_owned(),
        _ => {
            parsed.broken.push(None);
            let message = "it is missing or no string; write `kind: Pod`, `kind: ConfigMap`, `kind: PolicyModule` or `kind: Node`";
            parsed.problems.push(problem(Some("kind"), message.into()));
            return;
        }
    };
    let item_kind = match kind.as_str() {
        "List" => None,
        "PodList" => Some("Pod"),
        "ConfigMapList" => Some("ConfigMap"),
        "NodeList" => Some("Node"),
        "PolicyModuleList" => Some("PolicyModule"),
        "NodeResourceTopologyList" => Some("NodeResourceTopology"),
        _ => return add_object(parsed, value, &kind, origin),
    };
    match fields.remove("items") {
        Some(Value::Array(items)) if depth > 0 => {
            for (number, item) in (1..).zip(items) {
                add(parsed, item, item_kind, &format!("{origin}, item {number}"), depth - 1);
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => {
            parsed.broken.push(None);
            let message =
                if depth == 0 { "lists are nested too deep; take them apart" } else { "it is not a list; write one" };
            parsed.problems.push(problem(Some("items"), message.into()));
        }
    }
}

fn add_object(parsed: &mut Parsed, value: Value, kind: &str, origin: &str) {
    let key = key_of(&value, kind);
    let node = value.pointer("/spec/nodeName").and_then(Value::as_str).filter(|node| kind == "Pod" && is_name(node));
    let node = node.map(str::to_owned);
    let read = match kind {
        "Pod" => pod_from_value(value, origin, Giver::Manifest).map(|read| {
            let name = read.object.key();
            (Kind::Pod, name, Object::Pod(Box::new(read.object)), read.problems)
        }),
        "ConfigMap" => config_map_from_value(value, origin).map(|read| {
            let name = read.object.key();
            (Kind::ConfigMap, name, Object::ConfigMap(read.object), read.problems)
        }),
        "PolicyModule" => policy_module_from_value(value, origin).map(|read| {
            let name = read.object.metadata.name.clone().unwrap_or_default();
            (Kind::PolicyModule, name, Object::PolicyModule(Box::new(read.object)), read.problems)
        }),
        "Node" => node_from_value(value, origin).map(|read| {
            let name = read.object.name.clone();
            (Kind::Node, name, Object::Node(read.object), read.problems)
        }),
        "NodeResourceTopology" => topology_from_value(value, origin).map(|read| {
            let name = read.object.node.clone();
            (Kind::Topology, name, Object::Topology(read.object), read.problems)
        }),
        _ => {
            let message = format!(
                "kind `{kind}` is not read here and ignored; known are Pod, ConfigMap, PolicyModule, Node, NodeResourceTopology and lists of them. Write the pods that \
                 a workload would make"
            );
            parsed.problems.push(Problem { object: origin.into(), field: Some("kind".into()), message });
            return;
        }
    };
    match read {
        Ok((kind, name, object, problems)) => {
            parsed.found.push(Found { key: ObjectKey { kind, name }, origin: origin.into(), object, node, problems });
        }
        Err(problem) => {
            // A problem names its object, or the place of an object without a name.
            parsed.problems.push(match &key {
                Some(key) => Problem {
                    object: key.to_string(),
                    message: format!("{} (in {})", problem.message, problem.object),
                    field: problem.field,
                },
                None => problem,
            });
            parsed.broken.push(key);
        }
    }
}

/// The key of an object that may turn out unreadable.
fn key_of(value: &Value, kind: &str) -> Option<ObjectKey> {
    let metadata = value.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).filter(|text| is_name(text));
    let name = text("name")?;
    let (kind, name) = match (kind, text("namespace")) {
        ("Pod", namespace) => (Kind::Pod, format!("{}/{name}", namespace.unwrap_or("default"))),
        ("ConfigMap", Some(namespace)) => (Kind::ConfigMap, format!("{namespace}/{name}")),
        ("ConfigMap", None) => (Kind::ConfigMap, name.to_owned()),
        ("PolicyModule", _) => (Kind::PolicyModule, name.to_owned()),
        ("NodeResourceTopology", _) => (Kind::Topology, name.to_owned()),
        _ => (Kind::Node, name.to_owned()),
    };
    Some(ObjectKey { kind, name })
}

/// The problem of an object that is not read at all.
pub(crate) fn refused(origin: &str, kind: &str, misfit: Misfit) -> Problem {
    let Misfit { path, message } = misfit;
    let is_text = ["metadata.labels.", "metadata.annotations.", "data."].iter().any(|above| path.starts_with(above));
    let way_out = if is_text { "put the value in quotes, or write it as a block (`|`)" } else { "mend the field" };
    Problem {
        object: origin.into(),
        field: (!path.is_empty()).then_some(path),
        message: format!("{message}; the {kind} is not read, {way_out}"),
    }
}

/// Problems of fields that `owner` does not have: [`KUBERNETES`] or a kind. Objects from an API server are exempt: a newer one has more fields.
pub(crate) fn unknown_fields(owner: &str, object: &str, origin: &str, paths: Vec<String>) -> Vec<Problem> {
    if origin == API_SERVER {
        return Vec::new();
    }
    let problem = |path| Problem {
        object: object.into(),
        field: Some(path),
        message: format!(
            "{owner} has no such field; it is ignored and the rest counts, check its spelling (in {origin})"
        ),
    };
    paths.into_iter().map(problem).collect()
}

/// The Kubernetes version of the compiled types.
pub(crate) const KUBERNETES: &str = "Kubernetes 1.33";
