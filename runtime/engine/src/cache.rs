//! The folder of compiled modules.
//!
//! A file's name contains the digests of the module and of the engine. The file starts with an authentication code over
//! its name and content, made with a key that only this node has and that lies outside the folder. A file whose code does
//! not match (truncated, corrupted, renamed, written by another engine or program) counts as a cache miss. Files are
//! linked into place once they are complete, and are afterwards only deleted.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

use crate::error::{CompileError, EngineError};
use crate::failures::Failures;
use crate::precompiled::Precompiled;
use qosm_model::digest::Digest;

const FOLDER: &str = "compiled";
const KEY: &str = "compiled.key";
const FAILURES: &str = "compiled-failures.json";
const FAILURES_NEW: &str = "compiled-failures.json.new";
/// Upper bound in bytes of the file with the failures: 64 failures with their reasons.
const MAX_FAILURES: u64 = 256 << 10;
/// One block of SHA-256.
const KEY_SIZE: usize = 64;
const CODE_SIZE: usize = 32;
const EXTENSION: &str = ".cwasm";
/// Upper bound of a compiled module in bytes; no module of an allowed size compiles to more.
const MAX_SIZE: u64 = 512 << 20;

/// Compiled modules of this node, kept across restarts.
pub struct ModuleCache {
    home: Dir,
    folder: Dir,
    key: [u8; KEY_SIZE],
    failures: Mutex<Failures>,
}

/// Key of a compiled module in the cache.
pub(crate) struct Entry {
    name: String,
    digest: Digest,
}

/// Why a file in the cache is not used.
#[derive(Debug, thiserror::Error)]
enum InvalidEntry {
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("it is not a regular file")]
    Kind,
    #[error("it is too short or too long")]
    Size,
    #[error("its authentication code does not fit: it was changed, or this node did not write it")]
    Code,
}

impl ModuleCache {
    /// Opens the cache in a folder that only the agent uses, and creates what is missing: `compiled/` (0700) for the
    /// compiled modules, and beside it `compiled.key` (0600). A key that other users can read is replaced, which
    /// invalidates every cached module.
    ///
    /// # Errors
    ///
    /// [`EngineError::Cache`] naming the file or folder that cannot be created or read.
    pub fn open(home: Dir) -> Result<Self, EngineError> {
        let folder = open_folder(&home).map_err(failed(FOLDER, "opening"))?;
        let key = match read_key(&home).map_err(failed(KEY, "reading"))? {
            Some(key) => key,
            None => write_key(&home).map_err(failed(KEY, "writing"))?,
        };
        let failures = Mutex::new(Failures::parse(&read_small(&home, FAILURES).unwrap_or_default()));
        Ok(Self { home, folder, key, failures })
    }

    /// Forgets that a module failed to compile, so that the next load compiles it again. Returns `false` if no failure
    /// was recorded.
    pub fn clear_failure(&self, module: &Digest) -> bool {
        let mut failures = self.failures();
        let was_known = failures.forget(&module.hex());
        if was_known {
            self.keep(&failures);
        }
        was_known
    }

    /// The recorded failure that keeps a module from being compiled now; `None` if it may be compiled.
    #[expect(clippy::disallowed_methods, reason = "a failure counts for a while, across processes")]
    pub(crate) fn failure(&self, entry: &Entry) -> Option<CompileError> {
        self.failures().active(&entry.name, SystemTime::now())
    }

    /// Whether a module failed once for lack of time or memory, so that the next attempt is the last one.
    pub(crate) fn is_last_attempt(&self, entry: &Entry) -> bool {
        self.failures().is_second(&entry.name)
    }

