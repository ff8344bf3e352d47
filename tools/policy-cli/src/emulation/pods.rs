//! The demo's pods: cgroups as the kubelet makes them, with processes in them that only wait.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::Host;
use qosm_host::{Directories, Driver, LayoutOptions};
use serde_json::{Value, json};

/// What there is to know about one of them.
pub(super) struct Spec {
    /// Its name, in the namespace `demo`; also its container's.
    pub(super) name: &'static str,
    /// Its QoS class.
    pub(super) class: &'static str,
    uid: &'static str,
    /// Its tier's part of the path.
    tier: &'static str,
    resources: fn() -> Value,
}

/// The web server, which is sensitive to latency, and the batch job, which gets what is left.
pub(super) const SPECS: [Spec; 2] = [
    Spec {
        name: "web",
        class: "LS",
        uid: "0b1e6c0a-7d2f-4a57-9c58-2f6f0e3c7a01",
        tier: "burstable/",
        resources: || json!({"requests": {"cpu": "1"}}),
    },
    Spec {
        name: "batch",
        class: "BE",
        uid: "0b1e6c0a-7d2f-4a57-9c58-2f6f0e3c7a02",
        tier: "besteffort/",
        resources: || json!({}),
    },
];

impl Spec {
    /// As commands name it.
    pub(super) fn pod(&self) -> String {
        format!("demo/{}", self.name)
    }

    /// What the API server would know about it.
    pub(super) fn manifest(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": "demo", "uid": self.uid,
                "labels": {"koordinator.sh/qosClass": self.class},
            },
            "spec": {"containers": [{"name": self.name, "resources": (self.resources)()}]},
        })
    }
}

/// The cgroups of all of them, below one of the demo's own.
pub(super) struct Groups {
    host: Host,
    root: String,
    made: Vec<String>,
    mounts: BTreeSet<PathBuf>,
}

impl Groups {
    /// Makes them.
    pub(super) fn make() -> anyhow::Result<Self> {
        let root = format!("qosm-demo-{}", std::process::id());
        let open = |path: &str| {
            Dir::open_ambient_dir(path, ambient_authority()).with_context(|| format!("cannot open {path}"))
        };
        let (cgroup, proc, sys) = (open("/sys/fs/cgroup")?, open("/proc")?, open("/sys")?);
        let directories = Directories { cgroup, proc, sys, kubelet: None, sysctl: None };
        let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: format!("/{root}") };
        let host = Host::open(directories, &options).context("the host's cgroups cannot be used")?;
        let mounts = host.facts().controllers.into_iter().filter_map(|fact| fact.mount).map(PathBuf::from).collect();
        let mut groups = Self { host, root, made: Vec::new(), mounts };
        for spec in &SPECS {
            let path = groups.path(spec);
            // Above it, too: whatever is made shall be removed, even if the next one cannot be.
            let above: Vec<_> = path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect();
            groups.made.extend(above);
            groups.made.push(path.clone());
            groups.host.create(&path).context("the pods' cgroups cannot be made")?;
        }
        Ok(groups)
    }

    /// The value of the agent's `--cgroup-root`, relative to the hierarchies' roots.
    pub(super) fn root(&self) -> String {
        format!("/{}", self.root)
    }

    fn path(&self, spec: &Spec) -> String {
        format!("{}/kubepods/{}pod{}/{}", self.root, spec.tier, spec.uid, spec.name)
    }

    /// Takes a process into a pod.
    fn join(&self, spec: &Spec, process: u32) -> anyhow::Result<()> {
        for mount in &self.mounts {
            let group = mount.join(self.path(spec));
            // Hierarchies that need not have it, such as cpuset's.
            if group.is_dir() {
                let file = group.join("cgroup.procs");
                fs::write(&file, process.to_string()).with_context(|| format!("cannot write {}", file.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // Those below first.
        self.made.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
        self.made.dedup();
        for path in &self.made {
            // A process that was just killed may be counted for a moment longer.
            for _ in 0..50 {
                match self.host.remove(path) {
                    Ok(()) => break,
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
    }
}

/// A pod's processes: a shell, and what it started. They end with this process, however that ends, for then their input does.
pub(super) struct Running {
    process: Child,
    input: Option<ChildStdin>,
}

impl Running {
    /// Starts them in their cgroup.
    pub(super) fn start(groups: &Groups, spec: &Spec) -> anyhow::Result<Self> {
        // The child is started once the shell is in its place, so that it is there from the beginning.
        let script = "read begin; sleep 86400 & read end; kill $!";
        let mut process = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("a pod's process cannot be started")?;
        let input = process.stdin.take();
        let mut running = Self { process, input };
        groups.join(spec, running.process.id())?;
        running.begin().context("a pod's process does not begin")?;
        Ok(running)
    }

    fn begin(&mut self) -> io::Result<()> {
        use std::io::Write as _;
        self.input.as_mut().map_or(Ok(()), |input| input.write_all(b"begin\n"))
    }

    /// Its first process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        // It was asked to end; a process that does not is killed with its group.
        let _ = self.process.wait();
    }
}

/// Writes the manifests into a folder that an agent watches.
pub(super) fn write_manifests(folder: &Path) -> anyhow::Result<()> {
    for spec in &SPECS {
        let file = folder.join(format!("{}.json", spec.name));
        fs::write(&file, spec.manifest().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
