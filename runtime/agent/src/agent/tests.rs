//! Tests that need the steps of a whole agent, on a simulated node with the test's own clock.

use std::sync::{Arc, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_engine::Engine;
use qosm_host::simulated::{Spec, Versions};
use qosm_host::{Controller, Host};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Holder, Priority, Timestamp};
use qosm_model::pod::{ContainerId, Tier};
use qosm_model::unit::Micros;
use qosm_nri::fake_runtime::reply;
use qosm_nri::{PodSandbox, RunningContainer, RuntimeEvent};
use serde_json::json;

use crate::agent::{Agent, AgentOptions};
use crate::config::AgentConfig;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::nri::{RuntimeLink, RuntimeMessage};
use crate::sources::Sources;
use crate::step::Mode;

const QUOTA: (Target, Knob) = (Target::Container(ContainerId(1)), Knob::CfsQuota);

/// An agent on a node with a pod that has a lease on a quota of 200 ms.
struct Node {
    agent: Agent,
    seconds: u32,
}

impl Node {
    fn new() -> Self {
        let mut host = Host::simulated(&Spec::default()).unwrap();
        for path in ["kubepods/burstable/podu", "kubepods/burstable/podu/app"] {
            host.create(path).unwrap();
        }
        Self::on(host)
    }

    fn on(host: Host) -> Self {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        let agent = Agent::new(AgentOptions {
            host,
            engine: ENGINE.get_or_init(|| Engine::new().unwrap()).clone(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: None,
            metrics: Arc::new(Metrics::default()),
        })
        .unwrap();
        Self { agent, seconds: 1 }
    }

    fn now(&self) -> Now {
        let monotonic = Micros(u64::from(self.seconds) * 1_000_000);
        Now { wall: Timestamp(i64::from(self.seconds) * 1000), monotonic, ..Now::default() }
    }

    /// The pod as the sources have it from now on.
    fn pod(&mut self, annotations: &serde_json::Value) {
        self.pod_with(annotations, &json!({"phase": "Running"}));
    }

    fn pod_with(&mut self, annotations: &serde_json::Value, status: &serde_json::Value) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "annotations": annotations},
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}}]},
            "status": status});
        let objects = qosm_cluster::parse_objects(&pod.to_string(), "pod.json");
        assert!(objects.problems.is_empty(), "{:?}", objects.problems);
        self.agent.update(Sources::from(objects), self.now());
    }

    fn want(&mut self) {
        let (holder, now) = (Holder { policy: "a".into(), priority: Priority(1) }, self.now().wall);
        self.agent.ledger().lease(&holder, QUOTA, Value::Number(200_000), now);
    }

    /// The runtime announces that the pod's container is about to start in this cgroup. Returns whether it waits for the next step.
    fn starts(&mut self, uid: &str, id: &str, cgroup: &str) -> bool {
        let link = RuntimeLink::Connected { runtime: "containerd".to_owned(), version: "v2".to_owned() };
        let now = self.now();
        assert!(self.agent.take_runtime_message(RuntimeMessage::Link(link), now).is_none());
        let pod = PodSandbox { uid: uid.to_owned(), namespace: "default".to_owned(), name: "web".to_owned() };
        let (id, name, cgroup) = (id.to_owned(), "app".to_owned(), Some(cgroup.to_owned()));
        let container = RunningContainer { id, name, cgroup, pod };
        let (reply, mut replied) = reply();
        let event = RuntimeEvent::Starting(container, reply);
        let waits = self.agent.take_runtime_message(RuntimeMessage::Event(event), now);
        let is_held = waits.is_some() && replied.try_recv().is_err();
        drop(waits);
        assert!(replied.try_recv().is_ok(), "the reply goes out with the step");
        is_held
    }

    /// The container of the pod whose cgroup is open, and the path of that cgroup.
    fn container(&mut self) -> Option<(Target, String)> {
        let ids: Vec<_> = self.agent.pods.iter().flat_map(|entry| &entry.containers).map(|one| one.id).collect();
        let mut targets = ids.into_iter().map(Target::Container);
        targets.find_map(|target| Some((target, self.agent.host_mut().attached_path(target)?.to_owned())))
    }

    fn path(&mut self) -> Option<String> {
        self.container().map(|(_, path)| path)
    }

    fn tick(&mut self) {
        self.seconds += 1;
        let now = self.now();
        self.agent.step(now);
    }

    /// The quota after a step `seconds` later.
    fn step(&mut self, seconds: u32) -> Value {
        self.seconds += seconds - 1;
        self.tick();
        self.agent.host_mut().read(QUOTA.0, QUOTA.1).unwrap()
    }

    fn pause_shown(&self) -> Option<String> {
        self.agent.pod_reports(self.now()).remove(0).paused
    }
}

