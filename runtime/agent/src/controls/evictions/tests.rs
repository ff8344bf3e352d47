//! Requests on a simulated node with a simulated clock.

use std::sync::{Arc, OnceLock};

use qosm_cluster::node_report::{ControllerAnswer, EvictionAnswer, EvictionOutcome as Answered};
use qosm_engine::Engine;
use qosm_host::simulated::Spec;
use qosm_model::eviction::EvictionOutcome;
use qosm_model::lease::Priority;
use serde_json::json;

use super::*;
use crate::agent::{Agent, AgentOptions};
use crate::config::AgentConfig;
use crate::metrics::Metrics;
use crate::sources::Sources;

const CGROUP: &str = "kubepods/besteffort/podu1";

struct Node {
    agent: Agent,
    sources: Sources,
    millis: u64,
}

impl Node {
    /// A node with the pod `batch/job`, whose one process is 4001.
    fn new(config: AgentConfig, has_api_server: bool) -> Self {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        let mut host = Host::simulated(&Spec::default()).unwrap();
        for path in [CGROUP.to_owned(), format!("{CGROUP}/app")] {
            host.create(&path).unwrap();
        }
        let mut agent = Agent::new(AgentOptions {
            host,
            engine: ENGINE.get_or_init(|| Engine::new().unwrap()).clone(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config,
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: None,
            metrics: Arc::new(Metrics::default()),
        })
        .unwrap();
        if has_api_server {
            agent.stand_in_for_api_server();
        }
        let mut node = Self { agent, sources: Sources::default(), millis: 1_000_000 };
        node.pods(&[("job", "u1")]);
        node.agent.step(node.now());
        node.procs("4001\n");
        node
    }

    fn standalone() -> Self {
        Self::new(AgentConfig::default(), false)
    }

    fn in_cluster() -> Self {
        Self::new(AgentConfig::default(), true)
    }

    fn now(&self) -> Now {
        let wall = Timestamp(i64::try_from(self.millis).unwrap());
        Now { wall, monotonic: Micros(self.millis * 1000), ..Now::default() }
    }

    fn procs(&mut self, text: &str) {
        let simulated = self.agent.host_mut().simulated_mut().unwrap();
        simulated.set_file(&format!("{CGROUP}/app"), "cgroup.procs", text).unwrap();
    }

    fn left(&mut self) -> String {
        let simulated = self.agent.host_mut().simulated_mut().unwrap();
        simulated.read_file(&format!("{CGROUP}/app"), "cgroup.procs").unwrap().trim().to_owned()
    }

    fn pods(&mut self, pods: &[(&str, &str)]) {
        let manifest = |(name, uid): &(&str, &str)| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "batch", "uid": uid},
                "spec": {"containers": [{"name": "app", "image": "i"}], "terminationGracePeriodSeconds": 10},
                "status": {"phase": "Running", "qosClass": "BestEffort",
                    "containerStatuses": [{"name": "app", "containerID": "containerd://app", "state": {"running": {}}}]}})
        };
        let text = pods.iter().map(|pod| format!("---\n{}\n", manifest(pod))).collect::<String>();
        let objects = qosm_cluster::parse_objects(&text, "test");
        assert_eq!(objects.problems, []);
        self.sources.pods = objects.pods;
        self.agent.update(self.sources.clone(), self.now());
    }

    fn answer(&mut self, outcome: Answered, message: &str) {
        let answer = EvictionAnswer { uid: "u1".into(), outcome, message: message.into(), at: None };
        let answer = ControllerAnswer { evictions: vec![answer], ..ControllerAnswer::default() };
        self.sources.answer = Some(answer);
        self.agent.update(self.sources.clone(), self.now());
    }

    fn stage(&mut self, policy: &str, setting: impl Fn(PodId) -> Setting) {
        let now = self.now();
        let pod = self.agent.pods().iter().find(|entry| entry.pod.name == "job").unwrap().id;
        let holder = Holder { policy: policy.into(), priority: Priority(100) };
        self.agent.with_controls(now, |controls, _, _| {
            assert!(controls.evictions_mut().stage(&holder, setting(pod), now.wall).is_none());
        });
    }

    fn evict(&mut self, policy: &str, urgency: Urgency, grace_period: Option<u32>) {
        self.stage(policy, |pod| {
            let (reason, message) = ("MemoryUsage".to_owned(), "94.2 % of memory is used".to_owned());
            Setting::Evict(Eviction { pod, urgency, grace_period, reason, message })
        });
    }

    /// Steps `millis` later. Returns the outcome of the request for `u1`, and the reason.
    fn step(&mut self, millis: u64) -> Option<(EvictionOutcome, String)> {
        self.millis += millis;
        let now = self.now();
        self.agent.step(now);
        self.agent.with_controls(now, |controls, _, _| {
            let states = controls.evictions().states(now);
            states.iter().find(|(_, state)| state.uid == "u1").map(|(_, state)| (state.outcome, state.why.clone()))
        })
    }

    fn outcome(&mut self, millis: u64) -> Option<EvictionOutcome> {
        self.step(millis).map(|(outcome, _)| outcome)
    }

    fn asked(&mut self) -> Vec<String> {
        let now = self.now();
        self.agent.with_controls(now, |controls, _, _| {
            controls.evictions().reported().into_iter().map(|one| format!("{} {:?}", one.uid, one.urgency)).collect()
        })
    }
}

