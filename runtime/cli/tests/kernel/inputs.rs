//! Manifests and ConfigMaps that break while the agent runs.

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BURST, MAX, Node, manifest, quick};
use crate::waiting::wait_until;

#[test]
fn what_breaks_while_it_runs_is_reported_and_the_last_good_one_counts() {
    let node = Node::busy(&json!({}));
    let before = node.cgroups.knobs();
    node.configure(&json!({"cpu-burst-config": {"clusterStrategy": {"policy": "auto"}}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    assert_eq!(agent.problems(), Vec::<String>::new());
    let tells = |words: &[&str]| {
        wait_until(&format!("{words:?} to be reported"), || {
            agent.problems().iter().any(|problem| words.iter().all(|word| problem.contains(word)))
        });
        agent.let_it_run(3);
        assert_eq!(node.cgroups.quota(APP), MAX, "{words:?}");
    };

    node.write("pods/web.json", "{\"kind\": \"Pod\", ");
    tells(&["web.json"]);
    node.write(
        "pods/web.json",
        &json!({"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": 3}}).to_string(),
    );
    tells(&["default/web", "spec.containers"]);
    node.pod(&json!({}));
    wait_until("the problem to be mended", || agent.problems().is_empty());

    node.write("pods/zweb.json", &manifest(&json!({BURST: {"policy": "none"}}), "50m").to_string());
    tells(&["default/web", "zweb.json", "already"]);
    std::fs::remove_file(node.path("pods/zweb.json")).unwrap();
    wait_until("the problem to be mended", || agent.problems().is_empty());

    let map = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"cpu-burst-config": text},
        })
    };
    node.write("slo.json", &map("{\"clusterStrategy\": {").to_string());
    tells(&["slo-controller-config", "cpu-burst-config", "last good"]);
    node.write("slo.json", &map("{\"clusterStrategy\": {\"cfsQuotaBurstPercent\": 50}}").to_string());
    tells(&["cpu-burst-config", "cfsQuotaBurstPercent", "last good"]);
    assert!(agent.metric("qosm_config_problems", &[]) >= 1.0);

    node.pod(&json!({BURST: {"policy": "none", "cpuBurstPercent": "many"}}));
    tells(&["pod default/web", "annotation koordinator.sh/cpuBurst", "cpuBurstPercent"]);
    let explanation = agent.explain().to_string();
    assert!(explanation.contains("cpuBurstPercent") && explanation.contains("InvalidConfiguration"), "{explanation}");

    // Everything is repaired, and no settings are requested any more.
    node.pod(&json!({}));
    node.configure(&json!({}));
    wait_until("the baseline", || node.cgroups.knobs() == before);
    wait_until("the problems to be mended", || agent.problems().is_empty());
}

#[test]
fn the_last_good_text_counts_after_a_restart_too() {
    let node = Node::busy(&json!({}));
    node.configure(&json!({"cpu-burst-config": {"clusterStrategy": {"policy": "auto"}}}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
        "data": {"cpu-burst-config": "{\"clusterStrategy\": {"},
    });
    node.write("slo.json", &map.to_string());
    let is_told = |agent: &Agent| agent.problems().iter().any(|problem| problem.contains("last good"));
    wait_until("the broken text to be reported", || is_told(&agent));
    agent.terminate();

    let agent = Agent::start(&node);
    wait_until("the broken text to be reported", || is_told(&agent));
    node.wait_for_ceiling();
    agent.terminate();
}

#[test]
fn a_change_of_the_agents_file_that_a_restart_would_refuse_is_a_problem() {
    let node = Node::new();
    let agent = Agent::start_with(&node, &[("--policy", "cpu-burst")]);
    node.agent_config(&json!({"policies": [quick(), {"name": "memory-qos", "grants": ["bogus"]}]}));
    let is_told =
        || agent.problems().iter().any(|problem| problem.contains("agent.json") && problem.contains("`bogus`"));
    wait_until("the wrong grant to be reported", is_told);
    agent.terminate();
    let (code, said) = Agent::run_to_end(&node, &[("--policy", "cpu-burst")]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn what_cannot_be_started_with_is_refused_by_name() {
    let node = Node::new();
    for (flag, path) in
        [("--pods", "/nowhere/pods"), ("--config", "/nowhere/slo.yaml"), ("--agent-config", "/nowhere/agent.yaml")]
    {
        let (code, said) = Agent::run_to_end(&node, &[(flag, path)]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(path), "{said}");
    }
    node.write("agent.json", r#"{"onShutdown": "perhaps"}"#);
    let (code, said) = Agent::run_to_end(&node, &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("agent.json") && said.contains("perhaps"), "{said}");
}
