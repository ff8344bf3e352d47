//! A folder in OCI's image layout: the agent's local store, and the format for air-gapped nodes.
//!
//! Blobs are named by their content and appear complete, by a rename; incomplete ones are in `ingest/` under a lock, so that an
//! interrupted download continues. The index is read and replaced under the folder's lock.
#![expect(
    clippy::disallowed_methods,
    reason = "a store on disk is reached by its path: it is locked, and shared with other programs"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use oci_client::manifest::{ImageIndexEntry, OciDescriptor, OciImageIndex, OciImageManifest};
use qosm_model::digest::Digest;

use crate::error::RegistryError;
use crate::manifest::{self, Document};
use crate::trust::Rejected;

/// Annotation with an artefact's tag in a layout.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
const INDEX_FILE: &str = "index.json";
const MARKER: &str = "oci-layout";
/// The largest index that is read, in bytes: tens of thousands of artefacts. A third party's index may have any length, and as a
/// sparse file in an archive it may even take little space there.
const MAX_INDEX: u64 = 16 << 20;
/// Age below which unnamed blobs and unused artefacts are kept: a pull may be about to name them.
const GRACE: Duration = Duration::from_secs(600);

/// A folder of artefacts in OCI's image layout.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
    /// The path of a layout that is only read, as its user named it: a folder, or the archive that was unpacked to `root`.
    source: Option<PathBuf>,
}

