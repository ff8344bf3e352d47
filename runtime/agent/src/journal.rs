//! The journal: what every knob held before qosm touched it, recorded before the first write.
//!
//! An embedded ACID store (redb) in the agent's state folder. A record is committed before the kernel is written, so that after `kill -9`
//! at any moment the record says what the file held, what was there just before, and what was about to be written. Cgroups do not survive
//! a reboot, so neither does the journal: its file is named after the boot, and commits do not wait for the disk. The page cache outlives
//! the process, which is enough; a commit then costs microseconds, not the milliseconds of an fsync for every change of a quota.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::{
    Dir, DirEntry, MetadataExt as _, OpenOptions, OpenOptionsExt as _, Permissions, PermissionsExt as _,
};
use qosm_model::knob::{Knob, Level, Value};
use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;
use redb::backends::FileBackend;
use redb::{
    BackendError, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction,
};
use serde::{Deserialize, Serialize};

use crate::saved_state::SavedState;

const KNOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("knobs");
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
/// When each entry of [`STATE`] was saved, in microseconds since boot.
const SAVED_AT: TableDefinition<&str, u64> = TableDefinition::new("saved-at");
const PAUSES: TableDefinition<&str, &[u8]> = TableDefinition::new("holds");
const CREATED: TableDefinition<&str, ()> = TableDefinition::new("made");
const PAUSED_CGROUPS: TableDefinition<&str, i64> = TableDefinition::new("on-hold");

/// Mode of the journal, for its owner alone: it shows what every pod of the node held.
const FILE_MODE: u32 = 0o600;
/// Mode of the state folder, unless it holds files that are not qosm's.
const FOLDER_MODE: u32 = 0o700;
/// Folders that qosm keeps in its state folder, and the one that mkfs creates if it is a disk of its own. Files in it end in `.json` and
/// `.redb`, with `.new` and `.damaged` after that.
const OWN_FOLDERS: [&str; 3] = ["modules", "artifacts", "lost+found"];
const OWN_ENDINGS: [&str; 4] = [".json", ".redb", ".new", ".damaged"];

/// A killed agent, and a child that it was about to start, hold the file until the kernel has ended them: half a second tells them from a
/// running agent.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// The journal failed; without it nothing is written to the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be opened or created.
    #[error("cannot open the journal {}; check that the state folder is writable and not full", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another agent has the journal open.
    #[error("the journal {} is in use: another agent runs with this state folder; stop it, or ask it through its admin socket", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The store failed.
    #[error("the journal {} failed; is the disk full?", path.display())]
    Store {
        /// The file.
        path: PathBuf,
        /// Why.
        source: redb::Error,
    },
}

/// One knob that qosm wrote, or is about to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Directory of the cgroup, below the root of its hierarchy.
    pub cgroup: String,
    /// Inode of that directory: tells a cgroup from a later one of the same name.
    pub identity: u64,
    /// Level of the cgroup: node, tier, pod or container.
    pub level: Level,
    /// The knob.
    pub knob: Knob,
    /// Value that another program last wrote; restored in the end.
    pub baseline: Value,
    /// Value just before qosm's last write.
    pub previous: Value,
    /// Value that qosm last wrote, or was about to write.
    pub written: Value,
    /// The policy whose lease it is.
    pub policy: String,
    /// When qosm first held the knob.
    pub since: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct WireRecord {
    cgroup: String,
    identity: u64,
    level: String,
    knob: String,
    baseline: String,
    previous: String,
    written: String,
    policy: String,
    since: i64,
}

impl Record {
    fn key(&self) -> String {
        format!("{} {}", self.knob, self.cgroup)
    }

    fn encode(&self) -> Vec<u8> {
        let wire = WireRecord {
            cgroup: self.cgroup.clone(),
            identity: self.identity,
            level: self.level.as_str().to_owned(),
            knob: self.knob.to_string(),
            baseline: self.baseline.to_string(),
            previous: self.previous.to_string(),
            written: self.written.to_string(),
            policy: self.policy.clone(),
            since: self.since.0,
        };
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let wire: WireRecord = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            cgroup: wire.cgroup,
            identity: wire.identity,
            level: Level::ALL.into_iter().find(|l| l.as_str() == wire.level)?,
            knob: wire.knob.parse().ok()?,
            baseline: wire.baseline.parse().ok()?,
            previous: wire.previous.parse().ok()?,
            written: wire.written.parse().ok()?,
            policy: wire.policy,
            since: Timestamp(wire.since),
        })
    }
}

