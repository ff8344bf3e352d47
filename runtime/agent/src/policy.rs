//! One policy: its module, its instance, what it was told, and how it fares.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use qosm_engine::{Cause, Engine, Grants, Instance, Interface, Limits, Module, PodView, Staged};
use qosm_model::alarm::{Alarm, Trigger};
use qosm_model::knob::Target;
use qosm_model::layering::{CompiledProtocol, ConfigMap, Effective, Layers, check_config};
use qosm_model::lease::{Holder, Leases, Timestamp};
use qosm_model::pod::{ContainerId, Node, PodId};
use qosm_model::problem::Problem;
use qosm_model::problem::chain;
use qosm_model::protocol::Description;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;
use serde_json::Value;

use crate::arbitrate::log;
use crate::columns::Readings;
use crate::config::{OnFailure, PolicyConfig, PolicyMode};
use crate::load::ModuleOrigin;
use crate::pace::Pace;
use crate::roster::Newer;
use crate::shadow::Shadow;
use crate::table::{Access, Pods};

/// Failures in a row after which a policy is parked.
const PARK_AFTER: u32 = 5;
/// Evaluations without failure after which earlier failures are forgotten.
const FORGIVE_AFTER: u32 = 10;
/// An alarm that was answered with nothing is not heard for so many of the least gaps between alarms.
const FRUITLESS_GAPS: u64 = 10;
/// A parked policy is tried again so seldom: what made it fail may have been a node that had no CPU to spare for anybody.
const PARKED_SECONDS: u64 = 600;
/// The longest wait before a failed policy is started again.
const LONGEST_BACK_OFF_SECONDS: u64 = 60;

/// How a policy fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is evaluated.
    Running,
    /// It failed and is started anew at this moment of the monotonic clock.
    BackingOff {
        /// When.
        until: Micros,
        /// What went wrong.
        error: String,
    },
    /// It failed too often, or cannot start at all; it stays where it is until its configuration changes, or it is tried again.
    Parked {
        /// What went wrong.
        error: String,
        /// When it is tried again, of the monotonic clock; `None` = it cannot start.
        until: Option<Micros>,
    },
}

impl Health {
    /// The word for it in reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::BackingOff { .. } => "backing-off",
            Self::Parked { .. } => "parked",
        }
    }

    /// What went wrong; `None` while it runs.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Running => None,
            Self::BackingOff { error, .. } | Self::Parked { error, .. } => Some(error),
        }
    }
}

/// A moment, handed in: nothing below asks a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For people: what `since` and events show.
    pub wall: Timestamp,
    /// For windows.
    pub monotonic: Micros,
    /// How late a tick comes; 0 for what is no tick.
    pub late: Micros,
}

impl Now {
    /// The moment for which a tick was meant: intervals count from there, so that one that comes late moves none.
    pub(crate) fn meant(self) -> Micros {
        Micros(self.monotonic.0.saturating_sub(self.late.0))
    }
}

/// A module that is ready to be instantiated as a policy. Cheap to clone.
#[derive(Clone)]
pub struct LoadedPolicy {
    /// The operator's entry.
    pub config: PolicyConfig,
    /// The compiled module.
    pub module: Module,
    /// Who it says it is.
    pub description: Description,
    /// Where the module came from.
    pub origin: ModuleOrigin,
}

