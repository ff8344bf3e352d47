//! Restricts paths with Landlock.
//!
//! Kernel: Documentation/userspace-api/landlock.rst.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ::landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::{ConfinementError, Kept};

/// The newest ABI that rules are made for. On an older kernel, rights that it does not know are left out.
const NEWEST: ABI = ABI::V10;

/// What may be done at a path and below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Files and folders are read; sockets may be connected to.
    Read,
    /// As `Read`, and files may be executed: programs, and the loader that a program names.
    Execute,
    /// Existing files are read and written; folders are made, moved and removed, as in cgroup file systems and resctrl. No file is made.
    Change,
    /// Files, folders and sockets are read, written, made, renamed and removed. No program is executed, and no device file is made.
    Own,
    /// Sockets are made and removed directly in it, and nothing is read: a folder that others use too.
    Bind,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        let read = make_bitflags!(AccessFs::{ReadFile | ReadDir | ResolveUnix});
        match self {
            Self::Read => read,
            Self::Execute => read | AccessFs::Execute,
            Self::Change => {
                read | make_bitflags!(AccessFs::{WriteFile | Truncate | MakeDir | RemoveDir | Refer | IoctlDev})
            }
            Self::Own => {
                read | make_bitflags!(AccessFs::{
                    WriteFile | Truncate | MakeReg | MakeDir | MakeSock | MakeSym | RemoveFile | RemoveDir | Refer
                })
            }
            Self::Bind => make_bitflags!(AccessFs::{MakeSock | RemoveFile | ResolveUnix}),
        }
    }
}

/// How far Landlock is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// In force, as far as this ABI allows.
    Enforced {
        /// ABI version of the kernel; 1 = Linux 5.13.
        abi: i32,
    },
    /// The kernel has no Landlock.
    Missing,
    /// Landlock was built in and is not enabled (`lsm=` without `landlock`).
    Disabled,
    /// Not requested: all paths were left within reach.
    NotAsked,
}

impl Landlock {
    /// Whether any path is out of reach.
    pub fn is_enforced(&self) -> bool {
        matches!(self, Self::Enforced { .. })
    }
}

impl fmt::Display for Landlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforced { abi } => write!(f, "Landlock ABI {abi}"),
            Self::Missing => f.write_str("no Landlock: the kernel has none (Linux 5.13 with CONFIG_SECURITY_LANDLOCK)"),
            Self::Disabled => f.write_str("no Landlock: it is not switched on (add landlock to the kernel's lsm=)"),
            Self::NotAsked => f.write_str("no Landlock: all paths are left within reach"),
        }
    }
}

static BOUNDS_PATHS: AtomicBool = AtomicBool::new(false);

/// Whether this process has restricted its own paths with Landlock: then an `EACCES` may come from that.
pub fn bounds_paths() -> bool {
    BOUNDS_PATHS.load(Ordering::Relaxed)
}

pub(crate) fn restrict(
    paths: &[(PathBuf, Access)],
    signals_others: bool,
    kept: &mut Kept,
    missing: &mut Vec<(PathBuf, io::Error)>,
) -> Result<Landlock, ConfinementError> {
    let refused = |error: ::landlock::RulesetError| ConfinementError::Landlock(error.into());
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| {
            let sockets = make_bitflags!(Scope::{AbstractUnixSocket});
            rules.scope(if signals_others { sockets } else { sockets | Scope::Signal })
        })
        .and_then(Ruleset::create)
        .map_err(refused)?;
    for (path, access) in paths {
        let descriptor = match open(path) {
            Ok(descriptor) => descriptor,
            Err(error) => {
                missing.push((path.clone(), error));
                continue;
            }
        };
        rules = rules.add_rule(PathBeneath::new(&descriptor, access.rights())).map_err(refused)?;
        kept.descriptors.push(descriptor);
    }
    let status = rules.restrict_self().map_err(refused)?;
    Ok(match (status.ruleset, status.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available { effective_abi, kernel_abi },
        ) => {
            BOUNDS_PATHS.store(true, Ordering::Relaxed);
            Landlock::Enforced { abi: kernel_abi.unwrap_or(effective_abi as i32) }
        }
        (_, LandlockStatus::NotEnabled) => Landlock::Disabled,
        _ => Landlock::Missing,
    })
}

/// Opens a path for a rule: `O_PATH` needs no right to read it.
fn open(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_written_may_be_started() {
        for access in [Access::Read, Access::Change, Access::Own, Access::Bind] {
            assert!(!access.rights().contains(AccessFs::Execute), "{access:?}");
        }
        for access in [Access::Read, Access::Execute, Access::Bind] {
            assert!(!access.rights().contains(AccessFs::WriteFile), "{access:?}");
        }
        for access in [Access::Read, Access::Execute, Access::Change, Access::Own, Access::Bind] {
            assert!(!access.rights().intersects(AccessFs::MakeChar | AccessFs::MakeBlock), "{access:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told_with_the_way_out() {
        assert_eq!(Landlock::Enforced { abi: 2 }.to_string(), "Landlock ABI 2");
        assert!(Landlock::Missing.to_string().contains("5.13"));
        assert!(Landlock::Disabled.to_string().contains("lsm="));
    }
}
