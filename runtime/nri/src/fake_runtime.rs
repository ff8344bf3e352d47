//! The runtime's end of a connection, for tests: it speaks the protocol over a socket, and waits for each answer as a runtime does.
#![expect(clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

use bytes::BytesMut;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::messages::{
    self, CONTAINER_RUNNING, ConfigureRequest, ConfigureResponse, Container, ContainerRequest, LinuxContainer,
    LinuxResources, PLUGIN_SERVICE, RegisterPluginRequest, StateChangeEvent, SynchronizeRequest, SynchronizeResponse,
};
use crate::multiplex;
use crate::ttrpc::{self, Incoming, Response};
use crate::{PodSandbox, RunningContainer};

/// A container runtime that a plug-in is connected to.
pub struct FakeRuntime {
    socket: UnixStream,
    arrived: BytesMut,
    answers: BytesMut,
    calls: BytesMut,
    stream: u32,
}

impl FakeRuntime {
    /// Creates a runtime at this end of a connection.
    pub fn new(socket: UnixStream) -> Self {
        let (arrived, answers, calls) = Default::default();
        Self { socket, arrived, answers, calls, stream: 1 }
    }

    /// Takes the registration, configures the plug-in and sends it the running containers. Returns its `INDEX-NAME` and its events.
    pub async fn accept(&mut self, name: &str, running: &[RunningContainer]) -> (String, i32) {
        let plugin = self.registration().await;
        self.send(multiplex::RUNTIME, &ttrpc::response(plugin.0, Vec::new())).await;
        let configured = self.configure(name).await;
        self.synchronize(running, 2).await;
        (plugin.1, configured)
    }

    /// Refuses the registration.
    pub async fn refuse(&mut self, code: i32, why: &str) {
        let (stream, _) = self.registration().await;
        self.send(multiplex::RUNTIME, &ttrpc::failure(stream, code, why.to_owned())).await;
    }

    /// Announces that a container is about to start, and returns when it may. Returns `true` if the answer is no error.
    pub async fn start(&mut self, container: &RunningContainer) -> bool {
        self.call("StartContainer", &about(container, &[])).await.status.is_none()
    }

    /// Like [`Self::start`], as runtimes do that have no separate call for it.
    pub async fn start_by_state_change(&mut self, container: &RunningContainer) -> bool {
        let ContainerRequest { pod, container } = about(container, &[]);
        let change = StateChangeEvent { event: messages::event::START_CONTAINER, pod, container };
        self.call("StateChange", &change).await.status.is_none()
    }

    /// Announces that a container is created, with `unified` resources as the kubelet requested them and as all plug-ins changed them.
    pub async fn create(&mut self, container: &RunningContainer, asked: &[(&str, &str)], created: &[(&str, &str)]) {
        let answer = self.call("CreateContainer", &about(container, asked)).await;
        assert!(answer.payload.is_empty() && answer.status.is_none(), "the plug-in adjusts nothing: {answer:?}");
        self.call("PostCreateContainer", &about(container, created)).await;
    }

    /// Announces that it has written other limits of a container.
    pub async fn update(&mut self, container: &RunningContainer) {
        self.call("PostUpdateContainer", &about(container, &[])).await;
    }

    /// Announces that a container was stopped.
    pub async fn stop(&mut self, container: &RunningContainer) {
        self.call("StopContainer", &about(container, &[])).await;
    }

    /// Sends half of the call that a container is about to start, and disconnects.
    pub async fn break_off(mut self, container: &RunningContainer) {
        let call = ttrpc::request(99, PLUGIN_SERVICE, "StartContainer", &about(container, &[]));
        self.send(multiplex::PLUGIN, &call[..call.len() / 2]).await;
    }

    /// Sends bytes as they are.
    pub async fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Calls a method with a payload of any bytes; `Err` = the code of the error.
    pub async fn call_raw(&mut self, method: &str, payload: &[u8]) -> Result<Vec<u8>, i32> {
        self.stream += 2;
        let request =
            ttrpc::Request { service: PLUGIN_SERVICE.to_owned(), method: method.to_owned(), payload: payload.to_vec() };
        let call = ttrpc::message(self.stream, ttrpc::REQUEST, &request);
        self.send(multiplex::PLUGIN, &call).await;
        let answer = self.answer().await;
        match answer.status {
            Some(status) => Err(status.code),
            None => Ok(answer.payload),
        }
    }

