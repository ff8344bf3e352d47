//! Pods that have to leave the node.

use crate::pod::PodId;
use crate::unit::Micros;

/// A request to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: PodId,
    /// How long it can wait.
    pub urgency: Urgency,
    /// Seconds between SIGTERM and SIGKILL; `None` = the pod's own.
    pub grace_period: Option<u32>,
    /// One word in camel case.
    pub reason: String,
    /// A sentence: what was exceeded by how much, and why it is this pod.
    pub message: String,
}

/// How long an eviction can wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// Until the controller has done it.
    #[default]
    Soon,
    /// A few seconds: without an answer by then the agent ends the pod's processes itself.
    Now,
}

impl Urgency {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Soon, Self::Now];

    /// The word for it in reports and in Rego.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Soon => "soon",
            Self::Now => "now",
        }
    }
}

/// What became of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvictionOutcome {
    /// It waits for an answer, or for room in a budget of the node or of the controller.
    Pending,
    /// The API server took it.
    Accepted,
    /// A guard rail, a rule of the controller or the API server (a PodDisruptionBudget) forbids it.
    Refused,
    /// The pod is gone.
    Gone,
    /// The agent ended the pod's processes.
    Killed,
}

impl EvictionOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Accepted, Self::Refused, Self::Gone, Self::Killed];

    /// The word for it in reports, recordings and in Rego.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::Killed => "killed",
        }
    }
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionState {
    /// The pod's UID.
    pub uid: String,
    /// What became of it.
    pub outcome: EvictionOutcome,
    /// Why it is so.
    pub why: String,
    /// Time since that is known.
    pub age: Micros,
}
