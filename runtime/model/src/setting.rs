//! What a module asks for in one evaluation.

use std::sync::Arc;

use crate::knob::{Knob, Target, Value};
use crate::numa::Migration;
use crate::pod::{ContainerId, PodId};
use crate::resctrl::{ClassName, Shares};

/// One staged change: of leases, or of what moves a container's pages. A page that was moved stays where it is, so moving is no
/// lease: there is nothing to give back.
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
        /// Whose.
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
        /// Whom.
        target: Target,
        /// Into which of the policy's classes.
        class: ClassName,
        /// Why, in the policy's words.
        reason: Arc<str>,
    },
    /// Take it out of its class.
    ReleaseClass {
        /// Whom.
        target: Target,
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
