//! The policy's own configuration.

use serde::{Deserialize, Serialize};

/// The policy's own configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Whether this node chooses CPUs for pods that ask for their own and were placed by no scheduler.
    pub choose: bool,
    /// Whether pods that are not pinned are restricted to the shared CPUs.
    pub pools: bool,
    /// Whether CFS quotas of pinned pods are lifted, since their CPUs limit them already.
    pub lift_quota: bool,
    /// Whether batch pods run on the CPUs of the NUMA nodes that the scheduler chose for them: Koordinator's feature gate BECPUManager.
    #[serde(rename = "beCPUManager")]
    pub be_cpu_manager: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { choose: true, pools: true, lift_quota: true, be_cpu_manager: false }
    }
}
