//! The mock host: its facts, what it has staged and holds, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::block_io::HeldIo;
use super::knob::is_knob;
use super::{
    ClassChange, Classes, Columns, ConfigKey, Event, EvictionRequest, IoChange, IoRemark, KeyProblem, MEMORY_KNOBS,
    Migration, NodeKnobChange, NodeRemark, Remark, ResourceChange, Staged, Value,
};
use crate::host::{CallHooks, Declare};
use crate::shown::cut;
use crate::{
    Bandwidth, ContainerId, Level, NodeKnob, NodeObjectFacts, Offer, PodFacts, PodId, PodObjectFacts, Target, Tier,
    Topology,
};

/// Maximum number of settings that one call may stage.
const SETTINGS: usize = 16_384;
/// Maximum number of events that one call may emit.
const EVENTS: usize = 256;
/// Maximum length in bytes of an event's reason.
const EVENT_REASON_BYTES: usize = 128;

/// A host without a node: a test fills in columns and looks at the leases.
///
/// With a [`Session`](crate::Session), it knows which pods the policy was given, and refuses what the host on a node refuses: pods and
/// containers that the policy was not given, interfaces that are not granted ([`MockHost::granting`]), numbers and texts out of range, and
/// reading `node` before the first evaluation. The call then returns an error that names the broken rule, and has no effect.
///
/// ```
/// use qosm_sdk::mock::{CPU_QUOTA, MockHost};
/// use qosm_sdk::{CpuBandwidth, Target};
///
/// let app = Target::Container(7);
/// let mut host = MockHost::default();
/// host.set_quota(app, Some(50_000), "it is throttled");
/// host.commit();
/// host.assert_held(app, CPU_QUOTA, 50_000);
/// assert_eq!(host.to_string(), "container 7 cpu.quota = 50000");
/// ```
#[derive(Clone, Debug, Default)]
pub struct MockHost {
    /// The columns that the policy reads.
    pub columns: Columns,
    /// The log lines that the policy wrote.
    pub log: Vec<(Level, String)>,
    /// The events that the policy emitted.
    pub events: Vec<Event>,
    /// The policy's remarks of the last call.
    pub remarks: Vec<Remark>,
    /// The policy's remarks on settings of the node's kernel, of the last call.
    pub node_remarks: Vec<NodeRemark>,
    /// The policy's remarks on the cost model of devices, of the last call.
    pub io_remarks: Vec<IoRemark>,
    /// The problems of the cluster's configuration that the policy reported in the last call.
    pub key_problems: Vec<KeyProblem>,
    /// The policy's saved state, as of the last commit.
    pub state: Vec<u8>,
    /// Age of the saved state at the start of the instance, in microseconds; `None` = unknown.
    pub state_age_usec: Option<u64>,
    pub(super) bandwidth_before: Vec<Bandwidth>,
    pub(super) topology_before: Option<Topology>,
    pub(super) topology_generation: u64,
    pub(super) generation: u64,
    /// Columns that seldom change, as of the last read of their generation, with that generation.
    pub(super) node_object: (Option<NodeObjectFacts>, u64),
    pub(super) pod_objects: (Vec<PodObjectFacts>, u64),
    pub(super) cluster_config: (BTreeMap<String, ConfigKey>, u64),
    pub(super) migrations: Vec<Migration>,
    pub(super) staged_state: Option<Vec<u8>>,
    staged: Vec<Staged>,
    pub(super) classes: Classes,
    /// The classes with the changes of this call.
    pub(super) staged_classes: Option<Classes>,
    pub(super) class_changes: Vec<ClassChange>,
    pub(super) published: BTreeMap<String, Offer>,
    /// The resources with the changes of this call.
    pub(super) staged_published: Option<BTreeMap<String, Offer>>,
    pub(super) resource_changes: Vec<ResourceChange>,
    pub(super) evictions: Vec<EvictionRequest>,
    pub(super) held_node_knobs: BTreeMap<NodeKnob, u64>,
    /// The settings with the changes of this call.
    pub(super) staged_node_knobs: Option<BTreeMap<NodeKnob, u64>>,
    pub(super) node_knob_changes: Vec<NodeKnobChange>,
    pub(super) held_io: HeldIo,
    /// The settings with the changes of this call.
    pub(super) staged_io: Option<HeldIo>,
    pub(super) io_changes: Vec<IoChange>,
    pub(super) io_changes_before: usize,
    leases: BTreeMap<(Target, &'static str), Value>,
    /// The policy's pods and their containers; `None` = unknown, so every pod and container is accepted.
    pub(super) given: Option<BTreeMap<PodId, Vec<ContainerId>>>,
    /// The interfaces that are granted; `None` = all.
    granted: Option<BTreeSet<&'static str>>,
    /// Number of calls by interface.
    used: BTreeMap<&'static str, usize>,
    /// The first rule that the policy broke in this call.
    breach: Option<String>,
    /// Columns are empty in calls other than an evaluation.
    pub(super) is_blind: bool,
    pub(super) has_measured: bool,
    events_before: usize,
    class_changes_before: usize,
    resource_changes_before: usize,
}

impl MockHost {
    /// A host that grants these interfaces, by their names in the contract, and `log` and `state`.
    ///
    /// ```
    /// use qosm_sdk::mock::{self, MockHost};
    /// use qosm_sdk::{CpuStat, Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick};
    ///
    /// #[derive(Default)]
    /// struct Curious;
    ///
    /// impl Policy for Curious {
    ///     type Config = ();
    ///     type PodConfig = NoConfig;
    ///     // …
    /// #   fn describe() -> Description { Description::new("curious", "0.1.0", "") }
    /// #   fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    ///     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
    ///         host.cpu();
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let refused = Session::<Curious>::default().evaluate(&mut MockHost::granting(["node"]), mock::tick(1_000));
    /// assert_eq!(refused, Err("it imports `cpu-stat`, which is not granted here".into()));
    /// ```
    pub fn granting(interfaces: impl IntoIterator<Item = &'static str>) -> Self {
        Self { granted: Some(interfaces.into_iter().chain(["log", "state"]).collect()), ..Self::default() }
    }

