//! Taking over and giving back: knobs that an earlier agent held, pods that leave, holds that begin and end.

use std::collections::{BTreeSet, VecDeque};

use qosm_host::{Executed, HostError, Step as HostStep};
use qosm_model::knob::{DEFAULT_WEIGHT, IDLE_WEIGHT, Knob, Level, Target, Value};
use qosm_model::pod::PodId;
use qosm_model::problem::chain;

use crate::agent::{Agent, Step};
use crate::held::Held;
use crate::hold::{Hold, HoldSource};
use crate::journal::{JournalError, Record};
use crate::policy::{Health, Now};
use crate::table::Access;

/// After so many ticks what an earlier agent held and nobody claims is put back, even if a policy is still struggling to start.
const SETTLE_TICKS: u64 = 60;

/// What the kernel shows of a knob that the journal knows.
pub(crate) enum Found {
    /// Our value, or the one that our last write was about to replace.
    Ours(Value),
    /// The baseline: never written, or restored already.
    Baseline,
    /// Somebody else's.
    Foreign(Value),
    /// The knob or its cgroup is gone.
    Gone,
}

/// Compares what a knob holds with what the journal says of it.
pub(crate) fn compare(record: &Record, found: Result<Value, HostError>) -> Found {
    match found {
        Ok(found) if found == record.baseline => Found::Baseline,
        Ok(found) if found == record.written || found == record.previous => Found::Ours(found),
        // It comes down in steps: the agent may have ended between two of them.
        Ok(found) if record.knob == Knob::MemoryHigh && record.written < found && found < record.previous => {
            Found::Ours(found)
        }
        // The agent, or a restore, may have ended before it put another there.
        Ok(found) if is_left_by_idle(record.knob, record.written, found) => Found::Ours(found),
        Ok(found) if is_left_by_idle(record.knob, record.previous, found) => Found::Ours(found),
        Ok(found) => Found::Foreign(found),
        Err(_) => Found::Gone,
    }
}

/// Whether a weight is the kernel's own, put there when `cpu.idle` ended: nobody chose it.
pub(crate) fn is_left_by_idle(knob: Knob, before: Value, found: Value) -> bool {
    knob == Knob::CpuWeight && before == IDLE_WEIGHT && found == DEFAULT_WEIGHT
}

impl Agent {
    /// Takes over what the journal says of a cgroup that has just been opened.
    pub(crate) fn adopt(&mut self, target: Target) {
        let Some(path) = self.host.attached_path(target).map(str::to_owned) else { return };
        let identity = self.host.identity(target);
        let mut kept = Vec::new();
        for record in std::mem::take(&mut self.orphans) {
            if record.cgroup != path {
                kept.push(record);
                continue;
            }
            let found = if Some(record.identity) != identity {
                Found::Gone
            } else if self.host.emulates(record.knob) {
                self.emulate_again(target, &record)
            } else {
                compare(&record, self.host.read(target, record.knob))
            };
            match found {
                Found::Ours(written) => {
                    let held = Held {
                        baseline: record.baseline,
                        written,
                        cgroup: record.cgroup,
                        policy: record.policy.as_str().into(),
                        since: record.since,
                        pending: false,
                        hands_off_until: None,
                        drift: None,
                        rewrites: VecDeque::new(),
                        adjusted: None,
                    };
                    self.held.get_or_insert_with((target, record.knob), || held);
                }
                Found::Foreign(found) => {
                    tracing::warn!(knob = %record.knob, cgroup = record.cgroup, %found, "written by somebody else while no agent ran; left as it is");
                    self.struck.push((record.knob, record.cgroup));
                }
                Found::Baseline | Found::Gone => self.struck.push((record.knob, record.cgroup)),
            }
        }
        self.orphans = kept;
        // Leases may have been waiting for this cgroup.
        self.dirty.extend(
            Knob::ALL
                .into_iter()
                .map(|knob| (target, knob))
                .filter(|&(target, knob)| self.leases.effective(target, knob).is_some()),
        );
    }

