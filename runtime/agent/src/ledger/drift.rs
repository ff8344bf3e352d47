//! Drift: another program changed a knob that qosm holds. The kind of writer decides the reaction.
//!
//! | value found | writer | reaction |
//! | --- | --- | --- |
//! | what the pod's specification gives, not the baseline | kubelet or runtime, resizing | new baseline; the lease is written again |
//! | qosm's own value, if the specification asks for it by now | kubelet, which wrote it or will | new baseline |
//! | other CPUs of a container | the kubelet's CPU manager | new baseline; the lease is written again |
//! | a memory bound of a pod whose memory was just resized | kubelet | new baseline; the lease is written again |
//! | a tier's `memory.min` or `memory.low`, not the baseline | tiers' owner: kubelet's MemoryQoS | new baseline; qosm's value is added |
//! | the baseline, or a default listed as a reset in the knob table | daemon-reload, kubelet's sync | the lease is written again |
//! | a reset again and again | another owner | a tier settles on a value that covers the groups in it; else hands off, each time longer |
//! | a tier reset at most twice a minute, not covering its groups | sync of kubelet or systemd | the lease is written again, each time |
//! | anything else | a person | hands off for a while; after that it is the new baseline |
//!
//! A value that was written while no agent ran is drift as well: an adopted knob counts as holding what qosm last wrote.

use std::collections::BTreeSet;

use qosm_host::knob_table::row;
use qosm_host::{Bandwidth, Host, HostError};
use qosm_model::knob::{Target, Value};
use qosm_model::lease::Timestamp;

use crate::inputs::Inputs;
use crate::ledger::resolved::is_composed;
use crate::ledger::{Applied, HeldKnob, Key, Ledger};

/// A contest is this number of repairs within this time, in milliseconds: another program writes again and again, be it once a minute or
/// once an hour.
const CONTESTS: [(usize, i64); 2] = [(3, 600_000), (5, 6 * 3_600_000)];
/// Time without a foreign write after which a contest ends, in milliseconds since qosm's last repair.
const FORGOTTEN_MILLIS: i64 = 3_600_000;
/// Repairs of a tier that are at least this time apart, in milliseconds, are no contest: the kubelet writes its tiers once a minute, and
/// systemd then all properties of the slice. Without repairs the groups in the tier would lose their protection for good.
const SYNC_MILLIS: i64 = 30_000;
/// Repairs of a tier within this time, in milliseconds, are one: a sync comes as several writes.
const ONE_SYNC_MILLIS: i64 = 5_000;
/// The same for pods and containers: a daemon-reload resets their files one after the other, some of them twice.
const ONE_RESET_MILLIS: i64 = 1_000;
/// Each contest doubles the time for which the knob is left alone, at most this number of times, starting at a sixteenth of the time
/// after a person's write: an upgrade of packages makes systemd reload a dozen times within minutes, without owning anything.
const MAX_DOUBLINGS: u32 = 11;
const FIRST_SHARE: i64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Kubelet,
    Reset,
    Person,
}

impl HeldKnob {
    /// Whether qosm has repaired the knob so often that another repair would be a contest.
    fn is_fought_over(&mut self, now: Timestamp) -> bool {
        let age = |then: &Timestamp| now.0.saturating_sub(then.0);
        while self.rewrites.front().is_some_and(|then| age(then) > CONTESTS[1].1) {
            self.rewrites.pop_front();
        }
        if self.fights > 0 {
            if self.rewrites.back().is_some_and(|then| age(then) <= FORGOTTEN_MILLIS) {
                return true;
            }
            self.fights = 0;
        }
        CONTESTS.iter().any(|&(repairs, within)| {
            self.rewrites.len().checked_sub(repairs).is_some_and(|place| age(&self.rewrites[place]) <= within)
        })
    }

    fn repaired(&mut self, now: Timestamp, is_tier: bool) {
        let at_once = if is_tier { ONE_SYNC_MILLIS } else { ONE_RESET_MILLIS };
        if !self.is_repaired_within(now, at_once) {
            self.rewrites.push_back(now);
        }
    }

    fn is_repaired_within(&self, now: Timestamp, millis: i64) -> bool {
        self.rewrites.back().is_some_and(|last| now.0.saturating_sub(last.0) < millis)
    }

    /// Whether the repairs, and now another one, come at the pace of an owner's regular sync.
    fn is_synced_over(&self, now: Timestamp) -> bool {
        let another = (!self.is_repaired_within(now, ONE_SYNC_MILLIS)).then_some(now);
        let last = self.rewrites.iter().rev().take(CONTESTS[0].0);
        let times: Vec<i64> = another.iter().chain(last).map(|time| time.0).collect();
        self.fights == 0 && times.windows(2).all(|pair| pair[0].saturating_sub(pair[1]) >= SYNC_MILLIS)
    }
}

