//! The node that the tests share, its pods, and queries of both.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Instant;

use serde_json::{Value, json};

use crate::waiting::{wait_for, wait_until};
use crate::{PATIENCE, PAUSE};

/// The node's name.
pub(crate) const NODE: &str = "qosm-test-node";
/// The cgroup above the kubelet's `kubepods`: the agent's `--cgroup-root`.
pub(crate) fn cgroup_root() -> String {
    std::env::var("QOSM_TEST_CGROUP_ROOT").unwrap_or_else(|_| "/qosm-test-node".to_owned())
}

/// Whether systemd manages the pods' cgroups, as in production: slices and scopes.
pub(crate) fn is_systemd() -> bool {
    std::env::var_os("QOSM_TEST_CGROUP_DRIVER").is_some_and(|driver| driver == "systemd")
}
/// An image with busybox. The node has only this image and the pause image.
pub(crate) const BUSYBOX: &str = "busybox:1";

/// The path in an environment variable of the test run.
pub(crate) fn said(variable: &str) -> PathBuf {
    let Some(value) = std::env::var_os(variable) else {
        unreachable!("{variable} is not set: these tests need a cluster; run: make test ARGS=\"--only cluster\"")
    };
    value.into()
}

/// The cluster's folder: `admin.kubeconfig`, `audit.log`, `manifests/` for static pods, `logs/`.
pub(crate) fn cluster_file(name: &str) -> PathBuf {
    said("QOSM_TEST_CLUSTER").join(name)
}

/// Runs a program. Returns its standard output, or all its output if it fails.
pub(crate) fn run(command: &mut Command, input: &str) -> Result<String, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if status.success() { Ok(text(stdout)) } else { Err(format!("{status}: {}{}", text(stdout), text(stderr))) }
}

fn kubectl_command(args: &[&str]) -> Command {
    let mut command = Command::new(said("QOSM_KUBECTL"));
    command.args(args).env("KUBECONFIG", said("KUBECONFIG"));
    command
}

/// Runs kubectl as the cluster's administrator. Returns its standard output, or all its output if it fails.
pub(crate) fn try_kubectl(args: &[&str]) -> Result<String, String> {
    run(&mut kubectl_command(args), "")
}

/// Runs kubectl, and fails the test on an error. Requests that fail because the machine is busy are repeated.
#[track_caller]
pub(crate) fn kubectl(args: &[&str]) -> String {
    let begun = Instant::now();
    loop {
        match try_kubectl(args) {
            Ok(printed) => return printed,
            Err(error) => {
                let may_pass = BUSY.iter().any(|words| error.contains(words)) && begun.elapsed() < PATIENCE / 3;
                assert!(may_pass, "kubectl {}: {error}", args.join(" "));
                sleep(PAUSE);
            }
        }
    }
}

/// kubectl's errors for requests or responses that did not get through.
const BUSY: [&str; 4] = ["etcdserver: request timed out", "TLS handshake timeout", "connection refused", "i/o timeout"];

/// An object, or a list of objects, as JSON. Waits until it exists, since other programs create it.
#[track_caller]
pub(crate) fn get(args: &[&str]) -> Value {
    let printed = wait_for(&format!("{args:?} at the API server"), || {
        try_kubectl(&[&["get", "--output=json"], args].concat()).ok()
    });
    serde_json::from_str(&printed).unwrap()
}

/// Applies manifests, in YAML or JSON.
#[track_caller]
pub(crate) fn apply(manifests: &str) {
    let applied = run(&mut kubectl_command(&["apply", "--filename=-"]), manifests);
    assert!(applied.is_ok(), "{}\n{manifests}", applied.unwrap_err());
}

/// Applies a manifest with further flags of kubectl.
pub(crate) fn try_apply(manifest: &Value, flags: &[&str]) -> Result<String, String> {
    run(&mut kubectl_command(&[&["apply", "--filename=-"], flags].concat()), &manifest.to_string())
}

/// Runs `cargo xtask cluster VERB COMPONENT` for this cluster.
#[track_caller]
pub(crate) fn component(verb: &str, component: &str) {
    let mut xtask = Command::new(said("QOSM_XTASK"));
    xtask.args(["cluster", verb, component, "--dir"]).arg(said("QOSM_TEST_CLUSTER"));
    let result = run(&mut xtask, "");
    assert!(result.is_ok(), "{}", result.unwrap_err());
}

