//! `qosm ui`: serves a page that shows a node in a browser, live or from a recording. It only reads.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use qosm_agent::report::{NodeUsage, PolicyReport};
use qosm_terminal::{Answer, block_on, interrupt, print};
use qosm_watch::history::History;
use qosm_watch::moment::Moment;
use qosm_watch::page::{CONTENT_SECURITY_POLICY, FILES};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use crate::args::UiArgs;
use crate::client;
use crate::played::Played;

/// Maximum number of moments that are kept of a running agent: some hours at the default interval.
const MOST_LIVE: usize = 10_000;
/// Maximum number of moments that are kept of a recording.
const MOST_RECORDED: usize = 100_000;

pub(crate) fn run(args: &UiArgs) -> anyhow::Result<Answer> {
    let shown = Shown::new(args);
    start(args, &shown)?;
    block_on(async {
        let listener = TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}; --listen names another address", args.listen))?;
        let at = listener.local_addr()?;
        let door = Door::new(at)?;
        print::text(&format!("{}\n", door.url()))?;
        axum::serve(listener, router(shown, door)).with_graceful_shutdown(interrupt::asked()?).await?;
        Ok(Answer::Good)
    })
}

/// The data of the page.
struct Page {
    title: String,
    /// Whether the page shows a recording rather than an agent.
    is_recording: bool,
    is_live: bool,
    history: History,
    policies: Vec<PolicyReport>,
    /// Why no new moments arrive; `None` if they do.
    trouble: Option<String>,
}

/// The page's data, shared with the thread that fills it.
#[derive(Clone)]
struct Shown(Arc<Mutex<Page>>);

impl Shown {
    fn new(args: &UiArgs) -> Self {
        let (title, most) = match &args.recording {
            Some(path) => (path.display().to_string(), MOST_RECORDED),
            None => (args.title.clone().unwrap_or_else(|| "this node".to_owned()), MOST_LIVE),
        };
        let is_recording = args.recording.is_some();
        let history = History::keeping(most);
        let page = Page { title, is_recording, is_live: true, history, policies: Vec::new(), trouble: None };
        Self(Arc::new(Mutex::new(page)))
    }

    /// Locks, also after a panic: fields are changed one at a time and stay valid.
    fn page(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, moment: Moment, policies: Vec<PolicyReport>) {
        let mut page = self.page();
        page.history.take(moment);
        (page.policies, page.trouble) = (policies, None);
    }
}

/// Fills the page on a separate thread.
#[expect(clippy::disallowed_methods, reason = "an agent is asked, or a recording is played, while pages are served")]
fn start(args: &UiArgs, shown: &Shown) -> anyhow::Result<()> {
    let shown = shown.clone();
    match &args.recording {
        Some(path) => {
            let played = Played::open(path, &args.modules)?;
            std::thread::spawn(move || {
                let ended = played.each(|moment, policies| {
                    shown.take(moment, policies);
                    true
                });
                let mut page = shown.page();
                page.is_live = false;
                page.trouble = ended.err().map(|error| format!("the recording is shown up to here: {error:#}"));
            });
        }
        None => {
            let (socket, interval) = (args.socket.admin_socket.clone(), args.interval.unsigned_abs());
            let first = usage(&socket)?;
            std::thread::spawn(move || ask(&socket, interval, first, &shown));
        }
    }
    Ok(())
}

fn usage(socket: &Path) -> anyhow::Result<NodeUsage> {
    client::get(socket, "/v1/usage")
}

/// Queries a running agent forever; an agent that has ended may come back.
fn ask(socket: &Path, interval: Duration, mut before: NodeUsage, shown: &Shown) {
    loop {
        std::thread::sleep(interval);
        let looked = usage(socket).and_then(|now| Ok((now, client::get(socket, "/v1/policies")?)));
        match looked {
            Ok((now, policies)) => {
                // The clock of a new agent starts again.
                if now.at_usec > before.at_usec {
                    shown.take(Moment::between(&before, &now), policies);
                }
                before = now;
            }
            Err(error) => shown.page().trouble = Some(format!("{error:#}")),
        }
    }
}

/// Access control: each request must carry the token of the printed address. Other users of this host, and pods
/// in its network, get nothing.
#[derive(Clone)]
struct Door {
    at: SocketAddr,
    token: String,
}

impl Door {
    fn new(at: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { at, token: token()? })
    }

    fn url(&self) -> String {
        format!("http://{}/?token={}", self.at, self.token)
    }

    fn opens(&self, token: Option<&str>) -> bool {
        token == Some(&self.token)
    }
}

/// A new token: 128 random bits in hexadecimal digits.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("no random numbers")?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[derive(Deserialize)]
struct Asked {
    token: Option<String>,
}

async fn guard(State(door): State<Door>, Query(asked): Query<Asked>, request: Request, next: Next) -> Response {
    if !door.opens(asked.token.as_deref()) {
        let why = "the address that `qosm ui` printed opens this page, and no other\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn router(shown: Shown, door: Door) -> Router {
    // The page's own files are public; only the data needs the token.
    let mut router = Router::new()
        .route("/api/overview", get(overview))
        .route("/api/container", get(container))
        .route_layer(from_fn_with_state(door, guard));
    for file in FILES {
        router = router.route(file.path, get(move || async move { ([(header::CONTENT_TYPE, file.kind)], file.text) }));
    }
    router.with_state(shown).layer(from_fn(with_headers))
}

async fn overview(State(shown): State<Shown>) -> Response {
    let page = shown.page();
    axum::Json(json!({
        "title": page.title,
        "isRecording": page.is_recording,
        "isLive": page.is_live,
        "trouble": page.trouble,
        "node": page.history.overview(),
        "policies": page.policies,
    }))
    .into_response()
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

async fn container(State(shown): State<Shown>, Query(named): Query<Named>) -> Response {
    let page = shown.page();
    match page.history.container(&named.name) {
        Some(container) => axum::Json(container).into_response(),
        None => (StatusCode::NOT_FOUND, format!("no container `{}` was seen here\n", named.name)).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_address_opens_and_nothing_else() {
        let door = Door::new(SocketAddr::from(([127, 0, 0, 1], 8080))).unwrap();
        let (address, token) =
            door.url().split_once("/?token=").map(|(at, token)| (at.to_owned(), token.to_owned())).unwrap();
        assert_eq!((address.as_str(), token.len()), ("http://127.0.0.1:8080", 32));
        assert!(door.opens(Some(&token)));
        assert!(!door.opens(None) && !door.opens(Some("")) && !door.opens(Some("0")));
        assert_ne!(Door::new(door.at).unwrap().token, token, "each has another");
    }
}
