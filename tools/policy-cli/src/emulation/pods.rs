//! The demo's pods: cgroups as the kubelet creates them, with processes that only sleep.

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

/// Facts about one of the demo's pods.
pub(super) struct Spec {
    /// Name of the pod in the namespace `demo`, and of its container.
    pub(super) name: &'static str,
    /// QoS class of the pod.
    pub(super) class: &'static str,
    uid: &'static str,
    /// The path component of its tier.
    tier: &'static str,
    resources: fn() -> Value,
}

/// A latency-sensitive web server, and a batch job that uses the remaining capacity.
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
    /// Name of the pod in commands: `demo/NAME`.
    pub(super) fn pod(&self) -> String {
        format!("demo/{}", self.name)
    }

    /// The pod's manifest, as the API server would have it.
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

/// The cgroups of all pods, below a cgroup of the demo.
pub(super) struct Groups {
    host: Host,
    root: String,
    made: Vec<String>,
    mounts: BTreeSet<PathBuf>,
}

impl Groups {
    /// Creates the cgroups.
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
            // Includes the parents, so that all that exists is removed even if a later one cannot be created.
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

    /// Moves a process into a pod's cgroups.
    fn join(&self, spec: &Spec, process: u32) -> anyhow::Result<()> {
        for mount in &self.mounts {
            let group = mount.join(self.path(spec));
            // Some hierarchies, such as cpuset, may not have the cgroup.
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
        // Children first.
        self.made.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
        self.made.dedup();
        for path in &self.made {
            // The kernel may count a killed process for a moment longer.
            for _ in 0..50 {
                match self.host.remove(path) {
                    Ok(()) => break,
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        }
    }
}

/// The processes of a pod: a shell, and its child. They exit with this process however it ends, because that closes their input.
pub(super) struct Running {
    process: Child,
    input: Option<ChildStdin>,
}

impl Running {
    /// Starts the processes in the pod's cgroups.
    pub(super) fn start(groups: &Groups, spec: &Spec) -> anyhow::Result<Self> {
        // The shell starts its child only after it was moved, so that the child is in the cgroups from the beginning.
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

    /// ID of the shell.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        // Closing the input ends the process; otherwise, removing its group kills it.
        let _ = self.process.wait();
    }
}

/// Writes the manifests to a folder that an agent watches.
pub(super) fn write_manifests(folder: &Path) -> anyhow::Result<()> {
    for spec in &SPECS {
        let file = folder.join(format!("{}.json", spec.name));
        fs::write(&file, spec.manifest().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}
