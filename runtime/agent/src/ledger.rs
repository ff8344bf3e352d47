//! The ledger: what policies hold, what of it is in force, and what lies beneath.
//!
//! Settings that policies stage become leases; of the leases on a knob one value is resolved, which goes through the journal to the
//! kernel. What the kernel shows afterwards is compared with what was written: another writer's word is drift. What an earlier agent
//! left is adopted, and what no policy claims is released.

mod adopt;
mod applied;
mod apply;
mod baselines;
mod covering;
mod created_cgroups;
mod decision;
mod drift;
mod following;
mod found;
mod held;
mod in_force;
mod journaling;
mod missing;
mod node_knobs;
mod quotas;
mod rails;
mod reach;
mod refusal;
mod release;
mod resize;
mod resolve;
mod resolved;
mod specified;
mod stage;
mod tables;
#[cfg(test)]
mod tests;
mod ties;
mod unrestored;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qosm_host::Host;
use qosm_model::knob::{Knob, Target};
use qosm_model::lease::{Lease, Leases};
use qosm_model::unit::Bytes;

use crate::journal::{Journal, JournalError, Record};
use crate::quotas::Quotas;
use crate::table::PodTable;

use self::tables::{CreatedCgroups, Denial, Missing};
use self::ties::Ties;

pub(crate) use self::applied::{Applied, Notice};
pub(crate) use self::found::{Found, compare_with_kernel, is_paused};
pub(crate) use self::held::{HeldKnob, HeldKnobs};
pub(crate) use self::refusal::Refusal;
pub(crate) use self::ties::Tie;
use crate::policy::Reach;
use crate::saved_state::SavedState;

/// A knob of a target.
pub(crate) type Key = (Target, Knob);

/// Leases and held knobs of the node.
#[derive(Default)]
pub(crate) struct Ledger {
    leases: Leases,
    held: HeldKnobs,
    refusals: BTreeMap<Key, Refusal>,
    /// Knobs to resolve in this step.
    dirty: BTreeSet<Key>,
    /// Knobs that the policy which is staging all it wants has not named yet.
    undeclared: BTreeSet<Key>,
    /// Settings that came to nothing before the kernel was asked, and are yet to be reported.
    denials: Vec<Denial>,
    /// Policies of one priority that met on a knob.
    ties: Ties,
    /// Who may act on what is to be judged anew.
    is_reach_stale: bool,
    /// What this host lacks.
    missing: Missing,
    quotas: Quotas,
    /// Targets with a knob's file that another writer wrote since quotas were read last.
    rewritten: BTreeSet<Target>,
    /// Knobs that another owner keeps against qosm.
    contested: BTreeSet<Key>,
    verify_queue: VecDeque<Key>,
    /// The round of looks that was begun last.
    verify_round: Option<u64>,
    /// What the journal knows of cgroups that are not open.
    orphans: Vec<Record>,
    /// Why some of these cannot be read.
    unreadable: BTreeMap<(Knob, String), String>,
    /// Cgroups that no pod claims, opened to put back what is still held there.
    spares: BTreeMap<String, Target>,
    /// Knobs that have all that the group above has, and are not held yet.
    followers: BTreeSet<Key>,
    /// How many groups were opened to follow.
    followers_opened: u32,
    created: CreatedCgroups,
    /// Where baselines are kept; without one (plan, replay) nothing survives the agent.
    journal: Option<Journal>,
    journal_error: Option<String>,
    /// Knobs to delete from the journal at the next commit.
    journal_deletions: Vec<(Knob, String)>,
    /// What modules saved and the journal does not have yet.
    unsaved: Vec<(String, SavedState)>,
    /// The cgroups of paused pods, and until when, as the journal has them.
    paused_cgroups: BTreeMap<String, i64>,
    /// Every policy was evaluated: what an earlier agent held and no policy claims is put back.
    is_settled: bool,
    /// What is held is put back, also where it was left alone until now.
    is_ending: bool,
    memory_capacity: Option<Bytes>,
}

impl Ledger {
    /// A ledger that takes over what the journal knows. `makes_cgroups`: pods that come without cgroups get some.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the journal cannot be read.
    pub(crate) fn new(host: &mut Host, journal: Option<Journal>, makes_cgroups: bool) -> Result<Self, JournalError> {
        let memory_capacity = host.node_memory().ok().map(|(capacity, _)| capacity);
        let mut ledger = Self { memory_capacity, is_reach_stale: true, ..Self::default() };
        let mut created = BTreeSet::new();
        if let Some(journal) = &journal {
            ledger.orphans = journal.records()?;
            ledger.paused_cgroups = journal.paused_cgroups()?;
            created = journal.created()?;
        }
        ledger.created = CreatedCgroups::new(makes_cgroups, created);
        ledger.journal = journal;
        // It is there from the start, unlike cgroups, which are adopted when they are opened.
        ledger.adopt(host, Target::Node);
        Ok(ledger)
    }

    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    pub(crate) fn held(&self) -> &HeldKnobs {
        &self.held
    }

    pub(crate) fn refusals(&self) -> &BTreeMap<Key, Refusal> {
        &self.refusals
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Whether any quota changed, came or went since this was asked last.
    pub(crate) fn take_quota_changes(&mut self) -> bool {
        self.quotas.take_changed()
    }

    /// Whether what an earlier agent left has been dealt with.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Has a knob resolved in the next step.
    #[cfg(test)]
    pub(crate) fn touch(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    /// Pods, their configuration, or grants changed: who may act on what is judged anew.
    pub(crate) fn reach_changed(&mut self) {
        self.is_reach_stale = true;
    }

    /// The lease by which a knob is what it is; `None` = the baseline is in force, or is to come back.
    pub(crate) fn ruling(&self, pods: &PodTable, target: Target, knob: Knob) -> Option<&Lease> {
        self.masking(pods, target, knob).or_else(|| self.leases.effective(target, knob))
    }

    /// Remembers why a setting is not in force. `true` if that was not known.
    pub(super) fn note_refusal(&mut self, target: Target, knob: Knob, refusal: Refusal) -> bool {
        let known = self.refusals.get(&(target, knob)).filter(|known| known.why == refusal.why);
        let is_news = known.is_none();
        let refusal = match known {
            Some(known) => Refusal { since: known.since, lacking: known.lacking.clone(), ..refusal },
            None => refusal,
        };
        self.refusals.insert((target, knob), refusal);
        is_news
    }
}

/// What tests look at and arrange.
#[cfg(test)]
impl Ledger {
    /// Takes a lease as if a policy had staged it.
    pub(crate) fn lease(
        &mut self,
        holder: &qosm_model::lease::Holder,
        (target, knob): Key,
        value: qosm_model::knob::Value,
        now: qosm_model::lease::Timestamp,
    ) {
        if self.leases.acquire(holder, target, knob, value, "test".into(), now) {
            self.touch((target, knob));
        }
    }

    /// Gives a lease up as if a policy had staged that.
    pub(crate) fn unlease(&mut self, policy: &str, (target, knob): Key) {
        if self.leases.release(policy, target, knob) {
            self.touch((target, knob));
        }
    }

    /// How much is kept in each of its tables.
    pub(crate) fn sizes(&self) -> [(&'static str, usize); 7] {
        [
            ("held", self.held.len()),
            ("refusals", self.refusals.len()),
            ("orphans", self.orphans.len()),
            ("spares", self.spares.len()),
            ("journal_deletions", self.journal_deletions.len()),
            ("dirty", self.dirty.len()),
            ("unsaved", self.unsaved.len()),
        ]
    }
}
