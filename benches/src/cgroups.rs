//! Cgroups for a bench: `qosm-bench-<pid>/kubepods/…`, created as a kubelet does and removed when the bench ends. If they cannot be
//! created, the bench fails; there is no substitute.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::{Directories, Driver, Host, LayoutOptions};
use qosm_model::pod::{Pod, Tier};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const PREFIX: &str = "qosm-bench-";

/// Descriptors that the largest bench needs: eight files for each container, opened by the agent and by the bare reads.
const FILES: u64 = 18_000;

/// The cgroups of a bench. Dropping it removes them.
pub struct Tree {
    root: String,
    /// The root's directory in each hierarchy.
    directories: BTreeSet<PathBuf>,
    pods: Vec<Pod>,
}

impl Tree {
    /// Creates the cgroups of these pods, with the limits of their specification.
    ///
    /// # Errors
    ///
    /// If this process is not root, or the cgroups cannot be created; the error says what is missing and how to fix it.
    pub fn plant(pods: Vec<Pod>) -> anyhow::Result<Self> {
        anyhow::ensure!(
            rustix::process::geteuid().is_root(),
            "this bench reads and writes cgroups of its own and needs root for that: run `sudo -E make bench`; nothing was measured"
        );
        allow_files()?;
        let mut tree =
            Self { root: format!("{PREFIX}{}", std::process::id()), directories: BTreeSet::new(), pods: Vec::new() };
        let mut host = tree.host()?;
        let mounts: BTreeSet<_> =
            host.facts().controllers.into_iter().filter_map(|controller| controller.mount).collect();
        for mount in &mounts {
            sweep(Path::new(mount));
        }
        tree.directories = mounts.iter().map(|mount| Path::new(mount).join(&tree.root)).collect();
        let mut make = || -> Result<(), qosm_host::HostError> {
            for tier in Tier::ALL {
                let path = host.tier_path(tier);
                host.create(&path)?;
            }
            pods.iter().try_for_each(|pod| host.provision(pod).map(drop))
        };
        make().context("this bench needs cgroups that it may make and write: run it as root on the node itself, not in a container; nothing was measured")?;
        tree.pods = pods;
        Ok(tree)
    }

    /// The root's path relative to each hierarchy, for the agent's `--cgroup-root`.
    pub fn root(&self) -> String {
        format!("/{}", self.root)
    }

    /// A host that sees only these cgroups.
    ///
    /// # Errors
    ///
    /// If the node's directories cannot be opened.
    pub fn host(&self) -> anyhow::Result<Host> {
        self.host_with(Path::new("/proc"))
    }

    /// Like [`Self::host`], with another `/proc`.
    ///
    /// # Errors
    ///
    /// As [`Self::host`].
    pub fn host_with(&self, proc: &Path) -> anyhow::Result<Host> {
        let dir = |path: &Path| {
            Dir::open_ambient_dir(path, ambient_authority()).with_context(|| format!("cannot open {}", path.display()))
        };
        let directories = Directories {
            cgroup: dir(Path::new("/sys/fs/cgroup"))?,
            proc: dir(proc)?,
            sys: dir(Path::new("/sys"))?,
            kubelet: None,
            sysctl: None,
        };
        let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: self.root.clone() };
        Host::open(directories, &options).context("the host's cgroups cannot be used")
    }

    /// The directories of a pod's first container, one for each hierarchy.
    ///
    /// # Errors
    ///
    /// If there is no such pod, or its container has no cgroup.
    pub fn of_container(&self, pod: usize) -> anyhow::Result<Vec<PathBuf>> {
        let pod = self.pods.get(pod).context("there is no such pod")?;
        let container = pod.containers.first().context("the pod has no container")?;
        let host = self.host()?;
        let path = host.container_path(pod, container)?.context("the container has no group")?;
        let mounts: BTreeSet<_> = host.facts().controllers.into_iter().filter_map(|fact| fact.mount).collect();
        Ok(mounts.iter().map(|mount| Path::new(mount).join(&path)).filter(|directory| directory.exists()).collect())
    }

    /// The first `count` pods of the tree, or all if it has fewer.
    pub fn pods(&self, count: u32) -> &[Pod] {
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.pods.len());
        &self.pods[..count]
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for directory in &self.directories {
            if let Err(error) = remove(directory) {
                eprintln!("warning: {} stays: {error}", directory.display());
            }
        }
    }
}

/// Raises this process's limit of open files as far as needed. A host without free descriptors opens files at each read, which would
/// distort the measurement.
fn allow_files() -> anyhow::Result<()> {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|limit| limit >= FILES) {
        return Ok(());
    }
    let maximum = now.maximum.map(|maximum| maximum.max(FILES));
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum })
        .with_context(|| format!("this bench keeps {FILES} files open: allow that with `ulimit -n {FILES}`"))
}

/// Removes cgroups of benches that were killed.
fn sweep(mount: &Path) {
    let Ok(entries) = fs::read_dir(mount) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
            && let Err(error) = remove(&entry.path())
        {
            eprintln!("warning: {}, left by an earlier bench, stays: {error}", entry.path().display());
        }
    }
}

/// Removes a cgroup and all below it. A missing cgroup is no error.
fn remove(directory: &Path) -> io::Result<()> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => {
            for entry in entries? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    remove(&entry.path())?;
                }
            }
        }
    }
    fs::remove_dir(directory)
}
