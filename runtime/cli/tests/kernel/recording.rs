//! A running agent's recording can be replayed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node, binary, module};
use crate::waiting::wait_until;

#[test]
fn a_recording_replays_to_what_was_done() {
    let node = Node::busy(&json!({}));
    let _agent = Agent::start(&node);
    let file = node.path("record.jsonl");
    let mut recording = Command::new(binary());
    recording.args(["record", "--admin-socket"]).arg(node.path("admin.sock")).arg("--file").arg(&file);
    let mut recording = recording.spawn().unwrap();
    wait_until("the recording to begin", || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    node.pod(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    // The tick of the raise is recorded when it is over; wait for some more.
    let lines = || std::fs::read_to_string(&file).unwrap().lines().count();
    let raised = lines();
    wait_until("some ticks more", || lines() >= raised + 5);
    kill_process(Pid::from_child(&recording), Signal::INT).unwrap();
    assert!(recording.wait().unwrap().success());

    let recorded = std::fs::read_to_string(&file).unwrap();
    let replayed = replay(&recorded);
    assert_eq!(replay(&recorded), replayed, "the same each time");
    let ticks: Vec<Value> = replayed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ticks.len(), recorded.lines().count(), "one line for each line");
    let quotas: Vec<i64> = ticks
        .iter()
        .flat_map(|tick| tick["decisions"].as_array().cloned().unwrap_or_default())
        .filter(|row| row["knob"] == "cpu.quota" && row["level"] == "container")
        .filter_map(|row| row["value"].as_i64())
        .collect();
    // The same module on the same measurements takes the same steps.
    let steps = [12_000, 14_400, 17_280, 20_736, 24_883, 29_859, 30_000];
    assert!(
        !quotas.is_empty() && steps.starts_with(&quotas[..quotas.len().min(steps.len())]),
        "{quotas:?}\n{recorded}"
    );
}

#[test]
fn a_recording_ends_at_its_bound_with_a_whole_line() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let _agent = Agent::start(&node);
    let record = |flags: &[&str]| {
        let mut recording = Command::new(binary());
        recording.args(["record", "--admin-socket"]).arg(node.path("admin.sock")).args(flags).output().unwrap()
    };
    let lines = |text: &[u8]| -> Vec<Value> {
        assert!(text.ends_with(b"\n"), "{}", String::from_utf8_lossy(text));
        text.split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    };
    let ticks = record(&["--max-ticks", "4"]);
    assert!(ticks.status.success(), "{ticks:?}");
    assert_eq!(lines(&ticks.stdout).len(), 5, "the facts and four ticks");

    let size = ticks.stdout.len() - 1;
    let sized = record(&["--max-size", &size.to_string(), "--for", "1h"]);
    assert!(sized.status.success(), "{sized:?}");
    assert!(sized.stdout.len() <= size && lines(&sized.stdout).len() > 1, "{sized:?}");

    let timed = record(&["--for", "1s", "--max-ticks", "100000"]);
    assert!(timed.status.success() && !lines(&timed.stdout).is_empty(), "{timed:?}");

    let small = record(&["--max-size", "10"]);
    let report = String::from_utf8(small.stderr).unwrap();
    assert!(small.status.code() == Some(1) && small.stdout.is_empty() && report.contains("--max-size 10"), "{report}");
}

#[test]
fn a_look_at_a_running_agent_shows_who_is_throttled_and_what_is_done_about_it() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let _agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    let mut top = Command::new(binary());
    top.args(["top", "--once", "--interval", "1s", "-o", "json", "--admin-socket"]).arg(node.path("admin.sock"));
    let look = top.output().unwrap();
    assert!(look.status.success(), "{look:?}");
    let look: Value = serde_json::from_slice(&look.stdout).unwrap();
    let row = &look["containers"][0];
    let number = |name: &str| row[name].as_f64();
    assert!(number("cpus").is_some_and(|cpus| cpus > 0.0), "{look:#}");
    assert!(number("throttledPercent").is_some() && number("memoryBytes").is_some(), "{look:#}");
    let held = row["held"].as_array().unwrap();
    let quota = held.iter().find(|held| held["knob"] == "cpu.quota").unwrap();
    assert!(quota["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{look:#}");
    assert_eq!(quota["baseline"], BASE, "{look:#}");
}

fn replay(recorded: &str) -> String {
    let modules = std::path::PathBuf::from(module("cpu-burst"));
    let mut child = Command::new(binary())
        .args(["replay", "-", "--module-dir"])
        .arg(modules.parent().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(recorded.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
