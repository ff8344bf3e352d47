//! Weights and `cpu.idle`: a policy's settings, the runtime's writes, and the values afterwards.

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cgroups::Version;
use crate::guest::{self, Evaluation};
use crate::node::{APP, Node, PATIENT_MILLIS, manifest};
use crate::waiting::wait_until;

/// A node whose container has the weight of one without requests, as a kubelet writes it.
fn node() -> Node {
    let node = Node::new();
    node.cgroups.set_weight(APP, if node.cgroups.version == Version::V1 { 2 } else { 1 });
    node.pod(&json!({}));
    node
}

/// The same; `None` if the kernel is older than 5.15.
fn node_with_idle(name: &str) -> Option<Node> {
    let node = node();
    if node.cgroups.file(APP, "cpu.idle").exists() {
        return Some(node);
    }
    assert!(std::env::var_os("QOSM_TEST_VM").is_none(), "this VM lacks cpu.idle");
    let _ = writeln!(std::io::stdout(), "not run: {name}, for this kernel has no cpu.idle");
    None
}

/// A policy that sets nothing: without any policy, the agent would run the default ones.
const NOTHING: (&str, i32, Option<u32>, Option<bool>) = ("nothing", 100, None, None);

/// Configures the agent with only these policies.
fn run(node: &Node, policies: &[(&str, i32, Option<u32>, Option<bool>)]) {
    let entry = |&(name, priority, weight, idle): &(&str, i32, Option<u32>, Option<bool>)| {
        let module = guest::write(&node.path("."), name, Evaluation::Weighs { weight, idle });
        json!({
            "name": name, "module": module, "grants": ["cpu-weight", "all-pods"], "priority": priority,
            "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS,
        })
    };
    node.agent_config(&json!({"policies": policies.iter().map(entry).collect::<Vec<_>>()}));
}

fn is_idle(node: &Node) -> bool {
    fs::read_to_string(node.cgroups.file(APP, "cpu.idle")).unwrap().trim() == "1"
}

/// A weight of the contract in the unit of the file.
fn printed(node: &Node, weight: i64) -> i64 {
    if node.cgroups.version == Version::V1 { (weight * 1024 + 50) / 100 } else { weight }
}

#[test]
fn a_weight_is_set_and_given_back() {
    let node = node();
    let before = node.cgroups.knobs();
    run(&node, &[("heavy", 100, Some(250), None)]);
    let agent = Agent::start(&node);
    wait_until("the weight", || node.cgroups.weight(APP) == printed(&node, 250));
    let held = agent.held("container", "cpu.weight");
    assert_eq!((&held["value"], &held["policy"], &held["state"]), (&json!(250), &json!("heavy"), &json!("held")));
    let baseline = if node.cgroups.version == Version::V1 { json!("2 shares") } else { json!(1) };
    assert_eq!(held["baseline"], baseline, "{held}");
    let report = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(report.contains("cpu.weight = 250"), "{report}");

    run(&node, &[NOTHING]);
    wait_until("what was there", || node.cgroups.knobs() == before);
    agent.terminate();
    assert_eq!(node.restore(&["--dry-run"]), ("nothing to restore\n".to_owned(), true));
}

#[test]
fn an_idle_container_gets_its_weight_back() {
    let Some(node) = node_with_idle("an_idle_container_gets_its_weight_back") else { return };
    let before = node.cgroups.knobs();
    run(&node, &[("lazy", 100, None, Some(true))]);
    let agent = Agent::start(&node);
    wait_until("cpu.idle", || is_idle(&node));
    wait_until("the report", || agent.held("container", "cpu.weight")["value"] == 0);
    let held = agent.held("container", "cpu.weight");
    assert_eq!((&held["policy"], &held["state"]), (&json!("lazy"), &json!("held")), "{held}");
    assert_ne!(held["baseline"], json!(0), "{held}");
    agent.let_it_run(5);
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu."]), 0.0, "nobody else wrote anything");

    run(&node, &[NOTHING]);
    wait_until("what was there", || node.cgroups.knobs() == before);

    // The baseline is not lost either if the agent ends, or is killed without a successor.
    run(&node, &[("lazy", 100, None, Some(true))]);
    wait_until("cpu.idle", || is_idle(&node));
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
    let agent = Agent::start(&node);
    wait_until("cpu.idle", || is_idle(&node));
    agent.kill();
    let (report, good) = node.restore(&["--dry-run"]);
    assert!(good && report.contains("cpu.idle") && report.contains("cpu.weight"), "{report}");
    let (report, good) = node.restore(&[]);
    assert!(good && node.cgroups.knobs() == before, "{report}");
    assert_eq!(node.restore(&["--dry-run"]), ("nothing to restore\n".to_owned(), true));
}

