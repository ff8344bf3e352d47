//! An agent under the chart's service account, beside the node that it works for: a process of the test, with the permissions of
//! a pod of the DaemonSet.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::node::{NODE, apply, cgroup_root, get, kubectl, said, try_kubectl};
use crate::waiting::wait_until;

/// Namespace of the chart.
pub(crate) const NAMESPACE: &str = "qosm-system";
/// User name of agents.
pub(crate) const USER: &str = "system:serviceaccount:qosm-system:qosm-agent";
const CONTROLLER_USER: &str = "qosm-controller";
/// Kinds of the chart's objects that run nothing.
const RULES: [&str; 8] = [
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Namespace",
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The chart, rendered.
pub(crate) fn rendered(more: &[&str]) -> Vec<Value> {
    let chart = root().join("deploy/helm/qosm");
    let mut helm = Command::new(said("QOSM_HELM"));
    helm.args(["template", "qosm"]).arg(chart).args(["--namespace", NAMESPACE, "--kube-version", "1.33.0"]);
    // As `make manifests` renders it.
    helm.args(["--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"]).args(more);
    let output = helm.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n---")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .filter(Value::is_object)
        .collect()
}

/// Installs the chart's CRDs, service accounts and roles if they are missing: another test may have removed them.
fn installed() {
    let there = ["serviceaccount/qosm-agent", "clusterrolebinding/qosm-agent", "namespace/koordinator-system"];
    if there.iter().any(|name| try_kubectl(&["get", name, "--namespace", NAMESPACE]).is_err()) {
        install_crds();
        let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let rules = rendered(&[]).into_iter().filter(|object| RULES.contains(&object["kind"].as_str().unwrap()));
        let items: Vec<Value> = [NAMESPACE, "koordinator-system"].into_iter().map(namespace).chain(rules).collect();
        // One kubectl for all objects: on a kernel that is slow to start programs, each takes seconds.
        apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string());
    }
}

/// Installs the CRDs, and waits until the API server serves them.
pub(crate) fn install_crds() {
    let crds = Command::new(env!("CARGO_BIN_EXE_qosm")).arg("crds").output().unwrap();
    apply(&String::from_utf8(crds.stdout).unwrap());
    for name in ["policymodules", "nodepolicyreports"] {
        kubectl(&["wait", "--for=condition=Established", &format!("crd/{name}.qosm.io"), "--timeout=180s"]);
        // The API server serves the kind a moment after it is established, and kubectl caches its answer.
        wait_until(&format!("{name} to be served"), || try_kubectl(&["get", name]).is_ok());
    }
}

/// A kubeconfig for a service account of the chart, whose token is bound to the node as a pod's is.
pub(crate) fn kubeconfig(folder: &Path, account: &str) -> PathBuf {
    installed();
    let uid = get(&["node", NODE])["metadata"]["uid"].as_str().unwrap().to_owned();
    kubeconfig_of(folder, account, &json!({"token": token(account, "Node", NODE, &uid)}))
}

/// A token that is bound to an object, and ends with it.
pub(crate) fn token(account: &str, kind: &str, name: &str, uid: &str) -> String {
    let token = kubectl(&[
        "create",
        "token",
        account,
        &format!("--namespace={NAMESPACE}"),
        &format!("--bound-object-kind={kind}"),
        &format!("--bound-object-name={name}"),
        &format!("--bound-object-uid={uid}"),
    ]);
    token.trim().to_owned()
}

