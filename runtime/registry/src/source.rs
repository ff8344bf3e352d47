//! Sources of an artefact: a registry with its mirrors, or a layout. Everything is copied into a local layout.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use oci_client::manifest::OciDescriptor;
use qosm_model::digest::Digest;

use crate::error::RegistryError;
use crate::layout::{Layout, failed};
use crate::manifest::{self, Document, named};
use crate::reference::{Location, Reference};
use crate::remote::{Remote, Remotes};
use crate::retry::retry;
use crate::settings::RegistrySettings;
use crate::trust::Rejected;

/// Maximum number of signature manifests that are read for one artefact.
pub(crate) const MAX_SIGNATURES: usize = 64;
/// Maximum size of a blob that is not a module (a config or a signature), in bytes.
pub(crate) const MAX_BESIDE: u64 = 4 << 20;
/// Maximum number of artefacts that a message lists.
const MAX_LISTED: usize = 20;
/// Maximum size of a layout's archive, in bytes.
const MAX_ARCHIVE: u64 = 1 << 30;

/// Receives the progress of a transfer.
pub trait TransferProgress: Send {
    /// The transfer of a blob begins.
    fn begin(&mut self, what: &str, bytes: u64);
    /// Further bytes were transferred.
    fn more(&mut self, bytes: u64);
    /// The transfer has ended.
    fn end(&mut self);
}

impl TransferProgress for () {
    fn begin(&mut self, _: &str, _: u64) {}
    fn more(&mut self, _: u64) {}
    fn end(&mut self) {}
}

/// An open source of one artefact.
pub(crate) enum Source {
    /// Registries with the same artefact: first the mirrors, last the one that the reference names.
    Registry { endpoints: Vec<Endpoint>, chosen: usize },
    /// A layout.
    Layout {
        layout: Layout,
        tag: Option<String>,
        digest: Option<Digest>,
        /// The folder of an unpacked archive, which is deleted on drop.
        _unpacked: Option<tempfile::TempDir>,
    },
}

/// One registry, and the artefact's reference in it.
pub(crate) struct Endpoint {
    pub(crate) remote: Arc<Remote>,
    pub(crate) reference: Reference,
}

/// A manifest with signatures of another artefact.
pub(crate) struct SignatureManifest {
    pub(crate) document: Document,
    /// The manifest's tag, if the manifest does not name its subject itself.
    pub(crate) tag: Option<String>,
}

impl SignatureManifest {
    /// Whether this is a signature, rather than another manifest that refers to the artefact.
    pub(crate) fn is_signature(&self) -> bool {
        let manifest = self.document.manifest("");
        manifest.is_ok_and(|manifest| manifest.layers.iter().any(|layer| manifest::is_signature(&layer.media_type)))
    }
}

impl Source {
    /// Prepares the clients, or opens the layout.
    pub(crate) async fn open(
        location: &Location,
        settings: &RegistrySettings,
        remotes: &mut Remotes,
    ) -> Result<Self, RegistryError> {
        match location {
            Location::Registry(reference) => {
                let mut endpoints = Vec::new();
                for mirror in &settings.host(reference.registry()).mirrors {
                    let (host, prefix) = mirror.split_once('/').unwrap_or((mirror, ""));
                    let reference = reference.at(host, prefix);
                    endpoints.push(Endpoint { remote: remotes.of(&reference, settings).await?, reference });
                }
                endpoints
                    .push(Endpoint { remote: remotes.of(reference, settings).await?, reference: reference.clone() });
                Ok(Self::Registry { endpoints, chosen: 0 })
            }
            Location::Layout { path, tag, digest } => {
                let (tag, digest) = (tag.clone(), *digest);
                let (layout, unpacked) = open_layout(path)?;
                Ok(Self::Layout { layout, tag, digest, _unpacked: unpacked })
            }
        }
    }

