//! Requests to a running agent.

use std::sync::mpsc::SyncSender;

use qosm_model::lease::Timestamp;
use tokio::sync::oneshot;

use crate::confinement::ConfinementReports;
use crate::event::AgentEvent;
use crate::nri::{RuntimeLink, RuntimeMessage};
use crate::policy_set::resolved::{PolicySet, Swapped};
use crate::report::{
    ClassReport, DiffReport, EvictionReport, Explanation, KnobReport, NodeResourceReport, NodeUsage, PodReport,
    PolicyReport, RefusalReport, RemarkReport,
};
use crate::restored::Restored;

/// A request to a running agent. With ticks and sources, these requests are all that drives the loop.
pub enum Request {
    /// All pods.
    Pods(oneshot::Sender<Vec<PodReport>>),
    /// What containers use and what is held for them.
    Usage(oneshot::Sender<NodeUsage>),
    /// All policies.
    Policies(oneshot::Sender<Vec<PolicyReport>>),
    /// All held knobs, all settings that are not in force, and what policies wanted for the node or a tier and did not do.
    Knobs(oneshot::Sender<(Vec<KnobReport>, Vec<RefusalReport>, Vec<RemarkReport>)>),
    /// Resources of the node that policies publish.
    Resources(oneshot::Sender<Vec<NodeResourceReport>>),
    /// Evictions that policies asked for.
    Evictions(oneshot::Sender<Vec<EvictionReport>>),
    /// All classes of shares.
    Classes(oneshot::Sender<Vec<ClassReport>>),
    /// All events.
    Events(oneshot::Sender<Vec<AgentEvent>>),
    /// All problems, features that policies want and this host lacks, and requests that policies may not make.
    Problems(oneshot::Sender<Vec<String>>),
    /// All about one pod.
    Explain(String, oneshot::Sender<Option<Explanation>>),
    /// How a shadow differs from the active policy, or why they cannot be compared.
    Diff(String, oneshot::Sender<Result<DiffReport, String>>),
    /// Pause a pod (until a time, or until resumed), or resume it (`None`). Replies `false` if the pod is not on this node now.
    Pause(String, Option<Option<Timestamp>>, oneshot::Sender<Result<bool, String>>),
    /// Try a parked policy again. Replies `false` if there is no policy of that name.
    Retry(String, oneshot::Sender<bool>),
    /// Send a recording, line by line, until the receiver is dropped or no longer keeps up.
    Record(SyncSender<String>),
    /// How the agent is confined.
    Confinement(oneshot::Sender<Result<ConfinementReports, String>>),
    /// What a restore would put back.
    Restorable(oneshot::Sender<Vec<Restored>>),
    /// A trigger fired (see [`Agent::start_alarms`](crate::Agent::start_alarms)), or a source has something new.
    Woken,
    /// Run another module for a policy; `None` = the previous one. The reply comes before anything is fetched.
    Swap(String, Option<String>, oneshot::Sender<Result<Swapped, String>>),
    /// Apply a policy set.
    PolicySet(Box<PolicySet>),
    /// An event of the container runtime, or a change of the connection to it.
    Runtime(RuntimeMessage),
    /// State of the connection to the container runtime.
    RuntimeLink(oneshot::Sender<RuntimeLink>),
    /// Whether the agent is ready; if not, why.
    Health(oneshot::Sender<Result<(), String>>),
    /// Shut down, and restore or keep the held knobs as configured.
    ShutDown {
        /// Restore even if the configuration says to keep.
        restore: bool,
        /// Receives the outcome for each knob that was held.
        reply: Option<oneshot::Sender<Vec<Restored>>>,
    },
}
