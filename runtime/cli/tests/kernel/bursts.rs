//! CPU Burst on a process that is really throttled.

use std::thread::sleep;
use std::time::Duration;

use serde_json::json;

use crate::agent::Agent;
use crate::cgroups::Cgroups;
use crate::node::{APP, BASE, BURST, Node, POD, quick};
use crate::waiting::{wait_for, wait_until};

/// Share of throttled periods in percent, over at least `periods` periods from now.
fn throttled_percent(cgroups: &Cgroups, periods: u64) -> u64 {
    let before = cgroups.throttling(APP);
    let after = wait_for("enforcement periods", || {
        let now = cgroups.throttling(APP);
        (now.periods >= before.periods + periods).then_some(now)
    });
    (after.throttled - before.throttled) * 100 / (after.periods - before.periods)
}

#[test]
fn a_throttled_container_gets_a_larger_quota_and_gives_it_back() {
    let node = Node::busy(&json!({}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    // A busy thread with a limit of 100m is throttled in each period in which the machine lets it run.
    let throttled = wait_for("throttling", || Some(throttled_percent(&node.cgroups, 10)).filter(|share| *share >= 60));
    assert_eq!(node.cgroups.knobs(), before, "not configured means hands off");

    // Up to a whole CPU, the maximum that one thread can use.
    node.pod(&json!({BURST: {"policy": "auto", "cfsQuotaBurstPercent": 1000, "cpuBurstPercent": 2000}}));
    wait_until("relief", || throttled_percent(&node.cgroups, 10) * 2 < throttled);
    assert!(node.cgroups.quota(APP) <= BASE * 10, "the ceiling is ten times the base");
    wait_until("the pod to have what its container has", || node.cgroups.quota(POD) == node.cgroups.quota(APP));

    let quota = agent.held("container", "cpu.quota");
    assert!(quota["value"].as_i64().unwrap() > BASE, "{quota}");
    assert_eq!(quota["baseline"], BASE, "{quota}");
    assert_eq!(quota["policy"], "cpu-burst", "{quota}");
    let module = quota["module"].as_str().unwrap();
    assert!(module.starts_with("cpu-burst@") && module.contains("sha256:"), "{quota}");
    assert!(!quota["reason"].as_str().unwrap().is_empty() && quota["since"].as_str().unwrap().contains('T'), "{quota}");
    assert!(quota["path"].as_str().unwrap().contains(APP), "{quota}");

    // 2000 % of 100m are 200000 µs; a mainline kernel accepts no more than the quota.
    let burst = agent.held("container", "cpu.burst");
    assert_eq!(burst["adjusted"]["wanted"], 200_000, "{burst}");
    assert!(burst["adjusted"]["why"].as_str().unwrap().contains("quota"), "{burst}");
    let held = node.cgroups.burst(APP);
    assert!(held >= BASE && held <= node.cgroups.quota(APP), "{held}");

    let explanation = agent.json(&["explain", "default/web"]);
    assert_eq!(explanation["pod"]["pod"], "default/web", "{explanation}");
    let policy =
        explanation["policies"].as_array().unwrap().iter().find(|policy| policy["policy"] == "cpu-burst").cloned();
    let fields = policy.unwrap()["fields"].clone();
    let layer = |name: &str| {
        let field = fields.as_array().unwrap().iter().find(|field| field["field"] == name).cloned().unwrap_or_default();
        field["layer"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(layer("policy"), "annotation koordinator.sh/cpuBurst", "{fields}");
    assert_eq!(layer("cfsQuotaBurstPeriodSeconds"), "built-in default", "{fields}");
    let text = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(
        text.contains("cpu.quota") && text.contains("(baseline 10000)") && text.contains("asked for 200000"),
        "{text}"
    );

    assert!(agent.metric("qosm_knob_writes_total", &["cpu.quota", "cpu-burst"]) >= 2.0);
    assert!(agent.metric("qosm_policy_evaluation_seconds_count", &["cpu-burst"]) >= 2.0);
    assert!(agent.metric("qosm_column_read_seconds_count", &["cpu-stat"]) >= 2.0);
    assert_eq!(agent.metric("qosm_pods", &[]), 1.0);
    assert_eq!(agent.metric("qosm_containers", &[]), 1.0);
    for path in ["/healthz", "/readyz"] {
        wait_until(path, || agent.get(path).0.contains("200"));
    }
    let policies = agent.json(&["get", "policies"]);
    assert!(policies.as_array().unwrap().iter().all(|policy| policy["health"] == "running"), "{policies}");
    let knobs = agent.json(&["get", "knobs"]);
    assert_eq!(knobs["held"].as_array().unwrap().len(), 4, "{knobs}");
    for noun in ["pods", "policies", "knobs", "events", "problems"] {
        assert!(agent.ask(&["get", noun]).is_some(), "{noun}");
    }

    node.pod(&json!({}));
    wait_until("the baseline", || node.cgroups.knobs() == before);
    assert!(agent.held("container", "cpu.quota").is_null());
    wait_until("throttling again", || throttled_percent(&node.cgroups, 10) >= 60);
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn an_overloaded_node_takes_the_quota_back() {
    let node = Node::busy(&json!({BURST: {"policy": "cfsQuotaBurstOnly"}}));
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    // From now on all CPUs of the node are busy, according to its /proc/stat.
    let proc = node.path("proc/stat");
    let cpus = std::fs::read_to_string(&proc).unwrap().lines().filter(|line| line.starts_with("cpu")).count() - 1;
    let mut busy = 1_000_000_u64;
    wait_until("the base", || {
        busy += 1_000 * cpus as u64;
        // Written in place: the agent keeps the file open, as it does in the real /proc.
        let line = format!("cpu  {busy:>12} 0 0 1000 0 0 0 0 0 0\n");
        let text: String =
            std::iter::once(line).chain((0..cpus).map(|cpu| format!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n"))).collect();
        let file = std::fs::OpenOptions::new().write(true).open(&proc).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
        sleep(Duration::from_millis(100));
        node.cgroups.quota(APP) == BASE && node.cgroups.quota(POD) == BASE
    });
    drop(agent);
}

#[test]
fn the_responsive_profile_does_the_same_by_default() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let mut policy = quick();
    policy["config"] = json!({});
    node.agent_config(&json!({"policies": [policy]}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}
