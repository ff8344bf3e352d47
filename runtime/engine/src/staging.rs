//! What a call stages, and the rules that it must keep. Staged effects are handed over only after the call has returned normally.

mod classes;
mod devices;
mod requests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use qosm_model::eviction::Eviction;
use qosm_model::foreign;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node_resource::{Offer, ResourceName};
use qosm_model::numa::Migration;
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{ClassName, Shares};
use qosm_model::setting::{EventKind, KeyProblem, PodEvent, Remark, Setting};
use qosm_model::unit::{Bytes, Micros};

use self::classes::StagedClasses;
use self::devices::StagedDevices;
use self::requests::StagedRequests;
use crate::error::Rule;
use crate::limits::{Limits, words};

/// All effects of one successful call. They are applied together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Changes of leases in the module's order; of two changes of the same knob the later one counts. Releases of knobs
    /// that the instance does not hold, and of classes that it has not defined, are left out. A class is defined before a
    /// member is assigned to it; removing a class removes its members without a setting for each.
    pub settings: Vec<Setting>,
    /// Events on pods.
    pub events: Vec<PodEvent>,
    /// Wanted values that the policy does not set, and why.
    pub remarks: Vec<Remark>,
    /// Parts of the cluster's configuration that the policy cannot use as they are written.
    pub key_problems: Vec<KeyProblem>,
    /// Pods that the module cannot act on as configured; only [`Instance::pods`](crate::Instance::pods) returns any.
    pub rejections: Vec<Rejection>,
    /// State to keep for the next instance; `None` if it is unchanged.
    pub state: Option<Vec<u8>>,
    /// The module's log.
    pub log: Vec<LogLine>,
    /// Number of log lines dropped beyond the limit.
    pub log_dropped: u32,
}

/// A pod that a module cannot act on as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The pod.
    pub pod: PodId,
    /// The invalid field of its configuration.
    pub field: String,
    /// What is wrong, and how to correct it.
    pub message: String,
}

/// Level of a line of a module's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// For the module's author.
    Debug,
    /// Something changed.
    Info,
    /// Something is worse than intended.
    Warn,
}

/// One line of a module's log, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The level.
    pub level: LogLevel,
    /// The text, cut to [`Limits::log_line`].
    pub message: String,
}

/// The largest number of NUMA nodes that a kernel can be built for (`CONFIG_NODES_SHIFT` 10).
const MAX_NODES: usize = 1024;

/// Maximum number of classes that one policy may define: more than any processor has CLOSIDs.
const MAX_CLASSES: usize = 256;
/// Maximum number of domains on which a class may have its own shares.
const MAX_DOMAINS: usize = 256;

/// Maximum number of resources that one policy may publish.
const MAX_RESOURCES: usize = 32;
/// Length to which the key and the field of a problem are cut.
const PROBLEM_FIELD: Bytes = Bytes(256);
/// Maximum number of NUMA nodes for which a resource may have its own share.
pub(crate) const MAX_ZONES: usize = 64;
/// Range of the seconds without contact from the agent after which published resources expire.
const STALE_SECONDS: std::ops::RangeInclusive<u32> = 60..=86_400;

/// The pods and containers that an instance was given; the module can name no others.
#[derive(Default)]
pub(crate) struct KnownTargets {
    pods: HashMap<PodId, Vec<ContainerId>>,
    containers: HashSet<ContainerId>,
}

impl KnownTargets {
    pub(crate) fn contains(&self, target: Target) -> bool {
        match target {
            Target::Node | Target::Tier(_) => true,
            Target::Pod(pod) => self.pods.contains_key(&pod),
            Target::Container(container) => self.containers.contains(&container),
        }
    }
}

/// The state that an instance inherits from its predecessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InheritedState {
    /// The bytes that the predecessor saved last; empty if it saved none.
    pub bytes: Vec<u8>,
    /// Time from that save to the start of this instance; `None` if unknown.
    pub age: Option<Micros>,
}

impl From<Vec<u8>> for InheritedState {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, age: None }
    }
}

