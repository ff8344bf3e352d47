//! Recordings: pods that come, change and go, and the content of an output line.

use serde_json::{Value, json};

use crate::qosm::{limited, only, play, pod, replay, report};

const BURST: &str = "koordinator.sh/cpuBurst";

fn facts(pods: &[Value]) -> Value {
    json!({
        "host": {"cgroup": "v2", "driver": "systemd", "cpus": 8},
        "policies": [{"name": "cpu-burst", "config": {"profile": "koordinator"}}],
        "pods": pods,
    })
}

fn web(policy: &str, cpu: &str) -> Value {
    pod("web", &json!({BURST: json!({"policy": policy}).to_string()}), &json!([limited("a", cpu)]))
}

fn throttled() -> Value {
    json!({
        "node": {"cpuUsageUsec": 0},
        "containers": [{
            "pod": "default/web", "container": "a",
            "cpu": {"usageUsec": 900_000, "nrPeriods": 10, "nrThrottled": 3, "throttledUsec": 120_000},
        }],
    })
}

/// The problems of policies that want different values, over some ticks of throttling.
fn ties(policies: Value, pods: &[Value]) -> Vec<String> {
    let facts = json!({"host": {"cgroup": "v2", "driver": "systemd", "cpus": 8}, "policies": policies, "pods": pods});
    let ticks: Vec<Value> = std::iter::repeat_n(throttled(), 12).collect();
    let played = play(&facts, &ticks);
    let problems = |line: &Value| line["problems"].as_array().cloned().unwrap_or_default();
    let problems = played.lines().iter().flat_map(problems).collect::<Vec<_>>();
    let text = problems.iter().map(|problem| problem.as_str().unwrap().to_owned());
    text.filter(|problem| problem.contains("priorit")).collect()
}

#[test]
fn policies_of_one_priority_are_told_of_where_they_want_different_values() {
    let second = |config: Value, priority: i32| json!({"name": "second-burst", "module": "builtin:cpu-burst", "config": config, "priority": priority});
    let first = json!({"name": "cpu-burst", "config": {"profile": "koordinator"}, "priority": 100});
    let lower = json!({"profile": "responsive", "minRaisePercent": 70});
    let expected = "PolicyModule second-burst: spec.priority: 100 is that of `cpu-burst` too, and they want different values of \
                    cpu.quota: `cpu-burst` wins by its name; give them different priorities";
    for (other, expected) in [
        (second(lower.clone(), 100), &[expected][..]),
        (second(lower, 90), &[]),
        (second(json!({"profile": "koordinator"}), 100), &[]),
    ] {
        assert_eq!(ties(json!([first, other]), &[web("auto", "2")]), expected, "{other}");
    }
}

#[test]
fn the_default_policies_do_not_want_different_values() {
    let all = json!({
        BURST: r#"{"policy":"auto"}"#, "koordinator.sh/memoryQOS": r#"{"policy":"auto"}"#,
    });
    let asking = pod("web", &all, &json!([limited("a", "2")]));
    assert_eq!(ties(json!([]), &[asking]), Vec::<String>::new());
}

#[test]
fn a_line_has_tick_time_and_decisions() {
    let mut late = throttled();
    late["windowMillis"] = json!(2500);
    let played = play(&facts(&[web("auto", "2")]), &[throttled(), late]);
    let lines = played.lines();
    let times: Vec<_> = lines.iter().map(|line| (line["tick"].as_u64(), line["timeMillis"].as_u64())).collect();
    assert_eq!(times, [(Some(0), Some(0)), (Some(1), Some(1000)), (Some(2), Some(3500))]);
    let row = &lines[1]["decisions"][0];
    for field in [
        "level",
        "namespace",
        "pod",
        "container",
        "knob",
        "file",
        "path",
        "current",
        "value",
        "policy",
        "module",
        "reason",
    ] {
        assert!(row.get(field).is_some(), "{field}: {row}");
    }
    assert_eq!(row["policy"], "cpu-burst");
    assert!(row["module"].as_str().unwrap().contains("sha256:"), "{row}");
    assert!(!row["reason"].as_str().unwrap().is_empty(), "{row}");
}

