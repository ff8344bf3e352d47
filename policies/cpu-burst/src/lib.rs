//! CPU Burst as a qosm policy: two mechanisms against CPU throttling of containers with a CPU limit.
//!
//! - **CFS burst**: the kernel lets a container save up unused quota, up to `cpuBurstPercent` of its limit.
//! - **The quota loop**: each second the CFS quota of a throttled container is raised, up to `cfsQuotaBurstPercent` of what
//!   its limit says, and given back later. It needs room on the node: the CPUs that pods share must be used less than
//!   `sharePoolThresholdPercent`. `cfsQuotaBurstPeriodSeconds` bounds how long a container may live above its limit.
//!
//! The policy-level `profile` decides how the loop steps: `koordinator` steps exactly as Koordinator's agent does, `responsive` (the
//! default) steps by need. Bounds, limiter and protocol are the same.
//!
//! Values of a disabled mechanism are not held. Nothing is written for a pod without configuration, and a pod that leaves (by `none`, by
//! its class, or because it ends) gets back its original values. If a quota has been lifted, neither it nor its burst is touched.
//!
//! Reading order: `protocol` (configuration), `pods` (observations), `decide` (one evaluation), `koordinator` and `responsive` (the two
//! profiles; the latter with `share_pool`), `pool` and `limiter` (used by both), `bandwidth` (the arithmetic).
//!
//! ```
//! use cpu_burst::CpuBurst;
//! use qosm_sdk::{Bandwidth, Container, PodFacts, Session, Target, mock};
//!
//! let mut host = mock::MockHost::default();
//! let mut policy = Session::<CpuBurst>::default();
//! policy.configure(&mut host, "{}")?;
//! let web = PodFacts {
//!     config: r#"{"policy": "cpuBurstOnly"}"#.into(),
//!     containers: vec![Container { cpu_limit_milli: Some(2000), ..mock::container(7, "app") }],
//!     ..mock::pod(1, "default", "web")
//! };
//! policy.pods(&mut host, vec![web], &[])?;
//!
//! let app = Target::Container(7);
//! let quota = Some(200_000);
//! host.columns.bandwidth =
//!     vec![Bandwidth { target: app, quota_usec: quota, baseline_quota_usec: quota, period_usec: 100_000 }];
//! policy.evaluate(&mut host, mock::tick(1_000))?;
//! assert_eq!(host.held(app, mock::CPU_BURST), Some(mock::Value::Number(2_000_000)));
//! # Ok::<(), String>(())
//! ```

mod bandwidth;
mod decide;
mod koordinator;
mod limiter;
mod pods;
mod pool;
mod protocol;
mod responsive;
mod saved_state;
mod share_pool;
mod step;

use qosm_sdk::{
    Cause, CpuBandwidth, Declare, Description, Host, Level, Log, NodeSample, Pod, PodId, Policy, Rejection, Target,
    Tick,
};

use crate::decide::{Claims, Round, Wanted, decide, decide_pod};
use crate::pods::{Container, Decision, Pods};
use crate::pool::{Average, Latest, Pool};
pub use crate::protocol::{Config, PodConfig};
use crate::saved_state::Tokens;

qosm_sdk::export!(CpuBurst);

/// Minimum time between steps of the loop outside its interval, in microseconds: pods that come and go must not speed it up.
const STEP_MIN_USEC: u64 = 500_000;
/// Interval between saves of the tokens: they change slowly, and each save costs a write to the disk.
const SAVE_EVERY_USEC: u64 = 30_000_000;
/// Time for which saved tokens wait for their container to appear.
const RESTORED_KEPT_USEC: u64 = 600_000_000;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct CpuBurst {
    config: Config,
    pods: Pods,
    /// Generation of the bandwidth column that `pods` is based on; `None` = read it at the next evaluation.
    quotas_seen: Option<u64>,
    claims: Claims,
    /// Time since the start: the sum of the ticks' windows.
    now_usec: u64,
    /// Time since the last step of the loop.
    since_step_usec: u64,
    node_use: Average,
    latest_use: Latest,
    /// Tokens from before the start that no container has claimed yet.
    restored: Vec<Tokens>,
    is_restored: bool,
    saved: Vec<u8>,
    saved_at_usec: u64,
}

impl Policy for CpuBurst {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, config: Config) -> Result<(), String> {
        config.check()?;
        self.config = config;
        self.restore(host);
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        self.pods.update(upserted, removed);
        self.quotas_seen = None;
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.now_usec = self.now_usec.saturating_add(tick.window_usec);
        self.since_step_usec = self.since_step_usec.saturating_add(tick.window_usec);
        for pod in &self.pods.all {
            if let Some((knob, why)) = pod.without_effect {
                host.remark(Target::Pod(pod.id), knob, why);
            }
        }
        if !self.has_work() {
            // No column is read. Averages start again, since windows are missing from here on.
            self.node_use.clear();
            self.latest_use = Latest::default();
            self.pods.forget_use();
            self.pods.forget_activity();
            return Ok(());
        }
        let node = host.node();
        self.pods.observe(&host.cpu(), tick.window_usec);
        let generation = Some(host.bandwidth_generation());
        if self.quotas_seen != generation {
            self.pods.observe_quotas(&host.bandwidth());
            self.quotas_seen = generation;
        }
        self.pods.alarm(&tick.alarms);
        let steps = match tick.cause {
            Cause::Interval => true,
            Cause::Alarm => false,
            Cause::PodsChanged | Cause::ConfigChanged => self.since_step_usec >= STEP_MIN_USEC,
        };
        let pool = self.pool(&node, &tick);
        let round = Round { config: &self.config, pool, now_usec: self.now_usec, steps };
        decide(&round, &mut self.pods, &mut self.claims, &mut self.restored);
        self.pods.all.iter_mut().for_each(|pod| declare(pod, host));
        if steps {
            self.since_step_usec = 0;
            self.pods.forget_activity();
            self.save(host);
        }
        Ok(())
    }
}

