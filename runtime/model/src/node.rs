//! The node as a whole, and its use by groups: tiers, pods, and everything outside of them. The types' JSON is the form in recordings, in
//! the input of Rego policies, and in case files.

use serde::{Deserialize, Serialize};

use crate::column::Stall;
use crate::knob::Knob;
use crate::pod::{PodId, Tier};
use crate::unit::{Bytes, Micros};

/// Memory of the node. Watermarks of the kernel are summed over all zones, and `None` if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeMemory {
    /// Physical memory; `None` in a recording's lines, as it does not change.
    #[serde(rename = "totalBytes", skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// Unused memory.
    #[serde(rename = "freeBytes")]
    pub free: Bytes,
    /// Memory that can be allocated without swapping.
    #[serde(rename = "availableBytes")]
    pub available: Bytes,
    /// Page cache that was used recently.
    #[serde(rename = "activeFileBytes")]
    pub active_file: Bytes,
    /// Page cache that was not used recently.
    #[serde(rename = "inactiveFileBytes")]
    pub inactive_file: Bytes,
    /// Watermark `min`: with less free memory, every allocation reclaims memory itself.
    #[serde(rename = "minMarkBytes", skip_serializing_if = "Option::is_none")]
    pub min_mark: Option<Bytes>,
    /// Watermark `low`: with less free memory, the kernel reclaims in the background …
    #[serde(rename = "lowMarkBytes", skip_serializing_if = "Option::is_none")]
    pub low_mark: Option<Bytes>,
    /// … until this much memory is free, the watermark `high`.
    #[serde(rename = "highMarkBytes", skip_serializing_if = "Option::is_none")]
    pub high_mark: Option<Bytes>,
}

/// A setting of the node's own kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeKnobSample {
    /// One of [`Knob::OF_NODE`].
    pub knob: Knob,
    /// The current value, in the knob's unit.
    pub value: u64,
    /// The baseline, the value without any policy.
    pub baseline: u64,
}

/// A group of processes on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// A tier with all pods in it.
    Tier(Tier),
    /// A pod.
    Pod(PodId),
    /// Everything outside of the kubepods group.
    Outside,
}

impl Group {
    /// The group of all pods.
    pub const ALL_PODS: Self = Self::Tier(Tier::Guaranteed);
    /// The name of [`Self::Outside`].
    pub const OUTSIDE: &'static str = "outside";
}

/// Memory of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupMemory {
    /// All memory charged to it.
    #[serde(rename = "usageBytes")]
    pub usage: Bytes,
    /// Page cache that was used recently.
    #[serde(rename = "activeFileBytes")]
    pub active_file: Bytes,
    /// Page cache that was not used recently.
    #[serde(rename = "inactiveFileBytes")]
    pub inactive_file: Bytes,
}

impl GroupMemory {
    /// The difference to a part of the group; never negative.
    pub fn without(self, part: Self) -> Self {
        let less = |all: Bytes, part: Bytes| Bytes(all.0.saturating_sub(part.0));
        Self {
            usage: less(self.usage, part.usage),
            active_file: less(self.active_file, part.active_file),
            inactive_file: less(self.inactive_file, part.inactive_file),
        }
    }

    /// The sum of two parts.
    pub fn with(self, other: Self) -> Self {
        let sum = |one: Bytes, other: Bytes| Bytes(one.0.saturating_add(other.0));
        Self {
            usage: sum(self.usage, other.usage),
            active_file: sum(self.active_file, other.active_file),
            inactive_file: sum(self.inactive_file, other.inactive_file),
        }
    }
}

/// Usage of a group: the kernel counts running totals, a module sees differences. `None` if the kernel does not count a
/// value. Memory is the current use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupCounters {
    /// CPU time used.
    #[serde(rename = "cpuUsageUsec", skip_serializing_if = "Option::is_none")]
    pub cpu_usage: Option<Micros>,
    /// Time during which the group's own quota throttled its threads.
    #[serde(rename = "cpuThrottledUsec", skip_serializing_if = "Option::is_none")]
    pub cpu_throttled: Option<Micros>,
    /// Time that its threads waited for a CPU.
    #[serde(rename = "cpuPressure", skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<Stall>,
    /// Its current memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<GroupMemory>,
    /// Times that it hit its memory limit.
    #[serde(rename = "maxEvents", skip_serializing_if = "Option::is_none")]
    pub max_events: Option<u64>,
    /// Processes that the OOM killer killed.
    #[serde(rename = "oomKills", skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
}

