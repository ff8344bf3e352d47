//! One registry over HTTP: bounded reads, uploads, and errors with a remedy.
//!
//! This module makes the requests rather than `oci-client`, because a root daemon must bound each response: a manifest, a token,
//! a list of tags or an error from a registry may have any length and take any time. Also, that client uses the token address
//! without exposing it first, and panics at some responses.

mod push;
mod reach;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Once};
use std::time::Duration;

use futures::StreamExt as _;
use qosm_model::digest::Digest;
use reqwest::header::{ACCEPT, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, LINK, RANGE, RETRY_AFTER};
use reqwest::{RequestBuilder, Response, StatusCode};
use tokio::sync::Mutex;

use self::reach::AllowedAddresses;
use self::token::Known;
use crate::credentials::{self, Identity};
use crate::error::RegistryError;
use crate::manifest::{self, Document};
use crate::reference::Reference;
use crate::retry::retry;
use crate::settings::{HostSettings, RegistrySettings};

/// Timeout of connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout of credential helpers.
const HELPERS: Duration = Duration::from_secs(30);
/// Timeout of a registry that sends no data.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum number of bytes that are read of an error's body.
const ERROR_BODY: u64 = 16 << 10;
/// Maximum size of one page of tags, in bytes.
const TAGS_BODY: u64 = 1 << 20;
/// Maximum number of pages of tags that are read.
const PAGES: usize = 64;

/// A registry, with the settings for it and the credentials for one of its repositories.
pub(crate) struct Remote {
    host: HostSettings,
    http: reqwest::Client,
    identity: Identity,
    known: Mutex<HashMap<(String, Verb), Known>>,
}

/// The access that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verb {
    Pull,
    Push,
}

/// The referrers of a manifest.
pub(crate) struct Referrers {
    /// The index of referrers; `None` if there are none.
    pub(crate) index: Option<Document>,
    /// Whether the registry implements the referrers API. If not, the client maintains the referrers tag.
    pub(crate) by_api: bool,
}

/// The object of a request, and its name in errors.
struct Asked<'a> {
    reference: &'a Reference,
    kind: &'static str,
    verb: Verb,
}

impl<'a> Asked<'a> {
    fn pull(reference: &'a Reference, kind: &'static str) -> Self {
        Self { reference, kind, verb: Verb::Pull }
    }

    fn push(reference: &'a Reference, kind: &'static str) -> Self {
        Self { reference, kind, verb: Verb::Push }
    }
}

