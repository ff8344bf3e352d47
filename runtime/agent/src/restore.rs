//! Restoring without an agent: after `kill -9`, or before an uninstall, the journal alone knows what to put back.

use std::borrow::Cow;

use qosm_host::{Executed, Host, HostError};
use qosm_model::knob::{Knob, Level, Target};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::problem::chain;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::journal::{Entries, Journal, JournalError, Record};
use crate::report::WireValue;
use crate::tidy::{Found, compare};

/// One knob of the journal, and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The cgroup.
    pub cgroup: String,
    /// The knob.
    pub knob: String,
    /// What it holds now.
    pub value: WireValue,
    /// `restored` (`would-restore` in a dry run), `already` (it held the baseline), `left` (somebody else wrote it since), `gone`, or
    /// `failed`.
    pub outcome: Cow<'static, str>,
    /// Why, where that needs saying.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// Puts back all that the journal knows, and strikes out what is done. With `dry_run` it only says what it would do.
///
/// # Errors
///
/// [`JournalError`] when the journal cannot be read or brought up to date.
pub fn restore(host: &mut Host, journal: &Journal, dry_run: bool) -> Result<Vec<Restored>, JournalError> {
    let mut restored = Vec::new();
    let mut wanted = Vec::new();
    let mut targets: Vec<(Target, Record)> = Vec::new();
    let mut entries = Entries::default();
    let mut next = 0;
    let mut known: Vec<(String, Target)> = Vec::new();
    for record in journal.records()? {
        let target = match known.iter().find(|(path, _)| *path == record.cgroup) {
            Some((_, target)) => *target,
            None => {
                next += 1;
                let target = match record.level {
                    Level::Container => Target::Container(ContainerId(next)),
                    Level::Pod | Level::Tier => Target::Pod(PodId(next)),
                };
                known.push((record.cgroup.clone(), target));
                target
            }
        };
        let attached = host.attach(target, &record.cgroup);
        let found = match attached {
            Ok(()) if host.identity(target) == Some(record.identity) => {
                compare(&record, host.read(target, record.knob))
            }
            _ => Found::Gone,
        };
        let outcome = |value, outcome, why| Restored {
            cgroup: record.cgroup.clone(),
            knob: record.knob.to_string(),
            value,
            outcome: Cow::Borrowed(outcome),
            why,
        };
        match found {
            Found::Ours(_) => {
                wanted.push(qosm_host::Wanted { target, knob: record.knob, value: record.baseline });
                targets.push((target, record));
                continue;
            }
            Found::Baseline => restored.push(outcome(record.baseline.into(), "already", None)),
            Found::Foreign(value) => restored.push(outcome(
                value.into(),
                "left",
                Some(format!("qosm wrote {}, somebody else wrote this since", record.written)),
            )),
            Found::Gone => {
                restored.push(outcome(record.baseline.into(), "gone", Some("the cgroup no longer exists".to_owned())));
            }
        }
        entries.drop.push((record.knob, record.cgroup.clone()));
    }
    let record_of = |target: Target, knob: Knob| {
        targets.iter().find(|(known, record)| *known == target && record.knob == knob).map(|(_, record)| record)
    };
    let plan = host.plan(&wanted);
    let mut outcomes = Vec::new();
    for (target, knob, error) in &plan.refused {
        outcomes.push((*target, *knob, "failed", Some(chain(error))));
    }
    for (target, knob, _) in &plan.unchanged {
        outcomes.push((*target, *knob, "already", None));
    }
    let done = if dry_run { "would-restore" } else { "restored" };
    for step in &plan.steps {
        let result = if dry_run { Ok(Executed::Done(step.to)) } else { host.execute(step) };
        match result {
            Ok(_) => outcomes.push((step.target, step.knob, done, None)),
            Err(error) => outcomes.push((step.target, step.knob, "failed", Some(chain(&error)))),
        }
    }
    for (target, knob, outcome, why) in outcomes {
        let Some(record) = record_of(target, knob) else { continue };
        if outcome != "failed" {
            entries.drop.push((knob, record.cgroup.clone()));
        }
        restored.push(Restored {
            cgroup: record.cgroup.clone(),
            knob: knob.to_string(),
            value: record.baseline.into(),
            outcome: Cow::Borrowed(outcome),
            why,
        });
    }
    if !dry_run {
        journal.commit(&entries)?;
    }
    Ok(restored)
}

/// Removes the cgroups that qosm made, the innermost first. What is in use is named, with the kernel's refusal, and stays written
/// down.
///
/// # Errors
///
/// [`JournalError`] when the journal cannot be read or brought up to date.
pub fn remove_made(host: &mut Host, journal: &Journal) -> Result<Vec<Removal>, JournalError> {
    let mut removals = Vec::new();
    for cgroup in journal.made()?.into_iter().rev() {
        let outcome = host.remove(&cgroup);
        removals.push(Removal { cgroup, outcome });
    }
    let gone = removals.iter().filter(|removal| removal.outcome.is_ok());
    let removed = gone.map(|removal| removal.cgroup.clone()).collect();
    journal.commit(&Entries { removed, ..Entries::default() })?;
    Ok(removals)
}

/// A cgroup that qosm had made, and whether it could be removed.
#[derive(Debug)]
pub struct Removal {
    /// The cgroup.
    pub cgroup: String,
    /// What the kernel said.
    pub outcome: Result<(), HostError>,
}

impl Agent {
    /// What a restore would put back, or (`after` it) what became of each of these knobs.
    pub(crate) fn restorable(&self) -> Vec<(Target, Knob, Restored)> {
        self.held
            .iter()
            .map(|(&(target, knob), held)| {
                let restored = Restored {
                    cgroup: held.cgroup.clone(),
                    knob: knob.to_string(),
                    value: held.baseline.into(),
                    outcome: Cow::Borrowed("would-restore"),
                    why: None,
                };
                (target, knob, restored)
            })
            .collect()
    }

    /// What became of knobs that were to be restored.
    pub(crate) fn restored(&self, before: Vec<(Target, Knob, Restored)>) -> Vec<Restored> {
        let outcome = |(target, knob, row): (Target, Knob, Restored)| {
            let key = (target, knob);
            let (outcome, why) = match (self.held.contains_key(&key), self.refusals.get(&key)) {
                (false, _) => ("restored", None),
                (true, Some(refusal)) => ("failed", Some(refusal.why.clone())),
                (true, None) => ("left", Some("on hold, or somebody else wrote it lately".to_owned())),
            };
            Restored { outcome: Cow::Borrowed(outcome), why, ..row }
        };
        before.into_iter().map(outcome).collect()
    }
}
