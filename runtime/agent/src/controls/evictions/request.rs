//! One eviction request and its phases.

use std::sync::Arc;

use qosm_cluster::node_report::{self, EvictionAnswer};
use qosm_model::eviction::{EvictionOutcome, Urgency};
use qosm_model::knob::Target;
use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;

use super::rails::{Budget, forbidden};
use crate::inputs::Inputs;
use crate::ledger::Notice;
use crate::now::Now;
use crate::report::{EvictionDecision, EvictionReport, moment};
use crate::table::{Access, PodEntry};

/// How long a request stays valid if it is not carried out.
pub(super) const STANDS: Micros = Micros(300_000_000);

/// Phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The guard rails have not let it through.
    Barred,
    /// It waits for room in this node's budget.
    Queued,
    /// It waits for the controller.
    Pending,
    /// The controller has it, and waits for room in its own budgets.
    Held,
    /// The API server accepted the eviction.
    Accepted,
    /// The controller refuses it, and tries again.
    Refused,
    /// It was not carried out in time.
    Lapsed,
    /// The agent has sent SIGTERM to the processes, and kills them at `kill_at` of the monotonic clock.
    Ending { kill_at: Micros },
    /// The agent has killed the processes.
    Killed,
    /// The pod is gone.
    Gone,
}

impl Phase {
    pub(super) fn outcome(self) -> EvictionOutcome {
        match self {
            Self::Queued | Self::Pending | Self::Held => EvictionOutcome::Pending,
            Self::Accepted => EvictionOutcome::Accepted,
            Self::Barred | Self::Refused | Self::Lapsed => EvictionOutcome::Refused,
            Self::Ending { .. } | Self::Killed => EvictionOutcome::Killed,
            Self::Gone => EvictionOutcome::Gone,
        }
    }

    /// Whether the eviction is not done and may still be done.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Barred | Self::Queued | Self::Pending | Self::Held | Self::Refused)
    }

    /// Whether a policy may make the request again.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Lapsed)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The policies that made this request, the first one first.
    pub(super) policies: Vec<Arc<str>>,
    pub(super) namespace: String,
    pub(super) name: String,
    /// Sequence number: of equally urgent requests, the lowest is let through first.
    pub(super) number: u64,
    pub(super) urgency: Urgency,
    pub(super) grace_period: Option<u32>,
    pub(super) reason: String,
    pub(super) message: String,
    /// When the request was made, by the wall clock.
    pub(super) asked: Timestamp,
    /// When it began to wait, by the monotonic clock.
    pub(super) asked_at: Micros,
    pub(super) phase: Phase,
    /// When it entered this phase.
    pub(super) since: Micros,
    /// Whether the request is no longer passed to the controller.
    pub(super) is_dropped: bool,
    pub(super) why: String,
}

impl Request {
    pub(super) fn policy(&self) -> String {
        self.policies.first().map(ToString::to_string).unwrap_or_default()
    }

    pub(super) fn enter(&mut self, phase: Phase, why: String, now: Now) {
        if self.phase != phase {
            (self.phase, self.since) = (phase, now.monotonic);
        }
        self.why = why;
    }

