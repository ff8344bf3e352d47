//! Changes of a node to its machine outside of the cluster's folder: recorded before the node starts, and undone after it has ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::choices::{CGROUP, Driver, RUN, StateDir};
use crate::state_dir::remove;
use crate::{cgroup, command};

const CGROUPS: &str = "/sys/fs/cgroup";

/// Sysctls that a kubelet sets when it starts; the last one is set by the network plugin.
const SYSCTLS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];

/// Folders that kubelet, containerd and the plugins create outside of their configured folders.
const FOLDERS: [&str; 11] = [
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/run/runc",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
];

/// The state of the machine before there was a node.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    /// The cluster's folder.
    owner: PathBuf,
    /// The cgroup driver of the node.
    #[serde(default)]
    driver: Driver,
    /// Values of the existing sysctls.
    sysctls: BTreeMap<String, String>,
    /// Folders that did not exist.
    absent: Vec<PathBuf>,
}

/// Records the state of the machine, and creates the node's cgroup.
///
/// # Errors
///
/// If there is another cluster's node, or something cannot be created.
pub(crate) fn note(state: &StateDir, driver: Driver) -> Result<()> {
    refuse_another(state)?;
    if read()?.is_some() {
        return make_cgroup(driver);
    }
    let sysctl = |name: &&str| Some(((*name).to_owned(), fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?));
    let before = Before {
        owner: state.dir().to_path_buf(),
        driver,
        sysctls: SYSCTLS.iter().filter_map(sysctl).collect(),
        absent: FOLDERS.iter().map(PathBuf::from).filter(|folder| !folder.exists()).collect(),
    };
    let run = StateDir::at(RUN.into())?;
    run.make("")?;
    run.write(NOTE, &serde_json::to_string_pretty(&before).context("what was noted is no JSON")?)?;
    make_cgroup(driver)
}

