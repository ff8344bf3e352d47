//! Without an API server, an agent whose node runs out of memory kills a batch pod itself: within its guard rails, and once.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::batch_node::{Node, Options, THRESHOLDS, batch_pod, events, is_gone};
use crate::evicted::attempts;
use crate::node::{Group, api_server};
use crate::waiting::{wait_for, wait_until};

const NAMES: [&str; 2] = ["ended-one", "ended-other"];

#[test]
fn one_pod_is_ended_on_the_node_and_leaves_it_when_the_api_server_is_back() {
    let node = Node::start_with(&Options {
        policies: &["eviction"],
        shadows: &[],
        strategies: &[(THRESHOLDS, json!({"clusterStrategy": {"enable": true}}))],
        values: &[],
        // The tests of confinement cover the signals of a confined agent.
        agent: json!({"confinement": {"mode": "off"},
            "guardRails": {"evictions": {"perMinute": 1, "perHour": 1, "localAfterSeconds": 1}}}),
    });
    let pods = NAMES.map(batch_pod);
    let groups = [&pods[0], &pods[1]].map(|pod| pod.cgroup("app"));
    let processes = [&groups[0], &groups[1]].map(|group| group.processes());
    assert!(processes.iter().all(|all| !all.is_empty()));
    wait_until("the agent knows their containers", || {
        let known = node.agent.ask(&["get", "pods"]).unwrap_or_default();
        NAMES.iter().all(|name| known.contains(name))
    });
    let older = [&groups[0], &groups[1]].map(|group| paths(&group.pod()));

    let outage = Outage::begin();
    node.agent.say_available_memory(0);
    let ended = wait_for("the processes of one are ended", || {
        (0..2).find(|&place| groups[place].processes().is_disjoint(&processes[place]))
    });
    let other = 1 - ended;
    let told = |place: usize| node.eviction(NAMES[place]).unwrap_or_default();
    let why = |eviction: &Value| eviction["why"].as_str().unwrap_or_default().to_owned();
    wait_until("which is told", || told(ended)["outcome"] == "killed");
    assert!(why(&told(ended)).contains("ended on the node"), "{}", told(ended));
    wait_until("the other one waits for its turn", || {
        told(other)["outcome"] == "pending" && why(&told(other)).contains("guardRails.evictions.per")
    });

    // The kubelet restarts the container, and the agent does not kill it a second time.
    let again = wait_for("its container is started again", || {
        let mut groups = groups[ended].pod().children().into_iter();
        groups.find(|group| older[ended].iter().all(|path| path != group.relative()) && !shells(group).is_empty())
    });
    let restarted = shells(&again);
    let evaluations = node.evaluations("eviction");
    wait_until("the policy has looked a few times more", || node.evaluations("eviction") >= evaluations + 4);
    assert_eq!(shells(&again), restarted);
    assert_eq!(groups[other].processes(), processes[other]);
    assert!(node.evictions().iter().filter(|eviction| eviction["outcome"] == "killed").count() == 1);

    // Memory is free again: requests that were not carried out are withdrawn, and the ended pod is deleted once the controller is back.
    node.agent.say_available_memory(100);
    wait_until("what nobody has done is taken back", || told(other).is_null());
    drop(outage);
    wait_until("the controller evicts the pod that was ended", || is_gone(NAMES[ended]));
    let taken = |place: usize| attempts(NAMES[place]).iter().filter(|(code, _)| (200..300).contains(code)).count();
    assert_eq!((taken(ended), taken(other)), (1, 0));
    wait_until("its owner is told what the node did", || {
        events(NAMES[ended], "evictPodSuccess").contains("its processes were ended on the node")
    });
    assert_eq!(groups[other].processes(), processes[other], "the other one was never touched");
    drop(pods);
}

/// Stops the API server until this is dropped.
struct Outage;

impl Outage {
    fn begin() -> Self {
        api_server("stop");
        Self
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        api_server("start");
    }
}

/// The container's own processes, without those of the runtime that start it.
fn shells(container: &Group) -> BTreeSet<i32> {
    let is_shell = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh");
    container.processes().into_iter().filter(is_shell).collect()
}

fn paths(pod: &Group) -> Vec<std::path::PathBuf> {
    pod.children().iter().map(|group| group.relative().to_owned()).collect()
}
