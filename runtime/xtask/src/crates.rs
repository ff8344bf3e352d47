//! Programs that are compiled from crates, once for each machine.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace::Workspace;

/// Maximum number of crates that are compiled at once: linking takes memory as well.
const JOBS: usize = 4;

/// How far a program is optimized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optimized {
    /// The program runs for moments only (docs/decisions/0015).
    Not,
    /// The program computes for seconds in each run of a verb.
    ALittle,
}

impl Optimized {
    const fn level(self) -> &'static str {
        match self {
            Self::Not => "0",
            Self::ALittle => "1",
        }
    }
}

/// Runs `cargo install` to `<root>/bin`. Build output is kept in `<root>/build` until the install succeeds, so that an interrupted install
/// continues where it stopped. The checkout's target directory would keep it for ever.
///
/// # Errors
///
/// When it cannot be compiled.
pub(crate) fn install(workspace: &Workspace, package: &str, root: &Path, optimized: Optimized) -> Result<()> {
    let build = root.join("build");
    let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(JOBS)).to_string();
    let mut cargo = workspace.cargo();
    cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", optimized.level()).env("CARGO_TARGET_DIR", &build);
    cargo.args(["install", package, "--locked", "--quiet", "--jobs", &jobs, "--root"]);
    command::patient(cargo.arg(root))?;
    std::fs::remove_dir_all(&build).with_context(|| format!("{} cannot be removed", build.display()))
}
