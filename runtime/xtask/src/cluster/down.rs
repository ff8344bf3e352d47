//! Ending a cluster. There is one way, whether it is well or has crashed: everything is killed that is the cluster's, and what it
//! left on the machine is taken away. Nothing of it is kept, so nothing has to be ended in good order.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::component::Component;
use super::place::{Place, RUN};
use super::traces;
use crate::process::Process;
use crate::{command, place};

/// Ends everything and removes the folder. Where there is no cluster, says so.
///
/// # Errors
///
/// What could not be ended or removed.
pub(crate) fn run(place: &Place) -> Result<()> {
    let choices = place.choices().unwrap_or_default();
    let has_node = traces::has_node(place)?;
    // The kubelet first: it would start pods again.
    for component in Component::NODE.into_iter().rev().chain(Component::CONTROL_PLANE.into_iter().rev()) {
        let recorded = Process::running(place, component.name());
        // Somebody may have removed the folder, with the records, while the cluster ran.
        for process in recorded.into_iter().chain(Process::with_argument(&component.mark(place))) {
            process.end(Duration::ZERO)?;
        }
    }
    if has_node {
        traces::end_pods()?;
        for shim in Process::with_argument(&format!("{RUN}/containerd.sock")) {
            shim.end(Duration::ZERO)?;
        }
        traces::sweep(place)?;
    }
    if choices.is_none() && !has_node && !is_ours(place.dir()) {
        println!("    there is no cluster in {}", place.dir().display());
        return Ok(());
    }
    place::remove(place.dir())?;
    command::heading(&format!("the cluster in {} is gone", place.dir().display()));
    Ok(())
}

/// Takes away what another cluster's node left on this machine, if nothing of that cluster runs any more.
///
/// # Errors
///
/// What could not be put back.
pub(crate) fn forget_ended_owner(place: &Place) -> Result<()> {
    let Some(owner) = traces::owner()?.filter(|owner| owner != place.dir()) else { return Ok(()) };
    let owner = Place::at(owner)?;
    let runs = |component: &Component| {
        Process::running(&owner, component.name()).is_some()
            || !Process::with_argument(&component.mark(&owner)).is_empty()
    };
    if Component::CONTROL_PLANE.iter().chain(&Component::NODE).any(runs) {
        return Ok(());
    }
    println!("    the cluster in {} has ended without being taken down", owner.dir().display());
    run(&owner)
}

/// Whether a folder is a cluster's, even if nothing in it can be read any more.
fn is_ours(dir: &Path) -> bool {
    dir.join("cluster.json").exists()
}
