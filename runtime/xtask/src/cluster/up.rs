//! Starting a cluster or one of its components, and stopping one.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Up;
use super::component::{Component, ctr};
use super::place::{Choices, Place};
use super::programs::Programs;
use super::{config, down, images, traces};
use crate::command;
use crate::interrupt::Interrupt;
use crate::process::{Process, tail};
use crate::workspace::Workspace;

/// How long a component may take to be ready. They take seconds; a machine that is busy takes longer.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a component may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_secs(15);

/// Starts a cluster, or what of it does not run, and waits until all is ready. Interrupted, it takes everything away again; after
/// a failure it leaves what there is, to be looked at.
///
/// # Errors
///
/// What did not start, after the last lines of its log.
pub(crate) fn run(workspace: &Workspace, place: &Place, programs: &Programs, wanted: &Up) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let begun = Instant::now();
    let choices = choose(workspace, place, wanted.node)?;
    let started = all(place, &choices, programs, &interrupt);
    if interrupt.asked() {
        down::run(place)?;
        bail!("interrupted");
    }
    started?;
    command::heading(&format!("the cluster is up, after {:.1} s", begun.elapsed().as_secs_f32()));
    println!("    export KUBECONFIG={}", place.path("admin.kubeconfig").display());
    if wanted.image {
        images::import_qosm(workspace, place, programs)?;
        if let Some(bin) = programs.kubectl.parent() {
            println!("    export PATH=$PATH:{}    # kubectl, helm", bin.display());
        }
        let values = place.path(config::VALUES);
        println!(
            "    helm install qosm deploy/helm/qosm --namespace qosm-system --create-namespace --wait --values {}",
            values.display()
        );
    }
    let again = if place.dir() == super::default_dir(workspace) {
        String::new()
    } else {
        format!(" --dir {}", place.dir().display())
    };
    println!("    cargo xtask cluster down{again}");
    Ok(())
}

/// Starts one component again.
///
/// # Errors
///
/// When there is no cluster, or the component does not start.
pub(crate) fn start(place: &Place, programs: &Programs, component: Component) -> Result<()> {
    let choices = place.chosen()?;
    ensure!(Component::of(&choices).contains(&component), "the cluster has no node: it was started without --node");
    begin(place, &choices, programs, component, &Interrupt::listen()?)
}

/// Ends one component.
///
/// # Errors
///
/// When there is no cluster, or the component does not end.
pub(crate) fn stop(place: &Place, component: Component) -> Result<()> {
    place.chosen()?;
    let Some(process) = Process::running(place, component.name()) else {
        println!("    {} does not run", component.name());
        return Ok(());
    };
    process.end(FAREWELL).with_context(|| format!("{} cannot be stopped", component.name()))?;
    println!("    {} is stopped", component.name());
    Ok(())
}

/// What was chosen, now or when the cluster was made.
fn choose(workspace: &Workspace, place: &Place, node: bool) -> Result<Choices> {
    if let Some(choices) = place.choices()? {
        let dir = place.dir().display();
        ensure!(choices.node || !node, "the cluster in {dir} was made without a node: take it down first");
        return Ok(choices);
    }
    // `down` removes the folder with all that is in it. The one in the target directory is ours whatever a `down` that was cut off left.
    if place.dir() == super::default_dir(workspace) {
        crate::place::remove(place.dir())?;
    }
    ensure!(place.is_empty(), "{} holds other things than a cluster", place.dir().display());
    if node {
        down::forget_ended_owner(place)?;
        traces::refuse_another(place)?;
    }
    let choices = Choices::make(node)?;
    place.make("")?;
    place.choose(&choices)?;
    Ok(choices)
}

fn all(place: &Place, choices: &Choices, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    config::control_plane(place, choices)?;
    if choices.node {
        traces::note(place)?;
        config::node(place, choices, programs)?;
    }
    for component in Component::of(choices) {
        begin(place, choices, programs, component, interrupt)?;
    }
    Ok(())
}

/// Starts a component, unless it runs, and waits until it is ready.
fn begin(
    place: &Place,
    choices: &Choices,
    programs: &Programs,
    component: Component,
    interrupt: &Interrupt,
) -> Result<()> {
    let begun = Instant::now();
    let name = component.name();
    if Process::running(place, name).is_none() {
        Process::start(place, name, &component.command(place, choices, programs))?;
    }
    if let Err(error) = ready(place, programs, component, interrupt) {
        if !interrupt.asked() {
            tail(place, name, 30);
        }
        return Err(error);
    }
    if component == Component::Containerd {
        images::import_own(place, programs).context("the node's images cannot be imported")?;
    }
    println!("    {name} is ready, after {:.1} s", begun.elapsed().as_secs_f32());
    Ok(())
}

fn ready(place: &Place, programs: &Programs, component: Component, interrupt: &Interrupt) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = if component == Component::Containerd {
            command::output(ctr(programs).arg("version")).map(drop)
        } else {
            let mut questions = component.readiness().iter();
            questions.try_for_each(|(question, wanted)| asked(programs.kubectl(place).args(*question), wanted))
        };
        let Err(error) = answer else { return Ok(()) };
        ensure!(Process::running(place, component.name()).is_some(), "{} has ended", component.name());
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