/// A pause that an operator asked for; it outlives the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPause {
    /// When the pause ends, in milliseconds since 1970; `None` if it lasts until the pod is resumed.
    pub until_millis: Option<i64>,
}

/// The changes of one commit. `drop` comes before `put`: if a record is in both lists, the new one stays.
#[derive(Debug, Default)]
pub struct Entries {
    /// Records to put or replace.
    pub put: Vec<Record>,
    /// Records to drop, by knob and cgroup.
    pub drop: Vec<(Knob, String)>,
    /// Saved state to store, by key.
    pub state: Vec<(String, SavedState)>,
    /// Cgroups that are about to be created.
    pub created: Vec<String>,
    /// Cgroups that were created and are removed again.
    pub removed: Vec<String>,
    /// The cgroups of paused pods, with the end of the pause in milliseconds since 1970; `None` leaves the stored ones unchanged.
    pub paused: Option<BTreeMap<String, i64>>,
}

impl Entries {
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty()
            && self.drop.is_empty()
            && self.state.is_empty()
            && self.created.is_empty()
            && self.removed.is_empty()
            && self.paused.is_none()
    }
}

/// The open journal of this boot.
pub struct Journal {
    dir: Dir,
    name: String,
    path: PathBuf,
    /// `None` after an I/O error: the store refuses further work until it is opened again.
    store: RefCell<Option<Database>>,
    set_aside: Option<PathBuf>,
    #[cfg(test)]
    crash: Option<qosm_host::simulated::Crash>,
    #[cfg(test)]
    is_failing: std::cell::Cell<bool>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Journal {
    /// Whether a folder has the journal of this boot.
    pub fn is_there(dir: &Dir, boot_id: &str) -> bool {
        dir.exists(name(boot_id))
    }

    /// Opens this boot's journal in the state folder, or creates it. Removes journals of earlier boots, and sets a damaged one aside
    /// under the name `*.damaged`.
    ///
    /// `shown` is the folder's path in messages.
    ///
    /// # Errors
    ///
    /// [`JournalError::InUse`] when an agent has it open; [`JournalError::Open`] when the folder cannot be written;
    /// [`JournalError::Store`] when the store fails.
    pub fn open(dir: &Dir, shown: &Path, boot_id: &str) -> Result<Self, JournalError> {
        let name = name(boot_id);
        let path = shown.join(&name);
        close_to_others(dir, shown);
        sweep_earlier_boots(dir, &name);
        let opened = |source| JournalError::Open { path: path.clone(), source };
        let mut set_aside = None;
        let mut store = open_store(dir, &name, &path);
        for _ in 1..LOCK_TRIES {
            if !matches!(store, Err(JournalError::InUse { .. })) {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            store = open_store(dir, &name, &path);
        }
        let store = match store {
            Err(JournalError::Store { source: redb::Error::Corrupted(why), .. }) => {
                let aside = format!("{name}.damaged");
                tracing::error!(journal = %path.display(), why, aside, "journal damaged, set aside; knobs it held stay as they are");
                dir.rename(&name, dir, &aside).map_err(opened)?;
                set_aside = Some(shown.join(aside));
                open_store(dir, &name, &path)?
            }
            other => other?,
        };
        let dir = dir.try_clone().map_err(opened)?;
        let journal = Self {
            dir,
            name,
            path,
            store: RefCell::new(Some(store)),
            set_aside,
            #[cfg(test)]
            crash: None,
            #[cfg(test)]
            is_failing: std::cell::Cell::new(false),
        };
        journal.write(|transaction| {
            transaction.open_table(KNOBS)?;
            transaction.open_table(STATE)?;
            transaction.open_table(SAVED_AT)?;
            transaction.open_table(PAUSES)?;
            transaction.open_table(CREATED)?;
            transaction.open_table(PAUSED_CGROUPS)?;
            Ok(())
        })?;
        Ok(journal)
    }

    /// The state folder.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Path of the damaged journal that was set aside for this one, if there was one.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Runs `work` on the store, which is opened again if an error closed it.
    fn with_store<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, JournalError> {
        let mut slot = self.store.borrow_mut();
        let store = match slot.take() {
            Some(store) => store,
            None => open_store(&self.dir, &self.name, &self.path)?,
        };
        let result = work(&store);
        // A full disk may have room again later: the store is reopened then, with all that was committed.
        if !matches!(result, Err(redb::Error::Io(_) | redb::Error::PreviousIo)) {
            *slot = Some(store);
        }
        result.map_err(|error| store_error(&self.path, error))
    }

    /// Simulates a kill of the writing process: later commits are lost, without an error.
    #[cfg(test)]
    pub(crate) fn crash_at(&mut self, crash: qosm_host::simulated::Crash) {
        self.crash = Some(crash);
    }

    /// Makes each commit fail as on a full disk, or work again.
    #[cfg(test)]
    pub(crate) fn set_failing(&self, is_failing: bool) {
        self.is_failing.set(is_failing);
    }

    fn write(&self, change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) -> Result<(), JournalError> {
        #[cfg(test)]
        if self.crash.as_ref().is_some_and(|crash| !crash.step()) {
            return Ok(());
        }
        #[cfg(test)]
        if self.is_failing.get() {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(store_error(&self.path, redb::Error::Io(full)));
        }
        self.with_store(|store| {
            let transaction = store.begin_write()?;
            change(&transaction)?;
            Ok(transaction.commit()?)
        })
    }

    /// Writes all entries in one commit.
    ///
    /// # Errors
    ///
    /// [`JournalError`]; then none of them is written.
    pub fn commit(&self, entries: &Entries) -> Result<(), JournalError> {
        self.write(|transaction| {
            let mut knobs = transaction.open_table(KNOBS)?;
            // Dropped first: what is dropped was held until now, what is put is about to be written. The other way round a knob that
            // is released and held again in one step would be written without a record.
            for (knob, cgroup) in &entries.drop {
                knobs.remove(format!("{knob} {cgroup}").as_str())?;
            }
            for record in &entries.put {
                knobs.insert(record.key().as_str(), record.encode().as_slice())?;
            }
            let (mut state, mut saved_at) = (transaction.open_table(STATE)?, transaction.open_table(SAVED_AT)?);
            for (policy, saved) in &entries.state {
                state.insert(policy.as_str(), saved.bytes.as_slice())?;
                match saved.at {
                    Some(at) => saved_at.insert(policy.as_str(), at.0)?,
                    None => saved_at.remove(policy.as_str())?,
                };
            }
            let mut created = transaction.open_table(CREATED)?;
            for cgroup in &entries.created {
                created.insert(cgroup.as_str(), ())?;
            }
            for cgroup in &entries.removed {
                created.remove(cgroup.as_str())?;
            }
            if let Some(paused) = &entries.paused {
                let mut table = transaction.open_table(PAUSED_CGROUPS)?;
                table.retain(|_, _| false)?;
                for (cgroup, until) in paused {
                    table.insert(cgroup.as_str(), *until)?;
                }
            }
            Ok(())
        })
    }

    /// All records. A record that cannot be read is logged and left out.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn records(&self) -> Result<Vec<Record>, JournalError> {
        self.with_store(|store| {
            let mut records = Vec::new();
            for entry in store.begin_read()?.open_table(KNOBS)?.iter()? {
                let (key, bytes) = entry?;
                match Record::decode(bytes.value()) {
                    Some(record) => records.push(record),
                    None => tracing::error!(record = key.value(), "journal record cannot be read, left out"),
                }
            }
            Ok(records)
        })
    }

    /// The cgroups that qosm created, each after its parent.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn created(&self) -> Result<BTreeSet<String>, JournalError> {
        self.with_store(|store| {
            let mut created = BTreeSet::new();
            for entry in store.begin_read()?.open_table(CREATED)?.iter()? {
                created.insert(entry?.0.value().to_owned());
            }
            Ok(created)
        })
    }

