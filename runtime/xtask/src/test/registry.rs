//! The tests beside container registries: starts them, if they do not run, and takes them down then, whatever happened.

use std::process::Command;

use anyhow::{Result, bail};

use super::interruptible::counted;
use super::{REGISTRY, Tally, TestProgram, programs};
use crate::command;
use crate::interrupt::Interrupt;
use crate::registry::Registries;
use crate::workspace::Workspace;

/// Builds the tests, runs them and counts what they report.
///
/// # Errors
///
/// When something cannot be built, the registries do not come up, or this process is asked to end.
pub(super) fn run(workspace: &Workspace, filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    command::heading("building the registry tests");
    let tests = programs(workspace, REGISTRY)?;
    // From here on Ctrl-C ends the tests, and the registries are taken down.
    let interrupt = Interrupt::listen()?;
    let registries = Registries::up(workspace, &interrupt)?;
    let before = tally.failed;
    let result = all(workspace, &registries, &tests, filter, &interrupt, tally);
    if (result.is_err() || tally.failed > before) && !interrupt.asked() {
        registries.tails();
    }
    registries.leave()?;
    if interrupt.asked() {
        bail!("interrupted");
    }
    result
}

fn all(
    workspace: &Workspace,
    registries: &Registries,
    tests: &[TestProgram],
    filter: Option<&str>,
    interrupt: &Interrupt,
    tally: &mut Tally,
) -> Result<()> {
    for test in tests {
        command::heading(&format!("registry tests of {}", test.package));
        let mut program = Command::new(&test.program);
        program.env("QOSM_REGISTRY_BED", registries.bed()).env("RUST_BACKTRACE", "1");
        program.env("QOSM_BIN", workspace.binary()).env("QOSM_MODULES", workspace.modules());
        program.args(["--test-threads=1"]).args(filter).current_dir(&test.folder);
        counted(&mut program, interrupt, tally)?;
    }
    Ok(())
}
