//! The thread that moves pages: one container at a time, process by process, slice by slice.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that moves pages at a bounded rate")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use cap_std::fs::Dir;
use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, ProcessFailure};
use qosm_model::unit::Bytes;
use rustix::io::Errno;
use rustix::process::Pid;

use super::job::{Job, Run};
use super::move_pages::{self, Moving, NO_STATUS};
use super::process::{self, Area, Process};
use crate::error::{self, errno_name};
use crate::numa::{available, read_watermarks};
use crate::parse;

/// Initial number of pages per slice; later slices adapt it to [`SLICE_TIME`].
const SLICE_PAGES: usize = 512;
const MAX_SLICE: usize = 4096;
const MIN_SLICE: usize = 16;
/// Target duration of a slice. Meanwhile the kernel holds the process's page tables for reading.
const SLICE_TIME: Duration = Duration::from_millis(2);
/// Interval between checks of the target's free memory and the node's pressure.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Number of tries for a page if the kernel does not report whether it tried to move it.
const TRIES: u32 = 3;
/// Maximum number of passes over a process whose mappings move meanwhile.
const PASSES: u32 = 3;
/// The kernel flushes per-CPU counters every two seconds (mm/memcontrol.c, `FLUSH_TIME`): a migration is done once the
/// counters of its cgroup include it.
const SETTLE_TIME: Duration = Duration::from_millis(2_200);
/// Maximum number of failed processes that are listed by PID.
const MAX_FAILURES_REPORTED: usize = 32;

/// The worker's directories of the node.
#[derive(Debug)]
pub(crate) struct Directories {
    pub(crate) cgroups: Vec<Dir>,
    pub(crate) proc: Dir,
    pub(crate) sys: Dir,
}

