//! Computes each PolicyModule's status from the nodes, their reports and the PolicyModules.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use qosm_model::pod::Node;
use serde::Deserialize;

use crate::kubernetes::events::CONTROLLER;
use crate::node_report::{ENDED, NodePolicyReportStatus, ReportedPolicy, ReportedProblem};
use crate::policy_module::{DigestCount, PolicyModule, PolicyModuleStatus, invalid_selector};

/// Age beyond which a report's agent counts as silent: two refreshes may be lost.
const SILENT_AFTER: SignedDuration = SignedDuration::from_secs(65 * 60);
/// Maximum number of nodes named in a message.
const MAX_NAMED: usize = 3;
/// Maximum numbers of policies and problems that count of one report, and of characters of their texts: a node must not occupy the
/// controller, or write events without end.
const MAX_POLICIES: usize = 256;
const MAX_PROBLEMS: usize = 20;
const MAX_TEXT: usize = 1000;
/// Maximum number of different problems published about one object.
const MAX_MESSAGES: usize = 3;

/// Objects of one kind by name, reduced to what is counted.
#[derive(Debug)]
pub struct ObjectSet<T> {
    /// The objects of the last complete list, with the changes since.
    pub objects: BTreeMap<String, T>,
    listed: Option<BTreeMap<String, T>>,
    is_synced: bool,
}

impl<T> Default for ObjectSet<T> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: None, is_synced: false }
    }
}

impl<T> ObjectSet<T> {
    /// Applies one event of a watch. Returns `true` once the first list is complete.
    pub(super) fn take<K: kube::ResourceExt>(
        &mut self,
        event: Event<K>,
        read: impl Fn(K) -> Option<(String, T)>,
    ) -> bool {
        match event {
            Event::Init => self.listed = Some(BTreeMap::new()),
            Event::InitApply(object) => self.listed.get_or_insert_default().extend(read(object)),
            Event::InitDone => {
                self.objects = self.listed.take().unwrap_or_default();
                self.is_synced = true;
            }
            Event::Apply(object) => self.objects.extend(read(object)),
            Event::Delete(object) => drop(self.objects.remove(&object.name_any())),
        }
        self.is_synced
    }
}

/// The part of a report that is counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportCounts {
    /// The policies of the node.
    pub policies: Vec<ReportedPolicy>,
    /// Problems of annotations, ConfigMaps and modules.
    pub problems: Vec<ReportedProblem>,
    /// Time of the report: by the API server's clock if `managedFields` has it, else by the node's.
    pub reported_at: Option<Time>,
    /// Whether its agent has ended.
    pub has_ended: bool,
}

impl ReportCounts {
    /// Whether the report is older than [`SILENT_AFTER`].
    fn is_silent(&self, now: &Time) -> bool {
        let is_old = |reported: &Time| now.0.duration_since(reported.0) > SILENT_AFTER;
        self.reported_at.as_ref().is_some_and(is_old)
    }

    /// Reads a report. An unreadable report, such as one from another agent version, counts as empty.
    pub fn read(report: DynamicObject) -> Self {
        #[derive(Default, Deserialize)]
        struct Report {
            #[serde(default)]
            status: NodePolicyReportStatus,
        }
        let name = report.name_any();
        let written = report.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(CONTROLLER));
        let written = written.filter_map(|entry| entry.time.clone()).max_by_key(|time| time.0);
        let status = serde_json::from_value::<Report>(report.data)
            .inspect_err(|error| tracing::warn!(node = name, %error, "report cannot be read; it is not counted"))
            .unwrap_or_default()
            .status;
        let has_ended = status.conditions.iter().any(|condition| condition.reason == ENDED);
        let reported_at = written.or(status.reported_at);
        let (mut policies, mut problems) = (status.policies, status.problems);
        policies.truncate(MAX_POLICIES);
        problems.truncate(MAX_PROBLEMS);
        for policy in &mut policies {
            policy.error.iter_mut().for_each(bound);
            bound(&mut policy.digest);
            bound(&mut policy.version);
        }
        for problem in &mut problems {
            bound(&mut problem.object);
            bound(&mut problem.message);
            problem.field.iter_mut().for_each(bound);
        }
        Self { policies, problems, reported_at, has_ended }
    }
}

/// Cuts a text to [`MAX_TEXT`] characters.
fn bound(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
        text.truncate(end);
        text.push('…');
    }
}

/// The watched objects of the fleet, and the statuses written last.
#[derive(Debug, Default)]
pub struct Aggregate {
    /// The nodes, with their labels.
    pub nodes: ObjectSet<Node>,
    /// The nodes' reports.
    pub reports: ObjectSet<ReportCounts>,
    /// The PolicyModules.
    pub modules: ObjectSet<PolicyModule>,
    written: BTreeMap<String, PolicyModuleStatus>,
}

