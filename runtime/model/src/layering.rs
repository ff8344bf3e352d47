//! Effective configuration: built-in defaults, ConfigMaps, namespace lists and annotations, merged for each pod and policy.
//!
//! The rules are the same for every policy; a [`CompiledProtocol`] has the policy's keys, fields and words. [`Layers`] is
//! the node's configuration, [`Layers::for_pod`] adds that of one pod. From the lowest layer to the highest:
//!
//! 1. the built-in defaults of the protocol,
//! 2. `clusterStrategy` of the cluster ConfigMap,
//! 3. the first of its `nodeStrategies` whose selector matches the node,
//! 4. the namespace lists (`policy: auto` or `policy: none`),
//! 5. the pod's annotation.
//!
//! A higher layer wins field by field: objects are merged to any depth, lists and everything else are replaced, `null`
//! counts as absent, an explicit 0 or false is kept. `policy: ""` and `policy: default` count as absent as well. A layer
//! whose word of `policy` has a preset starts from the preset's values instead of from the lower layers.
//!
//! If the protocol has a class field, layers 1 to 3 are those of the pod's QoS class, and they are empty unless the class
//! is enabled: the policy leaves pods alone that are not configured. A class is enabled by its switch `enable`, or, if
//! the protocol has no such field, by being present. Beside a switch a word of `policy` is ignored, with a note. Namespace
//! lists and annotations count in either case.
//!
//! An annotation or a key of a ConfigMap with a wrong field is refused as a whole, with a [`Problem`] for each wrong
//! field. The next lower layer, or the last good text of the key, counts instead.
//!
//! ```
//! use std::sync::Arc;
//! use qosm_model::{layering::{CompiledProtocol, ConfigMap, Layers}, pod::Node, protocol::Protocol};
//! use serde_json::{Map, json};
//!
//! let protocol = Protocol {
//!     annotation_keys: vec!["example.com/greeting".into()],
//!     config_map_key: Some("greeting-config".into()),
//!     class_field: None,
//!     namespace_list_key: None,
//!     defaults: Map::from_iter([("times".into(), json!(1))]),
//!     presets: vec![],
//!     schema: json!({"properties": {"times": {"type": "integer", "maximum": 9}}}),
//!     node_only_fields: vec![],
//! };
//! let protocol = Arc::new(CompiledProtocol::compile(protocol)?);
//! let map = ConfigMap {
//!     namespace: Some("koordinator-system".into()),
//!     name: "slo-controller-config".into(),
//!     data: [("greeting-config".into(), r#"{"clusterStrategy": {"times": 3}}"#.into())].into(),
//! };
//! let (layers, problems) = Layers::build(protocol, &[map], &Node::default(), None);
//! assert!(problems.is_empty());
//! assert_eq!(layers.classes()["times"], 3);
//! # Ok::<(), qosm_model::problem::Problem>(())
//! ```

mod annotation;
mod applications;
mod cluster_config;
mod compiled;
mod document;
mod entry;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
mod known_fields;
mod maps;
mod merge;
mod namespaces;
mod rules;
mod schema;
mod selector;
mod strategy;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use qosm_schema::Budget;
use serde_json::{Map, Value};

pub use self::cluster_config::{ClusterConfig, ConfigKey};
pub use self::compiled::CompiledProtocol;
use self::compiled::{LayerFields, POLICY};
pub use self::entry::{check_config, check_config_schema};
pub use self::maps::{GoodTexts, config_maps};
use self::merge::Layered;
use self::namespaces::Namespaces;
use self::rules::Violation;
use self::strategy::{ClassLevel, Strategy};
use crate::pod::{Node, Pod, QosClass};
use crate::problem::Problem;

/// Budget of steps for checking a pod's annotation against a module's schema, which comes from a third party: a
/// millisecond or two, since the agent's loop waits for it. An ordinary annotation takes some hundred steps.
const ANNOTATION_STEPS: u64 = 20_000;
/// Budget of steps for the configuration of one policy in all ConfigMaps.
const CONFIG_MAP_STEPS: u64 = 1_000_000;

