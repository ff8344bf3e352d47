//! Guard rails: bounds that hold for every module.
//!
//! A tier contains the pods of all namespaces, so a setting on a tier with protected pods beneath it could take resources from these.
//! Above protected pods a tier's CFS quota, burst, weight, group identity and memory bounds are never set lower than their baseline; a
//! tier that stands beside protected pods never gets a weight above its baseline, which would be taken from them; and knobs that reclaim,
//! kill or bound page cache are not set at all. Protection may grow: a pod's protection takes effect only through its tier. The CPUs of
//! such a tier are set on the other pods below it instead.

use std::sync::Arc;

use qosm_host::knob_table::{CPU_LIST, Encoding, Group, row};
use qosm_host::{Host, HostError, Wanted};
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::Tier;

use crate::inputs::Inputs;
use crate::ledger::refusal::Refusal;
use crate::ledger::resolved::{Railed, Resolved, number};
use crate::ledger::specified::OwnersNext;
use crate::ledger::tables::Denial;
use crate::ledger::{Key, Ledger};
use crate::path::is_within;
use crate::table::{Access, PodEntry, PodTable};

/// The CFS period that the kubelet uses unless configured otherwise, in microseconds.
const PERIOD: u64 = 100_000;

impl Ledger {
    /// Keeps a value within the operator's bounds.
    ///
    /// # Errors
    ///
    /// Why the setting takes no effect.
    pub(super) fn guarded(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
        wanted: Value,
    ) -> Result<Railed, String> {
        if let Target::Tier(tier @ (Tier::Guaranteed | Tier::Burstable)) = target
            && row(knob).is_quota()
        {
            return Err(format!(
                "a quota of {tier} would throttle pods whose CPU requests the scheduler has granted: of the tiers only {} takes one; \
                 set it on pods or containers",
                Tier::BestEffort
            ));
        }
        let mut railed = self.beyond_exclusive(host, inputs, target, wanted)?;
        let mut bound = |value: Value, why: String, is_wrong: fn(i128, i128) -> bool| {
            if is_wrong(rank(railed.0), rank(value)) {
                railed = (value, Some((wanted, why)));
            }
        };
        let (max_quota, min_quota) =
            (inputs.config.guard_rails.max_quota_percent, inputs.config.guard_rails.min_quota_percent);
        if row(knob).is_quota() && (max_quota.is_some() || min_quota.is_some()) {
            let baseline = self.baseline(host, target, knob);
            if let (Some(percent), Some(baseline)) = (min_quota, baseline) {
                let (of, what) = match baseline {
                    Value::Number(baseline) => (baseline, format!("the baseline {baseline}")),
                    _ => {
                        let period = self.quotas.get(target).map_or(PERIOD, |bandwidth| bandwidth.period.0);
                        let all = number(u64::from(host.cpus()).saturating_mul(period));
                        (all, format!("the node's CPUs, {all}, since the baseline is {baseline}"))
                    }
                };
                bound(share(of, percent), format!("minQuotaPercent {percent} of {what}"), |value, least| value < least);
            }
            // The upper bound comes last: if the two contradict each other, the lower value wins.
            if let (Some(percent), Some(Value::Number(baseline))) = (max_quota, baseline) {
                let why = format!("maxQuotaPercent {percent} of the baseline {baseline}");
                bound(share(baseline, percent), why, |value, most| value > most);
            }
        }
        if let Some(OwnersNext { most, why }) = self.owners_next(host, inputs, (target, knob)) {
            bound(most, why, |value, most| value > most);
        }
        if knob == Knob::MemoryMin
            && target == Target::Tier(Tier::Guaranteed)
            && let Some(capacity) = self.memory_capacity
        {
            let percent = inputs.config.guard_rails.max_memory_min_percent;
            let why = format!("maxMemoryMinPercent {percent} of the node's {capacity}");
            bound(share(number(capacity.0), percent), why, |value, most| value > most);
        }
        if let Target::Tier(tier) = target {
            let (beneath, beside) = protected_pods(host, inputs.pods, tier);
            let floor = beneath.as_ref().map(|pod| format!("protected pod {pod} stands below {tier}"));
            let ceiling = beside.as_ref().map(|pod| format!("protected pod {pod} stands beside {tier}"));
            let is_weight = row(knob).encoding == Encoding::Weight;
            let is_bounded = match row(knob).group {
                _ if is_weight => floor.is_some() || ceiling.is_some(),
                Group::Bandwidth | Group::Protection | Group::Identity => floor.is_some(),
                _ => match floor {
                    Some(why) if knob == CPU_LIST => {
                        return Err(format!("{why}: it keeps its CPUs, and the set is that of the other pods below"));
                    }
                    Some(why) => return Err(format!("{why}: {knob} of a tier above it is left alone")),
                    None => false,
                },
            };
            if is_bounded {
                let baseline = match self.baseline(host, target, knob) {
                    Some(baseline) => baseline,
                    // Without the knob nothing can be taken away, and the host reports what it lacks.
                    None if lacks(host, target, knob) => return Ok(railed),
                    None => return Err(format!("{tier} has protected pods, and its {knob} cannot be read")),
                };
                if let Some(why) = floor {
                    let why = format!("{why}: {knob} is not set below its baseline {baseline}");
                    bound(baseline, why, |value, least| value < least);
                }
                if let (true, Some(why)) = (is_weight, ceiling) {
                    let why = format!("{why}: {knob} is not set above its baseline {baseline}");
                    bound(baseline, why, |value, most| value > most);
                }
            }
        }
        let (value, adjusted) = railed;
        match adjusted {
            // Reported as a refusal: a value equal to the baseline is not written, so nothing else would show it.
            Some((_, why))
                if !self.held.contains_key(&(target, knob)) && self.baseline(host, target, knob) == Some(value) =>
            {
                Err(why)
            }
            adjusted => Ok((value, adjusted)),
        }
    }