/// The queue to the thread, which ends when the queue is dropped.
pub(crate) struct Worker {
    jobs: Sender<(Job, Arc<Run>)>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(directories: Directories) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<(Job, Arc<Run>)>();
        std::thread::Builder::new().name("qosm-migrate".to_owned()).spawn(move || {
            for (job, run) in queue {
                if !run.is_cancelled() {
                    Mover::new(&directories, &job, &run).run();
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// Queues a job.
    pub(crate) fn add(&self, job: Job, run: Arc<Run>) -> io::Result<()> {
        self.jobs.send((job, run)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Why the worker stops with a process.
enum StopReason {
    /// The migration was cancelled.
    Cancelled,
    /// No target node has enough free memory.
    NoRoom,
    /// This process cannot be accessed.
    Process(io::Error),
}

struct Mover<'a> {
    directories: &'a Directories,
    job: &'a Job,
    run: &'a Run,
    page_size: u64,
    /// Target nodes for pages of each node, best first.
    targets_by_distance: BTreeMap<NumaId, Vec<NumaId>>,
    room: BTreeMap<NumaId, u64>,
    last_check: Option<Instant>,
    slice: usize,
    status: Vec<i32>,
}

impl<'a> Mover<'a> {
    fn new(directories: &'a Directories, job: &'a Job, run: &'a Run) -> Self {
        let targets_from = |&from: &NumaId| {
            let mut left = job.to.clone();
            let mut targets_by_distance = Vec::with_capacity(left.len());
            while let Some(next) = job.topology.nearest(from, &left) {
                left.retain(|&other| other != next);
                targets_by_distance.push(next);
            }
            (from, targets_by_distance)
        };
        Self {
            directories,
            job,
            run,
            page_size: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
            targets_by_distance: job.from.iter().map(targets_from).collect(),
            room: BTreeMap::new(),
            last_check: None,
            slice: SLICE_PAGES,
            status: Vec::new(),
        }
    }

    fn run(&mut self) {
        self.run.update(|progress| progress.state = MigrationState::Moving);
        let Some(cgroups) = self.directories.cgroups.get(self.job.tree) else {
            return self.run.end(MigrationState::Failed, "its hierarchy is not mounted".to_owned());
        };
        let pids = match process::of_cgroup(cgroups, &self.job.cgroup) {
            Ok(pids) => pids,
            Err(source) if error::is_absent(&source) => {
                return self.run.end(MigrationState::Failed, "its cgroup is gone".to_owned());
            }
            Err(source) => {
                return self.run.end(MigrationState::Failed, format!("its processes cannot be listed: {source}"));
            }
        };
        if pids.is_empty() {
            // Reported as done: there was nothing to move. `why` says that no process was visible.
            return self.run.end(MigrationState::Done, "it has no process that the agent can see".to_owned());
        }
        self.run.update(|progress| progress.processes = u64::try_from(pids.len()).unwrap_or(u64::MAX));
        let mut first_error = None;
        for pid in pids {
            match self.process(cgroups, pid) {
                Ok(()) => self.run.update(|progress| progress.processes_done += 1),
                Err(StopReason::Cancelled) => return self.run.end(MigrationState::Stopped, String::new()),
                Err(StopReason::NoRoom) => {
                    self.run.update(|progress| {
                        let tried = progress.pages_moved.saturating_add(failed(progress));
                        progress.pages_without_room = progress.pages_found.saturating_sub(tried).max(1);
                    });
                    break;
                }
                Err(StopReason::Process(source)) => {
                    let gone = error::is(&source, Errno::SRCH);
                    let error = describe(&source);
                    self.run.update(|progress| {
                        if progress.failures.len() < MAX_FAILURES_REPORTED {
                            let pid = pid.as_raw_pid().unsigned_abs();
                            progress.failures.push(ProcessFailure { pid, error: error.clone() });
                        }
                        progress.processes_gone += u64::from(gone);
                    });
                    if !gone {
                        first_error.get_or_insert(error);
                    }
                }
            }
        }
        let (done, moved) = self
            .run
            .update(|progress| (progress.processes_done + progress.processes_gone > 0, progress.pages_moved > 0));
        if moved {
            self.run.rest(SETTLE_TIME);
        }
        match first_error {
            Some(why) if !done => self.run.end(MigrationState::Failed, why),
            _ => self.run.end(MigrationState::Done, String::new()),
        }
    }

    fn process(&mut self, cgroups: &Dir, pid: Pid) -> Result<(), StopReason> {
        let process = Process::open(pid).map_err(StopReason::Process)?;
        // Between listing and opening, another process may have got the PID.
        let still = process::of_cgroup(cgroups, &self.job.cgroup).map_err(StopReason::Process)?;
        if !still.contains(&pid) {
            return Err(StopReason::Process(Errno::SRCH.into()));
        }
        let mut found = self.remote_areas(&process)?;
        for pass in 1..=PASSES {
            let count = self.pages(&found);
            if pass == 1 {
                self.run.update(|progress| progress.pages_found = progress.pages_found.saturating_add(count));
            }
            let (moved, failed) = self.run.update(|progress| (progress.pages_moved, failed(progress)));
            for area in &found {
                match self.area(&process, area) {
                    Err(StopReason::Process(source)) => {
                        return Err(StopReason::Process(process.classify_error(source)));
                    }
                    other => other?,
                }
            }
            found = self.remote_areas(&process)?;
            let left = self.pages(&found);
            let missed = self.run.update(|progress| {
                // A large page moves as a whole, whichever address was given; its other addresses were already in place
                // when they were tried.
                let all = moved.saturating_add(count.saturating_sub(left));
                progress.pages_moved = progress.pages_moved.max(all);
                left.saturating_sub(self::failed(progress) - failed)
            });
            // A growing process moves its mappings; search again for pages that are elsewhere by now.
            if missed <= count / 2 {
                break;
            }
        }
        if process.has_exited() { Err(StopReason::Process(Errno::SRCH.into())) } else { Ok(()) }
    }

    /// The mappings of a process with pages on the wrong nodes.
    fn remote_areas(&self, process: &Process) -> Result<Vec<Area>, StopReason> {
        let areas = process.areas(&self.directories.proc, self.page_size, &self.job.from);
        areas.map_err(|source| StopReason::Process(process.classify_error(source)))
    }

    /// Number of pages on the wrong nodes, in base pages.
    fn pages(&self, areas: &[Area]) -> u64 {
        areas.iter().map(|area| area.remote.saturating_mul(area.page_size / self.page_size.max(1))).sum()
    }

    /// Processes a mapping until all pages found on the wrong nodes have been tried.
    fn area(&mut self, process: &Process, area: &Area) -> Result<(), StopReason> {
        let mut present = process.present(&self.directories.proc, area, self.page_size).map_err(StopReason::Process)?;
        let mut left = area.remote;
        let mut addresses = Vec::with_capacity(self.slice);
        while left > 0 {
            addresses.clear();
            let begun = Instant::now();
            present.fill(&mut addresses, self.slice).map_err(StopReason::Process)?;
            if self.run.is_cancelled() {
                return Err(StopReason::Cancelled);
            }
            if addresses.is_empty() {
                if present.is_done() {
                    return Ok(());
                }
                // Searching for pages also costs CPU time.
                self.pace(begun.elapsed(), 0, 0);
                continue;
            }
            let tried = self.slice(process, area, &addresses)?;
            left = left.saturating_sub(tried);
        }
        Ok(())
    }

    /// Processes one slice: queries the nodes of its pages, moves those on wrong nodes, and rests. Returns the number
    /// of pages on wrong nodes.
    fn slice(&mut self, process: &Process, area: &Area, addresses: &[u64]) -> Result<u64, StopReason> {
        self.wait_for_low_pressure()?;
        let begun = Instant::now();
        let mut status = std::mem::take(&mut self.status);
        move_pages::query(process.pid, addresses, &mut status).map_err(StopReason::Process)?;
        let mut wrong: Vec<(u64, NumaId)> = Vec::new();
        for (&address, &node) in addresses.iter().zip(&status) {
            if let Some(from) = u32::try_from(node).ok().map(NumaId).filter(|from| self.job.from.contains(from)) {
                wrong.push((address, from));
            }
        }
        let tried = u64::try_from(wrong.len()).unwrap_or(u64::MAX);
        let base_pages = (area.page_size / self.page_size.max(1)).max(1);
        let mut room = true;
        let mut left: Vec<(u64, i32)> = Vec::with_capacity(wrong.len());
        for (address, from) in wrong {
            match self.target(from, area.page_size) {
                Some(target) => left.push((address, i32::try_from(target.0).unwrap_or(0))),
                None => room = false,
            }
        }
        let bytes = u64::try_from(left.len()).unwrap_or(u64::MAX).saturating_mul(area.page_size);
        let moving = if area.is_file || !self.job.may_move_shared { Moving::Own } else { Moving::Shared };
        for turn in 1..=TRIES {
            if left.is_empty() {
                break;
            }
            left = self.try_once(process, left, moving, turn == TRIES, base_pages, &mut status)?;
        }
        self.status = status;
        self.pace(begun.elapsed(), bytes, addresses.len());
        if room { Ok(tried) } else { Err(StopReason::NoRoom) }
    }

    /// Moves pages and counts the results. Returns the pages that the kernel may not have tried.
    fn try_once(
        &self,
        process: &Process,
        pages: Vec<(u64, i32)>,
        moving: Moving,
        last: bool,
        base_pages: u64,
        status: &mut Vec<i32>,
    ) -> Result<Vec<(u64, i32)>, StopReason> {
        let addresses: Vec<u64> = pages.iter().map(|(address, _)| *address).collect();
        let nodes: Vec<i32> = pages.iter().map(|(_, node)| *node).collect();
        let refusal = move_pages::move_to(process.pid, &addresses, &nodes, status, moving).err();
        if let Some(source) = refusal {
            // `EACCES` (the container's cpuset lacks the target) and `ENOMEM` (no memory for the lists) concern the
            // slice; all other errors concern the process.
            let name = errno_name(&source);
            if !(error::is(&source, Errno::ACCESS) || error::is(&source, Errno::NOMEM)) {
                return Err(StopReason::Process(source));
            }
            self.count_failed(name, u64::try_from(pages.len()).unwrap_or(u64::MAX).saturating_mul(base_pages));
            return Ok(Vec::new());
        }
        let reported = status.clone();
        // Only the pages' current nodes are reliable: for a large page the kernel reports only the first address, and
        // for a batch with a failed page it reports nothing.
        move_pages::query(process.pid, &addresses, status).map_err(StopReason::Process)?;
        let mut moved = 0_u64;
        let mut again = Vec::new();
        for ((page, &now), &reported) in pages.into_iter().zip(status.iter()).zip(&reported) {
            let gone = now == raw(Errno::NOENT) || now == raw(Errno::FAULT);
            if now == page.1 {
                moved += 1;
            } else if gone {
                // Freed meanwhile: nothing to move.
            } else if reported < 0 && reported != NO_STATUS && reported != raw(Errno::BUSY) {
                self.count_failed(errno_name(&io::Error::from_raw_os_error(reported.saturating_neg())), base_pages);
            } else if last {
                self.count_failed("EBUSY", base_pages);
            } else {
                again.push(page);
            }
        }
        self.run.update(|progress| progress.pages_moved += moved.saturating_mul(base_pages));
        Ok(again)
    }

    fn count_failed(&self, errno: &'static str, pages: u64) {
        self.run.update(|progress| match progress.pages_failed.iter_mut().find(|(name, _)| *name == errno) {
            Some((_, sum)) => *sum = sum.saturating_add(pages),
            None => progress.pages_failed.push((errno, pages)),
        });
    }

    /// The target node for a page, given the free memory of the nodes.
    fn target(&mut self, from: NumaId, bytes: u64) -> Option<NumaId> {
        let targets_by_distance = self.targets_by_distance.get(&from)?;
        let target =
            targets_by_distance.iter().copied().find(|to| self.room.get(to).is_some_and(|&room| room >= bytes))?;
        if let Some(room) = self.room.get_mut(&target) {
            *room -= bytes;
        }
        Some(target)
    }

    /// Reads the targets' free memory periodically, and waits while the node is under memory pressure.
    fn wait_for_low_pressure(&mut self) -> Result<(), StopReason> {
        loop {
            if self.run.is_cancelled() {
                return Err(StopReason::Cancelled);
            }
            if self.last_check.is_some_and(|last_check| last_check.elapsed() < CHECK_INTERVAL) {
                return Ok(());
            }
            self.refresh_room();
            let pressure = self.directories.proc.read("pressure/memory").ok();
            let average = pressure.and_then(|text| parse::numa::pressure_average(&text)).unwrap_or(0);
            let mark = self.job.limits.pressure_percent.saturating_mul(100);
            let calm = average <= mark;
            self.run.update(|progress| {
                progress.state = if calm { MigrationState::Moving } else { MigrationState::Paused };
                progress.why = if calm {
                    String::new()
                } else {
                    format!("memory pressure of the node is {}.{:02} %", average / 100, average % 100)
                };
            });
            if calm {
                self.last_check = Some(Instant::now());
                return Ok(());
            }
            self.run.rest(CHECK_INTERVAL);
        }
    }

    fn refresh_room(&mut self) {
        let zones = self.directories.proc.read("zoneinfo").unwrap_or_default();
        let watermarks = read_watermarks(&zones, Bytes(self.page_size));
        self.room = self
            .job
            .to
            .iter()
            .map(|&to| {
                let text =
                    self.directories.sys.read(format!("devices/system/node/node{to}/meminfo")).unwrap_or_default();
                let high = watermarks.iter().find(|(id, _)| *id == to).map_or(0, |(_, bytes)| bytes.0);
                let kept = high.saturating_add(self.job.limits.reserve.0);
                (to, available(&text).map_or(0, |bytes| bytes.0.saturating_sub(kept)))
            })
            .collect();
    }

    /// Sleeps to keep CPU time and memory bandwidth within the limits, and adapts the size of the next slice to the
    /// duration of this one.
    fn pace(&mut self, took: Duration, bytes: u64, pages: usize) {
        self.run.spent(took);
        if took > SLICE_TIME * 2 {
            self.slice = (self.slice / 2).max(MIN_SLICE);
        } else if took < SLICE_TIME / 2 && pages >= self.slice {
            self.slice = (self.slice * 2).min(MAX_SLICE);
        }
        let percent = self.job.limits.cpu_percent.clamp(1, 100);
        let for_cpu = took * (100 - percent) / percent;
        let rate = self.job.limits.bytes_per_second.0.max(1);
        let micros = u128::from(bytes) * 1_000_000 / u128::from(rate);
        let for_rate = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).saturating_sub(took);
        self.run.rest(for_cpu.max(for_rate));
    }
}

/// Number of pages that could not be moved.
fn failed(progress: &MigrationProgress) -> u64 {
    progress.pages_failed.iter().fold(0, |sum, (_, pages)| sum.saturating_add(*pages))
}

/// An error number as a status of move_pages(2).
fn raw(errno: Errno) -> i32 {
    errno.raw_os_error().saturating_neg()
}

/// The text of `strerror`, with a hint on the remedy where there is one.
fn describe(source: &io::Error) -> String {
    let text =
        Errno::from_io_error(source).map_or_else(|| source.to_string(), |errno| io::Error::from(errno).to_string());
    let text = text.split(" (os error").next().unwrap_or_default().to_owned();
    if error::is(source, Errno::PERM) || error::is(source, Errno::ACCESS) {
        format!("{text} (the page mover needs CAP_SYS_PTRACE and CAP_SYS_NICE)")
    } else if error::is(source, Errno::NODEV) {
        format!("{text} (a NUMA node has gone offline)")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_described_by_their_errno() {
        assert_eq!(describe(&Errno::SRCH.into()), "No such process");
        let refused = describe(&Errno::PERM.into());
        assert_eq!(refused, "Operation not permitted (the page mover needs CAP_SYS_PTRACE and CAP_SYS_NICE)");
        assert_eq!(describe(&Errno::NODEV.into()), "No such device (a NUMA node has gone offline)");
    }
}
