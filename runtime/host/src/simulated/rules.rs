//! The files of a simulated kernel, and its handling of writes.
//!
//! Kernel: `tg_set_cfs_bandwidth`, `tg_cfs_schedulable_down`, `sched_group_set_shares` and `sched_group_set_idle` in
//! kernel/sched, `page_counter_memparse` in mm, and the documents named in the knob table.

use std::collections::{BTreeMap, BTreeSet};

use qosm_model::block_io::DeviceNumber;
use qosm_model::column::{CpuCounters, MemoryCounters};
use qosm_model::numa::list_text;
use qosm_model::unit::Micros;
use rustix::io::Errno;

use super::tree::{ROOT, Tree};
use super::{Kernel, Spec, block_io, cpuset, numa};
use crate::counter_files::{cpu_stat, cpu_time_v2, memory_files, pressure_text};
use crate::knob_table::{Line, MAX_RUNTIME_MICROS};
use crate::mounts::{CgroupVersion, Controller};
use crate::parse;
use crate::reclaim::worker::RECLAIM;

pub(super) const SUBTREE: &str = "cgroup.subtree_control";
pub(super) const CONTROLLERS: &str = "cgroup.controllers";
pub(super) const IDLE: &str = "cpu.idle";
pub(super) const BVT: &str = "cpu.bvt_warp_ns";
pub(super) const PROCS: &str = "cgroup.procs";
pub(super) const KILL: &str = "cgroup.kill";

/// The values that a file accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// No writes.
    Nothing,
    /// Any text.
    Anything,
    /// A whole number within inclusive bounds.
    Number(i64, i64),
    /// Bytes, or no limit; rounded down to a page.
    Bound,
    /// Bytes up to the memory limit; rounded down to a page.
    WithinLimit,
    /// v1 quota.
    Quota,
    /// v1 period.
    Period,
    /// Burst.
    Burst,
    /// v2 quota and period.
    CpuMax,
    /// A list of NUMA nodes.
    Nodes,
    /// A list of CPUs.
    Cpus,
    /// v1 weight: any number of shares, clamped to the kernel's bounds.
    Shares,
    /// v2 weight.
    Weight,
    /// A line for a device.
    Device(Line),
}

/// The kernels and cgroup versions that have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// All kernels, on v1.
    V1,
    /// All kernels, on v2.
    V2,
    /// All kernels on v2, Alibaba's on v1.
    V2AndAlibaba,
    /// Alibaba's kernels, on both versions.
    Alibaba,
    /// Alibaba's kernels, on v1.
    AlibabaV1,
}

struct FileRule(&'static str, Option<Controller>, Has, Takes, &'static str);

const CPU: Option<Controller> = Some(Controller::Cpu);
const CPUACCT: Option<Controller> = Some(Controller::Cpuacct);
const CPUSET: Option<Controller> = Some(Controller::Cpuset);
const MEMORY: Option<Controller> = Some(Controller::Memory);
const IO: Option<Controller> = Some(Controller::Io);
const FLAG: Takes = Takes::Number(0, 1);

