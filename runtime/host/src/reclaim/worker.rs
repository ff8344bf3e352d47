//! The thread that reclaims on a real kernel. It may stall in `memory.reclaim`, and nobody waits for it.
//!
//! After each slice it rests for as long as the slice took, so that it never takes more than half a core; with nothing to hold it
//! sleeps until it is given something, and it ends with the host.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cap_std::fs::{Dir, OpenOptions};
use qosm_model::unit::{Bytes, Micros};

use super::reclaimer::{Ground, GroupId, ReclaimReport, Reclaimer, Turn};
use super::{FreePages, Watermarks};
use crate::parse;

/// A group's files: its directory, so that no other cgroup of the same name is ever meant, and the one that is read most.
pub(crate) struct GroupFiles {
    directory: Dir,
    current: File,
}

impl GroupFiles {
    pub(crate) fn open(directory: Dir) -> io::Result<Self> {
        let current = directory.open(CURRENT)?.into_std();
        Ok(Self { directory, current })
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
        // One call: a second one would ask for as much again.
        file.write(amount.0.to_string().as_bytes()).map(drop)
    }

    fn bound(&self, name: &str) -> io::Result<Option<Bytes>> {
        let text = self.directory.read(name)?;
        if text.trim_ascii() == b"max" {
            return Ok(None);
        }
        parse::number(&text).map(|bytes| Some(Bytes(bytes))).ok_or(io::ErrorKind::InvalidData.into())
    }
}

/// Memory in use, on v2.
pub(crate) const CURRENT: &str = "memory.current";
/// Asks for memory, on v2 since Linux 5.19.
pub(crate) const RECLAIM: &str = "memory.reclaim";

/// The smaller of two bounds, either of which may not be there.
pub(crate) fn smaller(one: Option<Bytes>, other: Option<Bytes>) -> Option<Bytes> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

struct KernelGround {
    zoneinfo: Option<File>,
    buffer: Vec<u8>,
}

impl Ground for KernelGround {
    type Group = GroupFiles;

    fn usage(&mut self, group: &GroupFiles) -> io::Result<Bytes> {
        group.usage()
    }

    fn limit(&mut self, group: &GroupFiles) -> io::Result<Option<Bytes>> {
        Ok(smaller(group.bound("memory.high")?, group.bound("memory.max")?))
    }

    fn reclaim(&mut self, group: &GroupFiles, amount: Bytes) -> io::Result<()> {
        group.reclaim(amount)
    }

    fn free_pages(&mut self) -> Option<Vec<FreePages>> {
        let file = self.zoneinfo.as_ref()?;
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
    Hold(GroupId, Watermarks, GroupFiles),
    Release(GroupId),
}

type Reports = Arc<Mutex<HashMap<GroupId, ReclaimReport>>>;

/// The thread, seen from the host.
pub(crate) struct Worker {
    orders: Sender<Order>,
    reports: Reports,
}

fn locked(reports: &Reports) -> MutexGuard<'_, HashMap<GroupId, ReclaimReport>> {
    // Numbers for people: a half-made change cannot be.
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// `zoneinfo` is `/proc/zoneinfo`; without it the node's free memory counts as plentiful.
    ///
    /// # Errors
    ///
    /// When there can be no thread.
    pub(crate) fn start(zoneinfo: Option<File>) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel();
        let reports = Reports::default();
        let shared = Arc::clone(&reports);
        std::thread::Builder::new().name("qosm-reclaim".to_owned()).spawn(move || {
            run(&queue, KernelGround { zoneinfo, buffer: vec![0; 16 << 10] }, &shared);
        })?;
        Ok(Self { orders, reports })
    }

    /// # Errors
    ///
    /// `BrokenPipe` if the thread has died.
    pub(crate) fn hold(&self, id: GroupId, watermarks: Watermarks, files: GroupFiles) -> io::Result<()> {
        self.orders.send(Order::Hold(id, watermarks, files)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    pub(crate) fn release(&self, id: GroupId) {
        // A thread that is gone holds nothing any more.
        let _ = self.orders.send(Order::Release(id));
    }

    pub(crate) fn report(&self, id: GroupId) -> Option<ReclaimReport> {
        locked(&self.reports).get(&id).copied()
    }
}

fn run(orders: &Receiver<Order>, mut ground: KernelGround, reports: &Reports) {
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
            Ok(Order::Hold(id, watermarks, files)) => reclaimer.hold(id, watermarks, files, since(Instant::now())),
            Ok(Order::Release(id)) => {
                reclaimer.release(id);
                locked(reports).remove(&id);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let started = Instant::now();
                match reclaimer.turn(since(started), &mut ground) {
                    Turn::Asked(id) => {
                        let now = Instant::now();
                        resting_until = now + (now - started);
                        tell(&reclaimer, id, reports);
                    }
                    Turn::Looked(id) => tell(&reclaimer, id, reports),
                    Turn::Gone(id) => drop(locked(reports).remove(&id)),
                    Turn::Idle => {}
                }
            }
        }
    }
}

fn tell(reclaimer: &Reclaimer<GroupFiles>, id: GroupId, reports: &Reports) {
    if let Some(report) = reclaimer.report(id) {
        locked(reports).insert(id, report);
    }
}
