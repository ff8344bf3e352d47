//! Conversion of the node's resources and of evictions between the contract's types and the model's.

use qosm_model::eviction::{EvictionOutcome, EvictionState};
use qosm_model::foreign;
use qosm_model::node_resource::{NotAResourceName, Offer, ResourceName, ResourceState};

use crate::bindings::qosm::policy::{eviction as evictions, node_resource};
use crate::error::Rule;
use crate::staging::MAX_ZONES;

/// Parses the name of a resource.
pub(crate) fn name(text: &str) -> Result<ResourceName, Rule> {
    text.parse()
        .map_err(|why: NotAResourceName| Rule::Resource { name: foreign::name(text).to_string(), why: why.to_string() })
}

/// Converts an offer and checks it.
pub(crate) fn offer(name: &ResourceName, offer: &node_resource::Offer) -> Result<Offer, Rule> {
    checked(name, offer.amount, offer.zones.iter().map(|share| (share.zone, share.amount)), offer.origin)
}

/// Checks that Kubernetes can express an offer.
pub(crate) fn checked(
    name: &ResourceName,
    amount: u64,
    zones: impl ExactSizeIterator<Item = (u32, u64)>,
    origin: Option<u64>,
) -> Result<Offer, Rule> {
    let refused = |why: String| Rule::Resource { name: name.to_string(), why };
    if zones.len() > MAX_ZONES {
        return Err(refused(format!("it has shares of {} NUMA nodes, and {MAX_ZONES} are allowed", zones.len())));
    }
    let mut offer = Offer { amount, origin, ..Offer::default() };
    for (zone, share) in zones {
        if offer.zones.insert(zone, share).is_some() {
            return Err(refused(format!("it has two shares of NUMA node {zone}; give one")));
        }
    }
    let amounts = [amount].into_iter().chain(offer.zones.values().copied()).chain(origin);
    match amounts.into_iter().find(|amount| i64::try_from(*amount).is_err()) {
        Some(amount) => Err(refused(format!("{amount} is more than Kubernetes counts; give at most {}", i64::MAX))),
        None => Ok(offer),
    }
}

/// Converts the state of a published resource.
pub(crate) fn state(state: &ResourceState) -> node_resource::State {
    node_resource::State {
        name: state.name.to_string(),
        amount: state.amount,
        in_force: state.in_force,
        why: state.why.clone(),
    }
}

/// Converts the state of an eviction.
pub(crate) fn eviction(state: &EvictionState) -> evictions::State {
    evictions::State {
        pod_uid: state.uid.clone(),
        outcome: match state.outcome {
            EvictionOutcome::Pending => evictions::Outcome::Pending,
            EvictionOutcome::Accepted => evictions::Outcome::Accepted,
            EvictionOutcome::Refused => evictions::Outcome::Refused,
            EvictionOutcome::Gone => evictions::Outcome::Gone,
            EvictionOutcome::Killed => evictions::Outcome::Killed,
        },
        why: state.why.clone(),
        age_msec: state.age.0 / 1000,
    }
}