pub(crate) struct Policy {
    pub(crate) holder: Holder,
    pub(crate) module: Module,
    pub(crate) description: Description,
    pub(crate) health: Health,
    pub(crate) on_failure: OnFailure,
    /// What each pod's layers come to.
    pub(crate) effective: HashMap<PodId, Effective>,
    /// Pods that the module itself turned down: field and message.
    pub(crate) rejections: HashMap<PodId, (String, String)>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) evaluations: u64,
    pub(crate) failures: u64,
    pub(crate) last_evaluation_seconds: f64,
    pub(crate) all_evaluations_seconds: f64,
    /// What it would do; `None` = it does it.
    pub(crate) shadow: Option<Shadow>,
    /// The generation of the PolicyModule that it comes from.
    pub(crate) generation: Option<i64>,
    /// Whether it has shown that it works.
    pub(crate) is_proven: bool,
    /// What was asked for since and is not taken.
    pub(crate) newer: Option<Newer>,
    /// Where the module came from.
    pub(crate) origin: ModuleOrigin,
    grants: Grants,
    limits: Limits,
    pace: Pace,
    config: PolicyConfig,
    protocol: Option<Arc<CompiledProtocol>>,
    layers: Option<Layers>,
    instance: Option<Instance>,
    saved: Vec<u8>,
    failures_in_row: u32,
    successes_in_row: u32,
    configured: bool,
    dirty: BTreeSet<PodId>,
    removed: Vec<PodId>,
    told: BTreeSet<PodId>,
    declare_anew: bool,
    last: Option<Micros>,
    last_alarm: Option<Micros>,
    /// Alarms since the last evaluation.
    alarms: BTreeSet<Alarm>,
    /// Alarms that were told and about whose target nothing was staged, and until when they are not heard again.
    fruitless: BTreeMap<Alarm, Micros>,
    earlier: Readings,
}

/// What an evaluation came to.
pub(crate) enum Evaluated {
    /// All settings staged; `anew` = what is not among them is no longer wanted.
    Staged { staged: Vec<Staged>, anew: bool },
    /// It failed, and is tried again later.
    Failed { error: String },
    /// It failed too often; `release` = its leases are to be given up.
    Parked { error: String, release: bool },
}

impl Policy {
    pub(crate) fn new(loaded: LoadedPolicy, grants: Grants) -> Self {
        let LoadedPolicy { config, module, description, origin } = loaded;
        let interval = config.interval_millis.unwrap_or(description.interval_millis);
        let mut policy = Self {
            holder: Holder { policy: config.name.as_str().into(), priority: config.lease_priority() },
            module,
            health: Health::Running,
            on_failure: config.on_failure,
            effective: HashMap::new(),
            rejections: HashMap::new(),
            problems: Vec::new(),
            evaluations: 0,
            failures: 0,
            last_evaluation_seconds: 0.0,
            all_evaluations_seconds: 0.0,
            shadow: (config.mode == PolicyMode::Shadow).then(Shadow::default),
            generation: None,
            is_proven: false,
            newer: None,
            origin,
            grants,
            limits: config.limits(),
            pace: Pace::new(interval),
            config,
            protocol: None,
            layers: None,
            instance: None,
            saved: Vec::new(),
            failures_in_row: 0,
            successes_in_row: 0,
            configured: false,
            dirty: BTreeSet::new(),
            removed: Vec::new(),
            told: BTreeSet::new(),
            declare_anew: true,
            last: None,
            last_alarm: None,
            alarms: BTreeSet::new(),
            fruitless: BTreeMap::new(),
            earlier: Readings::default(),
            description,
        };
        if let Some(protocol) = policy.description.protocol.clone() {
            match CompiledProtocol::compile(protocol) {
                Ok(protocol) => policy.protocol = Some(Arc::new(protocol)),
                Err(problem) => policy.health = Health::Parked { error: problem.to_string(), until: None },
            }
        }
        if let Err(error) = fits(&policy.config, &policy.description) {
            policy.health = Health::Parked { error, until: None };
        }
        policy
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.holder.policy
    }

    /// The order in which policies are evaluated: by priority, then by name.
    pub(crate) fn before(&self, other: &Self) -> std::cmp::Ordering {
        let by_priority = other.holder.priority.cmp(&self.holder.priority);
        by_priority.then_with(|| self.holder.policy.cmp(&other.holder.policy))
    }

    /// Whether its instance can go on under another entry: it is the same module with the same reach, and what it holds weighs the
    /// same. A policy that is parked starts anew, because whoever changed its entry wants it to be tried again.
    pub(crate) fn may_go_on(&self, loaded: &LoadedPolicy, grants: &Grants) -> bool {
        let same_reach = self.grants == *grants && self.config.limits() == loaded.config.limits();
        let same_role = self.config.mode == loaded.config.mode
            && self.config.shadow_of == loaded.config.shadow_of
            && self.config.priority == loaded.config.priority;
        let is_parked = matches!(self.health, Health::Parked { .. });
        same_reach
            && same_role
            && self.module.digest() == loaded.module.digest()
            && (!is_parked || self.config == loaded.config)
    }

