//! The knobs that qosm holds on this node: what was there before, what was written, and what others made of it since.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::Timestamp;

/// A knob that qosm wrote, or found to hold what it wanted.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// What another writer last put there.
    pub(crate) baseline: Value,
    /// What the kernel showed after the last write.
    pub(crate) written: Value,
    pub(crate) cgroup: String,
    pub(crate) policy: Arc<str>,
    pub(crate) since: Timestamp,
    /// The last write is still under way.
    pub(crate) pending: bool,
    /// Somebody else wrote it, and is left alone until then.
    pub(crate) hands_off_until: Option<Timestamp>,
    /// What somebody else wrote last.
    pub(crate) drift: Option<String>,
    /// When qosm last put its value back.
    pub(crate) rewrites: VecDeque<Timestamp>,
    /// The value is not what the policy asked for, and why.
    pub(crate) adjusted: Option<(Value, String)>,
}

/// All of them. CFS quotas are looked at in every tick, so it is known without a search which these are.
#[derive(Debug, Default)]
pub(crate) struct HeldKnobs {
    all: BTreeMap<(Target, Knob), Held>,
    quotas: BTreeSet<Target>,
}

impl HeldKnobs {
    pub(crate) fn get(&self, key: &(Target, Knob)) -> Option<&Held> {
        self.all.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &(Target, Knob)) -> Option<&mut Held> {
        self.all.get_mut(key)
    }

    pub(crate) fn contains_key(&self, key: &(Target, Knob)) -> bool {
        self.all.contains_key(key)
    }

    pub(crate) fn get_or_insert_with(&mut self, key: (Target, Knob), held: impl FnOnce() -> Held) -> &mut Held {
        if key.1 == Knob::CfsQuota {
            self.quotas.insert(key.0);
        }
        self.all.entry(key).or_insert_with(held)
    }

    pub(crate) fn remove(&mut self, key: &(Target, Knob)) -> Option<Held> {
        if key.1 == Knob::CfsQuota {
            self.quotas.remove(&key.0);
        }
        self.all.remove(key)
    }

    /// In order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &(Target, Knob)> {
        self.all.keys()
    }

    /// In order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&(Target, Knob), &Held)> {
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

    /// Takes out all that is held on one target.
    pub(crate) fn take(&mut self, target: Target) -> Vec<(Knob, Held)> {
        let knobs: Vec<Knob> = self.of(target).collect();
        knobs.into_iter().filter_map(|knob| self.remove(&(target, knob)).map(|held| (knob, held))).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}
