//! Node memory: sets the watermarks of the node's kernel, and makes batch pods wait for free memory before others do.
//!
//! The settings belong to the node (`system-config` of the cluster ConfigMap), so pods have nothing to configure. The core is pure:
//! [`config`] (configuration), [`settings`] (which values to set, and how fast), [`rating`] (when batch pods wait, and for how much).
//!
//! ```
//! use node_memory::config::Settings;
//! use node_memory::settings::{Decision, Node, State, decide};
//! use qosm_sdk::NodeKnob;
//!
//! let (settings, faults) = Settings::read(r#"{"minFreeKbytesFactor": 100}"#, &Settings::default());
//! assert!(faults.is_empty());
//! let node = Node { memory_kib: 64 << 20, available_kib: Some(30 << 20), is_short: false };
//! let decisions = decide(&settings, node, |_| Some(State { value: 67_584, baseline: 67_584 }));
//! // One percent of 64 GiB are 671088 KiB: it rises by a quarter of a percent at a time.
//! assert!(matches!(&decisions[..], [(NodeKnob::MinFreeKbytes, Decision::Set(235_356, _))]));
//! ```

pub mod config;
pub mod rating;
pub mod settings;

use qosm_sdk::{
    Bound, Cause, Description, Group, Host, NoConfig, NodeKnobState, Pod, PodId, Policy, PressureScope,
    PressureTrigger, Protection, Rejection, StalledResource, Target, Tick, Tier, Trigger,
};

use crate::config::{CONFIG_MAP_KEY, Config, ConfigError, Settings};
use crate::rating::{Inputs, Waiting};
use crate::settings::{Decision, Node, State};

qosm_sdk::export!(NodeMemory);

/// The tier of batch pods.
const BATCH: Target = Target::Tier(Tier::BestEffort);
/// Trigger for early evaluations: processes of the node waited for memory for 100 ms of two seconds. The kernel allows this window without
/// a capability.
const MEMORY_RUNS_SHORT: PressureTrigger = PressureTrigger {
    scope: PressureScope::Node,
    resource: StalledResource::Memory,
    full: false,
    stall_usec: 100_000,
    window_usec: 2_000_000,
};

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct NodeMemory {
    config: Config,
    /// The valid settings of the cluster's key.
    asked: Settings,
    /// Generation of the cluster's configuration that `asked` is based on; `None` = read it at the next evaluation.
    config_seen: Option<u64>,
    /// Faults of the cluster's key.
    faults: Vec<ConfigError>,
    /// How much longer processes count as waiting for memory, in µs: the kernel raises the alarm once a window.
    short_for_usec: u64,
    /// The bound of batch pods while they wait, and its reason.
    waiting: Option<(Waiting, String)>,
}

impl Policy for NodeMemory {
    type Config = Config;
    type PodConfig = NoConfig;

    fn describe() -> Description {
        Description::new(
            "node-memory",
            env!("CARGO_PKG_VERSION"),
            "Sets the watermarks of the node's memory, and has batch pods wait for free memory before others.",
        )
        .interval_millis(1_000)
        .trigger(Trigger::Pressure(MEMORY_RUNS_SHORT))
        .config_schema(include_str!("config.schema.json"))
    }

    fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
        self.config = config;
        self.config_seen = None;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> {
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        self.read_config(host);
        for ConfigError { field, value, way_out } in &self.faults {
            let meanwhile = match *field {
                config::SCHED_FEATURES => "",
                _ => ". Until then its last valid value counts, after a start as if it were left out",
            };
            host.problem(CONFIG_MAP_KEY, field, &format!("it is {value}; {way_out}{meanwhile}"));
        }
        let is_alarmed = tick.cause == Cause::Alarm || !tick.alarms.is_empty();
        let left = self.short_for_usec.saturating_sub(tick.window_usec);
        self.short_for_usec = if is_alarmed { MEMORY_RUNS_SHORT.window_usec.into() } else { left };
        self.set(host, self.short_for_usec > 0);
        self.rate(host, tick.window_usec);
        Ok(())
    }
}

impl NodeMemory {
    fn read_config<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.config_generation());
        if self.config_seen == generation {
            return;
        }
        self.config_seen = generation;
        let (asked, faults) = Settings::read(&host.config_strategy(CONFIG_MAP_KEY), &self.asked);
        self.asked = asked;
        self.faults = faults;
    }

    /// Sets what is configured. Settings that are not declared are released.
    fn set<H: Host>(&self, host: &mut H, is_short: bool) {
        let settings = self.asked.over(self.config.settings);
        if settings.is_empty() {
            return;
        }
        let sample = host.node();
        let node = Node {
            memory_kib: sample.memory_capacity_bytes / 1024,
            available_kib: sample.memory_available_bytes.map(|bytes| bytes / 1024),
            is_short,
        };
        let states = host.node_knobs();
        let state = |knob| {
            let NodeKnobState { value, baseline, .. } = states.iter().find(|state| state.knob == knob)?;
            Some(State { value: (*value)?, baseline: (*baseline)? })
        };
        for (knob, decision) in settings::decide(&settings, node, state) {
            match decision {
                Decision::Set(value, reason) => host.set_node_knob(knob, value, &reason),
                Decision::Hold(value, reason, why) => {
                    host.remark_node_knob(knob, &why);
                    if state(knob).is_some_and(|state| state.value != state.baseline) {
                        host.set_node_knob(knob, value, &reason);
                    }
                }
                Decision::Lacking(why) => host.remark_node_knob(knob, &why),
            }
        }
    }

    /// Bounds batch pods while free memory is below their mark.
    fn rate<H: Host>(&mut self, host: &mut H, window_usec: u64) {
        if !self.config.watermark_rating.enable {
            self.waiting = None;
            return;
        }
        let before = self.waiting.take();
        self.waiting = match (inputs(host, window_usec), before) {
            (Some(inputs), before) => {
                let waiting = before.as_ref().map(|(waiting, _)| *waiting);
                let decided = rating::decide(&self.config.watermark_rating, &inputs, waiting);
                // The reason is that of the evaluation that chose the bound.
                match (decided, before) {
                    (Some((now, _)), Some((then, why))) if now.bound == then.bound => Some((now, why)),
                    (decided, _) => decided,
                }
            }
            (None, before) => {
                let why = "not decided: free memory, the kernel's watermarks or the tier's memory cannot be read";
                host.remark(BATCH, "memory.high", why);
                before.and_then(|(waiting, why)| Some((waiting.after(window_usec)?, why)))
            }
        };
        if let Some((Waiting { bound, .. }, why)) = &self.waiting {
            let protection = Protection { high: Some(Bound::Bytes(*bound)), ..Protection::NONE };
            host.protect(BATCH, &protection, why);
        }
    }
}

fn inputs<H: Host>(host: &mut H, window_usec: u64) -> Option<Inputs> {
    let memory = host.node_memory()?;
    let groups = host.group_use();
    let batch = groups.iter().find(|used| used.group == Group::Tier(Tier::BestEffort))?;
    let stalled = host.node_pressure().map(|pressure| pressure.memory.some_usec);
    let percent = |stalled: u64| stalled.saturating_mul(100).checked_div(window_usec).unwrap_or(0);
    Some(Inputs {
        free: memory.free_bytes,
        min: memory.min_mark_bytes?,
        low: memory.low_mark_bytes?,
        high: memory.high_mark_bytes?,
        used: batch.memory?.usage_bytes,
        stall_percent: stalled.map(percent),
        window_usec,
    })
}