/// Stops or starts the API server; returns from a start when it answers.
#[track_caller]
pub(crate) fn api_server(verb: &str) {
    component(verb, "apiserver");
}

/// A pod's specification: one container `app` that uses all CPU that it is given.
pub(crate) fn busy(cpu: &str) -> Value {
    json!({"containers": [{
        "name": "app", "image": BUSYBOX, "command": ["sh", "-c", "while :; do :; done"],
        "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": "64Mi"}},
    }]})
}

/// A pod of the namespace `default`. Deleted when dropped.
pub(crate) struct Pod {
    name: String,
}

impl Pod {
    /// Creates a pod on the node and waits until it runs.
    #[track_caller]
    pub(crate) fn create(name: &str, spec: &Value) -> Self {
        Self::create_with(name, &json!({}), spec)
    }

    /// Creates pods with these names, all at once.
    #[track_caller]
    pub(crate) fn create_all(names: &[String], metadata: &Value, spec: &Value) -> Vec<Self> {
        let all: Vec<_> = names.iter().map(|name| (name.clone(), metadata.clone(), spec.clone())).collect();
        Self::create_each(&all)
    }

    /// Creates pods with their own metadata and specifications, all at once.
    #[track_caller]
    pub(crate) fn create_each(pods: &[(String, Value, Value)]) -> Vec<Self> {
        let one = |(name, metadata, spec): &(String, Value, Value)| {
            let mut manifest = manifest(name, metadata, spec);
            manifest["spec"]["nodeName"] = NODE.into();
            manifest
        };
        let items: Vec<Value> = pods.iter().map(one).collect();
        apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
        let pods: Vec<Self> = pods.iter().map(|(name, ..)| Self { name: name.clone() }).collect();
        pods.iter().for_each(Self::wait_until_it_runs);
        pods
    }

    /// As [`Self::create`], with labels and annotations.
    #[track_caller]
    pub(crate) fn create_with(name: &str, metadata: &Value, spec: &Value) -> Self {
        let mut manifest = manifest(name, metadata, spec);
        manifest["spec"]["nodeName"] = NODE.into();
        apply(&manifest.to_string());
        let pod = Self { name: name.to_owned() };
        pod.wait_until_it_runs();
        pod
    }

    #[track_caller]
    fn wait_until_it_runs(&self) {
        wait_until(&format!("pod {} runs", self.name), || {
            let status = &self.get()["status"];
            let containers = status["containerStatuses"].as_array();
            status["phase"] == "Running" && containers.is_some_and(|all| all.iter().all(|one| one["ready"] == true))
        });
    }

    /// The pod's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The pod object at the API server.
    #[track_caller]
    pub(crate) fn get(&self) -> Value {
        get(&["pod", &self.name])
    }

    /// The pod's UID.
    pub(crate) fn uid(&self) -> String {
        self.get()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// A container's ID, without the runtime's name.
    #[track_caller]
    pub(crate) fn container_id(&self, container: &str) -> String {
        let pod = self.get();
        let statuses = pod["status"]["containerStatuses"].as_array().unwrap();
        let status = statuses.iter().find(|status| status["name"] == container).unwrap();
        status["containerID"].as_str().unwrap().trim_start_matches("containerd://").to_owned()
    }

    /// A container's cgroup.
    #[track_caller]
    pub(crate) fn cgroup(&self, container: &str) -> Group {
        Group::of(&self.uid(), &self.container_id(container))
    }

    /// Deletes the pod and waits until the API server has removed it.
    #[track_caller]
    pub(crate) fn delete(self) {
        kubectl(&["delete", "pod", &self.name, "--grace-period=0", "--force", "--wait=true"]);
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // The pod or, if the test has failed, the API server may be gone.
        let _ = try_kubectl(&["delete", "pod", &self.name, "--grace-period=0", "--force", "--wait=false"]);
    }
}

/// A static pod. Its file is removed when dropped.
pub(crate) struct StaticPod {
    file: PathBuf,
    /// The mirror pod.
    mirror: Pod,
}

impl StaticPod {
    /// Writes the kubelet's manifest, and waits until the pod runs.
    #[track_caller]
    pub(crate) fn create(name: &str, metadata: &Value, spec: &Value) -> Self {
        let mirror = format!("{name}-{NODE}");
        let file = cluster_file("manifests").join(format!("{name}.json"));
        let mut manifest = manifest(name, metadata, spec);
        manifest["metadata"]["namespace"] = "default".into();
        fs::write(&file, manifest.to_string()).unwrap();
        let pod = Self { file, mirror: Pod { name: mirror } };
        wait_until(&format!("the API server knows of static pod {name}"), || {
            try_kubectl(&["get", "pod", &pod.mirror.name]).is_ok()
        });
        pod.mirror.wait_until_it_runs();
        pod
    }