    /// Records that a module failed to compile.
    #[expect(clippy::disallowed_methods, reason = "a failure counts for a while, across processes")]
    pub(crate) fn note_failure(&self, entry: &Entry, error: &CompileError) {
        let mut failures = self.failures();
        if failures.note(&entry.name, error, SystemTime::now()) {
            self.keep(&failures);
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the failures to disk. If that fails, the next start tries the modules again.
    fn keep(&self, failures: &Failures) {
        let put = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600).custom_flags(careful());
            let mut file = self.home.open_with(FAILURES_NEW, &options)?;
            file.write_all(&failures.text())?;
            file.sync_all()?;
            self.home.rename(FAILURES_NEW, &self.home, FAILURES)
        };
        if let Err(error) = put() {
            tracing::warn!(file = FAILURES, %error, "cannot record that a module does not compile");
        }
    }

    /// Deletes all files but those that this engine compiled from the modules in `keep`, including leftovers of
    /// interrupted writes. Returns the number of deleted files.
    ///
    /// # Errors
    ///
    /// [`EngineError::Cache`] if the folder cannot be read or a file cannot be deleted.
    pub fn prune(&self, engine: &crate::Engine, keep: &BTreeSet<Digest>) -> Result<usize, EngineError> {
        let keep: BTreeSet<_> = keep.iter().map(|&digest| Entry::new(digest, engine.wasm()).name).collect();
        let mut deleted = 0;
        for entry in self.folder.entries().map_err(failed(FOLDER, "listing"))? {
            let name = entry.map_err(failed(FOLDER, "listing"))?.file_name();
            if name.to_str().is_some_and(|name| keep.contains(name)) {
                continue;
            }
            match self.folder.remove_file(&name) {
                Ok(()) => deleted += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&name.to_string_lossy(), "deleting")(error)),
            }
        }
        Ok(deleted)
    }

    /// Whether a compiled form of a module is stored. Loading verifies it.
    pub fn has(&self, engine: &crate::Engine, module: &Digest) -> bool {
        let name = Entry::new(*module, engine.wasm()).name;
        self.folder.symlink_metadata(name).is_ok_and(|metadata| metadata.is_file())
    }

    /// Loads a compiled module if its authentication code is valid. An invalid file is deleted and logged.
    pub(crate) fn load(&self, entry: &Entry) -> Option<Precompiled> {
        match self.read(entry) {
            Ok(found) => found,
            Err(error) => {
                self.invalidate(entry, &error.to_string());
                None
            }
        }
    }

    /// Deletes a file and logs why.
    pub(crate) fn invalidate(&self, entry: &Entry, reason: &str) {
        tracing::warn!(module = %entry.digest, file = entry.name, reason, "compiled module refused; compiling it again");
        if let Err(error) = self.folder.remove_file(&entry.name).or_else(|_| self.folder.remove_dir_all(&entry.name)) {
            tracing::warn!(file = entry.name, %error, "refused module cannot be deleted");
        }
    }

    /// Stores a compiled module. A failure is only logged: the next start compiles the module again.
    pub(crate) fn store(&self, entry: &Entry, compiled: &Precompiled) {
        let result =
            write_new(&self.folder, &entry.name, &[&self.code(&entry.name, compiled.bytes()), compiled.bytes()]);
        match result {
            Ok(()) => {}
            // Another process compiled the same module at the same time; its file is equivalent.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                tracing::warn!(module = %entry.digest, file = entry.name, %error, "compiled module cannot be kept");
            }
        }
    }

    fn read(&self, entry: &Entry) -> Result<Option<Precompiled>, InvalidEntry> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(careful());
        let mut file = match self.folder.open_with(&entry.name, &options) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(InvalidEntry::Kind);
        }
        let size = usize::try_from(metadata.len()).map_err(|_| InvalidEntry::Size)?;
        if metadata.len() > MAX_SIZE || size <= CODE_SIZE {
            return Err(InvalidEntry::Size);
        }
        let mut code = [0; CODE_SIZE];
        file.read_exact(&mut code)?;
        let mut bytes = Vec::with_capacity(size - CODE_SIZE);
        file.take(MAX_SIZE).read_to_end(&mut bytes)?;
        // The file is not read again: the bytes checked here are the bytes that run.
        match self.mac(&entry.name, &bytes).verify_slice(&code) {
            Ok(()) => Ok(Some(Precompiled::vouched(bytes))),
            Err(_) => Err(InvalidEntry::Code),
        }
    }

    fn code(&self, name: &str, bytes: &[u8]) -> [u8; CODE_SIZE] {
        self.mac(name, bytes).finalize().into_bytes().into()
    }

    fn mac(&self, name: &str, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        // The name's length comes first, so that no byte can move between name and content.
        mac.update(&(name.len() as u64).to_le_bytes());
        mac.update(name.as_bytes());
        mac.update(bytes);
        mac
    }
}