/// Name, controller (`None` for every cgroup), kernels, accepted values, and initial value, of which `max` means no limit.
static FILES: &[FileRule] = &[
    FileRule("cgroup.procs", None, Has::V1, Takes::Anything, ""),
    FileRule("cgroup.procs", None, Has::V2, Takes::Anything, ""),
    FileRule(KILL, None, Has::V2, Takes::Number(1, 1), ""),
    FileRule(CONTROLLERS, None, Has::V2, Takes::Nothing, ""),
    FileRule(SUBTREE, None, Has::V2, Takes::Anything, "\n"),
    FileRule("cpu.stat", CPU, Has::V1, Takes::Nothing, ""),
    FileRule("cpu.stat", None, Has::V2, Takes::Nothing, ""),
    FileRule("cpu.cfs_quota_us", CPU, Has::V1, Takes::Quota, "-1\n"),
    FileRule("cpu.cfs_period_us", CPU, Has::V1, Takes::Period, "100000\n"),
    FileRule("cpu.cfs_burst_us", CPU, Has::V1, Takes::Burst, "0\n"),
    FileRule("cpu.shares", CPU, Has::V1, Takes::Shares, "1024\n"),
    FileRule("cpu.max", CPU, Has::V2, Takes::CpuMax, "max 100000\n"),
    FileRule("cpu.max.burst", CPU, Has::V2, Takes::Burst, "0\n"),
    FileRule("cpu.weight", CPU, Has::V2, Takes::Weight, "100\n"),
    FileRule(IDLE, CPU, Has::V1, FLAG, "0\n"),
    FileRule(IDLE, CPU, Has::V2, FLAG, "0\n"),
    FileRule(BVT, CPU, Has::Alibaba, Takes::Number(-1, 2), "0\n"),
    FileRule("cpuacct.usage", CPUACCT, Has::V1, Takes::Nothing, "0\n"),
    FileRule("cpu.pressure", CPUACCT, Has::AlibabaV1, Takes::Nothing, ""),
    FileRule("memory.pressure", CPUACCT, Has::AlibabaV1, Takes::Nothing, ""),
    FileRule("io.pressure", CPUACCT, Has::AlibabaV1, Takes::Nothing, ""),
    FileRule("cpu.pressure", None, Has::V2, Takes::Nothing, ""),
    FileRule("memory.pressure", None, Has::V2, Takes::Nothing, ""),
    FileRule("io.pressure", None, Has::V2, Takes::Nothing, ""),
    FileRule("cpuset.cpus", CPUSET, Has::V1, Takes::Cpus, "\n"),
    FileRule("cpuset.cpus", CPUSET, Has::V2, Takes::Cpus, "\n"),
    FileRule("cpuset.cpus.effective", CPUSET, Has::V2, Takes::Nothing, ""),
    FileRule("cpuset.mems", CPUSET, Has::V1, Takes::Nodes, "\n"),
    FileRule("cpuset.mems", CPUSET, Has::V2, Takes::Nodes, "\n"),
    FileRule("cpuset.mems.effective", CPUSET, Has::V2, Takes::Nothing, ""),
    FileRule("memory.usage_in_bytes", MEMORY, Has::V1, Takes::Nothing, ""),
    FileRule("memory.limit_in_bytes", MEMORY, Has::V1, Takes::Bound, "max"),
    FileRule("memory.soft_limit_in_bytes", MEMORY, Has::V1, Takes::Bound, "max"),
    FileRule("memory.failcnt", MEMORY, Has::V1, Takes::Anything, ""),
    FileRule("memory.oom_control", MEMORY, Has::V1, Takes::Anything, ""),
    FileRule("memory.stat", MEMORY, Has::V1, Takes::Nothing, ""),
    FileRule("memory.stat", MEMORY, Has::V2, Takes::Nothing, ""),
    FileRule("memory.numa_stat", MEMORY, Has::V1, Takes::Nothing, ""),
    FileRule("memory.numa_stat", MEMORY, Has::V2, Takes::Nothing, ""),
    FileRule("memory.current", MEMORY, Has::V2, Takes::Nothing, ""),
    FileRule("memory.events", MEMORY, Has::V2, Takes::Nothing, ""),
    FileRule("memory.max", MEMORY, Has::V2, Takes::Bound, "max"),
    FileRule(RECLAIM, MEMORY, Has::V2, Takes::Nothing, ""),
    FileRule("memory.min", MEMORY, Has::V2AndAlibaba, Takes::Bound, "0"),
    FileRule("memory.low", MEMORY, Has::V2AndAlibaba, Takes::Bound, "0"),
    FileRule("memory.high", MEMORY, Has::V2AndAlibaba, Takes::Bound, "max"),
    FileRule("memory.oom.group", MEMORY, Has::V2AndAlibaba, FLAG, "0\n"),
    FileRule("memory.wmark_ratio", MEMORY, Has::Alibaba, Takes::Number(0, 100), "0\n"),
    FileRule("memory.wmark_scale_factor", MEMORY, Has::Alibaba, Takes::Number(1, 1000), "50\n"),
    FileRule("memory.wmark_min_adj", MEMORY, Has::Alibaba, Takes::Number(-25, 50), "0\n"),
    FileRule("memory.priority", MEMORY, Has::Alibaba, Takes::Number(0, 12), "0\n"),
    FileRule("memory.use_priority_oom", MEMORY, Has::Alibaba, FLAG, "0\n"),
    FileRule("memory.pagecache_limit.enable", MEMORY, Has::Alibaba, FLAG, "0\n"),
    FileRule("memory.pagecache_limit.size", MEMORY, Has::Alibaba, Takes::WithinLimit, "0\n"),
    FileRule("memory.pagecache_limit.sync", MEMORY, Has::Alibaba, FLAG, "0\n"),
    FileRule("io.max", IO, Has::V2, Takes::Device(Line::Limits), ""),
    FileRule("io.weight", IO, Has::V2, Takes::Device(Line::Weight), "default 100\n"),
    FileRule("io.cost.qos", IO, Has::V2, Takes::Device(Line::CostQos), ""),
    FileRule("io.cost.model", IO, Has::V2, Takes::Device(Line::CostModel), ""),
];

