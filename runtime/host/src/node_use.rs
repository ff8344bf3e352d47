//! Use of the node as a whole and of tiers and pods: CPU time, memory with the kernel's watermarks, and pressure.

use qosm_model::column::{PressureCounters, Stall};
use qosm_model::knob::Target;
use qosm_model::node::{GroupCounters, GroupMemory, Marks, NodeMemory};
use qosm_model::unit::{Bytes, Micros};

use crate::backend::{Area, Backend as _};
use crate::error::HostError;
use crate::mounts::{CgroupVersion, Controller};
use crate::signals::NodeFile;
use crate::targets::CgroupFile;
use crate::{Host, parse};

/// Cached watermarks of the kernel, and the values that they depend on. `/proc/zoneinfo` grows with CPUs and zones, and
/// reading it costs the kernel more than all other node-wide files together.
#[derive(Default)]
pub(crate) struct KeptMarks {
    follow_from: Option<MarkSources>,
    marks: Marks,
}

/// Values that determine the watermarks: `vm.min_free_kbytes`, `vm.watermark_scale_factor`, and total memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct MarkSources {
    min_free: Option<u64>,
    scale_factor: Option<u64>,
    total: Bytes,
}

/// Makes an unreadable counter `None`: the kernel may lack it. Only a missing cgroup is an error.
fn known<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error @ (HostError::Gone { .. } | HostError::NotAttached { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

impl Host {
    /// What a tier or a pod has used since its cgroup was created, and its current memory. Counters that the kernel
    /// lacks, or that cannot be read, are `None`. The counts of the memory limit and the OOM killer cover the cgroup
    /// alone on v1, and also the cgroups below it on v2.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`] and [`HostError::NotAttached`].
    pub fn group_counters(&mut self, target: Target) -> Result<GroupCounters, HostError> {
        let (cpu_usage, cpu_throttled) = self.group_cpu(target)?;
        let (max_events, oom_kills) = self.group_events(target)?;
        Ok(GroupCounters {
            cpu_usage,
            cpu_throttled,
            cpu_pressure: known(self.stall(target, CgroupFile::CpuPressure))?,
            memory: self.group_memory(target)?,
            max_events,
            oom_kills,
        })
    }

    fn group_cpu(&mut self, target: Target) -> Result<(Option<Micros>, Option<Micros>), HostError> {
        let unified = |host: &Self, controller| host.hierarchies.version(controller) == Some(CgroupVersion::V2);
        let (cpu, usage) = (unified(self, Controller::Cpu), unified(self, Controller::Cpuacct));
        let mut used = None;
        let throttled = known(self.read_file(target, CgroupFile::CpuStat))?.and_then(|length| {
            let text = &self.buffer[..length];
            if cpu {
                let [usage_usec, throttled] = parse::keyed(text, ["usage_usec", "throttled_usec"]);
                used = usage_usec.filter(|_| usage);
                return throttled;
            }
            parse::keyed(text, ["throttled_time"])[0].map(|nanos| nanos / 1000)
        });
        if used.is_none() {
            used = known(self.read_file(target, CgroupFile::CpuUsage))?.and_then(|length| {
                let text = &self.buffer[..length];
                if usage {
                    parse::keyed(text, ["usage_usec"])[0]
                } else {
                    parse::number(text).map(|nanos| nanos / 1000)
                }
            });
        }
        Ok((used.map(Micros), throttled.map(Micros)))
    }

    fn group_memory(&mut self, target: Target) -> Result<Option<GroupMemory>, HostError> {
        let Some(usage) = known(self.read_number(target, CgroupFile::MemoryUsage, "the memory in use"))? else {
            return Ok(None);
        };
        let keys = self.page_cache_keys();
        let stat = known(self.read_file(target, CgroupFile::MemoryStat))?;
        Ok(stat.and_then(|length| {
            let [Some(active), Some(inactive)] = parse::keyed(&self.buffer[..length], keys) else { return None };
            Some(GroupMemory { usage: Bytes(usage), active_file: Bytes(active), inactive_file: Bytes(inactive) })
        }))
    }

    fn group_events(&mut self, target: Target) -> Result<(Option<u64>, Option<u64>), HostError> {
        if self.has_unified_memory() {
            let events = known(self.read_file(target, CgroupFile::MemoryEvents))?;
            let counts = events.map(|length| parse::keyed(&self.buffer[..length], ["max", "oom_kill"]));
            return Ok(counts.map_or((None, None), |[max, kills]| (max, kills)));
        }
        let failures = known(self.read_number(target, CgroupFile::MemoryFailures, "a count"))?;
        let oom = known(self.read_file(target, CgroupFile::MemoryOom))?;
        Ok((failures, oom.and_then(|length| parse::keyed(&self.buffer[..length], ["oom_kill"])[0])))
    }

    fn has_unified_memory(&self) -> bool {
        self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2)
    }

    fn page_cache_keys(&self) -> [&'static str; 2] {
        if self.has_unified_memory() {
            ["active_file", "inactive_file"]
        } else {
            ["total_active_file", "total_inactive_file"]
        }
    }

    /// Memory of all processes: that of the memory hierarchy's root. cgroup v2 has no total for the real root, so this
    /// is the sum of page cache, anonymous memory and, if counted, kernel memory. `None` if the kernel does not account
    /// the root, as on v2 before Linux 5.12.
    pub fn root_memory(&mut self) -> Option<GroupMemory> {
        let tree = self.hierarchies.of(Controller::Memory)?;
        let unified = self.has_unified_memory();
        let keys = self.page_cache_keys();
        let length = self.read_kept(|files| &mut files.root_stat, Area::Cgroup(tree), "memory.stat").ok()?;
        let text = &self.buffer[..length];
        let [Some(active), Some(inactive)] = parse::keyed(text, keys) else { return None };
        let [anon, file, kernel] = parse::keyed(text, ["anon", "file", "kernel"]);
        let usage = if unified {
            // A root as seen within a container is an ordinary cgroup to the kernel, and has `memory.current`.
            let current = self.read_kept(|files| &mut files.root_usage, Area::Cgroup(tree), "memory.current").ok();
            current
                .and_then(|length| parse::number(&self.buffer[..length]))
                .or_else(|| anon?.checked_add(file?)?.checked_add(kernel.unwrap_or(0)))
        } else {
            let usage = self.read_kept(|files| &mut files.root_usage, Area::Cgroup(tree), "memory.usage_in_bytes").ok();
            usage.and_then(|length| parse::number(&self.buffer[..length]))
        };
        Some(GroupMemory { usage: Bytes(usage?), active_file: Bytes(active), inactive_file: Bytes(inactive) })
    }

    /// Memory of the node, with the kernel's watermarks where they can be read.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] or [`HostError::Parse`] for `/proc/meminfo`.
    pub fn node_memory_in_full(&mut self) -> Result<NodeMemory, HostError> {
        let length = self.read_node_file(NodeFile::Meminfo)?;
        let text = &self.buffer[..length];
        let memory = parse::node_memory(text).ok_or_else(|| {
            crate::signals::garbled_node_file(
                "/proc/meminfo",
                "MemTotal, MemFree, MemAvailable and the page cache",
                text,
            )
        })?;
        Ok(NodeMemory { marks: self.marks(memory.total), ..memory })
    }

    /// The kernel's watermarks, read again when the values that determine them change.
    fn marks(&mut self, total: Bytes) -> Marks {
        let mut setting = |file| {
            let length = self.read_node_file(file).ok()?;
            parse::number(&self.buffer[..length])
        };
        let (min_free, scale_factor) = (setting(NodeFile::MinFree), setting(NodeFile::ScaleFactor));
        let sources = MarkSources { min_free, scale_factor, total };
        // Simulated nodes have watermarks of their own.
        if self.is_simulated() || self.node_files.marks.follow_from != Some(sources) {
            let text = self.backend.read_once(Area::Proc, "zoneinfo").ok();
            let nodes = text.and_then(|text| parse::zoneinfo(&text));
            let page = self.page_size().0;
            let sum = |mark: fn(&crate::FreePages) -> u64| {
                let pages = nodes.as_ref()?.iter().fold(0, |sum: u64, node| sum.saturating_add(mark(node)));
                Some(Bytes(pages.saturating_mul(page)))
            };
            let marks = Marks { min: sum(|node| node.min), low: sum(|node| node.low), high: sum(|node| node.high) };
            self.node_files.marks = KeptMarks { follow_from: Some(sources), marks };
        }
        self.node_files.marks.marks
    }

    /// Pressure stall totals of the whole node; a resource without a file counts as 0. `None` if the kernel accounts no pressure.
    pub fn node_pressure(&mut self) -> Option<PressureCounters> {
        let mut total = |file| -> Option<Stall> {
            let length = self.read_node_file(file).ok()?;
            parse::pressure(&self.buffer[..length])
        };
        let (cpu, memory, io) =
            (total(NodeFile::CpuPressure), total(NodeFile::MemoryPressure), total(NodeFile::IoPressure));
        cpu.or(memory).or(io)?;
        let known = Option::unwrap_or_default;
        Some(PressureCounters { cpu: known(cpu), memory: known(memory), io: known(io) })
    }
}