    /// What the host did in the kernel's place ended with the process that did it; this one goes on with it.
    fn emulate_again(&mut self, target: Target, record: &Record) -> Found {
        let Ok(from) = self.host.read(target, record.knob) else { return Found::Gone };
        match self.host.execute(&HostStep { target, knob: record.knob, from, to: record.written }) {
            Ok(Executed::Done(value)) => Found::Ours(value),
            Ok(Executed::Pending) => Found::Ours(record.written),
            Err(error) => {
                tracing::warn!(knob = %record.knob, cgroup = record.cgroup, error = chain(&error), "not emulated again");
                Found::Baseline
            }
        }
    }

    /// Once every policy has had its say, what an earlier agent held and nobody claims is put back.
    pub(crate) fn settle(&mut self, now: Now, step: &mut Step) {
        if self.settled {
            return;
        }
        let struggling = self
            .policies
            .iter()
            .filter(|policy| policy.mode().is_active())
            .any(|policy| matches!(policy.health, Health::BackingOff { .. }) || policy.evaluations == 0);
        // One whose module is still on its way has not had its say either.
        let struggling = struggling || self.unloaded.iter().any(|policy| policy.mode.is_active() && policy.is_pending);
        if struggling && self.ticks < SETTLE_TICKS {
            return;
        }
        self.settled = true;
        let unclaimed: Vec<_> = self
            .held
            .keys()
            .filter(|&&(target, knob)| self.leases.effective(target, knob).is_none())
            .copied()
            .collect();
        self.dirty.extend(unclaimed);
        if !self.dirty.is_empty() {
            self.apply(now, step);
        }
        self.restore_orphans(now, step);
        self.remove_unclaimed();
    }

    /// Puts back what the journal knows of cgroups that no pod claims.
    pub(crate) fn restore_orphans(&mut self, now: Now, step: &mut Step) {
        let mut targets: Vec<(String, Target)> = Vec::new();
        for record in &self.orphans {
            if targets.iter().any(|(path, _)| *path == record.cgroup) {
                continue;
            }
            let target = match record.level {
                Level::Container => Target::Container(self.pods.spare_container_id()),
                Level::Pod | Level::Tier => Target::Pod(self.pods.spare_pod_id()),
            };
            targets.push((record.cgroup.clone(), target));
        }
        for (path, target) in &targets {
            if self.host.attach(*target, path).is_ok() {
                self.adopt(*target);
            }
        }
        // What is left has no cgroup any more.
        self.struck.extend(std::mem::take(&mut self.orphans).into_iter().map(|record| (record.knob, record.cgroup)));
        let spare: Vec<Target> = targets.into_iter().map(|(_, target)| target).collect();
        self.dirty.extend(spare.iter().flat_map(|&target| self.held.of(target).map(move |knob| (target, knob))));
        self.apply(now, step);
        for target in spare {
            self.host.detach(target);
            self.held.take(target);
        }
    }

    /// Gives up all that is held on pods and containers that are no longer known.
    pub(crate) fn release_leaving(&mut self) {
        let targets: Vec<Target> = self
            .leaving
            .iter()
            .flat_map(|entry| entry.targets())
            .chain(self.leaving_containers.iter().map(|gone| Target::Container(gone.id)))
            .collect();
        for target in targets {
            self.forget_leases(target);
            self.dirty.extend(self.held.of(target).map(|knob| (target, knob)));
        }
    }

    /// Closes their cgroups, once their knobs are back.
    pub(crate) fn tidy_leaving(&mut self) {
        for entry in std::mem::take(&mut self.leaving) {
            for target in entry.targets() {
                self.drop_target(target);
            }
            self.remove_pod(&entry);
        }
        for container in std::mem::take(&mut self.leaving_containers) {
            self.drop_target(Target::Container(container.id));
        }
    }

