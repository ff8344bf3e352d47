//! Facts about the node: what `doctor`, recordings and reports show.

use qosm_model::knob::{Knob, Level, Value};
use qosm_model::pod::Tier;
use qosm_model::unit::Bytes;

use crate::Host;
use crate::backend::{AnyBackend, Area, Backend as _, join};
use crate::knob_table;
use crate::knobs::Support;
use crate::layout::{Driver, DriverSource};
use crate::mounts::{CgroupVersion, Controller, Mount};
use crate::parse;
use crate::probe::{BurstRule, Proof};
use crate::software_watermarks::DESCRIPTION;

/// Properties of the node, its kernel and its cgroups.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// The controllers that the host uses.
    pub controllers: Vec<ControllerFact>,
    /// Whether both cgroup versions are mounted.
    pub hybrid: bool,
    /// cgroup v2 applies protection to children without protection of their own (`memory_recursiveprot`).
    pub recursive_protection: bool,
    /// The cgroup driver, which determines the names of cgroups.
    pub driver: Driver,
    /// How the driver was determined.
    pub driver_source: DriverSource,
    /// The kubelet's `cgroupRoot`, relative to each hierarchy's root; empty for the root itself.
    pub cgroup_root: String,
    /// Path of the kubepods cgroup.
    pub kubepods: String,
    /// Whether the kubepods cgroup exists.
    pub has_kubepods: bool,
    /// Number of online logical CPUs.
    pub cpus: u32,
    /// Physical memory; 0 if `/proc/meminfo` cannot be read.
    pub memory: Bytes,
    /// Size of a memory page.
    pub page_size: Bytes,
    /// Number of online NUMA nodes.
    pub numa_nodes: u32,
    /// Whether the kernel itself moves pages to the nodes that use them (`kernel.numa_balancing`).
    pub numa_balancing: bool,
    /// The kernel's release, as `uname -r` prints it; `None` if it cannot be read.
    pub kernel_release: Option<String>,
    /// Whether reclaim may never end for processes above their `memory.high` (before Linux 5.9).
    pub memory_high_livelocks: bool,
    /// Nonzero `memory.min` and `memory.low` of the tiers: cgroup, knob, value. They come from a running agent, the
    /// kubelet's MemoryQoS, or both.
    pub tier_protection: Vec<(String, Knob, Value)>,
    /// Whether the kernel accounts pressure (`/proc/pressure`).
    pub psi: bool,
    /// Whether resctrl can be used: it is mounted, or can be.
    pub resctrl: bool,
    /// Content of `/sys/kernel/sched_ext/state`; `None` on kernels without it. While a sched_ext scheduler is enabled,
    /// quotas do not limit the tasks that it schedules.
    pub sched_ext: Option<String>,
    /// Capabilities of this process that the host uses.
    pub capabilities: Capabilities,
    /// Support of each knob on each level.
    pub knobs: Vec<KnobFact>,
    /// Values of the node-wide knobs that the node has.
    pub node_knobs: Vec<(Knob, Value)>,
    /// Whether a burst may exceed the quota.
    pub burst_rule: BurstRule,
    /// Whether bursts take effect (`kernel.sched_cfs_bw_burst_enabled` of Alibaba Cloud Linux); `None` on kernels without the switch,
    /// where they do.
    pub burst_switch: Option<bool>,
    /// Why the kernel was not probed; `None` if it was.
    pub unprobed: Option<String>,
}

/// One controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerFact {
    /// The controller.
    pub controller: Controller,
    /// Its version; `None` if it is not mounted.
    pub version: Option<CgroupVersion>,
    /// Its mount point on the node; `None` if it is not mounted.
    pub mount: Option<String>,
    /// The visible part of the hierarchy; other than `/` if it was mounted from inside a container.
    pub root: String,
}

/// Effective capabilities; see capabilities(7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `CAP_DAC_OVERRIDE`: write files of other users.
    pub dac_override: bool,
    /// `CAP_DAC_READ_SEARCH`: read files of other users, such as the mappings of their processes.
    pub dac_read_search: bool,
    /// `CAP_SYS_PTRACE`: read the memory of processes of other users.
    pub sys_ptrace: bool,
    /// `CAP_SYS_ADMIN`.
    pub sys_admin: bool,
    /// `CAP_SYS_NICE`: move pages of other users' processes.
    pub sys_nice: bool,
    /// `CAP_SYS_RESOURCE`: write pressure triggers with windows below 2 s.
    pub sys_resource: bool,
}

impl Capabilities {
    /// Parses `/proc/self/status`. Without a readable `CapEff` line, no capability is set.
    pub(crate) fn parse(status: &str) -> Self {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
        let has = |bit: u32| set & (1 << bit) != 0;
        Self {
            dac_override: has(1),
            dac_read_search: has(2),
            sys_ptrace: has(19),
            sys_admin: has(21),
            sys_nice: has(23),
            sys_resource: has(24),
        }
    }
}

