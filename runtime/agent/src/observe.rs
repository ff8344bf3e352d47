//! Observe, the part of pods and cgroups: finding the groups of pods, and noticing that they are gone.

use std::sync::Arc;

use qosm_host::HostError;
use qosm_model::column::BandwidthSample;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, ContainerState, KubeQos, PodId};
use qosm_model::unit::Micros;
use rustc_hash::FxHashMap;

use crate::agent::{Agent, Mode};
use crate::policy::Now;

impl Agent {
    /// Opens what there is of a pod's cgroups, and tells the policies if that is more than before.
    pub(crate) fn attach_pod(&mut self, id: PodId, now: Now) {
        if self.make_cgroups && self.mode == Mode::Enforce {
            self.make_pod(id);
        }
        let Some(entry) = self.pods.get(id) else { return };
        let given = entry.given.clone();
        let pod_path = self.host.pod_path(&given);
        let mut opened = Vec::new();
        if !entry.attached && self.host.attach(Target::Pod(id), &pod_path).is_ok() {
            opened.push(Target::Pod(id));
        }
        for (container, known) in given.containers.iter().zip(&entry.containers) {
            if known.attached || container.state != ContainerState::Running {
                continue;
            }
            let target = Target::Container(known.id);
            let attached = match self.host.container_path(&given, container) {
                Ok(Some(path)) => self.host.attach(target, &path),
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match attached {
                Ok(()) => opened.push(target),
                Err(HostError::Gone { .. }) => {}
                Err(error) => {
                    tracing::debug!(pod = given.key(), container = container.name, %error, "cgroup not opened")
                }
            }
        }
        if opened.is_empty() {
            return;
        }
        for &target in &opened {
            self.quotas.refresh(&mut self.host, target);
            self.quotas.born(target);
            self.adopt(target);
        }
        let exclusive: Vec<_> = opened.iter().map(|&target| self.exclusive_cpus(target)).collect();
        let Some(entry) = self.pods.get_mut(id) else { return };
        for (&target, exclusive) in opened.iter().zip(exclusive) {
            match target {
                Target::Pod(_) => entry.attached = true,
                Target::Container(container) => {
                    if let Some(known) = entry.containers.iter_mut().find(|known| known.id == container) {
                        known.attached = true;
                        known.exclusive_cpus = exclusive;
                    }
                }
                Target::Tier(_) => {}
            }
        }
        entry.refresh_view();
        for policy in &mut self.policies {
            policy.reckon(id, &self.pods, true);
        }
        self.started(&opened, now);
    }

    /// The CPUs that the kubelet's static policy set aside for a container: a Guaranteed pod's container with a whole number of
    /// CPUs whose cpuset has just that many.
    fn exclusive_cpus(&mut self, target: Target) -> Option<u32> {
        let Target::Container(id) = target else { return None };
        let (entry, place) = self.pods.owner(id)?;
        let container = entry.given.containers.get(place)?;
        let limit = container.cpu_limit?.0;
        if entry.given.kube_qos != KubeQos::Guaranteed || limit == 0 || limit % 1000 != 0 {
            return None;
        }
        let cpus = self.host.cpuset_cpus(id).ok()??;
        (u64::from(cpus) == limit / 1000 && cpus < self.host.cpus()).then_some(cpus)
    }

    /// A container's cgroup vanished. Its leases are void; if it comes back under the same name it is another container.
    pub(crate) fn container_gone(&mut self, container: ContainerId) {
        let target = Target::Container(container);
        self.drop_target(target);
        if let Some(pod) = self.pods.renew_container(container) {
            for policy in &mut self.policies {
                policy.reckon(pod, &self.pods, true);
            }
        }
    }

    /// Forgets all about a target whose cgroup no longer exists.
    pub(crate) fn drop_target(&mut self, target: Target) {
        self.forget_leases(target);
        self.alarms.is_stale = true;
        self.host.detach(target);
        self.resctrl.classes.forget(target);
        if let Target::Container(container) = target {
            self.locality.forget(container);
        }
        self.quotas.forget(target);
        for (knob, held) in self.held.take(target) {
            self.struck.push((knob, held.cgroup));
        }
        self.refusals.retain(|(refused, _), _| *refused != target);
        self.dirty.retain(|(dirty, _)| *dirty != target);
    }

    /// The column of quotas: held ones and a share of the others are read, the rest is as last seen.
    pub(crate) fn read_quotas(&mut self) -> Arc<[BandwidthSample]> {
        let turns = u64::from(self.config.drift.verify_over_ticks.max(1));
        let turn = self.ticks % turns;
        let held: FxHashMap<Target, Option<Micros>> = self
            .held
            .quotas()
            .iter()
            .filter_map(|&target| {
                let baseline = match self.held.get(&(target, Knob::CfsQuota))?.baseline {
                    Value::Max | Value::Shares(_) => None,
                    Value::Number(number) => u64::try_from(number).ok().map(Micros),
                };
                Some((target, baseline))
            })
            .collect();
        let groups = &self.pods.standing().groups;
        let mut rows = Vec::with_capacity(groups.len());
        for (place, &target) in (0u64..).zip(groups) {
            let baseline = held.get(&target);
            let before = self.quotas.get(target).map(|known| known.quota);
            let row = if place % turns == turn || baseline.is_some() || self.quotas.is_young(target) {
                self.quotas.refresh(&mut self.host, target)
            } else {
                self.quotas.get(target)
            };
            if let Some(now) = row {
                // A burst is capped at the quota that it was planned with: the kubelet has resized the container since.
                let burst = (target, Knob::CfsBurst);
                if before.is_some_and(|before| before != now.quota) && self.held.get(&burst).is_some() {
                    self.dirty.insert(burst);
                }
                let baseline_quota = baseline.copied().unwrap_or(now.quota);
                rows.push(BandwidthSample { target, quota: now.quota, baseline_quota, period: now.period });
            }
        }
        rows.into()
    }
}
