//! Measurements: the kernel's running totals. Callers compute the differences.

use std::io;

use qosm_model::column::{PressureCounters, Stall};
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
