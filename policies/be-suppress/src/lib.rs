//! BE CPU suppression: as latency-sensitive load rises, batch pods get fewer CPUs; as it falls, they get more again in small steps.
//!
//! The strategy belongs to the node (`resource-threshold-config` of the cluster ConfigMap), so pods have nothing to configure. Values are
//! held on the tier BestEffort, and on containers only under the kubelet's static CPU manager.
//!
//! The core is pure: inputs, including the clock, are plain values, and the output is what to hold. Reading order: [`config`]
//! (configuration), [`input`] (inputs; `sources` and `meter` fill them), [`allowed`] (how much batch pods may use), [`set`] with [`mod@pick`]
//! and [`quota`] (the two modes), [`pressure`] (the second input), [`decide`] (one evaluation), [`verdict`] (reasons), [`state`]. The host
//! writes sets to the kernel in the right order, for either version of cgroups.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use be_suppress::config::Config;
//! use be_suppress::input::{InForce, Inputs, Node, Pod, Sample};
//! use be_suppress::{Cpu, CpuSet, Setting, State, tick};
//! use qosm_sdk::{KubeQos, MilliCpu, Target, Tier};
//!
//! let config: Config = serde_json::from_str(r#"{"strategy": {"enable": true}}"#)?;
//! let cpu = |id| Cpu { id, core: id / 2, socket: 0, node: 0 };
//! let used = |cpus: u64| Sample { micro_cpu: cpus * 1_000_000, at_usec: 0 };
//! let inputs = Inputs {
//!     node: Some(Node { capacity: MilliCpu(16_000), allocatable: MilliCpu(16_000), ..Node::default() }),
//!     node_used: Some(used(10)),
//!     pods: vec![Pod::new(1), Pod { kube_qos: KubeQos::BestEffort, ..Pod::new(2) }],
//!     pods_used: Some(BTreeMap::from([(1, used(6)), (2, used(3))])),
//!     cpus: (0..16).map(cpu).collect(),
//!     in_force: InForce { tier_cpus: Some(CpuSet::parse("0-15")?), ..InForce::default() },
//!     ..Inputs::default()
//! };
//! let decisions = tick(&mut State::default(), &config, &inputs, 0);
//! // 65 % of 16 CPUs, less 6 of the other pod and 1 of the system: 3.4.
//! let held = decisions.wanted.unwrap_or_default();
//! assert_eq!(held[0], (Target::Tier(Tier::BestEffort), Setting::Cpus(CpuSet::parse("0-3")?)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod allowed;
pub mod config;
pub mod decide;
pub mod input;
mod meter;
pub mod pressure;
mod protocol;
pub mod quota;
pub mod set;
mod sources;
pub mod state;
pub mod verdict;

pub use crate::decide::{Decisions, Setting, tick};
pub use crate::pressure::EARLY_TICK;
pub use crate::state::State;
pub use cpu_sets::{Cpu, CpuSet, Reservation, ResourceStatus, SystemQos, pick};

use qosm_sdk::{
    Alarm, Cause, Description, Host, Level, Log, NoConfig, Pod, PodId, Policy, Rejection, Target, Tick, Tier, Trigger,
};

use crate::config::{Config, ConfigError, Profile, Settings, Thresholds};
use crate::input::{Controls, InForce, Inputs};
use crate::meter::Meter;
use crate::sources::Sources;

qosm_sdk::export!(BeSuppress);

/// Koordinator's steps are a second apart; the tolerance accepts a tick that comes slightly early.
const KOORDINATOR_WINDOW_USEC: u64 = input::INTERVAL_USEC - input::INTERVAL_USEC / 10;
/// Interval between saves of the state: it is worth little, and each save costs a write to the disk.
const SAVE_EVERY_USEC: u64 = 30_000_000;
/// Weight of a container that yields to all others, where the kernel has no `cpu.idle`.
const LEAST_WEIGHT: u32 = 1;

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct BeSuppress {
    config: Config,
    /// Generation of the cluster's configuration that `config` is based on; `None` = read it at the next evaluation.
    config_seen: Option<u64>,
    /// Faults of the cluster's key.
    faults: Vec<ConfigError>,
    sources: Sources,
    meter: Meter,
    state: State,
    /// The configuration as last logged for the operator.
    told: String,
    is_restored: bool,
    saved: Vec<u8>,
    saved_at_usec: u64,
    /// Time since the start: the sum of the ticks' windows.
    now_usec: u64,
    /// Why batch pods do not get the CPU that would be theirs, from the last decision; `None` if they do.
    unmet: Option<String>,
    /// The values declared last, each with the reason from the evaluation that chose it.
    held: Vec<(Target, Setting, String)>,
}