impl Ledger {
    /// Reads held knobs back: CFS quotas at each tick, knobs with a reported write at the next, the others over many ticks.
    pub(crate) fn verify(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Applied {
        let mut out = Applied::default();
        let turns = turns_of_looks(host, inputs);
        let share = self.held.len().div_ceil(usize::try_from(turns).unwrap_or(usize::MAX));
        let round = inputs.ticks / turns;
        // If the kernel reports writes, a round of reads begins once per interval; else the next round begins at once.
        if self.verify_queue.is_empty() && !(host.detects_writes() && self.verify_round == Some(round)) {
            self.verify_round = Some(round);
            self.verify_queue.extend(self.held.keys().filter(|(_, knob)| !row(*knob).is_quota()));
        }
        let mut batch: Vec<_> = self.held.quotas().iter().map(|&target| (target, Bandwidth::KNOB)).collect();
        let queued = share.min(self.verify_queue.len());
        batch.extend(self.verify_queue.drain(..queued));
        // The kernel does not report writes to the node's own knobs.
        batch.extend(self.held.of(Target::Node).map(|knob| (Target::Node, knob)));
        let written = host.written_targets();
        batch.extend(written.iter().flat_map(|&target| self.held.of(target).map(move |knob| (target, knob))));
        self.rewritten.extend(written);
        // No write announces the end of a hands-off time.
        if host.detects_writes() && inputs.ticks.is_multiple_of(inputs.config.drift.verify_interval_ticks(false)) {
            batch.extend(self.held.iter().filter(|(_, held)| held.hands_off_until.is_some()).map(|(&key, _)| key));
        }
        batch.sort_unstable();
        batch.dedup();
        let reset = self.verify_all(host, inputs, batch, &mut out);
        if !reset.is_empty() {
            // Repaired before policies are evaluated: they would start from the reset value, and the lease would be lost.
            let others = std::mem::replace(&mut self.dirty, reset);
            self.reconcile(host, inputs, &mut out);
            self.dirty.extend(others);
        }
        out
    }

    /// Reads back held knobs before they are written: a value that another program wrote since the last read is reported, and taken as
    /// the new baseline if it is one, before qosm overwrites it.
    pub(super) fn verify_before_writing(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        dirty: &mut BTreeSet<Key>,
        out: &mut Applied,
    ) {
        // Knobs to be restored follow a rule of their own, `left_to_another`.
        let is_written = |key: &&Key| self.held.contains_key(key) && self.ruling(inputs.pods, key.0, key.1).is_some();
        let batch: Vec<Key> = dirty.iter().filter(is_written).copied().collect();
        self.verify_all(host, inputs, batch, out);
        dirty.append(&mut self.dirty);
    }

    /// Verifies a batch of knobs. Returns those that were reset and are to be written again at once.
    fn verify_all(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        mut batch: Vec<Key>,
        out: &mut Applied,
    ) -> BTreeSet<Key> {
        self.pair_weights(&mut batch);
        batch.into_iter().filter(|&key| self.verify_knob(host, inputs, key, out)).collect()
    }

    /// `cpu.weight` and `cpu.idle` are classified together, since the writer of one is the writer of the other.
    fn pair_weights(&self, batch: &mut Vec<Key>) {
        let weights = batch.iter().filter(|(_, knob)| row(*knob).is_of_a_mask());
        let partners: Vec<_> = weights.filter_map(|&(target, knob)| Some((target, row(knob).partner?))).collect();
        for key in partners {
            if self.held.contains_key(&key) && !batch.contains(&key) {
                batch.push(key);
            }
        }
        // A 0 in `cpu.idle` does not show who wrote it, a weight does: `cpu.idle` comes last.
        batch.sort_by_key(|(_, knob)| row(*knob).masks().is_some());
    }

    /// Compares a held knob with the kernel. Returns `true` if it was reset and is to be written again at once.
    fn verify_knob(&mut self, host: &mut Host, inputs: &Inputs<'_>, key: Key, out: &mut Applied) -> bool {
        let (target, knob) = key;
        let Some(held) = self.held.get(&key) else { return false };
        if held.pending.is_some() {
            return false;
        }
        let (baseline, written) = (held.baseline, held.written);
        if let Some(until) = held.hands_off_until {
            let is_persons = held.is_left_to_person;
            if inputs.now.wall >= until {
                self.hands_on(host, inputs, key);
            } else if is_persons && self.is_specified(host, inputs, target, knob, written) {
                // The kubelet was ahead of the API server: by now the specification says the same.
                self.hands_on(host, inputs, key);
                let message =
                    format!("the kubelet set {knob} to {written}, the new baseline; qosm's lease stays on top");
                self.notify_drift(inputs, key, "kubelet", message, out);
            }
            return false;
        }
        let found = match host.read(target, knob) {
            Ok(found) => found,
            Err(HostError::Gone { .. }) => {
                self.target_gone(host, target, out);
                return false;
            }
            Err(error) => {
                tracing::debug!(%knob, %error, "held knob cannot be read back");
                return false;
            }
        };
        // The kernel removes a disk's line when the disk is removed: no program wrote it, and there is nothing to restore.
        if found == Value::Unset && found != written && knob.device().is_some_and(|device| !host.has_device(device)) {
            self.forget_held(key);
            // If a policy still wants the knob, the next step reports that the disk is missing, and sets the knob once the disk is back.
            self.dirty.insert(key);
            return false;
        }
        if found == written {
            let under = self.baseline_under(host, inputs, key, baseline, written);
            if let Some(held) = self.held.get_mut(&key).filter(|held| held.is_synced) {
                held.is_synced = held.is_repaired_within(inputs.now.wall, FORGOTTEN_MILLIS);
            }
            if let Some(held) = self.held.get_mut(&key).filter(|held| held.baseline != under) {
                held.baseline = under;
                self.update_record(host, key);
            }
            return false;
        }
        let writer = if found != baseline
            && (is_composed(target, knob) || self.is_specified(host, inputs, target, knob, found))
        {
            Writer::Kubelet
        } else if row(knob).masks().is_some_and(|masked| self.is_hands_off((target, masked))) {
            Writer::Person
        } else if found == baseline || row(knob).is_reset(written, found) {
            Writer::Reset
        } else {
            Writer::Person
        };
        self.drifted(host, inputs, key, found, writer, out)
    }

    fn is_hands_off(&self, key: Key) -> bool {
        self.held.get(&key).is_some_and(|held| held.hands_off_until.is_some())
    }

    /// Handles a value that another program wrote. Returns `true` if the knob is to be written again at once.
    fn drifted(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        key: Key,
        found: Value,
        writer: Writer,
        out: &mut Applied,
    ) -> bool {
        let (target, knob) = key;
        let is_tier = is_composed(target, knob);
        let covers = is_tier && self.covers(host, inputs, target, knob, found);
        let hands_off_seconds = i64::from(inputs.config.drift.hands_off_seconds);
        let Some(held) = self.held.get_mut(&key) else { return false };
        let wanted = held.written;
        held.written = found;
        if writer == Writer::Kubelet {
            held.baseline = found;
        }
        if held.is_settled && covers {
            // The owner on whose value qosm settled has written another one, which covers the groups as well.
            inputs.metrics.drift(knob, "settled");
            self.dirty.insert(key);
            return false;
        }
        // A kubelet that resizes a pod again and again does not contest the knob: it writes another value each time.
        let at_once = if matches!(target, Target::Tier(_)) { ONE_SYNC_MILLIS } else { ONE_RESET_MILLIS };
        let is_same = !is_tier && held.is_repaired_within(inputs.now.wall, at_once);
        let is_fight = !is_same && (writer == Writer::Reset || is_tier) && held.is_fought_over(inputs.now.wall);
        // The kubelet writes its tiers once a minute, and systemd then all properties of the slice.
        let is_sync = is_fight && matches!(target, Target::Tier(_)) && !covers && held.is_synced_over(inputs.now.wall);
        let is_fight = is_fight && !is_sync;
        let name = if is_tier { format!("{knob} of the tier") } else { knob.to_string() };
        let (kind, message) = match writer {
            Writer::Person => {
                ("person", format!("another writer set {name} to {found} over qosm's {wanted}; hands off for now"))
            }
            _ if is_fight && covers => (
                "settled",
                format!(
                    "something keeps setting {name} to {found} over qosm's {wanted}, as the kubelet's MemoryQoS does; qosm settles on \
                     {found}, which covers what the groups in it hold"
                ),
            ),
            _ if is_fight => {
                ("fight", format!("something keeps setting {name} to {found} over qosm's {wanted}; hands off for now"))
            }
            _ if is_sync => (
                "sync",
                format!(
                    "something sets {name} to {found} over qosm's {wanted} about once a minute, as the kubelet does with its tiers; qosm \
                     puts its own back each time{}",
                    if is_tier {
                        format!(", since {found} does not cover what the groups in it hold")
                    } else {
                        String::new()
                    }
                ),
            ),
            Writer::Kubelet if is_tier => (
                "kubelet",
                format!(
                    "the kubelet, or another manager of the tiers, set {name} to {found}, the new baseline; what qosm holds comes on top"
                ),
            ),
            Writer::Kubelet => {
                ("kubelet", format!("the kubelet set {name} to {found}, the new baseline; qosm's lease stays on top"))
            }
            Writer::Reset => ("reset", format!("{name} was reset to {found}; qosm puts {wanted} back")),
        };
        if is_fight && covers {
            (held.is_settled, held.is_synced) = (true, false);
            held.rewrites.clear();
            self.dirty.insert(key);
            self.contested.insert(key);
        } else if writer == Writer::Person || is_fight {
            let millis = if is_fight {
                (hands_off_seconds * 1000 / FIRST_SHARE) << held.fights.min(MAX_DOUBLINGS)
            } else {
                hands_off_seconds * 1000
            };
            held.hands_off_until = Some(Timestamp(inputs.now.wall.0.saturating_add(millis)));
            held.is_left_to_person = writer == Writer::Person;
            if is_fight {
                held.fights = held.fights.saturating_add(1);
                (held.is_settled, held.is_synced) = (false, false);
                self.contested.insert(key);
            }
        } else {
            held.repaired(inputs.now.wall, matches!(target, Target::Tier(_)));
            if is_sync {
                held.is_synced = true;
                self.contested.insert(key);
            }
            self.dirty.insert(key);
        }
        let is_of_sync = held.is_synced && is_same && writer != Writer::Person;
        let is_told = is_of_sync || is_sync && held.drift.as_ref() == Some(&message);
        if knob == Bandwidth::KNOB {
            self.quotas.refresh(host, target);
        }
        if is_told {
            inputs.metrics.drift(knob, kind);
        } else {
            tracing::warn!(subject = inputs.pods.shown(target), %knob, writer = kind, %found, %wanted, "drift");
            self.notify_drift(inputs, key, kind, message, out);
        }
        out.changes_problems |= is_fight || is_sync;
        writer == Writer::Reset && !is_fight
    }

    /// Notes what another writer did, and sends a warning.
    fn notify_drift(&mut self, inputs: &Inputs<'_>, key: Key, kind: &'static str, message: String, out: &mut Applied) {
        inputs.metrics.drift(key.1, kind);
        if let Some(held) = self.held.get_mut(&key) {
            held.drift = Some(message.clone());
        }
        out.notify(inputs.pods, key.0, "KnobDrift", message);
    }

    /// Ends a hands-off time: the value that the other writer left is the new baseline, and the lease is written again.
    fn hands_on(&mut self, host: &mut Host, inputs: &Inputs<'_>, key: Key) {
        let Ok(found) = host.read(key.0, key.1) else { return };
        if let Some(held) = self.held.get_mut(&key) {
            held.hands_off_until = None;
            held.is_left_to_person = false;
            // Another program made the cgroup idle: its former weight stays the baseline.
            if !row(key.1).is_masked_as(found) {
                held.baseline = found;
            }
            held.written = found;
            // After a contest a single foreign write shows that the other owner is still active.
            held.rewrites.clear();
            if held.fights > 0 {
                held.rewrites.push_back(inputs.now.wall);
            }
            self.dirty.insert(key);
        }
    }

    /// Forgets contests that have ended. Returns `true` if there were any.
    pub(crate) fn end_contests(&mut self) -> bool {
        let before = self.contested.len();
        let held = &self.held;
        self.contested.retain(|key| held.get(key).is_some_and(HeldKnob::is_contested));
        self.contested.len() != before
    }

    /// The contested knobs.
    pub(crate) fn contests(&self) -> impl Iterator<Item = (Key, &HeldKnob)> {
        let contested = self.contested.iter().filter_map(|key| Some((*key, self.held.get(key)?)));
        contested.filter(|(_, held)| held.is_contested())
    }
}

/// Number of ticks over which the reads of held knobs, and of quotas that are not held, are spread. If the kernel reports writes, a
/// written knob is read back in the next tick, and the other reads are rare: they are for what the kernel does not report.
pub(super) fn turns_of_looks(host: &Host, inputs: &Inputs<'_>) -> u64 {
    inputs.config.drift.verify_interval_ticks(host.detects_writes())
}