/// Whether a knob can be used on a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobFact {
    /// The knob.
    pub knob: Knob,
    /// The level.
    pub level: Level,
    /// Whether the knob is supported, and why not.
    pub support: Support,
}

/// Facts that are read once, at the start.
pub(crate) struct NodeFacts {
    pub(crate) cpus: u32,
    pub(crate) memory: Bytes,
    pub(crate) numa_nodes: u32,
    numa_balancing: bool,
    pub(crate) psi: bool,
    resctrl: bool,
    sched_ext: Option<String>,
    kernel_release: Option<String>,
    burst_switch: Option<bool>,
    pub(crate) capabilities: Capabilities,
}

impl NodeFacts {
    pub(crate) fn read(backend: &AnyBackend, mounts: &[Mount]) -> Self {
        let read = |area, path: &str| backend.read_once(area, path).ok();
        let length = |path: &str| read(Area::Sys, path).and_then(|text| parse::list_length(&text));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
        let online = length("devices/system/cpu/online").filter(|&cpus| cpus > 0);
        let cpus = online.or_else(|| read(Area::Proc, "stat").map(|stat| cpu_lines(&stat))).unwrap_or(1).max(1);
        Self {
            cpus,
            memory: read(Area::Proc, "meminfo").and_then(|text| parse::meminfo(&text)).map_or(Bytes(0), |(all, _)| all),
            numa_nodes: length("devices/system/node/online").unwrap_or(1).max(1),
            numa_balancing: read(Area::Proc, "sys/kernel/numa_balancing")
                .and_then(|text| parse::number(&text))
                .is_some_and(|mode| mode > 0),
            psi: read(Area::Proc, "pressure/cpu").is_some_and(|text| parse::pressure(&text).is_some()),
            resctrl: mounts.iter().any(|mount| mount.kind == "resctrl")
                || backend.inode(Area::Sys, "fs/resctrl").is_ok(),
            sched_ext: read(Area::Sys, "kernel/sched_ext/state").map(text),
            kernel_release: read(Area::Proc, "sys/kernel/osrelease").map(text).filter(|release| !release.is_empty()),
            burst_switch: read(Area::Proc, "sys/kernel/sched_cfs_bw_burst_enabled")
                .and_then(|text| parse::number(&text))
                .map(|switch| switch != 0),
            capabilities: Capabilities::parse(&read(Area::Proc, "self/status").map(text).unwrap_or_default()),
        }
    }
}

fn cpu_lines(stat: &[u8]) -> u32 {
    let is_cpu =
        |line: &&[u8]| line.strip_prefix(b"cpu").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
    u32::try_from(stat.split(|&byte| byte == b'\n').filter(is_cpu).count()).unwrap_or(u32::MAX)
}

impl HostFacts {
    /// Whether the kernel has its own watermarks for background reclaim.
    pub fn has_watermarks(&self) -> bool {
        self.knobs.iter().any(|fact| fact.knob == Knob::WmarkRatio && fact.support == Support::Native)
    }

    /// Whether `cpu.idle` is unsupported.
    pub fn lacks_idle(&self) -> bool {
        self.lacks(Knob::CpuIdle)
    }

    /// Whether CFS burst is unsupported.
    pub fn lacks_burst(&self) -> bool {
        self.lacks(Knob::CfsBurst)
    }

    /// Whether `cpu.bvt_warp_ns` is unsupported.
    pub fn lacks_identities(&self) -> bool {
        self.lacks(Knob::BvtWarp)
    }

    fn lacks(&self, knob: Knob) -> bool {
        let is_lacking = |fact: &KnobFact| matches!(fact.support, Support::Unavailable { .. });
        self.knobs.iter().any(|fact| fact.knob == knob && is_lacking(fact))
    }
}

