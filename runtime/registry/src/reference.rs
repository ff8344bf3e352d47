//! References: names of artefacts.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use qosm_model::digest::Digest;

/// `REGISTRY/REPOSITORY` with a tag, a digest, or both; the digest takes precedence.
///
/// Unlike Docker's references, nothing has a default: a root daemon should not guess a registry or a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

/// A text is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// The registry is missing: Docker would assume Docker Hub.
    #[error("`{0}` names no registry; write REGISTRY/REPOSITORY:TAG, such as `ghcr.io/{0}`")]
    Registry(String),
    /// The form is wrong.
    #[error("`{text}` is not REGISTRY/REPOSITORY with :TAG or @sha256:DIGEST: {why}")]
    Form {
        /// The text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The form of a layout is wrong.
    #[error("`{text}` is not oci-layout:PATH with :TAG or @sha256:DIGEST: {why}")]
    Layout {
        /// The text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The version is missing.
    #[error("`{0}` names neither a tag nor a digest; add `:TAG` or `@sha256:DIGEST`")]
    Version(String),
}

impl Reference {
    /// The registry's host and port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// `REGISTRY/REPOSITORY`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The tag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest, if there is one. It takes precedence over the tag.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The same artefact by its digest alone.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> Self {
        Self { tag: None, digest: Some(digest), ..self.clone() }
    }

    /// Another tag of the same repository.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Self {
        Self { tag: Some(tag.to_owned()), digest: None, ..self.clone() }
    }

    /// The same artefact in a mirror.
    #[must_use]
    pub(crate) fn at(&self, registry: &str, prefix: &str) -> Self {
        let repository =
            if prefix.is_empty() { self.repository.clone() } else { format!("{prefix}/{}", self.repository) };
        Self { registry: registry.to_owned(), repository, ..self.clone() }
    }

    /// Reads `REGISTRY/REPOSITORY` without a tag or digest.
    ///
    /// # Errors
    ///
    /// [`ReferenceError`].
    pub fn parse_name(text: &str) -> Result<Self, ReferenceError> {
        read(text)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let reference = read(text)?;
        if reference.tag.is_none() && reference.digest.is_none() {
            return Err(ReferenceError::Version(text.to_owned()));
        }
        Ok(reference)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

fn read(text: &str) -> Result<Reference, ReferenceError> {
    let text = text.strip_prefix("oci://").unwrap_or(text);
    let form = |why: &dyn fmt::Display| ReferenceError::Form { text: text.to_owned(), why: why.to_string() };
    let (registry, path) = text.split_once('/').ok_or_else(|| ReferenceError::Registry(text.to_owned()))?;
    if !is_host(registry) {
        return Err(ReferenceError::Registry(text.to_owned()));
    }
    // The library's defaults for a name without a dot, or a missing tag, do not matter: both are checked here.
    let parsed: oci_client::Reference = text.parse().map_err(|error| form(&error))?;
    let digest = match parsed.digest() {
        Some(digest) => Some(digest.parse::<Digest>().map_err(|error| form(&error))?),
        None => None,
    };
    let last = path.split('@').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let tag = parsed.tag().filter(|_| last.contains(':')).map(str::to_owned);
    Ok(Reference { registry: registry.to_owned(), repository: parsed.repository().to_owned(), tag, digest })
}

/// Whether a text is a host: it has a dot or a port, or is `localhost`.
fn is_host(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':'])
}

/// Whether a layout can have this name of an artefact (`org.opencontainers.image.ref.name`).
///
/// Source: OCI image-spec 1.1, annotations.md. Its `:` and `/` separate paths here.
fn is_name(text: &str) -> bool {
    let is_inner = |letter: char| letter.is_ascii_alphanumeric() || "-._+@".contains(letter);
    let has_ends = !text.starts_with(|letter: char| !letter.is_ascii_alphanumeric())
        && text.ends_with(|letter: char| letter.is_ascii_alphanumeric());
    has_ends && text.chars().all(is_inner)
}

/// The source or target of an artefact: a registry, or a folder or archive in OCI's image layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// `[oci://]REGISTRY/REPOSITORY…`.
    Registry(Reference),
    /// `oci-layout:PATH[:TAG][@DIGEST]`; an archive where the path ends in `.tar`.
    Layout {
        /// The folder or archive.
        path: PathBuf,
        /// The artefact's tag or name in the layout.
        tag: Option<String>,
        /// The artefact's digest; it takes precedence over the tag.
        digest: Option<Digest>,
    },
}

impl Location {
    /// Prefix of a layout's path.
    const LAYOUT: &'static str = "oci-layout:";

    /// The same artefact by its digest.
    #[must_use]
    pub fn pinned(&self, digest: Digest) -> Self {
        match self {
            Self::Registry(reference) => Self::Registry(reference.pinned(digest)),
            Self::Layout { path, .. } => Self::Layout { path: path.clone(), tag: None, digest: Some(digest) },
        }
    }

    /// The digest that the location names, if it names one. It takes precedence over the tag.
    pub fn digest(&self) -> Option<Digest> {
        match self {
            Self::Registry(reference) => reference.digest(),
            Self::Layout { digest, .. } => *digest,
        }
    }

    /// The same artefact by its tag alone; `None` unless the location names both a tag and a digest.
    pub(crate) fn by_tag(&self) -> Option<Self> {
        self.digest()?;
        match self {
            Self::Registry(reference) => Some(Self::Registry(reference.tagged(reference.tag()?))),
            Self::Layout { path, tag, .. } => {
                Some(Self::Layout { path: path.clone(), tag: Some(tag.clone()?), digest: None })
            }
        }
    }

