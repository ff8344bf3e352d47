//! Baselines that cannot be the kubelet's: what another agent left behind is taken for what was there, and comes back in the end.

use qosm_host::Bandwidth;
use qosm_model::knob::{Target, Value};
use qosm_model::pod::{ContainerState, Pod};
use qosm_model::unit::{Micros, MilliCpu};

use crate::ledger::Ledger;
use crate::table::PodEntry;

/// The kernel takes no shorter quota, and the kubelet writes none.
const MIN_QUOTA: u64 = 1000;

/// What lies above a CPU limit; `None` where the quota is what the limit gives, or less. A quota of `None` is no limit at all.
fn excess(quota: Option<Micros>, period: Micros, limit: MilliCpu) -> Option<String> {
    let given = (limit.0.saturating_mul(period.0) / 1000).max(MIN_QUOTA);
    // Rounding is no difference.
    if limit.0 == 0 || quota.is_some_and(|quota| quota.0 <= given.saturating_add(1)) {
        return None;
    }
    let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.0.to_string());
    Some(format!(
        "the baseline {quota} of cpu.quota lies above {given}, which the limit of {}m gives: another agent may have left it (koordlet \
         does); qosm takes it for what was there and puts it back in the end, so write {given} while nothing is held, or restart the pod",
        limit.0
    ))
}

/// The CPU limit that the kubelet makes a pod's quota of: its own, or the sum of its containers' where all of them have one.
fn pod_limit(pod: &Pod) -> Option<MilliCpu> {
    let of_containers = || {
        let sum: Option<u64> = pod.containers.iter().map(|container| Some(container.cpu_limit?.0)).sum();
        Some(MilliCpu(sum?.saturating_add(pod.cpu_overhead.0)))
    };
    pod.cpu_limit.or_else(of_containers)
}

impl Ledger {
    /// Baselines of a pod and its containers that lie above what its limits give.
    pub(crate) fn high_baselines(&self, entry: &PodEntry) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(excess) = pod_limit(&entry.pod).and_then(|limit| self.quota_excess(Target::Pod(entry.id), limit)) {
            notes.push(format!("pod: {excess}"));
        }
        for (container, known) in entry.pod.containers.iter().zip(&entry.containers) {
            // The kubelet takes the quota away from who has CPUs of its own.
            if container.state != ContainerState::Running || known.exclusive_cpus.is_some() {
                continue;
            }
            let limit = container.cpu_limit;
            if let Some(excess) = limit.and_then(|limit| self.quota_excess(Target::Container(known.id), limit)) {
                notes.push(format!("container {}: {excess}", container.name));
            }
        }
        notes
    }

    fn quota_excess(&self, target: Target, limit: MilliCpu) -> Option<String> {
        let row = self.quotas.get(target)?;
        let quota = match self.held.get(&(target, Bandwidth::KNOB)).map(|held| held.baseline) {
            Some(Value::Number(number)) => u64::try_from(number).ok().map(Micros),
            Some(Value::Max | Value::Shares(_) | Value::Cpus(_)) => None,
            None => row.quota,
        };
        excess(quota, row.period, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_above_the_limit_is_somebody_elses() {
        for (quota, limit, is_excess) in [
            (Some(50_000), 500, false),
            (Some(50_001), 500, false),
            (Some(20_000), 500, false),
            (Some(150_000), 500, true),
            (None, 500, true),
            (Some(1000), 1, false),
            (Some(150_000), 0, false),
        ] {
            let reported = excess(quota.map(Micros), Micros(100_000), MilliCpu(limit));
            assert_eq!(reported.is_some(), is_excess, "{quota:?} {limit} {reported:?}");
        }
    }
}
