//! The loop's queue of writes to the API server. The loop never waits: writes that the API server does not
//! accept in time are dropped or replaced.

use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::node_report::NodePolicyReportStatus;

/// Maximum number of queued events; later events are not published, only shown by the agent.
const WAITING_EVENTS: usize = 256;
/// Places in the queue that are reserved for warnings: an agent that starts on a full node has many normal events at once.
const RESERVED_FOR_WARNINGS: usize = WAITING_EVENTS / 4;

/// One event for a pod's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID; for a static pod the UID in its cgroup's name, by which `kubectl describe` finds events.
    pub uid: String,
    /// Whether the event's type is `Warning` rather than `Normal`.
    pub is_warning: bool,
    /// The reason: one word in camel case.
    pub reason: String,
    /// The message: one sentence.
    pub message: String,
    /// Name of the policy that raised the event, or `agent`.
    pub source: String,
}

/// Sender of events and of this node's report. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbox {
    events: mpsc::Sender<PodEvent>,
    report: watch::Sender<Option<Reported>>,
    final_report: mpsc::Sender<FinalReport>,
}

/// A node's report, and when the loop last sent one.
pub(super) type Reported = (NodePolicyReportStatus, Timestamp);
/// A node's last report, and a channel that confirms the write.
pub(super) type FinalReport = (NodePolicyReportStatus, SyncSender<()>);

/// The other end of an [`Outbox`].
pub(super) struct Inbox {
    pub(super) events: mpsc::Receiver<PodEvent>,
    pub(super) report: watch::Receiver<Option<Reported>>,
    pub(super) final_report: mpsc::Receiver<FinalReport>,
}

pub(super) fn new() -> (Outbox, Inbox) {
    let (events, received) = mpsc::channel(WAITING_EVENTS);
    let (report, newest) = watch::channel(None);
    let (final_report, last) = mpsc::channel(1);
    (Outbox { events, report, final_report }, Inbox { events: received, report: newest, final_report: last })
}

impl Outbox {
    /// Queues an event for a pod's owner. Returns `false` if the queue is full.
    pub fn send(&self, event: PodEvent) -> bool {
        let is_full = !event.is_warning && self.events.capacity() <= RESERVED_FOR_WARNINGS;
        !is_full && self.events.try_send(event).is_ok()
    }

    /// Replaces the content of this node's report. The report's time is that of the newest call, whether or not the content
    /// changed: a hanging loop must not look alive because the writing thread is alive.
    #[expect(
        clippy::disallowed_methods,
        reason = "a report says when it was made; the end waits for it, and not for long"
    )]
    pub fn report(&self, report: NodePolicyReportStatus) {
        self.report.send_if_modified(|latest| {
            let changed = latest.as_ref().is_none_or(|(previous, _)| *previous != report);
            *latest = Some((report, Timestamp::now()));
            changed
        });
    }

    /// Writes the queued events and a final report, and waits for them up to `within`. The agent ends whether or not the writes succeeded.
    #[expect(
        clippy::disallowed_methods,
        reason = "a report says when it was made; the end waits for it, and not for long"
    )]
    pub fn send_final_report(&self, report: NodePolicyReportStatus, within: Duration) {
        let (begun, pause) = (Instant::now(), Duration::from_millis(10));
        while self.events.capacity() < WAITING_EVENTS && begun.elapsed() < within / 2 {
            std::thread::sleep(pause);
        }
        let (written, wait) = std::sync::mpsc::sync_channel(1);
        if self.final_report.try_send((report, written)).is_ok() {
            wait.recv_timeout(within.saturating_sub(begun.elapsed())).ok();
        }
    }
}
