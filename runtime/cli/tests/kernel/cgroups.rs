//! Cgroups that a test creates like a kubelet, on this kernel's cgroup version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::node::{APP, POD};

const MOUNT: &str = "/sys/fs/cgroup";

/// A cgroup version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// The hierarchies, with the test's own cgroup in each.
pub(crate) struct Cgroups {
    pub(crate) version: Version,
    /// Name of the test's cgroup, without slashes.
    pub(crate) root: String,
    loads: Vec<Child>,
}

/// The kernel's counters of one cgroup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Throttling {
    pub(crate) periods: u64,
    pub(crate) throttled: u64,
}

impl Cgroups {
    /// Creates the test's cgroup.
    pub(crate) fn new(root: String) -> Self {
        let version = if Path::new(MOUNT).join("cgroup.controllers").exists() { Version::V2 } else { Version::V1 };
        let cgroups = Self { version, root, loads: Vec::new() };
        for base in cgroups.hierarchies() {
            make(&base.join(&cgroups.root), version);
        }
        // A high weight: other work on this machine must not keep the load from its quota, or it is never throttled.
        let (file, most) = match version {
            Version::V1 => ("cpu.shares", "262144"),
            Version::V2 => ("cpu.weight", "10000"),
        };
        fs::write(cgroups.file("", file), most).unwrap();
        cgroups
    }

    fn hierarchies(&self) -> Vec<PathBuf> {
        match self.version {
            Version::V1 => ["cpu", "cpuacct", "memory"].map(|controller| Path::new(MOUNT).join(controller)).to_vec(),
            Version::V2 => vec![MOUNT.into()],
        }
    }

    /// Creates a cgroup below the test's, with its parents.
    pub(crate) fn make(&self, group: &str) {
        for base in self.hierarchies() {
            let mut path = base.join(&self.root);
            for part in group.split('/') {
                path.push(part);
                make(&path, self.version);
            }
        }
    }

