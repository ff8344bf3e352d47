//! A node for one test: cgroups, manifests, configuration and a state folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cgroups::Cgroups;
use crate::waiting::tell_if_slow;
use crate::{PATIENCE, PAUSE};

/// The container's cgroup, below the test's.
pub(crate) const APP: &str = "kubepods/burstable/podu-web/app";
/// The pod's cgroup.
pub(crate) const POD: &str = "kubepods/burstable/podu-web";
/// Quota of 100m, in microseconds: so low that a busy thread is throttled even on a slow machine, also at the ceiling of three times that.
pub(crate) const BASE: i64 = 10_000;
/// Quota of the ceiling, in microseconds.
pub(crate) const MAX: i64 = 3 * BASE;

pub(crate) const BURST: &str = "koordinator.sh/cpuBurst";
pub(crate) const MEMORY: &str = "koordinator.sh/memoryQOS";

/// The binary under test.
pub(crate) fn binary() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_qosm"));
    let binary = std::env::var_os("QOSM_BIN").map_or(built, PathBuf::from);
    assert!(binary.is_file(), "{} is missing: run `cargo build`, or set QOSM_BIN", binary.display());
    binary
}

fn modules() -> PathBuf {
    let beside = binary().ancestors().nth(2).map(|target| target.join("policies")).unwrap_or_default();
    let folder = std::env::var_os("QOSM_MODULES").map_or(beside, PathBuf::from);
    let file = folder.join("cpu-burst.wasm");
    assert!(file.is_file(), "{} is missing: run `make build`, or set QOSM_MODULES", file.display());
    folder
}

/// A default module's file.
pub(crate) fn module(name: &str) -> String {
    modules().join(format!("{name}.wasm")).display().to_string()
}

/// Folder of compiled modules that all tests share: on an emulated machine a compilation takes longer than most tests.
fn compiled() -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let base = if built.is_dir() { built.to_owned() } else { std::env::temp_dir() };
    let folder = base.join("kernel-test-modules");
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A node. Fields are dropped in their order: processes end before their cgroups.
pub(crate) struct Node {
    pub(crate) cgroups: Cgroups,
    folder: TempDir,
}

impl Node {
    /// A node without pods.
    pub(crate) fn empty() -> Self {
        static NODES: AtomicU32 = AtomicU32::new(0);
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let cgroups = Cgroups::new(format!("qosm-test-{}-{number}", std::process::id()));
        let folder = tempfile::tempdir().unwrap();
        let node = Self { cgroups, folder };
        for name in ["pods", "state"] {
            fs::create_dir(node.path(name)).unwrap();
        }
        symlink(compiled(), node.path("state/modules")).unwrap();
        node.make_proc();
        node.configure(&json!({}));
        node.agent_config(&json!({}));
        node
    }

    /// A node with the cgroups of the pod `default/web`, with its limits; without its manifest.
    pub(crate) fn new() -> Self {
        let node = Self::empty();
        node.cgroups.make(APP);
        for group in [POD, APP] {
            node.cgroups.set_quota(group, BASE);
        }
        node
    }

    /// A node with the pod, a busy process in its container, and these annotations.
    pub(crate) fn busy(annotations: &Value) -> Self {
        let mut node = Self::new();
        node.cgroups.busy(APP);
        node.pod(annotations);
        node
    }

