//! Evictions of pods, and their outcomes.

use crate::pod::PodId;
use crate::unit::Micros;

/// A request to evict a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: PodId,
    /// How long the eviction can wait.
    pub urgency: Urgency,
    /// Seconds between SIGTERM and SIGKILL; `None` for the pod's own grace period.
    pub grace_period: Option<u32>,
    /// The reason, one word in camel case.
    pub reason: String,
    /// A sentence: what was exceeded by how much, and why this pod is evicted.
    pub message: String,
}

/// How long an eviction can wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Urgency {
    /// The eviction waits until the controller carries it out.
    #[default]
    Soon,
    /// The eviction waits a few seconds; without an answer by then the agent kills the pod's processes itself.
    Now,
}

impl Urgency {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Soon, Self::Now];

    /// The name of the urgency in reports and in Rego.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Soon => "soon",
            Self::Now => "now",
        }
    }
}

/// The outcome of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvictionOutcome {
    /// The eviction waits for an answer, or for room in a budget of the node or of the controller.
    Pending,
    /// The API server accepted the eviction.
    Accepted,
    /// A guard rail, a rule of the controller or the API server (a PodDisruptionBudget) forbids the eviction.
    Refused,
    /// The pod is gone.
    Gone,
    /// The agent killed the pod's processes.
    Killed,
}

impl EvictionOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Accepted, Self::Refused, Self::Gone, Self::Killed];

    /// The name of the outcome in reports, recordings and Rego.
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

/// The state of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionState {
    /// The pod's UID.
    pub uid: String,
    /// The outcome.
    pub outcome: EvictionOutcome,
    /// The reason of the outcome.
    pub why: String,
    /// Time since the outcome is known.
    pub age: Micros,
}
