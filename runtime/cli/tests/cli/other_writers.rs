//! Another program writes a held knob: the kubelet, a reset, a user.

use serde_json::{Value, json};

use crate::qosm::{limited, play, pod, report};

fn facts(cpu: &str) -> Value {
    json!({
        "host": {"cgroup": "v2", "driver": "systemd", "cpus": 8},
        "policies": [{"name": "cpu-burst", "config": {"profile": "koordinator"}}],
        "pods": [web(cpu)],
    })
}

fn web(cpu: &str) -> Value {
    pod("web", &json!({"koordinator.sh/cpuBurst": r#"{"policy":"cfsQuotaBurstOnly"}"#}), &json!([limited("a", cpu)]))
}

fn tick(throttled: u64, quota: Option<&str>) -> Value {
    let mut tick = json!({
        "node": {"cpuUsageUsec": 0},
        "containers": [{
            "pod": "default/web", "container": "a",
            "cpu": {"usageUsec": 900_000, "nrPeriods": 10, "nrThrottled": throttled, "throttledUsec": 0},
        }],
    });
    if let Some(quota) = quota {
        tick["cgroups"] = json!([{"pod": "default/web", "container": "a", "files": {"cpu.max": quota}}]);
    }
    tick
}

/// The container's quotas, tick by tick; `None` = not written.
fn quotas(facts: &Value, ticks: &[Value]) -> (Vec<Option<u64>>, Vec<Value>) {
    let played = play(facts, ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    let quota = |line: &Value| {
        report(&line["decisions"])
            .iter()
            .find_map(|row| row.strip_prefix("container default/web/a cpu.quota ")?.parse().ok())
    };
    (lines.iter().map(quota).collect(), lines)
}

fn drift(line: &Value) -> String {
    let events = line["events"].as_array().cloned().unwrap_or_default();
    let event = events.iter().find(|event| event["reason"] == "KnobDrift");
    event.map(|event| format!("{}: {}", event["pod"], event["message"]).replace('"', "")).unwrap_or_default()
}

#[test]
fn a_reset_is_written_over_and_reported() {
    let ticks = [tick(3, None), tick(0, Some("200000 100000")), tick(0, None)];
    let (written, lines) = quotas(&facts("2"), &ticks);
    assert_eq!(written, [None, Some(240_000), Some(240_000), None]);
    assert!(drift(&lines[2]).starts_with("default/web: cpu.quota was reset to 200000"), "{}", lines[2]);
}

#[test]
fn a_persons_value_is_left_alone_for_ten_minutes_and_then_is_the_baseline() {
    let mut ticks = vec![tick(3, None), tick(3, Some("222000 100000"))];
    ticks.extend(vec![tick(3, None); 3]);
    let mut later = tick(3, None);
    later["windowMillis"] = json!(600_000);
    ticks.push(later);
    ticks.push(tick(3, None));
    ticks.push(json!({"pods": {"removed": ["default/web"]}}));
    let (written, lines) = quotas(&facts("2"), &ticks);
    assert_eq!(written[..6], [None, Some(240_000), None, None, None, None], "{lines:#?}");
    assert!(drift(&lines[2]).starts_with("default/web: another writer set cpu.quota to 222000"), "{}", lines[2]);
    assert!(written[6].or(written[7]).is_some_and(|quota| quota > 222_000), "{written:?}");
    assert_eq!(written[8], Some(222_000), "what a person left is what comes back: {written:?}");
}

#[test]
fn a_fight_is_given_up() {
    let mut ticks = vec![tick(3, None)];
    ticks.extend(vec![tick(0, Some("200000 100000")); 6]);
    let (written, lines) = quotas(&facts("2"), &ticks);
    assert_eq!(written[2], Some(240_000));
    assert_eq!(written.last(), Some(&None), "{written:?}");
    assert!(lines.iter().any(|line| drift(line).contains("keeps setting")), "{lines:#?}");
}

#[test]
fn a_resize_is_the_new_baseline() {
    let mut resize = tick(0, Some("300000 100000"));
    resize["pods"] = json!({"upserted": [web("3")]});
    resize["cgroups"]
        .as_array_mut()
        .unwrap()
        .push(json!({"pod": "default/web", "files": {"cpu.max": "300000 100000"}}));
    let ticks = [tick(3, None), resize, tick(3, None), json!({"pods": {"removed": ["default/web"]}})];
    let (written, lines) = quotas(&facts("2"), &ticks);
    assert!(drift(&lines[2]).contains("the kubelet set cpu.quota to 300000"), "{}", lines[2]);
    assert_eq!(written[3], Some(360_000), "{written:?}");
    assert_eq!(written[4], Some(300_000), "{written:?}");
}