    /// Whether a text has the prefix of an artefact, rather than being a file's path or a policy's name.
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with("oci://") || text.starts_with(Self::LAYOUT)
    }
}

impl FromStr for Location {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let Some(rest) = text.strip_prefix(Self::LAYOUT) else { return text.parse().map(Self::Registry) };
        let form = |why: String| ReferenceError::Layout { text: text.to_owned(), why };
        let (rest, digest) = match rest.rsplit_once("@sha256:") {
            Some((rest, hex)) => {
                let digest = format!("sha256:{hex}").parse::<Digest>().map_err(|error| form(error.to_string()))?;
                (rest, Some(digest))
            }
            None => (rest, None),
        };
        // A colon in a folder's name is no separator.
        let (path, tag) = match rest.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => (path, Some(tag.to_owned())),
            _ => (rest, None),
        };
        if path.is_empty() {
            return Err(form("there is no path after `oci-layout:`".to_owned()));
        }
        if let Some(tag) = tag.as_deref().filter(|tag| !is_name(tag)) {
            return Err(form(format!(
                "`{tag}` is no tag; write letters, digits and `-`, `.`, `_`, `+`, `@` between them"
            )));
        }
        Ok(Self::Layout { path: PathBuf::from(path), tag, digest })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(reference) => write!(f, "{reference}"),
            Self::Layout { path, tag, digest } => {
                write!(f, "{}{}", Self::LAYOUT, path.display())?;
                if let Some(tag) = tag {
                    write!(f, ":{tag}")?;
                }
                digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_read_as_it_is_written() {
        for (text, registry, repository, tag, has_digest) in [
            ("ghcr.io/qosm/cpu-burst:1.2.0", "ghcr.io", "qosm/cpu-burst", Some("1.2.0"), false),
            ("oci://localhost:5000/a:b", "localhost:5000", "a", Some("b"), false),
            ("localhost/a/b/c:d", "localhost", "a/b/c", Some("d"), false),
            (&format!("127.0.0.1:5000/a@sha256:{HEX}"), "127.0.0.1:5000", "a", None, true),
            (&format!("r.io/a:v1@sha256:{HEX}"), "r.io", "a", Some("v1"), true),
        ] {
            let read: Reference = text.parse().unwrap();
            assert_eq!((read.registry(), read.repository(), read.tag()), (registry, repository, tag), "{text}");
            assert_eq!(read.digest().is_some(), has_digest, "{text}");
            assert_eq!(read.to_string(), text.trim_start_matches("oci://"));
        }
    }

    #[test]
    fn nothing_is_guessed() {
        for (text, expected) in [
            ("cpu-burst", "names no registry"),
            ("qosm/cpu-burst:1", "names no registry"),
            ("ghcr.io/qosm/cpu-burst", "neither a tag nor a digest"),
            ("localhost:5000/a", "neither a tag nor a digest"),
            ("ghcr.io/Qosm/x:1", "is not REGISTRY/REPOSITORY"),
            ("ghcr.io/:1", "is not REGISTRY/REPOSITORY"),
            ("ghcr.io/a@sha256:12", "is not REGISTRY/REPOSITORY"),
            ("ghcr.io/a:b c", "is not REGISTRY/REPOSITORY"),
            (&format!("ghcr.io/a@sha512:{HEX}{HEX}"), "is not REGISTRY/REPOSITORY"),
        ] {
            let error = text.parse::<Reference>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_layout_is_named_by_its_path() {
        let of = |text: &str| match text.parse::<Location>().unwrap() {
            Location::Layout { path, tag, digest } => (path.display().to_string(), tag, digest.is_some()),
            Location::Registry(reference) => panic!("{reference}"),
        };
        assert_eq!(of("oci-layout:/a/b"), ("/a/b".to_owned(), None, false));
        assert_eq!(of("oci-layout:/a/b.tar:v1"), ("/a/b.tar".to_owned(), Some("v1".to_owned()), false));
        assert_eq!(of("oci-layout:/a:5/b"), ("/a:5/b".to_owned(), None, false));
        assert_eq!(of(&format!("oci-layout:b@sha256:{HEX}")), ("b".to_owned(), None, true));
        assert_eq!(of(&format!("oci-layout:a/b:1@sha256:{HEX}")), ("a/b".to_owned(), Some("1".to_owned()), true));
        assert_eq!(of("oci-layout:/a@b/c:1"), ("/a@b/c".to_owned(), Some("1".to_owned()), false));
        let both = format!("oci-layout:a/b:1@sha256:{HEX}");
        assert_eq!(both.parse::<Location>().unwrap().to_string(), both);
        assert_eq!(of("oci-layout:a:1.0.0-rc.1+b").1.as_deref(), Some("1.0.0-rc.1+b"));
        for bad in [
            "oci-layout:a@sha256:12".to_owned(),
            format!("oci-layout:@sha256:{HEX}"),
            "oci-layout:a:".to_owned(),
            "oci-layout:a:v 1".to_owned(),
            "oci-layout:a:-1".to_owned(),
            "oci-layout:a:1.".to_owned(),
        ] {
            let error = bad.parse::<Location>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}` is not oci-layout:PATH")), "{error}");
        }
        for (text, has_digest) in [
            ("oci-layout:/a:1".to_owned(), false),
            (format!("oci-layout:/a@sha256:{HEX}"), true),
            ("r.io/a:1".to_owned(), false),
            (format!("r.io/a:1@sha256:{HEX}"), true),
        ] {
            assert_eq!(text.parse::<Location>().unwrap().digest().is_some(), has_digest, "{text}");
        }
        assert!("oci-layout:".parse::<Location>().is_err());
        assert!(Location::is_meant_by("oci-layout:x") && !Location::is_meant_by("./x.wasm"));
    }
}