/// Files that only the root has.
const ONLY_ROOT: [&str; 2] = ["io.cost.qos", "io.cost.model"];

/// Files that the root of a v2 hierarchy also has. A v1 root has all files and refuses limits.
const ROOT_FILES_V2: [&str; 9] = [
    "cgroup.procs",
    CONTROLLERS,
    SUBTREE,
    "cpu.stat",
    "memory.stat",
    "cpuset.cpus.effective",
    "cpu.pressure",
    ONLY_ROOT[0],
    ONLY_ROOT[1],
];

/// Memory of a v1 group without its page cache.
fn in_use(tree: &Tree, node: usize) -> u64 {
    let read = |file: &str| tree.read(node, file).unwrap_or_default().as_bytes();
    let usage = parse::number(read("memory.usage_in_bytes")).unwrap_or(0);
    let cache = parse::keyed(read("memory.stat"), ["total_cache"])[0].unwrap_or(0);
    usage.saturating_sub(cache)
}

#[derive(Clone, Copy)]
struct Bandwidth {
    quota: Option<u64>,
    period: u64,
    burst: u64,
}

pub(super) struct Rules {
    kernel: Kernel,
    page: u64,
    cpus: u32,
    numa_nodes: u32,
    extra: BTreeMap<String, String>,
    missing: BTreeSet<String>,
    refusing: BTreeSet<String>,
    /// Whole disks.
    devices: BTreeSet<DeviceNumber>,
}

impl Rules {
    pub(super) fn new(spec: &Spec) -> Self {
        Self {
            kernel: spec.kernel,
            page: spec.page_size.0.max(1),
            cpus: spec.cpus,
            numa_nodes: spec.numa_nodes,
            extra: spec.extra_files.clone(),
            missing: spec.missing_files.clone(),
            refusing: spec.refusing_files.clone(),
            devices: spec.devices.iter().map(|device| device.number).collect(),
        }
    }

    pub(super) fn page_size(&self) -> u64 {
        self.page
    }

    pub(super) fn numa_nodes(&self) -> u32 {
        self.numa_nodes
    }

    pub(super) fn set_refusing(&mut self, file: &str, refusing: bool) {
        if refusing {
            self.refusing.insert(file.to_owned());
        } else {
            self.refusing.remove(file);
        }
    }

    /// Sets the disks. Returns the added and the removed ones.
    pub(super) fn set_devices(&mut self, devices: BTreeSet<DeviceNumber>) -> (Vec<DeviceNumber>, Vec<DeviceNumber>) {
        let before = std::mem::replace(&mut self.devices, devices);
        (self.devices.difference(&before).copied().collect(), before.difference(&self.devices).copied().collect())
    }

