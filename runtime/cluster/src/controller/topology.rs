//! NodeResourceTopologies, made from the agents' reports: the nodes' CPUs and memory for schedulers that choose CPUs
//! (Koordinator's reads these objects).
//!
//! [`Topologies`] only decides, like [`super::colocation`]; the requests are in [`carry_out`]. The controller labels its objects
//! and leaves those of other programs (koordlet, node-feature-discovery) alone. It removes an object when the agent reports that
//! it no longer sees CPUs; the API server removes it with its Node.
//!
//! Koordinator: pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go, apis/extension/numa_aware.go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde::Deserialize;

use self::object::OF_NODE;
use super::NodeTopology;
use super::colocation::{AFTER_FAILURE, Attempts};
use super::node_view::NodeView;
use crate::node_report::ReportedTopology;

mod carry_out;
mod object;

pub(super) use self::carry_out::carry_out;

/// An object is removed after this time without CPUs in the report: an agent that starts, or swaps a policy, has not seen any yet.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Interval at which an object is checked again: another client may have changed or deleted it.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// `state` of a policy whose module is still being fetched.
const FETCHING: &str = "fetching";

/// The content of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// UID of the Node.
    uid: String,
    topology: ReportedTopology,
    /// Annotations that are copied from the Node.
    of_node: BTreeMap<String, String>,
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// List the nodes that have an object of the controller's.
    List,
    /// Create or update the node's object.
    Write { node: String, wanted: Wanted },
    /// Delete the node's object.
    Remove { node: String },
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// The object did not exist and was created.
    Made,
    /// The object existed and now has the wanted content.
    AsWanted,
    /// The object belongs to another program and was not written.
    AnOthers,
    /// The API server has no such kind.
    NoSuchKind,
}

/// The outcome of a [`Job`].
#[derive(Debug)]
pub(super) enum Done {
    Listed(Result<Vec<String>, String>),
    Written(String, Wanted, Result<Written, String>),
    Removed(String, Result<(), String>),
}

