//! `qosm top` from a recording without a terminal: it prints one moment.

use serde_json::Value;

use crate::qosm::{repository, run};

fn top(flags: &[&str]) -> crate::qosm::Run {
    let recording = repository("examples/replay/burst.jsonl");
    run(&[&["top", "--replay", recording.as_str()], flags].concat(), "")
}

#[test]
fn the_end_of_a_recording_shows_use_and_what_is_held_and_why() {
    let look = top(&["-o", "json"]);
    look.says(0, &[]);
    let look: Value = serde_json::from_str(&look.stdout).unwrap();
    let container = &look["containers"][0];
    assert_eq!(container["pod"], "default/web", "{look:#}");
    let held = container["held"].as_array().unwrap();
    let quota = held.iter().find(|held| held["knob"] == "cpu.quota").unwrap();
    assert_eq!(quota["policy"], "cpu-burst", "{look:#}");
    assert!(!quota["reason"].as_str().unwrap().is_empty());
    let cpus = |name: &str| container["quota"][name].as_f64().unwrap();
    assert!(cpus("cpus") > cpus("baselineCpus"), "{look:#}");
    assert!(container["cpus"].as_f64().is_some() && container["throttledPercent"].as_f64().is_some(), "{look:#}");
}

#[test]
fn without_a_terminal_a_list_is_printed() {
    let look = top(&[]);
    look.says(0, &[]);
    let lines: Vec<&str> = look.stdout.lines().collect();
    assert!(lines[0].starts_with("POD/CONTAINER") && lines[0].contains("THROTTLED"), "{look:#?}");
    assert!(lines[1].starts_with("default/web/"), "{look:#?}");
}

#[test]
fn what_matches_nothing_is_said() {
    let look = top(&["--find", "wbe"]);
    look.says(1, &["no container", "default/web/"]);
    top(&["--held-by", "cpu-burst"]).says(0, &[]);
    top(&["-n", "nowhere"]).says(1, &["no container"]);
}

#[test]
fn what_is_no_recording_is_said_with_its_line() {
    run(&["top", "--replay", "-"], "{}\nnonsense\n").says(2, &["line 2"]);
    run(&["top", "--replay", "-"], "").says(2, &["empty"]);
    run(&["top", "--replay", "-"], "{}\n").says(2, &["no tick"]);
    run(&["top", "--admin-socket", "/nowhere.sock"], "").says(1, &["no agent answers at /nowhere.sock"]);
}
