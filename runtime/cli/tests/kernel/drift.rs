//! Another program writes a held knob.

use serde_json::json;

use crate::agent::Agent;
use crate::cgroups::Version;
use crate::node::{APP, BASE, BURST, MAX, Node, POD};
use crate::waiting::wait_until;

/// A user's quota, which qosm never sets, and which fits below the pod's own.
const PERSONS: i64 = 8_765;

#[test]
fn a_reset_is_written_over_and_a_person_is_not() {
    // Without bursts: a mainline kernel would refuse the other writer a quota below the burst.
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();

    node.cgroups.set_quota(APP, BASE);
    wait_until("the quota again", || node.cgroups.quota(APP) == MAX);
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.quota", "reset"]), 1.0);
    let drift = |agent: &Agent| agent.json(&["get", "events"]).to_string();
    assert!(drift(&agent).contains("cpu.quota was reset to 10000"), "{}", drift(&agent));

    node.cgroups.set_quota(APP, PERSONS);
    wait_until("hands off", || agent.held("container", "cpu.quota")["handsOffUntil"].is_string());
    assert_eq!(agent.metric("qosm_knob_drift_total", &["cpu.quota", "person"]), 1.0);
    let report = agent.held("container", "cpu.quota");
    assert!(report["drift"].as_str().unwrap().contains("8765"), "{report}");
    assert!(drift(&agent).contains("another writer set cpu.quota to 8765"), "{}", drift(&agent));
    agent.let_it_run(10);
    assert_eq!(node.cgroups.quota(APP), PERSONS);
    let log = agent.terminate();
    assert_eq!(node.cgroups.quota(APP), PERSONS, "not even at the end: {log}");
}

#[test]
fn a_persons_value_is_left_alone_by_the_next_agent_too() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    node.wait_for_ceiling();
    node.cgroups.set_quota(APP, PERSONS);
    wait_until("hands off", || agent.held("container", "cpu.quota")["handsOffUntil"].is_string());
    agent.terminate();
    assert_eq!(node.cgroups.quota(APP), PERSONS);

    let agent = Agent::start(&node);
    wait_until("hands off again", || agent.held("container", "cpu.quota")["handsOffUntil"].is_string());
    agent.let_it_run(10);
    assert_eq!(node.cgroups.quota(APP), PERSONS);
    let log = agent.terminate();
    assert_eq!(node.cgroups.quota(APP), PERSONS, "{log}");
}

#[test]
fn a_quota_that_a_persons_keeps_from_coming_back_is_reported_and_restored_later() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    node.cgroups.set_quota(APP, 2 * BASE + 1);
    wait_until("hands off", || agent.held("container", "cpu.quota")["handsOffUntil"].is_string());
    if node.cgroups.version == Version::V2 {
        // On v2, a cgroup's quota may be below that of a child.
        agent.terminate();
        assert_eq!(node.cgroups.quota(POD), BASE);
        return;
    }
    let log = agent.terminate_in_vain();
    assert!(log.contains(&format!("is not back at {BASE}")) && log.contains("`qosm restore`"), "{log}");
    assert!(node.cgroups.quota(POD) > BASE);
    node.cgroups.set_quota(APP, BASE);
    let (report, good) = node.restore(&[]);
    assert!(good, "{report}");
    assert_eq!((node.cgroups.quota(POD), node.cgroups.quota(APP)), (BASE, BASE));
}
