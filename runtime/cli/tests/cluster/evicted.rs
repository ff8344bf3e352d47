//! Starving batch pods are evicted: chosen by the policy, requested in the report, evicted by the controller within its budgets.

use serde_json::{Value, json};

use crate::batch_node::{Node, Options, THRESHOLDS, WrittenPod, cpus, events};
use crate::colocation::answer;
use crate::node::{NODE, Pod, apply, audit, busy, get, try_kubectl};
use crate::reclaimed::reclaim;
use crate::waiting::{wait_for, wait_until};

const POLICIES: [&str; 3] = ["reclaimed-resources", "be-suppress", "eviction"];

/// Batch pods get about 600 thousandths of a CPU, minus the use of other pods; below 40 % of their requests they starve.
fn strategies() -> [(&'static str, Value); 2] {
    let thresholds = json!({"enable": true, "cpuSuppressPolicy": "cfsQuota",
        "cpuSuppressThresholdPercent": (60 / cpus()).max(1),
        "cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60});
    [("colocation-config", reclaim()), (THRESHOLDS, json!({"clusterStrategy": thresholds}))]
}

/// A PodDisruptionBudget that forbids evicting pods of this name; deleted when dropped.
struct Disruption(&'static str);

impl Disruption {
    fn forbid(pod: &'static str) -> Self {
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": pod},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": pod}}}});
        apply(&budget.to_string());
        wait_until("the budget counts the pod", || get(&["poddisruptionbudget", pod])["status"]["expectedPods"] == 1);
        Self(pod)
    }
}

impl Drop for Disruption {
    fn drop(&mut self) {
        try_kubectl(&["delete", "poddisruptionbudget", self.0]).ok();
    }
}

/// The requests to evict a pod: the status of each response, and its time.
pub(crate) fn attempts(pod: &str) -> Vec<(u64, jiff::Timestamp)> {
    let is_of_pod = |event: &Value| {
        let of = &event["objectRef"];
        event["verb"] == "create"
            && of["subresource"] == "eviction"
            && of["name"] == pod
            && of["namespace"] == "default"
    };
    let attempt = |event: Value| {
        let at = event["requestReceivedTimestamp"].as_str().unwrap().parse().unwrap();
        (event["responseStatus"]["code"].as_u64().unwrap(), at)
    };
    audit().into_iter().filter(is_of_pod).map(attempt).collect()
}

/// When a pod was evicted; `None` if it was not. Fails if it was evicted twice.
fn evicted(pod: &str) -> Option<jiff::Timestamp> {
    let taken: Vec<_> = attempts(pod).into_iter().filter(|(code, _)| (200..300).contains(code)).collect();
    assert!(taken.len() <= 1, "{pod}: {taken:?}");
    taken.first().map(|(_, at)| *at)
}

#[test]
fn starving_batch_pods_leave_from_low_priority_up_one_a_minute_until_there_is_enough() {
    let node = Node::start_with(&Options {
        policies: &POLICIES,
        shadows: &["eviction"],
        strategies: &strategies(),
        values: &["colocation.evictions.perMinute.node=1"],
        agent: json!({}),
    });
    let sensitive = Pod::create("evict-ls", &busy("700m"));
    let load = sensitive.cgroup("app");
    load.rest();
    node.wait_until_published();
    // The first two use almost nothing, so that all three must be evicted.
    let names = ["evict-spared", "evict-leaver", "evict-costly"];
    let spared = WrittenPod::create(names[0], "koord-free", 10);
    let leaver = WrittenPod::create(names[1], "koord-batch", 10);
    let costly = WrittenPod::create(names[2], "koord-mid", 400);
    let tier = costly.group().tier();
    [&spared, &leaver].into_iter().for_each(|pod| drop(pod.group()));
    let uids = [&spared, &leaver, &costly].map(WrittenPod::uid);
    let _disruption = Disruption::forbid(names[0]);

    // A shadow shows which pods would be evicted, and in which order.
    load.work();
    let told = wait_for("a shadow says who would leave", || {
        let told = node.agent.ask(&["diff", "eviction"]).ok()?;
        names.iter().all(|name| told.contains(&format!("default/{name} (soon, BECPUEvict)"))).then_some(told)
    });
    let places = names.map(|name| told.find(name).unwrap());
    assert!(places.is_sorted(), "{told}");
    assert!((2_000..30_000).contains(&tier.quota()), "the pods starve: {}", tier.quota());
    assert_eq!(get(&["nodepolicyreport", NODE])["status"]["evictions"], Value::Null);
    assert_eq!([&spared, &leaver, &costly].map(WrittenPod::uid), uids);

    node.modules[2].change(&json!({"mode": "enforce"}));
    // The first may not be disrupted, which uses no budget of the controller; the second is evicted, and the
    // third waits for the next minute.
    wait_until("the budget of the controller holds one back", || {
        let answer = answer(NODE, "evictions", "uid", &uids[2]);
        answer.is_some_and(|answer| {
            answer["outcome"] == "pending" && answer["message"].as_str().unwrap().contains("perMinute.node")
        })
    });
    wait_until("the next one leaves", || leaver.is_gone());
    let first = evicted(names[1]).unwrap();
    wait_until("the policy waits for it as well", || {
        node.eviction(names[2]).is_some_and(|eviction| {
            eviction["outcome"] == "pending" && eviction["why"].as_str().unwrap_or_default().contains("perMinute.node")
        })
    });
    let success = "trigger by koordlet feature BECPUEvict, kill pod: evict-leaver: ";
    wait_until("its owner is told", || events(names[1], "evictPodSuccess").starts_with(success));
    wait_until("so is that of the pod that must not leave", || {
        let told = events(names[0], "evictPodFail");
        told.starts_with("trigger by koordlet feature BECPUEvict, kill pod: evict-spared: ")
            && told.contains("PodDisruptionBudget")
    });

    // Requests that are no longer needed are withdrawn. On a slow machine the third pod may have been evicted by then.
    load.rest();
    wait_until("batch pods have what is below the watermark", || {
        tier_quota(&costly).is_none_or(|quota| quota > 30_000)
    });
    wait_until("nothing is asked for", || {
        let asked = &get(&["nodepolicyreport", NODE])["status"]["evictions"];
        asked.as_array().is_none_or(Vec::is_empty)
    });
    if let Some(second) = evicted(names[2]) {
        assert!(second.duration_since(first).as_secs() >= 30, "{first} {second}");
    } else {
        assert_eq!(costly.uid(), uids[2]);
    }
    assert_eq!(evicted(names[1]), Some(first));
    assert_eq!(evicted(names[0]), None);
    assert!(attempts(names[0]).iter().any(|(code, _)| *code == 429), "{:?}", attempts(names[0]));
    assert_eq!(spared.uid(), uids[0]);
}

/// The quota of a pod's tier; `None` once the pod is gone.
fn tier_quota(pod: &WrittenPod) -> Option<i64> {
    (!pod.is_gone()).then(|| pod.group().tier().quota())
}
