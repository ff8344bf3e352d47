//! The policy's description.

use qosm_sdk::Description;

/// Evaluation interval in milliseconds. Averages cover a minute at least, and CPU time accumulates between evaluations.
const INTERVAL_MILLIS: u32 = 10_000;

/// Describes the policy.
pub(super) fn description() -> Description {
    Description::new(
        "reclaimed-resources",
        env!("CARGO_PKG_VERSION"),
        "Publishes what high-priority pods leave unused as batch and mid resources, and sets the cgroup values of BE pods from their share.",
    )
    .interval_millis(INTERVAL_MILLIS)
    .config_schema(CONFIG_SCHEMA)
}

/// The policy-level configuration; strategies are those of the cluster ConfigMap.
const CONFIG_SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "properties": {
    "defaults": {
        "enum": ["koordinator", "colocation"], "default": "koordinator",
        "description": "what a ConfigMap without `enable` means: koordinator = nothing is published; colocation = resources are published by the defaults of the strategy"
    },
    "publish": {"type": "boolean", "default": true, "description": "whether amounts are published"},
    "enforce": {"type": "boolean", "default": true, "description": "whether BE pods get their weight, quota and memory limit"},
    "batchCPUNames": {
        "type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string"},
        "default": ["kubernetes.io/batch-cpu"],
        "description": "names under which batch CPU is published, in thousandths of a CPU; requests under one name reduce the amounts under the others"
    },
    "batchMemoryNames": {
        "type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string"},
        "default": ["kubernetes.io/batch-memory"], "description": "the same for batch memory, in bytes"
    },
    "midCPUNames": {
        "type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string"},
        "default": ["kubernetes.io/mid-cpu"], "description": "the same for mid CPU"
    },
    "midMemoryNames": {
        "type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string"},
        "default": ["kubernetes.io/mid-memory"], "description": "the same for mid memory"
    },
    "resourceSource": {
        "enum": ["spec", "annotation"], "default": "spec",
        "description": "where the policy first reads the batch resources of a pod: its specification, or the annotation node.koordinator.sh/extended-resource-spec"
    },
    "hotCachePressurePercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 10,
        "description": "percent of the time in which tasks wait for memory, from which recently used page cache counts as used; 0 = never"
    },
    "coldStartSeconds": {
        "type": "integer", "minimum": 0, "maximum": 2592000, "default": 86400,
        "description": "seconds for which a pod has to be measured before it is expected to leave resources to mid pods"
    },
    "peakMarginPercent": {
        "type": "integer", "minimum": 0, "maximum": 1000, "default": 10,
        "description": "percent that is added to peaks"
    }
}}"#;

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;
    use crate::config::PolicyConfig;

    #[test]
    fn the_schemas_defaults_are_the_configurations() {
        let schema: Value = serde_json::from_str(CONFIG_SCHEMA).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            properties.iter().map(|(field, property)| (field.clone(), property["default"].clone())).collect();
        let config: PolicyConfig = serde_json::from_value(defaults.into()).unwrap();
        assert_eq!(config, PolicyConfig::default());
    }
}
