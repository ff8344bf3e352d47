//! Memory and pressure of the node, and use by tiers, pods and applications, in case files.

use serde::Deserialize;

use super::tick::{PressureRow, StallRow};
use crate::{ApplicationUse, Group, GroupMemory, GroupUse, NodeMemory, NodePressure, NodeStall, QosClass, Tier};

/// Memory of the node. Fields that are left out are 0, except watermarks, which are unknown.
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
    /// Free memory.
    pub free_bytes: u64,
    /// Memory that is available without swapping.
    pub available_bytes: u64,
    /// Active page cache.
    pub active_file_bytes: u64,
    /// Inactive page cache.
    pub inactive_file_bytes: u64,
    /// The kernel's min watermark.
    pub min_mark_bytes: Option<u64>,
    /// The low watermark: below it, the kernel reclaims in the background.
    pub low_mark_bytes: Option<u64>,
    /// The high watermark: at it, background reclaim stops.
    pub high_mark_bytes: Option<u64>,
}

/// Use by a group. Fields that are left out are unknown.
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
    /// CPU time used, in microseconds.
    pub cpu_usage_usec: Option<u64>,
    /// Time that the group's own quota throttled its threads.
    pub cpu_throttled_usec: Option<u64>,
    /// Time that threads of the group waited for a CPU.
    pub cpu_pressure: Option<StallRow>,
    /// Memory of the group.
    pub memory: Option<GroupMemoryRow>,
    /// Times that the group hit its memory limit.
    pub max_events: Option<u64>,
    /// Processes that the OOM killer ended.
    pub oom_kills: Option<u64>,
}

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
    /// All memory charged to the group.
    pub usage_bytes: u64,
    /// Active page cache.
    pub active_file_bytes: u64,
    /// Inactive page cache.
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
