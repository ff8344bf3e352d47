//! The plug-in: registers, answers the runtime's calls, and passes them on as events.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::BytesMut;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::cgroup_path::cgroup_path;
use crate::event::{Adjustment, PodSandbox, RunningContainer, RuntimeEvent, RuntimeInfo, StartOutcome, StartReply};
use crate::messages::{
    self, CONTAINER_RUNNING, ConfigureRequest, ConfigureResponse, Container, ContainerRequest, LinuxResources,
    PLUGIN_SERVICE, RUNTIME_SERVICE, RegisterPluginRequest, StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
    event,
};
use crate::multiplex::{self, FrameTooLong};
use crate::starts::Starts;
use crate::ttrpc::{self, Incoming, MessageTooLong};

/// The stream of the plug-in's only call.
const REGISTRATION: u32 = 1;
/// How long the runtime may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of buffer for one read.
const READ: usize = 64 << 10;
/// Maximum number of containers in creation that are remembered; the runtime makes few at a time.
const MAX_CREATED: usize = 1024;

/// Name, index and time budget of the plug-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginOptions {
    /// Its name.
    pub name: String,
    /// Two digits: plug-ins are called in ascending order.
    pub index: String,
    /// How long a container may wait for [`StartReply`].
    pub budget: Duration,
    /// How long the runtime may take to configure the plug-in.
    pub registration: Duration,
}

