//! The state of the components, and their last log lines.

use std::process::ExitCode;

use anyhow::Result;

use super::choices::StateDir;
use super::component::Component;
use crate::process::{Process, tail};

/// Prints each component. The exit code is a failure unless all run.
///
/// # Errors
///
/// When there is no cluster.
pub(crate) fn run(state: &StateDir) -> Result<ExitCode> {
    let choices = state.chosen()?;
    let mut all_run = true;
    for component in Component::of(&choices) {
        let process = Process::running(state, component.name());
        all_run &= process.is_some();
        let what = process.map_or("stopped".to_owned(), |process| format!("runs, process {}", process.pid()));
        println!("{:<20} {what}", component.name());
    }
    println!("{:<20} https://{}", "server", choices.server);
    println!("{:<20} {}", "kubeconfig", state.path("admin.kubeconfig").display());
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the last lines of every component's log.
pub(crate) fn tails(state: &StateDir, lines: usize) {
    for component in Component::CONTROL_PLANE.into_iter().chain(Component::NODE) {
        tail(state, component.name(), lines);
    }
}