/// The settings, texts and log lines of one call, and what the instance holds from earlier ones.
pub(crate) struct Transaction {
    limits: Limits,
    staged: Staged,
    text_left: usize,
    known: KnownTargets,
    /// Held knobs: a bit for each knob of [`Knob::ALL`] that does not belong to a device.
    held: HashMap<Target, u32>,
    /// Previous values of `held`, one for each change in this call, the latest change last.
    undo: Vec<(Target, u32)>,
    devices: StagedDevices,
    classes: StagedClasses,
    requests: StagedRequests,
    /// One shared copy of each reason: a policy has few and repeats them in each call.
    reasons: HashSet<Arc<str>>,
    last_reason: Arc<str>,
    reasons_size: usize,
    state: Vec<u8>,
    /// Time from the save of the inherited state to the start of the instance.
    inherited_age: Option<Micros>,
}

impl Transaction {
    pub(crate) fn new(limits: Limits, state: InheritedState) -> Self {
        Self {
            limits,
            staged: Staged::default(),
            text_left: 0,
            known: KnownTargets::default(),
            held: HashMap::new(),
            undo: Vec::new(),
            devices: StagedDevices::default(),
            classes: StagedClasses::default(),
            requests: StagedRequests::default(),
            reasons: HashSet::new(),
            last_reason: Arc::default(),
            reasons_size: 0,
            state: state.bytes,
            inherited_age: state.age,
        }
    }

    /// Begins a call with an empty transaction.
    pub(crate) fn begin(&mut self) {
        self.staged = Staged::default();
        self.text_left = words(self.limits.output);
        if self.reasons_size > words(self.limits.output) {
            self.reasons.clear();
            self.reasons_size = 0;
        }
    }

    /// Commits a call that returned normally: returns what it staged, which the instance now holds.
    pub(crate) fn commit(&mut self) -> Staged {
        self.undo.clear();
        self.devices.commit();
        self.classes.commit();
        self.requests.commit();
        if let Some(state) = &self.staged.state {
            self.state.clone_from(state);
        }
        std::mem::take(&mut self.staged)
    }

    /// Discards a failed call. The log is kept, since it may contain the reason.
    pub(crate) fn discard(&mut self) {
        while let Some((target, knobs)) = self.undo.pop() {
            self.set_held(target, knobs);
        }
        self.devices.discard();
        self.classes.discard();
        self.requests.discard();
        self.staged = Staged {
            log: std::mem::take(&mut self.staged.log),
            log_dropped: self.staged.log_dropped,
            ..Staged::default()
        };
    }

    /// Takes the log of a failed call.
    pub(crate) fn take_log(&mut self) -> (Vec<LogLine>, u32) {
        (std::mem::take(&mut self.staged.log), std::mem::take(&mut self.staged.log_dropped))
    }

    /// Adds or replaces a pod; containers that are no longer listed are gone.
    pub(crate) fn add_pod(&mut self, pod: PodId, containers: Vec<ContainerId>) {
        let before = self.known.pods.insert(pod, containers.clone()).unwrap_or_default();
        for gone in before.into_iter().filter(|container| !containers.contains(container)) {
            self.forget_container(gone);
        }
        self.known.containers.extend(containers);
    }

    /// Removes a pod with everything that the instance held on it.
    pub(crate) fn remove_pod(&mut self, pod: PodId) {
        for container in self.known.pods.remove(&pod).unwrap_or_default() {
            self.forget_container(container);
        }
        self.held.remove(&Target::Pod(pod));
        self.devices.forget(Target::Pod(pod));
        self.classes.forget(Target::Pod(pod));
    }

    fn forget_container(&mut self, container: ContainerId) {
        self.known.containers.remove(&container);
        self.held.remove(&Target::Container(container));
        self.devices.forget(Target::Container(container));
        self.classes.forget(Target::Container(container));
    }

    pub(crate) fn require(&self, target: Target) -> Result<(), Rule> {
        if self.known.contains(target) { Ok(()) } else { Err(Rule::UnknownTarget { target }) }
    }

    /// Stages one value.
    pub(crate) fn acquire(&mut self, target: Target, knob: Knob, value: Value, reason: &Arc<str>) -> Result<(), Rule> {
        let (is_of_device, limit) = (knob.device().is_some(), self.limits.settings);
        if is_of_device && self.devices.len() >= limit && !self.devices.holds(target, knob) {
            return Err(Rule::TooManyOfDevices { limit });
        }
        self.push(Setting::Hold { target, knob, value, reason: Arc::clone(reason) })?;
        if is_of_device {
            self.devices.acquire(target, knob);
        } else {
            self.change_held(target, |knobs| knobs | bit(knob));
        }
        Ok(())
    }

