//! Knobs: the kernel tunables that a policy can hold, and the targets on which it can hold them.

use std::fmt;
use std::str::FromStr;

use crate::block_io::{DeviceNumber, IoCostModel, IoCostQos, IoLimits};
use crate::cpus::CpuSet;
use crate::pod::{ContainerId, PodId, Tier};

/// The target of a setting: a cgroup, or the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// The node, for kernel settings that do not belong to a cgroup.
    Node,
    /// A tier's cgroup.
    Tier(Tier),
    /// A pod's cgroup.
    Pod(PodId),
    /// A container's cgroup.
    Container(ContainerId),
}

/// The level of a target in the cgroup hierarchy.
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
    /// The level of the target.
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

    /// The name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Tier => "tier",
            Self::Pod => "pod",
            Self::Container => "container",
        }
    }
}

/// A kernel tunable. The host's knob table has its files, encodings and rules.
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
    /// `cpuset.mems`, a bit for each NUMA node; `max` means all nodes of the parent cgroup.
    CpusetMems,
    /// `cpuset.cpus`; `max` means all CPUs of the parent cgroup.
    CpusetCpus,
    /// CPU weight of cgroup v2, 1 to 10000; a new cgroup has 100. An idle cgroup has [`IDLE_WEIGHT`].
    CpuWeight,
    /// `cpu.idle`, 0 or 1: whether the cgroup runs only on otherwise idle CPUs.
    CpuIdle,
    /// `cpu.bvt_warp_ns`, -1 to 2: the group identity, by which Alibaba's kernels rank cgroups on a CPU. Batch has -1.
    BvtWarp,
    /// Core scheduling group, 0 to [`MAX_CORE_GROUP`]: threads of containers with the same number share cores with each
    /// other and with no other thread. 0 means no group.
    CoreGroup,
    /// `memory.max`, in bytes: the memory limit of a cgroup.
    MemoryMax,
    /// `vm.min_free_kbytes`, in KiB: memory that the kernel keeps free, from which the watermarks of its zones follow.
    MinFreeKbytes,
    /// `vm.watermark_scale_factor`, in hundredths of a percent of memory: the distance between the watermarks.
    WatermarkScaleFactor,
    /// `memcg_reaper/reap_background`, 0 or 1: whether memory of removed cgroups is reclaimed in the background.
    MemcgReaper,
    /// `kernel.sched_group_identity_enabled`, 0 or 1: whether `cpu.bvt_warp_ns` has an effect.
    GroupIdentity,
    /// `kernel.sched_idle_saver_wmark`, in nanoseconds: threshold of a CPU's idle time for the idle saver of group
    /// identities.
    IdleSaverWmark,
    /// `pagecache_limit/enabled`, 0 or 1: whether the page cache limits of cgroups have an effect.
    PageCacheLimit,
    /// `kernel.sched_core`, 0 or 1: whether core scheduling is enabled on Alibaba's kernels. Core scheduling and group
    /// identity exclude each other.
    SchedCore,
    /// `io.max` of one device: a cgroup's limits per second.
    IoMax(DeviceNumber),
    /// `io.weight` of one device, 1 to 10000: a cgroup's share when several compete for the device.
    IoWeight(DeviceNumber),
    /// `io.cost.qos` of one device, a knob of the node: whether the cost model is enabled, and its latency targets.
    IoCostQos(DeviceNumber),
    /// `io.cost.model` of one device, a knob of the node: the device's performance.
    IoCostModel(DeviceNumber),
}

/// The weight of a cgroup with `cpu.idle` = 1, as cgroup v2 prints it. It cannot be written, and the previous weight is
/// lost: the kernel sets [`DEFAULT_WEIGHT`] when `cpu.idle` returns to 0.
pub const IDLE_WEIGHT: Value = Value::Number(0);

/// The highest number of a core scheduling group: the largest whole number that JSON represents without loss.
pub const MAX_CORE_GROUP: i64 = (1 << 53) - 1;

/// The weight of a new cgroup.
pub const DEFAULT_WEIGHT: Value = Value::Number(100);

impl Knob {
    /// All knobs; each knob of devices once, with [`DeviceNumber::NONE`].
    pub const ALL: [Self; 32] = [
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
        Self::BvtWarp,
        Self::CoreGroup,
        Self::MemoryMax,
        Self::MinFreeKbytes,
        Self::WatermarkScaleFactor,
        Self::MemcgReaper,
        Self::GroupIdentity,
        Self::IdleSaverWmark,
        Self::PageCacheLimit,
        Self::SchedCore,
        Self::IoMax(DeviceNumber::NONE),
        Self::IoWeight(DeviceNumber::NONE),
        Self::IoCostQos(DeviceNumber::NONE),
        Self::IoCostModel(DeviceNumber::NONE),
    ];

