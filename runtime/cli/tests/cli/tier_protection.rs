//! Other writers of memory knobs, above all the kubelet's MemoryQoS: what they protect stays protected, and every conflict is reported.

use serde_json::{Value, json};

use crate::qosm::{container, only, plan, play, pod, replay, report, run};

const GIB: u64 = 1 << 30;

/// `web` protects half of its GiB; `db` is not configured, and has 8 GiB from the kubelet.
fn node(percent: u64, cgroups: Value) -> Value {
    json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs"},
        "node": {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": "30Gi"}}},
        "policies": [{"name": "memory-qos"}],
        "pods": [web(&json!({"minLimitPercent": percent}), "1Gi"), db()],
        "cgroups": cgroups,
    })
}

fn web(body: &Value, request: &str) -> Value {
    let annotations = json!({"koordinator.sh/memoryQOS": body.to_string()});
    pod("web", &annotations, &json!([container("a", &json!({"memory": request}), &json!({"memory": "4Gi"}))]))
}

fn db() -> Value {
    pod("db", &json!({}), &json!([container("a", &json!({"memory": "8Gi"}), &json!({}))]))
}

fn kubelet(knob: &str, tier: &str, bytes: u64) -> Value {
    json!({"tier": tier, "files": {knob: bytes.to_string()}})
}

fn of_pod(knob: &str, pod: &str, bytes: u64) -> [Value; 2] {
    let files = json!({knob: bytes.to_string()});
    [json!({"pod": pod, "files": files}), json!({"pod": pod, "container": "a", "files": files})]
}

/// Values of the kubelet's MemoryQoS: on `db`, on the tiers, and on `web` if `web` is not 0.
fn memory_qos(knob: &str, web: u64, tiers: u64) -> Value {
    let mut cgroups = vec![kubelet(knob, "burstable", tiers), kubelet(knob, "kubepods", tiers)];
    cgroups.extend(of_pod(knob, "default/db", 8 * GIB));
    if web > 0 {
        cgroups.extend(of_pod(knob, "default/web", web));
    }
    json!(cgroups)
}

fn tiers(rows: &[String]) -> Vec<&str> {
    rows.iter().filter(|row| row.starts_with("tier")).map(String::as_str).collect()
}

fn events(line: &Value) -> Vec<String> {
    let events = line["events"].as_array().cloned().unwrap_or_default();
    events.iter().map(|event| format!("{}: {}", event["pod"], event["message"]).replace('"', "")).collect()
}

#[test]
fn a_pod_never_takes_from_a_tier_what_others_have_there() {
    for knob in ["min", "low"] {
        let file = format!("memory.{knob}");
        let row = |tier: &str, bytes: u64| format!("tier {tier} {file} {bytes}");
        for (what, percent, kubelets, tier, expected) in [
            ("the kubelet counts `web` too, and it asks for less", 50, GIB, 9 * GIB, None),
            ("it asks for just as much", 100, GIB, 9 * GIB, None),
            ("the kubelet does not count it", 50, 0, 8 * GIB, Some(8 * GIB + GIB / 2)),
            ("the baseline stays as large as it was", 50, 0, 9 * GIB, Some(9 * GIB + GIB / 2)),
            ("it has more than the kubelet gave it", 100, GIB / 4, 9 * GIB, Some(9 * GIB + GIB * 3 / 4)),
            ("nobody covers `db`, so the tier does", 50, 0, 0, Some(8 * GIB + GIB / 2)),
        ] {
            let mut facts = node(percent, memory_qos(&file, kubelets, tier));
            facts["pods"][0] = web(&json!({format!("{knob}LimitPercent"): percent}), "1Gi");
            let rows = plan(&facts).says_nothing_else().rows();
            let expected: Vec<String> = expected
                .map(|bytes| ["burstable", "kubepods"].map(|tier| row(tier, bytes)).to_vec())
                .unwrap_or_default();
            assert_eq!(tiers(&rows), expected, "{knob}, {what}: {rows:?}");
        }
    }
}