    /// Whether the instance holds a knob.
    pub(crate) fn holds(&self, target: Target, knob: Knob) -> bool {
        match knob.device() {
            Some(_) => self.devices.holds(target, knob),
            None => self.held.get(&target).is_some_and(|knobs| knobs & bit(knob) != 0),
        }
    }

    /// Stages the release of one knob, if the instance holds it.
    pub(crate) fn release(&mut self, target: Target, knob: Knob) -> Result<(), Rule> {
        if !self.holds(target, knob) {
            return Ok(());
        }
        self.push(Setting::Release { target, knob })?;
        if knob.device().is_some() {
            self.devices.release(target, knob);
        } else {
            self.change_held(target, |knobs| knobs & !bit(knob));
        }
        Ok(())
    }

    /// Stages a migration of pages.
    pub(crate) fn migrate(&mut self, migration: Migration) -> Result<(), Rule> {
        for (what, nodes) in [("number of source nodes", &migration.from), ("number of target nodes", &migration.to)] {
            if nodes.len() > MAX_NODES {
                let value = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
                return Err(Rule::OutOfRange { what, value });
            }
        }
        self.push(Setting::Migrate(migration))
    }

    /// Stages the end of a container's migration.
    pub(crate) fn stop_migration(&mut self, container: ContainerId) -> Result<(), Rule> {
        self.push(Setting::StopMigration { container })
    }

    /// Stages a class, or new shares of it.
    pub(crate) fn define_class(&mut self, class: ClassName, shares: Shares, reason: Arc<str>) -> Result<(), Rule> {
        if shares.domains.len() > MAX_DOMAINS {
            return Err(Rule::TooManyDomains { class: class.to_string(), limit: MAX_DOMAINS });
        }
        if self.classes.len() >= MAX_CLASSES && !self.classes.contains(&class) {
            return Err(Rule::TooManyClasses { class: class.to_string(), limit: MAX_CLASSES });
        }
        self.push(Setting::DefineClass { class: class.clone(), shares, reason })?;
        self.classes.define(class);
        Ok(())
    }

    /// Whether the instance has defined a class.
    pub(crate) fn defines(&self, class: &ClassName) -> bool {
        self.classes.contains(class)
    }

    /// Stages the end of a class, if the instance has defined it; its members are then in no class.
    pub(crate) fn undefine_class(&mut self, class: &ClassName) -> Result<(), Rule> {
        if self.classes.contains(class) {
            self.push(Setting::UndefineClass { class: class.clone() })?;
            self.classes.undefine(class);
        }
        Ok(())
    }

    /// Stages the assignment of a pod or container to a class.
    pub(crate) fn assign_class(&mut self, target: Target, class: ClassName, reason: Arc<str>) -> Result<(), Rule> {
        if matches!(target, Target::Node | Target::Tier(_)) {
            return Err(Rule::ClassOfTier { target });
        }
        if !self.classes.contains(&class) {
            return Err(Rule::UnknownClass { target, class: class.to_string() });
        }
        self.push(Setting::AssignClass { target, class: class.clone(), reason })?;
        self.classes.assign(target, class);
        Ok(())
    }

    /// The class into which the instance has put a pod or container.
    pub(crate) fn class_of(&self, target: Target) -> Option<&ClassName> {
        self.classes.of(target)
    }

    /// Stages the removal of a pod or container from its class, if the instance has put it into one.
    pub(crate) fn release_class(&mut self, target: Target) -> Result<(), Rule> {
        if self.classes.of(target).is_some() {
            self.push(Setting::ReleaseClass { target })?;
            self.classes.release(target);
        }
        Ok(())
    }

    /// Stages a resource of the node, or a new amount of it.
    pub(crate) fn publish(&mut self, name: ResourceName, offer: Offer, reason: Arc<str>) -> Result<(), Rule> {
        if self.requests.published() >= MAX_RESOURCES && !self.requests.publishes(&name) {
            let why = format!("it is one more than the {MAX_RESOURCES} that a policy may publish; withdraw another");
            return Err(Rule::Resource { name: name.to_string(), why });
        }
        self.push(Setting::Publish { name: name.clone(), offer, reason })?;
        self.requests.publish(name);
        Ok(())
    }