    /// The knobs of the node that are a file with a single number.
    pub const OF_NODE: [Self; 7] = [
        Self::MinFreeKbytes,
        Self::WatermarkScaleFactor,
        Self::MemcgReaper,
        Self::GroupIdentity,
        Self::IdleSaverWmark,
        Self::PageCacheLimit,
        Self::SchedCore,
    ];

    /// Whether the knob belongs to the node, not to a cgroup.
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::IoCostQos(_) | Self::IoCostModel(_)) || Self::OF_NODE.contains(&self)
    }

    /// The knob's device, or [`DeviceNumber::NONE`] for no particular one; `None` if the knob does not belong to a device.
    pub fn device(self) -> Option<DeviceNumber> {
        match self {
            Self::IoMax(device) | Self::IoWeight(device) | Self::IoCostQos(device) | Self::IoCostModel(device) => {
                Some(device)
            }
            _ => None,
        }
    }

    /// The same knob of another device; unchanged if the knob does not belong to a device.
    #[must_use]
    pub fn of(self, device: DeviceNumber) -> Self {
        match self {
            Self::IoMax(_) => Self::IoMax(device),
            Self::IoWeight(_) => Self::IoWeight(device),
            Self::IoCostQos(_) => Self::IoCostQos(device),
            Self::IoCostModel(_) => Self::IoCostModel(device),
            other => other,
        }
    }

    /// The knob without its device, as metrics, facts and grants use it.
    #[must_use]
    pub fn kind(self) -> Self {
        self.of(DeviceNumber::NONE)
    }

    /// The node's knobs of a device: `io.cost.qos` and `io.cost.model`.
    pub fn costs_of(device: DeviceNumber) -> [Self; 2] {
        [Self::IoCostQos(device), Self::IoCostModel(device)]
    }

    /// The index of the knob's kind in [`Knob::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::CfsQuota => 0,
            Self::CfsBurst => 1,
            Self::MemoryMin => 2,
            Self::MemoryLow => 3,
            Self::MemoryHigh => 4,
            Self::WmarkRatio => 5,
            Self::WmarkScale => 6,
            Self::WmarkMinAdj => 7,
            Self::OomPriority => 8,
            Self::UseOomPriority => 9,
            Self::OomGroup => 10,
            Self::PageCacheLimitEnable => 11,
            Self::PageCacheLimitSize => 12,
            Self::PageCacheReclaimSync => 13,
            Self::CpusetMems => 14,
            Self::CpusetCpus => 15,
            Self::CpuWeight => 16,
            Self::CpuIdle => 17,
            Self::BvtWarp => 18,
            Self::CoreGroup => 19,
            Self::MemoryMax => 20,
            Self::MinFreeKbytes => 21,
            Self::WatermarkScaleFactor => 22,
            Self::MemcgReaper => 23,
            Self::GroupIdentity => 24,
            Self::IdleSaverWmark => 25,
            Self::PageCacheLimit => 26,
            Self::SchedCore => 27,
            Self::IoMax(_) => 28,
            Self::IoWeight(_) => 29,
            Self::IoCostQos(_) => 30,
            Self::IoCostModel(_) => 31,
        }
    }

    /// The name of the knob's kind, without a device. Plans and the journal contain the full name, as `Display` writes it.
    pub fn kind_name(self) -> &'static str {
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
            Self::BvtWarp => "cpu.bvt_warp_ns",
            Self::CoreGroup => "core_sched.group",
            Self::MemoryMax => "memory.max",
            Self::MinFreeKbytes => "vm.min_free_kbytes",
            Self::WatermarkScaleFactor => "vm.watermark_scale_factor",
            Self::MemcgReaper => "memcg_reaper.reap_background",
            Self::GroupIdentity => "kernel.sched_group_identity_enabled",
            Self::IdleSaverWmark => "kernel.sched_idle_saver_wmark",
            Self::PageCacheLimit => "pagecache_limit.enabled",
            Self::SchedCore => "kernel.sched_core",
            Self::IoMax(_) => "io.max",
            Self::IoWeight(_) => "io.weight",
            Self::IoCostQos(_) => "io.cost.qos",
            Self::IoCostModel(_) => "io.cost.model",
        }
    }
}

impl fmt::Display for Knob {
    /// Writes the name, such as `cpu.quota`, or with a device `io.max 8:16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind_name())?;
        match self.device() {
            Some(device) if device != DeviceNumber::NONE => write!(f, " {device}"),
            _ => Ok(()),
        }
    }
}

/// A text that is not the name of a knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a knob")]
pub struct UnknownKnob(pub String);

impl FromStr for Knob {
    type Err = UnknownKnob;