impl CpuBurst {
    /// Whether a pod uses one of the mechanisms or has tokens to settle.
    fn has_work(&self) -> bool {
        let settles_always = self.config.profile == protocol::Profile::Koordinator;
        self.pods.all.iter().any(|pod| {
            let has_tokens =
                settles_always && pod.config.is_some_and(|config| config.cfs_quota_burst_period_seconds >= 0);
            pod.is_wanted() || has_tokens
        })
    }

    /// The share pool in this evaluation. If the node's use was not measured now, it counts as unknown, whatever was measured before.
    fn pool(&mut self, node: &NodeSample, tick: &Tick) -> Pool {
        let window_usec = tick.window_usec;
        let (outside_average, outside_latest) = self.pods.used_outside(self.now_usec, window_usec);
        let reserved = self.pods.all.iter().fold(0_u64, |sum, pod| sum.saturating_add(pod.reserved_milli));
        let size = Pool::size(node.cpus, reserved);
        let Some(used) = node.cpu_usage_usec.filter(|_| node.cpus > 0) else {
            self.latest_use = Latest::default();
            return Pool { size, average: None, latest: None };
        };
        self.node_use.add(self.now_usec, window_usec, used);
        self.latest_use.add(window_usec, used, outside_latest);
        let latest = if tick.cause == Cause::Alarm { self.latest_use.last() } else { self.latest_use.close() };
        Pool {
            size,
            average: latest.and(self.node_use.rate(self.now_usec)).map(|rate| rate.saturating_sub(outside_average)),
            latest,
        }
    }

    fn restore<H: Host>(&mut self, host: &mut H) {
        if std::mem::replace(&mut self.is_restored, true) {
            return;
        }
        let bytes = host.load_state();
        match saved_state::decode(&bytes) {
            Some(tokens) => {
                self.restored = tokens;
                self.saved = bytes;
            }
            None => host.log(Level::Warn, "the saved burst allowances cannot be read: all containers get new ones"),
        }
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        if self.now_usec.saturating_sub(self.saved_at_usec) < SAVE_EVERY_USEC {
            return;
        }
        self.saved_at_usec = self.now_usec;
        if self.now_usec > RESTORED_KEPT_USEC {
            self.restored.clear();
        }
        let mut tokens = self.restored.clone();
        for container in self.pods.all.iter().flat_map(|pod| &pod.containers) {
            if let Some(bucket) = container.bucket {
                tokens.push(Tokens { key: container.key, tokens: bucket.tokens, capacity: bucket.capacity });
            }
        }
        if tokens.is_empty() && self.saved.is_empty() {
            return;
        }
        let bytes = saved_state::encode(&tokens);
        if bytes != self.saved {
            match host.save_state(&bytes) {
                Ok(()) => self.saved = bytes,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}

/// Declares what a pod and its containers hold.
fn declare(pod: &mut pods::Pod, host: &mut (impl CpuBandwidth + Declare + Log)) {
    let (quota, burst) = decide_pod(pod);
    for container in &mut pod.containers {
        declare_container(container, &pod.burst_reason, host);
    }
    let target = Target::Pod(pod.id);
    let (of_quota, of_burst) = match pod.limit_milli {
        Some(_) => (
            "the pod's own limit, raised by what its containers got above theirs",
            "sum over its containers, at most what the pod's own limit gives",
        ),
        None => ("sum over its containers, so that it does not hold them back", "sum over its containers"),
    };
    if quota == Wanted::Leave || burst == Wanted::Leave {
        host.keep(target);
    }
    match quota {
        Wanted::Leave => {}
        Wanted::Hold(Some(quota)) => host.set_quota(target, Some(quota), of_quota),
        Wanted::Hold(None) => host.release_quota(target),
    }
    match burst {
        Wanted::Leave => {}
        Wanted::Hold(Some(burst)) => host.set_burst(target, burst, of_burst),
        Wanted::Hold(None) => host.release_burst(target),
    }
}

fn declare_container(container: &mut Container, burst_reason: &str, host: &mut (impl CpuBandwidth + Declare + Log)) {
    let target = Target::Container(container.id);
    if let Some(why) = &container.unmet {
        host.remark(target, "cpu.quota", why);
    }
    let (quota, burst) = match container.decision {
        Decision::Leave => return host.keep(target),
        Decision::Release => (None, 0),
        Decision::Act { quota, burst } => (quota, burst),
    };
    let baseline = container.row.and_then(|row| row.baseline);
    let quota = quota.filter(|(quota, _)| Some(*quota) != baseline);
    // The reason is that of the step that chose the quota, not of steps that keep it.
    match quota {
        None => container.chosen = None,
        Some((quota, why)) if container.chosen.as_ref().is_none_or(|chosen| chosen.0 != quota) => {
            container.chosen = Some((quota, why.to_string()));
        }
        Some(_) => {}
    }
    if let Some((quota, why)) = &container.chosen {
        host.set_quota(target, Some(*quota), why);
    }
    if burst > 0 {
        host.set_burst(target, burst, burst_reason);
    }
}
