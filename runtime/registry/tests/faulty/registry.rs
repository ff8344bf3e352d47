//! An in-process registry: the distribution specification in memory, with faults on request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{
    ACCEPT_RANGES, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, LINK, LOCATION, RANGE, WWW_AUTHENTICATE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use qosm_model::digest::Digest;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::artefact::{Artefact, INDEX, MANIFEST};
use crate::fault::Fault;

/// A registry that runs as long as the test does.
pub(crate) struct Registry {
    host: String,
    state: Arc<Mutex<State>>,
}

/// The required credentials.
#[derive(Clone, Default)]
pub(crate) enum Login {
    /// None.
    #[default]
    Open,
    /// User and password.
    Basic(&'static str, &'static str),
    /// A token from `realm`, which requires user and password if `account` is set.
    Token { realm: String, account: Option<(&'static str, &'static str)> },
    /// A token, which any client gets, or the password `secret` of `joe` if `takes_password` is set. The
    /// registry challenges with these header lines.
    Challenged { lines: &'static [&'static str], is_api_open: bool, takes_password: bool },
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    /// The path with its query.
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) range: Option<String>,
}

struct Order {
    method: Method,
    part: String,
    times: usize,
    fault: Fault,
}

#[derive(Default)]
struct State {
    host: String,
    login: Login,
    has_referrers_api: bool,
    /// Whether the response to an upload's start lacks the location.
    hides_locations: bool,
    page: Option<usize>,
    /// Manifests by repository and tag or digest.
    manifests: BTreeMap<(String, String), (String, Bytes)>,
    blobs: BTreeMap<(String, Digest), Bytes>,
    uploads: Vec<Vec<u8>>,
    orders: Vec<Order>,
    seen: Vec<Seen>,
}