    /// The cgroups of paused pods as last recorded, with the end of the pause in milliseconds since 1970. An agent that does not know its
    /// pods yet leaves them alone.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn paused_cgroups(&self) -> Result<BTreeMap<String, i64>, JournalError> {
        self.with_store(|store| {
            let mut paused = BTreeMap::new();
            for entry in store.begin_read()?.open_table(PAUSED_CGROUPS)?.iter()? {
                let (cgroup, until) = entry?;
                paused.insert(cgroup.value().to_owned(), until.value());
            }
            Ok(paused)
        })
    }

    /// The state that a policy saved last; empty if it saved none.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn state(&self, policy: &str) -> Result<SavedState, JournalError> {
        self.with_store(|store| {
            let transaction = store.begin_read()?;
            let bytes = transaction.open_table(STATE)?.get(policy)?;
            let at = transaction.open_table(SAVED_AT)?.get(policy)?;
            let bytes = bytes.map(|bytes| bytes.value().to_vec()).unwrap_or_default();
            Ok(SavedState { bytes, at: at.map(|at| Micros(at.value())) })
        })
    }

    /// Pauses or resumes (`None`) a pod, named `namespace/name`.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn set_pause(&self, pod: &str, pause: Option<&StoredPause>) -> Result<(), JournalError> {
        let bytes = pause.map(|pause| serde_json::to_vec(pause).unwrap_or_default());
        self.write(|transaction| {
            let mut pauses = transaction.open_table(PAUSES)?;
            match &bytes {
                Some(bytes) => pauses.insert(pod, bytes.as_slice())?,
                None => pauses.remove(pod)?,
            };
            Ok(())
        })
    }

    /// All pauses that an operator asked for.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the store fails or cannot be opened again.
    pub fn pauses(&self) -> Result<Vec<(String, StoredPause)>, JournalError> {
        self.with_store(|store| {
            let mut pauses = Vec::new();
            for entry in store.begin_read()?.open_table(PAUSES)?.iter()? {
                let (pod, bytes) = entry?;
                if let Ok(pause) = serde_json::from_slice(bytes.value()) {
                    pauses.push((pod.value().to_owned(), pause));
                }
            }
            Ok(pauses)
        })
    }
}

