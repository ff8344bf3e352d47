//! Checks requirements on the machine before the run, which tests would report late and in unclear errors.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::Stage;
use crate::workspace::Workspace;

/// Size of the target directory after a first run, with the cluster's images and the registries.
const NEEDED_GIB: u64 = 12;
/// Maximum length of the temporary folder's path, so that paths of sockets have at most 107 bytes (unix(7)).
const LONGEST_FOLDER: usize = 60;

/// Checks disk space, folders and devices.
///
/// # Errors
///
/// The first requirement that is missing, and how to fix it.
pub(super) fn check(workspace: &Workspace, wanted: &[Stage]) -> Result<()> {
    let target = workspace.target();
    std::fs::create_dir_all(target).with_context(|| format!("{} cannot be made", target.display()))?;
    let is_first = !workspace.profile().folder(target).join("deps").is_dir();
    // Built files stay; a later run needs space only for what it recompiles.
    room(target, if is_first { NEEDED_GIB } else { NEEDED_GIB / 3 })?;
    temporary(&env::temp_dir())?;
    if wanted.contains(&Stage::Kernel) {
        ensure!(
            Path::new("/dev/fuse").exists(),
            "/dev/fuse is missing, which the tests of resctrl take: run `modprobe fuse` as root, start this container with `--device /dev/fuse`, or \
             leave the stage out: `make test ARGS=\"--only workspace,uml,vm,registry,languages,cluster\"`"
        );
    }
    Ok(())
}

fn room(folder: &Path, needed: u64) -> Result<()> {
    let room = rustix::fs::statvfs(folder).with_context(|| format!("{} cannot be looked at", folder.display()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize) >> 30;
    if free < needed {
        bail!(
            "{} has {free} GiB left, and a run needs {needed}: make room, or name a folder on another disk with CARGO_TARGET_DIR",
            folder.display()
        );
    }
    Ok(())
}

fn temporary(folder: &Path) -> Result<()> {
    let length = folder.as_os_str().len();
    ensure!(
        length <= LONGEST_FOLDER,
        "the folder for temporary files, {}, has a path of {length} bytes, and sockets below it would have one that is too long for the kernel: \
         `TMPDIR=/tmp make test`",
        folder.display()
    );
    ensure!(folder.is_dir(), "TMPDIR, {}, is no folder: make it, or `TMPDIR=/tmp make test`", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        assert!(room(folder.path(), 0).is_ok());
        let error = room(folder.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("CARGO_TARGET_DIR") && error.contains("GiB left"), "{error}");
        let long = format!("/tmp/{}", "x".repeat(LONGEST_FOLDER));
        for path in [long.as_str(), "/no/such/folder"] {
            let error = temporary(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains("TMPDIR=/tmp make test"), "{error}");
        }
    }
}
