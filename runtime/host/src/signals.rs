//! Measurements: the kernel's running totals. Callers compute the differences.

use std::io;

use qosm_model::column::{CpuCounters, MemoryCounters, PressureCounters, Stall};
use qosm_model::knob::{Knob, Target};
use qosm_model::pod::ContainerId;
use qosm_model::unit::{Bytes, Micros};

use crate::backend::{Area, Backend as _, FileId, join};
use crate::error::{self, HostError};
use crate::mounts::{CgroupVersion, Controller};
use crate::node_use::KeptMarks;
use crate::targets::CgroupFile;
use crate::{Host, parse};

/// CFS bandwidth in force for one cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// CPU time per period; `None` if unlimited.
    pub quota: Option<Micros>,
    /// Length of the period; 100 ms by default.
    pub period: Micros,
}

impl Bandwidth {
    /// The knob that sets it.
    pub const KNOB: Knob = Knob::CfsQuota;
}

/// Open descriptors of node-wide files.
#[derive(Default)]
pub(crate) struct NodeFiles {
    proc: [Option<FileId>; NodeFile::COUNT],
    /// `memory.stat` of the memory hierarchy's root.
    pub(crate) root_stat: Option<FileId>,
    pub(crate) root_usage: Option<FileId>,
    pub(crate) marks: KeptMarks,
}

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnUse {
    /// CPU time since its start.
    pub cpu: Micros,
    /// Size of its address space.
    pub virtual_memory: Bytes,
    /// Memory that is resident.
    pub resident_memory: Bytes,
}

/// CPU time that a container used beyond its quota, as bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstCounters {
    /// Number of periods with a burst.
    pub nr_bursts: u64,
    /// Total CPU time of bursts.
    pub burst: Micros,
}

impl BurstCounters {
    /// Parses `cpu.stat`, whose unit on v1 is nanoseconds.
    fn of(text: &[u8]) -> Option<Self> {
        let [nr_bursts, micros, nanos] = parse::keyed(text, ["nr_bursts", "burst_usec", "burst_time"]);
        let burst = micros.or(nanos.map(|nanos| nanos / 1000)).map(Micros)?;
        Some(Self { nr_bursts: nr_bursts?, burst })
    }
}

/// A node-wide file below `/proc`.
#[derive(Clone, Copy)]
pub(crate) enum NodeFile {
    Stat,
    Meminfo,
    MinFree,
    ScaleFactor,
    CpuPressure,
    MemoryPressure,
    IoPressure,
    OwnStat,
}

impl NodeFile {
    const COUNT: usize = 8;

    fn place(self) -> (usize, &'static str) {
        match self {
            Self::Stat => (0, "stat"),
            Self::Meminfo => (1, "meminfo"),
            Self::MinFree => (2, "sys/vm/min_free_kbytes"),
            Self::ScaleFactor => (3, "sys/vm/watermark_scale_factor"),
            Self::CpuPressure => (4, "pressure/cpu"),
            Self::MemoryPressure => (5, "pressure/memory"),
            Self::IoPressure => (6, "pressure/io"),
            Self::OwnStat => (7, "self/stat"),
        }
    }
}

impl Host {
    /// CPU time and throttling of a container, including all cgroups below it. v1: `cpuacct.usage` and `cpu.stat`, in
    /// nanoseconds; v2: `cpu.stat`.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`], [`HostError::NotAttached`], [`HostError::Unsupported`] without the controller, and
    /// [`HostError::Parse`] if a counter is missing, as in a v2 cgroup without the cpu controller.
    pub fn cpu_counters(&mut self, id: ContainerId) -> Result<CpuCounters, HostError> {
        let length = self.read_file(Target::Container(id), CgroupFile::CpuStat)?;
        self.counters_of(id, length)
    }

    /// The same as [`Self::cpu_counters`], and the CPU time used in bursts beyond the quota; `None` if the kernel does
    /// not count it (before Linux 5.14).
    ///
    /// # Errors
    ///
    /// As [`Self::cpu_counters`].
    pub fn cpu_and_burst_counters(
        &mut self,
        id: ContainerId,
    ) -> Result<(CpuCounters, Option<BurstCounters>), HostError> {
        let length = self.read_file(Target::Container(id), CgroupFile::CpuStat)?;
        let bursts = BurstCounters::of(&self.buffer[..length]);
        Ok((self.counters_of(id, length)?, bursts))
    }

