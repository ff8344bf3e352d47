//! A policy's description and imports: the METADATA of its entrypoint in the bundle's manifest.

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
use crate::interface::{Grant, Interface, Reach, UnknownInterface};

/// Path of the fields in METADATA.
const PLACE: &str = "custom.qosm";

/// The policy's declarations. Grants that this host does not know are listed separately: inspecting shows them, loading
/// refuses them.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(crate) description: Description,
    pub(crate) grants: BTreeSet<Interface>,
    pub(crate) reach: BTreeSet<Reach>,
    /// Index in `grants`, and name.
    pub(crate) unknown_grants: Vec<(usize, String)>,
}

/// The annotation with qosm's part, and its other fields.
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
    /// Finds the entrypoint's annotation in a manifest.
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
        let with_qosm =
            annotations.iter().find_map(|annotation| Some((annotation, annotation.get("custom")?.get("qosm")?)));
        let (annotation, custom) = with_qosm.ok_or(BundleError::NoMetadata)?;
        let text = |field: &str| annotation.get(field).and_then(Value::as_str);
        let summary = text("title").or_else(|| text("description").and_then(|text| text.lines().next()));
        Ok(Annotation { custom: custom.clone(), summary: summary.map(str::to_owned) })
    }

    /// Reads the declarations and checks them by the same rules as a component's description.
    ///
    /// # Errors
    ///
    /// [`EngineError::Description`] naming the invalid field.
    pub(super) fn read(module: Digest, annotation: Annotation) -> Result<Self, EngineError> {
        let declared: Declared = serde_path_to_error::deserialize(annotation.custom).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { PLACE.to_owned() } else { format!("{PLACE}.{path}") };
            EngineError::Description { module, field, message: error.inner().to_string() }
        })?;
        let mut grants = BTreeSet::new();
        let mut reach = BTreeSet::new();
        let mut unknown_grants = Vec::new();
        for (index, name) in declared.grants.iter().enumerate() {
            match name.parse() {
                Ok(Grant::Interface(interface)) => {
                    grants.insert(interface);
                }
                Ok(Grant::Reach(further)) => {
                    reach.insert(further);
                }
                Err(UnknownInterface(name)) => unknown_grants.push((index, name)),
            }
        }
        let annotation = lifecycle::Description {
            name: declared.name,
            version: declared.version,
            summary: declared.summary.or(annotation.summary).unwrap_or_default(),
            protocol: declared.protocol.map(protocol),
            config_schema: declared.config_schema.map(json),
            interval_msec: declared.interval_millis,
            triggers: declared.triggers.into_iter().map(trigger).collect(),
        };
        let description = description::read(module, &grants, annotation).map_err(in_rego)?;
        Ok(Self { description, grants, reach, unknown_grants })
    }

    /// Refuses a grant that this host does not know.
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
        TriggerWord::Pressure(annotation) => types::Trigger::Pressure(types::PressureTrigger {
            scope: match annotation.scope {
                Scope::Node => types::PressureScope::Node,
                Scope::Pod => types::PressureScope::Pod,
                Scope::Container => types::PressureScope::Container,
            },
            resource: match annotation.resource {
                Resource::Cpu => types::StalledResource::Cpu,
                Resource::Memory => types::StalledResource::Memory,
                Resource::Io => types::StalledResource::Io,
            },
            full: annotation.full,
            stall_usec: annotation.stall_usec,
            window_usec: annotation.window_usec,
        }),
    }
}

fn protocol(annotation: Protocol) -> lifecycle::Protocol {
    let preset = |annotation: Preset| lifecycle::Preset {
        policy: annotation.policy,
        values: json(annotation.values),
        alone: annotation.alone,
    };
    lifecycle::Protocol {
        annotation_keys: annotation.annotation_keys,
        config_map_key: annotation.config_map_key,
        class_field: annotation.class_field,
        namespace_list_key: annotation.namespace_list_key,
        defaults: json(annotation.defaults),
        presets: annotation.presets.into_iter().map(preset).collect(),
        schema: json(annotation.schema),
        node_only_fields: annotation.node_only_fields,
    }
}

fn json(object: Map<String, Value>) -> String {
    Value::Object(object).to_string()
}

/// Renames a field of the contract in an error as METADATA spells it.
pub(crate) fn in_rego(error: EngineError) -> EngineError {
    match error {
        EngineError::Description { module, field, message } => {
            let field = format!("{PLACE}.{}", camel_case(&field));
            let message = message.replace("the module does not import", "`custom.qosm.grants` do not have");
            EngineError::Description { module, field, message }
        }
        other => other,
    }
}

/// Converts `annotation-keys` to `annotationKeys`. Fields in milliseconds would be spelled otherwise, but are never invalid.
fn camel_case(field: &str) -> String {
    // The word of a preset follows its field: `protocol.presets: half-speed`.
    let (field, word) = field.split_at(field.find(": ").unwrap_or(field.len()));
    let mut upper = false;
    let in_camel_case: String = field
        .chars()
        .filter_map(|c| {
            if c == '-' {
                upper = true;
                return None;
            }
            Some(if std::mem::take(&mut upper) { c.to_ascii_uppercase() } else { c })
        })
        .collect();
    in_camel_case + word
}
