//! Core scheduling on a simulated node, by the kernel's rules: a child inherits its parent's cookie, a process that enters a cgroup keeps
//! its own, a copy is made from or to the caller only, and who may not look into a process gets `EPERM`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rustix::io::Errno;

use super::{Simulation, rules};
use crate::backend::Area;
use crate::core_scheduling::helper::Hold;
use crate::core_scheduling::note::Note;

/// What the kernel has of core scheduling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoreSchedulingKernel {
    /// Nothing: an older kernel, or one without `CONFIG_SCHED_CORE`.
    #[default]
    Missing,
    /// It is there, but no core has two threads.
    NoSmt,
    /// It works.
    Works,
}

/// Cookies of the simulated node.
#[derive(Debug, Default)]
pub(super) struct Cookies {
    kernel: CoreSchedulingKernel,
    of: BTreeMap<u32, u64>,
    made: u64,
    /// What the helper of the host holds; `None` = there is no such thread.
    held: Option<u64>,
    /// What the host's process was started with.
    own: u64,
    untraceable: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Notes on cgroups, by hierarchy, path and inode: they go with the directory.
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

    /// What the helper takes along when the host's process ends.
    pub(super) fn process_ends(&mut self) {
        self.held = None;
    }
}

impl Simulation {
    /// Sets what the kernel has of core scheduling, as cores get and lose their second threads.
    pub fn set_core_scheduling(&mut self, kernel: CoreSchedulingKernel) {
        self.cookies.kernel = kernel;
    }

    /// The cookie of a process; 0 = none.
    pub fn core_cookie(&self, pid: u32) -> u64 {
        self.cookies.of.get(&pid).copied().unwrap_or_default()
    }

    /// A program gives a process a new cookie, as `prctl(PR_SCHED_CORE, CREATE)` does it.
    pub fn make_core_cookie(&mut self, pid: u32) {
        let made = self.cookies.make();
        self.cookies.of.insert(pid, made);
    }

    /// A process of a cgroup starts another there, which inherits its cookie.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn fork(&mut self, path: &str, parent: u32, child: u32) -> io::Result<()> {
        let cookie = self.core_cookie(parent);
        self.cookies.of.insert(child, cookie);
        self.join(path, child)
    }

    /// A process enters a cgroup with the cookie that it has.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn join(&mut self, path: &str, pid: u32) -> io::Result<()> {
        let processes = self.read_file(path, rules::PROCS)?;
        self.set_file(path, rules::PROCS, &format!("{processes}{pid}\n"))
    }

    /// Forbids the host to look into a process, or allows it again.
    pub fn set_traceable(&mut self, pid: u32, traceable: bool) {
        if traceable {
            self.cookies.untraceable.remove(&pid);
        } else {
            self.cookies.untraceable.insert(pid);
        }
    }

    /// Lets a process end right after a scan has seen it: it is still listed.
    pub fn end_after_scan(&mut self, pid: u32) {
        self.cookies.ended.insert(pid);
    }

    /// The cookie that the host's own process was started with; 0 = none.
    pub fn set_own_core_cookie(&mut self, cookie: u64) {
        self.cookies.own = cookie;
    }

    /// Makes cgroups refuse extended attributes, or take them again.
    pub fn refuse_notes(&mut self, refuses: bool) {
        self.cookies.refuses_notes = refuses;
    }

    /// How often the host gave a process a cookie since the last call.
    pub fn take_core_pushes(&mut self) -> usize {
        std::mem::take(&mut self.cookies.pushes)
    }

    /// Whether a thread of the host still holds a cookie.
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
