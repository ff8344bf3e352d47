//! `bench-fleet`: measures the load of a large fleet on an API server. The program `fleet` of the benches measures; this module starts a
//! real API server for it, without a node, and stops it again.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::root::RootAccess;
use crate::workspace::{Workspace, this_program};
use crate::{build, cluster, command, setup};

/// How large.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Nodes whose reports are written.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    nodes: u32,
}

/// Brings up the API server, measures and takes it down.
///
/// # Errors
///
/// When something cannot be built, the API server does not come up, or the measuring fails.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::install(workspace, &[setup::Purpose::Build, setup::Purpose::Cluster])?;
    build(workspace)?;
    command::heading("a fleet at one API server");
    beside_api_server(workspace, |kubeconfig| {
        let program = workspace.target().join("release/fleet");
        let mut fleet = RootAccess::here()
            .command(&program, &[("KUBECONFIG", kubeconfig.as_os_str())])
            .unwrap_or_else(|| Command::new(&program));
        command::run(fleet.arg(args.nodes.to_string()))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Starts an API server without a node, calls `part` with the kubeconfig of an administrator, and stops the server whatever happened.
///
/// # Errors
///
/// If the server does not start; else the error of `part`.
pub(crate) fn beside_api_server(workspace: &Workspace, part: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let xtask = this_program()?;
    cluster_verb(&xtask, &["down"])?;
    let done = cluster_verb(&xtask, &["up"]).and_then(|()| part(&prepare(workspace)?));
    cluster_verb(&xtask, &["down"])?;
    done
}

/// Creates qosm's CRDs and the permissions to create its objects.
fn prepare(workspace: &Workspace) -> Result<PathBuf> {
    let config = cluster::default_dir(workspace).join("admin.kubeconfig");
    let kubectl = cluster::Programs::find(workspace)?.kubectl;
    let crds = Path::new(workspace.root()).join("deploy/helm/qosm/crds");
    command::run(
        Command::new(&kubectl).args(["apply", "--server-side", "--filename"]).arg(crds).env("KUBECONFIG", &config),
    )?;
    command::run(
        Command::new(&kubectl)
            .args(["wait", "--for=condition=Established", "crd/policymodules.qosm.io", "crd/nodepolicyreports.qosm.io"])
            .env("KUBECONFIG", &config),
    )?;
    Ok(config)
}

/// Runs this program's own verb, which becomes root by itself.
fn cluster_verb(xtask: &Path, args: &[&str]) -> Result<()> {
    command::run(Command::new(xtask).arg("cluster").args(args))
}
