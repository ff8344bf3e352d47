//! Which pods a feature may evict, and in which order. Each order is total, so the same pods always come in the same order.

use std::cmp::{Ordering, Reverse};
use std::fmt;

use crate::config::{Checked, Settings};
use crate::feature::{Feature, Kind, Resource};
use crate::pod::Pod;

/// The sort key of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// For batch pods that starve of CPU.
    Starving {
        /// `spec.priority`; lower first.
        priority: Option<i32>,
        /// Used CPU in thousandths of a CPU.
        used: u64,
        /// Requested batch CPU in thousandths of a CPU; pods that use a larger share of it leave first.
        requested: u64,
    },
    /// For batch pods when memory is short.
    BeMemory {
        /// `spec.priority`; lower first.
        priority: Option<i32>,
        /// Used memory in bytes, more first; `None` (not measured) comes last.
        used: Option<u64>,
    },
    /// For pods up to a priority.
    Priority {
        /// Priority from the annotation; lower first.
        eviction: i32,
        /// `spec.priority` or the default of the priority class; lower first.
        priority: i32,
        /// Priority from the label; lower first.
        sub: i64,
        /// Amount that the pod uses or requests; more first.
        amount: u64,
        /// The resource of the amount.
        resource: Resource,
        /// Whether the amount is used or requested.
        kind: Kind,
    },
}

/// A pod that may be evicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its sort key.
    pub rank: Rank,
}

/// The candidates of a feature in the order in which they are evicted. Ties are broken by age (newest first), then by UID.
///
/// Source: koordinator `pkg/koordlet/qosmanager/plugins/{cpuevict,memoryevict}`.
pub fn candidates<'a>(
    feature: Feature,
    checked: &Checked,
    policy: &Settings,
    pods: &'a [Pod],
    now_usec: u64,
) -> Vec<Candidate<'a>> {
    let mut all: Vec<Candidate> = pods
        .iter()
        .filter(|pod| pod.is_active && !pod.is_protected(policy.daemon_sets) && pod.marks.allowed.has(feature))
        .filter_map(|pod| Some(Candidate { pod, rank: rank(feature, checked, pod, now_usec)? }))
        .collect();
    all.sort_by(compare);
    match feature {
        // An unset priority equals any other, so these pods are sorted among the others by use alone.
        Feature::BeCpu | Feature::BeMemory => merge_without_priority(all),
        _ => all,
    }
}

fn rank(feature: Feature, checked: &Checked, pod: &Pod, now_usec: u64) -> Option<Rank> {
    let cpu_milli = || Some(pod.cpu?.fresh(now_usec)? / 1_000);
    let memory = || pod.memory?.fresh(now_usec);
    let by_priority = |most: i32, amount, resource, kind| {
        let priority = pod.priority_value();
        (pod.marks.is_enabled && priority <= most).then(|| Rank::Priority {
            eviction: pod.marks.eviction_priority,
            priority,
            sub: pod.sub_priority(),
            amount,
            resource,
            kind,
        })
    };
    match (feature, checked) {
        (Feature::BeCpu, _) => pod.is_be().then(|| Rank::Starving {
            priority: pod.priority,
            used: cpu_milli().unwrap_or(0),
            requested: pod.requests.batch_cpu,
        }),
        (Feature::BeMemory, _) => pod.is_be().then(|| Rank::BeMemory { priority: pod.priority, used: memory() }),
        (Feature::Cpu, Checked::Usage(usage)) => by_priority(usage.priority?, cpu_milli()?, Resource::Cpu, Kind::Used),
        (Feature::Memory, Checked::Usage(usage)) => {
            by_priority(usage.priority?, memory()?, Resource::Memory, Kind::Used)
        }
        (Feature::CpuAllocatable | Feature::MemoryAllocatable, Checked::Allocatable(settings)) => {
            let (resource, amount) = pod.class_request(feature.group())?;
            by_priority(settings.priority, amount, resource, Kind::Request)
        }
        _ => None,
    }
}