impl Remote {
    /// Prepares a client for this repository; sends no request.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Settings`] for certificates that cannot be used, [`RegistryError::Credentials`].
    #[expect(clippy::disallowed_methods, reason = "certificates are files that the operator names by path")]
    pub(crate) fn open(of: &Reference, settings: &RegistrySettings) -> Result<Self, RegistryError> {
        static PROVIDER: Once = Once::new();
        // The process uses one crypto provider, ring, also for the API server. If one is installed already, it stays.
        PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let registry = of.registry();
        let host = settings.host(registry);
        let identity = credentials::find(of, &settings.credentials)?;
        let failed = |message: String| RegistryError::Settings { place: format!("registry {registry}"), message };
        let reach = AllowedAddresses::of(registry);
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(USER_AGENT)
            .dns_resolver(Arc::new(reach.clone()))
            .redirect(reqwest::redirect::Policy::custom(move |attempt| follow(attempt, &reach)));
        if let Some(path) = &host.ca {
            let pem = std::fs::read(path).map_err(|source| RegistryError::File {
                action: "cannot read the certificates",
                path: path.clone(),
                source,
            })?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
                failed(format!("ca: {} holds no certificates in PEM form: {error}", path.display()))
            })?;
            if bundle.is_empty() {
                return Err(failed(format!("ca: {} holds no certificates in PEM form", path.display())));
            }
            http = http.tls_certs_merge(bundle);
        }
        if !has_authorities() {
            // The client cannot be built without any authority, not even for plain HTTP.
            let known = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
            let known: Result<Vec<_>, _> = known.map(|der| reqwest::Certificate::from_der(der)).collect();
            http = http.tls_certs_only(known.map_err(|error| failed(error.to_string()))?);
        }
        let http = http.build().map_err(|error| failed(error.to_string()))?;
        Ok(Self { host, http, identity, known: Mutex::default() })
    }

    /// The identity of its requests.
    pub(crate) fn identity(&self) -> &str {
        &self.identity.name
    }

    /// Fetches a manifest or index by its tag or digest. If the reference has a digest, the bytes match it.
    ///
    /// # Errors
    ///
    /// [`RegistryError`].
    pub(crate) async fn manifest(&self, reference: &Reference) -> Result<Document, RegistryError> {
        let version = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.to_owned(),
            (None, None) => return Err(crate::reference::ReferenceError::Version(reference.to_string()).into()),
        };
        let kind = if reference.digest().is_some() { "manifest" } else { "tag" };
        let document = self.document(&Asked::pull(reference, kind), &format!("manifests/{version}")).await?;
        match reference.digest() {
            Some(expected) if expected != document.digest => {
                Err(RegistryError::Digest { what: reference.to_string(), expected, found: document.digest })
            }
            _ => Ok(document),
        }
    }

    /// The referrers of a manifest: from the referrers API, else from the index at the referrers tag. Pages are read until there are `most`
    /// of them.
    ///
    /// # Errors
    ///
    /// [`RegistryError`]: an unreachable registry must not look like one without signatures.
    pub(crate) async fn referrers(
        &self,
        of: &Reference,
        digest: Digest,
        most: usize,
    ) -> Result<Referrers, RegistryError> {
        let asked = Asked::pull(of, "index of referrers");
        let path = format!("referrers/{digest}");
        match self.page(&asked, &path).await {
            Ok((document, next)) if document.is_index() => {
                let index = self.further_pages(&asked, &path, document, next, most).await?;
                return Ok(Referrers { index: Some(index), by_api: true });
            }
            // Registries without the API answer with an HTML page or an error.
            Ok(_) | Err(RegistryError::NotFound { .. } | RegistryError::InvalidArtifact { .. }) => {}
            Err(RegistryError::Answer { status: 400 | 405 | 501, .. }) => {}
            Err(error) => return Err(error),
        }
        let index = self.optional(of, &manifest::referrers_tag(digest)).await?;
        Ok(Referrers { index, by_api: false })
    }

    /// An index with the entries of its further pages, until it has `most` entries.
    async fn further_pages(
        &self,
        asked: &Asked<'_>,
        path: &str,
        first: Document,
        mut next: Option<String>,
        most: usize,
    ) -> Result<Document, RegistryError> {
        if next.is_none() {
            return Ok(first);
        }
        let what = asked.reference.to_string();
        let mut index = first.index(&what)?;
        let mut bytes = first.bytes.len();
        for _ in 1..PAGES {
            if u64::try_from(bytes).is_ok_and(|bytes| bytes > manifest::MAX) {
                break;
            }
            let Some(query) = next.filter(|_| index.manifests.len() < most) else { break };
            let (page, further) = self.page(asked, &format!("{path}?{query}")).await?;
            bytes = bytes.saturating_add(page.bytes.len());
            index.manifests.extend(page.index(&what)?.manifests);
            next = further.filter(|further| *further != query);
        }
        let bytes = serde_json::to_vec(&index).map_err(|error| RegistryError::InvalidArtifact {
            what: what.clone(),
            message: format!("its index of referrers cannot be put together: {error}"),
        })?;
        Document::read(bytes, manifest::INDEX, &what)
    }

    /// The manifest at a tag; `None` if the tag does not exist.
    pub(crate) async fn optional(&self, of: &Reference, tag: &str) -> Result<Option<Document>, RegistryError> {
        match self.manifest(&of.tagged(tag)).await {
            Ok(document) => Ok(Some(document)),
            Err(RegistryError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The tags of a repository, at most [`PAGES`] pages of them.
    pub(crate) async fn tags(&self, of: &Reference) -> Result<Vec<String>, RegistryError> {
        #[derive(serde::Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let asked = Asked::pull(of, "repository");
        let mut tags = Vec::new();
        let mut path = "tags/list?n=500".to_owned();
        for _ in 0..PAGES {
            let (bytes, headers) =
                retry(&of.name(), || self.read(&asked, &path, "application/json", TAGS_BODY)).await?;
            let page: Page = serde_json::from_slice(&bytes).map_err(|error| RegistryError::InvalidArtifact {
                what: of.name(),
                message: format!("the list of tags cannot be read: {error}"),
            })?;
            tags.extend(page.tags.unwrap_or_default());
            match next_of(&headers) {
                Some(last) => path = format!("tags/list?{last}"),
                None => break,
            }
        }
        Ok(tags)
    }

    /// Streams a blob from `offset`. Returns `false`, without calling `take`, if the registry does not start there.
    pub(crate) async fn blob(
        &self,
        of: &Reference,
        digest: Digest,
        offset: u64,
        most: u64,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), RegistryError> + Send),
    ) -> Result<bool, RegistryError> {
        let asked = Asked::pull(of, "blob");
        let path = format!("blobs/{digest}");
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = match self.get(&asked, &path, "*/*", range.as_deref()).await {
            // The registry's blob is not longer than the offset.
            Err(RegistryError::Answer { status: 416, .. }) if offset > 0 => return Ok(false),
            response => response?,
        };
        let goes_on = offset == 0 || response.status() == StatusCode::PARTIAL_CONTENT;
        let begins = response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let is_there = begins.is_none_or(|range| range.starts_with(&format!("bytes {offset}-")));
        if !goes_on || !is_there {
            return Ok(false);
        }
        let mut left = most.saturating_sub(offset);
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.unreachable(&asked, error))?;
            let size = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if size > left {
                let what = of.to_string();
                return Err(RegistryError::TooLarge { what, kind: "blob", size: most + 1, most, hint: "" });
            }
            left -= size;
            take(&chunk)?;
        }
        Ok(true)
    }

    async fn document(&self, asked: &Asked<'_>, path: &str) -> Result<Document, RegistryError> {
        Ok(self.page(asked, path).await?.0)
    }

    /// A document, and the query of its next page.
    async fn page(&self, asked: &Asked<'_>, path: &str) -> Result<(Document, Option<String>), RegistryError> {
        let read = || self.read(asked, path, manifest::ACCEPTED, manifest::MAX);
        let (bytes, headers) = retry(&asked.reference.to_string(), read).await?;
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok((Document::read(bytes, content_type, &asked.reference.to_string())?, next_of(&headers)))
    }

    async fn read(
        &self,
        asked: &Asked<'_>,
        path: &str,
        accept: &str,
        most: u64,
    ) -> Result<(Vec<u8>, HeaderMap), RegistryError> {
        let response = self.get(asked, path, accept, None).await?;
        let headers = response.headers().clone();
        let too_large = |size| RegistryError::TooLarge {
            what: asked.reference.to_string(),
            kind: asked.kind,
            size,
            most,
            hint: "",
        };
        if let Some(size) = response.content_length().filter(|size| *size > most) {
            return Err(too_large(size));
        }
        let (bytes, is_whole) = bounded(response, most).await.map_err(|error| self.unreachable(asked, error))?;
        if is_whole { Ok((bytes, headers)) } else { Err(too_large(most + 1)) }
    }

    async fn get(
        &self,
        asked: &Asked<'_>,
        path: &str,
        accept: &str,
        range: Option<&str>,
    ) -> Result<Response, RegistryError> {
        let url = self.address(&format!("{}/{path}", asked.reference.repository()));
        let mut request = self.http.get(url).header(ACCEPT, accept);
        if let Some(range) = range {
            request = request.header(RANGE, range);
        }
        self.send(asked, request).await
    }

    /// Sends a request with the required authorization.
    async fn send(&self, asked: &Asked<'_>, request: RequestBuilder) -> Result<Response, RegistryError> {
        self.judged(asked, self.authorized(asked, request).await?).await
    }

    /// Sends a request without adding authorization.
    async fn exchange(&self, asked: &Asked<'_>, request: RequestBuilder) -> Result<Response, RegistryError> {
        self.judged(asked, self.answer(asked, request).await?).await
    }

    async fn answer(&self, asked: &Asked<'_>, request: RequestBuilder) -> Result<Response, RegistryError> {
        request.send().await.map_err(|error| self.unreachable(asked, error))
    }

    async fn judged(&self, asked: &Asked<'_>, response: Response) -> Result<Response, RegistryError> {
        if response.status().is_success() { Ok(response) } else { Err(self.refused(asked, response).await) }
    }

    fn address(&self, path: &str) -> String {
        let scheme = if self.host.plain_http { "http" } else { "https" };
        // Docker Hub's API has a different host than its references.
        let host = if self.host.registry == "docker.io" { "index.docker.io" } else { &self.host.registry };
        format!("{scheme}://{host}/v2/{path}")
    }

    async fn refused(&self, asked: &Asked<'_>, response: Response) -> RegistryError {
        let status = response.status();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(seconds);
        let (what, registry) = (asked.reference.to_string(), self.host.registry.clone());
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.forbidden(asked, status.as_u16()),
            StatusCode::NOT_FOUND => RegistryError::NotFound { what, registry, kind: asked.kind, hint: String::new() },
            status => {
                let body = bounded(response, ERROR_BODY).await.map(|(bytes, _)| bytes).unwrap_or_default();
                let message = error_text(&body);
                RegistryError::Answer { what, registry, status: status.as_u16(), message, retry_after: wait }
            }
        }
    }

    fn forbidden(&self, asked: &Asked<'_>, status: u16) -> RegistryError {
        RegistryError::Forbidden {
            what: asked.reference.to_string(),
            registry: self.host.registry.clone(),
            identity: self.identity.name.clone(),
            verb: match asked.verb {
                Verb::Pull => "pull from",
                Verb::Push => "push to",
            },
            status,
        }
    }

    /// Omits the URL from the error: after a redirect it may contain a signature that works like a password.
    fn unreachable(&self, asked: &Asked<'_>, error: reqwest::Error) -> RegistryError {
        RegistryError::Unreachable {
            what: asked.reference.to_string(),
            registry: self.host.registry.clone(),
            source: Box::new(error.without_url()),
        }
    }
}

