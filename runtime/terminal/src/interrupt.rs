//! Requests to end the process, by Ctrl-C or by the process that started it.
#![expect(clippy::disallowed_methods, reason = "signals are received on a thread of its own")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal as SignalNumber};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From now on SIGINT, SIGTERM and SIGHUP no longer end the process; the first of them calls `callback` on a new thread.
///
/// # Errors
///
/// If the signals cannot be caught, or the thread cannot be started.
pub fn listen(callback: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    Caught::of(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?.receive(callback)
}

/// From now on SIGINT, SIGTERM and SIGHUP no longer end the process; the first of them completes the future. Needs a
/// tokio runtime.
///
/// # Errors
///
/// If the signals cannot be caught.
pub fn asked() -> anyhow::Result<impl Future<Output = ()>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals: std::io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
    Ok(first_of(signals.context("signals cannot be received")?))
}

async fn first_of(mut signals: Vec<Signal>) {
    std::future::poll_fn(|context| match signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready()) {
        true => std::task::Poll::Ready(()),
        false => std::task::Poll::Pending,
    })
    .await;
}

/// Signals that no longer end the process. A signal stays pending until it is received, and a second one does not
/// interrupt the handling of the first: tokio's handlers stay installed for the life of the process.
struct Caught {
    runtime: Runtime,
    signals: Vec<Signal>,
}

impl Caught {
    /// Catches the signals, without starting a thread.
    fn of(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        Self::of_while(kinds, || {})
    }

    /// Like [`Self::of`], and calls `meanwhile` while the signals are blocked. They are blocked because tokio installs
    /// the handler a moment before it can deliver to the receiver, and a signal in between would be lost.
    fn of_while(kinds: &[SignalKind], meanwhile: impl FnOnce()) -> anyhow::Result<Self> {
        let numbers = kinds.iter().map(|kind| SignalNumber::try_from(kind.as_raw_value()));
        let held: SigSet = numbers.collect::<Result<_, _>>().context("there is no such signal")?;
        let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("signals cannot be held back")?;
        meanwhile();
        let caught = Self::now(kinds);
        before.thread_set_mask().context("signals stay held back")?;
        caught
    }

    fn now(kinds: &[SignalKind]) -> anyhow::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_io().build().context("signals cannot be received")?;
        let signals = {
            let _inside = runtime.enter();
            let caught: std::io::Result<Vec<_>> = kinds.iter().map(|&kind| signal(kind)).collect();
            caught.context("signals cannot be received")?
        };
        Ok(Self { runtime, signals })
    }

    fn receive(self, callback: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
        let Self { runtime, signals } = self;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(first_of(signals));
                callback();
            })
            .context("signals cannot be received")?;
        Ok(())
    }
}

/// SIGINT and SIGTERM, caught before a thread receives them. Confinement applies to the thread that enters it and to
/// threads that it starts later, so the receiving thread must be started afterwards.
pub struct PendingSignals(Caught);

impl PendingSignals {
    /// From now on these signals no longer end the process.
    ///
    /// # Errors
    ///
    /// If they cannot be caught.
    pub fn catch() -> anyhow::Result<Self> {
        Caught::of(&[SignalKind::interrupt(), SignalKind::terminate()]).map(Self)
    }

    /// Receives the signals on a new thread, including those that are already pending.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn receive(self) -> anyhow::Result<Stop> {
        let stop = Stop(Arc::default());
        let asked = stop.clone();
        self.0.receive(move || asked.ask())?;
        Ok(stop)
    }
}

/// Tells whether SIGINT or SIGTERM arrived since [`PendingSignals::catch`].
#[derive(Clone)]
pub struct Stop(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    is_asked: bool,
    callback: Option<Box<dyn FnOnce() + Send>>,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) {
        let callback = {
            let mut state = self.state();
            state.is_asked = true;
            state.callback.take()
        };
        if let Some(callback) = callback {
            callback();
        }
    }

    /// Sets the callback for the request to end, in place of a previous one. Calls it at once if the request has already arrived.
    pub fn on_stop(&self, callback: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if !state.is_asked {
            state.callback = Some(Box::new(callback));
            return;
        }
        drop(state);
        callback();
    }

    /// Runs long work on a new thread. Returns `None` if the process is asked to end before the work is done; its result
    /// is then dropped.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started, or it panicked.
    pub fn unless_asked<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<Option<T>> {
        let (sender, outcomes) = mpsc::channel();
        let asked = sender.clone();
        self.on_stop(move || drop(asked.send(Ok(None))));
        if self.state().is_asked {
            return Ok(None);
        }
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let done = catch_unwind(AssertUnwindSafe(work)).map(Some);
                // Sending fails if the caller no longer waits, because the process was asked to end.
                drop(sender.send(done.map_err(|_| ())));
            })
            .with_context(|| format!("cannot start the thread `{name}`"))?;
        match outcomes.recv() {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(())) | Err(_) => anyhow::bail!("the thread `{name}` panicked"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_unless_the_process_is_asked_to_end_meanwhile() {
        let stop = Stop(Arc::default());
        assert_eq!(stop.unless_asked("sums", || 1 + 1).unwrap(), Some(2));
        assert!(stop.unless_asked("panics", || unreachable!("as it is meant")).is_err());

        let (hold, held) = mpsc::channel::<()>();
        let other = stop.clone();
        let asker = std::thread::spawn(move || other.ask());
        assert_eq!(stop.unless_asked("waits", move || held.recv().is_err()).unwrap(), None);
        asker.join().unwrap();
        drop(hold);
        let touched = Arc::new(Mutex::new(false));
        let touches = Arc::clone(&touched);
        assert_eq!(stop.unless_asked("late", move || *touches.lock().unwrap() = true).unwrap(), None);
        assert!(!*touched.lock().unwrap(), "work that is not wanted is not begun");
    }

    #[test]
    fn a_signal_that_came_before_the_thread_started_is_received() {
        let caught = Caught::of(&[SignalKind::user_defined2()]).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::USR2).unwrap();
        let (sender, received) = mpsc::channel();
        caught.receive(move || sender.send(()).unwrap()).unwrap();
        received.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn a_signal_that_comes_while_its_handler_is_set_is_received() {
        // The signal goes to this thread only: the test's other threads do not block it.
        let caught = Caught::of_while(&[SignalKind::user_defined1()], || {
            nix::sys::signal::raise(SignalNumber::SIGUSR1).unwrap()
        });
        let (sender, received) = mpsc::channel();
        caught.unwrap().receive(move || sender.send(()).unwrap()).unwrap();
        received.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    }

    #[test]
    fn only_who_was_named_last_is_told_and_at_once_if_it_is_late() {
        let stop = Stop(Arc::default());
        let (sender, received) = mpsc::channel();
        for name in ["first", "second"] {
            let sender = sender.clone();
            stop.on_stop(move || sender.send(name).unwrap());
        }
        stop.ask();
        stop.ask();
        stop.on_stop(move || sender.send("late").unwrap());
        assert_eq!(received.iter().collect::<Vec<_>>(), ["second", "late"]);
    }
}
