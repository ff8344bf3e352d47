//! The programs of a cluster, in the user's cache by version: Debian's packages are unpacked; Kubernetes' own binaries are downloaded if
//! the server is in reach, else built with Go, as containerd is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::kubernetes::Module;
use crate::debian::{self, Packaged};
use crate::download::Download;
use crate::workspace::{Workspace, keep};
use crate::{command, containerd, go, setup};

/// The version of all programs of Kubernetes' own repository.
pub(crate) const KUBERNETES: &str = "1.36.3";

/// Binaries of Kubernetes' own repository. They are built one after the other, since each reuses most of what the previous ones compiled.
const OF_KUBERNETES: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];

const HELM: &str = "4.3.1";

const ETCD: Packaged = ("etcd-server", "usr/bin", "etcd");
const RUNC: Packaged = ("runc", "usr/sbin", "runc");
const CNI: Packaged = ("containernetworking-plugins", "usr/lib/cni", "ptp");
const BUSYBOX: Packaged = ("busybox-static", "bin", "busybox");
/// Unpacked only, because an installed Prometheus would be started.
const PROMTOOL: Packaged = ("prometheus", "usr/bin", "promtool");

/// The path of each program.
#[derive(Debug)]
pub(crate) struct Programs {
    /// etcd.
    pub(crate) etcd: PathBuf,
    /// kube-apiserver.
    pub(crate) apiserver: PathBuf,
    /// kube-controller-manager.
    pub(crate) controller_manager: PathBuf,
    /// kube-scheduler.
    pub(crate) scheduler: PathBuf,
    /// kubelet.
    pub(crate) kubelet: PathBuf,
    /// kubectl, of the same version.
    pub(crate) kubectl: PathBuf,
    /// helm.
    pub(crate) helm: PathBuf,
    /// containerd; its shim is next to it.
    pub(crate) containerd: PathBuf,
    /// containerd's command line.
    pub(crate) ctr: PathBuf,
    /// runc.
    pub(crate) runc: PathBuf,
    /// Folder of the CNI plugins.
    pub(crate) cni: PathBuf,
    /// A statically linked busybox, for the images.
    pub(crate) busybox: PathBuf,
    /// Runs the tests of Prometheus' alerts.
    pub(crate) promtool: PathBuf,
}

impl Programs {
    /// Downloads and builds the missing programs.
    ///
    /// # Errors
    ///
    /// What is missing and cannot be installed; the error says which command to run.
    pub(crate) fn build(workspace: &Workspace) -> Result<Self> {
        let cache = cache(workspace)?;
        setup::program("openssl", "keys for the cluster", "openssl")?;
        debian::unpack(&cache.join("debian"), &[ETCD, RUNC, CNI, BUSYBOX, PROMTOOL], "the cluster")?;
        let missing = |name: &&str| !bin(&cache).join(name).exists();
        fs::create_dir_all(bin(&cache)).with_context(|| format!("{} cannot be made", bin(&cache).display()))?;
        let wanted: Vec<_> = OF_KUBERNETES.into_iter().filter(missing).collect();
        if !wanted.is_empty() {
            command::heading(&format!("getting Kubernetes {KUBERNETES}: {}", wanted.join(" ")));
            kubernetes(&cache, &wanted)?;
        }
        containerd::build(workspace)?;
        if missing(&"helm") {
            command::heading("getting helm");
            let fresh = bin(&cache).join("helm.new");
            if !Download::of_helm(HELM).is_had(&fresh) {
                go::install(&format!("helm.sh/helm/v4/cmd/helm@v{HELM}"), &fresh)?;
            }
            keep(&fresh, "helm")?;
        }
        Self::find(workspace)
    }

    /// The paths of all programs.
    ///
    /// # Errors
    ///
    /// If a program is not there yet.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        let cache = cache(workspace)?;
        let build = "run `cargo xtask cluster build`";
        let built = |name: &str| {
            let file = bin(&cache).join(name);
            if file.exists() { Ok(file) } else { bail!("{name} is missing: {build}") }
        };
        let packaged = |package: Packaged| {
            debian::program(&cache.join("debian"), package)
                .with_context(|| format!("{} is missing: {build}", package.2))
        };
        let containerd = |name: &str| {
            let file = containerd::folder(workspace)?.join(name);
            if file.exists() { Ok(file) } else { bail!("{name} is missing: {build}") }
        };
        let cni = packaged(CNI)?.parent().map(Path::to_path_buf).context("a program lies in no folder")?;
        Ok(Self {
            etcd: packaged(ETCD)?,
            apiserver: built("kube-apiserver")?,
            controller_manager: built("kube-controller-manager")?,
            scheduler: built("kube-scheduler")?,
            kubelet: built("kubelet")?,
            kubectl: built("kubectl")?,
            helm: built("helm")?,
            containerd: containerd("containerd")?,
            ctr: containerd("ctr")?,
            runc: packaged(RUNC)?,
            cni,
            busybox: packaged(BUSYBOX)?,
            promtool: packaged(PROMTOOL)?,
        })
    }

    /// A kubectl command with the permissions of the cluster's administrator.
    pub(crate) fn kubectl(&self, state: &super::StateDir) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.arg("--kubeconfig").arg(state.path("admin.kubeconfig")).arg("--request-timeout=5s");
        kubectl
    }
}

/// The folder of this version.
fn cache(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("cluster/v{KUBERNETES}")))
}

fn bin(cache: &Path) -> PathBuf {
    cache.join("bin")
}

/// Downloads the binaries, and builds those that cannot be downloaded.
fn kubernetes(cache: &Path, wanted: &[&str]) -> Result<()> {
    let mut module = None;
    let mut reachable = true;
    for name in wanted {
        let fresh = bin(cache).join(format!("{name}.new"));
        reachable = reachable && Download::of_kubernetes(name, KUBERNETES).is_had(&fresh);
        if !reachable {
            let module = match &module {
                Some(module) => module,
                None => module.insert(Module::of_kubernetes(cache, KUBERNETES)?),
            };
            module.build(name, &fresh)?;
        }
        keep(&fresh, name)?;
    }
    Ok(())
}
