//! What a case file says of the node's memory and pressure, and of what its tiers and pods use.

use serde::Deserialize;

use super::tick::{PressureRow, StallRow};
use crate::{ApplicationUse, Group, GroupMemory, GroupUse, NodeMemory, NodePressure, NodeStall, QosClass, Tier};

/// The node's memory. What is left out is 0; a watermark that is left out is not known.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: little is free
///     node: {memory: {totalBytes: 34359738368, freeBytes: 1073741824, lowMarkBytes: 2147483648}}
///     ticks: []
///     ",
/// )?;
/// assert_eq!(case.node.memory.and_then(|memory| memory.low_mark_bytes), Some(2 << 30));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeMemoryRow {
    /// Physical memory.
    pub total_bytes: u64,
    /// Unused.
    pub free_bytes: u64,
    /// What could be given out without swapping.
    pub available_bytes: u64,
    /// Page cache that was used lately.
    pub active_file_bytes: u64,
    /// Page cache that was not.
    pub inactive_file_bytes: u64,
    /// The kernel's lowest watermark.
    pub min_mark_bytes: Option<u64>,
    /// Below it the kernel reclaims.
    pub low_mark_bytes: Option<u64>,
    /// There it stops.
    pub high_mark_bytes: Option<u64>,
}

/// What a group used. What is left out is not known.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: batch work uses two CPUs
///     pods: [{name: batch/job, kubeQos: BestEffort}]
///     ticks:
///       - groups: {besteffort: {cpuUsageUsec: 2000000}, batch/job: {cpuUsageUsec: 2000000}, outside: {}}
///     ",
/// )?;
/// let Some(groups) = &case.ticks[0].groups else { return Ok(()) };
/// assert_eq!(groups["besteffort"].cpu_usage_usec, Some(2_000_000));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupRow {
    /// CPU time.
    pub cpu_usage_usec: Option<u64>,
    /// Time that its own quota held its threads back.
    pub cpu_throttled_usec: Option<u64>,
    /// Time that its threads waited for a CPU.
    pub cpu_pressure: Option<StallRow>,
    /// Its memory.
    pub memory: Option<GroupMemoryRow>,
    /// Times that it hit its memory limit.
    pub max_events: Option<u64>,
    /// Processes that the OOM killer ended.
    pub oom_kills: Option<u64>,
}

/// What an application beside Kubernetes used. What is left out is not known.
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
    /// Its class of service.
    pub qos: Option<String>,
    /// Its priority class.
    pub priority: Option<String>,
    /// The tier that its cgroup is in: `kubepods`, `burstable` or `besteffort`.
    pub tier: Option<String>,
    /// CPU time.
    pub cpu_usage_usec: Option<u64>,
    /// Its memory.
    pub memory: Option<GroupMemoryRow>,
}

/// Memory of a group.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: batch work has 1 GiB
///     ticks:
///       - groups: {besteffort: {memory: {usageBytes: 1073741824}}}
///     ",
/// )?;
/// let memory = case.ticks[0].groups.as_ref().and_then(|groups| groups["besteffort"].memory);
/// assert_eq!(memory.map(|memory| (memory.usage_bytes, memory.active_file_bytes)), Some((1 << 30, 0)));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupMemoryRow {
    /// All of it.
    pub usage_bytes: u64,
    /// Page cache that was used lately.
    pub active_file_bytes: u64,
    /// Page cache that was not.
    pub inactive_file_bytes: u64,
}

impl From<NodeMemoryRow> for NodeMemory {
    fn from(row: NodeMemoryRow) -> Self {
        Self {
            total_bytes: row.total_bytes,
            free_bytes: row.free_bytes,
            available_bytes: row.available_bytes,
            active_file_bytes: row.active_file_bytes,
            inactive_file_bytes: row.inactive_file_bytes,
            min_mark_bytes: row.min_mark_bytes,
            low_mark_bytes: row.low_mark_bytes,
            high_mark_bytes: row.high_mark_bytes,
        }
    }
}

fn stall(row: StallRow) -> NodeStall {
    NodeStall { some_usec: row.some_usec, full_usec: row.full_usec }
}

impl From<PressureRow> for NodePressure {
    fn from(row: PressureRow) -> Self {
        Self { cpu: stall(row.cpu), memory: stall(row.memory), io: stall(row.io) }
    }
}

impl From<GroupMemoryRow> for GroupMemory {
    fn from(row: GroupMemoryRow) -> Self {
        Self {
            usage_bytes: row.usage_bytes,
            active_file_bytes: row.active_file_bytes,
            inactive_file_bytes: row.inactive_file_bytes,
        }
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

impl GroupRow {
    pub(super) fn of(self, group: Group) -> GroupUse {
        GroupUse {
            group,
            cpu_usage_usec: self.cpu_usage_usec,
            memory: self.memory.map(Into::into),
            cpu_throttled_usec: self.cpu_throttled_usec,
            cpu_pressure: self.cpu_pressure.map(stall),
            max_events: self.max_events,
            oom_kills: self.oom_kills,
        }
    }
}
