//! SIGINT, SIGTERM and SIGHUP as a flag that every long wait checks, so that a run cleans up before it exits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Whether this process was asked to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process.
    ///
    /// # Errors
    ///
    /// When the signal handlers cannot be installed.
    pub(crate) fn listen() -> Result<Self> {
        let interrupt = Self::default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("signals cannot be listened to")?;
        let (mut int, mut term, mut hup) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::interrupt()).context("SIGINT cannot be taken over")?,
                signal(SignalKind::terminate()).context("SIGTERM cannot be taken over")?,
                signal(SignalKind::hangup()).context("SIGHUP cannot be taken over")?,
            )
        };
        let asked = Arc::clone(&interrupt.asked);
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {}, _ = hup.recv() => {} }
            });
            // A second Ctrl-C does not interrupt the cleanup: tokio keeps the handlers for the lifetime of the process.
            asked.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    /// Whether this process was asked to end.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Sleeps until this moment.
    ///
    /// # Errors
    ///
    /// If the process is asked to end before.
    pub(crate) fn sleep_until(&self, until: Instant) -> Result<()> {
        loop {
            if self.asked() {
                bail!("interrupted");
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Sleeps for this time.
    ///
    /// # Errors
    ///
    /// If the process is asked to end before.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        self.sleep_until(Instant::now() + time)
    }
}
