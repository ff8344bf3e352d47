//! Manifests and indexes, and the exact media types of the layouts that are read and written.

use oci_client::manifest::{OciDescriptor, OciImageIndex, OciImageManifest};
use qosm_model::digest::Digest;

use crate::error::RegistryError;

/// Media type of OCI's manifest.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of OCI's index.
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of Docker's manifest.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Media type of Docker's list of manifests.
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// Accepted media types of a manifest.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";
/// The largest manifest or index that is read, in bytes.
pub(crate) const MAX: u64 = 4 << 20;

/// A manifest or index, byte for byte as it is stored; its digest is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) digest: Digest,
    pub(crate) media_type: String,
    pub(crate) bytes: Vec<u8>,
}

impl Document {
    /// Reads a response. The media type in the document takes precedence over the header.
    pub(crate) fn read(bytes: Vec<u8>, content_type: &str, what: &str) -> Result<Self, RegistryError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Typed {
            media_type: Option<String>,
            manifests: Option<serde::de::IgnoredAny>,
        }
        let typed: Typed = serde_json::from_slice(&bytes).map_err(|error| RegistryError::InvalidArtifact {
            what: what.to_owned(),
            message: format!("its manifest is not JSON: {error}"),
        })?;
        let content_type = content_type.split(';').next().unwrap_or_default().trim();
        let by_content = if typed.manifests.is_some() { INDEX } else { MANIFEST };
        let is_known = |name: &&str| [MANIFEST, INDEX, DOCKER_MANIFEST, DOCKER_LIST].contains(name);
        let media_type =
            typed.media_type.unwrap_or_else(|| Some(content_type).filter(is_known).unwrap_or(by_content).to_owned());
        Ok(Self { digest: Digest::of(&bytes), media_type, bytes })
    }

    /// Whether the document is an index rather than a manifest.
    pub(crate) fn is_index(&self) -> bool {
        [INDEX, DOCKER_LIST].contains(&self.media_type.as_str())
    }

    /// Parses the document as a manifest.
    pub(crate) fn manifest(&self, what: &str) -> Result<OciImageManifest, RegistryError> {
        let shape = |message: String| RegistryError::InvalidArtifact { what: what.to_owned(), message };
        if self.is_index() {
            let index = self.index(what)?;
            let entries: Vec<_> = index.manifests.iter().take(5).map(|entry| entry.digest.clone()).collect();
            return Err(shape(format!(
                "it is a list of {} artefacts, and a policy is one; name one of them by its digest: {}",
                index.manifests.len(),
                entries.join(", ")
            )));
        }
        serde_json::from_slice(&self.bytes).map_err(|error| shape(format!("its manifest cannot be read: {error}")))
    }

    /// Parses the document as an index.
    pub(crate) fn index(&self, what: &str) -> Result<OciImageIndex, RegistryError> {
        read_index(&self.bytes).map_err(|error| RegistryError::InvalidArtifact {
            what: what.to_owned(),
            message: format!("its index cannot be read: {error}"),
        })
    }

    /// The descriptor of the document.
    pub(crate) fn descriptor(&self) -> OciDescriptor {
        OciDescriptor {
            media_type: self.media_type.clone(),
            digest: self.digest.to_string(),
            size: i64::try_from(self.bytes.len()).unwrap_or(i64::MAX),
            ..OciDescriptor::default()
        }
    }
}

/// Parses an index.
pub(crate) fn read_index(bytes: &[u8]) -> serde_json::Result<OciImageIndex> {
    let mut index: serde_json::Value = serde_json::from_slice(bytes)?;
    // Some registries and tools write `null` for an empty list.
    if let Some(manifests) = index.get_mut("manifests").filter(|manifests| manifests.is_null()) {
        *manifests = serde_json::Value::Array(Vec::new());
    }
    serde_json::from_value(index)
}

/// The digest and size in bytes that a descriptor names.
pub(crate) fn named(descriptor: &OciDescriptor, what: &str) -> Result<(Digest, u64), RegistryError> {
    let shape = |message: String| RegistryError::InvalidArtifact { what: what.to_owned(), message };
    let digest = descriptor.digest.parse().map_err(|error| shape(format!("its manifest names a blob by {error}")))?;
    let size = u64::try_from(descriptor.size)
        .map_err(|_| shape(format!("its manifest gives {} as the size of {digest}", descriptor.size)))?;
    Ok((digest, size))
}

/// The tag of the index that replaces the referrers API.
pub(crate) fn referrers_tag(digest: Digest) -> String {
    format!("sha256-{}", digest.hex())
}

/// The tag of an artefact's signatures in cosign's first format.
pub(crate) fn signature_tag(digest: Digest) -> String {
    format!("sha256-{}.sig", digest.hex())
}

/// Media type of cosign's first format: one layer for each signature.
pub(crate) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Prefix of the media types of Sigstore bundles, however the version is written.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";

/// Whether a layer of this type is a signature.
pub(crate) fn is_signature(media_type: &str) -> bool {
    media_type == SIMPLE_SIGNING || media_type.starts_with(BUNDLE)
}

/// Whether a tag belongs to signatures or referrers, rather than to a version.
pub(crate) fn is_of_signatures(tag: &str) -> bool {
    let digits = tag.strip_prefix("sha256-").and_then(|rest| rest.split('.').next());
    digits.is_some_and(|digits| digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_what_it_says_it_is() {
        let of = |text: &str, content_type: &str| Document::read(text.as_bytes().to_vec(), content_type, "x").unwrap();
        assert_eq!(of("{}", "").media_type, MANIFEST);
        assert_eq!(of(r#"{"manifests":[]}"#, "text/plain").media_type, INDEX);
        assert_eq!(of(r#"{"manifests":[]}"#, MANIFEST).media_type, MANIFEST, "as it was said");
        let docker = format!("{DOCKER_MANIFEST}; charset=utf-8");
        assert_eq!(of("{}", &docker).media_type, DOCKER_MANIFEST);
        assert_eq!(of(&format!(r#"{{"mediaType":"{INDEX}"}}"#), MANIFEST).media_type, INDEX);
        let error = of(r#"{"schemaVersion":2,"manifests":[{"mediaType":"m","digest":"sha256:1","size":1}]}"#, "");
        assert!(error.manifest("x").unwrap_err().to_string().contains("name one of them by its digest: sha256:1"));
        let empty = of(r#"{"schemaVersion":2,"manifests":null}"#, INDEX);
        assert!(empty.is_index() && empty.index("x").unwrap().manifests.is_empty());
        assert!(Document::read(b"<html>".to_vec(), "", "x").is_err());
    }

    #[test]
    fn tags_of_signatures_are_not_versions() {
        let digest = Digest::of(b"");
        for (tag, is) in [
            (signature_tag(digest), true),
            (referrers_tag(digest), true),
            (format!("{}.att", referrers_tag(digest)), true),
            ("sha256-1".to_owned(), false),
            ("1.0.0".to_owned(), false),
        ] {
            assert_eq!(is_of_signatures(&tag), is, "{tag}");
        }
    }
}
