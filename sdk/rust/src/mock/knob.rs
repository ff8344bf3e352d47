//! Names of knobs, as in plans and metrics, and the values that they hold.

use std::fmt;

use crate::IoDevice;
use crate::block_io::IoKnob;

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
/// Name of the knob behind `set_idle`; its value is 0 or 1.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_IDLE, "cpu.idle");
/// ```
pub const CPU_IDLE: &str = "cpu.idle";
/// Name of the knob behind `set_identity`; its value is -1 to 2.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPU_BVT, "cpu.bvt_warp_ns");
/// ```
pub const CPU_BVT: &str = "cpu.bvt_warp_ns";
/// Name of the knob behind `set_core_group`; its value is 0 to 2^53 - 1.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CORE_GROUP, "core_sched.group");
/// ```
pub const CORE_GROUP: &str = "core_sched.group";
/// Names of the knobs behind `protect`, in the order of [`Protection`](crate::Protection)'s fields.
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
/// Name of the knob behind `set_memory_nodes`; its value has one bit for each node.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPUSET_MEMS, "cpuset.mems");
/// ```
pub const CPUSET_MEMS: &str = "cpuset.mems";
/// Name of the knob behind `set_cpus`.
///
/// ```
/// assert_eq!(qosm_sdk::mock::CPUSET_CPUS, "cpuset.cpus");
/// ```
pub const CPUSET_CPUS: &str = "cpuset.cpus";
/// Name of the knob behind `set_memory_limit`.
///
/// ```
/// assert_eq!(qosm_sdk::mock::MEMORY_MAX, "memory.max");
/// ```
pub const MEMORY_MAX: &str = "memory.max";

/// Whether `name` is a knob of cgroups. Block device knobs may have a device appended.
pub(super) fn is_knob(name: &str) -> bool {
    if let Some(of_device) = [IoKnob::Max, IoKnob::Weight].into_iter().find_map(|knob| name.strip_prefix(knob.as_str()))
    {
        let device = of_device.strip_prefix(' ').map(str::parse::<IoDevice>);
        return of_device.is_empty() || device.is_some_and(|device| device.is_ok());
    }
    [CPU_QUOTA, CPU_BURST, CPU_WEIGHT, CPU_IDLE, CPU_BVT, CORE_GROUP, CPUSET_MEMS, CPUSET_CPUS, MEMORY_MAX]
        .contains(&name)
        || MEMORY_KNOBS.contains(&name)
}

/// The largest CPU number that can be set, plus one.
pub(crate) const MAX_CPUS: u32 = 1024;

/// A set of CPUs, as passed to `set_cpus`.
///
/// ```
/// use qosm_sdk::mock::Cpus;
///
/// assert_eq!(Cpus::of(&[0, 1]), Cpus::of(&[1, 0, 1]));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpus([u64; 16]);

impl Cpus {
    /// The set of these CPUs. Numbers from 1024 on are dropped; a host refuses them.
    ///
    /// ```
    /// use qosm_sdk::mock::Cpus;
    ///
    /// assert_eq!(Cpus::of(&[8, 0, 1, 2, 1024]).to_string(), "0-2,8");
    /// ```
    #[must_use]
    pub fn of(cpus: &[u32]) -> Self {
        let mut set = Self::default();
        for cpu in cpus {
            let word = usize::try_from(cpu / 64).ok().and_then(|word| set.0.get_mut(word));
            if let Some(word) = word {
                *word |= 1 << (cpu % 64);
            }
        }
        set
    }

    /// The CPU numbers, ascending.
    ///
    /// ```
    /// use qosm_sdk::mock::Cpus;
    ///
    /// assert_eq!(Cpus::of(&[8, 0]).iter().collect::<Vec<_>>(), [0, 8]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let has = |cpu: &u32| {
            let word = usize::try_from(cpu / 64).ok().and_then(|word| self.0.get(word));
            word.is_some_and(|word| word & (1 << (cpu % 64)) != 0)
        };
        (0..MAX_CPUS).filter(has)
    }
}

impl fmt::Display for Cpus {
    /// In the kernel's list format, e.g. `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (place, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}") } else { write!(f, "{comma}{first}-{last}") }?;
        }
        Ok(())
    }
}

/// The value of a knob, in the knob's unit.
///
/// ```
/// use qosm_sdk::mock::Value;
///
/// assert_eq!(Value::from(4096_u64), Value::Number(4096));
/// assert_eq!([Value::from(7), Value::Max].map(|value| value.to_string()), ["7", "max"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number; 0 or 1 for switches.
    Number(i64),
    /// A weight in shares of cgroup v1.
    Shares(i64),
    /// A set of CPUs.
    Cpus(Cpus),
    /// Unlimited.
    Max,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Shares(shares) => write!(f, "{shares} shares"),
            Self::Cpus(cpus) => cpus.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

impl From<u64> for Value {
    /// Numbers beyond `i64` become `i64::MAX`; a host refuses them.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl<const N: usize> From<&[u32; N]> for Value {
    fn from(cpus: &[u32; N]) -> Self {
        Self::Cpus(Cpus::of(cpus))
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
