//! Pressure of the node, and use by applications, in case files.

use serde::Deserialize;

use super::tick::{PressureRow, StallRow};
use crate::counters::GroupMemoryRow;
use crate::{ApplicationUse, NodePressure, NodeStall, QosClass, Tier};

/// Use by an application outside Kubernetes. Fields that are left out are unknown.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a web server on the node itself uses half a CPU
///     ticks:
///       - applications: {nginx: {qos: LS, priority: koord-prod, cpuUsageUsec: 500000}}
///     ",
/// )?;
/// let Some(applications) = &case.ticks[0].applications else { return Ok(()) };
/// assert_eq!(applications["nginx"].qos.as_deref(), Some("LS"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ApplicationRow {
    /// QoS class of the application.
    pub qos: Option<String>,
    /// Priority class of the application.
    pub priority: Option<String>,
    /// The tier that contains its cgroup: `kubepods`, `burstable` or `besteffort`.
    pub tier: Option<String>,
    /// CPU time used, in microseconds.
    pub cpu_usage_usec: Option<u64>,
    /// Memory of the application.
    pub memory: Option<GroupMemoryRow>,
}

impl From<StallRow> for NodeStall {
    fn from(row: StallRow) -> Self {
        Self { some_usec: row.some_usec, full_usec: row.full_usec }
    }
}

impl From<NodeStall> for StallRow {
    fn from(stall: NodeStall) -> Self {
        Self { some_usec: stall.some_usec, full_usec: stall.full_usec }
    }
}

impl From<PressureRow> for NodePressure {
    fn from(row: PressureRow) -> Self {
        Self { cpu: row.cpu.into(), memory: row.memory.into(), io: row.io.into() }
    }
}

impl ApplicationRow {
    pub(super) fn of(&self, name: &str, qos: Option<QosClass>, tier: Option<Tier>) -> ApplicationUse {
        ApplicationUse {
            name: name.to_owned(),
            qos,
            priority: self.priority.clone(),
            tier,
            cpu_usage_usec: self.cpu_usage_usec,
            memory: self.memory.map(Into::into),
        }
    }
}
