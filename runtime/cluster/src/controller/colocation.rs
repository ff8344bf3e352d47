//! What reports request from the controller: extended resources on their Nodes, and evictions of their pods.
//!
//! [`Colocation`] only decides: it takes the watches' events ([`Colocation::node`], [`Colocation::report`]), returns the jobs
//! that are [due](Colocation::due), and takes their outcomes ([`Colocation::done`]). Time is an input. The requests to the API
//! server are in [`carry_out`].
//!
//! The controller trusts an agent with its own node only: a resource must be one that the operator allows, in an amount that the node can
//! have, and a pod must run on the node of the report and have the reported UID. A resource that no report claims any more is withdrawn:
//! the report is stale by the API server's clock, is gone, or no longer names the resource.

mod attempts;
mod budget;
mod carry_out;
mod publication;
mod requests;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde_json::Value;

pub(super) use self::attempts::Ended;
pub(super) use self::attempts::{AFTER_FAILURE, Attempts};
use self::attempts::{AFTER_REFUSAL, Attempt, LOOK_INTERVAL};
use self::budget::Budget;
pub use self::budget::PerMinute;
pub(super) use self::carry_out::carry_out;
pub(super) use self::publication::NodeState;
use self::publication::publication;
pub use self::publication::{ORIGIN, PUBLISHED, PublicationRules};
pub(super) use self::requests::Now;
use self::requests::{EVICTIONS_WITHIN, Freshness, Request};
pub(super) use self::zones::Zones;
use self::zones::ZonesState;
use super::node_view::NodeView;
use crate::node_report::{
    ControllerAnswer, EvictionAnswer, EvictionOutcome, MAX_EVICTIONS, MAX_RESOURCES, ReportedEviction, ResourceAnswer,
};

/// The operator's rules for colocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColocationRules {
    /// Rules for published resources.
    pub publication: PublicationRules,
    /// Rules for evictions.
    pub evictions: EvictionRules,
}

/// Which pods may be evicted, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRules {
    /// Maximum number of evictions per minute.
    pub per_minute: PerMinute,
    /// Namespaces whose pods are never evicted.
    pub protected_namespaces: BTreeSet<String>,
    /// Whether pods of DaemonSets may be evicted; their DaemonSet recreates them at once.
    pub daemon_set_pods: bool,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// A merge patch of a Node's status.
    Publish { node: String, patch: Value },
    /// Shares of NUMA nodes, for the node's NodeResourceTopology.
    PublishZones { node: String, zones: Zones },
    /// An eviction that the budgets allow. `told` is the message of the previous answer.
    Evict { node: String, eviction: ReportedEviction, told: Option<String> },
    /// A check whether an evicted pod is gone.
    Look { node: String, eviction: ReportedEviction },
    /// The answer to a report.
    Answer { node: String, answer: ControllerAnswer },
}

/// The outcome of a [`Job`].
#[derive(Debug)]
pub(super) enum Done {
    /// The Node after the write, or why the write failed.
    Published(String, Result<Box<NodeView>, String>),
    /// Why the shares were not written; `Ok` also if the node has no NodeResourceTopology.
    PublishedZones(String, Zones, Result<(), String>),
    /// Node, the pod's UID, and how the eviction ended.
    Evicted(String, String, Ended),
    /// Node, the pod's UID, and `true` if the pod is gone.
    Looked(String, String, bool),
    /// Whether the answer was written.
    Answered(String, ControllerAnswer, Result<(), String>),
}

/// The nodes and reports, and the jobs that follow from them.
#[derive(Debug)]
pub(super) struct Colocation {
    rules: ColocationRules,
    nodes: BTreeMap<String, Entry>,
    budget: Budget,
    /// Names in the unfinished list; `None` if no list is in progress.
    listed_nodes: Option<BTreeSet<String>>,
    listed_reports: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Entry {
    state: Option<NodeState>,
    request: Option<Request>,
    freshness: Option<Freshness>,
    evictions: BTreeMap<String, Attempt>,
    publishing: Attempts,
    answering: Attempts,
    zones: ZonesState,
    /// When to look at this node again; `None` if only an event changes anything.
    due: Option<Duration>,
}

impl Colocation {
    pub(super) fn new(rules: ColocationRules) -> Self {
        Self { rules, nodes: BTreeMap::new(), budget: Budget::default(), listed_nodes: None, listed_reports: None }
    }

