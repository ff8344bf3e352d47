//! Core scheduling: at any time, the hyper-threads of a core run only threads of one group, or idle.
//!
//! The threads of a group share a *cookie*; the kernel does not run threads with different cookies, or with and without
//! a cookie, on one core at the same time. The kernel has no file for cookies. So qosm notes the number of a
//! container's group on its cgroup ([`note`]); the knob [`Knob::CoreGroup`] reads and writes only that note (`knob`).
//! [`Host::reconcile_core_groups`] gives the processes of each group a common cookie, in whichever process has the
//! rights to do so.
//!
//! Threads and children inherit a cookie, but a process that joins a cgroup from outside, as by `kubectl exec`, does
//! not: the next call finds it. qosm also notes its cookies on each cgroup before a process gets one, so that the next
//! agent continues the same groups, and clears the cookies of processes that are in no group. Cookies of other programs
//! stay untouched (`decision`).
//!
//! Kernel: Documentation/admin-guide/hw-vuln/core-scheduling.rst.

mod decision;
mod error;
pub(crate) mod helper;
mod knob;
pub(crate) mod note;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use qosm_model::knob::Knob;
use rustix::io::Errno;

use crate::backend::{Area, Backend as _, join};
use crate::{Host, error as host_error, parse};
use decision::{Process, Scanned, Source, decide};
use helper::Hold;
use note::{Cookie, Note};

use error::CoreSchedulingError;
pub(crate) use knob::CoreGroups;

/// Levels of nested cgroups that are searched for processes, as of a container in a container.
const DEPTH: usize = 8;
/// Levels of cgroups below the common parent of all containers that are searched for notes of an earlier process.
const TREE_DEPTH: usize = 16;
/// The core scheduling switch of Anolis' and Alibaba's kernels, below `/proc`.
const SWITCH: &str = "sys/kernel/sched_core";

/// Whether this kernel supports core scheduling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreScheduling {
    /// Core scheduling works.
    Works,
    /// No core has a second thread online, so there is nothing to separate (`ENODEV`).
    NoSmt,
    /// The kernel is older than Linux 5.14, or built without `CONFIG_SCHED_CORE` (`EINVAL`).
    Missing,
    /// The system call is forbidden, e.g. by a seccomp profile.
    Forbidden {
        /// Name of the error number.
        errno: &'static str,
    },
    /// The kernel's own switch `sched_core` is off.
    SwitchedOff,
}

impl CoreScheduling {
    /// Whether core scheduling groups can be created.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}

impl fmt::Display for CoreScheduling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => out.write_str("this kernel schedules by cores"),
            Self::NoSmt => {
                out.write_str("no core of this machine has two threads online (SMT), so there is nothing to keep apart")
            }
            Self::Missing => {
                out.write_str("this kernel has no core scheduling: it takes Linux 5.14 with CONFIG_SCHED_CORE")
            }
            Self::Forbidden { errno } => {
                write!(out, "prctl(PR_SCHED_CORE) is forbidden here ({errno}): allow prctl in the seccomp profile")
            }
            Self::SwitchedOff => {
                write!(
                    out,
                    "core scheduling is switched off: write 1 to /proc/{SWITCH}, after 0 to sched_group_identity_enabled beside it"
                )
            }
        }
    }
}

/// Whether the kernel supports core scheduling, without a host.
pub fn schedules_by_cores() -> bool {
    helper::cookie_of(std::process::id()).is_ok()
}

/// State of the core scheduling groups after the last reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreGroupReport {
    /// Number of wanted groups.
    pub groups: usize,
    /// Number of processes in them.
    pub processes: usize,
    /// Number of cgroups that are no longer in a group, and whose processes had a cookie at the last scan.
    pub leaving: usize,
    /// Deviations from the wanted state, at most 32.
    pub problems: Vec<CoreGroupProblem>,
    /// Number of further problems.
    pub more_problems: usize,
}

/// A deviation from the wanted state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreGroupProblem {
    /// The cgroup; empty if the problem concerns all of them.
    pub cgroup: String,
    /// The reason, and how to fix it.
    pub why: String,
}

