//! Core scheduling groups as a knob: the knob is the number of the group, noted on the container's cgroup, and the host
//! moves processes to the groups that the notes name.
//!
//! Reading processes of other users needs rights that a confined agent lacks. In that case the page mover process does
//! the work: it reads the notes itself, so that the agent only signals that something has changed.

use std::io;
use std::time::{Duration, Instant};

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::unit::Micros;
use rustix::io::Errno;

use super::note::{self, Note};
use super::{CoreGroupProblem, CoreGroupReport};
use crate::Host;
use crate::backend::{AnyBackend, Area, Backend as _};
use crate::error::{self, HostError, errno_name};
use crate::knob_table;
use crate::knobs::{KnobFile, Support};

/// Interval between searches for processes that have joined a cgroup, while a group exists.
const INTERVAL: Micros = Micros(10_000_000);
/// Time between two checks for the page mover's answer.
const PAUSE: Duration = Duration::from_millis(20);

/// State of the knob: pending changes and the last report.
#[derive(Debug, Default)]
pub(crate) struct CoreGroups {
    /// A note was written since processes were last moved to their groups.
    is_changed: bool,
    /// The page mover has not answered yet.
    is_asked: bool,
    /// A note was written, or a cgroup had one.
    is_used: bool,
    last: Option<Micros>,
    /// The last report; `None` before the first.
    report: Option<CoreGroupReport>,
}

impl CoreGroups {
    /// No container is in a group, and no process has a cookie of one.
    fn is_at_rest(&self) -> bool {
        let is_at_rest =
            |report: &CoreGroupReport| report.groups == 0 && report.leaving == 0 && report.problems.is_empty();
        !self.is_changed && !self.is_asked && self.report.as_ref().is_some_and(is_at_rest)
    }

    /// Stores a report, and logs its new problems.
    fn take(&mut self, report: CoreGroupReport) {
        let known = self.report.as_ref().map(|report| report.problems.as_slice()).unwrap_or_default();
        for CoreGroupProblem { cgroup, why } in report.problems.iter().filter(|problem| !known.contains(problem)) {
            tracing::warn!(cgroup, why, "core scheduling");
        }
        self.is_asked = false;
        self.report = Some(report);
        self.is_used |= !self.is_at_rest();
    }
}

impl Host {
    /// Whether containers can be put into core scheduling groups: whether the kernel supports it, and a process with
    /// the rights to read theirs exists.
    pub fn core_group_support(&self) -> Support {
        let support = self.core_scheduling();
        if !support.works() {
            return Support::Unavailable { why: support.to_string() };
        }
        match self.absent_page_mover() {
            Some(why) => Support::Unavailable {
                why: format!("the page mover puts processes into core scheduling groups, and there is none: {why}"),
            },
            None => Support::Native,
        }
    }

    /// Moves processes to the groups that their cgroups' notes name: if a note was written since the last call, and
    /// every 10 s, since processes may join. Does nothing while no cgroup has a note.
    pub fn settle_core_groups(&mut self, now: Micros) {
        self.take_core_groups();
        let groups = &mut self.core_groups;
        let is_old = groups.last.is_none_or(|last| now.0.saturating_sub(last.0) >= INTERVAL.0);
        if groups.is_asked || !groups.is_changed && (!is_old || groups.is_at_rest()) {
            return;
        }
        groups.last = Some(now);
        self.ask_for_core_groups();
    }

