//! What goes to the API server. The loop puts it here and goes on; what the API server does not take in time is dropped or replaced.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::node_report::NodePolicyReportStatus;

/// So many events wait while the API server is away; what comes after them is told to those who ask the agent, and nobody else.
const WAITING_EVENTS: usize = 256;
/// So many of them are kept free for warnings: when an agent begins on a full node there is much good news at once.
const KEPT_FOR_WARNINGS: usize = WAITING_EVENTS / 4;

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
    report: watch::Sender<Option<Reported>>,
    farewell: mpsc::Sender<Farewell>,
}

/// What a node's report is to say, and when the loop said so.
pub(super) type Reported = (NodePolicyReportStatus, Timestamp);
/// A node's last report, and who waits until it is written.
pub(super) type Farewell = (NodePolicyReportStatus, SyncSender<()>);

/// The other end of an [`Outbox`].
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<PodEvent>,
    pub(super) report: watch::Receiver<Option<Reported>>,
    pub(super) farewell: mpsc::Receiver<Farewell>,
}

pub(super) fn new() -> (Outbox, Inbox) {
    let (events, received) = mpsc::channel(WAITING_EVENTS);
    let (report, newest) = watch::channel(None);
    let (farewell, last) = mpsc::channel(1);
    (Outbox { events, report, farewell }, Inbox { events: received, report: newest, farewell: last })
}

impl Outbox {
    /// Tells a pod's owner. `false` if too many events wait already.
    pub fn tell(&self, event: PodEvent) -> bool {
        let is_crowded = !event.is_warning && self.events.capacity() <= KEPT_FOR_WARNINGS;
        !is_crowded && self.events.try_send(event).is_ok()
    }

    /// Replaces what this node's report is to say. Its moment is that of the newest call, whether or not it says anything new: a
    /// loop that stands still cannot hide behind the thread that writes.
    pub fn report(&self, report: NodePolicyReportStatus) {
        self.report.send_if_modified(|kept| {
            let changed = kept.as_ref().is_none_or(|(said, _)| *said != report);
            *kept = Some((report, Timestamp::now()));
            changed
        });
    }

    /// Writes what waits and a last report, and waits for that at most so long. The agent ends whether or not it was written.
    pub fn close(&self, report: NodePolicyReportStatus, within: Duration) {
        let (begun, pause) = (Instant::now(), Duration::from_millis(10));
        while self.events.capacity() < WAITING_EVENTS && begun.elapsed() < within / 2 {
            std::thread::sleep(pause);
        }
        let (written, wait) = std::sync::mpsc::sync_channel(1);
        if self.farewell.try_send((report, written)).is_ok() {
            wait.recv_timeout(within.saturating_sub(begun.elapsed())).ok();
        }
    }
}
