use qosm_engine::Engine;
use serde_json::{Value as Json, json};

use super::*;
use crate::agent::{Agent, AgentOptions};
use crate::config::{AgentConfig, GuardRails};
use crate::facts::{Facts, read_objects};
use crate::now::Now;
use crate::replay_fixture::ReplayFixture;
use crate::sources::Sources;
use crate::step::Mode;

const GIB: i64 = 1 << 30;

fn pod(namespace: &str, name: &str, qos: &str) -> Json {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "400m"}}}]},
        "status": {"phase": "Running", "qosClass": qos},
    })
}

/// An agent on a node with these pods, after its first step.
fn agent(rails: Json, pods: &[Json]) -> Agent {
    agent_of(
        rails,
        json!({
            "host": {"cgroup": "v2", "driver": "cgroupfs", "kernel": "alibaba", "cpus": 8, "memory": "32Gi"},
            "pods": pods,
            "cgroups": [
                {"tier": "burstable", "files": {"memory.min": (9 * GIB).to_string(), "cpu.weight": "80"}},
                {"tier": "besteffort", "files": {"cpu.weight": "1"}},
            ],
        }),
    )
}

fn agent_of(rails: Json, facts: Json) -> Agent {
    let facts: Facts = serde_json::from_value(facts).unwrap();
    let objects = read_objects(&facts.pods, &facts.config_maps, facts.node.as_ref(), "facts");
    let (host, _) = ReplayFixture::set_up(&facts, &objects).unwrap();
    let rails: GuardRails = serde_json::from_value(rails).unwrap();
    let mut agent = Agent::new(AgentOptions {
        host,
        engine: Engine::new().unwrap(),
        policies: Vec::new(),
        load_failed: Vec::new(),
        config: AgentConfig { guard_rails: rails, ..AgentConfig::default() },
        mode: Mode::Enforce,
        create_cgroups: false,
        journal: None,
        metrics: Arc::default(),
    })
    .unwrap();
    agent.update(Sources::from(objects), Now::default());
    agent.step(Now::default());
    agent
}

/// Checks what the guard rails make of a value; `None` if they refuse it.
#[track_caller]
fn check(agent: &mut Agent, target: Target, knob: Knob, wanted: Value, expected: Option<Value>) {
    let railed =
        agent.with_ledger(Now::default(), |ledger, host, inputs| ledger.guarded(host, inputs, target, knob, wanted));
    let value = railed.as_ref().ok().map(|(value, _)| *value);
    assert_eq!(value, expected, "{target:?} {knob} {wanted}: {railed:?}");
    match railed {
        Ok((value, adjusted)) => assert_eq!(adjusted.is_some(), value != wanted, "{knob}"),
        Err(why) => assert!(!why.is_empty()),
    }
}

const KUBEPODS: Target = Target::Tier(Tier::Guaranteed);
const BURSTABLE: Target = Target::Tier(Tier::Burstable);
const BEST_EFFORT: Target = Target::Tier(Tier::BestEffort);

fn number_of(value: i64) -> Option<Value> {
    Some(Value::Number(value))
}

#[test]
fn nothing_is_taken_from_protected_pods_through_a_tier() {
    let mut agent = agent(json!({}), &[pod("kube-system", "dns", "Burstable"), pod("default", "web", "Burstable")]);
    for above in [KUBEPODS, BURSTABLE] {
        check(&mut agent, above, Knob::CfsQuota, Value::Number(1000), None);
        check(&mut agent, above, Knob::MemoryHigh, Value::Number(GIB), None);
        check(&mut agent, above, Knob::CpuWeight, Value::Number(1), None);
        check(&mut agent, above, Knob::WmarkRatio, Value::Number(50), None);
        check(&mut agent, above, Knob::OomGroup, Value::Number(1), None);
    }
    // The kubelet's protection stays, and may grow.
    check(&mut agent, BURSTABLE, Knob::MemoryMin, Value::Number(GIB), None);
    check(&mut agent, BURSTABLE, Knob::MemoryMin, Value::Number(10 * GIB), number_of(10 * GIB));
    check(&mut agent, BURSTABLE, Knob::MemoryLow, Value::Number(10 * GIB), number_of(10 * GIB));
    check(&mut agent, BURSTABLE, Knob::CpuWeight, Value::Number(200), number_of(200));
    // A tier beside protected pods takes nothing from them except by its weight.
    check(&mut agent, BEST_EFFORT, Knob::CpuWeight, Value::Number(100), None);
    check(&mut agent, BEST_EFFORT, Knob::CfsQuota, Value::Number(1000), number_of(1000));
    check(&mut agent, BEST_EFFORT, Knob::MemoryHigh, Value::Number(GIB), number_of(GIB));
}