    /// The interfaces that were called so far, in alphabetical order. If the test covers all of the policy, these are the imports of its
    /// component.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{CpuStat, Node};
    ///
    /// let mut host = MockHost::default();
    /// host.node();
    /// host.cpu();
    /// assert_eq!(host.used(), ["cpu-stat", "node"]);
    /// ```
    pub fn used(&self) -> Vec<&'static str> {
        self.used.keys().copied().collect()
    }

    /// Number of calls of an interface that reached the host so far. In a component, each of them crosses the sandbox boundary.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{CpuBandwidth, Target};
    ///
    /// let mut host = MockHost::default();
    /// host.set_burst(Target::Pod(1), 1_000, "asked for");
    /// assert_eq!(host.calls("cpu-bandwidth"), 1);
    /// ```
    pub fn calls(&self, interface: &str) -> usize {
        self.used.get(interface).copied().unwrap_or(0)
    }

    /// The value of a knob: held now, or from the end of the evaluation on if it succeeds.
    ///
    /// ```
    /// use qosm_sdk::mock::{CPU_BURST, MockHost, Value};
    /// use qosm_sdk::{CpuBandwidth, Target};
    ///
    /// let mut host = MockHost::default();
    /// host.set_burst(Target::Pod(1), 1_000, "asked for");
    /// assert_eq!(host.held(Target::Pod(1), CPU_BURST), Some(Value::Number(1_000)));
    /// host.discard();
    /// assert_eq!(host.held(Target::Pod(1), CPU_BURST), None);
    /// ```
    pub fn held(&self, target: Target, knob: &str) -> Option<Value> {
        match self.staged.iter().rev().find(|staged| staged.target == target && staged.knob == knob) {
            Some(staged) => staged.value,
            None => {
                self.leases.iter().find(|((held, name), _)| *held == target && *name == knob).map(|(_, value)| *value)
            }
        }
    }

