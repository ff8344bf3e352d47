//! Stops the registries, healthy or crashed.

use std::time::Duration;

use anyhow::Result;

use super::instance::Instance;
use crate::process::Process;
use crate::state_dir::StateDir;
use crate::{command, state_dir};

/// Kills all registries and removes the folder. Prints a message if there are none.
///
/// # Errors
///
/// What could not be ended or removed.
pub(crate) fn run(state: &StateDir) -> Result<()> {
    for instance in Instance::ALL {
        let recorded = Process::running(state, instance.name());
        // The folder, and with it the records, may have been removed while the registries ran.
        for process in recorded.into_iter().chain(Process::with_argument(&instance.mark(state))) {
            process.end(Duration::ZERO)?;
        }
    }
    if !state.dir().exists() {
        println!("    there are no registries in {}", state.dir().display());
        return Ok(());
    }
    state_dir::remove(state.dir())?;
    command::heading(&format!("the registries in {} are gone", state.dir().display()));
    Ok(())
}