    /// Resolves the manifest. Later requests use its digest, and start at the registry that had it.
    pub(crate) async fn resolve(&mut self, what: &str) -> Result<Document, RegistryError> {
        match self {
            Self::Registry { endpoints, chosen } => {
                let last = endpoints.len() - 1;
                for (place, endpoint) in endpoints.iter().enumerate() {
                    match endpoint.remote.manifest(&endpoint.reference).await {
                        Ok(document) => {
                            tracing::debug!(reference = %endpoint.reference, digest = %document.digest, identity = endpoint.remote.identity(), "resolved");
                            *chosen = place;
                            return Ok(document);
                        }
                        Err(error) if place == last => return Err(error),
                        Err(error) => {
                            tracing::warn!(mirror = %endpoint.reference, %error, "trying the next registry")
                        }
                    }
                }
                Err(not_found(what, String::new()))
            }
            Self::Layout { layout, tag, digest, .. } => {
                let found = match (&digest, &tag) {
                    (Some(digest), _) => Some(*digest),
                    (None, Some(tag)) => layout.named(tag)?,
                    (None, None) => Some(only(&layout.artefacts()?, what)?),
                };
                let Some(found) = found else { return Err(not_found(what, list(&layout.artefacts()?))) };
                match layout.document(found)? {
                    Some(document) => Ok(document),
                    None if layout.lists(found)? => Err(missing_blob(what, found)),
                    None => Err(not_found(what, list(&layout.artefacts()?))),
                }
            }
        }
    }

    /// The signatures of an artefact, in both of cosign's formats. A mirror may lack them: then the next one is tried. Manifests of
    /// a layout that may be signatures, but are damaged or missing, are added to `ignored`.
    pub(crate) async fn signatures(
        &self,
        digest: Digest,
        ignored: &mut Vec<Rejected>,
    ) -> Result<Vec<SignatureManifest>, RegistryError> {
        match self {
            Self::Registry { endpoints, chosen } => {
                let mut all = Vec::new();
                let last = endpoints.len() - 1;
                for (place, endpoint) in endpoints.iter().enumerate().skip(*chosen) {
                    let found = match signatures_at(endpoint, digest).await {
                        Ok(found) => found,
                        Err(error) if place == last => return Err(error),
                        Err(error) => {
                            tracing::warn!(mirror = %endpoint.reference, %error, "signatures: trying the next registry");
                            continue;
                        }
                    };
                    let is_signed = found.iter().any(SignatureManifest::is_signature);
                    all.extend(found);
                    // A mirror may have copied other referrers, but not the signatures.
                    if is_signed {
                        break;
                    }
                }
                Ok(all)
            }
            Self::Layout { layout, .. } => {
                let mut found: Vec<_> = layout
                    .referrers(digest, ignored)?
                    .into_iter()
                    .map(|document| SignatureManifest { document, tag: None })
                    .collect();
                // The index that replaces the referrers API, as tools copy it from a registry.
                if let Some(listed) = layout.named(&manifest::referrers_tag(digest))?
                    && let Some(index) = signature_in(layout, listed, ignored)?
                {
                    let what = index.digest.to_string();
                    for entry in index.index(&what)?.manifests.into_iter().take(MAX_SIGNATURES) {
                        let Ok(entry) = entry.digest.parse() else { continue };
                        let document = signature_in(layout, entry, ignored)?;
                        let is_new = |document: &Document| found.iter().all(|other| other.document != *document);
                        if let Some(document) = document.filter(is_new) {
                            found.push(SignatureManifest { document, tag: None });
                        }
                    }
                }
                let tag = manifest::signature_tag(digest);
                if let Some(signed) = layout.named(&tag)?
                    && let Some(document) = signature_in(layout, signed, ignored)?
                {
                    found.push(SignatureManifest { document, tag: Some(tag) });
                }
                Ok(found)
            }
        }
    }