    /// Why it runs another version than it is asked to, if it does.
    pub(crate) fn not_taken(&self) -> Option<String> {
        self.newer.as_ref().map(ToString::to_string)
    }

    /// Whether this is another module for the same role, whatever else changes with it.
    pub(crate) fn is_succeeded_by(&self, loaded: &LoadedPolicy) -> bool {
        self.mode().is_active() && loaded.config.mode.is_active() && self.module.digest() != loaded.module.digest()
    }

    /// What it is made of.
    pub(crate) fn loaded(&self) -> LoadedPolicy {
        LoadedPolicy {
            config: self.config.clone(),
            module: self.module.clone(),
            description: self.description.clone(),
            origin: self.origin.clone(),
        }
    }

    /// What it may import.
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Takes another entry for the same module.
    pub(crate) fn take_entry(&mut self, loaded: LoadedPolicy) {
        let LoadedPolicy { config, origin, .. } = loaded;
        self.origin = origin;
        if self.config == config {
            return;
        }
        let interval = config.interval_millis.unwrap_or(self.description.interval_millis);
        self.pace.set(interval);
        self.on_failure = config.on_failure;
        self.configured = false;
        self.config = config;
    }

    /// Takes changed ConfigMaps or node labels, and reckons every pod's configuration anew.
    pub(crate) fn reconfigure(&mut self, maps: &[ConfigMap], node: &Node, pods: &Pods) {
        let Some(protocol) = &self.protocol else { return };
        let (layers, problems) = Layers::build(Arc::clone(protocol), maps, node, self.layers.as_ref());
        if self.layers.as_ref().map(Layers::classes) != Some(layers.classes()) {
            self.configured = false;
        }
        self.layers = Some(layers);
        self.problems = problems;
        for id in pods.ids() {
            self.reckon(id, pods, false);
        }
    }

    /// Has the module configured and evaluated anew, because the node itself changed.
    pub(crate) fn node_changed(&mut self) {
        self.configured = false;
    }

    /// Reckons one pod's configuration. The module hears of the pod if that changed, or if the pod itself did.
    pub(crate) fn reckon(&mut self, id: PodId, pods: &Pods, pod_changed: bool) {
        let Some(entry) = pods.get(id) else { return };
        let effective = match (entry.access, &self.layers) {
            (Access::OnHold, _) if self.effective.contains_key(&id) => return,
            (Access::Open, Some(layers)) => layers.for_pod(&entry.given),
            _ => Effective::default(),
        };
        let same = |was: &Effective| was.values == effective.values && was.is_annotated() == effective.is_annotated();
        let changed = !self.effective.get(&id).is_some_and(same);
        self.effective.insert(id, effective);
        if changed || pod_changed {
            self.dirty.insert(id);
        }
    }

    /// The pod is gone.
    pub(crate) fn forget(&mut self, id: PodId) {
        self.effective.remove(&id);
        self.rejections.remove(&id);
        self.dirty.remove(&id);
        if self.told.remove(&id) {
            self.removed.push(id);
        }
    }

    pub(crate) fn imports(&self, interface: Interface) -> bool {
        self.module.imports().contains(&interface)
    }

    /// Why the policy is to be evaluated now, if it is.
    pub(crate) fn due(&self, now: Now) -> Option<Cause> {
        match &self.health {
            Health::Parked { until: None, .. } => return None,
            Health::BackingOff { until, .. } | Health::Parked { until: Some(until), .. } if now.monotonic < *until => {
                return None;
            }
            Health::BackingOff { .. } | Health::Parked { .. } | Health::Running => {}
        }
        if !self.configured {
            return Some(Cause::ConfigChanged);
        }
        if !self.dirty.is_empty() || !self.removed.is_empty() {
            return Some(Cause::PodsChanged);
        }
        if self.pace.is_due(now.meant())? {
            return Some(Cause::Interval);
        }
        self.next_alarm().filter(|due| now.monotonic >= *due).map(|_| Cause::Alarm)
    }