impl Layout {
    /// Opens a layout, and creates it if the folder is missing or empty.
    pub(crate) fn create(root: &Path) -> Result<Self, RegistryError> {
        let layout = Self { root: root.to_path_buf(), source: None };
        for folder in ["blobs/sha256", "ingest"] {
            fs::create_dir_all(root.join(folder)).map_err(failed("cannot make the folder", &root.join(folder)))?;
        }
        let marker = root.join(MARKER);
        if !marker.exists() {
            layout.replace(&marker, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        }
        let _lock = layout.lock()?;
        if !root.join(INDEX_FILE).exists() {
            layout.write_index(&OciImageIndex { schema_version: 2, ..empty_index() })?;
        }
        Ok(layout)
    }

    /// Opens an existing layout as a source: it is only read. Messages name it by `path`.
    pub(crate) fn open(root: &Path, path: &Path) -> Result<Self, RegistryError> {
        let layout = Self { root: root.to_path_buf(), source: Some(path.to_path_buf()) };
        let marker = root.join(MARKER);
        let shown = layout.shown(&marker);
        fs::metadata(&marker).map_err(failed("not a folder in OCI's image layout, for there is no", &shown))?;
        Ok(layout)
    }

    /// Reads the index.
    pub(crate) fn index(&self) -> Result<OciImageIndex, RegistryError> {
        let path = self.root.join(INDEX_FILE);
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_INDEX + 1).read_to_end(&mut bytes));
        let size = read.map_err(failed("cannot read", &self.shown(&path)))?;
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let what = self.shown(&path).display().to_string();
        let hint = if self.source.is_some() { "; copy the layout here again" } else { "; move the folder away" };
        if size > MAX_INDEX {
            return Err(RegistryError::TooLarge { what, kind: "index", size, most: MAX_INDEX, hint });
        }
        manifest::read_index(&bytes).map_err(|error| RegistryError::InvalidArtifact {
            what,
            // The quoted text comes from third parties.
            message: format!("it is not an index of OCI's image layout: {:.200}{hint}", error.to_string()),
        })
    }

    /// The digest that a name refers to.
    pub(crate) fn named(&self, name: &str) -> Result<Option<Digest>, RegistryError> {
        let index = self.index()?;
        let entry = index.manifests.iter().find(|entry| name_of(entry) == Some(name));
        Ok(entry.and_then(|entry| entry.digest.parse().ok()))
    }

    /// All names, with their digests.
    pub(crate) fn names(&self) -> Result<BTreeMap<String, Digest>, RegistryError> {
        let index = self.index()?;
        let named = |entry: &ImageIndexEntry| Some((name_of(entry)?.to_owned(), entry.digest.parse().ok()?));
        Ok(index.manifests.iter().filter_map(named).collect())
    }

    /// The artefacts that the index lists, with their names, without signatures and other referrers.
    pub(crate) fn artefacts(&self) -> Result<Vec<(Option<String>, Digest)>, RegistryError> {
        let mut artefacts = Vec::new();
        for entry in self.index()?.manifests {
            let Ok(digest) = entry.digest.parse::<Digest>() else { continue };
            let name = name_of(&entry).map(str::to_owned);
            // A missing or damaged manifest is reported when it is read.
            let manifest = self.document(digest).ok().flatten().and_then(|document| document.manifest("").ok());
            let is_beside = manifest.is_some_and(|manifest| {
                manifest.subject.is_some()
                    || manifest.layers.iter().any(|layer| manifest::is_signature(&layer.media_type))
            });
            let is_of_signatures = name.as_deref().is_some_and(manifest::is_of_signatures);
            if !is_beside && !is_of_signatures {
                artefacts.push((name, digest));
            }
        }
        Ok(artefacts)
    }

    /// Whether the index lists a manifest, with or without a name.
    pub(crate) fn lists(&self, digest: Digest) -> Result<bool, RegistryError> {
        Ok(self.index()?.manifests.iter().any(|entry| entry.digest.parse::<Digest>() == Ok(digest)))
    }

    /// A manifest; `None` if it is not stored completely.
    pub(crate) fn document(&self, digest: Digest) -> Result<Option<Document>, RegistryError> {
        let Some(bytes) = self.blob(digest, manifest::MAX, "manifest")? else { return Ok(None) };
        Document::read(bytes, "", &digest.to_string()).map(Some)
    }

    /// A blob; `None` if it is not stored completely. A blob that no longer matches its digest is deleted from the store, and is an
    /// error in a source.
    pub(crate) fn blob(&self, digest: Digest, most: u64, kind: &'static str) -> Result<Option<Vec<u8>>, RegistryError> {
        let path = self.place(digest);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed("cannot read", &path)(source)),
        };
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed("cannot read", &path))?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > most {
            return Err(RegistryError::TooLarge { what: digest.to_string(), kind, size, most, hint: "" });
        }
        let found = Digest::of(&bytes);
        if found == digest {
            return Ok(Some(bytes));
        }
        if self.source.is_some() {
            let what = self.shown(&path).display().to_string();
            return Err(RegistryError::Digest { what, expected: digest, found });
        }
        tracing::warn!(file = %path.display(), "content does not match the digest; the file is deleted and fetched again");
        fs::remove_file(&path).map_err(failed("cannot delete", &path))?;
        Ok(None)
    }

    /// Whether a blob is stored. Its content is verified when it is read.
    pub(crate) fn has(&self, digest: Digest) -> bool {
        self.place(digest).is_file()
    }

    /// Stores a blob. A stored one that was damaged is replaced.
    pub(crate) fn keep(&self, digest: Digest, bytes: &[u8]) -> Result<(), RegistryError> {
        let place = self.place(digest);
        let is_there = |there: fs::Metadata| usize::try_from(there.len()) == Ok(bytes.len());
        if fs::metadata(&place).is_ok_and(is_there) && fs::read(&place).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        self.replace(&place, bytes)
    }

    /// Starts a blob, or continues an interrupted one. Waits while another process fetches it.
    pub(crate) async fn ingest(&self, digest: Digest) -> Result<Option<Ingest>, RegistryError> {
        let path = self.root.join("ingest").join(digest.hex());
        loop {
            if self.has(digest) {
                return Ok(None);
            }
            let opened = fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
            let file = opened.map_err(failed("cannot write", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(fs::TryLockError::Error(source)) => return Err(failed("cannot lock", &path)(source)),
            }
            // The previous holder of the lock may have moved the file into its place, or deleted it.
            if is_same(&file, &path) {
                return Ok(Some(Ingest { file, path, place: self.place(digest), digest }));
            }
        }
    }

    /// Stores a manifest and adds it to the index, under a name if there is one.
    pub(crate) fn name(&self, document: &Document, name: Option<&str>) -> Result<(), RegistryError> {
        self.keep(document.digest, &document.bytes)?;
        let OciDescriptor { media_type, digest, size, .. } = document.descriptor();
        let manifest = document.manifest(&digest).ok();
        let is_referrer = manifest.as_ref().is_some_and(|manifest| manifest.subject.is_some());
        let artifact_type = manifest.filter(|_| is_referrer).and_then(|manifest| manifest.artifact_type);
        let annotations = name.map(|name| BTreeMap::from([(REF_NAME.to_owned(), name.to_owned())]));
        let entry = ImageIndexEntry { media_type, digest, size, platform: None, annotations, artifact_type };
        self.change(|index| {
            let is_same = |other: &ImageIndexEntry| match name {
                Some(name) => name_of(other) == Some(name),
                None => other.digest == entry.digest && name_of(other).is_none(),
            };
            if index.manifests.iter().any(|other| is_same(other) && other.digest == entry.digest) {
                return false;
            }
            // The previous target of the name stays, unnamed, while it is in use or there is room: it may be
            // running, or be rolled back to.
            for other in index.manifests.iter_mut().filter(|other| is_same(other)) {
                other.annotations = None;
            }
            index.manifests.push(entry);
            true
        })
    }

    /// Manifests that refer to another by `subject`: signatures in cosign's second format. Damaged manifests of a source, which may
    /// be such signatures, are added to `ignored`.
    pub(crate) fn referrers(&self, of: Digest, ignored: &mut Vec<Rejected>) -> Result<Vec<Document>, RegistryError> {
        let mut found = Vec::new();
        for entry in self.index()?.manifests {
            let Ok(digest) = entry.digest.parse() else { continue };
            let document = match self.document(digest) {
                Ok(Some(document)) => document,
                Ok(None) => continue,
                Err(error @ RegistryError::Digest { .. }) => {
                    ignored.push(Rejected { origin: entry.digest, why: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Ok(manifest) = document.manifest(&entry.digest) else { continue };
            if subject_of(&manifest) == Some(of) && !found.contains(&document) {
                found.push(document);
            }
        }
        Ok(found)
    }

    /// Records that an artefact was used just now.
    pub(crate) fn touch(&self, digest: Digest) {
        let touched =
            File::options().write(true).open(self.place(digest)).and_then(|file| file.set_modified(SystemTime::now()));
        if let Err(error) = touched {
            tracing::debug!(%digest, %error, "time of use not recorded");
        }
    }

    /// Removes the least recently used artefacts until the rest fits into `most` bytes. Artefacts in `keep`, their signatures,
    /// and young entries always stay.
    pub(crate) fn collect(&self, keep: &BTreeSet<Digest>, most: u64) -> Result<Collected, RegistryError> {
        let mut collected = Collected::default();
        let mut named = BTreeSet::new();
        self.change(|index| {
            let before = index.manifests.len();
            let mut entries: Vec<(SystemTime, ImageIndexEntry, BTreeSet<Digest>)> = Vec::new();
            for entry in std::mem::take(&mut index.manifests) {
                let Some((used, needs)) = self.needs(&entry) else { continue };
                entries.push((used, entry, needs));
            }
            entries.sort_by_key(|(used, ..)| std::cmp::Reverse(*used));
            let is_kept = |entry: &ImageIndexEntry, used: SystemTime| {
                let is_young = used.elapsed().is_ok_and(|since| since < GRACE);
                is_young || self.serves(entry).is_some_and(|digest| keep.contains(&digest))
            };
            let (kept, others): (Vec<_>, Vec<_>) =
                entries.into_iter().partition(|(used, entry, _)| is_kept(entry, *used));
            let mut blobs: BTreeSet<Digest> = kept.iter().flat_map(|(.., needs)| needs.clone()).collect();
            index.manifests = kept.into_iter().map(|(_, entry, _)| entry).collect();
            let mut size: u64 = blobs.iter().map(|digest| self.size(*digest)).sum();
            for (_, entry, needs) in others {
                let more: u64 = needs.difference(&blobs).map(|digest| self.size(*digest)).sum();
                if size.saturating_add(more) > most {
                    collected.artifacts += 1;
                    continue;
                }
                size += more;
                blobs.extend(needs);
                index.manifests.push(entry);
            }
            named = blobs;
            // Without removals the index is not written: a full disk must not prevent freeing space.
            index.manifests.len() != before
        })?;
        collected.bytes = self.sweep(&named)?;
        Ok(collected)
    }

    /// Deletes unnamed blobs and abandoned downloads.
    fn sweep(&self, named: &BTreeSet<Digest>) -> Result<u64, RegistryError> {
        let mut bytes = 0;
        let is_old =
            |metadata: &fs::Metadata| metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|since| since > GRACE));
        for folder in ["blobs/sha256", "ingest"] {
            let folder = self.root.join(folder);
            for entry in fs::read_dir(&folder).map_err(failed("cannot list", &folder))? {
                let entry = entry.map_err(failed("cannot list", &folder))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_named = format!("sha256:{name}").parse().is_ok_and(|digest| named.contains(&digest));
                let Ok(metadata) = entry.metadata() else { continue };
                if is_named && folder.ends_with("sha256") || !is_old(&metadata) {
                    continue;
                }
                match fs::remove_file(entry.path()) {
                    Ok(()) => bytes += metadata.len(),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(source) => return Err(failed("cannot delete", &entry.path())(source)),
                }
            }
        }
        Ok(bytes)
    }

    /// When an entry was last used, and the blobs that it needs; `None` if the entry is incomplete.
    fn needs(&self, entry: &ImageIndexEntry) -> Option<(SystemTime, BTreeSet<Digest>)> {
        let digest: Digest = entry.digest.parse().ok()?;
        let used = fs::metadata(self.place(digest)).and_then(|metadata| metadata.modified()).ok()?;
        let manifest = self.document(digest).ok()??.manifest(&entry.digest).ok()?;
        let blobs = manifest.layers.iter().chain([&manifest.config]).filter_map(|blob| blob.digest.parse().ok());
        Some((used, blobs.chain([digest]).collect()))
    }

    /// The artefact that an entry is or signs.
    fn serves(&self, entry: &ImageIndexEntry) -> Option<Digest> {
        let signed = name_of(entry).and_then(|name| {
            let (_, tag) = name.rsplit_once(':').unwrap_or(("", name));
            let hex = tag.strip_prefix("sha256-")?.strip_suffix(".sig")?;
            format!("sha256:{hex}").parse().ok()
        });
        let digest: Digest = entry.digest.parse().ok()?;
        let subject = || subject_of(&self.document(digest).ok()??.manifest(&entry.digest).ok()?);
        signed.or_else(subject).or(Some(digest))
    }

    fn size(&self, digest: Digest) -> u64 {
        fs::metadata(self.place(digest)).map_or(0, |metadata| metadata.len())
    }

    /// A file's path for messages: an archive's folder is temporary.
    fn shown(&self, path: &Path) -> PathBuf {
        match (&self.source, path.strip_prefix(&self.root)) {
            (Some(source), Ok(inner)) => source.join(inner),
            _ => path.to_path_buf(),
        }
    }

    fn place(&self, digest: Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// Changes the index under the lock, and writes it if `change` returns `true`.
    fn change(&self, change: impl FnOnce(&mut OciImageIndex) -> bool) -> Result<(), RegistryError> {
        let _lock = self.lock()?;
        let mut index = self.index()?;
        if change(&mut index) { self.write_index(&index) } else { Ok(()) }
    }

    fn write_index(&self, index: &OciImageIndex) -> Result<(), RegistryError> {
        let path = self.root.join(INDEX_FILE);
        let text = serde_json::to_vec(index).map_err(|error| RegistryError::InvalidArtifact {
            what: path.display().to_string(),
            message: error.to_string(),
        })?;
        self.replace(&path, &text)
    }

    /// Replaces a file in one step: readers see either the old or the new content.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
        let written = || -> std::io::Result<()> {
            let mut file = tempfile::Builder::new().prefix(".new").tempfile_in(self.root.join("ingest"))?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(path)?;
            readable(path)
        };
        written().map_err(failed("cannot write", path))
    }

    /// Locks the folder itself: a lock file would be copied along with the layout.
    fn lock(&self) -> Result<File, RegistryError> {
        let folder = File::open(&self.root).map_err(failed("cannot open", &self.root))?;
        folder.lock().map_err(failed("cannot lock", &self.root))?;
        Ok(folder)
    }

    /// Removes the folder that only writing needed.
    pub(crate) fn finish(&self) {
        // Fails while another process has files there; then the folder stays.
        fs::remove_dir(self.root.join("ingest")).ok();
    }
}

/// What a collection removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Number of artefacts removed from the index, without incomplete ones.
    pub artifacts: usize,
    /// Freed space, in bytes.
    pub bytes: u64,
}

/// A blob that is being fetched; the file is locked.
pub(crate) struct Ingest {
    file: File,
    path: PathBuf,
    place: PathBuf,
    digest: Digest,
}

impl Ingest {
    /// Size of the part that is here, in bytes.
    pub(crate) fn size(&self) -> Result<u64, RegistryError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(failed("cannot read", &self.path))
    }

    /// Discards the part that is here.
    pub(crate) fn restart(&self) -> Result<(), RegistryError> {
        self.file.set_len(0).map_err(failed("cannot write", &self.path))
    }

    /// Appends bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        use std::io::{Seek as _, SeekFrom};
        let written = |file: &mut File| {
            file.seek(SeekFrom::End(0))?;
            file.write_all(bytes)
        };
        written(&mut self.file).map_err(failed("cannot write", &self.path))
    }

    /// Moves the blob into its place if it matches its digest, else deletes it.
    pub(crate) fn finish(self, what: &str) -> Result<(), RegistryError> {
        use std::io::{Seek as _, SeekFrom};
        let mut bytes = Vec::new();
        let mut file = &self.file;
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
        read.map_err(failed("cannot read", &self.path))?;
        let found = Digest::of(&bytes);
        if found != self.digest {
            fs::remove_file(&self.path).map_err(failed("cannot delete", &self.path))?;
            return Err(RegistryError::Digest { what: what.to_owned(), expected: self.digest, found });
        }
        let placed = self.file.sync_all().and_then(|()| fs::rename(&self.path, &self.place));
        placed.and_then(|()| readable(&self.place)).map_err(failed("cannot write", &self.place))
    }
}

