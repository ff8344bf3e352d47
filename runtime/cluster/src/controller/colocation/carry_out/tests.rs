use std::collections::BTreeMap;

use super::super::PerMinute;
use super::*;

fn rules() -> EvictionRules {
    EvictionRules {
        per_minute: PerMinute { node: 1, namespace: 1, fleet: 1 },
        protected_namespaces: ["kube-system".to_owned()].into(),
        daemon_set_pods: false,
    }
}

fn asked(namespace: &str) -> ReportedEviction {
    ReportedEviction { uid: "u1".into(), namespace: namespace.into(), name: "p".into(), ..ReportedEviction::default() }
}

fn pod(patch: Value) -> v1::Pod {
    let mut pod = json!({"metadata": {"name": "p", "uid": "u1"}, "spec": {"nodeName": "n1", "containers": []}});
    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from,
        }
    }
    merge(&mut pod, patch);
    serde_json::from_value(pod).unwrap()
}

#[test]
fn only_the_pod_that_is_meant_on_the_node_that_asks_is_evicted() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "x"}]);
    let good = "RefusedForGood";
    for (case, pod, namespace, kind, word) in [
        ("its own", pod(json!({})), "batch", "none", ""),
        ("another node's", pod(json!({"spec": {"nodeName": "n2"}})), "batch", good, "n2"),
        ("nobody's", pod(json!({"spec": {"nodeName": null}})), "batch", good, "no node"),
        ("another pod", pod(json!({"metadata": {"uid": "u2"}})), "batch", "Gone", "another"),
        (
            "another pod on another node",
            pod(json!({"metadata": {"uid": "u2"}, "spec": {"nodeName": "n2"}})),
            "batch",
            "Gone",
            "",
        ),
        ("static", pod(json!({"metadata": {"uid": "m", "annotations": {MIRROR: "u1"}}})), "batch", good, "static"),
        ("protected", pod(json!({})), "kube-system", good, "protected"),
        ("critical", pod(json!({"spec": {"priority": 2_000_000_000}})), "batch", good, "2000000000"),
        ("nearly critical", pod(json!({"spec": {"priority": 1_999_999_999}})), "batch", "none", ""),
        ("a daemon", pod(json!({"metadata": {"ownerReferences": owner}})), "batch", good, "daemonSetPods"),
        ("ended", pod(json!({"status": {"phase": "Failed"}})), "batch", "Gone", "ended"),
        (
            "ending",
            pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            "batch",
            "Accepted",
            "already",
        ),
    ] {
        let found = forbids(&pod, "n1", &asked(namespace), &rules());
        let shown = found.as_ref().map_or_else(|| "none".to_owned(), |ended| format!("{ended:?}"));
        assert!(shown.starts_with(&format!("{kind}(")) || shown == kind, "{case}: {shown}");
        assert!(shown.contains(word), "{case}: {shown}");
    }
    let allowed = EvictionRules { daemon_set_pods: true, ..rules() };
    let daemon = pod(json!({"metadata": {"ownerReferences": owner}}));
    assert_eq!(forbids(&daemon, "n1", &asked("batch"), &allowed), None);
}

#[test]
fn an_event_begins_with_the_policys_message_as_koordlets_do() {
    let message = "trigger by koordlet feature BECPUEvict, kill pod: p";
    let asked = ReportedEviction { reason: "BECPUEvict".into(), message: message.into(), ..asked("batch") };
    let refused = format!("{message}; no");
    for (ended, told, expected) in [
        (Ended::Accepted(String::new()), None, Some((EVICTED, message))),
        (Ended::Accepted("it was being deleted already".into()), None, None),
        (Ended::Gone("no such pod".into()), None, None),
        (Ended::Refused("no".into()), None, Some((NOT_EVICTED, refused.as_str()))),
        (Ended::Refused("no".into()), Some("other"), Some((NOT_EVICTED, refused.as_str()))),
        (Ended::Refused("no".into()), Some("no"), None),
        (Ended::RefusedForGood("no".into()), None, Some((NOT_EVICTED, refused.as_str()))),
    ] {
        let said = news(&asked, &ended, told);
        assert_eq!(said.as_ref().map(|(reason, text)| (*reason, text.as_str())), expected, "{ended:?} {told:?}");
    }
}