/// Whether this machine has certificate authorities. In an image without any, the client uses Mozilla's. If `SSL_CERT_FILE` or
/// `SSL_CERT_DIR` is set, only those count.
fn has_authorities() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let is_configured = ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some());
        is_configured || !rustls_native_certs::load_native_certs().certs.is_empty()
    });
    *HAS
}

const USER_AGENT: &str = concat!("qosm/", env!("CARGO_PKG_VERSION"));

/// Follows redirects, because many registries store blobs elsewhere; but never from HTTPS to plain HTTP, nor to
/// addresses within this node.
fn follow(attempt: reqwest::redirect::Attempt<'_>, reach: &AllowedAddresses) -> reqwest::redirect::Action {
    let was_tls = attempt.previous().iter().any(|url| url.scheme() == "https");
    if was_tls && attempt.url().scheme() != "https" {
        attempt.error("a redirect from HTTPS to plain HTTP is not followed")
    } else if reach.is_refused(attempt.url()) {
        attempt.error("a redirect to an address within this node is not followed")
    } else if attempt.previous().len() > 5 {
        attempt.error("more than five redirects")
    } else {
        attempt.follow()
    }
}

/// Reads the body up to `most` bytes. Returns `false` if there was more.
async fn bounded(response: Response, most: u64) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        if bytes.len() + chunk.len() > most {
            return Ok((bytes, false));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, true))
}

