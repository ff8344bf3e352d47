//! A node with colocation as the chart installs it: the controller, the policies, the cluster's strategies, an agent, and batch pods.

use serde_json::{Value, json};

use crate::agent::{Agent, Controller, Module};
use crate::colocation::{BATCH, CPU, Colocation, MEMORY, admitted, colocated, flags_with, waiting_pod};
use crate::node::{BUSYBOX, Group, NODE, Pod, apply, busy, get, try_kubectl};
use crate::waiting::{wait_for, wait_until};

/// The ConfigMap's key for suppression and eviction.
pub(crate) const THRESHOLDS: &str = "resource-threshold-config";

/// A node with everything that colocation needs.
pub(crate) struct Node {
    pub(crate) agent: Agent,
    pub(crate) modules: Vec<Module>,
    pub(crate) controller: Controller,
    _strategies: Strategies,
    _rules: Colocation,
}

/// What runs on the node.
pub(crate) struct Options<'a> {
    /// Names of policies in the chart's set.
    pub(crate) policies: &'a [&'a str],
    /// Those of them that are shadows.
    pub(crate) shadows: &'a [&'a str],
    /// The ConfigMap's keys.
    pub(crate) strategies: &'a [(&'a str, Value)],
    /// Values of the chart for the controller, as `helm --set` takes them.
    pub(crate) values: &'a [&'a str],
    /// The agent's own file.
    pub(crate) agent: Value,
}

/// The cluster's ConfigMap; deleted when dropped.
struct Strategies;

impl Strategies {
    fn apply(data: &[(&str, Value)]) {
        let data: serde_json::Map<_, _> =
            data.iter().map(|(key, value)| ((*key).to_owned(), value.to_string().into())).collect();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"}});
        apply(&map.to_string());
    }
}

impl Drop for Strategies {
    fn drop(&mut self) {
        try_kubectl(&["delete", "configmap", "slo-controller-config", "--namespace=koordinator-system"]).ok();
    }
}

/// Applies policies of the chart's set, with a short interval.
pub(crate) fn modules(names: &[&str], shadows: &[&str]) -> Vec<Module> {
    let objects = colocated();
    let module = |name: &&str| {
        let is_it = |object: &&Value| object["kind"] == "PolicyModule" && object["metadata"]["name"] == **name;
        let mut spec = objects.iter().find(is_it).unwrap()["spec"].clone();
        spec["intervalMillis"] = 1000.into();
        if shadows.contains(name) {
            spec["mode"] = "shadow".into();
        }
        Module::apply(name, &spec)
    };
    names.iter().map(module).collect()
}

impl Node {
    /// Starts a node with these policies and these keys of the ConfigMap. The agent sees a machine on which only the node's pods run.
    pub(crate) fn start(policies: &[&str], strategies: &[(&str, Value)]) -> Self {
        Self::start_with(&Options { policies, strategies, shadows: &[], values: &[], agent: json!({}) })
    }

    pub(crate) fn start_with(options: &Options) -> Self {
        let rules = Colocation::install();
        Strategies::apply(options.strategies);
        let strategies = Strategies;
        let controller = Controller::start_with(&flags_with(options.values));
        let modules = modules(options.policies, options.shadows);
        let agent = Agent::start_on_a_calm_node_with(&options.agent);
        Self { agent, modules, controller, _strategies: strategies, _rules: rules }
    }

    /// Replaces the keys of the ConfigMap.
    pub(crate) fn change(&self, strategies: &[(&str, Value)]) {
        Strategies::apply(strategies);
    }

    /// The node's amount of a resource, equal in capacity and allocatable; `None` if the node does not have it.
    pub(crate) fn amount(name: &str) -> Option<Value> {
        let node = get(&["node", NODE]);
        let amount = |list: &str| node["status"][list].get(name).cloned();
        let allocatable = amount("allocatable");
        assert_eq!(amount("capacity"), allocatable, "{name}");
        allocatable
    }

    pub(crate) fn wait_until_published(&self) {
        wait_until("batch resources stand on the node", || {
            Self::amount(CPU).is_some_and(|amount| amount != "0") && Self::amount(MEMORY).is_some()
        });
    }

