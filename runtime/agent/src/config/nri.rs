//! The container runtime's NRI socket.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Whether and where the agent is a plug-in of the container runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NriConfig {
    /// Whether the agent is a plug-in.
    pub mode: NriMode,
    /// The runtime's socket.
    pub socket: PathBuf,
    /// The place among the runtime's plug-ins, which are called in ascending order.
    pub index: PluginIndex,
}

impl Default for NriConfig {
    fn default() -> Self {
        let socket = PathBuf::from("/var/run/nri/nri.sock");
        Self { mode: NriMode::default(), socket, index: PluginIndex::default() }
    }
}

/// Whether the agent is a plug-in of the container runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NriMode {
    /// The agent registers as soon as the socket exists.
    #[default]
    Auto,
    /// The agent never registers.
    Off,
}

/// Index of a plug-in, 0 to 99. The lowest sees a request before other plug-ins change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct PluginIndex(u8);

/// An index above 99.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no index of an NRI plug-in: expected 0 to 99")]
pub struct NoPluginIndex(u8);

impl TryFrom<u8> for PluginIndex {
    type Error = NoPluginIndex;

    fn try_from(index: u8) -> Result<Self, NoPluginIndex> {
        if index < 100 { Ok(Self(index)) } else { Err(NoPluginIndex(index)) }
    }
}

impl From<PluginIndex> for u8 {
    fn from(index: PluginIndex) -> Self {
        index.0
    }
}

impl std::fmt::Display for PluginIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_has_two_digits() {
        assert_eq!(PluginIndex::try_from(7).map(|index| index.to_string()), Ok("07".to_owned()));
        assert_eq!(PluginIndex::try_from(100), Err(NoPluginIndex(100)));
        let error = serde_json::from_str::<NriConfig>(r#"{"index": 100}"#).unwrap_err().to_string();
        assert!(error.starts_with("100 is no index of an NRI plug-in: expected 0 to 99"), "{error}");
    }
}