    /// Parses `cpu.stat`, which the caller has read, and on v1 reads the CPU time from another file.
    fn counters_of(&mut self, id: ContainerId, length: usize) -> Result<CpuCounters, HostError> {
        let target = Target::Container(id);
        let text = &self.buffer[..length];
        let unified_usage = self.hierarchies.version(Controller::Cpuacct) == Some(CgroupVersion::V2);
        if self.hierarchies.version(Controller::Cpu) == Some(CgroupVersion::V2) && unified_usage {
            let keys = ["usage_usec", "nr_periods", "nr_throttled", "throttled_usec"];
            let [Some(usage), Some(nr_periods), Some(nr_throttled), Some(throttled)] = parse::keyed(text, keys) else {
                return Err(self.garbled(target, CgroupFile::CpuStat, length, "the counters of usage and throttling"));
            };
            return Ok(CpuCounters { usage: Micros(usage), nr_periods, nr_throttled, throttled: Micros(throttled) });
        }
        let throttling = match self.hierarchies.version(Controller::Cpu) {
            Some(CgroupVersion::V2) => parse::keyed(text, ["nr_periods", "nr_throttled", "throttled_usec"]),
            _ => {
                let [periods, throttled, nanos] = parse::keyed(text, ["nr_periods", "nr_throttled", "throttled_time"]);
                [periods, throttled, nanos.map(|nanos| nanos / 1000)]
            }
        };
        let [Some(nr_periods), Some(nr_throttled), Some(throttled)] = throttling else {
            return Err(self.garbled(target, CgroupFile::CpuStat, length, "the counters of throttling"));
        };
        let length = self.read_file(target, CgroupFile::CpuUsage)?;
        let text = &self.buffer[..length];
        let usage = if unified_usage {
            parse::keyed(text, ["usage_usec"])[0]
        } else {
            parse::number(text).map(|nanos| nanos / 1000)
        };
        let Some(usage) = usage else {
            return Err(self.garbled(target, CgroupFile::CpuUsage, length, "the CPU time used"));
        };
        Ok(CpuCounters { usage: Micros(usage), nr_periods, nr_throttled, throttled: Micros(throttled) })
    }

    /// Quota and period of a cgroup.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`].
    pub fn bandwidth(&mut self, target: Target) -> Result<Bandwidth, HostError> {
        let file = CgroupFile::Knob(Knob::CfsQuota);
        let length = self.read_file(target, file)?;
        if self.hierarchies.version(Controller::Cpu) == Some(CgroupVersion::V2) {
            return match parse::cpu_max(&self.buffer[..length]) {
                Some((quota, period)) => Ok(Bandwidth { quota, period }),
                None => Err(self.garbled(target, file, length, "a quota and a period")),
            };
        }
        let Some(quota) = parse::cfs_quota(&self.buffer[..length]) else {
            return Err(self.garbled(target, file, length, "a quota"));
        };
        if let Some(period) = self.targets.get(&target).and_then(|attached| attached.period) {
            return Ok(Bandwidth { quota, period });
        }
        let length = self.read_file(target, CgroupFile::Period)?;
        let Some(period) = parse::number(&self.buffer[..length]).map(Micros) else {
            return Err(self.garbled(target, CgroupFile::Period, length, "a period"));
        };
        // The period rarely changes, so it is only read again after a detected write.
        if self.detects_writes()
            && let Some(attached) = self.targets.get_mut(&target)
        {
            attached.period = Some(period);
        }
        Ok(Bandwidth { quota, period })
    }

