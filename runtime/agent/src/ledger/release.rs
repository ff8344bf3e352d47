//! Releasing: targets that leave, cgroups that are gone, and knobs that stay held there until they are restored.

use qosm_host::{Host, HostError};
use qosm_model::knob::{Knob, Target};

use crate::ledger::following::is_tiers_cpus;
use crate::ledger::{Applied, Ledger};

impl Ledger {
    /// Opens a cgroup for a pod, a container or a tier. A spare is handed over to the target with the knobs that are still held there.
    pub(crate) fn open_cgroup(&mut self, host: &mut Host, target: Target, path: &str) -> Result<(), HostError> {
        let Some(spare) = self.spares.get(path).copied().filter(|spare| *spare != target) else {
            return host.attach(target, path);
        };
        let identity = host.identity(spare);
        host.detach(spare);
        if let Err(error) = host.attach(target, path) {
            if !error.is_gone() && host.attach(spare, path).is_ok() {
                return Err(error);
            }
            for (knob, held) in self.held.take(spare) {
                self.journal_deletions.push((knob, held.cgroup));
            }
            self.forget_spare(host, path);
            return Err(error);
        }
        let is_same = host.identity(target) == identity;
        for (knob, held) in self.held.take(spare) {
            if is_same {
                self.held.get_or_insert_with((target, knob), || held);
                self.dirty.insert((target, knob));
            } else {
                self.journal_deletions.push((knob, held.cgroup));
            }
        }
        self.forget_spare(host, path);
        Ok(())
    }

    fn forget_spare(&mut self, host: &mut Host, path: &str) {
        let Some(spare) = self.spares.remove(path) else { return };
        host.detach(spare);
        self.refusals.retain(|(refused, _), _| *refused != spare);
        self.dirty.retain(|(dirty, _)| *dirty != spare);
    }

    /// Closes the cgroups that no pod claims and on which nothing is held any more.
    pub(crate) fn close_spares(&mut self, host: &mut Host) {
        let held = &self.held;
        let empty = self.spares.iter().filter(|(_, spare)| held.of(**spare).next().is_none());
        let empty: Vec<String> = empty.map(|(path, _)| path.clone()).collect();
        for path in empty {
            self.forget_spare(host, &path);
        }
    }

    /// Releases leases on targets that are no longer known.
    pub(crate) fn release_targets(&mut self, targets: &[Target]) {
        for &target in targets {
            self.leases.forget(target);
            self.dirty.extend(self.held.of(target).map(|knob| (target, knob)));
        }
    }

    /// Forgets a target that left. Knobs that could not be restored yet, because the kernel refused or is still busy with an earlier
    /// write, are kept with their cgroup until they are.
    pub(crate) fn forget_target(&mut self, host: &mut Host, target: Target) {
        let foreign: Vec<Knob> = self
            .held
            .of(target)
            .filter(|&knob| self.held.get(&(target, knob)).is_some_and(|held| held.hands_off_until.is_some()))
            .collect();
        for knob in foreign {
            if let Some(held) = self.held.remove(&(target, knob)) {
                self.journal_deletions.push((knob, held.cgroup));
            }
        }
        match host.attached_path(target).map(str::to_owned) {
            // The ID is not used again, so the cgroup stays open under it.
            Some(path) if self.held.of(target).next().is_some() => {
                self.clear_target(target);
                self.spares.insert(path, target);
            }
            _ => self.drop_target(host, target),
        }
    }

    /// Drops a target whose cgroup turned out to be gone on a read or write.
    pub(super) fn target_gone(&mut self, host: &mut Host, target: Target, out: &mut Applied) {
        match target {
            Target::Container(_) => self.drop_target(host, target),
            // It keeps its ID, and its cgroup may be made again: policies do not declare once more what they already have.
            Target::Node | Target::Tier(_) | Target::Pod(_) => self.drop_cgroup(host, target),
        }
        if !out.gone.contains(&target) {
            out.gone.push(target);
        }
    }

    /// Forgets a target whose cgroup no longer exists, with its leases, held knobs and refusals.
    pub(crate) fn drop_target(&mut self, host: &mut Host, target: Target) {
        self.leases.forget(target);
        self.drop_cgroup(host, target);
    }

    /// Forgets the cgroup of a target, with its held knobs and refusals. Leases stay.
    fn drop_cgroup(&mut self, host: &mut Host, target: Target) {
        self.quotas.forget(target);
        host.detach(target);
        for (knob, held) in self.held.take(target) {
            self.journal_deletions.push((knob, held.cgroup));
        }
        self.refusals.retain(|(refused, _), _| *refused != target);
        self.dirty.retain(|(dirty, _)| *dirty != target);
    }

    /// Forgets the leases and quotas of a target. Held knobs stay.
    fn clear_target(&mut self, target: Target) {
        self.leases.forget(target);
        self.quotas.forget(target);
    }

    /// Forgets what was reported to the owner of a pod that is gone.
    pub(crate) fn forget_pod(&mut self, pod: qosm_model::pod::PodId) {
        self.missing.forget(pod);
    }

    /// Reads the quotas of targets whose cgroups were opened, and adopts their knobs.
    pub(crate) fn opened(&mut self, host: &mut Host, targets: &[Target]) {
        for &target in targets {
            self.quotas.refresh(host, target);
            self.quotas.opened(target);
            self.adopt(host, target);
        }
    }

    /// Marks what is leased or held on resumed targets to be resolved again.
    pub(crate) fn resume(&mut self, targets: &[Target]) {
        for &target in targets {
            let leased = self.leases.on(target).filter(|&knob| self.leases.effective(target, knob).is_some());
            self.dirty.extend(self.held.of(target).chain(leased).map(|knob| (target, knob)));
        }
        if targets.is_empty() {
            return;
        }
        // They follow the tiers above them again.
        let leased = self.leases.held().map(|(target, knob, _)| (target, knob));
        self.dirty.extend(leased.filter(|key| is_tiers_cpus(*key)));
    }

    /// Begins the agent's end: held knobs are restored, including those left to another writer until now.
    pub(crate) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Marks all held knobs to be resolved again.
    pub(crate) fn touch_held(&mut self) {
        self.dirty.extend(self.held.keys().copied());
    }
}
