//! NodeResourceTopologies at a real API server: shares in other programs' objects, and the controller's own objects.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Agent, Controller, Module, rendered};
use crate::colocation::{CPU, Colocation, EmptyNode, flags_with, report};
use crate::node::{NODE, apply, kubectl, run, said, try_kubectl};
use crate::waiting::{wait_for, wait_until};

const PUBLISHES: &str = "controller.nodeTopology=true";
/// Label of the controller's own objects.
const OWN: &str = "qosm.io/node-topology";

/// The kind NodeResourceTopology, and one object; both deleted when dropped.
struct Topology(&'static str);

impl Topology {
    const KIND: &str = "noderesourcetopologies.topology.node.k8s.io";

    fn create(name: &'static str) -> Self {
        Self::kind();
        let topology = Self(name);
        topology.reset();
        topology
    }

    /// Creates the kind.
    fn kind() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": Self::KIND, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {"group": "topology.node.k8s.io", "scope": "Cluster",
                "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
        apply(&definition.to_string());
        kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", Self::KIND]);
    }

    /// The node's object; `None` if there is none.
    fn of(node: &str) -> Option<Value> {
        let text = try_kubectl(&["get", Self::KIND, node, "--output=json"]).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Resets the object to one NUMA node with the kubelet's CPU resource and one of the controller's.
    fn reset(&self) {
        let topology = json!({"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
            "metadata": {"name": self.0}, "topologyPolicies": ["None"], "zones": [zone(&json!([amounts("cpu", "4"), amounts(CPU, "500")]))]});
        wait_until("the topology can be made", || {
            let mut kubectl = Command::new(said("QOSM_KUBECTL"));
            kubectl.args(["apply", "--filename=-"]).env("KUBECONFIG", said("KUBECONFIG"));
            run(&mut kubectl, &topology.to_string()).is_ok()
        });
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        try_kubectl(&["delete", "crd", Self::KIND, "--ignore-not-found", "--wait=true"]).ok();
    }
}

fn zone(resources: &Value) -> Value {
    json!({"name": "node-0", "type": "Node", "resources": resources})
}

fn amounts(name: &str, amount: &str) -> Value {
    json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount})
}

#[test]
fn a_stolen_token_changes_no_resource_of_others_in_a_topology() {
    let colocation = Colocation::install();
    let topology = Topology::create("colocation-topology");
    let admission = "ValidatingAdmissionPolicy";
    let ours = amounts(CPU, "700");
    let others = |cpu: &str| json!({"zones": [zone(&json!([amounts("cpu", cpu), ours]))]});
    for (change, refused) in [
        (others("4"), ""),
        (json!({"zones": [zone(&json!([amounts("cpu", "4")]))]}), ""),
        (json!({"metadata": {"annotations": {"qosm.io/published-resources": CPU}}}), ""),
        (others("64"), admission),
        (json!({"zones": [zone(&json!([ours]))]}), admission),
        (json!({"zones": [zone(&json!([amounts("cpu", "4"), amounts("example.com/gpu", "8")]))]}), admission),
        (json!({"zones": []}), admission),
        (json!({"zones": null}), admission),
        (json!({"zones": [{"name": "node-0", "type": "Socket", "resources": [amounts("cpu", "4")]}]}), admission),
        (json!({"topologyPolicies": ["SingleNUMANodePodLevel"]}), admission),
        (json!({"attributes": []}), admission),
        (json!({"metadata": {"labels": {"a": "b"}}}), admission),
        (json!({"metadata": {"annotations": {"kubelet.koordinator.sh/cpu-manager-policy": "{}"}}}), admission),
        (json!({"metadata": {"annotations": {"qosm.io/published-resources": "example.com/gpu"}}}), admission),
    ] {
        let args = ["patch", Topology::KIND, topology.0, "--type=merge", "--dry-run=server", "--patch"];
        let patch = || colocation.stolen("qosm-controller", &[&args[..], &[&change.to_string()]].concat(), "");
        if refused.is_empty() {
            wait_until("what it has to do is allowed", || patch().is_ok());
        } else {
            // The admission policy may take a moment to come into force.
            wait_until("the rest is refused", || patch().is_err_and(|error| error.contains(refused)));
        }
    }
    let args = ["patch", Topology::KIND, topology.0, "--type=merge", "--dry-run=server", "--patch"];
    let said = colocation.stolen("qosm-agent", &[&args[..], &[&others("4").to_string()]].concat(), "").unwrap_err();
    assert!(said.contains("cannot"), "{said}");
}

/// The specification of the module that pins pods, from the chart.
fn cpu_topology() -> Value {
    let objects = rendered(&["--set", "policies.cpuTopology.enabled=true"]);
    let is_it = |object: &&Value| object["kind"] == "PolicyModule" && object["metadata"]["name"] == "cpu-topology";
    objects.iter().find(is_it).unwrap()["spec"].clone()
}

