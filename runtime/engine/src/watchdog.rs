//! The watchdog ends calls that take too long. It is a thread that sleeps while nothing runs; a ticker that increments
//! the epoch each millisecond would cost more than all policies together.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that ends what runs too long, by the clock")]

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};
use wasmtime::EngineWeak;

/// Limit of a call's wall-clock time as a multiple of its CPU time. A module cannot block, so any other time means that
/// the node has no CPU to spare. Policies exist for such nodes, so they must not be stopped there.
const WALL_CLOCK_FACTOR: u32 = 20;

/// Upper bound of a call's wall-clock time, regardless of its limit.
const MAX_DURATION: Duration = Duration::from_secs(3600);

/// Increments the engine's epoch whenever an armed deadline passes.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Interval at which the epoch is incremented again for a call that has not ended.
const RECHECK_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Default)]
struct State {
    armed: BTreeSet<(Instant, u64)>,
    last_id: u64,
    /// Time at which the thread wakes by itself; `None` while it sleeps until it is notified.
    wakes_at: Option<Instant>,
    stop: bool,
}

impl Watchdog {
    pub(crate) fn start(engine: EngineWeak) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let thread = thread::Builder::new().name("qosm-watchdog".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.watch(&engine)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// A deadline for one store, disarmed.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline { shared: Arc::clone(&self.shared), armed: None, call: None }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread, and nothing is left to end.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The state is valid after every statement that changes it, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, engine: &EngineWeak) {
        let mut state = self.lock();
        while !state.stop {
            let now = Instant::now();
            let mut passed = false;
            while let Some(&(at, id)) = state.armed.first().filter(|(at, _)| *at <= now) {
                state.armed.remove(&(at, id));
                // One increment may be too early: a call that gets more time sets its epoch deadline only after it has
                // asked for more time.
                state.armed.insert((now + RECHECK_INTERVAL, id));
                passed = true;
            }
            if passed && let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
            }
            state.wakes_at = state.armed.first().map(|&(at, _)| at);
            state = match state.wakes_at {
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at.saturating_duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Linear search: at most a handful of deadlines are armed, one for each running call.
    fn disarm(&self, id: u64) {
        self.lock().armed.retain(|(_, armed)| *armed != id);
    }

    fn arm(&self, at: Instant) -> (Instant, u64) {
        let mut state = self.lock();
        state.last_id += 1;
        let entry = (at, state.last_id);
        state.armed.insert(entry);
        // A thread that wakes before this deadline checks the list again by itself, so that consecutive calls wake it only once.
        let wake = state.wakes_at.is_none_or(|wakes| wakes > at);
        if wake {
            state.wakes_at = Some(at);
        }
        drop(state);
        if wake {
            self.changed.notify_one();
        }
        entry
    }
}

/// What happens to a call when its epoch passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// The call has time left.
    Continue,
    /// The call's time is up.
    End,
}

/// The deadline of one store. All stores of an engine share one epoch: it passes for every running call as soon as one of
/// them is late, so each call then checks its own deadline.
pub(crate) struct Deadline {
    shared: Arc<Shared>,
    armed: Option<(Instant, u64)>,
    call: Option<Call>,
}

struct Call {
    limit: Duration,
    wall_start: Instant,
    cpu_start: Duration,
}

impl Deadline {
    /// Starts the deadline of a call on this thread, with a limit of CPU time.
    pub(crate) fn start(&mut self, limit: Duration) {
        self.stop();
        // Prevents overflow when a limit is added to an instant.
        let limit = limit.min(MAX_DURATION);
        let wall_start = Instant::now();
        self.armed = Some(self.shared.arm(wall_start + limit));
        self.call = Some(Call { limit, wall_start, cpu_start: thread_cpu_time() });
    }

    /// Ends the deadline of a call. Returns the wall-clock time that the call took.
    pub(crate) fn stop(&mut self) -> Duration {
        if let Some((_, id)) = self.armed.take() {
            self.shared.disarm(id);
        }
        self.call.take().map(|call| call.wall_start.elapsed()).unwrap_or_default()
    }

    /// The thread's CPU time at which the running call reaches its limit; `None` while no call runs.
    pub(crate) fn cpu_end(&self) -> Option<Duration> {
        self.call.as_ref().map(|call| call.cpu_start.saturating_add(call.limit))
    }

    /// Called when the epoch has passed: ends the call, or lets it continue for the rest of its CPU time.
    pub(crate) fn on_epoch(&mut self) -> DeadlineAction {
        let (Some(call), Some(entry)) = (&self.call, self.armed) else { return DeadlineAction::End };
        let now = Instant::now();
        if now < entry.0 {
            return DeadlineAction::Continue;
        }
        let used = thread_cpu_time().saturating_sub(call.cpu_start);
        let last = call.wall_start + call.limit * WALL_CLOCK_FACTOR;
        let left = call.limit.saturating_sub(used);
        if left.is_zero() || now >= last {
            return DeadlineAction::End;
        }
        self.shared.disarm(entry.1);
        self.armed = Some(self.shared.arm(last.min(now + left)));
        DeadlineAction::Continue
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread_cpu_time() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(tv_sec).unwrap_or(0), u32::try_from(tv_nsec).unwrap_or(0))
}
