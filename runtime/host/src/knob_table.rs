//! The knob table: the files, encoding, range, kernel and rules of each knob. It describes everything that the host
//! does with a knob; the code only applies the rows.
//!
//! Sources: Linux `Documentation/admin-guide/cgroup-v2.rst` and `Documentation/scheduler/sched-bwc.rst`; Alibaba Cloud
//! Linux' manual pages on memcg QoS for cgroup v1, backend asynchronous reclaim, global minimum watermark rating, OOM
//! priority and page cache limit.

use std::ops::RangeInclusive;

use qosm_model::cpus::MAX_CPUS;
use qosm_model::knob::{DEFAULT_WEIGHT, IDLE_WEIGHT, Knob, Level, MAX_CORE_GROUP, Value};
use qosm_model::numa::list_text;

use crate::mounts::{CgroupVersion, Controller};
use crate::weight::{self, MAX_SHARES, MIN_SHARES};

mod block_io;

/// The location of a knob's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In each cgroup of the hierarchy that has this controller.
    Cgroup(Controller),
    /// One file, below `/proc`.
    Proc,
    /// One file, below `/sys`.
    Sys,
    /// One file, at the root of the hierarchy that has this controller.
    CgroupRoot(Controller),
}

/// The format of a value in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Microseconds. v1: the only number in its file, -1 for unlimited. v2: the first field of `cpu.max`, `max` for
    /// unlimited; writing one field keeps the period.
    Quota,
    /// Microseconds, a plain number.
    Micros,
    /// Bytes, rounded down to a page by the kernel. v2 writes `max` for unlimited, v1 the largest number of whole pages.
    Bytes,
    /// A plain number.
    Integer,
    /// 0 or 1.
    Flag,
    /// v2: a number from 1 to 10000. v1: shares, where 1024 correspond to a weight of 100.
    Weight,
    /// A bit for each number of a list such as `0-1,3`. On v2 an empty list means no restriction; v1 refuses it while
    /// the cgroup has processes, and an empty list means no nodes.
    Bits,
    /// A list of CPUs such as `0-1,3`. On v2 an empty list means the CPUs of the parent; v1 refuses it while the cgroup
    /// has processes, so the host writes the parent's list.
    Cpus,
    /// A line for each configured device, which begins with the device's numbers.
    Line(Line),
}

/// The part of a device's line after its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Limits (`io.max`).
    Limits,
    /// A number, or `default` for none (`io.weight`).
    Weight,
    /// `io.cost.qos`.
    CostQos,
    /// `io.cost.model`.
    CostModel,
}

/// Constraints between the values of a cgroup and its ancestors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HierarchyRule {
    /// v1 refuses (`EINVAL`) a child whose quota / period is above that of its nearest limited ancestor, at writes of
    /// either. v2 takes the minimum along the path.
    WithinParentOnV1,
    /// Accepted in any order, but effective only as far as every ancestor allows.
    CappedByAncestors,
    /// v1 refuses CPUs or nodes that the parent lacks (`EACCES`), and taking away those that children have (`EBUSY`).
    /// v2 uses the intersection with the parent's set, and all of the parent's set if the intersection is empty.
    WithinParent,
    /// No constraint between cgroups.
    None,
}

/// Knobs whose writes on one cgroup must follow an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Quota and burst. Mainline kernels require burst ≤ quota while the quota is limited, at each write of either.
    Bandwidth,
    /// min ≤ low ≤ high, kept at every step; the kernel does not require it.
    Protection,
    /// Watermarks of background reclaim.
    Watermark,
    /// OOM priority and its switch.
    Oom,
    /// Page cache limit: size and mode are written before the switch.
    PageCache,
    /// NUMA nodes for memory, and CPUs for processes.
    Cpuset,
    /// Weight and `cpu.idle`. While `cpu.idle` is 1 the kernel refuses weights (`EINVAL`), and every change of
    /// `cpu.idle` replaces the weight: `cpu.idle` is always written first.
    Weight,
    /// Group identity. It has no constraint between cgroups, and only takes effect with the node's switch: identities
    /// are set after the switch is turned on, and reset before it is turned off.
    Identity,
    /// Core scheduling group.
    CoreScheduling,
    /// Memory limits.
    Limit,
    /// Node-wide knobs.
    Node,
    /// Limits and weights of block devices.
    Io,
}

/// The effect of one knob that makes the kernel replace another knob's value while it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// The masking knob; on levels without it nothing is masked.
    pub by: Knob,
    /// The value of `by` that masks.
    pub when: Value,
    /// The value of the masked knob meanwhile.
    pub shows: Value,
    /// The value that the kernel restores when the mask ends, instead of an earlier writer's.
    pub leaves: Value,
}

/// The part of a pod's specification that the kubelet or the runtime writes into a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecifiedBy {
    /// The CPU limit.
    CpuLimit,
    /// The CPU request.
    CpuRequest,
    /// Memory request and limit, with the kubelet's MemoryQoS.
    Memory,
    /// The memory limit.
    MemoryLimit,
    /// No part of it; the kubelet's CPU manager chooses the value.
    CpuManager,
}

