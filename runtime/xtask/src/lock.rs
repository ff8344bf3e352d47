//! Allows one test run at a time on a machine: two would end each other's cluster, and disturb each other's measurements.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// The lock file, in the cache, which outlives checkouts and target directories.
const FILE: &str = "test.lock";

/// Interval of messages while waiting.
const TOLD: Duration = Duration::from_secs(60);

/// The lock, held for the lifetime of this value, at most until the process ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "closing it gives the lock back")] File);

impl Lock {
    /// Takes the lock, after waiting for its holder.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub(crate) fn wait(workspace: &Workspace) -> Result<Self> {
        Self::on(&workspace.cache()?.join(FILE), Duration::from_secs(1))
    }

    fn on(path: &Path, pause: Duration) -> Result<Self> {
        let unusable = || format!("{} cannot be locked", path.display());
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).with_context(unusable)?;
        let mut told: Option<Instant> = None;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error).with_context(unusable),
            }
            if told.is_none_or(|told| told.elapsed() >= TOLD) {
                let mut holder = String::new();
                // If the holder's text cannot be read, the message lacks it.
                let _ = file.rewind().and_then(|()| file.read_to_string(&mut holder));
                println!("==> waiting for another test run on this machine: {}", holder.trim());
                told = Some(Instant::now());
            }
            thread::sleep(pause);
        }
        let here = std::env::current_dir().unwrap_or_default();
        file.set_len(0).and_then(|()| file.rewind()).with_context(unusable)?;
        writeln!(file, "process {} in {}", std::process::id(), here.display()).with_context(unusable)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_goes_on_when_the_first_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let first = Lock::on(&path, Duration::from_millis(1)).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| Lock::on(&path, Duration::from_millis(1)).unwrap());
            // The second run cannot get the lock, however long it waits.
            assert!(File::open(&path).unwrap().try_lock().is_err());
            assert!(!second.is_finished());
            drop(first);
            drop(second.join().unwrap());
        });
    }
}
