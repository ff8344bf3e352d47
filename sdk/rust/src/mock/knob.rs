//! What can be held: the names of knobs, as plans and metrics spell them, and their values.

use std::fmt;

/// Name of the knob behind `set_quota`.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_QUOTA, "cpu.quota");
/// ```
pub const CPU_QUOTA: &str = "cpu.quota";
/// Name of the knob behind `set_burst`.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_BURST, "cpu.burst");
/// ```
pub const CPU_BURST: &str = "cpu.burst";
/// Name of the knob behind `set_weight`.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_WEIGHT, "cpu.weight");
/// ```
pub const CPU_WEIGHT: &str = "cpu.weight";
/// Name of the knob behind `set_idle`; 0 or 1.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_IDLE, "cpu.idle");
/// ```
pub const CPU_IDLE: &str = "cpu.idle";
/// The knobs behind `protect`, in the order of [`Protection`](crate::Protection)'s fields.
///
/// ```
/// assert_eq!(qosm_sdk::mock::MEMORY_KNOBS[2], "memory.high");
/// ```
pub const MEMORY_KNOBS: [&str; 12] = [
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.wmark_ratio",
    "memory.wmark_scale_factor",
    "memory.wmark_min_adj",
    "memory.priority",
    "memory.use_priority_oom",
    "memory.oom.group",
    "memory.pagecache_limit.enable",
    "memory.pagecache_limit.size",
    "memory.pagecache_limit.sync",
];
/// Name of the knob behind `set_memory_nodes`; it holds a bit for each node.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPUSET_MEMS, "cpuset.mems");
/// ```
pub const CPUSET_MEMS: &str = "cpuset.mems";

/// What a knob holds, in the knob's own unit.
///
/// ```
/// use qosm_sdk::mock::Value;
///
/// assert_eq!(Value::from(4096_u64), Value::Number(4096));
/// assert_eq!([Value::from(7), Value::Max].map(|value| value.to_string()), ["7", "max"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number; switches are 0 and 1.
    Number(i64),
    /// No bound.
    Max,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl From<u64> for Value {
    /// What lies beyond `i64` becomes its maximum; a host would refuse it.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}
