//! The agent's two servers: metrics and health over HTTP for the node's monitoring, and the admin API on a unix socket for root.
//! tokio lives here and nowhere else in this crate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use qosm_model::lease::Timestamp;
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;

use crate::listen::{self as server, Bounds};
use crate::metrics::{Metrics, containers};
use crate::request::Request;

/// Number of recorded lines that are buffered for a slow client. A line of a full node is about 50 KB, and the agent must stay small.
const RECORDED_LINES: usize = 32;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The pod that a request is about.
#[derive(Debug, Serialize, Deserialize)]
pub struct PodQuery {
    /// `namespace/name`, or the name alone where it is unique.
    pub pod: String,
}

/// Body of `POST /v1/pause`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseRequest {
    /// `namespace/name`.
    pub pod: String,
    /// When the pause ends, in milliseconds since the epoch; `None` = when the pod is resumed.
    #[serde(default)]
    pub until_millis: Option<i64>,
}

/// Body of `POST /v1/swap`: another module for a policy.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwapRequest {
    /// Name of the policy.
    pub policy: String,
    /// Reference of the module; `None` swaps back to the previous module.
    #[serde(default)]
    pub module: Option<String>,
}

/// Response to `POST /v1/pause` and `POST /v1/resume`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Paused {
    /// Whether the pod is on this node now. If not, the pause takes effect when the pod appears.
    pub known: bool,
}

/// The policy that a request is about.
#[derive(Debug, Serialize, Deserialize)]
pub struct PolicyQuery {
    /// Name of the policy.
    pub policy: String,
}

#[derive(Clone)]
struct Loop(Sender<Request>);

