//! Executes the tasks of a group in order until each is covered; what one task releases counts for all.
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

/// What one feature wants to release.
#[derive(Clone, Debug, PartialEq)]
pub struct Task<'a> {
    /// The feature.
    pub feature: Feature,
    /// The reason.
    pub trigger: Trigger,
    /// Amount to release by resource; a missing resource is 0.
    pub needed: BTreeMap<Resource, u64>,
    /// Pods that the task may choose, in order.
    pub candidates: Vec<Candidate<'a>>,
}

/// A pod that a task chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen<'a> {
    /// Index of the task.
    pub task: usize,
    /// The pod.
    pub candidate: Candidate<'a>,
    /// Position among the candidates, from 1.
    pub place: usize,
    /// Amounts that the pod releases.
    pub freed: Amounts,
    /// What the task still lacks after this pod.
    pub lacking: BTreeMap<Resource, u64>,
}

/// The result of a round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome<'a> {
    /// The chosen pods, in the order in which they were chosen.
    pub chosen: Vec<Chosen<'a>>,
    /// Amounts released, including those of pods that were evicted earlier and are still there.
    pub released: Amounts,
    /// What a task lacks after all of its candidates, by index of the task.
    pub lacking: BTreeMap<usize, BTreeMap<Resource, u64>>,
}

impl Task<'_> {
    /// Why the task cannot wait; `None` if it can.
    pub fn shortage(&self) -> Option<Shortage> {
        match self.trigger {
            Trigger::Usage { shortage, .. } => shortage,
            Trigger::Satisfaction { .. } | Trigger::Requests { .. } => None,
        }
    }

    /// What the task lacks after `released`.
    pub fn lacking(&self, released: &Amounts) -> BTreeMap<Resource, u64> {
        let lacking = |(resource, needed): (&Resource, &u64)| {
            let released = released.get(&(self.feature.kind(), *resource)).copied().unwrap_or(0);
            needed.checked_sub(released).filter(|lacking| *lacking > 0).map(|lacking| (*resource, lacking))
        };
        self.needed.iter().filter_map(lacking).collect()
    }

    /// The amount that a pod releases in the resource of this task, whether or not the task may choose the pod.
    fn freed(&self, pod: &Pod, now_usec: u64) -> Option<(Resource, u64)> {
        match self.feature {
            Feature::BeCpu => Some((Resource::BatchCpu, pod.requests.batch_cpu)),
            Feature::Cpu => Some((Resource::Cpu, pod.cpu?.fresh(now_usec)? / 1_000)),
            Feature::BeMemory | Feature::Memory => Some((Resource::Memory, pod.memory?.fresh(now_usec)?)),
            // Only classes of which something has to be released count.
            Feature::CpuAllocatable => {
                pod.class_request(Group::Cpu).filter(|(resource, _)| self.needed.contains_key(resource))
            }
            Feature::MemoryAllocatable => {
                pod.class_request(Group::Memory).filter(|(resource, _)| self.needed.contains_key(resource))
            }
        }
    }
}

/// What a pod releases for all tasks together. If several tasks count the same resource, it counts once, with the largest value.
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

/// Executes the tasks of one group in order. `pending` are pods that were evicted earlier and are still there, or that are leaving by
/// themselves: their amounts count as released before any pod is chosen. Pods in `barred` are not chosen. A pod that releases nothing that
/// a task lacks is skipped, except with `koordinator`. Of the pods whose use is unknown, one is chosen per round.
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
                    // One pod of unknown use at a time: its effect has to show before the next one.
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
