use std::sync::Arc;

use qosm_engine::Engine;
use serde_json::{Value as Json, json};

use super::*;
use crate::agent::{Agent, AgentOptions};
use crate::config::AgentConfig;
use crate::facts::{Facts, read_objects};
use crate::now::Now;
use crate::replay_fixture::ReplayFixture;
use crate::sources::Sources;
use crate::step::Mode;

fn pod(name: &str, uid: &str, container_id: &str, annotations: &Json) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "400m"}}}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [{
            "name": "app", "containerID": format!("containerd://{container_id}"), "state": {"running": {}},
            "image": "", "imageID": "", "ready": true, "restartCount": 0,
        }]},
    })
}

/// An agent on a node whose cgroups are those of the first pods; others follow.
struct Env {
    agent: Agent,
    node: Vec<Json>,
}

impl Env {
    fn new(node: &[Json]) -> Self {
        let facts = json!({"host": {"cgroup": "v2", "driver": "cgroupfs", "cpus": 8}, "pods": node});
        let facts: Facts = serde_json::from_value(facts).unwrap();
        let objects = read_objects(&facts.pods, &[], None, "facts");
        let (host, _) = ReplayFixture::set_up(&facts, &objects).unwrap();
        let agent = Agent::new(AgentOptions {
            host,
            engine: Engine::new().unwrap(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: None,
            metrics: Arc::default(),
        })
        .unwrap();
        Self { agent, node: node.to_vec() }
    }

    /// Updates the agent with the node's pods and `more`.
    fn update(&mut self, more: &[Json]) {
        self.update_at(more, Now::default());
    }

    fn update_at(&mut self, more: &[Json], now: Now) {
        let pods: Vec<_> = self.node.iter().chain(more).cloned().collect();
        let mut objects = read_objects(&pods, &[], None, "here");
        // A folder of manifests refuses such pods by itself; an API server does not.
        let all: Vec<_> =
            pods.iter().flat_map(|pod| read_objects(std::slice::from_ref(pod), &[], None, "here").pods).collect();
        objects.pods = all;
        objects.problems.clear();
        self.agent.update(Sources::from(objects), now);
        self.agent.step(now);
    }

    fn owners(&self, path: &str) -> Vec<String> {
        let attached = |target: &Target| self.agent.view().host.attached_path(*target) == Some(path);
        let targets =
            self.agent.view().pods.iter().flat_map(|entry| entry.targets().map(move |target| (entry, target)));
        targets.filter(|(_, target)| attached(target)).map(|(entry, _)| entry.pod.key()).collect()
    }
}

const CONTAINER: &str = "kubepods/burstable/podv/aa";

#[test]
fn a_status_that_names_anothers_container_is_refused_and_told_once() {
    let victim = pod("victim", "v", "aa", &json!({}));
    let mut env = Env::new(&[victim]);
    let mallory = pod("a-mallory", "m", "aa", &json!({}));
    for _ in 0..3 {
        env.update(std::slice::from_ref(&mallory));
    }
    assert_eq!(env.owners(CONTAINER), ["default/victim"]);
    let problems = env.agent.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("pod default/a-mallory: containerID of container app: cgroup"), "{problems:?}");
    let events = env.agent.event_reports();
    let reported: Vec<_> = events.iter().map(|event| (event.pod.as_str(), event.count)).collect();
    assert_eq!(reported, [("default/a-mallory", 1)], "{events:?}");
    env.update(&[]);
    assert_eq!(env.agent.problems(), [""; 0], "she is gone");
}

#[test]
fn a_twin_is_left_alone_however_often_it_changes() {
    let victim = pod("victim", "v", "aa", &json!({}));
    let mut env = Env::new(&[victim]);
    for change in 0..20 {
        env.update(&[pod("mallory", "v", "aa", &json!({"i": change.to_string()}))]);
    }
    assert_eq!((env.owners(CONTAINER), env.agent.view().pods.len()), (vec!["default/victim".to_owned()], 1));
    let problems = env.agent.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("pod default/victim has the UID v"), "{problems:?}");
    assert_eq!(env.agent.event_reports().iter().filter(|event| event.pod == "default/mallory").count(), 1);
}

#[test]
fn a_cgroup_that_became_free_is_its_next_owners() {
    let first = pod("first", "f", "aa", &json!({}));
    let bound = |name: &str, uid: &str| pod(name, uid, "bb", &json!({"qosm.io/cgroup": r#"{"app": "web/app"}"#}));
    let mut env = Env::new(&[first, bound("one", "o")]);
    env.update(&[bound("two", "t")]);
    assert_eq!(env.owners("web/app"), ["default/one"]);
    assert!(env.agent.problems()[0].contains("is that of default/one/app already"), "{:?}", env.agent.problems());
    env.node.truncate(1);
    // The first step releases the cgroup, the next one finds it free.
    env.update(&[bound("two", "t")]);
    env.update(&[bound("two", "t")]);
    assert_eq!(env.owners("web/app"), ["default/two"]);
    assert_eq!(env.agent.problems(), [""; 0]);
}

/// kata-containers#4128: the sandbox has a cgroup, and its containers have none.
#[test]
fn a_container_that_runs_without_a_cgroup_is_told_once_and_no_more_when_it_has_one() {
    let mut env = Env::new(&[pod("vm", "v", "aa", &json!({}))]);
    let at = |seconds: u64| Now { monotonic: Micros(seconds * 1_000_000), ..Now::default() };
    env.node[0] = pod("vm", "v", "sandboxed", &json!({}));
    for second in [0, 10, 29] {
        env.update_at(&[], at(second));
        assert_eq!(env.agent.problems(), [""; 0], "after {second} s");
    }
    for second in [31, 60, 3600] {
        env.update_at(&[], at(second));
        let problems = env.agent.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("pod default/vm: container app: it runs and has no cgroup"), "{problems:?}");
    }
    let events = env.agent.event_reports();
    assert_eq!(events.iter().map(|event| event.count).collect::<Vec<_>>(), [1], "{events:?}");
    env.node[0] = pod("vm", "v", "aa", &json!({}));
    env.update_at(&[], at(3601));
    assert_eq!(env.agent.problems(), [""; 0]);
}
