//! Moves threads into and out of groups. resctrl moves threads, not processes or cgroups, and a thread that is cloned
//! meanwhile starts in its parent's earlier group. So the lists are read again until no thread is left to move.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::hash::{Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::FileExt as _;

use cap_std::fs::Dir;
use rustc_hash::FxHasher;
use rustix::io::Errno;

use super::error::ResctrlError;
use super::group::{Group, GroupName};
use super::groups::Groups;
use crate::backend::join;
use crate::error::{is, is_absent};
use crate::mounts::CgroupVersion;

/// Maximum number of rounds. Each finds the threads cloned during the previous one, hardly any after the second; a
/// container that needs more creates threads faster than they can be moved.
const MAX_ROUNDS: u32 = 16;

/// Maximum number of nested cgroups that are read. A container may create as many as its limits allow.
const MAX_CGROUPS: usize = 4096;

/// A container's cgroup, which lists its threads.
#[derive(Clone, Copy, Debug)]
pub struct ContainerCgroup<'a> {
    /// Its directory, in any hierarchy.
    pub directory: &'a Dir,
    /// Version of the hierarchy, which determines the file: `cgroup.threads` on v2, `tasks` on v1.
    pub version: CgroupVersion,
    /// Its path, for messages.
    pub path: &'a str,
}

/// Result of moving threads.
#[derive(Debug, Default)]
pub struct Moved {
    /// Number of moved threads.
    pub moved: usize,
    /// Number of threads that ended before they could be moved.
    pub vanished: usize,
    /// Number of threads that are invisible in this process's PID namespace, and so stay where they are: in Kubernetes
    /// the agent needs `hostPID: true`.
    pub out_of_sight: usize,
    /// Number of threads that stay where they are because another program has put them into a control group of its own.
    pub foreign: usize,
    /// Number of threads that the kernel refused to move.
    pub refused: usize,
    /// The kernel's explanation for the first of them.
    pub first_refusal: Option<ResctrlError>,
    /// Number of rounds.
    pub rounds: u32,
    /// Whether the last round found no threads to move, except foreign, refused or invisible ones. If not, call again later.
    pub is_settled: bool,
}