/// The nodes and reports, and the jobs that follow from them.
#[derive(Debug)]
pub(super) struct Topologies {
    what: NodeTopology,
    nodes: BTreeMap<String, Entry>,
    listing: Attempts,
    is_listed: bool,
    /// Names in the unfinished list of Nodes; `None` if no list is in progress.
    listed_nodes: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Entry {
    node: Option<SeenNode>,
    reported: Reported,
    /// Whether the report was deleted: the entry is dropped once the Node is gone, too.
    is_report_gone: bool,
    stands: Stands,
    attempts: Attempts,
    /// When to look at this node again; `None` if only an event changes anything.
    due: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenNode {
    uid: String,
    /// The annotations that are copied into the object.
    annotations: BTreeMap<String, String>,
}

/// The CPUs in the agent's last report.
#[derive(Debug, Default)]
enum Reported {
    /// No report yet, or none that counts.
    #[default]
    Unknown,
    Cpus(ReportedTopology),
    /// The agent reports no CPUs since this time.
    NoneSince(Duration),
}

/// What the controller knows of a node's object.
#[derive(Debug, Default)]
enum Stands {
    /// The controller has no object for the node.
    #[default]
    None,
    /// The controller may have an object for the node.
    Maybe,
    /// The object has this content, and is checked again at this time.
    As(Box<Wanted>, Duration),
    /// Another program owns the object, or the kind does not exist; checked again at this time.
    AnOthers(Duration),
}

impl Topologies {
    pub(super) fn new(what: NodeTopology) -> Self {
        Self { what, nodes: BTreeMap::new(), listing: Attempts::default(), is_listed: false, listed_nodes: None }
    }

    /// Starts acting: another controller may have acted before.
    pub(super) fn begin(&mut self) {
        self.is_listed = false;
        for entry in self.nodes.values_mut() {
            (entry.stands, entry.due) = (Stands::None, Some(Duration::ZERO));
        }
    }

    /// Applies an event of the watch of Nodes.
    pub(super) fn node(&mut self, event: &Event<NodeView>, now: Duration) {
        match event {
            Event::Init => self.listed_nodes = Some(BTreeSet::new()),
            Event::InitApply(node) | Event::Apply(node) => {
                if let Some(listed) = &mut self.listed_nodes {
                    listed.insert(node.name_any());
                }
                let annotation = |key: &str| Some((key.to_owned(), node.annotations().get(key)?.clone()));
                let annotations = OF_NODE.into_iter().filter_map(annotation).collect();
                let uid = node.metadata.uid.clone().unwrap_or_default();
                self.node_is(&node.name_any(), Some(SeenNode { uid, annotations }), now);
            }
            Event::Delete(node) => self.node_is(&node.name_any(), None, now),
            Event::InitDone => {
                let listed = self.listed_nodes.take().unwrap_or_default();
                let gone: Vec<_> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
                gone.iter().for_each(|name| self.node_is(name, None, now));
            }
        }
    }

    fn node_is(&mut self, name: &str, node: Option<SeenNode>, now: Duration) {
        let entry = self.nodes.entry(name.to_owned()).or_default();
        // Most changes of a Node are heartbeats.
        if entry.node == node {
            return;
        }
        if entry.node.is_some() && entry.node.as_ref().map(|node| &node.uid) != node.as_ref().map(|node| &node.uid) {
            // The API server deletes the object with its Node.
            entry.stands = Stands::None;
        }
        (entry.node, entry.due) = (node, Some(now));
        self.forget_if_empty(name);
    }

    /// Applies an event of the watch of reports. A deleted or unreadable report changes nothing: the agent
    /// still sees CPUs, and will write it again.
    pub(super) fn report(&mut self, event: &Event<DynamicObject>, now: Duration) {
        let (Event::InitApply(report) | Event::Apply(report) | Event::Delete(report)) = event else { return };
        let name = report.name_any();
        let entry = self.nodes.entry(name.clone()).or_default();
        entry.is_report_gone = matches!(event, Event::Delete(_));
        if entry.is_report_gone {
            return self.forget_if_empty(&name);
        }
        let Some(reported) = reported(report) else { return };
        entry.reported = match (reported, &entry.reported) {
            (Some(topology), _) => Reported::Cpus(topology),
            (None, Reported::NoneSince(since)) => Reported::NoneSince(*since),
            (None, Reported::Unknown | Reported::Cpus(_)) => Reported::NoneSince(now),
        };
        entry.due = Some(now);
    }

    fn forget_if_empty(&mut self, name: &str) {
        let is_empty = |entry: &Entry| {
            entry.node.is_none() && (entry.is_report_gone || !matches!(entry.reported, Reported::Cpus(_)))
        };
        if self.nodes.get(name).is_some_and(is_empty) {
            self.nodes.remove(name);
        }
    }

    /// The jobs that are due now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Job> {
        if !self.is_listed {
            let is_due = self.listing.is_free(now);
            self.listing.is_under_way |= is_due;
            return is_due.then_some(Job::List).into_iter().collect();
        }
        let due = self.nodes.iter_mut().filter(|(_, entry)| entry.due.is_some_and(|due| due <= now));
        due.filter_map(|(node, entry)| entry.look(self.what, node, now)).collect()
    }

    /// Takes back a job that did not start.
    pub(super) fn abandoned(&mut self, job: &Job, now: Duration) {
        match job {
            Job::List => self.listing.is_under_way = false,
            Job::Write { node, .. } | Job::Remove { node } => {
                if let Some(entry) = self.nodes.get_mut(node) {
                    entry.attempts.is_under_way = false;
                    entry.due = Some(now);
                }
            }
        }
    }

    /// Applies the outcome of a job. Returns the node if its object was created.
    pub(super) fn done(&mut self, done: Done, now: Duration) -> Option<String> {
        let (node, outcome) = match done {
            Done::Listed(Ok(nodes)) => {
                self.listing.succeeded();
                self.is_listed = true;
                for node in nodes {
                    if let Some(entry) = self.nodes.get_mut(&node) {
                        (entry.stands, entry.due) = (Stands::Maybe, Some(now));
                    }
                }
                return None;
            }
            Done::Listed(Err(error)) => {
                tracing::warn!(error, "NodeResourceTopologies not listed; tried again");
                self.listing.failed(error, AFTER_FAILURE, now);
                return None;
            }
            Done::Written(node, wanted, outcome) => {
                let stands = |written| match written {
                    Written::Made | Written::AsWanted => Stands::As(Box::new(wanted), now + LOOK_AGAIN),
                    Written::AnOthers | Written::NoSuchKind => Stands::AnOthers(now + LOOK_AGAIN),
                };
                (node, outcome.map(|written| (stands(written), Some(written))))
            }
            Done::Removed(node, outcome) => (node, outcome.map(|()| (Stands::None, None))),
        };
        let entry = self.nodes.get_mut(&node)?;
        entry.due = Some(now);
        match outcome {
            Ok((stands, written)) => {
                entry.attempts.succeeded();
                let why = match written {
                    Some(Written::NoSuchKind) => {
                        Some("this cluster has no NodeResourceTopology (CRD of topology.node.k8s.io)")
                    }
                    Some(Written::AnOthers) => Some("another program keeps the node's"),
                    Some(Written::Made | Written::AsWanted) | None => None,
                };
                if let Some(why) = why.filter(|_| !matches!(entry.stands, Stands::AnOthers(_))) {
                    tracing::info!(node, why, "NodeResourceTopology not written");
                }
                entry.stands = stands;
                (written == Some(Written::Made)).then_some(node)
            }
            Err(error) => {
                tracing::warn!(node, error, "NodeResourceTopology not written or not removed; tried again");
                entry.attempts.failed(error, AFTER_FAILURE, now);
                // A write without a response may have been carried out.
                if !matches!(entry.stands, Stands::AnOthers(_)) {
                    entry.stands = Stands::Maybe;
                }
                None
            }
        }
    }
}

impl Entry {
    /// The job that is due, if any; sets when to look again.
    fn look(&mut self, what: NodeTopology, name: &str, now: Duration) -> Option<Job> {
        self.due = None;
        if self.attempts.is_under_way {
            return None;
        }
        let job = self.job(what, name, now)?;
        if !self.attempts.is_free(now) {
            self.due = Some(self.attempts.not_before);
            return None;
        }
        self.attempts.is_under_way = true;
        Some(job)
    }