    /// Applies an event of the watch of Nodes.
    pub(super) fn node(&mut self, event: &Event<NodeView>, now: Now) {
        match event {
            Event::Init => self.listed_nodes = Some(BTreeSet::new()),
            Event::InitApply(node) | Event::Apply(node) => {
                if let Some(listed) = &mut self.listed_nodes {
                    listed.insert(node.name_any());
                }
                self.node_is(&node.name_any(), Some(node.state(&self.rules.publication.names)), now);
            }
            Event::Delete(node) => self.node_is(&node.name_any(), None, now),
            Event::InitDone => {
                let listed = self.listed_nodes.take().unwrap_or_default();
                let gone: Vec<_> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.node_is(name, None, now));
            }
        }
    }

    fn node_is(&mut self, name: &str, state: Option<NodeState>, now: Now) {
        if let Some(state) = state {
            let entry = self.nodes.entry(name.to_owned()).or_default();
            // The response to a patch may be ahead of the watch.
            if entry.state.as_ref().is_some_and(|known| state.is_older_than(known)) {
                return;
            }
            // Most changes of a Node are heartbeats.
            let same = entry
                .state
                .as_ref()
                .is_some_and(|before| NodeState { version: state.version.clone(), ..before.clone() } == state);
            let is_tried_again = entry.publishing.error.is_some();
            entry.state = Some(state);
            if !same || is_tried_again {
                entry.due = Some(now.running);
            }
        } else if let Some(entry) = self.nodes.get_mut(name) {
            entry.state = None;
            entry.publishing = Attempts::default();
            entry.zones = ZonesState::default();
            self.forget_if_empty(name);
        }
    }

