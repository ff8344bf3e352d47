//! Authorization: a registry's challenges, the token address, and whether a password may be sent there.
//!
//! Any request may be challenged (OCI distribution specification, and RFC 9110, section 11.6.1), by several challenges in one
//! header line or several: a registry that answers `/v2/` without authorization may still require a token for a manifest. The
//! client answers one challenge that it can meet.

use std::time::{Duration, Instant};

use http_auth::parser::ChallengeParser;
use oci_client::secrets::RegistryAuth;
use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{RequestBuilder, Response, StatusCode, Url};

use super::reach::{AllowedAddresses, WITHIN};
use super::{Asked, Remote, Verb, bounded};
use crate::error::RegistryError;
use crate::retry::retry;
use crate::settings::HostSettings;

/// Age at which a token is renewed: tokens without an expiry last 60 s.
const TOKEN_LASTS: Duration = Duration::from_secs(45);
/// Maximum size of a token response, in bytes.
const TOKEN_BODY: u64 = 64 << 10;

/// The authorization of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authorization {
    /// None: the registry did not ask for any.
    Nothing,
    /// User and password.
    Password,
    /// A token.
    Token(String),
}

/// The authorization that works for a repository and a verb.
pub(super) struct Known {
    authorization: Authorization,
    since: Instant,
}

/// A challenge of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Challenge {
    /// A token from the address `realm`.
    Token { realm: String, service: Option<String>, scope: Option<String> },
    /// User and password.
    Password,
}

impl Remote {
    /// Sends a request with the known authorization, and once more if the registry asks for another.
    pub(super) async fn authorized(
        &self,
        asked: &Asked<'_>,
        request: RequestBuilder,
    ) -> Result<Response, RegistryError> {
        let used = self.authorization(asked).await?;
        let again = request.try_clone();
        let response = self.answer(asked, self.bring(&used, request)).await?;
        // After a redirect to another host, a challenge is not the registry's.
        let is_refused = response.status() == StatusCode::UNAUTHORIZED && self.is_own(response.url());
        let Some(again) = again.filter(|_| is_refused) else { return Ok(response) };
        match self.renewed(asked, &used, challenges(response.headers())).await? {
            Some(other) => self.answer(asked, self.bring(&other, again)).await,
            None => Ok(response),
        }
    }

    /// The known authorization, else the one that `/v2/` asks for: this avoids a refusal of each request.
    #[expect(clippy::disallowed_methods, reason = "a token is valid for a while")]
    async fn authorization(&self, asked: &Asked<'_>) -> Result<Authorization, RegistryError> {
        let mut known = self.known.lock().await;
        let key = (asked.reference.repository().to_owned(), asked.verb);
        if let Some(known) = known.get(&key).filter(|known| known.since.elapsed() < TOKEN_LASTS) {
            return Ok(known.authorization.clone());
        }
        let challenges = retry(&asked.reference.to_string(), || self.challenged(asked)).await?;
        let authorization = self.met(asked, challenges).await?.unwrap_or(Authorization::Nothing);
        known.insert(key, Known { authorization: authorization.clone(), since: Instant::now() });
        Ok(authorization)
    }

    /// Another authorization after a request with `used` was refused; `None` if there is none.
    #[expect(clippy::disallowed_methods, reason = "a token is valid for a while")]
    async fn renewed(
        &self,
        asked: &Asked<'_>,
        used: &Authorization,
        mut challenges: Vec<Challenge>,
    ) -> Result<Option<Authorization>, RegistryError> {
        let mut known = self.known.lock().await;
        let key = (asked.reference.repository().to_owned(), asked.verb);
        if let Some(known) = known.get(&key).filter(|known| known.authorization != *used) {
            return Ok(Some(known.authorization.clone()));
        }
        // Some registries refuse without a challenge.
        if challenges.is_empty() {
            challenges.push(Challenge::Password);
        }
        let other = self.met(asked, challenges).await?.filter(|other| other != used);
        if let Some(other) = &other {
            known.insert(key, Known { authorization: other.clone(), since: Instant::now() });
        }
        Ok(other)
    }

