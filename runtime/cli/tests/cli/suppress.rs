//! Suppression of batch pods: plans and replays of nodes in files.

use serde_json::{Value, json};

use crate::qosm::{plan, play, replay};

fn pod(name: &str, class: &str, requests: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"koordinator.sh/qosClass": class},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}]},
    })
}

/// Eight CPUs, a server and a batch job.
fn facts(cgroup: &str, strategy: &Value, policy: &Value) -> Value {
    json!({
        "host": {"cpus": 8, "cgroup": cgroup},
        "policies": [policy],
        "configMaps": [{
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"resource-threshold-config": json!({"clusterStrategy": strategy}).to_string()},
        }],
        "pods": [pod("web", "LS", &json!({"cpu": "1"})), pod("report", "BE", &json!({}))],
    })
}

/// A second with this usage of the server and of the batch job, in thousandths of a CPU.
fn second(web: u64, report: u64) -> Value {
    let usec = |milli: u64| json!({"cpuUsageUsec": milli * 1000});
    json!({
        "node": usec(web + report),
        "groups": {
            "kubepods": usec(web + report), "besteffort": usec(report), "burstable": usec(web),
            "default/web": usec(web), "default/report": usec(report),
        },
    })
}

#[test]
fn recorded_load_plays_again_to_the_same_cpus() {
    for cgroup in ["v1", "v2"] {
        let facts = facts(cgroup, &json!({"enable": true}), &json!({"name": "be-suppress"}));
        let ticks = [second(500, 6_000), second(3_000, 4_000), second(3_000, 2_000), second(500, 2_000)];
        let rows = replay(&facts, &ticks);
        assert_eq!(replay(&facts, &ticks), rows, "the same each time");
        insta::assert_snapshot!(
            format!("suppressed_{cgroup}"),
            rows.iter().map(|rows| rows.join("\n") + "\n").collect::<String>()
        );
    }
}

#[test]
fn a_quota_is_held_by_the_tier_and_told_with_its_reason() {
    let facts = facts("v1", &json!({"enable": true, "cpuSuppressPolicy": "cfsQuota"}), &json!({"name": "be-suppress"}));
    let played = play(&facts, &[second(500, 6_000), second(3_000, 4_000)]);
    // 65 % of 8000m, less 500m and then less 3000m.
    for part in [
        "65 % of 8000m, less 500m of latency-sensitive pods and 0m of the system: 4700m; CFS quota 470000 us",
        "CFS quota 220000 us of 100000 us, 470000 us before",
    ] {
        assert!(played.stdout.contains(part), "{part}: {played:#?}");
    }
}

#[test]
fn a_recorded_rise_of_load_is_answered_between_two_ticks() {
    let facts = facts("v1", &json!({"enable": true, "cpuSuppressPolicy": "cfsQuota"}), &json!({"name": "be-suppress"}));
    let pressure = json!({"resource": "cpu", "full": false, "stallUsec": 50_000, "windowUsec": 500_000});
    let mut risen = second(400, 1_800);
    risen["windowMillis"] = json!(400);
    risen["alarms"] = json!([{"trigger": {"pressure": pressure}, "allPods": true}]);
    let rows = replay(&facts, &[second(500, 4_000), second(500, 4_600), risen]);
    // A fifth of 470000 us.
    assert_eq!(rows.last().unwrap(), &["tier besteffort cpu.quota 376000"], "{rows:#?}");
}

#[test]
fn a_shadow_writes_nothing_and_its_recording_says_which_cpus_it_would_have_given() {
    let ticks = [second(500, 6_000), second(3_000, 4_000), second(3_000, 4_000)];
    let of = |mode: &str| facts("v2", &json!({"enable": true}), &json!({"name": "be-suppress", "mode": mode}));
    let rows = replay(&of("shadow"), &ticks);
    assert_eq!(rows, [[""; 0]; 4]);
    let played = play(&of("shadow"), &ticks);
    let would = |line: &Value| {
        let decisions = line["shadows"].as_array().cloned().unwrap_or_default();
        decisions
            .iter()
            .map(|one| {
                let text = |field: &str| one[field].as_str().unwrap().to_owned();
                assert_eq!((text("policy"), text("action")), ("be-suppress".to_owned(), "set".to_owned()));
                format!("{} {} {}", text("subject"), text("knob"), text("value"))
            })
            .collect::<Vec<_>>()
    };
    let would: Vec<_> = played.lines().iter().map(would).collect();
    let active = replay(&of("active"), &ticks);
    assert!(!active[1].is_empty());
    // The first decision equals that of the active policy; after that, each continues separately.
    for row in active[1].iter().filter(|row| row.starts_with("tier ")) {
        assert!(would[1].contains(row), "{row}: {would:#?}");
    }
    assert!(would[3].is_empty(), "what it wants already is not repeated: {would:#?}");
}

#[test]
fn a_plan_without_a_measurement_says_that_nothing_is_changed_and_why() {
    let planned = plan(&facts("v2", &json!({"enable": true}), &json!({"name": "be-suppress"})));
    assert_eq!((planned.code, planned.decisions()), (0, json!([])), "{planned:#?}");
    planned.says(0, &["note: be-suppress: ", "nothing is set before"]);
}