    /// What it asks to be woken by, as far as the operator lets it.
    pub(crate) fn triggers(&self) -> &[Trigger] {
        if self.config.alarms { &self.description.triggers } else { &[] }
    }

    /// Whether it asks to be woken by this.
    pub(crate) fn watches(&self, trigger: &Trigger) -> bool {
        self.triggers().contains(trigger)
    }

    /// Whether anything is asked of it for a pod: it is configured, and not with the word that means off.
    pub(crate) fn is_asked(&self, pod: PodId) -> bool {
        self.description.protocol.is_none()
            || self.effective.get(&pod).is_some_and(|effective| {
                let is_off = |word: &Value| word.as_str().is_some_and(|word| word.eq_ignore_ascii_case("none"));
                !effective.values.is_empty() && !effective.values.get("policy").is_some_and(is_off)
            })
    }

    /// Takes an alarm for the next evaluation. `false`: it comes to nothing.
    pub(crate) fn hear(&mut self, alarm: Alarm, now: Now) -> bool {
        let is_fruitless = self.fruitless.get(&alarm).is_some_and(|until| now.monotonic < *until);
        let is_heard = !is_fruitless && !matches!(self.health, Health::Parked { .. });
        if is_heard {
            self.alarms.insert(alarm);
        }
        is_heard
    }

    /// What it answered nothing to is not heard for a while: a container at its ceiling is throttled again and again.
    fn weigh_alarms(&mut self, staged: &[Staged], pods: &Pods, now: Now) {
        let until = Micros(now.monotonic.0.saturating_add(self.config.alarm_gap().0.saturating_mul(FRUITLESS_GAPS)));
        self.fruitless.retain(|_, until| now.monotonic < *until);
        for alarm in std::mem::take(&mut self.alarms) {
            // An answer may be about the pod, or about a container beside it.
            let pod = |target: Target| pods.of(target).map(|entry| entry.id);
            let is_about = |setting: &Setting| {
                let target = match setting {
                    Setting::Hold { target, .. }
                    | Setting::Release { target, .. }
                    | Setting::AssignClass { target, .. }
                    | Setting::ReleaseClass { target } => *target,
                    Setting::Migrate(migration) => Target::Container(migration.container),
                    Setting::StopMigration { container } => Target::Container(*container),
                    // A class may be of everybody.
                    Setting::DefineClass { .. } | Setting::UndefineClass { .. } => return true,
                };
                alarm.target.is_some_and(|alarmed| pod(alarmed) == pod(target))
            };
            let is_answered = match alarm.target {
                Some(_) => staged.iter().flat_map(|part| &part.settings).any(is_about),
                None => staged.iter().any(|part| !part.settings.is_empty()),
            };
            if !is_answered {
                self.fruitless.insert(alarm, until);
            }
        }
    }

    /// When alarms bring an evaluation about; `None` = there are none, or the policy is in no state to be evaluated.
    pub(crate) fn next_alarm(&self) -> Option<Micros> {
        if self.alarms.is_empty() || self.health != Health::Running || self.instance.is_none() {
            return None;
        }
        Some(self.last_alarm.map_or(Micros(0), |last| Micros(last.0.saturating_add(self.config.alarm_gap().0))))
    }

