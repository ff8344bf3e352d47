//! Mounts a tree as a file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::UnmountFlags;

use crate::fuse::Server;
use crate::tasks::Tid;
use crate::tree::{Tree, Writer};

/// A tree that a mount and a test use at the same time. Do not access the mount while holding the lock: the file system
/// would wait for it.
pub type SharedTree = Arc<Mutex<Tree>>;

/// How the clock of a mounted tree advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Real time: each request first advances the clock by the time since the previous one.
    Real,
    /// Only [`Tree::advance`].
    Stepped,
}

/// An error while mounting or unmounting a tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The tree is already mounted: the kernel mounts resctrl only once (`EBUSY`).
    #[error("this tree is mounted already: unmount it first, or mount another one")]
    Busy,
    /// FUSE refused the mount.
    #[error("cannot mount on {}: it takes a directory, /dev/fuse, and root or fusermount3", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// FUSE's error.
        source: io::Error,
    },
    /// Files below the mount point are still open.
    #[error("cannot unmount {}: close what is open below it", path.display())]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// A mounted tree. Dropping it unmounts; while files are still open, the mount point is free at once, and the rest
/// follows when they are closed. Do not hold the tree's lock while dropping.
#[derive(Debug)]
pub struct Mounted {
    session: Option<BackgroundSession>,
    tree: SharedTree,
    path: PathBuf,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("clock", &self.clock()).finish_non_exhaustive()
    }
}

/// Mounts a tree on a directory, as type `fuse.resctrl`. Needs `/dev/fuse`, and root or `fusermount3`. If mounted by
/// root, all users can access it; otherwise only the mounting user, who owns the root group.
///
/// Differences from the kernel's file system: `statfs` returns FUSE's magic number, thread ids are those of this
/// process's PID namespace, empty writes never reach the tree, and names must be UTF-8.
///
/// # Errors
///
/// [`MountError::Busy`] if the tree is already mounted, [`MountError::Mount`] with FUSE's error.
pub fn mount(tree: SharedTree, path: impl AsRef<Path>, clock: Clock) -> Result<Mounted, MountError> {
    let path = path.as_ref();
    let refuse = |source| MountError::Mount { path: path.to_owned(), source };
    let canonical = path.canonicalize().map_err(refuse)?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    {
        let mut tree = lock(&tree);
        if !tree.claim_mount() {
            return Err(MountError::Busy);
        }
        tree.belong_to(Writer { tid: Tid(std::process::id()), uid: uid.as_raw(), gid: gid.as_raw() });
    }
    let mut config = Config::default();
    config.acl = if uid.is_root() { SessionACL::All } else { SessionACL::Owner };
    config.mount_options = vec![
        MountOption::FSName("resctrl".to_owned()),
        // Not `Subtype`: without fusermount, that option only changes the name of the source.
        MountOption::CUSTOM("subtype=resctrl".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    match fuser::spawn_mount(Server::new(tree.clone(), clock), &canonical, &config) {
        Ok(session) => Ok(Mounted { session: Some(session), tree, path: canonical }),
        Err(source) => {
            lock(&tree).release_mount();
            Err(refuse(source))
        }
    }
}

/// Locks a tree. A panic while it was locked does not matter: its operations leave no partial changes.
pub(crate) fn lock(tree: &SharedTree) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mounted {
    /// The mounted tree.
    pub fn tree(&self) -> &SharedTree {
        &self.tree
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts, and waits until the file system has ended. All groups are removed, as after `umount /sys/fs/resctrl`.
    ///
    /// # Errors
    ///
    /// [`MountError::Unmount`] if files are still open; the mount point is free nevertheless.
    pub fn unmount(mut self) -> Result<(), MountError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MountError> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let ended = session.umount_and_join().map_err(|source| {
            // Best effort: without root, fusermount has unmounted it, or the user has to.
            let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
            MountError::Unmount { path: self.path.clone(), source }
        });
        lock(&self.tree).release_mount();
        ended
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Drop cannot return the error; the mount point is free in any case.
        let _ = self.end();
    }
}
