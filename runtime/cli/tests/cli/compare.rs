//! Two versions of a policy on one recording.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::guest::{self, Evaluation};
use crate::qosm::{Run, bare, limited, module, play, pod, report, repository, run};

const RESPONSIVE: &str = r#"{"profile":"responsive"}"#;

fn recording() -> String {
    repository("examples/replay/burst.jsonl")
}

/// Replays the recording with more flags.
fn against(flags: &[&str]) -> Run {
    run(&[&["replay", &recording()], flags].concat(), "")
}

/// Tick lines, and the summary at the end.
fn lines(run: &Run) -> (Vec<Value>, Value) {
    let mut lines = run.lines();
    let summary = lines.pop().unwrap()["summary"].take();
    (lines, summary)
}

/// The differences of one knob as lines `12 differs 240000 252000`: tick, kind, old and new value.
fn rows(ticks: &[Value], subject: &str, knob: &str) -> Vec<String> {
    let value = |side: &Value| side["value"].as_i64().map_or_else(|| "-".to_owned(), |value| value.to_string());
    let report = |tick: &Value| {
        let rows = tick["differences"].as_array().unwrap().iter();
        let row = rows.filter(|row| row["subject"] == subject && row["knob"] == knob);
        row.map(|row| {
            format!("{} {} {} {}", tick["tick"], row["kind"].as_str().unwrap(), value(&row["old"]), value(&row["new"]))
        })
        .collect::<Vec<_>>()
    };
    ticks.iter().flat_map(report).collect()
}

/// One version takes steps of × 1.2 and × 0.8; the other gives what was missing, and under overload takes back what is not needed.
#[test]
fn the_difference_between_two_profiles_is_reported_tick_by_tick() {
    let played = against(&["--against", "cpu-burst", "--against-config", RESPONSIVE]);
    assert_eq!((played.code, played.stderr.as_str()), (1, ""), "they differ: {played:#?}");
    let (ticks, summary) = lines(&played);
    assert_eq!(
        rows(&ticks, "default/web/nginx", "cpu.quota"),
        [
            "1 differs 240000 252000",
            "2 differs 288000 304000",
            "3 differs 345600 364800",
            "4 differs 414720 437760",
            "5 differs 497664 525312",
            "6 differs 597196 600000",
            "12 differs 384000 280000",
            "13 only-old 307200 -",
            "14 only-old 245760 -",
        ]
    );
    assert_eq!(summary["ticks"], ticks.len());
    assert_eq!((&summary["differingTicks"], &summary["firstDifference"]), (&json!(9), &json!(1)), "{summary}");
    assert_eq!(
        summary["knobs"]["cpu.quota"],
        json!({"agreed": 10, "differed": 14, "onlyOld": 4, "onlyNew": 0}),
        "the pod's and the container's: {summary}"
    );
    assert_eq!(summary["same"], false);
}

