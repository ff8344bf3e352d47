//! Errors between a reference and the bytes of a module.

use std::path::PathBuf;
use std::time::Duration;

use qosm_model::digest::Digest;

use crate::reference::ReferenceError;

/// An error while pulling from or pushing to a registry or layout. Each names the reference or file, the step, and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Not a reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The settings of registries are invalid.
    #[error("registries: {place}: {message}")]
    Settings {
        /// The entry and the field.
        place: String,
        /// What is wrong, and what to write.
        message: String,
    },
    /// The `verification` of a single policy is invalid.
    #[error("{message}")]
    Verification {
        /// The fields, what is wrong with each, and what to write.
        message: String,
    },
    /// Credentials exist, but cannot be used.
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
        /// What exists instead; may be empty.
        hint: String,
    },
    /// The registry cannot be reached or does not answer.
    #[error("{what}: {registry} cannot be reached")]
    Unreachable {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transfer exceeded the time limit, although data kept coming.
    #[error(
        "{what}: it did not come within {seconds} s; raise `registries.limits.pullSeconds` if the way is that slow"
    )]
    TooSlow {
        /// The reference.
        what: String,
        /// The time limit, in seconds.
        seconds: u64,
    },
    /// The registry answered with an error.
    #[error("{what}: {registry} answered HTTP {status}{message}{}", later(*retry_after))]
    Answer {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// The HTTP status.
        status: u16,
        /// The registry's message.
        message: String,
        /// The wait that the registry requests before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The registry names a token address to which credentials must not be sent.
    #[error("{what}: {registry} asks for credentials at `{realm}`, {why}; they are not sent there")]
    Realm {
        /// The reference.
        what: String,
        /// The registry.
        registry: String,
        /// The address.
        realm: String,
        /// Why credentials are not sent there.
        why: &'static str,
    },
    /// The bytes do not match the digest.
    #[error("{what}: its bytes are {found} instead of {expected}: they were changed on the way or in storage")]
    Digest {
        /// The reference.
        what: String,
        /// The digest of the reference or manifest.
        expected: Digest,
        /// The digest of the received bytes.
        found: Digest,
    },
    /// The transfer ended before all announced bytes arrived.
    #[error("{what}: {found} of {expected} bytes came")]
    Truncated {
        /// The reference.
        what: String,
        /// Announced size, in bytes.
        expected: u64,
        /// Received size, in bytes.
        found: u64,
    },
    /// An object exceeds its size limit.
    #[error("{what}: {size} bytes are more than the {most} that a {kind} may have{hint}")]
    TooLarge {
        /// The reference.
        what: String,
        /// `manifest`, `module`, …
        kind: &'static str,
        /// Its size in bytes; a lower bound if it was not read to the end.
        size: u64,
        /// The limit, in bytes.
        most: u64,
        /// How to raise it.
        hint: &'static str,
    },
    /// The artefact exists, but is not a policy.
    #[error("{what}: {}", shown(message))]
    InvalidArtifact {
        /// The reference.
        what: String,
        /// What was found, and what is expected.
        message: String,
    },
    /// The trust rules do not accept the artefact.
    #[error("{what}: not trusted: {message}")]
    Untrusted {
        /// The reference with the digest.
        what: String,
        /// Why, and the remedy.
        message: String,
    },
    /// A file or folder of this machine cannot be used.
    #[error("{action} {}", path.display())]
    File {
        /// The failed operation.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl RegistryError {
    /// Whether a later attempt may succeed without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooSlow { .. } | Self::Truncated { .. } => true,
            Self::Answer { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }

    /// The wait that the registry requests before the next attempt; `None` if it names none.
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

/// Shortens quotes from third-party documents and removes terminal control characters.
fn shown(text: &str) -> String {
    const MAX: usize = 500;
    let clean = text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character });
    let mut shown: String = clean.clone().take(MAX).collect();
    if clean.count() > MAX {
        shown.push('…');
    }
    shown
}
