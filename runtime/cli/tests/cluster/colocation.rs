//! The controller's part of colocation at a real API server: resources on nodes, evictions, the permissions of its token and of
//! an agent's, and pods that become batch pods at creation.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Controller, NAMESPACE, kubeconfig, rendered};
use crate::node::{BUSYBOX, NODE, apply, get, kubectl, run, said, try_kubectl};
use crate::waiting::{wait_for, wait_until};

pub(crate) const CPU: &str = "kubernetes.io/batch-cpu";
pub(crate) const MEMORY: &str = "kubernetes.io/batch-memory";
/// Namespace in which pods become batch pods.
pub(crate) const BATCH: &str = "colocation-batch";
/// Kinds of objects that the chart has only for colocation, besides roles.
const ADMISSION: [&str; 5] = [
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "PriorityClass",
];
const ROLES: [&str; 4] = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];

/// The chart's rules with colocation enabled; when dropped, the rules without it are applied again.
pub(crate) struct Colocation {
    folder: tempfile::TempDir,
    admission: Vec<(String, String)>,
}

impl Colocation {
    pub(crate) fn install() -> Self {
        Self::install_with(&[])
    }

    /// The same with more values of the chart.
    pub(crate) fn install_with(values: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Also installs the rest of the chart's rules.
        kubeconfig(folder.path(), "qosm-controller");
        let mut admission = Vec::new();
        for object in colocated_with(values) {
            let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            if ADMISSION.contains(&kind) {
                admission.push((kind.to_owned(), name.to_owned()));
            }
            if ADMISSION.contains(&kind) || ROLES.contains(&kind) {
                apply(&object.to_string());
            }
        }
        // kubectl reads the objects that it patches; agent and controller do not.
        let rules = json!([
            {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["get"]},
            {"apiGroups": ["qosm.io"], "resources": ["nodepolicyreports", "nodepolicyreports/status"], "verbs": ["get"]},
        ]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "colocation-test"}, "rules": rules});
        let subjects = ["qosm-agent", "qosm-controller"]
            .map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}));
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "colocation-test"}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "colocation-test"}});
        apply(&role.to_string());
        apply(&binding.to_string());
        // The namespace of an earlier test may still be terminating.
        wait_until("the namespace can be made", || {
            try_kubectl(&["get", "namespace", BATCH, "--output=jsonpath={.status.phase}"])
                .map_or(true, |phase| phase == "Active")
        });
        let labels = json!({"qosm.io/colocation": "batch"});
        apply(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BATCH, "labels": labels}})
                .to_string(),
        );
        wait_until("the namespace has its account", || {
            try_kubectl(&["get", "serviceaccount", "default", "-n", BATCH]).is_ok()
        });
        Self { folder, admission }
    }

    /// Runs kubectl with an account's token, as a thief of the token would. Returns its output.
    pub(crate) fn stolen(&self, account: &str, args: &[&str], input: &str) -> Result<String, String> {
        let kubeconfig = kubeconfig(self.folder.path(), account);
        run(Command::new(said("QOSM_KUBECTL")).args(args).env("KUBECONFIG", kubeconfig), input)
    }
}

impl Drop for Colocation {
    fn drop(&mut self) {
        let delete = |args: &[&str]| {
            try_kubectl(&[&["delete", "--ignore-not-found", "--wait=false"], args].concat()).ok();
        };
        for (kind, name) in &self.admission {
            if name != "qosm-agent-own-report" {
                delete(&[kind, name]);
            }
        }
        delete(&["clusterrole,clusterrolebinding", "colocation-test"]);
        delete(&["role,rolebinding", "qosm-controller-lease", "--namespace", NAMESPACE]);
        delete(&["namespace", BATCH]);
        for object in rendered(&[]) {
            if ROLES.contains(&object["kind"].as_str().unwrap()) {
                run(
                    Command::new(said("QOSM_KUBECTL"))
                        .args(["apply", "--filename=-"])
                        .env("KUBECONFIG", said("KUBECONFIG")),
                    &object.to_string(),
                )
                .ok();
            }
        }
    }
}

/// The chart with colocation enabled, for an API server with all the APIs that it uses.
pub(crate) fn colocated() -> Vec<Value> {
    colocated_with(&[])
}

fn colocated_with(values: &[&str]) -> Vec<Value> {
    let api = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy";
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    rendered(&[&["--set", "policies.colocation.enabled=true", "--api-versions", api], &values[..]].concat())
}

