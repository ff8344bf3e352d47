//! The tests beside a cluster: brings one up with a node, and registries that modules come from, runs them one at a time, and takes all
//! of it down whatever happened.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::interruptible::counted;
use super::{CLUSTER, Tally, TestProgram, programs};
use crate::cluster::{Programs, default_dir};
use crate::command;
use crate::interrupt::Interrupt;
use crate::privilege::Privilege;
use crate::registry::Registries;
use crate::rego;
use crate::workspace::Workspace;

/// Builds the tests, runs them and counts what they report.
///
/// # Errors
///
/// When something cannot be built, the cluster does not come up, or this process is asked to end.
pub(super) fn run(workspace: &Workspace, privilege: Privilege, filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    let tools = Programs::find(workspace)?;
    command::heading("building the cluster tests");
    let tests = programs(workspace, CLUSTER)?;
    // From here on Ctrl-C ends the tests, and the cluster is taken down.
    let interrupt = Interrupt::listen()?;
    command::heading("a cluster with a node on this machine");
    // By its path: cargo has just built it anew, and this process runs from a file that is no more.
    let xtask = workspace.target().join("release/xtask");
    let before = tally.failed;
    // What an earlier run may have left would answer in this one's place.
    let registries = Registries::up(workspace, &interrupt)?;
    let bed = registries.bed();
    let result = cluster(&xtask, &["down"])
        .and_then(|()| cluster(&xtask, &["up", "--node"]))
        .and_then(|()| all(workspace, privilege, &tools, &xtask, &bed, &tests, filter, &interrupt, tally));
    let failed = result.is_err() || tally.failed > before;
    let told = if failed && !interrupt.asked() { cluster(&xtask, &["logs"]) } else { Ok(()) };
    let down = cluster(&xtask, &["down"]);
    registries.leave()?;
    down?;
    told?;
    if interrupt.asked() {
        bail!("interrupted");
    }
    result
}

/// This program's own verb, which becomes root by itself.
fn cluster(xtask: &Path, args: &[&str]) -> Result<()> {
    command::run(Command::new(xtask).arg("cluster").args(args))
}

#[expect(clippy::too_many_arguments, reason = "the tests are told where everything is")]
fn all(
    workspace: &Workspace,
    privilege: Privilege,
    tools: &Programs,
    xtask: &Path,
    bed: &Path,
    tests: &[TestProgram],
    filter: Option<&str>,
    interrupt: &Interrupt,
    tally: &mut Tally,
) -> Result<()> {
    let dir = default_dir(workspace);
    let (config, binary, modules) = (dir.join("admin.kubeconfig"), workspace.binary(), workspace.modules());
    let bundles = rego::bundles(workspace);
    let variables: [(&str, &OsStr); 10] = [
        ("KUBECONFIG", config.as_ref()),
        ("QOSM_TEST_CLUSTER", dir.as_ref()),
        ("QOSM_XTASK", xtask.as_ref()),
        ("QOSM_REGISTRY_BED", bed.as_ref()),
        ("QOSM_KUBECTL", tools.kubectl.as_ref()),
        ("QOSM_HELM", tools.helm.as_ref()),
        ("QOSM_BIN", binary.as_ref()),
        ("QOSM_MODULES", modules.as_ref()),
        ("QOSM_BUNDLES", bundles.as_ref()),
        ("RUST_BACKTRACE", "1".as_ref()),
    ];
    for test in tests {
        command::heading(&format!("cluster tests of {}", test.package));
        let mut program = privilege.command(&test.program, &variables).context("root is not to be had")?;
        // One at a time: there is one node, and what is measured on it would measure the others.
        program.args(["--test-threads=1"]).args(filter).current_dir(&test.folder);
        counted(&mut program, interrupt, tally)?;
    }
    Ok(())
}