    /// Applies an event of the watch of reports.
    pub(super) fn report(&mut self, event: &Event<DynamicObject>, now: Now) {
        match event {
            Event::Init => self.listed_reports = Some(BTreeSet::new()),
            Event::InitApply(report) | Event::Apply(report) => {
                if let Some(listed) = &mut self.listed_reports {
                    listed.insert(report.name_any());
                }
                let request = Request::read(report);
                let known = self.nodes.get(&report.name_any()).and_then(|entry| entry.request.as_ref());
                // A list holds the latest versions; a single event may be late.
                let is_late = known.is_some_and(|known| request.is_older_than(known));
                if is_late && matches!(event, Event::Apply(_)) {
                    return;
                }
                self.report_is(&report.name_any(), Some(request), now);
            }
            Event::Delete(report) => self.report_is(&report.name_any(), None, now),
            Event::InitDone => {
                let listed = self.listed_reports.take().unwrap_or_default();
                let gone: Vec<_> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.report_is(name, None, now));
            }
        }
    }

    fn report_is(&mut self, name: &str, request: Option<Request>, now: Now) {
        let Some(request) = request else {
            if let Some(entry) = self.nodes.get_mut(name) {
                (entry.request, entry.freshness) = (None, None);
                entry.due = Some(now.running);
                self.forget_if_empty(name);
            }
            return;
        };
        let entry = self.nodes.entry(name.to_owned()).or_default();
        entry.freshness = Some(Freshness::see(entry.freshness, request.written, now));
        if let Some(answer) = &request.answer {
            adopt(&mut entry.evictions, &mut self.budget, name, &request.evictions, answer, now);
        }
        entry.request = Some(request);
        entry.due = Some(now.running);
    }

    /// Notes that the node's NodeResourceTopology was just created, without shares: they are written again.
    pub(super) fn topology_is_made(&mut self, node: &str, now: Now) {
        if let Some(entry) = self.nodes.get_mut(node) {
            (entry.zones.written, entry.due) = (None, Some(now.running));
        }
    }

    fn forget_if_empty(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|entry| entry.state.is_none() && entry.request.is_none()) {
            self.nodes.remove(name);
        }
    }

    /// Begins to act: until now, the API server's clock was not known, by which reports age.
    pub(super) fn begin(&mut self, now: Now) {
        for entry in self.nodes.values_mut() {
            if let Some(freshness) = &mut entry.freshness {
                freshness.tell_again(now);
                entry.due = Some(now.running);
            }
        }
    }

    /// The jobs that are due now.
    pub(super) fn due(&mut self, now: Now) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (name, entry) in &mut self.nodes {
            if entry.due.is_some_and(|due| due <= now.running) {
                entry.look(name, &self.rules, &mut self.budget, now, &mut jobs);
            }
        }
        jobs
    }

    /// Takes back a job that did not start. The job is due again as soon as the controller acts again.
    pub(super) fn abandoned(&mut self, job: &Job, now: Now) {
        let (Job::Publish { node, .. }
        | Job::PublishZones { node, .. }
        | Job::Evict { node, .. }
        | Job::Look { node, .. }
        | Job::Answer { node, .. }) = job;
        let Some(entry) = self.nodes.get_mut(node) else { return };
        entry.due = Some(now.running);
        match job {
            Job::Publish { .. } => entry.publishing.is_under_way = false,
            Job::PublishZones { .. } => entry.zones.attempts.is_under_way = false,
            Job::Answer { .. } => entry.answering.is_under_way = false,
            Job::Evict { eviction, .. } | Job::Look { eviction, .. } => {
                if let Some(attempt) = entry.evictions.get_mut(&eviction.uid) {
                    attempt.attempts.is_under_way = false;
                }
                if matches!(job, Job::Evict { .. }) {
                    self.give_back(&eviction.uid, now);
                }
            }
        }
    }

    /// Returns the budget of an eviction that did not happen, and looks again at the nodes that wait for it.
    fn give_back(&mut self, uid: &str, now: Now) {
        self.budget.give_back(uid);
        for entry in self.nodes.values_mut().filter(|entry| entry.evictions.values().any(|attempt| attempt.is_held)) {
            entry.due = Some(now.running);
        }
    }

    /// Applies the outcome of a job.
    pub(super) fn done(&mut self, done: Done, now: Now) {
        let (Done::Published(node, _)
        | Done::PublishedZones(node, ..)
        | Done::Evicted(node, ..)
        | Done::Looked(node, ..)
        | Done::Answered(node, ..)) = &done;
        let Some(entry) = self.nodes.get_mut(node) else { return };
        entry.due = Some(now.running);
        match done {
            Done::Published(_, Ok(node)) => {
                entry.publishing.succeeded();
                if entry.state.is_some() {
                    entry.state = Some(node.state(&self.rules.publication.names));
                }
            }
            Done::Published(node, Err(error)) => {
                tracing::warn!(node, error, "resources not published; tried again");
                entry.publishing.failed(error, AFTER_FAILURE, now.running);
            }
            Done::PublishedZones(_, zones, Ok(())) => {
                entry.zones.attempts.succeeded();
                entry.zones.again = now.running + zones::ZONES_INTERVAL;
                entry.zones.written = Some(zones);
            }
            Done::PublishedZones(node, _, Err(error)) => {
                tracing::warn!(node, error, "shares of NUMA nodes not published; tried again");
                entry.zones.attempts.failed(error, AFTER_REFUSAL, now.running);
            }
            Done::Evicted(node, uid, ended) => {
                let Some(attempt) = entry.evictions.get_mut(&uid) else { return };
                let has_happened = matches!(ended, Ended::Accepted(_));
                attempt.ended(&node, uid.clone(), ended, now);
                if !has_happened {
                    self.give_back(&uid, now);
                }
            }
            Done::Looked(node, uid, is_gone) => {
                let Some(attempt) = entry.evictions.get_mut(&uid) else { return };
                attempt.attempts = Attempts { not_before: now.running + LOOK_INTERVAL, ..Attempts::default() };
                if is_gone {
                    attempt.ended(&node, uid, Ended::Gone("the pod is gone".to_owned()), now);
                }
            }
            Done::Answered(_, answer, Ok(())) => {
                entry.answering.succeeded();
                if let Some(request) = &mut entry.request {
                    request.answer = Some(answer);
                }
            }
            Done::Answered(node, _, Err(error)) => {
                tracing::warn!(node, error, "answer to the report not written; tried again");
                entry.answering.failed(error, AFTER_FAILURE, now.running);
            }
        }
    }
}

