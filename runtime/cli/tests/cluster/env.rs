//! The prerequisites of the other tests: a pod runs on this node, is limited by the kernel, and can be changed.

use serde_json::json;

use crate::node::{BUSYBOX, NODE, Pod, api_server, apply, busy, kubectl, try_kubectl, verbs_of};
use crate::waiting::{wait_for, wait_until};

#[test]
fn a_pod_runs_on_the_node() {
    let pod = Pod::create("env-runs", &busy("200m"));
    let group = pod.cgroup("app");
    assert_eq!(group.quota(), 20_000);
    let before = group.throttled();
    wait_until("the pod is throttled", || group.throttled() > before + 3);
    let path = group.path("cpu");
    pod.delete();
    wait_until("the pod's cgroup is gone", || !path.exists());
}

#[test]
fn a_pod_is_resized_in_place() {
    let pod = Pod::create("env-resized", &busy("200m"));
    let (group, id) = (pod.cgroup("app"), pod.container_id("app"));
    let patch = r#"{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"}}}]}}"#;
    kubectl(&["patch", "pod", "env-resized", "--subresource=resize", "--patch", patch]);
    wait_until("the kubelet gives the container its new quota", || group.quota() == 30_000);
    assert_eq!(pod.container_id("app"), id, "it is still the same container");
}

#[test]
fn the_api_server_restarts_and_the_pod_goes_on() {
    let pod = Pod::create("env-goes-on", &busy("200m"));
    let (group, id) = (pod.cgroup("app"), pod.container_id("app"));
    api_server("stop");
    assert!(try_kubectl(&["get", "nodes", "--request-timeout=2s"]).is_err(), "the API server still answers");
    let before = group.throttled();
    wait_until("the pod is throttled without an API server", || group.throttled() > before + 3);
    api_server("start");
    assert_eq!(pod.container_id("app"), id, "it is still the same container");
    assert_eq!(pod.get()["status"]["phase"], "Running");
    // The kubelet reconnects, too: it runs a new pod.
    let other = Pod::create("env-afterwards", &busy("100m"));
    assert_eq!(other.cgroup("app").quota(), 10_000);
}

#[test]
fn a_daemon_set_has_a_pod_that_can_ask_the_api_server() {
    kubectl(&["create", "namespace", "env-daemons"]);
    let template = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "daemon", "namespace": "env-daemons"},
        "spec": {
            "selector": {"matchLabels": {"app": "daemon"}},
            "template": {"metadata": {"labels": {"app": "daemon"}}, "spec": {
                "hostNetwork": true, "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "app", "image": BUSYBOX, "imagePullPolicy": "Never",
                    "command": ["sh", "-c", "nc -w 2 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT </dev/null && \
                        test -s /var/run/secrets/kubernetes.io/serviceaccount/token && \
                        test -s /var/run/secrets/kubernetes.io/serviceaccount/ca.crt && echo reached; exec sleep 3600"],
                }],
            }},
        },
    });
    apply(&template.to_string());
    let said = wait_for("the DaemonSet's pod reaches the API server", || {
        let said = try_kubectl(&["logs", "--namespace=env-daemons", "daemonset/daemon"]).ok()?;
        said.contains("reached").then_some(said)
    });
    assert_eq!(said.trim(), "reached");
    kubectl(&["delete", "namespace", "env-daemons", "--wait=false"]);
    let gone = || try_kubectl(&["get", "namespace", "env-daemons"]).is_err();
    wait_until("the namespace is collected with all that is in it", gone);
}

#[test]
fn the_audit_log_names_each_users_verbs() {
    let _pod = Pod::create("env-audited", &busy("100m"));
    let verbs = verbs_of(&format!("system:node:{NODE}"));
    assert!(verbs.contains("watch pods") && verbs.contains("patch pods/status"), "{verbs:?}");
    assert!(!verbs.contains("delete nodes"), "{verbs:?}");
}
