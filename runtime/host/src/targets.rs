//! Attached targets: the cgroup of each, known by its inodes, and the files of it that are kept open.

use rustix::io::Errno;

use qosm_model::knob::{Knob, Target};

use crate::backend::{Area, Backend as _, FileId, join};
use crate::error::{self, HostError};
use crate::knob_table;
use crate::mounts::{CgroupVersion, Controller};
use crate::{CGROUP_DIRECTORY, Host};

/// A file of a cgroup that the host reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CgroupFile {
    CpuStat,
    CpuUsage,
    Period,
    MemoryUsage,
    MemoryStat,
    MemoryEvents,
    MemoryFailures,
    MemoryOom,
    MemoryLimit,
    CpuPressure,
    MemoryPressure,
    IoPressure,
    Cpuset,
    EffectiveCpus,
    Mems,
    EffectiveMems,
    NumaStat,
    Knob(Knob),
}

const SIGNAL_FILES: usize = 17;
const FILES: usize = SIGNAL_FILES + Knob::ALL.len();

impl CgroupFile {
    fn index(self) -> usize {
        match self {
            Self::CpuStat => 0,
            Self::CpuUsage => 1,
            Self::Period => 2,
            Self::MemoryUsage => 3,
            Self::MemoryStat => 4,
            Self::MemoryEvents => 5,
            Self::MemoryFailures => 6,
            Self::MemoryOom => 7,
            Self::MemoryLimit => 8,
            Self::CpuPressure => 9,
            Self::MemoryPressure => 10,
            Self::IoPressure => 11,
            Self::Cpuset => 12,
            Self::EffectiveCpus => 13,
            Self::Mems => 14,
            Self::EffectiveMems => 15,
            Self::NumaStat => 16,
            Self::Knob(knob) => SIGNAL_FILES + knob_table::index(knob),
        }
    }

    pub(crate) fn controller(self) -> Controller {
        match self {
            Self::CpuStat | Self::Period => Controller::Cpu,
            Self::CpuUsage | Self::CpuPressure | Self::MemoryPressure | Self::IoPressure => Controller::Cpuacct,
            Self::Cpuset | Self::EffectiveCpus | Self::Mems | Self::EffectiveMems => Controller::Cpuset,
            Self::MemoryUsage
            | Self::MemoryStat
            | Self::MemoryEvents
            | Self::MemoryFailures
            | Self::MemoryOom
            | Self::MemoryLimit
            | Self::NumaStat => Controller::Memory,
            Self::Knob(knob) => knob_table::row(knob).controller,
        }
    }

    pub(crate) fn name(self, version: CgroupVersion) -> &'static str {
        let (v1, v2) = match self {
            Self::CpuStat => ("cpu.stat", "cpu.stat"),
            Self::CpuUsage => ("cpuacct.usage", "cpu.stat"),
            Self::Period => ("cpu.cfs_period_us", "cpu.max"),
            Self::MemoryUsage => ("memory.usage_in_bytes", "memory.current"),
            Self::MemoryStat => ("memory.stat", "memory.stat"),
            Self::MemoryEvents => ("memory.events", "memory.events"),
            Self::MemoryFailures => ("memory.failcnt", "memory.events"),
            Self::MemoryOom => ("memory.oom_control", "memory.events"),
            Self::MemoryLimit => ("memory.limit_in_bytes", "memory.max"),
            Self::CpuPressure => ("cpu.pressure", "cpu.pressure"),
            Self::MemoryPressure => ("memory.pressure", "memory.pressure"),
            Self::IoPressure => ("io.pressure", "io.pressure"),
            Self::Cpuset => ("cpuset.cpus", "cpuset.cpus.effective"),
            // v1 has the effective ones since Linux 3.17.
            Self::EffectiveCpus => ("cpuset.effective_cpus", "cpuset.cpus.effective"),
            Self::Mems => ("cpuset.mems", "cpuset.mems.effective"),
            Self::EffectiveMems => ("cpuset.effective_mems", "cpuset.mems.effective"),
            Self::NumaStat => ("memory.numa_stat", "memory.numa_stat"),
            Self::Knob(knob) => return knob_table::row(knob).file(version),
        };
        if version == CgroupVersion::V1 { v1 } else { v2 }
    }

    fn is_pressure(self) -> bool {
        matches!(self, Self::CpuPressure | Self::MemoryPressure | Self::IoPressure)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    No,
    Open(FileId),
    /// The cgroup has no such file. Looked for again after so many asks: on v2 a controller may be turned on later.
    Missing(u8),
}

