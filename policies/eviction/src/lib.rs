//! Eviction: chooses pods that leave a node that is short of CPU or memory, before the kernel kills processes or latency-sensitive pods
//! suffer.
//!
//! The core is pure: inputs, including the clock, are plain values, and the output is which pods to evict, each with the full reason.
//! Reading order: [`feature`] (the six reasons), [`config`] (configuration), [`input`] and [`pod`] with [`marks`] (inputs; `sources`,
//! `meter` and [`limit`] fill them), [`trigger`] (when to act, and how much to release), [`mod@task`] (both together), [`order`] (which
//! pods first), [`round`] (evicting until enough is released), [`decide`] (one evaluation), [`verdict`] (reasons), [`state`] with
//! [`window`] (what is kept between evaluations). The host carries out evictions and applies budgets and guard rails.
//!
//! ```
//! use eviction::config::Config;
//! use eviction::input::{Inputs, Memory, Node, Sample};
//! use eviction::pod::Pod;
//! use eviction::{State, Urgency, tick};
//! use qosm_sdk::QosClass;
//!
//! let config: Config = serde_json::from_str(r#"{"policy": {"features": {"BEMemoryEvict": true}}, "strategy": {"enable": true}}"#)?;
//! let gib = 1_u64 << 30;
//! let inputs = Inputs {
//!     node: Some(Node { memory_capacity_bytes: 16 * gib, ..Node::default() }),
//!     memory: Some(Memory { total_bytes: 16 * gib, available_bytes: 4 * gib, ..Memory::default() }),
//!     pods: vec![Pod {
//!         class: Some(QosClass::Be),
//!         memory: Some(Sample { amount: 2 * gib, at_usec: 0 }),
//!         ..Pod::new("7f0c", "report")
//!     }],
//!     ..Inputs::default()
//! };
//! let decisions = tick(&mut State::default(), &config, &inputs, 0);
//! assert_eq!(decisions.evictions[0].urgency, Urgency::Soon);
//! assert!(decisions.evictions[0].message().starts_with("trigger by koordlet feature BEMemoryEvict, kill pod: report"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod config;
pub mod decide;
pub mod feature;
pub mod input;
pub mod limit;
pub mod marks;
mod meter;
pub mod order;
pub mod pod;
mod protocol;
pub mod round;
mod sources;
pub mod state;
pub mod task;
pub mod trigger;
pub mod verdict;
pub mod window;

pub use crate::decide::{Cause, Decisions, Eviction, Urgency, tick};
pub use crate::feature::{Feature, Group, Kind, Resource};
pub use crate::state::State;
pub use crate::task::EARLY_TICKS;

use std::collections::BTreeMap;

use qosm_sdk::{
    Alarm, Container, ContainerState, Description, EvictionOutcome, Group as UseGroup, Host, KubeQos, Level,
    MemorySample, NoConfig, PodId, Policy, Rejection, Target, Tick, Tier, Trigger, Urgency as HostUrgency, scale,
};

use crate::config::{Config, ConfigError, Field, Profile, Settings, Thresholds};
use crate::input::{BeCpu, Inputs, Memory, Outcome, Sample};
use crate::limit::{Bound, joint_limit_milli, least_limit_milli};
use crate::meter::Meter;
use crate::pod::{MemoryEvents, Pod};
use crate::sources::Sources;

