//! Reclaimed resources on nodes that stand in files: the plan of a batch pod, and replays of usage with the resulting amounts.

use serde_json::{Value, json};

use crate::qosm::{Run, plan, play, play_with};

const GIB: u64 = 1 << 30;

/// A node of 8 CPUs and 32 GiB with a latency-sensitive pod and a batch pod, and the key `colocation-config`.
fn facts(strategy: &str) -> Value {
    let pod = |namespace: &str, name: &str, class: &str, resources: Value| {
        json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": {"koordinator.sh/qosClass": class}},
            "spec": {"containers": [{"name": "app", "resources": resources}]},
        })
    };
    let batch = json!({"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "4Gi"});
    json!({
        "host": {"cgroup": "v2", "cpus": 8, "memory": "32Gi"},
        "policies": [{"name": "reclaimed-resources"}],
        "node": {"metadata": {"name": "edge-7"}, "status": {
            "capacity": {"cpu": "8", "memory": "32Gi"}, "allocatable": {"cpu": "7500m", "memory": "30Gi"},
        }},
        "configMaps": [{
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"colocation-config": strategy},
        }],
        "pods": [
            pod("default", "web", "LS", json!({"requests": {"cpu": "2", "memory": "4Gi"}})),
            pod("batch", "report", "BE", json!({"requests": batch, "limits": batch})),
        ],
    })
}

const ENABLED: &str = r#"{"enable": true, "cpuReclaimThresholdPercent": 80, "memoryReclaimThresholdPercent": 75}"#;

/// 10 seconds in which `web` used this many CPUs, the batch pod half of one, and processes outside of pods one.
fn seconds(web: u64) -> Value {
    let group = |cpus_in_tenths: u64, gib: u64| json!({"cpuUsageUsec": cpus_in_tenths * 1_000_000, "memory": {"usageBytes": gib * GIB}});
    json!({
        "windowMillis": 10_000,
        "node": {"cpuUsageUsec": (web * 10 + 15) * 1_000_000, "memory": {"freeBytes": 20 * GIB, "availableBytes": 24 * GIB}},
        "groups": {
            "kubepods": group(web * 10 + 5, 3), "besteffort": group(5, 1), "outside": {"memory": {"usageBytes": GIB}},
            "default/web": group(web * 10, 2), "batch/report": group(5, 1),
        },
    })
}

#[test]
fn a_pod_whose_annotation_asks_for_more_than_files_hold_leaves_the_others_their_settings() {
    let of_others = plan(&facts(ENABLED)).rows();
    for limit in ["100P", "9223372036854775807", "8Ei"] {
        for resource in ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"] {
            let mut facts = facts(ENABLED);
            let limits = json!({resource: limit});
            let asked = json!({"containers": {"app": {"limits": limits}, "other": {"limits": limits}}});
            facts["pods"].as_array_mut().unwrap().push(json!({
                "metadata": {
                    "name": "greedy", "namespace": "tenant", "uid": "u-greedy", "labels": {"koordinator.sh/qosClass": "BE"},
                    "annotations": {"node.koordinator.sh/extended-resource-spec": asked.to_string()},
                },
                "spec": {"containers": [{"name": "app"}, {"name": "other"}]},
            }));
            let planned = plan(&facts);
            assert_eq!(planned.code, 0, "{planned:#?}");
            let rows = planned.rows();
            assert!(of_others.iter().all(|row| rows.contains(row)), "{resource} {limit}: {rows:#?}");
        }
    }
}

