//! Pods get the settings of their annotations, and PolicyModules take effect.

use serde_json::{Value, json};

use crate::agent::{Agent, Controller, Module};
use crate::node::{Group, NODE, Pod, StaticPod, api_server, apply, busy, get, kubectl, try_kubectl};
use crate::waiting::wait_until;

/// CPU Burst as a built-in module.
pub(crate) fn burst() -> Value {
    json!({"module": "builtin:cpu-burst"})
}

pub(crate) fn annotated(policy: &str) -> Value {
    json!({"annotations": {"koordinator.sh/cpuBurst": format!(r#"{{"policy":"{policy}"}}"#)}})
}

/// The cluster's strategy for CPU Burst; deleted when dropped.
struct Strategy;

impl Strategy {
    fn apply(text: &str) -> Self {
        Self::apply_over(text);
        Self
    }

    fn apply_over(text: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "ack-slo-config", "namespace": "kube-system"},
            "data": {"cpu-burst-config": text},
        });
        apply(&map.to_string());
    }
}

impl Drop for Strategy {
    fn drop(&mut self) {
        try_kubectl(&["delete", "configmap", "ack-slo-config", "--namespace=kube-system"]).ok();
    }
}

pub(crate) fn annotate(pod: &str, annotation: &str) {
    kubectl(&["annotate", "--overwrite", "pod", pod, annotation]);
}

#[test]
fn an_annotated_pod_gets_its_burst_and_loses_it_with_the_annotation() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start_on_a_calm_node());
    // On a node with few CPUs, the pod's own load must not count as overload either.
    let _map = Strategy::apply(r#"{"clusterStrategy": {"sharePoolThresholdPercent": 100}}"#);
    let pod = Pod::create_with("qosm-burst", &annotated("auto"), &busy("200m"));
    let group = pod.cgroup("app");
    // At least the initial quota: it may be raised already.
    wait_until("the container may burst", || group.burst() >= 20_000);
    let described = |what: &str| kubectl(&["describe", "pod", "qosm-burst"]).contains(what);
    wait_until("kubectl describe tells what was done", || {
        described("PolicyApplied") && described("container app cpu.burst 0 -> 20000 (1000 % of the CPU limit)")
    });
    wait_until("its quota is raised while it is throttled", || group.quota() > 20_000);
    annotate("qosm-burst", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("everything is as it was", || group.burst() == 0 && group.quota() == 20_000);
    wait_until("kubectl describe tells that it has ended", || described("PolicyReleased"));
}

#[test]
fn a_container_that_restarts_gets_its_burst_again() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let pod = Pod::create_with("qosm-restart", &annotated("cpuBurstOnly"), &busy("200m"));
    let before = pod.container_id("app");
    wait_until("the container may burst", || pod.cgroup("app").burst() == 20_000);
    pod.cgroup("app").kill();
    wait_until("it is another container", || {
        let status = &pod.get()["status"]["containerStatuses"][0];
        status["ready"] == true && status["containerID"].as_str().is_some_and(|id| !id.ends_with(&before))
    });
    wait_until("that one may burst too", || pod.cgroup("app").burst() == 20_000);
}

#[test]
fn a_resize_in_place_moves_what_comes_back_at_the_end() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let pod = Pod::create_with("qosm-resize", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);
    let patch = r#"{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"}}}]}}"#;
    kubectl(&["patch", "pod", "qosm-resize", "--subresource=resize", "--patch", patch]);
    wait_until("quota and burst follow the new limit", || group.quota() == 30_000 && group.burst() == 30_000);
    annotate("qosm-resize", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("the new limit stays", || group.quota() == 30_000 && group.burst() == 0);
}

/// Resizes the container `app`, in place.
fn resize(pod: &Pod, resources: &Value) {
    let patch = json!({"spec": {"containers": [{"name": "app", "resources": resources}]}}).to_string();
    kubectl(&["patch", "pod", pod.name(), "--subresource=resize", "--patch", &patch]);
}

