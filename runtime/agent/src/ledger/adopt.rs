//! Adopts knobs that an earlier agent held.

use std::collections::BTreeMap;

use qosm_host::{Executed, Host, HostError, Step as HostStep};
use qosm_model::knob::{Level, Target, Value};
use qosm_model::problem::chain;

use crate::inputs::Inputs;
use crate::journal::Record;
use crate::ledger::found::{Found, compare_with_kernel, is_paused};
use crate::ledger::{HeldKnob, Ledger};
use crate::table::PodTable;

impl Ledger {
    /// Takes over the journal's records of a cgroup that has just been opened.
    pub(crate) fn adopt(&mut self, host: &mut Host, target: Target) {
        let Some(path) = host.attached_path(target).map(str::to_owned) else { return };
        let mut kept = Vec::new();
        for record in std::mem::take(&mut self.orphans) {
            if record.cgroup != path {
                kept.push(record);
                continue;
            }
            let key = (record.knob, record.cgroup.clone());
            self.unreadable.remove(&key);
            let found = match compare_with_kernel(host, target, &record) {
                // The kernel does not show what the host emulates.
                Found::Ours(_) | Found::Baseline | Found::Foreign(_) if host.emulates(record.knob) => {
                    emulate_again(host, target, &record)
                }
                found => found,
            };
            match found {
                Found::Ours(written) => self.hold_again(target, record, written),
                // Held with qosm's value, so that the next read-back finds the other one and treats it as drift. Without its record, a
                // policy that sets the knob would overwrite a person's value at once.
                Found::Foreign(found) => {
                    tracing::warn!(knob = %record.knob, cgroup = record.cgroup, %found, "written by another process while no agent ran");
                    let written = record.written;
                    self.hold_again(target, record, written);
                }
                Found::Baseline | Found::Gone => self.journal_deletions.push(key),
                Found::Unknown(why) => {
                    tracing::warn!(knob = %record.knob, cgroup = record.cgroup, error = why, "a knob that an earlier agent held cannot be read");
                    self.unreadable.insert(key, why);
                    kept.push(record);
                }
            }
        }
        self.orphans = kept;
        // Leases may have been waiting for this cgroup.
        let leased = self.leases.on(target).filter(|&knob| self.leases.effective(target, knob).is_some());
        self.dirty.extend(leased.map(|knob| (target, knob)));
        self.follow_from(host, target);
    }

    fn hold_again(&mut self, target: Target, record: Record, written: Value) {
        let policy = record.policy.as_str().into();
        let held = HeldKnob::new(record.baseline, written, record.cgroup, policy, record.since);
        self.held.get_or_insert_with((target, record.knob), || held);
    }

    /// Opens the cgroups that the journal records and no pod claims, and adopts the knobs held there. The next call retries those that
    /// cannot be opened.
    pub(crate) fn open_orphans(&mut self, host: &mut Host, pods: &mut PodTable) {
        let paths: BTreeMap<String, Level> =
            self.orphans.iter().map(|record| (record.cgroup.clone(), record.level)).collect();
        for (path, level) in paths {
            let target = match host.attached_at(&path) {
                Some(target) => target,
                None => {
                    let spare = match level {
                        Level::Container => Target::Container(pods.spare_container_id()),
                        Level::Pod | Level::Tier => Target::Pod(pods.spare_pod_id()),
                        Level::Node => Target::Node,
                    };
                    match host.attach(spare, &path) {
                        Ok(()) => drop(self.spares.insert(path.clone(), spare)),
                        Err(error) => {
                            self.leave_orphans(&path, &error);
                            continue;
                        }
                    }
                    spare
                }
            };
            self.adopt(host, target);
            let unclaimed = self.held.of(target).filter(|&knob| self.leases.effective(target, knob).is_none());
            self.dirty.extend(unclaimed.map(|knob| (target, knob)));
        }
    }

    /// Marks held knobs that no policy claims to be restored, once every policy was evaluated. Returns `true` if there is something to
    /// apply.
    pub(crate) fn settle(&mut self) -> bool {
        self.is_settled = true;
        let unclaimed: Vec<_> = self
            .held
            .keys()
            .filter(|&&(target, knob)| self.leases.effective(target, knob).is_none())
            .copied()
            .collect();
        self.dirty.extend(unclaimed);
        !self.dirty.is_empty()
    }

    /// Handles a recorded cgroup that cannot be opened: deletes its records if it is gone, else keeps them with the error.
    fn leave_orphans(&mut self, path: &str, error: &HostError) {
        let (there, elsewhere): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.orphans).into_iter().partition(|record| record.cgroup == path);
        self.orphans = elsewhere;
        if error.is_gone() {
            for record in &there {
                self.unreadable.remove(&(record.knob, record.cgroup.clone()));
            }
            self.journal_deletions.extend(there.into_iter().map(|record| (record.knob, record.cgroup)));
            return;
        }
        for record in &there {
            self.unreadable.insert((record.knob, record.cgroup.clone()), chain(error));
        }
        self.orphans.extend(there);
    }

    /// At the agent's end, if no cgroup was opened yet: leaves recorded knobs of paused pods as they are.
    pub(crate) fn leave_paused_orphans(&mut self, inputs: &Inputs<'_>) {
        if self.is_settled || inputs.pods.are_pauses_ended() {
            return;
        }
        let paused = &self.paused_cgroups;
        let (left, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.orphans)
            .into_iter()
            .partition(|record| is_paused(paused, &record.cgroup, inputs.now.wall));
        self.orphans = open;
        if !left.is_empty() {
            tracing::warn!(knobs = left.len(), "of paused pods: left as they are; `qosm restore` puts them back");
        }
    }
}

/// Starts the emulation of a knob again: it ended with the process of the earlier agent.
fn emulate_again(host: &mut Host, target: Target, record: &Record) -> Found {
    let Ok(from) = host.read(target, record.knob) else { return Found::Gone };
    match host.execute(&HostStep { target, knob: record.knob, from, to: record.written }) {
        Ok(Executed::Done(value)) => Found::Ours(value),
        Ok(Executed::Pending) => Found::Ours(record.written),
        Err(error) => {
            tracing::warn!(knob = %record.knob, cgroup = record.cgroup, error = chain(&error), "not emulated again");
            Found::Baseline
        }
    }
}
