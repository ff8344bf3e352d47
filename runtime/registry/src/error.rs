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
    /// What is said about registries does not work.
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
    /// The registry wants somebody else, or nobody at all.
    #[error(
        "{what}: {registry} refused {who} (HTTP {status}); log in with `docker login {registry}`, or name credentials that may \
         {verb} it"
    )]
    Forbidden {
        /// What was asked for.
        what: String,
        /// The registry.
        registry: String,
        /// As whom it was asked.
        who: String,
        /// `pull` or `push`.
        verb: &'static str,
        /// 401 or 403.
        status: u16,
    },
    /// There is no such thing.
    #[error("{what}: {registry} has no such {kind}{hint}")]
    NotFound {
        /// What was asked for.
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
        /// What was asked for.
        what: String,
        /// The registry.
        registry: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It took too long altogether, although something came all the time.
    #[error(
        "{what}: it did not come within {seconds} s; raise `registries.limits.pullSeconds` if the way is that slow"
    )]
    TooSlow {
        /// What was asked for.
        what: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The registry answered with an error.
    #[error("{what}: {registry} answered HTTP {status}{message}{}", later(*retry_after))]
    Answer {
        /// What was asked for.
        what: String,
        /// The registry.
        registry: String,
        /// The status.
        status: u16,
        /// What it said.
        message: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The registry sends its clients elsewhere to prove who they are, to a place that they must not go to.
    #[error("{what}: {registry} asks for credentials at `{realm}`, {why}; they are not sent there")]
    Realm {
        /// What was asked for.
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
        /// What was asked for.
        what: String,
        /// What the reference or manifest says.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// Less came than was announced.
    #[error("{what}: {found} of {expected} bytes came")]
    Truncated {
        /// What was asked for.
        what: String,
        /// Announced.
        expected: u64,
        /// Came.
        found: u64,
    },
    /// More than is allowed.
    #[error("{what}: {size} bytes are more than the {most} that a {kind} may have{hint}")]
    TooLarge {
        /// What was asked for.
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
    Shape {
        /// What was asked for.
        what: String,
        /// What it is, and what it should be.
        message: String,
    },
    /// Nobody whom the operator trusts has signed it.
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
    /// Whether it may work later without anybody's doing anything about it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooSlow { .. } | Self::Truncated { .. } => true,
            Self::Answer { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }

    /// When it is worth another try, if the registry says so.
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

/// What is quoted of a stranger's document is cut, and cannot speak to the terminal.
fn shown(text: &str) -> String {
    const MOST: usize = 500;
    let clean = text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character });
    let mut shown: String = clean.clone().take(MOST).collect();
    if clean.count() > MOST {
        shown.push('…');
    }
    shown
}
