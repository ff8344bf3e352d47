//! The worker's job description, and the state that worker and loop share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, NumaTopology};
use qosm_model::unit::{Bytes, Micros};

/// Limits on the resources that page migration may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationLimits {
    /// Maximum number of bytes moved per second.
    pub bytes_per_second: Bytes,
    /// Maximum share of one CPU, in percent.
    pub cpu_percent: u32,
    /// Bytes to keep free on a target node, above the kernel's watermarks.
    pub reserve: Bytes,
    /// Migration pauses while some tasks of the node stall on memory for more than this percentage of time (PSI, 10 s average).
    pub pressure_percent: u32,
}

impl Default for MigrationLimits {
    fn default() -> Self {
        Self { bytes_per_second: Bytes(256 << 20), cpu_percent: 10, reserve: Bytes(64 << 20), pressure_percent: 20 }
    }
}

/// A request to move one container's pages.
#[derive(Debug)]
pub(crate) struct Job {
    /// Index of the hierarchy whose `cgroup.procs` lists the container's processes.
    pub(crate) tree: usize,
    /// The container's cgroup, relative to the hierarchy.
    pub(crate) cgroup: String,
    pub(crate) from: Vec<NumaId>,
    pub(crate) to: Vec<NumaId>,
    pub(crate) topology: NumaTopology,
    pub(crate) limits: MigrationLimits,
    /// Whether pages that several processes have mapped can be moved.
    pub(crate) may_move_shared: bool,
}

/// The state of a migration, shared by worker and loop. The loop never waits for the worker: the lock is held only to copy numbers.
#[derive(Debug)]
pub(crate) struct Run {
    progress: Mutex<MigrationProgress>,
    cancelled: AtomicBool,
}

/// Longest sleep of the worker between two checks for cancellation.
const REST: Duration = Duration::from_millis(20);

impl Run {
    pub(crate) fn new(token: u64) -> Self {
        let progress = MigrationProgress { token, ..MigrationProgress::default() };
        Self { progress: Mutex::new(progress), cancelled: AtomicBool::new(false) }
    }

    pub(crate) fn progress(&self) -> MigrationProgress {
        self.update(|progress| progress.clone())
    }

    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut MigrationProgress) -> T) -> T {
        // After a panic of the worker the progress is still valid.
        let mut progress = self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut progress)
    }

    /// Cancels the migration: the worker stops after the current slice at the latest.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.update(|progress| {
            if progress.state == MigrationState::Waiting {
                progress.state = MigrationState::Stopped;
            }
        });
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Sleeps for this time, or less if the migration is cancelled.
    pub(crate) fn rest(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() && !self.is_cancelled() {
            let nap = left.min(REST);
            std::thread::sleep(nap);
            left -= nap;
        }
    }

    pub(crate) fn end(&self, state: MigrationState, why: String) {
        self.update(|progress| {
            progress.state = state;
            progress.why = why;
        });
    }

    pub(crate) fn spent(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.update(|progress| progress.busy = Micros(progress.busy.0.saturating_add(micros)));
    }
}
