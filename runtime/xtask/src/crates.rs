//! Programs out of crates, compiled once a machine.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace::Workspace;

/// How many crates are compiled at once at most: linking takes memory as well.
const JOBS: usize = 4;

/// As `cargo install`, to `<root>/bin`. What was compiled is kept in `<root>/build` until it is done, so that an install that was
/// interrupted goes on where it was; not in this checkout's target directory, which would keep it for ever.
///
/// # Errors
///
/// When it cannot be compiled.
pub(crate) fn install(workspace: &Workspace, package: &str, root: &Path) -> Result<()> {
    let build = root.join("build");
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(JOBS)).to_string();
    let mut cargo = workspace.cargo();
    // They are waited for more than they run.
    cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_TARGET_DIR", &build);
    cargo.args(["install", package, "--locked", "--quiet", "--jobs", &jobs, "--root"]);
    command::patient(cargo.arg(root))?;
    std::fs::remove_dir_all(&build).with_context(|| format!("{} cannot be removed", build.display()))
}
