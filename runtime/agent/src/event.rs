//! Events for the owners of pods, emitted by modules and by the agent. Equal events are counted, and the oldest are dropped.

use std::collections::VecDeque;

use qosm_cluster::kubernetes::PodEvent;
use qosm_model::lease::Timestamp;
use qosm_model::pod::{Pod, PodId};
use qosm_model::setting::EventKind;
use serde::Serialize;

/// The reason of events about configuration that cannot be used.
pub(crate) const INVALID: &str = "InvalidConfiguration";
/// Maximum number of different events that are kept.
const KEPT: usize = 1024;
/// Age in milliseconds after which an equal event is sent again: the same mistake, made a second time.
const FORGOTTEN: i64 = 600_000;

/// One event, as `qosm get events` and a replay show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEvent {
    /// `namespace/name` of the pod; `tier NAME` for an event about a tier.
    pub pod: String,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Policy or part of the agent that it comes from.
    pub source: String,
    /// How often it was emitted.
    pub count: u64,
    /// When it was emitted last, in milliseconds since the epoch.
    pub last_millis: i64,
    #[serde(skip)]
    pub(crate) id: Option<PodId>,
}

impl AgentEvent {
    pub(crate) fn kind(kind: EventKind) -> &'static str {
        match kind {
            EventKind::Normal => "Normal",
            EventKind::Warning => "Warning",
        }
    }

    /// The event as it goes to the API server.
    pub(crate) fn addressed_to(&self, pod: &Pod) -> PodEvent {
        PodEvent {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            is_warning: self.kind == Self::kind(EventKind::Warning),
            reason: self.reason.clone(),
            message: self.message.clone(),
            source: self.source.clone(),
        }
    }
}

/// The events that are kept.
#[derive(Debug, Default)]
pub(crate) struct Events {
    kept: VecDeque<AgentEvent>,
}

impl Events {
    /// Records an event. Returns `true` if there was no equal event within the last 10 minutes.
    pub(crate) fn record(&mut self, event: AgentEvent, now: Timestamp) -> bool {
        let same = self.kept.iter_mut().find(|kept| {
            // A pod created again under its old name is a different pod, without events so far.
            kept.id == event.id
                && kept.pod == event.pod
                && kept.reason == event.reason
                && kept.message == event.message
                && kept.source == event.source
        });
        if let Some(kept) = same {
            kept.count += 1;
            let before = std::mem::replace(&mut kept.last_millis, now.0);
            return now.0.saturating_sub(before) > FORGOTTEN;
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(event);
        true
    }

    /// Detaches the events of a pod that is gone; they stay as history.
    pub(crate) fn forget(&mut self, pod: PodId) {
        for event in &mut self.kept {
            if event.id == Some(pod) {
                event.id = None;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AgentEvent> {
        self.kept.iter()
    }
}
