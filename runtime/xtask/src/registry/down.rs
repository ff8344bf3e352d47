//! Ending the registries, whether they are well or have crashed.

use std::time::Duration;

use anyhow::Result;

use super::instance::Instance;
use crate::process::Process;
use crate::state_dir::StateDir;
use crate::{command, state_dir};

/// Ends all and removes the folder. Where there are none, says so.
///
/// # Errors
///
/// What could not be ended or removed.
pub(crate) fn run(state: &StateDir) -> Result<()> {
    for instance in Instance::ALL {
        let recorded = Process::running(state, instance.name());
        // The folder may have been removed, with the records, while they ran.
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