impl Aggregate {
    /// The PolicyModule statuses that differ from those written last.
    pub(super) fn changed(&mut self, now: &Time) -> Vec<(String, PolicyModuleStatus)> {
        self.written.retain(|name, _| self.modules.objects.contains_key(name));
        let mut changed = Vec::new();
        for (name, module) in &self.modules.objects {
            // An object without a status was created anew: the status written to its predecessor does not count.
            let before = module.status.as_ref().and_then(|status| self.written.get(name).or(Some(status)));
            let status = count(module, &self.nodes.objects, &self.reports.objects, before, now);
            if before != Some(&status) {
                changed.push((name.clone(), status));
            }
        }
        changed
    }

    /// Remembers a written status until the watch delivers it.
    pub(super) fn written(&mut self, name: &str, status: PolicyModuleStatus) {
        self.written.insert(name.to_owned(), status);
    }

    /// The problems that nodes report, by object. If nodes report many different problems about one object, only the most frequent.
    pub(super) fn problems(&self, now: &Time) -> BTreeMap<String, String> {
        let mut reported: BTreeMap<String, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
        let mut add = |about: String, message: String, node| {
            reported.entry(about).or_default().entry(message).or_default().push(node);
        };
        let reports = self.reports.objects.iter().filter(|(_, report)| !report.has_ended && !report.is_silent(now));
        for (node, report) in reports {
            for problem in &report.problems {
                let field = problem.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
                add(problem.object.clone(), format!("{field}{}", problem.message), node.as_str());
            }
            for policy in report.policies.iter().filter(|policy| self.modules.objects.contains_key(&policy.name)) {
                if let Some(error) = &policy.error {
                    add(format!("PolicyModule {}", policy.name), error.clone(), node.as_str());
                }
            }
        }
        for (name, module) in &self.modules.objects {
            if let Err(error) = module.spec.selects(&Node::default()) {
                let message = format!("spec.nodeSelector: {}", invalid_selector(&error));
                add(format!("PolicyModule {name}"), message, "");
            } else if !self.nodes.objects.is_empty() && self.selected(module).next().is_none() {
                let nodes = self.nodes.objects.len();
                let message =
                    format!("spec.nodeSelector matches none of the {nodes} nodes; no node runs it, check the labels");
                add(format!("PolicyModule {name}"), message, "");
            }
        }
        reported
            .into_iter()
            .map(|(about, messages)| {
                let mut messages: Vec<_> = messages.into_iter().collect();
                messages.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
                let shown: Vec<_> = messages.iter().take(MAX_MESSAGES).map(|(message, _)| message.as_str()).collect();
                let more = match messages.len().saturating_sub(MAX_MESSAGES) {
                    0 => String::new(),
                    more => format!("; and {more} more"),
                };
                (about, shown.join("; ") + &more)
            })
            .collect()
    }

    fn selected<'a>(&'a self, module: &'a PolicyModule) -> impl Iterator<Item = &'a Node> {
        self.nodes.objects.values().filter(|node| module.spec.selects(node).unwrap_or(false))
    }
}

