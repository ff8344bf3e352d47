//! The thread that reclaims on a real kernel. It may stall in `memory.reclaim`; the loop never waits for it.
//!
//! After each slice the thread sleeps for as long as the slice took, so that it never uses more than half a core;
//! without groups it sleeps until one is added, and it ends with the host.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that reclaims memory at a bounded rate")]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, OpenOptions};
use qosm_model::unit::{Bytes, Micros};

use super::reclaimer::{GroupId, MemoryBackend, PollOutcome, ReclaimReport, Reclaimer};
use super::{FreePages, Watermarks};
use crate::backend::join;
use crate::parse;

/// A group's files: its directory, so that a later cgroup with the same name is never used, and the file that is read most.
pub(crate) struct GroupFiles {
    directory: Dir,
    current: File,
    /// The group's hierarchy, and its path there.
    tree: usize,
    path: String,
}

impl GroupFiles {
    pub(crate) fn open(directory: Dir, tree: usize, path: &str) -> io::Result<Self> {
        let current = directory.open(CURRENT)?.into_std();
        Ok(Self { directory, current, tree, path: path.to_owned() })
    }

    pub(crate) fn usage(&self) -> io::Result<Bytes> {
        let mut buffer = [0; 32];
        let length = self.current.read_at(&mut buffer, 0)?;
        parse::number(&buffer[..length]).map(Bytes).ok_or(io::ErrorKind::InvalidData.into())
    }

    pub(crate) fn reclaim(&self, amount: Bytes) -> io::Result<()> {
        use io::Write as _;
        let mut options = OpenOptions::new();
        options.write(true);
        let mut file = self.directory.open_with(RECLAIM, &options)?;
        // One call: a second one would request the same amount again.
        file.write(amount.0.to_string().as_bytes()).map(drop)
    }

    fn bound(&self, name: &str) -> io::Result<Option<Bytes>> {
        bound(&self.directory.read(name)?)
    }
}

/// The limit in a v2 file; `None` for `max`.
pub(crate) fn bound(text: &[u8]) -> io::Result<Option<Bytes>> {
    if text.trim_ascii() == b"max" {
        return Ok(None);
    }
    parse::number(text).map(|bytes| Some(Bytes(bytes))).ok_or(io::ErrorKind::InvalidData.into())
}

/// The ancestors of a group, the nearest first, without the hierarchy's root.
pub(crate) fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|(above, _)| above), |path| {
        path.rsplit_once('/').map(|(above, _)| above)
    })
}

/// The limits of a group's ancestors, each with its group; `read` reads a file of a group. Limits that cannot be read are left out.
pub(crate) fn limits_above(path: &str, read: impl Fn(&str, &str) -> Option<Vec<u8>>) -> Vec<(String, Bytes)> {
    let limit = |group: &str| {
        let bound = |file| read(group, file).and_then(|text| bound(&text).ok().flatten());
        smaller(bound("memory.high"), bound("memory.max"))
    };
    above(path).filter_map(|group| Some((group.to_owned(), limit(group)?))).collect()
}

/// The file with the memory in use, on v2.
pub(crate) const CURRENT: &str = "memory.current";
/// The file that requests reclaim, on v2 since Linux 5.19.
pub(crate) const RECLAIM: &str = "memory.reclaim";

