//! How pods and operators configure a policy, as its module describes it.

use serde_json::{Map, Value};

use crate::alarm::Trigger;

/// Values of one word of the `policy` field.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The word, e.g. `auto`.
    pub policy: String,
    /// The values; one object for each class if the protocol has a class field.
    pub values: Map<String, Value>,
    /// Whether the other fields of a layer with this word are ignored.
    pub alone: bool,
}

/// A policy's annotations, ConfigMap keys, defaults and schema. See `interface lifecycle` of the contract.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    /// Pod annotations, the most important first.
    pub annotation_keys: Vec<String>,
    /// Key of the cluster ConfigMap.
    pub config_map_key: Option<String>,
    /// The policy's field within each class of that key.
    pub class_field: Option<String>,
    /// Key of the ConfigMap with namespace lists.
    pub namespace_list_key: Option<String>,
    /// Built-in defaults; by class if there is a class field.
    pub defaults: Map<String, Value>,
    /// Words of the `policy` field with their values.
    pub presets: Vec<Preset>,
    /// JSON schema of the fields.
    pub schema: Value,
    /// Fields that an annotation cannot set.
    pub node_only_fields: Vec<String>,
}

/// A module's description.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The policy's name, lower case with dashes.
    pub name: String,
    /// The policy's semantic version.
    pub version: String,
    /// What the policy does, in one sentence.
    pub summary: String,
    /// How pods configure it; `None` if pods cannot.
    pub protocol: Option<Protocol>,
    /// JSON schema of the policy-level configuration; `None` if there is none.
    pub config_schema: Option<Value>,
    /// The wanted interval between evaluations, in milliseconds; 0 to evaluate only on changes.
    pub interval_millis: u32,
    /// Triggers that cause an evaluation at once.
    pub triggers: Vec<Trigger>,
}
