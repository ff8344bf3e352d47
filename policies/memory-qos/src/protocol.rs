//! The configuration of pods and operators, and the policy's description.

use qosm_sdk::{Description, Preset, Protocol};

use crate::config::{MAX_MIN_TOTAL_PERCENT, NUMBERS, Number};

/// Values of each class, both for the preset `auto` and as the defaults of an enabled class.
///
/// Fields whose recommended value is the neutral 0 are left out, so that values of the kubelet or of an administrator stay. An explicit 0
/// is held.
const CLASSES: &str = r#"{
    "lsrClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25},
    "lsClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25},
    "beClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": 50},
    "systemClass": {}
}"#;

/// Values of the preset `none`.
const NONE: &str = r#"{"lsrClass": {}, "lsClass": {}, "beClass": {}, "systemClass": {}}"#;

/// Describes the policy.
pub(crate) fn description() -> Description {
    let protocol = Protocol::new()
        .annotation("koordinator.sh/memoryQOS")
        .annotation("alibabacloud.com/memoryQOS")
        .config_map_key("resource-qos-config")
        .class_field("memoryQOS")
        .namespace_list_key("memory-qos")
        .defaults(CLASSES)
        .preset(Preset::new("auto", CLASSES))
        .preset(Preset::new("none", NONE).alone())
        .schema(schema())
        .node_only_field("enable");
    Description::new(
        "memory-qos",
        env!("CARGO_PKG_VERSION"),
        "Protects the memory of latency-sensitive pods and reclaims that of others early.",
    )
    .config_schema(config_schema())
    .protocol(protocol)
}

/// The schema of a pod's or class's configuration.
fn schema() -> String {
    let numbers: String = NUMBERS
        .iter()
        .map(|Number { field, least, most, meaning, .. }| {
            format!(
                r#""{field}": {{"type": "integer", "minimum": {least}, "maximum": {most}, "description": "{meaning}"}}, "#
            )
        })
        .collect();
    format!(
        r#"{{"type": "object", "properties": {{
            "policy": {{
                "enum": ["auto", "default", "none", ""],
                "description": "auto = the recommendation for the class, none = nothing, default = as if missing"
            }},
            "enable": {{"type": "boolean", "description": "whether the class is configured; only for classes"}},
            {numbers}
            "pageCacheEnable": {{
                "type": "boolean", "description": "whether the page cache limit is on, for any size"
            }},
            "pageCacheReclaimSync": {{
                "type": "boolean", "description": "whether the allocating task reclaims above the page cache limit"
            }}
        }}}}"#
    )
}

fn config_schema() -> String {
    format!(
        r#"{{"type": "object", "additionalProperties": false, "properties": {{
            "highFormula": {{
                "enum": ["current", "legacy"], "default": "current",
                "description": "memory.high: current = between request and limit, legacy = from the limit only"
            }},
            "minTotalPercent": {{
                "type": "integer", "minimum": 0, "maximum": {MAX_MIN_TOTAL_PERCENT}, "default": 100,
                "description": "maximum sum of all memory.min, in percent of allocatable memory; 0 = no bound"
            }},
            "minBelowLimitPercent": {{
                "type": "integer", "minimum": 0, "maximum": 100, "default": 0,
                "description": "minimum distance of memory.min below a limit, in percent of the limit; 0 = none"
            }}
        }}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::config::{Config, MemoryQos, PolicyConfig};

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_templates_are_those_of_the_protocol() {
        let classes = parsed(CLASSES);
        for (class, ratio, scale, min_adj) in [
            ("lsrClass", Some(95), Some(20), Some(-25)),
            ("lsClass", Some(95), Some(20), Some(-25)),
            ("beClass", Some(95), Some(20), Some(50)),
            ("systemClass", None, None, None),
        ] {
            let qos: MemoryQos = serde_json::from_value(classes[class].clone()).unwrap();
            let expected = MemoryQos {
                wmark_ratio: ratio,
                wmark_scale_permill: scale,
                wmark_min_adj: min_adj,
                ..MemoryQos::default()
            };
            assert_eq!(qos, expected, "{class}");
        }
    }

    #[test]
    fn presets_say_what_they_stand_for_in_every_class() {
        let description = description();
        let protocol = description.facts().protocol.as_ref().unwrap();
        let presets: Vec<_> = protocol.presets.iter().map(|preset| (preset.policy.as_str(), preset.alone)).collect();
        assert_eq!(presets, [("auto", false), ("none", true)]);
        for preset in &protocol.presets {
            for class in ["lsrClass", "lsClass", "beClass", "systemClass"] {
                assert!(parsed(&preset.values)[class].is_object(), "{} {class}", preset.policy);
            }
        }
        assert_eq!(parsed(&protocol.defaults), parsed(&protocol.presets[0].values));
        assert_eq!(protocol.annotation_keys, ["koordinator.sh/memoryQOS", "alibabacloud.com/memoryQOS"]);
    }

    #[test]
    fn the_schema_has_every_field_with_its_range() {
        let description = description();
        let schema = parsed(&description.facts().protocol.as_ref().unwrap().schema);
        let properties = schema["properties"].as_object().unwrap();
        assert_eq!(properties.len(), 15);
        for (field, least, most) in [
            ("minLimitPercent", 0, 100),
            ("lowLimitPercent", 0, 100),
            ("throttlingPercent", 0, 100),
            ("wmarkRatio", 0, 100),
            ("wmarkScalePermill", 1, 1000),
            ("wmarkMinAdj", -25, 50),
            ("priorityEnable", 0, 1),
            ("priority", 0, 12),
            ("oomKillGroup", 0, 1),
            ("pageCacheLimitPercent", 0, 100),
        ] {
            assert_eq!(properties[field]["type"], "integer", "{field}");
            assert_eq!(properties[field]["minimum"], least, "{field}");
            assert_eq!(properties[field]["maximum"], most, "{field}");
        }
    }

    #[test]
    fn the_defaults_in_the_schema_are_the_defaults() {
        let description = description();
        let schema = parsed(description.facts().config_schema.as_ref().unwrap());
        let properties = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            properties.iter().map(|(field, property)| (field.clone(), property["default"].clone())).collect();
        let config: Config = serde_json::from_value(json!({ "policy": defaults })).unwrap();
        assert_eq!(config.policy, PolicyConfig::default());
    }
}
