//! The tasks of this machine, from `/proc`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Credentials, Task, Tasks, Tid};

/// The tasks of this machine, in the PID namespace of the calling process.
///
/// `/proc` does not show which *thread* cloned a task, only the process: a new thread counts as a clone of the main
/// thread of its process, and a new process as a clone of the main thread of its parent. So inheritance is approximate
/// if the threads of one process are in different groups. It is also approximate if a parent ends between two listings:
/// its children then have another parent, and count as its clones. Tasks that existed before a task was moved are
/// known, since the tree lists the tasks before each move.
#[derive(Debug, Clone)]
pub struct Proc {
    root: PathBuf,
}

impl Proc {
    /// Reads the tasks from `/proc`.
    pub fn new() -> Self {
        Self::below("/proc")
    }

    /// Reads the tasks from another mount of procfs, or a copy of one.
    pub fn below(root: impl AsRef<Path>) -> Self {
        Self { root: root.as_ref().to_owned() }
    }
}

impl Default for Proc {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks for Proc {
    fn list(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for process in numbers(&self.root) {
            let threads = self.root.join(process.to_string()).join("task");
            for tid in numbers(&threads) {
                // A task that ends between listing and reading is skipped.
                let Ok(stat) = fs::read(threads.join(tid.to_string()).join("stat")) else { continue };
                let Some((parent, started)) = parent_and_start(&stat) else { continue };
                let creator = if tid == process { parent } else { process };
                tasks.push(Task { tid: Tid(tid), creator: (creator != 0).then_some(Tid(creator)), started });
            }
        }
        tasks
    }

    fn credentials(&mut self, tid: Tid) -> Option<Credentials> {
        let status = fs::read_to_string(self.root.join(tid.0.to_string()).join("status")).ok()?;
        let mut ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace();
        let uid = ids.next()?.parse().ok()?;
        let saved_uid = ids.nth(1)?.parse().ok()?;
        Some(Credentials { uid, saved_uid })
    }
}

/// The numeric names in a directory; none if it cannot be read.
fn numbers(directory: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Fields 4 and 22 of `stat`. The second field, the name, may contain blanks and parentheses.
fn parent_and_start(stat: &[u8]) -> Option<(u32, u64)> {
    let name_ends = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(name_ends + 1..)?).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some((parent, started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_fields() {
        let rest = "S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0";
        assert_eq!(parent_and_start(format!("12 (a) R 9 (b) {rest}\n").as_bytes()), Some((7, 4242)));
        assert_eq!(parent_and_start(b"12 (a) S 7"), None);
        assert_eq!(parent_and_start(b""), None);
    }

    #[test]
    fn this_very_thread_is_there() {
        let mut proc = Proc::new();
        let own = Tid(std::process::id());
        let thread = std::thread::spawn(move || {
            let mut proc = Proc::new();
            let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            proc.list().into_iter().find(|task| task.tid == Tid(tid)).unwrap()
        });
        assert_eq!(thread.join().unwrap().creator, Some(own));
        assert!(proc.list().iter().any(|task| task.tid == own));
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(proc.credentials(own).unwrap().uid, uid);
        assert_eq!(proc.credentials(Tid(u32::MAX)), None);
    }
}