#[test]
fn a_guaranteed_pod_that_is_protected_has_the_other_tiers_beside_it() {
    let mut agent = agent(json!({}), &[pod("kube-system", "dns", "Guaranteed")]);
    check(&mut agent, KUBEPODS, Knob::CfsQuota, Value::Number(1000), None);
    check(&mut agent, BURSTABLE, Knob::CpuWeight, Value::Number(200), None);
    check(&mut agent, BURSTABLE, Knob::CpuWeight, Value::Number(10), number_of(10));
    check(&mut agent, BURSTABLE, Knob::WmarkRatio, Value::Number(50), number_of(50));
}

#[test]
fn without_protected_pods_tiers_are_free() {
    for (rails, namespace) in [(json!({}), "default"), (json!({"protectedNamespaces": []}), "kube-system")] {
        let mut agent = agent(rails, &[pod(namespace, "web", "Burstable")]);
        check(&mut agent, BEST_EFFORT, Knob::CfsQuota, Value::Number(1000), number_of(1000));
        check(&mut agent, BURSTABLE, Knob::MemoryMin, Value::Number(GIB), number_of(GIB));
    }
}

#[test]
fn quotas_of_pods_and_containers_are_bounded_both_ways() {
    let mut agent =
        agent(json!({"maxQuotaPercent": 200, "minQuotaPercent": 50}), &[pod("default", "web", "Burstable")]);
    let id = agent.pods().ids()[0];
    let container = agent.pods().get(id).unwrap().containers[0].id;
    for target in [Target::Pod(id), Target::Container(container)] {
        check(&mut agent, target, Knob::CfsQuota, Value::Number(1000), number_of(20_000));
        check(&mut agent, target, Knob::CfsQuota, Value::Number(30_000), number_of(30_000));
        check(&mut agent, target, Knob::CfsQuota, Value::Number(90_000), number_of(80_000));
        check(&mut agent, target, Knob::CfsQuota, Value::Max, number_of(80_000));
    }
    // Without a quota the bound is taken of the whole node: 8 CPUs of 100 ms.
    check(&mut agent, BEST_EFFORT, Knob::CfsQuota, Value::Number(1000), number_of(400_000));
    check(&mut agent, BEST_EFFORT, Knob::CfsQuota, Value::Max, Some(Value::Max));
}

#[test]
fn of_the_tiers_only_best_effort_takes_a_quota() {
    let mut agent = agent(json!({}), &[pod("default", "web", "Burstable")]);
    for (tier, name) in [(KUBEPODS, "kubepods"), (BURSTABLE, "burstable")] {
        let guarded = |ledger: &mut Ledger, host: &mut Host, inputs: &Inputs<'_>| {
            ledger.guarded(host, inputs, tier, Knob::CfsQuota, Value::Number(100_000))
        };
        let why = agent.with_ledger(Now::default(), guarded).unwrap_err();
        assert_eq!(
            why,
            format!(
                "a quota of {name} would throttle pods whose CPU requests the scheduler has granted: of the tiers only besteffort takes \
                 one; set it on pods or containers"
            )
        );
    }
}

#[test]
fn cpus_that_a_container_has_for_itself_are_left_to_it() {
    let cpus = |list: &str| Value::Cpus(list.parse().unwrap());
    for (version, file) in [("v1", "cpuset.cpus"), ("v2", "cpuset.cpus.effective")] {
        let amounts = json!({"cpu": "2", "memory": "1Gi"});
        let pinned = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pinned", "namespace": "default", "uid": "pinned"},
            "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": {"phase": "Running", "qosClass": "Guaranteed"},
        });
        let facts = json!({
            "host": {"cgroup": version, "driver": "cgroupfs", "cpus": 8, "memory": "32Gi"},
            "pods": [pinned, pod("default", "batch", "BestEffort")],
            "cgroups": [{"pod": "default/pinned", "container": "app", "files": {file: "2-3"}}],
        });
        let mut agent = agent_of(json!({}), facts);
        let pinned = agent.pods().iter().find(|entry| entry.pod.name == "pinned").unwrap();
        let (pod, container) = (Target::Pod(pinned.id), Target::Container(pinned.containers[0].id));
        assert_eq!(pinned.containers[0].exclusive_cpus, Some(2), "{version}");
        let knob = Knob::CpusetCpus;
        check(&mut agent, BEST_EFFORT, knob, cpus("1-4"), Some(cpus("1,4")));
        check(&mut agent, BEST_EFFORT, knob, cpus("4-7"), Some(cpus("4-7")));
        check(&mut agent, BEST_EFFORT, knob, cpus("2-3"), None);
        // The container and the groups above it keep them.
        for target in [KUBEPODS, pod, container] {
            check(&mut agent, target, knob, cpus("3-5"), None);
            check(&mut agent, target, knob, cpus("1-5"), Some(cpus("1-5")));
        }
    }
}

