//! The file system operations that the host needs. Two backends implement them: the kernel, over directories that the
//! caller passes in, and a simulation in memory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use qosm_model::unit::Bytes;

use crate::core_scheduling::helper::Hold;
use crate::core_scheduling::note::Note;
use crate::kernel::Kernel;
use crate::migration::{Job, Run};
use crate::mounts::Hierarchy;
use crate::processes::Ending;
use crate::reclaim::Watermarks;
use crate::reclaim::reclaimer::{GroupId, ReclaimReport};
use crate::simulated::Simulation;

/// One of the trees that the host sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Area {
    /// A cgroup hierarchy, by its index in the list of hierarchies.
    Cgroup(usize),
    /// `/proc`.
    Proc,
    /// `/sys`.
    Sys,
    /// The kubelet's folder.
    Kubelet,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId(u32);

impl FileId {
    /// `None` when the index exceeds `u32`: more files than any process can have.
    pub(crate) fn of(place: usize) -> Option<Self> {
        u32::try_from(place).ok().map(Self)
    }

    /// Its index among the open files.
    pub(crate) fn place(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
    /// The path is a directory.
    Directory,
}

/// Result of a write that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowWrite {
    /// The write has ended.
    Done,
    /// In progress; [`Backend::finished`] returns its ticket.
    Queued,
    /// Refused: too many slow writes are in progress.
    Full,
}

/// What the kernel does when memory in use exceeds a newly written bound and cannot be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// `memory.high`: slows allocations down.
    Throttles,
    /// `memory.limit_in_bytes`: refuses the write (`EBUSY`).
    Refuses,
    /// `memory.max`: ends processes.
    Kills,
}

/// A bound that falls below the memory in use.
#[derive(Clone, Debug)]
pub(crate) struct Lowering {
    /// The cgroup.
    pub(crate) path: String,
    /// Name of the file with the current usage.
    pub(crate) usage: &'static str,
    /// The final bound.
    pub(crate) to: Bytes,
    /// What the kernel does with memory that it cannot reclaim.
    pub(crate) beyond: Beyond,
}