impl Entry {
    pub(crate) fn new(digest: Digest, engine: &wasmtime::Engine) -> Self {
        // Covers the version of wasmtime, its settings, the target and the CPU's features.
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let engine: String = hasher.0.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("{}-{engine}{EXTENSION}", digest.hex()), digest }
    }
}

/// A [`Hasher`] that returns the same result in every process.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}

fn failed(name: &str, action: &'static str) -> impl FnOnce(io::Error) -> EngineError {
    move |source| EngineError::Cache { name: name.to_owned(), action, source }
}

/// Flags for opening a file of unknown kind: no link is followed, and a FIFO does not block. The kind is read from the
/// open file.
fn careful() -> i32 {
    // `OFlags` has unsigned bits, `custom_flags` takes a signed number.
    (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed()
}

fn open_folder(home: &Dir) -> io::Result<Dir> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    match home.create_dir_with(FOLDER, &builder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let folder = home.open_dir(FOLDER)?;
    if folder.dir_metadata()?.permissions().mode() & 0o077 != 0 {
        home.set_permissions(FOLDER, Permissions::from_mode(0o700))?;
    }
    Ok(folder)
}

/// Reads at most [`MAX_FAILURES`] bytes of a file; empty if it is not a regular file.
fn read_small(home: &Dir, name: &str) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(careful());
    let file = home.open_with(name, &options)?;
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(MAX_FAILURES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The key; `None` if there is no trustworthy one.
fn read_key(home: &Dir) -> io::Result<Option<[u8; KEY_SIZE]>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(careful());
    let mut file = match home.open_with(KEY, &options) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    let mut key = [0; KEY_SIZE];
    if metadata.is_file() && metadata.permissions().mode() & 0o077 == 0 && metadata.len() == KEY_SIZE as u64 {
        file.read_exact(&mut key)?;
        return Ok(Some(key));
    }
    tracing::warn!(file = KEY, "key of the module cache was readable by others or damaged; making a new one");
    home.remove_file(KEY)?;
    Ok(None)
}

fn write_key(home: &Dir) -> io::Result<[u8; KEY_SIZE]> {
    let mut key = [0; KEY_SIZE];
    let mut filled = 0;
    while filled < KEY_SIZE {
        filled += getrandom(key.get_mut(filled..).unwrap_or_default(), GetRandomFlags::empty())?;
    }
    match write_new(home, KEY, &[&key]) {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read_key(home)?.ok_or_else(|| io::Error::other("the key changes while it is read"))
        }
        Err(error) => Err(error),
    }
}

/// Puts a complete file into place, or nothing. An existing file is never replaced: the error is then `AlreadyExists`.
fn write_new(folder: &Dir, name: &str, parts: &[&[u8]]) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let temporary = format!(".{name}.{}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = folder.open_with(&temporary, &options)?;
        for part in parts {
            file.write_all(part)?;
        }
        file.sync_all()?;
        folder.hard_link(&temporary, folder, name)
    };
    let result = written();
    match folder.remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound && result.is_ok() => return Err(error),
        Ok(()) | Err(_) => {}
    }
    result?;
    folder.open(".")?.sync_all()
}