impl Groups {
    /// Moves all threads of these containers, and of cgroups below theirs, into a group. Threads that are already in it
    /// are not written, and those in other programs' control groups stay there. Threads that they clone later start in the group.
    ///
    /// Removed containers have no threads. Thread ids are those of this process's PID namespace, both in cgroup files and in resctrl's.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`] if the group is gone, [`ResctrlError::Read`], [`ResctrlError::ReadOnly`]. A refused
    /// thread is no error: see [`Moved::first_refusal`].
    pub fn assign(&self, group: &Group, containers: &[ContainerCgroup<'_>]) -> Result<Moved, ResctrlError> {
        let into = TaskFile::open(self, &group.directory())?;
        // A monitor group only accepts threads of its control group.
        let through = match group {
            Group::Control(_) => None,
            Group::Monitor { .. } => Some(TaskFile::open(self, &group.parent_directory())?),
        };
        let mut assignment =
            Assignment { groups: self, into, through, containers, in_control: HashSet::new(), foreign: 0 };
        let moved = move_until_settled(&mut assignment)?;
        Ok(Moved { foreign: assignment.foreign, ..moved })
    }

    /// The threads in a control group, those in its monitor groups included.
    pub(crate) fn threads(&self, name: &GroupName) -> Result<HashSet<u64>, ResctrlError> {
        let text = self.read(&join(&name.directory(), "tasks"))?;
        Ok(ids(text.as_bytes()).filter(|&id| id != 0).collect())
    }

    /// Threads in other programs' control groups.
    fn foreign_threads(&self) -> Result<HashSet<u64>, ResctrlError> {
        let mut threads = HashSet::new();
        for directory in self.foreign()? {
            match self.read(&join(&directory, "tasks")) {
                Ok(text) => threads.extend(ids(text.as_bytes())),
                Err(error) if error.is_gone() => {}
                // The kernel takes all modes off the files of a group that locks a part of the cache: such a group has no threads.
                Err(ResctrlError::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
        Ok(threads)
    }

    /// Moves threads of these containers out of a group: from a control group to the root, from a monitor group to its
    /// control group. Threads outside of the group stay where they are.
    ///
    /// # Errors
    ///
    /// As [`Groups::assign`].
    pub fn release(&self, group: &Group, containers: &[ContainerCgroup<'_>]) -> Result<Moved, ResctrlError> {
        let from = TaskFile::open(self, &group.directory())?;
        let into = TaskFile::open(self, &group.parent_directory())?;
        move_until_settled(&mut Release { from, into, threads: ThreadSet::Only(containers) })
    }

    /// Moves all threads except those of these containers out of a group: threads that an earlier process put there,
    /// and that no class wants there now.
    pub(crate) fn release_others(
        &self,
        group: &Group,
        containers: &[ContainerCgroup<'_>],
    ) -> Result<Moved, ResctrlError> {
        let from = TaskFile::open(self, &group.directory())?;
        let into = TaskFile::open(self, &group.parent_directory())?;
        move_until_settled(&mut Release { from, into, threads: ThreadSet::AllBut(containers) })
    }

    /// Moves all threads out of a group.
    pub(crate) fn empty(&self, group: &Group) -> Result<Moved, ResctrlError> {
        let from = TaskFile::open(self, &group.directory())?;
        let into = TaskFile::open(self, &group.parent_directory())?;
        move_until_settled(&mut Release { from, into, threads: ThreadSet::AllBut(&[]) })
    }
}

/// A set of threads to move, and their current groups.
trait Threads {
    /// Threads that are not yet in place, and the number of invisible ones.
    fn pending(&mut self) -> Result<(BTreeSet<u64>, usize), ResctrlError>;

    fn put(&mut self, thread: u64) -> io::Result<()>;

    /// The error for a refusal; call it right after the refusal.
    fn refusal(&self, thread: u64, source: io::Error) -> ResctrlError;
}

fn move_until_settled(threads: &mut impl Threads) -> Result<Moved, ResctrlError> {
    let mut moved = Moved::default();
    let mut refused = HashSet::new();
    while moved.rounds < MAX_ROUNDS {
        moved.rounds += 1;
        let (mut pending, out_of_sight) = threads.pending()?;
        moved.out_of_sight = out_of_sight;
        pending.retain(|thread| !refused.contains(thread));
        if pending.is_empty() {
            moved.is_settled = true;
            return Ok(moved);
        }
        for thread in pending {
            match threads.put(thread) {
                Ok(()) => moved.moved += 1,
                Err(source) if is(&source, Errno::SRCH) => moved.vanished += 1,
                Err(source) => match threads.refusal(thread, source) {
                    error @ (ResctrlError::Gone { .. } | ResctrlError::ReadOnly { .. }) => return Err(error),
                    error => {
                        refused.insert(thread);
                        moved.refused += 1;
                        moved.first_refusal.get_or_insert(error);
                    }
                },
            }
        }
    }
    Ok(moved)
}

struct Assignment<'a> {
    groups: &'a Groups,
    into: TaskFile<'a>,
    through: Option<TaskFile<'a>>,
    containers: &'a [ContainerCgroup<'a>],
    /// Threads in the control group, if threads must pass through it.
    in_control: HashSet<u64>,
    /// Number of threads that stay in other programs' groups.
    foreign: usize,
}

impl Threads for Assignment<'_> {
    fn pending(&mut self) -> Result<(BTreeSet<u64>, usize), ResctrlError> {
        // Read the group first: a thread that enters it meanwhile is only written again, which is harmless.
        let there = self.into.threads()?;
        let (mut threads, out_of_sight) = threads_of(self.containers)?;
        threads.retain(|thread| !there.contains(thread));
        let found = threads.len();
        if found > 0 {
            let foreign = self.groups.foreign_threads()?;
            threads.retain(|thread| !foreign.contains(thread));
        }
        self.foreign = found - threads.len();
        // Rarely needed, and the root's list contains most threads of the machine.
        if let Some(control) = self.through.as_ref().filter(|_| !threads.is_empty()) {
            self.in_control = control.threads()?;
        }
        Ok((threads, out_of_sight))
    }

    fn put(&mut self, thread: u64) -> io::Result<()> {
        if let Some(control) = &self.through
            && !self.in_control.contains(&thread)
        {
            control.put(thread)?;
        }
        self.into.put(thread)
    }

    fn refusal(&self, thread: u64, source: io::Error) -> ResctrlError {
        self.into.refusal(thread, source)
    }
}

/// Threads to move out of a group, by container.
enum ThreadSet<'a> {
    Only(&'a [ContainerCgroup<'a>]),
    AllBut(&'a [ContainerCgroup<'a>]),
}

struct Release<'a> {
    from: TaskFile<'a>,
    into: TaskFile<'a>,
    threads: ThreadSet<'a>,
}

