//! States of the resources that the policy publishes, and of its evictions.

use std::collections::BTreeMap;

use qosm_model::eviction::EvictionState;
use qosm_model::node_resource::ResourceState;

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceRow<'a> {
    amount: u64,
    in_force: bool,
    why: &'a str,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvictionRow<'a> {
    outcome: &'static str,
    why: &'a str,
    age_millis: u64,
}

/// States of resources by name.
pub(super) fn resources(states: &[ResourceState]) -> BTreeMap<&str, ResourceRow<'_>> {
    let row = |state| {
        let ResourceState { name, amount, in_force, why }: &ResourceState = state;
        (name.as_str(), ResourceRow { amount: *amount, in_force: *in_force, why })
    };
    states.iter().map(row).collect()
}

/// States of evictions by the pod's UID.
pub(super) fn evictions(states: &[EvictionState]) -> BTreeMap<&str, EvictionRow<'_>> {
    let row = |state| {
        let EvictionState { uid, outcome, why, age }: &EvictionState = state;
        (uid.as_str(), EvictionRow { outcome: outcome.as_str(), why, age_millis: age.0 / 1000 })
    };
    states.iter().map(row).collect()
}
