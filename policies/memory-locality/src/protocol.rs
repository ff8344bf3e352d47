//! The configuration of pods and operators, and the policy's description.

use qosm_sdk::{Description, Preset, Protocol};
use serde::Deserialize;

/// Values of `policy`, accepted in any letter case.
const BEST_EFFORT: &str = "bestEffort";
const NONE: &str = "none";
/// Evaluation interval in milliseconds: short enough that an event follows soon after the last page.
const INTERVAL_MILLIS: u32 = 1_000;
const MINUTE_USEC: u64 = 60_000_000;

/// Configuration of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// `bestEffort` or `none`.
    pub policy: String,
    /// Minimum time between the starts of two migrations, in minutes; 0 = a single migration.
    pub migrate_interval_minutes: u64,
}

impl PodConfig {
    /// Whether pages are moved.
    pub(crate) fn is_on(&self) -> bool {
        self.policy.eq_ignore_ascii_case(BEST_EFFORT)
    }

    /// Time between two migrations in microseconds; `None` = a single migration.
    pub(crate) fn interval_usec(&self) -> Option<u64> {
        (self.migrate_interval_minutes > 0).then(|| self.migrate_interval_minutes.saturating_mul(MINUTE_USEC))
    }
}

/// The effective configuration: the operator's entry. The configuration of classes is not needed here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: Settings,
}

/// The policy-level configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Percent of a container's pages on remote nodes below which the container is local enough.
    pub min_remote_percent: u64,
    /// Number of pages on remote nodes below which the container is local enough, too.
    pub min_remote_pages: u64,
    /// NUMA nodes whose pages are not moved, for example memory expanders.
    pub excluded_nodes: Vec<u32>,
    /// Whether a container is bound to its local nodes (`cpuset.mems`) after its pages were moved, so that new pages stay local too.
    pub keep_local: bool,
    /// Percent of a node's memory that has to be available for containers to be bound to it.
    pub keep_local_reserve_percent: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min_remote_percent: 1,
            min_remote_pages: 16_384,
            excluded_nodes: Vec::new(),
            keep_local: false,
            keep_local_reserve_percent: 10,
        }
    }
}

/// Describes the policy.
pub(crate) fn description() -> Description {
    let nothing = r#"{"lsrClass": {}, "lsClass": {}, "beClass": {}, "systemClass": {}}"#;
    let protocol = Protocol::new()
        .annotation("koordinator.sh/memoryLocality")
        .config_map_key("resource-qos-config")
        .class_field("memoryLocality")
        .defaults(nothing)
        .preset(Preset::new(NONE, nothing).alone())
        .schema(schema());
    Description::new(
        "memory-locality",
        env!("CARGO_PKG_VERSION"),
        "Moves pages that a CPU-pinned container has on remote NUMA nodes to the nodes of its CPUs.",
    )
    .interval_millis(INTERVAL_MILLIS)
    .config_schema(CONFIG_SCHEMA)
    .protocol(protocol)
}

/// The schema of a pod's or class's configuration.
fn schema() -> String {
    format!(
        r#"{{"type": "object", "properties": {{
            "policy": {{
                "anyOf": [{{"enum": ["{BEST_EFFORT}", "{NONE}", "default", ""]}}, {{"type": "string", "pattern": "{}"}}],
                "description": "bestEffort = pages are moved to the nodes of the CPUs, none = nothing is moved"
            }},
            "migrateIntervalMinutes": {{
                "type": "integer", "minimum": 0,
                "description": "minimum minutes between two migrations; 0 = a single migration, at once"
            }}
        }}}}"#,
        in_any_case(&[BEST_EFFORT, NONE])
    )
}

/// A pattern that matches these words in any letter case.
fn in_any_case(words: &[&str]) -> String {
    let any = |letter: char| format!("[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
    let words: Vec<String> = words.iter().map(|word| word.chars().map(any).collect()).collect();
    format!("^({})$", words.join("|"))
}

const CONFIG_SCHEMA: &str = r#"{"type": "object", "additionalProperties": false, "properties": {
    "minRemotePercent": {
        "type": "integer", "minimum": 0, "maximum": 100, "default": 1,
        "description": "percent of pages on remote NUMA nodes below which a container is local enough"
    },
    "minRemotePages": {
        "type": "integer", "minimum": 0, "default": 16384,
        "description": "number of pages on remote NUMA nodes below which a container is local enough"
    },
    "excludedNodes": {
        "type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 1023}, "default": [],
        "description": "NUMA nodes whose pages are left alone, such as memory expanders"
    },
    "keepLocal": {
        "type": "boolean", "default": false,
        "description": "whether a container is restricted to its local NUMA nodes after migration, so that new pages stay local, too"
    },
    "keepLocalReservePercent": {
        "type": "integer", "minimum": 1, "maximum": 60, "default": 10,
        "description": "percent of available memory of these nodes below which no container is restricted to them"
    }
}}"#;

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn words_are_taken_in_any_letter_case() {
        for (word, on) in
            [("bestEffort", true), ("BestEffort", true), ("BESTEFFORT", true), ("none", false), ("", false)]
        {
            assert_eq!(PodConfig { policy: word.into(), ..PodConfig::default() }.is_on(), on, "{word}");
        }
        assert_eq!(in_any_case(&["aB"]), "^([aA][bB])$");
    }

    #[test]
    fn the_defaults_in_the_schema_are_the_defaults() {
        let schema: Value = serde_json::from_str(CONFIG_SCHEMA).unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            properties.iter().map(|(field, property)| (field.clone(), property["default"].clone())).collect();
        let config: Config = serde_json::from_value(json!({"policy": defaults, "classes": {}})).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn the_description_holds_json() {
        let description = description();
        let protocol = description.facts().protocol.as_ref().unwrap();
        let schema: Value = serde_json::from_str(&protocol.schema).unwrap();
        assert_eq!(schema["properties"]["migrateIntervalMinutes"]["minimum"], 0);
        assert_eq!(protocol.annotation_keys, ["koordinator.sh/memoryLocality"]);
    }
}