    /// The name of the mirror pod.
    pub(crate) fn name(&self) -> &str {
        &self.mirror.name
    }

    /// The pod object at the API server.
    pub(crate) fn get(&self) -> Value {
        self.mirror.get()
    }

    /// A container's ID, without the runtime's name.
    pub(crate) fn container_id(&self, container: &str) -> String {
        self.mirror.container_id(container)
    }
}

impl Drop for StaticPod {
    fn drop(&mut self) {
        fs::remove_file(&self.file).ok();
        let is_gone = || try_kubectl(&["get", "pod", self.name()]).is_err();
        for _ in 0..100 {
            if is_gone() {
                return;
            }
            std::thread::sleep(crate::PAUSE);
        }
    }
}

/// A pod's manifest for this node, with the fields that a node without a registry needs.
fn manifest(name: &str, metadata: &Value, spec: &Value) -> Value {
    let mut manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    manifest["metadata"]["name"] = name.into();
    // A shell as a container's first process ignores SIGTERM.
    manifest["spec"]["terminationGracePeriodSeconds"] = 0.into();
    for container in manifest["spec"]["containers"].as_array_mut().unwrap() {
        container["imagePullPolicy"] = "Never".into();
    }
    manifest
}

/// A container's cgroup, in each hierarchy.
pub(crate) struct Group {
    /// Path relative to the hierarchy.
    path: PathBuf,
}

impl Group {
    /// The cgroup of a container, by its pod's UID and its ID.
    #[track_caller]
    pub(crate) fn of(uid: &str, container: &str) -> Self {
        // The kubelet's cgroups of the Kubernetes QoS classes; Guaranteed has none of its own.
        let places = ["", "burstable", "besteffort"];
        let root = cgroup_root();
        let root = Path::new(root.trim_start_matches('/'));
        let paths = places.map(|qos| {
            if !is_systemd() {
                return root.join("kubepods").join(qos).join(format!("pod{uid}/{container}"));
            }
            let tier = if qos.is_empty() { "kubepods".to_owned() } else { format!("kubepods-{qos}") };
            let above = if qos.is_empty() {
                root.join("kubepods.slice")
            } else {
                root.join(format!("kubepods.slice/{tier}.slice"))
            };
            above.join(format!("{tier}-pod{}.slice/cri-containerd-{container}.scope", uid.replace('-', "_")))
        });
        let path = wait_for("the container's cgroup is there", || {
            paths.iter().find(|path| hierarchy("cpu").join(path).exists())
        });
        Self { path: path.clone() }
    }

    /// The path below each hierarchy.
    pub(crate) fn relative(&self) -> &Path {
        &self.path
    }

    /// The path in the hierarchy of a controller.
    pub(crate) fn path(&self, controller: &str) -> PathBuf {
        hierarchy(controller).join(&self.path)
    }

    /// Reads a file of the cgroup. Its name begins with its controller's.
    #[track_caller]
    pub(crate) fn read(&self, file: &str) -> String {
        let controller = file.split('.').next().unwrap();
        let path = self.path(controller).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| unreachable!("{}: {error}", path.display()))
    }

    /// CFS quota in microseconds; -1 if unlimited.
    #[track_caller]
    pub(crate) fn quota(&self) -> i64 {
        if is_v2() {
            let text = self.read("cpu.max");
            let word = text.split_whitespace().next().unwrap();
            return if word == "max" { -1 } else { word.parse().unwrap() };
        }
        self.read("cpu.cfs_quota_us").trim().parse().unwrap()
    }