/// The properties of one knob.
#[derive(Clone, Debug)]
pub struct KnobRow {
    /// The knob.
    pub knob: Knob,
    /// Location of its file.
    pub place: Place,
    /// Levels on which qosm sets it.
    pub levels: &'static [Level],
    /// Why not on other levels, although the kernel accepts it there.
    pub not_elsewhere: Option<&'static str>,
    /// File name on cgroup v1.
    pub v1: &'static str,
    /// File name on cgroup v2.
    pub v2: &'static str,
    /// Format of its values.
    pub encoding: Encoding,
    /// Accepted numbers.
    pub range: RangeInclusive<i64>,
    /// Numbers that are clamped to [`KnobRow::range`]: larger or smaller amounts of the same unit. Numbers outside are
    /// refused, since they have another meaning (for some files a negative number is unlimited, 0 is off or unlimited,
    /// a percentage above 100 has another unit).
    pub capped: RangeInclusive<i64>,
    /// Whether [`Value::Max`] is accepted.
    pub unlimited: bool,
    /// Value in a new cgroup, or on a node after boot.
    pub default: Value,
    /// Kernels that support the knob.
    pub kernel: &'static str,
    /// Constraint between levels.
    pub hierarchy: HierarchyRule,
    /// Order of writes on one cgroup.
    pub group: Group,
    /// Position among the raises of one cgroup, lowest first; lowering uses the reverse order.
    pub raise_order: u8,
    /// Whether lowering the value below current use makes the writing thread reclaim memory, which may take long.
    pub slow: bool,
    /// The alternative where the knob is missing.
    pub instead: Option<&'static str>,
    /// The knob of the same cgroup that must be planned together with this one: a burst with its quota, a weight with
    /// `cpu.idle`. Partnership is mutual.
    pub partner: Option<Knob>,
    /// The mask that replaces its value.
    pub masked: Option<Mask>,
    /// Whether its value makes the kernel refuse smaller or other values of its partner.
    pub holds_back_partner: bool,
    /// The part of the pod's specification that determines its value.
    pub specified_by: Option<SpecifiedBy>,
    /// Meaning of the default, if another program wrote it.
    pub default_found: DefaultFound,
}

