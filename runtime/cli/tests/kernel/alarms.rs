//! Alarms between two ticks.

use serde_json::json;

use crate::agent::{Agent, metric_in};
use crate::node::{APP, BASE, BURST, Node, PATIENT_MILLIS, POD};
use crate::waiting::wait_until;

/// The longest tick, in milliseconds: longer than an alarm takes on any machine.
const SELDOM: &str = "60000";

fn responsive(alarms: bool) -> serde_json::Value {
    json!({"name": "cpu-burst", "evaluationMillis": PATIENT_MILLIS, "alarms": alarms, "alarmGapMillis": 50})
}

#[test]
fn a_container_that_uses_up_its_quota_brings_an_evaluation_forward() {
    // Throttled even at its ceiling, so that there are always alarms.
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    node.agent_config(&json!({"policies": [responsive(true)]}));
    let agent = Agent::start_with(&node, &[("--tick-millis", "1000")]);
    wait_until("alarms", || agent.metric("qosm_alarms_total", &["throttling"]) >= 3.0);
    node.wait_for_ceiling();
    // A tick causes at most one evaluation; alarms cause the others. One response contains both counters.
    let counts = || {
        let (_, metrics) = agent.get("/metrics");
        let evaluations = metric_in(&metrics, "qosm_policy_evaluation_seconds_count", &["cpu-burst"]);
        (evaluations, metric_in(&metrics, "qosm_ticks_total", &[]))
    };
    let before = counts();
    wait_until("evaluations between two ticks", || {
        let (evaluations, ticks) = counts();
        evaluations - before.0 > ticks - before.1 + 2.0
    });
    let policies = agent.json(&["get", "policies"]);
    assert_eq!(policies[0]["triggers"], json!([{"trigger": "throttling"}]), "{policies}");
    // Once no policy requests the trigger, no container is sampled.
    node.pod(&json!({BURST: {"policy": "none"}}));
    wait_until("the baseline", || node.cgroups.quota(APP) == BASE && node.cgroups.quota(POD) == BASE);
    agent.let_it_run(2);
    let alarms = agent.metric("qosm_alarms_total", &["throttling"]);
    agent.let_it_run(2);
    assert_eq!(agent.metric("qosm_alarms_total", &["throttling"]), alarms);
}

#[test]
fn a_container_that_has_just_used_up_its_quota_is_raised_between_two_ticks() {
    let mut node = Node::new();
    // Like a server that waits for requests, with bursts of work.
    let spells = "while :; do n=0; while [ $n -lt 30 ]; do n=$((n+1)); sleep 0.1; done; \
                  n=0; while [ $n -lt 60000 ]; do n=$((n+1)); done; done";
    node.cgroups.load(APP, spells);
    node.pod(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    // The quota comes down as soon as the container is calm, so that there is always something to raise.
    let mut policy = responsive(true);
    policy["config"] = json!({"calmWindows": 1, "calmWindowsMax": 1, "lowerPercent": 100, "headroomPercent": 0});
    node.agent_config(&json!({"policies": [policy]}));
    // Ticks are so rare that the alarm finds the throttled container first, however slow the machine is.
    let agent = Agent::start_with(&node, &[("--tick-millis", SELDOM)]);
    let ticks = || agent.metric("qosm_ticks_total", &[]);
    let look = || (ticks(), node.cgroups.quota(APP), ticks());
    let mut last = look();
    wait_until("a raise that no tick made", || {
        let before = std::mem::replace(&mut last, look());
        last.1 > before.1 && last.2 == before.0
    });
    assert!(agent.metric("qosm_alarms_total", &["throttling"]) >= 1.0);
}

#[test]
fn an_operator_can_do_without_alarms() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    node.agent_config(&json!({"policies": [responsive(false)]}));
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    assert_eq!(agent.metric("qosm_alarms_total", &["throttling"]), 0.0);
}

#[test]
fn a_container_that_appears_is_served_before_the_next_tick() {
    let node = Node::empty();
    node.cgroups.make("kubepods/burstable");
    node.pod(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    let agent = Agent::start_with(&node, &[("--tick-millis", SELDOM)]);
    wait_until("the directories to be watched", || agent.metric("qosm_watches", &[]) >= 2.0);
    let ticks = || agent.metric("qosm_ticks_total", &[]);
    // If a tick comes at the same time, the attempt shows nothing and is repeated.
    wait_until("a container that no tick served", || {
        let before = ticks();
        node.cgroups.make(APP);
        for group in [POD, APP] {
            node.cgroups.set_quota(group, BASE);
        }
        wait_until("the container's burst", || !agent.held("container", "cpu.burst").is_null());
        assert!(node.cgroups.burst(APP) > 0);
        let was_between = ticks() == before;
        if !was_between {
            node.cgroups.remove(APP);
            wait_until("the container to be forgotten", || agent.explain()["pod"]["containers"] == "0/1");
        }
        was_between
    });
}