    fn from_str(text: &str) -> Result<Self, UnknownKnob> {
        let unknown = || UnknownKnob(text.to_owned());
        let (name, device) = match text.split_once(' ') {
            Some((name, device)) => (name, Some(device.parse().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let knob = Self::ALL.into_iter().find(|knob| knob.kind_name() == name).ok_or_else(unknown)?;
        match device {
            None => Ok(knob),
            Some(device) if knob.device().is_some() => Ok(knob.of(device)),
            Some(_) => Err(unknown()),
        }
    }
}

/// The value of a knob, in the knob's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A number.
    Number(i64),
    /// A CPU weight of cgroup v1, `cpu.shares`, that equals no whole weight of cgroup v2; a weight of 100 equals 1024
    /// shares. On cgroup v2, a policy's shares are converted to a weight as in KEP-2254. The kubelet gives pods without a
    /// request 2 shares.
    Shares(i64),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// The file has no line for the device, so the kernel uses its defaults.
    Unset,
    /// Limits of a device.
    IoLimits(IoLimits),
    /// Whether a device's cost model is enabled, and its latency targets.
    IoCostQos(IoCostQos),
    /// The performance of a device.
    IoCostModel(IoCostModel),
    /// No limit: the kernel's `max`, or -1 for a quota on cgroup v1. Sorts above every number.
    Max,
}

impl Value {
    /// The number; `None` for any other value, [`Self::Max`] included.
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Shares(shares) => write!(f, "{shares} shares"),
            Self::Cpus(cpus) => write!(f, "CPUs {cpus}"),
            Self::Unset => f.write_str("default"),
            Self::IoLimits(limits) => limits.fmt(f),
            Self::IoCostQos(qos) => qos.fmt(f),
            Self::IoCostModel(model) => model.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

/// A text that is not the value of a knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither a whole number, nor a number of shares, nor a list of CPUs, nor a line of a device, nor `default` or `max`"
)]
pub struct NotAValue(pub String);

impl FromStr for Value {
    type Err = NotAValue;

    fn from_str(text: &str) -> Result<Self, NotAValue> {
        let not_a_value = || NotAValue(text.to_owned());
        if let Some(cpus) = text.strip_prefix("CPUs ") {
            return cpus.parse().map(Self::Cpus).map_err(|_| not_a_value());
        }
        if text == "default" {
            return Ok(Self::Unset);
        }
        if text.contains('=') {
            let limits = || text.parse().map(Self::IoLimits);
            let qos = || text.parse().map(Self::IoCostQos);
            let model = || text.parse().map(Self::IoCostModel);
            return limits().or_else(|_| qos()).or_else(|_| model()).map_err(|_| not_a_value());
        }
        let value = match (text, text.strip_suffix(" shares")) {
            ("max", _) => return Ok(Self::Max),
            (_, Some(shares)) => shares.parse().map(Self::Shares),
            (number, None) => number.parse().map(Self::Number),
        };
        value.map_err(|_| not_a_value())
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
            Value::Unset,
            Value::IoLimits(IoLimits { read_bps: Some(1 << 20), ..IoLimits::default() }),
            Value::IoCostQos(IoCostQos { is_enabled: true, latency: None }),
            Value::IoCostModel(IoCostModel {
                read_bps: 1,
                read_seq_iops: 2,
                read_rand_iops: 3,
                write_bps: 4,
                write_seq_iops: 5,
                write_rand_iops: 6,
            }),
            Value::Max,
        ] {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for text in ["", "many", " shares", "2 shares ", "1.5 shares", "CPUs x", "rbps=1", "a=b"] {
            assert_eq!(text.parse::<Value>(), Err(NotAValue(text.to_owned())));
        }
    }

    #[test]
    fn a_name_reads_back() {
        let device = DeviceNumber { major: 8, minor: 16 };
        for knob in Knob::ALL {
            assert_eq!(knob.to_string().parse(), Ok(knob));
            assert_eq!(knob.of(device).to_string().parse(), Ok(knob.of(device)));
            assert_eq!(knob.of(device).kind(), knob);
        }
        assert!(Knob::ALL.into_iter().enumerate().all(|(place, knob)| knob.of(device).index() == place));
        assert_eq!(Knob::IoMax(device).to_string(), "io.max 8:16");
        for text in ["cpu.quota 8:16", "io.max 8", "io.max  8:16", "io.max 8:16 ", "io"] {
            assert_eq!(text.parse::<Knob>(), Err(UnknownKnob(text.to_owned())));
        }
    }

    #[test]
    fn the_nodes_own_knobs_are_those_and_the_cost_of_devices() {
        let of_node: Vec<_> =
            Knob::ALL.into_iter().filter(|knob| knob.is_of_node() && knob.device().is_none()).collect();
        assert_eq!(of_node, Knob::OF_NODE);
        let of_devices = Knob::ALL.into_iter().filter(|knob| knob.device().is_some());
        let of_node: Vec<_> = of_devices.filter(|knob| knob.is_of_node()).map(Knob::kind_name).collect();
        assert_eq!(of_node, ["io.cost.qos", "io.cost.model"]);
    }
}