/// Whether the kubelet has completed the resize to this CPU limit.
fn is_resized(pod: &Pod, limit: &str) -> bool {
    let status = &pod.get()["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let is_open = |kind: &str| kind == "PodResizePending" || kind == "PodResizeInProgress";
    let is_done = !conditions.iter().any(|one| one["type"].as_str().is_some_and(is_open) && one["status"] == "True");
    is_done && status["containerStatuses"][0]["resources"]["limits"]["cpu"] == limit
}

#[test]
fn the_kubelet_resizes_a_pod_whose_quota_and_burst_are_held() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start_on_a_calm_node());
    let _map = Strategy::apply(r#"{"clusterStrategy": {"sharePoolThresholdPercent": 100}}"#);
    let pod = Pod::create_with("qosm-shrinks", &annotated("auto"), &busy("300m"));
    let group = pod.cgroup("app");
    for (limit, quota) in [("300m", 30_000), ("100m", 10_000), ("200m", 20_000)] {
        resize(&pod, &json!({"limits": {"cpu": limit}}));
        wait_until(&format!("the kubelet is done with {limit}"), || is_resized(&pod, limit));
        wait_until("its burst is what the new limit allows", || group.burst() == quota);
        wait_until("its quota is raised above the new limit", || group.quota() > quota);
    }
    annotate("qosm-shrinks", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("the last limit is what is left", || group.quota() == 20_000 && group.burst() == 0);
}

#[test]
fn a_container_without_a_limit_gets_its_first_one_in_place() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let mut spec = busy("200m");
    spec["containers"][0]["resources"] =
        json!({"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}});
    let pod = Pod::create_with("qosm-first-limit", &annotated("cpuBurstOnly"), &spec);
    let group = pod.cgroup("app");
    assert_eq!(group.quota(), -1);
    resize(&pod, &json!({"limits": {"cpu": "200m"}}));
    wait_until("the kubelet is done", || is_resized(&pod, "200m"));
    wait_until("it may burst within the limit", || group.quota() == 20_000 && group.burst() == 20_000);
}

/// The API server itself refuses a resize that no node could satisfy; the kubelet defers one for which this node has no room now.
#[test]
fn a_resize_that_the_kubelet_puts_off_changes_nothing_and_is_shown() {
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let mut spec = busy("100m");
    spec["containers"][0]["resources"]["requests"]["cpu"] = "100m".into();
    let _neighbour = Pod::create("qosm-neighbour", &spec);
    let pod = Pod::create_with("qosm-put-off", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);
    let allocatable = kubectl(&["get", "node", NODE, "--output=jsonpath={.status.allocatable.cpu}"]);
    resize(&pod, &json!({"requests": {"cpu": allocatable.trim()}, "limits": {"cpu": allocatable.trim()}}));
    let explained = || agent.ask(&["explain", "default/qosm-put-off"]).unwrap_or_default();
    wait_until("the agent shows that it was put off", || {
        explained().contains("resize that the kubelet has not carried out: Deferred")
    });
    assert_eq!((group.quota(), group.burst()), (20_000, 20_000));
    let wanted = allocatable.trim();
    let wanted = if wanted.ends_with('m') { wanted.to_owned() } else { format!("{wanted}000m") };
    assert!(explained().contains(&format!("limits.cpu is 200m, asked for is {wanted}")), "{}", explained());
}

#[test]
fn a_policy_module_is_put_into_the_shadow_swapped_and_removed() {
    let module = Module::apply("cpu-burst", &burst());
    let agent = Agent::start();
    let pod = Pod::create_with("qosm-module", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);

    module.change(&json!({"mode": "shadow"}));
    wait_until("a shadow writes nothing", || group.burst() == 0);
    wait_until("it is compared", || agent.ask(&["get", "policies"]).is_ok_and(|answer| answer.contains("shadow")));

    // Another file with the same module, like a new version.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("next.wasm");
    std::fs::copy(modules().join("cpu-burst.wasm"), &file).unwrap();
    module.change(&json!({"mode": "enforce", "module": format!("file://{}", file.display()), "config": {"profile": "koordinator"}}));
    wait_until("the other version holds the burst", || group.burst() == 20_000);

    module.change(&json!({"module": "file:///no/such.wasm"}));
    wait_until("what cannot be loaded is reported", || {
        agent.ask(&["get", "policies", "-o", "json"]).is_ok_and(|answer| answer.contains("is not taken"))
    });
    assert_eq!(group.burst(), 20_000, "the last good one goes on");
    drop(module);
    wait_until("without the module everything is as it was", || group.burst() == 0);
}

/// Folder of the default modules.
pub(crate) fn modules() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_BIN_EXE_qosm")).parent().unwrap().parent().unwrap().join("policies")
}

/// The kubelet runs the pod from a file; the API server only has its mirror, with another UID.
#[test]
fn a_static_pod_gets_what_its_annotations_ask_for() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let pod = StaticPod::create("qosm-static", &annotated("cpuBurstOnly"), &busy("200m"));
    let hash = pod.get()["metadata"]["annotations"]["kubernetes.io/config.hash"].as_str().unwrap().to_owned();
    let group = Group::of(&hash, &pod.container_id("app"));
    wait_until("the container may burst", || group.burst() == 20_000);
    wait_until("kubectl describe tells what was done", || {
        kubectl(&["describe", "pod", pod.name()]).contains("PolicyApplied")
    });
}