/// A report of two cores on one NUMA node.
fn two_cores() -> Value {
    let node = json!({"id": 0, "memoryBytes": 8_u64 << 30, "cores": [{"socket": 0, "threads": ["0-1"]}]});
    json!({"agentVersion": "test", "topology": {"cpuManager": "none", "numaNodes": [node]}})
}

#[test]
fn a_node_whose_agent_sees_cpus_has_a_topology_for_schedulers() {
    let _rules = Colocation::install_with(&[PUBLISHES]);
    let _kind = Topology::create("topology-kept");
    let (kept, other) = (EmptyNode::create("topology-kept"), EmptyNode::create("topology-other"));
    let _controller = Controller::start_with(&flags_with(&[PUBLISHES]));
    let module = Module::apply("cpu-topology", &cpu_topology());
    let agent = Agent::start();
    let made = wait_for("the node has one", || Topology::of(NODE));
    let annotation =
        |key: &str| -> Value { serde_json::from_str(made["metadata"]["annotations"][key].as_str().unwrap()).unwrap() };
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(annotation("node.koordinator.sh/cpu-topology")["detail"].as_array().unwrap().len(), cpus);
    let zone = &made["zones"][0];
    assert_eq!((&zone["name"], &zone["resources"][0]["name"]), (&json!("node-0"), &json!("cpu")), "{made}");
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], NODE);

    // No field of another program's object changes, and an object is removed when its agent no longer sees CPUs.
    let before = Topology::of(kept.0).unwrap();
    report(kept.0, &two_cores());
    report(other.0, &two_cores());
    wait_until("the other node has one", || Topology::of(other.0).is_some());
    assert_eq!(Topology::of(kept.0).unwrap(), before);
    report(other.0, &json!({"agentVersion": "test"}));
    drop(module);
    wait_until("it is removed when no CPUs are reported", || Topology::of(other.0).is_none());
    wait_until("it is removed when no policy sees CPUs", || Topology::of(NODE).is_none());
    drop(agent);
    assert_eq!(Topology::of(kept.0).unwrap(), before);
}

#[test]
fn a_stolen_token_makes_changes_and_removes_no_topology_but_the_controllers_own() {
    let rules = Colocation::install_with(&[PUBLISHES]);
    let topology = Topology::create("topology-stolen");
    let object = |name: &str, labels: Value| {
        json!({"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology",
            "metadata": {"name": name, "labels": labels}, "topologyPolicies": ["None"], "zones": []})
    };
    let tried = |args: &[&str], input: &Value| {
        rules.stolen("qosm-controller", &[args, &["--dry-run=server"]].concat(), &input.to_string())
    };
    let create = |labels: Value| tried(&["create", "--filename=-"], &object("topology-new", labels));
    let change = json!({"zones": [], "metadata": {"labels": {OWN: ""}}}).to_string();
    let patch = |name: &str| tried(&["patch", Topology::KIND, name, "--type=merge", "--patch", &change], &json!({}));
    let delete = |name: &str| tried(&["delete", Topology::KIND, name, "--wait=false"], &json!({}));
    apply(&object("topology-own", json!({OWN: ""})).to_string());
    wait_until("its own is allowed", || {
        create(json!({OWN: ""})).is_ok() && patch("topology-own").is_ok() && delete("topology-own").is_ok()
    });
    let is_refused =
        |outcome: Result<String, String>| outcome.is_err_and(|error| error.contains("ValidatingAdmissionPolicy"));
    wait_until("the rest is refused", || {
        is_refused(create(json!({}))) && is_refused(patch(topology.0)) && is_refused(delete(topology.0))
    });
    let said =
        rules.stolen("qosm-agent", &["delete", Topology::KIND, "topology-own", "--dry-run=server"], "").unwrap_err();
    assert!(said.contains("cannot"), "{said}");
}

#[test]
fn a_controller_that_withdraws_removes_what_an_earlier_one_made() {
    let _rules = Colocation::install_with(&[PUBLISHES]);
    let _kind = Topology::create("withdrawn-kept");
    let node = EmptyNode::create("withdrawn");
    report(node.0, &two_cores());
    let controller = Controller::start_with(&flags_with(&[PUBLISHES]));
    wait_until("the node has one", || Topology::of(node.0).is_some());
    drop(controller);
    let flags: Vec<String> = (flags_with(&[PUBLISHES]).into_iter())
        .map(|flag| if flag.starts_with("--node-topology") { "--node-topology=withdraw".to_owned() } else { flag })
        .collect();
    let _controller = Controller::start_with(&flags);
    wait_until("it is gone", || Topology::of(node.0).is_none());
    assert!(Topology::of("withdrawn-kept").is_some());
}
