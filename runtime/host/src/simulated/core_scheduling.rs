//! Core scheduling on a simulated node, by the kernel's rules: a child inherits its parent's cookie, a process that
//! enters a cgroup keeps its cookie, cookies are only copied from or to the caller, and a caller without access to a
//! process gets `EPERM`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::io::Errno;

use super::{Simulation, rules};
use crate::backend::Area;
use crate::core_scheduling::helper::Hold;
use crate::core_scheduling::note::Note;

/// The kernel's support for core scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreSchedulingKernel {
    /// None: an older kernel, or one without `CONFIG_SCHED_CORE`.
    #[default]
    Missing,
    /// The kernel supports it, but no core has two threads.
    NoSmt,
    /// Core scheduling works.
    Works,
}

/// Cookies of the simulated node.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    kernel: CoreSchedulingKernel,
    of: BTreeMap<u32, u64>,
    made: u64,
    /// The cookie of the host's helper thread; `None` without such a thread.
    held: Option<u64>,
    /// The cookie with which the host's process was started.
    own: u64,
    untraceable: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Notes on cgroups, by hierarchy, path and inode, so that they disappear with the directory.
    notes: BTreeMap<(usize, String, u64, Note), String>,
    refuses_notes: bool,
    pushes: usize,
}

impl Cookies {
    pub(super) fn new(kernel: CoreSchedulingKernel) -> Self {
        Self { kernel, ..Self::default() }
    }

    fn check(&self) -> Result<(), Errno> {
        match self.kernel {
            CoreSchedulingKernel::Missing => Err(Errno::INVAL),
            CoreSchedulingKernel::NoSmt => Err(Errno::NODEV),
            CoreSchedulingKernel::Works => Ok(()),
        }
    }

    fn check_process(&self, pid: u32) -> Result<(), Errno> {
        self.check()?;
        if pid == 0 || self.ended.contains(&pid) {
            return Err(Errno::SRCH);
        }
        if self.untraceable.contains(&pid) { Err(Errno::PERM) } else { Ok(()) }
    }

    fn make(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Ends the helper thread with the host's process.
    pub(super) fn process_ends(&mut self) {
        self.held = None;
    }
}

impl Simulation {
    /// Sets the kernel's support for core scheduling, e.g. when second threads go online or offline.
    pub fn set_core_scheduling(&mut self, kernel: CoreSchedulingKernel) {
        self.cookies.kernel = kernel;
    }

    /// The cookie of a process; 0 for none.
    pub fn core_cookie(&self, pid: u32) -> u64 {
        self.cookies.of.get(&pid).copied().unwrap_or_default()
    }

    /// Gives a process a new cookie, like another program with `prctl(PR_SCHED_CORE, CREATE)`.
    pub fn make_core_cookie(&mut self, pid: u32) {
        let made = self.cookies.make();
        self.cookies.of.insert(pid, made);
    }

    /// Adds a child of a process to its cgroup; the child inherits the cookie.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the cgroup does not exist.
    pub fn fork(&mut self, path: &str, parent: u32, child: u32) -> io::Result<()> {
        let cookie = self.core_cookie(parent);
        self.cookies.of.insert(child, cookie);
        self.join(path, child)
    }

    /// Moves a process into a cgroup; it keeps its cookie.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the cgroup does not exist.
    pub fn join(&mut self, path: &str, pid: u32) -> io::Result<()> {
        let processes = self.read_file(path, rules::PROCS)?;
        self.set_file(path, rules::PROCS, &format!("{processes}{pid}\n"))
    }

    /// Denies or allows the host access to a process.
    pub fn set_traceable(&mut self, pid: u32, traceable: bool) {
        if traceable {
            self.cookies.untraceable.remove(&pid);
        } else {
            self.cookies.untraceable.insert(pid);
        }
    }

    /// Ends a process right after a scan: it is still listed.
    pub fn end_after_scan(&mut self, pid: u32) {
        self.cookies.ended.insert(pid);
    }

    /// Sets the cookie with which the host's own process was started; 0 for none.
    pub fn set_own_core_cookie(&mut self, cookie: u64) {
        self.cookies.own = cookie;
    }

    /// Makes cgroups refuse extended attributes, or accept them again.
    pub fn refuse_notes(&mut self, refuses: bool) {
        self.cookies.refuses_notes = refuses;
    }

    /// Number of cookies that the host gave to processes since the last call.
    pub fn take_core_pushes(&mut self) -> usize {
        std::mem::take(&mut self.cookies.pushes)
    }

    /// Whether a thread of the host holds a cookie.
    pub fn holds_core_cookie(&self) -> bool {
        self.cookies.held.is_some()
    }

    pub(super) fn read_cookie(&self, pid: u32) -> io::Result<u64> {
        self.cookies.check_process(pid)?;
        Ok(self.core_cookie(pid))
    }

    pub(super) fn hold(&mut self, hold: Hold) -> io::Result<u64> {
        self.cookies.check()?;
        let held = match hold {
            Hold::Default => self.cookies.own,
            Hold::New => self.cookies.make(),
            Hold::Of(pid) => {
                self.cookies.check_process(pid)?;
                self.core_cookie(pid)
            }
        };
        self.cookies.held = Some(held);
        Ok(held)
    }

    pub(super) fn push(&mut self, pid: u32) -> io::Result<()> {
        self.cookies.check_process(pid)?;
        let held = self.cookies.held.ok_or(Errno::INVAL)?;
        if self.crash.as_ref().is_some_and(|crash| !crash.step()) {
            return Ok(());
        }
        self.cookies.pushes += 1;
        self.cookies.of.insert(pid, held);
        Ok(())
    }

    pub(super) fn stop_holding(&mut self) {
        self.cookies.held = None;
    }

    fn note_key(&self, area: Area, path: &str, note: Note) -> io::Result<(usize, String, u64, Note)> {
        let Area::Cgroup(place) = area else { return Err(Errno::OPNOTSUPP.into()) };
        let tree = self.tree(place)?;
        Ok((place, path.to_owned(), tree.inode(tree.find(path).ok_or(Errno::NOENT)?), note))
    }

    pub(super) fn read_note(&self, area: Area, path: &str, note: Note) -> io::Result<Option<String>> {
        let key = self.note_key(area, path, note)?;
        Ok(self.cookies.notes.get(&key).cloned())
    }

    pub(super) fn write_note(&mut self, area: Area, path: &str, note: Note, text: Option<&str>) -> io::Result<()> {
        let key = self.note_key(area, path, note)?;
        if self.read_only || self.cookies.refuses_notes {
            return Err(Errno::ROFS.into());
        }
        if self.crash.as_ref().is_some_and(|crash| !crash.step()) {
            return Ok(());
        }
        match text {
            Some(text) => self.cookies.notes.insert(key, text.to_owned()),
            None => self.cookies.notes.remove(&key),
        };
        Ok(())
    }
}
