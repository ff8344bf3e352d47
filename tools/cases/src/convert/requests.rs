//! Resources of the node and evictions.

use qosm_model::eviction::{Eviction, EvictionOutcome, EvictionState, Urgency};
use qosm_model::node_resource::{Offer, ResourceState};
use qosm_model::pod::PodId;
use qosm_model::unit::Micros;
use qosm_sdk::mock;

/// The states of resources. A name that is not valid for a resource cannot be one that the policy published.
pub(super) fn resources(columns: &mock::Columns) -> impl Iterator<Item = ResourceState> {
    columns.resource_states.iter().filter_map(|state| {
        let (amount, in_force, why) = (state.amount, state.in_force, state.why.clone());
        Some(ResourceState { name: state.name.parse().ok()?, amount, in_force, why })
    })
}

/// The states of evictions.
pub(super) fn evictions(columns: &mock::Columns) -> impl Iterator<Item = EvictionState> {
    columns.evictions.iter().map(|state| EvictionState {
        uid: state.pod_uid.clone(),
        outcome: match state.outcome {
            qosm_sdk::EvictionOutcome::Pending => EvictionOutcome::Pending,
            qosm_sdk::EvictionOutcome::Accepted => EvictionOutcome::Accepted,
            qosm_sdk::EvictionOutcome::Refused => EvictionOutcome::Refused,
            qosm_sdk::EvictionOutcome::Gone => EvictionOutcome::Gone,
            qosm_sdk::EvictionOutcome::Killed => EvictionOutcome::Killed,
        },
        why: state.why.clone(),
        age: Micros(state.age_msec.saturating_mul(1000)),
    })
}

pub(super) fn offer(offer: Offer) -> qosm_sdk::Offer {
    let zone = |(zone, amount)| qosm_sdk::ZoneShare { zone, amount };
    qosm_sdk::Offer { amount: offer.amount, zones: offer.zones.into_iter().map(zone).collect(), origin: offer.origin }
}

pub(super) fn eviction(wanted: Eviction) -> mock::EvictionRequest {
    mock::EvictionRequest {
        pod: wanted.pod.0,
        urgency: Some(match wanted.urgency {
            Urgency::Soon => qosm_sdk::Urgency::Soon,
            Urgency::Now => qosm_sdk::Urgency::Now,
        }),
        grace_period_sec: wanted.grace_period,
        reason: wanted.reason,
        message: wanted.message,
    }
}

pub(super) fn withdrawal(pod: PodId) -> mock::EvictionRequest {
    let (reason, message) = (String::new(), String::new());
    mock::EvictionRequest { pod: pod.0, urgency: None, grace_period_sec: None, reason, message }
}