#[test]
fn what_changes_nothing_is_refused_and_says_why() {
    let mut agent = agent(json!({"minQuotaPercent": 100}), &[pod("default", "web", "Burstable")]);
    let id = agent.pods().ids()[0];
    let guarded = |ledger: &mut Ledger, host: &mut Host, inputs: &Inputs<'_>| {
        ledger.guarded(host, inputs, Target::Pod(id), Knob::CfsQuota, Value::Number(1000))
    };
    let why = agent.with_ledger(Now::default(), guarded).unwrap_err();
    assert_eq!(why, "minQuotaPercent 100 of the baseline 40000");
}

#[test]
fn values_have_an_order_whatever_they_are_spelled_in() {
    assert!(rank(Value::Number(i64::MAX)) < rank(Value::Max));
    assert_eq!(rank(Value::Number(100)), rank(Value::Shares(1024)));
    assert!(rank(Value::Shares(2)) < rank(Value::Number(1)));
}

#[test]
fn a_share_of_the_largest_number_does_not_overflow() {
    assert_eq!(share(i64::MAX, u32::MAX), Value::Number(i64::MAX));
    assert_eq!(share(40_000, 150), Value::Number(60_000));
}

#[test]
fn a_set_in_force_loses_cpus_that_become_exclusive_later_and_its_refusal_stays_known() {
    let cpus = |list: &str| Value::Cpus(list.parse().unwrap());
    let amounts = json!({"cpu": "2", "memory": "1Gi"});
    let pinned = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pinned", "namespace": "default", "uid": "pinned"},
        "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Running", "qosClass": "Guaranteed"},
    });
    let facts = json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs", "cpus": 8, "memory": "32Gi"},
        "pods": [pinned, pod("default", "batch", "BestEffort")],
    });
    let mut agent = agent_of(json!({}), facts);
    let id = agent.pods().iter().find(|entry| entry.pod.name == "pinned").unwrap().containers[0].id;
    let path = agent.view().host.attached_path(Target::Container(id)).unwrap().to_owned();
    let key = (BEST_EFFORT, Knob::CpusetCpus);
    let holder = qosm_model::lease::Holder { policy: "a".into(), priority: qosm_model::lease::Priority(1) };
    agent.with_ledger(Now::default(), |ledger, _, inputs| ledger.lease(&holder, key, cpus("1-4"), inputs.now.wall));
    for (own, expected, is_refused) in
        [("0-7", "1-4", false), ("2-3", "1,4", false), ("4-5", "1-3", false), ("0-7", "1-4", false)]
    {
        agent.host_mut().simulated_mut().unwrap().overwrite(&path, "cpuset.cpus.effective", own).unwrap();
        for _ in 0..20 {
            agent.step(Now::default());
        }
        let (value, refusals) = agent.with_ledger(Now::default(), |ledger, host, _| {
            (host.read(key.0, key.1).unwrap(), ledger.refusals().contains_key(&key))
        });
        assert_eq!((value, refusals), (cpus(expected), is_refused), "{own}");
    }
    agent.with_ledger(Now::default(), |ledger, _, inputs| ledger.lease(&holder, key, cpus("2-3"), inputs.now.wall));
    agent.host_mut().simulated_mut().unwrap().overwrite(&path, "cpuset.cpus.effective", "2-3").unwrap();
    for _ in 0..20 {
        agent.step(Now::default());
    }
    agent.with_ledger(Now::default(), |ledger, host, _| {
        assert!(ledger.refusals().contains_key(&key), "{:?}", host.read(key.0, key.1));
        assert_eq!(host.read(key.0, key.1).unwrap(), ledger.held().get(&key).unwrap().baseline);
    });
}
