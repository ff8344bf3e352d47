//! One policy: its module, its instance, the pods that it knows, and its health.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use qosm_engine::{
    Cause, Engine, Grants, Instance, Interface, Limits, Module, Part, PodView, Reach as ReachGrant, Staged,
};
use qosm_host::Fired;
use qosm_model::alarm::{Alarm, Trigger};
use qosm_model::knob::Target;
use qosm_model::layering::{CompiledProtocol, ConfigMap, Effective, GoodTexts, Layers};
use qosm_model::lease::{Holder, Leases};
use qosm_model::pod::{ContainerId, Node, PodId};
use qosm_model::problem::Problem;
use qosm_model::problem::chain;
use qosm_model::protocol::Description;
use qosm_model::setting::{KeyProblem, Remark, Setting};
use qosm_model::unit::Micros;
use serde_json::Value;

use crate::alarm_queue::AlarmQueue;
use crate::backoff::{AfterFailure, Backoff};
use crate::columns::Readings;
use crate::config::{OnFailure, PolicyConfig, PolicyMode};
use crate::loaded::{Checked, LoadedPolicy, ModuleOrigin};
use crate::module_log::ModuleLog;
use crate::now::Now;
use crate::policy_set::resolved::PendingUpdate;
use crate::saved_state::SavedState;
use crate::schedule::Schedule;
use crate::shadow::Shadow;
use crate::table::{Access, PodTable};

/// Health of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is evaluated.
    Running,
    /// It failed, and backs off.
    BackingOff {
        /// When it is started again, on the monotonic clock.
        until: Micros,
        /// What went wrong.
        error: String,
    },
    /// It failed too often, or cannot start at all; it stays parked until its configuration changes, or it is tried again.
    Parked {
        /// What went wrong.
        error: String,
        /// When it is tried again, on the monotonic clock; `None` = it cannot start.
        until: Option<Micros>,
    },
}

