//! The inputs of an evaluation. `sources` and `meter` fill them from the host's columns.

use std::collections::BTreeMap;

use crate::feature::Resource;
use crate::pod::Pod;

/// Interval between samples, in seconds.
pub const INTERVAL_SECONDS: u64 = 1;
/// Interval between samples, in microseconds.
pub const INTERVAL_USEC: u64 = INTERVAL_SECONDS * 1_000_000;
/// Age in microseconds above which a sample is ignored.
pub const MAX_SAMPLE_AGE_USEC: u64 = 2 * INTERVAL_USEC;

/// All inputs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The Kubernetes node; `None` if unknown.
    pub node: Option<Node>,
    /// All pods of the node; empty if unknown.
    pub pods: Vec<Pod>,
    /// CPU request, use and limit of batch pods; `None` if unknown.
    pub be: Option<BeCpu>,
    /// CPU use of the whole node, in millionths of a CPU; `None` if not measured.
    pub cpu: Option<Sample>,
    /// Memory of the node; `None` if not measured.
    pub memory: Option<Memory>,
    /// Outcomes of requested evictions, by pod UID.
    pub outcomes: BTreeMap<String, Outcome>,
}

/// A measured amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The amount.
    pub amount: u64,
    /// When it was measured (the end of the window), on the clock of `now`.
    pub at_usec: u64,
}

impl Sample {
    /// The amount; `None` if the sample is older than [`MAX_SAMPLE_AGE_USEC`].
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
    /// `status.allocatable` of batch and mid resources; negative if a component wrote a negative amount.
    pub allocatable: BTreeMap<Resource, i64>,
}

/// CPU totals of batch pods, in thousandths of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeCpu {
    /// Sum of the `kubernetes.io/batch-cpu` requests of active pods labelled `BE`.
    pub request_milli: u64,
    /// CPU use of the tier BestEffort.
    pub used_milli: u64,
    /// The most CPU that batch pods can get under the limits in force ("BE real limit"); 0 if unknown.
    pub real_limit_milli: u64,
    /// When it was measured, on the clock of `now`.
    pub at_usec: u64,
}

/// Memory of the node. Source: `/proc/meminfo`, `/proc/pressure/memory`, `/proc/zoneinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// `MemTotal`.
    pub total_bytes: u64,
    /// `MemAvailable`.
    pub available_bytes: u64,
    /// `MemFree`; `None` if not measured.
    pub free_bytes: Option<u64>,
    /// Sum of the zones' `low` watermarks, below which the kernel reclaims in the background; `None` if unknown.
    pub low_mark_bytes: Option<u64>,
    /// Memory pressure; `None` if not measured.
    pub pressure: Option<Pressure>,
    /// Whether the trigger on the node's memory pressure fired.
    pub is_alarmed: bool,
    /// When it was measured, on the clock of `now`.
    pub at_usec: u64,
}

impl Memory {
    /// Memory in use: `MemTotal − MemAvailable`.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.available_bytes)
    }
}

/// Memory pressure (PSI) of the node over a window, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which all non-idle tasks waited for memory (`full`).
    pub full_usec: u64,
    /// Length of the window.
    pub window_usec: u64,
}

impl Pressure {
    /// Whether the stall time is at least `percent` of the window.
    pub fn is_at_least(&self, percent: u32) -> bool {
        self.window_usec > 0 && u128::from(self.full_usec) * 100 >= u128::from(percent) * u128::from(self.window_usec)
    }
}

/// The outcome of a requested eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Neither accepted nor refused yet, for example because a budget has no room.
    Pending,
    /// Accepted; the pod is leaving or about to leave.
    Accepted,
    /// Refused.
    Refused {
        /// What refused it (a budget, a guard rail) and why.
        why: String,
        /// When it was refused, on the clock of `now`. Refusals before the latest request do not count.
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
