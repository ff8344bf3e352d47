//! Failures between an agent and its API server: each is reported by name, and the last known state stays in force.

use serde_json::{Value, json};

use crate::agent::{Agent, Module, NAMESPACE, kubeconfig_of, token};
use crate::node::{NODE, Pod, api_server, apply, busy, get, kubectl, try_kubectl};
use crate::policies::{annotate, annotated, burst};
use crate::waiting::wait_until;

#[test]
fn an_agent_that_starts_while_the_api_server_is_away_waits_and_keeps_what_was() {
    let (_module, mut agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    let pod = Pod::create_with("qosm-late", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);
    agent.kill();
    api_server("stop");
    agent.spawn_again();
    wait_until("it says what it waits for", || {
        agent.ask(&["get", "policies"]).is_ok_and(|report| report.contains("cpu-burst"))
            || agent.log().contains("agent runs")
    });
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(group.burst(), 20_000, "pods that it does not know yet are not gone");
    api_server("start");
    agent.wait_until_ready();
    assert_eq!(group.burst(), 20_000);
    annotate("qosm-late", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("it works", || group.burst() == 0);
}

/// A token that is bound to an object ends with it, like an expired token.
#[test]
fn a_token_that_has_ended_is_reported_and_a_new_one_is_read() {
    let _module = Module::apply("cpu-burst", &burst());
    let secret = ObjectOfTest::create("secret", "qosm-token", &["generic"]);
    let uid = get(&["secret", "qosm-token", "--namespace", NAMESPACE])["metadata"]["uid"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, token("qosm-agent", "Secret", "qosm-token", &uid)).unwrap();
    let kubeconfig = kubeconfig_of(folder.path(), "qosm-agent", &json!({"tokenFile": file}));
    let agent = Agent::spawn_with(folder, kubeconfig);
    agent.wait_until_ready();
    let pod = Pod::create_with("qosm-token", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);

    drop(secret);
    // Open watches stay open; new ones must authenticate.
    api_server("stop");
    api_server("start");
    let problems = || agent.ask(&["get", "problems"]).unwrap_or_default();
    wait_until("what is wrong is reported", || {
        problems().contains("401") && problems().contains("it may have expired")
    });
    assert_eq!(group.burst(), 20_000, "what was known counts on");

    let uid = get(&["node", NODE])["metadata"]["uid"].as_str().unwrap().to_owned();
    std::fs::write(&file, token("qosm-agent", "Node", NODE, &uid)).unwrap();
    // The file is read every minute, and each watch restarts after growing pauses.
    wait_until("the new token is read", || {
        agent.ask(&["get", "problems"]).is_ok_and(|report| !report.contains("writing the node's report"))
    });
    annotate("qosm-token", r#"koordinator.sh/cpuBurst={"policy":"none"}"#);
    wait_until("changes arrive again", || group.burst() == 0);
}

#[test]
fn a_verb_that_is_missing_is_named() {
    let _module = Module::apply("cpu-burst", &burst());
    let role = Lessened::of("qosm-agent", "policymodules");
    let agent = Agent::spawn();
    // The loop reports that it waits only after half a minute.
    wait_until("the node's report names what is missing", || {
        let Ok(report) = try_kubectl(&["get", "nodepolicyreport", NODE, "--output=jsonpath={.status.conditions}"])
        else {
            return false;
        };
        report.contains("waiting for") && report.contains("policymodules") && report.contains("lacks this verb")
    });
    drop(role);
    agent.wait_until_ready();
}

/// An object of the chart's namespace; deleted when dropped.
struct ObjectOfTest(&'static str, &'static str);

impl ObjectOfTest {
    fn create(kind: &'static str, name: &'static str, more: &[&str]) -> Self {
        kubectl(&[&["create", kind], more, &[name, "--namespace", NAMESPACE]].concat());
        Self(kind, name)
    }
}

impl Drop for ObjectOfTest {
    fn drop(&mut self) {
        try_kubectl(&["delete", self.0, self.1, "--namespace", NAMESPACE]).ok();
    }
}

/// A ClusterRole without its rule for one kind; restored when dropped.
struct Lessened(Value);

impl Lessened {
    fn of(role: &str, resource: &str) -> Self {
        let mut before = get(&["clusterrole", role]);
        before["metadata"] = json!({"name": role});
        let mut lessened = before.clone();
        let rules = lessened["rules"].as_array_mut().unwrap();
        let count = rules.len();
        rules.retain(|rule| !rule["resources"].as_array().unwrap().contains(&resource.into()));
        assert_eq!(rules.len() + 1, count, "{before}");
        apply(&lessened.to_string());
        Self(before)
    }
}

impl Drop for Lessened {
    fn drop(&mut self) {
        apply(&self.0.to_string());
    }
}
