//! `bench-fleet`: what a large fleet asks of an API server. The measuring is done by the program `fleet` of the benches; this brings
//! up a real API server for it, without a node, and takes it down again.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::privilege::Privilege;
use crate::workspace::Workspace;
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
    let xtask = workspace.target().join("release/xtask");
    cluster_verb(&xtask, &["down"])?;
    let measured = cluster_verb(&xtask, &["up"]).and_then(|()| measure(workspace, args));
    cluster_verb(&xtask, &["down"])?;
    measured.map(|()| ExitCode::SUCCESS)
}

fn measure(workspace: &Workspace, args: &Args) -> Result<()> {
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
    let program = workspace.target().join("release/fleet");
    let mut fleet = Privilege::here()
        .command(&program, &[("KUBECONFIG", config.as_os_str())])
        .unwrap_or_else(|| Command::new(&program));
    command::run(fleet.arg(args.nodes.to_string()))
}

/// This program's own verb, which becomes root by itself.
fn cluster_verb(xtask: &Path, args: &[&str]) -> Result<()> {
    command::run(Command::new(xtask).arg("cluster").args(args))
}
