//! What a decision is made from. A thin layer fills it from the host's columns.

use std::collections::BTreeMap;

use crate::feature::Resource;
use crate::pod::Pod;

/// Samples are taken so often, in seconds.
pub const INTERVAL_SECONDS: u64 = 1;
/// The same in microseconds.
pub const INTERVAL_USEC: u64 = INTERVAL_SECONDS * 1_000_000;
/// A sample that is older says nothing.
pub const MAX_SAMPLE_AGE_USEC: u64 = 2 * INTERVAL_USEC;

/// All that is known at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Kubernetes node; `None` = not known.
    pub node: Option<Node>,
    /// All pods of the node; empty = not known.
    pub pods: Vec<Pod>,
    /// What batch pods request, use and may use; `None` = not known.
    pub be: Option<BeCpu>,
    /// CPU use of the whole node, in millionths of a CPU; `None` = not measured.
    pub cpu: Option<Sample>,
    /// Memory of the node; `None` = not measured.
    pub memory: Option<Memory>,
    /// What became of evictions that were asked for, by the pod's UID.
    pub outcomes: BTreeMap<String, Outcome>,
}

/// A measured amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// So much.
    pub amount: u64,
    /// When, on the clock of `now`; of a window its end.
    pub at_usec: u64,
}

impl Sample {
    /// The amount, unless it was measured too long ago.
    pub fn fresh(&self, now_usec: u64) -> Option<u64> {
        is_fresh(self.at_usec, now_usec).then_some(self.amount)
    }
}

pub(crate) fn is_fresh(at_usec: u64, now_usec: u64) -> bool {
    now_usec.saturating_sub(at_usec) <= MAX_SAMPLE_AGE_USEC
}

/// The Kubernetes node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `status.capacity.cpu` in thousandths of a CPU.
    pub cpu_capacity_milli: u64,
    /// `status.capacity.memory` in bytes.
    pub memory_capacity_bytes: u64,
    /// `status.allocatable` of batch and mid resources; negative where somebody wrote such an amount.
    pub allocatable: BTreeMap<Resource, i64>,
}

/// Totals of batch pods, in thousandths of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeCpu {
    /// What pods labelled `BE` request of `kubernetes.io/batch-cpu`.
    pub request_milli: u64,
    /// What the tier BestEffort uses.
    pub used_milli: u64,
    /// What it can get at most with what is in force ("BE real limit"); 0 = not known.
    pub real_limit_milli: u64,
    /// When, on the clock of `now`.
    pub at_usec: u64,
}

/// Memory of the node. Source: `/proc/meminfo`, `/proc/pressure/memory`, `/proc/zoneinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
    /// `MemFree`; `None` = not measured.
    pub free_bytes: Option<u64>,
    /// Sum of the zones' mark `low`, below which the kernel reclaims in the background; `None` = not known.
    pub low_mark_bytes: Option<u64>,
    /// Pressure; `None` = not measured.
    pub pressure: Option<Pressure>,
    /// Whether the trigger on the node's memory pressure fired.
    pub is_alarmed: bool,
    /// When, on the clock of `now`.
    pub at_usec: u64,
}

impl Memory {
    /// What is in use: `MemTotal − MemAvailable`.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }
}

/// PSI of the node's memory over a window, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which all tasks that were not idle waited for memory (`full`).
    pub full_usec: u64,
    /// Length of the window.
    pub window_usec: u64,
}

impl Pressure {
    /// Whether that is at least so many percent of the window.
    pub fn is_at_least(&self, percent: u32) -> bool {
        self.window_usec > 0 && u128::from(self.full_usec) * 100 >= u128::from(percent) * u128::from(self.window_usec)
    }
}

/// What became of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It waits: for an answer, or for room in a budget.
    Pending,
    /// It was taken up; the pod is leaving or about to.
    Accepted,
    /// It was refused.
    Refused {
        /// By whom and why: a budget, a guard rail.
        why: String,
        /// When, on the clock of `now`: what was refused earlier says nothing about a later eviction.
        at_usec: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_lasts_two_intervals() {
        for (at_usec, now_usec, fresh) in [(0, 2_000_000, Some(7)), (0, 2_000_001, None), (9, 3, Some(7))] {
            assert_eq!(Sample { amount: 7, at_usec }.fresh(now_usec), fresh);
        }
    }

    #[test]
    fn pressure_is_compared_exactly() {
        for (full_usec, window_usec, percent, at_least) in [
            (100_000, 1_000_000, 10, true),
            (99_999, 1_000_000, 10, false),
            (0, 0, 1, false),
            (u64::MAX, u64::MAX, 100, true),
        ] {
            assert_eq!(Pressure { full_usec, window_usec }.is_at_least(percent), at_least, "{full_usec} {window_usec}");
        }
    }

    #[test]
    fn more_available_than_there_is_uses_nothing() {
        let memory = Memory { total_bytes: 5, available_bytes: 9, ..Memory::default() };
        assert_eq!(memory.used_bytes(), 0);
    }
}
