//! What a shadow would do, reported when it begins to want it.

use std::fmt;

use qosm_model::eviction::Eviction;
use qosm_model::knob::Knob;
use qosm_model::lease::Lease;
use qosm_model::node_resource::{Offer, ResourceName};
use serde::Serialize;

use super::WireValue;

/// Something that a shadow wants and did not want before. It does not take place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShadowDecision {
    /// The shadow.
    pub policy: String,
    /// What it would do.
    #[serde(flatten)]
    pub action: ShadowAction,
    /// Reason in the shadow's words; missing if it no longer wants something.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What a shadow would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "camelCase")]
pub enum ShadowAction {
    /// Set a knob, before guard rails and the kernel's own bounds.
    Set {
        /// A tier, a pod, or a pod's container.
        subject: String,
        /// The knob.
        knob: String,
        /// The value.
        value: WireValue,
    },
    /// Release a knob.
    Release {
        /// A tier, a pod, or a pod's container.
        subject: String,
        /// The knob.
        knob: String,
    },
    /// Publish a resource of the node, or change it.
    Publish {
        /// Its name.
        resource: String,
        /// The amount.
        amount: u64,
    },
    /// Withdraw a published resource.
    Withdraw {
        /// Its name.
        resource: String,
    },
    /// Have a pod evicted.
    Evict {
        /// `namespace/name`.
        pod: String,
        /// `soon` or `now`.
        urgency: &'static str,
        /// A sentence for the pod's owner.
        message: String,
    },
}

impl ShadowDecision {
    pub(crate) fn of_knob(policy: &str, subject: String, knob: Knob, lease: Option<&Lease>) -> Self {
        let knob = knob.to_string();
        let (action, reason) = match lease {
            Some(lease) => (ShadowAction::Set { subject, knob, value: lease.value.into() }, lease.reason.to_string()),
            None => (ShadowAction::Release { subject, knob }, String::new()),
        };
        Self { policy: policy.to_owned(), action, reason }
    }

    pub(crate) fn of_resource(policy: &str, name: &ResourceName, published: Option<(&Offer, &str)>) -> Self {
        let resource = name.to_string();
        let (action, reason) = match published {
            Some((offer, reason)) => (ShadowAction::Publish { resource, amount: offer.amount }, reason),
            None => (ShadowAction::Withdraw { resource }, ""),
        };
        Self { policy: policy.to_owned(), action, reason: reason.to_owned() }
    }

    pub(crate) fn evict(policy: &str, pod: String, wanted: Eviction) -> Self {
        let Eviction { urgency, reason, message, .. } = wanted;
        Self {
            policy: policy.to_owned(),
            action: ShadowAction::Evict { pod, urgency: urgency.as_str(), message },
            reason,
        }
    }
}

impl fmt::Display for ShadowDecision {
    /// `shadow eviction would evict pod batch/job (now): BEMemoryEvict: the node uses …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow {} would ", self.policy)?;
        match &self.action {
            ShadowAction::Set { subject, knob, value } => write!(f, "set {subject} {knob} to {value}")?,
            ShadowAction::Release { subject, knob } => write!(f, "release {subject} {knob}")?,
            ShadowAction::Publish { resource, amount } => write!(f, "publish resource {resource} {amount}")?,
            ShadowAction::Withdraw { resource } => write!(f, "withdraw resource {resource}")?,
            ShadowAction::Evict { pod, urgency, .. } => write!(f, "evict pod {pod} ({urgency})")?,
        }
        let message = match &self.action {
            ShadowAction::Evict { message, .. } => message,
            _ => "",
        };
        [self.reason.as_str(), message]
            .iter()
            .filter(|text| !text.is_empty())
            .try_for_each(|text| write!(f, ": {text}"))
    }
}
