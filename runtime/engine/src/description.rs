//! Checks and converts what `describe` returned; refuses values that later stages cannot use.

use std::collections::BTreeSet;

use qosm_model::alarm::{Scope, Trigger};
use qosm_model::foreign;
use qosm_model::layering::{CompiledProtocol, check_config_schema};
use qosm_model::protocol::{Description, Preset, Protocol};
use semver::Version;
use serde_json::{Map, Value};

use crate::bindings::exports::qosm::policy::lifecycle;
use crate::bindings::qosm::policy::types;
use crate::convert;
use crate::error::EngineError;
use crate::interface::Interface;
use crate::staging::printable;
use qosm_model::digest::Digest;

/// Keys of the defaults and presets of a protocol with a class field: one object for each QoS class.
const CLASSES: [&str; 4] = ["lsrClass", "lsClass", "beClass", "systemClass"];

/// Number of characters of a summary that are kept.
const SUMMARY: usize = 400;

/// Upper bound of one JSON text, in bytes.
const MAX_JSON: usize = 256 << 10;

/// Upper bound of triggers; the agent watches each separately.
const MAX_TRIGGERS: usize = 16;

/// An invalid field and the reason.
struct Flaw {
    field: String,
    message: String,
}

fn flaw<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw { field: foreign::shown(&field.into(), 100), message: foreign::shown(&message.into(), 400) })
}

/// Checks and converts a description.
pub(crate) fn read(
    module: Digest,
    imports: &BTreeSet<Interface>,
    raw: lifecycle::Description,
) -> Result<Description, EngineError> {
    description(raw, imports).map_err(|Flaw { field, message }| EngineError::Description { module, field, message })
}

/// Compiles the schemas once, within their bounds. A module whose schema is too expensive, or whose defaults do not match
/// their schema, is invalid: it could not be configured.
pub(crate) fn check_schemas(module: Digest, description: &Description) -> Result<(), EngineError> {
    let flaw = |field: String, message: String| EngineError::Description { module, field, message };
    if let Some(protocol) = &description.protocol {
        CompiledProtocol::compile(protocol.clone()).map_err(|problem| {
            let field = problem.field.map_or_else(|| "protocol".to_owned(), |field| format!("protocol.{field}"));
            flaw(field, problem.message)
        })?;
    }
    if let Some(schema) = &description.config_schema {
        check_config_schema(schema)
            .map_err(|why| flaw("config-schema".to_owned(), format!("{why}; mend the description of the module")))?;
    }
    Ok(())
}

fn description(raw: lifecycle::Description, imports: &BTreeSet<Interface>) -> Result<Description, Flaw> {
    if !is_name(&raw.name) {
        let shown = foreign::name(&raw.name);
        return flaw("name", format!("`{shown}` is not a name of 1 to 63 lower-case letters, digits and inner dashes"));
    }
    if let Err(error) = Version::parse(&raw.version) {
        return flaw("version", format!("`{}` is not a semantic version: {error}", foreign::name(&raw.version)));
    }
    let config_schema = raw.config_schema.map(|text| schema("config-schema", &text)).transpose()?;
    Ok(Description {
        name: raw.name,
        version: raw.version,
        summary: foreign::shown(&printable(raw.summary), SUMMARY),
        protocol: raw.protocol.map(protocol).transpose()?,
        config_schema,
        interval_millis: raw.interval_msec,
        triggers: triggers(raw.triggers, imports)?,
    })
}

/// A module can only be woken by a trigger whose signal it imports.
fn triggers(raw: Vec<types::Trigger>, imports: &BTreeSet<Interface>) -> Result<Vec<Trigger>, Flaw> {
    if raw.len() > MAX_TRIGGERS {
        return flaw("triggers", format!("{} are more than {MAX_TRIGGERS}", raw.len()));
    }
    let mut triggers = Vec::with_capacity(raw.len());
    for (index, raw) in raw.into_iter().enumerate() {
        let field = format!("triggers[{index}]");
        let trigger = convert::trigger(raw);
        if let Trigger::Pressure(pressure) = &trigger
            && let Some((of, why)) = pressure.flaw()
        {
            return flaw(format!("{field}.{of}"), why);
        }
        let needed = match &trigger {
            Trigger::Throttling => Some(Interface::CpuStat),
            Trigger::Pressure(pressure) if pressure.scope == Scope::Node => Some(Interface::Node),
            // Both interfaces report the pressure of pods.
            Trigger::Pressure(pressure) if pressure.scope == Scope::Pod && imports.contains(&Interface::Node) => None,
            Trigger::Pressure(_) => Some(Interface::Pressure),
            Trigger::MemoryEvents => Some(Interface::MemoryStat),
            Trigger::ContainerStarted => None,
        };
        if let Some(needed) = needed.filter(|needed| !imports.contains(needed)) {
            return flaw(
                field,
                format!("`{trigger}` needs the interface `{needed}`, which the module does not import"),
            );
        }
        if triggers.contains(&trigger) {
            return flaw(field, format!("`{trigger}` stands there twice"));
        }
        triggers.push(trigger);
    }
    Ok(triggers)
}

