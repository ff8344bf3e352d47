//! Restoring without an agent: after `kill -9`, or before an uninstall, the journal alone knows what to put back.

use std::time::{Duration, Instant};

use qosm_host::{Baselines, Executed, Host, HostError, Step, Wanted};
use qosm_model::knob::{Knob, Level, Target};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::problem::chain;

use crate::journal::{Entries, Journal, JournalError, Record};
use crate::ledger::{Found, compare_with_kernel};

pub use crate::restored::{ALREADY, FAILED, GONE, LEFT, RESTORED, Restored, UNDER_WAY, WOULD_RESTORE};

/// How long a restore tries.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Number of retries of knobs that could not be restored.
    pub retries: u32,
    /// Pause before each retry. A container that has just ended may count for a moment longer: until then cgroup v1 refuses a quota below
    /// that container's.
    pub pause: Duration,
    /// Limit for the time of all slow writes together, such as lowering `memory.high` below the memory in use.
    pub slow_writes: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { retries: 5, pause: Duration::from_millis(200), slow_writes: Duration::from_secs(30) }
    }
}

impl Patience {
    /// For an agent that ends: well within the 30 seconds that the kubelet gives it.
    pub(crate) const AT_THE_END: Self =
        Self { retries: 5, pause: Duration::from_millis(200), slow_writes: Duration::from_secs(10) };
}

/// Time between two checks whether a slow write has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What [`restore`] would do. Nothing is written.
///
/// # Errors
///
/// [`JournalError`] when the journal cannot be read.
pub fn would_restore(host: &mut Host, journal: &Journal) -> Result<Vec<Restored>, JournalError> {
    let mut sorted = Sorted::read(host, journal, &mut Vec::new(), |_| true)?;
    let plan = host.plan_with_baselines(&sorted.wanted(), &sorted.baselines());
    for (target, knob, error) in &plan.refused {
        sorted.end(*target, *knob, FAILED, Some(chain(error)));
    }
    for (target, knob, _) in &plan.unchanged {
        sorted.end(*target, *knob, ALREADY, None);
    }
    for step in &plan.steps {
        sorted.end(step.target, step.knob, WOULD_RESTORE, None);
    }
    Ok(sorted.ended)
}

/// Restores all knobs that the journal records, and deletes their records. Retries what the kernel refuses, and waits for slow writes.
/// Records of knobs reported as [`FAILED`] or [`UNDER_WAY`] stay in the journal.
///
/// # Errors
///
/// [`JournalError`] when the journal cannot be read or brought up to date.
pub fn restore(host: &mut Host, journal: &Journal, patience: &Patience) -> Result<Vec<Restored>, JournalError> {
    restore_some(host, journal, patience, |_| true)
}