    async fn registration(&mut self) -> (u32, String) {
        loop {
            match ttrpc::take(&mut self.calls).unwrap() {
                Some(Incoming::Request(stream, call)) if call.method == "RegisterPlugin" => {
                    let RegisterPluginRequest { plugin_name, plugin_idx } =
                        RegisterPluginRequest::decode(&call.payload[..]).unwrap();
                    return (stream, format!("{plugin_idx}-{plugin_name}"));
                }
                Some(other) => panic!("{other:?}"),
                None => self.receive().await,
            }
        }
    }

    async fn configure(&mut self, name: &str) -> i32 {
        let request = ConfigureRequest {
            runtime_name: name.to_owned(),
            runtime_version: "v0.0.0-fake".to_owned(),
            nri_version: String::new(),
        };
        let answer = self.call("Configure", &request).await;
        ConfigureResponse::decode(&answer.payload[..]).unwrap().events
    }

    /// Reports what runs, in `messages` messages.
    async fn synchronize(&mut self, running: &[RunningContainer], messages: usize) {
        let size = running.len().div_ceil(messages).max(1);
        let mut chunks: Vec<_> = running.chunks(size).collect();
        chunks.resize(messages, &[]);
        for (place, chunk) in chunks.iter().enumerate() {
            let more = place + 1 < messages;
            let (mut pods, mut containers) = (Vec::new(), Vec::new());
            for ContainerRequest { pod, container } in chunk.iter().map(|container| about(container, &[])) {
                pods.extend(pod);
                containers.extend(container);
            }
            let answer = self.call("Synchronize", &SynchronizeRequest { pods, containers, more }).await;
            assert_eq!(SynchronizeResponse::decode(&answer.payload[..]).unwrap().more, more);
        }
    }

    async fn call(&mut self, method: &str, payload: &impl Message) -> Response {
        self.stream += 2;
        let call = ttrpc::request(self.stream, PLUGIN_SERVICE, method, payload);
        self.send(multiplex::PLUGIN, &call).await;
        self.answer().await
    }

    async fn answer(&mut self) -> Response {
        loop {
            match ttrpc::take(&mut self.answers).unwrap() {
                Some(Incoming::Response(stream, answer)) if stream == self.stream => return answer,
                Some(other) => panic!("{other:?}, where an answer on {} is due", self.stream),
                None => self.receive().await,
            }
        }
    }

    async fn send(&mut self, connection: u32, message: &[u8]) {
        let mut out = BytesMut::new();
        multiplex::put(&mut out, connection, message);
        self.socket.write_all(&out).await.unwrap();
    }

    async fn receive(&mut self) {
        let read = self.socket.read_buf(&mut self.arrived).await.unwrap();
        assert_ne!(read, 0, "the plug-in closed the connection");
        multiplex::take(&mut self.arrived, &mut self.answers, &mut self.calls).unwrap();
    }
}

fn about(container: &RunningContainer, unified: &[(&str, &str)]) -> ContainerRequest {
    let RunningContainer { id, name, cgroup, pod } = container.clone();
    let PodSandbox { uid, namespace, name: pod_name } = pod;
    let sandbox = format!("sandbox-of-{uid}");
    let unified = unified.iter().map(|(file, value)| ((*file).to_owned(), (*value).to_owned())).collect();
    ContainerRequest {
        pod: Some(messages::PodSandbox { id: sandbox.clone(), name: pod_name, uid, namespace }),
        container: Some(Container {
            id,
            pod_sandbox_id: sandbox,
            name,
            state: CONTAINER_RUNNING,
            linux: Some(LinuxContainer {
                resources: Some(LinuxResources { unified, ..LinuxResources::default() }),
                cgroups_path: cgroup.map(|cgroup| format!("/{cgroup}")).unwrap_or_default(),
            }),
        }),
    }
}

/// A reply for tests of a loop, and the channel that shows when it is dropped.
pub fn reply() -> (crate::StartReply, tokio::sync::mpsc::UnboundedReceiver<u32>) {
    let (replies, replied) = tokio::sync::mpsc::unbounded_channel();
    (crate::StartReply { stream: 1, replies }, replied)
}