#[test]
fn a_plan_gives_a_batch_pod_what_its_resources_mean() {
    insta::assert_snapshot!(plan(&facts(ENABLED)).says_only_notes().rows().join("\n"), @r"
    container batch/report/app cpu.quota 200000
    container batch/report/app cpu.weight 79
    container batch/report/app memory.max 4294967296
    pod batch/report cpu.quota 200000
    pod batch/report cpu.weight 79
    pod batch/report memory.max 4294967296
    ");
}

#[test]
fn recorded_use_plays_again_to_the_same_amounts() {
    let mut ticks = vec![seconds(1); 8];
    ticks.extend(vec![seconds(4); 40]);
    let played = play(&facts(ENABLED), &ticks).says_nothing_else();
    assert_eq!(play(&facts(ENABLED), &ticks).stdout, played.stdout, "the same each time");
    let published: Vec<Value> = played
        .lines()
        .iter()
        .flat_map(|line| line["resources"].as_array().cloned().unwrap_or_default())
        .filter(|resource| resource["name"] == "kubernetes.io/batch-cpu")
        .collect();
    // 8 - 1.6 - 1 - 1 CPUs at first; the amount falls as the average rises, to what 4 CPUs leave, within the
    // tenth that is too little to report.
    assert_eq!(published[0]["amount"], 4400, "{published:#?}");
    let reason = "capacity 8000m - margin 1600m - system 1000m - high-priority use 1000m";
    assert_eq!(published[0]["reason"], reason);
    let amounts: Vec<u64> = published.iter().map(|one| one["amount"].as_u64().unwrap()).collect();
    assert!(amounts.is_sorted_by(|one, next| next < one), "{amounts:?}");
    assert!((1400..=1555).contains(amounts.last().unwrap()), "{amounts:?}");
}

/// koordinator: GetHostAppHPUsed. The usage of high-priority applications beside Kubernetes counts as the system's; batch
/// applications leave theirs to batch pods.
#[test]
fn what_batch_applications_use_is_offered_to_batch_pods() {
    let applications = json!({"applications": [
        {"name": "nginx", "qos": "LS", "priority": "koord-prod"}, {"name": "etl", "qos": "BE", "priority": "koord-batch"},
    ]});
    let mut facts = facts(ENABLED);
    facts["configMaps"][0]["data"]["host-application-config"] = applications.to_string().into();
    let mut tick = seconds(1);
    tick["node"]["cpuUsageUsec"] = 60_000_000.into();
    let used = |usec: u64| json!({"cpuUsageUsec": usec, "memory": {"usageBytes": 0}});
    tick["applications"] = json!({
        "nginx": {"cgroup": "host-latency-sensitive/nginx", "used": used(5_000_000)},
        "etl": {"cgroup": "host-best-effort/etl", "used": used(30_000_000)},
    });
    let played = play(&facts, &vec![tick; 8]).says_nothing_else();
    let lines = played.lines();
    let mut published = lines.iter().flat_map(|line| line["resources"].as_array().cloned().unwrap_or_default());
    let batch = published.find(|resource| resource["name"] == "kubernetes.io/batch-cpu").unwrap();
    let reason = "capacity 8000m - margin 1600m - system 1500m - high-priority use 1000m";
    assert_eq!((&batch["amount"], &batch["reason"]), (&json!(3900), &json!(reason)));
}

#[test]
fn a_shadow_publishes_nothing_and_its_recording_says_which_amounts_it_would_have_published() {
    let mut shadow = facts(ENABLED);
    shadow["policies"][0]["mode"] = "shadow".into();
    let ticks = vec![seconds(1); 8];
    let (played, active) = (play(&shadow, &ticks), play(&facts(ENABLED), &ticks));
    let amounts = |run: &Run, list: &str, name: &str| -> Vec<Value> {
        let lines = run.lines();
        let rows = lines.iter().flat_map(|line| line[list].as_array().cloned().unwrap_or_default());
        let batch = rows.filter(|row| row[name] == "kubernetes.io/batch-cpu");
        batch.map(|row| json!([row["amount"], row["reason"]])).collect()
    };
    assert!(amounts(&played, "resources", "name").is_empty(), "{played:#?}");
    let would = amounts(&played, "shadows", "resource");
    assert_eq!(would, amounts(&active, "resources", "name"));
    assert_eq!(would.len(), 1, "{would:#?}");
    let lines = played.lines();
    let knobs = lines[0]["shadows"].as_array().unwrap().iter().filter(|row| row["action"] == "set");
    assert_eq!(knobs.count(), 6, "weight, quota and limit of the batch pod and its container: {played:#?}");
}

#[test]
fn two_versions_that_publish_other_amounts_differ() {
    let other = r#"{"policy": {"batchCPUNames": ["example.com/batch-cpu"]}}"#;
    let flags = ["--against", "reclaimed-resources", "--against-config", other];
    let played = play_with(&flags, &facts(ENABLED), &vec![seconds(1); 8]);
    let summary = played.lines().last().unwrap()["summary"].clone();
    assert_eq!((played.code, &summary["same"]), (1, &json!(false)), "{played:#?}");
    assert!(summary["requests"]["old"].as_u64().unwrap() >= 1, "{summary}");
    assert_eq!(summary["requests"]["new"], 0, "no guard rail allows that name: {summary}");
}

#[test]
fn a_strategy_that_cannot_be_read_publishes_nothing_and_holds_batch_pods_all_the_same() {
    let played = play(&facts(r#"{"enable": true, "cpuReclaimThresholdPercent": 1e400}"#), &vec![seconds(1); 8]);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    assert!(lines.iter().all(|line| line.get("resources").is_none()), "{played:#?}");
    assert_eq!(lines[0]["decisions"].as_array().unwrap().len(), 6, "{played:#?}");
}
