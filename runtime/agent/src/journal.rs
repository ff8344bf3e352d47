//! The journal: what every knob held before qosm touched it, written down before the first write.
//!
//! An embedded ACID store (redb) in the agent's state folder. A record is committed before the kernel is written, so that after
//! `kill -9` at any moment the record says what the file held, what was there just before, and what was about to be written.
//! Cgroups do not survive a reboot, so neither does the journal: its file is named after the boot, and commits do not wait for
//! the disk. The page cache outlives the process, which is all that is asked of it; a commit then costs microseconds, not the
//! milliseconds of an fsync for every change of a quota.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions};
use qosm_model::knob::{Knob, Level, Value};
use qosm_model::lease::Timestamp;
use redb::backends::FileBackend;
use redb::{
    BackendError, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition, WriteTransaction,
};
use serde::{Deserialize, Serialize};

const KNOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("knobs");
const STATE: TableDefinition<&str, &[u8]> = TableDefinition::new("state");
const HOLDS: TableDefinition<&str, &[u8]> = TableDefinition::new("holds");
const MADE: TableDefinition<&str, ()> = TableDefinition::new("made");

/// The journal could not do its part; nothing is written to the kernel without it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The file cannot be opened or made.
    #[error("cannot open the journal {}; check that the state folder is writable and not full", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another agent has it.
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
    /// Inode of that directory: a cgroup made anew under the same name is another one.
    pub identity: u64,
    /// How far below the root it stands.
    pub level: Level,
    /// Which tunable.
    pub knob: Knob,
    /// What another writer last put there.
    pub baseline: Value,
    /// What it held just before the last write of qosm's.
    pub previous: Value,
    /// What qosm last wrote, or was about to write.
    pub written: Value,
    /// The policy whose lease it is.
    pub policy: String,
    /// When it was first held.
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
            level: [Level::Tier, Level::Pod, Level::Container].into_iter().find(|l| l.as_str() == wire.level)?,
            knob: wire.knob.parse().ok()?,
            baseline: wire.baseline.parse().ok()?,
            previous: wire.previous.parse().ok()?,
            written: wire.written.parse().ok()?,
            policy: wire.policy,
            since: Timestamp(wire.since),
        })
    }
}

/// A hold that was asked for by hand and outlives the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredHold {
    /// When it ends; `None` = when somebody lifts it.
    pub until_millis: Option<i64>,
}

/// What to write down in one commit.
#[derive(Debug, Default)]
pub struct Entries {
    /// Records to put or replace.
    pub put: Vec<Record>,
    /// Records to drop, by knob and cgroup.
    pub drop: Vec<(Knob, String)>,
    /// State of policies to keep.
    pub state: Vec<(String, Vec<u8>)>,
    /// Cgroups that are about to be made.
    pub made: Vec<String>,
    /// Cgroups that were made and are gone again.
    pub removed: Vec<String>,
}

impl Entries {
    /// Whether there is nothing to write down.
    pub fn is_empty(&self) -> bool {
        self.put.is_empty()
            && self.drop.is_empty()
            && self.state.is_empty()
            && self.made.is_empty()
            && self.removed.is_empty()
    }
}

/// The store.
pub struct Journal {
    dir: Dir,
    name: String,
    path: PathBuf,
    /// Closed after a failure of the file: the store does nothing more until it is opened again.
    store: RefCell<Option<Database>>,
    set_aside: Option<PathBuf>,
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