    /// Gives these existing cgroups CPUs and NUMA nodes: on v2 by the controller of their parents, on v1 in a separate hierarchy
    /// with the lists of the parent, as a kubelet copies them.
    pub(crate) fn make_cpusets(&self, groups: &[&str]) {
        let parents = |group: &str| {
            let ends: Vec<_> = group.match_indices('/').map(|(end, _)| end).collect();
            ends.into_iter().map(|end| group[..end].to_owned()).collect::<Vec<_>>()
        };
        for group in groups {
            let full = format!("{}/{group}", self.root);
            if self.version == Version::V2 {
                for above in [vec![String::new()], parents(&full)].concat() {
                    fs::write(Path::new(MOUNT).join(above).join("cgroup.subtree_control"), "+cpuset").unwrap();
                }
                continue;
            }
            let base = Path::new(MOUNT).join("cpuset");
            for group in [parents(&full), vec![full]].concat() {
                let path = base.join(&group);
                if path.exists() {
                    continue;
                }
                fs::create_dir(&path).unwrap();
                for list in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(path.join(list), fs::read(path.parent().unwrap().join(list)).unwrap()).unwrap();
                }
            }
        }
    }

    /// The folders of a cgroup in all hierarchies, also in cpuset's if it exists there.
    fn homes(&self, group: &str) -> impl Iterator<Item = PathBuf> {
        let mut bases = self.hierarchies();
        if self.version == Version::V1 {
            bases.push(Path::new(MOUNT).join("cpuset"));
        }
        let below = Path::new(&self.root).join(group);
        bases.into_iter().map(move |base| base.join(&below)).filter(|home| home.exists())
    }

    /// Removes a cgroup, which must be empty.
    pub(crate) fn remove(&self, group: &str) {
        self.homes(group).for_each(|home| remove(&home));
    }

    /// Path of a file of a cgroup. Its name begins with its controller's.
    pub(crate) fn file(&self, group: &str, name: &str) -> PathBuf {
        let mut path = PathBuf::from(MOUNT);
        if self.version == Version::V1 {
            path.push(name.split('.').next().unwrap());
        }
        path.join(&self.root).join(group).join(name)
    }

    pub(crate) fn exists(&self, group: &str) -> bool {
        self.file(group, "cpu.stat").exists()
    }

    fn quota_file(&self, group: &str) -> PathBuf {
        self.file(group, if self.version == Version::V1 { "cpu.cfs_quota_us" } else { "cpu.max" })
    }

    /// CFS quota in microseconds; -1 if unlimited.
    pub(crate) fn quota(&self, group: &str) -> i64 {
        let text = fs::read_to_string(self.quota_file(group)).unwrap();
        let word = text.split_whitespace().next().unwrap();
        if word == "max" { -1 } else { word.parse().unwrap() }
    }

    /// Writes a quota as another program would.
    pub(crate) fn set_quota(&self, group: &str, quota: i64) {
        let unlimited = if self.version == Version::V1 { "-1" } else { "max" };
        let text = if quota < 0 { unlimited.to_owned() } else { quota.to_string() };
        fs::write(self.quota_file(group), text).unwrap();
    }

    pub(crate) fn burst(&self, group: &str) -> i64 {
        let name = if self.version == Version::V1 { "cpu.cfs_burst_us" } else { "cpu.max.burst" };
        fs::read_to_string(self.file(group, name)).unwrap().trim().parse().unwrap()
    }

    fn weight_file(&self, group: &str) -> PathBuf {
        self.file(group, if self.version == Version::V1 { "cpu.shares" } else { "cpu.weight" })
    }

    /// CPU weight in the unit of the file: shares on v1.
    pub(crate) fn weight(&self, group: &str) -> i64 {
        fs::read_to_string(self.weight_file(group)).unwrap().trim().parse().unwrap()
    }

    /// Writes a weight as another program would.
    pub(crate) fn set_weight(&self, group: &str, weight: i64) {
        fs::write(self.weight_file(group), weight.to_string()).unwrap();
    }

    pub(crate) fn throttling(&self, group: &str) -> Throttling {
        let text = fs::read_to_string(self.file(group, "cpu.stat")).unwrap();
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().parse().unwrap_or(0)
        };
        Throttling { periods: count("nr_periods "), throttled: count("nr_throttled ") }
    }

    /// All knobs below the test's cgroup that qosm could change, by file.
    pub(crate) fn knobs(&self) -> BTreeMap<PathBuf, String> {
        const NAMES: [&str; 11] = [
            "cpu.cfs_quota_us",
            "cpu.cfs_burst_us",
            "cpu.max",
            "cpu.max.burst",
            "cpu.shares",
            "cpu.weight",
            "cpu.idle",
            "memory.min",
            "memory.low",
            "memory.high",
            "cpuset.mems",
        ];
        let mut knobs = BTreeMap::new();
        let mut folders: Vec<PathBuf> = self.hierarchies().into_iter().map(|base| base.join(&self.root)).collect();
        while let Some(folder) = folders.pop() {
            for name in NAMES {
                if let Ok(text) = fs::read_to_string(folder.join(name)) {
                    knobs.insert(folder.join(name), text);
                }
            }
            // A cgroup may vanish meanwhile, such as the one in which a starting agent probes the kernel.
            let below = fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(
                below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
        }
        knobs
    }

    /// The folders of a cgroup below the test's, one for each hierarchy.
    pub(crate) fn folders(&self, group: &str) -> Vec<PathBuf> {
        self.hierarchies().into_iter().map(|base| base.join(&self.root).join(group)).collect()
    }

    /// Starts a process in a cgroup that uses a whole CPU.
    pub(crate) fn busy(&mut self, group: &str) {
        self.load(group, "while :; do :; done");
    }

    /// Starts a shell script in a cgroup.
    pub(crate) fn load(&mut self, group: &str, script: &str) {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id().to_string();
        self.loads.push(child);
        for home in self.homes(group) {
            fs::write(home.join("cgroup.procs"), &pid).unwrap();
        }
    }

    /// Stops the loads for this time.
    pub(crate) fn rest(&self, time: Duration) {
        let signal = |signal| {
            for load in &self.loads {
                kill_process(Pid::from_child(load), signal).unwrap();
            }
        };
        signal(Signal::STOP);
        sleep(time);
        signal(Signal::CONT);
    }

    /// Diagnostics of a load that did not behave as expected: whether it runs, the kernel's counters, and the machine's CPU times.
    pub(crate) fn account(&self) -> String {
        let read = |path: &Path| format!("{}:\n{}\n", path.display(), fs::read_to_string(path).unwrap_or_default());
        let mut text = String::new();
        for load in &self.loads {
            text += &read(&Path::new("/proc").join(load.id().to_string()).join("stat"));
        }
        for group in [APP, POD] {
            text += &read(&self.file(group, "cpu.stat"));
        }
        let node = fs::read_to_string("/proc/stat").unwrap_or_default();
        text + node.lines().next().unwrap_or_default()
    }

    /// Ends all loads.
    pub(crate) fn calm(&mut self) {
        for mut load in self.loads.drain(..) {
            let _ = load.kill();
            let _ = load.wait();
        }
    }
}

fn make(path: &Path, version: Version) {
    match fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            unreachable!("cannot make {}: {error}; these tests need root and writable cgroups", path.display())
        }
        Ok(()) | Err(_) => {}
    }
    if version == Version::V2 {
        let above = path.parent().unwrap().join("cgroup.subtree_control");
        fs::write(above, "+cpu +memory").unwrap();
    }
}

/// Removes a folder, with retries: the kernel may still count a process that was just killed.
fn remove(path: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => sleep(Duration::from_millis(10)),
            Ok(()) | Err(_) => return,
        }
    }
    eprintln!("{} stays behind: it is in use", path.display());
}

fn remove_all(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path());
        }
    }
    remove(path);
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.calm();
        self.homes("").for_each(|home| remove_all(&home));
    }
}