impl GroupCounters {
    /// The differences since `earlier`; `None` without an earlier total. The difference of a total that ran backwards, as
    /// after a cgroup was recreated, is 0.
    pub fn since(self, earlier: Self) -> Self {
        let micros = |now: Option<Micros>, then: Option<Micros>| Some(Micros(now?.0.saturating_sub(then?.0)));
        let count = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            cpu_usage: micros(self.cpu_usage, earlier.cpu_usage),
            cpu_throttled: micros(self.cpu_throttled, earlier.cpu_throttled),
            cpu_pressure: self.cpu_pressure.zip(earlier.cpu_pressure).map(|(now, then)| now.since(then)),
            memory: self.memory,
            max_events: count(self.max_events, earlier.max_events),
            oom_kills: count(self.oom_kills, earlier.oom_kills),
        }
    }

    /// The totals after these differences are added to `earlier`. A value that was not counted this time is `None`.
    pub fn on_top_of(self, earlier: Self) -> Self {
        let micros = |added: Option<Micros>, to: Option<Micros>| {
            added.map(|added| Micros(to.unwrap_or_default().0.saturating_add(added.0)))
        };
        let count = |added: Option<u64>, to: Option<u64>| added.map(|added| to.unwrap_or(0).saturating_add(added));
        Self {
            cpu_usage: micros(self.cpu_usage, earlier.cpu_usage),
            cpu_throttled: micros(self.cpu_throttled, earlier.cpu_throttled),
            cpu_pressure: self.cpu_pressure.map(|added| added.on_top_of(earlier.cpu_pressure.unwrap_or_default())),
            memory: self.memory,
            max_events: count(self.max_events, earlier.max_events),
            oom_kills: count(self.oom_kills, earlier.oom_kills),
        }
    }
}

/// Usage of a group within a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSample {
    /// The group.
    pub group: Group,
    /// Its usage.
    pub used: GroupCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(number: u64) -> GroupCounters {
        let stall = Stall { some: Micros(number), full: Micros(number / 2) };
        let bytes = Bytes(number);
        GroupCounters {
            cpu_usage: Some(Micros(number)),
            cpu_throttled: Some(Micros(number)),
            cpu_pressure: Some(stall),
            memory: Some(GroupMemory { usage: bytes, active_file: bytes, inactive_file: bytes }),
            max_events: Some(number),
            oom_kills: Some(number),
        }
    }

    #[test]
    fn counters_read_back_as_they_were_written() {
        let text = r#"{"cpuUsageUsec":5,"cpuPressure":{"someUsec":3,"fullUsec":1},"memory":{"usageBytes":9,"activeFileBytes":2,"inactiveFileBytes":1}}"#;
        let counters: GroupCounters = serde_json::from_str(text).unwrap();
        assert_eq!(counters.cpu_usage, Some(Micros(5)));
        assert_eq!(serde_json::to_string(&counters).unwrap(), text);
        let text = r#"{"freeBytes":5,"availableBytes":6,"activeFileBytes":7,"inactiveFileBytes":8,"minMarkBytes":1,"lowMarkBytes":2,"highMarkBytes":3}"#;
        let memory: NodeMemory = serde_json::from_str(text).unwrap();
        assert_eq!((memory.total, memory.high_mark), (None, Some(Bytes(3))));
        assert_eq!(serde_json::to_string(&memory).unwrap(), text);
        assert!(serde_json::from_str::<GroupCounters>(r#"{"cpu":5}"#).is_err());
    }

    #[test]
    fn totals_become_differences_and_memory_stays_what_it_is() {
        let memory = counters(12).memory;
        assert_eq!(counters(12).since(counters(8)), GroupCounters { memory, ..counters(4) });
        // A recreated cgroup begins at 0.
        let memory = counters(3).memory;
        assert_eq!(counters(3).since(counters(8)), GroupCounters { memory, ..counters(0) });
        let unknown = GroupCounters::default();
        assert_eq!(counters(3).since(unknown), GroupCounters { memory, ..unknown });
        assert_eq!(unknown.since(counters(3)), unknown);
    }

    #[test]
    fn what_was_added_comes_back_as_the_difference() {
        for (added, earlier) in [(counters(4), counters(8)), (counters(4), GroupCounters::default())] {
            let before = if earlier == GroupCounters::default() { counters(0) } else { earlier };
            assert_eq!(added.on_top_of(earlier).since(before), added);
        }
        assert_eq!(GroupCounters::default().on_top_of(counters(8)), GroupCounters::default());
    }

    #[test]
    fn what_is_outside_is_what_is_left() {
        let memory = |usage| GroupMemory { usage: Bytes(usage), ..GroupMemory::default() };
        assert_eq!(memory(10).without(memory(4)), memory(6));
        assert_eq!(memory(4).without(memory(10)), memory(0));
        assert_eq!(memory(10).without(memory(4)).with(memory(4)), memory(10));
    }
}
