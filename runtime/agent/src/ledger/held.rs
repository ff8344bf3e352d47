//! The knobs that qosm holds on this node: their baselines, what qosm wrote, and what other programs wrote since.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use qosm_host::knob_table::row;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::Timestamp;

/// A knob that qosm wrote, or that had the wanted value already.
#[derive(Clone, Debug)]
pub(crate) struct HeldKnob {
    /// Value that another program last wrote; restored in the end.
    pub(crate) baseline: Value,
    /// Value that the kernel showed last: after qosm's write, or when it was read back.
    pub(crate) written: Value,
    pub(crate) cgroup: String,
    pub(crate) policy: Arc<str>,
    pub(crate) since: Timestamp,
    /// What the last write is to set, while that is under way.
    pub(crate) pending: Option<Value>,
    /// Another program wrote the knob; qosm leaves it alone until then.
    pub(crate) hands_off_until: Option<Timestamp>,
    /// Describes the last foreign write.
    pub(crate) drift: Option<String>,
    /// When qosm repaired the knob, the oldest first.
    pub(crate) rewrites: VecDeque<Timestamp>,
    /// Number of contests in a row in which the knob was left to another owner.
    pub(crate) fights: u32,
    /// The hands-off time is for a person's value. It ends early if the pod's specification turns out to ask for that value.
    pub(crate) is_left_to_person: bool,
    /// On a tier: another owner insists on its value, and qosm settles on it as long as it covers the groups in it.
    pub(crate) is_settled: bool,
    /// On a tier: its owner writes another value in regular syncs, which qosm overwrites each time.
    pub(crate) is_synced: bool,
    /// Why the knob has its value without a lease of its own: it follows a group above.
    pub(crate) follows: Option<Arc<str>>,
    /// What the policy asked for, and why the value is another; `None` if it is not.
    pub(crate) adjusted: Option<(Value, String)>,
}

/// All held knobs, with an index of the held CFS quotas, which are read in every tick.
#[derive(Debug, Default)]
pub(crate) struct HeldKnobs {
    all: BTreeMap<(Target, Knob), HeldKnob>,
    quotas: BTreeSet<Target>,
}

impl HeldKnob {
    /// A knob that qosm has just begun to hold.
    pub(crate) fn new(baseline: Value, written: Value, cgroup: String, policy: Arc<str>, since: Timestamp) -> Self {
        Self {
            baseline,
            written,
            cgroup,
            policy,
            since,
            pending: None,
            hands_off_until: None,
            drift: None,
            rewrites: VecDeque::new(),
            fights: 0,
            is_left_to_person: false,
            is_settled: false,
            is_synced: false,
            follows: None,
            adjusted: None,
        }
    }

    /// Whether another owner of the knob writes its own value against qosm's.
    pub(crate) fn is_contested(&self) -> bool {
        self.is_settled || self.is_synced || (self.hands_off_until.is_some() && !self.is_left_to_person)
    }
}

impl HeldKnobs {
    pub(crate) fn get(&self, key: &(Target, Knob)) -> Option<&HeldKnob> {
        self.all.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &(Target, Knob)) -> Option<&mut HeldKnob> {
        self.all.get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &(Target, Knob)) -> bool {
        self.all.contains_key(key)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: (Target, Knob), held: impl FnOnce() -> HeldKnob) -> &mut HeldKnob {
        if row(key.1).is_quota() {
            self.quotas.insert(key.0);
        }
        self.all.entry(key).or_insert_with(held)
    }

    pub(crate) fn remove(&mut self, key: &(Target, Knob)) -> Option<HeldKnob> {
        if row(key.1).is_quota() {
            self.quotas.remove(&key.0);
        }
        self.all.remove(key)
    }

    /// Ordered by target and knob.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &(Target, Knob)> {
        self.all.keys()
    }

    /// Ordered by target and knob.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&(Target, Knob), &HeldKnob)> {
        self.all.iter()
    }

    /// The targets whose CFS quota is held, in order.
    pub(crate) fn quotas(&self) -> &BTreeSet<Target> {
        &self.quotas
    }

    /// The knobs that are held on one target, in order.
    pub(crate) fn of(&self, target: Target) -> impl Iterator<Item = Knob> {
        self.all
            .range((target, Knob::ALL[0])..)
            .map(|(key, _)| *key)
            .take_while(move |(of, _)| *of == target)
            .map(|(_, knob)| knob)
    }

    /// Whether the CPUs of a target are held.
    pub(crate) fn holds_cpus(&self, target: Target) -> bool {
        self.of(target).any(|knob| row(knob).is_cpu_list())
    }

    /// Removes and returns all that is held on one target.
    pub(crate) fn take(&mut self, target: Target) -> Vec<(Knob, HeldKnob)> {
        let knobs: Vec<Knob> = self.of(target).collect();
        knobs.into_iter().filter_map(|knob| self.remove(&(target, knob)).map(|held| (knob, held))).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
