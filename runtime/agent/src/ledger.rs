//! The ledger: the leases of all policies, the knobs held by them, and the baselines to restore.
//!
//! Settings that policies stage become leases. The leases on a knob resolve to one value, which is recorded in the journal and then
//! written to the kernel. The ledger reads held knobs back: a value that another program wrote is drift. It adopts knobs that an earlier
//! agent held, and restores those that no policy claims.

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
mod unpinned;
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
    /// The containers with exclusive CPUs, once they were read in this round.
    exclusive: Option<Vec<rails::Exclusive>>,
    refusals: BTreeMap<Key, Refusal>,
    /// Knobs to resolve in this step.
    dirty: BTreeSet<Key>,
    /// Knobs held by the policy that is staging anew and not named by it yet: `end_staging` releases them.
    undeclared: BTreeSet<Key>,
    /// Settings that were refused before any write to the kernel and are still to be reported.
    denials: Vec<Denial>,
    /// Policies of equal priority that want different values of a knob.
    ties: Ties,
    /// Whether pods, configuration or grants changed, so that it must be worked out again which leases count.
    is_reach_stale: bool,
    /// Kernel features that settings need and this host lacks.
    missing: Missing,
    quotas: Quotas,
    /// Targets with a knob file that another program wrote since quotas were last read.
    rewritten: BTreeSet<Target>,
    /// Knobs that another owner keeps setting to its own value.
    contested: BTreeSet<Key>,
    verify_queue: VecDeque<Key>,
    /// Number of the latest round of read-backs: ticks divided by the ticks of a round.
    verify_round: Option<u64>,
    /// The journal's records of cgroups that are not open.
    orphans: Vec<Record>,
    /// Errors of orphans whose cgroup cannot be opened or whose knob cannot be read.
    unreadable: BTreeMap<(Knob, String), String>,
    /// Cgroups that no known pod claims, opened because knobs are held there or follow a group above.
    spares: BTreeMap<String, Target>,
    /// Knobs of cgroups that have all CPUs of the group above and are not held yet (cgroup v1).
    followers: BTreeSet<Key>,
    /// Number of cgroups that were opened to follow a group above.
    followers_opened: u32,
    created: CreatedCgroups,
    /// Stores baselines; `None` in a plan or replay, where nothing survives the agent.
    journal: Option<Journal>,
    journal_error: Option<String>,
    /// Knobs to delete from the journal at the next commit.
    journal_deletions: Vec<(Knob, String)>,
    /// State that modules saved and that is not in the journal yet.
    unsaved: Vec<(String, SavedState)>,
    /// Cgroups of paused pods as the journal records them, with the end of the pause in milliseconds since 1970.
    paused_cgroups: BTreeMap<String, i64>,
    /// Whether [`Self::settle`] has released what an earlier agent held and no policy claims.
    is_settled: bool,
    /// Whether the agent is ending: held knobs are restored, including those left to another writer until now.
    is_ending: bool,
    memory_capacity: Option<Bytes>,
}

impl Ledger {
    /// Creates a ledger that takes over the journal's records. With `makes_cgroups` the agent creates cgroups for pods that have none.
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
        // The node exists from the start; cgroups are adopted when they are opened.
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

    /// Whether any quota changed, appeared or disappeared since the last call.
    pub(crate) fn take_quota_changes(&mut self) -> bool {
        self.quotas.take_changed()
    }

    /// Whether [`Self::settle`] has released what an earlier agent held and no policy claims.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// Marks a knob to be resolved in the next step.
    #[cfg(test)]
    pub(crate) fn touch(&mut self, key: Key) {
        self.dirty.insert(key);
    }

    /// Notes that pods, their configuration or grants changed: the next step works out again which leases count.
    pub(crate) fn reach_changed(&mut self) {
        self.is_reach_stale = true;
    }

    /// The lease that determines a knob's value; `None` if the baseline is in force or is to be restored.
    pub(crate) fn ruling(&self, pods: &PodTable, target: Target, knob: Knob) -> Option<&Lease> {
        self.masking(pods, target, knob).or_else(|| self.leases.effective(target, knob))
    }

    /// Records why a setting is not in force. Returns `true` if the reason is new.
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

/// Accessors for tests.
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

    /// Releases a lease as if a policy had staged the release.
    pub(crate) fn unlease(&mut self, policy: &str, (target, knob): Key) {
        if self.leases.release(policy, target, knob) {
            self.touch((target, knob));
        }
    }

    /// Number of entries in each table.
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
