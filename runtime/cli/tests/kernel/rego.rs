//! A Rego policy on a real kernel: it holds knobs, is swapped and compared, and releases everything, like a policy in Rust.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{APP, Node, PATIENT_MILLIS, POD, binary};
use crate::waiting::wait_until;
use crate::watch::Watch;

/// The bundle of an example.
fn bundle() -> PathBuf {
    let beside = binary().ancestors().nth(2).map(|target| target.join("rego")).unwrap_or_default();
    let folder = std::env::var_os("QOSM_BUNDLES").map_or(beside, PathBuf::from);
    let file = folder.join("rego-batch-namespaces.tar.gz");
    assert!(file.is_file(), "{} is missing: run `cargo xtask rego`, or set QOSM_BUNDLES", file.display());
    file
}

/// The same bundle with another packing time: another artefact of the same policy.
fn another(node: &Node) -> PathBuf {
    // RFC 1952: after two magic bytes, the method and the flags.
    const PACKED_AT: usize = 4;
    let mut bytes = fs::read(bundle()).unwrap();
    bytes[PACKED_AT] ^= 1;
    let file = node.path("another.tar.gz");
    fs::write(&file, bytes).unwrap();
    file
}

fn entry(bundle: PathBuf) -> Value {
    json!({
        "name": "batch-namespaces", "module": bundle, "grants": ["node", "cpu-weight", "memory-protection", "all-pods"],
        "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS, "config": {"batch": [{"namespaces": ["default"]}]},
    })
}

#[test]
fn a_policy_in_rego_holds_is_swapped_is_killed_and_gives_everything_back() {
    let node = Node::busy(&json!({}));
    node.cgroups.set_weight(POD, 500);
    let before = node.cgroups.knobs();
    let (least, has_idle) = (least(&node), node.cgroups.file(APP, "cpu.idle").exists());
    let gives_way = || {
        let idle = || fs::read_to_string(node.cgroups.file(APP, "cpu.idle")).unwrap().trim() == "1";
        node.cgroups.weight(POD) == least && (!has_idle || idle())
    };
    node.agent_config(&json!({"policies": [entry(bundle())]}));
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("the pod to give way", gives_way);
    let first = agent.policy("batch-namespaces")["digest"].clone();
    let report = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(report.contains("batch work gets little of a busy CPU"), "{report}");

    let watch = Watch::start(node.cgroups.folders("kubepods"), |path| before.contains_key(path));
    let other = another(&node).display().to_string();
    let swapped = agent.json(&["policy", "swap", "batch-namespaces", &other]);
    assert_eq!(swapped["before"]["digest"], first);
    assert_ne!(swapped["now"]["digest"], first, "{swapped}");
    agent.let_it_run(5);
    assert_eq!(watch.written(), Vec::<String>::new(), "the same policy wants the same");
    agent.kill();
    let agent = Agent::start(&node);
    // A start waits two seconds for a module that must be compiled, and continues with the last good one until then.
    let is_swapped = || agent.policy("batch-namespaces")["digest"] == swapped["now"]["digest"];
    wait_until("what was swapped stays swapped", is_swapped);
    agent.ask(&["policy", "swap", "batch-namespaces", "--back"]).unwrap();
    wait_until("the first version", || agent.policy("batch-namespaces")["digest"] == first);
    agent.let_it_run(3);
    assert!(gives_way());
    agent.kill();
    let (report, good) = node.restore(&[]);
    assert!(good && node.cgroups.knobs() == before, "{report}");
}

#[test]
fn a_shadow_in_rego_is_compared_and_writes_nothing() {
    let node = Node::busy(&json!({}));
    node.cgroups.set_weight(POD, 500);
    let before = node.cgroups.knobs();
    let mut shadow = entry(bundle());
    shadow["mode"] = json!("shadow");
    node.agent_config(&json!({"policies": [shadow]}));
    let agent = Agent::start(&node);
    wait_until("the shadow to want the weight", || {
        let rows = agent.diff("batch-namespaces")["differences"].clone();
        rows.as_array().is_some_and(|rows| {
            rows.iter().any(|row| row["knob"] == "cpu.weight" && row["kind"] == "only-shadow" && row["level"] == "pod")
        })
    });
    agent.let_it_run(3);
    assert_eq!((node.cgroups.knobs(), agent.metric("qosm_knob_writes_total", &[])), (before, 0.0));
}

/// A weight of 1 in the unit of the file.
fn least(node: &Node) -> i64 {
    if node.cgroups.version == crate::cgroups::Version::V1 { 10 } else { 1 }
}
