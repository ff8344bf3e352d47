//! Ctrl-C and its relatives as a question that every long wait asks, so that all is put back on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Whether someone asked this process to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP no longer end the process but are noted.
    ///
    /// # Errors
    ///
    /// When the signals cannot be taken over.
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
            // A second Ctrl-C does not cut the cleaning-up short: tokio keeps the signals for as long as the process lives.
            asked.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    /// Whether it has been asked.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Sleeps until then.
    ///
    /// # Errors
    ///
    /// When the process is asked to end before.
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

    /// Sleeps that long.
    ///
    /// # Errors
    ///
    /// When the process is asked to end before.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        self.sleep_until(Instant::now() + time)
    }
}
