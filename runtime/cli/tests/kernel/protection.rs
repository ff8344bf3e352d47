//! Memory QoS: real bounds on cgroup v2, and clear reports on a kernel that has none.

use serde_json::json;

use crate::agent::Agent;
use crate::cgroups::Version;
use crate::node::{APP, MEMORY, Node, POD};
use crate::waiting::wait_until;

const MIB: u64 = 1 << 20;
const RATIO: &str = "memory.wmark_ratio";

#[test]
fn memory_bounds_are_set_on_three_levels_or_reported_as_unavailable() {
    let node = Node::new();
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    // Of a request of 32 MiB and a limit of 64 MiB.
    node.pod(&json!({MEMORY: {"minLimitPercent": 50, "lowLimitPercent": 100, "throttlingPercent": 80}}));
    if node.cgroups.version == Version::V1 {
        return v1(&node, &agent, &before);
    }
    let read =
        |group: &str, name: &str| std::fs::read_to_string(node.cgroups.file(group, name)).unwrap().trim().to_owned();
    // Rising values are written from the top down: the container's is the last.
    wait_until("the container's memory.min", || read(APP, "memory.min") != "0");
    assert_eq!(read(APP, "memory.high"), "60395520", "80 % of the way, in whole pages");
    for group in [APP, POD, "kubepods/burstable", "kubepods"] {
        assert_eq!(read(group, "memory.min"), (16 * MIB).to_string(), "{group}");
        assert_eq!(read(group, "memory.low"), (32 * MIB).to_string(), "{group}");
    }
    for group in [POD, "kubepods/burstable", "kubepods"] {
        assert_eq!(read(group, "memory.high"), "max", "{group} is never throttled");
    }
    wait_until("the lease to be reported", || !agent.held("container", "memory.min").is_null());
    let high = agent.held("container", "memory.high");
    assert_eq!(
        (&high["value"], &high["baseline"], &high["policy"]),
        (&json!(60_395_520), &json!("max"), &json!("memory-qos"))
    );

    node.pod(&json!({MEMORY: {"minLimitPercent": 100}}));
    wait_until("other bounds", || read(APP, "memory.min") == (32 * MIB).to_string());
    wait_until("those that are not asked for any more", || {
        read(APP, "memory.low") == "0" && read(APP, "memory.high") == "max"
    });
    wait_until("the sum above", || read("kubepods", "memory.min") == (32 * MIB).to_string());

    node.pod(&json!({}));
    wait_until("the baseline", || node.cgroups.knobs() == before);
    node.pod(&json!({MEMORY: {"minLimitPercent": 100}}));
    wait_until("the bounds again", || read(APP, "memory.min") == (32 * MIB).to_string());
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn background_reclaim_is_emulated_and_goes_on_after_a_kill() {
    let node = Node::new();
    let agent = Agent::start(&node);
    node.pod(&json!({MEMORY: {"policy": "auto"}}));
    if node.cgroups.version == Version::V1 {
        wait_until("the ratio to be reported as unavailable", || {
            let explanation = agent.explain();
            let refused = explanation["refused"].as_array().cloned().unwrap_or_default();
            refused.iter().any(|refusal| refusal["knob"] == RATIO && refusal["kind"] == "unavailable")
        });
        return;
    }
    wait_until("the ratio", || agent.held("container", RATIO)["value"] == 95);
    let held = agent.held("container", RATIO);
    assert_eq!((&held["baseline"], &held["support"]), (&json!(0), &json!("emulated")), "{held}");
    assert!(held["path"].as_str().is_some_and(|path| path.ends_with("/app/memory.reclaim")), "{held}");
    let text = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(text.contains("emulated: qosm reclaims through memory.reclaim"), "{text}");

    agent.kill();
    let agent = Agent::start(&node);
    wait_until("the ratio again", || agent.held("container", RATIO)["policy"] == "memory-qos");
    assert_eq!(agent.held("container", RATIO)["value"], 95);
    let written = |log: &str| log.lines().any(|line| line.contains("setting applied") && line.contains(RATIO));
    assert!(!written(&agent.log()), "the journal had it held before the policy asked again");

    node.pod(&json!({}));
    wait_until("the release", || agent.held("container", RATIO).is_null());
    agent.terminate();
}

fn v1(node: &Node, agent: &Agent, before: &std::collections::BTreeMap<std::path::PathBuf, String>) {
    assert!(!node.cgroups.file(APP, "memory.min").exists(), "this kernel is more than these tests know of");
    wait_until("the settings to be reported as unavailable", || {
        let explanation = agent.explain();
        let refused = explanation["refused"].as_array().cloned().unwrap_or_default();
        ["memory.min", "memory.low", "memory.high"].iter().all(|knob| {
            refused.iter().any(|refusal| {
                refusal["subject"] == "default/web/app"
                    && refusal["knob"] == *knob
                    && refusal["kind"] == "unavailable"
                    && refusal["why"].as_str().is_some_and(|why| why.contains(knob) && why.contains("Alibaba"))
            })
        })
    });
    let report = agent.metric("qosm_knob_refusals_total", &["memory.min", "unavailable"]);
    assert!(report >= 1.0);
    agent.let_it_run(5);
    assert_eq!(
        agent.metric("qosm_knob_refusals_total", &["memory.min", "unavailable"]),
        report,
        "report once, not at each tick"
    );
    assert_eq!(agent.metric("qosm_knob_writes_total", &["memory."]), 0.0);
    assert_eq!(node.cgroups.knobs(), *before);
}