fn seconds(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

/// The message in an error's body.
fn error_text(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Errors {
        errors: Vec<Error>,
    }
    #[derive(serde::Deserialize)]
    struct Error {
        code: Option<String>,
        message: Option<String>,
    }
    let text = match serde_json::from_slice::<Errors>(body) {
        Ok(Errors { errors }) => errors
            .into_iter()
            .map(|error| error.message.or(error.code).unwrap_or_default())
            .collect::<Vec<_>>()
            .join("; "),
        Err(_) => String::from_utf8_lossy(body).lines().next().unwrap_or_default().trim().to_owned(),
    };
    let text: String = text.chars().filter(|character| !character.is_control()).take(200).collect();
    if text.is_empty() { text } else { format!(": {text}") }
}

/// The query of the next page, by a response's header `Link`.
fn next_of(headers: &HeaderMap) -> Option<String> {
    headers.get(LINK)?.to_str().ok().and_then(next_page)
}

/// The query of the next page, from `</v2/x/tags/list?n=1&last=b>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (address, relation) = link.split_once('>')?;
    let query = address.trim_start_matches('<').split_once('?')?.1;
    relation.contains("next").then(|| query.to_owned())
}

/// Clients by repository, opened once for a batch of work: credentials may apply to a single repository.
#[derive(Default)]
pub(crate) struct Remotes {
    open: HashMap<String, Arc<Remote>>,
}

impl Remotes {
    /// The registry of a repository, ready for requests. Credential helpers are third-party programs that may take long, so they
    /// run on a separate thread.
    #[expect(clippy::disallowed_methods, reason = "reading certificates may block")]
    pub(crate) async fn of(
        &mut self,
        of: &Reference,
        settings: &RegistrySettings,
    ) -> Result<Arc<Remote>, RegistryError> {
        if let Some(remote) = self.open.get(&of.name()) {
            return Ok(Arc::clone(remote));
        }
        let (reference, owned) = (of.clone(), settings.clone());
        let opening = tokio::task::spawn_blocking(move || Remote::open(&reference, &owned));
        let failed = |message: String| RegistryError::Credentials { registry: of.registry().to_owned(), message };
        let opened = tokio::time::timeout(HELPERS, opening).await;
        let opened =
            opened.map_err(|_| failed(format!("no credential helper answered within {} s", HELPERS.as_secs())))?;
        let remote = Arc::new(opened.map_err(|error| failed(error.to_string()))??);
        self.open.insert(of.name(), Arc::clone(&remote));
        Ok(remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_registry_says_is_cut_to_what_people_need() {
        assert_eq!(error_text(br#"{"errors":[{"code":"DENIED","message":"no"},{"code":"X"}]}"#), ": no; X");
        assert_eq!(error_text(b"<html>\nmany lines"), ": <html>");
        assert_eq!(error_text(b""), "");
        assert_eq!(error_text("x".repeat(900).as_bytes()).len(), 202);
        assert_eq!(next_page(r#"</v2/x/tags/list?last=b&n=1>; rel="next""#).as_deref(), Some("last=b&n=1"));
    }
}
