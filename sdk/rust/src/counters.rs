//! Counters of a container, declared once beside the contract: how they stand in a case file, and a sample in which all are 0.

#[cfg(feature = "testing")]
use serde::{Deserialize, Serialize};

use crate::{ContainerId, CpuSample, MemorySample};

/// Declares counters as a row of a case file, with what leads from it to a sample and back. Its fields are the sample's.
macro_rules! counters {
    (
        type Sample = $sample:ident;
        $(#[$about:meta])*
        pub struct $row:ident { $($(#[$doc:meta])* pub $field:ident: u64,)* }
    ) => {
        impl $sample {
            /// All of them 0.
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
        /// CPU time used.
        pub usage_usec: u64,
        /// Periods that passed.
        pub nr_periods: u64,
        /// Periods throttled.
        pub nr_throttled: u64,
        /// Time throttled.
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
        /// All memory.
        pub usage_bytes: u64,
        /// Anonymous memory.
        pub anon_bytes: u64,
        /// Page cache.
        pub file_bytes: u64,
        /// Page cache not used lately.
        pub inactive_file_bytes: u64,
        /// Times throttled.
        pub high_events: u64,
        /// Times at the limit.
        pub max_events: u64,
        /// Processes killed.
        pub oom_kills: u64,
    }
}
