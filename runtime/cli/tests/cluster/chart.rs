//! The chart, installed as a user installs it: an image on the node, a DaemonSet without privileges, and an uninstall that leaves nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::agent::{NAMESPACE, install_crds, kubeconfig_of, root};
use crate::node::{NODE, Pod, busy, cluster_file, get, kubectl, said, try_kubectl};
use crate::waiting::{wait_for, wait_until};

const IMAGE: &str = concat!("ghcr.io/qosm/qosm:", env!("CARGO_PKG_VERSION"));

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

fn helm(args: &[&str]) -> String {
    run(Command::new(said("QOSM_HELM"))
        .args(args)
        .args(["--namespace", NAMESPACE])
        .env("KUBECONFIG", said("KUBECONFIG")))
}

/// The same by `kubectl qosm`, for a user with only the permissions in the example.
fn as_a_plugin(explained: &str) {
    let folder = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_qosm"), folder.path().join("kubectl-qosm")).unwrap();
    let program = folder.path().join("kubectl");
    symlink(said("QOSM_KUBECTL"), &program).unwrap();
    let roles = root().join("examples/kubernetes/ask-agents.yaml");
    kubectl(&["apply", "--filename", roles.to_str().unwrap()]);
    let (in_namespace, account) = (format!("--namespace={NAMESPACE}"), format!("--serviceaccount={NAMESPACE}:on-call"));
    kubectl(&["create", "serviceaccount", "on-call", &in_namespace]);
    // From a failed earlier attempt.
    kubectl(&["delete", "clusterrolebinding", "on-call", "--ignore-not-found"]);
    kubectl(&["create", "clusterrolebinding", "on-call", "--clusterrole=qosm-ask-agents", &account]);
    kubectl(&["create", "rolebinding", "on-call", "--role=qosm-ask-agents", &account, &in_namespace]);
    let token = kubectl(&["create", "token", "on-call", &in_namespace]);
    let kubeconfig = kubeconfig_of(folder.path(), "on-call", &json!({"token": token.trim()}));
    let typed = |args: &[&str]| {
        let others = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(folder.path().to_owned()).chain(std::env::split_paths(&others));
        let path = std::env::join_paths(folders).unwrap();
        let mut command = Command::new(&program);
        command.arg("qosm").args(args).env("KUBECONFIG", &kubeconfig).env("PATH", path);
        command
    };
    let plugin = |args: &[&str]| typed(args).output().unwrap();

    let asked = plugin(&["explain", "default/qosm-chart"]);
    assert!(asked.status.success(), "{asked:?}");
    let bursts = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("cpu.burst")).map(str::to_owned).collect()
    };
    let by_plugin = bursts(&String::from_utf8_lossy(&asked.stdout));
    assert!(!by_plugin.is_empty() && by_plugin == bursts(explained), "{asked:?}");
    let listed = plugin(&["get", "pods", "--node", NODE, "--output=json"]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("default/qosm-chart"), "{listed:?}");
    let looked = plugin(&["top", "--node", NODE, "--once", "--output=json"]);
    assert!(String::from_utf8_lossy(&looked.stdout).contains("default/qosm-chart"), "{looked:?}");
    wait_until_the_page_has_the_pod(&mut typed(&["ui", "--node", NODE]));
    let elsewhere = plugin(&["get", "pods", "--node", "nowhere"]);
    let why = String::from_utf8_lossy(&elsewhere.stderr);
    assert!(why.contains(&format!("no agent of qosm runs on node nowhere; one runs on: {NODE}")), "{why}");

    kubectl(&["delete", "rolebinding", "on-call", &in_namespace]);
    // The API server's authorizer notices it a moment later.
    wait_until("who may not enter the agent's container to be told so", || {
        let refused = plugin(&["explain", "default/qosm-chart"]);
        let why = String::from_utf8_lossy(&refused.stderr);
        !refused.status.success() && why.contains("cannot be asked") && why.contains("pods/exec")
    });
    kubectl(&["delete", "clusterrolebinding", "on-call"]);
    kubectl(&["delete", "--filename", roles.to_str().unwrap()]);
}

