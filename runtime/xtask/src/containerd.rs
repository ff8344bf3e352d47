//! containerd 2.x, which Debian does not package yet: built with Go, as commands of an ordinary module.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::{Workspace, keep};
use crate::{command, go};

/// Version of containerd.
pub(crate) const CONTAINERD: &str = "2.4.1";

/// The daemon, its shim, and its command line.
const PROGRAMS: [&str; 3] = ["containerd", "containerd-shim-runc-v2", "ctr"];

/// Leaves out the snapshotters of file systems that no test node has; the first of them needs C.
const TAGS: &str = "no_btrfs,no_devmapper,no_zfs";

/// Builds the missing programs.
///
/// # Errors
///
/// When there is no Go, or it does not build it.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    let folder = folder(workspace)?;
    let missing: Vec<_> = PROGRAMS.into_iter().filter(|name| !folder.join(name).exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    command::heading(&format!("building containerd {CONTAINERD}"));
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let module = tempfile::tempdir().context("no folder to build in")?;
    go_module(module.path())?;
    let flags = format!("-s -w -X github.com/containerd/containerd/v2/version.Version={CONTAINERD}");
    for name in missing {
        let fresh = folder.join(format!("{name}.new"));
        let mut build = go::command()?;
        build.args(["build", "-v", "-mod=mod", "-tags", TAGS, "-ldflags", &flags, "-o"]).arg(&fresh);
        build.arg(format!("github.com/containerd/containerd/v2/cmd/{name}")).current_dir(module.path());
        println!("    $ go build github.com/containerd/containerd/v2/cmd/{name}   (minutes, once a version)");
        go::with_progress(&mut build, name)?;
        keep(&fresh, name)?;
    }
    Ok(())
}

/// The folder of the programs.
///
/// # Errors
///
/// If there is no cache folder.
pub(crate) fn folder(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("containerd/v{CONTAINERD}")))
}

/// A module that only requires containerd: `go install` refuses a module whose go.mod replaces others.
fn go_module(folder: &Path) -> Result<()> {
    let text = format!(
        "module qosm.test/containerd\n\ngo 1.26.0\n\nrequire github.com/containerd/containerd/v2 v{CONTAINERD}\n"
    );
    fs::write(folder.join("go.mod"), text).with_context(|| format!("{} cannot be written", folder.display()))
}