    /// Asserts that `value` is held or staged.
    ///
    /// # Panics
    ///
    /// If it is not; the message lists all leases.
    ///
    /// ```should_panic
    /// use qosm_sdk::Target;
    /// use qosm_sdk::mock::{CPU_QUOTA, MockHost};
    ///
    /// MockHost::default().assert_held(Target::Pod(1), CPU_QUOTA, 50_000);
    /// ```
    #[track_caller]
    pub fn assert_held(&self, target: Target, knob: &str, value: impl Into<Value>) {
        let value = value.into();
        let is_held = self.held(target, knob) == Some(value);
        assert!(is_held, "{} {knob} = {value} is not held; what is held:\n{self}", Named(target));
    }

    /// Asserts that the knob is neither held nor staged.
    ///
    /// # Panics
    ///
    /// If it is; the message lists all leases.
    ///
    /// ```
    /// use qosm_sdk::Target;
    /// use qosm_sdk::mock::{CPU_QUOTA, MockHost};
    ///
    /// MockHost::default().assert_free(Target::Pod(1), CPU_QUOTA);
    /// ```
    #[track_caller]
    pub fn assert_free(&self, target: Target, knob: &str) {
        assert!(self.held(target, knob).is_none(), "{} {knob} is held; what is held:\n{self}", Named(target));
    }

    /// All leases, as of the last commit.
    ///
    /// ```
    /// assert!(qosm_sdk::mock::MockHost::default().leases().is_empty());
    /// ```
    pub fn leases(&self) -> &BTreeMap<(Target, &'static str), Value> {
        &self.leases
    }

    /// The changes that were staged since the last commit or discard, in order. Releasing a knob that is not held stages nothing.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{CpuBandwidth, Target};
    ///
    /// let mut host = MockHost::default();
    /// host.release_quota(Target::Pod(1));
    /// assert_eq!(host.staged(), []);
    /// ```
    pub fn staged(&self) -> &[Staged] {
        &self.staged
    }

    /// Takes the migrations that were started or stopped since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::PageMigration;
    /// use qosm_sdk::mock::MockHost;
    ///
    /// let mut host = MockHost::default();
    /// host.stop_migration(7);
    /// assert_eq!(host.take_migrations().len(), 1);
    /// assert_eq!(host.take_migrations(), []);
    /// ```
    pub fn take_migrations(&mut self) -> Vec<Migration> {
        std::mem::take(&mut self.migrations)
    }

    /// Takes the changes of classes and their members since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::ResctrlAllocation;
    /// use qosm_sdk::mock::{ClassChange, MockHost};
    ///
    /// let mut host = MockHost::default();
    /// host.undefine_class("be");
    /// assert_eq!(host.take_class_changes(), [ClassChange::Undefine { class: "be".into() }]);
    /// assert_eq!(host.take_class_changes(), []);
    /// ```
    pub fn take_class_changes(&mut self) -> Vec<ClassChange> {
        std::mem::take(&mut self.class_changes)
    }

    /// Takes the changes of published resources since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::NodeResource;
    /// use qosm_sdk::mock::{MockHost, ResourceChange};
    ///
    /// let mut host = MockHost::default();
    /// host.withdraw("kubernetes.io/batch-cpu");
    /// let name = "kubernetes.io/batch-cpu".to_owned();
    /// assert_eq!(host.take_resource_changes(), [ResourceChange::Withdraw { name }]);
    /// assert_eq!(host.take_resource_changes(), []);
    /// ```
    pub fn take_resource_changes(&mut self) -> Vec<ResourceChange> {
        std::mem::take(&mut self.resource_changes)
    }

    /// The published resources, with staged changes.
    ///
    /// ```
    /// assert!(qosm_sdk::mock::MockHost::default().published().is_empty());
    /// ```
    pub fn published(&self) -> &BTreeMap<String, Offer> {
        self.staged_published.as_ref().unwrap_or(&self.published)
    }