/// The flags that the chart gives its controller, with a Lease.
pub(crate) fn flags() -> Vec<String> {
    flags_with(&[])
}

/// The same with more values of the chart.
pub(crate) fn flags_with(values: &[&str]) -> Vec<String> {
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    let objects = rendered(&[&["--set", "policies.colocation.enabled=true"], &values[..]].concat());
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    let args = args.iter().map(|arg| arg.as_str().unwrap().to_owned());
    let flags: Vec<_> = args
        .filter(|arg| arg.starts_with("--") && !arg.starts_with("--metrics") && !arg.starts_with("--log"))
        .collect();
    assert!(flags.contains(&"--colocation".to_owned()), "{flags:?}");
    assert!(flags.contains(&"--lease=qosm-system/qosm-controller".to_owned()), "{flags:?}");
    flags
}

/// Writes a node's report as its agent does.
pub(crate) fn report(node: &str, status: &Value) {
    let mut object = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": node}});
    if try_kubectl(&["get", "nodepolicyreport", node]).is_err() {
        object["spec"] = json!({"node": node});
        apply(&object.to_string());
        object.as_object_mut().unwrap().remove("spec");
    }
    let mut status = status.clone();
    status["reportedAt"] = jiff::Timestamp::now().to_string().into();
    object["status"] = status;
    let mut kubectl = Command::new(said("QOSM_KUBECTL"));
    kubectl
        .args([
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=qosm",
            "--subresource=status",
            "--filename=-",
        ])
        .env("KUBECONFIG", said("KUBECONFIG"));
    let applied = run(&mut kubectl, &object.to_string());
    assert!(applied.is_ok(), "{applied:?}");
}

/// The controller's answer about one resource or pod.
pub(crate) fn answer(node: &str, list: &str, key: &str, name: &str) -> Option<Value> {
    let report = get(&["nodepolicyreport", node]);
    let answers = report["status"]["controller"][list].as_array()?.clone();
    answers.into_iter().find(|answer| answer[key] == name)
}