impl Policy for BeSuppress {
    type Config = Settings;
    type PodConfig = NoConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, settings: Settings) -> Result<(), String> {
        let config = Config { policy: settings, strategy: self.config.strategy.clone() };
        config.check().map_err(|error| format!("field `{}` of the policy's configuration: {error}", error.field))?;
        self.config = config;
        // The effective configuration is logged again if it has changed.
        self.config_seen = None;
        if !std::mem::replace(&mut self.is_restored, true) {
            self.saved = host.load_state();
            match State::restore(&self.saved) {
                Ok(state) => self.state = state,
                Err(error) => host.log(Level::Warn, &format!("{error}: it begins anew")),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        self.sources.update_pods(upserted.into_iter().map(|pod| pod.facts), removed);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.now_usec = self.now_usec.saturating_add(tick.window_usec);
        self.read_strategy(host);
        for ConfigError { field, value, way_out } in &self.faults {
            let message = format!(
                "it is {value}; {way_out}. Until then its last valid value counts, after a start as if it were left out"
            );
            host.problem(protocol::CONFIG_MAP_KEY, field, &message);
        }
        if !self.config.is_enabled() {
            // Nothing is declared, so all values are released; no column is read.
            self.state = State::default();
            self.meter.clear();
            self.held.clear();
            self.unmet = None;
            self.save(host);
            return Ok(());
        }
        let groups = host.group_use();
        let applications = host.application_use();
        let is_best_effort = |id| self.sources.is_best_effort(id);
        self.meter.add(tick.window_usec, host.node().cpu_usage_usec, &groups, applications, is_best_effort);
        self.sources.read(host);
        if tick.window_usec == 0 && !self.config.policy.be_cpu_manager {
            // The first evaluation has no measurements.
            host.keep_all();
            return Ok(());
        }
        let koordinator = self.config.policy.profile == Profile::Koordinator;
        if koordinator && (tick.cause == Cause::Alarm || self.meter.window_usec() < KOORDINATOR_WINDOW_USEC) {
            self.remark(host);
            host.keep_all();
            return Ok(());
        }
        let inputs = self.inputs(host, &tick.alarms);
        let decisions = decide::tick(&mut self.state, &self.config, &inputs, self.now_usec);
        for report in &decisions.reports {
            let level = if report.has_begun { Level::Warn } else { Level::Info };
            host.log(level, &report.text(&self.config.policy));
        }
        self.unmet = decisions.verdict.unmet(&|id| self.sources.pod_name(id));
        self.remark(host);
        match decisions.wanted {
            Some(wanted) => self.declare(host, wanted, &decisions.verdict),
            None => host.keep_all(),
        }
        self.save(host);
        Ok(())
    }
}

impl BeSuppress {
    fn read_strategy<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.config_generation());
        if self.config_seen == generation {
            return;
        }
        self.config_seen = generation;
        let text = host.config_strategy(protocol::CONFIG_MAP_KEY);
        let (strategy, faults) = Thresholds::read(&text, &self.config.strategy);
        self.config.strategy = strategy;
        self.faults = faults;
        let told = self.config.to_string();
        if self.told != told {
            host.log(Level::Info, &told);
            self.told = told;
        }
    }

    /// Collects the inputs of this evaluation.
    fn inputs<H: Host>(&mut self, host: &mut H, alarms: &[Alarm]) -> Inputs {
        let least = match self.config.policy.profile {
            Profile::Responsive => meter::MIN_WINDOW_USEC,
            Profile::Koordinator => KOORDINATOR_WINDOW_USEC,
        };
        let measured = self.meter.close(self.now_usec, least);
        let sets = host.cpu_sets();
        let bandwidth = host.bandwidth();
        let is_pressure = |alarm: &&Alarm| matches!(alarm.trigger, Trigger::Pressure(_));
        let alarmed = |target: Target| alarms.iter().filter(is_pressure).any(|alarm| alarm.target == Some(target));
        let mut pods = self.sources.pods();
        for pod in &mut pods {
            pod.pressure = measured.pressure.get(&pod.id).copied();
            pod.is_alarmed = alarmed(Target::Pod(pod.id));
        }
        let tier = Target::Tier(Tier::BestEffort);
        let in_force = InForce {
            tier_cpus: sets.iter().find(|set| set.target == tier).map(|set| set.cpus.iter().copied().collect()),
            container_cpus: sets
                .iter()
                .filter_map(|set| match set.target {
                    Target::Container(id) => Some((id, set.cpus.iter().copied().collect())),
                    Target::Tier(_) | Target::Pod(_) => None,
                })
                .collect(),
            tier_quota: bandwidth
                .iter()
                .find(|row| row.target == tier)
                .map(|row| input::Quota { quota_usec: row.quota_usec, period_usec: row.period_usec }),
        };
        // Without the controller there are no rows at all; if only the tier's row is missing, its value could not be read.
        let controls = Controls { cpuset: !sets.is_empty(), quota: !bandwidth.is_empty(), ..Controls::default() };
        Inputs {
            node: self.sources.node(),
            node_used: measured.node,
            pods,
            pods_used: measured.pods,
            unlisted_used: measured.unlisted,
            host_apps: measured.applications,
            cpus: self.sources.cpus().to_vec(),
            kubelet: self.sources.kubelet().clone(),
            in_force,
            controls,
            has_load_risen: alarmed(Target::Tier(Tier::Guaranteed)),
        }
    }

    /// Remarks why batch pods do not get the CPU that would be theirs; a remark lasts until the next evaluation.
    fn remark(&self, host: &mut impl Log) {
        if let Some(why) = &self.unmet {
            let knob = if self.config.strategy.wants_quota() { "cpu.quota" } else { "cpuset.cpus" };
            host.remark(Target::Tier(Tier::BestEffort), knob, why);
        }
    }

    /// Declares the values to hold. The reason is that of the evaluation that chose a value, not of those that keep it.
    fn declare<H: Host>(&mut self, host: &mut H, wanted: Vec<(Target, Setting)>, verdict: &verdict::Verdict) {
        let before = std::mem::take(&mut self.held);
        let mut text = None;
        for (target, setting) in wanted {
            let known = before.iter().find(|(of, held, _)| *of == target && *held == setting);
            let reason = match known {
                Some((.., reason)) => reason.clone(),
                None => text.get_or_insert_with(|| verdict.text(&|id| self.sources.pod_name(id))).clone(),
            };
            self.declare_one(host, target, &setting, &reason);
            self.held.push((target, setting, reason));
        }
    }

    fn declare_one<H: Host>(&self, host: &mut H, target: Target, setting: &Setting, reason: &str) {
        match setting {
            Setting::Cpus(cpus) => host.set_cpus(target, &cpus.iter().collect::<Vec<_>>(), reason),
            Setting::Quota(quota) => host.set_quota(target, *quota, reason),
            Setting::Weight(weight) => host.set_weight(target, u32::try_from(*weight).unwrap_or(LEAST_WEIGHT), reason),
            // With `cpu.idle` on the tier, the kernel would refuse the kubelet's writes of its weight. So `cpu.idle` is set on containers.
            Setting::Idle => {
                host.set_weight(target, LEAST_WEIGHT, reason);
                for container in self.sources.batch_containers() {
                    host.set_idle(container, true, reason);
                }
            }
        }
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        if self.now_usec.saturating_sub(self.saved_at_usec) < SAVE_EVERY_USEC {
            return;
        }
        self.saved_at_usec = self.now_usec;
        let is_fresh = self.state == State::default();
        if is_fresh && self.saved.is_empty() {
            return;
        }
        let bytes = self.state.save();
        if bytes != self.saved {
            match host.save_state(&bytes) {
                Ok(()) => self.saved = bytes,
                Err(error) => host.log(Level::Warn, &error),
            }
        }
    }
}
