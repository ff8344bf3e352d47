//! Baselines that cannot be the kubelet's: qosm takes what another agent left behind for the baseline, and restores it in the end.

use qosm_host::{Bandwidth, Host};
use qosm_model::knob::{Target, Value};
use qosm_model::pod::{ContainerState, Moment};
use qosm_model::unit::{Micros, MilliCpu};

use crate::ledger::Ledger;
use crate::table::{PodEntry, PodTable};

/// A note on a quota above `given`, the most that the limit gives; `None` if it is not above. A quota of `None` is unlimited.
fn excess(quota: Option<Micros>, given: u64, limit: MilliCpu) -> Option<String> {
    // One microsecond more is rounding.
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

impl Ledger {
    /// Notes on baselines of a pod and its containers above what the limits give.
    pub(crate) fn high_baselines(&self, host: &Host, pods: &PodTable, entry: &PodEntry) -> Vec<String> {
        let mut notes = Vec::new();
        let limit = entry.pod.cpu_limited(Moment::Now);
        if let Some(excess) = limit.and_then(|limit| self.quota_excess(host, pods, Target::Pod(entry.id), limit)) {
            notes.push(format!("pod: {excess}"));
        }
        for (container, known) in entry.pod.containers.iter().zip(&entry.containers) {
            // The kubelet removes the quota of a container with exclusive CPUs.
            if container.state != ContainerState::Running || known.exclusive_cpus.is_some() {
                continue;
            }
            let (target, limit) =
                (Target::Container(known.id), entry.pod.resources_of(container, Moment::Now).cpu_limit);
            if let Some(excess) = limit.and_then(|limit| self.quota_excess(host, pods, target, limit)) {
                notes.push(format!("container {}: {excess}", container.name));
            }
        }
        notes
    }

    fn quota_excess(&self, host: &Host, pods: &PodTable, target: Target, limit: MilliCpu) -> Option<String> {
        let row = self.quotas.get(target)?;
        let quota = match self.held.get(&(target, Bandwidth::KNOB)).map(|held| held.baseline) {
            Some(Value::Number(number)) => u64::try_from(number).ok().map(Micros),
            Some(_) => None,
            None => row.quota,
        };
        let Some(Value::Number(given)) = self.quotas_at(host, pods, target, Moment::Now).into_iter().max() else {
            return None;
        };
        excess(quota, given.unsigned_abs(), limit)
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
            let given = (limit * 100).max(1000);
            let reported = excess(quota.map(Micros), given, MilliCpu(limit));
            assert_eq!(reported.is_some(), is_excess, "{quota:?} {limit} {reported:?}");
        }
    }
}