#[test]
fn a_request_is_asked_of_the_controller_until_it_is_taken() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Soon, None);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
    assert_eq!(node.asked(), ["u1 Soon"]);
    node.answer(Answered::Refused, "its PodDisruptionBudget allows none");
    assert_eq!(node.step(1000), Some((EvictionOutcome::Refused, "its PodDisruptionBudget allows none".into())));
    assert_eq!(node.asked(), ["u1 Soon"], "the controller tries again");
    node.answer(Answered::Accepted, "");
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Accepted));
    assert_eq!(node.asked(), [] as [&str; 0]);
    node.evict("eviction", Urgency::Now, None);
    node.evict("another", Urgency::Now, None);
    assert_eq!(node.outcome(600_000), Some(EvictionOutcome::Accepted), "once is enough, for everybody");
    assert_eq!(node.left(), "4001");
    node.pods(&[]);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Gone));
    assert_eq!(node.outcome(601_000), None, "it is reported for ten minutes");
}

#[test]
fn one_that_cannot_wait_is_ended_on_the_node_once_nobody_answers() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Now, None);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
    assert_eq!(node.outcome(4999), Some(EvictionOutcome::Pending));
    assert_eq!(node.left(), "4001");
    assert_eq!(node.outcome(1), Some(EvictionOutcome::Killed));
    assert_eq!(node.left(), "");
    assert_eq!(node.asked(), ["u1 Now"], "the kubelet may start it again, so it is still to leave");
    node.procs("4002\n");
    node.evict("eviction", Urgency::Now, None);
    assert_eq!(node.outcome(10_000), Some(EvictionOutcome::Killed));
    assert_eq!(node.left(), "4002", "it is not ended a second time");
    node.answer(Answered::Accepted, "");
    node.step(1000);
    assert_eq!(node.asked(), [] as [&str; 0]);
}

#[test]
fn an_answer_keeps_the_node_from_acting_and_so_does_the_operator() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Now, None);
    node.step(1000);
    for (answered, outcome) in
        [(Answered::Pending, EvictionOutcome::Pending), (Answered::Refused, EvictionOutcome::Refused)]
    {
        node.answer(answered, "another budget");
        assert_eq!(node.outcome(60_000), Some(outcome));
        assert_eq!((node.left().as_str(), node.asked()), ("4001", vec!["u1 Now".to_owned()]));
    }

    let mut config = AgentConfig::default();
    config.guard_rails.evictions.local_after_seconds = None;
    let mut node = Node::new(config, true);
    node.evict("eviction", Urgency::Now, None);
    assert_eq!(node.outcome(60_000), Some(EvictionOutcome::Pending));
    assert_eq!(node.left(), "4001");
}

#[test]
fn a_request_that_becomes_urgent_waits_from_then_on() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Soon, None);
    node.step(60_000);
    node.evict("eviction", Urgency::Now, Some(0));
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
    assert_eq!(node.outcome(5000), Some(EvictionOutcome::Killed));
}

