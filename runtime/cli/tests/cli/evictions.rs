//! Evictions: plans and replays of nodes in files.

use serde_json::{Value, json};

use crate::qosm::{plan, play, play_with};

const GIB: u64 = 1 << 30;

fn pod(name: &str, class: &str, priority: i32) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"koordinator.sh/qosClass": class},
        },
        "spec": {"priority": priority, "containers": [{"name": "app"}], "terminationGracePeriodSeconds": 20},
    })
}

/// Eight CPUs and 32 GiB; a server and two batch jobs.
fn facts(strategy: &Value, policy: &Value) -> Value {
    json!({
        "host": {"cpus": 8, "cgroup": "v2"},
        "apiServer": true,
        "node": {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8", "memory": "32Gi"}, "allocatable": {"cpu": "8", "memory": "32Gi"}}},
        "policies": [policy],
        "configMaps": [{
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"resource-threshold-config": json!({"clusterStrategy": strategy}).to_string()},
        }],
        "pods": [pod("web", "LS", 9500), pod("report", "BE", 5100), pod("train", "BE", 5200)],
    })
}

fn policy(mode: &str) -> Value {
    json!({"name": "eviction", "mode": mode, "config": {"features": {"BEMemoryEvict": true}}})
}

/// A second after which this many GiB of memory are available, and the pods use these.
fn second(available: u64, report: u64, train: u64) -> Value {
    let memory = |gib: u64| json!({"memory": {"usageBytes": gib * GIB}});
    json!({
        "node": {"memory": {"freeBytes": available * GIB, "availableBytes": available * GIB}},
        "groups": {
            "kubepods": memory(report + train), "besteffort": memory(report + train),
            "default/report": memory(report), "default/train": memory(train),
        },
    })
}

fn answer(outcome: &str, message: &str) -> Value {
    json!({"evictions": [{"uid": "uid-report", "outcome": outcome, "message": message}]})
}

/// The lines with evictions.
fn evictions(stdout: &str) -> Vec<String> {
    stdout.lines().filter(|line| line.contains("\"evictions\"")).map(str::to_owned).collect()
}

#[test]
fn a_recording_says_who_leaves_by_how_much_and_why() {
    let mut accepted = second(8, 4, 8);
    accepted["controller"] = answer("accepted", "");
    let ticks = [second(16, 4, 8), second(8, 4, 8), accepted.clone(), accepted];
    let facts = facts(&json!({"enable": true}), &policy("active"));
    let played = play(&facts, &ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    assert_eq!(play(&facts, &ticks).stdout, played.stdout, "the same each time");
    let told = evictions(&played.stdout);
    assert_eq!(told.len(), 2, "{told:#?}");
    for part in [
        r#""tick":2"#,
        r#""pod":"default/report","urgency":"soon","gracePeriodSeconds":20,"policy":"eviction","reason":"BEMemoryEvict""#,
        "the node uses 75 % of its memory, >= 70 %; to release: 2405181685; this pod is number 1 of 2 (priority 5100, uses 4Gi)",
        r#""outcome":"pending""#,
    ] {
        assert!(told[0].contains(part), "{part}: {told:#?}");
    }
    assert!(told[1].contains(r#""outcome":"accepted""#), "{told:#?}");
}

#[test]
fn a_refusal_is_taken_back_and_another_pod_leaves() {
    let mut refused = second(8, 4, 8);
    refused["controller"] = answer("refused", "its PodDisruptionBudget allows none");
    let facts = facts(&json!({"enable": true}), &policy("active"));
    let played = play(&facts, &[second(8, 4, 8), refused, second(8, 4, 8)]);
    assert_eq!(played.code, 0, "{played:#?}");
    let told = evictions(&played.stdout);
    assert!(told[1].contains(r#""outcome":"refused""#) && told[1].contains("PodDisruptionBudget"), "{told:#?}");
    assert!(told[2].contains("default/train") && told[2].contains("number 2 of 2"), "{told:#?}");
}

#[test]
fn a_shadow_evicts_nobody_and_its_recording_says_whom_it_would_have_had_evicted() {
    let facts = facts(&json!({"enable": true}), &policy("shadow"));
    let ticks = [second(16, 4, 8), second(4, 4, 8), second(4, 4, 8)];
    let played = play(&facts, &ticks);
    assert_eq!((played.code, evictions(&played.stdout)), (0, vec![]), "{played:#?}");
    let shadows: Vec<Value> = played.lines().iter().map(|line| line["shadows"].clone()).collect();
    assert_eq!(
        (&shadows[0], &shadows[1], &shadows[3]),
        (&Value::Null, &Value::Null, &Value::Null),
        "once: {shadows:#?}"
    );
    let would = &shadows[2][0];
    assert_eq!(
        [&would["policy"], &would["action"], &would["pod"], &would["urgency"], &would["reason"]],
        ["eviction", "evict", "default/report", "soon", "BEMemoryEvict"],
        "{shadows:#?}"
    );
    let message = would["message"].as_str().unwrap();
    assert!(message.contains("the node uses 87.50 % of its memory") && message.contains("number 1 of 2"), "{message}");
    let table = play_with(&["-o", "table"], &facts, &ticks).stdout;
    let line =
        "    2      2.000s  shadow eviction would evict pod default/report (soon): BEMemoryEvict: trigger by koordlet";
    assert!(table.contains(line), "{table}");
}

#[test]
fn two_versions_that_would_have_other_pods_evicted_differ() {
    let facts = facts(&json!({"enable": true}), &policy("active"));
    let ticks = [second(16, 4, 8), second(8, 4, 8)];
    let off = r#"{"features": {"BEMemoryEvict": false}}"#;
    let played = play_with(&["--against", "eviction", "--against-config", off], &facts, &ticks);
    let lines = played.lines();
    let asked = "eviction of default/report (soon) by policy eviction is pending";
    assert_eq!(lines[2]["requests"], json!({"old": [asked], "new": []}), "{played:#?}");
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!((&summary["same"], &summary["requests"]), (&json!(false), &json!({"old": 1, "new": 0})));
    assert_eq!((&summary["firstDifference"], played.code), (&json!(2), 1));
}

#[test]
fn a_plan_says_who_would_leave_by_requests_and_whom_the_guard_rails_keep() {
    let mut facts = facts(
        &json!({
            "enable": true, "allocatableEvictPriorityThreshold": 7999, "cpuAllocatableEvictThresholdPercent": "x",
            "memoryAllocatableEvictThresholdPercent": 110, "memoryAllocatableEvictLowerPercent": 100,
        }),
        &json!({"name": "eviction", "config": {"features": {"CPUAllocatableEvict": true, "MemoryAllocatableEvict": true}}}),
    );
    facts["node"]["status"]["allocatable"]["kubernetes.io/batch-memory"] = json!("6Gi");
    for pod in facts["pods"].as_array_mut().unwrap().iter_mut().skip(1) {
        pod["metadata"]["labels"]["koordinator.sh/eviction-enabled"] = json!("true");
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"kubernetes.io/batch-memory": "4Gi"}, "limits": {"kubernetes.io/batch-memory": "4Gi"}});
    }
    plan(&facts).says(1, &[
        "pod default/report would be evicted by eviction (soon): trigger by koordlet feature MemoryAllocatableEvict",
        "8Gi of kubernetes.io/batch-memory are requested, 133.33 % of what is offered, > 110 %; to release: 2Gi",
    ]);
    facts["guardRails"] = json!({"evictions": {"protectedNamespaces": ["default"]}});
    plan(&facts)
        .says(1, &["pod default/report would not be evicted for eviction: no pod of namespace default is evicted"]);
}
