//! Repeated `kill -9` beside a kubelet that writes the same knobs: the kubelet's last values are restored.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::agent::{Agent, Module};
use crate::node::{Group, Pod, busy, kubectl};
use crate::policies::{annotated, burst};
use crate::waiting::wait_until;

const ROUNDS: usize = 12;
/// Alternating CPU limits of the pod, and the CFS quota of each.
const LIMITS: [(&str, i64); 2] = [("200m", 20_000), ("300m", 30_000)];
/// Longest life of an agent after a resize, in milliseconds.
const LIFE: u64 = 1_500;
const FILES: [&str; 6] =
    ["cpu.cfs_quota_us", "cpu.cfs_burst_us", "cpu.shares", "cpu.max", "cpu.max.burst", "cpu.weight"];

/// All knobs that both the kubelet and cpu-burst write, of the pod and of its container.
fn knobs(group: &Group) -> BTreeMap<PathBuf, String> {
    let container = group.path("cpu");
    let folders = [container.parent().unwrap().to_owned(), container.clone()];
    let files = folders.iter().flat_map(|folder| FILES.map(|file| folder.join(file)));
    files.filter_map(|file| Some((file.clone(), fs::read_to_string(file).ok()?))).collect()
}

fn resize(pod: &Pod, limit: &str) {
    let patch =
        format!(r#"{{"spec":{{"containers":[{{"name":"app","resources":{{"limits":{{"cpu":"{limit}"}}}}}}]}}}}"#);
    kubectl(&["patch", "pod", pod.name(), "--subresource=resize", "--patch", &patch]);
}

/// A varying time below the life of an agent.
fn moment() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_millis(u64::from(now.subsec_micros()) % LIFE)
}

#[test]
fn beside_a_kubelet_that_resizes_a_pod_no_kill_loses_a_knob() {
    let pod = Pod::create_with("qosm-killed", &annotated("auto"), &busy(LIMITS[0].0));
    let group = pod.cgroup("app");
    // The kubelet's values for each limit while no other program writes; the last limit is the first again.
    let mut kubelets = [BTreeMap::new(), BTreeMap::new()];
    for turn in [1, 0] {
        let (limit, quota) = LIMITS[turn];
        resize(&pod, limit);
        wait_until("the kubelet's resize", || group.quota() == quota);
        let pods_quota = || knobs(&group).values().filter(|text| text.contains(&quota.to_string())).count();
        wait_until("the kubelet's resize of the pod", || pods_quota() == 2);
        kubelets[turn] = knobs(&group);
    }
    let (_module, mut agent) = (Module::apply("cpu-burst", &burst()), Agent::start());
    wait_until("the container may burst", || group.burst() > 0);
    let mut moved = 0;
    for round in 0..ROUNDS {
        let turn = (round + 1) % LIMITS.len();
        sleep(moment());
        resize(&pod, LIMITS[turn].0);
        sleep(moment());
        agent.kill();
        let left = knobs(&group);
        moved += usize::from(!kubelets.contains(&left));
        if round % 3 == 2 {
            let report = agent.restore().unwrap();
            let how = format!("round {round}: the kill left {left:#?}, restore said {report}");
            // The kernel refuses a quota below the burst in force; the kubelet retries.
            wait_until(&format!("what the kubelet wrote; {how}"), || knobs(&group) == kubelets[turn]);
        }
        agent.spawn_again();
    }
    assert!(moved > 0, "no kill left anything to put back");
    agent.wait_until_ready();
    wait_until("the container may burst", || group.burst() > 0);
    agent.end();
    wait_until("what the kubelet wrote", || knobs(&group) == kubelets[ROUNDS % LIMITS.len()]);
    assert!(agent.restore().unwrap().contains("nothing"), "the journal has nothing left");
}