/// Features that the kernel lacks are reported where the pod's owner looks, and the rest of the policy works.
#[test]
fn memory_qos_does_what_the_kernel_has_and_reports_what_it_lacks() {
    let (_module, agent) = (Module::apply("memory-qos", &json!({"module": "builtin:memory-qos"})), Agent::start());
    let metadata = json!({"annotations": {"koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#}});
    let pod = Pod::create_with("qosm-memory", &metadata, &busy("200m"));
    let support = || {
        let report = get(&["nodepolicyreport", NODE]);
        report["status"]["capabilities"]["knobs"]["memory.wmark_ratio"].as_str().unwrap_or_default().to_owned()
    };
    wait_until("the node's report says what the kernel offers", || !support().is_empty());
    let explained = || agent.ask(&["explain", "default/qosm-memory"]).unwrap_or_default();
    wait_until("the agent explains what it did", || explained().contains("memory.wmark_ratio"));
    if support().starts_with("unavailable") {
        wait_until("kubectl describe tells what cannot be", || {
            let described = kubectl(&["describe", "pod", pod.name()]);
            described.contains("KnobRefused") && described.contains("memory.wmark_ratio")
        });
    }
}

/// A single NUMA node has no remote memory: the event says so, with the reference agent's words.
#[test]
fn memory_locality_reports_its_result_by_an_event() {
    let module = json!({"module": "builtin:memory-locality"});
    let (_module, _agent) = (Module::apply("memory-locality", &module), Agent::start());
    let metadata = json!({"annotations": {"koordinator.sh/memoryLocality": r#"{"policy":"bestEffort"}"#}});
    let _pod = Pod::create_with("qosm-locality", &metadata, &busy("200m"));
    let described = || kubectl(&["describe", "pod", "qosm-locality"]);
    let is_single = !std::path::Path::new("/sys/devices/system/node/node1").exists();
    let expected = if is_single { "MemoryLocalitySkipped" } else { "MemoryLocality" };
    wait_until("the pod gets an event", || described().contains(expected));
    assert!(!is_single || described().contains("no target numa"), "{}", described());
}

#[test]
fn the_api_server_may_go_and_the_agent_may_be_killed() {
    let (_module, mut agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let pod = Pod::create_with("qosm-outage", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);
    api_server("stop");
    wait_until("the outage is reported", || {
        agent.ask(&["get", "problems"]).is_ok_and(|answer| answer.contains("watch of") && answer.contains("counts on"))
    });
    assert_eq!(group.burst(), 20_000, "what was known counts on");
    api_server("start");
    wait_until("it is mended", || agent.ask(&["get", "problems"]).is_ok_and(|answer| !answer.contains("watch of")));
    annotate("qosm-outage", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("changes arrive again", || group.burst() == 0);
    annotate("qosm-outage", r#"koordinator.sh/cpuBurst={"policy":"cpuBurstOnly"}"#);
    wait_until("in both directions", || group.burst() == 20_000);

    agent.kill();
    assert_eq!(group.burst(), 20_000);
    agent.start_again();
    assert_eq!(group.burst(), 20_000, "the next agent takes it over");
    agent.end();
    assert_eq!(group.burst(), 0, "an end in order restores");
}

#[test]
fn a_config_map_counts_and_a_broken_one_is_reported_where_its_author_looks() {
    let (_module, _agent, _controller) = (Module::apply("cpu-burst", &burst()), Agent::start(), Controller::start());
    let pod = Pod::create("qosm-class", &busy("200m"));
    let group = pod.cgroup("app");
    let _map = Strategy::apply(r#"{"clusterStrategy": {"policy": "cpuBurstOnly"}}"#);
    wait_until("every pod may burst", || group.burst() == 20_000);
    Strategy::apply_over(r#"{"clusterStrategy": {"policy": "#);
    wait_until("kubectl describe shows what is wrong", || {
        kubectl(&["describe", "configmap", "ack-slo-config", "--namespace=kube-system"])
            .contains("InvalidConfiguration")
    });
    assert_eq!(group.burst(), 20_000, "the last good text counts");
    Strategy::apply_over(r#"{"clusterStrategy": {"policy": "none"}}"#);
    wait_until("the repaired one counts", || group.burst() == 0);
}

#[test]
fn describe_pod_shows_an_annotation_that_cannot_be_used() {
    let (_module, _agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let metadata = json!({"annotations": {"koordinator.sh/cpuBurst": r#"{"policy":"auto","cpuBurstPercent":"much"}"#}});
    let _pod = Pod::create_with("qosm-wrong", &metadata, &busy("200m"));
    wait_until("the pod has an event", || {
        let answer = kubectl(&["describe", "pod", "qosm-wrong"]);
        answer.contains("InvalidConfiguration") && answer.contains("cpuBurstPercent")
    });
}

#[test]
fn the_fleet_is_counted_and_a_module_that_cannot_run_is_reported() {
    let module = Module::apply("cpu-burst", &burst());
    let (_agent, _controller) = (Agent::start(), Controller::start());
    let status = || module.get()["status"].clone();
    wait_until("the controller counts the node", || status()["updated"] == 1 && status()["nodes"] == 1);
    let digest = || get(&["nodepolicyreport", NODE])["status"]["policies"][0]["digest"].clone();
    wait_until("its report is that of this agent", || digest().is_string() && digest() == status()["digest"]);
    let report = get(&["nodepolicyreport", NODE]);
    assert_eq!(report["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(report["status"]["capabilities"]["knobs"]["cpu.quota"], "native");
    let rollout = || {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_qosm"))
            .args(["rollout", "status", "cpu-burst"])
            .env("KUBECONFIG", crate::node::said("KUBECONFIG"))
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (good, answer) = rollout();
    assert!(good && answer.contains("1 of 1 nodes run this generation"), "{answer}");

    module.change(&json!({"grants": ["node", "cpu-stat", "teleport"]}));
    wait_until("an unknown grant is reported on the module", || {
        let described = kubectl(&["describe", "policymodule", "cpu-burst"]);
        status()["failing"] == 1 && described.contains("InvalidConfiguration") && described.contains("`teleport`")
    });
    assert!(!rollout().0);
    module.change(&json!({"grants": null, "module": "oci://registry.example/qosm/cpu-burst@sha256:0000"}));
    wait_until("a reference that cannot be resolved is reported", || {
        status()["conditions"].to_string().contains("is not REGISTRY/REPOSITORY")
    });
    module.change(&json!({"module": "builtin:cpu-burst", "nodeSelector": {"matchLabels": {"zone": "nowhere"}}}));
    wait_until("a selector without nodes is reported", || {
        status()["conditions"].to_string().contains("matches none of 1 nodes")
    });
    // The API server refuses invalid specifications.
    for (field, spec) in [
        ("spec.module", json!({"module": "cpu-burst"})),
        ("spec.mode", json!({"module": "builtin:x", "mode": "loud"})),
        ("shadowOf", json!({"module": "builtin:x", "shadowOf": "y"})),
        ("percent", json!({"module": "builtin:x", "rollout": {"percent": 101}})),
    ] {
        let object = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": "bad"}, "spec": spec});
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        let refused = try_kubectl(&["create", "--dry-run=server", "--filename", file.path().to_str().unwrap()]);
        assert!(refused.as_ref().is_err_and(|error| error.contains(field)), "{field}: {refused:?}");
    }
}
