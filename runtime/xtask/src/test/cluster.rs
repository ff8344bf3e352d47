//! The tests with a cluster: starts one with a node, and registries that serve modules, runs the tests one at a time, and stops everything
//! whatever happened.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::program::{TestProgram, staged};
use super::{CLUSTER, Run, Selection, Stage, Tally};
use crate::cluster::{Programs, default_dir};
use crate::registry::Registries;
use crate::{command, rego};

/// Builds the tests, runs them and counts the results.
///
/// # Errors
///
/// If something cannot be built, or the cluster does not start.
pub(super) fn run(run: &Run<'_>, selection: &Selection<'_>, tally: &mut Tally) -> Result<()> {
    let tools = Programs::find(run.workspace)?;
    command::heading("building the cluster tests");
    let tests = staged(run.workspace, CLUSTER)?;
    command::heading("a cluster with a node on this machine");
    let before = tally.failed;
    let registries = Registries::fresh(run.workspace, &run.interrupt)?;
    // The rest of an earlier run would answer in place of this one.
    let result = cluster(&run.xtask, &["down"])
        .and_then(|()| cluster(&run.xtask, &["up", "--node"]))
        .and_then(|()| all(run, &tools, &registries, &tests, selection, tally));
    if (result.is_err() || tally.failed > before) && !run.interrupt.asked() {
        command::warn(cluster(&run.xtask, &["logs"]));
    }
    command::warn(cluster(&run.xtask, &["down"]));
    registries.leave();
    result
}

/// Runs this program's own verb, which becomes root by itself.
fn cluster(xtask: &Path, args: &[&str]) -> Result<()> {
    command::run(Command::new(xtask).arg("cluster").args(args))
}

fn all(
    run: &Run<'_>,
    tools: &Programs,
    registries: &Registries,
    tests: &[TestProgram],
    selection: &Selection<'_>,
    tally: &mut Tally,
) -> Result<()> {
    let workspace = run.workspace;
    let (dir, env) = (default_dir(workspace), registries.env());
    let (config, cache) = (dir.join("admin.kubeconfig"), dir.join("kubectl-cache"));
    let (binary, policy_binary) = (workspace.binary(), workspace.policy_binary());
    let (modules, bundles) = (workspace.modules(), rego::bundles(workspace));
    let variables: [(&str, &OsStr); 14] = [
        ("KUBECONFIG", config.as_ref()),
        // Caches of kubectl and helm belong to this cluster only: the next one has the same address, and would find them in the user's
        // cache.
        ("KUBECACHEDIR", cache.as_ref()),
        ("HELM_CACHE_HOME", cache.as_ref()),
        ("QOSM_TEST_CLUSTER", dir.as_ref()),
        ("QOSM_XTASK", run.xtask.as_ref()),
        ("QOSM_REGISTRY_ENV", env.as_ref()),
        ("QOSM_KUBECTL", tools.kubectl.as_ref()),
        ("QOSM_HELM", tools.helm.as_ref()),
        ("QOSM_PROMTOOL", tools.promtool.as_ref()),
        ("QOSM_BIN", binary.as_ref()),
        ("QOSM_POLICY_BIN", policy_binary.as_ref()),
        ("QOSM_MODULES", modules.as_ref()),
        ("QOSM_BUNDLES", bundles.as_ref()),
        ("RUST_BACKTRACE", "1".as_ref()),
    ];
    for test in tests {
        command::heading(&format!("cluster tests of {}", test.package));
        // One at a time: there is one node, and parallel tests would disturb measurements on it.
        test.run_as_root(run, Stage::Cluster, selection, tally, &variables)?;
    }
    Ok(())
}