/// Counts one PolicyModule. `before` is its previous status: unchanged conditions keep their transition time.
pub fn count(
    module: &PolicyModule,
    nodes: &BTreeMap<String, Node>,
    reports: &BTreeMap<String, ReportCounts>,
    before: Option<&PolicyModuleStatus>,
    now: &Time,
) -> PolicyModuleStatus {
    let name = module.name_any();
    let generation = module.metadata.generation;
    let selection: Result<Vec<&Node>, String> = nodes
        .values()
        .filter_map(|node| match module.spec.selects(node) {
            Ok(selected) => selected.then_some(Ok(node)),
            Err(error) => Some(Err(error)),
        })
        .collect();
    // With an invalid selector nodes keep what they run.
    let keeps = |node: &&Node| {
        let report = reports.get(&node.name).filter(|_| selection.is_err());
        report.is_some_and(|report| report.policies.iter().any(|policy| policy.name == name))
    };
    let keeping: Vec<&Node> = nodes.values().filter(keeps).collect();
    let selected = selection.as_deref().unwrap_or(&keeping);
    let (mut all, mut updated, mut reached, mut silent) = (0, 0, 0, Vec::new());
    let mut failing: Vec<(&str, &str)> = Vec::new();
    let mut digests: BTreeMap<&str, DigestCount> = BTreeMap::new();
    for node in selected {
        // Nodes without an agent, and nodes whose agent has ended, do not count: the DaemonSet shows where one is
        // missing.
        let Some(report) = reports.get(&node.name).filter(|report| !report.has_ended) else { continue };
        all += 1;
        reached += u32::from(module.spec.rollout.reaches(&name, &node.name));
        if report.is_silent(now) {
            silent.push(node.name.as_str());
            continue;
        }
        let Some(policy) = report.policies.iter().find(|policy| policy.name == name) else { continue };
        if let Some(error) = &policy.error {
            failing.push((&node.name, error));
        } else if policy.generation == generation && policy.state == RUNNING {
            updated += 1;
        }
        if !policy.digest.is_empty() {
            let entry = digests.entry(&policy.digest).or_insert_with(|| DigestCount {
                digest: policy.digest.clone(),
                version: policy.version.clone(),
                nodes: 0,
            });
            entry.nodes += 1;
        }
    }
    let mut digests: Vec<_> = digests.into_values().collect();
    digests.sort_by(|one, other| other.nodes.cmp(&one.nodes).then_with(|| one.digest.cmp(&other.digest)));

    let conditions = [
        selected_condition(&selection, nodes.len(), all),
        progressing(module, selection.is_ok(), updated, reached, all),
        healthy(&failing, &silent, updated),
    ];
    let conditions = conditions
        .into_iter()
        .map(|(type_, status, reason, message)| {
            let status = if status { "True" } else { "False" };
            let same = before.and_then(|before| {
                before.conditions.iter().find(|known| known.type_ == type_ && known.status == status)
            });
            Condition {
                type_: type_.into(),
                status: status.into(),
                reason: reason.into(),
                message,
                observed_generation: generation,
                last_transition_time: same.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
            }
        })
        .collect();
    PolicyModuleStatus {
        observed_generation: generation,
        nodes: all,
        updated,
        failing: counted(failing.len()),
        digest: digests.first().map(|most| most.digest.clone()),
        digests,
        conditions,
    }
}

/// `state` of a policy that is evaluated.
const RUNNING: &str = "running";

type ConditionParts = (&'static str, bool, &'static str, String);

fn selected_condition(selection: &Result<Vec<&Node>, String>, nodes: usize, with_agent: u32) -> ConditionParts {
    match selection {
        Err(error) => ("Selected", false, "InvalidSelector", format!("nodeSelector: {error}")),
        Ok(selected) if selected.is_empty() => {
            ("Selected", false, "NoNodes", format!("nodeSelector matches none of {nodes} nodes"))
        }
        Ok(selected) if with_agent == 0 => {
            let message = format!("{} of {nodes} nodes, none of them with an agent", selected.len());
            ("Selected", false, "NoAgents", message)
        }
        Ok(selected) => {
            let without =
                match selected.len() - usize::try_from(with_agent).unwrap_or(selected.len()).min(selected.len()) {
                    0 => String::new(),
                    without => format!(", {without} of them without an agent"),
                };
            ("Selected", true, "NodesSelected", format!("{} of {nodes} nodes{without}", selected.len()))
        }
    }
}

fn progressing(module: &PolicyModule, is_selector_valid: bool, updated: u32, reached: u32, all: u32) -> ConditionParts {
    let rollout = module.spec.rollout;
    let message = format!("{updated} of {all} nodes run this generation");
    if !is_selector_valid {
        ("Progressing", false, "InvalidSelector", format!("{message}; no further node takes it"))
    } else if rollout.paused {
        ("Progressing", false, "Paused", format!("{message}; rollout.paused keeps the others from it"))
    } else if updated < reached {
        ("Progressing", true, "RollingOut", format!("{message}, {reached} are to"))
    } else if rollout.percent < 100 {
        ("Progressing", false, "PartlyRolledOut", format!("{message}, as rollout.percent {} has it", rollout.percent))
    } else {
        ("Progressing", false, "RolledOut", message)
    }
}

fn healthy(failing: &[(&str, &str)], silent: &[&str], updated: u32) -> ConditionParts {
    if let Some((_, error)) = failing.first() {
        let nodes: Vec<_> = failing.iter().map(|(node, _)| *node).collect();
        return ("Healthy", false, "Failing", format!("{}: {error}", named(&nodes)));
    }
    if !silent.is_empty() {
        let message = format!("no report for an hour of {}: does the agent run there?", named(silent));
        return ("Healthy", false, "NoReport", message);
    }
    ("Healthy", true, "Running", format!("{updated} nodes run it, none complains"))
}

/// `a, b, c and 9 more nodes`.
fn named(nodes: &[&str]) -> String {
    let first = nodes.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    match nodes.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn counted(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