    /// Copies a blob into a layout.
    pub(crate) async fn fetch(
        &self,
        into: &Layout,
        blob: &OciDescriptor,
        what: &str,
        bound: (u64, &'static str),
        progress: &mut dyn TransferProgress,
    ) -> Result<(), RegistryError> {
        let (digest, size) = named(blob, what)?;
        let (most, kind) = bound;
        if size > most {
            let hint = if kind == "module" { "; raise `registries.limits.moduleMiB`" } else { "" };
            return Err(RegistryError::TooLarge { what: what.to_owned(), kind, size, most, hint });
        }
        // This also deletes a stored blob that was changed on the disk.
        if into.blob(digest, most, kind)?.is_some() {
            return Ok(());
        }
        match self {
            Self::Registry { endpoints, chosen } => {
                progress.begin(what, size);
                let mut fetched = Err(not_found(what, String::new()));
                for endpoint in endpoints.iter().skip(*chosen) {
                    fetched = fetch_from(endpoint, into, digest, size, what, progress).await;
                    match &fetched {
                        Ok(()) => break,
                        // A mirror may lack it.
                        Err(RegistryError::NotFound { .. }) => {}
                        Err(error) => tracing::warn!(reference = %endpoint.reference, %error, "blob not fetched"),
                    }
                }
                progress.end();
                fetched
            }
            Self::Layout { layout, .. } => {
                let bytes = layout.blob(digest, most, kind)?;
                let bytes = bytes.ok_or_else(|| missing_blob(what, digest))?;
                into.keep(digest, &bytes)
            }
        }
    }
}

fn not_found(what: &str, hint: String) -> RegistryError {
    RegistryError::NotFound { what: what.to_owned(), registry: "the layout".to_owned(), kind: "artefact", hint }
}

/// The only artefact of a layout. Those without a name count only where none has one: they may be former versions.
fn only(artefacts: &[(Option<String>, Digest)], what: &str) -> Result<Digest, RegistryError> {
    let named: BTreeSet<Digest> =
        artefacts.iter().filter(|(name, _)| name.is_some()).map(|(_, digest)| *digest).collect();
    let has_names = !named.is_empty();
    let candidates = if has_names { named } else { artefacts.iter().map(|(_, digest)| *digest).collect() };
    let mut candidates = candidates.into_iter();
    match (candidates.next(), candidates.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(not_found(what, list(artefacts))),
        (Some(_), Some(_)) => {
            let form = if has_names { ":TAG" } else { "@DIGEST" };
            Err(not_found(what, format!("; say which with `{form}`{}", list(artefacts))))
        }
    }
}

/// A layout's artefacts for messages: their names, or their digests if none has a name.
fn list(artefacts: &[(Option<String>, Digest)]) -> String {
    // Names come from third parties.
    let shown = |name: &String| name.chars().filter(|character| !character.is_control()).take(128).collect::<String>();
    let mut known: BTreeSet<String> = artefacts.iter().filter_map(|(name, _)| name.as_ref()).map(shown).collect();
    if known.is_empty() {
        known = artefacts.iter().map(|(_, digest)| digest.to_string()).collect();
    }
    if known.is_empty() {
        return "; it is empty".to_owned();
    }
    format!("; there are: {}", known.into_iter().take(MAX_LISTED).collect::<Vec<_>>().join(", "))
}

/// An error for a blob that a layout's index or a manifest names.
fn missing_blob(what: &str, digest: Digest) -> RegistryError {
    let hint = format!(": {digest}; the layout is incomplete, copy the artefact into it again");
    RegistryError::NotFound { what: what.to_owned(), registry: "the layout".to_owned(), kind: "blob", hint }
}

/// A manifest of a layout that may be a signature. A missing or damaged one is added to `ignored`, since others may count.
fn signature_in(
    layout: &Layout,
    digest: Digest,
    ignored: &mut Vec<Rejected>,
) -> Result<Option<Document>, RegistryError> {
    let why = match layout.document(digest) {
        Ok(Some(document)) => return Ok(Some(document)),
        Ok(None) => "the layout names it, and has no such blob".to_owned(),
        Err(error @ RegistryError::Digest { .. }) => error.to_string(),
        Err(error) => return Err(error),
    };
    let rejected = Rejected { origin: digest.to_string(), why };
    if !ignored.contains(&rejected) {
        ignored.push(rejected);
    }
    Ok(None)
}

async fn signatures_at(endpoint: &Endpoint, digest: Digest) -> Result<Vec<SignatureManifest>, RegistryError> {
    let mut found = Vec::new();
    let (remote, reference) = (&endpoint.remote, &endpoint.reference);
    if let Some(index) = remote.referrers(reference, digest, MAX_SIGNATURES).await?.index {
        let what = reference.pinned(digest).to_string();
        // The descriptor's type is not reliable, so the manifest is read.
        for entry in index.index(&what)?.manifests.into_iter().take(MAX_SIGNATURES) {
            let Ok(entry) = entry.digest.parse() else { continue };
            match remote.manifest(&reference.pinned(entry)).await {
                Ok(document) => found.push(SignatureManifest { document, tag: None }),
                // Deleted, but still listed.
                Err(RegistryError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let tag = manifest::signature_tag(digest);
    if let Some(document) = remote.optional(reference, &tag).await? {
        found.push(SignatureManifest { document, tag: Some(tag) });
    }
    Ok(found)
}

/// Fetches a blob, continues an interrupted attempt, and moves it into its place if it matches its digest.
async fn fetch_from(
    endpoint: &Endpoint,
    into: &Layout,
    digest: Digest,
    size: u64,
    what: &str,
    progress: &mut dyn TransferProgress,
) -> Result<(), RegistryError> {
    loop {
        let Some(ingest) = into.ingest(digest).await? else { return Ok(()) };
        let is_gone_on_with = ingest.size()? > 0;
        let state = tokio::sync::Mutex::new((ingest, &mut *progress));
        retry(what, || async {
            let mut state = state.lock().await;
            let (ingest, progress) = &mut *state;
            let mut here = ingest.size()?;
            if here > size {
                ingest.restart()?;
                here = 0;
            }
            if here == size {
                return Ok(());
            }
            let mut take = |bytes: &[u8]| {
                progress.more(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                ingest.append(bytes)
            };
            if !endpoint.remote.blob(&endpoint.reference, digest, here, size, &mut take).await? {
                // The registry sends the blob from its start.
                ingest.restart()?;
                let mut take = |bytes: &[u8]| ingest.append(bytes);
                endpoint.remote.blob(&endpoint.reference, digest, 0, size, &mut take).await?;
            }
            match ingest.size()? {
                found if found < size => Err(RegistryError::Truncated { what: what.to_owned(), expected: size, found }),
                _ => Ok(()),
            }
        })
        .await?;
        match state.into_inner().0.finish(what) {
            // The part from the earlier attempt may have been wrong, perhaps from another registry: it was deleted.
            Err(RegistryError::Digest { .. }) if is_gone_on_with => {}
            finished => return finished,
        }
    }
}

/// Opens a layout. An archive is unpacked to a folder, which is deleted on drop.
fn open_layout(path: &Path) -> Result<(Layout, Option<tempfile::TempDir>), RegistryError> {
    let unpacked = if is_archive(path) { Some(unpack(path)?) } else { None };
    let folder = unpacked.as_ref().map_or(path, tempfile::TempDir::path);
    Ok((Layout::open(folder, path)?, unpacked))
}

/// The names of a layout's artefacts, sorted.
pub(crate) fn versions_in(path: &Path) -> Result<Vec<String>, RegistryError> {
    let (layout, _unpacked) = open_layout(path)?;
    let names = layout.artefacts()?.into_iter().filter_map(|(name, _)| name);
    let names: BTreeSet<String> = names.filter(|name| !name.contains(char::is_control)).collect();
    Ok(names.into_iter().collect())
}

/// Whether a layout's path names an archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tar")
}

#[expect(clippy::disallowed_methods, reason = "an archive that was named by its path")]
pub(crate) fn unpack(path: &Path) -> Result<tempfile::TempDir, RegistryError> {
    use std::io::Read as _;
    let folder = tempfile::tempdir().map_err(failed("cannot make a folder to unpack", path))?;
    let file = std::fs::File::open(path).map_err(failed("cannot read", path))?;
    let mut archive = tar::Archive::new(std::io::BufReader::new(file).take(MAX_ARCHIVE));
    archive.set_preserve_permissions(false);
    let mut unpacked = || -> std::io::Result<()> {
        for entry in archive.entries()? {
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            // Folders are made for their files. A layout has no links, and one could lead to files outside of the folder.
            if !kind.is_dir() && !kind.is_symlink() {
                // Writes nothing outside the folder, whatever the names in the archive.
                entry.unpack_in(folder.path())?;
            }
        }
        Ok(())
    };
    unpacked().map_err(failed("cannot unpack", path))?;
    Ok(folder)
}
