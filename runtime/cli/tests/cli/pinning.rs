//! Exclusive CPUs, replayed: beside a kubelet whose CPU manager is known, static, or unknown.

use serde_json::{Value, json};

use crate::qosm::{plan, replay};

/// A Guaranteed pod that requests two exclusive CPUs: the kubelet's static manager would give it some, too.
fn asking(name: &str) -> Value {
    let amounts = json!({"cpu": "2", "memory": "1Gi"});
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("u-{name}"), "annotations": {"cpuset-scheduler": "true"},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
    })
}

/// The decisions on a node of eight CPUs, at once and later.
fn decided(manager_state: &Value, cgroups: &Value) -> (Vec<String>, Vec<String>) {
    let mut host = json!({"cpus": 8});
    if !manager_state.is_null() {
        host["cpuManagerState"] = manager_state.clone();
    }
    let facts = json!({
        "host": host, "pods": [asking("web"), asking("db")], "cgroups": cgroups, "policies": [{"name": "cpu-topology"}],
    });
    let mut ticks = replay(&facts, &vec![json!({}); 30]).into_iter();
    let cpus = |rows: Vec<String>| rows.into_iter().filter(|row| row.contains("cpuset.cpus")).collect();
    (cpus(ticks.next().unwrap()), ticks.flat_map(cpus).collect())
}

#[test]
fn a_choice_stays_and_is_not_taken_for_the_kubelets() {
    let none = json!({"policyName": "none", "defaultCpuSet": "", "checksum": 1});
    for state in [Value::Null, none] {
        let (first, later) = decided(&state, &json!([]));
        assert_eq!(
            first,
            ["container default/db/app cpuset.cpus 2-3", "container default/web/app cpuset.cpus 0-1"],
            "{state}"
        );
        assert_eq!(later, [""; 0], "{state}");
    }
}

#[test]
fn a_pod_that_the_kubelet_pinned_is_left_to_it_and_its_cpus_are_nobody_elses() {
    let state = json!({
        "policyName": "static", "defaultCpuSet": "2-7", "entries": {"u-web": {"app": "0-1"}}, "checksum": 1,
    });
    let files = json!([{"pod": "default/web", "container": "app", "files": {"cpuset.cpus": "0-1"}}]);
    let (first, later) = decided(&state, &files);
    assert_eq!(first, ["container default/db/app cpuset.cpus 2-3"]);
    assert_eq!(later, [""; 0]);
}

#[test]
fn what_owners_of_pods_wrote_ends_no_evaluation() {
    let bad = |name: &str, word: &str| {
        json!({
            "metadata": {
                "name": name, "namespace": "tenant", "uid": format!("u-{name}"),
                "annotations": {"scheduling.koordinator.sh/resource-spec": json!({"preferredCPUBindPolicy": word}).to_string()},
            },
            "spec": {"containers": [{"name": "app"}]},
        })
    };
    let wide = |name: &str| {
        let mut pod = bad(name, "");
        let status = json!({"cpuset": vec!["0-8191"; 400].join(",")}).to_string();
        pod["metadata"]["annotations"] = json!({"scheduling.koordinator.sh/resource-status": status});
        pod
    };
    let wide: Vec<Value> = (0..100).map(|number| wide(&format!("wide-{number}"))).collect();
    let long = [bad("long", &"x".repeat(5000)), bad("longer", &format!("Full\n{}", "é".repeat(5000)))];
    let many: Vec<Value> = (0..300).map(|number| bad(&format!("bad-{number}"), "Whole")).collect();
    for bad in [long.to_vec(), many, wide] {
        let count = bad.len();
        let pods: Vec<Value> = std::iter::once(asking("db")).chain(bad).collect();
        let planned = plan(&json!({"host": {"cpus": 8}, "pods": pods, "policies": [{"name": "cpu-topology"}]}));
        let rows = planned.rows();
        assert!(rows.contains(&"container default/db/app cpuset.cpus 0-1".to_owned()), "{planned:#?}");
        let events = planned.json()["events"].as_array().unwrap().len();
        assert_eq!(events, count.min(256), "the rest follows: {planned:#?}");
    }
}
