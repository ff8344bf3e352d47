//! Stops a cluster. There is one way for healthy and crashed clusters: all of its processes are killed, and everything that it left on the
//! machine is removed. No data is kept, so a clean shutdown is unnecessary.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::choices::{RUN, StateDir};
use super::component::Component;
use super::undo;
use crate::process::Process;
use crate::{command, state_dir};

/// Kills all components and removes the folder. Prints a message if there is no cluster.
///
/// # Errors
///
/// What could not be ended or removed.
pub(crate) fn run(state: &StateDir) -> Result<()> {
    let choices = state.choices().unwrap_or_default();
    let has_node = undo::has_node(state)?;
    // The kubelet first: it would restart pods.
    for component in Component::NODE.into_iter().rev().chain(Component::CONTROL_PLANE.into_iter().rev()) {
        let recorded = Process::running(state, component.name());
        // The folder, and with it the records, may have been removed while the cluster ran.
        for process in recorded.into_iter().chain(Process::with_argument(&component.mark(state))) {
            process.end(Duration::ZERO)?;
        }
    }
    if has_node {
        undo::end_pods()?;
        for shim in Process::with_argument(&format!("{RUN}/containerd.sock")) {
            shim.end(Duration::ZERO)?;
        }
        undo::sweep(state)?;
    }
    if choices.is_none() && !has_node && !is_ours(state.dir()) {
        println!("    there is no cluster in {}", state.dir().display());
        return Ok(());
    }
    state_dir::remove(state.dir())?;
    command::heading(&format!("the cluster in {} is gone", state.dir().display()));
    Ok(())
}

/// Removes what the node of another cluster left on this machine, if nothing of that cluster runs any more.
///
/// # Errors
///
/// What could not be removed.
pub(crate) fn forget_ended_owner(state: &StateDir) -> Result<()> {
    let Some(owner) = undo::owner()?.filter(|owner| owner != state.dir()) else { return Ok(()) };
    let owner = StateDir::at(owner)?;
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

/// Whether a folder is a cluster's, even if its content is unreadable.
fn is_ours(dir: &Path) -> bool {
    dir.join("cluster.json").exists()
}