    /// Moves processes to the groups that their cgroups' notes name, until no process outside of the groups has a cookie of qosm's.
    ///
    /// # Errors
    ///
    /// The problems, if the work is not done within the time `within`.
    pub fn finish_core_groups(&mut self, within: Duration) -> Result<(), String> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the end of the service waits for another process, and not for long"
        )]
        let begun = Instant::now();
        // Without a page mover, the check below is quick even if groups were never used.
        if self.page_mover().is_some() && (self.absent_page_mover().is_some() || !self.core_groups.is_used) {
            return Ok(());
        }
        // The first reconciliation clears cookies, and the next confirms that they are gone.
        for looks in 0_u32.. {
            self.take_core_groups();
            if !self.core_groups.is_changed
                && !self.core_groups.is_asked
                && let Some(report) = &self.core_groups.report
                && report.leaving == 0
            {
                return Ok(());
            }
            if begun.elapsed() > within && (self.core_groups.is_asked || looks > 1) {
                let report = self.core_groups.report.clone().unwrap_or_default();
                let whys: Vec<String> = report.problems.into_iter().map(|problem| problem.why).collect();
                let why = if whys.is_empty() { "there was no answer in time".to_owned() } else { whys.join("; ") };
                return Err(format!("processes may still be in core scheduling groups: {why}"));
            }
            if !self.core_groups.is_asked {
                self.ask_for_core_groups();
            }
            if self.core_groups.is_asked || looks > 1 {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// The last report about the groups; `None` before the first.
    pub fn core_groups(&self) -> Option<&CoreGroupReport> {
        self.core_groups.report.as_ref()
    }

    /// State of a container's group, in words.
    pub fn describe_core_group(&self, target: Target) -> String {
        let Some(report) = self.core_groups.report.as_ref().filter(|_| !self.core_groups.is_changed) else {
            return "its processes are not in it yet".to_owned();
        };
        let path = self.attached_path(target).unwrap_or_default();
        let problem = report.problems.iter().find(|problem| problem.cgroup.is_empty() || problem.cgroup == path);
        match problem {
            Some(problem) => problem.why.clone(),
            None => "its threads share no core with those of another group, or of none".to_owned(),
        }
    }

    fn ask_for_core_groups(&mut self) {
        self.core_groups.is_changed = false;
        let asked = match &self.backend {
            AnyBackend::Kernel(kernel) => kernel.page_mover().map(|mover| mover.reconcile_core_groups()),
            AnyBackend::Simulated(_) => None,
        };
        match asked {
            Some(is_asked) => self.core_groups.is_asked = is_asked,
            None => {
                let report = self.reconcile_core_groups();
                self.core_groups.take(report);
            }
        }
    }

    fn take_core_groups(&mut self) {
        let AnyBackend::Kernel(kernel) = &self.backend else { return };
        if let Some(report) = kernel.page_mover().and_then(|mover| mover.take_core_groups()) {
            self.core_groups.take(report);
        }
    }

    /// Why no page mover exists, nor will; `None` if one exists, or this process does its work.
    fn absent_page_mover(&self) -> Option<String> {
        match &self.backend {
            AnyBackend::Kernel(kernel) => kernel.page_mover()?.absent(),
            AnyBackend::Simulated(_) => None,
        }
    }

    pub(crate) fn read_core_group(&self, target: Target) -> Result<Value, HostError> {
        let (area, path) = self.noted_cgroup(target)?;
        match self.backend.note(area, &path, Note::Group) {
            Ok(text) => Ok(number(text.and_then(|text| note::group(&text)).unwrap_or(0))),
            Err(source) if error::is_absent(&source) => Err(HostError::Gone { path }),
            Err(source) => Err(HostError::Read { path: self.core_group_path(target), source }),
        }
    }

    pub(crate) fn write_core_group(&mut self, target: Target, value: Value) -> Result<Value, HostError> {
        let (area, path) = self.noted_cgroup(target)?;
        if let Err(why) = self.above_core_groups().and_then(|_| self.container_cgroup(&path)) {
            return Err(HostError::Unsupported { what: Knob::CoreGroup.to_string(), why });
        }
        let row = knob_table::row(Knob::CoreGroup);
        let number = match value {
            Value::Number(number) if row.accepts(value) => number,
            _ => {
                let (knob, path) = (Knob::CoreGroup, self.core_group_path(target));
                return Err(HostError::Range { target, knob, value: Box::new(value), path, allowed: row.allowed() });
            }
        };
        let text = (number != 0).then(|| number.to_string());
        match self.backend.set_note(area, &path, Note::Group, text.as_deref()) {
            Ok(()) => {
                (self.core_groups.is_changed, self.core_groups.is_used) = (true, true);
                self.read_core_group(target)
            }
            Err(source) => Err(self.refused_core_group(target, path, value, source)),
        }
    }

    fn refused_core_group(&self, target: Target, cgroup: String, value: Value, source: io::Error) -> HostError {
        let path = self.core_group_path(target);
        if error::is_absent(&source) {
            return HostError::Gone { path: cgroup };
        }
        if error::is(&source, Errno::ROFS) {
            return HostError::ReadOnly { path };
        }
        let (knob, errno) = (Knob::CoreGroup, errno_name(&source));
        HostError::Refused { target, knob, value: value.to_string(), path, errno, source }
    }

    pub(crate) fn core_group_file(&self, target: Target) -> Option<KnobFile> {
        self.attached_path(target)?;
        self.tree_of(Knob::CoreGroup)?;
        Some(KnobFile { file: Note::Group.attribute(), path: self.core_group_path(target) })
    }

    fn core_group_path(&self, target: Target) -> String {
        let directory = self.tree_of(Knob::CoreGroup).zip(self.attached_path(target));
        let directory = directory.map(|(tree, path)| self.directory_path(tree, path)).unwrap_or_default();
        format!("{directory} (extended attribute {})", Note::Group.attribute())
    }

    /// The target's cgroup, if it is still the one that was attached.
    fn noted_cgroup(&self, target: Target) -> Result<(Area, String), HostError> {
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?.to_owned();
        match self.tree_of(Knob::CoreGroup) {
            Some(tree) if self.is_same(target, tree) => Ok((Area::Cgroup(tree), path)),
            _ => Err(HostError::Gone { path }),
        }
    }
}

fn number(number: u64) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(0))
}
