//! The part of a line about the node's memory, and about the usage of tiers and pods.

use qosm_model::column::{PressureCounters, Stall};
use qosm_model::node::{GroupCounters, GroupMemory, Marks, NodeMemory};
use qosm_model::unit::{Bytes, Micros};
use serde::{Deserialize, Serialize};

use super::line::PressureLine;

/// Memory of the node, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeMemoryLine {
    /// Unused memory.
    pub free_bytes: u64,
    /// Memory that could be used without swapping.
    pub available_bytes: u64,
    /// Page cache that was used lately.
    pub active_file_bytes: u64,
    /// Page cache that was not used lately.
    pub inactive_file_bytes: u64,
    /// The kernel's watermark `min`: below it every allocation reclaims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_mark_bytes: Option<u64>,
    /// The kernel's watermark `low`: below it the kernel begins to reclaim …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_mark_bytes: Option<u64>,
    /// … up to this watermark, `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_mark_bytes: Option<u64>,
}

impl From<NodeMemory> for NodeMemoryLine {
    fn from(memory: NodeMemory) -> Self {
        Self {
            free_bytes: memory.free.0,
            available_bytes: memory.available.0,
            active_file_bytes: memory.active_file.0,
            inactive_file_bytes: memory.inactive_file.0,
            min_mark_bytes: memory.marks.min.map(|bytes| bytes.0),
            low_mark_bytes: memory.marks.low.map(|bytes| bytes.0),
            high_mark_bytes: memory.marks.high.map(|bytes| bytes.0),
        }
    }
}

impl From<NodeMemoryLine> for NodeMemory {
    fn from(line: NodeMemoryLine) -> Self {
        Self {
            // A line has no total, because a machine's memory does not change.
            total: Bytes(0),
            free: Bytes(line.free_bytes),
            available: Bytes(line.available_bytes),
            active_file: Bytes(line.active_file_bytes),
            inactive_file: Bytes(line.inactive_file_bytes),
            marks: Marks {
                min: line.min_mark_bytes.map(Bytes),
                low: line.low_mark_bytes.map(Bytes),
                high: line.high_mark_bytes.map(Bytes),
            },
        }
    }
}

/// What a group used within the window. Fields that are missing cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GroupLine {
    /// CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_usage_usec: Option<u64>,
    /// Time in which its own CFS quota throttled its threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_throttled_usec: Option<u64>,
    /// Time that its threads waited for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<StallLine>,
    /// Its memory, now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<GroupMemoryLine>,
    /// Times that it hit its memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// Processes that the OOM killer ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

/// What an application beside Kubernetes used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ApplicationLine {
    /// Its cgroup, relative to the root of each hierarchy.
    pub cgroup: String,
    /// The counters of that cgroup.
    #[serde(default)]
    pub used: GroupLine,
}

/// Stall times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct StallLine {
    /// Some threads waited.
    pub some_usec: u64,
    /// All threads waited.
    pub full_usec: u64,
}

/// Memory of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct GroupMemoryLine {
    /// All memory of the group.
    pub usage_bytes: u64,
    /// Page cache that was used lately.
    pub active_file_bytes: u64,
    /// Page cache that was not used lately.
    pub inactive_file_bytes: u64,
}

impl From<GroupCounters> for GroupLine {
    fn from(used: GroupCounters) -> Self {
        let stall = |stall: Stall| StallLine { some_usec: stall.some.0, full_usec: stall.full.0 };
        let memory = |memory: GroupMemory| GroupMemoryLine {
            usage_bytes: memory.usage.0,
            active_file_bytes: memory.active_file.0,
            inactive_file_bytes: memory.inactive_file.0,
        };
        Self {
            cpu_usage_usec: used.cpu_usage.map(|micros| micros.0),
            cpu_throttled_usec: used.cpu_throttled.map(|micros| micros.0),
            cpu_pressure: used.cpu_pressure.map(stall),
            memory: used.memory.map(memory),
            max_events: used.max_events,
            oom_kills: used.oom_kills,
        }
    }
}

impl From<GroupLine> for GroupCounters {
    fn from(line: GroupLine) -> Self {
        let stall = |line: StallLine| Stall { some: Micros(line.some_usec), full: Micros(line.full_usec) };
        let memory = |line: GroupMemoryLine| GroupMemory {
            usage: Bytes(line.usage_bytes),
            active_file: Bytes(line.active_file_bytes),
            inactive_file: Bytes(line.inactive_file_bytes),
        };
        Self {
            cpu_usage: line.cpu_usage_usec.map(Micros),
            cpu_throttled: line.cpu_throttled_usec.map(Micros),
            cpu_pressure: line.cpu_pressure.map(stall),
            memory: line.memory.map(memory),
            max_events: line.max_events,
            oom_kills: line.oom_kills,
        }
    }
}

impl From<PressureCounters> for PressureLine {
    fn from(delta: PressureCounters) -> Self {
        Self {
            cpu_some_usec: delta.cpu.some.0,
            cpu_full_usec: delta.cpu.full.0,
            memory_some_usec: delta.memory.some.0,
            memory_full_usec: delta.memory.full.0,
            io_some_usec: delta.io.some.0,
            io_full_usec: delta.io.full.0,
        }
    }
}

impl PressureLine {
    /// The totals of `earlier` plus this line.
    pub(crate) fn on_top_of(self, earlier: PressureCounters) -> PressureCounters {
        let add = |stall: Stall, some: u64, full: u64| Stall {
            some: Micros(stall.some.0.saturating_add(some)),
            full: Micros(stall.full.0.saturating_add(full)),
        };
        PressureCounters {
            cpu: add(earlier.cpu, self.cpu_some_usec, self.cpu_full_usec),
            memory: add(earlier.memory, self.memory_some_usec, self.memory_full_usec),
            io: add(earlier.io, self.io_some_usec, self.io_full_usec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_reads_back() {
        let text = r#"{"cpuUsageUsec":5,"cpuPressure":{"someUsec":3,"fullUsec":1},"memory":{"usageBytes":9,"activeFileBytes":2,"inactiveFileBytes":1}}"#;
        let line: GroupLine = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&GroupLine::from(GroupCounters::from(line))).unwrap(), text);
        let text = r#"{"freeBytes":5,"availableBytes":6,"activeFileBytes":7,"inactiveFileBytes":8,"minMarkBytes":1,"lowMarkBytes":2,"highMarkBytes":3}"#;
        let line: NodeMemoryLine = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&NodeMemoryLine::from(NodeMemory::from(line))).unwrap(), text);
        assert!(serde_json::from_str::<GroupLine>(r#"{"cpu":5}"#).is_err());
    }
}
