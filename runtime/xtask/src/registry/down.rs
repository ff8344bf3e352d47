//! Ending the registries, whether they are well or have crashed.

use std::time::Duration;

use anyhow::Result;

use super::instance::Instance;
use crate::place::Place;
use crate::process::Process;
use crate::{command, place};

/// Ends all and removes the folder. Where there are none, says so.
///
/// # Errors
///
/// What could not be ended or removed.
pub(crate) fn run(place: &Place) -> Result<()> {
    for instance in Instance::ALL {
        let recorded = Process::running(place, instance.name());
        // Somebody may have removed the folder, with the records, while they ran.
        for process in recorded.into_iter().chain(Process::with_argument(&instance.mark(place))) {
            process.end(Duration::ZERO)?;
        }
    }
    if !place.dir().exists() {
        println!("    there are no registries in {}", place.dir().display());
        return Ok(());
    }
    place::remove(place.dir())?;
    command::heading(&format!("the registries in {} are gone", place.dir().display()));
    Ok(())
}
