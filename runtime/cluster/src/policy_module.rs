//! `PolicyModule`: which module runs on which nodes, with which grants and configuration. Cluster-scoped, written by people,
//! watched by every agent.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, LabelSelectorRequirement};
use kube::CustomResource;
use kube::core::{Selector, SelectorExt as _};
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::object::{API_VERSION, Read, refused, unknown_fields};
use crate::typed::Misfit;

/// Which module runs, where, and what it may do.
#[derive(Clone, Debug, PartialEq, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "qosm.io",
    version = "v1alpha1",
    kind = "PolicyModule",
    shortname = "pmod",
    category = "qosm",
    status = "PolicyModuleStatus",
    derive = "PartialEq",
    validation = Rule::new("!has(self.spec.shadowOf) || self.spec.mode == 'shadow'")
        .message("spec.shadowOf is for mode: shadow"),
    doc = "A QoS policy as a WebAssembly module: which one runs on which nodes, with which grants and configuration.",
    printcolumn = r#"{"name":"Module","type":"string","jsonPath":".spec.module"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes","description":"Number of selected nodes."}"#,
    printcolumn = r#"{"name":"Updated","type":"integer","jsonPath":".status.updated","description":"Number of nodes that run the current specification."}"#,
    printcolumn = r#"{"name":"Failing","type":"integer","jsonPath":".status.failing","description":"Number of nodes that cannot run the module."}"#,
    printcolumn = r#"{"name":"Digest","type":"string","jsonPath":".status.digest","description":"Digest that most nodes run."}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PolicyModuleSpec {
    /// The module: `builtin:NAME` for a default module, `file:///PATH` on the node, `oci://REGISTRY/REPOSITORY@sha256:DIGEST` in a
    /// registry. With `:TAG` instead of the digest, each node resolves the tag itself, so nodes may run different versions.
    #[schemars(
        regex(pattern = r"^(builtin:[a-z0-9]([a-z0-9-]*[a-z0-9])?|file:///.+|oci://[^/ ]+/[^ ]+[:@][^/ ]+)$"),
        length(max = 1024)
    )]
    pub module: String,
    /// Keys that must have signed a module from a registry, in addition to those that the agents' configuration requires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Seconds between two resolutions of a tag. Default: the tag is resolved once. Digests are never resolved again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub poll_seconds: Option<u32>,
    /// Whether the policy's settings take effect: `enforce` writes them, `shadow` only compares them with those in force.
    #[serde(default)]
    pub mode: ModuleMode,
    /// For a shadow: the policy that it is compared with. Default: the one whose module has the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow_of: Option<String>,
    /// Interfaces that the module may import, such as `cpu-stat` or `cpu-bandwidth`; also `tiers`, to set knobs of tiers, and
    /// `all-pods`, to set knobs of pods that are not configured for the policy. Default: what a default module needs; nothing for
    /// other modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub grants: Option<Vec<String>>,
    /// Priority of the policy's settings: if two policies set the same knob, the higher priority wins; if equal, the policy whose
    /// name sorts first.
    #[serde(default = "default_priority")]
    pub priority: i32,
    /// Configuration that is passed to the module unchanged.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub config: Map<String, Value>,
    /// The nodes that run the module, by their labels. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// What happens to the policy's settings on a node where it fails repeatedly: `keep` leaves them in force, `release` ends them.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Milliseconds between evaluations. Default: the module's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 3_600_000))]
    pub interval_millis: Option<u32>,
    /// Whether the agent watches the triggers that the module requests (throttling, pressure).
    #[serde(default = "yes")]
    pub alarms: bool,
    /// Shortest interval between two evaluations by triggers, in milliseconds. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5, max = 60_000))]
    pub alarm_gap_millis: Option<u32>,
    /// Limits of one instance of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ModuleLimits>,
    /// How a change of this object reaches the nodes.
    #[serde(default)]
    pub rollout: Rollout,
}

/// Keys that must have signed a module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Public keys, as `cosign generate-key-pair` makes them.
    #[schemars(length(min = 1, max = 16))]
    pub keys: Vec<VerificationKey>,
    /// Whether one of the keys is enough, or all must have signed.
    #[serde(default)]
    pub require: RequiredKeys,
    /// Number of different keys that must have signed, whatever `require` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16))]
    pub at_least: Option<u32>,
    /// Annotations that a signature must contain to count, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A public key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationKey {
    /// Name of the key in reports.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The key in PEM form: ECDSA P-256 or P-384, or Ed25519.
    #[schemars(length(max = 4096))]
    pub pem: String,
}

/// How many of the keys must have signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequiredKeys {
    /// Any one of the keys.
    #[default]
    Any,
    /// All keys.
    All,
}

/// Whether a module's settings take effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModuleMode {
    /// The settings are written.
    #[default]
    Enforce,
    /// The settings are compared with those in force, and not written.
    Shadow,
}

/// What happens to the settings of a module that fails repeatedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// The settings stay until the module works again.
    #[default]
    Keep,
    /// The settings end.
    Release,
}

/// Limits of one instance of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleLimits {
    /// Memory limit, in MiB.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub memory_mib: Option<u64>,
    /// Time limit of one call, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub evaluation_millis: Option<u64>,
}

/// How a change reaches the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Percentage of the selected nodes that run the current specification. The others keep the specification that they took last;
    /// on nodes that never took one, the module does not run.
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: u8,
    /// While true, no node takes a change.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { percent: all(), paused: false }
    }
}

