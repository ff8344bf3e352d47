//! What each feature wants to release, from the current inputs and earlier samples.

use std::collections::BTreeMap;

use qosm_sdk::{PressureScope, PressureTrigger, StalledResource, Trigger as Wake};

use crate::config::{Allocatable, Checked, Limit, Profile, Satisfaction, Settings, Usage};
use crate::feature::{Feature, Resource};
use crate::input::{Inputs, Memory, Node, is_fresh};
use crate::pod::Pod;
use crate::state::State;
use crate::trigger::{Exceeded, Shortage, Trigger, limit_of, requests_release, starving_twice, usage_release};
use crate::window::{Sums, Window};

/// Percent of the time for which all tasks wait for memory when the trigger fires.
const ALARM_PERCENT: u32 = 10;

/// The triggers for early evaluations: all tasks of the node waited for memory for 100 ms of a second, or a container hit its memory limit
/// or met the OOM killer.
pub const EARLY_TICKS: [Wake; 2] = [
    Wake::Pressure(PressureTrigger {
        scope: PressureScope::Node,
        resource: StalledResource::Memory,
        full: true,
        stall_usec: 100_000,
        window_usec: 1_000_000,
    }),
    Wake::MemoryEvents,
];

/// Minimum amount to release while memory cannot wait, in percent of capacity.
pub const MIN_SHORTAGE_PERCENT: u64 = 2;

/// What a feature wants to release.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Nothing.
    Nothing,
    /// An input is missing.
    Missing(&'static str),
    /// The reason, and the amounts to release.
    Release(Trigger, BTreeMap<Resource, u64>),
}

/// Adds the current samples to the windows of the features that are on.
pub(crate) fn sample(state: &mut State, features: &[(Feature, Checked)], inputs: &Inputs, now_usec: u64) {
    for (feature, checked) in features {
        match (feature, checked) {
            (_, Checked::Satisfaction(Satisfaction { window_seconds, .. })) => {
                if let Some(be) = inputs.be.filter(|be| is_fresh(be.at_usec, now_usec)) {
                    state.be.add([be.request_milli, be.used_milli, be.real_limit_milli], now_usec, *window_seconds);
                }
            }
            (Feature::Cpu, Checked::Usage(Usage { window_seconds, .. })) => {
                if let Some(cpu) = inputs.cpu.and_then(|cpu| cpu.fresh(now_usec)) {
                    state.cpu.add([cpu], now_usec, *window_seconds);
                }
            }
            (_, Checked::Usage(_) | Checked::Allocatable(_)) => {}
        }
    }
}

/// What a feature wants to release now.
pub(crate) fn demand(
    state: &State,
    feature: Feature,
    checked: &Checked,
    policy: &Settings,
    inputs: &Inputs,
    now_usec: u64,
) -> Demand {
    let Some(node) = &inputs.node else { return Demand::Missing("the node is not known") };
    if inputs.pods.is_empty() {
        return Demand::Missing("the node's pods are not known");
    }
    match checked {
        Checked::Satisfaction(settings) => satisfaction(state, settings, node, inputs, now_usec),
        Checked::Allocatable(settings) => requests(feature, settings, node, &inputs.pods),
        Checked::Usage(settings) if feature == Feature::Cpu => {
            cpu(state, settings, policy.profile, node, inputs, now_usec)
        }
        Checked::Usage(settings) => memory(settings, policy, node, inputs, now_usec),
    }
}

fn satisfaction(state: &State, settings: &Satisfaction, node: &Node, inputs: &Inputs, now_usec: u64) -> Demand {
    let Some(be) = inputs.be.filter(|be| is_fresh(be.at_usec, now_usec)) else {
        return Demand::Missing("the CPU of batch pods is not measured, or too long ago");
    };
    let Some(mut average) = state.be.sums(now_usec, settings.window_seconds) else { return Demand::Nothing };
    if !Window::<3>::is_covered(average.count, settings.window_seconds) {
        return Demand::Nothing;
    }
    let allocatable = node.allocatable.get(&Resource::BatchCpu).copied();
    let limit = limit_of(settings.limit, be.real_limit_milli, allocatable);
    if settings.limit == Limit::Allocatable {
        average.sums[2] = u128::from(limit).saturating_mul(average.count.into());
    }
    let latest = Sums::of([be.request_milli, be.used_milli, limit]);
    match starving_twice(&average, &latest, settings) {
        None => Demand::Nothing,
        Some(release) => {
            let [request, used, limit] =
                average.sums.map(|sum| u64::try_from(sum / u128::from(average.count.max(1))).unwrap_or(u64::MAX));
            let trigger = Trigger::Satisfaction { request, used, limit, settings: *settings, release };
            Demand::Release(trigger, BTreeMap::from([(Resource::BatchCpu, release)]))
        }
    }
}

