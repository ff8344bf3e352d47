//! Moves threads of containers into their groups, and creates monitor groups for counted containers.

use std::collections::BTreeSet;

use qosm_model::resctrl::ClassOutcome;

use super::{ClassReconciler, add};
use crate::resctrl::counter_delta::CounterDelta;
use crate::resctrl::error::ResctrlError;
use crate::resctrl::group::{Group, GroupName};
use crate::resctrl::members::{Member, UnmovedThreads};

impl ClassReconciler {
    /// Maximum number of counted containers: some RMIDs are reserved for control groups, each of which also needs one.
    fn most_counted(&self) -> usize {
        let info = self.groups.info();
        let rmids = info.monitoring.as_ref().map_or(0, |monitoring| monitoring.num_rmids);
        let reserved = info.closids().unwrap_or(1).min(rmids / 2).max(1);
        usize::try_from(rmids.saturating_sub(reserved)).unwrap_or(usize::MAX)
    }

    /// Reconciles the monitor groups. Returns old groups that threads must leave before they can be removed.
    pub(super) fn count(&mut self) -> Vec<Group> {
        let mut left = Vec::new();
        let mut counted = 0;
        for member in self.members.values_mut() {
            if !member.is_counted
                && let Some(monitor) = member.monitor.take()
            {
                // The kernel moves its threads to the control group.
                if let Err(error) = self.groups.remove(&monitor) {
                    tracing::warn!(group = %monitor, error = error.full_message(), "resctrl group not removed");
                }
                member.counters.close(&mut self.budget);
                member.counters = CounterDelta::default();
                member.mark_unsettled();
            }
            counted += usize::from(member.monitor.is_some());
        }
        let most = self.most_counted();
        let mut lacks_rmids = false;
        for member in self.members.values_mut().filter(|member| member.is_counted) {
            let parent = member.class.and_then(|class| self.used.get(class).cloned().flatten());
            let is_in_place = matches!(&member.monitor, Some(Group::Monitor { parent: now, .. }) if *now == parent);
            if is_in_place {
                continue;
            }
            let wanted = Group::Monitor { parent: parent.clone(), name: member.monitor_name() };
            member.mark_unsettled();
            if let Some(before) = member.monitor.take() {
                if self.groups.move_monitor(&before, &wanted) {
                    member.control = parent;
                    member.monitor = Some(wanted);
                    continue;
                }
                member.counters.close(&mut self.budget);
                member.counters = CounterDelta::default();
                counted -= 1;
                // It still contains the threads.
                left.push(before);
            }
            if lacks_rmids || counted >= most {
                lacks_rmids = true;
                continue;
            }
            match self.groups.create(&wanted) {
                Ok(_) => {
                    counted += 1;
                    member.monitor = Some(wanted);
                }
                Err(ResctrlError::Rmids { .. }) => lacks_rmids = true,
                Err(error) => tracing::debug!(group = %wanted, error = error.full_message(), "resctrl group not made"),
            }
        }
        if lacks_rmids && !self.lacks_rmids {
            tracing::warn!(
                counted,
                "no RMID is left: some containers' use of caches and memory bandwidth is not counted"
            );
        }
        self.lacks_rmids = lacks_rmids;
        left
    }

    pub(super) fn move_threads(&mut self, outcomes: &mut [ClassOutcome]) {
        let mut gone = BTreeSet::new();
        for member in self.members.values_mut() {
            let control = member.class.and_then(|class| self.used.get(class).cloned().flatten());
            if member.control != control {
                member.mark_unsettled();
            }
            if member.monitor.is_none() && control.is_none() {
                member.unmoved = UnmovedThreads::default();
                let before = member.control.take().filter(|name| self.controls.contains_key(name));
                if let Some(before) = before.map(Group::Control) {
                    let moved = self.groups.release(&before, &[member.cgroup()]);
                    if !moved.is_ok_and(|moved| moved.is_settled) {
                        member.control = before.control().cloned();
                    }
                }
                continue;
            }
            let Some(seen) = member.changed_threads() else { continue };
            let moved = match (&member.monitor, &control) {
                (Some(monitor), _) => self.groups.assign(monitor, &[member.cgroup()]),
                (None, Some(name)) => self.groups.assign(&Group::Control(name.clone()), &[member.cgroup()]),
                (None, None) => continue,
            };
            member.unmoved = UnmovedThreads::default();
            match moved {
                Ok(moved) => {
                    if let Some(outcome) = member.class.and_then(|class| outcomes.get_mut(class)) {
                        outcome.threads_moved += moved.moved;
                    }
                    member.control = control;
                    member.unmoved.out_of_sight = moved.out_of_sight;
                    member.unmoved.foreign = moved.foreign;
                    member.unmoved.refused = moved.refused;
                    member.unmoved.error = moved.first_refusal.as_ref().map(ResctrlError::full_message);
                    if moved.is_settled {
                        member.settle(seen);
                    }
                }
                Err(error) => {
                    member.unmoved.error = Some(error.full_message());
                    member.mark_unsettled();
                    if error.is_gone() {
                        // The next call finds out which of the two is gone.
                        member.monitor = None;
                        gone.extend(control);
                    }
                }
            }
        }
        for name in gone {
            if self.groups.schemata(Some(&name)).is_err_and(|error| error.is_gone()) {
                self.forget_control(&name);
            }
        }
    }

    /// Moves threads that an earlier process put into an adopted group, and that no class wants there now, to the root.
    pub(super) fn release_others(&self, name: &GroupName) {
        let members = self.members.values().filter(|member| member.control.as_ref() == Some(name));
        let cgroups: Vec<_> = members.map(Member::cgroup).collect();
        if let Err(error) = self.groups.release_others(&Group::Control(name.clone()), &cgroups) {
            tracing::warn!(group = %name, error = error.full_message(), "threads of an earlier process are still in a resctrl group");
        }
    }

    pub(super) fn report_unmoved_threads(&self, outcomes: &mut [ClassOutcome]) {
        for (class, outcome) in outcomes.iter_mut().enumerate() {
            let (mut out_of_sight, mut foreign, mut refused, mut error) = (0, 0, 0, None);
            for member in self.members.values().filter(|member| member.class == Some(class)) {
                out_of_sight += member.unmoved.out_of_sight;
                foreign += member.unmoved.foreign;
                refused += member.unmoved.refused;
                error = error.or(member.unmoved.error.as_deref());
            }
            if out_of_sight > 0 {
                add(
                    &mut outcome.why,
                    &format!(
                        "{out_of_sight} threads of its members cannot be seen from this process's pid namespace: in Kubernetes give \
                         the agent hostPID"
                    ),
                );
            }
            if foreign > 0 {
                add(
                    &mut outcome.why,
                    &format!("{foreign} threads of its members are in groups of other programs, where they stay"),
                );
            }
            if let Some(error) = error {
                let how_many = if refused > 0 { format!("{refused} threads") } else { "threads".to_owned() };
                add(&mut outcome.why, &format!("{how_many} of its members could not be moved: {error}"));
            }
        }
    }
}
