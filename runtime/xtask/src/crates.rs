//! Programs out of crates, compiled once a machine.

use std::path::Path;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace::Workspace;

/// How many crates are compiled at once at most: linking takes memory as well.
const JOBS: usize = 4;

/// How much a program's runs are worth compiling for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Optimized {
    /// It runs for moments (docs/decisions/0015).
    Not,
    /// It computes for seconds, in each run of a verb.
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

/// As `cargo install`, to `<root>/bin`. What was compiled is kept in `<root>/build` until it is done, so that an install that was
/// interrupted goes on where it was; not in this checkout's target directory, which would keep it for ever.
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
