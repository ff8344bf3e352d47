//! How the agent confines itself.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How the agent confines itself after its start, and what it keeps beyond what its policies need.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ConfinementConfig {
    /// Whether the agent confines itself.
    pub mode: ConfinementMode,
    /// Folders and files that stay readable in addition to those that the agent was started with, for module files that a PolicyModule
    /// or `qosm policy swap` may name later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_paths: Vec<PathBuf>,
    /// Capabilities that the agent keeps, if it has them, in addition to those that its policies need at the start; names as in
    /// capabilities(7).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<CapabilityName>,
}

/// Whether the agent confines itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfinementMode {
    /// As far as the kernel supports it; the rest is logged.
    #[default]
    Auto,
    /// An agent that cannot confine itself does not start.
    Require,
    /// The agent keeps the privileges that it was started with.
    Off,
}

/// The name of a capability, as capabilities(7) has it, with or without `CAP_`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CapabilityName(qosm_confinement::Capability);

impl CapabilityName {
    /// The capability.
    pub fn capability(&self) -> qosm_confinement::Capability {
        self.0
    }
}

impl TryFrom<String> for CapabilityName {
    type Error = qosm_confinement::UnknownCapability;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl From<CapabilityName> for String {
    fn from(name: CapabilityName) -> Self {
        name.0.name().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_confined_as_far_as_the_kernel_can() {
        let config: ConfinementConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config.mode, ConfinementMode::Auto);
        assert!(config.read_paths.is_empty() && config.capabilities.is_empty());
    }

    #[test]
    fn a_capability_that_does_not_exist_is_refused_by_name() {
        let read = |text: &str| serde_json::from_str::<ConfinementConfig>(text);
        let config = read(r#"{"mode": "require", "capabilities": ["CAP_SYS_RESOURCE", "DAC_OVERRIDE"]}"#).unwrap();
        assert_eq!(config.mode, ConfinementMode::Require);
        assert_eq!(serde_json::to_value(&config).unwrap()["capabilities"][0], "SYS_RESOURCE");
        for (wrong, named) in [
            (r#"{"capabilities": ["SYS_EVERYTHING"]}"#, "there is no capability `SYS_EVERYTHING`"),
            (r#"{"mode": "maybe"}"#, "unknown variant `maybe`"),
            (r#"{"paths": []}"#, "unknown field `paths`"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
