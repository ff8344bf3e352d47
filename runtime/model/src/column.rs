//! Columns: one kind of measurement for all containers. The kernel counts running totals; modules see differences.

use serde::{Deserialize, Serialize};

use self::fields::counters;
pub use self::fields::{Counters, Fields};
use crate::knob::Target;
use crate::pod::ContainerId;
use crate::unit::{Bytes, Micros};

mod fields;

counters! {
    /// Running totals of a container's CPU use and throttling.
    pub struct CpuCounters {
        /// CPU time used.
        usage: Micros = total "usageUsec",
        /// Enforcement periods that passed.
        nr_periods: u64 = total "nrPeriods",
        /// Periods in which the group was throttled.
        nr_throttled: u64 = total "nrThrottled",
        /// Time that its threads waited for the next period.
        throttled: Micros = total "throttledUsec",
    }
}

/// A container's CPU use over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// The container.
    pub container: ContainerId,
    /// Difference within the window.
    pub delta: CpuCounters,
}

/// The CFS bandwidth in force for one cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandwidthSample {
    /// The pod or container.
    pub target: Target,
    /// CFS quota; `None` if unlimited.
    pub quota: Option<Micros>,
    /// The baseline quota, without any lease; `None` if unlimited.
    pub baseline_quota: Option<Micros>,
    /// Length of the enforcement period.
    pub period: Micros,
}

counters! {
    /// A container's current memory and its memory events. The kernel counts events as running totals; a module sees differences.
    pub struct MemoryCounters {
        /// All memory charged to it.
        usage: Bytes = level "usageBytes",
        /// Anonymous memory.
        anon: Bytes = level "anonBytes",
        /// Page cache.
        file: Bytes = level "fileBytes",
        /// Page cache that was not used recently.
        inactive_file: Bytes = level "inactiveFileBytes",
        /// Times it was throttled for being above `memory.high`.
        high_events: u64 = total "highEvents",
        /// Times it hit its limit.
        max_events: u64 = total "maxEvents",
        /// Processes that the OOM killer killed.
        oom_kills: u64 = total "oomKills",
    }
}

/// A container's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    /// The container.
    pub container: ContainerId,
    /// Current sizes, and events within the window.
    pub memory: MemoryCounters,
}

/// Time during which some, or all, threads of a cgroup waited for one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stall {
    /// Time during which at least one thread waited.
    #[serde(rename = "someUsec")]
    pub some: Micros,
    /// Time during which all threads waited at the same time.
    #[serde(rename = "fullUsec")]
    pub full: Micros,
}

impl Stall {
    /// The difference since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            some: Micros(self.some.0.saturating_sub(earlier.some.0)),
            full: Micros(self.full.0.saturating_sub(earlier.full.0)),
        }
    }

    /// The inverse of [`since`](Self::since): this, added to `earlier`.
    #[must_use]
    pub fn on_top_of(self, earlier: Self) -> Self {
        Self {
            some: Micros(earlier.some.0.saturating_add(self.some.0)),
            full: Micros(earlier.full.0.saturating_add(self.full.0)),
        }
    }
}

/// Running totals, or differences, of a container's pressure stall information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PressureCounters {
    /// Waiting for a CPU.
    pub cpu: Stall,
    /// Waiting for memory.
    pub memory: Stall,
    /// Waiting for input or output.
    pub io: Stall,
}

impl PressureCounters {
    /// The difference since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.since(earlier.cpu),
            memory: self.memory.since(earlier.memory),
            io: self.io.since(earlier.io),
        }
    }

    /// The inverse of [`since`](Self::since): this, added to `earlier`.
    #[must_use]
    pub fn on_top_of(self, earlier: Self) -> Self {
        Self {
            cpu: self.cpu.on_top_of(earlier.cpu),
            memory: self.memory.on_top_of(earlier.memory),
            io: self.io.on_top_of(earlier.io),
        }
    }
}

/// A container's pressure over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PressureSample {
    /// The container.
    pub container: ContainerId,
    /// Difference within the window.
    pub delta: PressureCounters,
}

/// Capacity and usage of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeSample {
    /// Logical CPUs.
    pub cpus: u32,
    /// Physical memory.
    #[serde(rename = "memoryCapacityBytes")]
    pub memory_capacity: Bytes,
    /// Memory that pods may use.
    #[serde(rename = "memoryAllocatableBytes")]
    pub memory_allocatable: Bytes,
    /// Size of a memory page.
    #[serde(rename = "pageSizeBytes")]
    pub page_size: Bytes,
    /// CPU time that all CPUs together spent busy within the window; `None` if unknown.
    #[serde(rename = "cpuUsageUsec", skip_serializing_if = "Option::is_none")]
    pub cpu_usage: Option<Micros>,
    /// `MemAvailable`; `None` if unknown.
    #[serde(rename = "memoryAvailableBytes", skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<Bytes>,
}
