//! What a module asks for in one evaluation.

use std::sync::Arc;

use crate::knob::{Knob, Target, Value};
use crate::pod::PodId;

/// One staged change of leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Hold this value.
    Hold {
        /// On which cgroup.
        target: Target,
        /// Which tunable.
        knob: Knob,
        /// The value wanted.
        value: Value,
        /// Why, in the policy's words.
        reason: Arc<str>,
    },
    /// Give the knob up.
    Release {
        /// On which cgroup.
        target: Target,
        /// Which tunable.
        knob: Knob,
    },
}

/// How much a pod event matters; as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// For information.
    Normal,
    /// Something should be done.
    Warning,
}

/// An event for a pod's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodId,
    /// How much it matters.
    pub kind: EventKind,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
}