/// Adopts the answers of the controller that acted before: no pod is evicted twice, and earlier evictions count towards the budgets.
fn adopt(
    attempts: &mut BTreeMap<String, Attempt>,
    budget: &mut Budget,
    node: &str,
    evictions: &[ReportedEviction],
    answer: &ControllerAnswer,
    now: Now,
) {
    for known in &answer.evictions {
        let Some(asked) = evictions.iter().find(|asked| asked.uid == known.uid) else { continue };
        let has_happened = matches!(known.outcome, EvictionOutcome::Accepted | EvictionOutcome::Gone);
        if !has_happened || attempts.contains_key(&known.uid) {
            continue;
        }
        let ago = known.at.as_ref().map_or(SignedDuration::ZERO, |at| now.server.duration_since(at.0));
        let ago = Duration::try_from(ago).unwrap_or(Duration::ZERO);
        if known.outcome == EvictionOutcome::Accepted && ago < Duration::from_secs(60) {
            let at = now.running.saturating_sub(ago);
            budget.note((&asked.uid, node, &asked.namespace), at, now.running);
        }
        let is_final = known.outcome == EvictionOutcome::Gone;
        attempts.insert(known.uid.clone(), Attempt { answer: Some(known.clone()), is_final, ..Attempt::default() });
    }
}

