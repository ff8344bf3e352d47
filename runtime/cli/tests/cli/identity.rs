//! CPU identity of batch containers: plans of nodes in files.

use serde_json::{Value, json};

use crate::qosm::{plan, replay};

const ENABLED: &str =
    r#"{"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}}}}"#;

fn pod(name: &str, class: Option<&str>, annotation: Option<&str>) -> Value {
    let labels = class.map_or(json!({}), |class| json!({"koordinator.sh/qosClass": class}));
    let annotations = annotation.map_or(json!({}), |text| json!({"koordinator.sh/cpuQOS": text}));
    // Without requests a pod is BestEffort.
    let resources = if class == Some("BE") { json!({}) } else { json!({"requests": {"cpu": "1"}}) };
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": labels, "annotations": annotations,
        },
        "spec": {"containers": [{"name": "app", "resources": resources}]},
    })
}

fn facts(cgroup: &str, strategy: &str, config: &Value, pods: &[Value]) -> Value {
    json!({
        "host": {"cgroup": cgroup, "driver": "cgroupfs", "cpus": 8},
        "policies": [{"name": "cpu-identity", "config": config}],
        "configMaps": [{
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"resource-qos-config": strategy},
        }],
        "pods": pods,
    })
}

fn row<'a>(rows: &'a Value, knob: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|row| row["knob"] == knob).unwrap_or(&Value::Null)
}

#[test]
fn batch_containers_alone_become_idle_and_the_plan_says_by_what() {
    let pods = [pod("web", Some("LS"), None), pod("plain", None, None), pod("report", Some("BE"), None)];
    for cgroup in ["v1", "v2"] {
        let planned = plan(&facts(cgroup, ENABLED, &json!({}), &pods)).says_only_notes();
        planned.says(
            0,
            &[
                "note: cpu-identity: cpu.bvt_warp_ns is not written (there is no cpu.bvt_warp_ns; needs Alibaba",
                "have cpu.idle instead",
            ],
        );
        let idle = ["container default/report/app cpu.idle 1", "container default/report/app cpu.weight 0"];
        assert_eq!(planned.rows(), idle, "{cgroup}");
        let rows = planned.decisions();
        assert_eq!(row(&rows, "cpu.idle")["reason"], "group identity -1 of class BE", "{rows}");
    }
}

#[test]
fn without_a_strategy_labelled_pods_are_batch_only_with_the_defaults_of_colocation() {
    let pods = [pod("web", Some("LS"), None), pod("report", Some("BE"), None)];
    for (strategy, config, is_idle) in [
        ("{}", json!({}), false),
        ("{}", json!({"defaults": "colocation"}), true),
        (
            r#"{"clusterStrategy": {"beClass": {"cpuQOS": {"enable": false}}}}"#,
            json!({"defaults": "colocation"}),
            false,
        ),
    ] {
        let planned = plan(&facts("v2", strategy, &config, &pods)).says_only_notes();
        assert_eq!(!row(&planned.decisions(), "cpu.idle").is_null(), is_idle, "{strategy} {config}");
    }
}

