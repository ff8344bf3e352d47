//! Ends all processes of a pod's cgroup.
//!
//! cgroup v2 kills a whole tree with one write (`cgroup.kill`, Linux 5.14; Documentation/admin-guide/cgroup-v2.rst).
//! Otherwise the host sends each process a signal, including those forked meanwhile.

use std::collections::BTreeSet;

use qosm_model::knob::Target;

use crate::backend::{Area, Backend as _, join};
use crate::error::{self, HostError};
use crate::mounts::CgroupVersion;
use crate::{Host, parse};

/// Levels of nested cgroups that are searched for processes, as of a container in a container.
const DEPTH: usize = 8;
/// Number of searches for processes that were forked meanwhile.
const ROUNDS: usize = 32;
/// Maximum number of processes that one call signals.
const MAX_PROCESSES: usize = 65_536;

/// The signal that ends processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `SIGTERM`: processes may end gracefully.
    Terminate,
    /// `SIGKILL`: processes are killed.
    Kill,
}

impl Host {
    /// Ends all processes of a target's cgroup and of the cgroups below it. Returns the number of processes found; does
    /// not wait for them to exit. A cgroup without processes is no error.
    ///
    /// # Errors
    ///
    /// [`HostError::NotAttached`] and [`HostError::Gone`]; [`HostError::Unsupported`] for a cgroup that contains this
    /// process, for processes of another PID namespace if the kernel has no `cgroup.kill`, and for processes that fork
    /// faster than they are ended; [`HostError::Signal`].
    pub fn end_processes(&mut self, target: Target, ending: Ending) -> Result<usize, HostError> {
        let attached = self.targets.get(&target).ok_or(HostError::NotAttached { target })?;
        let path = attached.path.clone();
        // Every hierarchy contains all processes.
        let tree = self.trees.iter().copied().find(|&tree| attached.inode(tree) != 0 && self.is_same(target, tree));
        let Some(tree) = tree else { return Err(HostError::Gone { path }) };
        let members = self.members(tree, &path, DEPTH);
        if members.iter().any(|(_, pid)| *pid == self.backend.pid()) {
            let why = "qosm itself runs in it".to_owned();
            return Err(HostError::Unsupported { what: format!("ending the processes of cgroup `{path}`"), why });
        }
        if ending == Ending::Kill && self.hierarchies.list[tree].version == CgroupVersion::V2 {
            let file = join(&path, "cgroup.kill");
            match self.backend.write(Area::Cgroup(tree), &file, "1") {
                Ok(()) => return Ok(members.len()),
                // Before Linux 5.14.
                Err(error) if error::is_absent(&error) => {}
                Err(source) => return Err(HostError::Signal { path: file, source }),
            }
        }
        self.signal_all(tree, &path, members, ending)
    }

    /// Sends each process the signal.
    fn signal_all(
        &mut self,
        tree: usize,
        path: &str,
        members: Vec<(String, u32)>,
        ending: Ending,
    ) -> Result<usize, HostError> {
        let mut seen = BTreeSet::new();
        let mut members = members;
        for _ in 0..ROUNDS {
            // Processes outside of this PID namespace have the number 0.
            if members.iter().any(|(_, pid)| *pid == 0) {
                let why = "its processes are not in this PID namespace; run qosm on the host, or with `hostPID`, or \
                           on Linux 5.14 with cgroup v2";
                let what = format!("ending the processes of cgroup `{path}`");
                return Err(HostError::Unsupported { what, why: why.to_owned() });
            }
            members.retain(|(_, pid)| !seen.contains(pid));
            if members.is_empty() {
                return Ok(seen.len());
            }
            if seen.len() >= MAX_PROCESSES {
                break;
            }
            for (directory, pid) in members {
                seen.insert(pid);
                if let Err(source) = self.backend.signal(Area::Cgroup(tree), &directory, pid, ending) {
                    return Err(HostError::Signal { path: path.to_owned(), source });
                }
            }
            if ending == Ending::Terminate {
                return Ok(seen.len());
            }
            members = self.members(tree, path, DEPTH);
        }
        let why = "its processes fork faster than they are ended; it is tried again. The kubelet's `podPidsLimit` bounds them, and \
                   Linux 5.14 with cgroup v2 ends them at once"
            .to_owned();
        Err(HostError::Unsupported { what: format!("ending the processes of cgroup `{path}`"), why })
    }

