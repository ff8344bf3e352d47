//! Shared code of the benches: pods, cgroups, the running loop, the bare reads that it is compared with, and the figures for the summary.
//!
//! Each bench measures one promise and is one file next to this crate's `README.md`, which explains each figure. Reading order:
//! [`workload`] (the pods and their columns), [`cgroups`] (their cgroups on this machine), [`ticking`] (the agent that works on them),
//! [`bare`] (the same files read without it), [`side_by_side`] (fair ratios), [`figures`].

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use criterion::Criterion;

pub mod bare;
pub mod cgroups;
pub mod figures;
pub mod modules;
pub mod side_by_side;
pub mod ticking;
pub mod workload;

/// Cargo's target directory, derived from this program's path: `release/deps/<bench>` or `release/<binary>` below it.
///
/// # Errors
///
/// If this program is somewhere else.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let folder = program.parent().context("this program lies in no folder")?;
    let profile = if folder.ends_with("deps") { folder.parent().context("`deps` lies in no folder")? } else { folder };
    Ok(profile.parent().context("this program lies in no target directory")?.to_path_buf())
}

/// Set for a run that only checks that the benches still work: each runs in its shortest form, and the figures mean nothing.
const SHORT: &str = "QOSM_BENCH_SHORT";

/// Whether the benches run in their shortest form.
pub fn is_short() -> bool {
    std::env::var_os(SHORT).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Number of rounds, ticks or seconds of a bench: `whole`, or `short` in its shortest form.
pub fn length<T>(whole: T, short: T) -> T {
    if is_short() { short } else { whole }
}

/// Criterion with a number of samples that lets all benches end within some minutes, and with its output where the summary reads it.
///
/// # Errors
///
/// As [`target_directory`].
pub fn criterion() -> anyhow::Result<Criterion> {
    let millis = |whole, short| Duration::from_millis(length(whole, short));
    Ok(Criterion::default()
        .without_plots()
        .output_directory(&figures::criterion_directory()?)
        .sample_size(length(20, 10))
        .nresamples(length(100_000, 100))
        .warm_up_time(millis(300, 1))
        .measurement_time(millis(1500, 1))
        .configure_from_args())
}

/// Whether a bench without criterion is selected on the command line: there is no filter, or one that its name contains.
pub fn is_wanted(bench: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| bench.contains(&filter))
}

/// Runs a bench without criterion if it is selected, and prints its error.
pub fn run_if_wanted(bench: &str, run: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match if is_wanted(bench) { run() } else { Ok(()) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all benches are selected. With a filter or for a profiler only criterion's benchmarks run, and the figures of the last whole run
/// stay.
pub fn is_whole_run() -> bool {
    std::env::args().skip(1).all(|argument| argument == "--bench")
}