fn protocol(raw: lifecycle::Protocol) -> Result<Protocol, Flaw> {
    let mut seen = BTreeSet::new();
    for (index, key) in raw.annotation_keys.iter().enumerate() {
        let field = format!("protocol.annotation-keys[{index}]");
        if !is_annotation_key(key) {
            return flaw(field, format!("`{key}` is not an annotation key such as `example.com/cpuBurst`"));
        }
        if !seen.insert(key) {
            return flaw(field, format!("`{key}` stands there twice"));
        }
    }
    for (field, key) in
        [("protocol.config-map-key", &raw.config_map_key), ("protocol.namespace-list-key", &raw.namespace_list_key)]
    {
        if let Some(key) = key.as_ref().filter(|key| !is_config_map_key(key)) {
            return flaw(
                field,
                format!("`{key}` is not a ConfigMap key: letters, digits, `-`, `_` and `.`, at most 253"),
            );
        }
    }
    if raw.class_field.as_ref().is_some_and(String::is_empty) {
        return flaw("protocol.class-field", "it is empty; leave it out if the key holds no object for each class");
    }
    let by_class = raw.class_field.is_some();
    let defaults = values("protocol.defaults", &raw.defaults, by_class)?;
    let mut presets: Vec<Preset> = Vec::with_capacity(raw.presets.len());
    for (index, preset) in raw.presets.into_iter().enumerate() {
        let field = format!("protocol.presets[{index}]");
        if preset.policy.is_empty() || presets.iter().any(|other| other.policy == preset.policy) {
            let what = if preset.policy.is_empty() { "is empty" } else { "stands for an earlier preset already" };
            return flaw(format!("{field}.policy"), format!("the word `{}` {what}", preset.policy));
        }
        let values = values(&format!("{field}.values"), &preset.values, by_class)?;
        presets.push(Preset { policy: preset.policy, values, alone: preset.alone });
    }
    let schema = schema("protocol.schema", &raw.schema)?;
    if !schema.get("properties").is_some_and(Value::is_object) {
        return flaw("protocol.schema", "it is a schema without an object `properties`, which names the fields");
    }
    if let Some(index) = raw.node_only_fields.iter().position(String::is_empty) {
        return flaw(format!("protocol.node-only-fields[{index}]"), "it is empty");
    }
    Ok(Protocol {
        annotation_keys: raw.annotation_keys,
        config_map_key: raw.config_map_key,
        class_field: raw.class_field,
        namespace_list_key: raw.namespace_list_key,
        defaults,
        presets,
        schema,
        node_only_fields: raw.node_only_fields,
    })
}

/// Parses a JSON object of fields; with a class field, it has one object of fields for each class.
fn values(field: &str, text: &str, by_class: bool) -> Result<Map<String, Value>, Flaw> {
    let values = object(field, text)?;
    if by_class {
        for (class, values) in &values {
            if !CLASSES.contains(&class.as_str()) {
                return flaw(
                    field,
                    format!("`{class}` is not a class; with a class field there are {}", CLASSES.join(", ")),
                );
            }
            if !values.is_object() {
                return flaw(format!("{field}.{class}"), "it is not a JSON object");
            }
        }
    }
    Ok(values)
}

fn schema(field: &str, text: &str) -> Result<Value, Flaw> {
    object(field, text).map(Value::Object)
}

fn object(field: &str, text: &str) -> Result<Map<String, Value>, Flaw> {
    if text.len() > MAX_JSON {
        return flaw(field, format!("it has {} bytes, more than the {MAX_JSON} that are read", text.len()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => flaw(field, "it is JSON, but not an object"),
        Err(error) => flaw(field, format!("it is not JSON: {error}")),
    }
}

/// Whether the name is a DNS label, so that it is valid in file names, metrics and Kubernetes objects.
fn is_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| inner(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Whether the key is a qualified name of Kubernetes: an optional DNS prefix and `/`, then at most 63 letters, digits,
/// `-`, `_` and `.`.
fn is_annotation_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let good_name = name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && edge(name.bytes().next())
        && edge(name.bytes().last());
    good_name && prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_name))
}