/// A node without a kubelet. Deleted when dropped, with its report.
pub(crate) struct EmptyNode(pub(crate) &'static str);

impl EmptyNode {
    pub(crate) fn create(name: &'static str) -> Self {
        apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).to_string());
        let amounts = json!({"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        kubectl(&["patch", "node", name, "--subresource=status", "--type=merge", "--patch", &status.to_string()]);
        Self(name)
    }

    fn amounts(&self, list: &str) -> Value {
        get(&["node", self.0])["status"][list].clone()
    }
}

impl Drop for EmptyNode {
    fn drop(&mut self) {
        try_kubectl(&["delete", "node", self.0, "--ignore-not-found", "--wait=false"]).ok();
        try_kubectl(&["delete", "nodepolicyreport", self.0, "--ignore-not-found", "--wait=false"]).ok();
    }
}

#[test]
fn stolen_tokens_neither_publish_nor_evict_beyond_their_job() {
    let colocation = Colocation::install();
    let node = EmptyNode::create("colocation-stolen");
    report(NODE, &json!({"agentVersion": "test"}));
    let patch = |account: &str, kind: &str, name: &str, patch: Value| {
        let args = ["patch", kind, name, "--subresource=status", "--type=merge", "--dry-run=server", "--patch"];
        match colocation.stolen(account, &[&args[..], &[&patch.to_string()]].concat(), "") {
            Ok(_) => "done".to_owned(),
            Err(error) => error,
        }
    };
    let publish = json!({"status": {"capacity": {CPU: "1000"}, "allocatable": {CPU: "1000"}},
        "metadata": {"annotations": {"qosm.io/published-resources": CPU}}});
    wait_until("the rules for the controller are in force", || {
        patch("qosm-controller", "node", node.0, publish.clone()) == "done"
            && patch("qosm-controller", "node", node.0, json!({"status": {"capacity": {"cpu": "9"}}})) != "done"
            && patch("qosm-controller", "nodepolicyreport", NODE, json!({"status": {"agentVersion": "9"}})) != "done"
            && patch(
                "qosm-agent",
                "nodepolicyreport",
                NODE,
                json!({"status": {"controller": {"at": "2026-01-01T00:00:00Z"}}}),
            ) != "done"
    });
    let admission = "denied request";
    for (account, kind, name, change, refused) in [
        ("qosm-controller", "node", node.0, publish.clone(), ""),
        ("qosm-controller", "node", node.0, json!({"status": {"allocatable": {"example.com/gpu": null}}}), admission),
        ("qosm-controller", "node", node.0, json!({"status": {"capacity": {"example.com/new": "1"}}}), admission),
        (
            "qosm-controller",
            "node",
            node.0,
            json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            admission,
        ),
        (
            "qosm-controller",
            "node",
            node.0,
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}}),
            admission,
        ),
        ("qosm-controller", "node", node.0, json!({"metadata": {"labels": {"a": "b"}}}), admission),
        ("qosm-controller", "node", node.0, json!({"metadata": {"annotations": {"a": "b"}}}), admission),
        ("qosm-controller", "node", node.0, json!({"metadata": {"finalizers": ["a.example.com/b"]}}), admission),
        (
            "qosm-controller",
            "node",
            node.0,
            json!({"metadata": {"annotations": {"qosm.io/published-resources": "example.com/gpu"}}}),
            admission,
        ),
        (
            "qosm-controller",
            "nodepolicyreport",
            NODE,
            json!({"status": {"controller": {"resources": [], "evictions": []}}}),
            "",
        ),
        (
            "qosm-controller",
            "nodepolicyreport",
            NODE,
            json!({"status": {"resources": [{"name": CPU, "amount": 5}]}}),
            admission,
        ),
        ("qosm-agent", "node", node.0, publish.clone(), "cannot patch resource"),
        ("qosm-agent", "node", NODE, publish.clone(), "cannot patch resource"),
        ("qosm-agent", "nodepolicyreport", NODE, json!({"status": {"agentVersion": "9"}}), ""),
        (
            "qosm-agent",
            "nodepolicyreport",
            NODE,
            json!({"status": {"controller": {"resources": [{"name": CPU, "amount": 5, "inForce": true}]}}}),
            admission,
        ),
    ] {
        let said = patch(account, kind, name, change.clone());
        let as_expected = if refused.is_empty() { said == "done" } else { said.contains(refused) };
        assert!(as_expected, "{account}, {kind} {name}, {change}: {said}");
    }
    let evict = |account: &str, namespace: &str, preconditions: Value| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "p", "namespace": namespace}, "deleteOptions": {"preconditions": preconditions}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/p/eviction");
        colocation.stolen(account, &["create", "--raw", &path, "--filename=-"], &eviction.to_string()).unwrap_err()
    };
    let of_one = json!({"uid": "u"});
    let said = evict("qosm-agent", "default", of_one.clone());
    assert!(said.contains("cannot create resource \"pods/eviction\""), "{said}");
    let said = evict("qosm-controller", "kube-system", of_one.clone());
    assert!(said.contains("protectedNamespaces"), "{said}");
    let said = evict("qosm-controller", "default", json!({}));
    assert!(said.contains("without its UID"), "{said}");
    let said = evict("qosm-controller", "default", of_one);
    assert!(said.contains("NotFound"), "{said}");
}

/// A pod with one container that sleeps.
pub(crate) fn waiting_pod(name: &str, namespace: &str, resources: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
    "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "tolerations": [{"operator": "Exists"}], "containers": [{
        "name": "app", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "3600"], "resources": resources,
    }]}})
}

/// The pod as the API server would store it, by a dry run.
pub(crate) fn admitted(pod: &Value) -> Result<Value, String> {
    let mut kubectl = Command::new(said("QOSM_KUBECTL"));
    kubectl.args(["create", "--dry-run=server", "--output=json", "--filename=-"]).env("KUBECONFIG", said("KUBECONFIG"));
    Ok(serde_json::from_str(&run(&mut kubectl, &pod.to_string())?).unwrap())
}

