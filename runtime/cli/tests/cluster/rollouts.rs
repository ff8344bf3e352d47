//! Stepwise rollout of a module.

use serde_json::{Value, json};

use crate::agent::{Agent, Controller, Module};
use crate::node::{NODE, Pod, busy, get, kubectl};
use crate::policies::{annotated, burst};
use crate::waiting::wait_until;

fn with(rollout: &Value) -> Value {
    json!({"module": "builtin:cpu-burst", "rollout": rollout})
}

/// The generation that the node's agent runs; `None` if it does not run the module.
fn reported(name: &str) -> Option<i64> {
    let report = get(&["nodepolicyreport", NODE]);
    let policies = report["status"]["policies"].as_array()?;
    let policy = policies.iter().find(|policy| policy["name"] == name)?;
    (policy["state"] == "running").then_some(policy["generation"].as_i64()?)
}

#[test]
fn a_rollout_comes_to_its_share_of_nodes_and_stops_while_it_is_paused() {
    // A single node can only have the shares 0 and 100 %; other shares are tested in the unit tests.
    let module = Module::apply("cpu-burst", &with(&json!({"percent": 0})));
    let (agent, _controller) = (Agent::spawn(), Controller::start());
    let pod = Pod::create_with("qosm-rollout", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    let progress = |reason: &str| {
        let conditions = module.get()["status"]["conditions"].clone();
        conditions.as_array().is_some_and(|all| {
            all.iter().any(|condition| condition["type"] == "Progressing" && condition["reason"] == reason)
        })
    };
    wait_until("nobody is to run it", || progress("PartlyRolledOut"));
    wait_until("the agent works", || agent.ask(&["get", "pods"]).is_ok_and(|answer| answer.contains("qosm-rollout")));
    assert_eq!(group.burst(), 0);
    module.change(&json!({"rollout": {"percent": 100}}));
    wait_until("the container may burst", || group.burst() == 20_000);
    wait_until("the fleet is counted", || progress("RolledOut") && module.get()["status"]["updated"] == 1);

    let before = module.get()["metadata"]["generation"].as_i64();
    assert!(reported("cpu-burst") == before);
    module.change(&json!({"rollout": {"paused": true}, "priority": 7}));
    wait_until("the pause is reported", || progress("Paused") && module.get()["status"]["updated"] == 0);
    assert_eq!(reported("cpu-burst"), before, "the node stays with what it had");
    assert_eq!(group.burst(), 20_000);
    module.change(&json!({"rollout": {"paused": false}}));
    wait_until("the node takes the new one", || {
        reported("cpu-burst") == module.get()["metadata"]["generation"].as_i64()
    });
    assert_eq!(group.burst(), 20_000);
}

#[test]
fn two_modules_of_one_priority_that_want_different_values_are_reported() {
    // Once the container is throttled, the first policy takes small steps. The second would take larger ones, but none by alarms,
    // which would lead to the ceiling before the first policy has taken any.
    let small = json!({"module": "builtin:cpu-burst", "config": {"profile": "koordinator"}});
    let config = json!({"minRaisePercent": 70, "alarmRaisePercent": 0});
    let large = json!({"module": "builtin:cpu-burst", "alarms": false, "config": config});
    let (_one, _other) = (Module::apply("cpu-burst", &small), Module::apply("second-burst", &large));
    let (agent, _controller) = (Agent::start_on_a_calm_node(), Controller::start());
    wait_until("both run", || ["cpu-burst", "second-burst"].into_iter().all(|name| reported(name).is_some()));
    // Without a burst: with one, time that the container has saved up can leave all throttling to the group of its pod, whose quota is the
    // same, so that the container's own counters, the only ones that count without alarms, show none.
    let _pod = Pod::create_with("qosm-tie", &annotated("cfsQuotaBurstOnly"), &busy("200m"));
    wait_until("the agent tells", || {
        agent.ask(&["get", "problems"]).is_ok_and(|answer| answer.contains("give them different priorities"))
    });
    wait_until("the one that loses has an event", || {
        kubectl(&["describe", "policymodule", "second-burst"]).contains("give them different priorities")
    });
}

#[test]
fn an_agent_that_ends_says_so_in_its_report() {
    let module = Module::apply("cpu-burst", &burst());
    let (mut agent, _controller) = (Agent::start(), Controller::start());
    wait_until("the node is counted", || module.get()["status"]["updated"] == 1);
    agent.end();
    let report = get(&["nodepolicyreport", NODE])["status"].clone();
    assert_eq!(report["policies"][0]["state"], "ended", "{report}");
    assert!(report["reportedAt"].is_string());
    assert!(report["conditions"].to_string().contains("0 knobs stay as it left them"), "{report}");
    wait_until("the fleet is counted without it", || {
        let status = module.get()["status"].clone();
        status["nodes"] == 0 && status["conditions"].to_string().contains("none of them with an agent")
    });
    agent.start_again();
    wait_until("and with it again", || module.get()["status"]["updated"] == 1);
}