#[test]
fn an_annotation_lets_a_latency_sensitive_pod_go_behind_and_a_wrong_one_is_named() {
    let idle = |annotation: &str| {
        let planned = plan(&facts("v2", ENABLED, &json!({}), &[pod("web", Some("LS"), Some(annotation))]));
        (row(&planned.decisions(), "cpu.idle")["reason"].clone(), planned)
    };
    let (reason, planned) = idle(r#"{"enable": true, "groupIdentity": -1}"#);
    assert_eq!(reason, "group identity -1, which the pod asks for");
    planned.says_only_notes();
    for annotation in [
        r#"{"enable": true, "groupIdentity": -2}"#,
        r#"{"enable": "yes", "groupIdentity": -1}"#,
        r#"{"enable": true, "groupIdentity": -1e400}"#,
        "-1",
        "",
    ] {
        let (reason, planned) = idle(annotation);
        assert_eq!(reason, Value::Null, "{annotation}");
        planned.says(1, &["problem: pod default/web: annotation koordinator.sh/cpuQOS", "next lower layer"]);
    }
}

#[test]
fn without_cpu_idle_the_least_weight_stands_in_and_the_plan_says_so() {
    for (cgroup, lowest) in [("v1", "2 shares"), ("v2", "1")] {
        let mut facts = facts(cgroup, ENABLED, &json!({}), &[pod("report", Some("BE"), None)]);
        facts["host"]["missingFiles"] = json!(["cpu.idle"]);
        facts["pods"][0]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
        let planned = plan(&facts);
        planned.says(1, &["not possible: cpu.idle of", "lowest weight"]);
        assert_eq!(planned.rows(), [format!("container default/report/app cpu.weight {lowest}")]);
    }
}

#[test]
fn the_weight_of_reclaimed_resources_waits_while_its_container_is_idle() {
    let batch = json!({"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "4Gi"});
    let mut report = pod("report", Some("BE"), None);
    report["spec"]["containers"][0]["resources"] = json!({"requests": batch, "limits": batch});
    let mut facts = facts("v2", ENABLED, &json!({}), &[report]);
    facts["policies"].as_array_mut().unwrap().push(json!({"name": "reclaimed-resources"}));
    let planned = plan(&facts).says_only_notes();
    let rows = planned.decisions();
    // Among pods the weight counts; the containers of one pod are equal.
    let weights: Vec<_> = planned.rows().into_iter().filter(|row| row.contains("cpu.weight")).collect();
    assert_eq!(weights, ["container default/report/app cpu.weight 0", "pod default/report cpu.weight 79"]);
    let weight = |row: &&Value| row["knob"] == "cpu.weight" && row["level"] == "container";
    let container = rows.as_array().unwrap().iter().find(weight).unwrap();
    assert_eq!((&container["value"], &container["policy"]), (&json!(0), &json!("cpu-identity")), "{rows:#}");
    assert!(container["adjusted"]["why"].as_str().unwrap().contains("cpu-identity holds cpu.idle"), "{rows:#}");
}

/// A node whose kernel has group identities, core scheduling on, and the switch of identities off.
fn with_identities(cgroup: &str, strategy: &str, pods: &[Value]) -> Value {
    let mut facts = facts(cgroup, strategy, &json!({}), pods);
    facts["host"]["kernel"] = json!("alibaba");
    facts["host"]["nodeKnobs"] = json!({"kernel.sched_group_identity_enabled": 0, "kernel.sched_core": 1});
    facts
}

#[test]
fn where_the_kernel_has_identities_each_group_gets_its_own_behind_the_nodes_switches() {
    let pods = [
        pod("behind", Some("LS"), Some(r#"{"enable": true, "groupIdentity": -1}"#)),
        pod("report", Some("BE"), None),
        pod("web", Some("LS"), Some(r#"{"enable": true, "groupIdentity": 2}"#)),
    ];
    for cgroup in ["v1", "v2"] {
        let planned = plan(&with_identities(cgroup, ENABLED, &pods)).says_nothing_else();
        let mut rows = planned.rows();
        rows.sort();
        let expected = [
            "container default/behind/app cpu.bvt_warp_ns -1",
            "container default/report/app cpu.bvt_warp_ns -1",
            "container default/web/app cpu.bvt_warp_ns 2",
            "node - kernel.sched_core 0",
            "node - kernel.sched_group_identity_enabled 1",
            "pod default/behind cpu.bvt_warp_ns -1",
            "pod default/report cpu.bvt_warp_ns -1",
            "pod default/web cpu.bvt_warp_ns 2",
            "tier besteffort cpu.bvt_warp_ns -1",
            "tier burstable cpu.bvt_warp_ns 2",
        ];
        assert_eq!(rows, expected, "{cgroup}");
        let reason = row(&planned.decisions(), "kernel.sched_core")["reason"].clone();
        assert_eq!(reason, "group identity, which core scheduling excludes");
    }
}

#[test]
fn what_stands_as_it_has_to_is_not_written_and_core_sched_has_no_identities() {
    let pods = [pod("report", Some("BE"), None)];
    let mut facts = with_identities("v2", ENABLED, &pods);
    facts["host"]["nodeKnobs"] = json!({"kernel.sched_group_identity_enabled": 1, "kernel.sched_core": null});
    let planned = plan(&facts).says_nothing_else();
    assert_eq!(row(&planned.decisions(), "kernel.sched_group_identity_enabled"), &Value::Null);
    assert_eq!(planned.rows().iter().filter(|row| row.ends_with("cpu.bvt_warp_ns -1")).count(), 3);

    let core = r#"{"clusterStrategy": {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}}"#;
    let planned = plan(&with_identities("v2", core, &pods));
    let idle = ["container default/report/app cpu.idle 1", "container default/report/app cpu.weight 0"];
    assert_eq!(planned.rows(), idle);
}

#[test]
fn with_core_scheduling_containers_are_in_the_groups_of_their_pods_and_without_it_the_plan_says_what_is_missing() {
    let strategy = r#"{"clusterStrategy": {"policies": {"cpuPolicy": "coreSched"}, "lsClass": {"cpuQOS": {"enable": true}},
        "beClass": {"cpuQOS": {"enable": true}}}}"#;
    let mut alone = pod("alone", Some("LS"), None);
    alone["metadata"]["labels"]["koordinator.sh/core-sched-policy"] = json!("exclusive");
    let pods = [alone, pod("report", Some("BE"), None), pod("web", Some("LS"), None)];
    for cgroup in ["v1", "v2"] {
        let mut facts = facts(cgroup, strategy, &json!({}), &pods);
        facts["host"]["coreScheduling"] = json!(true);
        let planned = plan(&facts).says_nothing_else();
        let rows = planned.decisions();
        let groups: Vec<&Value> =
            rows.as_array().unwrap().iter().filter(|row| row["knob"] == "core_sched.group").collect();
        let reasons: Vec<_> = groups.iter().map(|row| row["reason"].as_str().unwrap()).collect();
        assert_eq!(
            reasons,
            [
                "a core scheduling group of its own of class LS",
                "the common core scheduling group of class BE",
                "core scheduling group `/expeller` of class LS",
            ],
            "{cgroup}"
        );
        let numbers: std::collections::BTreeSet<u64> =
            groups.iter().map(|row| row["value"].as_u64().unwrap()).collect();
        assert_eq!(numbers.len(), 3, "{rows:#}");

        facts["host"]["coreScheduling"] = json!(false);
        let planned = plan(&facts).says_only_notes();
        planned.says(0, &["threads are not put into core scheduling groups (this kernel has no core scheduling"]);
        assert!(planned.rows().is_empty());
    }
}

#[test]
fn a_tier_above_protected_pods_is_not_put_behind() {
    let mut proxy = pod("proxy", None, None);
    proxy["metadata"]["namespace"] = json!("kube-system");
    proxy["spec"]["containers"][0]["resources"] = json!({});
    let planned = plan(&with_identities("v2", ENABLED, &[proxy, pod("report", Some("BE"), None)]));
    let rows = planned.rows();
    assert!(!rows.iter().any(|row| row.starts_with("tier besteffort") || row.contains("proxy")), "{rows:?}");
    assert!(rows.contains(&"pod default/report cpu.bvt_warp_ns -1".to_owned()), "{rows:?}");
}

#[test]
fn a_shadow_writes_nothing() {
    let mut facts = facts("v2", ENABLED, &json!({}), &[pod("report", Some("BE"), None)]);
    facts["policies"][0]["mode"] = json!("shadow");
    assert_eq!(replay(&facts, &[json!({})]), [[""; 0]; 2]);
}