fn name(boot_id: &str) -> String {
    format!("journal-{boot_id}.redb")
}

fn open_store(dir: &Dir, name: &str, path: &Path) -> Result<Database, JournalError> {
    let opened = |source| JournalError::Open { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(FILE_MODE);
    let file = dir.open_with(name, &options).map_err(opened)?;
    // A file that an earlier version created, or one created with another umask, may be open to others.
    if file.metadata().map_err(opened)?.mode() & 0o777 != FILE_MODE
        && let Err(error) = file.set_permissions(Permissions::from_mode(FILE_MODE))
    {
        tracing::warn!(journal = %path.display(), %error, "other users may read the journal: its mode cannot be changed");
    }
    let file = file.into_std();
    // A file that is no redb store at all (overwritten or cut off) is reported as damaged, not as a failing disk.
    let length = file.metadata().map_err(opened)?.len();
    let backend = FileBackend::new(file).map_err(|error| store_error(path, error.into()))?;
    let store = Database::builder().set_cache_size(1 << 20).create_with_backend(PageCacheOnly(backend));
    store.map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => JournalError::InUse { path: path.to_owned() },
        redb::DatabaseError::Storage(redb::StorageError::Io(io))
            if length > 0 && io.kind() == std::io::ErrorKind::InvalidData =>
        {
            store_error(path, redb::Error::Corrupted(io.to_string()))
        }
        other => store_error(path, other.into()),
    })
}

fn store_error(path: &Path, source: redb::Error) -> JournalError {
    JournalError::Store { path: path.to_owned(), source }
}

/// Restricts the state folder to its owner. A folder that also holds files that are not qosm's is left as it is, with a warning.
fn close_to_others(dir: &Dir, shown: &Path) {
    let Ok(mode) = dir.dir_metadata().map(|metadata| metadata.mode()) else { return };
    if mode & 0o077 == 0 {
        return;
    }
    let is_own = |entry: &DirEntry| {
        let name = entry.file_name();
        let is_own = |name: &str| OWN_FOLDERS.contains(&name) || OWN_ENDINGS.iter().any(|end| name.ends_with(end));
        name.to_str().is_some_and(is_own)
    };
    let foreign = dir.entries().ok().into_iter().flatten().flatten().find(|entry| !is_own(entry));
    if let Some(foreign) = foreign {
        let beside = foreign.file_name();
        tracing::warn!(
            folder = %shown.display(),
            mode = format!("{:03o}", mode & 0o777),
            beside = %beside.to_string_lossy(),
            "other users may read the state folder, which also has files that are not qosm's: use a folder of its own with --state-dir"
        );
        return;
    }
    match dir.set_permissions(".", Permissions::from_mode(FOLDER_MODE)) {
        Ok(()) => {
            tracing::info!(folder = %shown.display(), was = format!("{:03o}", mode & 0o777), "state folder closed to other users")
        }
        Err(error) => {
            tracing::warn!(folder = %shown.display(), %error, "other users may read the state folder: its mode cannot be changed");
        }
    }
}