/// A file system. Paths are relative to their area; an empty path is the area's root.
pub(crate) trait Backend {
    /// Device of the cgroup directory, to find its mount.
    fn cgroup_device(&self) -> Option<(u32, u32)>;
    /// Makes the hierarchies usable as areas, in this order.
    fn bind(&mut self, hierarchies: &[Hierarchy]) -> io::Result<()>;
    /// Reads a whole file once.
    fn read_once(&self, area: Area, path: &str) -> io::Result<Vec<u8>>;
    /// Names of the directories in a directory, sorted.
    fn directories(&self, area: Area, path: &str) -> io::Result<Vec<String>>;
    /// Names of all entries of a directory, sorted: files, directories and links.
    fn entries(&self, area: Area, path: &str) -> io::Result<Vec<String>>;
    /// The inode of a directory.
    fn inode(&self, area: Area, path: &str) -> io::Result<u64>;
    /// Whether the path of a directory contains a symbolic link. Cgroup file systems have none; a file system mounted over them may.
    fn is_linked(&self, area: Area, path: &str) -> bool;
    /// Creates one directory.
    fn make(&mut self, area: Area, path: &str) -> io::Result<()>;
    /// Removes one directory.
    fn remove(&mut self, area: Area, path: &str) -> io::Result<()>;
    /// Opens a file for reading; it stays open until [`Backend::close`].
    fn open(&mut self, area: Area, path: &str) -> io::Result<FileId>;
    /// Closes a file.
    fn close(&mut self, file: FileId);
    /// Reads an open file from its beginning.
    fn read(&mut self, file: FileId, buffer: &mut [u8]) -> io::Result<usize>;
    /// Shares an open file with another thread; it stays open as long as either side holds it. `None` in the simulation.
    fn share(&self, file: FileId) -> Option<Arc<File>>;
    /// Writes a file in one call.
    fn write(&mut self, area: Area, path: &str, text: &str) -> io::Result<()>;
    /// Writes a file on another thread, since the write may take long; with a lowering, in steps.
    fn write_slow(
        &mut self,
        area: Area,
        path: &str,
        text: &str,
        lowering: Option<Lowering>,
        ticket: u64,
    ) -> io::Result<SlowWrite>;
    /// The slow writes that ended since the last call.
    fn finished(&mut self) -> Vec<(u64, io::Result<()>)>;
    /// Opens a file or directory to wait for its events.
    fn handle(&self, area: Area, path: &str, access: Access) -> io::Result<File>;
    /// Starts moving pages on another thread; `run` receives the progress.
    fn migrate(&mut self, job: Job, run: Arc<Run>) -> io::Result<()>;
    /// Keeps a cgroup below its watermark from now on; replaces the watermarks of a cgroup that has some.
    fn set_watermarks(&mut self, area: Area, path: &str, group: GroupId, watermarks: Watermarks) -> io::Result<()>;
    /// Stops watermark reclaim for a group. A group without watermarks is no error.
    fn remove_watermarks(&mut self, group: GroupId);
    /// Progress of watermark reclaim; `None` without it.
    fn reclaim_report(&self, group: GroupId) -> Option<ReclaimReport>;
    /// Size of a memory page in bytes.
    fn page_size(&self) -> u64;
    /// `USER_HZ`, the unit of `/proc/stat`.
    fn ticks_per_second(&self) -> u64;
    /// Sends a signal to a process of a cgroup. A process that has ended or left the cgroup is no error.
    fn signal(&mut self, area: Area, cgroup: &str, pid: u32, ending: Ending) -> io::Result<()>;
    /// A note about core scheduling on a cgroup; `None` if the cgroup has none.
    fn note(&self, area: Area, path: &str, note: Note) -> io::Result<Option<String>>;
    /// Writes a note; `None` removes it.
    fn set_note(&mut self, area: Area, path: &str, note: Note, text: Option<&str>) -> io::Result<()>;
    /// The core scheduling cookie of a process; 0 if it has none.
    fn cookie_of(&self, pid: u32) -> io::Result<u64>;
    /// Makes a helper thread hold a cookie, and returns the cookie.
    fn hold_cookie(&mut self, hold: Hold) -> io::Result<u64>;
    /// Gives all threads of a process the held cookie.
    fn push_cookie(&mut self, pid: u32) -> io::Result<()>;
    /// Ends the helper thread, and with it the held cookie.
    fn drop_cookie(&mut self);
    /// Number of files that may be kept open.
    fn file_budget(&self) -> usize;
    /// PID of this process, for the name of the scratch cgroup.
    fn pid(&self) -> u32;
}

/// An enum of both backends, so that reads on the hot path need no dynamic dispatch.
pub(crate) enum AnyBackend {
    Kernel(Kernel),
    /// Boxed: a simulation is several times as large as a kernel.
    Simulated(Box<Simulation>),
}

macro_rules! either {
    ($any:expr, $backend:ident => $call:expr) => {
        match $any {
            AnyBackend::Kernel($backend) => $call,
            AnyBackend::Simulated($backend) => $call,
        }
    };
}