    /// The processes of a cgroup and of those below it, each with its cgroup. Unreadable cgroups are skipped: they have
    /// been removed meanwhile.
    pub(crate) fn members(&self, tree: usize, path: &str, depth: usize) -> Vec<(String, u32)> {
        let area = Area::Cgroup(tree);
        let text = self.backend.read_once(area, &join(path, "cgroup.procs")).unwrap_or_default();
        let lines = text.split(|&byte| byte == b'\n');
        let pids = lines.filter_map(|line| u32::try_from(parse::number(line)?).ok());
        let mut members: Vec<_> = pids.map(|pid| (path.to_owned(), pid)).collect();
        if depth > 0 {
            for name in self.backend.directories(area, path).unwrap_or_default() {
                members.extend(self.members(tree, &join(path, &name), depth - 1));
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Spec, Versions};
    use qosm_model::pod::PodId;

    const POD: Target = Target::Pod(PodId(1));
    const PATH: &str = "kubepods/besteffort/podu1";

    fn host(spec: Spec, processes: &[(&str, &str)]) -> Host {
        let mut host = Host::simulated(&spec).unwrap();
        host.create(&format!("{PATH}/app")).unwrap();
        host.attach(POD, PATH).unwrap();
        for (path, pids) in processes {
            let path = format!("{PATH}/{path}");
            host.simulated_mut().unwrap().set_file(path.trim_end_matches('/'), "cgroup.procs", pids).unwrap();
        }
        host
    }

    fn v1() -> Spec {
        Spec { versions: Versions::V1, ..Spec::default() }
    }

    fn v2() -> Spec {
        Spec { versions: Versions::V2, ..Spec::default() }
    }

    fn before_5_14() -> Spec {
        Spec { missing_files: ["cgroup.kill".to_owned()].into(), ..v2() }
    }

    #[test]
    fn every_process_of_the_tree_ends_on_every_kernel() {
        for (name, spec) in [("v1", v1()), ("v2", v2()), ("v2 before Linux 5.14", before_5_14())] {
            let mut host = host(spec, &[("", "4000\n"), ("app", "4001\n4002\n")]);
            assert_eq!(host.end_processes(POD, Ending::Kill).unwrap(), 3, "{name}");
            let simulated = host.simulated_mut().unwrap();
            for path in ["", "/app"] {
                let left = simulated.read_file(&format!("{PATH}{path}"), "cgroup.procs").unwrap();
                assert_eq!(left.trim(), "", "{name}");
            }
            assert_eq!(host.end_processes(POD, Ending::Kill).unwrap(), 0, "{name}: none is left, and that is fine");
        }
    }

    #[test]
    fn those_that_are_asked_to_end_may_stay() {
        let mut host = host(v1(), &[("app", "4001\n4002\n")]);
        assert_eq!(host.end_processes(POD, Ending::Terminate).unwrap(), 2);
        assert_eq!(
            host.simulated_mut().unwrap().take_signals(),
            [(4001, Ending::Terminate), (4002, Ending::Terminate)]
        );
    }

    #[test]
    fn what_cannot_be_ended_is_said_with_the_way_out() {
        let mut outside = host(v1(), &[("app", "0\n")]);
        let error = outside.end_processes(POD, Ending::Kill).unwrap_err().to_string();
        assert!(error.contains("hostPID"), "{error}");

        let mut own = host(v2(), &[("app", "1\n")]);
        let error = own.end_processes(POD, Ending::Kill).unwrap_err().to_string();
        assert!(error.contains("qosm itself runs in it"), "{error}");

        let mut gone = host(v2(), &[]);
        gone.simulated_mut().unwrap().remove_cgroup(PATH).unwrap();
        assert!(matches!(gone.end_processes(POD, Ending::Kill), Err(HostError::Gone { .. })));
        assert!(matches!(gone.end_processes(Target::Pod(PodId(2)), Ending::Kill), Err(HostError::NotAttached { .. })));
    }

    #[test]
    fn processes_that_fork_faster_than_they_end_do_not_count_as_ended() {
        let mut host = host(v1(), &[("app", "4001\n")]);
        host.simulated_mut().unwrap().set_forking(true);
        let error = host.end_processes(POD, Ending::Kill).unwrap_err().to_string();
        assert!(error.contains("podPidsLimit"), "{error}");
        host.simulated_mut().unwrap().set_forking(false);
        assert_eq!(host.end_processes(POD, Ending::Kill).unwrap(), 1);
    }

    #[test]
    fn a_cgroup_made_anew_under_the_same_name_keeps_its_processes() {
        for spec in [v1(), v2()] {
            let mut host = host(spec, &[("app", "4001\n")]);
            host.simulated_mut().unwrap().remove_cgroup(PATH).unwrap();
            host.create(PATH).unwrap();
            host.simulated_mut().unwrap().set_file(PATH, "cgroup.procs", "4009\n").unwrap();
            assert!(matches!(host.end_processes(POD, Ending::Kill), Err(HostError::Gone { .. })));
            assert_eq!(host.simulated_mut().unwrap().read_file(PATH, "cgroup.procs").unwrap().trim(), "4009");
        }
    }
}