    /// A set of CPUs without those that containers outside of the target have exclusively; other values stay as they are.
    ///
    /// # Errors
    ///
    /// Why the set cannot be used.
    pub(super) fn beyond_exclusive(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        target: Target,
        wanted: Value,
    ) -> Result<Railed, String> {
        let Value::Cpus(cpus) = wanted else { return Ok((wanted, None)) };
        let known = self.exclusive.take();
        let exclusive = known.unwrap_or_else(|| self.exclusive_cpus(host, inputs));
        let left = without_exclusive(host, target, cpus, &exclusive);
        self.exclusive = Some(exclusive);
        Ok(match left? {
            Some((left, why)) => (Value::Cpus(left), Some((wanted, why))),
            None => (wanted, None),
        })
    }

    /// Marks all sets of CPUs to be resolved again: CPUs have become exclusive to a container, or no longer are.
    pub(crate) fn touch_cpu_sets(&mut self) {
        let sets = self.leases.held().filter(|(_, knob, _)| *knob == CPU_LIST).map(|(target, knob, _)| (target, knob));
        let sets: Vec<_> = sets.collect();
        self.dirty.extend(sets);
    }

    /// The CPUs that the kubelet's static CPU manager gave to single containers. CPUs that qosm itself set are not among them.
    fn exclusive_cpus(&self, host: &mut Host, inputs: &Inputs<'_>) -> Vec<Exclusive> {
        let mut exclusive = Vec::new();
        for entry in inputs.pods.iter().filter(|entry| entry.pod.active) {
            for (container, known) in entry.pod.containers.iter().zip(&entry.containers) {
                let target = Target::Container(known.id);
                if known.exclusive_cpus.is_none() || self.held.holds_cpus(target) {
                    continue;
                }
                let cpus = host.cpuset_cpus(target).ok().flatten().and_then(|cpus| CpuSet::of(&cpus).ok());
                let Some(cpus) = cpus else { continue };
                exclusive.push(Exclusive { target, name: format!("{}/{}", entry.pod.key(), container.name), cpus });
            }
        }
        exclusive
    }

    /// The value of a knob without qosm: its baseline if it is held. `None` if it cannot be read.
    pub(super) fn baseline(&mut self, host: &mut Host, target: Target, knob: Knob) -> Option<Value> {
        if let Some(held) = self.held.get(&(target, knob)) {
            return Some(held.baseline);
        }
        if row(knob).is_quota()
            && let Some(row) = self.quotas.get(target)
        {
            return Some(row.quota.map_or(Value::Max, |quota| Value::Number(number(quota.0))));
        }
        host.read(target, knob).ok()
    }