fn cpu(state: &State, settings: &Usage, profile: Profile, node: &Node, inputs: &Inputs, now_usec: u64) -> Demand {
    if node.cpu_capacity_milli == 0 {
        return Demand::Missing("the node's CPU capacity is not known");
    }
    let Some(latest) = inputs.cpu.and_then(|cpu| cpu.fresh(now_usec)) else {
        return Demand::Missing("the CPU use of the node is not measured, or too long ago");
    };
    let average = state.cpu.sums(now_usec, settings.window_seconds).unwrap_or(Sums::of([latest]));
    // Sums are in millionths of a CPU, capacity in thousandths.
    let release = |sums: &Sums<1>| {
        usage_release(sums.sums[0], sums.count.saturating_mul(1_000), node.cpu_capacity_milli, settings, profile)
    };
    let Some(mut amount) = release(&average) else { return Demand::Nothing };
    if profile == Profile::Responsive {
        // If the latest sample is below the threshold, the shortage is over and no pod has to leave.
        let Some(by_latest) = release(&Sums::of([latest])) else { return Demand::Nothing };
        amount = amount.min(by_latest);
    }
    let used = u64::try_from(average.sums[0] / u128::from(average.count.max(1)) / 1_000).unwrap_or(u64::MAX);
    usage(Resource::Cpu, used, node.cpu_capacity_milli, settings, amount, None)
}

fn memory(settings: &Usage, policy: &Settings, node: &Node, inputs: &Inputs, now_usec: u64) -> Demand {
    let capacity = node.memory_capacity_bytes;
    if capacity == 0 {
        return Demand::Missing("the node's memory capacity is not known");
    }
    let Some(memory) = inputs.memory.filter(|memory| is_fresh(memory.at_usec, now_usec)) else {
        return Demand::Missing("the memory of the node is not measured, or too long ago");
    };
    let used = memory.used_bytes();
    let release = |settings: &Usage| usage_release(used.into(), 1, capacity, settings, policy.profile);
    let shortage = match policy.profile {
        Profile::Responsive => shortage(settings, policy, &memory, capacity, &inputs.pods),
        Profile::Koordinator => None,
    };
    let amount = match shortage {
        Some(_) => {
            let least = qosm_sdk::percent_of(capacity, MIN_SHORTAGE_PERCENT);
            release(&Usage { threshold: 0, ..*settings }).map(|amount| amount.max(least))
        }
        None => release(settings),
    };
    amount.map_or(Demand::Nothing, |amount| usage(Resource::Memory, used, capacity, settings, amount, shortage))
}

fn usage(
    resource: Resource,
    used: u64,
    capacity: u64,
    settings: &Usage,
    release: u64,
    shortage: Option<Shortage>,
) -> Demand {
    if release == 0 {
        return Demand::Nothing;
    }
    let trigger = Trigger::Usage { resource, used, capacity, settings: *settings, release, shortage };
    Demand::Release(trigger, BTreeMap::from([(resource, release)]))
}

/// Whether memory cannot wait for the next second. Pressure and OOM kills count only near the threshold: far below it, a pod's own limit
/// causes them, and evicting other pods would not help.
fn shortage(settings: &Usage, policy: &Settings, memory: &Memory, capacity: u64, pods: &[Pod]) -> Option<Shortage> {
    if let Some(low) = memory.low_mark_bytes.filter(|low| memory.available_bytes <= *low) {
        return Some(Shortage::Marks { available: memory.available_bytes, low });
    }
    let near = i128::from(settings.threshold) - i128::from(policy.memory_margin_percent);
    if i128::from(memory.used_bytes()) * 100 < i128::from(capacity).saturating_mul(near) {
        return None;
    }
    let kills = pods.iter().filter_map(|pod| pod.memory_events).filter(|events| events.max == 0);
    let kills = kills.fold(0_u64, |kills, events| kills.saturating_add(events.oom_kills));
    if kills > 0 {
        return Some(Shortage::OomKills(kills));
    }
    match memory.pressure {
        Some(pressure) if pressure.is_at_least(policy.memory_full_percent) => {
            Some(Shortage::Pressure { full_usec: pressure.full_usec, window_usec: pressure.window_usec })
        }
        // The trigger's threshold is fixed, so it says too little if a larger percentage is configured.
        _ => (memory.is_alarmed && policy.memory_full_percent <= ALARM_PERCENT)
            .then_some(Shortage::Pressure { full_usec: 0, window_usec: 0 }),
    }
}

fn requests(feature: Feature, settings: &Allocatable, node: &Node, pods: &[Pod]) -> Demand {
    let mut requested: BTreeMap<Resource, u64> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.is_active && pod.priority_value() <= settings.priority) {
        if let Some((resource, amount)) = pod.class_request(feature.group()) {
            let sum = requested.entry(resource).or_insert(0);
            *sum = sum.saturating_add(amount);
        }
    }
    let exceeded: Vec<Exceeded> = requested
        .into_iter()
        .filter_map(|(resource, requested)| {
            let allocatable = node.allocatable.get(&resource).copied();
            let release = requests_release(requested, allocatable, settings)?;
            let allocatable = allocatable.and_then(|amount| u64::try_from(amount).ok()).filter(|amount| *amount > 0);
            Some(Exceeded { resource, requested, allocatable, release })
        })
        .collect();
    if exceeded.is_empty() {
        return Demand::Nothing;
    }
    let needed = exceeded.iter().map(|exceeded| (exceeded.resource, exceeded.release)).collect();
    Demand::Release(Trigger::Requests { exceeded, settings: *settings }, needed)
}

#[cfg(test)]
mod tests;
