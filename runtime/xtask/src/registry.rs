//! Real container registries on this machine, on loopback, with programs that push and sign: one without credentials, one with a password,
//! one with a password and TLS, and one with the referrers API.
//!
//! [`programs`] downloads and builds the programs, [`mod@env`] is the `env.json` for users of the registries, [`instance`] defines each
//! registry's configuration and command line, [`tls`] creates keys, [`up`] and [`down`] start and stop all.
//!
//! Debian's registry (CNCF distribution) represents the most common ones, which lack the referrers API. The fourth one has it, keeps
//! everything in memory, and is built from `registry/referrers.go`.

mod down;
mod env;
mod instance;
mod programs;
mod tls;
mod up;

use std::process::ExitCode;

use anyhow::Result;

use crate::command;
use crate::interrupt::Interrupt;
use crate::process::{Process, tail};
use crate::state_dir::StateDir;
use crate::workspace::Workspace;

use env::Env;
use instance::Instance;
pub(crate) use programs::{Programs, build_wkg};

/// What can be done with the registries.
#[derive(Clone, Copy, clap::Subcommand)]
pub(crate) enum Verb {
    /// Downloads and builds the programs, once per version; does and prints nothing if all exist.
    Build,
    /// Starts the registries, unless all run; writes `registry/env.json` in the target directory and prints how to push.
    Up,
    /// Ends the registries and removes their folder. Works also after a crash, and if there are none.
    Down,
    /// Prints which registries run, and their addresses.
    Status,
}

/// Runs the verb.
///
/// # Errors
///
/// Those of the verb.
pub(crate) fn run(workspace: &Workspace, verb: &Verb) -> Result<ExitCode> {
    let state = state_dir(workspace)?;
    match verb {
        Verb::Build => drop(Programs::build_all(workspace)?),
        Verb::Up => {
            let programs = Programs::build_all(workspace)?;
            up::run(&state, &programs, &Interrupt::listen()?)?;
            up::tell(workspace, &state)?;
        }
        Verb::Down => down::run(&state)?,
        Verb::Status => return status(&state),
    }
    Ok(ExitCode::SUCCESS)
}

/// Registries for the duration of a run.
pub(crate) struct Registries {
    state: StateDir,
}

impl Registries {
    /// Starts empty registries. Registries that run, or that an earlier run left, are stopped: their content is signed with keys that no
    /// longer exist.
    ///
    /// # Errors
    ///
    /// As `down` and `up`; nothing runs then.
    pub(crate) fn fresh(workspace: &Workspace, interrupt: &Interrupt) -> Result<Self> {
        let state = state_dir(workspace)?;
        down::run(&state)?;
        up::run(&state, &Programs::find(workspace)?, interrupt)?;
        Ok(Self { state })
    }

    /// Path of the `env.json` that describes them.
    pub(crate) fn env(&self) -> std::path::PathBuf {
        self.state.path(env::FILE)
    }

    /// Prints the last lines of each registry's log.
    pub(crate) fn tails(&self) {
        up::tails(&self.state);
    }

    /// Stops the registries. Errors are printed, and the next run cleans up first.
    pub(crate) fn leave(self) {
        command::warn(down::run(&self.state));
    }
}

/// Stops registries that an earlier run left, if there are any.
///
/// # Errors
///
/// As `down`.
pub(crate) fn sweep(workspace: &Workspace) -> Result<()> {
    let state = state_dir(workspace)?;
    if state.dir().exists() { down::run(&state) } else { Ok(()) }
}

/// The folder of the registries.
fn state_dir(workspace: &Workspace) -> Result<StateDir> {
    StateDir::at(workspace.target().join("registry"))
}

/// Prints each registry. The exit code is a failure unless all run.
fn status(state: &StateDir) -> Result<ExitCode> {
    let env = Env::needed(state)?;
    let mut all_run = true;
    for instance in Instance::ALL {
        let process = Process::running(state, instance.name());
        all_run &= process.is_some();
        let what = process.map_or("stopped".to_owned(), |process| format!("runs, process {}", process.pid()));
        println!("{:<12} {:<18} {what}", instance.name(), instance.host(&env));
    }
    println!("{:<12} {}", "env", state.path(env::FILE).display());
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