    /// Takes the evictions that were requested or withdrawn since the last discard or call of this method, in order.
    ///
    /// ```
    /// use qosm_sdk::Eviction;
    /// use qosm_sdk::mock::MockHost;
    ///
    /// let mut host = MockHost::default();
    /// host.withdraw_eviction(1);
    /// assert_eq!(host.take_evictions().len(), 1);
    /// assert_eq!(host.take_evictions(), []);
    /// ```
    pub fn take_evictions(&mut self) -> Vec<EvictionRequest> {
        std::mem::take(&mut self.evictions)
    }

    /// The classes, with staged changes.
    ///
    /// ```
    /// assert!(qosm_sdk::mock::MockHost::default().classes().defined.is_empty());
    /// ```
    pub fn classes(&self) -> &Classes {
        self.staged_classes.as_ref().unwrap_or(&self.classes)
    }

    /// The class that a pod or container was assigned to directly.
    ///
    /// ```
    /// use qosm_sdk::Target;
    ///
    /// assert_eq!(qosm_sdk::mock::MockHost::default().class_of(Target::Pod(1)), None);
    /// ```
    pub fn class_of(&self, target: Target) -> Option<&str> {
        self.classes().members.get(&target).map(String::as_str)
    }

    /// Ends an evaluation successfully: staged changes become leases, and the rows of `columns.bandwidth` show held quotas, or the
    /// baseline. Returns the staged changes.
    ///
    /// ```
    /// use qosm_sdk::mock::MockHost;
    /// use qosm_sdk::{Bandwidth, CpuBandwidth, Target};
    ///
    /// let (target, baseline) = (Target::Container(7), Some(50_000));
    /// let mut host = MockHost::default();
    /// host.columns.bandwidth =
    ///     vec![Bandwidth { target, quota_usec: baseline, baseline_quota_usec: baseline, period_usec: 100_000 }];
    /// host.set_quota(target, Some(75_000), "it is throttled");
    /// assert_eq!(host.commit().len(), 1);
    /// assert_eq!(host.columns.bandwidth[0].quota_usec, Some(75_000));
    /// ```
    pub fn commit(&mut self) -> Vec<Staged> {
        for staged in &self.staged {
            let key = (staged.target, staged.knob);
            match staged.value {
                Some(value) => self.leases.insert(key, value),
                None => self.leases.remove(&key),
            };
        }
        for row in &mut self.columns.bandwidth {
            row.quota_usec = match self.leases.get(&(row.target, super::CPU_QUOTA)) {
                Some(Value::Number(quota)) => u64::try_from(*quota).ok(),
                Some(Value::Max | Value::Shares(_) | Value::Cpus(_)) => None,
                None => row.baseline_quota_usec,
            };
        }
        if let Some(state) = self.staged_state.take() {
            self.state = state;
        }
        if let Some(classes) = self.staged_classes.take() {
            self.classes = classes;
        }
        if let Some(published) = self.staged_published.take() {
            self.published = published;
        }
        self.commit_node_knobs();
        self.commit_io();
        std::mem::take(&mut self.staged)
    }

    /// Ends an evaluation that failed: drops what was staged.
    ///
    /// ```
    /// use qosm_sdk::State;
    /// use qosm_sdk::mock::MockHost;
    ///
    /// let mut host = MockHost::default();
    /// host.save_state(b"what I know")?;
    /// host.discard();
    /// assert_eq!(host.state, b"");
    /// # Ok::<(), String>(())
    /// ```
    pub fn discard(&mut self) {
        self.staged.clear();
        self.migrations.clear();
        self.staged_state = None;
        self.staged_classes = None;
        self.class_changes.clear();
        self.staged_published = None;
        self.resource_changes.clear();
        self.evictions.clear();
        self.remarks.clear();
        self.key_problems.clear();
        self.discard_node_knobs();
        self.discard_io();
    }

