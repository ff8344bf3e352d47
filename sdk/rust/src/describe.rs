//! A policy's description: its identity, and how operators and pods configure it.

use std::fmt::Display;

use schemars::JsonSchema;

use crate::Trigger;
use crate::bindings::exports::qosm::policy::lifecycle as contract;
use crate::schema::schema_of;

/// Identity and configuration of a policy. Methods that take JSON accept text or a [`serde_json::Value`]; text makes the component smaller.
///
/// ```
/// use qosm_sdk::{Description, Preset, Protocol};
///
/// Description::new("cache-guard", env!("CARGO_PKG_VERSION"), "Keeps batch work out of the last-level cache.")
///     .interval_millis(1_000)
///     .config_schema(r#"{"type": "object", "properties": {"ways": {"type": "integer"}}}"#)
///     .protocol(
///         Protocol::new()
///             .annotation("example.org/cacheGuard")
///             .config_map_key("cache-guard-config")
///             .defaults(serde_json::json!({"policy": "none", "percent": 30}))
///             .preset(Preset::new("none", "{}").alone())
///             .schema(r#"{"type": "object", "properties": {"policy": {"type": "string"}, "percent": {"type": "integer"}}}"#)
///             .node_only_field("percent"),
///     );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Description(contract::Description);

impl Description {
    /// A policy called `name` (lower case with dashes) in `version` (semantic version), with a one-sentence summary. Without further
    /// settings, the host evaluates it only when pods or configuration change, and it takes no configuration.
    ///
    /// ```
    /// let description = qosm_sdk::Description::new("cache-guard", "1.2.0", "Keeps batch work out of the cache.");
    /// assert_eq!(description.facts().interval_msec, 0);
    /// ```
    pub fn new(name: &str, version: &str, summary: &str) -> Self {
        Self(contract::Description {
            name: name.into(),
            version: version.into(),
            summary: summary.into(),
            protocol: None,
            config_schema: None,
            interval_msec: 0,
            triggers: Vec::new(),
        })
    }

    /// Evaluation interval in milliseconds; 0 = evaluate only when pods or configuration change, or a trigger fires.
    ///
    /// ```
    /// let description = qosm_sdk::Description::new("cache-guard", "1.2.0", "").interval_millis(1_000);
    /// assert_eq!(description.facts().interval_msec, 1_000);
    /// ```
    pub fn interval_millis(mut self, interval: u32) -> Self {
        self.0.interval_msec = interval;
        self
    }

    /// Adds a trigger that starts an evaluation without waiting for the interval; [`Tick::alarms`](crate::Tick) lists the triggers that
    /// fired.
    ///
    /// ```
    /// use qosm_sdk::{Description, Trigger};
    ///
    /// let description = Description::new("cache-guard", "1.2.0", "").trigger(Trigger::Throttling);
    /// assert_eq!(description.facts().triggers, [Trigger::Throttling]);
    /// ```
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.0.triggers.push(trigger);
        self
    }

    /// JSON schema of the policy-level configuration.
    ///
    /// ```
    /// let schema = r#"{"type": "object", "properties": {"ways": {"type": "integer"}}}"#;
    /// let description = qosm_sdk::Description::new("cache-guard", "1.2.0", "").config_schema(schema);
    /// assert_eq!(description.facts().config_schema.as_deref(), Some(schema));
    /// ```
    pub fn config_schema(mut self, schema: impl Display) -> Self {
        self.0.config_schema = Some(schema.to_string());
        self
    }

    /// JSON schema of the policy-level configuration, derived from the type that deserializes it: the schema takes field names, ranges,
    /// enum values, defaults and doc comments from the type, and `#[serde(deny_unknown_fields)]` makes the host refuse misspelt fields. The
    /// host validates an operator's configuration before the policy receives it.
    ///
    /// ```
    /// use qosm_sdk::Description;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// #[serde(rename_all = "camelCase", deny_unknown_fields)]
    /// struct Config {
    ///     /// How many ways batch work may use.
    ///     #[schemars(range(min = 1, max = 20))]
    ///     batch_ways: u32,
    /// }
    ///
    /// let description = Description::new("cache-guard", "1.2.0", "").config::<Config>();
    /// let schema = description.facts().config_schema.as_deref().unwrap_or_default();
    /// assert!(schema.contains(r#""maximum":20"#) && schema.contains("How many ways batch work may use."));
    /// ```
    pub fn config<T: JsonSchema>(self) -> Self {
        self.config_schema(schema_of::<T>())
    }

    /// How pods and operators configure this policy.
    ///
    /// ```
    /// use qosm_sdk::{Description, Protocol};
    ///
    /// let protocol = Protocol::new().annotation("example.org/cacheGuard");
    /// let description = Description::new("cache-guard", "1.2.0", "").protocol(protocol);
    /// assert!(description.facts().protocol.is_some());
    /// ```
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.0.protocol = Some(protocol.0);
        self
    }

    /// The description in the contract's types, e.g. for a test that parses its JSON.
    ///
    /// ```
    /// let description = qosm_sdk::Description::new("cache-guard", "1.2.0", "Keeps batch work out of the cache.");
    /// assert_eq!(description.facts().name, "cache-guard");
    /// ```
    pub fn facts(&self) -> &contract::Description {
        &self.0
    }
}

