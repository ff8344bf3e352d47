//! Ownership of cgroups: a pod's claims affect no other pod, and nothing of the node.

use serde_json::{Value, json};

use crate::agent::{Agent, Module, kubeconfig};
use crate::node::{NODE, Pod, StaticPod, busy, get, kubectl, try_apply, try_kubectl};
use crate::policies::burst;
use crate::waiting::wait_until;

const BURST: &str = r#"{"policy":"cpuBurstOnly"}"#;

#[test]
fn the_owner_of_a_pod_names_no_cgroup() {
    let victim = Pod::create("qosm-victim", &busy("400m"));
    let group = victim.cgroup("app");
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let bound = json!({"app": group.relative(), "": "kubepods"}).to_string();
    let annotations = json!({"annotations": {"koordinator.sh/cpuBurst": BURST, "qosm.io/cgroup": bound}});
    let mallory = Pod::create_with("qosm-mallory", &annotations, &busy("100m"));
    let own = mallory.cgroup("app");
    wait_until("her own container may burst", || own.burst() == 10_000);
    assert_eq!((group.quota(), group.burst()), (40_000, 0), "somebody else's is as it was");
    let problems = agent.ask(&["get", "problems"]).unwrap();
    assert!(
        problems.contains("pod default/qosm-mallory: annotation qosm.io/cgroup: it counts only in manifests"),
        "{problems}"
    );
    wait_until("her pod gets an event", || {
        let of_pod = "--field-selector=involvedObject.name=qosm-mallory";
        try_kubectl(&["get", "events", of_pod, "--output=yaml"]).is_ok_and(|report| report.contains("qosm.io/cgroup"))
    });
}

/// A pod with the annotations of another pod's mirror. The kubelet would remove it at once.
struct FalseMirror;

impl FalseMirror {
    /// Creates the pod with a node's permissions: the chart's admission policy denies it to others.
    fn create(name: &str, uid: &str) -> Self {
        let node = ["--as=qosm-false-node", "--as-group=system:nodes", "--as-group=system:masters"];
        try_apply(&Self::manifest(name, uid), &node).unwrap();
        Self
    }

    fn manifest(name: &str, uid: &str) -> Value {
        let node = get(&["node", NODE])["metadata"]["uid"].clone();
        let mut manifest = json!({
            "apiVersion": "v1", "kind": "Pod", "spec": busy("50m"),
            "metadata": {
                "name": name, "finalizers": ["qosm.io/kept"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node}],
                "annotations": {
                    "koordinator.sh/cpuBurst": BURST, "kubernetes.io/config.mirror": uid, "kubernetes.io/config.hash": uid,
                    "kubernetes.io/config.source": "file",
                },
            },
        });
        manifest["spec"]["nodeName"] = NODE.into();
        manifest
    }
}

impl Drop for FalseMirror {
    fn drop(&mut self) {
        let free = r#"{"metadata":{"finalizers":null}}"#;
        let _ = try_kubectl(&["patch", "pod", "qosm-false-mirror", "--type=merge", "--patch", free]);
        let _ = try_kubectl(&["delete", "pod", "qosm-false-mirror", "--grace-period=0", "--force", "--wait=false"]);
    }
}

#[test]
fn a_pod_that_borrows_anothers_uid_is_left_alone_and_reported() {
    let victim = Pod::create("qosm-victim", &busy("400m"));
    let group = victim.cgroup("app");
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let _twin = FalseMirror::create("qosm-false-mirror", &victim.uid());
    let report = "pod default/qosm-false-mirror: metadata.uid: pod default/qosm-victim has the UID";
    wait_until("it is reported", || agent.ask(&["get", "problems"]).is_ok_and(|problems| problems.contains(report)));
    for change in 0..5 {
        kubectl(&["label", "pod", "qosm-false-mirror", "--overwrite", &format!("i={change}")]);
    }
    let listed =
        || -> Vec<Value> { serde_json::from_str(&agent.ask(&["get", "pods", "--output", "json"]).unwrap()).unwrap() };
    let of_uid = listed().into_iter().filter(|pod| pod["uid"] == victim.uid().as_str()).count();
    assert_eq!(of_uid, 1, "{:#?}", listed());
    assert_eq!((group.quota(), group.burst()), (40_000, 0), "her annotation is not the victim's");
}

#[test]
fn only_nodes_say_what_a_mirror_pod_mirrors() {
    let folder = tempfile::tempdir().unwrap();
    kubeconfig(folder.path(), "qosm-agent");
    let is_refused =
        |answer: Result<String, String>| answer.is_err_and(|error| error.contains("of a mirror pod are the kubelet's"));
    let manifest = FalseMirror::manifest("qosm-no-mirror", "some-uid");
    wait_until("the admission policy is in force", || is_refused(try_apply(&manifest, &["--dry-run=server"])));
    // The API server copies annotations of a Binding to the pod.
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        "metadata": {"name": "qosm-no-mirror", "annotations": {"kubernetes.io/config.mirror": "some-uid"}},
    });
    let file = folder.path().join("binding.json");
    std::fs::write(&file, binding.to_string()).unwrap();
    let at = "--raw=/api/v1/namespaces/default/pods/qosm-no-mirror/binding";
    assert!(is_refused(try_kubectl(&["create", at, &format!("--filename={}", file.display())])));

    // The kubelet creates its mirrors as before, and other clients may write annotations that are not the kubelet's.
    let mirror = StaticPod::create("qosm-mirrored", &json!({}), &busy("50m"));
    let annotate = |annotation| try_kubectl(&["annotate", "pod", mirror.name(), "--overwrite", annotation]);
    assert!(is_refused(annotate("kubernetes.io/config.hash=some-uid")));
    assert!(is_refused(annotate("kubernetes.io/config.source-")));
    annotate("example.org/note=mine").unwrap();
}