    /// Whether the instance publishes a resource.
    pub(crate) fn publishes(&self, name: &ResourceName) -> bool {
        self.requests.publishes(name)
    }

    /// Stages the withdrawal of a resource, if the instance publishes it.
    pub(crate) fn withdraw(&mut self, name: ResourceName) -> Result<(), Rule> {
        if self.requests.publishes(&name) {
            self.push(Setting::Withdraw { name: name.clone() })?;
            self.requests.withdraw(&name);
        }
        Ok(())
    }

    /// Stages the seconds without contact from the agent after which published resources expire.
    pub(crate) fn stale_after(&mut self, seconds: u32) -> Result<(), Rule> {
        if !STALE_SECONDS.contains(&seconds) {
            return Err(Rule::StaleAfter { seconds, least: *STALE_SECONDS.start(), most: *STALE_SECONDS.end() });
        }
        self.push(Setting::StaleAfter { seconds })
    }

    /// Stages the eviction of a pod.
    pub(crate) fn evict(&mut self, wanted: Eviction) -> Result<(), Rule> {
        self.require(Target::Pod(wanted.pod))?;
        if !is_event_reason(&wanted.reason) {
            return Err(Rule::EventReason { reason: printable(cut(wanted.reason, Bytes(128))) });
        }
        let message = self.text(wanted.message);
        self.push(Setting::Evict(Eviction { message, ..wanted }))
    }

    /// Stages the withdrawal of this policy's request to evict a pod, made by this instance or an earlier one.
    pub(crate) fn withdraw_eviction(&mut self, pod: PodId) -> Result<(), Rule> {
        match self.require(Target::Pod(pod)) {
            Ok(()) => self.push(Setting::WithdrawEviction { pod }),
            // The request ended with the pod.
            Err(_) => Ok(()),
        }
    }

    fn push(&mut self, setting: Setting) -> Result<(), Rule> {
        let limit = self.limits.settings;
        if self.staged.settings.len() >= limit {
            return Err(Rule::TooManySettings { limit });
        }
        self.staged.settings.push(setting);
        Ok(())
    }

    fn change_held(&mut self, target: Target, change: impl Fn(u32) -> u32) {
        let before = self.held.get(&target).copied().unwrap_or(0);
        let after = change(before);
        if after != before {
            self.undo.push((target, before));
            self.set_held(target, after);
        }
    }

    fn set_held(&mut self, target: Target, knobs: u32) {
        if knobs == 0 {
            self.held.remove(&target);
        } else {
            self.held.insert(target, knobs);
        }
    }

    /// The shared copy of a reason.
    pub(crate) fn reason(&mut self, reason: String) -> Arc<str> {
        let reason = shortened(reason, self.limits.text);
        if *self.last_reason != *reason {
            self.last_reason = match self.reasons.get(reason.as_str()) {
                Some(known) => Arc::clone(known),
                None => self.new_reason(reason),
            };
        }
        Arc::clone(&self.last_reason)
    }

    fn new_reason(&mut self, reason: String) -> Arc<str> {
        let reason: Arc<str> = self.text(reason).into();
        if self.reasons.insert(Arc::clone(&reason)) {
            self.reasons_size += reason.len();
        }
        reason
    }

    /// Charges a text to the call and replaces its control characters, since it is shown on terminals and in logs. A text beyond a limit is
    /// cut: it may hold what a pod's owner or an operator wrote, which must not stop the policy.
    pub(crate) fn text(&mut self, text: String) -> String {
        let limit = self.limits.text.min(Bytes(self.text_left as u64));
        let text = printable(shortened(text, limit));
        self.text_left = self.text_left.saturating_sub(text.len());
        text
    }

    /// Like [`Self::text`] for a text of several lines, whose line breaks stay.
    fn lines(&mut self, text: String) -> String {
        // Before it is split: a module may hand over two million line breaks.
        let text = shortened(text, self.limits.text);
        let lines: Vec<String> = text.split('\n').map(|line| self.text(line.to_owned())).collect();
        shortened(lines.join("\n"), self.limits.text)
    }

