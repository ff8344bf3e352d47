//! Weights and `cpu.idle`, planned and replayed: what is written, what waits, and writes by other programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::guest::{self, Evaluation};
use crate::qosm::{container, plan, play, pod, report};

const CONTAINER: &str = "container default/web/a";

/// A node with one container that requests 100m, and with policies by name, weight and idle.
fn facts(folder: &Path, cgroup: &str, policies: &[(&str, Option<u32>, Option<bool>)]) -> Value {
    let entry = |&(name, weight, idle): &(&str, Option<u32>, Option<bool>)| {
        let module = guest::write(folder, name, Evaluation::Weighs { weight, idle });
        json!({"name": name, "module": module, "grants": ["cpu-weight", "all-pods"]})
    };
    json!({
        "host": {"cgroup": cgroup, "driver": "cgroupfs", "cpus": 8},
        "policies": policies.iter().map(entry).collect::<Vec<_>>(),
        "pods": [web("100m")],
    })
}

fn web(request: &str) -> Value {
    pod("web", &json!({}), &json!([container("a", &json!({"cpu": request}), &json!({}))]))
}

fn row<'a>(rows: &'a Value, knob: &str) -> &'a Value {
    rows.as_array().unwrap().iter().find(|row| row["knob"] == knob).unwrap()
}

/// Each tick's rows about weights, in the order in which they are written.
fn decisions(facts: &Value, ticks: &[Value]) -> (Vec<Vec<String>>, Vec<Value>) {
    let played = play(facts, ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    let rows = |line: &Value| {
        let rows = line["decisions"].as_array().unwrap().iter();
        rows.flat_map(|row| report(&json!([row])))
            .filter_map(|row| Some(row.strip_prefix(CONTAINER)?.trim().to_owned()))
            .collect::<Vec<_>>()
    };
    (lines.iter().map(rows).collect(), lines)
}

fn written(file: &str, text: &str) -> Value {
    json!({"cgroups": [{"pod": "default/web", "container": "a", "files": {file: text}}]})
}

fn drift(line: &Value) -> String {
    let events = line["events"].as_array().cloned().unwrap_or_default();
    let report = events.iter().filter(|event| event["reason"] == "KnobDrift");
    report.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_weight_means_the_same_on_either_version() {
    let folder = tempfile::tempdir().unwrap();
    for (cgroup, file, current) in [("v1", "cpu.shares", json!(10)), ("v2", "cpu.weight", json!(4))] {
        let planned = plan(&facts(folder.path(), cgroup, &[("heavy", Some(250), None)])).says_nothing_else();
        assert_eq!(planned.rows(), [format!("{CONTAINER} cpu.weight 250")]);
        let rows = planned.decisions();
        let row = row(&rows, "cpu.weight");
        assert_eq!((&row["file"], &row["current"]), (&json!(file), &current), "{row}");
    }
}

#[test]
fn idle_is_planned_with_the_weight_that_it_costs() {
    let folder = tempfile::tempdir().unwrap();
    for (cgroup, current) in [("v1", json!(10)), ("v2", json!(4))] {
        let planned = plan(&facts(folder.path(), cgroup, &[("lazy", None, Some(true))])).says_nothing_else();
        let rows = planned.decisions();
        let knobs: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["knob"].clone()).collect();
        assert_eq!(knobs, ["cpu.idle", "cpu.weight"], "in the order in which the kernel takes them");
        assert_eq!(row(&rows, "cpu.weight")["current"], current);
        assert_eq!(row(&rows, "cpu.weight")["value"], 0);
    }
}

#[test]
fn without_cpu_idle_the_lowest_weight_stands_in_and_the_plan_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for (cgroup, lowest) in [("v1", "2 shares"), ("v2", "1")] {
        let mut facts = facts(folder.path(), cgroup, &[("lazy", None, Some(true))]);
        facts["host"]["missingFiles"] = json!(["cpu.idle"]);
        let planned = plan(&facts);
        planned.says(1, &["not possible: cpu.idle of", "Linux 5.15", "lowest weight"]);
        assert_eq!(planned.rows(), [format!("{CONTAINER} cpu.weight {lowest}")]);
        let rows = planned.decisions();
        assert!(row(&rows, "cpu.weight")["adjusted"]["why"].as_str().unwrap().contains("cpu.idle"), "{rows}");
    }
}

#[test]
fn a_weight_out_of_range_is_refused_with_the_range() {
    let folder = tempfile::tempdir().unwrap();
    let planned = plan(&facts(folder.path(), "v2", &[("wrong", Some(0), None)]));
    planned.says(1, &["cpu.weight", "1 to 10000"]);
    assert!(planned.rows().is_empty(), "{planned:#?}");
}

