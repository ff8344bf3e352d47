//! Resources of the node and evictions, on the wire.

use std::collections::BTreeMap;
use std::fmt;

use qosm_model::node_resource::{Offer, ResourceName};
use serde::{Deserialize, Serialize};

/// A resource of the node that is, or would be, published anew, changed or withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDecision {
    /// Its name.
    pub name: String,
    /// The amount; missing if the resource is withdrawn.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub amount: Option<u64>,
    /// The amount by NUMA node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub zones: BTreeMap<u32, u64>,
    /// The amount before subtracting what other schedulers have given away of it; missing if nothing was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<u64>,
    /// The policy that publishes the resource.
    pub policy: String,
    /// Reason in the policy's words.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
}

impl ResourceDecision {
    pub(crate) fn new(name: &ResourceName, offer: Option<&Offer>, policy: &str, reason: &str) -> Self {
        Self {
            name: name.to_string(),
            amount: offer.map(|offer| offer.amount),
            zones: offer.map(|offer| offer.zones.clone()).unwrap_or_default(),
            origin: offer.and_then(|offer| offer.origin),
            policy: policy.to_owned(),
            reason: reason.to_owned(),
        }
    }
}

impl fmt::Display for ResourceDecision {
    /// `resource kubernetes.io/batch-cpu 12000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Some(amount) => write!(f, "resource {} {amount}", self.name)?,
            None => write!(f, "resource {} withdrawn", self.name)?,
        }
        self.zones.iter().try_for_each(|(zone, amount)| write!(f, ", zone {zone} {amount}"))
    }
}

/// A resource that a policy publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeResourceReport {
    /// Its name.
    pub name: String,
    /// The policy that publishes the resource.
    pub policy: String,
    /// The published amount.
    pub amount: u64,
    /// The amount by NUMA node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub zones: BTreeMap<u32, u64>,
    /// The amount before subtracting what other schedulers have given away of it; missing if nothing was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<u64>,
    /// The amount on the Node object, as last reported by the controller.
    pub on_node: u64,
    /// Whether the Node has the published amount.
    pub in_force: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// Reason in the policy's words.
    pub reason: String,
}

/// A request to evict a pod whose outcome changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionDecision {
    /// `namespace/name`.
    pub pod: String,
    /// `soon` or `now`.
    pub urgency: String,
    /// Seconds between SIGTERM and SIGKILL; the pod's own grace period applies if missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub grace_period_seconds: Option<u32>,
    /// The policy that asks for the eviction.
    pub policy: String,
    /// Reason in one word.
    pub reason: String,
    /// Reason in a sentence.
    pub message: String,
    /// `pending`, `accepted`, `refused`, `gone` or `killed`.
    pub outcome: String,
    /// Reason for the outcome.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

impl fmt::Display for EvictionDecision {
    /// `eviction of batch/job (now) by policy eviction is pending`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eviction of {} ({}) by policy {} is {}", self.pod, self.urgency, self.policy, self.outcome)
    }
}

/// A request to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionReport {
    /// The pod's UID.
    pub uid: String,
    /// When it was asked for (RFC 3339).
    pub since: String,
    /// The request and its outcome.
    #[serde(flatten)]
    pub decision: EvictionDecision,
}
