//! Failing modules beside a working one, and cgroups that vanish.

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node, POD, module, quick};
use crate::waiting::wait_until;

fn policy(agent: &Agent, name: &str) -> Value {
    let policies = agent.json(&["get", "policies"]);
    policies.as_array().unwrap().iter().find(|policy| policy["policy"] == name).cloned().unwrap_or_default()
}

#[test]
fn modules_that_do_not_work_are_reported_and_the_others_go_on() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    fs::write(node.path("garbage.wasm"), b"this is no module").unwrap();
    node.agent_config(&json!({"policies": [
        {"name": "garbage", "module": node.path("garbage.wasm")},
        {"name": "missing", "module": node.path("missing.wasm")},
        {"name": "greedy", "module": module("cpu-burst")},
        quick(),
    ]}));
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    for (name, health, words) in [
        ("garbage", "not-loaded", "not a WebAssembly component"),
        ("missing", "not-loaded", "missing.wasm"),
        ("greedy", "not-loaded", "add that to its grants"),
        ("cpu-burst", "running", ""),
    ] {
        // Modules are loaded one after the other.
        wait_until(&format!("{name} to be {health}"), || policy(&agent, name)["health"] == health);
        let report = policy(&agent, name);
        assert!(report["error"].as_str().unwrap_or_default().contains(words), "{report}");
        // `explain` of a pod shows that no policy serves it.
        let explained = agent.explain();
        let report = explained["policies"].as_array().unwrap().iter().find(|policy| policy["policy"] == name).unwrap();
        assert_eq!(report["health"], health, "{report}");
        assert!(report["error"].as_str().unwrap_or_default().contains(words), "{report}");
    }
    assert!(agent.get("/healthz").0.contains("200"));
    let (status, body) = agent.get("/readyz");
    assert!(status.contains("503") && body.contains("garbage") && body.contains("greedy"), "{status} {body}");
    let (_, metrics) = agent.get("/metrics");
    assert!(metrics.contains("qosm_policy_running{policy=\"greedy\",mode=\"active\"} 0"), "{metrics}");
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_container_that_is_made_anew_is_another_container() {
    let mut node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE && node.cgroups.quota(POD) > BASE);

    node.cgroups.calm();
    node.cgroups.remove(APP);
    wait_until("the loss to be noticed", || agent.explain()["pod"]["containers"] == "0/1");
    wait_until("a pod without the surplus", || node.cgroups.quota(POD) == BASE);

    node.cgroups.make(APP);
    node.cgroups.set_quota(APP, BASE);
    wait_until("the new group to be found", || agent.explain()["pod"]["containers"] == "1/1");
    node.cgroups.busy(APP);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    assert_eq!(agent.held("container", "cpu.quota")["baseline"], BASE);
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_pod_that_starts_later_is_found() {
    let node = Node::empty();
    node.pod(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    let agent = Agent::start(&node);
    agent.let_it_run(3);
    assert_eq!(agent.explain()["pod"]["containers"], "0/1");
    node.cgroups.make(APP);
    for group in [POD, APP] {
        node.cgroups.set_quota(group, BASE);
    }
    wait_until("a burst", || node.cgroups.burst(APP) == BASE && node.cgroups.burst(POD) == BASE);
    fs::remove_file(node.path("pods/web.json")).unwrap();
    wait_until("the baseline", || node.cgroups.burst(APP) == 0 && node.cgroups.burst(POD) == 0);
    assert_eq!(agent.json(&["get", "pods"]), json!([]));
}