    /// Works out which pods are on hold. When a hold ends, the pod gets what it missed.
    pub(crate) fn update_holds(&mut self, now: Now) {
        let mut ended = Vec::new();
        // Nearly no pod is ever on hold: the others are not looked at.
        let asked: BTreeSet<PodId> = if self.operator_holds.is_empty() {
            self.pods.standing().annotated.iter().chain(self.holds.keys()).copied().collect()
        } else {
            self.pods.ids().into_iter().collect()
        };
        for id in asked {
            let Some(entry) = self.pods.get(id) else { continue };
            let (annotated, _) = Hold::from_annotation(&entry.given);
            let asked = self.operator_holds.get(&entry.given.key()).copied();
            let hold = asked.into_iter().chain(annotated).find(|hold| hold.holds_at(now.wall));
            match hold {
                Some(hold) => self.holds.insert(id, hold),
                None => self.holds.remove(&id),
            };
            let Some(entry) = self.pods.get(id).filter(|entry| entry.access != Access::Protected) else { continue };
            let access = if hold.is_some() { Access::OnHold } else { Access::Open };
            if entry.access == access {
                continue;
            }
            if hold.is_none() {
                ended.extend(entry.targets());
            }
            if let Some(entry) = self.pods.get_mut(id) {
                entry.access = access;
            }
            for policy in &mut self.policies {
                policy.reckon(id, &self.pods, true);
            }
        }
        for target in ended {
            let leased: Vec<_> = Knob::ALL
                .into_iter()
                .map(|knob| (target, knob))
                .filter(|key| self.held.contains_key(key) || self.leases.effective(key.0, key.1).is_some())
                .collect();
            self.dirty.extend(leased);
        }
    }

    /// Lifts all holds, for good.
    pub(crate) fn lift_holds(&mut self) {
        self.holds.clear();
        for id in self.pods.ids() {
            if let Some(entry) = self.pods.get_mut(id)
                && entry.access == Access::OnHold
            {
                entry.access = Access::Open;
            }
        }
    }

    /// Puts a pod on hold, or lifts the hold, on an operator's word. `false` = there is no such pod now; the hold waits for it.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when it could not be written down; then nothing changes.
    pub fn set_hold(
        &mut self,
        pod: &str,
        hold: Option<Option<qosm_model::lease::Timestamp>>,
        now: Now,
    ) -> Result<bool, JournalError> {
        let hold = hold.map(|until| Hold { until, source: HoldSource::Operator });
        if let Some(journal) = &self.journal {
            journal.set_hold(pod, hold.map(Into::into).as_ref())?;
        }
        match hold {
            Some(hold) => self.operator_holds.insert(pod.to_owned(), hold),
            None => self.operator_holds.remove(pod),
        };
        self.update_holds(now);
        Ok(self.pods.iter().any(|entry| entry.given.key() == pod))
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::lease::Timestamp;

    use super::*;

    #[test]
    fn what_an_agent_that_was_killed_left_is_told_from_what_others_wrote() {
        let shares = Value::Shares(51);
        let record = |knob, previous, written| Record {
            cgroup: String::new(),
            identity: 1,
            level: Level::Container,
            knob,
            baseline: if knob == Knob::CpuWeight { shares } else { Value::Max },
            previous,
            written,
            policy: String::new(),
            since: Timestamp(0),
        };
        let number = Value::Number;
        let entered = record(Knob::CpuWeight, shares, IDLE_WEIGHT);
        let left = record(Knob::CpuWeight, IDLE_WEIGHT, shares);
        let held = record(Knob::CpuWeight, number(100), number(250));
        let lowered = record(Knob::MemoryHigh, number(1 << 30), number(1 << 20));
        for (record, found, expected) in [
            (&entered, shares, "baseline"),
            (&entered, IDLE_WEIGHT, "ours"),
            (&entered, number(100), "ours"),
            (&entered, number(99), "foreign"),
            (&left, IDLE_WEIGHT, "ours"),
            // Between `cpu.idle` and the weight.
            (&left, number(100), "ours"),
            (&left, number(99), "foreign"),
            (&held, number(250), "ours"),
            (&held, IDLE_WEIGHT, "foreign"),
            (&lowered, number(1 << 25), "ours"),
            (&lowered, number(1 << 31), "foreign"),
        ] {
            let told = match compare(record, Ok(found)) {
                Found::Ours(_) => "ours",
                Found::Baseline => "baseline",
                Found::Foreign(_) => "foreign",
                Found::Gone => "gone",
            };
            assert_eq!(told, expected, "{found} in {record:?}");
        }
    }
}