/// The parts of a ConfigMap that layering uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMap {
    /// `metadata.namespace`; `None` if the manifest has none, which is accepted for every known name.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// `data`.
    pub data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// `namespace/name`, or the name alone.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The origin of a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The protocol's defaults.
    BuiltIn,
    /// `clusterStrategy` of a ConfigMap.
    Cluster {
        /// `namespace/name` of the ConfigMap.
        map: String,
    },
    /// One of the `nodeStrategies` of a ConfigMap.
    NodeStrategy {
        /// `namespace/name` of the ConfigMap.
        map: String,
        /// The strategy's name; without one its place, such as `nodeStrategies[2]` for the third.
        name: String,
    },
    /// A list of namespaces.
    NamespaceList {
        /// `namespace/name` of the ConfigMap.
        map: String,
    },
    /// An annotation of the pod.
    Annotation {
        /// Its key.
        key: String,
    },
    /// The preset of a word of `policy`.
    Preset {
        /// The word.
        word: String,
        /// The origin of the word.
        by: Box<Layer>,
    },
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in default"),
            Self::Cluster { map } => write!(f, "ConfigMap {map}: clusterStrategy"),
            Self::NodeStrategy { map, name } => write!(f, "ConfigMap {map}: node strategy {name}"),
            Self::NamespaceList { map } => write!(f, "ConfigMap {map}: namespace list"),
            Self::Annotation { key } => write!(f, "annotation {key}"),
            Self::Preset { word, by } => write!(f, "policy {word} of {by}"),
        }
    }
}

impl Layer {
    /// Whether the layer is the pod's annotation or a preset from it.
    fn is_annotation(&self) -> bool {
        match self {
            Self::Annotation { .. } => true,
            Self::Preset { by, .. } => by.is_annotation(),
            _ => false,
        }
    }
}

/// The effective configuration of one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effective {
    /// The merged fields. Empty without any configuration.
    pub values: Map<String, Value>,
    /// The layer of each field; fields of objects are listed as `outer.inner`.
    pub origins: BTreeMap<String, Layer>,
    /// Problems with the pod's annotation.
    pub problems: Vec<Problem>,
}

impl Effective {
    /// Whether an annotation of the pod contributes to the values.
    pub fn is_annotated(&self) -> bool {
        self.origins.values().any(Layer::is_annotation)
    }
}

/// The configuration of one policy on one node, from ConfigMaps.
#[derive(Clone, Debug)]
pub struct Layers {
    protocol: Arc<CompiledProtocol>,
    /// Values by class if the protocol has classes, else under `None`. A class that is not enabled is empty.
    base: BTreeMap<Option<Class>, Layered>,
    namespaces: Namespaces,
    good: GoodTexts,
}

impl Layers {
    /// Reads the ConfigMaps. `previous` has the [good texts](Self::good_texts) of the previous result: if a key's text
    /// cannot be used now, its last good text counts. A removed key or ConfigMap has no effect any more.
    ///
    /// The problems name the ConfigMap, the key and the field. They are the same for the same input, so that a caller
    /// that builds the layers of several policies can report each problem once.
    pub fn build(
        protocol: Arc<CompiledProtocol>,
        maps: &[ConfigMap],
        node: &Node,
        previous: Option<&GoodTexts>,
    ) -> (Self, Vec<Problem>) {
        let nothing = GoodTexts::default();
        let budget = Budget::of(CONFIG_MAP_STEPS);
        let reading = maps::read(&protocol, maps, node, previous.unwrap_or(&nothing), &budget);
        let mut problems = reading.problems;
        let mut base = BTreeMap::new();
        let classes: Vec<Option<Class>> = match protocol.protocol().class_field {
            Some(_) => Class::ALL.map(Some).to_vec(),
            None => vec![None],
        };
        for class in classes {
            let (layered, refused) = node_level(&protocol, class, reading.strategy.as_ref(), &budget);
            problems.extend(refused);
            base.insert(class, layered);
        }
        (Self { protocol, base, namespaces: reading.namespaces, good: reading.good }, problems)
    }

    /// The last usable text of each key that the ConfigMaps have.
    pub fn good_texts(&self) -> &GoodTexts {
        &self.good
    }

    /// The effective configuration of a pod, from the node's layers, its namespace and its annotation.
    pub fn for_pod(&self, pod: &Pod) -> Effective {
        let class = self.protocol.protocol().class_field.is_some().then(|| Class::of(pod.qos()));
        let mut layered = self.base.get(&class).cloned().unwrap_or_default();
        if let Some((word, map)) = self.namespaces.word(&pod.namespace) {
            let fields_of_layer = LayerFields { fields: Map::new(), word: Some(word.to_owned()) };
            apply(&mut layered, &self.protocol, class, &fields_of_layer, &Layer::NamespaceList { map: map.to_owned() });
        }
        let mut problems = Vec::new();
        let budget = Budget::of(ANNOTATION_STEPS);
        if let Some((key, fields_of_layer)) = annotation::read(&self.protocol, pod, &mut problems, &budget) {
            let layer = Layer::Annotation { key: key.to_owned() };
            if let Err(violations) =
                apply_checked(&mut layered, &self.protocol, class, &fields_of_layer, &layer, &budget)
            {
                problems.extend(annotation::refusals(pod, key, violations));
            }
        }
        Effective { values: layered.values, origins: layered.origins, problems }
    }