    /// Counts a call of an interface, and refuses it if the interface is not granted.
    pub(super) fn called(&mut self, interface: &'static str) {
        *self.used.entry(interface).or_default() += 1;
        if self.granted.as_ref().is_some_and(|granted| !granted.contains(interface)) {
            self.refuse(format!("it imports `{interface}`, which is not granted here"));
        }
    }

    /// Records a broken rule. The call fails with the first one.
    pub(super) fn refuse(&mut self, why: String) {
        self.breach.get_or_insert(why);
    }

    /// Refuses a pod or container that the policy was not given; tiers are always accepted.
    pub(super) fn require(&mut self, target: Target) {
        let Some(given) = &self.given else { return };
        let is_known = match target {
            Target::Tier(_) => true,
            Target::Pod(pod) => given.contains_key(&pod),
            Target::Container(id) => given.values().any(|containers| containers.contains(&id)),
        };
        if !is_known {
            self.refuse(format!("it names {}, which it was not given", Named(target)));
        }
    }

    /// Converts a number, and refuses one that no cgroup file can hold.
    pub(super) fn number(&mut self, what: &str, number: u64) -> Value {
        if i64::try_from(number).is_err() {
            self.refuse(format!("its {what} is {number}, which no cgroup file can hold"));
        }
        number.into()
    }

    pub(super) fn stage(&mut self, target: Target, knob: &'static str, value: Option<Value>, reason: &str) {
        self.require(target);
        if value.is_none() && self.held(target, knob).is_none() {
            return;
        }
        if self.staged.len() >= SETTINGS {
            return self.refuse(format!("it stages more than {SETTINGS} settings"));
        }
        self.staged.push(Staged { target, knob, value, reason: reason.into() });
    }

    pub(super) fn stage_memory(&mut self, target: Target, values: [Option<Value>; 12], reason: &str) {
        for (knob, value) in MEMORY_KNOBS.into_iter().zip(values) {
            self.stage(target, knob, value, reason);
        }
    }

    pub(super) fn note_remark(&mut self, target: Target, knob: &str, reason: &str) {
        self.require(target);
        if !is_knob(knob) {
            return self.refuse(format!("it makes a remark on `{knob}`, which is no knob"));
        }
        if self.remarks.len() >= SETTINGS {
            return self.refuse(format!("it makes more than {SETTINGS} remarks"));
        }
        self.remarks.push(Remark { target, knob: knob.into(), reason: reason.into() });
    }

    pub(super) fn note_key_problem(&mut self, problem: KeyProblem) {
        // The host cuts these texts.
        let KeyProblem { key, field, message } = problem;
        let problem = KeyProblem { key: cut(key, 256), field: cut(field, 256), message: cut(message, 1024) };
        if self.key_problems.len() >= SETTINGS {
            return self.refuse(format!("it reports more than {SETTINGS} problems of the cluster's configuration"));
        }
        self.key_problems.push(problem);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.require(Target::Pod(event.pod));
        self.event_reason(&event.reason);
        if self.events.len().saturating_sub(self.events_before) >= EVENTS {
            return self.refuse(format!("it emits more than {EVENTS} pod events"));
        }
        self.events.push(event);
    }
}

impl MockHost {
    pub(super) fn event_reason(&mut self, reason: &str) {
        let is_word = reason.starts_with(|first: char| first.is_ascii_uppercase())
            && reason.chars().all(|other| other.is_ascii_alphanumeric());
        if !is_word || reason.len() > EVENT_REASON_BYTES {
            self.refuse(format!(
                "`{reason}` is not the reason of an event: one word in camel case, at most {EVENT_REASON_BYTES} letters and digits"
            ));
        }
    }
}

impl Declare for MockHost {}

impl CallHooks for MockHost {
    fn begin(&mut self, is_evaluation: bool) {
        self.breach = None;
        self.remarks.clear();
        self.node_remarks.clear();
        self.io_remarks.clear();
        self.key_problems.clear();
        self.io_changes_before = self.io_changes.len();
        self.is_blind = !is_evaluation;
        self.has_measured |= is_evaluation;
        self.events_before = self.events.len();
        self.class_changes_before = self.class_changes.len();
        self.resource_changes_before = self.resource_changes.len();
    }