impl From<Description> for contract::Description {
    fn from(description: Description) -> Self {
        description.0
    }
}

/// Annotations, ConfigMap keys, defaults and schema of a policy. The host reads, merges and validates the configuration.
///
/// ```
/// use qosm_sdk::{Preset, Protocol};
///
/// Protocol::new()
///     .annotation("example.org/cacheGuard")
///     .config_map_key("cache-guard-config")
///     .preset(Preset::new("strict", r#"{"percent": 10}"#))
///     .preset(Preset::new("none", "{}").alone())
///     .schema(r#"{"type": "object", "properties": {"percent": {"type": "integer", "maximum": 100}}}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Protocol(contract::Protocol);

impl Default for Protocol {
    fn default() -> Self {
        Self::new()
    }
}

impl Protocol {
    /// A protocol without keys and defaults, with a schema that accepts any object.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::Protocol::new(), qosm_sdk::Protocol::default());
    /// ```
    pub fn new() -> Self {
        Self(contract::Protocol {
            annotation_keys: Vec::new(),
            config_map_key: None,
            class_field: None,
            namespace_list_key: None,
            defaults: "{}".into(),
            presets: Vec::new(),
            schema: r#"{"type":"object"}"#.into(),
            node_only_fields: Vec::new(),
        })
    }

    /// Adds a pod annotation that holds a JSON object. Annotations added earlier take precedence.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().annotation("example.org/cacheGuard");
    /// ```
    pub fn annotation(mut self, key: &str) -> Self {
        self.0.annotation_keys.push(key.into());
        self
    }

    /// Key of the cluster ConfigMap that holds this policy's configuration.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().config_map_key("cache-guard-config");
    /// ```
    pub fn config_map_key(mut self, key: &str) -> Self {
        self.0.config_map_key = Some(key.into());
        self
    }

    /// Field of this policy in each QoS class, for a ConfigMap key that holds an object for each class.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().config_map_key("resource-qos-config").class_field("cacheGuard");
    /// ```
    pub fn class_field(mut self, field: &str) -> Self {
        self.0.class_field = Some(field.into());
        self
    }

    /// Key in the ConfigMap that lists namespaces.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().namespace_list_key("cache-guard");
    /// ```
    pub fn namespace_list_key(mut self, key: &str) -> Self {
        self.0.namespace_list_key = Some(key.into());
        self
    }

    /// Built-in defaults: a JSON object; with a class field, one object for each class (`lsrClass`, …).
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().defaults(r#"{"percent": 30}"#);
    /// ```
    pub fn defaults(mut self, defaults: impl Display) -> Self {
        self.0.defaults = defaults.to_string();
        self
    }

    /// Adds a preset: a word of the field `policy` that stands for a set of values.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().preset(qosm_sdk::Preset::new("strict", r#"{"percent": 10}"#));
    /// ```
    pub fn preset(mut self, preset: Preset) -> Self {
        self.0.presets.push(preset.0);
        self
    }

    /// JSON schema of the pod configuration: an object with `properties`.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().schema(r#"{"type": "object", "properties": {"percent": {"type": "integer"}}}"#);
    /// ```
    pub fn schema(mut self, schema: impl Display) -> Self {
        self.0.schema = schema.to_string();
        self
    }

    /// JSON schema of the pod configuration, derived from the type that deserializes it: a struct with named fields.
    ///
    /// ```
    /// use qosm_sdk::Protocol;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct PodConfig {
    ///     /// Share of the cache, in percent.
    ///     #[schemars(range(max = 100))]
    ///     percent: u8,
    /// }
    ///
    /// let protocol = Protocol::new().annotation("example.org/cacheGuard").schema_of::<PodConfig>();
    /// ```
    pub fn schema_of<T: JsonSchema>(self) -> Self {
        self.schema(schema_of::<T>())
    }

    /// Adds a field that only operators may set; the host refuses an annotation that sets it.
    ///
    /// ```
    /// let protocol = qosm_sdk::Protocol::new().node_only_field("percent");
    /// ```
    pub fn node_only_field(mut self, field: &str) -> Self {
        self.0.node_only_fields.push(field.into());
        self
    }
}

/// A set of values that one word of the field `policy` stands for.
///
/// ```
/// use qosm_sdk::{Preset, Protocol};
///
/// // An annotation {"policy": "strict"} stands for {"percent": 10}, and {"policy": "none"} switches the policy off.
/// Protocol::new().preset(Preset::new("strict", r#"{"percent": 10}"#)).preset(Preset::new("none", "{}").alone());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Preset(contract::Preset);

impl Preset {
    /// The word `policy` stands for `values`: a JSON object; with a class field, one object for each class.
    ///
    /// ```
    /// let strict = qosm_sdk::Preset::new("strict", r#"{"percent": 10}"#);
    /// ```
    pub fn new(policy: &str, values: impl Display) -> Self {
        Self(contract::Preset { policy: policy.into(), values: values.to_string(), alone: false })
    }

    /// Makes the host ignore the other fields of a layer that uses this word.
    ///
    /// ```
    /// let none = qosm_sdk::Preset::new("none", "{}").alone();
    /// ```
    pub fn alone(mut self) -> Self {
        self.0.alone = true;
        self
    }
}
