//! PolicyModules without Kubernetes: a file in the folder of pods.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node, PATIENT_MILLIS};
use crate::waiting::wait_until;

const FILE: &str = "pods/module.json";

fn policy_module(spec: &Value) -> String {
    let mut module = json!({
        "apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": "burst"},
        "spec": {"module": "builtin:cpu-burst", "limits": {"evaluationMillis": PATIENT_MILLIS}},
    });
    for (field, value) in spec.as_object().unwrap() {
        module["spec"][field] = value.clone();
    }
    module.to_string()
}

#[test]
fn a_policy_module_is_enforced_put_into_the_shadow_and_removed() {
    let node = Node::busy(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    node.agent_config(&json!({"policies": [{"name": "memory-qos", "evaluationMillis": PATIENT_MILLIS}]}));
    let agent = Agent::start(&node);
    agent.let_it_run(3);
    assert_eq!(node.cgroups.burst(APP), 0);
    node.write(FILE, &policy_module(&json!({})));
    wait_until("the container may burst", || node.cgroups.burst(APP) == BASE);
    node.write(FILE, &policy_module(&json!({"mode": "shadow"})));
    wait_until("a shadow writes nothing", || node.cgroups.burst(APP) == 0);
    assert_eq!(agent.policy("burst")["mode"], "shadow");
    node.write(FILE, &policy_module(&json!({})));
    wait_until("the container may burst again", || node.cgroups.burst(APP) == BASE);
    std::fs::remove_file(node.path(FILE)).unwrap();
    wait_until("without the module everything is as it was", || node.cgroups.burst(APP) == 0);
}

/// As after an update, or a downgrade, to a version that cannot read the object.
#[test]
fn a_policy_module_that_a_new_agent_cannot_read_goes_on_as_the_last_one_took_it() {
    let node = Node::busy(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    node.agent_config(&json!({"policies": [{"name": "memory-qos", "evaluationMillis": PATIENT_MILLIS}]}));
    node.write(FILE, &policy_module(&json!({})));
    let agent = Agent::start(&node);
    wait_until("the container may burst", || node.cgroups.burst(APP) == BASE);
    agent.kill();

    node.write(FILE, &policy_module(&json!({"mode": {"of": "tomorrow"}})));
    let agent = Agent::start(&node);
    wait_until("it is reported", || {
        agent.problems().iter().any(|problem| problem.contains("PolicyModule burst") && problem.contains("spec.mode"))
    });
    wait_until("the policy runs all the same", || agent.policy("burst")["health"] == "running");
    agent.let_it_run(3);
    assert_eq!(node.cgroups.burst(APP), BASE);
    std::fs::remove_file(node.path(FILE)).unwrap();
    wait_until("what is gone is gone", || node.cgroups.burst(APP) == 0);
}
