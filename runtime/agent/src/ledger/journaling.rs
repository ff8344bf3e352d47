//! The ledger's records in the journal: written before the kernel is, deleted once the baseline is restored.

use std::collections::{BTreeMap, HashMap};

use qosm_host::{Host, Step as HostStep};
use qosm_model::knob::{Knob, Target};
use qosm_model::problem::chain;

use crate::inputs::Inputs;
use crate::journal::{Entries, Journal, JournalError, Record};
use crate::ledger::resolved::Resolved;
use crate::ledger::{Key, Ledger};
use crate::saved_state::SavedState;
use crate::table::PodTable;

/// State that modules saved is committed at least this often, in ticks; sooner together with a record.
const SAVE_TICKS: u64 = 30;

impl Ledger {
    /// Records planned writes in the journal. Returns `false` if that failed: then nothing may be written.
    pub(super) fn write_down(
        &mut self,
        host: &Host,
        inputs: &Inputs<'_>,
        steps: &[HostStep],
        resolutions: &HashMap<Key, Resolved>,
    ) -> bool {
        let Some(journal) = &self.journal else { return true };
        let mut entries = Entries { drop: std::mem::take(&mut self.journal_deletions), ..Entries::default() };
        for planned in steps {
            let key = (planned.target, planned.knob);
            let held = self.held.get(&key);
            let Some(cgroup) = host.attached_path(planned.target) else { continue };
            entries.put.push(Record {
                cgroup: cgroup.to_owned(),
                identity: host.identity(planned.target).unwrap_or(0),
                level: planned.target.level(),
                knob: planned.knob,
                baseline: {
                    let known = held.map_or_else(|| self.first_baseline(key, planned.from), |held| held.baseline);
                    self.baseline_under(host, inputs, key, known, planned.to)
                },
                previous: planned.from,
                written: planned.to,
                policy: resolutions.get(&key).map(|resolved| resolved.policy.to_string()).unwrap_or_default(),
                since: held.map_or(inputs.now.wall, |held| held.since),
            });
        }
        if !entries.put.is_empty() || inputs.ticks % SAVE_TICKS == SAVE_TICKS - 1 {
            entries.state = std::mem::take(&mut self.unsaved);
        }
        if entries.is_empty() {
            return true;
        }
        match journal.commit(&entries) {
            Ok(()) => {
                if self.journal_error.take().is_some() {
                    tracing::info!("journal works again");
                }
                true
            }
            Err(error) => {
                let error = chain(&error);
                if self.journal_error.is_none() {
                    tracing::error!(error, "nothing is written to the kernel until the journal works again");
                }
                inputs.metrics.journal_failure();
                self.journal_deletions = entries.drop;
                self.unsaved.extend(entries.state);
                self.dirty.extend(steps.iter().map(|planned| (planned.target, planned.knob)));
                self.journal_error = Some(error);
                false
            }
        }
    }

    /// Deletes the records of knobs that were restored, or never written.
    pub(super) fn delete_restored(&mut self) {
        if self.journal_deletions.is_empty() {
            return;
        }
        let Some(journal) = &self.journal else {
            self.journal_deletions.clear();
            return;
        };
        let entries = Entries { drop: std::mem::take(&mut self.journal_deletions), ..Entries::default() };
        if let Err(error) = journal.commit(&entries) {
            tracing::error!(error = chain(&error), "restored knobs could not be deleted from the journal");
            self.journal_error = Some(chain(&error));
            self.journal_deletions = entries.drop;
        }
    }

    /// Updates the record of a knob without a write: a bound that came down in steps has its value, so that a higher one is another
    /// program's from now on; or the baseline changed. If the journal fails, the worst result is a restore that overwrites another
    /// program's value.
    pub(super) fn update_record(&self, host: &Host, (target, knob): (Target, Knob)) {
        let (Some(journal), Some(held)) = (&self.journal, self.held.get(&(target, knob))) else { return };
        let record = Record {
            cgroup: held.cgroup.clone(),
            identity: host.identity(target).unwrap_or(0),
            level: target.level(),
            knob,
            baseline: held.baseline,
            previous: held.written,
            written: held.written,
            policy: held.policy.to_string(),
            since: held.since,
        };
        if let Err(error) = journal.commit(&Entries { put: vec![record], ..Entries::default() }) {
            tracing::warn!(%knob, error = chain(&error), "the journal does not have the latest state of this knob");
        }
    }

    /// The journal, for commands that only write there.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Why the journal does not work, if it does not: then nothing is written to the kernel.
    pub(crate) fn journal_error(&self) -> Option<&str> {
        self.journal_error.as_deref()
    }

    /// Keeps what a module saved for the next commit.
    pub(crate) fn save_state(&mut self, key: String, state: SavedState) {
        self.unsaved.retain(|(known, _)| *known != key);
        self.unsaved.push((key, state));
    }

    /// The state saved under a key, uncommitted or in the journal; empty if there is none or the journal fails.
    pub(crate) fn saved_state(&self, key: &str) -> SavedState {
        if let Some((_, state)) = self.unsaved.iter().find(|(known, _)| known == key) {
            return state.clone();
        }
        let saved = self.journal.as_ref().map(|journal| journal.state(key));
        saved.and_then(Result::ok).unwrap_or_default()
    }

    /// Commits saved state at once.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; the baselines recorded before stay usable.
    pub(crate) fn commit_state(&self, state: Vec<(String, SavedState)>) -> Result<(), JournalError> {
        match &self.journal {
            Some(journal) => journal.commit(&Entries { state, ..Entries::default() }),
            None => Ok(()),
        }
    }

    /// Records the cgroups of paused pods: an agent that ends before it knows its pods must leave them alone.
    pub(crate) fn note_pauses(&mut self, host: &Host, pods: &PodTable) {
        let path = |(id, until): (qosm_model::pod::PodId, Option<qosm_model::lease::Timestamp>)| {
            let entry = pods.get(id)?;
            Some((host.pod_path(&entry.pod), until.map_or(i64::MAX, |until| until.0)))
        };
        let paused: BTreeMap<String, i64> = pods.pauses().filter_map(path).collect();
        if paused == self.paused_cgroups {
            return;
        }
        if let Some(journal) = &self.journal
            && let Err(error) = journal.commit(&Entries { paused: Some(paused.clone()), ..Entries::default() })
        {
            tracing::warn!(error = chain(&error), "the journal does not say which pods are paused");
            return;
        }
        self.paused_cgroups = paused;
    }
}
