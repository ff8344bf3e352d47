//! The tests with container registries: starts the registries and stops them whatever happened.

use anyhow::Result;

use super::program::{TestProgram, staged};
use super::{REGISTRY, Run, Selection, Stage, Tally, at_once};
use crate::command;
use crate::registry::Registries;

/// Builds the tests, runs them and counts the results.
///
/// # Errors
///
/// If something cannot be built, or the registries do not start.
pub(super) fn run(run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    command::heading("building the registry tests");
    let tests = staged(run.workspace, REGISTRY)?;
    let registries = Registries::fresh(run.workspace, &run.interrupt)?;
    let before = tally.failed;
    let result = all(run, &registries, &tests, selection, tally);
    if (result.is_err() || tally.failed > before) && !run.interrupt.asked() {
        registries.tails();
    }
    registries.leave();
    result
}

fn all(
    run: &Run<'_>,
    registries: &Registries,
    tests: &[TestProgram],
    selection: &Selection<'_>,
    tally: &mut Tally,
) -> Result<()> {
    for test in tests {
        command::heading(&format!("registry tests of {}", test.package));
        test.run(run, Stage::Registry, selection, tally, &mut at_once::print, |program| {
            program.env("QOSM_REGISTRY_ENV", registries.env()).env("RUST_BACKTRACE", "1");
            program.env("QOSM_BIN", run.workspace.binary()).env("QOSM_POLICY_BIN", run.workspace.policy_binary());
            program.env("QOSM_MODULES", run.workspace.modules()).env("QOSM_XTASK", &run.xtask);
            // Two threads: most tests wait for a registry, and one builds all modules with one job. Each test has its own repositories.
            program.arg("--test-threads=2");
        })?;
    }
    Ok(())
}
