//! The kernel, over the directories that the caller passes in. Nothing else is opened.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

use cap_std::fs::{Dir, MetadataExt as _, OpenOptions, OpenOptionsExt as _};
use qosm_model::unit::Bytes;
use rustix::fs::{Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, getpid, getrlimit, kill_process, pidfd_open, pidfd_send_signal,
};
use slab::Slab;

use crate::Directories;
use crate::backend::{Access, Area, Backend, Beyond, FileId, Lowering, SlowWrite, join};
use crate::core_scheduling::helper::{self, Helper, Hold};
use crate::core_scheduling::note::Note;
use crate::migration::{Job as MigrationJob, MoverClient, Run, Worker as Migrator, WorkerDirectories};
use crate::mounts::Hierarchy;
use crate::parse;
use crate::processes::Ending;
use crate::reclaim::Watermarks;
use crate::reclaim::lower::{Lowered, lower};
use crate::reclaim::reclaimer::{GroupId, ReclaimReport};
use crate::reclaim::worker::{GroupFiles, NodeFiles, RECLAIM, Worker};

/// Number of descriptors left to the rest of the process.
const RESERVED_FILES: u64 = 256;

/// Number of slow writes in progress at once. More would only wait in line behind the first.
const SLOW_WRITES: usize = 256;

/// Longest note about core scheduling that is read, in bytes: a longer note is not qosm's.
const NOTE_LENGTH: usize = 512;

/// How long the caller waits for a slow write.
const PATIENCE: Duration = Duration::from_millis(1);

pub(crate) struct Kernel {
    /// Boxed: the directories would make a kernel far larger than the rest of the enum.
    directories: Box<Directories>,
    hierarchies: Vec<Dir>,
    files: Slab<Arc<File>>,
    slow: Option<SlowWriter>,
    migrations: Migrations,
    reclaim: Option<Worker>,
    /// The thread that holds a core scheduling cookie.
    cookie: Option<Box<Helper>>,
}

/// The thread or process that moves pages.
enum Migrations {
    /// No migration was requested yet.
    NotYet,
    /// A thread of this process.
    Here(Migrator),
    /// Another process.
    Elsewhere(Box<MoverClient>),
}

impl Kernel {
    pub(crate) fn new(directories: Directories) -> Self {
        Self {
            directories: Box::new(directories),
            hierarchies: Vec::new(),
            files: Slab::new(),
            slow: None,
            migrations: Migrations::NotYet,
            reclaim: None,
            cookie: None,
        }
    }

    pub(crate) fn use_page_mover(&mut self, mover: MoverClient) {
        self.migrations = Migrations::Elsewhere(Box::new(mover));
    }

    pub(crate) fn page_mover(&self) -> Option<&MoverClient> {
        match &self.migrations {
            Migrations::Elsewhere(mover) => Some(mover),
            Migrations::NotYet | Migrations::Here(_) => None,
        }
    }

    pub(crate) fn handed_in(&self) -> &Directories {
        &self.directories
    }

    fn area(&self, area: Area) -> io::Result<&Dir> {
        match area {
            Area::Cgroup(place) => self.hierarchies.get(place).ok_or_else(|| io::ErrorKind::NotFound.into()),
            Area::Proc => Ok(&self.directories.proc),
            Area::Sys => Ok(&self.directories.sys),
            Area::Kubelet => self.directories.kubelet.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }

    /// Opens a directory so that its attributes can be read: a `Dir` may be an `O_PATH` descriptor.
    fn open_readable(&self, area: Area, path: &str) -> io::Result<OwnedFd> {
        let directory = self.area(area)?.open_dir(or_dot(path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&directory, ".", flags, Mode::empty())?)
    }

    fn open_to_write(&self, area: Area, path: &str, flags: OFlags) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        let (area, path) = self.place_of(area, path)?;
        Ok(area.open_with(path, &options)?.into_std())
    }