impl Threads for Release<'_> {
    fn pending(&mut self) -> Result<(BTreeSet<u64>, usize), ResctrlError> {
        match self.threads {
            ThreadSet::Only(containers) => {
                let (mut threads, out_of_sight) = threads_of(containers)?;
                let there = self.from.threads()?;
                threads.retain(|thread| there.contains(thread));
                Ok((threads, out_of_sight))
            }
            ThreadSet::AllBut(containers) => {
                // Read the group first: a thread that a container clones meanwhile must not count as another's.
                let there = self.from.threads()?;
                let (stay, _) = threads_of(containers)?;
                Ok((there.into_iter().filter(|thread| !stay.contains(thread)).collect(), 0))
            }
        }
    }

    fn put(&mut self, thread: u64) -> io::Result<()> {
        self.into.put(thread)
    }

    fn refusal(&self, thread: u64, source: io::Error) -> ResctrlError {
        self.into.refusal(thread, source)
    }
}

/// The `tasks` file of a group.
struct TaskFile<'a> {
    groups: &'a Groups,
    path: String,
    file: File,
}

impl<'a> TaskFile<'a> {
    fn open(groups: &'a Groups, directory: &str) -> Result<Self, ResctrlError> {
        let path = join(directory, "tasks");
        let file = groups.open_to_write(&path)?;
        Ok(Self { groups, path, file })
    }

    fn threads(&self) -> Result<HashSet<u64>, ResctrlError> {
        // resctrl leaves out threads that are invisible in this PID namespace; 0 would mean the writer.
        Ok(ids(self.groups.read(&self.path)?.as_bytes()).filter(|&id| id != 0).collect())
    }

    /// Writes one id at a time: kernels before Linux 6.8 accept no more, and a list stops at its first refusal.
    fn put(&self, thread: u64) -> io::Result<()> {
        let text = format!("{thread}\n");
        loop {
            match self.file.write_at(text.as_bytes(), 0) {
                Ok(written) if written == text.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn refusal(&self, thread: u64, source: io::Error) -> ResctrlError {
        self.groups.refused(&self.path, &thread.to_string(), source)
    }
}

fn ids(text: &[u8]) -> impl Iterator<Item = u64> {
    text.split(|&byte| byte == b'\n').filter_map(crate::parse::number)
}

/// The threads of containers, and the number of threads without an id in this PID namespace. The kernel prints 0 for
/// such a thread; writing 0 would move the writer itself.
fn threads_of(containers: &[ContainerCgroup<'_>]) -> Result<(BTreeSet<u64>, usize), ResctrlError> {
    let mut threads = BTreeSet::new();
    let mut out_of_sight = 0;
    for container in containers {
        for id in container.ids()? {
            if id == 0 {
                out_of_sight += 1;
            } else {
                threads.insert(id);
            }
        }
    }
    Ok((threads, out_of_sight))
}

impl ContainerCgroup<'_> {
    /// A hash of the container's threads: equal lists have equal fingerprints.
    pub(crate) fn fingerprint(&self) -> Result<u64, ResctrlError> {
        let mut hasher = FxHasher::default();
        self.ids()?.hash(&mut hasher);
        Ok(hasher.finish())
    }

    /// The ids of its threads; 0 for each that is invisible in this PID namespace.
    pub(crate) fn ids(&self) -> Result<Vec<u64>, ResctrlError> {
        let file = match self.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.threads",
        };
        let mut found = Vec::new();
        // Containers may have nested cgroups: systemd or another container engine in a container.
        let mut waiting = vec![String::new()];
        let mut seen = 0;
        while let Some(path) = waiting.pop() {
            seen += 1;
            let threads = join(&path, file);
            match self.directory.read(&threads) {
                Ok(text) => found.extend(ids(&text)),
                Err(source) if is_absent(&source) => continue,
                Err(source) => return Err(ResctrlError::Read { path: join(self.path, &threads), source }),
            }
            if seen < MAX_CGROUPS {
                match below(self.directory, &path) {
                    Ok(names) => waiting.extend(names.into_iter().map(|name| join(&path, &name))),
                    Err(source) if is_absent(&source) => {}
                    Err(source) => return Err(ResctrlError::Read { path: join(self.path, &path), source }),
                }
            }
        }
        Ok(found)
    }
}

fn below(directory: &Dir, path: &str) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in directory.read_dir(if path.is_empty() { "." } else { path })? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