/// State of the module in the fleet. Written by `qosm controller`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyModuleStatus {
    /// The generation that this status describes.
    pub observed_generation: Option<i64>,
    /// Number of selected nodes.
    pub nodes: u32,
    /// Number of selected nodes that run the current specification.
    pub updated: u32,
    /// Number of nodes that cannot run the module, or not in this generation.
    pub failing: u32,
    /// The digest that most nodes run.
    pub digest: Option<String>,
    /// How many nodes run which digest, the most frequent first.
    pub digests: Vec<DigestCount>,
    /// `Selected`, `Progressing`, `Healthy`.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// How many nodes run one digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DigestCount {
    /// `sha256:…`.
    pub digest: String,
    /// Name and version that the module gives itself.
    pub version: String,
    /// Number of nodes.
    pub nodes: u32,
}

impl PolicyModuleSpec {
    /// Whether `nodeSelector` matches a node.
    ///
    /// # Errors
    ///
    /// The first invalid expression, and what to write.
    pub fn selects(&self, node: &Node) -> Result<bool, String> {
        let Some(selector) = &self.node_selector else { return Ok(true) };
        let mut expressions = selector.match_expressions.iter().flatten().enumerate();
        if let Some((index, key, fault)) =
            expressions.find_map(|(index, expression)| Some((index, &expression.key, expression_fault(expression)?)))
        {
            return Err(format!("matchExpressions[{index}] ({key}): {fault}"));
        }
        let selector = Selector::try_from(selector.clone()).map_err(|error| error.to_string())?;
        Ok(selector.matches(&node.labels))
    }
}

impl Rollout {
    /// Whether a node takes changes of a module now: `paused` is not set, and the node is among the first `percent`. The node's
    /// place is the first eight bytes, big-endian, of the SHA-256 of `MODULE/NODE`, modulo 100: it never changes, and differs
    /// from module to module.
    pub fn reaches(&self, module: &str, node: &str) -> bool {
        let digest = Sha256::digest(format!("{module}/{node}"));
        let mut first = [0; 8];
        first.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        !self.paused && u64::from_be_bytes(first) % 100 < u64::from(self.percent)
    }
}

/// What an agent reports of an invalid `nodeSelector`, and the controller as well, so that both count as one problem.
pub fn invalid_selector(error: &str) -> String {
    format!("{error}; nodes keep what they run, and no further node takes it; mend the selector")
}

/// Reads a PolicyModule. `origin` names the source in problems.
///
/// # Errors
///
/// The field that makes it unusable: it has the wrong type or is out of its range, or the name is missing.
pub fn policy_module_from_value(value: Value, origin: &str) -> Result<Read<PolicyModule>, Problem> {
    let (read, mut unknown) = crate::typed::read_as::<PolicyModule>(value, API_VERSION)
        .map_err(|misfit| refused(origin, "PolicyModule", misfit))?;
    // The derived type lacks these two fields: they selected the type.
    unknown.retain(|path| !matches!(path.as_str(), "apiVersion" | "kind"));
    let name = read.metadata.name.clone().filter(|name| !name.is_empty()).ok_or_else(|| Problem {
        object: origin.into(),
        field: Some("metadata.name".into()),
        message: "it is missing; the PolicyModule is not read, write a name".into(),
    })?;
    if let Some(misfit) = range_fault(&read.spec) {
        return Err(refused(origin, "PolicyModule", misfit));
    }
    let problems = unknown_fields("a PolicyModule", &format!("PolicyModule {name}"), origin, unknown);
    Ok(Read { object: read, problems })
}

/// The first number out of the range that the CRD states, which an API server checks and a file does not.
fn range_fault(spec: &PolicyModuleSpec) -> Option<Misfit> {
    let limits = spec.limits.unwrap_or_default();
    let at_least = spec.verification.as_ref().and_then(|verification| verification.at_least);
    let fields = [
        ("spec.verification.atLeast", at_least.map(u64::from), 1..=16_u64),
        ("spec.pollSeconds", spec.poll_seconds.map(u64::from), 10..=86_400),
        ("spec.intervalMillis", spec.interval_millis.map(u64::from), 100..=3_600_000),
        ("spec.alarmGapMillis", spec.alarm_gap_millis.map(u64::from), 5..=60_000),
        ("spec.limits.memoryMiB", limits.memory_mib, 1..=1024),
        ("spec.limits.evaluationMillis", limits.evaluation_millis, 1..=10_000),
        ("spec.rollout.percent", Some(u64::from(spec.rollout.percent)), 0..=100),
    ];
    fields.into_iter().find_map(|(field, value, range)| {
        let value = value.filter(|value| !range.contains(value))?;
        let message = format!("{value} is not from {} to {}", range.start(), range.end());
        Some(Misfit { path: field.to_owned(), message })
    })
}

fn expression_fault(expression: &LabelSelectorRequirement) -> Option<String> {
    let LabelSelectorRequirement { operator, values, .. } = expression;
    match operator.as_str() {
        "In" | "NotIn" => values.as_ref().is_none_or(Vec::is_empty).then(|| format!("{operator} needs values")),
        "Exists" | "DoesNotExist" => None,
        _ => Some(format!("operator `{operator}` does not exist; write In, NotIn, Exists or DoesNotExist")),
    }
}

fn default_priority() -> i32 {
    100
}

fn yes() -> bool {
    true
}

fn all() -> u8 {
    100
}

fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Schema of conditions as a map by type, so that two writers do not overwrite each other's.
pub(crate) fn conditions(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let item = <Condition as JsonSchema>::json_schema(generator);
    schemars::json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}