qosm_sdk::export!(EvictionPolicy);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct EvictionPolicy {
    config: Config,
    /// Generation of the cluster's configuration that `config` is based on; `None` = read it at the next evaluation.
    config_seen: Option<u64>,
    /// The field of the cluster's key without which nothing else of it counts, and what is wrong with it.
    unreadable: Option<(&'static str, String)>,
    sources: Sources,
    meter: Meter,
    state: State,
    /// The configuration as last logged for the operator, one line per feature.
    told: Vec<String>,
    is_restored: bool,
    saved: Vec<u8>,
    /// Time since the start: the sum of the ticks' windows.
    now_usec: u64,
}

impl Policy for EvictionPolicy {
    type Config = Settings;
    type PodConfig = NoConfig;

    fn describe() -> Description {
        protocol::description()
    }

    fn configure<H: Host>(&mut self, host: &mut H, policy: Settings) -> Result<(), String> {
        let config = Config { policy, strategy: self.config.strategy.clone() };
        config.check().map_err(|error| format!("field `{}` of the policy's configuration: {error}", error.field))?;
        self.config = config;
        // The effective configuration is logged again if it has changed.
        self.config_seen = None;
        if !std::mem::replace(&mut self.is_restored, true) {
            let bytes = host.load_state();
            match State::restore(&bytes) {
                Ok(state) => {
                    self.state = state;
                    self.saved = bytes;
                }
                Err(error) => host.log(Level::Warn, &format!("{error}: it begins anew")),
            }
        }
        Ok(())
    }

    fn pods<H: Host>(
        &mut self,
        _: &mut H,
        upserted: Vec<qosm_sdk::Pod<NoConfig>>,
        removed: &[PodId],
    ) -> Vec<Rejection> {
        self.sources.update(upserted.into_iter().map(|pod| pod.facts).collect(), removed);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.now_usec = self.now_usec.saturating_add(tick.window_usec);
        self.read_strategy(host);
        self.tell_faults(host);
        let inputs = if self.config.features().next().is_some() {
            self.sources.read(host);
            self.inputs(host, tick.window_usec, &tick.alarms)
        } else {
            // No feature is on, so no column is read.
            self.meter = Meter::default();
            Inputs::default()
        };
        let decisions = decide::tick(&mut self.state, &self.config, &inputs, self.now_usec);
        for report in &decisions.reports {
            host.log(if report.has_begun { Level::Warn } else { Level::Info }, &report.text);
        }
        for uid in &decisions.withdrawals {
            if let Some(id) = self.sources.id(uid) {
                host.withdraw_eviction(id);
            }
        }
        for eviction in &decisions.evictions {
            if let Some(id) = self.sources.id(&eviction.uid) {
                let urgency = match eviction.urgency {
                    Urgency::Soon => HostUrgency::Soon,
                    Urgency::Now => HostUrgency::Now,
                };
                host.evict(id, urgency, Some(eviction.grace_seconds), eviction.feature.name(), &eviction.message());
            }
        }
        self.save(host);
        Ok(())
    }
}

impl EvictionPolicy {
    fn read_strategy<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.config_generation());
        if self.config_seen == generation {
            return;
        }
        self.config_seen = generation;
        let text = host.config_strategy(protocol::CONFIG_MAP_KEY);
        let read = Thresholds::read(&text);
        self.unreadable = match &read {
            Ok(Thresholds { enable: Field::Wrong(value), .. }) => {
                Some(("enable", format!("it is {value}; write `true` or `false`")))
            }
            Ok(_) => None,
            Err(error) => Some(("", error.to_string())),
        };
        // Off, so that no default applies: the unreadable text may have meant to switch eviction off.
        let off = |_| Thresholds { enable: Field::Is(false), ..Thresholds::default() };
        self.config.strategy = read.unwrap_or_else(off);
        let configured = self.config.shown();
        for line in configured.iter().filter(|line| !self.told.contains(line)) {
            host.log(Level::Info, line);
        }
        self.told = configured;
    }

    /// Reports what is wrong in the cluster's key.
    fn tell_faults<H: Host>(&self, host: &mut H) {
        if let Some((field, what)) = &self.unreadable {
            host.problem(protocol::CONFIG_MAP_KEY, field, &format!("{what}. Until then nobody is evicted"));
        }
        let mut told = Vec::new();
        for (feature, checked) in self.config.features() {
            if let Err(ConfigError { field, fault, way_out }) = checked {
                let message = format!("it {fault}; {way_out}. Until then {feature} evicts nobody");
                host.problem(protocol::CONFIG_MAP_KEY, field, &message);
                told.push(field);
            }
        }
        let others = self.config.strategy.unusable().filter(|error| !told.contains(&error.field));
        for ConfigError { field, fault, way_out } in others {
            let message = format!("it {fault}; {way_out}. No feature that is on needs it");
            host.problem(protocol::CONFIG_MAP_KEY, field, &message);
        }
    }

    /// Collects the inputs of this evaluation. Columns that no feature needs are not read.
    fn inputs<H: Host>(&mut self, host: &mut H, window_usec: u64, alarms: &[Alarm]) -> Inputs {
        let now = self.now_usec;
        let features: Vec<Feature> = self.config.features().map(|(feature, _)| feature).collect();
        let has = |of: &[Feature]| features.iter().any(|feature| of.contains(feature));
        let needs_memory = has(&[Feature::BeMemory, Feature::Memory]);
        let groups = if needs_memory || has(&[Feature::BeCpu, Feature::Cpu]) { host.group_use() } else { Vec::new() };
        let node_usec = if has(&[Feature::Cpu]) { host.node().cpu_usage_usec } else { None };
        let pressure = if needs_memory { host.node_pressure() } else { None };
        let measured = self.meter.add(window_usec, node_usec, &groups, pressure, now).clone();
        let node_memory = if needs_memory { host.node_memory() } else { None };
        let containers = if needs_memory { host.memory() } else { Vec::new() };
        let is_pressure = |alarm: &Alarm| matches!(alarm.trigger, Trigger::Pressure(_)) && alarm.target.is_none();
        let memory = node_memory.map(|memory| Memory {
            total_bytes: memory.total_bytes,
            available_bytes: memory.available_bytes,
            free_bytes: Some(memory.free_bytes),
            low_mark_bytes: memory.low_mark_bytes,
            pressure: measured.pressure,
            is_alarmed: alarms.iter().any(is_pressure),
            at_usec: now,
        });
        let rows: BTreeMap<PodId, _> = groups
            .iter()
            .filter_map(|row| match row.group {
                UseGroup::Pod(id) => Some((id, row)),
                UseGroup::Tier(_) | UseGroup::Outside => None,
            })
            .collect();
        let events: BTreeMap<u32, &MemorySample> = containers.iter().map(|sample| (sample.container, sample)).collect();
        let mut batch_request_milli = 0_u64;
        let mut batch_containers: Vec<&Container> = Vec::new();
        let mut pods = Vec::new();
        for (facts, known) in self.sources.pods() {
            if known.is_active && known.is_be() {
                batch_request_milli = batch_request_milli.saturating_add(known.requests.batch_cpu);
            }
            if known.is_active && known.kube_qos == KubeQos::BestEffort {
                let is_running = |container: &&Container| container.state == ContainerState::Running;
                batch_containers.extend(facts.containers.iter().filter(is_running));
            }
            let row = rows.get(&facts.id);
            let own = row.map(|row| (row.max_events, row.oom_kills)).unwrap_or_default();
            let memory = row.and_then(|row| row.memory).map(|memory| {
                // The kernel can reclaim page cache, so it does not count as used.
                let cache = memory.active_file_bytes.saturating_add(memory.inactive_file_bytes);
                Sample { amount: memory.usage_bytes.saturating_sub(cache), at_usec: now }
            });
            let counted = facts.containers.iter().filter_map(|container| events.get(&container.id));
            pods.push(Pod {
                cpu: measured.pods.get(&facts.id).copied(),
                memory,
                memory_events: needs_memory.then(|| memory_events(own, counted.copied())),
                ..known.clone()
            });
        }
        let be = measured.be.filter(|_| has(&[Feature::BeCpu])).map(|used| BeCpu {
            request_milli: batch_request_milli,
            used_milli: used.amount / 1_000,
            real_limit_milli: self.batch_limit(host, &batch_containers),
            at_usec: used.at_usec,
        });
        let states = if self.state.evicted.is_empty() { Vec::new() } else { host.evictions() };
        let outcomes = states.into_iter().map(|state| {
            let outcome = match state.outcome {
                EvictionOutcome::Pending => Outcome::Pending,
                EvictionOutcome::Accepted | EvictionOutcome::Killed | EvictionOutcome::Gone => Outcome::Accepted,
                EvictionOutcome::Refused => {
                    let at_usec = now.saturating_sub(state.age_msec.saturating_mul(1_000));
                    Outcome::Refused { why: state.why, at_usec }
                }
            };
            (state.pod_uid, outcome)
        });
        Inputs {
            node: self.sources.node().cloned(),
            pods,
            be,
            cpu: measured.node,
            memory,
            outcomes: outcomes.collect(),
        }
    }

    /// The most CPU that batch pods can get under the limits in force, in thousandths of a CPU; 0 if unknown.
    fn batch_limit<H: Host>(&self, host: &mut H, containers: &[&Container]) -> u64 {
        let (sets, rows) = (host.cpu_sets(), host.bandwidth());
        let bound = |target: Target| Bound {
            cpus: sets.iter().find(|set| set.target == target).map(|set| set.cpus.clone()),
            quota_milli: rows.iter().find(|row| row.target == target).and_then(|row| {
                Some(scale(row.quota_usec?, 1_000, Some(row.period_usec).filter(|period| *period > 0)?))
            }),
        };
        let tier = Target::Tier(Tier::BestEffort);
        let mut containers: Vec<Bound> =
            containers.iter().map(|container| bound(Target::Container(container.id))).collect();
        // Containers of protected pods have no row; no policy limits them.
        if containers.iter().any(|container| container.cpus.is_some()) {
            containers.retain(|container| container.cpus.is_some());
        }
        let limit = match self.config.policy.profile {
            Profile::Koordinator => least_limit_milli(&bound(tier), &containers),
            Profile::Responsive => joint_limit_milli(&bound(tier), &containers),
        };
        // If the tier's quota can be read and is unlimited, batch pods can get the whole node.
        let is_known = rows.iter().any(|row| row.target == tier);
        let all = || self.sources.node().filter(|_| is_known).map_or(0, |node| node.cpu_capacity_milli);
        limit.unwrap_or_else(all)
    }

    fn save<H: Host>(&mut self, host: &mut H) {
        if self.saved.is_empty() && self.state.is_empty() {
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

/// Memory events of a pod: on cgroup v2 the pod's own counters include those of its containers, on v1 they do not.
fn memory_events<'a>(
    own: (Option<u64>, Option<u64>),
    containers: impl Iterator<Item = &'a MemorySample>,
) -> MemoryEvents {
    let (max, kills) = containers.fold((0_u64, 0_u64), |(max, kills), sample| {
        (max.saturating_add(sample.max_events), kills.saturating_add(sample.oom_kills))
    });
    MemoryEvents { max: max.max(own.0.unwrap_or(0)), oom_kills: kills.max(own.1.unwrap_or(0)) }
}
