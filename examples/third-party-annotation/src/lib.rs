//! Serves pods by the class that a company's own annotation gives them: `example.com/service-class: '{"policy": "gold"}'`.
//!
//! It shows how to serve a protocol of one's own: `protocol` declares annotations, a ConfigMap key, presets and fields; the host
//! passes the merged configuration of each pod, and this file applies it.

mod protocol;

use std::collections::BTreeMap;

use qosm_sdk::{
    Bound, Description, Host, Pod, PodId, Pods, Policy, Protection, Rejection, Target, Tick, percent_of, scale,
};

pub use crate::protocol::{Class, PodConfig};

qosm_sdk::export!(ServiceClass);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct ServiceClass {
    pods: Pods<PodConfig>,
}

impl Policy for ServiceClass {
    type Config = ();
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        self.pods.update(upserted, removed);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        let rows = host.bandwidth();
        let rows: BTreeMap<Target, _> = rows.iter().map(|row| (row.target, row)).collect();
        for pod in self.pods.iter() {
            let config = pod.config.unwrap_or_default();
            let reason = format!("service class {}", config.policy);
            // The pod's cgroup needs the sum of its containers' bursts, or it would throttle them.
            let of_pod = rows.get(&Target::Pod(pod.id)).filter(|row| row.baseline_quota_usec.is_some());
            let mut together = 0_u64;
            for container in &pod.containers {
                let target = Target::Container(container.id);
                let row = rows.get(&target).and_then(|row| Some((row.baseline_quota_usec?, row.period_usec)));
                if let (Some(percent), Some((quota, period))) = (config.burst_percent, row) {
                    let burst = percent_of(quota, percent);
                    host.set_burst(target, burst, &reason);
                    let pod_period = of_pod.map_or(period, |row| row.period_usec);
                    together = together.saturating_add(scale(burst, pod_period, period));
                }
                if let (Some(percent), Some(limit)) = (config.high_percent, container.memory_limit_bytes) {
                    let high = Some(Bound::Bytes(percent_of(limit, percent)));
                    host.protect(target, &Protection { high, ..Protection::NONE }, &reason);
                }
            }
            if config.burst_percent.is_some() && of_pod.is_some() {
                host.set_burst(Target::Pod(pod.id), together, &reason);
            }
        }
        Ok(())
    }
}
