//! Changes that a module asks for in one evaluation.

use std::sync::Arc;

use crate::eviction::Eviction;
use crate::knob::{Knob, Target, Value};
use crate::node_resource::{Offer, ResourceName};
use crate::numa::Migration;
use crate::pod::{ContainerId, PodId};
use crate::resctrl::{ClassName, Shares};

/// One staged change: of leases, of the migration of a container's pages, of classes, or of the agent's requests to the
/// cluster. Migrations and evictions are not leases, since a moved page or an evicted pod cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Hold this value.
    Hold {
        /// The target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The value.
        value: Value,
        /// The policy's reason.
        reason: Arc<str>,
    },
    /// Give the knob up.
    Release {
        /// The target.
        target: Target,
        /// The knob.
        knob: Knob,
    },
    /// Move a container's pages; replaces a running migration of the container.
    Migrate(Migration),
    /// Stop moving a container's pages.
    StopMigration {
        /// The container.
        container: ContainerId,
    },
    /// Define a class of shares, or change it.
    DefineClass {
        /// The policy's name of the class.
        class: ClassName,
        /// Shares of the class.
        shares: Shares,
        /// The policy's reason.
        reason: Arc<str>,
    },
    /// Give a class up; its members are then in no class.
    UndefineClass {
        /// The policy's name of the class.
        class: ClassName,
    },
    /// Put a pod, or one container, into a class.
    AssignClass {
        /// The container or pod.
        target: Target,
        /// The policy's class.
        class: ClassName,
        /// The policy's reason.
        reason: Arc<str>,
    },
    /// Take a pod or container out of its class.
    ReleaseClass {
        /// The container or pod.
        target: Target,
    },
    /// Publish an extended resource of the node, or change it.
    Publish {
        /// The resource.
        name: ResourceName,
        /// The amount.
        offer: Offer,
        /// The policy's reason.
        reason: Arc<str>,
    },
    /// Withdraw a published resource.
    Withdraw {
        /// The resource.
        name: ResourceName,
    },
    /// Set the time without contact from the agent after which the policy's published resources expire.
    StaleAfter {
        /// The time in seconds.
        seconds: u32,
    },
    /// Evict a pod.
    Evict(Eviction),
    /// Withdraw the request to evict a pod.
    WithdrawEviction {
        /// The pod.
        pod: PodId,
    },
}

/// A value of a knob that a policy wanted and did not set, and why. Valid until the policy's next evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The target.
    pub target: Target,
    /// The knob.
    pub knob: Knob,
    /// The policy's reason.
    pub reason: Arc<str>,
}

/// A part of a key of the cluster ConfigMap that a policy reads and cannot use as it is written. Valid until the policy's next evaluation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyProblem {
    /// The key.
    pub key: String,
    /// Path of the field within the key; empty for the whole key.
    pub field: String,
    /// What is wrong, what counts instead, and what to write.
    pub message: String,
}

/// Type of a pod event, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// For information.
    Normal,
    /// A warning.
    Warning,
}

/// An event for a pod's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodId,
    /// The type.
    pub kind: EventKind,
    /// The reason, one word in camel case.
    pub reason: String,
    /// The message, a sentence.
    pub message: String,
}
