//! opa: checks, tests and compiles Rego. Built with Go, and kept in the user's cache by version.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, keep};
use crate::{command, go};

/// Format and compiled code depend on the version; the files in the repository are those of this one.
pub(crate) const VERSION: &str = "1.22.0";
pub(crate) const PACKAGE: &str = "github.com/open-policy-agent/opa";

/// Builds opa, unless it is in the cache.
///
/// # Errors
///
/// When there is no Go that builds it.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let file = file(workspace)?;
    if file.exists() {
        return Ok(());
    }
    command::heading(&format!("getting opa {VERSION}"));
    let folder = file.parent().context("opa has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let fresh = file.with_extension("new");
    go::install(&format!("{PACKAGE}@v{VERSION}"), &fresh)?;
    keep(&fresh, "opa")
}

/// A command that runs opa.
///
/// # Errors
///
/// If opa is not built yet.
pub(crate) fn command(workspace: &Workspace) -> Result<Command> {
    let file = file(workspace)?;
    if !file.exists() {
        bail!("opa {VERSION} is missing: run `cargo xtask setup --for rego`");
    }
    Ok(Command::new(file))
}

/// This process's `PATH` with opa's folder in front, for programs that run `opa` by its name.
///
/// # Errors
///
/// If there is no cache folder.
pub(crate) fn path(workspace: &Workspace) -> Result<OsString> {
    let folder = file(workspace)?.parent().map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(folder.into_iter().chain(env::split_paths(&path))).context("the cache cannot be on the PATH")
}

/// Where opa is, or will be.
fn file(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("opa-{VERSION}/bin/opa")))
}
