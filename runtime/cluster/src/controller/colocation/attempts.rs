//! Back-off of retried requests, and the state of each eviction.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Now;
use crate::node_report::{EvictionAnswer, EvictionOutcome};

/// First pauses after a failed write and after a refused eviction; each further failure doubles them, up to `MAX_PAUSE`.
pub(in super::super) const AFTER_FAILURE: Duration = Duration::from_secs(1);
pub(super) const AFTER_REFUSAL: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Interval between checks whether an evicted pod is gone.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How an attempt to evict a pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Ended {
    Accepted(String),
    Gone(String),
    /// Refused for now: retried.
    Refused(String),
    /// Refused for good: a retry would end the same.
    RefusedForGood(String),
}

/// The state of a request that is retried until it succeeds.
#[derive(Debug, Default)]
pub(in super::super) struct Attempts {
    pub(in super::super) is_under_way: bool,
    pub(in super::super) not_before: Duration,
    pub(in super::super) pause: Duration,
    pub(in super::super) error: Option<String>,
}

impl Attempts {
    pub(in super::super) fn is_free(&self, now: Duration) -> bool {
        !self.is_under_way && now >= self.not_before
    }

    pub(in super::super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(in super::super) fn failed(&mut self, error: String, first: Duration, now: Duration) {
        let pause = (self.pause * 2).clamp(first, MAX_PAUSE);
        *self = Self { is_under_way: false, not_before: now + pause, pause, error: Some(error) };
    }
}

#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) attempts: Attempts,
    pub(super) answer: Option<EvictionAnswer>,
    /// Whether the eviction waits for room in a budget.
    pub(super) is_held: bool,
    pub(super) is_final: bool,
}

impl Attempt {
    pub(super) fn ended(&mut self, node: &str, uid: String, ended: Ended, now: Now) {
        let (outcome, message) = match &ended {
            Ended::Accepted(message) => (EvictionOutcome::Accepted, message),
            Ended::Gone(message) => (EvictionOutcome::Gone, message),
            Ended::Refused(message) | Ended::RefusedForGood(message) => (EvictionOutcome::Refused, message),
        };
        tracing::info!(node, uid, ?outcome, message, "eviction");
        self.is_final = matches!(ended, Ended::Gone(_) | Ended::RefusedForGood(_));
        let message = message.clone();
        match ended {
            Ended::Refused(_) => self.attempts.failed(message.clone(), AFTER_REFUSAL, now.running),
            _ => self.attempts = Attempts { not_before: now.running + LOOK_INTERVAL, ..Attempts::default() },
        }
        self.answer(uid, outcome, message, now.server);
    }

    /// Sets the answer. An unchanged outcome keeps its time.
    pub(super) fn answer(&mut self, uid: String, outcome: EvictionOutcome, message: String, at: Timestamp) {
        let same = self.answer.as_ref().filter(|known| known.outcome == outcome);
        let at = same.and_then(|known| known.at.clone()).unwrap_or(Time(at));
        self.answer = Some(EvictionAnswer { uid, outcome, message, at: Some(at) });
    }
}
