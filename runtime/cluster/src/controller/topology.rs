//! NodeResourceTopologies: CPUs and memory of nodes for schedulers that choose CPUs (Koordinator's reads these objects), made of what the
//! agents report.
//!
//! [`Topologies`] decides and does nothing itself, as [`super::colocation`] does; the requests are in [`carry_out`]. An object that another
//! program keeps (koordlet, node-feature-discovery) is left alone: those of the controller have a label of its own. One is removed when its
//! agent says that it no longer sees CPUs, and ends with its Node.
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

/// Without CPUs in the report for so long, an object is removed: an agent that starts, or takes another version of a policy, has seen none yet.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// An object is looked at again after this: somebody may have changed or deleted it.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// State of a policy that is on its way.
const FETCHING: &str = "fetching";

/// What an object is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The Node's.
    uid: String,
    topology: ReportedTopology,
    /// Annotations of the Node that go along.
    of_node: BTreeMap<String, String>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// Find out which nodes have an object of the controller's.
    List,
    /// Make or change one.
    Write { node: String, wanted: Wanted },
    /// Remove it.
    Remove { node: String },
}

/// How it stands after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// There was none.
    Made,
    /// It is as it is wanted.
    AsWanted,
    /// Another program keeps it.
    AnOthers,
    /// The API server has no such kind.
    NoSuchKind,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Done {
    Listed(Result<Vec<String>, String>),
    Written(String, Wanted, Result<Written, String>),
    Removed(String, Result<(), String>),
}

/// All nodes with something to do for them.
#[derive(Debug)]
pub(super) struct Topologies {
    what: NodeTopology,
    nodes: BTreeMap<String, Entry>,
    listing: Attempts,
    is_listed: bool,
    /// Names that the list of Nodes under way has brought; `None` outside of a list.
    listed_nodes: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Entry {
    node: Option<SeenNode>,
    reported: Reported,
    /// Whether the report is gone: with the Node nothing is left.
    is_report_gone: bool,
    stands: Stands,
    attempts: Attempts,
    /// Looked at when this is reached; `None` = nothing will happen by itself.
    due: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenNode {
    uid: String,
    /// Those of its annotations that go along.
    annotations: BTreeMap<String, String>,
}

/// What the agent said last of CPUs.
#[derive(Debug, Default)]
enum Reported {
    /// Nothing.
    #[default]
    Unknown,
    Cpus(ReportedTopology),
    /// That it sees none.
    NoneSince(Duration),
}

/// What is known of the object.
#[derive(Debug, Default)]
enum Stands {
    /// There is none of the controller's.
    #[default]
    None,
    /// There may be one of the controller's.
    Maybe,
    /// It was this, and is looked at again then.
    As(Box<Wanted>, Duration),
    /// Another program keeps it, or there can be none; looked at again then.
    AnOthers(Duration),
}

impl Topologies {
    pub(super) fn new(what: NodeTopology) -> Self {
        Self { what, nodes: BTreeMap::new(), listing: Attempts::default(), is_listed: false, listed_nodes: None }
    }

    /// Begins to act: another controller may have acted meanwhile.
    pub(super) fn begin(&mut self) {
        self.is_listed = false;
        for entry in self.nodes.values_mut() {
            (entry.stands, entry.due) = (Stands::None, Some(Duration::ZERO));
        }
    }

    /// Takes what the watch of Nodes brings.
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
        // Most news of a Node are its heartbeats.
        if entry.node == node {
            return;
        }
        if entry.node.is_some() && entry.node.as_ref().map(|node| &node.uid) != node.as_ref().map(|node| &node.uid) {
            // The object goes with its Node.
            entry.stands = Stands::None;
        }
        (entry.node, entry.due) = (node, Some(now));
        self.forget_if_empty(name);
    }

    /// Takes what the watch of reports brings. One that is gone or cannot be read says nothing: its agent still sees CPUs, and writes it anew.
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

    /// What is to be done now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Job> {
        if !self.is_listed {
            let is_due = self.listing.is_free(now);
            self.listing.is_under_way |= is_due;
            return is_due.then_some(Job::List).into_iter().collect();
        }
        let due = self.nodes.iter_mut().filter(|(_, entry)| entry.due.is_some_and(|due| due <= now));
        due.filter_map(|(node, entry)| entry.look(self.what, node, now)).collect()
    }

    /// Takes back a job that was not begun.
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

    /// Takes what became of a job. The node whose object was made, if one was.
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
                // A write of which nothing was heard may have been carried out.
                if !matches!(entry.stands, Stands::AnOthers(_)) {
                    entry.stands = Stands::Maybe;
                }
                None
            }
        }
    }
}

impl Entry {
    /// Says what is to be done, and when to look again.
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

/// What a report says of CPUs; `None` = nothing: it cannot be read, or a policy is only on its way.
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
