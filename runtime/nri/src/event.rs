//! What the runtime tells, and the answer that a starting container waits for.

use std::time::Duration;

use tokio::sync::mpsc;

/// What the runtime tells.
#[derive(Debug)]
pub enum RuntimeEvent {
    /// The plug-in is registered and configured.
    Connected(RuntimeInfo),
    /// All containers that run. What was known before no longer counts.
    Synchronized(Vec<RunningContainer>),
    /// A container is about to start: its cgroup is there with the runtime's limits, and its first instruction waits for the reply.
    Starting(RunningContainer, StartReply),
    /// A container was stopped or removed, by its ID.
    Stopped(String),
    /// The runtime made a pod's sandbox, or wrote another limit of a container that runs, as for a resize in place: a look at the cgroups
    /// finds what has changed.
    CgroupsChanged,
    /// Another plug-in changed a container on its way from its request to its creation.
    Adjusted(Adjustment),
    /// A container that was about to start was let go on.
    Answered(StartOutcome, Duration),
}

/// Who is at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeInfo {
    /// As it calls itself: `containerd`, `cri-o`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its version of NRI; empty from runtimes that do not say.
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

/// What other plug-ins changed of a container's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adjustment {
    /// Which container.
    pub container: RunningContainer,
    /// The fields, in the protocol's words: `cpu.quota`, `unified memory.high`.
    pub fields: Vec<String>,
}

/// How long a container waited, as a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StartOutcome {
    /// The answer came within the budget.
    InTime,
    /// The budget was over.
    Late,
    /// An earlier answer was still to come: the container did not wait.
    Skipped,
}

impl StartOutcome {
    /// The word for it in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InTime => "in-time",
            Self::Late => "late",
            Self::Skipped => "skipped",
        }
    }
}

/// Lets a starting container go on when it is dropped. It goes on by itself when the budget is over.
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
