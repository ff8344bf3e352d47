//! Confinement of the calling process: limits what a compromised agent, compiler or page mover could still reach.
//!
//! A [`Confinement`] names what a process needs, and [`Confinement::enter`] takes away the rest: capabilities, the way to gain new
//! privileges by `execve`, paths (Landlock) and system calls (seccomp). All of it applies to the calling thread, and to threads and
//! processes that it starts afterwards, so a process enters before it has other threads. Nothing of it can be undone.
//!
//! Landlock is used as far as the kernel supports it; [`Entered`] tells how far that is. [`Status`] reads what is in force for this
//! process, including what others put in force.
//!
//! Each program states which paths and capabilities it needs: this crate knows none of them.
//!
//! ```no_run
//! use qosm_confinement::{Access, Capability, Confinement, Seccomp};
//!
//! let entered = Confinement::new(Seccomp::Dangerous)
//!     .keep([Capability::SETUID, Capability::SETGID])
//!     .allow("/proc", Access::Read)
//!     .allow("/sys/fs/cgroup", Access::Change)
//!     .enter()?;
//! println!("{}", entered.landlock);
//! # Ok::<(), qosm_confinement::ConfinementError>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod capabilities;
mod deadline;
mod landlock;
mod loaded;
mod seccomp;
mod status;

use std::path::PathBuf;

pub use self::capabilities::{Capability, UnknownCapability, names as capability_names};
pub use self::deadline::end_after;
pub use self::landlock::{Access, Landlock, bounds_paths};
pub use self::loaded::loaded_files;
pub use self::seccomp::Seccomp;
pub use self::status::{SeccompMode, Status};

/// Why a confinement could not be put in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfinementError {
    /// Capabilities could not be read or given up.
    #[error("capabilities cannot be given up")]
    Capabilities(#[source] std::io::Error),
    /// `PR_SET_NO_NEW_PRIVS` was refused.
    #[error("gaining privileges cannot be ruled out (no_new_privs)")]
    NoNewPrivileges(#[source] std::io::Error),
    /// The kernel refused Landlock's rules.
    #[error("Landlock refuses the rules")]
    Landlock(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Other threads run already, and would not be confined.
    #[error("{0} threads run already, and those that run would stay as they are")]
    Threads(usize),
    /// A limit could not be set, or the user could not be changed.
    #[error("limits cannot be set")]
    Limits(#[source] std::io::Error),
    /// The filter of system calls could not be built or was refused.
    #[error("the filter of system calls (seccomp) cannot be put in force")]
    Seccomp(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What a process keeps; everything else is taken from it.
#[derive(Clone, Debug)]
#[must_use = "nothing is taken away before it is entered"]
pub struct Confinement {
    capabilities: Vec<Capability>,
    paths: Option<Vec<(PathBuf, Access)>>,
    seccomp: Seccomp,
    signals_others: bool,
}

/// Result of a confinement.
#[derive(Debug)]
pub struct Entered {
    /// How far Landlock is in force.
    pub landlock: Landlock,
    /// Paths that were asked for and could not be opened, with the reason. They stay out of reach.
    pub missing: Vec<(PathBuf, std::io::Error)>,
    /// Whether a filter of system calls was added; `false` where one was in force already, or none was asked for.
    pub filtered: bool,
    /// To be kept as long as the rules are to apply: see [`Kept`].
    pub kept: Kept,
}

/// Descriptors of the allowed paths. Landlock's rules belong to inodes, and procfs makes a new inode when its directory has fallen
/// out of the cache; while one is held open, the directory stays the one of the rule.
#[derive(Debug, Default)]
pub struct Kept {
    pub(crate) descriptors: Vec<std::os::fd::OwnedFd>,
}

impl Kept {
    /// Number of descriptors.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether there are no descriptors.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }
}

impl Confinement {
    /// Keeps no capability and no path, and the system calls that `seccomp` leaves.
    pub fn new(seccomp: Seccomp) -> Self {
        Self { capabilities: Vec::new(), paths: Some(Vec::new()), seccomp, signals_others: false }
    }

    /// Keeps capabilities that the process has. A capability that it does not have is not gained.
    pub fn keep(mut self, capabilities: impl IntoIterator<Item = Capability>) -> Self {
        self.capabilities.extend(capabilities);
        self
    }

    /// Leaves a path, and for a folder all below it, within reach. Symbolic links are followed now: what is allowed is what the path
    /// leads to at this moment, and stays so if another file takes the name.
    pub fn allow(mut self, path: impl Into<PathBuf>, access: Access) -> Self {
        if let Some(paths) = &mut self.paths {
            paths.push((path.into(), access));
        }
        self
    }

    /// Whether signals may be sent to processes that are not confined likewise; if not, Landlock forbids them (Linux 6.12).
    pub fn allow_signals(mut self, are_allowed: bool) -> Self {
        self.signals_others = are_allowed;
        self
    }

    /// Leaves all paths within reach: no Landlock.
    pub fn all_paths(mut self) -> Self {
        self.paths = None;
        self
    }

    /// Takes away the rest, in the order in which each step is still possible: the bounding set needs `CAP_SETPCAP`, and a filter of
    /// system calls might refuse the others.
    ///
    /// # Errors
    ///
    /// [`ConfinementError`]; what was taken away before the error stays away. A missing or old Landlock, and a kernel built without
    /// seccomp, are no errors.
    pub fn enter(self) -> Result<Entered, ConfinementError> {
        alone()?;
        capabilities::keep_only(&self.capabilities).map_err(ConfinementError::Capabilities)?;
        rustix::thread::set_no_new_privs(true).map_err(|errno| ConfinementError::NoNewPrivileges(errno.into()))?;
        let mut kept = Kept::default();
        let mut missing = Vec::new();
        let landlock = match &self.paths {
            Some(paths) => landlock::restrict(paths, self.signals_others, &mut kept, &mut missing)?,
            None => Landlock::NotAsked,
        };
        let filtered = seccomp::filter(self.seccomp)?;
        Ok(Entered { landlock, missing, filtered, kept })
    }
}

/// Checks that no other thread runs. A thread that was just joined may still be visible for a moment. Without `/proc` there is no check.
#[expect(clippy::disallowed_methods, reason = "proc tells how many threads there are")]
fn alone() -> Result<(), ConfinementError> {
    const LOOKS: usize = 20;
    let threads = || std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    for _ in 0..LOOKS {
        if threads() < 2 {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    match threads() {
        0 | 1 => Ok(()),
        several => Err(ConfinementError::Threads(several)),
    }
}