impl Registry {
    /// Starts a registry on a free port.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State { host: host.clone(), ..State::default() }));
        let shared = Arc::clone(&state);
        let router = Router::new().fallback(move |request: Request| serve(Arc::clone(&shared), request));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { host, state }
    }

    /// Starts a registry with the referrers API.
    pub(crate) async fn with_referrers() -> Self {
        let registry = Self::start().await;
        registry.state().has_referrers_api = true;
        registry
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The reference of a repository and tag in this registry.
    pub(crate) fn named(&self, name: &str) -> String {
        format!("{}/{name}", self.host)
    }

    pub(crate) fn admit(&self, login: Login) {
        self.state().login = login;
    }

    pub(crate) fn page_by(&self, page: usize) {
        self.state().page = Some(page);
    }

    pub(crate) fn hide_locations(&self) {
        self.state().hides_locations = true;
    }

    /// Stores an artefact under a tag, and under its digest.
    pub(crate) fn put(&self, repository: &str, tag: &str, artefact: &Artefact) {
        let mut state = self.state();
        for blob in &artefact.blobs {
            state.blobs.insert((repository.to_owned(), Digest::of(blob)), blob.clone().into());
        }
        let manifest = (artefact.media_type.clone(), Bytes::from(artefact.manifest.clone()));
        for version in [tag.to_owned(), artefact.digest().to_string()] {
            state.manifests.insert((repository.to_owned(), version), manifest.clone());
        }
    }

    /// Stores a signature in cosign's second format for the artefact `to`, and lists it at the referrers tag unless the registry
    /// has the referrers API.
    pub(crate) fn refer(&self, repository: &str, to: Digest, signature: &Artefact) {
        self.put(repository, &signature.digest().to_string(), signature);
        if self.state().has_referrers_api {
            return;
        }
        let entry = json!({
            "mediaType": MANIFEST, "digest": signature.digest().to_string(), "size": signature.manifest.len(),
        });
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
        let index = Artefact { media_type: INDEX.to_owned(), manifest: index.into_bytes(), blobs: Vec::new() };
        self.put(repository, &format!("sha256-{}", to.hex()), &index);
    }

    /// Sets a fault for the next `times` requests with `part` in their path.
    pub(crate) fn wrong(&self, part: &str, times: usize, fault: Fault) {
        self.wrong_to(Method::GET, part, times, fault);
    }

    pub(crate) fn wrong_to(&self, method: Method, part: &str, times: usize, fault: Fault) {
        self.state().orders.push(Order { method, part: part.to_owned(), times, fault });
    }

    /// Removes all faults.
    pub(crate) fn mend(&self) {
        self.state().orders.clear();
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// The GETs so far with this in their path.
    pub(crate) fn gets(&self, part: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.method == "GET" && seen.path.contains(part)).collect()
    }

    /// Forgets the requests so far.
    pub(crate) fn forget(&self) {
        self.state().seen.clear();
    }

    /// The content: manifests and tags with their digests, and the digests of blobs.
    pub(crate) fn content(&self) -> BTreeMap<String, Digest> {
        let state = self.state();
        let manifests = state.manifests.iter().map(|((_, version), (_, bytes))| (version.clone(), Digest::of(bytes)));
        let blobs = state.blobs.iter().map(|((_, digest), bytes)| (format!("blob {digest}"), Digest::of(bytes)));
        manifests.chain(blobs).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// A correct response, before a fault changes it.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// The whole object, of which the body may be a part.
    whole: Bytes,
}

impl Answer {
    fn new(status: u16, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let status = StatusCode::from_u16(status).unwrap();
        Self { status, headers: HeaderMap::new(), whole: body.clone(), body }
    }

    fn with(mut self, name: impl axum::http::header::IntoHeaderName, value: &str) -> Self {
        self.headers.insert(name, HeaderValue::from_str(value).unwrap());
        self
    }

    fn error(status: u16, code: &str) -> Self {
        Self::new(status, json!({"errors": [{"code": code, "message": code.to_lowercase()}]}).to_string())
    }
}

async fn serve(state: Arc<Mutex<State>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let (answer, fault) = {
        let mut state = state.lock().unwrap();
        let text =
            |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok().map(str::to_owned));
        let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        state.seen.push(Seen {
            method: parts.method.to_string(),
            path: path.clone(),
            authorization: text(AUTHORIZATION),
            range: text(RANGE),
        });
        if matches!(parts.method, Method::GET | Method::HEAD) {
            let answer = state.answer(&parts, body);
            // Faults affect only authorized requests.
            let is_let_in = answer.status != StatusCode::UNAUTHORIZED;
            (answer, if is_let_in { state.fault(&parts.method, &path) } else { None })
        } else {
            // A request with a faulty response has no effect.
            match state.fault(&parts.method, &path) {
                Some(fault) => (Answer::new(200, ""), Some(fault)),
                None => (state.answer(&parts, body), None),
            }
        }
    };
    match fault {
        Some(fault) => fault.answer(answer.status, answer.headers, answer.body, answer.whole),
        None => (answer.status, answer.headers, Body::from(answer.body)).into_response(),
    }
}

impl State {
    fn fault(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let order = self.orders.iter_mut().find(|order| {
            // All other paths begin with `/v2/`, so it must match exactly.
            let is_meant = if order.part == "/v2/" { path == order.part } else { path.contains(&order.part) };
            order.times > 0 && order.method == *method && is_meant
        })?;
        order.times -= 1;
        Some(order.fault.clone())
    }

