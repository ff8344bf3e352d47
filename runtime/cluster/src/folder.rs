//! A [`Source`] that reads manifests from files and detects their changes.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use qosm_model::problem::Problem;

use crate::object::{Parsed, collect, parse};
use crate::{Snapshot, Source};

/// Larger files are not read: no manifest is this large.
const MAX_FILE_SIZE: u64 = 16 * 1024 * 1024;
/// Suffixes of the files that are read in a folder.
const SUFFIXES: [&str; 3] = [".yaml", ".yml", ".json"];

/// Manifests in a folder, in single files, or both.
///
/// In a folder, the files `*.yaml`, `*.yml` and `*.json` are read in the order of their names; hidden files and subfolders are
/// not. Links are followed as long as they stay within the folder, which is how Kubernetes mounts ConfigMaps. Where two objects
/// have one name, the pods' folder comes before the other files, and these in the order in which they were given.
///
/// Paths are resolved again at each [`poll`](Self::poll), so a file or folder that is replaced by renaming or through a link is
/// detected. A file that becomes unreadable keeps its last good content, with a problem; the objects of a removed file are gone.
#[derive(Debug)]
pub struct Folder {
    paths: Vec<ManifestPath>,
    files: BTreeMap<FileKey, File>,
    /// Indices of the paths that could not be read in the last poll.
    gone: Vec<usize>,
    last: Option<Snapshot>,
}

/// A configured path that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read; name an existing folder or file of manifests", path.display())]
pub struct FolderError {
    /// The configured path.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub source: io::Error,
}

/// A configured path.
#[derive(Debug)]
struct ManifestPath {
    path: PathBuf,
    is_folder: bool,
}

/// Index of a configured path, and the file's name in it; the name is empty if the path is a file.
type FileKey = (usize, String);

/// The last known state of a file.
#[derive(Debug, Default)]
struct File {
    fingerprint: Option<Fingerprint>,
    /// Whether the file was read again after its last change: a second change within one step of the kernel's
    /// clock leaves the fingerprint as it is.
    settled: bool,
    /// The last text; `None` if the file could not be read.
    text: Option<String>,
    parsed: Parsed,
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    dev: u64,
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file that the current poll found.
struct FoundFile {
    key: FileKey,
    /// The file's name in problems.
    origin: String,
    place: io::Result<Location>,
}

impl Folder {
    /// Checks that every path exists. Each path may be a folder or a file, and may hold objects of any kind;
    /// `pods` comes first in the order.
    ///
    /// # Errors
    ///
    /// The first path that cannot be opened. A path that vanishes later becomes a problem of the next snapshot.
    pub fn open(pods: impl Into<Option<PathBuf>>, config: Vec<PathBuf>) -> Result<Self, FolderError> {
        let mut paths = Vec::new();
        for path in pods.into().into_iter().chain(config) {
            if let Err(source) = list_path(&path) {
                return Err(FolderError { path, source });
            }
            paths.push(ManifestPath { is_folder: path.is_dir(), path });
        }
        Ok(Self { paths, files: BTreeMap::new(), gone: Vec::new(), last: None })
    }

    /// All files that exist, and the paths that cannot be read.
    fn list(&self) -> (Vec<FoundFile>, Vec<usize>) {
        let (mut seen, mut gone) = (Vec::new(), Vec::new());
        for (index, place) in self.paths.iter().enumerate() {
            match list_path(&place.path) {
                Ok(files) => {
                    seen.extend(files.into_iter().map(|(name, origin, place)| FoundFile {
                        key: (index, name),
                        origin,
                        place,
                    }));
                }
                // A removed file is gone. A folder that vanished is more likely a failed mount: treating all its pods as ended
                // would release everything that is held for them.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !place.is_folder => {}
                Err(_) => gone.push(index),
            }
        }
        (seen, gone)
    }
}

impl Source for Folder {
    /// All objects of the files, on the first call and after each change.
    ///
    /// Costs one `stat` of each file; only files that changed are read.
    fn poll(&mut self) -> Option<Snapshot> {
        let (seen, gone) = self.list();
        let before = self.files.len();
        self.files.retain(|key, _| gone.contains(&key.0) || seen.iter().any(|seen| seen.key == *key));
        let mut changed = self.last.is_none() || self.files.len() != before || self.gone != gone;
        for seen in seen {
            changed |= self.files.entry(seen.key.clone()).or_default().update(seen);
        }
        self.gone = gone;
        if !changed {
            return None;
        }
        let parsed: Vec<&Parsed> = self.files.values().map(|file| &file.parsed).collect();
        let mut snapshot = collect(&parsed);
        snapshot.problems.extend(self.gone.iter().filter_map(|place| self.paths.get(*place)).map(|place| Problem {
            object: place.path.display().to_string(),
            field: None,
            message: "it cannot be read any more; what it held counts on, bring it back or restart without it".into(),
        }));
        if self.last.as_ref() == Some(&snapshot) {
            return None;
        }
        self.last = Some(snapshot.clone());
        Some(snapshot)
    }

    /// File changes raise no event: each tick polls.
    fn has_changes(&self) -> bool {
        false
    }