/// How to interpret a knob's default that replaced qosm's value, if the default is not the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultFound {
    /// No program chose the default deliberately, for this reason: qosm writes its value again.
    Reset(&'static str),
    /// A program chose the default deliberately, for this reason: qosm leaves it.
    Decision(&'static str),
}

/// The list of CPUs that a cgroup may use: the limit where a quota is lifted for CPUs of a pod's own.
pub const CPU_LIST: Knob = Knob::CpusetCpus;

const ALL_LEVELS: &[Level] = &[Level::Tier, Level::Pod, Level::Container];

/// The largest CFS burst on cgroup v1, in microseconds, as Koordinator's agent checks it.
pub const V1_BURST_MAX: i64 = 100_000_000;

/// The kernel's bound on a quota and on quota + burst: 2^44 - 1 µs.
pub const MAX_RUNTIME_MICROS: i64 = (1 << 44) - 1;

const PROTECTION: &str = "cgroup v2 since Linux 4.18, or on v1 Alibaba Cloud Linux 2 >= 4.19.91-18.al7, 3, Anolis OS";
const BURST: &str = "Linux 5.14, or Alibaba Cloud Linux 2 >= 4.19.91-22.al7";
const WATERMARK: &str = "Alibaba Cloud Linux 2 >= 4.19.81-17.al7 or 3 >= 5.10.134-12.al8";
const MIN_ADJ: &str = "Alibaba Cloud Linux 2 >= 4.19.91-18.al7 or 3 >= 5.10.134-12.al8";
const OOM: &str = "Alibaba Cloud Linux 2 >= 4.19.91-18.al7 or 3 >= 5.10.60-9.al8";
/// systemd resets the memory bounds that were not set through it.
const RELOADED: DefaultFound = DefaultFound::Reset(
    "systemd's daemon-reload and the kubelet's sync write the default where they were told of no value",
);
const OOM_GROUP: &str = "cgroup v2 since Linux 4.19, or on v1 an Alibaba kernel";
const PAGE_CACHE: &str = "Alibaba Cloud Linux 3 >= 5.10.134-14 with /sys/kernel/mm/pagecache_limit/enabled = 1";

const fn alibaba(
    knob: Knob,
    file: &'static str,
    encoding: Encoding,
    range: RangeInclusive<i64>,
    default: i64,
    kernel: &'static str,
    (group, raise_order): (Group, u8),
) -> KnobRow {
    KnobRow {
        knob,
        place: Place::Cgroup(Controller::Memory),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1: file,
        v2: file,
        encoding,
        capped: *range.start()..=*range.end(),
        range,
        unlimited: false,
        default: Value::Number(default),
        kernel,
        hierarchy: HierarchyRule::None,
        group,
        raise_order,
        slow: false,
        instead: None,
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision("no kubelet, runtime or systemd writes the file"),
    }
}

const fn protection(knob: Knob, file: &'static str, default: Value, raise_order: u8, slow: bool) -> KnobRow {
    KnobRow {
        knob,
        place: Place::Cgroup(Controller::Memory),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1: file,
        v2: file,
        encoding: Encoding::Bytes,
        range: 0..=i64::MAX,
        capped: 0..=i64::MAX,
        unlimited: true,
        default,
        kernel: PROTECTION,
        hierarchy: HierarchyRule::CappedByAncestors,
        group: Group::Protection,
        raise_order,
        slow,
        instead: None,
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: Some(SpecifiedBy::Memory),
        default_found: RELOADED,
    }
}

const fn bandwidth(
    knob: Knob,
    v1: &'static str,
    v2: &'static str,
    encoding: Encoding,
    range: RangeInclusive<i64>,
    default: Value,
    raise_order: u8,
) -> KnobRow {
    KnobRow {
        knob,
        place: Place::Cgroup(Controller::Cpu),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1,
        v2,
        encoding,
        range,
        // 0 means no limit in Kubernetes.
        capped: 1..=i64::MAX,
        unlimited: matches!(default, Value::Max),
        default,
        kernel: "CONFIG_CFS_BANDWIDTH",
        hierarchy: HierarchyRule::WithinParentOnV1,
        group: Group::Bandwidth,
        raise_order,
        slow: false,
        instead: None,
        partner: Some(Knob::CfsBurst),
        masked: None,
        holds_back_partner: false,
        specified_by: Some(SpecifiedBy::CpuLimit),
        default_found: DefaultFound::Decision(
            "what resets a quota, systemd or the kubelet, writes the pod's own limit; who lifts it means it, and exclusive CPUs need it",
        ),
    }
}

const MEMCG_REAPER: &str = "Alibaba Cloud Linux 2 or 3, or Anolis OS, with /sys/kernel/mm/memcg_reaper";
/// Name of an extended attribute of the cgroup, not of a file: see [`core_scheduling`](crate::core_scheduling).
const CORE_GROUP: &str = "user.qosm.core_group";
const GROUP_IDENTITY: &str = "Alibaba Cloud Linux 2 >= 4.19.91-24.al7 or 3, or Anolis OS";
const SYSCTL: &str = "a /proc/sys/vm that can be written";

/// The smallest `min_free_kbytes`, in KiB: with less the kernel is prone to deadlock under load (Documentation/admin-guide/sysctl/vm.rst).
const LEAST_FREE_KIB: i64 = 1024;

/// A node-wide knob: one file, the same on both cgroup versions.
const fn of_node(
    knob: Knob,
    (place, file): (Place, &'static str),
    encoding: Encoding,
    range: RangeInclusive<i64>,
    default: i64,
    kernel: &'static str,
) -> KnobRow {
    KnobRow {
        knob,
        place,
        levels: &[Level::Node],
        not_elsewhere: None,
        v1: file,
        v2: file,
        encoding,
        capped: *range.start()..=*range.end(),
        range,
        unlimited: false,
        default: Value::Number(default),
        kernel,
        hierarchy: HierarchyRule::None,
        group: Group::Node,
        raise_order: 0,
        slow: false,
        instead: None,
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision("who writes the node's own settings means them"),
    }
}

/// One row per knob, in the order of [`Knob::ALL`].
pub static TABLE: [KnobRow; 32] = [
    bandwidth(Knob::CfsQuota, "cpu.cfs_quota_us", "cpu.max", Encoding::Quota, 1000..=MAX_RUNTIME_MICROS, Value::Max, 0),
    KnobRow {
        kernel: BURST,
        hierarchy: HierarchyRule::None,
        instead: Some("the quota can be raised while a container is throttled"),
        partner: Some(Knob::CfsQuota),
        holds_back_partner: true,
        specified_by: None,
        default_found: DefaultFound::Decision("no kubelet, runtime or systemd writes the file"),
        capped: 0..=i64::MAX,
        ..bandwidth(
            Knob::CfsBurst,
            "cpu.cfs_burst_us",
            "cpu.max.burst",
            Encoding::Micros,
            0..=MAX_RUNTIME_MICROS,
            Value::Number(0),
            1,
        )
    },
    protection(Knob::MemoryMin, "memory.min", Value::Number(0), 2, false),
    protection(Knob::MemoryLow, "memory.low", Value::Number(0), 1, false),
    protection(Knob::MemoryHigh, "memory.high", Value::Max, 0, true),
    KnobRow {
        instead: Some("on cgroup v2 with memory.reclaim (Linux 5.19) qosm does the same from outside"),
        ..alibaba(
            Knob::WmarkRatio,
            "memory.wmark_ratio",
            Encoding::Integer,
            0..=100,
            0,
            WATERMARK,
            (Group::Watermark, 2),
        )
    },
    KnobRow {
        capped: 1..=i64::MAX,
        ..alibaba(
            Knob::WmarkScale,
            "memory.wmark_scale_factor",
            Encoding::Integer,
            1..=1000,
            50,
            WATERMARK,
            (Group::Watermark, 1),
        )
    },
    KnobRow {
        capped: i64::MIN..=i64::MAX,
        ..alibaba(
            Knob::WmarkMinAdj,
            "memory.wmark_min_adj",
            Encoding::Integer,
            -25..=50,
            0,
            MIN_ADJ,
            (Group::Watermark, 0),
        )
    },
    // Numbers outside the range belong to another scale: with `oom_score_adj`, the kernel kills higher values first.
    alibaba(Knob::OomPriority, "memory.priority", Encoding::Integer, 0..=12, 0, OOM, (Group::Oom, 0)),
    alibaba(Knob::UseOomPriority, "memory.use_priority_oom", Encoding::Flag, 0..=1, 0, OOM, (Group::Oom, 1)),
    alibaba(Knob::OomGroup, "memory.oom.group", Encoding::Flag, 0..=1, 0, OOM_GROUP, (Group::Oom, 2)),
    alibaba(
        Knob::PageCacheLimitEnable,
        "memory.pagecache_limit.enable",
        Encoding::Flag,
        0..=1,
        0,
        PAGE_CACHE,
        (Group::PageCache, 2),
    ),
    alibaba(
        Knob::PageCacheLimitSize,
        "memory.pagecache_limit.size",
        Encoding::Bytes,
        0..=i64::MAX,
        0,
        PAGE_CACHE,
        (Group::PageCache, 1),
    ),
    alibaba(
        Knob::PageCacheReclaimSync,
        "memory.pagecache_limit.sync",
        Encoding::Flag,
        0..=1,
        0,
        PAGE_CACHE,
        (Group::PageCache, 0),
    ),
    KnobRow {
        knob: Knob::CpusetMems,
        place: Place::Cgroup(Controller::Cpuset),
        levels: &[Level::Container],
        not_elsewhere: None,
        v1: "cpuset.mems",
        v2: "cpuset.mems",
        encoding: Encoding::Bits,
        range: 1..=i64::MAX,
        capped: 1..=i64::MAX,
        unlimited: true,
        default: Value::Max,
        kernel: "the controller cpuset, on v2 since Linux 5.0",
        hierarchy: HierarchyRule::None,
        group: Group::Cpuset,
        raise_order: 0,
        slow: false,
        instead: Some("pages can be moved again and again, with an interval"),
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision(
            "the kubelet and systemd write the list that they want; an empty one lifts it",
        ),
    },
    KnobRow {
        knob: Knob::CpusetCpus,
        place: Place::Cgroup(Controller::Cpuset),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1: "cpuset.cpus",
        v2: "cpuset.cpus",
        encoding: Encoding::Cpus,
        range: 0..=0,
        capped: 0..=0,
        unlimited: true,
        default: Value::Max,
        kernel: "the controller cpuset, on v2 since Linux 5.0 and turned on in cgroup.subtree_control of every cgroup above",
        hierarchy: HierarchyRule::WithinParent,
        group: Group::Cpuset,
        raise_order: 1,
        slow: false,
        instead: Some("a CFS quota bounds the sum of CPU time"),
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: Some(SpecifiedBy::CpuManager),
        default_found: DefaultFound::Decision(
            "the kubelet and systemd write the list that they want; an empty one lifts it",
        ),
    },
    KnobRow {
        knob: Knob::CpuWeight,
        place: Place::Cgroup(Controller::Cpu),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1: "cpu.shares",
        v2: "cpu.weight",
        encoding: Encoding::Weight,
        range: 1..=10_000,
        // An idle cgroup shows 0.
        capped: 1..=i64::MAX,
        unlimited: false,
        default: DEFAULT_WEIGHT,
        kernel: "the controller cpu",
        hierarchy: HierarchyRule::None,
        group: Group::Weight,
        raise_order: 1,
        slow: false,
        instead: None,
        partner: Some(Knob::CpuIdle),
        masked: Some(Mask { by: Knob::CpuIdle, when: Value::Number(1), shows: IDLE_WEIGHT, leaves: DEFAULT_WEIGHT }),
        holds_back_partner: false,
        specified_by: Some(SpecifiedBy::CpuRequest),
        default_found: DefaultFound::Decision(
            "what resets a weight, systemd or the kubelet, writes the one that the request gives",
        ),
    },
    KnobRow {
        knob: Knob::CpuIdle,
        place: Place::Cgroup(Controller::Cpu),
        levels: &[Level::Container],
        not_elsewhere: Some(
            "the kubelet writes the weight there, which the kernel refuses of an idle cgroup: it would not start again",
        ),
        v1: "cpu.idle",
        v2: "cpu.idle",
        encoding: Encoding::Flag,
        range: 0..=1,
        capped: 0..=1,
        unlimited: false,
        default: Value::Number(0),
        kernel: "Linux 5.15",
        hierarchy: HierarchyRule::None,
        group: Group::Weight,
        raise_order: 0,
        slow: false,
        instead: Some("the lowest weight is set in its place"),
        partner: Some(Knob::CpuWeight),
        masked: None,
        holds_back_partner: true,
        specified_by: None,
        default_found: DefaultFound::Reset("systemd and the kubelet set it back together with the weight"),
    },
    KnobRow {
        knob: Knob::BvtWarp,
        place: Place::Cgroup(Controller::Cpu),
        levels: ALL_LEVELS,
        not_elsewhere: None,
        v1: "cpu.bvt_warp_ns",
        v2: "cpu.bvt_warp_ns",
        encoding: Encoding::Integer,
        range: -1..=2,
        // Other numbers are no ranks.
        capped: -1..=2,
        unlimited: false,
        default: Value::Number(0),
        kernel: GROUP_IDENTITY,
        hierarchy: HierarchyRule::None,
        group: Group::Identity,
        raise_order: 0,
        slow: false,
        instead: Some("containers can have cpu.idle"),
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision("no kubelet, runtime or systemd writes the file"),
    },
    KnobRow {
        knob: Knob::CoreGroup,
        place: Place::Cgroup(Controller::Cpu),
        levels: &[Level::Container],
        not_elsewhere: Some("processes are the containers'"),
        v1: CORE_GROUP,
        v2: CORE_GROUP,
        encoding: Encoding::Integer,
        range: 0..=MAX_CORE_GROUP,
        capped: 0..=MAX_CORE_GROUP,
        unlimited: false,
        default: Value::Number(0),
        kernel: "Linux 5.14 with CONFIG_SCHED_CORE, and cores of more than one thread",
        hierarchy: HierarchyRule::None,
        group: Group::CoreScheduling,
        raise_order: 0,
        slow: false,
        instead: Some("containers can have cpu.idle, which keeps no core to themselves"),
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision("qosm alone writes the attribute; who removes it means it"),
    },
    KnobRow {
        knob: Knob::MemoryMax,
        place: Place::Cgroup(Controller::Memory),
        levels: &[Level::Pod, Level::Container],
        not_elsewhere: Some(
            "the OOM killer would choose among all pods; a bound by memory.high slows them down instead",
        ),
        v1: "memory.limit_in_bytes",
        v2: "memory.max",
        encoding: Encoding::Bytes,
        range: 0..=i64::MAX,
        capped: 0..=i64::MAX,
        unlimited: true,
        default: Value::Max,
        kernel: "the controller memory",
        hierarchy: HierarchyRule::CappedByAncestors,
        group: Group::Limit,
        raise_order: 0,
        slow: true,
        instead: None,
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: Some(SpecifiedBy::MemoryLimit),
        default_found: DefaultFound::Decision(
            "what resets a limit, systemd or the kubelet, writes the pod's own; who lifts it means it",
        ),
    },
    KnobRow {
        capped: 1..=i64::MAX,
        ..of_node(
            Knob::MinFreeKbytes,
            (Place::Proc, "sys/vm/min_free_kbytes"),
            Encoding::Integer,
            LEAST_FREE_KIB..=2_147_483_647,
            // The default on a node of 64 GiB; the kernel computes it from the size of memory.
            67_584,
            SYSCTL,
        )
    },
    KnobRow {
        capped: 1..=i64::MAX,
        ..of_node(
            Knob::WatermarkScaleFactor,
            (Place::Proc, "sys/vm/watermark_scale_factor"),
            Encoding::Integer,
            // Linux 5.18 and later accept up to 3000, earlier kernels up to 1000.
            1..=1000,
            10,
            SYSCTL,
        )
    },
    of_node(
        Knob::MemcgReaper,
        (Place::Sys, "kernel/mm/memcg_reaper/reap_background"),
        Encoding::Flag,
        0..=1,
        0,
        MEMCG_REAPER,
    ),
    of_node(
        Knob::GroupIdentity,
        (Place::Proc, "sys/kernel/sched_group_identity_enabled"),
        Encoding::Flag,
        0..=1,
        0,
        GROUP_IDENTITY,
    ),
    of_node(
        Knob::IdleSaverWmark,
        (Place::Proc, "sys/kernel/sched_idle_saver_wmark"),
        Encoding::Integer,
        0..=i64::MAX,
        0,
        GROUP_IDENTITY,
    ),
    of_node(
        Knob::PageCacheLimit,
        (Place::Sys, "kernel/mm/pagecache_limit/enabled"),
        Encoding::Flag,
        0..=1,
        0,
        "Alibaba Cloud Linux 3 >= 5.10.134-14",
    ),
    KnobRow {
        // When both are restored, group identity must be off before core scheduling is on again.
        raise_order: 1,
        ..of_node(
            Knob::SchedCore,
            (Place::Proc, "sys/kernel/sched_core"),
            Encoding::Flag,
            0..=1,
            0,
            "Alibaba Cloud Linux 3, or Anolis OS",
        )
    },
    block_io::MAX,
    block_io::WEIGHT,
    block_io::COST_QOS,
    block_io::COST_MODEL,
];

/// A knob's row.
pub fn row(knob: Knob) -> &'static KnobRow {
    &TABLE[index(knob)]
}

/// A knob's index in [`TABLE`].
pub(crate) fn index(knob: Knob) -> usize {
    knob.index()
}

impl KnobRow {
    /// The controller whose hierarchy has the file; `None` for node-wide knobs.
    pub fn controller(&self) -> Option<Controller> {
        match self.place {
            Place::Cgroup(controller) => Some(controller),
            Place::Proc | Place::Sys | Place::CgroupRoot(_) => None,
        }
    }

    /// Format of a device's line; `None` if the file has no lines per device.
    pub fn line(&self) -> Option<Line> {
        match self.encoding {
            Encoding::Line(line) => Some(line),
            _ => None,
        }
    }

    /// Whether every ancestor must grant a child's value: true for protection, as opposed to limits.
    pub fn is_granted_from_above(&self) -> bool {
        self.hierarchy == HierarchyRule::CappedByAncestors && self.default == Value::Number(0)
    }

    /// Whether this is the CFS quota, which is read in each tick.
    pub fn is_quota(&self) -> bool {
        self.encoding == Encoding::Quota
    }

    /// Whether the value is the content of a file; a core scheduling group is an extended attribute and a state of processes.
    pub fn has_file(&self) -> bool {
        self.group != Group::CoreScheduling
    }

    /// Whether the value is a list of CPUs.
    pub fn is_cpu_list(&self) -> bool {
        self.encoding == Encoding::Cpus
    }

    /// Whether the knob limits the CPU time of a cgroup: by a quota or by a set of CPUs.
    pub fn limits_cpu(&self) -> bool {
        self.is_quota() || self.is_cpu_list()
    }

    /// Whether cgroup v1 refuses values beyond the parent's.
    pub fn is_within_parent(&self) -> bool {
        matches!(self.hierarchy, HierarchyRule::WithinParent | HierarchyRule::WithinParentOnV1)
    }

    /// Whether the kernel keeps the value at or below the quota of the same cgroup.
    pub fn is_within_quota(&self) -> bool {
        self.group == Group::Bandwidth && !self.is_quota()
    }

    /// The knob that this one masks.
    pub fn masks(&self) -> Option<Knob> {
        self.partner.filter(|&partner| row(partner).masked.is_some_and(|mask| mask.by == self.knob))
    }

    /// Whether the knob masks another or is masked: writing either replaces the other's value.
    pub fn is_of_a_mask(&self) -> bool {
        self.masked.is_some() || self.masks().is_some()
    }

    /// Whether a value is the one that the knob shows while masked.
    pub fn is_masked_as(&self, value: Value) -> bool {
        self.masked.is_some_and(|mask| mask.shows == value)
    }

    /// Whether the kernel itself put a value there when a mask ended.
    pub fn is_left_by_mask(&self, before: Value, found: Value) -> bool {
        self.masked.is_some_and(|mask| mask.shows == before && mask.leaves == found)
    }

    /// Whether no program chose the new value deliberately: the kernel wrote it when a mask ended, or it is a default
    /// that the table treats as a reset.
    pub fn is_reset(&self, before: Value, found: Value) -> bool {
        let is_default = matches!(self.default_found, DefaultFound::Reset(_)) && found == self.default;
        is_default || self.is_left_by_mask(before, found)
    }

    /// The file name on a hierarchy of this version.
    pub fn file(&self, version: CgroupVersion) -> &'static str {
        match version {
            CgroupVersion::V1 => self.v1,
            CgroupVersion::V2 => self.v2,
        }
    }

    /// The text of a value, without the device's numbers for a device's knob. [`Value::Max`] becomes the largest number
    /// where it is not accepted.
    pub fn encode(&self, version: CgroupVersion, value: Value) -> String {
        if let Encoding::Line(line) = self.encoding {
            return block_io::encode(line, value);
        }
        match (value, self.encoding, version) {
            (Value::Number(bits), Encoding::Bits, _) => list_text((0..63).filter(|bit| (bits >> bit) & 1 == 1)),
            // A newline, since the kernel ignores an empty write.
            (Value::Max, Encoding::Bits | Encoding::Cpus, _) => "\n".to_owned(),
            (Value::Cpus(cpus), ..) => cpus.to_string(),
            (Value::Number(weight), Encoding::Weight, CgroupVersion::V1) => weight::shares(weight).to_string(),
            (Value::Shares(shares), Encoding::Weight, CgroupVersion::V2) => weight::nearest(shares).to_string(),
            (Value::Number(number) | Value::Shares(number), ..) => number.to_string(),
            (Value::Max, Encoding::Quota, CgroupVersion::V1) => "-1".to_owned(),
            (Value::Max, Encoding::Quota | Encoding::Bytes, CgroupVersion::V2) if self.unlimited => "max".to_owned(),
            // Some v1 kernels with these files do not accept `max`; all accept the largest number and read it as unlimited.
            (Value::Max, Encoding::Bytes, _) => i64::MAX.to_string(),
            (Value::Max, Encoding::Weight, CgroupVersion::V1) => MAX_SHARES.to_string(),
            (Value::Max, ..) => self.range.end().to_string(),
            // Not values of knobs with another encoding.
            (other @ (Value::Unset | Value::IoLimits(_) | Value::IoCostQos(_) | Value::IoCostModel(_)), ..) => {
                other.to_string()
            }
        }
    }

    /// Whether its numbers are bytes.
    pub fn is_bytes(&self) -> bool {
        self.encoding == Encoding::Bytes
    }

    /// The value as the kernel returns it: bytes in whole pages, and very large ones as unlimited.
    pub fn rounded(&self, value: Value, page: i64) -> Value {
        match value {
            Value::Number(bytes) if self.encoding == Encoding::Bytes && bytes >= 0 => {
                if self.unlimited && bytes >= unlimited_bytes(page) {
                    Value::Max
                } else {
                    Value::Number(bytes / page * page)
                }
            }
            Value::IoLimits(limits) => block_io::rounded(limits),
            other => other,
        }
    }

    /// Why the knob is unsupported without its file, and the alternative.
    pub(crate) fn lacking(&self, what: &str) -> String {
        let mut why = format!("{what}; needs {}", self.kernel);
        if let Some(instead) = self.instead {
            why.push_str("; ");
            why.push_str(instead);
        }
        why
    }

    /// Whether a value is valid for this knob.
    pub fn accepts(&self, value: Value) -> bool {
        if let Encoding::Line(line) = self.encoding {
            return block_io::accepts(line, value);
        }
        match value {
            Value::Number(number) => self.encoding != Encoding::Cpus && self.range.contains(&number),
            Value::Shares(shares) => self.encoding == Encoding::Weight && (MIN_SHARES..=MAX_SHARES).contains(&shares),
            Value::Cpus(cpus) => self.encoding == Encoding::Cpus && !cpus.is_empty(),
            Value::Max => self.unlimited,
            Value::Unset | Value::IoLimits(_) | Value::IoCostQos(_) | Value::IoCostModel(_) => false,
        }
    }

    /// The nearest valid value, for a value that exceeds the range in the same unit; `None` for others.
    pub fn nearest(&self, value: Value) -> Option<Value> {
        match value {
            _ if self.line().is_some() => None,
            Value::Number(number) if self.encoding != Encoding::Cpus && self.capped.contains(&number) => {
                Some(Value::Number(number.clamp(*self.range.start(), *self.range.end())))
            }
            Value::Shares(shares) if self.encoding == Encoding::Weight && shares >= 0 => {
                Some(Value::Shares(shares.clamp(MIN_SHARES, MAX_SHARES)))
            }
            _ => None,
        }
    }

    /// Describes the valid values.
    pub fn allowed(&self) -> String {
        if let Encoding::Line(line) = self.encoding {
            return block_io::allowed(line).to_owned();
        }
        if self.encoding == Encoding::Cpus {
            return format!("at least one CPU, by numbers below {MAX_CPUS}");
        }
        let (least, most) = (self.range.start(), self.range.end());
        match (self.unlimited, *most == i64::MAX) {
            (true, true) => format!("{least} or more, or max"),
            (true, false) => format!("{least} to {most}, or max"),
            (false, true) => format!("{least} or more"),
            (false, false) => format!("{least} to {most}"),
        }
    }
}

