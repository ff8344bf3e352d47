//! Suppression of batch pods by the use of latency-sensitive pods, on a real kubelet's cgroups.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::batch_node::{Node, THRESHOLDS, batch_pod, cpus};
use crate::node::{NODE, Pod, busy, kubectl, try_kubectl};
use crate::waiting::wait_until;

/// Upper bound of the latency-sensitive pod's use, in thousandths of a CPU.
const LOAD: usize = 700;

fn strategy(mode: &str, percent: usize, is_enabled: bool) -> [(&'static str, Value); 1] {
    let strategy = json!({"enable": is_enabled, "cpuSuppressPolicy": mode, "cpuSuppressThresholdPercent": percent});
    [(THRESHOLDS, json!({"clusterStrategy": strategy}))]
}

/// CPUs that the node reserves; removed when dropped.
struct Reservation;

const RESERVATION: &str = "node.koordinator.sh/reservation";

impl Reservation {
    fn of(cpu: usize) -> Self {
        let value = json!({"reservedCPUs": cpu.to_string()});
        kubectl(&["annotate", "--overwrite", "node", NODE, &format!("{RESERVATION}={value}")]);
        Self
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        try_kubectl(&["annotate", "node", NODE, &format!("{RESERVATION}-")]).ok();
    }
}

#[test]
fn batch_has_less_while_latency_sensitive_pods_are_busy_and_more_when_they_rest() {
    let node = Node::start(&["be-suppress"], &strategy("cfsQuota", quota_percent(), true));
    let sensitive = Pod::create("suppress-ls", &busy(&format!("{LOAD}m")));
    let load = sensitive.cgroup("app");
    load.rest();
    let batch = batch_pod("suppress-be");
    let group = batch.cgroup("app");
    let tier = group.tier();

    // By a quota, in microseconds per 100 ms; differences below 1 % of the node are not written.
    let whole = i64::try_from(cpus() * quota_percent() * 1000).unwrap();
    let slack = i64::try_from(cpus() * 1000).unwrap();
    let at_rest = || (whole - slack..=whole).contains(&tier.quota());
    wait_until("batch pods have what is below the watermark", at_rest);
    load.work();
    wait_until("they have less while the other pod is busy", || (2_000..whole / 2).contains(&tier.quota()));
    let told = node.agent.ask(&["get", "knobs"]).unwrap();
    assert!(told.contains("of latency-sensitive pods"), "{told}");
    load.rest();
    wait_until("they have it back when it rests", at_rest);

    // By CPUs. Batch pods keep at least two, so a node with two CPUs loses none.
    let all: BTreeSet<usize> = tier.cpus();
    let percent = cpuset_percent();
    let wanted = (cpus() * percent).div_ceil(100).max(2);
    node.change(&strategy("cpuset", percent, true));
    wait_until("the quota is given back for a set of CPUs", || tier.quota() == -1 && tier.cpus().len() == wanted);
    if wanted > 2 {
        load.work();
        wait_until("they have fewer CPUs while the other pod is busy", || tier.cpus().len() < wanted);
        load.rest();
        wait_until("they have them back when it rests", || tier.cpus().len() == wanted);
    }
    let reserved = *all.first().unwrap();
    let reservation = Reservation::of(reserved);
    let is_out = |cpus: BTreeSet<usize>| !cpus.is_empty() && !cpus.contains(&reserved);
    wait_until("a reserved CPU is taken from the pods that run", || is_out(tier.cpus()) && is_out(group.cpus()));
    let late = batch_pod("suppress-late");
    assert!(is_out(late.cgroup("app").cpus()), "a pod that starts now has no more than its tier");

    node.change(&strategy("cpuset", percent, false));
    wait_until("switched off, everything is as it was", || {
        [&tier, &group, &late.cgroup("app")].iter().all(|group| group.cpus() == all && group.quota() == -1)
    });
    drop(reservation);
}

/// About 600 thousandths of a CPU.
fn quota_percent() -> usize {
    (60 / cpus()).max(1)
}

/// A watermark just above a number of whole CPUs, so that the load takes at least one of them.
fn cpuset_percent() -> usize {
    (50..100).rev().find(|percent| (1..=400).contains(&(cpus() * 10 * percent % 1000))).unwrap()
}