/// Quotas rise from the pod down and fall from the container up; bursts stay below quotas throughout.
#[test]
fn decisions_are_reported_in_the_order_in_which_they_are_written() {
    let order = |line: &Value| -> Vec<String> {
        let rows = line["decisions"].as_array().unwrap();
        rows.iter().map(|row| format!("{} {}", row["level"], row["knob"]).replace('"', "")).collect()
    };
    let gone = json!({"pods": {"upserted": [web("none", "2")]}});
    let lines = play(&facts(&[web("auto", "2")]), &[throttled(), gone]).lines();
    // The bursts stay lower: the kubelet may write the former quota at any time, which the kernel refuses below the burst.
    assert_eq!(order(&lines[1]), ["pod cpu.quota", "container cpu.quota"]);
    assert_eq!(order(&lines[2]), ["container cpu.burst", "container cpu.quota", "pod cpu.burst", "pod cpu.quota"]);
}

#[test]
fn pods_come_and_go() {
    let second = pod("second", &json!({BURST: r#"{"policy":"cpuBurstOnly"}"#}), &json!([limited("a", "1")]));
    let ticks = [
        json!({"pods": {"upserted": [second]}}),
        json!({"pods": {"removed": ["default/web"]}}),
        json!({"pods": {"upserted": [web("cpuBurstOnly", "2")]}}),
    ];
    let played = replay(&facts(&[web("cpuBurstOnly", "2")]), &ticks);
    assert_eq!(played[1], ["container default/second/a cpu.burst 100000", "pod default/second cpu.burst 100000"]);
    assert_eq!(played[3], ["container default/web/a cpu.burst 200000", "pod default/web cpu.burst 200000"]);
}

#[test]
fn a_restarted_container_starts_from_its_base_and_leaves_no_surplus() {
    let with_id = |id: &str| {
        let mut web = web("cfsQuotaBurstOnly", "2");
        web["status"] = json!({
            "phase": "Running", "qosClass": "Burstable",
            "containerStatuses": [{"name": "a", "containerID": format!("containerd://{id}"), "state": {"running": {}},
                "image": "", "imageID": "", "ready": true, "restartCount": 0}],
        });
        web
    };
    let mut restarted = throttled();
    restarted["pods"] = json!({"upserted": [with_id("two")]});
    let played = replay(&facts(&[with_id("one")]), &[throttled(), throttled(), restarted, throttled()]);
    assert_eq!(played[2], ["container default/web/a cpu.quota 288000", "pod default/web cpu.quota 288000"]);
    assert!(played[3].contains(&"pod default/web cpu.quota 200000".to_owned()), "{played:?}");
    // The first reading gives no value; from the second on there is one.
    assert_eq!(played[4], ["container default/web/a cpu.quota 240000", "pod default/web cpu.quota 240000"]);
}

#[test]
fn a_policy_that_is_switched_off_gives_back_what_was_there() {
    let off = json!({"pods": {"upserted": [web("none", "2")]}});
    let mut facts = facts(&[web("auto", "2")]);
    facts["cgroups"] = json!([
        {"pod": "default/web", "files": {"cpu.max": "max 100000"}},
        {"pod": "default/web", "container": "a", "files": {"cpu.max": "210000 100000", "cpu.max.burst": "1000"}},
    ]);
    let played = replay(&facts, &[throttled(), off]);
    assert_eq!(only(&played[1], "cpu.quota"), ["container default/web/a cpu.quota 252000"], "{played:?}");
    let mut given_back = played[2].clone();
    given_back.retain(|row| row.starts_with("container"));
    assert_eq!(given_back, ["container default/web/a cpu.burst 1000", "container default/web/a cpu.quota 210000"]);
}

#[test]
fn periods_other_than_100_ms_are_read() {
    let mut facts = facts(&[web("auto", "2")]);
    facts["cgroups"] = json!([
        {"pod": "default/web", "files": {"cpu.max": "40000 20000"}},
        {"pod": "default/web", "container": "a", "files": {"cpu.max": "40000 20000"}},
    ]);
    let played = replay(&facts, &[throttled()]);
    assert_eq!(
        only(&played[1], "cpu.quota"),
        ["container default/web/a cpu.quota 48000", "pod default/web cpu.quota 48000"]
    );
}

#[test]
fn guard_rails_cap_a_quota_and_say_so() {
    let mut facts = facts(&[web("cfsQuotaBurstOnly", "2")]);
    facts["guardRails"] = json!({"maxQuotaPercent": 125});
    let lines = play(&facts, &[throttled(), throttled()]).lines();
    assert!(report(&lines[1]["decisions"]).contains(&"container default/web/a cpu.quota 240000".to_owned()));
    let capped =
        lines[2]["decisions"].as_array().unwrap().iter().find(|row| row["level"] == "container").cloned().unwrap();
    assert_eq!((&capped["value"], &capped["adjusted"]["wanted"]), (&json!(250_000), &json!(288_000)), "{capped}");
    assert!(capped["adjusted"]["why"].as_str().unwrap().contains("maxQuotaPercent"), "{capped}");
}

#[test]
fn the_table_has_one_row_a_decision() {
    let input = format!("{}\n{}\n\n", facts(&[web("cfsQuotaBurstOnly", "2")]), throttled());
    let table = crate::qosm::run(&["replay", "-", "-o", "table"], &input).says_nothing_else();
    assert_eq!(table.stdout.lines().count(), 2, "{}", table.stdout);
    assert!(table.stdout.contains("default/web/a cpu.quota 200000 -> 240000"), "{}", table.stdout);
}

#[test]
fn an_alarm_brings_an_evaluation_forward_and_no_faster_than_allowed() {
    let facts = json!({
        "host": {"cgroup": "v2", "driver": "systemd", "cpus": 8},
        "policies": [{"name": "cpu-burst", "alarmGapMillis": 200}],
        "pods": [web("cfsQuotaBurstOnly", "1")],
    });
    let calm = json!({
        "node": {"cpuUsageUsec": 0},
        "containers": [{"pod": "default/web", "container": "a", "cpu": {"usageUsec": 300_000, "nrPeriods": 10}}],
    });
    let alarm = |millis: u64, micros: u64| {
        json!({
            "windowMillis": millis, "windowMicros": micros, "node": {"cpuUsageUsec": 0},
            "alarms": [{"trigger": "throttling", "pod": "default/web", "container": "a"}],
            "containers": [{"pod": "default/web", "container": "a", "cpu": {"usageUsec": 100_000, "nrPeriods": 1}}],
        })
    };
    let nothing = json!({"windowMillis": 60, "node": {"cpuUsageUsec": 0}});
    // The second alarm comes too soon after the first, and is handled as soon as the gap is over.
    let played = play(&facts, &[calm, alarm(300, 500), alarm(150, 0), nothing.clone(), nothing]);
    let raises: Vec<_> = played
        .lines()
        .iter()
        .map(|line| {
            let rows = line["decisions"].as_array().cloned().unwrap_or_default();
            rows.iter().find(|row| row["container"] == "a").and_then(|row| row["value"].as_i64())
        })
        .collect();
    assert_eq!(raises, [None, None, Some(150_000), None, Some(225_000), None]);
    assert_eq!(played.lines()[2]["timeMillis"], 1300);
}

#[test]
fn an_alarm_of_an_unknown_target_is_reported() {
    let line = json!({"alarms": [{"trigger": "throttling", "pod": "default/web", "container": "b"}]});
    play(&facts(&[web("auto", "2")]), &[line])
        .says(2, &["alarms.container", "container `b` of pod `default/web`", "known are: a"]);
}
