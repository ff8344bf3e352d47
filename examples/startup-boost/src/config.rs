//! The configuration by operators and pods.

use qosm_sdk::{Description, Preset, Protocol, Trigger};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The policy-level configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Maximum of all boosts together, in percent of the node's CPUs. Containers that started first are boosted first.
    #[schemars(range(min = 1, max = 100))]
    pub max_node_percent: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_node_percent: 50 }
    }
}

/// The configuration of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// CFS quota during the boost, in percent of the one that follows from the CPU limit.
    #[schemars(range(min = 100, max = 1000))]
    pub percent: u64,
    /// Duration of the whole boost in seconds, from the container's start.
    #[schemars(range(min = 1, max = 3600))]
    pub seconds: u64,
    /// Time in seconds in which the boost then falls to zero.
    #[schemars(range(min = 0, max = 3600))]
    pub decay_seconds: u64,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self { percent: 200, seconds: 60, decay_seconds: 20 }
    }
}

/// The policy's description. The layers have no defaults: a pod without configuration gets no boost.
pub(crate) fn description() -> Description {
    Description::new("startup-boost", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
        .interval_millis(1_000)
        .trigger(Trigger::ContainerStarted)
        .config::<Config>()
        .protocol(
            Protocol::new()
                .annotation("qosm.io/startup-boost")
                .config_map_key("startup-boost-config")
                .namespace_list_key("startup-boost")
                .preset(Preset::new("auto", r#"{"percent": 200, "seconds": 60, "decaySeconds": 20}"#))
                .preset(Preset::new("none", "{}").alone())
                .schema_of::<PodConfig>(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_stands_for_the_defaults() {
        let protocol = description().facts().protocol.clone().unwrap();
        let auto: PodConfig = serde_json::from_str(&protocol.presets[0].values).unwrap();
        assert_eq!((protocol.presets[0].policy.as_str(), auto), ("auto", PodConfig::default()));
    }
}
