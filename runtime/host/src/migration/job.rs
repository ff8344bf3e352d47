//! What the worker is handed, and what it shares with the loop.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, NumaTopology};
use qosm_model::unit::{Bytes, Micros};

/// How much of the machine moving pages may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationLimits {
    /// Bytes moved per second at most.
    pub bytes_per_second: Bytes,
    /// Share of one CPU at most.
    pub cpu_percent: u32,
    /// Bytes that stay free on a target, above the kernel's watermarks.
    pub reserve: Bytes,
    /// It waits while some tasks of the node are short of memory for more than this share of time (PSI, 10 s average).
    pub pressure_percent: u32,
}

impl Default for MigrationLimits {
    fn default() -> Self {
        Self { bytes_per_second: Bytes(256 << 20), cpu_percent: 10, reserve: Bytes(64 << 20), pressure_percent: 20 }
    }
}

/// One container's pages to be moved.
#[derive(Debug)]
pub(crate) struct Job {
    /// Index of the hierarchy whose `cgroup.procs` lists the container's processes.
    pub(crate) tree: usize,
    /// The container's cgroup, relative to it.
    pub(crate) cgroup: String,
    pub(crate) from: Vec<NumaId>,
    pub(crate) to: Vec<NumaId>,
    pub(crate) topology: NumaTopology,
    pub(crate) limits: MigrationLimits,
    /// Pages that several processes have mapped can be moved.
    pub(crate) may_move_shared: bool,
}

/// A migration as both sides see it. The loop never waits for the worker here: the lock is held to copy numbers only.
#[derive(Debug)]
pub(crate) struct Run {
    progress: Mutex<MigrationProgress>,
    cancelled: AtomicBool,
}

/// How soon a worker that rests notices that it is called off.
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
        // What a panicking worker left is still numbers.
        let mut progress = self.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut progress)
    }

    /// Calls it off: at the latest after the slice that is under way.
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

    /// Rests; shorter if it is called off.
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