/// As [`restore`], but only in the cgroups for which `is_wanted` returns `true`. The others are not reported, and their records stay in
/// the journal.
pub(crate) fn restore_some(
    host: &mut Host,
    journal: &Journal,
    patience: &Patience,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Restored>, JournalError> {
    let mut reported = Vec::new();
    let mut slow_writes = patience.slow_writes;
    let mut known = Vec::new();
    for attempt in 0..=patience.retries {
        let mut sorted = Sorted::read(host, journal, &mut known, &is_wanted)?;
        sorted.put_back(host, journal, &mut slow_writes);
        let (left, done): (Vec<_>, Vec<_>) = sorted.ended.into_iter().partition(Restored::is_left_behind);
        reported.extend(done);
        journal.commit(&Entries { drop: sorted.struck, ..Entries::default() })?;
        let is_refused = left.iter().any(|row| row.outcome == FAILED);
        if !is_refused || attempt == patience.retries {
            reported.extend(left);
            break;
        }
        std::thread::sleep(patience.pause);
    }
    Ok(reported)
}

/// The journal's records, sorted by what the restore does with them.
#[derive(Default)]
struct Sorted {
    /// Records whose knobs are to be restored.
    open: Vec<(Target, Record)>,
    ended: Vec<Restored>,
    struck: Vec<(Knob, String)>,
}

impl Sorted {
    /// `known` maps cgroups to targets, the same in every attempt.
    fn read(
        host: &mut Host,
        journal: &Journal,
        known: &mut Vec<(String, Target)>,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, JournalError> {
        let mut sorted = Self::default();
        for record in journal.records()?.into_iter().filter(|record| is_wanted(&record.cgroup)) {
            let target = match known.iter().find(|(path, _)| *path == record.cgroup) {
                Some((_, target)) => *target,
                None => {
                    let next = u32::try_from(known.len()).unwrap_or(u32::MAX).saturating_add(1);
                    let target = match record.level {
                        Level::Container => Target::Container(ContainerId(next)),
                        Level::Pod | Level::Tier => Target::Pod(PodId(next)),
                        Level::Node => Target::Node,
                    };
                    known.push((record.cgroup.clone(), target));
                    target
                }
            };
            let found = match host.attach(target, &record.cgroup) {
                Ok(()) => compare_with_kernel(host, target, &record),
                Err(error) if error.is_gone() => Found::Gone,
                Err(error) => Found::Unknown(chain(&error)),
            };
            sorted.take(target, record, found);
        }
        Ok(sorted)
    }

    fn take(&mut self, target: Target, record: Record, found: Found) {
        let row = match found {
            Found::Ours(_) => return self.open.push((target, record)),
            Found::Unknown(why) => return self.ended.push(Restored::new(&record, FAILED, Some(why))),
            Found::Baseline => Restored::new(&record, ALREADY, None),
            Found::Foreign(value) => {
                let why = format!("qosm wrote {}, another writer wrote this since", record.written);
                Restored { value: value.into(), ..Restored::new(&record, LEFT, Some(why)) }
            }
            Found::Gone => {
                let what = if target == Target::Node { "setting" } else { "cgroup" };
                Restored::new(&record, GONE, Some(format!("the {what} no longer exists")))
            }
        };
        self.ended.push(row);
        self.struck.push((record.knob, record.cgroup));
    }

    fn wanted(&self) -> Vec<Wanted> {
        let wanted =
            |(target, record): &(Target, Record)| Wanted { target: *target, knob: record.knob, value: record.baseline };
        self.open.iter().map(wanted).collect()
    }

    fn baselines(&self) -> Baselines {
        self.open.iter().map(|(target, record)| (*target, record.knob)).collect()
    }

    /// Ends a record in `open` with its outcome.
    fn end(&mut self, target: Target, knob: Knob, outcome: &'static str, why: Option<String>) {
        let Some(place) = self.open.iter().position(|(of, record)| (*of, record.knob) == (target, knob)) else {
            return;
        };
        let (_, record) = self.open.swap_remove(place);
        let row = Restored::new(&record, outcome, why);
        if !row.is_left_behind() {
            self.struck.push((record.knob, record.cgroup));
        }
        self.ended.push(row);
    }

    fn put_back(&mut self, host: &mut Host, journal: &Journal, slow_writes: &mut Duration) {
        let plan = host.plan_with_baselines(&self.wanted(), &self.baselines());
        for (target, knob, error) in &plan.refused {
            self.end(*target, *knob, FAILED, Some(chain(error)));
        }
        for (target, knob, _) in &plan.unchanged {
            self.end(*target, *knob, ALREADY, None);
        }
        for part in plan.parts() {
            self.note(journal, part);
            for step in part {
                match host.execute(step) {
                    Ok(Executed::Done(_)) if plan.is_interim(step) => {}
                    Ok(Executed::Done(_)) => self.end(step.target, step.knob, RESTORED, None),
                    Ok(Executed::Pending) => {}
                    Err(error) if error.is_gone() => self.end(step.target, step.knob, GONE, Some(chain(&error))),
                    Err(error) => self.end(step.target, step.knob, FAILED, Some(chain(&error))),
                }
            }
        }
        self.wait(host, slow_writes);
    }

    /// Records planned writes in the journal, so that the next restore can continue one that was killed half way: a bound that comes down
    /// in steps then has a value that neither the agent nor another program set. A journal that cannot be written, on a full disk, does
    /// not stop the restore.
    fn note(&self, journal: &Journal, steps: &[Step]) {
        let noted = steps.iter().filter_map(|step| {
            let (_, record) = self.open.iter().find(|(of, record)| (*of, record.knob) == (step.target, step.knob))?;
            Some(Record { previous: step.from, written: step.to, ..record.clone() })
        });
        let put: Vec<Record> = noted.collect();
        if !put.is_empty()
            && let Err(error) = journal.commit(&Entries { put, ..Entries::default() })
        {
            tracing::warn!(error = chain(&error), "knobs are restored without a note in the journal");
        }
    }

    /// Waits for slow writes, at most for `left`, from which the time spent is subtracted.
    #[expect(clippy::disallowed_methods, reason = "also runs without an agent, and has to end")]
    fn wait(&mut self, host: &mut Host, left: &mut Duration) {
        let begun = Instant::now();
        while !self.open.is_empty() && !host.under_way().is_empty() {
            for (target, knob, result) in host.finished() {
                match result {
                    Ok(_) => self.end(target, knob, RESTORED, None),
                    Err(error) if error.is_gone() => self.end(target, knob, GONE, Some(chain(&error))),
                    Err(error) => self.end(target, knob, FAILED, Some(chain(&error))),
                }
            }
            if begun.elapsed() >= *left {
                break;
            }
            if !host.under_way().is_empty() {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        *left = left.saturating_sub(begun.elapsed());
        for (target, record) in std::mem::take(&mut self.open) {
            let now = host.read(target, record.knob).map_or_else(|error| chain(&error), |value| value.to_string());
            let why = format!("the kernel has not finished: the value is {now}; run `qosm restore` again");
            self.ended.push(Restored::new(&record, UNDER_WAY, Some(why)));
        }
    }
}

/// Removes the cgroups that qosm created, innermost first. A cgroup in use is returned with the kernel's error and stays in the journal.
///
/// # Errors
///
/// [`JournalError`] when the journal cannot be read or brought up to date.
pub fn remove_created(host: &mut Host, journal: &Journal) -> Result<Vec<Removal>, JournalError> {
    let mut removals = Vec::new();
    for cgroup in journal.created()?.into_iter().rev() {
        let outcome = host.remove(&cgroup);
        removals.push(Removal { cgroup, outcome });
    }
    let gone = removals.iter().filter(|removal| removal.outcome.is_ok());
    let removed = gone.map(|removal| removal.cgroup.clone()).collect();
    journal.commit(&Entries { removed, ..Entries::default() })?;
    Ok(removals)
}

/// A cgroup that qosm created, and whether it could be removed.
#[derive(Debug)]
pub struct Removal {
    /// The cgroup.
    pub cgroup: String,
    /// The kernel's error if the cgroup stays.
    pub outcome: Result<(), HostError>,
}