/// The smaller of two limits; a missing one does not count.
pub(crate) fn smaller(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Files that the thread reads besides the groups' own.
pub(crate) struct NodeFiles {
    /// `/proc/zoneinfo`; without it the node's free memory counts as plentiful.
    pub(crate) zoneinfo: Option<File>,
    /// `/proc/meminfo`; without it the node's memory does not bound groups without a limit.
    pub(crate) meminfo: Option<File>,
    /// The hierarchies, for the files of ancestors.
    pub(crate) trees: Vec<Dir>,
}

struct KernelMemory {
    node: NodeFiles,
    buffer: Vec<u8>,
}

impl KernelMemory {
    fn tree(&self, group: &GroupFiles) -> io::Result<&Dir> {
        self.node.trees.get(group.tree).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl MemoryBackend for KernelMemory {
    type Group = GroupFiles;

    fn usage(&mut self, group: &GroupFiles) -> io::Result<Bytes> {
        group.usage()
    }

    fn limit(&mut self, group: &GroupFiles) -> io::Result<Option<Bytes>> {
        Ok(smaller(group.bound("memory.high")?, group.bound("memory.max")?))
    }

    fn limits_above(&mut self, group: &GroupFiles) -> io::Result<Vec<(String, Bytes)>> {
        let tree = self.tree(group)?;
        Ok(limits_above(&group.path, |above, file| tree.read(join(above, file)).ok()))
    }

    fn usage_above(&mut self, group: &GroupFiles, above: &str) -> io::Result<Bytes> {
        let text = self.tree(group)?.read(join(above, CURRENT))?;
        parse::number(&text).map(Bytes).ok_or(io::ErrorKind::InvalidData.into())
    }

    fn node(&mut self) -> Option<(Bytes, Bytes)> {
        let mut buffer = [0; 4096];
        let length = self.node.meminfo.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let (total, available) = parse::meminfo(buffer.get(..length)?)?;
        Some((total, Bytes(total.0.saturating_sub(available.0))))
    }

    fn reclaim(&mut self, group: &GroupFiles, amount: Bytes) -> io::Result<()> {
        group.reclaim(amount)
    }

    fn free_pages(&mut self) -> Option<Vec<FreePages>> {
        let file = self.node.zoneinfo.as_ref()?;
        let mut length = 0;
        loop {
            match file.read_at(self.buffer.get_mut(length..)?, u64::try_from(length).ok()?).ok()? {
                0 if length == self.buffer.len() && length < 1 << 20 => self.buffer.resize(length * 2, 0),
                0 => break,
                read => length += read,
            }
        }
        parse::zoneinfo(self.buffer.get(..length)?)
    }
}

enum Order {
    Set(GroupId, Watermarks, GroupFiles),
    Release(GroupId),
}

type Reports = Arc<Mutex<HashMap<GroupId, ReclaimReport>>>;

/// The host's handle on the thread.
pub(crate) struct Worker {
    orders: Sender<Order>,
    reports: Reports,
}

fn locked(reports: &Reports) -> MutexGuard<'_, HashMap<GroupId, ReclaimReport>> {
    // The state stays valid after a panic: each change is one assignment.
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub(crate) fn start(node: NodeFiles) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let reports = Reports::default();
        let shared = Arc::clone(&reports);
        std::thread::Builder::new().name("qosm-reclaim".to_owned()).spawn(move || {
            run(&queue, KernelMemory { node, buffer: vec![0; 16 << 10] }, &shared);
        })?;
        Ok(Self { orders, reports })
    }

    /// # Errors
    ///
    /// `BrokenPipe` if the thread has ended.
    pub(crate) fn set(&self, id: GroupId, watermarks: Watermarks, files: GroupFiles) -> io::Result<()> {
        self.orders.send(Order::Set(id, watermarks, files)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    pub(crate) fn release(&self, id: GroupId) {
        // If the thread has ended, it holds no group.
        let _ = self.orders.send(Order::Release(id));
    }

    pub(crate) fn report(&self, id: GroupId) -> Option<ReclaimReport> {
        locked(&self.reports).get(&id).copied()
    }
}

fn run(orders: &Receiver<Order>, mut ground: KernelMemory, reports: &Reports) {
    let begun = Instant::now();
    let mut reclaimer = Reclaimer::default();
    let mut resting_until = begun;
    loop {
        let since = |moment: Instant| Micros(u64::try_from((moment - begun).as_micros()).unwrap_or(u64::MAX));
        let order = match reclaimer.due() {
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => {
                let due = begun.checked_add(Duration::from_micros(due.0)).unwrap_or(resting_until);
                orders.recv_timeout(due.max(resting_until).saturating_duration_since(Instant::now()))
            }
        };
        match order {
            Ok(Order::Set(id, watermarks, files)) => reclaimer.set(id, watermarks, files, since(Instant::now())),
            Ok(Order::Release(id)) => {
                reclaimer.release(id);
                locked(reports).remove(&id);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let started = Instant::now();
                match reclaimer.poll(since(started), &mut ground) {
                    PollOutcome::Requested(id) => {
                        let now = Instant::now();
                        resting_until = now + (now - started);
                        store_report(&reclaimer, id, reports);
                    }
                    PollOutcome::Polled(id) => store_report(&reclaimer, id, reports),
                    PollOutcome::Gone(id) => drop(locked(reports).remove(&id)),
                    PollOutcome::Idle => {}
                }
            }
        }
    }
}

fn store_report(reclaimer: &Reclaimer<GroupFiles>, id: GroupId, reports: &Reports) {
    if let Some(report) = reclaimer.report(id) {
        locked(reports).insert(id, report);
    }
}
