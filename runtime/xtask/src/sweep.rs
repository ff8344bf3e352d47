//! Removes what a killed test run left: registries, a cluster, cgroups with endless loops in them, agents, and mounts without a server.
//! Otherwise they would slow the next run down, or answer in place of its own processes.
//!
//! Only what belongs to a test process that has ended is touched.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::process::Process;
use crate::root::RootAccess;
use crate::workspace::{Workspace, this_program};
use crate::{cgroup, cluster, command, registry};

/// Prefixes of the tests' cgroups, followed by the ID of the test's process.
const CGROUPS: [&str; 2] = ["qosm-test-", "qosm-probe-"];

/// Removes all leftovers. Failures are printed only, because they are not the fault of this run.
pub(crate) fn run(workspace: &Workspace, access: RootAccess) {
    command::warn(registry::sweep(workspace));
    if cluster::is_left(workspace) {
        // The verb becomes root if necessary.
        command::warn(this_program().and_then(|xtask| command::run(Command::new(xtask).args(["cluster", "down"]))));
    }
    match access {
        RootAccess::Root => command::warn(of_ended_tests()),
        RootAccess::Sudo => command::warn(as_root(access)),
        RootAccess::None => {}
    }
}

/// The part that needs root.
///
/// # Errors
///
/// What could not be removed; everything else is removed.
pub(crate) fn of_ended_tests() -> Result<()> {
    let mut result = Ok(());
    let groups = left_cgroups();
    for group in &groups {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        // The agent may write to the cgroup, and create what is missing.
        for agent in Process::with_argument(&format!("/{name}")) {
            result = result.and(agent.end(Duration::ZERO));
        }
        println!("    taking away {}, which a test left behind", group.display());
        result = result.and(cgroup::remove(group));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for point in emulations(&mounts).into_iter().filter(|point| is_dead(point)) {
        println!("    unmounting {}, whose server has gone", point.display());
        result = result.and(command::output(Command::new("umount").arg("--lazy").arg(&point)).map(drop));
    }
    result
}

fn as_root(access: RootAccess) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let variables: [(&str, &OsStr); 1] = [("PATH", &path)];
    match access.command(this_program()?, &variables) {
        Some(mut xtask) => command::run(xtask.arg("sweep")),
        None => Ok(()),
    }
}

/// The cgroups at the top of each hierarchy, of v2 or of a v1 controller, whose process has ended.
fn left_cgroups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let folders = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
    };
    let hierarchies = folders(root);
    let tops = folders(root).into_iter().chain(hierarchies.iter().flat_map(|hierarchy| folders(hierarchy)));
    tops.filter(|group| {
        let owner = group.file_name().and_then(OsStr::to_str).and_then(owner);
        owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    })
    .collect()
}

/// ID of the process that the cgroup's name contains.
fn owner(name: &str) -> Option<u32> {
    let rest = CGROUPS.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    rest.split('-').next()?.parse().ok()
}

/// Mount points of emulated resctrl (proc_pid_mounts(5): the second and third field).
fn emulations(mounts: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let points = fields.filter(|fields| fields.get(2).is_some_and(|kind| *kind == "fuse.resctrl"));
    points.filter_map(|fields| Some(PathBuf::from(fields.get(1)?.replace("\\040", " ")))).collect()
}

/// Whether the server of a mount is gone.
fn is_dead(point: &Path) -> bool {
    fs::metadata(point).is_err_and(|error| error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_names_the_process_that_made_it() {
        assert_eq!(owner("qosm-test-4711-3"), Some(4711));
        assert_eq!(owner("qosm-test-4711-resctrl-3"), Some(4711));
        assert_eq!(owner("qosm-probe-4711"), Some(4711));
        assert_eq!(owner("qosm-test-node"), None);
        assert_eq!(owner("kubepods"), None);
    }

    #[test]
    fn only_emulations_are_looked_at() {
        let mounts = "proc /proc proc rw 0 0\nresctrl /tmp/a\\040b fuse.resctrl rw 0 0\nresctrl /sys/fs/resctrl resctrl rw 0 0\n";
        assert_eq!(emulations(mounts), [PathBuf::from("/tmp/a b")]);
    }
}
