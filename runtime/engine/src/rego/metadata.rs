//! Who a policy is, and what it asks for: the METADATA of its entrypoint, as the manifest carries them.

use std::collections::BTreeSet;

use qosm_model::digest::Digest;
use qosm_model::protocol::Description;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ENTRYPOINT;
use super::error::BundleError;
use crate::bindings::exports::qosm::policy::lifecycle;
use crate::bindings::qosm::policy::types;
use crate::description;
use crate::error::EngineError;
use crate::interface::{Interface, UnknownInterface};

/// Where the fields stand.
const PLACE: &str = "custom.qosm";

/// What is declared, with the grants that no host has set apart: inspecting tells them, loading refuses them.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) description: Description,
    pub(crate) grants: BTreeSet<Interface>,
    /// Place and name.
    pub(crate) unknown_grants: Vec<(usize, String)>,
}

/// The annotation that speaks of qosm, and what else it says.
pub(crate) struct Annotation {
    custom: Value,
    summary: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Declared {
    name: String,
    version: String,
    summary: Option<String>,
    #[serde(default)]
    grants: Vec<String>,
    #[serde(default)]
    interval_millis: u32,
    #[serde(default)]
    triggers: Vec<TriggerWord>,
    config_schema: Option<Map<String, Value>>,
    protocol: Option<Protocol>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum TriggerWord {
    Throttling,
    MemoryEvents,
    ContainerStarted,
    Pressure(Pressure),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Pressure {
    scope: Scope,
    resource: Resource,
    #[serde(default)]
    full: bool,
    #[serde(default = "stall")]
    stall_usec: u32,
    #[serde(default = "window")]
    window_usec: u32,
}

fn stall() -> u32 {
    150_000
}

fn window() -> u32 {
    1_000_000
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Scope {
    Node,
    Pod,
    Container,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Resource {
    Cpu,
    Memory,
    Io,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Protocol {
    #[serde(default)]
    annotation_keys: Vec<String>,
    config_map_key: Option<String>,
    class_field: Option<String>,
    namespace_list_key: Option<String>,
    #[serde(default)]
    defaults: Map<String, Value>,
    #[serde(default)]
    presets: Vec<Preset>,
    schema: Map<String, Value>,
    #[serde(default)]
    node_only_fields: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Preset {
    policy: String,
    #[serde(default)]
    values: Map<String, Value>,
    #[serde(default)]
    alone: bool,
}

impl Metadata {
    /// Finds what a manifest says of the entrypoint.
    pub(super) fn find(manifest: &[u8]) -> Result<Annotation, BundleError> {
        let refuse = |why: String| BundleError::Document { file: ".manifest", why };
        let manifest: Value = serde_json::from_slice(manifest).map_err(|error| refuse(error.to_string()))?;
        let modules = manifest.get("wasm").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let entrypoint = |module: &Value| module.get("entrypoint").and_then(Value::as_str).map(str::to_owned);
        let Some(own) = modules.iter().find(|module| entrypoint(module).as_deref() == Some(ENTRYPOINT)) else {
            let found = modules.iter().filter_map(entrypoint).take(8).collect();
            return Err(BundleError::NoEntrypoint { found });
        };
        let annotations = own.get("annotations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let with_qosm = annotations.iter().find_map(|said| Some((said, said.get("custom")?.get("qosm")?)));
        let (said, custom) = with_qosm.ok_or(BundleError::NoMetadata)?;
        let text = |field: &str| said.get(field).and_then(Value::as_str);
        let summary = text("title").or_else(|| text("description").and_then(|text| text.lines().next()));
        Ok(Annotation { custom: custom.clone(), summary: summary.map(str::to_owned) })
    }

    /// Reads and checks what is declared, by the rules that a component's description has to keep.
    ///
    /// # Errors
    ///
    /// [`EngineError::Description`] naming the field.
    pub(super) fn read(module: Digest, said: Annotation) -> Result<Self, EngineError> {
        let declared: Declared = serde_path_to_error::deserialize(said.custom).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { PLACE.to_owned() } else { format!("{PLACE}.{path}") };
            EngineError::Description { module, field, message: error.inner().to_string() }
        })?;
        let mut grants = BTreeSet::new();
        let mut unknown_grants = Vec::new();
        for (index, name) in declared.grants.iter().enumerate() {
            match name.parse() {
                Ok(interface) => {
                    grants.insert(interface);
                }
                Err(UnknownInterface(name)) => unknown_grants.push((index, name)),
            }
        }
        let said = lifecycle::Description {
            name: declared.name,
            version: declared.version,
            summary: declared.summary.or(said.summary).unwrap_or_default(),
            protocol: declared.protocol.map(protocol),
            config_schema: declared.config_schema.map(json),
            interval_msec: declared.interval_millis,
            triggers: declared.triggers.into_iter().map(trigger).collect(),
        };
        let description = description::read(module, &grants, said).map_err(in_rego)?;
        Ok(Self { description, grants, unknown_grants })
    }

    /// Refuses a grant that no host has.
    pub(crate) fn check(&self, module: Digest) -> Result<(), EngineError> {
        match self.unknown_grants.first() {
            None => Ok(()),
            Some((index, name)) => Err(EngineError::Description {
                module,
                field: format!("{PLACE}.grants[{index}]"),
                message: UnknownInterface(name.clone()).to_string(),
            }),
        }
    }
}

fn trigger(word: TriggerWord) -> types::Trigger {
    match word {
        TriggerWord::Throttling => types::Trigger::Throttling,
        TriggerWord::MemoryEvents => types::Trigger::MemoryEvents,
        TriggerWord::ContainerStarted => types::Trigger::ContainerStarted,
        TriggerWord::Pressure(said) => types::Trigger::Pressure(types::PressureTrigger {
            scope: match said.scope {
                Scope::Node => types::PressureScope::Node,
                Scope::Pod => types::PressureScope::Pod,
                Scope::Container => types::PressureScope::Container,
            },
            resource: match said.resource {
                Resource::Cpu => types::StalledResource::Cpu,
                Resource::Memory => types::StalledResource::Memory,
                Resource::Io => types::StalledResource::Io,
            },
            full: said.full,
            stall_usec: said.stall_usec,
            window_usec: said.window_usec,
        }),
    }
}

fn protocol(said: Protocol) -> lifecycle::Protocol {
    let preset = |said: Preset| lifecycle::Preset { policy: said.policy, values: json(said.values), alone: said.alone };
    lifecycle::Protocol {
        annotation_keys: said.annotation_keys,
        config_map_key: said.config_map_key,
        class_field: said.class_field,
        namespace_list_key: said.namespace_list_key,
        defaults: json(said.defaults),
        presets: said.presets.into_iter().map(preset).collect(),
        schema: json(said.schema),
        node_only_fields: said.node_only_fields,
    }
}

fn json(object: Map<String, Value>) -> String {
    Value::Object(object).to_string()
}

/// The contract's name of a field as METADATA spell it.
fn in_rego(error: EngineError) -> EngineError {
    match error {
        EngineError::Description { module, field, message } => {
            let field = format!("{PLACE}.{}", camel_case(&field));
            let message = message.replace("the module does not import", "`custom.qosm.grants` do not have");
            EngineError::Description { module, field, message }
        }
        other => other,
    }
}

/// `annotation-keys` is `annotationKeys`, and `msec` and `interval-msec` are not among the fields that can be wrong.
fn camel_case(field: &str) -> String {
    let mut upper = false;
    field
        .chars()
        .filter_map(|c| {
            if c == '-' {
                upper = true;
                return None;
            }
            Some(if std::mem::take(&mut upper) { c.to_ascii_uppercase() } else { c })
        })
        .collect()
}