/// Number of problems that are reported one by one.
const MAX_PROBLEMS: usize = 32;

/// A cgroup with a note.
struct Place {
    tree: usize,
    path: String,
}

/// The cgroups with notes, and the errors while reading them.
#[derive(Default)]
struct Scan {
    /// The numbers of the groups.
    groups: Vec<u64>,
    places: Vec<Place>,
    scanned: Vec<Scanned>,
    /// The first error of each cgroup.
    errors: Vec<Option<CoreSchedulingError>>,
}

impl Scan {
    fn group(&mut self, number: u64) -> usize {
        self.groups.iter().position(|&known| known == number).unwrap_or_else(|| {
            self.groups.push(number);
            self.groups.len() - 1
        })
    }
}

impl Host {
    /// Whether this kernel supports core scheduling now. The answer may change, since second threads go online and offline.
    pub fn core_scheduling(&self) -> CoreScheduling {
        match self.backend.cookie_of(self.backend.pid()) {
            Ok(_) => {}
            Err(error) if host_error::is(&error, Errno::NODEV) => return CoreScheduling::NoSmt,
            Err(error) if host_error::is(&error, Errno::INVAL) => return CoreScheduling::Missing,
            Err(error) => return CoreScheduling::Forbidden { errno: host_error::errno_name(&error) },
        }
        let switch = self.backend.read_once(Area::Proc, SWITCH).ok().and_then(|text| parse::number(&text));
        if switch == Some(0) { CoreScheduling::SwitchedOff } else { CoreScheduling::Works }
    }

    /// Gives the processes of all containers with a group note their group's cookie, and clears qosm's cookies from the
    /// processes of containers that only have a note of cookies. Notes elsewhere on the node are not qosm's.
    ///
    /// Without core scheduling in the kernel, nothing changes and the report says why. Processes that end meanwhile are
    /// no error. A failure for one process does not affect the others; the next call tries again.
    pub fn reconcile_core_groups(&mut self) -> CoreGroupReport {
        let mut scan = Scan::default();
        if let Some(tree) = self.tree_of(Knob::CoreGroup)
            && let Ok(above) = self.above_core_groups()
        {
            self.find_notes(tree, &above, TREE_DEPTH, &mut scan);
        }
        if scan.places.is_empty() {
            return CoreGroupReport::default();
        }
        let support = self.core_scheduling();
        if !support.works() {
            let problem = CoreGroupProblem { cgroup: String::new(), why: support.to_string() };
            return CoreGroupReport {
                groups: scan.groups.len(),
                problems: vec![problem],
                ..CoreGroupReport::default()
            };
        }
        for at in 0..scan.places.len() {
            self.look_at(&mut scan, at);
        }
        let decision = decide(scan.groups.len(), &scan.scanned);
        for (place, seen) in decision.seen.iter().enumerate() {
            if scan.errors.get(place).is_some_and(Option::is_none) {
                self.note(&mut scan, place, seen.clone());
            }
        }
        let mut report = CoreGroupReport { groups: scan.groups.len(), ..CoreGroupReport::default() };
        let mut problems = Vec::new();
        for decided in &decision.groups {
            report.processes += decided.settled + decided.foreign;
            match self.carry_out(&mut scan, &decided.source, &decided.moves) {
                Ok(moved) => report.processes += moved,
                Err(error) => problems.push(CoreGroupProblem { cgroup: String::new(), why: error.to_string() }),
            }
        }
        if let Err(error) = self.clear(&mut scan, &decision.cleared) {
            problems.push(CoreGroupProblem { cgroup: String::new(), why: error.to_string() });
        }
        self.backend.drop_cookie();
        report.leaving =
            scan.scanned.iter().filter(|scanned| scanned.group.is_none() && !scanned.noted.is_empty()).count();
        let of_cgroups = scan.places.into_iter().zip(scan.errors);
        problems.extend(
            of_cgroups
                .filter_map(|(place, error)| Some((place.path, error?)))
                .map(|(cgroup, error)| CoreGroupProblem { cgroup, why: error.to_string() }),
        );
        report.more_problems = problems.len().saturating_sub(MAX_PROBLEMS);
        problems.truncate(MAX_PROBLEMS);
        report.problems = problems;
        report
    }