fn is_config_map_key(key: &str) -> bool {
    (1..=253).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> lifecycle::Description {
        lifecycle::Description {
            name: "cpu-burst".to_owned(),
            version: "1.2.3".to_owned(),
            summary: "Lets containers burst.".to_owned(),
            protocol: Some(lifecycle::Protocol {
                annotation_keys: vec!["koordinator.sh/cpuBurst".to_owned()],
                config_map_key: Some("cpu-burst-config".to_owned()),
                class_field: None,
                namespace_list_key: Some("cpu-burst".to_owned()),
                defaults: r#"{"policy":"none"}"#.to_owned(),
                presets: vec![lifecycle::Preset { policy: "auto".to_owned(), values: "{}".to_owned(), alone: false }],
                schema: r#"{"type":"object","properties":{"policy":{"type":"string"}}}"#.to_owned(),
                node_only_fields: vec!["sharePoolThresholdPercent".to_owned()],
            }),
            config_schema: Some("{}".to_owned()),
            interval_msec: 1000,
            triggers: vec![types::Trigger::Throttling],
        }
    }

    fn pressure(scope: types::PressureScope, window_usec: u32) -> types::Trigger {
        let resource = types::StalledResource::Memory;
        types::Trigger::Pressure(types::PressureTrigger { scope, resource, full: true, stall_usec: 1, window_usec })
    }

    fn flaw_of(change: impl FnOnce(&mut lifecycle::Description)) -> Option<String> {
        let mut raw = good();
        change(&mut raw);
        description(raw, &[Interface::CpuStat].into()).err().map(|flaw| format!("{}: {}", flaw.field, flaw.message))
    }

    fn protocol_flaw_of(change: impl FnOnce(&mut lifecycle::Protocol)) -> Option<String> {
        flaw_of(|raw| {
            if let Some(protocol) = &mut raw.protocol {
                change(protocol);
            }
        })
    }

    #[test]
    fn a_good_description_is_taken_over() {
        assert_eq!(flaw_of(|_| ()), None);
        assert_eq!(flaw_of(|raw| raw.protocol = None), None);
        let taken = description(good(), &[Interface::CpuStat].into()).ok();
        assert_eq!(taken.as_ref().map(|taken| taken.interval_millis), Some(1000));
        assert_eq!(taken.as_ref().map(|taken| taken.triggers.as_slice()), Some(&[Trigger::Throttling][..]));
        let defaults = taken.and_then(|taken| taken.protocol).map(|protocol| Value::Object(protocol.defaults));
        assert_eq!(defaults, Some(serde_json::json!({"policy": "none"})));
    }

    #[test]
    fn a_schema_that_is_too_expensive_refuses_the_module() {
        let defs: Map<String, Value> = (1..=26)
            .map(|level| {
                let below = serde_json::json!({"$ref": format!("#/$defs/d{}", level - 1)});
                (format!("d{level}"), serde_json::json!({"allOf": [below, below]}))
            })
            .chain([("d0".to_owned(), serde_json::json!({}))])
            .collect();
        let expensive =
            serde_json::json!({"$defs": defs, "properties": {"policy": {"$ref": "#/$defs/d26"}}}).to_string();
        let flaw = |change: &dyn Fn(&mut lifecycle::Description)| {
            let mut raw = good();
            change(&mut raw);
            let taken = description(raw, &[Interface::CpuStat].into()).ok().unwrap();
            check_schemas(Digest::of(b"module"), &taken).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(flaw(&|_| ()), "");
        let of_pods = flaw(&|raw| raw.protocol.iter_mut().for_each(|protocol| protocol.schema.clone_from(&expensive)));
        assert!(of_pods.contains("protocol.schema: it has more than 8192 parts"), "{of_pods}");
        let of_policy = flaw(&|raw| raw.config_schema = Some(expensive.clone()));
        assert!(of_policy.contains("config-schema: it has more than 8192 parts"), "{of_policy}");
    }

    #[test]
    fn third_party_text_is_short_and_safe_for_a_terminal() {
        for flaw in [
            flaw_of(|raw| raw.name = "\u{1b}[2J\u{202e}".repeat(100_000)),
            flaw_of(|raw| raw.version = "1.0.0\u{1b}]0;title\u{7}".repeat(100_000)),
            protocol_flaw_of(|p| p.annotation_keys = vec!["\u{9b}31m".repeat(100_000)]),
        ] {
            let flaw = flaw.unwrap_or_default();
            assert!(!flaw.is_empty() && flaw.len() < 2_000 && !flaw.contains(foreign::is_unsafe), "{flaw}");
        }
        let long = flaw_of(|raw| raw.config_schema = Some(format!("{{\"a\":\"{}\"}}", "x".repeat(300_000))));
        assert!(long.is_some_and(|flaw| flaw.contains("has 300008 bytes, more than the 262144")));
    }

    #[test]
    fn a_flaw_names_the_field() {
        for (flaw, field) in [
            (flaw_of(|raw| raw.name.clear()), "name: "),
            (flaw_of(|raw| raw.name = "Cpu".to_owned()), "name: "),
            (flaw_of(|raw| raw.name = "-cpu".to_owned()), "name: "),
            (flaw_of(|raw| raw.name = "../cpu".to_owned()), "name: "),
            (flaw_of(|raw| raw.name = "x".repeat(64)), "name: "),
            (flaw_of(|raw| raw.version = "1.2".to_owned()), "version: "),
            (flaw_of(|raw| raw.config_schema = Some("[]".to_owned())), "config-schema: "),
            (flaw_of(|raw| raw.triggers.push(types::Trigger::Throttling)), "triggers[1]: `throttling` stands"),
            (flaw_of(|raw| raw.triggers.push(types::Trigger::MemoryEvents)), "triggers[1]: `memory-events` needs"),
            (
                flaw_of(|raw| raw.triggers.push(pressure(types::PressureScope::Pod, 500_000))),
                "triggers[1]: `pressure: ",
            ),
            (
                flaw_of(|raw| raw.triggers.push(pressure(types::PressureScope::Node, 500_000))),
                "triggers[1]: `pressure: ",
            ),
            (flaw_of(|raw| raw.triggers.push(pressure(types::PressureScope::Node, 1))), "triggers[1].window-usec: "),
            (flaw_of(|raw| raw.triggers = vec![types::Trigger::ContainerStarted; 17]), "triggers: 17 are more"),
            (protocol_flaw_of(|p| p.annotation_keys.push("a b".to_owned())), "protocol.annotation-keys[1]: "),
            (protocol_flaw_of(|p| p.annotation_keys.push("A.b/c".to_owned())), "protocol.annotation-keys[1]: "),
            (protocol_flaw_of(|p| p.annotation_keys.push("a/b/c".to_owned())), "protocol.annotation-keys[1]: "),
            (
                protocol_flaw_of(|p| p.annotation_keys.push("koordinator.sh/cpuBurst".to_owned())),
                "protocol.annotation-keys[1]: ",
            ),
            (protocol_flaw_of(|p| p.config_map_key = Some("a/b".to_owned())), "protocol.config-map-key: "),
            (protocol_flaw_of(|p| p.namespace_list_key = Some(String::new())), "protocol.namespace-list-key: "),
            (protocol_flaw_of(|p| p.class_field = Some(String::new())), "protocol.class-field: "),
            (protocol_flaw_of(|p| p.defaults = "{".to_owned()), "protocol.defaults: it is not JSON: EOF"),
            (protocol_flaw_of(|p| p.defaults = "1".to_owned()), "protocol.defaults: it is JSON, but not an object"),
            (protocol_flaw_of(|p| p.class_field = Some("memoryQOS".to_owned())), "protocol.defaults: `policy` is not"),
            (
                protocol_flaw_of(|p| {
                    p.class_field = Some("memoryQOS".to_owned());
                    p.defaults = r#"{"beClass":1}"#.to_owned();
                }),
                "protocol.defaults.beClass: ",
            ),
            (protocol_flaw_of(|p| p.presets[0].policy.clear()), "protocol.presets[0].policy: "),
            (protocol_flaw_of(|p| p.presets.push(p.presets[0].clone())), "protocol.presets[1].policy: "),
            (protocol_flaw_of(|p| p.presets[0].values = "x".to_owned()), "protocol.presets[0].values: "),
            (protocol_flaw_of(|p| p.schema = "{}".to_owned()), "protocol.schema: "),
            (protocol_flaw_of(|p| p.node_only_fields.push(String::new())), "protocol.node-only-fields[1]: "),
        ] {
            assert!(flaw.as_ref().is_some_and(|flaw| flaw.starts_with(field)), "{flaw:?} should be about {field}");
        }
    }
}