fn sweep_earlier_boots(dir: &Dir, current: &str) {
    let Ok(entries) = dir.entries() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let is_earlier = name.starts_with("journal-") && name.ends_with(".redb") && name != current;
        if is_earlier && let Err(error) = dir.remove_file(name) {
            tracing::warn!(name, %error, "journal of an earlier boot cannot be removed");
        }
    }
}

/// redb's file backend without the wait for the disk; see the module's documentation.
#[derive(Debug)]
struct PageCacheOnly(FileBackend);

impl StorageBackend for PageCacheOnly {
    fn len(&self) -> Result<u64, std::io::Error> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.0.write(offset, data)
    }

    fn close(&self) -> Result<(), std::io::Error> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use cap_std::ambient_authority;

    use super::*;

    fn record(baseline: i64, written: i64) -> Record {
        Record {
            cgroup: "kubepods/podu/app".to_owned(),
            identity: 7,
            level: Level::Container,
            knob: Knob::CfsQuota,
            baseline: Value::Number(baseline),
            previous: Value::Number(baseline),
            written: Value::Number(written),
            policy: "cpu-burst".to_owned(),
            since: Timestamp(1),
        }
    }

    fn open(folder: &Path) -> Journal {
        let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
        Journal::open(&dir, folder, "boot").unwrap()
    }

    #[test]
    fn a_record_that_is_dropped_and_put_in_one_commit_is_there_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let journal = open(folder.path());
        let (old, new) = (record(46_000, 150_000), record(46_000, 120_000));
        let drop = vec![(old.knob, old.cgroup.clone())];
        // Also if there is no record to drop.
        for before in [vec![], vec![old]] {
            journal.commit(&Entries { put: before, ..Entries::default() }).unwrap();
            journal.commit(&Entries { put: vec![new.clone()], drop: drop.clone(), ..Entries::default() }).unwrap();
            assert_eq!(journal.records().unwrap(), std::slice::from_ref(&new));
        }
        journal.commit(&Entries { drop, ..Entries::default() }).unwrap();
        assert_eq!(journal.records().unwrap(), []);
    }

    #[test]
    fn a_journal_is_for_its_owner_alone_also_where_an_older_one_was_not() {
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        let file = state.join("journal-boot.redb");
        for (of_folder, of_file) in [(0o755, None), (0o755, Some(0o644)), (0o777, Some(0o666)), (0o700, Some(0o640))] {
            set(state, of_folder);
            match of_file {
                Some(of_file) => set(&file, of_file),
                None => std::fs::create_dir(state.join("modules")).unwrap(),
            }
            drop(open(state));
            assert_eq!((mode(state), mode(&file)), (0o700, 0o600), "{of_folder:o} {of_file:?}");
        }
        // qosm does not restrict a folder that is not its own alone.
        std::fs::write(state.join("precious"), "").unwrap();
        set(state, 0o755);
        set(&file, 0o644);
        drop(open(state));
        assert_eq!((mode(state), mode(&file)), (0o755, 0o600));
    }

    #[test]
    fn what_modules_saved_is_there_with_its_moment_as_long_as_that_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let save = |saved: &SavedState| {
            let state = vec![("a".to_owned(), saved.clone())];
            open(folder.path()).commit(&Entries { state, ..Entries::default() }).unwrap();
            assert_eq!(open(folder.path()).state("a").unwrap(), *saved);
        };
        save(&SavedState { bytes: vec![1], at: Some(Micros(5)) });
        save(&SavedState { bytes: vec![2], at: None });
        save(&SavedState { bytes: vec![], at: Some(Micros(u64::MAX)) });
        assert_eq!(open(folder.path()).state("b").unwrap(), SavedState::default());
    }

    #[test]
    fn pods_on_hold_are_known_to_the_next_agent_until_they_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let held = BTreeMap::from([("kubepods/podu".to_owned(), 7), ("kubepods/podv".to_owned(), i64::MAX)]);
        open(folder.path()).commit(&Entries { paused: Some(held.clone()), ..Entries::default() }).unwrap();
        let journal = open(folder.path());
        assert_eq!(journal.paused_cgroups().unwrap(), held);
        journal.commit(&Entries { put: vec![record(1, 2)], ..Entries::default() }).unwrap();
        assert_eq!(journal.paused_cgroups().unwrap(), held, "what is not written stays");
        journal.commit(&Entries { paused: Some(BTreeMap::new()), ..Entries::default() }).unwrap();
        assert_eq!(journal.paused_cgroups().unwrap(), BTreeMap::new());
    }
}