#[test]
fn either_side_is_what_it_is_when_played_alone() {
    let (ticks, summary) = lines(&against(&["--against", "cpu-burst", "--against-config", RESPONSIVE]));
    let config = format!("cpu-burst={RESPONSIVE}");
    for (side, only, flags) in [("old", "onlyOld", &[][..]), ("new", "onlyNew", &["--policy-config", &config])] {
        let alone = against(flags).says_nothing_else().lines();
        let mut node: BTreeMap<String, String> = BTreeMap::new();
        let mut compared = 0;
        for (tick, alone) in ticks.iter().zip(&alone) {
            for row in report(&alone["decisions"]) {
                let (place, value) = row.rsplit_once(' ').unwrap();
                node.insert(place.to_owned(), value.to_owned());
            }
            for row in tick["differences"].as_array().unwrap().iter().filter(|row| !row[side].is_null()) {
                let place = ["level", "subject", "knob"].map(|field| row[field].as_str().unwrap()).join(" ");
                assert_eq!(node.get(&place), Some(&bare(&row[side]["value"])), "{side}: {place} at {}", tick["tick"]);
                compared += 1;
            }
        }
        let told = summary["knobs"].as_object().unwrap().values();
        let told: u64 = told.map(|knob| knob["differed"].as_u64().unwrap() + knob[only].as_u64().unwrap()).sum();
        assert!(compared == told && compared > 0, "{side}: {compared} of {summary}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for output in ["json", "table"] {
        let flags = ["--against", "cpu-burst", "--against-config", RESPONSIVE, "-o", output];
        let (first, second) = (against(&flags), against(&flags));
        assert_eq!(first.stdout, second.stdout);
    }
}

#[test]
fn the_table_has_a_row_when_a_difference_begins_changes_or_ends() {
    let table = against(&["--against", "cpu-burst", "--against-config", RESPONSIVE, "-o", "table"]);
    assert_eq!(table.code, 1, "{table:#?}");
    let of_quota: Vec<&str> =
        table.stdout.lines().filter(|line| line.contains("default/web/nginx cpu.quota")).collect();
    assert_eq!(of_quota.len(), 10, "{}", table.stdout);
    assert!(of_quota[0].contains("old 240000, new 252000  throttled in 30 %"), "{}", of_quota[0]);
    assert!(of_quota[6].ends_with("no longer differs"), "{}", of_quota[6]);
    assert!(of_quota[9].contains("old 245760, new hands off"), "{}", of_quota[9]);
    assert!(table.stdout.contains("15 ticks, 9 of them differ, tick 1 first"), "{}", table.stdout);
}

#[test]
fn the_same_module_cannot_differ_and_that_is_said() {
    let burst = module("cpu-burst");
    let copy = tempfile::tempdir().unwrap();
    let copied = copy.path().join("copy.wasm").display().to_string();
    fs::copy(&burst, &copied).unwrap();
    for flags in [
        &["--policy", "cpu-burst", "--against", &copied][..],
        &["--policy", &burst, "--against", &copied],
        &["--against", &format!("cpu-burst={copied}")],
    ] {
        let played = against(flags);
        played.says(0, &["the same module", "sha256:", "cannot differ"]);
        let (ticks, summary) = lines(&played);
        assert!(ticks.iter().all(|tick| tick["differences"] == json!([])), "{played:#?}");
        assert_eq!((&summary["same"], &summary["differingTicks"]), (&json!(true), &json!(0)), "{summary}");
    }
}

#[test]
fn what_is_no_version_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.wasm").display().to_string();
    fs::write(&garbage, "not wasm at all").unwrap();
    against(&["--against", "/nowhere/new.wasm"]).says(1, &["/nowhere/new.wasm"]);
    against(&["--policy", "/nowhere/old.wasm", "--against", &garbage]).says(1, &["/nowhere/old.wasm"]);
    against(&["--against", &format!("cpu-burst={garbage}")]).says(1, &[&garbage]);
    against(&["--against", &module("memory-qos")]).says(2, &["calls itself `memory-qos`", "NAME=", "cpu-burst"]);
    against(&["--against", "cpu-burst"]).says(2, &["same module", "--against-config"]);
    against(&["--against", "other=x.wasm"]).says(2, &["other", "cpu-burst"]);
    run(&["replay", "/nowhere/x.jsonl", "--against", &module("cpu-burst")], "").says(2, &["/nowhere/x.jsonl"]);
    let flags = ["replay", "-", "--policy", "cpu-burst", "--against", "cpu-burst", "--against-config", "{}"];
    run(&flags, "{}\n{\"window\": 5}\n").says(2, &["line 2", "window"]);
}