/// The manifest that `subject` refers to.
pub(crate) fn subject_of(manifest: &OciImageManifest) -> Option<Digest> {
    manifest.subject.as_ref()?.digest.parse().ok()
}

fn name_of(entry: &ImageIndexEntry) -> Option<&str> {
    entry.annotations.as_ref()?.get(REF_NAME).map(String::as_str)
}

fn empty_index() -> OciImageIndex {
    OciImageIndex {
        schema_version: 2,
        media_type: Some(manifest::INDEX.to_owned()),
        manifests: Vec::new(),
        artifact_type: None,
        annotations: None,
    }
}

/// Makes a file readable for everyone: artefacts are public, and another user may copy the layout.
fn readable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().ok().map(of) == fs::metadata(path).ok().map(of)
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> RegistryError {
    let path = path.to_path_buf();
    move |source| RegistryError::File { action, path, source: with_way_out(source) }
}

/// Adds a remedy to the kernel's error for a full disk.
fn with_way_out(source: std::io::Error) -> std::io::Error {
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let way_out = "make room there, or keep artefacts on another disk, and try again";
            std::io::Error::new(source.kind(), format!("{source}; {way_out}"))
        }
        _ => source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::{Artifact, Label};

    fn artifact(name: &str) -> Artifact {
        let label = Label { name: name.to_owned(), created: "1970-01-01T00:00:00Z".to_owned(), ..Label::default() };
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        // A custom section, so that each module differs.
        module.extend([0, u8::try_from(name.len()).unwrap() + 1, u8::try_from(name.len()).unwrap()]);
        module.extend(name.as_bytes());
        Artifact::pack(module, label).unwrap()
    }

    fn put(layout: &Layout, name: &str) -> Digest {
        let Artifact { document, config, module } = artifact(name);
        layout.keep(Digest::of(&config), &config).unwrap();
        layout.keep(Digest::of(&module), &module).unwrap();
        layout.name(&document, Some(name)).unwrap();
        document.digest
    }

    fn age(layout: &Layout) {
        for folder in ["blobs/sha256", "ingest"] {
            for entry in fs::read_dir(layout.root.join(folder)).unwrap() {
                let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
                file.set_modified(SystemTime::now() - GRACE * 2).unwrap();
            }
        }
    }

    #[test]
    fn a_damaged_blob_is_replaced_when_it_is_stored_again() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        let digest = put(&layout, "demo");
        let place = layout.place(digest);
        for damage in [&b"short"[..], &vec![b'x'; fs::read(&place).unwrap().len()]] {
            fs::write(&place, damage).unwrap();
            assert_eq!(put(&layout, "demo"), digest);
            assert_eq!(Digest::of(&fs::read(&place).unwrap()), digest);
        }
    }

    #[test]
    fn a_name_stands_for_the_newest_that_was_given_it() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        let (first, second) = (put(&layout, "a"), put(&layout, "b"));
        assert_eq!(layout.named("a").unwrap(), Some(first));
        let again = layout.document(second).unwrap().unwrap();
        layout.name(&again, Some("a")).unwrap();
        assert_eq!(
            Layout::open(folder.path(), folder.path()).unwrap().names().unwrap().values().collect::<Vec<_>>(),
            [&second, &second]
        );
        let nothing = folder.path().join("nothing");
        assert!(Layout::open(&nothing, &nothing).is_err());
    }

    #[test]
    fn an_index_without_end_is_refused_and_not_read_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        File::options().write(true).open(folder.path().join(INDEX_FILE)).unwrap().set_len(1 << 32).unwrap();
        let error = layout.names().unwrap_err();
        assert!(matches!(error, RegistryError::TooLarge { kind: "index", .. }), "{error}");
        fs::write(folder.path().join(INDEX_FILE), format!(r#""{}""#, "x".repeat(10_000))).unwrap();
        let error = layout.names().unwrap_err().to_string();
        assert!(error.len() < 1000 && error.contains("not an index"), "{error}");
    }

    #[test]
    fn a_full_disk_names_the_way_out() {
        let full = failed("cannot write", Path::new("/store/x"))(std::io::Error::from_raw_os_error(28));
        let RegistryError::File { source, .. } = &full else { unreachable!("{full}") };
        assert_eq!(source.kind(), ErrorKind::StorageFull);
        let message = source.to_string();
        assert!(message.starts_with("No space left on device") && message.contains("make room there"), "{message}");
    }

    #[test]
    fn what_was_changed_on_the_disk_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        let digest = put(&layout, "a");
        fs::write(layout.place(digest), "{}").unwrap();
        assert_eq!(layout.document(digest).unwrap(), None);
        assert!(!layout.has(digest));
    }

    #[test]
    fn a_collection_keeps_what_is_in_use_and_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        let (used, unused) = (put(&layout, "used"), put(&layout, "unused"));
        fs::write(folder.path().join("ingest/left"), "over").unwrap();
        assert_eq!(layout.collect(&[used].into(), 0).unwrap(), Collected::default(), "all of it is young");
        age(&layout);
        let all = layout.collect(&[used].into(), 1 << 20).unwrap();
        assert_eq!((all.artifacts, all.bytes, layout.has(unused)), (0, 4, true), "only what was left over went");
        let collected = layout.collect(&[used].into(), 0).unwrap();
        assert_eq!(collected.artifacts, 1);
        assert!(collected.bytes > 0 && layout.has(used) && !layout.has(unused));
        assert_eq!(layout.names().unwrap().keys().collect::<Vec<_>>(), ["used"]);
    }

    #[test]
    fn two_fetches_of_one_blob_run_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(folder.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let digest = Digest::of(b"whole");
            let mut first = layout.ingest(digest).await.unwrap().unwrap();
            first.append(b"wh").unwrap();
            let second = layout.ingest(digest);
            let waits = tokio::time::timeout(Duration::from_millis(200), second).await;
            assert!(waits.is_err());
            drop(first);
            let mut third = layout.ingest(digest).await.unwrap().unwrap();
            assert_eq!(third.size().unwrap(), 2, "what came earlier is there");
            third.append(b"ole").unwrap();
            third.finish("x").unwrap();
            assert!(layout.ingest(digest).await.unwrap().is_none());
            let mut wrong = layout.ingest(Digest::of(b"other")).await.unwrap().unwrap();
            wrong.append(b"x").unwrap();
            assert!(matches!(wrong.finish("x"), Err(RegistryError::Digest { .. })));
        });
    }
}
