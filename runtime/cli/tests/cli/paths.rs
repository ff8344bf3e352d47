//! Paths of files: drivers, cgroup versions, tiers, runtimes, nested roots, static pods.

use serde_json::{Value, json};

use crate::qosm::{Run, plan, pod};

const UID: &str = "6553a60b-2b97-442a-b6da-a5704d81dd98";

/// A pod of a Kubernetes QoS class with a knob that every host of these tests has.
fn of_class(class: &str, uid: &str, container_id: &str) -> Value {
    let mut pod = pod("web", &json!({"koordinator.sh/memoryQOS": r#"{"oomKillGroup":1}"#}), &json!([{"name": "a"}]));
    pod["metadata"]["uid"] = uid.into();
    pod["status"] = json!({
        "phase": "Running",
        "qosClass": class,
        "containerStatuses": [{
            "name": "a", "containerID": container_id, "state": {"running": {}},
            "image": "", "imageID": "", "ready": true, "restartCount": 0,
        }],
    });
    pod
}

fn node(host: &Value, pod: &Value) -> Value {
    let mut facts = json!({"host": {"kernel": "alibaba"}, "policies": [{"name": "memory-qos"}], "pods": [pod]});
    for (field, value) in host.as_object().unwrap() {
        facts["host"][field] = value.clone();
    }
    facts
}

/// The folders of pod and container, without the mount point; empty if nothing is written.
fn folders(planned: &Run) -> [String; 2] {
    let rows = planned.decisions();
    ["pod", "container"].map(|level| {
        let path = rows.as_array().unwrap().iter().find(|row| row["level"] == level).map(|row| row["path"].clone());
        let path = path.as_ref().and_then(Value::as_str).unwrap_or_default();
        path.strip_prefix("/sys/fs/cgroup/").unwrap_or(path).trim_end_matches("/memory.oom.group").to_owned()
    })
}

#[test]
fn pods_and_containers_are_found_where_kubelet_and_runtime_put_them() {
    let long = "703b2a9d";
    let underscored =
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod6553a60b_2b97_442a_b6da_a5704d81dd98.slice";
    for (driver, class, uid, id, pod, container) in [
        (
            "systemd",
            "Guaranteed",
            "uid1",
            "containerd://X",
            "kubepods.slice/kubepods-poduid1.slice",
            "cri-containerd-X.scope",
        ),
        (
            "systemd",
            "Burstable",
            "uid1",
            "cri-o://X",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poduid1.slice",
            "crio-X.scope",
        ),
        (
            "systemd",
            "BestEffort",
            "uid1",
            "pouch://X",
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poduid1.slice",
            "pouch-X.scope",
        ),
        ("systemd", "BestEffort", UID, &format!("docker://{long}"), underscored, &format!("docker-{long}.scope")),
        ("cgroupfs", "Guaranteed", "uid1", "containerd://X", "kubepods/poduid1", "X"),
        ("cgroupfs", "Burstable", "uid1", "docker://X", "kubepods/burstable/poduid1", "X"),
        ("cgroupfs", "BestEffort", UID, "pouch://X", &format!("kubepods/besteffort/pod{UID}"), "X"),
    ] {
        for (version, mount) in [("v1", "memory/"), ("v2", "")] {
            let facts = node(&json!({"driver": driver, "cgroup": version}), &of_class(class, uid, id));
            let planned = plan(&facts).says_nothing_else();
            assert_eq!(
                folders(&planned),
                [format!("{mount}{pod}"), format!("{mount}{pod}/{container}")],
                "{driver} {class} {version}"
            );
        }
    }
}

#[test]
fn cpu_and_memory_may_live_in_different_versions() {
    let host = json!({"driver": "cgroupfs", "cgroup": {"cpu": "v1", "cpuacct": "v1", "cpuset": "v1", "memory": "v2"}});
    let mut web = of_class("Burstable", "u", "containerd://X");
    web["metadata"]["annotations"]["koordinator.sh/cpuBurst"] = r#"{"policy":"cpuBurstOnly"}"#.into();
    web["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    let mut facts = node(&host, &web);
    facts["policies"] = json!([]);
    let planned = plan(&facts).says_nothing_else();
    let rows = planned.decisions();
    let file = |knob: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["level"] == "container" && row["knob"] == knob);
        row.unwrap_or_else(|| unreachable!("{knob}: {rows}"))["path"].as_str().unwrap().to_owned()
    };
    let burst = file("cpu.burst");
    assert!(burst.ends_with("/cpu/kubepods/burstable/podu/X/cpu.cfs_burst_us"), "{burst}");
    let group = file("memory.oom.group");
    assert!(group.ends_with("/kubepods/burstable/podu/X/memory.oom.group") && !group.contains("/memory/"), "{group}");
}

#[test]
fn a_nested_root_is_followed() {
    for (driver, root, pod) in [
        (
            "systemd",
            "/kubelet",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-podu_1.slice",
        ),
        ("cgroupfs", "/kubelet", "kubelet/kubepods/besteffort/podu-1"),
    ] {
        let host = json!({"driver": driver, "cgroup": "v2", "cgroupRoot": root});
        let planned = plan(&node(&host, &of_class("BestEffort", "u-1", "containerd://X"))).says_nothing_else();
        assert_eq!(folders(&planned)[0], pod);
    }
}

#[test]
fn a_static_pods_group_is_named_after_its_hash() {
    let hash = "0123456789abcdef0123456789abcdef";
    let mut web = of_class("Burstable", UID, "containerd://X");
    web["metadata"]["annotations"]["kubernetes.io/config.mirror"] = hash.into();
    web["metadata"]["annotations"]["kubernetes.io/config.hash"] = hash.into();
    let host = json!({"driver": "cgroupfs", "cgroup": "v2"});
    // Any pod owner may write annotations.
    let planned = plan(&node(&host, &web));
    assert_eq!(folders(&planned)[0], format!("kubepods/burstable/pod{UID}"));
    planned.says(1, &["pod default/web", "kubernetes.io/config.mirror", "the kubelet did not make this mirror"]);
    web["metadata"]["annotations"]["kubernetes.io/config.source"] = "file".into();
    web["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true}]);
    let planned = plan(&node(&host, &web)).says_nothing_else();
    assert_eq!(folders(&planned)[0], format!("kubepods/burstable/pod{hash}"));
}

#[test]
fn a_container_of_an_unknown_runtime_is_skipped_and_its_pod_is_not() {
    for id in ["crio://X", "X"] {
        for driver in ["systemd", "cgroupfs"] {
            let planned = plan(&node(&json!({"driver": driver, "cgroup": "v2"}), &of_class("Burstable", "u", id)));
            let [pod, container] = folders(&planned);
            assert!(pod.contains("podu"), "{id} {driver}: {planned:#?}");
            assert_eq!(container, "", "{id} {driver}");
            planned.says(1, &["pod default/web", "containerID"]);
        }
    }
}

#[test]
fn a_manifest_may_bind_containers_to_groups_of_its_own() {
    let annotations = json!({
        "koordinator.sh/memoryQOS": r#"{"oomKillGroup":1}"#,
        "qosm.io/cgroup": r#"{"a": "system.slice/nginx.service", "pod": "system.slice"}"#,
    });
    let web = pod("web", &annotations, &json!([{"name": "a"}]));
    let planned = plan(&node(&json!({"driver": "systemd", "cgroup": "v2"}), &web)).says_nothing_else();
    let [_, container] = folders(&planned);
    assert_eq!(container, "system.slice/nginx.service");
}

#[test]
fn a_manifest_binds_to_nothing_that_is_not_the_pods() {
    for (bound, why) in [
        (r#"{"a": "kubepods/burstable"}"#, "holds the cgroups of other pods"),
        (r#"{"a": "kubepods"}"#, "holds the cgroups of all pods"),
        (r#"{"a": "kubepods/burstable/podvictim/X"}"#, "another pod's"),
        (r#"{"a": "kubepods/podu"}"#, "the pod itself"),
        (r#"{"": "kubepods"}"#, "holds the cgroups of all pods"),
        (r#"{"a": "system.slice/x.service", "": "demo.slice"}"#, "does not lie below `demo.slice`"),
    ] {
        let annotations = json!({"koordinator.sh/memoryQOS": r#"{"oomKillGroup":1}"#, "qosm.io/cgroup": bound});
        let mut mallory = pod("mallory", &annotations, &json!([{"name": "a"}]));
        mallory["metadata"]["uid"] = "u".into();
        let planned = plan(&node(&json!({"driver": "cgroupfs", "cgroup": "v2"}), &mallory));
        planned.says(1, &["pod default/mallory", "qosm.io/cgroup", why, "name a cgroup of its own"]);
        assert_eq!(folders(&planned)[1], "", "{bound}");
    }
}

#[test]
fn no_two_pods_have_one_cgroup() {
    let bound = |path: &str| {
        let cgroup = json!({"a": path}).to_string();
        json!({"koordinator.sh/memoryQOS": r#"{"oomKillGroup":1}"#, "qosm.io/cgroup": cgroup})
    };
    for (first, second) in [("x/a", "x/a"), ("x/a", "x/a/below"), ("x/a/below", "x/a")] {
        let mut facts =
            node(&json!({"driver": "cgroupfs", "cgroup": "v2"}), &pod("first", &bound(first), &json!([{"name": "a"}])));
        let other = pod("second", &bound(second), &json!([{"name": "a"}]));
        facts["pods"].as_array_mut().unwrap().push(other);
        let planned = plan(&facts);
        planned.says(1, &["pod default/second", "qosm.io/cgroup", "is that of default/first/a already"]);
        assert_eq!(folders(&planned)[1], first);
    }
}