/// The version runs for three ticks, and then fails.
#[test]
fn a_version_that_fails_in_the_middle_is_reported_and_the_other_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let failing = guest::write(folder.path(), "failing", Evaluation::TrapsFrom(4));
    let flag = format!("cpu-burst={}", failing.display());
    // The recorded configuration is for the other version.
    let played = against(&["--against", &flag, "--against-config", "{}"]);
    assert_eq!(played.code, 1, "{played:#?}");
    let (ticks, summary) = lines(&played);
    let error = |tick: &Value, side: &str| tick["failing"][side]["cpu-burst"].as_str().map(str::to_owned);
    assert!(ticks.iter().take(3).all(|tick| tick.get("failing").is_none()), "{played:#?}");
    let failed = error(&ticks[3], "new").unwrap();
    assert!(failed.contains("evaluate"), "{failed}");
    assert!(ticks.iter().all(|tick| error(tick, "old").is_none()), "{played:#?}");
    assert!(summary["failures"]["new"].as_u64() >= Some(1) && summary["failures"]["old"] == 0, "{summary}");
    assert_eq!(rows(&ticks, "default/web/nginx", "cpu.quota")[0], "1 only-old 240000 -");
    assert_eq!(rows(&ticks, "default/web/nginx", "cpu.quota")[6], "7 only-old 600000 -");

    // A version that never ends its evaluation is stopped, again and again.
    let looping = guest::write(folder.path(), "looping", Evaluation::Loops);
    let (ticks, summary) =
        lines(&against(&["--against", &format!("cpu-burst={}", looping.display()), "--against-config", "{}"]));
    assert!(ticks.iter().all(|tick| error(tick, "new").is_some() && error(tick, "old").is_none()), "{summary}");

    // Exchanged, the old version fails. Two modules that decide nothing do not count as equal if one of them does not run.
    let idle = guest::write(folder.path(), "idle", Evaluation::Idles).display().to_string();
    let flags = ["--policy", &flag, "--policy-config", "cpu-burst={}", "--against", &format!("cpu-burst={idle}")];
    let (ticks, summary) = lines(&against(&flags));
    assert!(error(&ticks[3], "old").is_some() && error(&ticks[3], "new").is_none(), "{summary}");
    assert_eq!((&summary["differingTicks"], &summary["same"]), (&json!(0), &json!(false)), "{summary}");
}

/// Five failures within seconds, and then one every ten minutes: the cause may have passed.
#[test]
fn a_policy_that_is_parked_is_tried_again_after_ten_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let failing = guest::write(folder.path(), "failing", Evaluation::TrapsFrom(1)).display().to_string();
    let failures = |minutes: usize| {
        let facts = json!({"policies": [{"name": "failing", "module": failing}]});
        let tick = json!({"windowMillis": 20_000});
        let text: String = std::iter::once(&facts)
            .chain(std::iter::repeat_n(&tick, minutes * 3))
            .map(|line| format!("{line}\n"))
            .collect();
        let flags = ["replay", "-", "--against", &format!("failing={failing}"), "--against-config", "{\"x\": 1}"];
        let (_, summary) = lines(&run(&flags, &text));
        summary["failures"]["old"].as_u64().unwrap()
    };
    assert_eq!([failures(1), failures(5), failures(9), failures(12), failures(22)], [4, 5, 5, 6, 7]);
}

#[test]
fn a_shadow_decides_nothing_in_a_plan_or_a_replay() {
    let web = pod("web", &json!({"koordinator.sh/cpuBurst": r#"{"policy":"auto"}"#}), &json!([limited("a", "1")]));
    let facts = json!({"policies": [{"name": "cpu-burst", "mode": "shadow"}], "pods": [web]});
    let planned = crate::qosm::plan(&facts);
    assert_eq!(planned.decisions(), json!([]));
    planned.says(0, &["note: shadow cpu-burst would set default/web cpu.burst to 1000000: sum over its containers"]);
    let played = play(&facts, &[json!({})]).says_nothing_else();
    let lines = played.lines();
    assert!(lines.iter().all(|line| line["decisions"] == json!([])), "{played:#?}");
    let would = &lines[0]["shadows"][0];
    assert_eq!([&would["action"], &would["subject"], &would["knob"]], ["set", "default/web", "cpu.burst"], "{would}");
}