#[test]
fn a_weight_beyond_the_largest_is_the_largest_and_the_plan_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let planned = plan(&facts(folder.path(), "v2", &[("heavy", Some(10_001), None)])).says_nothing_else();
    assert_eq!(planned.rows(), [format!("{CONTAINER} cpu.weight 10000")]);
    let rows = planned.decisions();
    assert_eq!(row(&rows, "cpu.weight")["adjusted"]["wanted"], 10_001, "{rows}");
}

#[test]
fn a_weight_waits_while_another_policy_has_the_container_idle() {
    let folder = tempfile::tempdir().unwrap();
    let both = facts(folder.path(), "v2", &[("heavy", Some(250), None), ("lazy", None, Some(true))]);
    let planned = plan(&both).says_nothing_else();
    assert_eq!(planned.rows(), [format!("{CONTAINER} cpu.idle 1"), format!("{CONTAINER} cpu.weight 0")]);
    let rows = planned.decisions();
    let weight = row(&rows, "cpu.weight");
    assert_eq!((&weight["policy"], &weight["adjusted"]["wanted"]), (&json!("lazy"), &json!(250)), "{weight}");
    assert!(weight["adjusted"]["why"].as_str().unwrap().contains("lazy holds cpu.idle"), "{weight}");
}

#[test]
fn a_pod_that_leaves_gets_idle_lifted_before_its_weight() {
    let folder = tempfile::tempdir().unwrap();
    for (cgroup, before) in [("v1", 10), ("v2", 4)] {
        let facts = facts(folder.path(), cgroup, &[("lazy", None, Some(true))]);
        let (rows, lines) = decisions(&facts, &[json!({}), json!({"pods": {"removed": ["default/web"]}})]);
        assert_eq!(rows[0], ["cpu.idle 1", "cpu.weight 0"], "{lines:#?}");
        assert_eq!(rows[1], <[String; 0]>::default(), "{lines:#?}");
        assert_eq!(rows[2], ["cpu.idle 0".to_owned(), format!("cpu.weight {before}")], "{lines:#?}");
    }
}

#[test]
fn who_wrote_a_weight_decides_what_becomes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let facts = facts(folder.path(), "v2", &[("heavy", Some(250), None)]);
    // A reload of systemd; the runtime at a resize, by either of its formulas; a user.
    let straight = [json!({"pods": {"upserted": [web("1")]}}), written("cpu.weight", "39"), json!({})];
    let curved = [json!({"pods": {"upserted": [web("2")]}}), written("cpu.weight", "174"), json!({})];
    for (ticks, kind) in [
        (vec![written("cpu.weight", "4")], "cpu.weight was reset to 4"),
        (straight.to_vec(), "the kubelet set cpu.weight to 39, the new baseline"),
        (curved.to_vec(), "the kubelet set cpu.weight to 174, the new baseline"),
    ] {
        let (rows, lines) = decisions(&facts, &ticks);
        assert!(lines.iter().any(|line| drift(line).contains(kind)), "{kind}: {lines:#?}");
        assert_eq!(rows.concat(), ["cpu.weight 250"; 2], "{kind}: {lines:#?}");
    }
    let (rows, lines) = decisions(&facts, &[written("cpu.weight", "333"), json!({}), json!({})]);
    assert!(lines.iter().any(|line| drift(line).contains("another writer set cpu.weight to 333")), "{lines:#?}");
    assert_eq!(rows.concat(), ["cpu.weight 250"]);
}

#[test]
fn a_person_who_lifts_idle_is_left_alone_with_the_weight_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let facts = facts(folder.path(), "v2", &[("lazy", None, Some(true))]);
    let mut lifted = written("cpu.idle", "0");
    lifted["cgroups"][0]["files"]["cpu.weight"] = json!("333");
    let mut later = json!({});
    later["windowMillis"] = json!(600_000);
    let gone = json!({"pods": {"removed": ["default/web"]}});
    let (rows, lines) = decisions(&facts, &[lifted, json!({}), json!({}), later, json!({}), gone]);
    assert_eq!(rows[..4].concat(), ["cpu.idle 1", "cpu.weight 0"], "{lines:#?}");
    let report = drift(&lines[1]);
    assert!(report.contains("another writer set cpu.weight to 333"), "{report}");
    assert!(report.contains("another writer set cpu.idle to 0"), "the writer of one wrote the other: {report}");
    assert_eq!(rows[4..6].concat(), ["cpu.idle 1", "cpu.weight 0"], "once the wait is over: {lines:#?}");
    assert_eq!(rows[6], ["cpu.idle 0", "cpu.weight 333"], "what the person left: {lines:#?}");
}
