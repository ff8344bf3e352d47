//! The node's own settings on a real kernel: set, held, and restored. Only in a virtual machine: elsewhere they would be those of
//! the machine that runs the tests.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{Node, PATIENT_MILLIS};
use crate::waiting::wait_until;

/// The flag for the real settings, since the tests make their own `/proc`.
const SYSCTL: [(&str, &str); 1] = [("--sysctl", "/proc/sys")];
/// `minFreeKbytesFactor`, in hundredths of a percent of memory: within the 5 % that the host accepts.
const FACTOR: u64 = 400;
const SCALE: u64 = 33;

fn is_virtual(name: &str) -> bool {
    let is_virtual = std::env::var_os("QOSM_TEST_VM").is_some();
    if !is_virtual {
        let _ = writeln!(std::io::stdout(), "not run: {name}, for it writes settings of the machine itself");
    }
    is_virtual
}

fn setting(name: &str) -> u64 {
    fs::read_to_string(Path::new("/proc/sys/vm").join(name)).unwrap().trim().parse().unwrap()
}

fn settings() -> [u64; 2] {
    ["min_free_kbytes", "watermark_scale_factor"].map(setting)
}

/// The expected `vm.min_free_kbytes`, in KiB.
fn target() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    total.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * FACTOR / 10_000
}

/// A node whose cluster requests both settings.
fn node() -> Node {
    let node = Node::new();
    node.pod(&json!({}));
    node.configure(&json!({
        "system-config": {"clusterStrategy": {"minFreeKbytesFactor": FACTOR, "watermarkScaleFactor": SCALE}},
    }));
    let policy = json!({"name": "node-memory", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS});
    node.agent_config(&json!({"policies": [policy]}));
    node
}

fn wait_for_both() {
    let wanted = [target(), SCALE];
    wait_until("both settings", || settings() == wanted);
}

#[test]
fn watermarks_are_set_shown_and_given_back_at_the_end() {
    if !is_virtual("watermarks_are_set_shown_and_given_back_at_the_end") {
        return;
    }
    let before = settings();
    let node = node();
    let agent = Agent::start_with(&node, &SYSCTL);
    wait_for_both();
    let knobs = agent.json(&["get", "knobs"])["held"].clone();
    let held = |name: &str| {
        let row = knobs.as_array().unwrap().iter().find(|row| row["knob"] == name).unwrap();
        assert_eq!(
            (&row["subject"], &row["level"], &row["policy"]),
            (&json!("node"), &json!("node"), &json!("node-memory"))
        );
        row["baseline"].clone()
    };
    assert_eq!(held("vm.min_free_kbytes"), json!(before[0]));
    assert_eq!(held("vm.watermark_scale_factor"), json!(before[1]));

    // Another program's value wins: the agent keeps its hands off, and does not overwrite it at its end.
    fs::write("/proc/sys/vm/watermark_scale_factor", "21").unwrap();
    let is_drifted = || {
        let knobs: Value = agent.json(&["get", "knobs"])["held"].clone();
        knobs
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["knob"] == "vm.watermark_scale_factor" && row["state"] == "drifted")
    };
    wait_until("the other writer", is_drifted);
    agent.terminate();
    assert_eq!(settings(), [before[0], 21]);
    fs::write("/proc/sys/vm/watermark_scale_factor", before[1].to_string()).unwrap();
}

#[test]
fn after_a_kill_a_restore_puts_the_nodes_settings_back() {
    if !is_virtual("after_a_kill_a_restore_puts_the_nodes_settings_back") {
        return;
    }
    let before = settings();
    let node = node();
    let agent = Agent::start_with(&node, &SYSCTL);
    wait_for_both();
    agent.kill();
    wait_for_both();
    // The next agent continues with the current values, and knows the baseline.
    let agent = Agent::start_with(&node, &SYSCTL);
    agent.let_it_run(3);
    assert_eq!(settings(), [target(), SCALE]);
    agent.kill();
    let (said, is_content) = node.restore(&["--sysctl", "/proc/sys"]);
    assert!(is_content && said.contains("vm.min_free_kbytes"), "{said}");
    assert_eq!(settings(), before);
}
