//! Batch work: processes of a BestEffort pod that repeatedly compress the same page, as fast as they can.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::command;
use crate::demo::cgroup::Container;
use crate::demo::server::write_page;

/// Size of the page in bytes.
const PAGE: u32 = 256 * 1024;

/// The running batch work; ends when dropped.
#[derive(Debug)]
pub(crate) struct Batch {
    process: Child,
    pages: Arc<AtomicU64>,
    counter: Option<JoinHandle<()>>,
    _folder: TempDir,
}

impl Batch {
    /// Starts this number of processes in the container's cgroups.
    ///
    /// # Errors
    ///
    /// When they cannot be started.
    pub(crate) fn start(container: &Container<'_>, processes: usize) -> Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the batch work")?;
        write_page(folder.path(), PAGE)?;
        let script = "for procs in $PROCS; do echo $$ >\"$procs\" || exit 1; done
            worker() { while gzip -6 -c \"$PAGE\" >/dev/null; do echo; done; }
            for _ in $(seq \"$1\"); do worker & done; wait";
        let procs: Vec<_> = container.procs().iter().map(|file| file.display().to_string()).collect();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "sh", &processes.to_string()]).env("PROCS", procs.join(" "));
        shell.env("PAGE", folder.path().join("page.html")).stdin(Stdio::null()).stdout(Stdio::piped());
        // A process group of its own, which is ended as a whole.
        let mut process = shell.process_group(0).spawn().context("the batch work cannot be started")?;
        let pages = Arc::new(AtomicU64::new(0));
        let counter = process.stdout.take().map(|output| {
            let pages = Arc::clone(&pages);
            std::thread::spawn(move || {
                BufReader::new(output).lines().map_while(Result::ok).for_each(|_| {
                    pages.fetch_add(1, Ordering::Relaxed);
                });
            })
        });
        Ok(Self { process, pages, counter, _folder: folder })
    }

    /// Pages compressed so far.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        command::signal_group(&self.process, Signal::KILL);
        // Removing the cgroup kills the remaining processes.
        let _ = command::wait(&mut self.process, Duration::from_secs(10));
        if let Some(counter) = self.counter.take() {
            let _ = counter.join();
        }
    }
}