    fn job(&mut self, what: NodeTopology, name: &str, now: Duration) -> Option<Job> {
        let node = self.node.as_ref()?;
        let gone_since = match &self.reported {
            _ if what == NodeTopology::Withdraw => None,
            Reported::Unknown => return None,
            Reported::NoneSince(since) => Some(*since),
            Reported::Cpus(topology) => {
                let wanted =
                    Wanted { uid: node.uid.clone(), topology: topology.clone(), of_node: node.annotations.clone() };
                match &self.stands {
                    Stands::As(stands, again) if **stands == wanted && now < *again => self.due = Some(*again),
                    Stands::AnOthers(again) if now < *again => self.due = Some(*again),
                    Stands::None | Stands::Maybe | Stands::As(..) | Stands::AnOthers(_) => {
                        return Some(Job::Write { node: name.to_owned(), wanted });
                    }
                }
                return None;
            }
        };
        if !matches!(self.stands, Stands::Maybe | Stands::As(..)) {
            return None;
        }
        if let Some(over) = gone_since.map(|since| since + KEPT_FOR).filter(|over| now < *over) {
            self.due = Some(over);
            return None;
        }
        Some(Job::Remove { node: name.to_owned() })
    }
}

/// The CPUs in a report; the outer `None` if the report is unreadable or a module is still being fetched.
fn reported(report: &DynamicObject) -> Option<Option<ReportedTopology>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        topology: Option<ReportedTopology>,
        policies: Vec<Policy>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Policy {
        state: String,
    }
    let status = Status::deserialize(report.data.get("status")?)
        .inspect_err(|error| {
            tracing::warn!(node = report.name_any(), %error, "report cannot be read; its CPUs are left out");
        })
        .ok()?;
    let is_under_way = status.policies.iter().any(|policy| policy.state == FETCHING);
    (status.topology.is_some() || !is_under_way).then_some(status.topology)
}

#[cfg(test)]
mod tests;