impl Backend for AnyBackend {
    fn cgroup_device(&self) -> Option<(u32, u32)> {
        either!(self, backend => backend.cgroup_device())
    }
    fn bind(&mut self, hierarchies: &[Hierarchy]) -> io::Result<()> {
        either!(self, backend => backend.bind(hierarchies))
    }
    fn read_once(&self, area: Area, path: &str) -> io::Result<Vec<u8>> {
        either!(self, backend => backend.read_once(area, path))
    }
    fn directories(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        either!(self, backend => backend.directories(area, path))
    }
    fn entries(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        either!(self, backend => backend.entries(area, path))
    }
    fn is_linked(&self, area: Area, path: &str) -> bool {
        either!(self, backend => backend.is_linked(area, path))
    }
    fn inode(&self, area: Area, path: &str) -> io::Result<u64> {
        either!(self, backend => backend.inode(area, path))
    }
    fn make(&mut self, area: Area, path: &str) -> io::Result<()> {
        either!(self, backend => backend.make(area, path))
    }
    fn remove(&mut self, area: Area, path: &str) -> io::Result<()> {
        either!(self, backend => backend.remove(area, path))
    }
    fn open(&mut self, area: Area, path: &str) -> io::Result<FileId> {
        either!(self, backend => backend.open(area, path))
    }
    fn close(&mut self, file: FileId) {
        either!(self, backend => backend.close(file))
    }
    fn read(&mut self, file: FileId, buffer: &mut [u8]) -> io::Result<usize> {
        either!(self, backend => backend.read(file, buffer))
    }
    fn share(&self, file: FileId) -> Option<Arc<File>> {
        either!(self, backend => backend.share(file))
    }
    fn write(&mut self, area: Area, path: &str, text: &str) -> io::Result<()> {
        either!(self, backend => backend.write(area, path, text))
    }
    fn write_slow(
        &mut self,
        area: Area,
        path: &str,
        text: &str,
        lowering: Option<Lowering>,
        ticket: u64,
    ) -> io::Result<SlowWrite> {
        either!(self, backend => backend.write_slow(area, path, text, lowering, ticket))
    }
    fn finished(&mut self) -> Vec<(u64, io::Result<()>)> {
        either!(self, backend => backend.finished())
    }
    fn handle(&self, area: Area, path: &str, access: Access) -> io::Result<File> {
        either!(self, backend => backend.handle(area, path, access))
    }
    fn migrate(&mut self, job: Job, run: Arc<Run>) -> io::Result<()> {
        either!(self, backend => backend.migrate(job, run))
    }
    fn set_watermarks(&mut self, area: Area, path: &str, group: GroupId, watermarks: Watermarks) -> io::Result<()> {
        either!(self, backend => backend.set_watermarks(area, path, group, watermarks))
    }
    fn remove_watermarks(&mut self, group: GroupId) {
        either!(self, backend => backend.remove_watermarks(group));
    }
    fn reclaim_report(&self, group: GroupId) -> Option<ReclaimReport> {
        either!(self, backend => backend.reclaim_report(group))
    }
    fn page_size(&self) -> u64 {
        either!(self, backend => backend.page_size())
    }
    fn ticks_per_second(&self) -> u64 {
        either!(self, backend => backend.ticks_per_second())
    }
    fn signal(&mut self, area: Area, cgroup: &str, pid: u32, ending: Ending) -> io::Result<()> {
        either!(self, backend => backend.signal(area, cgroup, pid, ending))
    }
    fn note(&self, area: Area, path: &str, note: Note) -> io::Result<Option<String>> {
        either!(self, backend => backend.note(area, path, note))
    }
    fn set_note(&mut self, area: Area, path: &str, note: Note, text: Option<&str>) -> io::Result<()> {
        either!(self, backend => backend.set_note(area, path, note, text))
    }
    fn cookie_of(&self, pid: u32) -> io::Result<u64> {
        either!(self, backend => backend.cookie_of(pid))
    }
    fn hold_cookie(&mut self, hold: Hold) -> io::Result<u64> {
        either!(self, backend => backend.hold_cookie(hold))
    }
    fn push_cookie(&mut self, pid: u32) -> io::Result<()> {
        either!(self, backend => backend.push_cookie(pid))
    }
    fn drop_cookie(&mut self) {
        either!(self, backend => backend.drop_cookie());
    }
    fn file_budget(&self) -> usize {
        either!(self, backend => backend.file_budget())
    }
    fn pid(&self) -> u32 {
        either!(self, backend => backend.pid())
    }
}

/// Joins a directory and a name; an empty directory is the root.
pub(crate) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
