//! Carrying out: tasks are worked in order until each is covered, and what one releases counts for all.
//!
//! Source: koordinator `pkg/koordlet/qosmanager/plugins/util/evict.go`.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Profile;
use crate::feature::{Feature, Group, Kind, Resource};
use crate::order::Candidate;
use crate::pod::Pod;
use crate::trigger::{Shortage, Trigger};

/// Amounts by kind and resource.
pub type Amounts = BTreeMap<(Kind, Resource), u64>;

/// What one feature wants to be released.
#[derive(Clone, Debug, PartialEq)]
pub struct Task<'a> {
    /// Which feature.
    pub feature: Feature,
    /// Why.
    pub trigger: Trigger,
    /// How much of what; nothing in it is 0.
    pub needed: BTreeMap<Resource, u64>,
    /// Whom it may choose, in order.
    pub candidates: Vec<Candidate<'a>>,
}

/// A pod that a task chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen<'a> {
    /// Which task, by its place.
    pub task: usize,
    /// Which pod.
    pub candidate: Candidate<'a>,
    /// Its place among the candidates, from 1.
    pub place: usize,
    /// What it releases.
    pub freed: Amounts,
    /// What this task still lacks after it.
    pub lacking: BTreeMap<Resource, u64>,
}

/// What a round came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome<'a> {
    /// Who leaves, in the order in which they were chosen.
    pub chosen: Vec<Chosen<'a>>,
    /// What has been released, pods included that were evicted before and are still there.
    pub released: Amounts,
    /// What a task lacks after all of its candidates, by its place.
    pub lacking: BTreeMap<usize, BTreeMap<Resource, u64>>,
}

impl Task<'_> {
    /// Why it cannot wait; `None` = it can.
    pub fn shortage(&self) -> Option<Shortage> {
        match self.trigger {
            Trigger::Usage { shortage, .. } => shortage,
            Trigger::Satisfaction { .. } | Trigger::Requests { .. } => None,
        }
    }

    /// What is lacking after so much has been released.
    pub fn lacking(&self, released: &Amounts) -> BTreeMap<Resource, u64> {
        let lacking = |(resource, needed): (&Resource, &u64)| {
            let released = released.get(&(self.feature.kind(), *resource)).copied().unwrap_or(0);
            needed.checked_sub(released).filter(|lacking| *lacking > 0).map(|lacking| (*resource, lacking))
        };
        self.needed.iter().filter_map(lacking).collect()
    }

    /// What a pod releases of what this task counts in; whether the task may choose it does not matter.
    fn freed(&self, pod: &Pod, now_usec: u64) -> Option<(Resource, u64)> {
        match self.feature {
            Feature::BeCpu => Some((Resource::BatchCpu, pod.requests.batch_cpu)),
            Feature::Cpu => Some((Resource::Cpu, pod.cpu?.fresh(now_usec)? / 1_000)),
            Feature::BeMemory | Feature::Memory => Some((Resource::Memory, pod.memory?.fresh(now_usec)?)),
            // Of a class of which nothing is needed nothing counts.
            Feature::CpuAllocatable => {
                pod.class_request(Group::Cpu).filter(|(resource, _)| self.needed.contains_key(resource))
            }
            Feature::MemoryAllocatable => {
                pod.class_request(Group::Memory).filter(|(resource, _)| self.needed.contains_key(resource))
            }
        }
    }
}

/// What a pod releases, by all tasks together: an amount that several of them count is counted once, by the largest value.
pub fn freed(tasks: &[Task], pod: &Pod, now_usec: u64) -> Amounts {
    let mut amounts = Amounts::new();
    for task in tasks {
        if let Some((resource, amount)) = task.freed(pod, now_usec) {
            let known = amounts.entry((task.feature.kind(), resource)).or_insert(0);
            *known = amount.max(*known);
        }
    }
    amounts
}

/// Works the tasks of one group in order. `pending` are pods that were evicted before and are still there, or are leaving
/// by themselves: what they have counts as released, before anybody is chosen. `barred` are not chosen. A pod that releases
/// nothing of what a task lacks is passed over, but with `koordinator`; of those of which it is not known what they use,
/// one is taken at a time.
pub fn work<'a>(
    tasks: &[Task<'a>],
    pending: &[&Pod],
    barred: &BTreeSet<&str>,
    profile: Profile,
    now_usec: u64,
) -> Outcome<'a> {
    let mut outcome = Outcome::default();
    let mut gone: BTreeSet<&str> = barred.clone();
    for pod in pending {
        if gone.insert(&pod.uid) {
            add(&mut outcome.released, &freed(tasks, pod, now_usec));
        }
    }
    let mut has_unknown = false;
    for (number, task) in tasks.iter().enumerate() {
        for (place, candidate) in (1..).zip(&task.candidates) {
            let lacking = task.lacking(&outcome.released);
            if lacking.is_empty() {
                break;
            }
            if gone.contains(candidate.pod.uid.as_str()) {
                continue;
            }
            let own = task.freed(candidate.pod, now_usec);
            if profile == Profile::Responsive {
                let is_of_use = match own {
                    Some((resource, amount)) => amount > 0 && lacking.contains_key(&resource),
                    // One of these at a time: what it had shows before the next one.
                    None => task.feature.kind() == Kind::Used && !std::mem::replace(&mut has_unknown, true),
                };
                if !is_of_use {
                    continue;
                }
            }
            gone.insert(&candidate.pod.uid);
            let freed = freed(tasks, candidate.pod, now_usec);
            add(&mut outcome.released, &freed);
            let lacking = task.lacking(&outcome.released);
            outcome.chosen.push(Chosen { task: number, candidate: *candidate, place, freed, lacking });
        }
        let lacking = task.lacking(&outcome.released);
        if !lacking.is_empty() {
            outcome.lacking.insert(number, lacking);
        }
    }
    outcome
}

fn add(released: &mut Amounts, more: &Amounts) {
    for (key, amount) in more {
        let known = released.entry(*key).or_insert(0);
        *known = known.saturating_add(*amount);
    }
}

#[cfg(test)]
mod tests;
