//! Core scheduling: hyper-threads of one core run threads of one group at a time, or idle.
//!
//! A group is a *cookie* that all its threads have; the kernel lets threads of different cookies, or of one and none, not run on one core at
//! the same time. The kernel has no file for it. So the number of a container's group is noted on its cgroup ([`note`]), which is all that
//! the knob [`Knob::CoreGroup`] reads and writes (`knob`), and [`Host::reconcile_core_groups`] brings the processes to a cookie for each
//! group, in whichever process may do that.
//!
//! Threads and children inherit a cookie, but a process that joins a cgroup from outside, as by `kubectl exec`, does not: it is found by the
//! next call. Which cookies are qosm's is noted on each cgroup too, before a process gets one, so that whoever comes next goes on with the
//! same groups, and gives back what is in none. What others made stays theirs (`decision`).
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

/// Nested cgroups that are searched: those of a container in a container.
const DEPTH: usize = 8;
/// Levels of cgroups below the one above all containers that are searched for notes of an earlier process.
const TREE_DEPTH: usize = 16;
/// The switch of Anolis' and Alibaba's kernels, below `/proc`.
const SWITCH: &str = "sys/kernel/sched_core";

/// Whether this kernel schedules by cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreScheduling {
    /// It does.
    Works,
    /// No core has a second thread that is online, so there is nothing to keep apart (`ENODEV`).
    NoSmt,
    /// The kernel is older than Linux 5.14, or built without `CONFIG_SCHED_CORE` (`EINVAL`).
    Missing,
    /// Something between the agent and the kernel forbids the system call.
    Forbidden {
        /// Name of the error number.
        errno: &'static str,
    },
    /// The kernel's own switch is off.
    SwitchedOff,
}

impl CoreScheduling {
    /// Whether groups can be made.
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

/// Whether the kernel schedules by cores, asked without a host.
pub fn schedules_by_cores() -> bool {
    helper::cookie_of(std::process::id()).is_ok()
}

/// What there is of groups on the node, and what was done about it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreGroupReport {
    /// Groups that are wanted.
    pub groups: usize,
    /// Processes in them.
    pub processes: usize,
    /// Cgroups that are in no group any more, and whose processes had a cookie when they were looked at.
    pub leaving: usize,
    /// What is not as asked for.
    pub problems: Vec<CoreGroupProblem>,
    /// How many more of these there are.
    pub more_problems: usize,
}

/// What is not as asked for in a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreGroupProblem {
    /// The cgroup; empty = all of them.
    pub cgroup: String,
    /// What, and what to do about it.
    pub why: String,
}

/// Problems that are told of one by one.
const MAX_PROBLEMS: usize = 32;

/// A cgroup with a note.
struct Place {
    tree: usize,
    path: String,
}

/// What a scan found, and what it could not see.
#[derive(Default)]
struct Scan {
    /// The numbers of the groups.
    groups: Vec<u64>,
    places: Vec<Place>,
    scanned: Vec<Scanned>,
    /// For each cgroup.
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
    /// Whether this kernel schedules by cores now. Cores get and lose their second threads while the machine runs, so the answer may change.
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

    /// Brings the processes of all containers whose cgroups have a note of their group to that group's cookie, and takes the cookies that
    /// qosm gave from the processes of those that have a note of these alone. Notes elsewhere on the node are not qosm's.
    ///
    /// Where the kernel has no core scheduling nothing is touched, and the report says why. Processes that end meanwhile are no error. What
    /// cannot be done for one process is done for the others, and tried again by the next call.
    pub fn reconcile_core_groups(&mut self) -> CoreGroupReport {
        let mut scan = Scan::default();
        if let Some(tree) = self.tree_of(Knob::CoreGroup) {
            // Elsewhere, as in the slice of a user, whoever may write attributes there would choose a group.
            let (above, _) = self.above_containers();
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

    /// Finds all cgroups with a note. What is below one that is in a group is in it.
    fn find_notes(&self, tree: usize, path: &str, depth: usize, scan: &mut Scan) {
        let area = Area::Cgroup(tree);
        let mut is_member = false;
        // A hierarchy's root takes part in nothing.
        if !path.is_empty() {
            let group = self.backend.note(area, path, Note::Group);
            let cookies = self.backend.note(area, path, Note::Cookies);
            let (group, cookies, error) = match (group, cookies) {
                (Ok(group), Ok(cookies)) => (group, cookies, None),
                (Err(source), _) | (_, Err(source)) if host_error::is_absent(&source) => return,
                (Err(source), _) | (_, Err(source)) => {
                    let error = CoreSchedulingError::Note { cgroup: path.to_owned(), verb: "read", source };
                    (None, None, Some(error))
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

    /// The processes of a cgroup with their cookies. One that cannot be seen is left as it is, and told.
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

    /// Notes what a cgroup's processes have, unless it is noted already.
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
            // Gone with its processes.
            Err(source) if host_error::is_absent(&source) => false,
            Err(source) => {
                let error = CoreSchedulingError::Note { cgroup: place.path.clone(), verb: "written", source };
                if let Some(first) = scan.errors.get_mut(at) {
                    first.get_or_insert(error);
                }
                false
            }
        }
    }

    /// Moves processes to a group's cookie. Returns how many were moved.
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
            // The note goes first: whatever happens then, the next agent knows the cookie for its own.
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

    /// Lets the helper hold a group's cookie; `None` when all that had it have ended, which the next call sees.
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
                        // The number may be another process's by now.
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

    /// Gives the default cookie back.
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
