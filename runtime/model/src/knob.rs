//! Knobs: the kernel tunables that a policy can hold, and where.

use std::fmt;
use std::str::FromStr;

use crate::cpus::CpuSet;
use crate::pod::{ContainerId, PodId, Tier};

/// The cgroup that a setting is for, or the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The node: its kernel's own settings, which no cgroup has.
    Node,
    /// A tier's group.
    Tier(Tier),
    /// A pod's group.
    Pod(PodId),
    /// A container's group.
    Container(ContainerId),
}

/// How far below the root a target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The node itself.
    Node,
    /// kubepods, burstable, besteffort.
    Tier,
    /// A pod.
    Pod,
    /// A container.
    Container,
}

impl Target {
    /// How far below the root it stands.
    pub fn level(self) -> Level {
        match self {
            Self::Node => Level::Node,
            Self::Tier(_) => Level::Tier,
            Self::Pod(_) => Level::Pod,
            Self::Container(_) => Level::Container,
        }
    }
}

impl Level {
    /// All of them, the outermost first.
    pub const ALL: [Self; 4] = [Self::Node, Self::Tier, Self::Pod, Self::Container];

    /// As printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Tier => "tier",
            Self::Pod => "pod",
            Self::Container => "container",
        }
    }
}

/// A kernel tunable. Its files, encodings and rules stand in the host's knob table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// CFS quota for each period, in microseconds.
    CfsQuota,
    /// CFS burst, in microseconds.
    CfsBurst,
    /// `memory.min`, in bytes.
    MemoryMin,
    /// `memory.low`, in bytes.
    MemoryLow,
    /// `memory.high`, in bytes.
    MemoryHigh,
    /// `memory.wmark_ratio`, in percent.
    WmarkRatio,
    /// `memory.wmark_scale_factor`, in hundredths of a percent.
    WmarkScale,
    /// `memory.wmark_min_adj`, in percent.
    WmarkMinAdj,
    /// `memory.priority`.
    OomPriority,
    /// `memory.use_priority_oom`, 0 or 1.
    UseOomPriority,
    /// `memory.oom.group`, 0 or 1.
    OomGroup,
    /// `memory.pagecache_limit.enable`, 0 or 1.
    PageCacheLimitEnable,
    /// `memory.pagecache_limit.size`, in bytes.
    PageCacheLimitSize,
    /// `memory.pagecache_limit.sync`, 0 or 1.
    PageCacheReclaimSync,
    /// `cpuset.mems`, a bit for each NUMA node; `max` = all that the cgroup above has.
    CpusetMems,
    /// `cpuset.cpus`; `max` = all that the cgroup above has.
    CpusetCpus,
    /// CPU weight, 1 to 10000 as cgroup v2 counts it: 100 is what a new cgroup has. See [`IDLE_WEIGHT`] for what an idle one has.
    CpuWeight,
    /// `cpu.idle`, 0 or 1: whether the cgroup runs only on otherwise idle CPUs.
    CpuIdle,
    /// `memory.max`, in bytes: what a group may use at most.
    MemoryMax,
    /// `vm.min_free_kbytes`, in KiB: what the kernel keeps free, from which the watermarks of its zones follow.
    MinFreeKbytes,
    /// `vm.watermark_scale_factor`, in hundredths of a percent of memory: how far the watermarks lie from each other.
    WatermarkScaleFactor,
    /// `memcg_reaper/reap_background`, 0 or 1: whether memory of removed cgroups is reclaimed in the background.
    MemcgReaper,
    /// `kernel.sched_group_identity_enabled`, 0 or 1: whether `cpu.bvt_warp_ns` has an effect.
    GroupIdentity,
    /// `kernel.sched_idle_saver_wmark`, in nanoseconds: how long a hyper-thread has to have been idle before a sibling that was expelled counts.
    IdleSaverWmark,
    /// `pagecache_limit/enabled`, 0 or 1: whether the page cache limits of cgroups have an effect.
    PageCacheLimit,
}

/// The weight of a cgroup with `cpu.idle` = 1, as cgroup v2 prints it. It cannot be written, and what was there is lost: the kernel
/// puts [`DEFAULT_WEIGHT`] when `cpu.idle` goes back to 0.
pub const IDLE_WEIGHT: Value = Value::Number(0);

/// The weight of a new cgroup.
pub const DEFAULT_WEIGHT: Value = Value::Number(100);

impl Knob {
    /// All knobs.
    pub const ALL: [Self; 25] = [
        Self::CfsQuota,
        Self::CfsBurst,
        Self::MemoryMin,
        Self::MemoryLow,
        Self::MemoryHigh,
        Self::WmarkRatio,
        Self::WmarkScale,
        Self::WmarkMinAdj,
        Self::OomPriority,
        Self::UseOomPriority,
        Self::OomGroup,
        Self::PageCacheLimitEnable,
        Self::PageCacheLimitSize,
        Self::PageCacheReclaimSync,
        Self::CpusetMems,
        Self::CpusetCpus,
        Self::CpuWeight,
        Self::CpuIdle,
        Self::MemoryMax,
        Self::MinFreeKbytes,
        Self::WatermarkScaleFactor,
        Self::MemcgReaper,
        Self::GroupIdentity,
        Self::IdleSaverWmark,
        Self::PageCacheLimit,
    ];