    pub(crate) fn event(&mut self, pod: PodId, kind: EventKind, reason: String, message: String) -> Result<(), Rule> {
        self.require(Target::Pod(pod))?;
        if self.staged.events.len() >= self.limits.events {
            return Err(Rule::TooManyEvents { limit: self.limits.events });
        }
        if !is_event_reason(&reason) {
            return Err(Rule::EventReason { reason: printable(cut(reason, Bytes(128))) });
        }
        let message = self.lines(message);
        self.staged.events.push(PodEvent { pod, kind, reason, message });
        Ok(())
    }

    pub(crate) fn remark(&mut self, target: Target, knob: &str, reason: String) -> Result<(), Rule> {
        self.require(target)?;
        let limit = self.limits.settings;
        if self.staged.remarks.len() >= limit {
            return Err(Rule::TooManyRemarks { limit });
        }
        let knob = knob.parse().map_err(|_| Rule::NoKnob { name: printable(cut(knob.to_owned(), Bytes(128))) })?;
        let reason = self.reason(reason);
        self.staged.remarks.push(Remark { target, knob, reason });
        Ok(())
    }

    pub(crate) fn key_problem(&mut self, problem: KeyProblem) -> Result<(), Rule> {
        let limit = self.limits.settings;
        if self.staged.key_problems.len() >= limit {
            return Err(Rule::TooManyProblems { limit });
        }
        let KeyProblem { key, field, message } = problem;
        // Where it is stays readable when the text of the call is used up.
        let [key, field] = [key, field].map(|text| printable(shortened(text, PROBLEM_FIELD)));
        let message = self.text(shortened(message, self.limits.log_line));
        self.staged.key_problems.push(KeyProblem { key, field, message });
        Ok(())
    }

    pub(crate) fn reject(&mut self, pod: PodId, field: String, message: String) -> Result<(), Rule> {
        self.require(Target::Pod(pod))?;
        let limit = self.limits.settings;
        if self.staged.rejections.len() >= limit {
            return Err(Rule::TooManyRejections { limit });
        }
        let field = printable(shortened(field, PROBLEM_FIELD));
        let message = self.text(message);
        self.staged.rejections.push(Rejection { pod, field, message });
        Ok(())
    }

    pub(crate) fn log(&mut self, level: LogLevel, message: String) {
        if self.staged.log.len() < self.limits.log_lines {
            let message = printable(cut(message, self.limits.log_line));
            self.staged.log.push(LogLine { level, message });
        } else {
            self.staged.log_dropped = self.staged.log_dropped.saturating_add(1);
        }
    }

    /// The state that was saved last, in this call or before.
    pub(crate) fn state(&self) -> &[u8] {
        self.staged.state.as_deref().unwrap_or(&self.state)
    }

    /// Time from the save of the inherited state to the start of the instance.
    pub(crate) fn inherited_age(&self) -> Option<Micros> {
        self.inherited_age
    }

    pub(crate) fn save(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let limit = self.limits.state;
        if bytes.len() > words(limit) {
            return Err(format!("{} are more than the {limit} that are kept", Bytes(bytes.len() as u64)));
        }
        self.staged.state = Some(bytes);
        Ok(())
    }
}

/// The bit of a knob; 0 for a knob of a device.
fn bit(knob: Knob) -> u32 {
    if knob.device().is_some() { 0 } else { 1 << knob.index() }
}

fn is_event_reason(reason: &str) -> bool {
    reason.len() <= 128
        && reason.starts_with(|first: char| first.is_ascii_uppercase())
        && reason.chars().all(|other| other.is_ascii_alphanumeric())
}

/// The text, or its beginning and an ellipsis.
fn shortened(text: String, limit: Bytes) -> String {
    let length = text.len();
    let text = cut(text, limit);
    if text.len() < length { text + "…" } else { text }
}

/// Truncates a text to at most `limit` bytes, at a character boundary.
pub(crate) fn cut(mut text: String, limit: Bytes) -> String {
    let end = text.floor_char_boundary(words(limit));
    if end < text.len() {
        text.truncate(end);
        // A module may hand over megabytes, of which nothing else is kept.
        text.shrink_to_fit();
    }
    text
}

/// Replaces each character that a terminal interprets by a space.
pub(crate) fn printable(text: String) -> String {
    if text.contains(foreign::is_unsafe) { text.replace(foreign::is_unsafe, " ") } else { text }
}

#[cfg(test)]
mod tests;
