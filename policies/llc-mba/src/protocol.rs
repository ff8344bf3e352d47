//! The configuration of pods and operators, and the policy's description.

use qosm_sdk::{Description, Protocol};

/// Evaluation interval in milliseconds: traffic is counted over this time, and a step takes effect before the next one is due.
const INTERVAL_MILLIS: u32 = 1_000;

/// Defaults of an enabled class.
const CLASSES: &str = r#"{
    "lsrClass": {"catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
    "lsClass": {"catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
    "beClass": {"catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 100},
    "systemClass": {"catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100}
}"#;

/// Key of the cluster ConfigMap that has the classes.
pub(crate) const CONFIG_MAP_KEY: &str = "resource-qos-config";
/// Annotation of a pod with shares of its own.
pub(crate) const ANNOTATION: &str = "node.koordinator.sh/resctrl";

/// Describes the policy.
pub(crate) fn description() -> Description {
    let protocol = Protocol::new()
        .annotation(ANNOTATION)
        .config_map_key(CONFIG_MAP_KEY)
        .class_field("resctrlQOS")
        .defaults(CLASSES)
        .schema(POD_SCHEMA)
        .node_only_field("enable")
        .node_only_field("catRangeStartPercent")
        .node_only_field("catRangeEndPercent")
        .node_only_field("mbaPercent");
    Description::new(
        "llc-mba",
        env!("CARGO_PKG_VERSION"),
        "Divides the last-level cache and the memory bandwidth among QoS classes and pods.",
    )
    .interval_millis(INTERVAL_MILLIS)
    .config_schema(CONFIG_SCHEMA)
    .protocol(protocol)
}

/// The fields of a class and of a pod. The policy matches names within lists itself, since the host leaves them as written.
const POD_SCHEMA: &str = r#"{"type": "object", "properties": {
    "enable": {"type": "boolean", "description": "whether the class has shares; only for classes"},
    "catRangeStartPercent": {
        "type": "integer", "minimum": 0, "maximum": 100,
        "description": "start of the class's range of cache ways, in percent of all; only for classes"
    },
    "catRangeEndPercent": {
        "type": "integer", "minimum": 0, "maximum": 100,
        "description": "end of the range, above its start; only for classes"
    },
    "mbaPercent": {
        "type": "integer", "minimum": 0, "maximum": 100,
        "description": "the class's share of the memory bandwidth, in percent; 0 = not set; only for classes"
    },
    "llc": {
        "type": "object",
        "description": "the pod's own share of the last-level cache, instead of its class's",
        "properties": {
            "schemata": {"type": "object", "description": "on every cache", "properties": {"range": {
                "type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer", "minimum": 0, "maximum": 100},
                "description": "start and end, in percent of the ways"
            }}},
            "schemataPerCache": {
                "type": "array", "maxItems": 128, "items": {"type": "object"},
                "description": "caches that differ: cacheID and range"
            }
        }
    },
    "mb": {
        "type": "object",
        "description": "the pod's own share of the memory bandwidth, instead of its class's",
        "properties": {
            "schemata": {"type": "object", "description": "behind every cache", "properties": {"percent": {
                "type": "integer", "minimum": 0, "maximum": 100,
                "description": "in percent; 0 = not set"
            }}},
            "schemataPerCache": {
                "type": "array", "maxItems": 128, "items": {"type": "object"},
                "description": "caches that differ: cacheID and percent"
            }
        }
    }
}}"#;

const CONFIG_SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "properties": {
    "profile": {
        "enum": ["static", "dynamic"], "default": "static",
        "description": "static = shares stay as configured, dynamic = BE's share shrinks while latency-sensitive pods are squeezed"
    },
    "maxBandwidthMBps": {
        "type": "integer", "minimum": 0, "default": 0,
        "description": "memory bandwidth of one cache domain in MB/s; 0 = the maximum seen so far"
    },
    "bandwidthHighPercent": {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 80,
        "description": "percent of that bandwidth from which the memory is short"
    },
    "bandwidthLowPercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 60,
        "description": "percent of that bandwidth up to which the memory is calm"
    },
    "beTrafficPercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 20,
        "description": "percent of the traffic from which BE counts as its cause"
    },
    "occupancyLowPercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 50,
        "description": "percent of the cache that they may use, below which latency-sensitive containers have lost it"
    },
    "occupancyCalmPercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 70,
        "description": "percent of the cache that they may use, from which they have it back"
    },
    "cacheStepPercent": {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 10,
        "description": "percent of all ways by which BE's range shrinks at a time"
    },
    "cacheFloorPercent": {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 10,
        "description": "minimum of BE's range, in percent of all ways, unless a smaller one is configured"
    },
    "bandwidthStepPercent": {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 10,
        "description": "percentage points by which BE's share of the memory bandwidth shrinks at a time"
    },
    "bandwidthFloorPercent": {
        "type": "integer", "minimum": 1, "maximum": 100, "default": 10,
        "description": "minimum of BE's share of the memory bandwidth, in percent, unless a smaller one is configured"
    },
    "stepSeconds": {
        "type": "integer", "minimum": 0, "maximum": 3600, "default": 2,
        "description": "minimum time between two steps, in seconds"
    },
    "calmSeconds": {
        "type": "integer", "minimum": 1, "maximum": 86400, "default": 30,
        "description": "seconds of calm after which a step is given back"
    }
}}"#;

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::config::{Class, Config};

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_defaults_in_the_schema_are_the_defaults() {
        let schema = parsed(CONFIG_SCHEMA);
        let properties = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            properties.iter().map(|(field, property)| (field.clone(), property["default"].clone())).collect();
        let config: Config = serde_json::from_value(json!({"policy": defaults, "classes": {}})).unwrap();
        assert_eq!(config, Config::default());
        assert_eq!(config.policy.check(), Ok(()));
    }

    #[test]
    fn the_classes_have_the_same_defaults_here_and_there() {
        let spelled: Config = serde_json::from_value(json!({"classes": parsed(CLASSES)})).unwrap();
        for class in Class::EACH {
            let enabled: Config =
                serde_json::from_value(json!({"classes": {(class.key()): {"enable": true}}})).unwrap();
            assert_eq!(spelled.classes.shared(class), enabled.classes.shared(class), "{class:?}");
        }
    }

    #[test]
    fn only_operators_set_what_is_a_classs() {
        let description = description();
        let protocol = description.facts().protocol.as_ref().unwrap();
        let schema = parsed(&protocol.schema);
        let of_pods: Vec<&String> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .filter(|field| !protocol.node_only_fields.contains(field))
            .collect();
        assert_eq!(of_pods, ["llc", "mb"]);
        assert_eq!(protocol.annotation_keys, ["node.koordinator.sh/resctrl"]);
    }
}