    fn bring(&self, authorization: &Authorization, request: RequestBuilder) -> RequestBuilder {
        match authorization {
            Authorization::Nothing => request,
            Authorization::Password => self.with_password(request),
            Authorization::Token(token) => request.bearer_auth(token),
        }
    }

    fn with_password(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.identity.auth {
            RegistryAuth::Basic(user, password) => request.basic_auth(user, Some(password)),
            _ => request,
        }
    }

    fn is_own(&self, url: &Url) -> bool {
        Url::parse(&self.address("")).is_ok_and(|own| own.origin() == url.origin())
    }

    /// The challenges of `/v2/`.
    async fn challenged(&self, asked: &Asked<'_>) -> Result<Vec<Challenge>, RegistryError> {
        let response = self.answer(asked, self.http.get(self.address(""))).await?;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(self.refused(asked, response).await);
        }
        Ok(if self.is_own(response.url()) { challenges(response.headers()) } else { Vec::new() })
    }

    /// Answers the first challenge that can be met. Returns `None` if there is none, and an error if the token for one cannot be fetched.
    async fn met(
        &self,
        asked: &Asked<'_>,
        mut challenges: Vec<Challenge>,
    ) -> Result<Option<Authorization>, RegistryError> {
        // Tokens first: a registry that offers both may accept the password only for a token.
        challenges.sort_by_key(|challenge| matches!(challenge, Challenge::Password));
        let mut failed = None;
        for challenge in challenges {
            match challenge {
                Challenge::Password if matches!(self.identity.auth, RegistryAuth::Basic(..)) => {
                    return Ok(Some(Authorization::Password));
                }
                Challenge::Password => {}
                Challenge::Token { realm, service, scope } => {
                    match self.token_at(asked, &realm, service.as_deref(), scope.as_deref()).await {
                        Ok(token) => return Ok(Some(Authorization::Token(token))),
                        Err(error) => failed = failed.or(Some(error)),
                    }
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Fetches a token from the address that the registry names. Because the password is sent there, the address must not be
    /// within this node, nor its metadata service, nor plain HTTP.
    async fn token_at(
        &self,
        asked: &Asked<'_>,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, RegistryError> {
        if let Some(why) = flaw_of_realm(realm, &self.host) {
            let (what, registry) = (asked.reference.to_string(), self.host.registry.clone());
            return Err(RegistryError::Realm { what, registry, realm: realm.to_owned(), why });
        }
        retry(&asked.reference.to_string(), || self.token(asked, realm, service, scope)).await
    }

    /// Requests a token. CNCF distribution, "Token Authentication Specification".
    async fn token(
        &self,
        asked: &Asked<'_>,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<String, RegistryError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        // Not `NotFound`: the artefact or its signatures may exist.
        let none = |status| RegistryError::Answer {
            what: asked.reference.to_string(),
            registry: self.host.registry.clone(),
            status,
            message: format!(" without a token at `{realm}`"),
            retry_after: None,
        };
        let actions = match asked.verb {
            Verb::Pull => "pull",
            Verb::Push => "pull,push",
        };
        let own = format!("repository:{}:{actions}", asked.reference.repository());
        let mut url = Url::parse(realm).map_err(|_| none(0))?;
        // The scopes of the challenge, and the scope that the next requests will need.
        let theirs = scope.unwrap_or_default().split_whitespace().filter(|scope| *scope != own).take(SCOPES);
        for scope in theirs.chain([own.as_str()]) {
            url.query_pairs_mut().append_pair("scope", scope);
        }
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let response = match self.exchange(asked, self.with_password(self.http.get(url))).await {
            Err(RegistryError::NotFound { .. }) => return Err(none(404)),
            response => response?,
        };
        let status = response.status().as_u16();
        let (bytes, _) = bounded(response, TOKEN_BODY).await.map_err(|error| self.unreachable(asked, error))?;
        let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| none(status))?;
        let token = answer.token.or(answer.access_token);
        let is_one = |token: &String| !token.is_empty() && token.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        token.filter(is_one).ok_or_else(|| none(status))
    }
}

/// Maximum number of a challenge's scopes that are requested beside the client's own.
const SCOPES: usize = 4;

/// The challenges of all header lines. An unreadable challenge ends its line.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let lines = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|line| line.to_str().ok());
    lines
        .flat_map(|line| ChallengeParser::new(line).map_while(Result::ok))
        .filter_map(|found| challenge(&found))
        .collect()
}

fn challenge(found: &http_auth::ChallengeRef<'_>) -> Option<Challenge> {
    let of = |wanted: &str| {
        let found = found.params.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.to_unescaped())
    };
    match found.scheme.to_ascii_lowercase().as_str() {
        "basic" => Some(Challenge::Password),
        "bearer" => Some(Challenge::Token { realm: of("realm")?, service: of("service"), scope: of("scope") }),
        _ => None,
    }
}

