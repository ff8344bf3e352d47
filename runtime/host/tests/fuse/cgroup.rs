//! A container's cgroup on this machine, with processes in it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::{CgroupVersion, Controller, Directories, Driver, Host, LayoutOptions};
use qosm_resctrl_fuse::tasks::{Credentials, Task, Tasks, Tid};

/// A host on this machine's own cgroups.
pub(crate) fn host() -> Host {
    let directory = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let directories = Directories {
        cgroup: directory("/sys/fs/cgroup"),
        proc: directory("/proc"),
        sys: directory("/sys"),
        kubelet: None,
        sysctl: None,
    };
    let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: String::new() };
    Host::open(directories, &options).unwrap()
}

/// A cgroup that the test removes at its end, with all processes in it.
pub(crate) struct Cgroup {
    host: Host,
    path: String,
    running: Vec<Child>,
}

impl Cgroup {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = format!("qosm-test-{}-resctrl-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut host = host();
        host.create(&path).unwrap();
        Self { host, path, running: Vec::new() }
    }

    /// Path below each hierarchy's root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Path and version in the hierarchy of the CPU controller.
    pub(crate) fn directory(&self) -> (String, CgroupVersion) {
        let facts = self.host.facts();
        let fact = facts.controllers.into_iter().find(|fact| fact.controller == Controller::Cpu).unwrap();
        (format!("{}/{}", fact.mount.unwrap(), self.path), fact.version.unwrap())
    }

    pub(crate) fn threads(&self) -> Vec<String> {
        fs::read_to_string(self.file()).unwrap().lines().map(str::to_owned).collect()
    }

    /// Path of its list of threads.
    fn file(&self) -> String {
        let (directory, version) = self.directory();
        let file = if version == CgroupVersion::V1 { "tasks" } else { "cgroup.threads" };
        format!("{directory}/{file}")
    }

    pub(crate) fn wait_for_threads(&self, least: usize) {
        let begun = Instant::now();
        while self.threads().len() < least {
            assert!(begun.elapsed() < Duration::from_secs(120), "the container does not come to life");
            sleep(Duration::from_millis(5));
        }
    }

    /// Runs a shell command in it, in addition to earlier ones.
    pub(crate) fn run(&mut self, command: &str) {
        let script = format!("echo $$ > {}/cgroup.procs; {command}", self.directory().0);
        let child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).process_group(0).spawn().unwrap();
        self.running.push(child);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for mut child in self.running.drain(..) {
            // Kill the whole process group.
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
        // The kernel may count a process that was just killed for a moment longer.
        for _ in 0..100 {
            if self.host.remove(&self.path).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}

/// The threads in cgroups, for an emulation: it lists all threads before each operation, and listing those of the whole
/// machine takes long. Also, a process that executes another program cannot be listed meanwhile, and waits for the
/// emulation if it has a file of it to close.
pub(crate) struct Threads(Vec<String>);

impl Threads {
    pub(crate) fn of(cgroups: &[Cgroup]) -> Self {
        Self(cgroups.iter().map(Cgroup::file).collect())
    }
}

impl Tasks for Threads {
    fn list(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        for file in &self.0 {
            let Ok(threads) = fs::read_to_string(file) else { continue };
            for tid in threads.lines().filter_map(|line| line.parse().ok()) {
                // The thread has ended meanwhile.
                let Ok(stat) = fs::read_to_string(format!("/proc/{tid}/stat")) else { continue };
                let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
                let number = |index: usize| fields[index].parse::<u64>().unwrap();
                let creator = Tid(u32::try_from(number(1)).unwrap());
                tasks.push(Task { tid: Tid(tid), creator: Some(creator), started: number(19) });
            }
        }
        tasks
    }

    fn credentials(&mut self, _: Tid) -> Option<Credentials> {
        Some(Credentials { uid: 0, saved_uid: 0 })
    }
}
