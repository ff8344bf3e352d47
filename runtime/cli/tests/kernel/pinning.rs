//! Exclusive CPUs on a real kernel: chosen, held, remembered, and released. With the pod's memory on another NUMA node:
//! [`locality`](crate::locality).

use std::fs;
use std::io::Write as _;

use qosm_model::cpus::CpuSet;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{APP, Node, PATIENT_MILLIS, POD};
use crate::waiting::{wait_for, wait_until};

const FIRST: &str = "kubepods/burstable/podu-first/app";
/// The container of a pod that shares CPUs with others.
const SHARING: &str = "kubepods/burstable/podu-sharing/app";

/// Writes the manifest of a pod in the namespace `default` with this CPU request and limit.
pub(crate) fn pod(node: &Node, name: &str, cpu: &str, annotations: &Value) {
    write(node, name, "LSR", cpu, annotations);
}

fn write(node: &Node, name: &str, class: &str, cpu: &str, annotations: &Value) {
    let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}"), "annotations": annotations},
        "spec": {"containers": [{"name": "app", "resources": resources}]},
        "status": {"phase": "Running", "qosClass": "Burstable"},
    });
    // A pod with the annotation has no class.
    if annotations["cpuset-scheduler"].is_null() {
        pod["metadata"]["labels"] = json!({"koordinator.sh/qosClass": class});
    }
    node.write(&format!("pods/{name}.json"), &pod.to_string());
}

/// A node with three running pods, without their manifests.
struct Pinned {
    node: Node,
    all: CpuSet,
}

impl Pinned {
    /// Creates the node; `None` if there is only one CPU, since none would be left to share.
    fn new(test: &str) -> Option<Self> {
        let all: CpuSet = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().parse().unwrap();
        if all.len() < 2 {
            let _ = writeln!(std::io::stdout(), "not run: {test}, for it takes two CPUs");
            return None;
        }
        let mut node = Node::new();
        let groups = [FIRST, APP, SHARING];
        groups.iter().for_each(|group| node.cgroups.make(group));
        node.cgroups.make_cpusets(&groups);
        groups.iter().for_each(|group| node.cgroups.load(group, "exec sleep 100000"));
        let policy = json!({"name": "cpu-topology", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS});
        node.agent_config(&json!({"policies": [policy]}));
        write(&node, "sharing", "LS", "1", &json!({}));
        Some(Self { node, all })
    }

    /// The CPUs that a container's process may run on, according to the kernel.
    fn allowed(&self, group: &str) -> CpuSet {
        let file = self.node.cgroups.file(group, "cpu.stat").with_file_name("cgroup.procs");
        let process = fs::read_to_string(file).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", process.lines().next().unwrap())).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        list.trim().parse().unwrap()
    }

    /// Waits until a container has exactly one CPU, and returns it.
    #[track_caller]
    fn wait_for_its_own(&self, group: &str) -> CpuSet {
        wait_for("a CPU of its own", || Some(self.allowed(group)).filter(|cpus| cpus.len() == 1))
    }

    #[track_caller]
    fn wait_until_shared(&self, cpus: CpuSet) {
        wait_until("the others to share the rest", || self.allowed(SHARING) == cpus);
    }
}

#[test]
fn a_pod_has_cpus_of_its_own_and_keeps_them_and_the_others_share_the_rest() {
    let name = "a_pod_has_cpus_of_its_own_and_keeps_them_and_the_others_share_the_rest";
    let Some(mut pinned) = Pinned::new(name) else { return };
    let before = pinned.node.cgroups.knobs();
    pod(&pinned.node, "first", "1", &json!({}));
    let agent = Agent::start(&pinned.node);
    let first = pinned.wait_for_its_own(FIRST);
    pinned.wait_until_shared(pinned.all.minus(&first));

    pod(&pinned.node, "web", "1", &json!({"cpuset-scheduler": "true"}));
    let own = pinned.wait_for_its_own(APP);
    assert_ne!(own, first);
    // The exclusive CPU is the limit, so there is no quota.
    wait_until("the quotas", || [POD, APP].iter().all(|group| pinned.node.cgroups.quota(group) == -1));
    let explained = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(explained.contains("cpuset.cpus") && explained.contains("cpu-topology"), "{explained}");

    // A new choice would give the pod the CPU that is free again and came first before.
    agent.kill();
    fs::remove_file(pinned.node.path("pods/first.json")).unwrap();
    pinned.node.cgroups.calm();
    for group in [FIRST, "kubepods/burstable/podu-first"] {
        pinned.node.cgroups.remove(group);
    }
    for group in [APP, SHARING] {
        pinned.node.cgroups.load(group, "exec sleep 100000");
    }
    let agent = Agent::start(&pinned.node);
    pinned.wait_until_shared(pinned.all.minus(&own));
    assert_eq!(pinned.allowed(APP), own);

    agent.terminate();
    assert_eq!([pinned.allowed(APP), pinned.allowed(SHARING)], [pinned.all, pinned.all]);
    let mut expected = before;
    expected.retain(|file, _| file.exists());
    assert_eq!(pinned.node.cgroups.knobs(), expected);
}

#[test]
fn cpus_that_the_kubelet_gave_are_the_kubelets() {
    let Some(pinned) = Pinned::new("cpus_that_the_kubelet_gave_are_the_kubelets") else { return };
    let first = pinned.all.iter().next().unwrap();
    let given = CpuSet::of(&[first]).unwrap();
    let rest = pinned.all.minus(&given);
    let file = pinned.node.cgroups.file(APP, "cpuset.cpus");
    fs::write(&file, given.to_string()).unwrap();
    fs::create_dir(pinned.node.path("kubelet")).unwrap();
    let state = |entries: Value, default: CpuSet| {
        let state =
            json!({"policyName": "static", "defaultCpuSet": default.to_string(), "entries": entries, "checksum": 1});
        pinned.node.write("kubelet/cpu_manager_state", &state.to_string());
    };
    state(json!({"u-web": {"app": given.to_string()}}), rest);
    pod(&pinned.node, "web", "1", &json!({"cpuset-scheduler": "true"}));
    let kubelet = pinned.node.path("kubelet").display().to_string();
    let agent = Agent::start_with(&pinned.node, &[("--kubelet-root", &kubelet)]);
    pinned.wait_until_shared(rest);
    assert_eq!(pinned.allowed(APP), given);
    assert!(agent.held("container", "cpuset.cpus").is_null(), "{}", agent.explain());

    agent.terminate();
    assert_eq!((pinned.allowed(APP), pinned.allowed(SHARING)), (given, pinned.all));
}