    /// Whether the request is in the node's report. The kubelet may start a pod again that was ended locally, so the controller is still
    /// asked to evict it.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Held | Phase::Refused | Phase::Killed) && !self.is_dropped
    }

    /// Moves the request to its next phase, without acting on the pod.
    pub(super) fn go_on(
        &mut self,
        entry: &PodEntry,
        budget: &mut Budget,
        inputs: &Inputs<'_>,
        answer: Option<&EvictionAnswer>,
    ) {
        let now = inputs.now;
        let stands = elapsed(self.asked_at, now) < STANDS;
        match self.phase {
            Phase::Barred | Phase::Queued => {
                let rails = &inputs.config.guard_rails;
                let barred = self.barred(entry, inputs).map(|why| (Phase::Barred, why));
                match barred.or_else(|| budget.exhausted(rails, now.wall)) {
                    Some(_) if !stands => self.enter(Phase::Lapsed, format!("{}; it lapsed", self.why), now),
                    Some((phase, why)) => self.enter(phase, why, now),
                    None => {
                        budget.spend(now.wall);
                        self.asked_at = now.monotonic;
                        self.enter(Phase::Pending, "the controller has not answered yet".to_owned(), now);
                    }
                }
            }
            Phase::Killed => {
                use node_report::EvictionOutcome::{Accepted, Gone};
                let leaves = answer.is_some_and(|answer| matches!(answer.outcome, Accepted | Gone));
                self.is_dropped |= !stands || leaves;
            }
            Phase::Pending | Phase::Held | Phase::Refused => match answer.map(|answer| answer.outcome) {
                Some(node_report::EvictionOutcome::Accepted) => {
                    let why = answer.map(|answer| answer.message.clone()).unwrap_or_default();
                    let why = if why.is_empty() { "the API server took it".to_owned() } else { why };
                    self.enter(Phase::Accepted, why, now);
                }
                Some(node_report::EvictionOutcome::Gone) => {
                    self.enter(Phase::Gone, "the controller finds no such pod".to_owned(), now);
                }
                _ if !stands => {
                    self.enter(Phase::Lapsed, format!("{}; it lapsed after 5 minutes", self.why), now);
                }
                Some(outcome @ (node_report::EvictionOutcome::Pending | node_report::EvictionOutcome::Refused)) => {
                    let why = answer.map(|answer| answer.message.clone()).unwrap_or_default();
                    let is_held = outcome == node_report::EvictionOutcome::Pending;
                    self.enter(if is_held { Phase::Held } else { Phase::Refused }, why, now);
                }
                None => {}
            },
            Phase::Accepted | Phase::Lapsed | Phase::Ending { .. } | Phase::Gone => {}
        }
    }

    /// The rule that forbids evicting the pod, budgets aside.
    pub(super) fn barred(&self, entry: &PodEntry, inputs: &Inputs<'_>) -> Option<String> {
        let may_act = |policy: &Arc<str>| {
            inputs.policies.out_of_reach(policy, inputs.pods, Target::Pod(entry.id)).map_or(Ok(()), Err)
        };
        let out_of_reach = || self.policies.iter().map(may_act).find_map(Result::err).map(|why| why.to_string());
        let paused = || (entry.access == Access::Paused).then(|| "the pod is paused".to_owned());
        forbidden(&entry.pod, &inputs.config.guard_rails).or_else(paused).or_else(out_of_reach)
    }

    /// Whether the agent has to end the pod itself.
    pub(super) fn is_due(&self, inputs: &Inputs<'_>) -> bool {
        match self.phase {
            Phase::Ending { kill_at } => inputs.now.monotonic >= kill_at,
            Phase::Pending if !inputs.has_api_server => true,
            Phase::Pending if self.urgency == Urgency::Now => {
                let after = inputs.config.guard_rails.evictions.local_after_seconds;
                after.is_some_and(|after| elapsed(self.asked_at, inputs.now).0 >= u64::from(after) * 1_000_000)
            }
            _ => false,
        }
    }

    pub(super) fn notice(&self, entry: &PodEntry, reason: &'static str) -> Notice {
        Notice { pod: entry.pod.key(), id: Some(entry.id), reason, message: format!("{}; {}", self.message, self.why) }
    }

    pub(super) fn decision(&self) -> EvictionDecision {
        EvictionDecision {
            pod: format!("{}/{}", self.namespace, self.name),
            urgency: self.urgency.as_str().to_owned(),
            grace_period_seconds: self.grace_period,
            policy: self.policy(),
            reason: self.reason.clone(),
            message: self.message.clone(),
            outcome: self.phase.outcome().as_str().to_owned(),
            why: self.why.clone(),
        }
    }

    pub(super) fn report(&self, uid: &str) -> EvictionReport {
        EvictionReport { uid: uid.to_owned(), since: moment(self.asked), decision: self.decision() }
    }
}

pub(super) fn elapsed(since: Micros, now: Now) -> Micros {
    Micros(now.monotonic.0.saturating_sub(since.0))
}