impl Loop {
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T, Response> {
        let (reply, answer) = oneshot::channel();
        let gone = || (StatusCode::SERVICE_UNAVAILABLE, "the agent is ending").into_response();
        self.0.send(request(reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }

    async fn json<T: Serialize>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Response {
        match self.ask(request).await {
            Ok(answer) => as_json(&answer),
            Err(response) => response,
        }
    }
}

/// Serializes like [`Json`], but into a vector: lists of a full node are hundreds of kilobytes, and `BytesMut` takes them a word at a time.
fn as_json<T: Serialize>(answer: &T) -> Response {
    match serde_json::to_vec(answer) {
        Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// How long container series are cached: more frequent scrapes do not query the loop more often.
const CONTAINERS_FRESH: Duration = Duration::from_secs(1);

/// How long a scrape waits for the loop.
const CONTAINERS_PATIENCE: Duration = Duration::from_secs(5);

/// Metric series per container.
struct ContainerSeries {
    /// Maximum number of containers; 0 = no such series.
    most: usize,
    /// The series that were served last, and when they were read.
    last: tokio::sync::Mutex<Option<(Instant, String)>>,
}

impl ContainerSeries {
    #[expect(clippy::disallowed_methods, reason = "the age of what is shown decides nothing")]
    async fn text(&self, agent: &Loop) -> String {
        if self.most == 0 {
            return String::new();
        }
        let mut last = self.last.lock().await;
        if let Some((read, text)) = last.as_ref()
            && read.elapsed() < CONTAINERS_FRESH
        {
            return text.clone();
        }
        // If the agent is ending or its loop does not answer in time, only these series are missing.
        let asked = tokio::time::timeout(CONTAINERS_PATIENCE, agent.ask(Request::Usage)).await;
        let Ok(Ok(usage)) = asked else { return String::new() };
        let text = containers::text(&usage, self.most);
        *last = Some((Instant::now(), text.clone()));
        text
    }
}

/// Serves `/metrics`, with series of at most `most_containers` containers, `/healthz` (the loop answers) and `/readyz` (the loop answers,
/// and every policy runs).
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve_metrics(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    most_containers: usize,
    requests: Sender<Request>,
) -> std::io::Result<()> {
    let containers = Arc::new(ContainerSeries { most: most_containers, last: tokio::sync::Mutex::default() });
    let router = Router::new()
        .route(
            "/metrics",
            get(move |State(agent): State<Loop>, headers: HeaderMap| async move {
                let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
                let (kind, text) = metrics.text(accept, &containers.text(&agent).await);
                ([("content-type", kind)], text)
            }),
        )
        .route(
            "/healthz",
            get(|State(agent): State<Loop>| async move {
                match agent.ask(Request::Health).await {
                    Ok(_) => "ok\n".into_response(),
                    Err(response) => response,
                }
            }),
        )
        .route(
            "/readyz",
            get(|State(agent): State<Loop>| async move {
                match agent.ask(Request::Health).await {
                    Ok(Ok(())) => "ok\n".into_response(),
                    Ok(Err(why)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
                    Err(response) => response,
                }
            }),
        )
        .with_state(Loop(requests));
    server::serve(listener, router, Bounds::default()).await
}

/// Creates the admin socket with mode 0600. Replaces a socket that a dead agent left behind.
///
/// # Errors
///
/// When the folder cannot be written, another agent listens on the socket, or the path is something other than a socket.
#[expect(clippy::disallowed_methods, reason = "the admin socket is bound to a path")]
pub fn bind_admin(path: &Path) -> std::io::Result<UnixListener> {
    use std::io::{Error, ErrorKind};
    use std::os::unix::fs::FileTypeExt;
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(Error::new(ErrorKind::AddrInUse, "another agent listens on this socket"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => return Err(Error::new(ErrorKind::AlreadyExists, "there is a file of that name, and it is no socket")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // `bind` creates the file with the mode of the socket, so other users cannot connect before a later chmod. A umask would also affect
    // the files of other threads.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Serves the admin API until `closed` resolves, and returns when all open requests are answered.
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve_admin(
    listener: UnixListener,
    requests: Sender<Request>,
    closed: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/pods", get(|State(agent): State<Loop>| async move { agent.json(Request::Pods).await }))
        .route("/v1/usage", get(|State(agent): State<Loop>| async move { agent.json(Request::Usage).await }))
        .route("/v1/policies", get(|State(agent): State<Loop>| async move { agent.json(Request::Policies).await }))
        .route("/v1/knobs", get(knobs))
        .route("/v1/resources", get(|State(agent): State<Loop>| async move { agent.json(Request::Resources).await }))
        .route("/v1/evictions", get(|State(agent): State<Loop>| async move { agent.json(Request::Evictions).await }))
        .route("/v1/classes", get(|State(agent): State<Loop>| async move { agent.json(Request::Classes).await }))
        .route("/v1/events", get(|State(agent): State<Loop>| async move { agent.json(Request::Events).await }))
        .route("/v1/problems", get(|State(agent): State<Loop>| async move { agent.json(Request::Problems).await }))
        .route("/v1/confinement", get(confinement))
        .route("/v1/runtime", get(|State(agent): State<Loop>| async move { agent.json(Request::RuntimeLink).await }))
        .route("/v1/explain", get(explain))
        .route("/v1/diff", get(diff))
        .route("/v1/pause", post(pause))
        .route("/v1/resume", post(resume))
        .route(
            "/v1/hold",
            post(async || (StatusCode::GONE, "renamed: use POST /v1/pause, and POST /v1/resume to end a pause\n")),
        )
        .route("/v1/retry", post(retry))
        .route("/v1/swap", post(swap))
        .route("/v1/restore", get(restorable).post(restore))
        .route("/v1/record", get(record))
        .with_state(Loop(requests));
    axum::serve(listener, router).with_graceful_shutdown(closed).await
}

/// Response to `GET /v1/knobs`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Knobs {
    /// Knobs that policies hold.
    pub held: Vec<crate::report::KnobReport>,
    /// Settings that are not in force.
    pub refused: Vec<crate::report::RefusalReport>,
    /// What policies wanted for the node or a tier and did not do. Remarks about pods are in the pods' explanations.
    #[serde(default)]
    pub remarks: Vec<crate::report::RemarkReport>,
}

async fn knobs(State(agent): State<Loop>) -> Response {
    match agent.ask(Request::Knobs).await {
        Ok((held, refused, remarks)) => Json(Knobs { held, refused, remarks }).into_response(),
        Err(response) => response,
    }
}

async fn confinement(State(agent): State<Loop>) -> Response {
    match agent.ask(Request::Confinement).await {
        Ok(Ok(report)) => Json(report).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
        Err(response) => response,
    }
}

async fn explain(State(agent): State<Loop>, Query(query): Query<PodQuery>) -> Response {
    let pod = query.pod.clone();
    match agent.ask(|reply| Request::Explain(query.pod, reply)).await {
        Ok(Some(explanation)) => Json(explanation).into_response(),
        Ok(None) => match agent.ask(Request::Pods).await {
            Ok(pods) => {
                let keys: Vec<String> = pods.into_iter().map(|report| report.pod).collect();
                (StatusCode::NOT_FOUND, not_one_pod(&pod, &keys)).into_response()
            }
            Err(response) => response,
        },
        Err(response) => response,
    }
}

/// Why a name is not that of one pod among `keys`.
fn not_one_pod(pod: &str, keys: &[String]) -> String {
    let is_named = |key: &&str| key.split_once('/').is_some_and(|(_, name)| name == pod);
    let named: Vec<&str> = keys.iter().map(String::as_str).filter(is_named).collect();
    if named.is_empty() {
        format!("no pod `{pod}` on this node; see `qosm get pods`")
    } else {
        format!("`{pod}` is the name of {}: name one of them", named.join(" and "))
    }
}

async fn diff(State(agent): State<Loop>, Query(query): Query<PolicyQuery>) -> Response {
    match agent.ask(|reply| Request::Diff(query.policy, reply)).await {
        Ok(Ok(report)) => Json(report).into_response(),
        Ok(Err(error)) => (StatusCode::NOT_FOUND, error).into_response(),
        Err(response) => response,
    }
}

async fn pause(State(agent): State<Loop>, Json(request): Json<PauseRequest>) -> Response {
    set_pause(&agent, request.pod, Some(request.until_millis.map(Timestamp))).await
}

async fn resume(State(agent): State<Loop>, Json(query): Json<PodQuery>) -> Response {
    set_pause(&agent, query.pod, None).await
}

async fn set_pause(agent: &Loop, pod: String, until: Option<Option<Timestamp>>) -> Response {
    match agent.ask(|reply| Request::Pause(pod, until, reply)).await {
        Ok(Ok(known)) => Json(Paused { known }).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
        Err(response) => response,
    }
}

async fn retry(State(agent): State<Loop>, Json(query): Json<PolicyQuery>) -> Response {
    let policy = query.policy.clone();
    match agent.ask(|reply| Request::Retry(query.policy, reply)).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => (StatusCode::NOT_FOUND, format!("no policy `{policy}`; see `qosm get policies`")).into_response(),
        Err(response) => response,
    }
}

async fn swap(State(agent): State<Loop>, Json(request): Json<SwapRequest>) -> Response {
    match agent.ask(|reply| Request::Swap(request.policy, request.module, reply)).await {
        Ok(Ok(swapped)) => Json(swapped).into_response(),
        Ok(Err(error)) => (StatusCode::CONFLICT, error).into_response(),
        Err(response) => response,
    }
}

async fn restorable(State(agent): State<Loop>) -> Response {
    agent.json(Request::Restorable).await
}

async fn restore(State(agent): State<Loop>) -> Response {
    agent.json(|reply| Request::ShutDown { restore: true, reply: Some(reply) }).await
}

#[expect(clippy::disallowed_methods, reason = "a recording is written while the loop goes on")]
async fn record(State(agent): State<Loop>) -> Response {
    let (lines, received) = std::sync::mpsc::sync_channel::<String>(RECORDED_LINES);
    if agent.0.send(Request::Record(lines)).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the agent is ending").into_response();
    }
    let (chunks, stream) = tokio::sync::mpsc::channel::<String>(1);
    tokio::task::spawn_blocking(move || {
        for line in received {
            if chunks.blocking_send(line).is_err() {
                break;
            }
        }
    });
    let body = axum::body::Body::from_stream(Lines(stream));
    ([("content-type", "application/jsonl")], body).into_response()
}

/// Adapts a channel of lines to the body stream of a response.
struct Lines(tokio::sync::mpsc::Receiver<String>);

impl futures_core::Stream for Lines {
    type Item = Result<String, std::convert::Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|line| line.map(Ok))
    }
}

/// Serves `/healthz` and `/readyz` for a process without a loop.
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve_readiness(listener: TcpListener, ready: Arc<AtomicBool>) -> std::io::Result<()> {
    let router = Router::new().route("/healthz", get(|| async { "ok\n" })).route(
        "/readyz",
        get(move || async move {
            if ready.load(Ordering::Relaxed) {
                "ok\n".into_response()
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "waiting for the API server\n").into_response()
            }
        }),
    );
    server::serve(listener, router, Bounds::default()).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_a_socket_is_replaced_and_only_root_may_use_it() -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _guard = runtime.enter();
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("admin.sock");
        std::fs::write(&path, "precious")?;
        assert_eq!(bind_admin(&path).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path)?, "precious");

        std::fs::remove_file(&path)?;
        let first = bind_admin(&path)?;
        assert_eq!(std::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_admin(&path).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
        drop(first);
        bind_admin(&path).map(drop)
    }

    #[test]
    fn a_name_of_several_pods_is_answered_with_their_full_names() {
        let keys = ["default/web", "other/web", "other/myweb"].map(str::to_owned);
        for (pod, expected) in [
            ("web", "`web` is the name of default/web and other/web: name one of them"),
            ("db", "no pod `db` on this node; see `qosm get pods`"),
            ("default/myweb", "no pod `default/myweb` on this node; see `qosm get pods`"),
        ] {
            assert_eq!(not_one_pod(pod, &keys), expected);
        }
    }

    #[test]
    fn the_old_path_of_a_pause_names_the_new_one() -> std::io::Result<()> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("admin.sock");
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
            let (requests, _loop) = std::sync::mpsc::channel();
            tokio::spawn(serve_admin(bind_admin(&path)?, requests, std::future::pending()));
            let mut client = tokio::net::UnixStream::connect(&path).await?;
            client.write_all(b"POST /v1/hold HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
            let mut answer = String::new();
            client.read_to_string(&mut answer).await?;
            assert!(answer.starts_with("HTTP/1.1 410 ") && answer.contains("/v1/pause"), "{answer}");
            Ok(())
        })
    }
}