    fn answer(&mut self, parts: &Parts, body: Bytes) -> Answer {
        let path = parts.uri.path();
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.replace("%3A", ":").replace("%2F", "/").replace("%2C", ",")))
            .collect();
        if path == "/token" {
            return self.token(parts, &query);
        }
        let path = path.strip_prefix("/v2/").unwrap_or_default();
        let place = ["/manifests/", "/blobs/", "/referrers/", "/tags/"].into_iter().find_map(|kind| {
            let (repository, rest) = path.split_once(kind)?;
            Some((repository, kind.trim_matches('/'), rest))
        });
        let repository = place.map_or("", |(repository, ..)| repository);
        if let Err(refusal) = self.check(parts, repository) {
            return *refusal;
        }
        match (&parts.method, place) {
            (_, None) => Answer::new(200, "{}"),
            (&Method::GET | &Method::HEAD, Some((repository, "manifests", version))) => {
                match self.manifests.get(&(repository.to_owned(), version.to_owned())) {
                    Some((media_type, bytes)) => Answer::new(200, bytes.clone()).with(CONTENT_TYPE, media_type),
                    None => Answer::error(404, "MANIFEST_UNKNOWN"),
                }
            }
            (&Method::GET | &Method::HEAD, Some((repository, "blobs", digest))) => {
                let blob = digest.parse().ok().and_then(|digest| self.blobs.get(&(repository.to_owned(), digest)));
                blob.map_or_else(|| Answer::error(404, "BLOB_UNKNOWN"), |blob| part(blob, parts.headers.get(RANGE)))
            }
            (&Method::GET, Some((repository, "referrers", of))) => self.referrers(repository, of, query.get("last")),
            (&Method::GET, Some((repository, "tags", _))) => self.tags(repository, query.get("last")),
            (&Method::POST, Some((repository, "blobs", _))) => {
                self.uploads.push(Vec::new());
                let number = self.uploads.len() - 1;
                Answer::new(202, "").with(LOCATION, &format!("/v2/{repository}/blobs/uploads/{number}"))
            }
            (&Method::PATCH | &Method::PUT, Some((repository, "blobs", place))) => {
                let number: usize = place.rsplit('/').next().unwrap_or_default().parse().unwrap();
                if number >= self.uploads.len() {
                    return Answer::error(404, "BLOB_UPLOAD_UNKNOWN");
                }
                self.uploads[number].extend(&body);
                let size = self.uploads[number].len();
                let here = format!("/v2/{repository}/blobs/uploads/{number}");
                let Some(digest) = query.get("digest") else {
                    return Answer::new(202, "")
                        .with(LOCATION, &here)
                        .with("range", &format!("0-{}", size.saturating_sub(1)));
                };
                let bytes = std::mem::take(&mut self.uploads[number]);
                if Digest::of(&bytes).to_string() != *digest {
                    return Answer::error(400, "DIGEST_INVALID");
                }
                self.blobs.insert((repository.to_owned(), Digest::of(&bytes)), bytes.into());
                Answer::new(201, "").with(LOCATION, &format!("/v2/{repository}/blobs/{digest}"))
            }
            (&Method::PUT, Some((repository, "manifests", version))) => {
                let media_type = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
                self.take_manifest(repository, version, media_type.unwrap_or_default(), body)
            }
            _ => Answer::error(405, "UNSUPPORTED"),
        }
    }

    fn take_manifest(&mut self, repository: &str, version: &str, media_type: &str, bytes: Bytes) -> Answer {
        let manifest: Value = serde_json::from_slice(&bytes).unwrap();
        let named = manifest["layers"].as_array().into_iter().flatten().chain(manifest.get("config"));
        let is_whole = named.into_iter().all(|blob| {
            let digest = blob["digest"].as_str().unwrap_or_default().parse().unwrap();
            self.blobs.contains_key(&(repository.to_owned(), digest))
        });
        if !is_whole {
            return Answer::error(400, "MANIFEST_BLOB_UNKNOWN");
        }
        let digest = Digest::of(&bytes).to_string();
        if version.starts_with("sha256:") && version != digest {
            return Answer::error(400, "DIGEST_INVALID");
        }
        for version in [version, &digest] {
            let place = (repository.to_owned(), version.to_owned());
            self.manifests.insert(place, (media_type.to_owned(), bytes.clone()));
        }
        let answer = Answer::new(201, "");
        if self.hides_locations {
            return answer;
        }
        answer.with(LOCATION, &format!("/v2/{repository}/manifests/{digest}"))
    }

    fn referrers(&self, repository: &str, of: &str, last: Option<&String>) -> Answer {
        if !self.has_referrers_api {
            return Answer::error(404, "NOT_FOUND");
        }
        let mut listed = BTreeMap::new();
        for ((place, _), (media_type, bytes)) in &self.manifests {
            let manifest: Value = serde_json::from_slice(bytes).unwrap();
            if place == repository && manifest["subject"]["digest"] == of {
                let digest = Digest::of(bytes).to_string();
                let entry = json!({"mediaType": media_type, "digest": digest, "size": bytes.len()});
                listed.insert(digest, entry);
            }
        }
        listed.retain(|digest, _| Some(digest) > last);
        let page = self.page.unwrap_or(usize::MAX);
        let next = listed.keys().nth(page).and(listed.keys().nth(page.saturating_sub(1))).cloned();
        let listed: Vec<_> = listed.into_values().take(page).collect();
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed});
        let answer = Answer::new(200, index.to_string()).with(CONTENT_TYPE, INDEX);
        match next {
            Some(last) => answer.with(LINK, &format!("</v2/{repository}/referrers/{of}?last={last}>; rel=\"next\"")),
            None => answer,
        }
    }

    fn tags(&self, repository: &str, last: Option<&String>) -> Answer {
        let tags = self.manifests.keys().filter(|(place, tag)| place == repository && !tag.contains(':'));
        let mut tags: Vec<_> = tags.map(|(_, tag)| tag.clone()).filter(|tag| Some(tag) > last).collect();
        let page = self.page.unwrap_or(usize::MAX);
        let is_more = tags.len() > page;
        tags.truncate(page);
        let answer = Answer::new(200, json!({"name": repository, "tags": tags}).to_string());
        match tags.last().filter(|_| is_more) {
            Some(last) => {
                answer.with(LINK, &format!("</v2/{repository}/tags/list?n={page}&last={last}>; rel=\"next\""))
            }
            None => answer,
        }
    }

    /// Checks a request's authorization.
    fn check(&self, parts: &Parts, repository: &str) -> Result<(), Box<Answer>> {
        let brought = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_reading = matches!(parts.method, Method::GET | Method::HEAD);
        let reads = |brought: &str| {
            let scope = brought.strip_prefix("Bearer ").unwrap_or_default();
            scope.starts_with(&format!("repository:{repository}:pull"))
        };
        let (is_good, challenges) = match &self.login {
            Login::Open => return Ok(()),
            Login::Challenged { is_api_open: true, .. } if repository.is_empty() => return Ok(()),
            Login::Challenged { lines, takes_password, .. } => {
                let has_password = *takes_password && brought == basic("joe", "secret");
                let lines = lines.iter().map(|line| line.replace("HOST", &self.host)).collect();
                (has_password || is_reading && reads(brought), lines)
            }
            Login::Basic(user, password) => (brought == basic(user, password), vec!["Basic realm=\"test\"".to_owned()]),
            Login::Token { realm, .. } => {
                let may_write = brought == format!("Bearer repository:{repository}:pull,push");
                let realm = realm.replace("HOST", &self.host);
                let challenge = format!("Bearer realm=\"{realm}\",service=\"test\"");
                (may_write || is_reading && reads(brought), vec![challenge])
            }
        };
        if is_good {
            return Ok(());
        }
        let mut refusal = Answer::error(401, "UNAUTHORIZED");
        for challenge in challenges {
            refusal.headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(&challenge).unwrap());
        }
        Err(Box::new(refusal))
    }

    /// Issues a token that contains its scopes.
    fn token(&self, parts: &Parts, query: &BTreeMap<String, String>) -> Answer {
        let brought = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match &self.login {
            Login::Token { account: Some((user, password)), .. } if brought != basic(user, password) => {
                Answer::error(401, "UNAUTHORIZED")
            }
            _ => Answer::new(200, json!({"token": query.get("scope")}).to_string()),
        }
    }
}

/// The requested range of a blob.
fn part(blob: &Bytes, range: Option<&HeaderValue>) -> Answer {
    let range: Option<usize> =
        range.and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match range {
        None => Answer::new(200, blob.clone()).with(ACCEPT_RANGES, "bytes"),
        Some(from) if from >= blob.len() => Answer::error(416, "RANGE_INVALID"),
        Some(from) => {
            let place = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
            let answer = Answer::new(206, blob.slice(from..)).with(CONTENT_RANGE, &place);
            Answer { whole: blob.clone(), ..answer }
        }
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}