    /// The evictions that the agent reports.
    pub(crate) fn evictions(&self) -> Vec<Value> {
        let told = self.agent.ask(&["get", "evictions", "-o", "json"]);
        told.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    /// The eviction of this pod of the namespace `default`.
    pub(crate) fn eviction(&self, name: &str) -> Option<Value> {
        self.evictions().into_iter().find(|eviction| eviction["pod"] == format!("default/{name}"))
    }

    /// Number of evaluations of a policy.
    pub(crate) fn evaluations(&self, policy: &str) -> u64 {
        let told = self.agent.ask(&["get", "policies", "-o", "json"]).unwrap_or_default();
        let policies: Vec<Value> = serde_json::from_str(&told).unwrap_or_default();
        let found = policies.iter().find(|found| found["policy"] == policy);
        found.and_then(|found| found["evaluations"].as_u64()).unwrap_or(0)
    }
}

/// A pod in the namespace of batch pods, which admission turns into a batch pod.
pub(crate) struct BatchPod(&'static str);

impl BatchPod {
    /// Creates the pod; the scheduler may not find a node for it.
    pub(crate) fn create(name: &'static str) -> Self {
        let mut pod = waiting_pod(name, BATCH, json!({}));
        // 50m and 16 MiB requested, limited to 200m and 64 MiB.
        pod["spec"]["containers"] = busy("200m")["containers"].clone();
        pod["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
        wait_until("the profile is in force", || {
            admitted(&pod).is_ok_and(|pod| pod["spec"]["priorityClassName"] == "koord-batch")
        });
        apply(&pod.to_string());
        Self(name)
    }

    fn get(&self) -> Value {
        get(&["pod", self.0, "--namespace", BATCH])
    }

    /// Waits until the pod runs. Returns the cgroup of its container.
    pub(crate) fn group(&self) -> Group {
        group(|| self.get())
    }

    /// Whether the scheduler finds no node with enough batch CPU.
    pub(crate) fn waits(&self) -> bool {
        let conditions = self.get()["status"]["conditions"].to_string();
        conditions.contains("Unschedulable") && conditions.contains("Insufficient kubernetes.io/batch-cpu")
    }
}

impl Drop for BatchPod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for args in [["describe", "pod", self.0, "--namespace", BATCH].as_slice(), &["describe", "node", NODE]] {
                eprintln!("{}", try_kubectl(args).unwrap_or_else(|error| error));
            }
        }
    }
}

/// Waits until a batch pod runs. Returns the cgroup of its container.
fn group(pod: impl Fn() -> Value) -> Group {
    let running = wait_for("the batch pod runs", || {
        Some(pod()).filter(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
    });
    assert_eq!((&running["spec"]["nodeName"], &running["status"]["qosClass"]), (&NODE.into(), &"BestEffort".into()));
    let id = running["status"]["containerStatuses"][0]["containerID"].as_str().unwrap();
    Group::of(running["metadata"]["uid"].as_str().unwrap(), id.trim_start_matches("containerd://"))
}

/// A waiting pod in the namespace `default` whose manifest makes it a batch pod. Deleted when dropped.
pub(crate) struct WrittenPod(&'static str);

impl WrittenPod {
    /// Creates the pod with this request of batch CPU, in thousandths.
    pub(crate) fn create(name: &'static str, priority_class: &str, milli: u32) -> Self {
        let amounts = json!({CPU: milli.to_string(), MEMORY: "16Mi"});
        let mut pod = waiting_pod(name, "default", json!({"requests": amounts, "limits": amounts}));
        pod["metadata"]["labels"]["koordinator.sh/qosClass"] = "BE".into();
        pod["spec"]["priorityClassName"] = priority_class.into();
        apply(&pod.to_string());
        Self(name)
    }

    pub(crate) fn get(&self) -> Value {
        get(&["pod", self.0])
    }

    pub(crate) fn uid(&self) -> String {
        self.get()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Waits until the pod runs. Returns the cgroup of its container.
    pub(crate) fn group(&self) -> Group {
        group(|| self.get())
    }

    /// Whether the API server no longer has the pod.
    pub(crate) fn is_gone(&self) -> bool {
        is_gone(self.0)
    }
}

impl Drop for WrittenPod {
    fn drop(&mut self) {
        try_kubectl(&["delete", "pod", self.0, "--ignore-not-found", "--grace-period=0", "--force", "--wait=false"])
            .ok();
    }
}

/// A batch pod that uses all CPU that it gets. It is bound to the node directly, so it needs no published resource.
pub(crate) fn batch_pod(name: &str) -> Pod {
    let spec =
        json!({"containers": [{"name": "app", "image": BUSYBOX, "command": ["sh", "-c", "while :; do :; done"]}]});
    Pod::create_with(name, &json!({"labels": {"koordinator.sh/qosClass": "BE"}}), &spec)
}

/// Whether the API server has no such pod in the namespace `default`.
pub(crate) fn is_gone(name: &str) -> bool {
    try_kubectl(&["get", "pod", name]).is_err_and(|error| error.contains("NotFound"))
}

/// The pod's events with this reason, as one text.
pub(crate) fn events(name: &str, reason: &str) -> String {
    let selector = format!("involvedObject.name={name},reason={reason}");
    try_kubectl(&["get", "events", "--field-selector", &selector, "--output=jsonpath={.items[*].message}"])
        .unwrap_or_default()
}

/// Number of CPUs of the node.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}
