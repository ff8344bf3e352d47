//! What goes to the API server. The loop puts it here and goes on; what the API server does not take in time is dropped or replaced.

use tokio::sync::{mpsc, watch};

use crate::node_report::NodePolicyReportStatus;

/// So many events wait while the API server is away. Pods' owners are told of what is true then, not of all that was.
const WAITING_EVENTS: usize = 256;

/// One event for a pod's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; of a static pod the one that its cgroup is named after, by which `kubectl describe` looks for events.
    pub uid: String,
    /// `Warning` rather than `Normal`.
    pub is_warning: bool,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The policy that it comes from, or `agent`.
    pub source: String,
}

/// Where events and this node's report are put. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    events: mpsc::Sender<PodEvent>,
    report: watch::Sender<Option<NodePolicyReportStatus>>,
}

pub(super) type Inbox = (mpsc::Receiver<PodEvent>, watch::Receiver<Option<NodePolicyReportStatus>>);

pub(super) fn new() -> (Outbox, Inbox) {
    let (events, received) = mpsc::channel(WAITING_EVENTS);
    let (report, newest) = watch::channel(None);
    (Outbox { events, report }, (received, newest))
}

impl Outbox {
    /// Tells a pod's owner. `false` if too many events wait already.
    pub fn tell(&self, event: PodEvent) -> bool {
        self.events.try_send(event).is_ok()
    }

    /// Replaces what this node's report is to say.
    pub fn report(&self, report: NodePolicyReportStatus) {
        self.report.send_if_modified(|kept| {
            let changed = kept.as_ref() != Some(&report);
            *kept = Some(report);
            changed
        });
    }
}