impl Health {
    /// Name of the state in reports.
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

pub(crate) struct Policy {
    pub(crate) holder: Holder,
    pub(crate) module: Module,
    pub(crate) description: Description,
    pub(crate) health: Health,
    pub(crate) on_failure: OnFailure,
    /// The effective configuration of each pod.
    pub(crate) effective: HashMap<PodId, Effective>,
    /// Pods that the module itself rejected: field and message.
    pub(crate) rejections: HashMap<PodId, (String, String)>,
    /// What the module wanted in its last evaluation and did not do, with the reason.
    pub(crate) remarks: Vec<Remark>,
    /// What it could not use of the cluster's configuration in its last evaluation that did not fail.
    pub(crate) key_problems: Vec<KeyProblem>,
    /// Whether these have changed since they were last collected.
    pub(crate) are_key_problems_new: bool,
    pub(crate) problems: Vec<Problem>,
    pub(crate) evaluations: u64,
    pub(crate) failures: u64,
    pub(crate) last_evaluation_seconds: f64,
    pub(crate) all_evaluations_seconds: f64,
    /// What a shadow would do; `None` = the policy is active.
    pub(crate) shadow: Option<Shadow>,
    /// The generation of the PolicyModule that it comes from.
    pub(crate) generation: Option<i64>,
    /// Whether this version has shown that it works.
    pub(crate) is_verified: bool,
    /// A newer version that was asked for and does not run.
    pub(crate) pending_update: Option<PendingUpdate>,
    /// Where the module came from.
    pub(crate) origin: ModuleOrigin,
    /// Log of the module.
    pub(crate) module_log: ModuleLog,
    grants: Grants,
    limits: Limits,
    schedule: Schedule,
    config: PolicyConfig,
    protocol: Option<Arc<CompiledProtocol>>,
    checked: Arc<Checked>,
    layers: Option<Layers>,
    /// The last good texts of ConfigMaps of the instance before, until the layers are built.
    earlier_texts: GoodTexts,
    instance: Option<Instance>,
    saved: SavedState,
    backoff: Backoff,
    configured: bool,
    /// Whether an object that the module reads has changed since the last evaluation.
    is_object_changed: bool,
    dirty: BTreeSet<PodId>,
    removed: Vec<PodId>,
    known_pods: BTreeSet<PodId>,
    declare_anew: bool,
    last: Option<Micros>,
    /// Alarms since the last evaluation.
    alarms: AlarmQueue,
    earlier: Readings,
}

/// Why a policy may not act on a target; `None` = it may.
pub(crate) type Reach<'a> = dyn Fn(Target) -> Option<Arc<str>> + 'a;

/// Result of an evaluation.
pub(crate) enum Evaluated {
    /// All that the module staged; `anew` = settings that are not among it are to be released.
    Staged { staged: Vec<Staged>, anew: bool },
    /// It failed, and is tried again later.
    Failed { error: String },
    /// It failed too often; `release` = its leases are to be released.
    Parked { error: String, release: bool },
}

impl Policy {
    pub(crate) fn new(loaded: LoadedPolicy, grants: Grants) -> Self {
        let LoadedPolicy { config, module, description, origin, checked } = loaded;
        let interval = config.interval_millis.unwrap_or(description.interval_millis);
        let mut policy = Self {
            holder: Holder { policy: config.name.as_str().into(), priority: config.lease_priority() },
            module,
            health: Health::Running,
            on_failure: config.on_failure,
            effective: HashMap::new(),
            rejections: HashMap::new(),
            remarks: Vec::new(),
            key_problems: Vec::new(),
            are_key_problems_new: false,
            problems: Vec::new(),
            evaluations: 0,
            failures: 0,
            last_evaluation_seconds: 0.0,
            all_evaluations_seconds: 0.0,
            shadow: (config.mode == PolicyMode::Shadow).then(Shadow::default),
            generation: None,
            is_verified: false,
            pending_update: None,
            origin,
            module_log: ModuleLog::default(),
            grants,
            limits: config.limits(),
            schedule: Schedule::new(interval),
            config,
            protocol: checked.protocol.clone(),
            layers: None,
            earlier_texts: GoodTexts::new(),
            instance: None,
            saved: SavedState::default(),
            backoff: Backoff::default(),
            configured: false,
            is_object_changed: false,
            dirty: BTreeSet::new(),
            removed: Vec::new(),
            known_pods: BTreeSet::new(),
            declare_anew: true,
            last: None,
            alarms: AlarmQueue::default(),
            earlier: Readings::default(),
            description,
            checked,
        };
        if let Some(flaw) = policy.checked.flaw() {
            policy.health = Health::Parked { error: flaw.to_owned(), until: None };
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

    /// Whether the instance can keep running under another entry: module, grants, limits, mode and priority are the same. A parked policy
    /// restarts if its entry has changed, because that is a reason to try it again.
    pub(crate) fn can_keep_running(&self, loaded: &LoadedPolicy, grants: &Grants) -> bool {
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

    /// Why another version than the requested one runs; `None` if the requested one does.
    pub(crate) fn not_taken(&self) -> Option<String> {
        self.pending_update.as_ref().map(ToString::to_string)
    }

    /// Whether `loaded` is another module for the same active policy.
    pub(crate) fn is_replaced_by(&self, loaded: &LoadedPolicy) -> bool {
        self.mode().is_active() && loaded.config.mode.is_active() && self.module.digest() != loaded.module.digest()
    }

    /// The entry and the module of this policy.
    pub(crate) fn loaded(&self) -> LoadedPolicy {
        LoadedPolicy {
            config: self.config.clone(),
            module: self.module.clone(),
            description: self.description.clone(),
            origin: self.origin.clone(),
            checked: Arc::clone(&self.checked),
        }
    }

    /// The grants of this policy.
    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Takes another entry for the same module.
    pub(crate) fn take_entry(&mut self, loaded: LoadedPolicy) {
        let LoadedPolicy { config, origin, checked, .. } = loaded;
        self.origin = origin;
        if self.config == config {
            return;
        }
        let interval = config.interval_millis.unwrap_or(self.description.interval_millis);
        self.schedule.set(interval);
        self.on_failure = config.on_failure;
        self.configured = false;
        self.config = config;
        self.checked = checked;
    }

    /// Takes changed ConfigMaps or node labels, and recomputes every pod's configuration.
    pub(crate) fn reconfigure(&mut self, maps: &[ConfigMap], node: &Node, pods: &PodTable) {
        let Some(protocol) = &self.protocol else { return };
        let (layers, problems) = Layers::build(Arc::clone(protocol), maps, node, Some(self.good_texts()));
        if self.layers.as_ref().map(Layers::classes) != Some(layers.classes()) {
            self.configured = false;
        }
        self.layers = Some(layers);
        self.problems = problems;
        for id in pods.ids() {
            self.recompute(id, pods, false);
        }
    }

    /// Has the module configured and evaluated again, because the node itself changed.
    pub(crate) fn node_changed(&mut self) {
        self.configured = false;
    }

    /// Has the module evaluated again, because an object that it reads has changed.
    pub(crate) fn object_changed(&mut self) {
        self.is_object_changed = true;
    }

    /// Recomputes one pod's configuration. The pod is sent to the module if that changed, or if the pod itself did.
    pub(crate) fn recompute(&mut self, id: PodId, pods: &PodTable, pod_changed: bool) {
        let Some(entry) = pods.get(id) else { return };
        let effective = match (entry.access, &self.layers) {
            (Access::Paused, _) if self.effective.contains_key(&id) => return,
            (Access::Open, Some(layers)) => layers.for_pod(&entry.pod),
            _ => Effective::default(),
        };
        let same = |was: &Effective| was.values == effective.values && was.is_annotated() == effective.is_annotated();
        let changed = !self.effective.get(&id).is_some_and(same);
        self.effective.insert(id, effective);
        if changed || pod_changed {
            self.dirty.insert(id);
        }
    }

    /// Forgets a pod that is gone.
    pub(crate) fn forget(&mut self, id: PodId) {
        self.effective.remove(&id);
        self.rejections.remove(&id);
        self.dirty.remove(&id);
        if self.known_pods.remove(&id) {
            self.removed.push(id);
        }
    }

    pub(crate) fn imports(&self, interface: Interface) -> bool {
        self.module.imports().contains(&interface)
    }

    /// Whether the module reads a part of a signal.
    pub(crate) fn reads(&self, part: Part) -> bool {
        self.module.reads(part)
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
        if !self.configured || self.is_object_changed {
            return Some(Cause::ConfigChanged);
        }
        if !self.dirty.is_empty() || !self.removed.is_empty() {
            return Some(Cause::PodsChanged);
        }
        if self.schedule.is_due(now.meant())? {
            return Some(Cause::Interval);
        }
        self.next_alarm().filter(|due| now.monotonic >= *due).map(|_| Cause::Alarm)
    }

    /// The triggers that the module asks for; none if the operator has turned alarms off.
    pub(crate) fn triggers(&self) -> &[Trigger] {
        if self.config.alarms { &self.description.triggers } else { &[] }
    }

    /// Whether the module asks for this trigger.
    pub(crate) fn watches(&self, trigger: &Trigger) -> bool {
        self.triggers().contains(trigger)
    }

    /// Whether the policy applies to a pod: the pod is configured, and not as `policy: none`. Without a protocol, it applies to all pods.
    pub(crate) fn is_asked(&self, pod: PodId) -> bool {
        self.description.protocol.is_none()
            || self.effective.get(&pod).is_some_and(|effective| {
                let is_off = |word: &Value| word.as_str().is_some_and(|word| word.eq_ignore_ascii_case("none"));
                !effective.values.is_empty() && !effective.values.get("policy").is_some_and(is_off)
            })
    }

    /// Why the policy may not act on a target; `None` if it may, or if the pod is paused or protected, which is checked elsewhere.
    pub(crate) fn out_of_reach(&self, pods: &PodTable, target: Target) -> Option<Arc<str>> {
        let name = self.name();
        // The interface that sets knobs of the node is granted by name, and reaches nothing else.
        if target == Target::Node {
            return None;
        }
        if matches!(target, Target::Tier(_)) {
            let why = || format!("policy `{name}` may not set tiers; add `{}` to its grants", ReachGrant::Tiers).into();
            return (!self.grants.reaches(ReachGrant::Tiers)).then(why);
        }
        let entry = pods.of(target)?;
        let is_open = entry.access == Access::Open;
        if !is_open || self.acts_on_all_pods() || self.is_configured(entry.id) {
            return None;
        }
        let pod = entry.pod.key();
        let all = ReachGrant::AllPods;
        Some(format!("{pod} is not configured for policy `{name}`; configure it, or add `{all}` to the grants").into())
    }

    /// Whether the policy may act on pods that are not configured for it.
    pub(crate) fn acts_on_all_pods(&self) -> bool {
        self.grants.reaches(ReachGrant::AllPods)
    }

    /// Whether this pod is configured for the policy, which requires a protocol.
    pub(crate) fn is_configured(&self, pod: PodId) -> bool {
        self.description.protocol.is_some() && self.is_asked(pod)
    }

    /// Queues an alarm for the next evaluation. Returns `false` if no evaluation follows from it.
    pub(crate) fn receive(&mut self, fired: Fired, now: Now) -> bool {
        !matches!(self.health, Health::Parked { .. }) && self.alarms.receive(fired, now.monotonic)
    }

    fn debounce_alarms(&mut self, staged: &[Staged], pods: &PodTable, now: Now) {
        let is_answered = |alarm: &Alarm| {
            // A setting may answer an alarm by acting on the pod, or on another container of the pod.
            let pod = |target: Target| pods.of(target).map(|entry| entry.id);
            let is_about = |setting: &Setting| {
                let target = match setting {
                    Setting::Hold { target, .. }
                    | Setting::Release { target, .. }
                    | Setting::AssignClass { target, .. }
                    | Setting::ReleaseClass { target } => *target,
                    Setting::Migrate(migration) => Target::Container(migration.container),
                    Setting::StopMigration { container } => Target::Container(*container),
                    Setting::Evict(eviction) => Target::Pod(eviction.pod),
                    Setting::WithdrawEviction { pod } => Target::Pod(*pod),
                    // A class may concern any pod, and a resource concerns none.
                    Setting::DefineClass { .. } | Setting::UndefineClass { .. } => return true,
                    Setting::Publish { .. } | Setting::Withdraw { .. } | Setting::StaleAfter { .. } => return false,
                };
                // A setting of a tier concerns the pods in it and those beside it; a setting of the node concerns all pods.
                matches!(target, Target::Node | Target::Tier(_))
                    || alarm.target.is_some_and(|alarmed| pod(alarmed) == pod(target))
            };
            match alarm.target {
                Some(_) => staged.iter().flat_map(|part| &part.settings).any(is_about),
                None => staged.iter().any(|part| !part.settings.is_empty()),
            }
        };
        self.alarms.debounce(is_answered, now.monotonic, self.config.alarm_gap());
    }

    /// When an evaluation is due because of alarms; `None` if there are none, or if the policy does not run.
    pub(crate) fn next_alarm(&self) -> Option<Micros> {
        if self.health != Health::Running || self.instance.is_none() {
            return None;
        }
        self.alarms.due(self.config.alarm_gap())
    }

    /// Runs the module once. If a call fails, nothing that it staged takes effect.
    #[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
    pub(crate) fn evaluate(
        &mut self,
        engine: &Engine,
        cause: Cause,
        readings: &Readings,
        pods: &PodTable,
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
                self.backoff.succeeded();
                self.last = Some(now.monotonic);
                match cause {
                    Cause::Alarm => self.alarms.evaluated(now.monotonic, self.config.alarm_gap()),
                    Cause::Interval | Cause::PodsChanged | Cause::ConfigChanged => self.schedule.evaluated(now.meant()),
                }
                self.is_object_changed = false;
                self.debounce_alarms(&staged, pods, now);
                self.earlier = readings.carrying(&self.earlier, |id| pods.owner(id).is_some());
                self.remarks = staged.iter().flat_map(|part| part.remarks.iter().cloned()).collect();
                let problems: Vec<_> = staged.iter().flat_map(|part| part.key_problems.iter().cloned()).collect();
                self.are_key_problems_new |= problems != self.key_problems;
                self.key_problems = problems;
                for part in &staged {
                    if let Some(state) = &part.state {
                        self.saved = SavedState::new(state.clone(), now);
                    }
                    for rejection in &part.rejections {
                        self.rejections.insert(rejection.pod, (rejection.field.clone(), rejection.message.clone()));
                    }
                }
                Evaluated::Staged { staged, anew: std::mem::take(&mut self.declare_anew) }
            }
            Err(error) => {
                // The last log lines often name the cause: a panic in another language than Rust leaves nothing else.
                if let Some(instance) = &mut self.instance {
                    let (lines, beyond) = instance.take_log();
                    self.module_log.write(&self.holder.policy, &lines, beyond, now.monotonic);
                }
                self.failed(error, now)
            }
        }
    }

    fn failed(&mut self, error: String, now: Now) -> Evaluated {
        // After a failed call, what the module remembers of its settings is no longer true. So it restarts, and the first evaluation
        // of the new instance stages all that it wants.
        self.instance = None;
        self.configured = false;
        self.remarks.clear();
        self.are_key_problems_new |= !self.key_problems.is_empty();
        self.key_problems.clear();
        self.known_pods.clear();
        self.removed.clear();
        self.declare_anew = true;
        self.failures += 1;
        match self.backoff.failed(now.monotonic) {
            AfterFailure::ParkedUntil(until) => {
                self.health = Health::Parked { error: error.clone(), until: Some(until) };
                return Evaluated::Parked { error, release: self.on_failure == OnFailure::Release };
            }
            AfterFailure::RetryAt(until) => self.health = Health::BackingOff { until, error: error.clone() },
        }
        Evaluated::Failed { error }
    }

    fn run(
        &mut self,
        engine: &Engine,
        cause: Cause,
        readings: &Readings,
        pods: &PodTable,
        now: Now,
    ) -> Result<Vec<Staged>, String> {
        let mut staged = Vec::new();
        if self.instance.is_none() {
            let instance = engine
                .instantiate(&self.module, &self.holder.policy, &self.grants, &self.limits, self.saved.inherited(now))
                .map_err(|error| chain(&error))?;
            self.instance = Some(instance);
            self.dirty = pods.ids().into_iter().collect();
            self.configured = false;
        }
        let window = Micros(self.last.map_or(0, |last| now.monotonic.0.saturating_sub(last.0)));
        let mut columns = readings.since(&self.earlier);
        columns.migrations = readings.migrations_of(&self.holder.policy);
        columns.resources = readings.resources_of(&self.holder.policy);
        columns.evictions = readings.evictions_of(&self.holder.policy);
        columns.resctrl = readings.resctrl.as_ref().map(|totals| {
            let is_asked = |id| pods.owner(id).is_some_and(|(entry, _)| self.is_asked(entry.id));
            Arc::new(totals.since(self.earlier.resctrl.as_deref(), &self.holder.policy, is_asked))
        });
        // Alarms of pods that have gone meanwhile are dropped.
        let is_there = |target| matches!(target, Target::Tier(_)) || pods.of(target).is_some();
        let is_known = |alarm: &&Alarm| alarm.target.is_none_or(is_there);
        columns.alarms = self.alarms.waiting().filter(is_known).copied().collect();
        let config = (!self.configured).then(|| self.module_config());
        let Some(instance) = &mut self.instance else { return Err("no instance".to_owned()) };
        if let Some(config) = config {
            staged.push(instance.configure(&config).map_err(|error| chain(&error))?);
            self.configured = true;
        }
        if !self.dirty.is_empty() || !self.removed.is_empty() {
            let sent = send_pods(instance, &self.dirty, &self.removed, &self.effective, pods)?;
            for id in &self.dirty {
                self.rejections.remove(id);
            }
            self.known_pods.extend(std::mem::take(&mut self.dirty));
            self.removed.clear();
            staged.push(sent);
        }
        staged.push(instance.evaluate(window, cause, &columns).map_err(|error| chain(&error))?);
        Ok(staged)
    }

    /// The argument of `configure`: the `config` of the entry; for a policy with classes also the configuration of each class on this node,
    /// which does not follow from single pods.
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

    /// Whether the policy is active or a shadow.
    pub(crate) fn mode(&self) -> PolicyMode {
        self.config.mode
    }

    /// The policy that a shadow is to be compared with, if the entry names one.
    pub(crate) fn shadow_of(&self) -> Option<&str> {
        self.config.shadow_of.as_deref()
    }

    /// Number of knobs that the policy holds, or would hold if it is a shadow.
    pub(crate) fn count(&self, leases: &Leases) -> usize {
        self.shadow.as_ref().map_or(leases, |shadow| &shadow.leases).count(self.name())
    }

    /// The key under which the journal keeps the module's saved state. A shadow has a key of its own: a policy that is made active, or
    /// a shadow again, finds what it saved in that role.
    pub(crate) fn state_key(&self) -> String {
        match self.mode() {
            PolicyMode::Active => self.name().to_string(),
            PolicyMode::Shadow => format!("shadow/{}", self.name()),
        }
    }

    /// Sets the saved state that the next instance of the module begins with.
    pub(crate) fn begin_with(&mut self, state: &SavedState) {
        self.saved = state.clone();
    }

    /// Sets the last good texts of ConfigMaps that the first layers are built with.
    pub(crate) fn begin_with_texts(&mut self, texts: &GoodTexts) {
        self.earlier_texts.clone_from(texts);
    }

    /// The last good texts of the ConfigMaps that the policy's protocol reads.
    pub(crate) fn good_texts(&self) -> &GoodTexts {
        self.layers.as_ref().map_or(&self.earlier_texts, Layers::good_texts)
    }

    /// The state that the module saved last.
    pub(crate) fn saved(&self) -> &SavedState {
        &self.saved
    }

    /// The operator's entry.
    pub(crate) fn entry(&self) -> PolicyConfig {
        self.config.clone()
    }

    /// Whether an evaluation has succeeded.
    pub(crate) fn has_worked(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the last evaluation failed, or a failure before it has not been made good yet.
    pub(crate) fn is_failing(&self) -> bool {
        self.health != Health::Running || self.declare_anew && self.failures > 0
    }

    /// Restarts the counts of evaluations and failures with the evaluation that has just ended; the dry run does not count.
    pub(crate) fn begin_count(&mut self) {
        (self.evaluations, self.failures) = (1, 0);
        self.all_evaluations_seconds = self.last_evaluation_seconds;
    }

    /// Has a parked policy evaluated again, unless it is known already that it cannot start.
    pub(crate) fn retry(&mut self) {
        if matches!(self.health, Health::Parked { until: None, .. }) {
            return;
        }
        self.backoff.reset();
        self.health = Health::Running;
    }
}

fn send_pods(
    instance: &mut Instance,
    dirty: &BTreeSet<PodId>,
    removed: &[PodId],
    effective: &HashMap<PodId, Effective>,
    pods: &PodTable,
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
