//! Attached targets: the cgroup of each, identified by its inodes, and its open files.

use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;

use qosm_model::knob::{Knob, Target};
use qosm_model::unit::Micros;

use crate::backend::{Access, Area, Backend as _, FileId, join};
use crate::error::{self, HostError};
use crate::knob_table;
use crate::mounts::{CgroupVersion, Controller};
use crate::node_knobs::{NODE_IDENTITY, NODE_PATH};
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

    /// The controller of the file's hierarchy; `None` for a node-wide knob.
    pub(crate) fn controller(self) -> Option<Controller> {
        Some(match self {
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
            Self::Knob(knob) => return knob_table::row(knob).controller(),
        })
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
            // v1 has the effective lists since Linux 3.17.
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
enum FileState {
    /// Tick of the last read.
    Closed(u32),
    Open {
        file: FileId,
        /// Tick of the last read.
        read: u32,
    },
    /// The cgroup has no such file. The host tries again after [`READS_UNTIL_RETRY`] reads: on v2 the controller may be
    /// enabled later.
    Missing(u8),
}

/// A file that is read twice within this many ticks stays open, since it is likely to be read in every tick. Other
/// files are opened for each read, since a descriptor costs the kernel some kilobytes.
const REOPEN_TICKS: u32 = 4;
/// Files that were not read for this many ticks are closed, …
const IDLE_TICKS: u32 = 16;
/// … in one sweep every this many ticks.
const SWEEP_INTERVAL: u32 = 32;
/// The first tick, late enough that no file counts as recently read.
pub(crate) const FIRST_TICK: u32 = REOPEN_TICKS + 1;

/// Number of reads until a missing file is tried again.
const READS_UNTIL_RETRY: u8 = 64;

/// A target's cgroup.
pub(crate) struct Attached {
    pub(crate) path: String,
    /// Inode of the directory in each hierarchy; 0 if it does not exist there.
    inodes: Vec<u64>,
    files: [FileState; FILES],
    /// The CFS period on v1, cached while writes are detected.
    pub(crate) period: Option<Micros>,
}

impl Attached {
    /// Inode of its directory in a hierarchy; 0 if it does not exist there.
    pub(crate) fn inode(&self, tree: usize) -> u64 {
        self.inodes.get(tree).copied().unwrap_or(0)
    }
}

/// The directories of a cgroup: hierarchy and inode of each.
fn directories(inodes: &[u64]) -> impl Iterator<Item = (usize, u64)> {
    inodes.iter().copied().enumerate().filter(|&(_, inode)| inode != 0)
}

/// A path without leading, trailing and repeated slashes.
///
/// # Errors
///
/// [`HostError::Path`] for the root itself, which no target may be, and for `.` and `..`.
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
    /// Attaches a target to a cgroup. The node has no cgroup, and is always attached. A target's files are opened on
    /// demand and stay open while they are read in each tick (see [`Host::begin_tick`]). A repeated call with the same
    /// cgroup changes nothing; with another cgroup, or one that was removed and created again, the target moves.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`] if no hierarchy has the cgroup, [`HostError::Read`] if it cannot be read,
    /// [`HostError::Path`], and [`HostError::Taken`] while another target is attached to it: a cgroup has only one
    /// target, whichever path leads to it.
    pub fn attach(&mut self, target: Target, path: &str) -> Result<(), HostError> {
        if target == Target::Node {
            return Ok(());
        }
        let path = clean(path)?;
        let mut unreadable = None;
        let inodes: Vec<u64> = (0..self.hierarchies.list.len())
            .map(|tree| match self.backend.inode(Area::Cgroup(tree), &path) {
                Ok(inode) => inode,
                Err(source) => {
                    if !error::is_absent(&source) {
                        unreadable = Some(HostError::Read { path: self.directory_path(tree, &path), source });
                    }
                    0
                }
            })
            .collect();
        if self.trees.iter().all(|&tree| inodes[tree] == 0) {
            // A failed read does not mean that the cgroup is gone.
            return Err(unreadable.unwrap_or(HostError::Gone { path }));
        }
        if self.targets.get(&target).is_some_and(|now| now.path == path && now.inodes == inodes) {
            return Ok(());
        }
        if let Some(by) = self.attached_to(&inodes).filter(|&by| by != target) {
            return Err(HostError::Taken { path, by });
        }
        self.detach(target);
        self.by_inode.extend(directories(&inodes).map(|directory| (directory, target)));
        if let Some(alarms) = &mut self.alarms {
            alarms.has_moved = true;
        }
        self.by_path.insert(path.clone(), target);
        self.targets
            .insert(target, Box::new(Attached { path, inodes, files: [FileState::Closed(0); FILES], period: None }));
        self.watch_target(target);
        self.take_pending(target);
        Ok(())
    }

    /// Closes a target's files and detaches it. A target that is not attached is no error.
    pub fn detach(&mut self, target: Target) {
        self.close_files(target);
        self.unwatch_target(target);
        self.drop_software_watermarks(target);
        if let Some(attached) = self.targets.remove(&target) {
            if self.by_path.get(&attached.path) == Some(&target) {
                self.by_path.remove(&attached.path);
            }
            for directory in directories(&attached.inodes) {
                if self.by_inode.get(&directory) == Some(&target) {
                    self.by_inode.remove(&directory);
                }
            }
        }
        self.write_backoff.forget(target);
        self.forget_migration(target);
    }

    /// The target that is attached to one of these directories. A removed directory whose inode was reused does not count.
    fn attached_to(&self, inodes: &[u64]) -> Option<Target> {
        directories(inodes).find_map(|directory| {
            let by = *self.by_inode.get(&directory)?;
            self.is_same(by, directory.0).then_some(by)
        })
    }

    /// The cgroup of a target, relative to each hierarchy's root; `None` if it is not attached. For the node, [`NODE_PATH`].
    pub fn attached_path(&self, target: Target) -> Option<&str> {
        if target == Target::Node {
            return Some(NODE_PATH);
        }
        self.targets.get(&target).map(|attached| attached.path.as_str())
    }

    /// The target that was last attached to a cgroup; `None` if there is none.
    pub fn attached_at(&self, path: &str) -> Option<Target> {
        if path == NODE_PATH {
            return Some(Target::Node);
        }
        self.by_path.get(path).copied()
    }

    /// Distinguishes the target's cgroup from earlier and later cgroups with the same path: the inode of its directory
    /// in the first hierarchy that has it. `None` if the target is not attached.
    pub fn identity(&self, target: Target) -> Option<u64> {
        if target == Target::Node {
            return Some(NODE_IDENTITY);
        }
        let attached = self.targets.get(&target)?;
        self.trees.iter().map(|&tree| attached.inodes[tree]).find(|&inode| inode != 0)
    }

    pub(crate) fn close_files(&mut self, target: Target) {
        let Some(attached) = self.targets.get_mut(&target) else { return };
        for kept in &mut attached.files {
            if let FileState::Open { file, .. } = std::mem::replace(kept, FileState::Closed(0)) {
                self.backend.close(file);
                self.open_file_count -= 1;
            }
        }
    }

    /// Closes files that were not read for a while.
    pub(crate) fn close_idle_files(&mut self) {
        if !self.tick.is_multiple_of(SWEEP_INTERVAL) {
            return;
        }
        for attached in self.targets.values_mut() {
            for kept in &mut attached.files {
                if let FileState::Open { file, read } = *kept
                    && self.tick - read > IDLE_TICKS
                {
                    *kept = FileState::Closed(read);
                    self.backend.close(file);
                    self.open_file_count -= 1;
                }
            }
        }
    }

    /// Number of cgroup files that are open at present.
    pub fn open_files(&self) -> usize {
        self.open_file_count
    }

    /// Reads a target's file into the buffer and returns its length. The path of all measurements: one system call on
    /// an open descriptor.
    pub(crate) fn read_file(&mut self, target: Target, file: CgroupFile) -> Result<usize, HostError> {
        let Some(attached) = self.targets.get_mut(&target) else { return Err(HostError::NotAttached { target }) };
        match &mut attached.files[file.index()] {
            FileState::Open { file: id, read } => {
                *read = self.tick;
                let id = *id;
                self.read_open(target, file, id)
            }
            FileState::Missing(asks) if *asks > 0 => {
                *asks -= 1;
                Err(self.missing(target, file))
            }
            _ => self.open_and_read(target, file),
        }
    }

    /// An open file of a target, for another thread to read: the host's open descriptor, or a new one if the host keeps
    /// no more files open. `None` if the file cannot be read.
    pub(crate) fn shared_file(&mut self, target: Target, file: CgroupFile) -> Option<Arc<File>> {
        // A file that is read twice stays open, so the thread shares the descriptor with the measurements.
        self.read_file(target, file).and_then(|_| self.read_file(target, file)).ok()?;
        let attached = self.targets.get(&target)?;
        if let Some(FileState::Open { file, .. }) = attached.files.get(file.index()) {
            return self.backend.share(*file);
        }
        let tree = self.tree_with(file)?;
        let path = join(&attached.path, file.name(self.hierarchies.list.get(tree)?.version));
        self.backend.handle(Area::Cgroup(tree), &path, Access::Read).ok().map(Arc::new)
    }

    fn read_open(&mut self, target: Target, file: CgroupFile, id: FileId) -> Result<usize, HostError> {
        const MAX: usize = 1 << 20;
        loop {
            match self.backend.read(id, &mut self.buffer) {
                Ok(length) if length == self.buffer.len() && length < MAX => {
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
        let is_frequent =
            matches!(attached.files[file.index()], FileState::Closed(read) if self.tick - read <= REOPEN_TICKS);
        let Some(place) = self.tree_with(file) else { return Err(self.missing(target, file)) };
        // Mainline v1 has no pressure files; in systemd's hybrid layout, the v2 tree has them.
        let elsewhere = self.hierarchies.unified().filter(|&unified| file.is_pressure() && unified != place);
        for tree in [Some(place), elsewhere].into_iter().flatten() {
            let name = file.name(self.hierarchies.list[tree].version);
            match self.backend.open(Area::Cgroup(tree), &join(&path, name)) {
                Ok(id) => {
                    // On cgroup v1 a kubelet creates the directories one after the other; the directory in systemd's v2
                    // tree, which only provides pressure, may appear after the target was attached.
                    if !self.is_same(target, tree) && !self.lacks_directory(target, tree) {
                        self.backend.close(id);
                        return Err(HostError::Gone { path });
                    }
                    if is_frequent && self.open_file_count < self.file_budget {
                        self.open_file_count += 1;
                        self.keep_open(target, file, FileState::Open { file: id, read: self.tick });
                        return self.read_open(target, file, id);
                    }
                    self.keep_open(target, file, FileState::Closed(self.tick));
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
        self.keep_open(target, file, FileState::Missing(READS_UNTIL_RETRY));
        Err(self.missing(target, file))
    }

    fn keep_open(&mut self, target: Target, file: CgroupFile, kept: FileState) {
        if let Some(attached) = self.targets.get_mut(&target) {
            attached.files[file.index()] = kept;
        }
    }

    /// Whether the directory in a hierarchy is still the one that was attached.
    pub(crate) fn is_same(&self, target: Target, tree: usize) -> bool {
        let Some(attached) = self.targets.get(&target) else { return false };
        match self.backend.inode(Area::Cgroup(tree), &attached.path) {
            Ok(inode) => inode == attached.inodes[tree],
            Err(source) => attached.inodes[tree] != 0 && !error::is_absent(&source),
        }
    }

    /// Whether the target had no directory in this hierarchy when it was attached, while its directory in another hierarchy still exists.
    fn lacks_directory(&self, target: Target, tree: usize) -> bool {
        let Some(attached) = self.targets.get(&target) else { return false };
        attached.inodes[tree] == 0
            && self.trees.iter().any(|&tree| attached.inodes[tree] != 0 && self.is_same(target, tree))
    }

    /// The hierarchy of a file; `None` if its controller is not mounted.
    pub(crate) fn tree_with(&self, file: CgroupFile) -> Option<usize> {
        self.hierarchies.of(file.controller()?)
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
        let Some(version) = file.controller().and_then(|controller| self.hierarchies.version(controller)) else {
            let what = file.name(CgroupVersion::V2).to_owned();
            let controller = file.controller().map_or("", Controller::as_str);
            let mut why = format!("the controller `{controller}` is not mounted");
            if let CgroupFile::Knob(knob) = file {
                why = knob_table::row(knob).lacking(&why);
            }
            return HostError::Unsupported { what, why };
        };
        let place = self.attached_path(target).unwrap_or_default();
        let mut why = format!("there is no such file in cgroup `{place}`");
        if let CgroupFile::Knob(knob) = file {
            let row = knob_table::row(knob);
            why = row.lacking(&why);
        }
        HostError::Unsupported { what: file.name(version).to_owned(), why }
    }

    /// The absolute path of a target's file; `None` if the target is not attached, or the controller is not mounted.
    pub(crate) fn file_path(&self, target: Target, file: CgroupFile) -> Option<String> {
        if let CgroupFile::Knob(knob) = file
            && target == Target::Node
        {
            return self.node_path(knob_table::row(knob));
        }
        let tree = self.tree_with(file)?;
        let attached = self.targets.get(&target)?;
        let name = file.name(self.hierarchies.list[tree].version);
        Some(self.directory_path(tree, &join(&attached.path, name)))
    }

    pub(crate) fn file_path_or_name(&self, target: Target, file: CgroupFile) -> String {
        self.file_path(target, file).unwrap_or_else(|| format!("{CGROUP_DIRECTORY}/…/{}", file.name(CgroupVersion::V2)))
    }
}
