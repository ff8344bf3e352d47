//! Tokens: the registry's address for them, and whether a password may go there.

use std::time::{Duration, Instant};

use http_auth::parser::ChallengeParser;
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{StatusCode, Url};

use super::reach::{AllowedAddresses, WITHIN};
use super::{Asked, Remote, Verb, bounded};
use crate::error::RegistryError;
use crate::retry::retry;
use crate::settings::HostSettings;

/// Lifetime after which a token is renewed: those without an expiry last a minute.
const TOKEN_LASTS: Duration = Duration::from_secs(45);
/// What of an answer with a token is read.
const TOKEN_BODY: u64 = 64 << 10;

/// A registry's challenge: `None` = it works without a token.
pub(super) struct Token {
    token: Option<String>,
    since: Instant,
}

/// Where tokens are had.
struct Challenge {
    realm: String,
    service: Option<String>,
}

impl Remote {
    /// A token, where the registry works with tokens.
    #[expect(clippy::disallowed_methods, reason = "a token is valid for a while")]
    pub(super) async fn authorize(&self, asked: &Asked<'_>) -> Result<Option<String>, RegistryError> {
        let key = (asked.reference.repository().to_owned(), asked.verb);
        let mut tokens = self.tokens.lock().await;
        if let Some(known) = tokens.get(&key).filter(|known| known.since.elapsed() < TOKEN_LASTS) {
            return Ok(known.token.clone());
        }
        let what = asked.reference.to_string();
        let token = match retry(&what, || self.challenge(asked)).await? {
            Some(challenge) => Some(retry(&what, || self.token(asked, &challenge)).await?),
            None => None,
        };
        tokens.insert(key, Token { token: token.clone(), since: Instant::now() });
        Ok(token)
    }

    /// Gets a token from the address that the registry names. That must not be a place within this node or its
    /// network's metadata service, nor plain HTTP, since a password goes there. `None` = it works without.
    async fn challenge(&self, asked: &Asked<'_>) -> Result<Option<Challenge>, RegistryError> {
        let asking = self.http.get(self.address("")).send().await;
        let response = asking.map_err(|error| self.unreachable(asked, error))?;
        if response.status().is_server_error() || response.status() == StatusCode::TOO_MANY_REQUESTS {
            return Err(self.refused(asked, response).await);
        }
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let Some(challenge) = header.and_then(challenge_of) else { return Ok(None) };
        match flaw_of_realm(&challenge.realm, &self.host) {
            None => Ok(Some(challenge)),
            Some(why) => Err(RegistryError::Realm {
                what: asked.reference.to_string(),
                registry: self.host.registry.clone(),
                realm: challenge.realm,
                why,
            }),
        }
    }

    /// Asks for a token. CNCF distribution, "Token Authentication Specification".
    async fn token(&self, asked: &Asked<'_>, challenge: &Challenge) -> Result<String, RegistryError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        // Never reported as missing: the artefact or its signatures may exist.
        let none = |status| RegistryError::Answer {
            what: asked.reference.to_string(),
            registry: self.host.registry.clone(),
            status,
            message: format!(" without a token at `{}`", challenge.realm),
            retry_after: None,
        };
        let actions = match asked.verb {
            Verb::Pull => "pull",
            Verb::Push => "pull,push",
        };
        let scope = format!("repository:{}:{actions}", asked.reference.repository());
        let mut url = Url::parse(&challenge.realm).map_err(|_| none(0))?;
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = &challenge.service {
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

fn challenge_of(header: &str) -> Option<Challenge> {
    let is_bearer = |challenge: &http_auth::ChallengeRef<'_>| challenge.scheme.eq_ignore_ascii_case("bearer");
    let challenge = ChallengeParser::new(header).filter_map(Result::ok).find(is_bearer)?;
    let of = |wanted: &str| {
        let found = challenge.params.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.to_unescaped())
    };
    Some(Challenge { realm: of("realm")?, service: of("service") })
}

/// Why credentials are not sent there, if they are not.
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
        let challenge = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io""#;
        let challenge = challenge_of(challenge).unwrap();
        assert_eq!(challenge.realm, "https://auth.docker.io/token");
        assert_eq!(challenge.service.as_deref(), Some("registry.docker.io"));
        assert!(challenge_of(r#"Basic realm="x""#).is_none());
    }
}
