//! Somebody else writes a knob that is held.

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, MOST, Node};
use crate::waiting::wait_until;

#[test]
fn a_reset_is_written_over_and_a_person_is_not() {
    // Without bursts: a mainline kernel would refuse the other writer a quota below one.
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();

    node.cgroups.set_quota(APP, BASE);
    wait_until("the quota again", || node.cgroups.quota(APP) == MOST);
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.quota", "reset"]), 1.0);
    let drift = |agent: &Agent| agent.json(&["get", "events"]).to_string();
    assert!(drift(&agent).contains("cpu.quota was reset to 10000"), "{}", drift(&agent));

    node.cgroups.set_quota(APP, 23_456);
    wait_until("hands off", || agent.held("container", "cpu.quota")["handsOffUntil"].is_string());
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.quota", "person"]), 1.0);
    let told = agent.held("container", "cpu.quota");
    assert!(told["drift"].as_str().unwrap().contains("23456"), "{told}");
    assert!(drift(&agent).contains("somebody set cpu.quota to 23456"), "{}", drift(&agent));
    agent.let_it_run(10);
    assert_eq!(node.cgroups.quota(APP), 23_456);
    let log = agent.terminate();
    assert_eq!(node.cgroups.quota(APP), 23_456, "not even at the end: {log}");
}

#[test]
fn a_value_that_stays_is_the_baseline_once_the_wait_is_over() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    node.agent_config(&json!({"drift": {"handsOffSeconds": 1}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    node.cgroups.set_quota(APP, 23_456);
    wait_until("the drift to be noticed", || agent.held("container", "cpu.quota")["drift"].is_string());
    wait_until("the new baseline", || agent.held("container", "cpu.quota")["baseline"] == 23_456);
    wait_until("the lease on top", || node.cgroups.quota(APP) > 23_456);
    node.pod(&json!({}));
    wait_until("what the person left", || node.cgroups.quota(APP) == 23_456);
    agent.terminate();
    assert_eq!(node.cgroups.quota(APP), 23_456);
}