#[test]
fn a_pause_on_an_operators_word_ends_by_itself_at_its_time() {
    let mut node = Node::new();
    node.pod(&json!({}));
    node.step(1);
    let until = Timestamp(node.now().wall.0 + 5000);
    assert!(node.agent.set_pause("default/web", Some(Some(until)), node.now()).unwrap());
    node.want();
    assert_eq!(node.step(1), Value::Max);
    assert!(node.pause_shown().is_some());
    assert_eq!(node.step(3), Value::Max, "a second before its end");
    assert_eq!(node.step(2), Value::Number(200_000));
    assert_eq!(node.pause_shown(), None);
}

#[test]
fn a_pause_by_annotation_ends_with_the_annotation() {
    let mut node = Node::new();
    node.pod(&json!({"qosm.io/paused": "true"}));
    node.want();
    for _ in 0..5 {
        assert_eq!(node.step(1), Value::Max);
    }
    assert_eq!(node.pause_shown().as_deref(), Some("by annotation"));
    node.pod(&json!({}));
    assert_eq!(node.step(1), Value::Number(200_000));
}

#[test]
fn a_pause_keeps_what_is_held_and_what_is_released_meanwhile_comes_back_after_it() {
    let mut node = Node::new();
    node.pod(&json!({}));
    node.step(1);
    node.want();
    assert_eq!(node.step(1), Value::Number(200_000));
    node.agent.set_pause("default/web", Some(None), node.now()).unwrap();
    node.agent.ledger().unlease("a", QUOTA);
    assert_eq!(node.step(600), Value::Number(200_000), "nothing is written, not even a baseline");
    node.agent.set_pause("default/web", None, node.now()).unwrap();
    assert_eq!(node.step(1), Value::Max);
}

/// kubernetes/kubernetes: the kubelet creates a pod's cgroup in one v1 hierarchy after the other, and a watcher sees it in between.
#[test]
fn a_cgroup_is_opened_once_all_hierarchies_have_it_or_two_seconds_later() {
    const BURSTABLE: Target = Target::Tier(Tier::Burstable);
    let mut host = Host::simulated(&Spec { versions: Versions::V1, ..Spec::default() }).unwrap();
    host.create("kubepods").unwrap();
    let mut node = Node::on(host);
    node.pod(&json!({}));
    let make = |node: &mut Node, controller, path: &str| {
        node.agent.host_mut().simulated_mut().unwrap().ensure_cgroup_of(controller, path).unwrap();
        node.tick();
    };
    for controller in [Controller::Cpuset, Controller::Memory] {
        make(&mut node, controller, "kubepods/burstable");
        assert_eq!(node.agent.host_mut().attached_path(BURSTABLE), None, "{controller:?}");
    }
    // The other hierarchies take longer than the agent waits for.
    node.tick();
    node.tick();
    assert_eq!(node.agent.host_mut().attached_path(BURSTABLE), Some("kubepods/burstable"));
    node.agent.host_mut().create("kubepods/burstable").unwrap();

    let pod = node.agent.pods.iter().next().unwrap().id;
    for controller in [Controller::Cpuset, Controller::Memory, Controller::Cpu] {
        make(&mut node, controller, "kubepods/burstable/podu");
        assert_eq!(node.agent.host_mut().attached_path(Target::Pod(pod)), None, "{controller:?}");
        node.seconds -= 1;
    }
    make(&mut node, Controller::Cpuacct, "kubepods/burstable/podu");
    assert_eq!(node.agent.host_mut().attached_path(Target::Pod(pod)), Some("kubepods/burstable/podu"));
    node.agent.host_mut().group_counters(Target::Pod(pod)).unwrap();
}

const NOT_STARTED: &str = r#"{"phase": "Pending", "containerStatuses": []}"#;