    pub(super) fn is_known(&self, file: &str) -> bool {
        FILES.iter().any(|rule| rule.0 == file)
    }

    fn has(&self, has: Has, version: CgroupVersion) -> bool {
        let alibaba = self.kernel == Kernel::Alibaba;
        match (has, version) {
            (Has::V1, CgroupVersion::V1) | (Has::V2 | Has::V2AndAlibaba, CgroupVersion::V2) => true,
            (Has::V2AndAlibaba | Has::AlibabaV1, CgroupVersion::V1) | (Has::Alibaba, _) => alibaba,
            (Has::V1 | Has::AlibabaV1, CgroupVersion::V2) | (Has::V2, CgroupVersion::V1) => false,
        }
    }

    /// The files of a new cgroup with these controllers enabled.
    pub(super) fn new_files(&self, version: CgroupVersion, enabled: &[Controller]) -> BTreeMap<String, String> {
        let mut files = self.all_files(version, enabled);
        files.retain(|name, _| !ONLY_ROOT.contains(&name.as_str()));
        files
    }

    fn all_files(&self, version: CgroupVersion, enabled: &[Controller]) -> BTreeMap<String, String> {
        let mut files = self.extra.clone();
        for &FileRule(name, controller, has, takes, initial) in FILES {
            let there = self.has(has, version) && controller.is_none_or(|controller| enabled.contains(&controller));
            if !there || self.missing.contains(name) {
                continue;
            }
            let text = match name {
                CONTROLLERS => controller_list(enabled),
                "cpu.stat" if version == CgroupVersion::V2 && !enabled.contains(&Controller::Cpu) => {
                    cpu_time_v2(Micros(0))
                }
                "cpu.stat" => cpu_stat(version, CpuCounters::default()),
                "memory.numa_stat" => numa::stat(version, self.page, self.numa_nodes, &[]),
                "cpuset.mems.effective" => format!("0-{}\n", self.numa_nodes.saturating_sub(1)),
                "cpuset.cpus.effective" => format!("0-{}\n", self.cpus.saturating_sub(1)),
                _ if name.ends_with(".pressure") => pressure_text(Default::default()),
                _ if takes == Takes::Bound => self.bound(version, if initial == "max" { None } else { Some(0) }),
                _ => initial.to_owned(),
            };
            files.insert(name.to_owned(), text);
        }
        if enabled.contains(&Controller::Memory) {
            for (name, text) in memory_files(version, MemoryCounters::default()) {
                if !self.missing.contains(name) {
                    files.insert(name.to_owned(), text);
                }
            }
        }
        files
    }

    /// The files of a hierarchy's root.
    pub(super) fn root_files(&self, version: CgroupVersion, controllers: &[Controller]) -> BTreeMap<String, String> {
        let mut files = self.all_files(version, controllers);
        if version == CgroupVersion::V1 && files.contains_key("cpuset.cpus") {
            files.insert("cpuset.cpus".to_owned(), format!("0-{}\n", self.cpus.saturating_sub(1)));
        }
        if version == CgroupVersion::V2 {
            files.retain(|name, _| ROOT_FILES_V2.contains(&name.as_str()));
        }
        files
    }

