//! What runs, and what it last said.

use std::collections::VecDeque;
use std::fs::File;
use std::process::ExitCode;

use anyhow::Result;

use super::component::Component;
use super::place::Place;
use super::process::{LOGS, Process};
use crate::command;

/// Prints each component. The exit status is bad unless all run.
///
/// # Errors
///
/// When there is no cluster.
pub(crate) fn run(place: &Place) -> Result<ExitCode> {
    let choices = place.chosen()?;
    let mut all_run = true;
    for component in Component::of(&choices) {
        let process = Process::running(place, component.name());
        all_run &= process.is_some();
        let what = process.map_or("stopped".to_owned(), |process| format!("runs, process {}", process.pid()));
        println!("{:<20} {what}", component.name());
    }
    println!("{:<20} https://{}", "server", choices.server);
    println!("{:<20} {}", "kubeconfig", place.path("admin.kubeconfig").display());
    Ok(if all_run { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the last lines of every component's log.
pub(crate) fn tails(place: &Place, lines: usize) {
    for component in Component::CONTROL_PLANE.into_iter().chain(Component::NODE) {
        tail(place, component.name(), lines);
    }
}

/// Prints the last lines of a component's log, if it has one.
pub(crate) fn tail(place: &Place, name: &str, lines: usize) {
    let file = place.path(LOGS).join(format!("{name}.log"));
    let Ok(log) = File::open(&file) else { return };
    let mut last = VecDeque::new();
    // What cannot be read is not told: this is said beside an error that matters more.
    let _ = command::each_line(log, |line| {
        last.push_back(line.to_owned());
        last.drain(..last.len().saturating_sub(lines));
    });
    command::heading(&format!("the last lines of {}", file.display()));
    for line in last {
        println!("    {line}");
    }
}
