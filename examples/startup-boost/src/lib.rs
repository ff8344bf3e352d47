//! Extra CPU for the first seconds of a container's life.
//!
//! Many programs need far more CPU while they start (class loading, just-in-time compilation, filling caches) than their limit,
//! which is meant for the time after that, allows. A container of a configured pod gets a higher CFS quota when it starts;
//! after some seconds it is given back step by step.
//!
//! There is no clock: a boost's age is the sum of the windows between evaluations. A container that starts has a new id.
//! Containers that run when the policy starts may have run for days and get no boost, unless the policy's state
//! has a boost of theirs that was under way.
//!
//! Reading order: `config`, `boost` (one container's boost), `memory` (the state that survives a restart), and this file: which
//! containers are boosted.

mod boost;
mod config;
mod memory;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{
    Bandwidth, ContainerId, ContainerState, Description, Host, Level, Pod, PodId, Pods, Policy, Rejection, Target,
    Tick, percent_of, scale,
};

use crate::boost::Boost;
pub use crate::config::{Config, PodConfig};
use crate::memory::Ages;

qosm_sdk::export!(StartupBoost);

/// Interval at which ages are saved. Each save is a write to the journal; a restart prolongs a boost by at most this time.
const SAVE_EVERY_USEC: u64 = 5_000_000;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct StartupBoost {
    config: Config,
    pods: Pods<PodConfig>,
    /// Containers that have been seen running.
    seen: BTreeSet<ContainerId>,
    boosts: BTreeMap<ContainerId, Boost>,
    is_begun: bool,
    /// Boosts from before the start; `None` once they are assigned to their containers.
    restored: Option<Ages>,
    saved: Ages,
    unsaved_usec: u64,
}

impl Policy for StartupBoost {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        config::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
        self.config = config;
        if !std::mem::replace(&mut self.is_begun, true) {
            let ages = memory::decode(&host.load_state()).unwrap_or_else(|| {
                host.log(Level::Warn, "the saved boosts cannot be read: those that were under way end");
                Ages::new()
            });
            self.saved.clone_from(&ages);
            self.restored = Some(ages);
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        let rejections = upserted.iter().filter_map(unusable).collect();
        self.pods.update(upserted, removed);
        self.note_starts();
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.boosts.values_mut().for_each(|boost| boost.age(tick.window_usec));
        self.unsaved_usec = self.unsaved_usec.saturating_add(tick.window_usec);
        // Without boosts no column is read, and nothing is declared.
        if !self.boosts.is_empty() {
            for (target, (quota, reason)) in self.quotas(&host.bandwidth(), host.node().cpus) {
                host.set_quota(target, Some(quota), &reason);
            }
        }
        // Containers that run from now on have just started, also on a node that was empty.
        self.restored = None;
        self.save(host);
        Ok(())
    }
}

impl StartupBoost {
    /// Gives a boost to containers that have started since the last call.
    fn note_starts(&mut self) {
        let restored = self.restored.take();
        let mut seen = BTreeSet::new();
        for pod in self.pods.iter() {
            for container in pod.containers.iter().filter(|container| container.state == ContainerState::Running) {
                seen.insert(container.id);
                if self.seen.contains(&container.id) || pod.config.is_none() {
                    continue;
                }
                let boost = match &restored {
                    None => Some(Boost { age_usec: 0, is_fresh: true }),
                    Some(ages) => {
                        let age = ages.get(&memory::key(&pod.uid, &container.name));
                        age.map(|&age_usec| Boost { age_usec, is_fresh: true })
                    }
                };
                self.boosts.extend(boost.map(|boost| (container.id, boost)));
            }
        }
        self.boosts.retain(|id, _| seen.contains(id));
        self.seen = seen;
    }

    /// The quotas that should be held, and why. Boosts that are over or not configured any more are dropped.
    fn quotas(&mut self, rows: &[Bandwidth], cpus: u32) -> BTreeMap<Target, (u64, String)> {
        let baseline = |target| {
            let row = rows.iter().find(|row| row.target == target)?;
            Some((row.baseline_quota_usec?, row.period_usec))
        };
        let mut asked = Vec::new();
        for pod in self.pods.iter() {
            for container in &pod.containers {
                let Some(boost) = self.boosts.get(&container.id).copied() else { continue };
                // A container whose quota cannot be read yet, or that has none, waits for it while its boost ages.
                let (quota, period) = baseline(Target::Container(container.id)).unwrap_or((0, 1));
                match pod.config.as_ref().and_then(|config| boost.extra(quota, config)) {
                    Some(extra) => asked.push((Reverse(boost.age_usec), container.id, pod.id, quota, extra, period)),
                    None => drop(self.boosts.remove(&container.id)),
                }
            }
        }
        asked.sort_unstable();

        let mut left_milli = percent_of(u64::from(cpus) * 1000, self.config.max_node_percent);
        let mut wanted = BTreeMap::new();
        for (_, container, pod, quota, extra, period) in asked {
            let extra = extra.min(scale(left_milli, period, 1000));
            if extra == 0 {
                continue;
            }
            left_milli = left_milli.saturating_sub(scale(extra, 1000, period));
            let raised = quota.saturating_add(extra);
            let reason = format!("{} % of its limit while it starts", scale(raised, 100, quota));
            wanted.insert(Target::Container(container), (raised, reason));
            // The pod's own quota, if it has one, must not throttle its containers.
            if let Some((quota, pod_period)) = baseline(Target::Pod(pod)) {
                let why = || (quota, "so that it does not hold back a container that starts".to_owned());
                let (sum, _) = wanted.entry(Target::Pod(pod)).or_insert_with(why);
                *sum = sum.saturating_add(scale(extra, pod_period, period));
            }
        }
        wanted
    }

    /// Saves ages when boosts begin and end, and every `SAVE_EVERY_USEC` in between.
    fn save<H: Host>(&mut self, host: &mut H) {
        let mut ages = Ages::new();
        for pod in self.pods.iter() {
            for container in &pod.containers {
                if let Some(boost) = self.boosts.get(&container.id) {
                    ages.insert(memory::key(&pod.uid, &container.name), boost.age_usec);
                }
            }
        }
        let is_same_set = ages.keys().eq(self.saved.keys());
        if ages == self.saved || (is_same_set && self.unsaved_usec < SAVE_EVERY_USEC) {
            return;
        }
        self.unsaved_usec = 0;
        match memory::encode(ages.clone()).and_then(|bytes| host.save_state(&bytes)) {
            Ok(()) => self.saved = ages,
            Err(error) => host.log(Level::Warn, &error),
        }
    }
}

/// Rejects a pod whose configuration cannot take effect, with a message to its owner.
fn unusable(pod: &Pod<PodConfig>) -> Option<Rejection> {
    let is_limited = pod.containers.iter().any(|container| container.cpu_limit_milli.is_some());
    (pod.config.is_some() && !is_limited).then(|| Rejection {
        pod: pod.id,
        field: "percent".into(),
        message: "no container of the pod has a CPU limit, so there is nothing to raise; set resources.limits.cpu"
            .into(),
    })
}