/// From this number of bytes on, a memory bound counts as unlimited: the most whole pages that fit into a signed 64-bit number.
pub(crate) fn unlimited_bytes(page: i64) -> i64 {
    i64::MAX / page.max(1) * page.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> Value {
        Value::Cpus(list.parse().unwrap())
    }

    #[test]
    fn partners_are_partners_of_each_other_and_one_of_them_holds_the_other_back() {
        for row in &TABLE {
            let Some(partner) = row.partner.map(super::row) else {
                assert!(row.masked.is_none() && !row.holds_back_partner, "{}", row.knob);
                continue;
            };
            assert_eq!(partner.partner, Some(row.knob));
            assert_eq!(partner.group, row.group, "{}", row.knob);
            assert_ne!(row.holds_back_partner, partner.holds_back_partner, "{}", row.knob);
        }
    }

    #[test]
    fn a_masked_knob_shows_what_its_mask_says_and_is_left_by_it() {
        let [weight, idle] = [row(Knob::CpuWeight), row(Knob::CpuIdle)];
        assert_eq!((idle.masks(), weight.masks()), (Some(Knob::CpuWeight), None));
        assert!(weight.is_masked_as(IDLE_WEIGHT) && !weight.is_masked_as(DEFAULT_WEIGHT));
        assert!(weight.is_left_by_mask(IDLE_WEIGHT, DEFAULT_WEIGHT));
        assert!(!weight.is_left_by_mask(DEFAULT_WEIGHT, IDLE_WEIGHT));
        let of_a_mask: Vec<_> = TABLE.iter().filter(|row| row.is_of_a_mask()).map(|row| row.knob).collect();
        assert_eq!(of_a_mask, [Knob::CpuWeight, Knob::CpuIdle]);
    }

    #[test]
    fn who_lifts_a_limit_means_it_and_what_systemd_forgets_it_does_not() {
        let resets = |row: &&KnobRow| row.is_reset(Value::Number(77), row.default);
        let reset: Vec<_> = TABLE.iter().filter(resets).map(|row| row.knob).collect();
        assert_eq!(reset, [Knob::MemoryMin, Knob::MemoryLow, Knob::MemoryHigh, Knob::CpuIdle]);
        let weight = row(Knob::CpuWeight);
        assert!(weight.is_reset(IDLE_WEIGHT, DEFAULT_WEIGHT) && !weight.is_reset(Value::Number(250), DEFAULT_WEIGHT));
    }

    #[test]
    fn protection_is_granted_from_above_and_a_bound_is_not() {
        let granted: Vec<_> = TABLE.iter().filter(|row| row.is_granted_from_above()).map(|row| row.knob).collect();
        assert_eq!(granted, [Knob::MemoryMin, Knob::MemoryLow]);
        let within_quota: Vec<_> = TABLE.iter().filter(|row| row.is_within_quota()).map(|row| row.knob).collect();
        assert_eq!(within_quota, [Knob::CfsBurst]);
    }

    #[test]
    fn quota_and_cpu_list_limit_cpu_and_are_within_what_the_parent_has() {
        let quota_and_cpus = [Knob::CfsQuota, Knob::CpusetCpus];
        let of = |is: fn(&KnobRow) -> bool| TABLE.iter().filter(|row| is(row)).map(|row| row.knob).collect::<Vec<_>>();
        assert_eq!(of(KnobRow::limits_cpu), quota_and_cpus);
        assert_eq!(of(KnobRow::is_within_parent), quota_and_cpus);
        assert_eq!(of(KnobRow::is_cpu_list), [Knob::CpusetCpus]);
    }

    #[test]
    fn has_a_row_for_every_knob_in_its_place() {
        for (place, knob) in Knob::ALL.into_iter().enumerate() {
            assert_eq!(index(knob), place);
            assert_eq!(row(knob).knob, knob);
            assert!(row(knob).accepts(row(knob).default), "{knob}");
        }
    }

    #[test]
    fn spells_values_as_the_hierarchy_wants_them() {
        use CgroupVersion::{V1, V2};
        for (knob, version, value, text) in [
            (Knob::CfsQuota, V1, Value::Max, "-1"),
            (Knob::CfsQuota, V2, Value::Max, "max"),
            (Knob::CfsQuota, V2, Value::Number(200_000), "200000"),
            (Knob::CfsBurst, V1, Value::Number(0), "0"),
            (Knob::MemoryHigh, V2, Value::Max, "max"),
            (Knob::MemoryHigh, V1, Value::Max, "9223372036854775807"),
            (Knob::MemoryMin, V2, Value::Number(104_857_600), "104857600"),
            (Knob::WmarkMinAdj, V2, Value::Number(-25), "-25"),
            (Knob::OomGroup, V2, Value::Number(1), "1"),
            (Knob::CpusetMems, V1, Value::Number(0b1011), "0-1,3"),
            (Knob::CpusetMems, V2, Value::Number(i64::MAX), "0-62"),
            (Knob::CpusetMems, V2, Value::Max, "\n"),
            (Knob::CpusetCpus, V1, cpus("0-1,70"), "0-1,70"),
            (Knob::CpusetCpus, V2, Value::Max, "\n"),
            (Knob::MemoryMax, V2, Value::Max, "max"),
            (Knob::MemoryMax, V1, Value::Max, "9223372036854775807"),
            (Knob::MinFreeKbytes, V1, Value::Number(67_584), "67584"),
            (Knob::PageCacheLimit, V2, Value::Number(1), "1"),
            (Knob::CpuWeight, V1, Value::Number(100), "1024"),
            (Knob::CpuWeight, V1, Value::Number(1), "10"),
            (Knob::CpuWeight, V1, Value::Number(10_000), "102400"),
            (Knob::CpuWeight, V1, Value::Shares(2), "2"),
            (Knob::CpuWeight, V2, Value::Number(10_000), "10000"),
            (Knob::CpuWeight, V2, Value::Shares(2), "1"),
            (Knob::CpuIdle, V1, Value::Number(1), "1"),
            (Knob::BvtWarp, V1, Value::Number(-1), "-1"),
        ] {
            assert_eq!(row(knob).encode(version, value), text, "{knob} {version:?}");
        }
    }

    #[test]
    fn takes_what_the_kernel_takes() {
        for (knob, value, accepted) in [
            (Knob::CfsQuota, Value::Number(999), false),
            (Knob::CfsQuota, Value::Number(1000), true),
            (Knob::CfsQuota, Value::Number(-1), false),
            (Knob::CfsQuota, Value::Max, true),
            (Knob::CfsBurst, Value::Max, false),
            (Knob::CfsBurst, Value::Number(-1), false),
            (Knob::MemoryLow, Value::Number(-1), false),
            (Knob::WmarkRatio, Value::Number(101), false),
            (Knob::WmarkScale, Value::Number(0), false),
            (Knob::WmarkScale, Value::Number(1000), true),
            (Knob::WmarkMinAdj, Value::Number(-26), false),
            (Knob::WmarkMinAdj, Value::Number(51), false),
            (Knob::OomPriority, Value::Number(12), true),
            (Knob::OomPriority, Value::Number(13), false),
            (Knob::OomGroup, Value::Number(2), false),
            (Knob::PageCacheLimitSize, Value::Max, false),
            (Knob::CpusetMems, Value::Number(0), false),
            (Knob::CpusetMems, Value::Number(2), true),
            (Knob::CpusetCpus, Value::Number(0), false),
            (Knob::CpusetCpus, cpus(""), false),
            (Knob::CpusetCpus, cpus("1023"), true),
            (Knob::CpusetCpus, Value::Max, true),
            (Knob::CpusetMems, cpus("1"), false),
            (Knob::MemoryMax, Value::Number(-1), false),
            (Knob::MemoryMax, Value::Max, true),
            (Knob::MinFreeKbytes, Value::Number(1023), false),
            (Knob::MinFreeKbytes, Value::Max, false),
            (Knob::WatermarkScaleFactor, Value::Number(0), false),
            (Knob::WatermarkScaleFactor, Value::Number(1001), false),
            (Knob::GroupIdentity, Value::Number(2), false),
            (Knob::SchedCore, Value::Number(1), true),
            (Knob::BvtWarp, Value::Number(-2), false),
            (Knob::BvtWarp, Value::Number(-1), true),
            (Knob::BvtWarp, Value::Number(2), true),
            (Knob::BvtWarp, Value::Number(3), false),
            (Knob::BvtWarp, Value::Max, false),
            (Knob::CpuWeight, Value::Number(0), false),
            (Knob::CpuWeight, Value::Number(1), true),
            (Knob::CpuWeight, Value::Number(10_001), false),
            (Knob::CpuWeight, Value::Shares(2), true),
            (Knob::CpuWeight, Value::Shares(1), false),
            (Knob::CpuWeight, Value::Max, false),
            (Knob::CpuIdle, Value::Number(2), false),
            (Knob::CpuIdle, Value::Shares(2), false),
        ] {
            assert_eq!(row(knob).accepts(value), accepted, "{knob} {value}");
        }
    }

    #[test]
    fn more_of_the_same_is_capped_and_another_meaning_is_not() {
        for (knob, value, nearest) in [
            (Knob::CfsQuota, Value::Number(i64::MAX), Some(Value::Number(MAX_RUNTIME_MICROS))),
            (Knob::CfsQuota, Value::Number(999), Some(Value::Number(1000))),
            (Knob::CfsQuota, Value::Number(0), None),
            (Knob::CfsQuota, Value::Number(-1), None),
            (Knob::CfsBurst, Value::Number(i64::MAX), Some(Value::Number(MAX_RUNTIME_MICROS))),
            (Knob::CfsBurst, Value::Number(-1), None),
            (Knob::CfsBurst, Value::Max, None),
            (Knob::MemoryHigh, Value::Number(-1), None),
            (Knob::WmarkRatio, Value::Number(950), None),
            (Knob::WmarkScale, Value::Number(1001), Some(Value::Number(1000))),
            (Knob::WmarkScale, Value::Number(0), None),
            (Knob::WmarkMinAdj, Value::Number(-26), Some(Value::Number(-25))),
            (Knob::WmarkMinAdj, Value::Number(100), Some(Value::Number(50))),
            (Knob::OomPriority, Value::Number(1000), None),
            (Knob::OomGroup, Value::Number(2), None),
            (Knob::PageCacheLimitSize, Value::Number(-1), None),
            (Knob::CpusetMems, Value::Number(0), None),
            (Knob::CpusetCpus, Value::Number(0), None),
            (Knob::CpusetCpus, cpus(""), None),
            (Knob::CpuWeight, Value::Number(10_001), Some(Value::Number(10_000))),
            (Knob::CpuWeight, Value::Number(0), None),
            (Knob::CpuWeight, Value::Shares(0), Some(Value::Shares(2))),
            (Knob::CpuWeight, Value::Shares(300_000), Some(Value::Shares(262_144))),
            (Knob::CpuWeight, Value::Shares(-1), None),
            (Knob::CpuIdle, Value::Number(2), None),
            (Knob::MinFreeKbytes, Value::Number(1), Some(Value::Number(1024))),
            (Knob::MinFreeKbytes, Value::Number(0), None),
            (Knob::WatermarkScaleFactor, Value::Number(5000), Some(Value::Number(1000))),
            (Knob::MemcgReaper, Value::Number(2), None),
        ] {
            assert_eq!(row(knob).nearest(value), nearest, "{knob} {value}");
        }
        for row in TABLE.iter().filter(|row| !row.range.is_empty() && row.encoding != Encoding::Cpus) {
            let (least, most) = (*row.range.start(), *row.range.end());
            assert!(row.capped.contains(&least.max(*row.capped.start())) && row.capped.contains(&most), "{}", row.knob);
        }
    }

    #[test]
    fn rounds_bytes_to_pages_and_knows_unlimited() {
        let high = row(Knob::MemoryHigh);
        assert_eq!(high.rounded(Value::Number(8191), 4096), Value::Number(4096));
        assert_eq!(high.rounded(Value::Number(8191), 65_536), Value::Number(0));
        assert_eq!(high.rounded(Value::Number(9_223_372_036_854_771_712), 4096), Value::Max);
        assert_eq!(row(Knob::CfsQuota).rounded(Value::Number(8191), 4096), Value::Number(8191));
    }
}
