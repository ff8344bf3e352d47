//! Counters of a container, declared once to match the contract: their row in a case file, and a sample with all counters at 0.

#[cfg(feature = "testing")]
use serde::{Deserialize, Serialize};

use crate::{ContainerId, CpuSample, MemorySample};

/// Declares the counters of a sample as a row of a case file, with the same fields, and the conversions between row and sample.
macro_rules! counters {
    (
        type Sample = $sample:ident;
        $(#[$about:meta])*
        pub struct $row:ident { $($(#[$doc:meta])* pub $field:ident: u64,)* }
    ) => {
        impl $sample {
            /// A sample with all counters at 0.
            pub(crate) fn zero(container: ContainerId) -> Self {
                Self { container, $($field: 0,)* }
            }
        }

        $(#[$about])*
        #[cfg(feature = "testing")]
        #[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $row {
            $($(#[$doc])* pub $field: u64,)*
        }

        #[cfg(feature = "testing")]
        impl $row {
            pub(crate) fn of(self, container: ContainerId) -> $sample {
                $sample { container, $($field: self.$field,)* }
            }
        }

        #[cfg(feature = "testing")]
        impl From<$sample> for $row {
            fn from(sample: $sample) -> Self {
                Self { $($field: sample.$field,)* }
            }
        }
    };
}

counters! {
    type Sample = CpuSample;

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
    type Sample = MemorySample;

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
