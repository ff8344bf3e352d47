//! opa: checks, tests and compiles Rego. Built by Go, kept in the user's cache by its version.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, keep};
use crate::{command, go};

/// Its formatter and its compiler change with versions: what is checked in is what this one says.
pub(crate) const VERSION: &str = "1.22.0";
pub(crate) const PACKAGE: &str = "github.com/open-policy-agent/opa";

/// Builds it, unless it is there.
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

/// A command of it.
///
/// # Errors
///
/// When it is not there yet.
pub(crate) fn command(workspace: &Workspace) -> Result<Command> {
    let file = file(workspace)?;
    if !file.exists() {
        bail!("opa {VERSION} is missing: run `cargo xtask setup --for rego`");
    }
    Ok(Command::new(file))
}

/// This process' search path with it in front: for what runs `opa` by its name, as a person does.
///
/// # Errors
///
/// Without a cache.
pub(crate) fn path(workspace: &Workspace) -> Result<OsString> {
    let folder = file(workspace)?.parent().map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(folder.into_iter().chain(env::split_paths(&path))).context("the cache cannot be on the PATH")
}

/// Where it is, or will be.
fn file(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("opa-{VERSION}/bin/opa")))
}