    /// Handles a lease that the guard rails refuse: the baseline stays, or is restored.
    pub(super) fn refused_by_rails(
        &mut self,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
        value: Value,
        why: String,
    ) -> Option<Resolved> {
        let lease = self.leases.effective(target, knob)?;
        let (policy, reason) = (Arc::clone(&lease.holder.policy), Arc::clone(&lease.reason));
        if self.note_refusal(target, knob, Refusal::new(value, &policy, &why, inputs.now.wall)) {
            self.denials.push(Denial { target, knob, why: why.as_str().into(), policy: Arc::clone(&policy) });
        }
        let baseline = self.held.get(&(target, knob))?.baseline;
        let wanted = Wanted { target, knob, value: baseline };
        Some(Resolved { wanted, policy, reason, restores: false, guarded: Some((value, why)), is_refused: true })
    }
}

/// A container with exclusive CPUs.
#[derive(Debug)]
pub(super) struct Exclusive {
    target: Target,
    name: String,
    cpus: CpuSet,
}

/// A set of CPUs without the exclusive CPUs of containers outside the target, and why; `None` if nothing is removed.
///
/// # Errors
///
/// Why the set cannot be used: nothing is left, or a container within the target would lose its exclusive CPUs.
fn without_exclusive(
    host: &Host,
    target: Target,
    cpus: CpuSet,
    exclusive: &[Exclusive],
) -> Result<Option<(CpuSet, String)>, String> {
    let is_inside = |one: &Exclusive| match (host.attached_path(one.target), host.attached_path(target)) {
        (Some(inner), Some(outer)) => is_within(inner, outer),
        _ => false,
    };
    if let Some(robbed) = exclusive.iter().find(|one| is_inside(one) && !one.cpus.is_subset(&cpus)) {
        let Exclusive { name, cpus: own, .. } = robbed;
        return Err(format!(
            "the kubelet's CPU manager gave CPUs {own} to container {name} alone: a set has to leave it those"
        ));
    }
    let theirs: Vec<&Exclusive> =
        exclusive.iter().filter(|one| !is_inside(one) && !one.cpus.and(&cpus).is_empty()).collect();
    let Some(first) = theirs.first() else { return Ok(None) };
    let taken = theirs.iter().fold(CpuSet::default(), |sum, one| sum.or(&one.cpus)).and(&cpus);
    let left = cpus.minus(&taken);
    let why = format!("the kubelet's CPU manager gave CPUs {taken} to single containers, such as {}", first.name);
    if left.is_empty() { Err(format!("{why}: nothing is left of CPUs {cpus}")) } else { Ok(Some((left, why))) }
}

fn lacks(host: &mut Host, target: Target, knob: Knob) -> bool {
    matches!(host.read(target, knob), Err(HostError::Unsupported { .. }))
}

/// A protected pod below a tier, and a protected pod that is not below it, if there are any.
fn protected_pods(host: &Host, pods: &PodTable, tier: Tier) -> (Option<String>, Option<String>) {
    let place = host.attached_path(Target::Tier(tier));
    let is_below = |entry: &&PodEntry| match (place, host.attached_path(Target::Pod(entry.id))) {
        (Some(tier), Some(pod)) => is_within(pod, tier),
        _ => tier == Tier::Guaranteed || entry.pod.kube_qos.tier() == tier,
    };
    let protected = || pods.iter().filter(|entry| entry.pod.active && entry.access == Access::Protected);
    let key = |entry: &PodEntry| entry.pod.key();
    (protected().find(is_below).map(key), protected().find(|entry| !is_below(entry)).map(key))
}

/// A protected pod below a tier whose CPUs are therefore set on the other pods below it; `None` for other targets and knobs.
pub(super) fn keeps_tier(host: &Host, pods: &PodTable, (target, knob): Key) -> Option<String> {
    match target {
        Target::Tier(tier) if knob == CPU_LIST => protected_pods(host, pods, tier).0,
        _ => None,
    }
}

fn share(of: i64, percent: u32) -> Value {
    let share = i128::from(of) * i128::from(percent) / 100;
    Value::Number(i64::try_from(share).unwrap_or(i64::MAX))
}

/// Number by which values are compared: 1024 shares equal a weight of 100.
fn rank(value: Value) -> i128 {
    match value {
        Value::Number(number) => i128::from(number) * 1024,
        Value::Shares(shares) => i128::from(shares) * 100,
        _ => i128::MAX,
    }
}

#[cfg(test)]
mod tests;