    /// Always `None`: files are read at once.
    fn waits_for(&self) -> Option<String> {
        None
    }
}

/// A file's name within its path, its name in problems, and its location or the error.
type ListedFile = (String, String, io::Result<Location>);
/// The folder that contains a file, the file's name there, and its fingerprint.
type Location = (Rc<Dir>, String, Fingerprint);

/// The files of a folder, or the file that the path names.
#[expect(clippy::disallowed_methods, reason = "a file that the operator names may be a link to anywhere")]
fn list_path(path: &Path) -> io::Result<Vec<ListedFile>> {
    match Dir::open_ambient_dir(path, ambient_authority()) {
        Ok(dir) => list_directory(path, dir),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            // The operator named this file, so its links may lead anywhere.
            let real = std::fs::canonicalize(path)?;
            let (Some(parent), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str())) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has no name that can be read"));
            };
            let dir = Dir::open_ambient_dir(parent, ambient_authority())?;
            let metadata = dir.metadata(name)?;
            // A read of a FIFO without a writer would not return.
            let place = if metadata.is_file() {
                Ok((Rc::new(dir), name.to_owned(), Fingerprint::of(&metadata)))
            } else {
                Err(not_regular())
            };
            Ok(vec![(String::new(), path.display().to_string(), place)])
        }
        Err(error) => Err(error),
    }
}

fn list_directory(path: &Path, dir: Dir) -> io::Result<Vec<ListedFile>> {
    let dir = Rc::new(dir);
    let mut listed = Vec::new();
    for entry in dir.entries()? {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') || !SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        let place = match dir.metadata(name) {
            Ok(metadata) if metadata.is_dir() => continue,
            Ok(metadata) if !metadata.is_file() => Err(not_regular()),
            Ok(metadata) => Ok((Rc::clone(&dir), name.to_owned(), Fingerprint::of(&metadata))),
            // Removed after the listing.
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir.symlink_metadata(name).is_err() => continue,
            Err(error) if dir.symlink_metadata(name).is_ok_and(|metadata| metadata.is_symlink()) => {
                let why =
                    if error.kind() == io::ErrorKind::NotFound { "leads nowhere" } else { "leads out of the folder" };
                Err(io::Error::new(error.kind(), format!("it is a link that {why} ({error})")))
            }
            Err(error) => Err(error),
        };
        listed.push((name.to_owned(), path.join(name).display().to_string(), place));
    }
    listed.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(listed)
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")
}

impl File {
    /// Applies a found file. Returns whether its objects or problems changed.
    fn update(&mut self, seen: FoundFile) -> bool {
        let text = match seen.place {
            Ok((dir, name, fingerprint)) => {
                if self.fingerprint == Some(fingerprint) && self.settled {
                    return false;
                }
                self.settled = self.fingerprint == Some(fingerprint);
                self.fingerprint = Some(fingerprint);
                read(&dir, &name)
            }
            Err(error) => {
                self.fingerprint = None;
                Err(error.to_string())
            }
        };
        match text {
            Ok(text) if self.text.as_ref() == Some(&text) => false,
            Ok(text) if text.trim().is_empty() && !self.parsed.found.is_empty() => {
                self.refuse("it is empty now, as if it had been cut off", &seen.origin)
            }
            Ok(text) => {
                let mut parsed = parse(&text, &seen.origin);
                keep_good(&mut parsed, &self.parsed, &seen.origin);
                self.text = Some(text);
                let changed = parsed != self.parsed;
                self.parsed = parsed;
                changed
            }
            Err(message) => self.refuse(&message, &seen.origin),
        }
    }

    /// Keeps the file's previous objects and adds a problem. Returns whether that changes anything.
    fn refuse(&mut self, why: &str, origin: &str) -> bool {
        let mut parsed = Parsed { broken: vec![None], ..Parsed::default() };
        parsed.problems.push(Problem {
            object: origin.to_owned(),
            field: None,
            message: format!("{why}; the file is not read, mend it or remove it"),
        });
        keep_good(&mut parsed, &self.parsed, origin);
        self.text = None;
        let changed = parsed != self.parsed;
        self.parsed = parsed;
        changed
    }
}

/// Keeps the last content of objects that cannot be read any more. A document without a readable name may be any of the missing
/// objects, so all of them are kept.
fn keep_good(parsed: &mut Parsed, before: &Parsed, origin: &str) {
    if parsed.broken.is_empty() {
        return;
    }
    let is_nameless = parsed.broken.contains(&None);
    for found in &before.found {
        let is_back = parsed.found.iter().any(|now| now.key == found.key);
        let is_broken = is_nameless || parsed.broken.iter().flatten().any(|key| *key == found.key);
        if is_broken && !is_back {
            parsed.problems.push(Problem {
                object: found.key.to_string(),
                field: None,
                message: format!("its manifest cannot be read any more and its last good one counts on; mend {origin}"),
            });
            parsed.found.push(found.clone());
        }
    }
}

fn read(dir: &Dir, name: &str) -> Result<String, String> {
    let file = dir.open(name).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_SIZE {
        return Err(format!("it is larger than {} MiB", MAX_FILE_SIZE / 1024 / 1024));
    }
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 ({})", error.utf8_error()))
}

impl Fingerprint {
    fn of(metadata: &Metadata) -> Self {
        Self {
            dev: metadata.dev(),
            ino: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