    /// The cgroup below which notes count. In the slices of users, which the node's root contains, whoever may write attributes could
    /// choose a group.
    ///
    /// # Errors
    ///
    /// The reason, if that would be the node's root.
    pub(crate) fn above_core_groups(&self) -> Result<String, String> {
        let (above, _) = self.above_containers();
        if above.is_empty() {
            return Err("there is no kubepods, and elsewhere on the node users could choose a group themselves; name the cgroup that \
                        contains the containers by `--cgroup-root`"
                .to_owned());
        }
        Ok(above)
    }

    /// Finds all cgroups with a note. Cgroups below a member of a group belong to the same group and are not searched.
    fn find_notes(&self, tree: usize, path: &str, depth: usize, scan: &mut Scan) {
        let area = Area::Cgroup(tree);
        let mut is_member = false;
        // A hierarchy's root cannot be in a group.
        if !path.is_empty() {
            let group = self.backend.note(area, path, Note::Group);
            let cookies = self.backend.note(area, path, Note::Cookies);
            let (group, cookies, error) = match (group, cookies) {
                (Ok(group), Ok(cookies)) => (group, cookies, None),
                (Err(source), _) | (_, Err(source)) if host_error::is_absent(&source) => return,
                (group, cookies) => {
                    let note = if group.is_err() { Note::Group } else { Note::Cookies };
                    let error = group.and(cookies).err().map(|source| CoreSchedulingError::Note {
                        cgroup: path.to_owned(),
                        note,
                        verb: "read",
                        source,
                    });
                    (None, None, error)
                }
            };
            let group = group.and_then(|text| note::group(&text));
            is_member = group.is_some();
            let noted = cookies.map(|text| note::cookies(&text));
            if is_member || noted.is_some() || error.is_some() {
                let group = group.map(|number| scan.group(number));
                scan.scanned.push(Scanned { group, noted: noted.unwrap_or_default(), ..Scanned::default() });
                scan.places.push(Place { tree, path: path.to_owned() });
                scan.errors.push(error);
            }
        }
        if depth > 0 && !is_member {
            for name in self.backend.directories(area, path).unwrap_or_default() {
                self.find_notes(tree, &join(path, &name), depth - 1, scan);
            }
        }
    }

    /// Reads the processes of a cgroup and their cookies. A process that cannot be read stays as it is, and is reported as an error.
    fn look_at(&self, scan: &mut Scan, at: usize) {
        let (Some(place), Some(scanned), Some(error)) =
            (scan.places.get(at), scan.scanned.get_mut(at), scan.errors.get_mut(at))
        else {
            return;
        };
        if error.is_some() {
            return;
        }
        let members = self.members(place.tree, &place.path, DEPTH);
        if members.iter().any(|(_, pid)| *pid == self.backend.pid()) {
            *error = Some(CoreSchedulingError::Own { cgroup: place.path.clone() });
            return;
        }
        let count = members.iter().filter(|(_, pid)| *pid == 0).count();
        if count > 0 {
            *error = Some(CoreSchedulingError::OutOfSight { cgroup: place.path.clone(), count });
        }
        for (cgroup, pid) in members.into_iter().filter(|(_, pid)| *pid != 0) {
            let cookie = self.backend.cookie_of(pid);
            match cookie.map_err(|source| CoreSchedulingError::of_process(pid, &cgroup, source)) {
                Ok(cookie) => scanned.processes.push(Process { pid, cookie: Cookie::new(cookie) }),
                Err(CoreSchedulingError::Ended { .. }) => {}
                Err(refused) => {
                    error.get_or_insert(refused);
                }
            }
        }
    }

