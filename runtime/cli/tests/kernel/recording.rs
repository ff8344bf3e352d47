//! What a running agent recorded can be replayed.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::agent::{Agent, wait_until};
use crate::node::{APP, BASE, BURST, Node, binary, module};

#[test]
fn a_recording_replays_to_what_was_done() {
    let node = Node::busy(&json!({}));
    let _agent = Agent::start(&node);
    let file = node.path("record.jsonl");
    let mut recording = Command::new(binary());
    recording.args(["record", "--for", "4s", "--admin-socket"]).arg(node.path("admin.sock")).arg("--file").arg(&file);
    let mut recording = recording.spawn().unwrap();
    wait_until("the recording to begin", || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    node.pod(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
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
