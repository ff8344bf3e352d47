//! Starting the registries.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::env::{Env, FILE};
use super::instance::{BIN, DOCKER_CONFIG, Instance, equip};
use super::programs::Programs;
use super::{down, tail, tls};
use crate::command;
use crate::interrupt::Interrupt;
use crate::process::Process;
use crate::state_dir::StateDir;
use crate::workspace::Workspace;

/// Time limit for a registry to listen. It takes a moment, and longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Starts the registries and waits until they listen. If all run, nothing happens; if only some run, they are stopped first, since their
/// content belongs to an `env.json` that is gone. After a failure nothing is left running.
///
/// # Errors
///
/// What did not start, after the last lines of its log.
pub(crate) fn run(state: &StateDir, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    let runs = |instance: &Instance| Process::running(state, instance.name()).is_some();
    if Env::read(state).is_ok_and(|env| env.is_some()) && Instance::ALL.iter().all(runs) {
        return Ok(());
    }
    // The folder is in the target directory, so it contains at most the rest of an interrupted `down`.
    if !state.is_empty() {
        down::run(state)?;
    }
    command::heading("registries on this machine");
    let started = all(state, programs, interrupt);
    if started.is_err() {
        if !interrupt.asked() {
            tails(state);
        }
        down::run(state)?;
    }
    started
}

/// Prints how to push to the registries.
///
/// # Errors
///
/// When there are none.
pub(crate) fn tell(workspace: &Workspace, state: &StateDir) -> Result<()> {
    let env = Env::needed(state)?;
    command::heading("the registries are up");
    for instance in Instance::ALL {
        println!("    export {}={}", instance.name().to_uppercase(), instance.host(&env));
    }
    println!("    export DOCKER_CONFIG={}    # the passwords", state.path(DOCKER_CONFIG).display());
    println!("    export PATH=$PATH:{}    # cosign, crane, skopeo, wkg", state.path(BIN).display());
    println!("    export COSIGN_OFFLINE={}    # to sign without asking a log", env.cosign.signing_config.display());
    println!("    export QOSM_REGISTRY_ENV={}", state.path(FILE).display());
    let module = workspace.modules().join("cpu-burst.wasm");
    println!("    wkg oci push --insecure $PLAIN $PLAIN/policies/cpu-burst:0.1.0 {}", module.display());
    println!("    SSL_CERT_FILE={} crane catalog $TLS", state.path(tls::CA).display());
    println!("    cargo xtask registry down");
    Ok(())
}

/// Prints the last lines of every registry's log.
pub(crate) fn tails(state: &StateDir) {
    for instance in Instance::ALL {
        tail(state, instance.name(), 20);
    }
}

fn all(state: &StateDir, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    state.make("")?;
    let env = Env::make(state, programs)?;
    // First of all, because `down` recognizes the folder by it.
    env.keep(state)?;
    equip(state, &env, programs)?;
    for instance in Instance::ALL {
        let begun = Instant::now();
        let name = instance.name();
        instance.configure(state, &env, programs).with_context(|| format!("{name} cannot be configured"))?;
        Process::start(state, name, &instance.command(state, &env, programs))?;
        ready(state, instance, &env, interrupt)?;
        println!("    {name} listens on {}, after {:.1} s", instance.host(&env), begun.elapsed().as_secs_f32());
    }
    Ok(())
}

/// Waits until the registry accepts connections.
fn ready(state: &StateDir, instance: Instance, env: &Env, interrupt: &Interrupt) -> Result<()> {
    let (name, host) = (instance.name(), instance.host(env));
    let address: SocketAddr = host.parse().with_context(|| format!("{host} is no address"))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answers = TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
        ensure!(Process::running(state, name).is_some(), "{name} has ended");
        if answers {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{name} does not listen on {host} after {} s", PATIENCE.as_secs());
        }
        interrupt.sleep(Duration::from_millis(20))?;
    }
}