/// Asks until a missing file is looked for again.
const ASKS_UNTIL_RETRY: u8 = 64;

/// A target's cgroup.
pub(crate) struct Attached {
    pub(crate) path: String,
    /// Inode of the directory in each hierarchy; 0 = not there.
    inodes: Vec<u64>,
    files: [Kept; FILES],
}

impl Attached {
    /// Inode of its directory in a hierarchy; 0 = not there.
    pub(crate) fn inode(&self, tree: usize) -> u64 {
        self.inodes.get(tree).copied().unwrap_or(0)
    }
}

/// A path without slashes around it.
///
/// # Errors
///
/// [`HostError::Path`] for the root itself, which is nobody's to bound, and for `.` and `..`.
pub(crate) fn clean(path: &str) -> Result<String, HostError> {
    let refused = |why| HostError::Path { path: path.to_owned(), why };
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Err(refused("it is the root of the hierarchy"));
    }
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Err(refused("`.` and `..` are not taken"));
    }
    Ok(parts.join("/"))
}

impl Host {
    /// Binds a target to a cgroup. Its files are opened when they are first needed and then kept. Doing it again with the same
    /// cgroup changes nothing; with another, or with one that was removed and made anew, the target moves.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`] when there is no such cgroup in any hierarchy, [`HostError::Path`].
    pub fn attach(&mut self, target: Target, path: &str) -> Result<(), HostError> {
        let path = clean(path)?;
        let inodes: Vec<u64> = (0..self.hierarchies.list.len())
            .map(|tree| self.backend.inode(Area::Cgroup(tree), &path).unwrap_or(0))
            .collect();
        if self.trees.iter().all(|&tree| inodes[tree] == 0) {
            return Err(HostError::Gone { path });
        }
        if self.targets.get(&target).is_some_and(|now| now.path == path && now.inodes == inodes) {
            return Ok(());
        }
        self.detach(target);
        self.by_path.insert(path.clone(), target);
        self.targets.insert(target, Box::new(Attached { path, inodes, files: [Kept::No; FILES] }));
        Ok(())
    }

    /// Closes a target's files and forgets it. A target that is not attached is fine.
    pub fn detach(&mut self, target: Target) {
        self.close_files(target);
        self.end_emulation(target);
        if let Some(attached) = self.targets.remove(&target)
            && self.by_path.get(&attached.path) == Some(&target)
        {
            self.by_path.remove(&attached.path);
        }
        self.parking.forget(target);
        self.forget_migration(target);
    }

    /// The cgroup of a target, relative to each hierarchy's root; `None` when it is not attached.
    pub fn attached_path(&self, target: Target) -> Option<&str> {
        self.targets.get(&target).map(|attached| attached.path.as_str())
    }

    /// What tells the target's cgroup from another that once had, or will have, the same path: the inode of its directory in the
    /// first hierarchy that has it. `None` when it is not attached.
    pub fn identity(&self, target: Target) -> Option<u64> {
        let attached = self.targets.get(&target)?;
        self.trees.iter().map(|&tree| attached.inodes[tree]).find(|&inode| inode != 0)
    }

    pub(crate) fn close_files(&mut self, target: Target) {
        let Some(attached) = self.targets.get_mut(&target) else { return };
        for kept in &mut attached.files {
            if let Kept::Open(file) = std::mem::replace(kept, Kept::No) {
                self.backend.close(file);
                self.kept_files -= 1;
            }
        }
    }

    /// Reads a target's file into the buffer and returns its length. The way that measurements take: one system call on a kept
    /// descriptor.
    pub(crate) fn read_file(&mut self, target: Target, file: CgroupFile) -> Result<usize, HostError> {
        let Some(attached) = self.targets.get_mut(&target) else { return Err(HostError::NotAttached { target }) };
        match &mut attached.files[file.index()] {
            Kept::Open(id) => {
                let id = *id;
                self.read_open(target, file, id)
            }
            Kept::Missing(asks) if *asks > 0 => {
                *asks -= 1;
                Err(self.missing(target, file))
            }
            _ => self.open_and_read(target, file),
        }
    }

    fn read_open(&mut self, target: Target, file: CgroupFile, id: FileId) -> Result<usize, HostError> {
        const MOST: usize = 1 << 20;
        loop {
            match self.backend.read(id, &mut self.buffer) {
                Ok(length) if length == self.buffer.len() && length < MOST => {
                    self.buffer.resize(length * 2, 0);
                }
                Ok(length) => return Ok(length),
                Err(source) => return Err(self.unreadable(target, file, source)),
            }
        }
    }

