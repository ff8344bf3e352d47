//! Counters of containers, groups and the node, declared once to match the contract: their row in a case file, and a sample in which all
//! counters are 0 or unknown.

#[cfg(feature = "testing")]
use serde::{Deserialize, Serialize};

#[cfg(feature = "testing")]
use crate::testing::StallRow;
use crate::{ContainerId, CpuSample, Group, GroupUse, MemorySample};
#[cfg(feature = "testing")]
use crate::{GroupMemory, NodeMemory, NodeStall};

/// Declares the counters of a sample as a row of a case file, with the same fields, and the conversions between row and sample. A sample may
/// have a key besides, which a case file gives as the row's name.
macro_rules! counters {
    (
        type Sample = fn($key:ident: $of:ty) -> $sample:ident;
        $(#[$about:meta])*
        pub struct $row:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        impl $sample {
            /// A sample in which all counters are 0 or unknown.
            pub(crate) fn zero($key: $of) -> Self {
                Self { $key, $($field: Default::default(),)* }
            }
        }

        counters!(@row $(#[$about])* $row { $($(#[$doc])* $field: $type,)* });

        #[cfg(feature = "testing")]
        impl $row {
            pub(crate) fn of(self, $key: $of) -> $sample {
                $sample { $key, $($field: self.$field.converted(),)* }
            }
        }

        counters!(@from $sample, $row, $($field)*);
    };
    (
        type Sample = $sample:ident;
        $(#[$about:meta])*
        pub struct $row:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        counters!(@row $(#[$about])* $row { $($(#[$doc])* $field: $type,)* });

        #[cfg(feature = "testing")]
        impl From<$row> for $sample {
            fn from(row: $row) -> Self {
                Self { $($field: row.$field.converted(),)* }
            }
        }

        counters!(@from $sample, $row, $($field)*);
    };
    (@row $(#[$about:meta])* $row:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[cfg(feature = "testing")]
        #[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $row {
            $($(#[$doc])* pub $field: $type,)*
        }
    };
    (@from $sample:ident, $row:ident, $($field:ident)*) => {
        #[cfg(feature = "testing")]
        impl From<$sample> for $row {
            fn from(sample: $sample) -> Self {
                Self { $($field: sample.$field.converted(),)* }
            }
        }
    };
}

/// A field of a row as a field of a sample, or the reverse.
#[cfg(feature = "testing")]
trait Converted<T> {
    fn converted(self) -> T;
}

#[cfg(feature = "testing")]
impl Converted<u64> for u64 {
    fn converted(self) -> u64 {
        self
    }
}

#[cfg(feature = "testing")]
impl<A: Converted<B>, B> Converted<Option<B>> for Option<A> {
    fn converted(self) -> Option<B> {
        self.map(A::converted)
    }
}

#[cfg(feature = "testing")]
macro_rules! converted {
    ($($from:ty => $to:ty,)*) => {
        $(impl Converted<$to> for $from {
            fn converted(self) -> $to {
                self.into()
            }
        })*
    };
}

#[cfg(feature = "testing")]
converted! {
    StallRow => NodeStall,
    NodeStall => StallRow,
    GroupMemoryRow => GroupMemory,
    GroupMemory => GroupMemoryRow,
}

counters! {
    type Sample = fn(container: ContainerId) -> CpuSample;

    /// A CPU sample.
    ///
    /// ```
    /// use qosm_sdk::testing::Case;
    ///
    /// let case = Case::parse(
    ///     "
    ///     about: a sample
    ///     pods: [{name: default/web, containers: [{name: app}]}]
    ///     ticks:
    ///       - cpu: {default/web/app: {usageUsec: 480000, nrPeriods: 10, nrThrottled: 4, throttledUsec: 90000}}
    ///     ",
    /// )?;
    /// let Some(cpu) = &case.ticks[0].cpu else { return Ok(()) };
    /// assert_eq!(cpu["default/web/app"].nr_throttled, 4);
    /// # Ok::<(), qosm_sdk::testing::CaseError>(())
    /// ```
    pub struct CpuRow {
        /// CPU time used, in microseconds.
        pub usage_usec: u64,
        /// Enforcement periods that passed.
        pub nr_periods: u64,
        /// Periods in which the container was throttled.
        pub nr_throttled: u64,
        /// Time that threads were throttled, in microseconds, summed over CPUs.
        pub throttled_usec: u64,
    }
}

counters! {
    type Sample = fn(container: ContainerId) -> MemorySample;

    /// A memory sample.
    ///
    /// ```
    /// use qosm_sdk::testing::Case;
    ///
    /// let case = Case::parse(
    ///     "
    ///     about: a sample
    ///     pods: [{name: default/web, containers: [{name: app}]}]
    ///     ticks:
    ///       - memory: {default/web/app: {usageBytes: 3145728, anonBytes: 2097152}}
    ///     ",
    /// )?;
    /// let Some(memory) = &case.ticks[0].memory else { return Ok(()) };
    /// assert_eq!(memory["default/web/app"].anon_bytes, 2 << 20);
    /// # Ok::<(), qosm_sdk::testing::CaseError>(())
    /// ```
    pub struct MemoryRow {
        /// All memory charged to the container.
        pub usage_bytes: u64,
        /// Anonymous memory.
        pub anon_bytes: u64,
        /// Page cache.
        pub file_bytes: u64,
        /// Inactive page cache.
        pub inactive_file_bytes: u64,
        /// Times that the container was throttled above `memory.high`.
        pub high_events: u64,
        /// Times that the container hit its memory limit.
        pub max_events: u64,
        /// Processes that the OOM killer ended.
        pub oom_kills: u64,
    }
}

counters! {
    type Sample = fn(group: Group) -> GroupUse;

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
}

counters! {
    type Sample = GroupMemory;

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
    pub struct GroupMemoryRow {
        /// All memory charged to the group.
        pub usage_bytes: u64,
        /// Active page cache.
        pub active_file_bytes: u64,
        /// Inactive page cache.
        pub inactive_file_bytes: u64,
    }
}

counters! {
    type Sample = NodeMemory;

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
}