impl Host {
    /// Facts about the node, and the knobs that it supports.
    pub fn facts(&self) -> HostFacts {
        let controllers = Controller::ALL
            .into_iter()
            .map(|controller| {
                let tree = self.hierarchies.of(controller);
                let hierarchy = tree.map(|tree| &self.hierarchies.list[tree]);
                ControllerFact {
                    controller,
                    version: hierarchy.map(|hierarchy| hierarchy.version),
                    mount: tree.map(|tree| self.directory_path(tree, "")),
                    root: hierarchy.map_or_else(String::new, |hierarchy| hierarchy.root.clone()),
                }
            })
            .collect();
        let (driver, kubepods) = self.kubepods();
        let levels = |knob: Knob| knob_table::row(knob).levels.iter().map(move |&level| (knob, level));
        let knobs = Knob::ALL
            .into_iter()
            .flat_map(levels)
            .map(|(knob, level)| {
                // The file alone does not suffice: identities also need the node's switch.
                let is_identity = knob == Knob::BvtWarp;
                let support = if is_identity { self.group_identity_support() } else { self.knob_support(knob) };
                KnobFact { knob, level, support }
            })
            .collect();
        HostFacts {
            controllers,
            hybrid: self.hierarchies.hybrid(),
            recursive_protection: self.hierarchies.list.iter().any(|hierarchy| hierarchy.recursive_protection),
            driver,
            driver_source: if driver == self.layout.driver { self.layout.source } else { DriverSource::Directory },
            cgroup_root: self.layout.root.clone(),
            has_kubepods: self.exists(&kubepods),
            kubepods,
            cpus: self.node.cpus,
            memory: self.node.memory,
            page_size: self.page_size(),
            numa_nodes: self.node.numa_nodes,
            numa_balancing: self.node.numa_balancing,
            kernel_release: self.node.kernel_release.clone(),
            memory_high_livelocks: self.memory_high_livelocks(),
            tier_protection: self.tier_protection(),
            psi: self.node.psi,
            resctrl: self.node.resctrl,
            sched_ext: self.node.sched_ext.clone(),
            capabilities: self.node.capabilities,
            knobs,
            node_knobs: self.node_knobs(),
            burst_rule: self.probe.burst_rule,
            burst_switch: self.node.burst_switch,
            unprobed: self.probe.why.clone(),
        }
    }

    /// Whether a value of a knob may block processes forever on this kernel.
    pub fn may_livelock(&self, knob: Knob, value: Value) -> bool {
        knob == Knob::MemoryHigh && value != Value::Max && self.memory_high_livelocks()
    }

    /// Whether processes above their `memory.high` may reclaim without end on this kernel (Linux before 5.9, commit
    /// b3ff92916af3). The release decides; a distribution's backport is not detected. A kernel whose release cannot be
    /// read counts as fixed.
    pub fn memory_high_livelocks(&self) -> bool {
        let release = self.node.kernel_release.as_deref().and_then(parse::release);
        release.is_some_and(|release| release < (5, 9))
    }

    /// The kernel's release; `None` if it is unknown.
    pub fn kernel_release(&self) -> Option<&str> {
        self.node.kernel_release.as_deref()
    }

    fn tier_protection(&self) -> Vec<(String, Knob, Value)> {
        let held = |tier, knob| {
            let path = self.tier_path(tier);
            let value = self.peek_at(&path, knob).filter(|value| *value != Value::Number(0))?;
            Some((path, knob, value))
        };
        let knobs = [Knob::MemoryMin, Knob::MemoryLow];
        Tier::ALL.into_iter().flat_map(|tier| knobs.into_iter().filter_map(move |knob| held(tier, knob))).collect()
    }

    /// Whether the node supports a knob: according to the probe, else to the file of the kubepods cgroup.
    pub(crate) fn knob_support(&self, knob: Knob) -> Support {
        let row = knob_table::row(knob);
        let unavailable = |why: String| Support::Unavailable { why };
        if knob == Knob::CoreGroup {
            return self.core_group_support();
        }
        let Some(controller) = row.controller() else { return self.node_knob_support(row) };
        let Some(tree) = self.hierarchies.of(controller) else {
            return unavailable(format!("the controller `{controller}` is not mounted"));
        };
        if let Some(why) = self.switched_off(knob) {
            return unavailable(why);
        }
        let file = row.file(self.hierarchies.list[tree].version);
        match self.probe.knobs[knob_table::index(knob)] {
            Proof::Works => Support::Native,
            Proof::Refused(errno) => unavailable(format!("{file} refuses to be written: {errno}")),
            _ if self.emulates(knob) => Support::Emulated { how: DESCRIPTION },
            Proof::Missing | Proof::Untried => {
                let path = join(&self.tier_path(Tier::Guaranteed), file);
                match self.backend.read_once(Area::Cgroup(tree), &path) {
                    Ok(_) => Support::Native,
                    Err(_) => unavailable(row.lacking(&format!("there is no {file}"))),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_capabilities() {
        let all = Capabilities {
            dac_override: true,
            dac_read_search: true,
            sys_ptrace: true,
            sys_admin: true,
            sys_nice: true,
            sys_resource: true,
        };
        assert_eq!(Capabilities::parse("Name:\tx\nCapEff:\t000001ffffffffff\n"), all);
        let without = Capabilities { sys_resource: false, ..all };
        assert_eq!(Capabilities::parse("CapEff:\t000001fffeffffff\n"), without);
        assert_eq!(Capabilities::parse("CapEff:\tnonsense"), Capabilities::default());
    }

    #[test]
    fn counts_cpus_in_proc_stat() {
        assert_eq!(cpu_lines(b"cpu  1 2\ncpu0 1\ncpu1 1\nctxt 5\ncpufreq 1\n"), 2);
    }
}