    /// CFS burst in microseconds.
    #[track_caller]
    pub(crate) fn burst(&self) -> i64 {
        self.read(if is_v2() { "cpu.max.burst" } else { "cpu.cfs_burst_us" }).trim().parse().unwrap()
    }

    /// The pod's weight, in the unit of the file.
    #[track_caller]
    pub(crate) fn pod_weight(&self) -> i64 {
        self.pod().weight()
    }

    /// The pod's cgroup.
    pub(crate) fn pod(&self) -> Self {
        self.parent()
    }

    /// The cgroup of the pod's tier.
    pub(crate) fn tier(&self) -> Self {
        self.pod().parent()
    }

    fn parent(&self) -> Self {
        Self { path: self.path.parent().unwrap().to_owned() }
    }

    /// `cpu.shares` of cgroup v1, `cpu.weight` of v2.
    #[track_caller]
    pub(crate) fn weight(&self) -> i64 {
        self.read(if is_v2() { "cpu.weight" } else { "cpu.shares" }).trim().parse().unwrap()
    }

    /// The memory limit in bytes; `None` if unlimited.
    #[track_caller]
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        let text = self.read(if is_v2() { "memory.max" } else { "memory.limit_in_bytes" });
        // cgroup v1 shows the largest multiple of a page for no limit.
        text.trim().parse().ok().filter(|limit| *limit < 1 << 62)
    }

    /// Whether `cpu.idle` is 1; `None` if the kernel is older than 5.15.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        let text = fs::read_to_string(self.path("cpu").join("cpu.idle")).ok()?;
        Some(text.trim() == "1")
    }

    /// Kills the processes, as the kernel would on out-of-memory.
    pub(crate) fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    /// Stops the processes.
    pub(crate) fn rest(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Continues the processes.
    pub(crate) fn work(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        for pid in self.processes().into_iter().filter_map(rustix::process::Pid::from_raw) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// The processes; empty if the cgroup is gone.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        let procs = fs::read_to_string(self.path("cpu").join("cgroup.procs")).unwrap_or_default();
        procs.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// The child cgroups.
    pub(crate) fn children(&self) -> Vec<Self> {
        let entries = fs::read_dir(self.path("cpu")).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.map(|folder| Self { path: self.path.join(folder.file_name()) }).collect()
    }

    /// The effective CPUs.
    #[track_caller]
    pub(crate) fn cpus(&self) -> BTreeSet<usize> {
        let text = self.read(if is_v2() { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" });
        let number = |text: &str| text.parse::<usize>().unwrap();
        let ranges = text.trim().split(',').filter(|range| !range.is_empty());
        ranges
            .flat_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                number(first)..=number(last)
            })
            .collect()
    }

    /// Number of throttled CFS periods.
    #[track_caller]
    pub(crate) fn throttled(&self) -> u64 {
        let text = self.read("cpu.stat");
        text.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap().trim().parse().unwrap()
    }
}

pub(crate) fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

fn hierarchy(controller: &str) -> PathBuf {
    let mount = Path::new("/sys/fs/cgroup");
    if is_v2() { mount.to_owned() } else { mount.join(controller) }
}

/// The events of the API server's audit log, in the order of its responses, with e.g. `user.username`, `verb`,
/// `objectRef.resource`, `responseStatus.code`.
pub(crate) fn audit() -> Vec<Value> {
    let text = fs::read_to_string(cluster_file("audit.log")).unwrap();
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The verbs that a user used, each with its resource, once: `watch pods`.
pub(crate) fn verbs_of(user: &str) -> BTreeSet<String> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Tests use `kubectl` to try a stolen token.
    let is_kubectl = |event: &Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl"));
    // Any user may list the API server's kinds.
    let is_about_objects = |event: &Value| event["objectRef"]["resource"].is_string();
    let is_asked = |event: &Value| event["user"]["username"] == user && !is_kubectl(event) && is_about_objects(event);
    let events = audit().into_iter().filter(is_asked);
    let describe = |event: Value| {
        let (resource, sub) = (word(&event["objectRef"]["resource"]), word(&event["objectRef"]["subresource"]));
        let slash = if sub.is_empty() { "" } else { "/" };
        format!("{} {resource}{slash}{sub}", word(&event["verb"]))
    };
    events.map(describe).collect()
}
