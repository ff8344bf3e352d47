//! Starts a cluster or one of its components, and stops one.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Up;
use super::choices::{Choices, StateDir};
use super::component::{Component, ctr};
use super::programs::Programs;
use super::{config, down, images, undo};
use crate::command;
use crate::interrupt::Interrupt;
use crate::process::{Process, tail};
use crate::workspace::Workspace;

/// Time limit for a component to be ready. Components take seconds, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time limit for a component to end.
const FAREWELL: Duration = Duration::from_secs(15);

/// Starts a cluster, or the components of it that do not run, and waits until all are ready. On an interrupt it removes everything again;
/// after a failure it leaves everything for inspection.
///
/// # Errors
///
/// What did not start, after the last lines of its log.
pub(crate) fn run(workspace: &Workspace, state: &StateDir, programs: &Programs, wanted: &Up) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let begun = Instant::now();
    let choices = choose(workspace, state, wanted)?;
    let started = all(state, &choices, programs, &interrupt);
    if interrupt.asked() {
        down::run(state)?;
        bail!("interrupted");
    }
    started?;
    command::heading(&format!("the cluster is up, after {:.1} s", begun.elapsed().as_secs_f32()));
    println!("    export KUBECONFIG={}", state.path("admin.kubeconfig").display());
    if wanted.image {
        images::import_qosm(workspace, state, programs)?;
        if let Some(bin) = programs.kubectl.parent() {
            println!("    export PATH=$PATH:{}    # kubectl, helm", bin.display());
        }
        let values = state.path(config::VALUES);
        println!(
            "    helm install qosm deploy/helm/qosm --namespace qosm-system --create-namespace --wait --values {}",
            values.display()
        );
    }
    let again = if state.dir() == super::default_dir(workspace) {
        String::new()
    } else {
        format!(" --dir {}", state.dir().display())
    };
    println!("    cargo xtask cluster down{again}");
    Ok(())
}

/// Starts one component again.
///
/// # Errors
///
/// If there is no cluster, or the component does not start.
pub(crate) fn start(state: &StateDir, programs: &Programs, component: Component) -> Result<()> {
    let choices = state.chosen()?;
    ensure!(Component::of(&choices).contains(&component), "the cluster has no node: it was started without --node");
    begin(state, &choices, programs, component, &Interrupt::listen()?)
}

/// Ends one component.
///
/// # Errors
///
/// When there is no cluster, or the component does not end.
pub(crate) fn stop(state: &StateDir, component: Component) -> Result<()> {
    state.chosen()?;
    let Some(process) = Process::running(state, component.name()) else {
        println!("    {} does not run", component.name());
        return Ok(());
    };
    process.end(FAREWELL).with_context(|| format!("{} cannot be stopped", component.name()))?;
    println!("    {} is stopped", component.name());
    Ok(())
}

/// The choices of the existing cluster, or new ones.
fn choose(workspace: &Workspace, state: &StateDir, wanted: &Up) -> Result<Choices> {
    let Up { node, cgroup_driver: driver, .. } = *wanted;
    if let Some(choices) = state.choices()? {
        let dir = state.dir().display();
        ensure!(choices.node || !node, "the cluster in {dir} was made without a node: take it down first");
        return Ok(choices);
    }
    // `down` removes the whole folder. The default folder belongs to this program, even if an interrupted `down` left something in it.
    if state.dir() == super::default_dir(workspace) {
        crate::state_dir::remove(state.dir())?;
    }
    ensure!(state.is_empty(), "{} holds other things than a cluster", state.dir().display());
    if node {
        down::forget_ended_owner(state)?;
        undo::refuse_another(state)?;
        undo::refuse_anothers_pods(driver)?;
    }
    let choices = Choices::make(node, driver)?;
    state.make("")?;
    state.choose(&choices)?;
    Ok(choices)
}

fn all(state: &StateDir, choices: &Choices, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    config::control_plane(state, choices)?;
    if choices.node {
        undo::note(state, choices.driver)?;
        config::node(state, choices, programs)?;
    }
    for component in Component::of(choices) {
        begin(state, choices, programs, component, interrupt)?;
    }
    Ok(())
}

/// Starts a component, unless it runs, and waits until it is ready.
fn begin(
    state: &StateDir,
    choices: &Choices,
    programs: &Programs,
    component: Component,
    interrupt: &Interrupt,
) -> Result<()> {
    let begun = Instant::now();
    let name = component.name();
    if Process::running(state, name).is_none() {
        Process::start(state, name, &component.command(state, choices, programs))?;
    }
    if let Err(error) = ready(state, programs, component, interrupt) {
        if !interrupt.asked() {
            tail(state, name, 30);
        }
        return Err(error);
    }
    if component == Component::Containerd {
        images::import_own(state, programs).context("the node's images cannot be imported")?;
    }
    println!("    {name} is ready, after {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

fn ready(state: &StateDir, programs: &Programs, component: Component, interrupt: &Interrupt) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = if component == Component::Containerd {
            command::output(ctr(programs).arg("version")).map(drop)
        } else {
            let mut questions = component.readiness().iter();
            questions.try_for_each(|(question, wanted)| asked(programs.kubectl(state).args(*question), wanted))
        };
        let Err(error) = answer else { return Ok(()) };
        ensure!(Process::running(state, component.name()).is_some(), "{} has ended", component.name());
        if Instant::now() > deadline {
            let name = component.name();
            return Err(error).with_context(|| format!("{name} is not ready after {} s", PATIENCE.as_secs()));
        }
        interrupt.sleep(Duration::from_millis(200))?;
    }
}

fn asked(question: &mut Command, wanted: &str) -> Result<()> {
    let answer = command::output(question)?;
    ensure!(answer.contains(wanted), "the answer is `{}`, not yet `{wanted}`", answer.trim());
    Ok(())
}