/// Why the connection to the runtime ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NriError {
    /// The connection could not be read from or written to.
    #[error("the connection broke")]
    Connection(#[from] std::io::Error),
    /// The runtime closed the connection.
    #[error("the runtime closed the connection{}", if *.configured { "" } else { " before it configured the plug-in" })]
    Closed {
        /// Whether the plug-in was registered by then.
        configured: bool,
    },
    /// The runtime is going down.
    #[error("the runtime shuts down")]
    Shutdown,
    /// The runtime does not take the plug-in, or does not know the protocol.
    #[error("the runtime refused the registration: {message} (code {code})")]
    Refused {
        /// A google.rpc.Code.
        code: i32,
        /// The runtime's message.
        message: String,
    },
    /// The runtime did not configure the plug-in in time.
    #[error("the runtime did not configure the plug-in within {} s", .0.as_secs())]
    Silent(Duration),
    /// What arrived is not NRI.
    #[error("what arrived is not NRI")]
    Frame(#[from] FrameTooLong),
    /// What arrived is not ttrpc.
    #[error("what arrived is not ttrpc")]
    Message(#[from] MessageTooLong),
}

/// Registers over a connection to the runtime's socket, and serves the runtime until the connection ends. `tell` receives the events and
/// must not block: until it returns, the runtime has no answer.
///
/// # Errors
///
/// [`NriError`] says how the connection ended. This function returns only with an error.
pub async fn serve<C: AsyncRead + AsyncWrite + Unpin>(
    mut connection: C,
    options: &PluginOptions,
    mut tell: impl FnMut(RuntimeEvent),
) -> Result<std::convert::Infallible, NriError> {
    let (replies, mut replied) = mpsc::unbounded_channel();
    let mut plugin = Plugin::new(options, replies);
    let begun = Instant::now();
    let silent_at = begun + options.registration;
    let (mut arrived, mut calls, mut answers) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
    let mut out = BytesMut::new();
    multiplex::put(&mut out, multiplex::RUNTIME, &plugin.registration());
    loop {
        if !out.is_empty() {
            let written = timeout(WRITE_TIMEOUT, connection.write_all(&out)).await;
            written.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
            out.clear();
        }
        // The list of running containers of a full node comes in messages of megabytes, and within the runtime's time-out.
        arrived.reserve(READ);
        let due = plugin.starts.due().unwrap_or(silent_at);
        let waits = !plugin.is_configured || plugin.starts.due().is_some();
        tokio::select! {
            // Waiting containers come first.
            biased;
            () = sleep_until(due), if waits => {
                if !plugin.is_configured && Instant::now() >= silent_at {
                    return Err(NriError::Silent(options.registration));
                }
                while let Some((stream, waited)) = plugin.starts.expire(Instant::now()) {
                    put_response(&mut out, stream, Vec::new());
                    tell(RuntimeEvent::Answered(StartOutcome::Late, waited));
                }
            }
            Some(stream) = replied.recv() => {
                if let Some(waited) = plugin.starts.done(stream, Instant::now()) {
                    put_response(&mut out, stream, Vec::new());
                    tell(RuntimeEvent::Answered(StartOutcome::InTime, waited));
                }
            }
            read = connection.read_buf(&mut arrived) => {
                if read? == 0 {
                    return Err(NriError::Closed { configured: plugin.is_configured });
                }
                multiplex::take(&mut arrived, &mut calls, &mut answers)?;
                while let Some(answer) = ttrpc::take(&mut answers)? {
                    plugin.registered(answer)?;
                }
                while let Some(call) = ttrpc::take(&mut calls)? {
                    let is_last = plugin.serve(call, &mut out, &mut tell);
                    if is_last {
                        let _ = timeout(WRITE_TIMEOUT, connection.write_all(&out)).await;
                        return Err(NriError::Shutdown);
                    }
                }
            }
        }
    }
}

fn put_response(out: &mut BytesMut, stream: u32, payload: Vec<u8>) {
    multiplex::put(out, multiplex::PLUGIN, &ttrpc::response(stream, payload));
}

/// State of the plug-in while a connection lasts.
struct Plugin<'a> {
    options: &'a PluginOptions,
    replies: mpsc::UnboundedSender<u32>,
    starts: Starts,
    is_configured: bool,
    /// Parts of a list that is too long for one message.
    pods: Vec<messages::PodSandbox>,
    containers: Vec<Container>,
    /// Resources of containers as their creation was requested.
    created: HashMap<String, BTreeMap<String, String>>,
}

impl<'a> Plugin<'a> {
    fn new(options: &'a PluginOptions, replies: mpsc::UnboundedSender<u32>) -> Self {
        Self {
            options,
            replies,
            starts: Starts::new(options.budget),
            is_configured: false,
            pods: Vec::new(),
            containers: Vec::new(),
            created: HashMap::new(),
        }
    }

    fn registration(&self) -> Vec<u8> {
        let request =
            RegisterPluginRequest { plugin_name: self.options.name.clone(), plugin_idx: self.options.index.clone() };
        ttrpc::request(REGISTRATION, RUNTIME_SERVICE, "RegisterPlugin", &request)
    }

    fn registered(&self, answer: Incoming) -> Result<(), NriError> {
        match answer {
            Incoming::Response(REGISTRATION, response) => match response.status.filter(|status| status.code != 0) {
                Some(status) => Err(NriError::Refused { code: status.code, message: status.message }),
                None => Ok(()),
            },
            // The plug-in makes no other call.
            _ => Ok(()),
        }
    }

    /// Answers a call, or records a start that is answered later. Returns `true` if it was the last call.
    fn serve(&mut self, call: Incoming, out: &mut BytesMut, tell: &mut impl FnMut(RuntimeEvent)) -> bool {
        let (stream, call) = match call {
            Incoming::Request(stream, call) => (stream, call),
            // A call that cannot be read. An error would fail the container that it may be about.
            Incoming::Unreadable(stream) => {
                put_response(out, stream, Vec::new());
                return false;
            }
            Incoming::Response(..) => return false,
        };
        let payload = &call.payload[..];
        if call.service != PLUGIN_SERVICE {
            let why = format!("service {}", call.service);
            multiplex::put(out, multiplex::PLUGIN, &ttrpc::failure(stream, ttrpc::UNIMPLEMENTED, why));
            return false;
        }
        let mut answer = Vec::new();
        match call.method.as_str() {
            "Configure" => {
                let request: ConfigureRequest = read(payload);
                self.is_configured = true;
                answer = subscription().encode_to_vec();
                tell(RuntimeEvent::Connected(RuntimeInfo {
                    name: request.runtime_name,
                    version: request.runtime_version,
                    nri_version: request.nri_version,
                }));
            }
            "Synchronize" => {
                let request: SynchronizeRequest = read(payload);
                self.pods.extend(request.pods);
                self.containers.extend(request.containers);
                answer = SynchronizeResponse { more: request.more }.encode_to_vec();
                if !request.more {
                    tell(RuntimeEvent::Synchronized(self.running()));
                }
            }
            "CreateContainer" => self.creating(read(payload)),
            "PostCreateContainer" => self.post_creation(read(payload), tell),
            "StartContainer" => return self.starting(stream, read(payload), out, tell),
            "RunPodSandbox" | "PostUpdateContainer" => tell(RuntimeEvent::CgroupsChanged),
            "StopContainer" | "RemoveContainer" => self.stopped(read(payload), tell),
            "StateChange" => {
                let change: StateChangeEvent = read(payload);
                let about = ContainerRequest { pod: change.pod, container: change.container };
                match change.event {
                    event::POST_CREATE_CONTAINER => self.post_creation(about, tell),
                    event::START_CONTAINER => return self.starting(stream, about, out, tell),
                    event::RUN_POD_SANDBOX | event::POST_UPDATE_CONTAINER => tell(RuntimeEvent::CgroupsChanged),
                    event::STOP_CONTAINER | event::REMOVE_CONTAINER => self.stopped(about, tell),
                    _ => {}
                }
            }
            "Shutdown" => {
                put_response(out, stream, answer);
                return true;
            }
            "UpdatePodSandbox"
            | "PostUpdatePodSandbox"
            | "StopPodSandbox"
            | "RemovePodSandbox"
            | "PostStartContainer"
            | "UpdateContainer"
            | "ValidateContainerAdjustment" => {}
            method => {
                let why = format!("method {method}");
                multiplex::put(out, multiplex::PLUGIN, &ttrpc::failure(stream, ttrpc::UNIMPLEMENTED, why));
                return false;
            }
        }
        put_response(out, stream, answer);
        false
    }

    /// Takes the running containers of a list that is complete.
    fn running(&mut self) -> Vec<RunningContainer> {
        let pods: HashMap<String, messages::PodSandbox> =
            std::mem::take(&mut self.pods).into_iter().map(|pod| (pod.id.clone(), pod)).collect();
        let running = std::mem::take(&mut self.containers).into_iter().filter(|known| known.state == CONTAINER_RUNNING);
        running
            .filter_map(|container| {
                let pod = pods.get(&container.pod_sandbox_id)?.clone();
                known(ContainerRequest { pod: Some(pod), container: Some(container) })
            })
            .collect()
    }

    fn creating(&mut self, request: ContainerRequest) {
        let Some(container) = request.container else { return };
        if self.created.len() >= MAX_CREATED {
            self.created.clear();
        }
        self.created.insert(container.id.clone(), resources(&container));
    }

    /// Reports what other plug-ins changed in the resources of a container that was created.
    fn post_creation(&mut self, request: ContainerRequest, tell: &mut impl FnMut(RuntimeEvent)) {
        let Some(container) = &request.container else { return };
        let Some(before) = self.created.remove(&container.id) else { return };
        let after = resources(container);
        let fields: Vec<String> = after
            .iter()
            .filter(|(field, value)| before.get(*field) != Some(value))
            .map(|(field, _)| field.clone())
            .collect();
        if fields.is_empty() {
            return;
        }
        if let Some(container) = known(request) {
            tell(RuntimeEvent::Adjusted(Adjustment { container, fields }));
        }
    }

    fn starting(
        &mut self,
        stream: u32,
        request: ContainerRequest,
        out: &mut BytesMut,
        tell: &mut impl FnMut(RuntimeEvent),
    ) -> bool {
        let Some(container) = known(request) else {
            put_response(out, stream, Vec::new());
            return false;
        };
        if !self.starts.begin(stream, Instant::now()) {
            put_response(out, stream, Vec::new());
            tell(RuntimeEvent::Answered(StartOutcome::Skipped, Duration::ZERO));
        }
        let reply = StartReply { stream, replies: self.replies.clone() };
        tell(RuntimeEvent::Starting(container, reply));
        false
    }

    fn stopped(&mut self, request: ContainerRequest, tell: &mut impl FnMut(RuntimeEvent)) {
        let Some(container) = request.container else { return };
        self.created.remove(&container.id);
        tell(RuntimeEvent::Stopped(container.id));
    }
}

/// Decodes a message of the protocol. One that cannot be read counts as empty, because an answer with an error would fail the container.
fn read<M: Message + Default>(payload: &[u8]) -> M {
    M::decode(payload).unwrap_or_else(|error| {
        tracing::warn!(%error, "the runtime sent a message that cannot be read; qosm answers it nevertheless");
        M::default()
    })
}

/// The events that the plug-in subscribes to: only those of the protocol's first version, because a runtime refuses a number that it does
/// not know. They include no policy for failures: the runtime drops a plug-in whose whole process hangs at the first call that it does not
/// answer, so that no other call is delayed, and the plug-in registers again once it continues.
fn subscription() -> ConfigureResponse {
    let events = [
        event::RUN_POD_SANDBOX,
        event::CREATE_CONTAINER,
        event::POST_CREATE_CONTAINER,
        event::START_CONTAINER,
        event::POST_UPDATE_CONTAINER,
        event::STOP_CONTAINER,
        event::REMOVE_CONTAINER,
    ];
    let events = events.into_iter().fold(0, |mask, event| mask | 1 << (event - 1));
    ConfigureResponse { events }
}

/// A container and its pod, if the runtime names both.
fn known(request: ContainerRequest) -> Option<RunningContainer> {
    let (pod, container) = (request.pod?, request.container?);
    if container.id.is_empty() || pod.uid.is_empty() {
        return None;
    }
    Some(RunningContainer {
        cgroup: container.linux.and_then(|linux| cgroup_path(&linux.cgroups_path)),
        id: container.id,
        name: container.name,
        pod: PodSandbox { uid: pod.uid, namespace: pod.namespace, name: pod.name },
    })
}

/// The resources that knobs are about, by the protocol's names.
fn resources(container: &Container) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let Some(LinuxResources { memory, cpu, rdt_class, unified }) =
        container.linux.as_ref().and_then(|linux| linux.resources.clone())
    else {
        return all;
    };
    let mut put = |field: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            all.insert(field.to_owned(), value);
        }
    };
    if let Some(memory) = memory {
        put("memory.limit", memory.limit.map(|limit| limit.value.to_string()));
        put("memory.reservation", memory.reservation.map(|soft| soft.value.to_string()));
    }
    if let Some(cpu) = cpu {
        put("cpu.shares", cpu.shares.map(|shares| shares.value.to_string()));
        put("cpu.quota", cpu.quota.map(|quota| quota.value.to_string()));
        put("cpu.period", cpu.period.map(|period| period.value.to_string()));
        put("cpu.cpus", Some(cpu.cpus));
        put("cpu.mems", Some(cpu.mems));
    }
    put("rdt_class", rdt_class.map(|class| class.value));
    for (file, value) in unified {
        put(&format!("unified {file}"), Some(value));
    }
    all
}

#[cfg(test)]
mod tests;