    /// Runs the module once. Everything it staged counts, or nothing does.
    pub(crate) fn evaluate(
        &mut self,
        engine: &Engine,
        cause: Cause,
        readings: &Readings,
        pods: &Pods,
        now: Now,
    ) -> Evaluated {
        let started = std::time::Instant::now();
        let outcome = self.run(engine, cause, readings, pods, now);
        self.last_evaluation_seconds = started.elapsed().as_secs_f64();
        self.all_evaluations_seconds += self.last_evaluation_seconds;
        self.evaluations += 1;
        match outcome {
            Ok(staged) => {
                self.health = Health::Running;
                self.successes_in_row = self.successes_in_row.saturating_add(1);
                if self.successes_in_row >= FORGIVE_AFTER {
                    self.failures_in_row = 0;
                }
                self.last = Some(now.monotonic);
                match cause {
                    Cause::Alarm => self.last_alarm = Some(now.monotonic),
                    Cause::Interval | Cause::PodsChanged | Cause::ConfigChanged => self.pace.evaluated(now.meant()),
                }
                self.weigh_alarms(&staged, pods, now);
                self.earlier = readings.carrying(&self.earlier, |id| pods.owner(id).is_some());
                for part in &staged {
                    if let Some(state) = &part.state {
                        self.saved.clone_from(state);
                    }
                    for rejection in &part.rejections {
                        self.rejections.insert(rejection.pod, (rejection.field.clone(), rejection.message.clone()));
                    }
                }
                Evaluated::Staged { staged, anew: std::mem::take(&mut self.declare_anew) }
            }
            Err(error) => {
                // What it said last is often why: all that a panic in another language than Rust leaves behind.
                if let Some(instance) = &mut self.instance {
                    log(&self.holder.policy, &instance.take_log().0);
                }
                self.failed(error, now)
            }
        }
    }

    fn failed(&mut self, error: String, now: Now) -> Evaluated {
        // A failed call leaves the module with a memory of what it believes to hold that is no longer true. So it starts anew,
        // and the first evaluation of the new instance says all that it wants.
        self.instance = None;
        self.configured = false;
        self.told.clear();
        self.removed.clear();
        self.declare_anew = true;
        self.failures += 1;
        self.failures_in_row += 1;
        self.successes_in_row = 0;
        if self.failures_in_row >= PARK_AFTER {
            let until = Micros(now.monotonic.0.saturating_add(PARKED_SECONDS * 1_000_000));
            self.health = Health::Parked { error: error.clone(), until: Some(until) };
            return Evaluated::Parked { error, release: self.on_failure == OnFailure::Release };
        }
        let seconds = (1u64 << (self.failures_in_row - 1)).min(LONGEST_BACK_OFF_SECONDS);
        self.health = Health::BackingOff {
            until: Micros(now.monotonic.0.saturating_add(seconds * 1_000_000)),
            error: error.clone(),
        };
        Evaluated::Failed { error }
    }

    fn run(
        &mut self,
        engine: &Engine,
        cause: Cause,
        readings: &Readings,
        pods: &Pods,
        now: Now,
    ) -> Result<Vec<Staged>, String> {
        let mut staged = Vec::new();
        if self.instance.is_none() {
            let instance = engine
                .instantiate(&self.module, &self.holder.policy, &self.grants, &self.limits, self.saved.clone())
                .map_err(|error| chain(&error))?;
            self.instance = Some(instance);
            self.dirty = pods.ids().into_iter().collect();
            self.configured = false;
        }
        let window = Micros(self.last.map_or(0, |last| now.monotonic.0.saturating_sub(last.0)));
        let mut columns = readings.since(&self.earlier);
        columns.migrations = readings.migrations_of(&self.holder.policy);
        columns.resctrl = readings.resctrl.as_ref().map(|totals| {
            let is_asked = |id| pods.owner(id).is_some_and(|(entry, _)| self.is_asked(entry.id));
            Arc::new(totals.since(self.earlier.resctrl.as_deref(), &self.holder.policy, is_asked))
        });
        // One that was told of a pod that went meanwhile must not hear of it any more.
        let is_known = |alarm: &&Alarm| alarm.target.is_none_or(|target| pods.of(target).is_some());
        columns.alarms = self.alarms.iter().filter(is_known).copied().collect();
        let config = (!self.configured).then(|| self.module_config());
        let Some(instance) = &mut self.instance else { return Err("no instance".to_owned()) };
        if let Some(config) = config {
            staged.push(instance.configure(&config).map_err(|error| chain(&error))?);
            self.configured = true;
        }
        if !self.dirty.is_empty() || !self.removed.is_empty() {
            let told = tell(instance, &self.dirty, &self.removed, &self.effective, pods)?;
            for id in &self.dirty {
                self.rejections.remove(id);
            }
            self.told.extend(std::mem::take(&mut self.dirty));
            self.removed.clear();
            staged.push(told);
        }
        staged.push(instance.evaluate(window, cause, &columns).map_err(|error| chain(&error))?);
        Ok(staged)
    }

