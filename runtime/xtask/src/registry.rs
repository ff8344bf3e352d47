//! Real container registries on this machine, on loopback, and what pushes to them and signs: one that anybody may use, one with
//! a password, one with a password and TLS, and one that answers who refers to a manifest.
//!
//! [`programs`] gets and builds what is run, [`bed`] is what those who use the registries are told, in `bed.json`, [`instance`]
//! knows each registry's configuration and command line, [`tls`] makes its keys, [`up`] and [`down`] start and end them all.
//!
//! Debian's registry (CNCF distribution) stands for those that most people run, which do not answer the referrers API; the fourth
//! one does, keeps everything in memory, and is built from `registry/referrers.go`.

mod bed;
mod down;
mod instance;
mod programs;
mod tls;
mod up;

use std::process::ExitCode;

use anyhow::Result;

use crate::command;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::process::{Process, tail};
use crate::workspace::Workspace;

use bed::Bed;
use instance::Instance;
pub(crate) use programs::Programs;

/// What can be done with the registries.
#[derive(Clone, Copy, clap::Subcommand)]
pub(crate) enum Verb {
    /// Gets and builds the programs, once a version; quick and quiet when all are there.
    Build,
    /// Starts the registries, unless all run; writes `registry/bed.json` in the target directory and tells how to push.
    Up,
    /// Ends the registries and removes their folder; also after a crash, and when there are none.
    Down,
    /// Tells which registries run, and where.
    Status,
}

/// Does what was asked.
///
/// # Errors
///
/// As the verbs themselves.
pub(crate) fn run(workspace: &Workspace, verb: &Verb) -> Result<ExitCode> {
    let place = place(workspace)?;
    match verb {
        Verb::Build => drop(Programs::build(workspace)?),
        Verb::Up => {
            let programs = Programs::build(workspace)?;
            up::run(&place, &programs, &Interrupt::listen()?)?;
            up::tell(workspace, &place)?;
        }
        Verb::Down => down::run(&place)?,
        Verb::Status => return status(&place),
    }
    Ok(ExitCode::SUCCESS)
}

/// Registries for as long as somebody needs them.
pub(crate) struct Registries {
    place: Place,
}

impl Registries {
    /// Starts registries that hold nothing. Those that run, or that an earlier run left, are ended: what they hold is signed by keys
    /// that are gone.
    ///
    /// # Errors
    ///
    /// As `down` and `up`: nothing runs then.
    pub(crate) fn fresh(workspace: &Workspace, interrupt: &Interrupt) -> Result<Self> {
        let place = place(workspace)?;
        down::run(&place)?;
        up::run(&place, &Programs::find(workspace)?, interrupt)?;
        Ok(Self { place })
    }

    /// The file that tells everything about them.
    pub(crate) fn bed(&self) -> std::path::PathBuf {
        self.place.path(bed::FILE)
    }

    /// Prints the last lines of what each of them said.
    pub(crate) fn tails(&self) {
        up::tails(&self.place);
    }

    /// Takes them down. What could not be taken away is told, and swept before the next run.
    pub(crate) fn leave(self) {
        command::warn(down::run(&self.place));
    }
}

/// Ends registries that an earlier run left, if there are any.
///
/// # Errors
///
/// As `down`.
pub(crate) fn sweep(workspace: &Workspace) -> Result<()> {
    let place = place(workspace)?;
    if place.dir().exists() { down::run(&place) } else { Ok(()) }
}

/// Where the registries lie.
fn place(workspace: &Workspace) -> Result<Place> {
    Place::at(workspace.target().join("registry"))
}

/// Prints each registry. The exit status is bad unless all run.
fn status(place: &Place) -> Result<ExitCode> {
    let bed = Bed::needed(place)?;
    let mut all_run = true;
    for instance in Instance::ALL {
        let process = Process::running(place, instance.name());
        all_run &= process.is_some();
        let what = process.map_or("stopped".to_owned(), |process| format!("runs, process {}", process.pid()));
        println!("{:<12} {:<18} {what}", instance.name(), instance.host(&bed));
    }
    println!("{:<12} {}", "bed", place.path(bed::FILE).display());
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
