//! What the benches share: pods, cgroups of their own, the loop at work, the bare reads that it is held against, and the figures
//! that they leave for the summary.
//!
//! Each bench keeps one promise and is one file beside this crate's `README.md`, which says what each figure means. Reading
//! order: [`workload`] (the pods and what is measured of them), [`cgroups`] (their groups on this machine), [`ticking`] (the
//! agent that works on them), [`bare`] (the same files read without it), [`side_by_side`] (fair ratios), [`figures`].

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

/// Cargo's target directory, as this program lies in it: `release/deps/<bench>` or `release/<binary>` below it.
///
/// # Errors
///
/// When this program lies somewhere else.
pub fn target_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let folder = program.parent().context("this program lies in no folder")?;
    let profile = if folder.ends_with("deps") { folder.parent().context("`deps` lies in no folder")? } else { folder };
    Ok(profile.parent().context("this program lies in no target directory")?.to_path_buf())
}

/// Set for a run that only shows that the benches still run: each in its shortest form, with figures that mean nothing.
const SHORT: &str = "QOSM_BENCH_SHORT";

/// Whether the benches run in their shortest form.
pub fn is_short() -> bool {
    std::env::var_os(SHORT).is_some_and(|value| !value.is_empty() && value != "0")
}

/// How many rounds, ticks or seconds a bench takes: the first, or the second in its shortest form.
pub fn length<T>(whole: T, short: T) -> T {
    if is_short() { short } else { whole }
}

/// Criterion with few enough samples that all benches end within some minutes, leaving its estimates where the summary looks.
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

/// Whether a bench that is not criterion's is asked for: nothing else is, or its name has what is asked for in it.
pub fn is_wanted(bench: &str) -> bool {
    let mut filters = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    filters.peek().is_none() || filters.any(|filter| bench.contains(&filter))
}

/// Runs a bench that is not criterion's, if it is asked for, and prints what kept it from its end.
pub fn run_if_wanted(bench: &str, run: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match if is_wanted(bench) { run() } else { Ok(()) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything is asked for. With a filter or for a profiler criterion's benchmarks run alone, and the figures of the last
/// whole run stay.
pub fn is_whole_run() -> bool {
    std::env::args().skip(1).all(|argument| argument == "--bench")
}