#[test]
fn without_an_api_server_processes_are_asked_first_and_ended_after_their_time() {
    let mut node = Node::standalone();
    node.evict("eviction", Urgency::Soon, None);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Killed));
    let signals = node.agent.host_mut().simulated_mut().unwrap().take_signals();
    assert_eq!(signals, [(4001, Ending::Terminate)]);
    node.step(9000);
    assert_eq!(node.left(), "4001", "the pod has 10 s");
    node.step(1000);
    assert_eq!(node.left(), "");

    let mut node = Node::standalone();
    node.evict("eviction", Urgency::Now, None);
    node.step(1000);
    assert_eq!(node.left(), "", "what cannot wait is ended at once");
}

#[test]
fn a_guard_rail_is_told_and_the_request_goes_on_when_it_allows() {
    let mut config = AgentConfig::default();
    config.guard_rails.evictions.per_minute = 0;
    let mut node = Node::new(config, true);
    node.evict("eviction", Urgency::Now, None);
    let (outcome, why) = node.step(1000).unwrap();
    assert_eq!(outcome, EvictionOutcome::Refused);
    assert!(why.contains("guardRails.evictions.perMinute"), "{why}");
    assert_eq!(node.asked(), [] as [&str; 0]);
    node.step(20_000);
    assert_eq!(node.left(), "4001", "nor does the node act by itself");
    node.agent.config_mut().guard_rails.evictions.per_minute = 1;
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
}

#[test]
fn a_budget_that_is_spent_is_waited_for() {
    let mut config = AgentConfig::default();
    config.guard_rails.evictions.per_minute = 1;
    let mut node = Node::new(config, true);
    let spent = node.now().wall;
    node.agent.with_controls(node.now(), |controls, _, _| controls.evictions_mut().budget.spend(spent));
    node.evict("eviction", Urgency::Soon, None);
    let (outcome, why) = node.step(1000).unwrap();
    assert_eq!(
        outcome,
        EvictionOutcome::Pending,
        "a policy that chose another pod instead would walk up the priorities"
    );
    assert!(why.contains("guardRails.evictions.perMinute"), "{why}");
    assert_eq!(node.asked(), [] as [&str; 0]);
    node.step(59_000);
    assert_eq!(node.asked(), ["u1 Soon"]);
}

#[test]
fn what_a_budget_of_the_controller_holds_back_waits_until_it_lapses() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Soon, None);
    node.step(1000);
    node.answer(Answered::Pending, "no more than 5 evictions a minute in the cluster");
    let held = Some((EvictionOutcome::Pending, "no more than 5 evictions a minute in the cluster".to_owned()));
    assert_eq!(node.step(1000), held, "a policy that chose another pod instead would walk up the priorities");
    assert_eq!(node.asked(), ["u1 Soon"]);
    let (outcome, why) = node.step(300_000).unwrap();
    assert_eq!(outcome, EvictionOutcome::Refused);
    assert!(why.starts_with("no more than 5 evictions") && why.contains("lapsed"), "{why}");
    assert_eq!(node.asked(), [] as [&str; 0]);
}

#[test]
fn the_budget_goes_to_what_cannot_wait_and_then_to_what_was_asked_first() {
    let mut config = AgentConfig::default();
    config.guard_rails.evictions.per_minute = 2;
    let mut node = Node::new(config, true);
    let names = ["d", "c", "b", "a"];
    node.pods(&names.map(|name| (name, name)));
    node.step(1000);
    let now = node.now();
    let pods: Vec<_> = node.agent.pods().iter().map(|entry| (entry.pod.name.clone(), entry.id)).collect();
    let holder = Holder { policy: "eviction".into(), priority: Priority(100) };
    node.agent.with_controls(now, |controls, _, _| {
        for name in names {
            let pod = pods.iter().find(|(of, _)| of == name).unwrap().1;
            let urgency = if name == "b" { Urgency::Now } else { Urgency::Soon };
            let (reason, message) = ("MemoryUsage".to_owned(), String::new());
            let wanted = Eviction { pod, urgency, grace_period: None, reason, message };
            assert!(controls.evictions_mut().stage(&holder, Setting::Evict(wanted), now.wall).is_none());
        }
    });
    node.step(1000);
    assert_eq!(node.asked(), ["b Now", "d Soon"]);
}