/// Serves the page of the node locally, and reads it as a browser does.
fn wait_until_the_page_has_the_pod(ui: &mut Command) {
    let mut server = ui.stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let (at, token) = url.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap();
    wait_until("the pod to stand on the page", || {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET /api/overview{token} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.contains("default/qosm-chart")
    });
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Uninstalls the chart, even if the test fails.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        let helm = |args: &[&str]| {
            let mut helm = Command::new(said("QOSM_HELM"));
            helm.args(args).args(["--namespace", NAMESPACE]).env("KUBECONFIG", said("KUBECONFIG")).output()
        };
        if std::thread::panicking() {
            eprintln!("{:?}", try_kubectl(&["logs", "--namespace", NAMESPACE, "daemonset/qosm-agent", "--tail=50"]));
            eprintln!("{:?}", try_kubectl(&["describe", "pods", "--namespace", NAMESPACE]));
        }
        helm(&["uninstall", "qosm", "--ignore-not-found"]).ok();
    }
}

/// Ends the watching thread, even if the test fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_chart_runs_on_the_node_keeps_values_over_an_update_and_leaves_nothing() {
    let image = cluster_file("qosm.tar");
    let xtask = || Command::new(said("QOSM_XTASK"));
    run(xtask()
        .args(["image", "--qosm", env!("CARGO_BIN_EXE_qosm"), "--name", IMAGE, "--output"])
        .arg(&image)
        .current_dir(root()));
    run(xtask().args(["cluster", "import"]).arg(&image).arg("--dir").arg(said("QOSM_TEST_CLUSTER")));
    let values = cluster_file("qosm-values.json");
    let chart = root().join("deploy/helm/qosm");
    install_crds();
    // Helm does not adopt roles that other tests have applied.
    let applied =
        ["clusterrole", "clusterrolebinding", "validatingadmissionpolicy", "validatingadmissionpolicybinding"];
    for kind in applied {
        for name in ["qosm-agent", "qosm-controller", "qosm-agent-own-report"] {
            kubectl(&["delete", kind, name, "--ignore-not-found"]);
        }
    }
    try_kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=true"]).unwrap();
    kubectl(&["delete", "policymodules", "--all"]);
    let release = Release;
    helm(&["install", "qosm", chart.to_str().unwrap(), "--create-namespace", "--values", values.to_str().unwrap()]);

    let metadata = json!({"annotations": {"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#}});
    let pod = Pod::create_with("qosm-chart", &metadata, &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("an agent of the chart gives the container its burst", || group.burst() == 20_000);
    for module in ["cpu-burst", "memory-locality", "memory-qos"] {
        wait_until("the controller counts the node", || get(&["policymodule", module])["status"]["updated"] == 1);
    }
    let report = get(&["nodepolicyreport", NODE]);
    assert_eq!(report["status"]["summary"], "3/3", "{report:#}");
    let explained = kubectl(&[
        "exec",
        "--namespace",
        NAMESPACE,
        "daemonset/qosm-agent",
        "--",
        "qosm",
        "explain",
        "default/qosm-chart",
    ]);
    assert!(explained.contains("annotation koordinator.sh/cpuBurst"), "{explained}");
    as_a_plugin(&explained);

    // As in the README.
    let example = root().join("examples/kubernetes/web.yaml");
    kubectl(&["apply", "--filename", example.to_str().unwrap()]);
    wait_until("kubectl describe tells what was done for the example", || {
        let described = kubectl(&["describe", "pod", "web"]);
        described.contains("PolicyApplied") && described.contains("cpu.burst 0 -> 20000")
    });
    kubectl(&["delete", "--filename", example.to_str().unwrap()]);

    // An update: another agent takes over, and meanwhile no knob changes.
    let agent = || get(&["pods", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/component=agent"]);
    let first = agent()["items"][0]["metadata"]["uid"].clone();
    let (is_over, has_moved) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = SetWhenDropped(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                has_moved.fetch_or(group.burst() != 20_000, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        kubectl(&["rollout", "restart", "--namespace", NAMESPACE, "daemonset/qosm-agent"]);
        kubectl(&["rollout", "status", "--namespace", NAMESPACE, "daemonset/qosm-agent", "--timeout=300s"]);
        wait_for("another agent is ready", || {
            let agents = agent();
            let agent = &agents["items"][0];
            let is_ready = agent["status"]["containerStatuses"][0]["ready"] == true;
            (is_ready && agent["metadata"]["uid"] != first).then_some(())
        });
    });
    assert!(!has_moved.load(Ordering::Relaxed), "an update unsettles pods");

    drop(release);
    wait_until("without the chart every knob is as it was", || group.burst() == 0);
    // Only one agent can use a node's cgroups: the next test's agent would not start.
    wait_until("the chart's agents to be gone", || {
        let left = get(&["pods", "--namespace", NAMESPACE]);
        left["items"].as_array().is_some_and(Vec::is_empty)
    });
}