#[test]
fn answers_of_the_api_server_are_told_apart() {
    let status = |code| {
        let status = Status { code, message: "said so".into(), ..Status::default() };
        Err(kube::Error::Api(Box::new(status)))
    };
    for (answer, kind, word) in [
        (Ok(()), "Accepted", ""),
        (status(404), "Gone", "no such pod"),
        (status(409), "Gone", "said so"),
        (status(429), "Refused(", "PodDisruptionBudget"),
        (status(403), "Refused(", "403"),
        (status(500), "Refused(", "500"),
    ] {
        let shown = format!("{:?}", outcome(answer, &asked("batch")));
        assert!(shown.starts_with(kind) && shown.contains(word), "{shown}");
    }
}

#[test]
fn a_created_eviction_with_a_status_of_failure_is_refused() {
    // The API server's answer for a pod with two PodDisruptionBudgets, sent with HTTP 201.
    let two_budgets =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    let shown = |status: Status| format!("{:?}", outcome(granted(status), &asked("batch")));
    let refused = shown(Status::failure(two_budgets, "").with_code(500));
    assert!(refused.starts_with("Refused(") && refused.contains("more than one PodDisruptionBudget"), "{refused}");
    for status in [Status::success().with_code(201), Status::default()] {
        assert_eq!(shown(status), r#"Accepted("")"#);
    }
}

#[test]
fn shares_are_written_into_the_zones_and_taken_out_of_them() {
    const CPU: &str = "kubernetes.io/batch-cpu";
    let topology = |annotation: Option<&str>, zones: Value| -> DynamicObject {
        let metadata = json!({"name": "n1", "resourceVersion": "5", "annotations": annotation.map(|names| json!({PUBLISHED: names}))});
        serde_json::from_value(json!({"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
            "metadata": metadata, "zones": zones}))
        .unwrap()
    };
    let cpu = json!({"name": "cpu", "capacity": "2", "allocatable": "2", "available": "1"});
    let ours = |amount: &str| json!({"name": CPU, "capacity": amount, "allocatable": amount, "available": amount});
    let zone = |number: u32, resources: Value| json!({"name": format!("node-{number}"), "type": "Node", "resources": resources});
    let wanted: Zones = [(CPU.to_owned(), BTreeMap::from([(0, 700), (1, 500)]))].into();

    let before = json!([zone(0, json!([cpu])), zone(1, json!([])), {"name": "socket-0", "type": "Socket"}]);
    let patch = zones_patch(&topology(None, before.clone()), &wanted).unwrap();
    assert_eq!(patch["metadata"], json!({"resourceVersion": "5", "annotations": {PUBLISHED: CPU}}));
    assert_eq!(patch["zones"][0]["resources"][0], cpu, "others' resources stay");
    assert_eq!(patch["zones"][0]["resources"][1]["allocatable"], "700");
    assert_eq!(patch["zones"][1]["resources"][0]["capacity"], "500");
    assert_eq!(patch["zones"][2], before[2]);

    let there = json!([zone(0, json!([cpu, ours("700")])), zone(1, json!([ours("500")]))]);
    assert_eq!(zones_patch(&topology(Some(CPU), there.clone()), &wanted), None);

    // Another amount, and one that another client wrote before: all three fields follow.
    let mut old = ours("900");
    old["available"] = "100".into();
    for annotation in [Some(CPU), None] {
        let there = json!([zone(0, json!([cpu, old])), zone(1, json!([ours("500")]))]);
        let patch = zones_patch(&topology(annotation, there), &wanted).unwrap();
        assert_eq!(patch["zones"], json!([zone(0, json!([cpu, ours("700")])), zone(1, json!([ours("500")]))]));
    }

    let withdrawn = zones_patch(&topology(Some(CPU), there.clone()), &Zones::new()).unwrap();
    assert_eq!(withdrawn["zones"], json!([zone(0, json!([cpu, ours("0")])), zone(1, json!([ours("0")]))]));
    assert_eq!(withdrawn["metadata"]["annotations"], json!({PUBLISHED: null}));
    // Without the annotation, the shares belong to another program.
    assert_eq!(zones_patch(&topology(None, there), &Zones::new()), None);
    assert_eq!(zones_patch(&topology(None, json!([{"name": "node-0", "type": "Node"}])), &Zones::new()), None);
}

#[test]
fn no_report_takes_a_pod_away_while_its_processes_run() {
    for (says, grace) in [(None, None), (Some(0), Some(1)), (Some(1), Some(1)), (Some(30), Some(30))] {
        let asked = ReportedEviction { grace_period_seconds: says, ..asked("default") };
        let options = request(&asked).delete_options.unwrap();
        assert_eq!(options.grace_period_seconds, grace, "{says:?}");
        assert_eq!(options.preconditions.and_then(|must| must.uid), Some("u1".to_owned()));
    }
}
