//! What a node does to its machine outside of the cluster's folder: noted before it starts, and put back when it has gone.

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

/// What a kubelet sets to its liking when it starts; the last one is the network plugin's.
const SYSCTLS: [&str; 7] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/ip_forward",
];

/// Folders that kubelet, containerd and the plugins make outside of their configured folders.
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

/// The machine before there was a node.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    /// The cluster's folder.
    owner: PathBuf,
    /// Whose pods' cgroups they are.
    #[serde(default)]
    driver: Driver,
    /// Each sysctl that was there.
    sysctls: BTreeMap<String, String>,
    /// Each folder that was not.
    absent: Vec<PathBuf>,
}

/// Notes how the machine is, and makes the node's cgroup.
///
/// # Errors
///
/// When another cluster's node is there, or something cannot be made.
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
/// When one has, or had and was not taken down.
pub(crate) fn refuse_another(state: &StateDir) -> Result<()> {
    match read()? {
        Some(before) if before.owner != state.dir() => {
            let owner = before.owner.display();
            bail!("there is a node of the cluster in {owner}: `cargo xtask cluster down --dir {owner}` ends it")
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes sure that there are no pods yet where this node's would be: systemd's slice of them has one name on every machine.
///
/// # Errors
///
/// When there are.
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
/// When what was noted cannot be read.
pub(crate) fn owner() -> Result<Option<PathBuf>> {
    Ok(read()?.map(|before| before.owner))
}

/// Whether this cluster has, or had, a node on this machine.
///
/// # Errors
///
/// When what was noted cannot be read.
pub(crate) fn has_node(state: &StateDir) -> Result<bool> {
    Ok(read()?.is_some_and(|before| before.owner == state.dir()))
}

/// Removes mounts, cgroups and folders of a node that has ended, and sets back the sysctls.
///
/// # Errors
///
/// What could not be put back; all the rest is.
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

/// Ends whatever still runs in the node's cgroups, and removes them.
///
/// # Errors
///
/// When something does not end.
pub(crate) fn end_pods() -> Result<()> {
    let driver = read()?.map_or_else(Driver::default, |before| before.driver);
    if driver == Driver::Systemd {
        // It would make the groups of units again that it takes to be there.
        command::output(Command::new("systemctl").args(["stop", driver.top()]))?;
    }
    cgroups(driver).iter().try_for_each(|group| cgroup::remove(group))
}

/// What was noted, in the node's folder for sockets.
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

/// The hierarchies: one on v2, one a controller on v1.
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root];
    }
    let below = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    // Where controllers share a hierarchy each single name is a link to it.
    below.filter(|path| path.join("cgroup.procs").exists() && !path.is_symlink()).collect()
}

/// The node's groups that are there.
fn cgroups(driver: Driver) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|hierarchy| hierarchy.join(driver.top())).filter(|group| group.exists()).collect()
}

/// A kubelet makes its groups below one that must be there.
fn make_cgroup(driver: Driver) -> Result<()> {
    if driver == Driver::Systemd {
        return Ok(());
    }
    for hierarchy in hierarchies() {
        let group = hierarchy.join(CGROUP);
        if !group.exists() {
            fs::create_dir(&group).with_context(|| format!("{} cannot be made", group.display()))?;
        }
        // On v1 a group without CPUs and memory nodes takes no processes.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let copy = |text: String| fs::write(group.join(file), text.trim_end());
            if hierarchy.ends_with("cpuset") {
                let copied = fs::read_to_string(hierarchy.join(file)).and_then(copy);
                copied.with_context(|| format!("{} cannot be written", group.join(file).display()))?;
            }
        }
        // On v2 it has the controllers that the one above hands down.
        if let Ok(controllers) = fs::read_to_string(hierarchy.join("cgroup.controllers")) {
            for controller in controllers.split_whitespace() {
                // One that cannot be handed down is one that the kubelet must do without.
                let _ = fs::write(hierarchy.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
    }
    Ok(())
}

/// containerd's shims listen in a folder that all containerds of a machine share, and one that was killed leaves its socket there.
fn remove_shim_sockets() {
    let tasks = Path::new(RUN).join("containerd/io.containerd.runtime.v2.task/k8s.io");
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let address = fs::read_to_string(task.path().join("address")).unwrap_or_default();
        if let Some(socket) = address.trim().strip_prefix("unix://").filter(|path| path.contains("/containerd/s/")) {
            // It may have been one that others of the same pod had, too.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Takes away the mounts in these folders, the last one first.
fn unmount(folders: &[&Path]) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("the mounts cannot be read")?;
    for point in mount_points(&mounts, folders).iter().rev() {
        command::output(Command::new("umount").arg("--lazy").arg(point))?;
    }
    Ok(())
}

/// The mount points in these folders, in the order in which they were made (proc_pid_mountinfo(5): the fifth field).
fn mount_points(mountinfo: &str, folders: &[&Path]) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // A blank in a path is written as a number, so that it separates nothing.
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
