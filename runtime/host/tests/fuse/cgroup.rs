//! A container's cgroup on this machine, with processes in it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::{CgroupVersion, Controller, Directories, Driver, Host, LayoutOptions};

/// A host on this machine's own cgroups.
pub(crate) fn host() -> Host {
    let directory = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let directories =
        Directories { cgroup: directory("/sys/fs/cgroup"), proc: directory("/proc"), sys: directory("/sys") };
    let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: String::new(), kubelet_config: None };
    Host::open(directories, &options).unwrap()
}

/// It goes away with the test, and all that runs in it.
pub(crate) struct Cgroup {
    host: Host,
    path: String,
    running: Vec<Child>,
}

impl Cgroup {
    pub(crate) fn new(name: &str) -> Self {
        let path = format!("qosm-test-{}-{name}", std::process::id());
        let mut host = host();
        host.create(&path).unwrap();
        Self { host, path, running: Vec::new() }
    }

    /// Below each hierarchy's root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// In the hierarchy of the CPU controller.
    pub(crate) fn directory(&self) -> (String, CgroupVersion) {
        let facts = self.host.facts();
        let fact = facts.controllers.into_iter().find(|fact| fact.controller == Controller::Cpu).unwrap();
        (format!("{}/{}", fact.mount.unwrap(), self.path), fact.version.unwrap())
    }

    pub(crate) fn threads(&self) -> Vec<String> {
        let (directory, version) = self.directory();
        let file = if version == CgroupVersion::V1 { "tasks" } else { "cgroup.threads" };
        fs::read_to_string(format!("{directory}/{file}")).unwrap().lines().map(str::to_owned).collect()
    }

    pub(crate) fn wait_for_threads(&self, least: usize) {
        let begun = Instant::now();
        while self.threads().len() < least {
            assert!(begun.elapsed() < Duration::from_secs(20), "the container does not come to life");
            sleep(Duration::from_millis(5));
        }
    }

    /// Runs a shell command in it, beside what runs there.
    pub(crate) fn run(&mut self, command: &str) {
        let script = format!("echo $$ > {}/cgroup.procs; {command}", self.directory().0);
        let child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).process_group(0).spawn().unwrap();
        self.running.push(child);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for mut child in self.running.drain(..) {
            // With whatever it has started.
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
        // A process that was just killed may be counted for a moment longer.
        for _ in 0..100 {
            if self.host.remove(&self.path).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}