impl Entry {
    /// Adds the jobs for one node, and sets when to look at the node again.
    fn look(&mut self, name: &str, rules: &ColocationRules, budget: &mut Budget, now: Now, jobs: &mut Vec<Job>) {
        let mut next = Next { now: now.running, at: None };
        let counts = |within: &dyn Fn(&Request) -> Duration| {
            let request = self.request.as_ref()?;
            let is_fresh = self.freshness.is_some_and(|fresh| fresh.is_younger(within(request), now.running));
            is_fresh.then_some(request)
        };
        let publishes = counts(&|request| request.stale_after);
        if let (Some(request), Some(fresh)) = (publishes, self.freshness) {
            next.no_later(fresh.reaches(request.stale_after));
        }
        let wanted = publishes.map_or(&[][..], |request| &request.resources);
        let mut resources = self.state.as_ref().map_or_else(Vec::new, |state| {
            let found = publication(state, wanted, &rules.publication);
            if let Some(patch) = found.patch {
                if self.publishing.is_free(now.running) {
                    self.publishing.is_under_way = true;
                    jobs.push(Job::Publish { node: name.to_owned(), patch });
                } else if !self.publishing.is_under_way {
                    next.no_later(Some(self.publishing.not_before));
                }
            }
            found.answers
        });
        resources.truncate(MAX_RESOURCES);
        if let Some(error) = &self.publishing.error {
            for answer in resources.iter_mut().filter(|answer| answer.message == publication::UNDER_WAY) {
                answer.message.clone_from(error);
            }
        }
        let mut zones = Zones::new();
        for resource in wanted.iter().filter(|resource| rules.publication.names.contains(&resource.name)) {
            if let Some(answer) = resources.iter().find(|answer| answer.name == resource.name) {
                zones.entry(resource.name.clone()).or_default().extend(publication::shares(resource, answer));
            }
        }
        zones.retain(|_, shares| !shares.is_empty());
        let is_managed = self.state.as_ref().is_some_and(|state| !state.managed().is_empty());
        self.zones.look(name, zones, is_managed, &mut next, jobs);
        let evicts = counts(&|_| EVICTIONS_WITHIN).map(|request| request.evictions.clone());
        let evictions = self.evictions(name, evicts, rules, budget, now, &mut next, jobs);
        self.answer(name, resources, evictions, now, &mut next, jobs);
        self.due = next.at;
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `look`")]
    fn evictions(
        &mut self,
        node: &str,
        wanted: Option<Vec<ReportedEviction>>,
        rules: &ColocationRules,
        budget: &mut Budget,
        now: Now,
        next: &mut Next,
        jobs: &mut Vec<Job>,
    ) -> Vec<EvictionAnswer> {
        let asked = self.request.as_ref().map_or(&[][..], |request| &request.evictions);
        let asked: BTreeSet<String> = asked.iter().map(|eviction| eviction.uid.clone()).collect();
        self.evictions.retain(|uid, attempt| asked.contains(uid) || attempt.attempts.is_under_way);
        // The most urgent first: the budgets may not suffice for all.
        let mut wanted = wanted.unwrap_or_default();
        wanted.truncate(MAX_EVICTIONS);
        wanted.sort_by_key(|eviction| std::cmp::Reverse(eviction.urgency));
        for eviction in wanted {
            let attempt = self.evictions.entry(eviction.uid.clone()).or_default();
            if attempt.is_final || attempt.attempts.is_under_way {
                continue;
            }
            if now.running < attempt.attempts.not_before {
                next.no_later(Some(attempt.attempts.not_before));
                continue;
            }
            let is_accepted = attempt.answer.as_ref().is_some_and(|known| known.outcome == EvictionOutcome::Accepted);
            if is_accepted {
                attempt.attempts.is_under_way = true;
                jobs.push(Job::Look { node: node.to_owned(), eviction });
                continue;
            }
            if rules.evictions.protected_namespaces.contains(&eviction.namespace) {
                let message = format!("no pod of namespace {} is evicted: it is protected", eviction.namespace);
                attempt.ended(node, eviction.uid, Ended::RefusedForGood(message), now);
                continue;
            }
            let place = (eviction.uid.as_str(), node, eviction.namespace.as_str());
            match budget.take(place, rules.evictions.per_minute, now.running) {
                Ok(()) => {
                    attempt.is_held = false;
                    attempt.attempts.is_under_way = true;
                    let told = attempt.attempts.error.clone();
                    jobs.push(Job::Evict { node: node.to_owned(), eviction, told });
                }
                Err(exceeded) => {
                    attempt.is_held = true;
                    // `Pending` keeps the policy from choosing another pod; `Refused` if the budget is 0.
                    let outcome =
                        if exceeded.is_for_good { EvictionOutcome::Refused } else { EvictionOutcome::Pending };
                    attempt.answer(eviction.uid, outcome, exceeded.message, now.server);
                    next.no_later(Some(exceeded.until));
                }
            }
        }
        let answers = self.evictions.iter().filter(|(uid, _)| asked.contains(*uid));
        answers.filter_map(|(_, attempt)| attempt.answer.clone()).take(MAX_EVICTIONS).collect()
    }

    /// Answers a report if the answer differs from the one in the report.
    fn answer(
        &mut self,
        name: &str,
        resources: Vec<ResourceAnswer>,
        evictions: Vec<EvictionAnswer>,
        now: Now,
        next: &mut Next,
        jobs: &mut Vec<Job>,
    ) {
        let Some(request) = &self.request else { return };
        let answer = ControllerAnswer { at: Some(Time(now.server)), resources, evictions };
        let is_empty = answer.resources.is_empty() && answer.evictions.is_empty();
        let same = match &request.answer {
            None => is_empty,
            Some(before) => before.resources == answer.resources && before.evictions == answer.evictions,
        };
        // The amounts that are being written are answered when the write is done.
        if same || self.publishing.is_under_way {
            return;
        }
        if self.answering.is_free(now.running) {
            self.answering.is_under_way = true;
            jobs.push(Job::Answer { node: name.to_owned(), answer });
        } else if !self.answering.is_under_way {
            next.no_later(Some(self.answering.not_before));
        }
    }
}

/// Whether of two objects, by UID and version, the first is an earlier version of the second; `false` if the versions cannot be compared.
fn is_earlier(this: (&str, &str), other: (&str, &str)) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    this.0 == other.0 && number(this.1).zip(number(other.1)).is_some_and(|(this, other)| this < other)
}

/// The earliest of several times.
struct Next {
    now: Duration,
    at: Option<Duration>,
}

impl Next {
    fn no_later(&mut self, at: Option<Duration>) {
        self.at = match (self.at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

#[cfg(test)]
mod tests;