    /// The node-level result for the module's `configure`: with a class field, an object for each of `lsrClass`,
    /// `lsClass`, `beClass` and `systemClass`, empty for a class that is not enabled; without one, the merged strategy.
    pub fn classes(&self) -> Map<String, Value> {
        if let Some(layered) = self.base.get(&None) {
            return layered.values.clone();
        }
        self.base
            .iter()
            .filter_map(|(class, layered)| Some(((*class)?.name().to_owned(), Value::Object(layered.values.clone()))))
            .collect()
    }
}

/// A QoS class of ConfigMaps, where LSE and LSR share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Lsr,
    Ls,
    Be,
    System,
}

impl Class {
    const ALL: [Self; 4] = [Self::Lsr, Self::Ls, Self::Be, Self::System];

    fn of(qos: QosClass) -> Self {
        match qos {
            QosClass::Lse | QosClass::Lsr => Self::Lsr,
            QosClass::Ls => Self::Ls,
            QosClass::Be => Self::Be,
            QosClass::System => Self::System,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lsr => "lsrClass",
            Self::Ls => "lsClass",
            Self::Be => "beClass",
            Self::System => "systemClass",
        }
    }
}

/// Merges the defaults, the cluster's and the node's strategy of one class.
fn node_level(
    protocol: &CompiledProtocol,
    class: Option<Class>,
    chosen: Option<&maps::Chosen>,
    budget: &Budget,
) -> (Layered, Vec<Problem>) {
    let mut layered = Layered::default();
    let mut problems = Vec::new();
    let nothing = Strategy::default();
    let strategy = chosen.map_or(&nothing, |chosen| &chosen.strategy);
    let cluster = strategy.cluster.get(&class);
    let node = strategy.node.as_ref().and_then(|(name, level)| Some((name, level.get(&class)?)));
    let enable = |level: Option<&ClassLevel>| level.and_then(|level| level.enable);
    let written = !protocol.has_switch() && (cluster.is_some() || node.is_some());
    let enabled = enable(node.map(|(_, level)| level)).or(enable(cluster)).unwrap_or(written);
    if class.is_some() && !enabled {
        return (layered, problems);
    }
    // A word in the defaults is not expanded to its preset.
    layered.put(&protocol.defaults(class), &Layer::BuiltIn);
    let Some(maps::Chosen { map, key, .. }) = chosen else {
        return (layered, problems);
    };
    let levels = [
        cluster.map(|level| (Layer::Cluster { map: map.clone() }, level)),
        node.map(|(name, level)| (Layer::NodeStrategy { map: map.clone(), name: name.clone() }, level)),
    ];
    for (layer, level) in levels.into_iter().flatten() {
        if let Err(violations) = apply_checked(&mut layered, protocol, class, &level.fields_of_layer, &layer, budget) {
            for Violation { path, what, .. } in violations {
                problems.push(Problem {
                    object: format!("ConfigMap {map}"),
                    field: Some(format!("{key}: {path}")),
                    message: format!(
                        "{what}, once merged with the layers beneath; what `{layer}` says is ignored here, mend it there"
                    ),
                });
            }
        }
    }
    (layered, problems)
}

/// Merges one layer on top.
fn apply(
    layered: &mut Layered,
    protocol: &CompiledProtocol,
    class: Option<Class>,
    fields_of_layer: &LayerFields,
    layer: &Layer,
) {
    let mut fields = Some(&fields_of_layer.fields);
    match &fields_of_layer.word {
        Some(word) => {
            if let Some((preset, values)) = protocol.preset(word, class) {
                *layered = Layered::default();
                layered.put(&values, &Layer::Preset { word: word.clone(), by: Box::new(layer.clone()) });
                fields = fields.filter(|_| !preset.alone);
            }
            if protocol.shows_word() {
                layered.put(&Map::from_iter([(POLICY.to_owned(), word.clone().into())]), layer);
            }
        }
        None => {
            // A word with an `alone` preset configures everything by itself, so it is dropped when fields are merged on top.
            let word = layered.values.get(POLICY).and_then(Value::as_str);
            let alone = word.and_then(|word| protocol.preset(word, class)).is_some_and(|(preset, _)| preset.alone);
            if alone && !fields_of_layer.fields.is_empty() {
                layered.remove(POLICY);
            }
        }
    }
    if let Some(fields) = fields {
        layered.put(fields, layer);
    }
}

/// Like [`apply`], but changes nothing if the sum does not fit the schema.
fn apply_checked(
    layered: &mut Layered,
    protocol: &CompiledProtocol,
    class: Option<Class>,
    fields_of_layer: &LayerFields,
    layer: &Layer,
    budget: &Budget,
) -> Result<(), Vec<Violation>> {
    let mut sum = layered.clone();
    apply(&mut sum, protocol, class, fields_of_layer, layer);
    let violations = protocol.check(&sum.values, budget);
    if violations.is_empty() {
        *layered = sum;
        return Ok(());
    }
    Err(violations)
}