/// Why credentials must not be sent to the address; `None` if they may.
fn flaw_of_realm(realm: &str, host: &HostSettings) -> Option<&'static str> {
    let Ok(url) = Url::parse(realm) else { return Some("which is not an address") };
    match url.scheme() {
        "https" => {}
        "http" if host.plain_http => {}
        _ => return Some("which is not HTTPS"),
    }
    AllowedAddresses::of(&host.registry).is_refused(&url).then_some(WITHIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_sent_just_anywhere() {
        let host = |registry: &str, plain_http| HostSettings {
            registry: registry.to_owned(),
            plain_http,
            ..HostSettings::default()
        };
        for (realm, registry, plain, is_good) in [
            ("https://auth.example.com/token", "r.io", false, true),
            ("http://auth.example.com/token", "r.io", false, false),
            ("http://auth.example.com/token", "r.io", true, true),
            ("https://169.254.169.254/latest", "r.io", false, false),
            ("https://127.0.0.1/token", "r.io", false, false),
            ("https://[::1]/token", "r.io", false, false),
            ("https://localhost/token", "r.io", false, false),
            ("https://[::ffff:127.0.0.1]/token", "r.io", false, false),
            ("https://[::ffff:169.254.169.254]/token", "r.io", false, false),
            ("https://127.0.0.1:5001/token", "127.evil.example.com", false, false),
            ("http://127.0.0.1:5001/token", "127.0.0.1:5000", true, true),
            ("http://localhost:5001/token", "127.0.0.1:5000", true, true),
            ("http://169.254.169.254/latest", "127.0.0.1:5000", true, false),
            ("file:///etc/passwd", "r.io", true, false),
            ("nonsense", "r.io", false, false),
        ] {
            assert_eq!(flaw_of_realm(realm, &host(registry, plain)).is_none(), is_good, "{realm} for {registry}");
        }
    }

    #[test]
    fn all_challenges_of_all_lines_are_read() {
        let token = |scope: Option<&str>| Challenge::Token {
            realm: "https://auth.example.com/token".to_owned(),
            service: Some("r.io".to_owned()),
            scope: scope.map(str::to_owned),
        };
        let bearer = r#"Bearer realm="https://auth.example.com/token",service="r.io""#;
        let scoped = format!(r#"{bearer},scope="repository:a:pull,push repository:b:pull""#);
        let scoped = scoped.as_str();
        let scope = Some("repository:a:pull,push repository:b:pull");
        for (lines, expected) in [
            (&[][..], vec![]),
            (&[bearer][..], vec![token(None)]),
            (&[scoped][..], vec![token(scope)]),
            (&[r#"Basic realm="x""#, bearer], vec![Challenge::Password, token(None)]),
            (&[format!(r#"Basic realm="x", {scoped}"#).as_str()], vec![Challenge::Password, token(scope)]),
            (&[format!(r#"{scoped}, BASIC realm="x""#).as_str()], vec![token(scope), Challenge::Password]),
            (&[r#"Negotiate, bearer service=r.io, realm="https://auth.example.com/token""#], vec![token(None)]),
            (&[r#"Bearer service="no realm""#, r#"basic realm="x",charset="UTF-8""#], vec![Challenge::Password]),
            (&["", "=", r#"Bearer realm="open"#, r#"Basic realm="x""#], vec![Challenge::Password]),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(WWW_AUTHENTICATE, line.parse().unwrap());
            }
            assert_eq!(challenges(&headers), expected, "{lines:?}");
        }
    }
}
