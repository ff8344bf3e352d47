//! Events of the container runtime, and the reply that a starting container waits for.

use std::time::Duration;

use tokio::sync::mpsc;

/// An event of the container runtime.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// The plug-in is registered and configured.
    Connected(RuntimeInfo),
    /// All running containers. They replace those that were known before.
    Synchronized(Vec<RunningContainer>),
    /// A container is about to start: its cgroup exists with the runtime's limits, and its first instruction waits for the reply.
    Starting(RunningContainer, StartReply),
    /// A container was stopped or removed, by its ID.
    Stopped(String),
    /// The runtime made a pod's sandbox, or wrote another limit of a running container, as for a resize in place. The cgroups show
    /// what has changed.
    CgroupsChanged,
    /// Another plug-in changed a container between its request and its creation.
    Adjusted(Adjustment),
    /// A container that was about to start was answered, after this wait.
    Answered(StartOutcome, Duration),
}

/// The connected container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeInfo {
    /// Its name, such as `containerd` or `cri-o`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its version of NRI; empty if the runtime does not state it.
    pub nri_version: String,
}

/// A pod, as the runtime knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSandbox {
    /// The UID that its cgroup is named after; for a static pod the kubelet's own.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// A container with a cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunningContainer {
    /// The runtime's ID, without the runtime's name.
    pub id: String,
    /// Name in the pod.
    pub name: String,
    /// Its cgroup below each hierarchy's root; `None` where the runtime names none.
    pub cgroup: Option<String>,
    /// Its pod.
    pub pod: PodSandbox,
}

/// Changes of other plug-ins to a container's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// The container.
    pub container: RunningContainer,
    /// The fields, in the protocol's words: `cpu.quota`, `unified memory.high`.
    pub fields: Vec<String>,
}

/// How the wait of a starting container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartOutcome {
    /// The answer came within the budget.
    InTime,
    /// The budget was over.
    Late,
    /// An earlier reply was still missing, so the container did not wait.
    Skipped,
}

impl StartOutcome {
    /// Name of the outcome in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InTime => "in-time",
            Self::Late => "late",
            Self::Skipped => "skipped",
        }
    }
}

/// Lets a starting container go on when the reply is dropped. The container goes on without it when the budget is over.
#[derive(Debug)]
pub struct StartReply {
    pub(crate) stream: u32,
    pub(crate) replies: mpsc::UnboundedSender<u32>,
}

impl Drop for StartReply {
    fn drop(&mut self) {
        // The connection may be gone.
        let _ = self.replies.send(self.stream);
    }
}