    fn open_and_read(&mut self, target: Target, file: CgroupFile) -> Result<usize, HostError> {
        let Some(attached) = self.targets.get(&target) else { return Err(HostError::NotAttached { target }) };
        let path = attached.path.clone();
        let Some(place) = self.hierarchies.of(file.controller()) else { return Err(self.missing(target, file)) };
        // Mainline v1 has no pressure files; systemd's hybrid layout has them in its v2 tree.
        let elsewhere = self.hierarchies.unified().filter(|&unified| file.is_pressure() && unified != place);
        for tree in [Some(place), elsewhere].into_iter().flatten() {
            let name = file.name(self.hierarchies.list[tree].version);
            match self.backend.open(Area::Cgroup(tree), &join(&path, name)) {
                Ok(id) => {
                    if !self.is_same(target, tree) {
                        self.backend.close(id);
                        return Err(HostError::Gone { path });
                    }
                    if self.kept_files < self.file_budget {
                        self.kept_files += 1;
                        self.keep(target, file, Kept::Open(id));
                        return self.read_open(target, file, id);
                    }
                    let result = self.read_open(target, file, id);
                    self.backend.close(id);
                    return result;
                }
                Err(source) if error::is_absent(&source) => {}
                Err(source) => return Err(self.unreadable(target, file, source)),
            }
        }
        if !self.is_same(target, place) && !self.lacks_directory(target, place) {
            return Err(HostError::Gone { path });
        }
        self.keep(target, file, Kept::Missing(ASKS_UNTIL_RETRY));
        Err(self.missing(target, file))
    }

    fn keep(&mut self, target: Target, file: CgroupFile, kept: Kept) {
        if let Some(attached) = self.targets.get_mut(&target) {
            attached.files[file.index()] = kept;
        }
    }

    /// Whether the directory in a hierarchy is still the one that was attached.
    pub(crate) fn is_same(&self, target: Target, tree: usize) -> bool {
        let Some(attached) = self.targets.get(&target) else { return false };
        self.backend.inode(Area::Cgroup(tree), &attached.path).is_ok_and(|inode| inode == attached.inodes[tree])
    }

    /// Whether the target had no directory in this hierarchy to begin with, while it is still there in another.
    fn lacks_directory(&self, target: Target, tree: usize) -> bool {
        let Some(attached) = self.targets.get(&target) else { return false };
        attached.inodes[tree] == 0
            && self.trees.iter().any(|&tree| attached.inodes[tree] != 0 && self.is_same(target, tree))
    }

    fn unreadable(&mut self, target: Target, file: CgroupFile, source: std::io::Error) -> HostError {
        if error::is_absent(&source) {
            self.close_files(target);
            return HostError::Gone { path: self.attached_path(target).unwrap_or_default().to_owned() };
        }
        if error::is(&source, Errno::OPNOTSUPP) {
            let path = self.file_path(target, file).unwrap_or_default();
            return HostError::Unsupported { what: path, why: "it is turned off in this kernel".to_owned() };
        }
        HostError::Read { path: self.file_path(target, file).unwrap_or_default(), source }
    }

    fn missing(&self, target: Target, file: CgroupFile) -> HostError {
        let controller = file.controller();
        let Some(version) = self.hierarchies.version(controller) else {
            let what = file.name(CgroupVersion::V2).to_owned();
            return HostError::Unsupported { what, why: format!("the controller `{controller}` is not mounted") };
        };
        let place = self.attached_path(target).unwrap_or_default();
        let mut why = format!("there is no such file in cgroup `{place}`");
        if let CgroupFile::Knob(knob) = file {
            let row = knob_table::row(knob);
            why = row.lacking(&why);
        }
        HostError::Unsupported { what: file.name(version).to_owned(), why }
    }

    /// The absolute name of a target's file; `None` when it is not attached, or its controller is not mounted.
    pub(crate) fn file_path(&self, target: Target, file: CgroupFile) -> Option<String> {
        let tree = self.hierarchies.of(file.controller())?;
        let attached = self.targets.get(&target)?;
        let name = file.name(self.hierarchies.list[tree].version);
        Some(self.directory_path(tree, &join(&attached.path, name)))
    }

    pub(crate) fn file_path_or_name(&self, target: Target, file: CgroupFile) -> String {
        self.file_path(target, file).unwrap_or_else(|| format!("{CGROUP_DIRECTORY}/…/{}", file.name(CgroupVersion::V2)))
    }
}
