//! What can go wrong between a reference and the bytes of a module.

use std::path::PathBuf;
use std::time::Duration;

use qosm_model::digest::Digest;

use crate::reference::ReferenceError;

/// A step on the way from or to a registry failed. Each names the reference or file, the step, and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Not a reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The settings of registries are invalid.
    #[error("registries: {place}: {message}")]
    Settings {
        /// Which entry and field.
        place: String,
        /// What is wrong, and what to write.
        message: String,
    },
    /// Credentials are there and cannot be used.
    #[error("credentials for {registry}: {message}")]
    Credentials {
        /// The registry.
        registry: String,
        /// What is wrong, and what to do.
        message: String,
    },
    /// The registry requires other credentials, or refuses anonymous requests.
    #[error(
        "{what}: {registry} refused {identity} (HTTP {status}); log in with `docker login {registry}`, or name credentials that may \
         {verb} it"
    )]
    Forbidden {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// The identity of the request.
        identity: String,
        /// `pull` or `push`.
        verb: &'static str,
        /// 401 or 403.
        status: u16,
    },
    /// The object does not exist.
    #[error("{what}: {registry} has no such {kind}{hint}")]
    NotFound {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// `tag`, `manifest`, `blob`.
        kind: &'static str,
        /// What there is instead.
        hint: String,
    },
    /// The registry cannot be reached or does not answer.
    #[error("{what}: {registry} cannot be reached")]
    Unreachable {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transfer exceeded the time limit, although data kept coming.
    #[error(
        "{what}: it did not come within {seconds} s; raise `registries.limits.pullSeconds` if the way is that slow"
    )]
    TooSlow {
        /// The reference.
        what: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The registry answered with an error.
    #[error("{what}: {registry} answered HTTP {status}{message}{}", later(*retry_after))]
    Answer {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// The status.
        status: u16,
        /// The registry's message.
        message: String,
        /// When the registry wants the next try.
        retry_after: Option<Duration>,
    },
    /// The registry sends its clients to an address for tokens to which they must not go.
    #[error("{what}: {registry} asks for credentials at `{realm}`, {why}; they are not sent there")]
    Realm {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// Where.
        realm: String,
        /// Why not.
        why: &'static str,
    },
    /// The bytes are not those that were asked for.
    #[error("{what}: its bytes are {found} instead of {expected}: they were changed on the way or in the registry")]
    Digest {
        /// The reference.
        what: String,
        /// The digest of the reference or manifest.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// Less came than was announced.
    #[error("{what}: {found} of {expected} bytes came")]
    Truncated {
        /// The reference.
        what: String,
        /// Announced.
        expected: u64,
        /// Came.
        found: u64,
    },
    /// More than is allowed.
    #[error("{what}: {size} bytes are more than the {most} that a {kind} may have{hint}")]
    TooLarge {
        /// The reference.
        what: String,
        /// `manifest`, `module`, …
        kind: &'static str,
        /// Its size, as far as it is known.
        size: u64,
        /// The bound.
        most: u64,
        /// How to raise it.
        hint: &'static str,
    },
    /// It is there, but not a policy.
    #[error("{what}: {}", shown(message))]
    InvalidArtifact {
        /// The reference.
        what: String,
        /// What it is, and what it should be.
        message: String,
    },
    /// No trusted key has signed it.
    #[error("{what}: not trusted: {message}")]
    Untrusted {
        /// The reference with the digest.
        what: String,
        /// Why, and the way out.
        message: String,
    },
    /// A file or folder of this machine.
    #[error("{action} {}", path.display())]
    File {
        /// What was done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Whether a later try may succeed without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooSlow { .. } | Self::Truncated { .. } => true,
            Self::Answer { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }

    /// When the registry wants the next try, if it says so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Answer { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

fn later(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!("; it wants to be asked again in {} s", wait.as_secs()))
}

/// Quotes from third-party documents are shortened, and without terminal control characters.
fn shown(text: &str) -> String {
    const MAX: usize = 500;
    let clean = text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character });
    let mut shown: String = clean.clone().take(MAX).collect();
    if clean.count() > MAX {
        shown.push('…');
    }
    shown
}