    /// Path of a file or folder of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file atomically, as editors and `kubectl` mounts do.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let fresh = self.path(&format!("{name}.new"));
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, self.path(name)).unwrap();
    }

    /// Writes the manifest of `default/web`.
    pub(crate) fn pod(&self, annotations: &Value) {
        self.write("pods/web.json", &manifest(annotations, "100m").to_string());
    }

    /// Writes the cluster's ConfigMap.
    pub(crate) fn configure(&self, data: &Value) {
        let texts: serde_json::Map<String, Value> =
            data.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.to_string().into())).collect();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": texts,
        });
        self.write("slo.json", &map.to_string());
    }

    /// Writes the agent's own file: frequent evaluations, and these fields.
    pub(crate) fn agent_config(&self, more: &Value) {
        let mut config = json!({"policies": [quick(), {"name": "memory-qos", "evaluationMillis": PATIENT_MILLIS}]});
        for (field, value) in more.as_object().unwrap() {
            config[field] = value.clone();
        }
        self.write("agent.json", &config.to_string());
    }

    /// Creates the agent's `/proc`, of a node whose CPUs are otherwise idle. With the real one, the load of the test machine
    /// would affect whether a quota may be raised.
    fn make_proc(&self) {
        let proc = self.path("proc");
        for name in ["self/mountinfo", "self/status", "meminfo", "partitions", "stat", "sys/kernel/random/boot_id"] {
            let file = proc.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, fs::read(Path::new("/proc").join(name)).unwrap()).unwrap();
        }
    }

    /// Waits until the container is at its ceiling; for each step it must be throttled.
    ///
    /// The pod has the same quota, and the kernel counts a throttled period for the group that runs out first. If that is the
    /// pod, nothing is counted for the container, and this persists as long as the load does not rest: 1 s was measured on Linux
    /// 6.18, with 10 of 10 periods of the pod throttled. After a rest of more than a period both start with their full quota.
    #[track_caller]
    pub(crate) fn wait_for_ceiling(&self) {
        let begun = Instant::now();
        let mut rested = begun;
        while self.cgroups.quota(APP) != MAX {
            let quota = self.cgroups.quota(APP);
            assert!(begun.elapsed() < PATIENCE, "the quota is {quota}, not {MAX}: {}", self.cgroups.account());
            if rested.elapsed() > Duration::from_secs(1) {
                self.cgroups.rest(Duration::from_millis(120));
                rested = Instant::now();
            }
            sleep(PAUSE);
        }
        tell_if_slow("the highest quota", begun.elapsed());
    }

    /// The flags for this node's paths.
    fn place(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.path(name).display().to_string();
        vec![
            ("--cgroup-root", format!("/{}", self.cgroups.root)),
            ("--cgroup-driver", "cgroupfs".to_owned()),
            ("--proc", path("proc")),
            ("--state-dir", path("state")),
            ("--admin-socket", path("admin.sock")),
        ]
    }

    /// The agent's command. `flags` replace the default flags of this node; a flag without a value has an empty one.
    pub(crate) fn agent_command(&self, flags: &[(&str, &str)]) -> Command {
        let path = |name: &str| self.path(name).display().to_string();
        let mut all = self.place();
        all.extend([
            ("--pods", path("pods")),
            ("--config", path("slo.json")),
            ("--agent-config", path("agent.json")),
            ("--module-dir", modules().display().to_string()),
            ("--tick-millis", "200".to_owned()),
            ("--metrics-listen", "none".to_owned()),
        ]);
        all.retain(|(flag, _)| flags.iter().all(|(other, _)| other != flag));
        let mut command = Command::new(binary());
        command.arg("agent").env("NO_COLOR", "1").stdin(Stdio::null());
        for (flag, value) in all.iter().map(|(flag, value)| (*flag, value.as_str())).chain(flags.iter().copied()) {
            command.arg(flag);
            if !value.is_empty() {
                command.arg(value);
            }
        }
        command
    }

    /// The command `qosm restore`.
    pub(crate) fn restore_command(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("restore").stdin(Stdio::null());
        for (flag, value) in self.place() {
            command.args([flag, &value]);
        }
        command
    }

    /// Runs `qosm restore` with more flags. Returns its output, and whether it succeeded.
    pub(crate) fn restore(&self, flags: &[&str]) -> (String, bool) {
        let Output { status, stdout, stderr } = self.restore_command().args(flags).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (format!("{}{}", text(stdout), text(stderr)), status.success())
    }
}

/// Time limit of an evaluation, in milliseconds: an emulated machine needs more than the default.
pub(crate) const PATIENT_MILLIS: u64 = 2000;

/// CPU Burst with the small steps of the specification, and a short interval.
pub(crate) fn quick() -> Value {
    json!({
        "name": "cpu-burst", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS, "config": {"profile": "koordinator"},
        "alarms": false,
    })
}

/// The manifest of `default/web`.
pub(crate) fn manifest(annotations: &Value, cpu: &str) -> Value {
    let texts: serde_json::Map<String, Value> =
        annotations.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.to_string().into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "uid": "u-web", "annotations": texts},
        "spec": {"containers": [{"name": "app", "resources": {
            "requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": cpu, "memory": "64Mi"},
        }}]},
    })
}