    /// Opens this boot's journal in the state folder, and makes it if there is none. Journals of earlier boots are removed,
    /// and one that is damaged beyond reading is set aside under the name `*.damaged`.
    ///
    /// `shown` is how messages name the folder.
    ///
    /// # Errors
    ///
    /// [`JournalError::InUse`] when an agent has it open; [`JournalError::Open`] when the folder cannot be written.
    pub fn open(dir: &Dir, shown: &Path, boot_id: &str) -> Result<Self, JournalError> {
        let name = name(boot_id);
        let path = shown.join(&name);
        sweep_earlier_boots(dir, &name);
        let opened = |source| JournalError::Open { path: path.clone(), source };
        let mut set_aside = None;
        let store = match open_store(dir, &name, &path) {
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
        let journal = Self { dir, name, path, store: RefCell::new(Some(store)), set_aside };
        journal.write(|transaction| {
            transaction.open_table(KNOBS)?;
            transaction.open_table(STATE)?;
            transaction.open_table(HOLDS)?;
            transaction.open_table(MADE)?;
            Ok(())
        })?;
        Ok(journal)
    }

    /// The damaged journal that had to be set aside for this one, if there was one.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Works on the store, which is opened again if it had to be closed.
    fn with_store<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, JournalError> {
        let mut slot = self.store.borrow_mut();
        let store = match slot.take() {
            Some(store) => store,
            None => open_store(&self.dir, &self.name, &self.path)?,
        };
        let result = work(&store);
        // A full disk may have room again later. What was not committed is not there then, what was is.
        if !matches!(result, Err(redb::Error::Io(_) | redb::Error::PreviousIo)) {
            *slot = Some(store);
        }
        result.map_err(|error| store_error(&self.path, error))
    }

    fn write(&self, change: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) -> Result<(), JournalError> {
        self.with_store(|store| {
            let transaction = store.begin_write()?;
            change(&transaction)?;
            Ok(transaction.commit()?)
        })
    }

    /// Writes all entries down in one commit.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`]; then none of them is written down.
    pub fn commit(&self, entries: &Entries) -> Result<(), JournalError> {
        self.write(|transaction| {
            let mut knobs = transaction.open_table(KNOBS)?;
            for record in &entries.put {
                knobs.insert(record.key().as_str(), record.encode().as_slice())?;
            }
            for (knob, cgroup) in &entries.drop {
                knobs.remove(format!("{knob} {cgroup}").as_str())?;
            }
            let mut state = transaction.open_table(STATE)?;
            for (policy, bytes) in &entries.state {
                state.insert(policy.as_str(), bytes.as_slice())?;
            }
            let mut made = transaction.open_table(MADE)?;
            for cgroup in &entries.made {
                made.insert(cgroup.as_str(), ())?;
            }
            for cgroup in &entries.removed {
                made.remove(cgroup.as_str())?;
            }
            Ok(())
        })
    }

    /// All records. One that cannot be read is reported and left out.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`].
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

    /// The cgroups that qosm made, each after its parent.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`].
    pub fn made(&self) -> Result<BTreeSet<String>, JournalError> {
        self.with_store(|store| {
            let mut made = BTreeSet::new();
            for entry in store.begin_read()?.open_table(MADE)?.iter()? {
                made.insert(entry?.0.value().to_owned());
            }
            Ok(made)
        })
    }

    /// What a policy saved last; empty when nothing.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`].
    pub fn state(&self, policy: &str) -> Result<Vec<u8>, JournalError> {
        self.with_store(|store| {
            let bytes = store.begin_read()?.open_table(STATE)?.get(policy)?;
            Ok(bytes.map(|bytes| bytes.value().to_vec()).unwrap_or_default())
        })
    }

    /// Puts or lifts (`None`) a hold on a pod, named `namespace/name`.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`].
    pub fn set_hold(&self, pod: &str, hold: Option<&StoredHold>) -> Result<(), JournalError> {
        let bytes = hold.map(|hold| serde_json::to_vec(hold).unwrap_or_default());
        self.write(|transaction| {
            let mut holds = transaction.open_table(HOLDS)?;
            match &bytes {
                Some(bytes) => holds.insert(pod, bytes.as_slice())?,
                None => holds.remove(pod)?,
            };
            Ok(())
        })
    }

    /// All holds that were asked for by hand.
    ///
    /// # Errors
    ///
    /// [`JournalError::Store`].
    pub fn holds(&self) -> Result<Vec<(String, StoredHold)>, JournalError> {
        self.with_store(|store| {
            let mut holds = Vec::new();
            for entry in store.begin_read()?.open_table(HOLDS)?.iter()? {
                let (pod, bytes) = entry?;
                if let Ok(hold) = serde_json::from_slice(bytes.value()) {
                    holds.push((pod.value().to_owned(), hold));
                }
            }
            Ok(holds)
        })
    }
}

fn name(boot_id: &str) -> String {
    format!("journal-{boot_id}.redb")
}

fn open_store(dir: &Dir, name: &str, path: &Path) -> Result<Database, JournalError> {
    let opened = |source| JournalError::Open { path: path.to_owned(), source };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    let file = dir.open_with(name, &options).map_err(opened)?.into_std();
    // What is no store of ours at all (an overwritten or cut-off file) is reported as damage, not as a failing disk.
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

/// redb's file backend without the wait for the disk; see the module's text.
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