#[test]
fn what_is_forbidden_by_now_is_not_ended_on_the_node() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Now, None);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
    node.agent.config_mut().guard_rails.evictions.protected_namespaces = ["batch".to_owned()].into();
    assert_eq!(node.outcome(10_000), Some(EvictionOutcome::Refused));
    assert_eq!((node.left().as_str(), node.asked()), ("4001", vec![]));
}

#[test]
fn a_request_that_nobody_carries_out_lapses_and_can_be_made_anew() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Soon, None);
    node.step(1000);
    let (outcome, why) = node.step(300_000).unwrap();
    assert_eq!(outcome, EvictionOutcome::Refused);
    assert!(why.contains("lapsed"), "{why}");
    assert_eq!(node.asked(), [] as [&str; 0]);
    node.evict("eviction", Urgency::Soon, None);
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
}

#[test]
fn a_request_that_is_taken_back_is_gone_unless_another_policy_makes_it_too() {
    let mut node = Node::in_cluster();
    node.evict("eviction", Urgency::Soon, None);
    node.evict("another", Urgency::Soon, None);
    node.step(1000);
    node.stage("eviction", |pod| Setting::WithdrawEviction { pod });
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Pending));
    let now = node.now();
    node.agent.with_controls(now, |controls, _, _| controls.evictions_mut().release("another"));
    assert_eq!(node.outcome(1000), None);
}

#[test]
fn what_was_asked_survives_the_agent_and_is_not_done_again() {
    for (urgency, answered, expected) in [
        (Urgency::Soon, None, EvictionOutcome::Pending),
        (Urgency::Soon, Some(Answered::Accepted), EvictionOutcome::Accepted),
        (Urgency::Now, None, EvictionOutcome::Killed),
    ] {
        let mut node = Node::in_cluster();
        node.evict("eviction", urgency, None);
        node.step(1000);
        if let Some(answered) = answered {
            node.answer(answered, "");
        }
        node.step(5000);
        let now = node.now();
        let saved = node.agent.with_controls(now, |controls, _, _| stored::saved(controls.evictions()));

        let mut next = Node::in_cluster();
        let now = next.now();
        next.agent.with_controls(now, |controls, _, _| controls.evictions_mut().restore(&saved, now));
        next.evict("eviction", urgency, None);
        assert_eq!(next.outcome(1000), Some(expected));
        assert_eq!(next.left(), "4001");
        let spent = next.agent.with_controls(now, |controls, _, _| controls.evictions().budget.0.len());
        assert_eq!(spent, 1, "and it counts in the budget");
    }
}

#[test]
fn an_agent_that_was_away_for_long_does_not_do_what_was_asked_then() {
    for (urgency, wait, away, asked) in [
        (Urgency::Soon, 1000, 299_000, 1),
        (Urgency::Soon, 1000, 300_000, 0),
        // Ended on the node: the controller is asked for as long, and not again by the next agent.
        (Urgency::Now, 5000, 10_000, 1),
        (Urgency::Now, 5000, 300_000, 0),
    ] {
        let mut node = Node::in_cluster();
        node.evict("eviction", urgency, None);
        node.step(1000);
        node.step(wait);
        let now = node.now();
        let saved = node.agent.with_controls(now, |controls, _, _| stored::saved(controls.evictions()));
        let mut next = Node::in_cluster();
        next.millis = node.millis + away - wait;
        let now = next.now();
        next.agent.with_controls(now, |controls, _, _| controls.evictions_mut().restore(&saved, now));
        assert_eq!(next.asked().len(), 0, "not before it was looked at");
        next.step(0);
        assert_eq!(next.asked().len(), asked, "{urgency:?} {away}");
        assert_eq!(next.left(), "4001");
    }
}

#[test]
fn what_the_journal_does_not_take_is_not_done() {
    let mut node = Node::standalone();
    node.evict("eviction", Urgency::Now, None);
    let now = node.now();
    node.agent.with_controls(now, |controls, host, inputs| {
        let evictions = controls.evictions_mut();
        evictions.judge(inputs);
        assert!(evictions.unsaved().is_some());
        evictions.set_recorded(false);
        evictions.apply(host, inputs, true, &mut ControlDecisions::default());
        assert_eq!(evictions.reported(), []);
    });
    assert_eq!(node.left(), "4001");
    assert_eq!(node.outcome(1000), Some(EvictionOutcome::Killed));
}
