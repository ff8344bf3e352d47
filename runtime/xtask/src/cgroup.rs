//! Removes cgroups with the processes in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Kills all processes in a cgroup and below it, and removes the cgroups.
///
/// # Errors
///
/// If a process does not end.
pub(crate) fn remove(group: &Path) -> Result<()> {
    if !group.exists() {
        return Ok(());
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut folders = vec![];
        folders_below(group, &mut folders);
        for folder in &folders {
            let procs = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            for pid in procs.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
                // The process may have exited in the meantime.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // A cgroup can be removed once its processes are reaped, which takes a moment.
        let left = folders.iter().rev().filter(|folder| fs::remove_dir(folder).is_err()).count();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{} could not be removed; `rmdir` it once its processes are gone", group.display());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A folder and all folders below it, parents first.
fn folders_below(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_path_buf());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders_below(&entry.path(), found);
        }
    }
}