    /// Memory in use of a container, including all cgroups below it, and the number of its processes that the OOM
    /// killer ended. Does not read the composition of the memory, for which the kernel would sum the counters of all
    /// CPUs.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`].
    pub fn memory_in_use(&mut self, id: ContainerId) -> Result<(Bytes, u64), HostError> {
        let target = Target::Container(id);
        let usage = self.read_number(target, CgroupFile::MemoryUsage, "the memory in use")?;
        let unified = self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2);
        let length = self.read_file(target, if unified { CgroupFile::MemoryEvents } else { CgroupFile::MemoryOom })?;
        let [oom_kills] = parse::keyed(&self.buffer[..length], ["oom_kill"]);
        Ok((Bytes(usage), oom_kills.unwrap_or(0)))
    }

    /// Memory of a container, including all cgroups below it. v1 does not count throttling above `memory.high`, so the
    /// count is 0, as is `oom_kill` on kernels before 4.13.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`].
    pub fn memory_counters(&mut self, id: ContainerId) -> Result<MemoryCounters, HostError> {
        let target = Target::Container(id);
        let unified = self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2);
        let usage = self.read_number(target, CgroupFile::MemoryUsage, "the memory in use")?;
        let keys = if unified {
            ["anon", "file", "inactive_file"]
        } else {
            ["total_rss", "total_cache", "total_inactive_file"]
        };
        let length = self.read_file(target, CgroupFile::MemoryStat)?;
        let [Some(anon), Some(file), Some(inactive_file)] = parse::keyed(&self.buffer[..length], keys) else {
            return Err(self.garbled(
                target,
                CgroupFile::MemoryStat,
                length,
                "the sizes of anonymous memory and page cache",
            ));
        };
        let (high_events, max_events, oom_kills) = if unified {
            let length = self.read_file(target, CgroupFile::MemoryEvents)?;
            let [Some(high), Some(max), oom_kill] = parse::keyed(&self.buffer[..length], ["high", "max", "oom_kill"])
            else {
                return Err(self.garbled(target, CgroupFile::MemoryEvents, length, "the counts of events"));
            };
            (high, max, oom_kill.unwrap_or(0))
        } else {
            let failures = self.read_number(target, CgroupFile::MemoryFailures, "a count")?;
            let length = self.read_file(target, CgroupFile::MemoryOom)?;
            (0, failures, parse::keyed(&self.buffer[..length], ["oom_kill"])[0].unwrap_or(0))
        };
        Ok(MemoryCounters {
            usage: Bytes(usage),
            anon: Bytes(anon),
            file: Bytes(file),
            inactive_file: Bytes(inactive_file),
            high_events,
            max_events,
            oom_kills,
        })
    }

    /// Pressure stall totals of a container. A resource without a file counts as 0.
    ///
    /// # Errors
    ///
    /// As [`Host::cpu_counters`]; [`HostError::Unsupported`] if there is no pressure file at all, as on mainline v1, or
    /// if pressure is turned off.
    pub fn pressure_counters(&mut self, id: ContainerId) -> Result<PressureCounters, HostError> {
        let target = Target::Container(id);
        let mut there = None;
        let mut total = |file| match self.stall(target, file) {
            Ok(stall) => {
                there = Some(());
                Ok((stall, None))
            }
            Err(error @ HostError::Unsupported { .. }) => Ok((Stall::default(), Some(error))),
            Err(error) => Err(error),
        };
        let (cpu, missing) = total(CgroupFile::CpuPressure)?;
        let (memory, _) = total(CgroupFile::MemoryPressure)?;
        let (io, _) = total(CgroupFile::IoPressure)?;
        match (there, missing) {
            (None, Some(missing)) => Err(missing),
            _ => Ok(PressureCounters { cpu, memory, io }),
        }
    }

    pub(crate) fn stall(&mut self, target: Target, file: CgroupFile) -> Result<Stall, HostError> {
        let length = self.read_file(target, file)?;
        match parse::pressure(&self.buffer[..length]) {
            Some(stall) => Ok(stall),
            None => Err(self.garbled(target, file, length, "pressure totals")),
        }
    }

    /// Time that all CPUs except these were busy since boot, in sum: neither idle nor waiting for I/O.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] or [`HostError::Parse`] for `/proc/stat`.
    pub fn node_cpu_busy(&mut self, except: &[u32]) -> Result<Micros, HostError> {
        let length = self.read_node_file(NodeFile::Stat)?;
        let text = &self.buffer[..length];
        let micros_per_tick = 1_000_000 / self.backend.ticks_per_second().max(1);
        match parse::busy_ticks(text) {
            Some(ticks) => {
                let elsewhere = if except.is_empty() { 0 } else { parse::busy_ticks_of(text, except) };
                Ok(Micros(ticks.saturating_sub(elsewhere).saturating_mul(micros_per_tick)))
            }
            None => Err(garbled_node_file("/proc/stat", "the CPUs' times", text)),
        }
    }

    /// Physical memory, and the memory available without swapping (`MemAvailable`).
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] or [`HostError::Parse`] for `/proc/meminfo`.
    pub fn node_memory(&mut self) -> Result<(Bytes, Bytes), HostError> {
        let length = self.read_node_file(NodeFile::Meminfo)?;
        let text = &self.buffer[..length];
        parse::meminfo(text).ok_or_else(|| garbled_node_file("/proc/meminfo", "MemTotal and MemAvailable", text))
    }

    /// Number of logical CPUs that are online; at least 1.
    pub fn cpus(&self) -> u32 {
        self.node.cpus
    }

    /// Size of a memory page.
    pub fn page_size(&self) -> Bytes {
        Bytes(self.backend.page_size())
    }

    /// The CPUs that a cgroup's processes may run on, from `cpuset.cpus` on v1 and `cpuset.cpus.effective` on v2. The
    /// file is not kept open, since it is rarely read. `None` if it does not exist or is empty.
    ///
    /// # Errors
    ///
    /// [`HostError::NotAttached`], [`HostError::Read`], and [`HostError::Parse`] for an invalid list of CPUs.
    pub fn cpuset_cpus(&mut self, target: Target) -> Result<Option<Vec<u32>>, HostError> {
        let file = CgroupFile::Cpuset;
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?;
        let Some(tree) = self.tree_with(file) else { return Ok(None) };
        let Some(hierarchy) = self.hierarchies.list.get(tree) else { return Ok(None) };
        let opened = self.backend.open(Area::Cgroup(tree), &join(path, file.name(hierarchy.version)));
        let read = opened.and_then(|id| {
            let read = self.backend.read(id, &mut self.buffer);
            self.backend.close(id);
            read
        });
        // A list that fills the buffer may be incomplete.
        let read = read.and_then(|length| {
            if length < self.buffer.len() { Ok(length) } else { Err(io::ErrorKind::FileTooLarge.into()) }
        });
        let length = match read {
            Ok(length) => length,
            Err(source) if error::is_absent(&source) => return Ok(None),
            Err(source) => return Err(HostError::Read { path: self.file_path_or_name(target, file), source }),
        };
        match parse::numa::list(&self.buffer[..length]) {
            Some(cpus) if cpus.is_empty() => Ok(None),
            Some(cpus) => Ok(Some(cpus)),
            None => Err(self.garbled(target, file, length, "a list of CPUs")),
        }
    }

    /// Whether this is at least the number of all logical CPUs.
    pub fn has_cpus(&self, cpus: usize) -> bool {
        u32::try_from(cpus).is_ok_and(|cpus| cpus >= self.node.cpus)
    }

    /// The online CPUs.
    pub fn online_cpus(&self) -> Vec<u32> {
        let text = self.backend.read_once(Area::Sys, "devices/system/cpu/online").unwrap_or_default();
        parse::numa::list(&text).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| (0..self.node.cpus).collect())
    }

    pub(crate) fn read_number(
        &mut self,
        target: Target,
        file: CgroupFile,
        expected: &'static str,
    ) -> Result<u64, HostError> {
        let length = self.read_file(target, file)?;
        match parse::number(&self.buffer[..length]) {
            Some(number) => Ok(number),
            None => Err(self.garbled(target, file, length, expected)),
        }
    }

    pub(crate) fn garbled(&self, target: Target, file: CgroupFile, length: usize, expected: &'static str) -> HostError {
        let text = error::shortened(&self.buffer[..length]);
        HostError::Parse { path: self.file_path_or_name(target, file), expected, text }
    }

    pub(crate) fn read_node_file(&mut self, file: NodeFile) -> Result<usize, HostError> {
        let (place, path) = file.place();
        let read = self.read_kept(|files| &mut files.proc[place], Area::Proc, path);
        read.map_err(|source| HostError::Read { path: format!("/proc/{path}"), source })
    }

    /// CPU time and memory of this process. `None` if they cannot be read, as in the simulation.
    pub fn own_use(&mut self) -> Option<OwnUse> {
        let length = self.read_node_file(NodeFile::OwnStat).ok()?;
        let ticks_per_second = self.backend.ticks_per_second().max(1);
        parse::own_use(&self.buffer[..length], ticks_per_second, self.page_size().0)
    }

    /// Reads a node-wide file into the buffer, and keeps it open.
    pub(crate) fn read_kept(
        &mut self,
        kept: impl FnOnce(&mut NodeFiles) -> &mut Option<FileId>,
        area: Area,
        path: &str,
    ) -> io::Result<usize> {
        let kept = kept(&mut self.node_files);
        let id = match *kept {
            Some(id) => id,
            None => *kept.insert(self.backend.open(area, path)?),
        };
        self.backend.read(id, &mut self.buffer)
    }
}

pub(crate) fn garbled_node_file(path: &str, expected: &'static str, text: &[u8]) -> HostError {
    HostError::Parse { path: path.to_owned(), expected, text: error::shortened(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_counted_in_either_unit_or_not_at_all() {
        let counted = Some(BurstCounters { nr_bursts: 3, burst: Micros(45) });
        for (text, expected) in [
            ("usage_usec 9\nnr_bursts 3\nburst_usec 45\n", counted),
            ("nr_periods 9\nnr_bursts 3\nburst_time 45999\n", counted),
            ("nr_periods 9\nnr_throttled 0\nthrottled_usec 0\n", None),
            ("nr_bursts 3\n", None),
        ] {
            assert_eq!(BurstCounters::of(text.as_bytes()), expected, "{text}");
        }
    }
}
