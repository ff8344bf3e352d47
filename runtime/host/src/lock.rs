//! The lock that limits each cgroup root to one agent, on the root's directory.
//!
//! The directory of a cgroup is the same object in every mount namespace, wherever an agent keeps its state, and a
//! `flock(2)` lock ends with its process. Any process that may open the directory can also lock it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::Host;
use crate::backend::{Access, Area, Backend as _};
use crate::error::{self, HostError};
use crate::mounts::Controller;

/// The lock, held until dropped.
#[derive(Debug)]
pub struct RootLock {
    _directory: File,
}

impl Host {
    /// Locks the cgroup root in the hierarchy with the CPU controller, else in the one with memory. Returns `None` if
    /// the directory does not exist yet.
    ///
    /// Only agents take the lock: restoring, planning and reading need none.
    ///
    /// # Errors
    ///
    /// [`HostError::Locked`] while another process holds the lock, [`HostError::Lock`] if locking fails.
    pub fn lock_root(&self) -> Result<Option<RootLock>, HostError> {
        let hierarchies = &self.hierarchies;
        let Some(tree) = hierarchies.of(Controller::Cpu).or_else(|| hierarchies.of(Controller::Memory)) else {
            return Ok(None);
        };
        let path = self.directory_path(tree, &self.layout.root);
        let directory = match self.backend.handle(Area::Cgroup(tree), &self.layout.root, Access::Directory) {
            Ok(directory) => directory,
            Err(source) if error::is_absent(&source) => return Ok(None),
            Err(source) => return Err(HostError::Lock { path, source }),
        };
        // The directory may be an `O_PATH` descriptor, which cannot be locked: open it for reading.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match openat(&directory, ".", flags, Mode::empty()) {
            Ok(directory) => File::from(directory),
            Err(errno) => return Err(HostError::Lock { path, source: errno.into() }),
        };
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(RootLock { _directory: directory })),
            Err(Errno::WOULDBLOCK) => {
                let holder = directory.metadata().ok().and_then(|of| self.holder_of(of.dev(), of.ino()));
                Err(HostError::Locked { path, holder })
            }
            Err(errno) => Err(HostError::Lock { path, source: errno.into() }),
        }
    }

    /// The process that holds a lock on a directory, if it is visible.
    fn holder_of(&self, device: u64, inode: u64) -> Option<u32> {
        let locks = self.backend.read_once(Area::Proc, "locks").ok()?;
        let of = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
        holder(&String::from_utf8_lossy(&locks), &of)
    }
}

/// The holder of a `flock` lock on a file in `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 1234 00:1a:1 0 EOF`. A process
/// of another PID namespace shows as 0, or not at all; a waiting process has an arrow before the kind.
fn holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, of, ..] = fields.as_slice() else { return None };
        (*of == file).then(|| process.parse().ok()).flatten().filter(|&process| process != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named_where_the_kernel_shows_it() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 0 00:1a:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 1234 00:1a:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 99 00:1a:79 0 EOF\n";
        for (file, process) in
            [("00:1a:77", Some(1234)), ("00:1a:78", None), ("00:1a:79", None), ("00:1a:7", None), ("", None)]
        {
            assert_eq!(holder(locks, file), process, "{file}");
        }
    }
}