    pub(super) fn check_refusing(&self, file: &str) -> Result<(), Errno> {
        if self.refusing.contains(file) { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Checks a write, and returns the file's new content.
    pub(super) fn accept(&self, tree: &Tree, node: usize, file: &str, text: &str) -> Result<String, Errno> {
        self.check_refusing(file)?;
        let rule = FILES.iter().find(|rule| rule.0 == file && self.has(rule.2, tree.version));
        let Some(&FileRule(.., takes, _)) = rule else { return Ok(line(text)) };
        if node == ROOT && !matches!(takes, Takes::Anything | Takes::Device(_)) {
            return Err(Errno::INVAL);
        }
        match takes {
            Takes::Nothing => Err(Errno::INVAL),
            Takes::Anything => Ok(line(text)),
            Takes::Number(least, most) => {
                let number = parse::signed(text.as_bytes()).ok_or(Errno::INVAL)?;
                if file == "memory.oom.group" && i32::try_from(number).is_err() {
                    return Err(Errno::RANGE);
                }
                if (least..=most).contains(&number) { Ok(format!("{number}\n")) } else { Err(Errno::INVAL) }
            }
            Takes::Bound => {
                let unlimited = text == "max" || (text == "-1" && file.ends_with("_in_bytes"));
                let bytes = if unlimited { None } else { Some(parse::number(text.as_bytes()).ok_or(Errno::INVAL)?) };
                // v1 reclaims page cache for a lower limit, and refuses the limit if that is not enough.
                if file == "memory.limit_in_bytes" && bytes.is_some_and(|bytes| bytes < in_use(tree, node)) {
                    return Err(Errno::BUSY);
                }
                Ok(self.bound(tree.version, bytes))
            }
            Takes::WithinLimit => {
                let bytes = parse::number(text.as_bytes()).ok_or(Errno::INVAL)?;
                if bytes > self.limit(tree, node) {
                    return Err(Errno::INVAL);
                }
                Ok(format!("{}\n", bytes / self.page * self.page))
            }
            Takes::Nodes => self.nodes(tree, node, text),
            Takes::Cpus => cpuset::cpus(tree, node, self.cpus, text),
            Takes::Shares | Takes::Weight => {
                let number = parse::number(text.as_bytes()).ok_or(Errno::INVAL)?;
                if takes == Takes::Weight && !(1..=10_000).contains(&number) {
                    return Err(Errno::RANGE);
                }
                if tree.read(node, IDLE).is_ok_and(|idle| idle.trim() == "1") {
                    return Err(Errno::INVAL);
                }
                let bounds = if takes == Takes::Shares { (2, 262_144) } else { (1, 10_000) };
                Ok(line(&number.clamp(bounds.0, bounds.1).to_string()))
            }
            Takes::Device(kind) => {
                let costs = ["io.cost.qos", "io.cost.model"].map(|cost| tree.read(ROOT, cost).unwrap_or_default());
                block_io::accept(kind, tree.read(node, file).unwrap_or_default(), text, (&self.devices, costs))
            }
            Takes::Quota | Takes::Period | Takes::Burst | Takes::CpuMax => self.bandwidth(tree, node, takes, text),
        }
    }

    /// Checks a list of NUMA nodes. Kernel: `update_nodemask` and `validate_change` in kernel/cgroup/cpuset.c.
    fn nodes(&self, tree: &Tree, node: usize, text: &str) -> Result<String, Errno> {
        let nodes = parse::numa::list(text.as_bytes()).ok_or(Errno::INVAL)?;
        if nodes.iter().any(|&id| id >= self.numa_nodes) {
            return Err(Errno::INVAL);
        }
        // The kernel refuses an empty list for a cgroup with processes; every cgroup in the simulation counts as having
        // one. A cgroup with an empty list has no processes (v1), or uses the parent's nodes (v2).
        let own = tree.read(node, "cpuset.mems").ok().and_then(|text| parse::numa::list(text.as_bytes()));
        if nodes.is_empty() && own.is_some_and(|own| !own.is_empty()) {
            return Err(Errno::NOSPC);
        }
        if tree.version == CgroupVersion::V1 {
            let above = tree.node(node).parent.and_then(|parent| tree.read(parent, "cpuset.mems").ok());
            let above = above.and_then(|text| parse::numa::list(text.as_bytes())).filter(|list| !list.is_empty());
            if above.is_some_and(|above| nodes.iter().any(|id| !above.contains(id))) {
                return Err(Errno::ACCESS);
            }
        }
        Ok(line(&list_text(nodes)))
    }

    /// Applies the consequences of a write: on v2, the effective CPUs and NUMA nodes.
    pub(super) fn follow(&self, tree: &mut Tree, node: usize, file: &str) {
        if file == "cpuset.cpus" {
            return cpuset::follow(tree, node, self.cpus);
        }
        const EFFECTIVE: &str = "cpuset.mems.effective";
        if file == "cpuset.mems"
            && tree.has(node, EFFECTIVE)
            && let Some(effective) = self.effective_mems(tree, node)
        {
            tree.put(node, EFFECTIVE, effective);
        }
    }

    /// The intersection of a cgroup's own NUMA nodes with the parent's, or all of the parent's if it is empty.
    fn effective_mems(&self, tree: &Tree, node: usize) -> Option<String> {
        let read = |node: usize, file: &str| parse::numa::list(tree.read(node, file).ok()?.as_bytes());
        let own = read(node, "cpuset.mems")?;
        let parent = tree.node(node).parent;
        let above = parent.and_then(|parent| read(parent, "cpuset.mems.effective"));
        let above = above.unwrap_or_else(|| (0..self.numa_nodes).collect());
        let both: Vec<u32> = own.into_iter().filter(|id| above.contains(id)).collect();
        Some(line(&list_text(if both.is_empty() { above } else { both })))
    }

    fn bound(&self, version: CgroupVersion, bytes: Option<u64>) -> String {
        let most = i64::MAX.unsigned_abs() / self.page * self.page;
        match (bytes.filter(|&bytes| bytes < most), version) {
            (Some(bytes), _) => format!("{}\n", bytes / self.page * self.page),
            (None, CgroupVersion::V1) => format!("{most}\n"),
            (None, CgroupVersion::V2) => "max\n".to_owned(),
        }
    }

    fn limit(&self, tree: &Tree, node: usize) -> u64 {
        let text = tree.read(node, "memory.max").or_else(|_| tree.read(node, "memory.limit_in_bytes"));
        text.ok().and_then(|text| parse::number(text.as_bytes())).unwrap_or(u64::MAX)
    }

    fn bandwidth(&self, tree: &Tree, node: usize, takes: Takes, text: &str) -> Result<String, Errno> {
        let mut wanted = current(tree, node);
        let number = |text: &str| parse::number(text.as_bytes()).ok_or(Errno::INVAL);
        match takes {
            Takes::Quota => {
                let quota = parse::signed(text.as_bytes()).ok_or(Errno::INVAL)?;
                wanted.quota = u64::try_from(quota).ok();
            }
            Takes::Period => wanted.period = number(text)?,
            Takes::Burst => wanted.burst = number(text)?,
            _ => {
                let mut words = text.split_ascii_whitespace();
                let quota = words.next().ok_or(Errno::INVAL)?;
                wanted.quota = if quota == "max" { None } else { Some(number(quota)?) };
                if let Some(period) = words.next() {
                    wanted.period = number(period)?;
                }
            }
        }
        self.check(tree, node, wanted)?;
        Ok(match takes {
            Takes::Quota => wanted.quota.map_or_else(|| "-1\n".to_owned(), |quota| format!("{quota}\n")),
            Takes::Period => format!("{}\n", wanted.period),
            Takes::Burst => format!("{}\n", wanted.burst),
            _ => {
                let quota = wanted.quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
                format!("{quota} {}\n", wanted.period)
            }
        })
    }

    fn check(&self, tree: &Tree, node: usize, wanted: Bandwidth) -> Result<(), Errno> {
        let most = MAX_RUNTIME_MICROS.unsigned_abs();
        // The kernel stores the burst in nanoseconds.
        if !(1000..=1_000_000).contains(&wanted.period) || wanted.burst > u64::MAX / 1000 {
            return Err(Errno::INVAL);
        }
        if let Some(quota) = wanted.quota {
            let runtime = quota.checked_add(wanted.burst).ok_or(Errno::INVAL)?;
            if quota < 1000 || quota > most || runtime > most {
                return Err(Errno::INVAL);
            }
            if self.kernel == Kernel::Mainline && wanted.burst > quota {
                return Err(Errno::INVAL);
            }
        }
        if tree.version == CgroupVersion::V1 {
            let mut above = u128::MAX;
            let mut ancestor = tree.node(node).parent;
            while let Some(place) = ancestor {
                above = above.min(ratio(current(tree, place)));
                ancestor = tree.node(place).parent;
            }
            within(tree, node, wanted, above)?;
        }
        Ok(())
    }
}

/// v1: checks that no limited cgroup has a larger ratio of quota to period than its limited ancestors.
fn within(tree: &Tree, node: usize, bandwidth: Bandwidth, above: u128) -> Result<(), Errno> {
    let own = ratio(bandwidth);
    if bandwidth.quota.is_some() && own > above {
        return Err(Errno::INVAL);
    }
    let below = own.min(above);
    for &child in tree.node(node).children.values() {
        within(tree, child, current(tree, child), below)?;
    }
    Ok(())
}

fn ratio(bandwidth: Bandwidth) -> u128 {
    bandwidth.quota.map_or(u128::MAX, |quota| (u128::from(quota) << 20) / u128::from(bandwidth.period.max(1)))
}

fn current(tree: &Tree, node: usize) -> Bandwidth {
    let read = |file: &str| tree.read(node, file).ok().map(str::as_bytes);
    let number = |file: &str| read(file).and_then(parse::number);
    match tree.version {
        CgroupVersion::V1 => Bandwidth {
            quota: read("cpu.cfs_quota_us").and_then(parse::cfs_quota).flatten().map(|quota| quota.0),
            period: number("cpu.cfs_period_us").unwrap_or(100_000),
            burst: number("cpu.cfs_burst_us").unwrap_or(0),
        },
        CgroupVersion::V2 => {
            let max = read("cpu.max").and_then(parse::cpu_max);
            Bandwidth {
                quota: max.and_then(|(quota, _)| quota).map(|quota| quota.0),
                period: max.map_or(100_000, |(_, period)| period.0),
                burst: number("cpu.max.burst").unwrap_or(0),
            }
        }
    }
}

/// Contents of the weight files after a change of `cpu.idle`.
pub(super) fn weights_after(idle: &str) -> [(&'static str, &'static str); 2] {
    if idle.trim() == "1" {
        [("cpu.shares", "3\n"), ("cpu.weight", "0\n")]
    } else {
        [("cpu.shares", "1024\n"), ("cpu.weight", "100\n")]
    }
}

fn line(text: &str) -> String {
    format!("{text}\n")
}

/// The text of `cgroup.controllers`. CPU time needs no controller on v2, so `cpuacct` is left out.
pub(super) fn controller_list(controllers: &[Controller]) -> String {
    let names: Vec<_> = controllers
        .iter()
        .filter(|&&controller| controller != Controller::Cpuacct)
        .map(|controller| controller.as_str())
        .collect();
    line(&names.join(" "))
}

/// Parses a number of bytes, with an optional binary suffix like the kernel's `memparse`; options after it are ignored.
pub(super) fn reclaim_amount(text: &str) -> Result<u64, Errno> {
    let word = text.split_ascii_whitespace().next().unwrap_or_default();
    let (number, shift) = match word.char_indices().last() {
        Some((end, 'k' | 'K')) => (&word[..end], 10),
        Some((end, 'm' | 'M')) => (&word[..end], 20),
        Some((end, 'g' | 'G')) => (&word[..end], 30),
        _ => (word, 0),
    };
    let number = parse::number(number.as_bytes()).ok_or(Errno::INVAL)?;
    number.checked_mul(1 << shift).ok_or(Errno::INVAL)
}

/// `memory.current` and `memory.stat` after page cache of this size was reclaimed.
pub(super) fn after_reclaim(current: &str, stat: &str, bytes: u64) -> (String, String) {
    let less = |number: &str| parse::number(number.as_bytes()).unwrap_or(0).saturating_sub(bytes);
    let stat = stat.lines().map(|line| match line.split_once(' ') {
        Some((key @ ("file" | "inactive_file"), number)) => format!("{key} {}\n", less(number)),
        _ => format!("{line}\n"),
    });
    (line(&less(current).to_string()), stat.collect())
}
