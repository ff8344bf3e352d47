//! What a module asks for in one evaluation.

use std::sync::Arc;

use crate::eviction::Eviction;
use crate::knob::{Knob, Target, Value};
use crate::node_resource::{Offer, ResourceName};
use crate::numa::Migration;
use crate::pod::{ContainerId, PodId};
use crate::resctrl::{ClassName, Shares};

/// One staged change: of leases, of the migration of a container's pages, of classes, or of what the agent asks of the
/// cluster. A moved page stays where it is, and an evicted pod is gone, so neither is a lease: there is nothing to restore.
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
    /// Move a container's pages; replaces what is under way for it.
    Migrate(Migration),
    /// Stop moving a container's pages.
    StopMigration {
        /// The container.
        container: ContainerId,
    },
    /// Define a class of shares, or change it.
    DefineClass {
        /// The policy's own name for it.
        class: ClassName,
        /// What its members may use.
        shares: Shares,
        /// Why, in the policy's words.
        reason: Arc<str>,
    },
    /// Give a class up; its members are in none then.
    UndefineClass {
        /// The policy's own name for it.
        class: ClassName,
    },
    /// Put a pod, or one container, into a class.
    AssignClass {
        /// The container or pod.
        target: Target,
        /// Into which of the policy's classes.
        class: ClassName,
        /// Why, in the policy's words.
        reason: Arc<str>,
    },
    /// Take it out of its class.
    ReleaseClass {
        /// The container or pod.
        target: Target,
    },
    /// Publish an extended resource of the node, or change it.
    Publish {
        /// The resource.
        name: ResourceName,
        /// How much there is of it.
        offer: Offer,
        /// Why, in the policy's words.
        reason: Arc<str>,
    },
    /// Take a published resource away.
    Withdraw {
        /// The resource.
        name: ResourceName,
    },
    /// How long what the policy publishes holds without a word of the agent.
    StaleAfter {
        /// In seconds.
        seconds: u32,
    },
    /// Evict a pod.
    Evict(Eviction),
    /// Take the request to evict a pod back.
    WithdrawEviction {
        /// The pod.
        pod: PodId,
    },
}

/// What a policy wanted of a knob and did not do, and why. Counts until the policy's next evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Of which cgroup.
    pub target: Target,
    /// Which tunable.
    pub knob: Knob,
    /// Why not, in the policy's words.
    pub reason: Arc<str>,
}

/// How much a pod event matters; as Kubernetes has it.
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
    /// How much it matters.
    pub kind: EventKind,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
}