/// Makes sure that no other cluster has a node on this machine.
///
/// # Errors
///
/// If another cluster has a node, or had one that was not removed.
pub(crate) fn refuse_another(state: &StateDir) -> Result<()> {
    match read()? {
        Some(before) if before.owner != state.dir() => {
            let owner = before.owner.display();
            bail!("there is a node of the cluster in {owner}: `cargo xtask cluster down --dir {owner}` ends it")
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes sure that there are no pods yet in the cgroup of this node's pods: systemd's slice of pods has the same name on every machine.
///
/// # Errors
///
/// If there are any.
pub(crate) fn refuse_anothers_pods(driver: Driver) -> Result<()> {
    if driver == Driver::Systemd {
        ensure!(
            Path::new("/run/systemd/system").exists(),
            "systemd is not this machine's first process: `--cgroup-driver cgroupfs`, or `cargo xtask vm run --systemd`"
        );
        let pods = cgroups(driver);
        ensure!(pods.is_empty(), "another kubelet has its pods in {}: `--cgroup-driver cgroupfs`", pods[0].display());
    }
    Ok(())
}

/// The folder of the cluster that has, or had, a node on this machine.
///
/// # Errors
///
/// When the record cannot be read.
pub(crate) fn owner() -> Result<Option<PathBuf>> {
    Ok(read()?.map(|before| before.owner))
}

/// Whether this cluster has, or had, a node on this machine.
///
/// # Errors
///
/// When the record cannot be read.
pub(crate) fn has_node(state: &StateDir) -> Result<bool> {
    Ok(read()?.is_some_and(|before| before.owner == state.dir()))
}

/// Removes mounts, cgroups and folders of a node that has ended, and restores the sysctls.
///
/// # Errors
///
/// What could not be restored; everything else is.
pub(crate) fn sweep(state: &StateDir) -> Result<()> {
    remove_shim_sockets();
    let mut left = Vec::new();
    left.extend(unmount(&[state.dir(), Path::new(RUN)]).err());
    let before = read()?;
    let driver = before.as_ref().map_or_else(Driver::default, |before| before.driver);
    left.extend(cgroups(driver).iter().filter_map(|group| cgroup::remove(group).err()));
    if let Some(before) = before {
        for (name, value) in before.sysctls {
            let file = Path::new("/proc/sys").join(name);
            if fs::read_to_string(&file).is_ok_and(|now| now != value) {
                let written = fs::write(&file, value.trim_end());
                left.extend(written.with_context(|| format!("{} cannot be set back", file.display())).err());
            }
        }
        for folder in before.absent.iter().filter(|folder| folder.exists()) {
            left.extend(remove(folder).err());
        }
    }
    if left.is_empty() {
        left.extend(remove(Path::new(RUN)).err());
    }
    match left.into_iter().next() {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Kills all processes in the node's cgroups, and removes the cgroups.
///
/// # Errors
///
/// When something does not end.
pub(crate) fn end_pods() -> Result<()> {
    let driver = read()?.map_or_else(Driver::default, |before| before.driver);
    if driver == Driver::Systemd {
        // systemd would recreate the cgroups of units that it considers active.
        command::output(Command::new("systemctl").args(["stop", driver.top()]))?;
    }
    cgroups(driver).iter().try_for_each(|group| cgroup::remove(group))
}

/// Name of the record, in the folder of the node's sockets.
const NOTE: &str = "before.json";

fn file() -> PathBuf {
    Path::new(RUN).join(NOTE)
}

fn read() -> Result<Option<Before>> {
    match fs::read_to_string(file()) {
        Ok(text) => serde_json::from_str(&text).map(Some).with_context(|| format!("{} is damaged", file().display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", file().display())),
    }
}

/// The hierarchies: one on v2, one for each controller on v1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root];
    }
    let below = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    // If controllers share a hierarchy, the name of each is a symbolic link to it.
    below.filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink()).collect()
}

/// The existing cgroups of the node.
fn cgroups(driver: Driver) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|hierarchy| hierarchy.join(driver.top())).filter(|group| group.exists()).collect()
}

/// Creates the cgroup in which the kubelet creates its own; the kubelet requires it to exist.
fn make_cgroup(driver: Driver) -> Result<()> {
    if driver == Driver::Systemd {
        return Ok(());
    }
    for hierarchy in hierarchies() {
        let group = hierarchy.join(CGROUP);
        if !group.exists() {
            fs::create_dir(&group).with_context(|| format!("{} cannot be made", group.display()))?;
        }
        // On v1, a cgroup without CPUs and memory nodes accepts no processes.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let copy = |text: String| fs::write(group.join(file), text.trim_end());
            if hierarchy.ends_with("cpuset") {
                let copied = fs::read_to_string(hierarchy.join(file)).and_then(copy);
                copied.with_context(|| format!("{} cannot be written", group.join(file).display()))?;
            }
        }
        // On v2, the cgroup has the controllers that its parent enables.
        if let Ok(controllers) = fs::read_to_string(hierarchy.join("cgroup.controllers")) {
            for controller in controllers.split_whitespace() {
                // The kubelet runs without controllers that cannot be enabled.
                let _ = fs::write(hierarchy.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
    }
    Ok(())
}

/// Removes the sockets of killed shims, which are in a folder that all containerds of a machine share.
fn remove_shim_sockets() {
    let tasks = Path::new(RUN).join("containerd/io.containerd.runtime.v2.task/k8s.io");
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let address = fs::read_to_string(task.path().join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://").filter(|path| path.contains("/containerd/s/")) {
            // Containers of the same pod share a socket, so it may be gone already.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Unmounts everything in these folders, the last mount first.
fn unmount(folders: &[&Path]) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("the mounts cannot be read")?;
    for point in mount_points(&mounts, folders).iter().rev() {
        command::output(Command::new("umount").arg("--lazy").arg(point))?;
    }
    Ok(())
}

/// The mount points in these folders, in mount order (proc_pid_mountinfo(5): the fifth field).
fn mount_points(mountinfo: &str, folders: &[&Path]) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // A space in a path is escaped, so it is no separator.
    let points = points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    points.filter(|point| folders.iter().any(|folder| point.starts_with(folder))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_in_the_folder_are_taken_away() {
        let mountinfo = "1 0 0:1 / / rw - ext4 /dev/vda rw\n\
            2 1 0:2 / /a\\040b/pods/one rw shared:1 - tmpfs tmpfs rw\n3 1 0:3 / /a\\040bc rw - tmpfs tmpfs rw\n";
        assert_eq!(mount_points(mountinfo, &[Path::new("/a b")]), [PathBuf::from("/a b/pods/one")]);
    }
}
