//! The connection to the container runtime: a thread that is its NRI plug-in, and reconnects when the connection ends.
//!
//! A starting container waits for the loop, but no longer than [`BUDGET`]: if the loop hangs, the thread answers.
#![expect(clippy::disallowed_methods, reason = "a socket of the node's, and the thread that serves it")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use qosm_model::problem::{Problem, chain};
use qosm_nri::{NriError, PluginOptions, RuntimeEvent, RuntimeInfo};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::config::{NriConfig, NriMode};
use crate::metrics::Metrics;
use crate::request::Request;

/// How long a container may wait for its settings.
const BUDGET: Duration = Duration::from_millis(50);
/// Time limit of the registration: as long as runtimes wait for plug-ins.
const REGISTRATION: Duration = Duration::from_secs(5);
/// Time between attempts to connect.
const RETRY: Retry = Retry { first: Duration::from_millis(250), longest: Duration::from_secs(5) };

/// Time between attempts to connect; it doubles with each that fails.
#[derive(Clone, Copy, Debug)]
struct Retry {
    first: Duration,
    /// Also the time between two attempts to open a socket that does not exist.
    longest: Duration,
}

/// Messages from the NRI thread to the agent's loop.
#[derive(Debug)]
pub enum RuntimeMessage {
    /// The state of the connection has changed.
    Link(RuntimeLink),
    /// An event of the runtime.
    Event(RuntimeEvent),
}

impl RuntimeMessage {
    /// Whether the next step is to come at once.
    pub(crate) fn asks_for_a_step(&self) -> bool {
        matches!(self, Self::Event(RuntimeEvent::CgroupsChanged))
    }

    /// Whether a container waits for its settings.
    pub(crate) fn is_start(&self) -> bool {
        matches!(self, Self::Event(RuntimeEvent::Starting(..)))
    }
}

/// State of the connection to the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum RuntimeLink {
    /// The configuration turns NRI off, or no agent runs.
    #[default]
    Off,
    /// There is no socket.
    #[serde(rename_all = "camelCase")]
    Absent {
        /// Path where the socket is expected.
        socket: String,
    },
    /// The plug-in is registered.
    #[serde(rename_all = "camelCase")]
    Connected {
        /// The runtime's name.
        runtime: String,
        /// The runtime's version.
        version: String,
    },
    /// The socket exists, but the plug-in is not registered.
    #[serde(rename_all = "camelCase")]
    Away {
        /// Path of the socket.
        socket: String,
        /// Why the plug-in is not registered.
        why: String,
    },
}

impl RuntimeLink {
    /// The problem to report to the operator; `None` if there is none.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let Self::Away { socket, why } = self else { return None };
        Some(Problem {
            object: format!("container runtime at {socket}"),
            field: None,
            message: format!("not connected by NRI, so new containers get their settings after their start: {why}"),
        })
    }
}

/// Handle of the NRI thread, which ends when the handle is dropped.
pub struct NriThread {
    _close: oneshot::Sender<()>,
}

impl NriThread {
    /// Starts the thread, unless the configuration turns NRI off.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn start(config: &NriConfig, metrics: Arc<Metrics>, requests: Sender<Request>) -> io::Result<Option<Self>> {
        Self::retrying(config, metrics, requests, RETRY)
    }

    fn retrying(
        config: &NriConfig,
        metrics: Arc<Metrics>,
        requests: Sender<Request>,
        retry: Retry,
    ) -> io::Result<Option<Self>> {
        if config.mode == NriMode::Off {
            return Ok(None);
        }
        let (close, closed) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let config = config.clone();
        std::thread::Builder::new().name("nri".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = closed => {}
                    () = connect_and_serve(&config, &metrics, &requests, retry) => {}
                }
            });
        })?;
        Ok(Some(Self { _close: close }))
    }
}

/// Connects and serves again and again. Returns when the loop has ended.
async fn connect_and_serve(config: &NriConfig, metrics: &Metrics, requests: &Sender<Request>, retry: Retry) {
    let options = PluginOptions {
        name: "qosm".to_owned(),
        index: config.index.to_string(),
        budget: BUDGET,
        registration: REGISTRATION,
    };
    let mut reported = RuntimeLink::Off;
    let mut pause = retry.first;
    loop {
        let (link, was_connected) = serve_once(&config.socket, &options, metrics, requests).await;
        pause = if was_connected { retry.first } else { (pause * 2).min(retry.longest) };
        metrics.runtime_connected(false);
        if link != reported || was_connected {
            match &link {
                RuntimeLink::Away { socket, why } => {
                    tracing::warn!(
                        socket,
                        why,
                        "not connected to the container runtime by NRI; containers start as without it"
                    );
                }
                _ => {
                    tracing::info!(socket = %config.socket.display(), "no NRI socket; containers are found by their cgroups")
                }
            }
            reported = link.clone();
            if requests.send(Request::Runtime(RuntimeMessage::Link(link))).is_err() {
                return;
            }
        }
        tokio::time::sleep(if matches!(reported, RuntimeLink::Absent { .. }) { retry.longest } else { pause }).await;
    }
}

/// Serves one connection until it ends. Returns the state of the link after it, and whether the plug-in was registered.
async fn serve_once(
    socket: &Path,
    options: &PluginOptions,
    metrics: &Metrics,
    requests: &Sender<Request>,
) -> (RuntimeLink, bool) {
    let shown = socket.display().to_string();
    let stream = match UnixStream::connect(socket).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (RuntimeLink::Absent { socket: shown }, false),
        Err(error) => return (RuntimeLink::Away { socket: shown, why: error.to_string() }, false),
    };
    let mut was_connected = false;
    let send = |event: RuntimeEvent| {
        match &event {
            RuntimeEvent::Connected(RuntimeInfo { name, version, nri_version }) => {
                was_connected = true;
                metrics.runtime_connected(true);
                tracing::info!(runtime = name, version, nri_version, "connected to the container runtime by NRI");
                let link = RuntimeLink::Connected { runtime: name.clone(), version: version.clone() };
                let _ = requests.send(Request::Runtime(RuntimeMessage::Link(link)));
            }
            RuntimeEvent::Answered(outcome, waited) => {
                metrics.container_start(*outcome, waited.as_secs_f64());
                return;
            }
            _ => {}
        }
        // Once the loop has ended, messages and the replies in them are dropped.
        let _ = requests.send(Request::Runtime(RuntimeMessage::Event(event)));
    };
    let error: NriError = match qosm_nri::serve(stream, options, send).await {
        Ok(never) => match never {},
        Err(error) => error,
    };
    (RuntimeLink::Away { socket: shown, why: chain(&error) }, was_connected)
}

#[cfg(test)]
mod tests;
