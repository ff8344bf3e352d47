//! Requests to a running agent through its admin socket.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use qosm_terminal::{block_on, interrupt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

/// The agent refused the request.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// Error message if no agent listens on the socket.
pub(crate) fn no_agent_at(socket: &Path) -> String {
    format!("no agent answers at {}; is it running, are you root, is --admin-socket right?", socket.display())
}

/// Explains a failed connection, if the caller knows more than the connection's error.
static EXPLAINED: OnceLock<Box<dyn Fn() -> String + Send + Sync>> = OnceLock::new();

/// Sets the explanation of failed connections.
pub(crate) fn explain_failures_by(why: impl Fn() -> String + Send + Sync + 'static) {
    // The first explanation stays: a process connects in only one way.
    let _ = EXPLAINED.set(Box::new(why));
}

async fn send(socket: &Path, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Response<Incoming>> {
    let response = exchange(socket, method, path, body).await;
    let response = match (response, EXPLAINED.get()) {
        (Err(error), Some(why)) => Err(error.context(why())),
        (response, _) => response,
    }?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.into_body().collect().await?.to_bytes();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    bail!(Refused(if text.is_empty() { status.to_string() } else { text }))
}

async fn exchange(socket: &Path, method: Method, path: &str, body: Vec<u8>) -> anyhow::Result<Response<Incoming>> {
    let stream = UnixStream::connect(socket).await.with_context(|| no_agent_at(socket))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move { connection.await.ok() });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "qosm")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    // As text, because a broken pipe to the agent must not be mistaken for a closed standard output, which is no failure.
    sender.send_request(request).await.map_err(|error| anyhow!("the agent closed the connection: {error}"))
}

/// The process that listens on the socket; 0 if it is outside of this PID namespace.
pub(crate) fn listener(socket: &Path) -> anyhow::Result<i32> {
    block_on(async { Ok(UnixStream::connect(socket).await?.peer_cred()?.pid().unwrap_or_default()) })
}

/// Fetches a JSON document.
pub(crate) fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> anyhow::Result<T> {
    block_on(async {
        let response = send(socket, Method::GET, path, Vec::new()).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        serde_json::from_slice(&bytes).context("the agent's answer cannot be read; is it of another version?")
    })
}

/// Fetches a JSON document with a timeout.
pub(crate) fn get_within<T: DeserializeOwned>(socket: &Path, path: &str, time: Duration) -> anyhow::Result<T> {
    block_on(async {
        let asked = async {
            let response = send(socket, Method::GET, path, Vec::new()).await?;
            let bytes = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(serde_json::from_slice(&bytes)?)
        };
        tokio::time::timeout(time, asked).await?
    })
}

/// Sends a POST request, and returns the body of the answer.
pub(crate) fn post(socket: &Path, path: &str, body: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    block_on(async {
        let response = send(socket, Method::POST, path, serde_json::to_vec(body)?).await?;
        Ok(response.into_body().collect().await?.to_bytes().to_vec())
    })
}

/// Which side ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// This process: `take` stopped it, the time is over, or a signal came.
    Us,
    /// The agent.
    Agent,
}

/// Passes a stream to `take` piece by piece until it ends, `take` stops it, the time is over, or a signal comes.
pub(crate) fn stream(
    socket: &Path,
    path: &str,
    at_most: Option<Duration>,
    mut take: impl FnMut(&[u8]) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<EndedBy> {
    block_on(async {
        let mut asked = std::pin::pin!(interrupt::asked()?);
        let mut body = send(socket, Method::GET, path, Vec::new()).await?.into_body();
        let mut over = std::pin::pin!(async {
            match at_most {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        });
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = &mut over => return Ok(EndedBy::Us),
                () = &mut asked => return Ok(EndedBy::Us),
            };
            let Some(frame) = frame else { return Ok(EndedBy::Agent) };
            if let Some(bytes) = frame?.data_ref()
                && take(bytes)?.is_break()
            {
                return Ok(EndedBy::Us);
            }
        }
    })
}