#[test]
fn pods_of_a_profile_become_batch_pods_and_others_are_not_touched() {
    let _colocation = Colocation::install();
    let plain = json!({"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "1.5", "memory": "2Gi"}});
    let is_batch = |pod: &Value| pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE";
    let pod = waiting_pod("p", BATCH, plain.clone());
    let became = wait_for("the profile is in force", || admitted(&pod).ok().filter(is_batch));
    let spec = &became["spec"];
    assert_eq!(became["metadata"]["annotations"]["qosm.io/colocation-profile"], "batch");
    assert_eq!((&spec["priorityClassName"], &spec["priority"]), (&"koord-batch".into(), &5500.into()));
    let mib = |mib: u64| Value::from((mib << 20).to_string());
    assert_eq!(
        spec["containers"][0]["resources"],
        json!({"requests": {CPU: "250", MEMORY: mib(1024)}, "limits": {CPU: "1500", MEMORY: mib(2048)}})
    );

    // Init containers, containers without resources, existing batch amounts, and unusual quantities.
    let mut odd = waiting_pod(
        "p",
        BATCH,
        json!({"requests": {"cpu": "0.1", "memory": "1e3"}, "limits": {CPU: "700", "cpu": "1"}}),
    );
    odd["spec"]["initContainers"] = json!([{"name": "init", "image": BUSYBOX, "resources": {"limits": {"cpu": "1"}}}]);
    odd["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "none", "image": BUSYBOX}));
    odd["spec"]["priorityClassName"] = "koord-prod".into();
    let became = admitted(&odd).unwrap();
    let spec = &became["spec"];
    assert_eq!(spec["initContainers"][0]["resources"], json!({"limits": {CPU: "1k"}, "requests": {CPU: "1k"}}));
    assert_eq!(spec["containers"][0]["resources"]["limits"], json!({CPU: "700"}));
    assert_eq!(spec["containers"][0]["resources"]["requests"], json!({CPU: "700", MEMORY: "1k"}));
    assert_eq!(spec["containers"][1]["resources"], json!({}));
    assert_eq!(spec["priorityClassName"], "koord-batch");

    // The namespace's defaults are converted as well.
    let defaults = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults", "namespace": BATCH},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2", "memory": "4Gi"}, "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}]}});
    apply(&defaults.to_string());
    let became = wait_for("the defaults apply", || {
        let pod = admitted(&waiting_pod("p", BATCH, json!({}))).ok()?;
        (pod["spec"]["containers"][0]["resources"] != json!({})).then_some(pod)
    });
    assert_eq!(
        became["spec"]["containers"][0]["resources"],
        json!({"requests": {CPU: "100", MEMORY: mib(1024)}, "limits": {CPU: "2k", MEMORY: mib(4096)}})
    );
    kubectl(&["delete", "limitrange", "defaults", "--namespace", BATCH]);

    // Pods that no profile selects.
    let mut classed = pod.clone();
    classed["metadata"]["labels"]["koordinator.sh/qosClass"] = "LS".into();
    let mut classed_by_ack = pod.clone();
    classed_by_ack["metadata"]["labels"]["alibabacloud.com/qosClass"] = "LS".into();
    let mut annotated = pod.clone();
    annotated["metadata"]["annotations"] = json!({"koordinator.sh/qosClass": "LSR"});
    let mut daemon = pod.clone();
    daemon["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]);
    let mut as_a_whole = pod.clone();
    as_a_whole["spec"]["resources"] = json!({"limits": {"cpu": "2", "memory": "2Gi"}});
    for (case, pod) in [
        ("another namespace", waiting_pod("p", "default", plain.clone())),
        ("the agents' namespace", waiting_pod("p", NAMESPACE, plain.clone())),
        ("another class", classed),
        ("another class by ack-koordinator's label", classed_by_ack),
        ("another class by annotation", annotated),
        ("a DaemonSet's", daemon),
        ("resources of the pod as a whole", as_a_whole),
    ] {
        let became = admitted(&pod).unwrap_or_else(|error| unreachable!("{case}: {error}"));
        assert!(!is_batch(&became), "{case}");
        assert_eq!(became["metadata"]["labels"], pod["metadata"]["labels"], "{case}");
        assert_eq!(became["metadata"]["annotations"].get("qosm.io/colocation-profile"), None, "{case}");
        let resources = &became["spec"]["containers"][0]["resources"];
        assert!(
            resources["requests"].get(CPU).is_none() && resources["requests"]["cpu"] == "250m",
            "{case}: {resources}"
        );
    }
}

#[test]
fn resources_of_reports_stand_on_their_nodes_until_they_are_stale() {
    let _colocation = Colocation::install();
    let node = EmptyNode::create("colocation-published");
    let controller = Controller::start_with(&flags());
    let wanted = |stale: u32| {
        json!({"resourcesStaleAfterSeconds": stale, "resources": [
            {"name": CPU, "amount": 1500, "policy": "p", "reason": "r"},
            {"name": MEMORY, "amount": 9_000_000_000_000_u64, "policy": "p", "reason": "r"},
            {"name": "example.com/gpu", "amount": 7, "policy": "p", "reason": "r"},
        ]})
    };
    report(node.0, &wanted(900));
    wait_until("the resources stand on the node", || node.amounts("capacity")[CPU] == "1500");
    for list in ["capacity", "allocatable"] {
        let amounts = node.amounts(list);
        let bound = (8_u64 << 30).to_string();
        assert_eq!((&amounts[MEMORY], &amounts["example.com/gpu"]), (&bound.into(), &"1".into()), "{list}: {amounts}");
        assert_eq!((&amounts["cpu"], &amounts["memory"]), (&"4".into(), &"8Gi".into()), "{list}");
    }
    wait_until("the report is answered", || {
        answer(node.0, "resources", "name", CPU).is_some_and(|answer| answer["inForce"] == true)
    });
    let refused = answer(node.0, "resources", "name", "example.com/gpu").unwrap();
    assert!(refused["message"].as_str().unwrap().contains("colocation.resourceNames"), "{refused}");
    let bounded = answer(node.0, "resources", "name", MEMORY).unwrap();
    assert!(bounded["inForce"] == false && bounded["amount"] == 8_u64 << 30, "{bounded}");

    // The agent writes again; its write keeps the answer.
    report(node.0, &wanted(4));
    assert!(answer(node.0, "resources", "name", CPU).is_some());
    // Then the agent is silent.
    wait_until("a stale resource is withdrawn", || node.amounts("capacity").get(CPU).is_none());
    let left = get(&["node", node.0]);
    assert_eq!(left["metadata"]["annotations"].get("qosm.io/published-resources"), None, "{left}");
    for list in ["capacity", "allocatable"] {
        assert_eq!(left["status"][list], json!({"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"}), "{list}");
    }

    // The agent comes back; then agent and controller end, and the next controller finds resources that no agent reports.
    report(node.0, &wanted(900));
    wait_until("a report that is fresh again counts", || node.amounts("capacity")[CPU] == "1500");
    drop(controller);
    kubectl(&["delete", "nodepolicyreport", node.0]);
    let controller = Controller::start_with(&flags());
    wait_until("what nobody claims is withdrawn", || node.amounts("allocatable").get(CPU).is_none());
    drop(controller);
}

#[test]
fn of_two_controllers_one_acts_and_the_other_takes_over() {
    let _colocation = Colocation::install();
    let node = EmptyNode::create("colocation-lease");
    let holder = || get(&["lease", "qosm-controller", "--namespace", NAMESPACE])["spec"]["holderIdentity"].clone();
    let mut first = Controller::start_with(&flags());
    report(node.0, &json!({"resources": [{"name": CPU, "amount": 1000, "policy": "p", "reason": "r"}]}));
    wait_until("the first acts", || node.amounts("capacity")[CPU] == "1k");
    let held_by = holder();
    let second = Controller::start_with(&flags());
    report(node.0, &json!({"resources": [{"name": CPU, "amount": 900, "policy": "p", "reason": "r"}]}));
    wait_until("the first acts still", || node.amounts("capacity")[CPU] == "900");
    assert_eq!(holder(), held_by);
    assert!(!second.log().contains("acts=true"), "{}", second.log());
    first.kill();
    report(node.0, &json!({"resources": [{"name": CPU, "amount": 800, "policy": "p", "reason": "r"}]}));
    wait_until("the second takes over", || node.amounts("capacity")[CPU] == "800");
    assert_ne!(holder(), held_by);
}

#[test]
fn a_batch_pod_waits_for_the_published_resource_and_is_evicted_as_the_budget_allows() {
    let _colocation = Colocation::install();
    let _controller = Controller::start_with(&flags());
    // No requests yet.
    report(NODE, &json!({}));
    let pod = waiting_pod(
        "batch",
        BATCH,
        json!({"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}),
    );
    wait_until("the profile is in force", || {
        admitted(&pod).is_ok_and(|pod| pod["spec"]["priorityClassName"] == "koord-batch")
    });
    apply(&pod.to_string());
    let found = || get(&["pod", "batch", "--namespace", BATCH]);
    wait_until("the scheduler finds no node for it", || {
        let conditions = found()["status"]["conditions"].to_string();
        conditions.contains("Unschedulable") && conditions.contains("Insufficient kubernetes.io/batch-cpu")
    });
    let resources = json!([
        {"name": CPU, "amount": 500, "policy": "p", "reason": "r"},
        {"name": MEMORY, "amount": 1_u64 << 29, "policy": "p", "reason": "r"},
    ]);
    report(NODE, &json!({"resources": resources}));
    wait_until("it runs on what was published", || found()["status"]["phase"] == "Running");
    let running = found();
    assert_eq!((&running["spec"]["nodeName"], &running["status"]["qosClass"]), (&NODE.into(), &"BestEffort".into()));

    // A PodDisruptionBudget forbids its eviction; then the budget is deleted.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "batch", "namespace": BATCH},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "batch"}}}});
    apply(&budget.to_string());
    wait_until("the budget counts the pod", || {
        get(&["poddisruptionbudget", "batch", "--namespace", BATCH])["status"]["expectedPods"] == 1
    });
    let uid = running["metadata"]["uid"].as_str().unwrap();
    let eviction = |uid: &str, name: &str| {
        json!({"uid": uid, "namespace": BATCH, "name": name, "policy": "eviction", "urgency": "soon",
        "reason": "BECPUEvict", "message": "BE has 12 % of what it asked for"})
    };
    let other = "00000000-0000-0000-0000-000000000000";
    report(NODE, &json!({"resources": resources, "evictions": [eviction(uid, "batch"), eviction(other, "batch")]}));
    wait_until("the refusal is told", || {
        answer(NODE, "evictions", "uid", uid).is_some_and(|answer| {
            answer["outcome"] == "refused" && answer["message"].as_str().unwrap().contains("PodDisruptionBudget")
        })
    });
    assert_eq!(answer(NODE, "evictions", "uid", other).unwrap()["outcome"], "gone", "another UID is another pod");
    assert_eq!(found()["metadata"]["uid"], uid);
    kubectl(&["delete", "poddisruptionbudget", "batch", "--namespace", BATCH]);
    wait_until("the pod is evicted", || try_kubectl(&["get", "pod", "batch", "--namespace", BATCH]).is_err());
    wait_until("which is told", || {
        answer(NODE, "evictions", "uid", uid).is_some_and(|answer| answer["outcome"] == "gone")
    });
    let events = kubectl(&["get", "events", "--namespace", BATCH]);
    assert!(events.contains("evictPodFail") && events.contains("evictPodSuccess"), "{events}");

    report(NODE, &json!({}));
    wait_until("what is no longer asked for is withdrawn", || {
        get(&["node", NODE])["status"]["capacity"].get(CPU).is_none()
    });
}

#[test]
fn without_colocation_nobody_has_a_right_to_it_and_with_it_the_controller_alone() {
    let verbs = |objects: &[Value], account: &str| -> Vec<String> {
        let roles = objects.iter().filter(|object| ["ClusterRole", "Role"].contains(&object["kind"].as_str().unwrap()));
        let of_account = roles.filter(|role| role["metadata"]["name"].as_str().unwrap().starts_with(account));
        let rules = of_account.flat_map(|role| role["rules"].as_array().unwrap().clone());
        let words =
            |value: &Value| value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
        rules
            .flat_map(|rule| {
                let (resources, verbs): (Vec<String>, Vec<String>) = (words(&rule["resources"]), words(&rule["verbs"]));
                resources
                    .into_iter()
                    .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| format!("{verb} {resource}")))
            })
            .collect()
    };
    let rights = ["patch nodes/status", "create pods/eviction", "get pods", "update leases"];
    let (without, with) = (rendered(&[]), colocated());
    for right in rights {
        let has = |objects: &[Value], account: &str| verbs(objects, account).contains(&right.to_owned());
        assert!(!has(&without, "qosm-agent") && !has(&with, "qosm-agent"), "an agent may {right}");
        assert!(!has(&without, "qosm-controller") && has(&with, "qosm-controller"), "the controller, {right}");
    }
    let kinds = |objects: &[Value], kind: &str| objects.iter().filter(|object| object["kind"] == kind).count();
    for (kind, more) in [("MutatingAdmissionPolicy", 1), ("PriorityClass", 4), ("ValidatingAdmissionPolicy", 4)] {
        assert_eq!(kinds(&with, kind) - kinds(&without, kind), more, "{kind}");
    }
    let never = rendered(&["--set", "policies.colocation.enabled=true", "--set", "controller.colocation=never"]);
    assert!(!verbs(&never, "qosm-controller").contains(&rights[0].to_owned()));
}
