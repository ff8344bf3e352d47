//! Eviction requests in the journal, so that the next agent does not repeat them.

use std::collections::BTreeMap;

use qosm_model::eviction::Urgency;
use qosm_model::lease::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Budget, Evictions, Phase, Request};
use crate::now::Now;

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stored {
    requests: BTreeMap<String, StoredRequest>,
    /// When evictions were let through, in milliseconds since 1970.
    spent: Vec<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRequest {
    policies: Vec<String>,
    namespace: String,
    name: String,
    is_urgent: bool,
    grace_period: Option<u32>,
    reason: String,
    message: String,
    asked: i64,
    phase: StoredPhase,
    /// Whether the request is no longer passed to the controller.
    #[serde(default)]
    is_dropped: bool,
    /// Sequence number of the request.
    #[serde(default)]
    number: u64,
    why: String,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredPhase {
    Barred,
    Queued,
    Pending,
    Held,
    Accepted,
    Refused,
    Lapsed,
    Ending,
    Killed,
    Gone,
}

pub(super) fn saved(evictions: &Evictions) -> Vec<u8> {
    let stored = |request: &Request| StoredRequest {
        policies: request.policies.iter().map(ToString::to_string).collect(),
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        is_urgent: request.urgency == Urgency::Now,
        grace_period: request.grace_period,
        reason: request.reason.clone(),
        message: request.message.clone(),
        asked: request.asked.0,
        phase: match request.phase {
            Phase::Barred => StoredPhase::Barred,
            Phase::Queued => StoredPhase::Queued,
            Phase::Pending => StoredPhase::Pending,
            Phase::Held => StoredPhase::Held,
            Phase::Accepted => StoredPhase::Accepted,
            Phase::Refused => StoredPhase::Refused,
            Phase::Lapsed => StoredPhase::Lapsed,
            Phase::Ending { .. } => StoredPhase::Ending,
            Phase::Killed => StoredPhase::Killed,
            Phase::Gone => StoredPhase::Gone,
        },
        is_dropped: request.is_dropped,
        number: request.number,
        why: request.why.clone(),
    };
    let requests = evictions.requests.iter().map(|(uid, request)| (uid.clone(), stored(request))).collect();
    let spent = evictions.budget.0.iter().map(|at| at.0).collect();
    serde_json::to_vec(&Stored { requests, spent }).unwrap_or_default()
}

pub(super) fn restore(evictions: &mut Evictions, saved: &[u8], now: Now) {
    let stored: Stored = match serde_json::from_slice(saved) {
        Ok(stored) => stored,
        Err(error) => {
            tracing::warn!(%error, "evictions that an earlier agent asked for cannot be read");
            return;
        }
    };
    evictions.budget = Budget(stored.spent.into_iter().map(Timestamp).collect());
    evictions.is_restored = true;
    for (uid, stored) in stored.requests {
        evictions.numbers = evictions.numbers.max(stored.number);
        let request = Request {
            policies: stored.policies.into_iter().map(Into::into).collect(),
            namespace: stored.namespace,
            name: stored.name,
            number: stored.number,
            urgency: if stored.is_urgent { Urgency::Now } else { Urgency::Soon },
            grace_period: stored.grace_period,
            reason: stored.reason,
            message: stored.message,
            asked: Timestamp(stored.asked),
            asked_at: now.monotonic,
            phase: match stored.phase {
                StoredPhase::Barred => Phase::Barred,
                StoredPhase::Queued => Phase::Queued,
                StoredPhase::Pending => Phase::Pending,
                StoredPhase::Held => Phase::Held,
                StoredPhase::Accepted => Phase::Accepted,
                StoredPhase::Refused => Phase::Refused,
                StoredPhase::Lapsed => Phase::Lapsed,
                // The deadline is not stored, and the processes were sent SIGTERM already.
                StoredPhase::Ending => Phase::Ending { kill_at: now.monotonic },
                StoredPhase::Killed => Phase::Killed,
                StoredPhase::Gone => Phase::Gone,
            },
            since: now.monotonic,
            is_dropped: stored.is_dropped,
            why: stored.why,
        };
        evictions.requests.insert(uid, request);
    }
}