    /// What `configure` is handed: the operator's entry; for a policy with classes also what holds for each class on this node,
    /// which no single pod can tell.
    fn module_config(&self) -> String {
        let entry = Value::Object(self.config.config.clone());
        let has_classes = self.description.protocol.as_ref().is_some_and(|protocol| protocol.class_field.is_some());
        match &self.layers {
            Some(layers) if has_classes => {
                serde_json::json!({"policy": entry, "classes": layers.classes()}).to_string()
            }
            _ => entry.to_string(),
        }
    }

    /// Whether its settings count.
    pub(crate) fn mode(&self) -> PolicyMode {
        self.config.mode
    }

    /// The policy that a shadow is to be compared with, as the operator says.
    pub(crate) fn shadow_of(&self) -> Option<&str> {
        self.config.shadow_of.as_deref()
    }

    /// The knobs that it holds, or as a shadow would hold.
    pub(crate) fn count(&self, leases: &Leases) -> usize {
        self.shadow.as_ref().map_or(leases, |shadow| &shadow.leases).count(self.name())
    }

    /// Under which name the journal keeps what the module saved. A shadow's stands apart: a policy that is promoted, or put back
    /// into the shadow, finds what it saved in that role.
    pub(crate) fn state_key(&self) -> String {
        match self.mode() {
            PolicyMode::Active => self.name().to_string(),
            PolicyMode::Shadow => format!("shadow/{}", self.name()),
        }
    }

    /// Has the module begin with this state.
    pub(crate) fn begin_with(&mut self, state: &[u8]) {
        self.saved = state.to_vec();
    }

    /// The state that the module saved last.
    pub(crate) fn saved(&self) -> &[u8] {
        &self.saved
    }

    /// The operator's entry.
    pub(crate) fn entry(&self) -> PolicyConfig {
        self.config.clone()
    }

    /// Counts from now on: what came before was on trial.
    pub(crate) fn begin_count(&mut self) {
        (self.evaluations, self.failures) = (1, 0);
        self.all_evaluations_seconds = self.last_evaluation_seconds;
    }

    /// Gives a parked policy another chance, unless it is known already that it cannot start.
    pub(crate) fn retry(&mut self) {
        if matches!(self.health, Health::Parked { until: None, .. }) {
            return;
        }
        self.failures_in_row = 0;
        self.health = Health::Running;
    }
}

/// Whether what the operator configured is what the module describes: known before it is called.
///
/// # Errors
///
/// All wrong fields, with what to write.
pub(crate) fn fits(entry: &PolicyConfig, description: &Description) -> Result<(), String> {
    let problems = check_config(&entry.name, description.config_schema.as_ref(), &entry.config);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn tell(
    instance: &mut Instance,
    dirty: &BTreeSet<PodId>,
    removed: &[PodId],
    effective: &HashMap<PodId, Effective>,
    pods: &Pods,
) -> Result<Staged, String> {
    let entries: Vec<_> = dirty.iter().filter_map(|&id| pods.get(id)).collect();
    let containers: Vec<Vec<(ContainerId, Option<u32>)>> = entries
        .iter()
        .map(|entry| entry.containers.iter().map(|container| (container.id, container.exclusive_cpus)).collect())
        .collect();
    let configs: Vec<String> = entries
        .iter()
        .map(|entry| {
            effective.get(&entry.id).map_or_else(|| "{}".to_owned(), |e| Value::Object(e.values.clone()).to_string())
        })
        .collect();
    let views: Vec<PodView<'_>> = entries
        .iter()
        .zip(&containers)
        .zip(&configs)
        .map(|((entry, containers), config)| PodView {
            id: entry.id,
            pod: &entry.view,
            containers,
            config,
            annotated: effective.get(&entry.id).is_some_and(Effective::is_annotated),
        })
        .collect();
    instance.pods(&views, removed).map_err(|error| chain(&error))
}