/// Compares two candidates, with pods without a priority last.
fn compare(one: &Candidate, other: &Candidate) -> Ordering {
    let said = |priority: Option<i32>| (priority.is_none(), priority);
    let by_rank = match (&one.rank, &other.rank) {
        (Rank::Starving { priority: one, .. }, Rank::Starving { priority: other, .. }) => said(*one).cmp(&said(*other)),
        (Rank::BeMemory { priority: one, .. }, Rank::BeMemory { priority: other, .. }) => said(*one).cmp(&said(*other)),
        _ => Ordering::Equal,
    };
    by_rank.then_with(|| by_use(one, other))
}

/// Compares two candidates of equal `spec.priority`.
fn by_use(one: &Candidate, other: &Candidate) -> Ordering {
    let by_use = match (&one.rank, &other.rank) {
        (
            Rank::Starving { used, requested, .. },
            Rank::Starving { used: other_used, requested: other_requested, .. },
        ) => {
            // used / requested, without rounding; 0 for a pod without a request.
            let share = |used: u64, requested: u64, other: u64| {
                if requested == 0 { 0 } else { u128::from(used) * u128::from(other.max(1)) }
            };
            share(*other_used, *other_requested, *requested).cmp(&share(*used, *requested, *other_requested))
        }
        (Rank::BeMemory { used: one_used, .. }, Rank::BeMemory { used: other_used, .. }) => {
            let known = |used: &Option<u64>| used.unwrap_or(0);
            let by_amount = known(other_used).cmp(&known(one_used));
            // Neither has a known use: by name, the greater one first.
            let by_name = || if known(one_used) == 0 { other.pod.name.cmp(&one.pod.name) } else { Ordering::Equal };
            by_amount.then_with(by_name)
        }
        (
            Rank::Priority { eviction, priority, sub, amount, .. },
            Rank::Priority {
                eviction: other_eviction,
                priority: other_priority,
                sub: other_sub,
                amount: other_amount,
                ..
            },
        ) => (eviction, priority, sub, Reverse(amount)).cmp(&(
            other_eviction,
            other_priority,
            other_sub,
            Reverse(other_amount),
        )),
        _ => Ordering::Equal,
    };
    by_use
        .then_with(|| (Reverse(one.pod.created_at), &one.pod.uid).cmp(&(Reverse(other.pod.created_at), &other.pod.uid)))
}

/// Inserts each pod without a priority before the first pod that it precedes by use.
fn merge_without_priority(mut all: Vec<Candidate>) -> Vec<Candidate> {
    let is_said = |candidate: &Candidate| match candidate.rank {
        Rank::Starving { priority, .. } | Rank::BeMemory { priority, .. } => priority.is_some(),
        Rank::Priority { .. } => true,
    };
    let unsaid = all.split_off(all.partition_point(is_said));
    for candidate in unsaid {
        let place = all.iter().position(|other| by_use(&candidate, other) == Ordering::Less).unwrap_or(all.len());
        all.insert(place, candidate);
    }
    all
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = |priority: &Option<i32>| {
            priority.map_or_else(|| "no priority".into(), |priority| format!("priority {priority}"))
        };
        match self {
            Self::Starving { priority, used, requested } => {
                write!(f, "{}, uses {used}m of {requested}m requested", spec(priority))
            }
            Self::BeMemory { priority, used: Some(used) } => {
                write!(f, "{}, uses {}", spec(priority), Resource::Memory.show(*used))
            }
            Self::BeMemory { priority, used: None } => write!(f, "{}, use not measured", spec(priority)),
            Self::Priority { eviction, priority, sub, amount, resource, kind } => {
                let verb = if *kind == Kind::Used { "uses" } else { "requests" };
                write!(f, "eviction priority {eviction}, priority {priority}/{sub}, {verb} {}", resource.show(*amount))
            }
        }
    }
}

#[cfg(test)]
mod tests;