/// A kubeconfig for this cluster with the credentials `user`.
pub(crate) fn kubeconfig_of(folder: &Path, account: &str, user: &Value) -> PathBuf {
    let mut config: Value =
        serde_json::from_str(&kubectl(&["config", "view", "--raw", "--minify", "--flatten", "--output=json"])).unwrap();
    config["users"][0]["user"] = user.clone();
    let path = folder.join(format!("{account}.kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// An agent process that ends with the test.
pub(crate) struct Agent {
    process: Child,
    folder: PathBuf,
    /// Removes the folder when dropped; `None` if the folder stays.
    _temporary: Option<tempfile::TempDir>,
    kubeconfig: PathBuf,
}

/// The runtime's NRI socket; not the agent's default path.
pub(crate) const NRI_SOCKET: &str = "/run/qosm-test-node/nri/nri.sock";

impl Agent {
    /// Starts an agent, and waits until a policy runs.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let agent = Self::spawn();
        agent.wait_until_ready();
        agent
    }

    /// Starts an agent without waiting.
    pub(crate) fn spawn() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(folder.path(), "qosm-agent");
        Self::spawn_with(folder, kubeconfig)
    }

    fn in_temporary(process: Child, folder: tempfile::TempDir, kubeconfig: PathBuf) -> Self {
        Self { process, folder: folder.path().to_owned(), _temporary: Some(folder), kubeconfig }
    }

    /// Starts an agent in a folder that stays, or continues there.
    #[track_caller]
    pub(crate) fn start_to_stay(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let kubeconfig = kubeconfig(folder, "qosm-agent");
        let process = spawn(folder, &kubeconfig, &[]);
        let agent = Self { process, folder: folder.to_owned(), _temporary: None, kubeconfig };
        agent.wait_until_ready();
        agent
    }

    /// As [`Self::spawn`], with this kubeconfig.
    pub(crate) fn spawn_with(folder: tempfile::TempDir, kubeconfig: PathBuf) -> Self {
        installed();
        let process = spawn(folder.path(), &kubeconfig, &[]);
        Self::in_temporary(process, folder, kubeconfig)
    }

    /// Starts an agent that is a plug-in of the node's container runtime, and waits until it is registered and works. Ticks are
    /// long, so that only NRI sets knobs early.
    #[track_caller]
    pub(crate) fn start_beside_the_runtime() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(folder.path(), "qosm-agent");
        let config = folder.path().join("agent.json");
        std::fs::write(&config, json!({"nri": {"socket": NRI_SOCKET}}).to_string()).unwrap();
        let config = config.display().to_string();
        // A free port, which the agent binds a moment later.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        std::fs::write(folder.path().join("metrics-address"), &address).unwrap();
        let flags = ["--agent-config", &config, "--tick-millis", "5000", "--metrics-listen", &address];
        let process = spawn(folder.path(), &kubeconfig, &flags);
        let agent = Self::in_temporary(process, folder, kubeconfig);
        agent.wait_until_ready();
        agent.wait_until_registered();
        agent
    }

    /// Waits until the container runtime has registered the agent as a plug-in.
    #[track_caller]
    pub(crate) fn wait_until_registered(&self) {
        wait_until("the runtime has the agent for a plug-in", || {
            self.ask(&["doctor"]).is_ok_and(|table| table.contains("connected to containerd 2."))
        });
    }

    /// Number of container starts by outcome, from the metrics.
    pub(crate) fn starts(&self) -> std::collections::BTreeMap<String, u64> {
        let address = std::fs::read_to_string(self.folder.join("metrics-address")).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: qosm\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let of_starts = answer.lines().filter_map(|line| line.strip_prefix("qosm_container_starts_total{outcome=\""));
        of_starts
            .filter_map(|rest| {
                let (outcome, count) = rest.split_once("\"} ")?;
                Some((outcome.to_owned(), count.parse().ok()?))
            })
            .collect()
    }

    /// The agent's process ID.
    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.process)
    }

    /// Starts an agent that sees a node without other load than its pods', and waits until it works: the load of this machine
    /// would otherwise affect the policies.
    #[track_caller]
    pub(crate) fn start_on_a_calm_node() -> Self {
        Self::start_on_a_calm_node_with(&json!({}))
    }

    /// As [`Self::start_on_a_calm_node`], with a configuration of its own.
    #[track_caller]
    pub(crate) fn start_on_a_calm_node_with(config: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(folder.path(), "qosm-agent");
        let proc = folder.path().join("proc");
        for name in ["self/mountinfo", "self/status", "meminfo", "stat", "zoneinfo", "sys/kernel/random/boot_id"] {
            let file = proc.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, std::fs::read(Path::new("/proc").join(name)).unwrap()).unwrap();
        }
        say_available_memory(&proc, 100);
        let file = folder.path().join("agent.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let (proc, file) = (proc.display().to_string(), file.display().to_string());
        let process = spawn(folder.path(), &kubeconfig, &["--proc", &proc, "--agent-config", &file]);
        let agent = Self::in_temporary(process, folder, kubeconfig);
        agent.wait_until_ready();
        agent
    }

    /// Makes `percent` percent of the memory available on the agent's calm node.
    pub(crate) fn say_available_memory(&self, percent: u64) {
        say_available_memory(&self.folder.join("proc"), percent);
    }

    #[track_caller]
    pub(crate) fn wait_until_ready(&self) {
        wait_until("a policy runs", || self.ask(&["get", "policies"]).is_ok_and(|report| report.contains("running")));
    }

    /// Runs a command against the admin socket. Returns its output, or its error.
    pub(crate) fn ask(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_qosm"))
            .args(args)
            .args(["--admin-socket"])
            .arg(self.folder.join("admin.sock"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Kills the agent, as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts the agent again on the same state.
    pub(crate) fn start_again(&mut self) {
        self.spawn_again();
        self.wait_until_ready();
    }

    /// As [`Self::start_again`], without waiting.
    pub(crate) fn spawn_again(&mut self) {
        self.process = spawn(&self.folder, &self.kubeconfig, &[]);
    }

    /// Runs `qosm restore` on the killed agent's state. Returns its output, or its error.
    pub(crate) fn restore(&self) -> Result<String, String> {
        let output = Command::new(env!("CARGO_BIN_EXE_qosm"))
            .args(["restore", "--cgroup-root", &cgroup_root(), "--state-dir"])
            .arg(self.folder.join("state"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Ends the agent by SIGTERM.
    pub(crate) fn end(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the agent said:\n{}", self.log());
            for what in ["problems", "policies", "pods", "knobs"] {
                let (Ok(told) | Err(told)) = self.ask(&["get", what]);
                eprintln!("get {what}:\n{told}");
            }
        }
        if matches!(self.process.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

fn spawn(folder: &Path, kubeconfig: &Path, flags: &[&str]) -> Child {
    let state = folder.join("state");
    std::fs::create_dir_all(&state).unwrap();
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    Command::new(env!("CARGO_BIN_EXE_qosm"))
        .args(["agent", "--kubernetes", "--node-name", NODE, "--cgroup-root", &cgroup_root()])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--state-dir")
        .arg(&state)
        .arg("--admin-socket")
        .arg(folder.join("admin.sock"))
        .args(
            [("--tick-millis", "200"), ("--metrics-listen", "none")]
                .iter()
                .filter(|(flag, _)| !flags.contains(flag))
                .flat_map(|(flag, value)| [flag, value]),
        )
        .args(flags)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Overwrites the file in place and in the same length, because the agent may read it at any moment.
fn say_available_memory(proc: &Path, percent: u64) {
    let file = proc.join("meminfo");
    let text = std::fs::read_to_string(&file).unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")).unwrap();
    let available = total.parse::<u64>().unwrap() * percent / 100;
    let line = |line: &str| match line.starts_with("MemAvailable:") {
        true => format!("MemAvailable: {available:>20} kB\n"),
        false => format!("{line}\n"),
    };
    let text: String = text.lines().map(line).collect();
    std::fs::File::options().write(true).open(&file).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The controller, under its service account.
pub(crate) struct Controller(Child, tempfile::TempDir);

impl Controller {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with more flags.
    pub(crate) fn start_with(flags: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = kubeconfig(folder.path(), CONTROLLER_USER);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_qosm"))
            .args(["controller", "--metrics-listen", "none", "--kubeconfig"])
            .arg(kubeconfig)
            .args(flags)
            .stderr(log)
            .spawn()
            .unwrap();
        Self(process, folder)
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.1.path().join("log")).unwrap_or_default()
    }

    /// Kills the controller, so that it cannot release its Lease.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Ends the controller by SIGTERM: it releases its Lease, for which the next one would wait.
impl Drop for Controller {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "the controller said:\n{}",
                std::fs::read_to_string(self.1.path().join("log")).unwrap_or_default()
            );
        }
        if matches!(self.0.try_wait(), Ok(None)) {
            let pid = rustix::process::Pid::from_child(&self.0);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            self.0.wait().unwrap();
        }
    }
}

/// A PolicyModule that is deleted when dropped.
pub(crate) struct Module(String);

impl Module {
    pub(crate) fn apply(name: &str, spec: &Value) -> Self {
        installed();
        let object =
            json!({"apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": name}, "spec": spec});
        apply(&object.to_string());
        Self(name.to_owned())
    }

    /// Changes the specification.
    pub(crate) fn change(&self, spec: &Value) {
        kubectl(&["patch", "policymodule", &self.0, "--type=merge", "--patch", &json!({"spec": spec}).to_string()]);
    }

    pub(crate) fn get(&self) -> Value {
        get(&["policymodule", &self.0])
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        try_kubectl(&["delete", "policymodule", &self.0, "--ignore-not-found"]).ok();
    }
}