    /// Those of the node itself.
    pub const OF_NODE: [Self; 6] = [
        Self::MinFreeKbytes,
        Self::WatermarkScaleFactor,
        Self::MemcgReaper,
        Self::GroupIdentity,
        Self::IdleSaverWmark,
        Self::PageCacheLimit,
    ];

    /// Whether it is the node's own, and no cgroup's.
    pub fn is_of_node(self) -> bool {
        Self::OF_NODE.contains(&self)
    }

    /// The name that plans, metrics and the journal use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CfsQuota => "cpu.quota",
            Self::CfsBurst => "cpu.burst",
            Self::MemoryMin => "memory.min",
            Self::MemoryLow => "memory.low",
            Self::MemoryHigh => "memory.high",
            Self::WmarkRatio => "memory.wmark_ratio",
            Self::WmarkScale => "memory.wmark_scale_factor",
            Self::WmarkMinAdj => "memory.wmark_min_adj",
            Self::OomPriority => "memory.priority",
            Self::UseOomPriority => "memory.use_priority_oom",
            Self::OomGroup => "memory.oom.group",
            Self::PageCacheLimitEnable => "memory.pagecache_limit.enable",
            Self::PageCacheLimitSize => "memory.pagecache_limit.size",
            Self::PageCacheReclaimSync => "memory.pagecache_limit.sync",
            Self::CpusetMems => "cpuset.mems",
            Self::CpusetCpus => "cpuset.cpus",
            Self::CpuWeight => "cpu.weight",
            Self::CpuIdle => "cpu.idle",
            Self::MemoryMax => "memory.max",
            Self::MinFreeKbytes => "vm.min_free_kbytes",
            Self::WatermarkScaleFactor => "vm.watermark_scale_factor",
            Self::MemcgReaper => "memcg_reaper.reap_background",
            Self::GroupIdentity => "kernel.sched_group_identity_enabled",
            Self::IdleSaverWmark => "kernel.sched_idle_saver_wmark",
            Self::PageCacheLimit => "pagecache_limit.enabled",
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Not the name of a knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a knob")]
pub struct UnknownKnob(pub String);

impl FromStr for Knob {
    type Err = UnknownKnob;

    fn from_str(text: &str) -> Result<Self, UnknownKnob> {
        Self::ALL.into_iter().find(|knob| knob.as_str() == text).ok_or_else(|| UnknownKnob(text.to_owned()))
    }
}

/// What a knob holds, in the knob's own unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number.
    Number(i64),
    /// A CPU weight on cgroup v1 that equals no whole number of cgroup v2's: `cpu.shares`, of which 1024 are a weight
    /// of 100. Where a policy wants one on cgroup v2, it is stretched onto the weights as KEP-2254 does. 2 is the kubelet's
    /// value for pods without a request.
    Shares(i64),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// No bound: the kernel's `max`, or -1 for a quota on cgroup v1. Sorts above every number.
    Max,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Shares(shares) => write!(f, "{shares} shares"),
            Self::Cpus(cpus) => write!(f, "CPUs {cpus}"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// None of a knob's values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a whole number, nor a number of shares, nor a list of CPUs, nor `max`")]
pub struct NotAValue(pub String);

impl FromStr for Value {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        if let Some(cpus) = text.strip_prefix("CPUs ") {
            return cpus.parse().map(Self::Cpus).map_err(|_| NotAValue(text.to_owned()));
        }
        let value = match (text, text.strip_suffix(" shares")) {
            ("max", _) => return Ok(Self::Max),
            (_, Some(shares)) => shares.parse().map(Self::Shares),
            (number, None) => number.parse().map(Self::Number),
        };
        value.map_err(|_| NotAValue(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_back() {
        for value in [
            Value::Number(-25),
            Value::Number(0),
            Value::Shares(2),
            Value::Cpus(CpuSet::of(&[0, 1, 700]).unwrap()),
            Value::Max,
        ] {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for text in ["", "many", " shares", "2 shares ", "1.5 shares", "CPUs x"] {
            assert_eq!(text.parse::<Value>(), Err(NotAValue(text.to_owned())));
        }
    }

    #[test]
    fn a_name_reads_back() {
        for knob in Knob::ALL {
            assert_eq!(knob.to_string().parse(), Ok(knob));
        }
    }

    #[test]
    fn the_node_has_its_own_knobs_and_they_come_last() {
        let of_node: Vec<_> = Knob::ALL.into_iter().filter(|knob| knob.is_of_node()).collect();
        assert_eq!(of_node, Knob::OF_NODE);
        assert!(Knob::ALL.ends_with(&Knob::OF_NODE));
    }
}
