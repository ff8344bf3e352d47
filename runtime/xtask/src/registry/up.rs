//! Starting the registries.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::bed::{Bed, FILE};
use super::instance::{BIN, DOCKER_CONFIG, Instance, equip};
use super::programs::Programs;
use super::{down, tail, tls};
use crate::command;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::process::Process;
use crate::workspace::Workspace;

/// How long a registry may take to listen. It takes a moment; a machine that is busy takes longer.
const PATIENCE: Duration = Duration::from_secs(180);

/// Starts the registries and waits until they listen. Where all run nothing happens; where some do they are ended, since what they
/// hold belongs to a bed that is no more. After a failure nothing is left running.
///
/// # Errors
///
/// What did not start, after the last lines of its log.
pub(crate) fn run(place: &Place, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    let runs = |instance: &Instance| Process::running(place, instance.name()).is_some();
    if Bed::read(place).is_ok_and(|bed| bed.is_some()) && Instance::ALL.iter().all(runs) {
        return Ok(());
    }
    // The folder is one of the target directory's, so whatever a `down` that was cut off left in it is no one's.
    if !place.is_empty() {
        down::run(place)?;
    }
    command::heading("registries on this machine");
    let started = all(place, programs, interrupt);
    if started.is_err() {
        if !interrupt.asked() {
            tails(place);
        }
        down::run(place)?;
    }
    started
}

/// Tells a person how to push to them.
///
/// # Errors
///
/// When there are none.
pub(crate) fn tell(workspace: &Workspace, place: &Place) -> Result<()> {
    let bed = Bed::needed(place)?;
    command::heading("the registries are up");
    for instance in Instance::ALL {
        println!("    export {}={}", instance.name().to_uppercase(), instance.host(&bed));
    }
    println!("    export DOCKER_CONFIG={}    # the passwords", place.path(DOCKER_CONFIG).display());
    println!("    export PATH=$PATH:{}    # cosign, crane, skopeo, wkg", place.path(BIN).display());
    println!("    export COSIGN_OFFLINE={}    # to sign without asking a log", bed.cosign.signing_config.display());
    println!("    export QOSM_REGISTRY_BED={}", place.path(FILE).display());
    let module = workspace.modules().join("cpu-burst.wasm");
    println!("    wkg oci push --insecure $PLAIN $PLAIN/policies/cpu-burst:0.1.0 {}", module.display());
    println!("    SSL_CERT_FILE={} crane catalog $TLS", place.path(tls::CA).display());
    println!("    cargo xtask registry down");
    Ok(())
}

/// Prints the last lines of every registry's log.
pub(crate) fn tails(place: &Place) {
    for instance in Instance::ALL {
        tail(place, instance.name(), 20);
    }
}

fn all(place: &Place, programs: &Programs, interrupt: &Interrupt) -> Result<()> {
    place.make("")?;
    let bed = Bed::make(place, programs)?;
    // First of all: by it `down` knows the folder.
    bed.keep(place)?;
    equip(place, &bed, programs)?;
    for instance in Instance::ALL {
        let begun = Instant::now();
        let name = instance.name();
        instance.configure(place, &bed, programs).with_context(|| format!("{name} cannot be configured"))?;
        Process::start(place, name, &instance.command(place, &bed, programs))?;
        ready(place, instance, &bed, interrupt)?;
        println!("    {name} listens on {}, after {:.1} s", instance.host(&bed), begun.elapsed().as_secs_f32());
    }
    Ok(())
}

/// Waits until it takes connections.
fn ready(place: &Place, instance: Instance, bed: &Bed, interrupt: &Interrupt) -> Result<()> {
    let (name, host) = (instance.name(), instance.host(bed));
    let address: SocketAddr = host.parse().with_context(|| format!("{host} is no address"))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answers = TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
        ensure!(Process::running(place, name).is_some(), "{name} has ended");
        if answers {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{name} does not listen on {host} after {} s", PATIENCE.as_secs());
        }
        interrupt.sleep(Duration::from_millis(20))?;
    }
}
