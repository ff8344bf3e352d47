//! Reclaimed resources end to end: an agent publishes them in its report, the controller puts them on the Node, the scheduler
//! places batch pods by them, and the pods' cgroups get the matching values.

use std::time::Instant;

use serde_json::{Value, json};

use crate::batch_node::{BatchPod, Node, cpus, modules};
use crate::colocation::{BATCH, CPU, MEMORY};
use crate::node::{Group, NODE, get, is_v2};
use crate::waiting::wait_until;

/// Weight, quota and memory limit of a container's cgroup and of its pod's.
fn values(group: &Group) -> [(i64, i64, Option<u64>); 2] {
    [group, &group.pod()].map(|group| (group.weight(), group.quota(), group.memory_limit()))
}

/// The kubelet's values for a BestEffort pod and its container.
fn kubelets() -> [(i64, i64, Option<u64>); 2] {
    [(if is_v2() { 1 } else { 2 }, -1, None); 2]
}

/// 95 % of the capacity, averaged over seconds, and withdrawn a minute after the agent ends.
pub(crate) fn reclaim() -> Value {
    json!({"enable": true, "cpuReclaimThresholdPercent": 95, "memoryReclaimThresholdPercent": 95,
        "metricAggregateDurationSeconds": 5, "metricReportIntervalSeconds": 2, "degradeTimeMinutes": 1})
}

#[test]
fn a_labelled_namespace_and_the_charts_set_are_enough() {
    let node = Node::start(&["reclaimed-resources", "be-suppress", "eviction"], &[]);
    // The machine's other load is hidden from this agent, so that the defaults offer something.
    node.wait_until_published();
    let pod = BatchPod::create("plain");
    let group = pod.group();
    wait_until("it has the quota that it asked for", || group.quota() == 20_000);
    let told = node.agent.ask(&["get", "policies"]).unwrap();
    for policy in ["reclaimed-resources", "be-suppress", "eviction"] {
        assert!(told.contains(policy), "{told}");
    }
    let on = [
        "by cpuset: batch pods get what is left below 65 % of the node's CPU",
        "BEMemoryEvict: batch pods leave from 70 % of the node's memory on",
    ];
    wait_until("suppression and eviction say that they are on", || {
        let log = node.agent.log();
        on.iter().all(|line| log.contains(line))
    });

    node.change(&[("colocation-config", json!({"enable": false}))]);
    wait_until("the ConfigMap switches it off", || Node::amount(CPU).is_none() && Node::amount(MEMORY).is_none());
    assert_eq!(group.quota(), 20_000, "what a running pod has stays");
}

#[test]
fn batch_runs_on_what_pods_leave_until_the_agent_is_gone() {
    let mut node = Node::start(&["reclaimed-resources"], &[("colocation-config", reclaim())]);
    node.wait_until_published();
    let report = get(&["nodepolicyreport", NODE]);
    assert_eq!(report["status"]["resourcesStaleAfterSeconds"], 60, "{report}");
    let resources = report["status"]["resources"].as_array().unwrap();
    let cpu = resources.iter().find(|resource| resource["name"] == CPU).unwrap();
    let most = u64::try_from(cpus()).unwrap() * 950;
    assert!((1..=most).contains(&cpu["amount"].as_u64().unwrap()), "{cpu}");
    assert_eq!(cpu["policy"], "reclaimed-resources");
    assert!(cpu["reason"].as_str().unwrap().starts_with(&format!("capacity {}000m - margin ", cpus())), "{cpu}");

    let pod = BatchPod::create("batch");
    let group = pod.group();
    // 50 * 1024 / 1000 shares.
    let weight = if is_v2() { 1 + 49 * 9999 / 262_142 } else { 51 };
    let limited = [(weight, 20_000, Some(64 << 20)); 2];
    wait_until("it has the weight, quota and limit that it asked for", || values(&group) == limited);
    let before = group.throttled();
    wait_until("the quota holds it", || group.throttled() > before + 5);
    let explained = node.agent.ask(&["explain", &format!("{BATCH}/batch")]).unwrap();
    assert!(explained.contains("batch CPU request 50m, limit 200m"), "{explained}");
    let told = node.agent.ask(&["get", "resources"]).unwrap();
    assert!(told.contains(CPU), "{told}");

    // Without the policies everything is restored; with them, all of it is back.
    node.modules.clear();
    wait_until("nothing is published", || Node::amount(CPU).is_none() && Node::amount(MEMORY).is_none());
    wait_until("the kubelet's values are back", || values(&group) == kubelets());
    node.modules = modules(&["reclaimed-resources"], &[]);
    node.wait_until_published();
    wait_until("the pod is held again", || values(&group) == limited);

    // A killed agent withdraws nothing: the controller does, a minute after the last report.
    node.agent.kill();
    let killed = Instant::now();
    wait_until("what the dead agent published is withdrawn", || Node::amount(CPU).is_none());
    eprintln!("withdrawn {:?} after the agent was killed", killed.elapsed());
    assert_eq!(Node::amount(MEMORY), None);
    let late = BatchPod::create("late");
    wait_until("no other batch pod comes to this node", || late.waits());
    assert_eq!(values(&group), limited, "the running one keeps what it has");
    let restored = node.agent.restore();
    assert!(restored.is_ok(), "{restored:?}");
    assert_eq!(values(&group), kubelets());
    drop(node.controller);
}
