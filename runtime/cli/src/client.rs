//! Talking to a running agent through its admin socket.

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

/// The agent said no.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// That no connection to the agent is to be had.
pub(crate) fn no_agent_at(socket: &Path) -> String {
    format!("no agent answers at {}; is it running, are you root, is --admin-socket right?", socket.display())
}

/// Says why nothing came back, where it is more than the connection knows.
static EXPLAINED: OnceLock<Box<dyn Fn() -> String + Send + Sync>> = OnceLock::new();

/// From now on, failures of connections are explained so.
pub(crate) fn explain_failures_by(why: impl Fn() -> String + Send + Sync + 'static) {
    // Whoever said it first goes on: a process asks in one way.
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
    // In words: a closed connection is not a closed standard output, which is no failure.
    sender.send_request(request).await.map_err(|error| anyhow!("the agent closed the connection: {error}"))
}

/// Asks for a document.
pub(crate) fn get<T: DeserializeOwned>(socket: &Path, path: &str) -> anyhow::Result<T> {
    block_on(async {
        let response = send(socket, Method::GET, path, Vec::new()).await?;
        let bytes = response.into_body().collect().await?.to_bytes();
        serde_json::from_slice(&bytes).context("the agent's answer cannot be read; is it of another version?")
    })
}

/// The same of an agent that may be slow, for who does not wait.
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

/// Asks for something to be done.
pub(crate) fn post(socket: &Path, path: &str, body: &impl Serialize) -> anyhow::Result<Vec<u8>> {
    block_on(async {
        let response = send(socket, Method::POST, path, serde_json::to_vec(body)?).await?;
        Ok(response.into_body().collect().await?.to_bytes().to_vec())
    })
}

/// Who ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// We: enough was taken, the time is over, or a signal came.
    Us,
    /// The agent.
    Agent,
}

/// Hands over a stream piece by piece until it ends, `take` says stop, the time is over, or a signal asks to end.
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
