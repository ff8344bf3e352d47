//! The company's own protocol, described for the host. The host does the rest: it reads annotations and ConfigMaps, merges the
//! layers, checks fields against the schema and reports what does not fit to its author.

use std::fmt;

use qosm_sdk::{Description, Preset, Protocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a pod is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Saves up as much CPU time as its limit gives it, and is never slowed down for its memory.
    Gold,
    /// Saves up half of that, and is slowed down close to its memory limit.
    Silver,
    /// Saves up nothing, and is slowed down well before its memory limit.
    Bronze,
    /// Gets no settings.
    #[default]
    None,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gold => "gold",
            Self::Silver => "silver",
            Self::Bronze => "bronze",
            Self::None => "none",
        })
    }
}

/// The configuration of a pod after all layers are merged. A missing field sets nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// The class; a preset of the other fields.
    pub policy: Class,
    /// CFS burst: how much CPU time may be saved up, in percent of a period's quota. For operators.
    #[schemars(range(max = 1000))]
    pub burst_percent: Option<u64>,
    /// `memory.high`, in percent of the memory limit.
    #[schemars(range(min = 1, max = 100))]
    pub high_percent: Option<u64>,
}

/// The policy's description.
pub(crate) fn description() -> Description {
    let protocol = Protocol::new()
        // The first counts if a pod has both; older manifests have the second.
        .annotation("example.com/service-class")
        .annotation("legacy.example.com/serviceClass")
        .config_map_key("service-class-config")
        .preset(Preset::new("gold", r#"{"burstPercent": 100}"#))
        .preset(Preset::new("silver", r#"{"burstPercent": 50, "highPercent": 95}"#))
        .preset(Preset::new("bronze", r#"{"burstPercent": 0, "highPercent": 80}"#))
        .preset(Preset::new("none", "{}").alone())
        .schema_of::<PodConfig>()
        .node_only_field("burstPercent");
    Description::new("service-class", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION")).protocol(protocol)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_class_stands_for_something() {
        let protocol = description().facts().protocol.clone().unwrap();
        let schema: Value = serde_json::from_str(&protocol.schema).unwrap();
        let words: Vec<_> = schema["properties"]["policy"]["oneOf"]
            .as_array()
            .unwrap()
            .iter()
            .map(|branch| branch["const"].as_str().unwrap())
            .collect();
        assert_eq!(words, protocol.presets.iter().map(|preset| preset.policy.as_str()).collect::<Vec<_>>());
        for preset in &protocol.presets {
            let config: PodConfig = serde_json::from_str(&preset.values).unwrap();
            assert_eq!(config.burst_percent.is_some(), preset.policy != "none", "{}", preset.policy);
        }
    }
}
