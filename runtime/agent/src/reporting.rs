//! Reporting: metrics, events for pods' owners, this node's report, and configuration problems. It reads the other parts of the agent and
//! changes none of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp as Moment;
use qosm_cluster::Outbox;
use qosm_cluster::node_report::{ReportedCapabilities, ReportedTopology};
use qosm_confinement::Landlock;
use qosm_model::cpu_topology::CpuTopology;
use qosm_model::knob::Target;
use qosm_model::pod::{Pod, PodId};
use qosm_model::problem::Problem;

use crate::decision_log::DecisionLog;
use crate::event::{AgentEvent, Events};
use crate::ledger::{Applied, Notice};
use crate::metrics::Metrics;
use crate::now::Now;
use crate::report::view::View;
use crate::table::PodTable;

/// Where reports go, and what was reported already.
pub(crate) struct Reporting {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    /// Receives events of pods and the node's report; `None` outside Kubernetes.
    pub(crate) outbox: Option<Outbox>,
    /// Receives each decision; `None` if no decision log is configured.
    pub(crate) decision_log: Option<DecisionLog>,
    /// Pods and policies for which an event `PolicyApplied` was sent.
    pub(crate) applied_events: BTreeSet<(PodId, String)>,
    pub(crate) problems: BTreeSet<Problem>,
    pub(crate) capabilities: Option<ReportedCapabilities>,
    /// CPUs as policies last saw them, and what the node's report says of them.
    pub(crate) topology: Option<(CpuTopology, ReportedTopology)>,
    /// Whether the node was ready when last reported, and since when.
    pub(crate) ready: Option<(bool, Moment)>,
    /// What must arrive before the agent may act; `None` if nothing is missing.
    pub(crate) waits_for: Option<String>,
    /// Result of Landlock at the start.
    pub(crate) landlock: Landlock,
}

impl Reporting {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            events: Events::default(),
            outbox: None,
            decision_log: None,
            applied_events: BTreeSet::new(),
            problems: BTreeSet::new(),
            capabilities: None,
            topology: None,
            ready: None,
            waits_for: None,
            landlock: Landlock::NotAsked,
        }
    }

    /// Records an event, and publishes it unless an equal one was published lately.
    pub(crate) fn emit(&mut self, pods: &PodTable, event: AgentEvent, now: Now, events: &mut Vec<AgentEvent>) {
        self.emit_about(pods, event, None, now, events);
    }

    /// As [`Self::emit`], for a pod that may not be in the table.
    pub(crate) fn emit_about(
        &mut self,
        pods: &PodTable,
        event: AgentEvent,
        pod: Option<&Pod>,
        now: Now,
        events: &mut Vec<AgentEvent>,
    ) {
        if self.events.record(event.clone(), now.wall) {
            self.metrics.event(event.kind);
            let entry = event.id.and_then(|id| pods.get(id));
            if let Some(outbox) = &self.outbox
                && let Some(pod) = pod.or(entry.map(|entry| &entry.pod))
                && !outbox.send(event.addressed_to(pod))
            {
                tracing::debug!(pod = event.pod, reason = event.reason, "too many events wait; not published");
            }
            events.push(event);
        }
    }

    /// Sends the ledger's notices to the owners of pods.
    pub(crate) fn send_notices(
        &mut self,
        pods: &PodTable,
        notices: Vec<Notice>,
        now: Now,
        events: &mut Vec<AgentEvent>,
    ) {
        for Notice { pod, id, reason, message } in notices {
            let event = AgentEvent {
                pod,
                kind: "Warning",
                reason: reason.to_owned(),
                message,
                source: "agent".to_owned(),
                count: 1,
                last_millis: now.wall.0,
                id,
            };
            self.emit(pods, event, now, events);
        }
    }

    /// Sends a notice to the owner of the pod that a target is or belongs to, outside a step.
    pub(crate) fn send_notice(
        &mut self,
        pods: &PodTable,
        target: Target,
        reason: &'static str,
        message: String,
        now: Now,
    ) {
        let mut applied = Applied::default();
        applied.notify(pods, target, reason, message);
        self.send_notices(pods, applied.notices, now, &mut Vec::new());
    }

    /// Forgets what was reported for a pod that is gone.
    pub(crate) fn forget_pod(&mut self, pod: PodId) {
        self.events.forget(pod);
        self.applied_events.retain(|(known, _)| *known != pod);
    }

    /// Whether the agent is ready: the answer to a readiness probe. In Kubernetes a failing policy is reported by the node's report and
    /// not here: one bad PolicyModule would make every agent unready, and block the update that corrects it.
    pub(crate) fn readiness(&self, view: &View<'_>) -> Result<(), String> {
        match (&self.outbox, &self.waits_for, view.ledger.journal_error()) {
            (None, ..) => self.health(view),
            (_, Some(missing), _) => Err(format!("waiting for {missing}")),
            (.., Some(error)) => Err(error.to_owned()),
            (Some(_), None, None) => Ok(()),
        }
    }

    /// Whether everything works, for a health endpoint, or why not. A failing shadow does not count.
    pub(crate) fn health(&self, view: &View<'_>) -> Result<(), String> {
        if let Some(missing) = &self.waits_for {
            return Err(format!("waiting for {missing}"));
        }
        if let Some(error) = view.ledger.journal_error() {
            return Err(error.to_owned());
        }
        view.policies.ailment().map_or(Ok(()), Err)
    }
}