#[test]
fn a_container_has_its_settings_before_its_first_instruction_wherever_its_runtime_puts_it() {
    let mut node = Node::new();
    let not_started = serde_json::from_str(NOT_STARTED).unwrap();
    node.pod_with(&json!({}), &not_started);
    node.tick();
    // A name that the agent's search for cgroups does not know.
    let cgroup = "kubepods/burstable/podu/of-a-runtime-to-come";
    node.agent.host_mut().create(cgroup).unwrap();
    assert!(node.starts("u", "abc", cgroup));
    // No tick: the container waits.
    let now = node.now();
    node.agent.react(now);
    let (container, path) = node.container().unwrap();
    assert_eq!(path, cgroup);

    // A second later the status has it as well: it is the same container.
    let running = json!({"phase": "Running", "containerStatuses":
        [{"name": "app", "containerID": "containerd://abc", "state": {"running": {}}}]});
    node.pod_with(&json!({}), &running);
    node.tick();
    assert_eq!(node.container(), Some((container, cgroup.to_owned())));
    // The container ends and another takes its place, which the status does not show yet.
    let next = "kubepods/burstable/podu/next";
    node.agent.host_mut().create(next).unwrap();
    assert!(node.starts("u", "next", next));
    let now = node.now();
    node.agent.react(now);
    let (other, path) = node.container().unwrap();
    assert_eq!(path, next);
    assert_ne!(other, container, "the one before is gone");
    // The runtime is away, and the status is right again.
    let away = RuntimeLink::Away { socket: "nri.sock".to_owned(), why: "it ended".to_owned() };
    let now = node.now();
    node.agent.take_runtime_message(RuntimeMessage::Link(away.clone()), now);
    assert_eq!(node.agent.runtime_link(), away);
    assert!(
        node.agent.problems()[0].starts_with("container runtime at nri.sock: not connected by NRI"),
        "{:?}",
        node.agent.problems()
    );
    node.pod_with(&json!({}), &not_started);
    node.tick();
    assert_eq!(node.path().as_deref(), Some(next), "what a status does not know yet still runs");
}

#[test]
fn a_runtimes_word_gives_no_pod_the_cgroup_of_another() {
    let mut node = Node::new();
    node.pod_with(&json!({}), &serde_json::from_str(NOT_STARTED).unwrap());
    node.agent.host_mut().create("kubepods/burstable/podother/abc").unwrap();
    assert!(node.starts("u", "abc", "kubepods/burstable/podother/abc"));
    node.tick();
    assert_eq!(node.container(), None);
}

#[test]
fn a_container_whose_pod_comes_later_does_not_wait_and_is_known_by_then() {
    let mut node = Node::new();
    node.tick();
    node.agent.host_mut().create("kubepods/burstable/podu/abc").unwrap();
    assert!(!node.starts("u", "abc", "kubepods/burstable/podu/abc"));
    node.pod_with(&json!({}), &serde_json::from_str(NOT_STARTED).unwrap());
    node.tick();
    assert_eq!(node.path().as_deref(), Some("kubepods/burstable/podu/abc"));
}

#[test]
fn a_container_that_is_gone_before_its_settings_arrive_is_no_problem() {
    let mut node = Node::new();
    node.pod_with(&json!({}), &serde_json::from_str(NOT_STARTED).unwrap());
    assert!(node.starts("u", "gone", "kubepods/burstable/podu/gone"));
    let now = node.now();
    node.agent.react(now);
    assert_eq!(node.container(), None);
    let stopped = RuntimeMessage::Event(RuntimeEvent::Stopped("gone".to_owned()));
    assert!(node.agent.take_runtime_message(stopped, now).is_none());
    node.tick();
    assert!(node.agent.problems().is_empty(), "{:?}", node.agent.problems());
}

#[test]
fn the_last_good_text_of_a_configmap_counts_after_a_restart_until_its_key_is_removed() {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let folder = tempfile::tempdir().unwrap();
    // What an agent reads, that is started beside a ConfigMap with this data.
    let read = |data: serde_json::Value| {
        let dir = Dir::open_ambient_dir(folder.path(), ambient_authority()).unwrap();
        let mut agent = Agent::new(AgentOptions {
            host: Host::simulated(&Spec::default()).unwrap(),
            engine: ENGINE.get_or_init(|| Engine::new().unwrap()).clone(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: Some(Journal::open(&dir, folder.path(), "boot").unwrap()),
            metrics: Arc::new(Metrics::default()),
        })
        .unwrap();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"}, "data": data});
        let objects = qosm_cluster::parse_objects(&map.to_string(), "map.json");
        agent.update(Sources::from(objects), Now::default());
        agent.observed.cluster_config().get("colocation-config").map(|key| key.text.clone())
    };
    let (good, broken) = (r#"{"enable": true}"#, r#"{"enable": true"#);
    assert_eq!(read(json!({"colocation-config": good})).as_deref(), Some(good));
    for _ in 0..2 {
        assert_eq!(read(json!({"colocation-config": broken})).as_deref(), Some(good));
    }
    assert_eq!(read(json!({})), None);
    assert_eq!(read(json!({"colocation-config": broken})), None);
}
