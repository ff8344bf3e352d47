//! Copies an artefact with its signatures into a registry, a layout, or an archive of a layout.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_client::manifest::{ImageIndexEntry, OciImageIndex};
use qosm_model::digest::Digest;

use crate::error::RegistryError;
use crate::layout::{Layout, failed};
use crate::manifest::{self, Document, named, referrers_tag};
use crate::reference::Reference;
use crate::remote::{Remote, Remotes};
use crate::settings::RegistrySettings;
use crate::source::{MAX_BESIDE, TransferProgress, is_archive, unpack};

/// Pushes blobs, then manifests, so that a tag never names an incomplete artefact.
pub(crate) async fn to_registry(
    from: &Layout,
    document: &Document,
    signatures: &[(Document, Option<String>)],
    to: &Reference,
    settings: &RegistrySettings,
    progress: &mut dyn TransferProgress,
) -> Result<(), RegistryError> {
    let remote = Remotes::default().of(to, settings).await?;
    push_blobs(from, document, to, &remote, settings.limits.module_bytes(), progress).await?;
    remote.push_manifest(&to.pinned(document.digest), document).await?;
    for (signature, tag) in signatures {
        push_blobs(from, signature, to, &remote, MAX_BESIDE, progress).await?;
        match tag {
            Some(tag) => remote.push_manifest(&to.tagged(tag), signature).await?,
            None => {
                remote.push_manifest(&to.pinned(signature.digest), signature).await?;
                list_referrer(&remote, to, document.digest, signature).await?;
            }
        }
    }
    // Last, so that clients that follow the tag find the signatures.
    match to.tag() {
        Some(tag) => remote.push_manifest(&to.tagged(tag), document).await,
        None => Ok(()),
    }
}

async fn push_blobs(
    from: &Layout,
    document: &Document,
    to: &Reference,
    remote: &Remote,
    most: u64,
    progress: &mut dyn TransferProgress,
) -> Result<(), RegistryError> {
    let what = to.to_string();
    let manifest = document.manifest(&what)?;
    for blob in manifest.layers.iter().chain([&manifest.config]) {
        let (digest, size) = named(blob, &what)?;
        let bytes = from.blob(digest, most.max(MAX_BESIDE), "blob")?.ok_or_else(|| RegistryError::InvalidArtifact {
            what: what.clone(),
            message: format!("blob {digest} is not in the local store any more; try again"),
        })?;
        progress.begin(&what, size);
        remote.push_blob(to, digest, bytes).await?;
        progress.more(size);
        progress.end();
    }
    Ok(())
}

/// Adds a signature to the referrers tag if the registry does not implement the referrers API: then the client maintains it.
async fn list_referrer(remote: &Remote, to: &Reference, of: Digest, signature: &Document) -> Result<(), RegistryError> {
    let referrers = remote.referrers(to, of, 0).await?;
    if referrers.by_api {
        return Ok(());
    }
    let what = to.to_string();
    let mut index = match &referrers.index {
        Some(document) => document.index(&what)?,
        None => OciImageIndex {
            schema_version: 2,
            media_type: Some(manifest::INDEX.to_owned()),
            manifests: Vec::new(),
            artifact_type: None,
            annotations: None,
        },
    };
    let descriptor = signature.descriptor();
    if index.manifests.iter().any(|entry| entry.digest == descriptor.digest) {
        return Ok(());
    }
    let manifest = signature.manifest(&what)?;
    index.manifests.push(ImageIndexEntry {
        media_type: descriptor.media_type,
        digest: descriptor.digest,
        size: descriptor.size,
        platform: None,
        annotations: manifest.annotations,
        artifact_type: manifest.artifact_type,
    });
    let bytes = serde_json::to_vec(&index)
        .map_err(|error| RegistryError::InvalidArtifact { what: what.clone(), message: error.to_string() })?;
    let index = Document::read(bytes, manifest::INDEX, &what)?;
    remote.push_manifest(&to.tagged(&referrers_tag(of)), &index).await
}

/// Adds the artefact to a layout in a folder or archive, which is created if it does not exist. An archive is replaced by a rename.
pub(crate) fn to_layout(
    from: &Layout,
    document: &Document,
    signatures: &[(Document, Option<String>)],
    path: &Path,
    tag: Option<&str>,
) -> Result<(), RegistryError> {
    if !is_archive(path) {
        return fill(from, document, signatures, &Layout::create(path)?, tag);
    }
    let folder = if path.exists() {
        let folder = unpack(path)?;
        if Layout::open(folder.path(), path).is_err() {
            return Err(RegistryError::InvalidArtifact {
                what: path.display().to_string(),
                message: "the file is not an archive in OCI's image layout, and is not overwritten; name another file"
                    .to_owned(),
            });
        }
        folder
    } else {
        tempfile::tempdir().map_err(failed("cannot make a folder to pack", path))?
    };
    let layout = Layout::create(folder.path())?;
    fill(from, document, signatures, &layout, tag)?;
    let beside = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let packed = || -> std::io::Result<()> {
        let file = tempfile::NamedTempFile::new_in(beside)?;
        let mut archive = tar::Builder::new(std::io::BufWriter::new(file));
        // The same content gives the same archive.
        archive.mode(tar::HeaderMode::Deterministic);
        for path in content(folder.path())? {
            let name = path.strip_prefix(folder.path()).map_err(std::io::Error::other)?;
            archive.append_path_with_name(&path, name)?;
        }
        let file = archive.into_inner()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    packed().map_err(failed("cannot write", path))
}

/// All paths in a folder, sorted by name: file systems list them in any order.
#[expect(clippy::disallowed_methods, reason = "a folder that was named by its path")]
fn content(folder: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(content(&path)?);
        }
        found.insert(path);
    }
    Ok(found)
}

fn fill(
    from: &Layout,
    document: &Document,
    signatures: &[(Document, Option<String>)],
    into: &Layout,
    tag: Option<&str>,
) -> Result<(), RegistryError> {
    let documents = signatures.iter().map(|(document, tag)| (document, tag.as_deref()));
    for (document, tag) in documents.chain([(document, tag)]) {
        let what = document.digest.to_string();
        let manifest = document.manifest(&what)?;
        for blob in manifest.layers.iter().chain([&manifest.config]) {
            let (digest, size) = named(blob, &what)?;
            let bytes =
                from.blob(digest, size.max(MAX_BESIDE), "blob")?.ok_or_else(|| RegistryError::InvalidArtifact {
                    what: what.clone(),
                    message: format!("blob {digest} is not in the local store any more; try again"),
                })?;
            into.keep(digest, &bytes)?;
        }
        into.name(document, tag)?;
    }
    into.finish();
    Ok(())
}