    fn give(&mut self, upserted: &[PodFacts], removed: &[PodId]) {
        let given = self.given.get_or_insert_default();
        let mut before: Vec<Target> = Vec::new();
        for pod in removed.iter().copied().chain(upserted.iter().map(|pod| pod.id)) {
            let containers = given.remove(&pod).unwrap_or_default();
            before.extend(containers.into_iter().map(Target::Container).chain([Target::Pod(pod)]));
        }
        for pod in upserted {
            given.insert(pod.id, pod.containers.iter().map(|container| container.id).collect());
        }
        // Leases vanish with their target.
        for gone in before {
            let is_here = match gone {
                Target::Tier(_) => true,
                Target::Pod(pod) => given.contains_key(&pod),
                Target::Container(id) => given.values().any(|containers| containers.contains(&id)),
            };
            if !is_here {
                self.leases.retain(|(target, _), _| *target != gone);
                self.classes.members.remove(&gone);
                self.held_io.retain(|(target, ..), _| *target != Some(gone));
            }
        }
    }

    fn release_undeclared(&mut self) {
        let is_declared = |key: &(Target, &'static str)| {
            self.staged.iter().any(|staged| (staged.target, staged.knob) == *key && staged.value.is_some())
        };
        let over: Vec<_> = self.leases.keys().filter(|key| !is_declared(key)).copied().collect();
        for (target, knob) in over {
            self.stage(target, knob, None, "");
        }
        let (mut defined, mut assigned) = (BTreeSet::new(), BTreeSet::new());
        for change in self.class_changes.iter().skip(self.class_changes_before) {
            match change {
                ClassChange::Define { class, .. } => drop(defined.insert(class.clone())),
                ClassChange::Assign { target, .. } => drop(assigned.insert(*target)),
                ClassChange::Undefine { .. } | ClassChange::Release { .. } => {}
            }
        }
        let classes = self.staged_classes.get_or_insert_with(|| self.classes.clone());
        classes.defined.retain(|class, _| defined.contains(class));
        classes.members.retain(|target, _| assigned.contains(target));
        let is_published = |name: &String| {
            let mut changes = self.resource_changes.iter().skip(self.resource_changes_before);
            changes.any(|change| matches!(change, ResourceChange::Publish { name: own, .. } if own == name))
        };
        let mut published = self.staged_published.take().unwrap_or_else(|| self.published.clone());
        published.retain(|name, _| is_published(name));
        self.staged_published = Some(published);
        self.release_undeclared_node_knobs();
        self.release_undeclared_io();
    }

    fn end<T>(&mut self, result: Result<T, String>) -> Result<T, String> {
        self.is_blind = false;
        let result = self.breach.take().map_or(result, Err);
        if result.is_err() {
            self.discard();
            self.events.truncate(self.events_before);
        }
        result
    }
}

impl fmt::Display for MockHost {
    /// Everything that is held or staged, one line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut held: BTreeMap<_, _> = self.leases.iter().map(|(key, value)| (*key, Some(*value))).collect();
        held.extend(self.staged.iter().map(|staged| ((staged.target, staged.knob), staged.value)));
        let lines = held
            .into_iter()
            .filter_map(|((target, knob), value)| value.map(|value| format!("{} {knob} = {value}", Named(target))));
        let lines: Vec<String> = lines.chain(self.io_lines()).collect();
        if lines.is_empty() { f.write_str("nothing") } else { f.write_str(&lines.join("\n")) }
    }
}

pub(super) struct Named(pub(super) Target);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Target::Tier(Tier::Guaranteed) => f.write_str("tier kubepods"),
            Target::Tier(Tier::Burstable) => f.write_str("tier burstable"),
            Target::Tier(Tier::BestEffort) => f.write_str("tier besteffort"),
            Target::Pod(id) => write!(f, "pod {id}"),
            Target::Container(id) => write!(f, "container {id}"),
        }
    }
}