    /// Notes the cookies of a cgroup's processes, unless the note already lists exactly these. Returns whether the note is current.
    fn note(&mut self, scan: &mut Scan, at: usize, cookies: BTreeSet<Cookie>) -> bool {
        let (Some(place), Some(scanned)) = (scan.places.get(at), scan.scanned.get_mut(at)) else { return false };
        if scanned.noted == cookies {
            return true;
        }
        let text = note::print(&cookies);
        match self.backend.set_note(Area::Cgroup(place.tree), &place.path, Note::Cookies, text.as_deref()) {
            Ok(()) => {
                scanned.noted = cookies;
                true
            }
            // The cgroup is gone with its processes.
            Err(source) if host_error::is_absent(&source) => false,
            Err(source) => {
                let error = CoreSchedulingError::Note {
                    cgroup: place.path.clone(),
                    note: Note::Cookies,
                    verb: "written",
                    source,
                };
                if let Some(first) = scan.errors.get_mut(at) {
                    first.get_or_insert(error);
                }
                false
            }
        }
    }

    /// Gives processes a group's cookie. Returns the number of processes moved.
    fn carry_out(
        &mut self,
        scan: &mut Scan,
        source: &Source,
        moves: &[(usize, u32)],
    ) -> Result<usize, CoreSchedulingError> {
        if moves.is_empty() {
            return Ok(0);
        }
        let Some(cookie) = self.hold(source)? else { return Ok(0) };
        let mut may_move = BTreeMap::new();
        let mut moved = 0;
        for &(at, pid) in moves {
            // Write the note first: if the agent dies after it, the next agent still recognizes the cookie as qosm's.
            let is_noted = match may_move.get(&at) {
                Some(&is_noted) => is_noted,
                None => {
                    let noted = scan.scanned.get(at).map(|scanned| scanned.noted.clone()).unwrap_or_default();
                    let is_noted = self.note(scan, at, noted.into_iter().chain([cookie]).collect());
                    may_move.insert(at, is_noted);
                    is_noted
                }
            };
            if is_noted && self.push(scan, at, pid) {
                moved += 1;
            }
        }
        Ok(moved)
    }

    /// Makes the helper hold a group's cookie; `None` if no process needs it, or all its holders have ended, which the next call detects.
    fn hold(&mut self, source: &Source) -> Result<Option<Cookie>, CoreSchedulingError> {
        match source {
            Source::None => Ok(None),
            Source::New => {
                let cookie = self.backend.hold_cookie(Hold::New).map_err(CoreSchedulingError::Cookie)?;
                Ok(Cookie::new(cookie))
            }
            Source::Held { cookie, by } => {
                for &pid in by {
                    match self.backend.hold_cookie(Hold::Of(pid)) {
                        // The PID may already belong to another process.
                        Ok(held) if held == cookie.get() => return Ok(Some(*cookie)),
                        Ok(_) => {}
                        Err(error) if host_error::is(&error, Errno::SRCH) => {}
                        Err(error) => return Err(CoreSchedulingError::Cookie(error)),
                    }
                }
                Ok(None)
            }
        }
    }

    /// Gives processes the default cookie, 0. Returns their number.
    fn clear(&mut self, scan: &mut Scan, processes: &[(usize, u32)]) -> Result<usize, CoreSchedulingError> {
        if processes.is_empty() {
            return Ok(0);
        }
        if self.backend.hold_cookie(Hold::Default).map_err(CoreSchedulingError::Cookie)? != 0 {
            return Err(CoreSchedulingError::Inherited);
        }
        Ok(processes.iter().filter(|&&(at, pid)| self.push(scan, at, pid)).count())
    }

    fn push(&mut self, scan: &mut Scan, at: usize, pid: u32) -> bool {
        let Some(place) = scan.places.get(at) else { return false };
        let pushed = self.backend.push_cookie(pid);
        match pushed.map_err(|source| CoreSchedulingError::of_process(pid, &place.path, source)) {
            Ok(()) => true,
            Err(CoreSchedulingError::Ended { .. }) => false,
            Err(refused) => {
                if let Some(first) = scan.errors.get_mut(at) {
                    first.get_or_insert(refused);
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
