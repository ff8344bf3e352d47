//! The watchdog ends calls that take too long. It is a thread that sleeps while nothing runs; a ticker that bumps the epoch each
//! millisecond would cost more than all policies together.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that ends what runs too long, by the clock")]

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};
use wasmtime::EngineWeak;

/// How much longer than its CPU time a call may take by the clock on the wall. A module cannot wait, so what is not CPU time is a
/// node that has none to give: stopping the policies that are there for such a node would be the wrong answer.
const WALL_CLOCK_FACTOR: u32 = 20;

/// No call may take longer, whatever its limit.
const MAX_DURATION: Duration = Duration::from_secs(3600);

/// Bumps the engine's epoch whenever an armed deadline passes.
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
    /// When the thread wakes by itself; `None` while it sleeps until it is notified.
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
            // A panic there has been reported by the panic hook, and nothing is left to end.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The state is valid after every statement that changes it, so a panic elsewhere leaves nothing half done.
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
                // Once may be too early: a call that was given more time sets its epoch only after it has asked for that.
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

    /// A handful are armed at most: one a call under way.
    fn disarm(&self, id: u64) {
        self.lock().armed.retain(|(_, armed)| *armed != id);
    }

    fn arm(&self, at: Instant) -> (Instant, u64) {
        let mut state = self.lock();
        state.last_id += 1;
        let entry = (at, state.last_id);
        state.armed.insert(entry);
        // A thread that wakes before this deadline checks the list again by itself: calls that follow each other wake
        // it only once.
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

/// Action for a call whose epoch has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineAction {
    /// It has time left.
    Continue,
    /// Its time is up.
    End,
}

/// One store's deadline. The epoch is the whole engine's: it passes for every running call as soon as one of them is late, so each
/// call asks its own deadline whether it was meant.
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
        // Keeps sums of instants and limits in range, whatever is configured.
        let limit = limit.min(MAX_DURATION);
        let wall_start = Instant::now();
        self.armed = Some(self.shared.arm(wall_start + limit));
        self.call = Some(Call { limit, wall_start, cpu_start: thread_cpu_time() });
    }

    /// The call has ended. Says how long it took by the wall clock.
    pub(crate) fn stop(&mut self) -> Duration {
        if let Some((_, id)) = self.armed.take() {
            self.shared.disarm(id);
        }
        self.call.take().map(|call| call.wall_start.elapsed()).unwrap_or_default()
    }

    /// The thread's CPU time at which the call that runs has used up what it may.
    pub(crate) fn cpu_end(&self) -> Option<Duration> {
        self.call.as_ref().map(|call| call.cpu_start.saturating_add(call.limit))
    }

    /// The epoch has passed: ends the call, or gives it what is left of its CPU time.
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