    /// The directory and relative path of a file: kernel settings go to the writable `sysctl` directory if it has them.
    fn place_of<'a>(&self, area: Area, path: &'a str) -> io::Result<(&Dir, &'a str)> {
        if area == Area::Proc
            && let (Some(sysctl), Some(below)) = (&self.directories.sysctl, path.strip_prefix("sys/"))
            && sysctl.exists(below)
        {
            return Ok((sysctl, below));
        }
        Ok((self.area(area)?, path))
    }
}

fn or_dot(path: &str) -> &str {
    if path.is_empty() { "." } else { path }
}

pub(crate) fn write_at_once(file: &File, text: &[u8]) -> io::Result<()> {
    use io::Write as _;
    loop {
        match (&mut &*file).write(text) {
            Ok(written) if written == text.len() => return Ok(()),
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl Backend for Kernel {
    fn cgroup_device(&self) -> Option<(u32, u32)> {
        let device = self.directories.cgroup.dir_metadata().ok()?.dev();
        Some((rustix::fs::major(device), rustix::fs::minor(device)))
    }

    fn bind(&mut self, hierarchies: &[Hierarchy]) -> io::Result<()> {
        self.hierarchies = hierarchies
            .iter()
            .map(|hierarchy| self.directories.cgroup.open_dir(or_dot(&hierarchy.mount)))
            .collect::<io::Result<_>>()?;
        Ok(())
    }

    fn read_once(&self, area: Area, path: &str) -> io::Result<Vec<u8>> {
        let (area, path) = self.place_of(area, path)?;
        area.read(path)
    }

    fn directories(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.area(area)?.read_dir(or_dot(path))? {
            let entry = entry?;
            if entry.file_type()?.is_dir()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn entries(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        let entries = self.area(area)?.read_dir(or_dot(path))?;
        let names = entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose());
        let mut names = names.collect::<io::Result<Vec<String>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn inode(&self, area: Area, path: &str) -> io::Result<u64> {
        let metadata = self.area(area)?.metadata(or_dot(path))?;
        if metadata.is_dir() { Ok(metadata.ino()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn is_linked(&self, area: Area, path: &str) -> bool {
        let Ok(dir) = self.area(area) else { return false };
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.map(|end| &path[..end])
            .any(|part| dir.symlink_metadata(or_dot(part)).is_ok_and(|metadata| metadata.is_symlink()))
    }

    fn make(&mut self, area: Area, path: &str) -> io::Result<()> {
        self.area(area)?.create_dir(path)
    }

    fn remove(&mut self, area: Area, path: &str) -> io::Result<()> {
        self.area(area)?.remove_dir(path)
    }

    fn open(&mut self, area: Area, path: &str) -> io::Result<FileId> {
        let file = self.area(area)?.open(path)?.into_std();
        FileId::of(self.files.insert(Arc::new(file))).ok_or(io::ErrorKind::QuotaExceeded.into())
    }

    fn handle(&self, area: Area, path: &str, access: Access) -> io::Result<File> {
        let (area, path) = self.place_of(area, path)?;
        match access {
            Access::Read => Ok(area.open(path)?.into_std()),
            Access::ReadWrite => Ok(area.open_with(path, OpenOptions::new().read(true).write(true))?.into_std()),
            Access::Directory => Ok(area.open_dir(or_dot(path))?.into_std_file()),
        }
    }

    fn share(&self, file: FileId) -> Option<Arc<File>> {
        self.files.get(file.place()).map(Arc::clone)
    }

    fn close(&mut self, file: FileId) {
        self.files.try_remove(file.place());
    }

    fn read(&mut self, file: FileId, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(file) = self.files.get(file.place()) else { return Err(io::ErrorKind::NotFound.into()) };
        loop {
            match file.read_at(buffer, 0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write(&mut self, area: Area, path: &str, text: &str) -> io::Result<()> {
        write_at_once(&self.open_to_write(area, path, OFlags::empty())?, text.as_bytes())
    }

    fn write_slow(
        &mut self,
        area: Area,
        path: &str,
        text: &str,
        lowering: Option<Lowering>,
        ticket: u64,
    ) -> io::Result<SlowWrite> {
        // Linux 6.16 and later skip the reclaim for an `O_NONBLOCK` descriptor; earlier kernels ignore the flag, and the thread waits.
        let file = self.open_to_write(area, path, OFlags::NONBLOCK)?;
        let fall = match lowering {
            Some(Lowering { path: group, usage, to, beyond }) => {
                let directory = self.area(area)?.open_dir(&group)?;
                let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                Some(Fall { usage: directory.open(usage)?.into_std(), directory, name, to, beyond })
            }
            None => None,
        };
        if self.slow.is_none() {
            self.slow = Some(SlowWriter::start()?);
        }
        let Some(slow) = &mut self.slow else { return Ok(SlowWrite::Full) };
        slow.write(
            (area, path.to_owned()),
            Job { file, text: text.to_owned(), fall, ticket, superseded: Arc::default() },
        )
    }

    fn finished(&mut self) -> Vec<(u64, io::Result<()>)> {
        self.slow.as_mut().map(SlowWriter::finished).unwrap_or_default()
    }

    fn migrate(&mut self, job: MigrationJob, run: Arc<Run>) -> io::Result<()> {
        match &self.migrations {
            Migrations::Elsewhere(mover) => mover.add(job, run),
            Migrations::Here(worker) => worker.add(job, run),
            Migrations::NotYet => {
                let directories = WorkerDirectories {
                    cgroups: self.hierarchies.iter().map(Dir::try_clone).collect::<io::Result<_>>()?,
                    proc: self.directories.proc.try_clone()?,
                    sys: self.directories.sys.try_clone()?,
                };
                let worker = Migrator::start(directories)?;
                let added = worker.add(job, run);
                self.migrations = Migrations::Here(worker);
                added
            }
        }
    }

    fn set_watermarks(&mut self, area: Area, path: &str, group: GroupId, watermarks: Watermarks) -> io::Result<()> {
        let Area::Cgroup(tree) = area else { return Err(io::ErrorKind::NotFound.into()) };
        let files = GroupFiles::open(self.area(area)?.open_dir(path)?, tree, path)?;
        let worker = match self.reclaim.take() {
            Some(worker) => worker,
            None => {
                let proc = |name| self.directories.proc.open(name).ok().map(cap_std::fs::File::into_std);
                Worker::start(NodeFiles {
                    zoneinfo: proc("zoneinfo"),
                    meminfo: proc("meminfo"),
                    trees: self.hierarchies.iter().map(Dir::try_clone).collect::<io::Result<_>>()?,
                })?
            }
        };
        self.reclaim.insert(worker).set(group, watermarks, files)
    }

    fn remove_watermarks(&mut self, group: GroupId) {
        if let Some(worker) = &self.reclaim {
            worker.release(group);
        }
    }

    fn reclaim_report(&self, group: GroupId) -> Option<ReclaimReport> {
        self.reclaim.as_ref()?.report(group)
    }

    fn page_size(&self) -> u64 {
        u64::try_from(rustix::param::page_size()).unwrap_or(4096)
    }

    fn ticks_per_second(&self) -> u64 {
        rustix::param::clock_ticks_per_second()
    }

    fn signal(&mut self, area: Area, cgroup: &str, pid: u32, ending: Ending) -> io::Result<()> {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        let signal = match ending {
            Ending::Terminate => Signal::TERM,
            Ending::Kill => Signal::KILL,
        };
        // The PID may already belong to another process. A descriptor keeps referring to the same process, so open it
        // before checking membership.
        let descriptor = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(descriptor) => Some(descriptor),
            // Before Linux 5.3.
            Err(Errno::NOSYS) => None,
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let members = self.read_once(area, &join(cgroup, "cgroup.procs")).unwrap_or_default();
        if !members.split(|&byte| byte == b'\n').any(|line| parse::number(line) == Some(pid.into())) {
            return Ok(());
        }
        let sent = match &descriptor {
            Some(descriptor) => pidfd_send_signal(descriptor, signal),
            None => kill_process(number, signal),
        };
        match sent {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn note(&self, area: Area, path: &str, note: Note) -> io::Result<Option<String>> {
        let directory = self.open_readable(area, path)?;
        let mut buffer = [0_u8; NOTE_LENGTH];
        match rustix::fs::fgetxattr(&directory, note.attribute(), buffer.as_mut_slice()) {
            Ok(length) => Ok(Some(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned())),
            // No such attribute, a kernel without extended attributes on cgroups, or a longer text than qosm writes.
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_note(&mut self, area: Area, path: &str, note: Note, text: Option<&str>) -> io::Result<()> {
        let directory = self.open_readable(area, path)?;
        match text {
            Some(text) => rustix::fs::fsetxattr(&directory, note.attribute(), text.as_bytes(), XattrFlags::empty())?,
            None => match rustix::fs::fremovexattr(&directory, note.attribute()) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(errno) => return Err(errno.into()),
            },
        }
        Ok(())
    }

    fn cookie_of(&self, pid: u32) -> io::Result<u64> {
        helper::cookie_of(pid)
    }

    fn hold_cookie(&mut self, hold: Hold) -> io::Result<u64> {
        // A new thread has the process's own cookie, which is 0; a thread that has held another cookie cannot return to 0.
        if hold == Hold::Default {
            self.cookie = None;
        }
        let helper = match self.cookie.take() {
            Some(helper) => helper,
            None => Box::new(Helper::start()?),
        };
        self.cookie.insert(helper).hold(hold)
    }

    fn push_cookie(&mut self, pid: u32) -> io::Result<()> {
        self.cookie.as_ref().ok_or(io::ErrorKind::NotFound)?.push(pid)
    }

    fn drop_cookie(&mut self) {
        self.cookie = None;
    }

    fn file_budget(&self) -> usize {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        usize::try_from(limit.saturating_sub(RESERVED_FILES)).unwrap_or(usize::MAX)
    }

    fn pid(&self) -> u32 {
        getpid().as_raw_pid().unsigned_abs()
    }
}

struct Job {
    file: File,
    text: String,
    fall: Option<Fall>,
    ticket: u64,
    /// A later write to the same file supersedes this one.
    superseded: Arc<AtomicBool>,
}

/// Files and limits for lowering a bound below current use.
struct Fall {
    directory: Dir,
    /// Name of the bound's file.
    name: String,
    usage: File,
    to: Bytes,
    beyond: Beyond,
}

impl Job {
    fn run(&self) -> io::Result<()> {
        let Some(fall) = &self.fall else { return write_at_once(&self.file, self.text.as_bytes()) };
        lower(&mut Falling { bound: &self.file, fall, superseded: &self.superseded }, fall.to, fall.beyond)
    }
}

struct Falling<'a> {
    bound: &'a File,
    fall: &'a Fall,
    superseded: &'a AtomicBool,
}

impl Lowered for Falling<'_> {
    fn usage(&mut self) -> io::Result<Bytes> {
        let mut buffer = [0; 32];
        let length = self.fall.usage.read_at(&mut buffer, 0)?;
        parse::number(&buffer[..length]).map(Bytes).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn reclaim(&mut self, amount: Bytes) -> io::Result<()> {
        use io::Write as _;
        let mut options = OpenOptions::new();
        let mut file = self.fall.directory.open_with(RECLAIM, options.write(true))?;
        file.write(amount.0.to_string().as_bytes()).map(drop)
    }

    fn present(&mut self) -> io::Result<Option<Bytes>> {
        Ok(parse::number(&self.fall.directory.read(&self.fall.name)?).map(Bytes))
    }

    fn bound(&mut self, bound: Bytes) -> io::Result<()> {
        write_at_once(self.bound, bound.0.to_string().as_bytes())
    }

    fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }
}

/// A thread that may stall, for writes that reclaim memory in the writer: lowering `memory.high` below current use, in
/// steps. Writes to one file keep their order; a later write to the same file stops a bound that is still being
/// lowered. The thread ends with the host, or after the write that it is blocked in.
struct SlowWriter {
    jobs: SyncSender<Job>,
    /// For each write in progress: its ticket, its file, and the flag that a later write sets.
    files: Vec<(u64, (Area, String), Arc<AtomicBool>)>,
    results: Receiver<(u64, io::Result<()>)>,
    ready: Vec<(u64, io::Result<()>)>,
    under_way: usize,
}

impl SlowWriter {
    #[expect(clippy::disallowed_methods, reason = "some writes take the kernel seconds, and the loop does not wait")]
    fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(SLOW_WRITES);
        let (done, results) = mpsc::channel();
        std::thread::Builder::new().name("qosm-slow-write".to_owned()).spawn(move || {
            for job in queue {
                let result = job.run();
                if done.send((job.ticket, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, files: Vec::new(), results, ready: Vec::new(), under_way: 0 })
    }

    fn write(&mut self, file: (Area, String), job: Job) -> io::Result<SlowWrite> {
        let (ticket, superseded) = (job.ticket, Arc::clone(&job.superseded));
        let alone = self.under_way == 0;
        match self.jobs.try_send(job) {
            Ok(()) => {
                for (_, _, earlier) in self.files.iter().filter(|(_, of, _)| *of == file) {
                    earlier.store(true, Ordering::Relaxed);
                }
                self.files.push((ticket, file, superseded));
                self.under_way += 1;
            }
            Err(TrySendError::Full(_)) => return Ok(SlowWrite::Full),
            Err(TrySendError::Disconnected(_)) => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        if !alone {
            return Ok(SlowWrite::Queued);
        }
        match self.results.recv_timeout(PATIENCE) {
            Ok((of, result)) => {
                self.ended(of);
                if of == ticket {
                    return result.map(|()| SlowWrite::Done);
                }
                self.ready.push((of, result));
                Ok(SlowWrite::Queued)
            }
            Err(_) => Ok(SlowWrite::Queued),
        }
    }

    fn finished(&mut self) -> Vec<(u64, io::Result<()>)> {
        let mut finished = std::mem::take(&mut self.ready);
        while let Ok(result) = self.results.try_recv() {
            self.ended(result.0);
            finished.push(result);
        }
        finished
    }

    fn ended(&mut self, ticket: u64) {
        self.under_way = self.under_way.saturating_sub(1);
        self.files.retain(|(of, ..)| *of != ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_stalling_write_does_not_block_and_its_end_is_reported() {
        // A write to a full pipe stalls until a read.
        let (mut reader, writer) = io::pipe().unwrap();
        let mut writer = File::from(OwnedFd::from(writer));
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        let mut room = 0;
        while let Ok(written) = writer.write(&[0; 4096]) {
            room += written;
        }
        rustix::fs::fcntl_setfl(&writer, OFlags::empty()).unwrap();
        let job = |ticket, file: &File| Job {
            file: file.try_clone().unwrap(),
            text: "1".to_owned(),
            fall: None,
            ticket,
            superseded: Arc::default(),
        };
        let quick = tempfile::tempfile().unwrap();
        let mut slow = SlowWriter::start().unwrap();
        let write = |slow: &mut SlowWriter, ticket: u64, file: &File| {
            slow.write((Area::Proc, ticket.to_string()), job(ticket, file)).unwrap()
        };
        assert!(matches!(write(&mut slow, 1, &writer), SlowWrite::Queued));
        assert!(matches!(write(&mut slow, 2, &quick), SlowWrite::Queued), "it comes after the first");
        assert!(slow.finished().is_empty());
        reader.read_exact(&mut vec![0; room]).unwrap();
        let mut ended = Vec::new();
        while ended.len() < 2 {
            ended.extend(slow.finished());
            std::thread::yield_now();
        }
        assert!(ended.iter().all(|(_, result)| result.is_ok()), "{ended:?}");
        assert_eq!(ended.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1, 2]);
    }
}
