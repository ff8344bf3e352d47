//! A real cluster for tests, on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler; with `--node` also
//! containerd and a kubelet, so that pods run in cgroups that a kubelet made.
//!
//! [`programs`] downloads and builds the programs, [`choices`] holds addresses and names, [`config`] writes configuration files,
//! [`component`] defines the command lines, [`up`] and [`down`] start and stop the processes in order, and [`undo`] restores what a node
//! changes outside of its folder.
//!
//! A machine can have one node at a time: its name, cgroup and address are fixed, so that tests can rely on them.
//!
//! Such a cluster has no DNS and no kube-proxy, so the only service with a working address is `kubernetes`, and only for pods on the host's
//! network. It has no registry either, so images are imported (`ctr images import`) and pods set `imagePullPolicy: Never`. Everything else
//! is real: admission, RBAC and the Node authorizer, service accounts with tokens, owner references, DaemonSets.

mod choices;
mod component;
mod config;
mod down;
mod images;
mod kubernetes;
mod programs;
mod status;
mod undo;
mod up;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::root::RootAccess;
use crate::workspace::{Workspace, this_program};

use choices::Driver;
pub(crate) use choices::StateDir;
use component::Component;
pub(crate) use programs::Programs;

/// What can be done with the cluster.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Downloads and builds the programs of a cluster, once per version; does and prints nothing if all exist.
    Build,
    /// Starts a cluster, or the components of it that do not run; writes DIR/admin.kubeconfig.
    Up(Up),
    /// Ends a cluster with everything that runs in it, and removes its folder. Works also after a crash, and if there is no cluster.
    Down(Folder),
    /// Ends one component and leaves the others running.
    Stop(One),
    /// Starts a component that was stopped, with its old data, and waits until it is ready.
    Start(One),
    /// Imports an image, as written by `xtask image`, into the node.
    Import {
        /// File of the image.
        file: PathBuf,
        #[command(flatten)]
        folder: Folder,
    },
    /// Prints which components run.
    Status(Folder),
    /// Prints the last lines of each component's log.
    Logs(Folder),
}

/// A cluster's folder.
#[derive(clap::Args)]
pub(crate) struct Folder {
    /// Folder of the cluster's data, logs and kubeconfigs. Default: `cluster` in the target directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How to start.
#[derive(clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    folder: Folder,
    /// Also starts a node: containerd and a kubelet on this machine. Needs root.
    #[arg(long)]
    node: bool,
    /// The node's cgroup driver. `systemd` needs a machine of its own, such as that of `cargo xtask vm run --systemd`.
    #[arg(long, value_enum, default_value_t, requires = "node")]
    cgroup_driver: Driver,
    /// Also imports this workspace's image under the name that the chart uses, and prints the next commands.
    #[arg(long, requires = "node")]
    image: bool,
}

/// Which component, of which cluster.
#[derive(clap::Args)]
pub(crate) struct One {
    component: Component,
    #[command(flatten)]
    folder: Folder,
}

/// Runs the verb, as root if it needs root and `sudo` permits it.
///
/// # Errors
///
/// Those of the verb.
pub(crate) fn run(workspace: &Workspace, verb: &Verb) -> Result<ExitCode> {
    let folder = match verb {
        Verb::Build => return Programs::build(workspace).map(|_| ExitCode::SUCCESS),
        Verb::Up(up) => &up.folder,
        Verb::Down(folder) | Verb::Import { folder, .. } | Verb::Status(folder) | Verb::Logs(folder) => folder,
        Verb::Stop(one) | Verb::Start(one) => &one.folder,
    };
    let state = StateDir::at(folder.dir.clone().unwrap_or_else(|| default_dir(workspace)))?;
    if let Verb::Up(up) = verb {
        // Build as the calling user, who then owns what is built.
        Programs::build(workspace)?;
        if up.image && std::env::var_os(AS_ROOT).is_none() {
            crate::build(workspace)?;
        }
    }
    if needs_root(verb, &state) && RootAccess::here() != RootAccess::Root {
        return again_as_root();
    }
    let programs = || Programs::find(workspace);
    match verb {
        Verb::Build => {}
        Verb::Up(up) => up::run(workspace, &state, &programs()?, up)?,
        Verb::Down(_) => down::run(&state)?,
        Verb::Stop(one) => up::stop(&state, one.component)?,
        Verb::Start(one) => up::start(&state, &programs()?, one.component)?,
        Verb::Import { file, .. } => images::import(&programs()?, file)?,
        Verb::Logs(_) => status::tails(&state, 40),
        Verb::Status(_) => return status::run(&state),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether anything remains of a cluster in the default folder, or of a node.
pub(crate) fn is_left(workspace: &Workspace) -> bool {
    default_dir(workspace).exists() || undo::owner().is_ok_and(|owner| owner.is_some())
}

/// The default folder of a cluster.
pub(crate) fn default_dir(workspace: &Workspace) -> PathBuf {
    workspace.target().join("cluster")
}

/// Whether a verb needs root: for a node, and for a cluster that root started.
fn needs_root(verb: &Verb, state: &StateDir) -> bool {
    use std::os::unix::fs::MetadataExt;
    let wants_node = matches!(verb, Verb::Up(Up { node: true, .. }));
    wants_node || std::fs::metadata(state.dir()).is_ok_and(|metadata| metadata.uid() == 0)
}

/// Set when the command runs itself again as root, which must not build: root would own the files.
const AS_ROOT: &str = "QOSM_AS_ROOT";

/// Runs this command again through `sudo`.
fn again_as_root() -> Result<ExitCode> {
    let program = this_program()?;
    let home = std::env::var_os("HOME").unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Root uses the cache of the calling user, which has the built programs.
    let variables: [(&str, &OsStr); 3] = [("HOME", &home), ("PATH", &path), (AS_ROOT, "1".as_ref())];
    let Some(mut command) = RootAccess::here().command(program, &variables) else {
        anyhow::bail!("a node needs root: run this as root or allow `sudo` without a password");
    };
    let command: &mut Command = command.args(std::env::args_os().skip(1));
    let status = command.status().context("sudo cannot be started")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