#[test]
fn a_weight_that_is_wanted_waits_until_the_container_is_not_idle_any_more() {
    let Some(node) = node_with_idle("a_weight_that_is_wanted_waits") else { return };
    let before = node.cgroups.knobs();
    let heavy = ("heavy", 200, Some(250), None);
    run(&node, &[heavy]);
    let agent = Agent::start(&node);
    wait_until("the weight", || node.cgroups.weight(APP) == printed(&node, 250));
    run(&node, &[heavy, ("lazy", 100, None, Some(true))]);
    wait_until("cpu.idle", || is_idle(&node));
    wait_until("the report", || agent.held("container", "cpu.weight")["policy"] == "lazy");
    let held = agent.held("container", "cpu.weight");
    assert_eq!(held["adjusted"]["wanted"], 250, "{held}");
    assert_eq!(held["beneath"], json!([["heavy", 250]]), "{held}");

    run(&node, &[heavy]);
    wait_until("the weight", || !is_idle(&node) && node.cgroups.weight(APP) == printed(&node, 250));
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn what_the_runtime_writes_on_a_resize_is_the_new_baseline() {
    let node = node();
    run(&node, &[("heavy", 100, Some(250), None)]);
    let agent = Agent::start(&node);
    wait_until("the weight", || node.cgroups.weight(APP) == printed(&node, 250));

    // The request is 200m now: first in the specification, then the runtime writes the weight.
    let mut resized = manifest(&json!({}), "200m");
    resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("200m");
    node.write("pods/web.json", &resized.to_string());
    let (written, baseline) =
        if node.cgroups.version == Version::V1 { (204, json!("204 shares")) } else { (8, json!(8)) };
    agent.let_it_run(3);
    node.cgroups.set_weight(APP, written);
    wait_until("the new baseline", || agent.held("container", "cpu.weight")["baseline"] == baseline);
    wait_until("the lease on top", || node.cgroups.weight(APP) == printed(&node, 250));
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.weight", "kubelet"]), 1.0);

    // A reload of systemd restores the runtime's value.
    node.cgroups.set_weight(APP, written);
    wait_until("the lease again", || node.cgroups.weight(APP) == printed(&node, 250));
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.weight", "reset"]), 1.0);
    agent.terminate();
    assert_eq!(node.cgroups.weight(APP), written);
}

#[test]
fn a_person_who_ends_idle_and_sets_a_weight_is_left_alone() {
    let Some(node) = node_with_idle("a_person_who_ends_idle_and_sets_a_weight") else { return };
    run(&node, &[("lazy", 100, None, Some(true))]);
    let agent = Agent::start(&node);
    wait_until("cpu.idle", || is_idle(&node));
    let mine = printed(&node, 333);
    agent.at_once(|| {
        fs::write(node.cgroups.file(APP, "cpu.idle"), "0").unwrap();
        node.cgroups.set_weight(APP, mine);
    });
    wait_until("hands off", || agent.held("container", "cpu.weight")["handsOffUntil"].is_string());
    agent.let_it_run(5);
    assert!(!is_idle(&node) && node.cgroups.weight(APP) == mine, "neither of the two is touched");
    agent.terminate();
    assert!(!is_idle(&node) && node.cgroups.weight(APP) == mine, "not even at the end");
}

#[test]
fn idle_is_written_again_where_the_kernel_forgets_it() {
    let Some(node) = node_with_idle("a_kernel_that_forgets_idle") else { return };
    let before = node.cgroups.knobs();
    run(&node, &[("lazy", 100, None, Some(true))]);
    let agent = Agent::start(&node);
    wait_until("cpu.idle", || is_idle(&node));
    wait_until("the report", || !agent.held("container", "cpu.weight").is_null());
    fs::write(node.cgroups.file(APP, "cpu.idle"), "0").unwrap();
    wait_until("cpu.idle again", || is_idle(&node));
    wait_until("the event", || agent.json(&["get", "events"]).to_string().contains("cpu.idle was reset to 0"));
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_policy_without_the_grant_is_not_loaded() {
    let node = node();
    let module = guest::write(&node.path("."), "heavy", Evaluation::Weighs { weight: Some(250), idle: None });
    node.agent_config(
        &json!({"policies": [{"name": "heavy", "module": module, "grants": ["cpu-bandwidth", "all-pods"]}]}),
    );
    let agent = Agent::start(&node);
    wait_until("the refusal", || agent.policy("heavy")["error"].as_str().is_some_and(|why| why.contains("cpu-weight")));
    assert_eq!(agent.held("container", "cpu.weight"), Value::Null);
}