#[test]
fn a_plan_says_why_a_tier_gets_another_value_than_the_policy_asks_for() {
    let planned = plan(&node(50, memory_qos("memory.min", 0, 8 * GIB))).says_nothing_else();
    let rows = planned.decisions();
    let tier = rows.as_array().unwrap().iter().find(|row| row["tier"] == "burstable").cloned().unwrap();
    assert_eq!(tier["adjusted"]["wanted"], GIB / 2, "{tier}");
    let why = tier["adjusted"]["why"].as_str().unwrap();
    assert_eq!(why, "536870912 more than the baseline 8589934592, which stays for the other groups in it");
}

#[test]
fn a_guard_rail_bounds_what_is_added_and_takes_nothing_from_others() {
    let mut facts = node(50, memory_qos("memory.min", 0, 9 * GIB));
    facts["guardRails"] = json!({"maxMemoryMinPercent": 25});
    let rows = plan(&facts).says_nothing_else().rows();
    assert_eq!(tiers(&rows), [format!("tier burstable memory.min {}", 9 * GIB + GIB / 2)], "kubepods keeps its 9 GiB");
}

#[test]
fn at_no_step_does_a_tier_hold_less_than_the_groups_in_it() {
    // `web` grows, shrinks and goes, while `db` keeps its 8 GiB.
    let percent = |percent: u64| json!({"pods": {"upserted": [web(&json!({"minLimitPercent": percent}), "1Gi")]}});
    let ticks = [percent(100), percent(25), json!({"pods": {"removed": ["default/web"]}})];
    let played = play(&node(50, memory_qos("memory.min", 0, 8 * GIB)), &ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    let (mut pod, mut tier, mut root) = (0, 8 * GIB, 8 * GIB);
    for line in played.lines() {
        for row in line["decisions"].as_array().unwrap() {
            let value = row["value"].as_u64().unwrap();
            match (row["level"].as_str().unwrap(), row["tier"].as_str()) {
                ("pod", _) => pod = value,
                ("tier", Some("burstable")) => tier = value,
                ("tier", _) => root = value,
                _ => {}
            }
            assert!(root >= tier && tier >= 8 * GIB + pod, "{root} {tier} {pod} after {row}");
        }
    }
    assert_eq!((pod, tier, root), (0, 8 * GIB, 8 * GIB));
}

#[test]
fn another_writer_of_the_tiers_is_tolerated_and_reported() {
    let mut ticks = Vec::new();
    for second in 1..=420_u64 {
        let mut tick = json!({});
        if second % 60 == 0 {
            let tier = |name| kubelet("memory.min", name, 9 * GIB);
            tick["cgroups"] = json!([tier("burstable"), tier("kubepods")]);
        }
        ticks.push(tick);
    }
    let played = play(&node(50, memory_qos("memory.min", 0, 9 * GIB)), &ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    let written: Vec<usize> =
        (1..lines.len()).filter(|&place| !report(&lines[place]["decisions"]).is_empty()).collect();
    assert!(!written.is_empty() && written.iter().all(|&second| second < 240), "{written:?}");
    let report: Vec<String> = lines.iter().flat_map(events).collect();
    assert!(
        report.iter().any(|event| event.starts_with("tier burstable: memory.min of the tier was reset")),
        "{report:#?}"
    );
    let settled = "which covers what the groups in it hold";
    for tier in ["tier burstable: ", "tier kubepods: "] {
        assert_eq!(
            report.iter().filter(|event| event.starts_with(tier) && event.contains(settled)).count(),
            1,
            "{report:#?}"
        );
    }
    assert!(report.len() <= 6, "equal ones are counted: {report:#?}");
}

#[test]
fn an_owner_who_gives_too_little_each_minute_is_written_over_each_time_and_told_of_once() {
    // The kubelet knows nothing of `web`, so its 8 GiB cannot cover both.
    let mut ticks = Vec::new();
    for _minute in 0..60 {
        ticks.extend(vec![json!({}); 10]);
        ticks.push(json!({"windowMillis": 50_000, "cgroups": [kubelet("memory.min", "burstable", 8 * GIB)]}));
    }
    let facts = node(50, memory_qos("memory.min", 0, 8 * GIB));
    let played = play(&facts, &ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    let writes =
        |line: &Value| report(&line["decisions"]).iter().filter(|row| row.starts_with("tier burstable")).count();
    let written: usize = lines[1..].iter().map(writes).sum();
    assert!((58..=61).contains(&written), "{written}");
    let report: Vec<String> = lines.iter().flat_map(events).collect();
    let told = report
        .iter()
        .filter(|event| event.starts_with("tier burstable: ") && event.contains("puts its own back each time"));
    assert_eq!(told.count(), 1, "{report:#?}");
    assert!(!report.iter().any(|event| event.contains("hands off")), "{report:#?}");
}

#[test]
fn memory_that_is_resized_in_place_is_the_new_baseline() {
    let body = json!({"minLimitPercent": 50, "throttlingPercent": 50});
    let facts = {
        let mut facts = node(50, json!([]));
        facts["pods"][0] = web(&body, "1Gi");
        let mut cgroups = of_pod("memory.min", "default/web", GIB).to_vec();
        cgroups[1]["files"]["memory.high"] = (3_972_841_472_u64).to_string().into();
        facts["cgroups"] = json!(cgroups);
        facts
    };
    // The kubelet writes the pod's new request and, of the container, 90 % of the way from it to the limit.
    let mut resized = of_pod("memory.min", "default/web", 2 * GIB).to_vec();
    resized[1]["files"]["memory.high"] = (4_080_218_112_u64).to_string().into();
    let specified = json!({"pods": {"upserted": [web(&body, "2Gi")]}});
    let written = json!({"cgroups": resized});
    let both = json!({"pods": specified["pods"], "cgroups": resized});
    let orders = [vec![both], vec![specified.clone(), written.clone()], vec![written, specified]];
    for order in orders {
        let mut ticks = order.clone();
        ticks.extend(vec![json!({}); 12]);
        ticks.push(json!({"pods": {"removed": ["default/web"]}}));
        let played = play(&facts, &ticks);
        assert_eq!(played.code, 0, "{played:#?}");
        let lines = played.lines();
        let last = report(&lines.last().unwrap()["decisions"]);
        assert_eq!(
            only(&last, "memory.min")[..2],
            ["container default/web/a memory.min 2147483648", "pod default/web memory.min 2147483648"],
            "{order:?}"
        );
        assert_eq!(only(&last, "memory.high"), ["container default/web/a memory.high 4080218112"], "{order:?}");
        let report: Vec<String> = lines.iter().flat_map(events).collect();
        assert!(report.iter().any(|event| event.contains("the kubelet set memory.min to 2147483648")), "{report:#?}");
    }
}

#[test]
fn a_tier_that_is_cleared_is_the_new_baseline() {
    let cleared = json!({"cgroups": [kubelet("memory.min", "burstable", 0), kubelet("memory.min", "kubepods", 0)]});
    let mut ticks = vec![cleared];
    ticks.extend(vec![json!({}); 12]);
    ticks.push(json!({"pods": {"removed": ["default/web"]}}));
    let played = replay(&node(50, memory_qos("memory.min", 0, 9 * GIB)), &ticks);
    let after: Vec<&str> = played[1..13].iter().flat_map(|rows| tiers(rows)).collect();
    // What `db` still holds is covered.
    for tier in ["burstable", "kubepods"] {
        let last = after.iter().rfind(|row| row.contains(tier));
        assert_eq!(last, Some(&&*format!("tier {tier} memory.min {}", 8 * GIB + GIB / 2)), "{after:?}");
    }
    assert_eq!(tiers(played.last().unwrap()), ["tier burstable memory.min 0", "tier kubepods memory.min 0"]);
}

#[test]
fn a_plan_on_paper_shows_the_kubelets_share_too() {
    let facts = node(50, memory_qos("memory.min", 0, 8 * GIB)).to_string();
    let report = run(&["plan", "--facts", "-"], &facts);
    report.says(0, &[]);
    assert!(report.stdout.contains("more than the baseline 8589934592"), "{report:#?}");
}
