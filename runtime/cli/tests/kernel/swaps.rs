//! Swaps of a policy's version while the pods and the agent run.

use serde_json::{Value, json};

use crate::agent::{Agent, metric_in};
use crate::guest::{self, Evaluation};
use crate::node::{APP, BASE, BURST, MAX, Node, PATIENT_MILLIS, POD, module, quick};
use crate::waiting::wait_until;
use crate::watch::Watch;

/// A copy of the default module with the same behaviour and another digest.
fn another(node: &Node, name: &str) -> String {
    let file = node.path(&format!("{name}.wasm"));
    let mut wasm = std::fs::read(module("cpu-burst")).unwrap();
    // A custom section, which engines ignore: its identifier, its size, the length of its name, its name.
    let length = u8::try_from(name.len()).unwrap();
    assert!(length < 100, "both numbers are one byte each");
    wasm.extend([0, length + 1, length]);
    wasm.extend(name.as_bytes());
    std::fs::write(&file, wasm).unwrap();
    file.display().to_string()
}

/// The entry for a module, with the grants of the default one.
fn entry(module: &str) -> Value {
    let mut entry = quick();
    entry["module"] = json!(module);
    entry["grants"] = json!(["node", "cpu-stat", "cpu-bandwidth"]);
    entry
}

fn digest(agent: &Agent) -> String {
    agent.policy("cpu-burst")["digest"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_swap_moves_no_knob_outlives_the_agent_and_can_be_undone() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    node.agent_config(&json!({"policies": [entry(&module("cpu-burst"))]}));
    let other = another(&node, "other");
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    node.wait_for_ceiling();
    wait_until("the pod's quota", || node.cgroups.quota(POD) == MAX);
    let first = digest(&agent);
    agent.let_it_run(3);

    let watch = Watch::start(node.cgroups.folders("kubepods"), |path| before.contains_key(path));
    let report = agent.json(&["policy", "swap", "cpu-burst", &other]);
    assert_eq!((&report["before"]["digest"], &report["now"]["digest"]), (&json!(first), &json!(digest(&agent))));
    assert_ne!(first, digest(&agent));
    assert!(report["now"]["reference"].as_str().unwrap().ends_with("other.wasm"), "{report}");
    agent.let_it_run(10);
    assert_eq!(watch.written(), Vec::<String>::new(), "the same policy wants the same");
    assert_eq!(agent.metric("qosm_policy_swaps_total", &["switched"]), 1.0);

    agent.kill();
    let agent = Agent::start(&node);
    wait_until("a version to run", || !digest(&agent).is_empty());
    let second = digest(&agent);
    assert_ne!(first, second, "what was swapped stays swapped");
    let report = agent.ask(&["policy", "swap", "cpu-burst", "--back"]).unwrap();
    assert!(report.contains(&first) && report.contains(&second), "{report}");
    wait_until("the first version", || digest(&agent) == first);
    assert_eq!(agent.ask(&["policy", "swap", "nobody", "--back"]), None);
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

/// The loop's shortest tick; the swapped policy is evaluated at each.
const SHORT_MILLIS: u64 = 100;
const TICKS_BETWEEN: f64 = 25.0;
/// About 800 ticks: a swap by file takes up to two seconds more.
const SWAPS: u32 = 20;

#[test]
fn versions_take_turns_under_load_and_no_tick_is_missed() {
    // Without steps of the quota, which depend on the machine's load.
    let node = Node::busy(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    let before = node.cgroups.knobs();
    let at_each_tick = |module: &str| {
        let mut entry = entry(module);
        entry["intervalMillis"] = json!(SHORT_MILLIS);
        json!({"policies": [entry]})
    };
    node.agent_config(&at_each_tick(&module("cpu-burst")));
    let versions = [another(&node, "other"), module("cpu-burst")];
    let agent = Agent::start_with(&node, &[("--tick-millis", &SHORT_MILLIS.to_string())]);
    wait_until("the burst", || node.cgroups.burst(APP) == BASE && node.cgroups.burst(POD) == BASE);
    agent.let_it_run(10);

    let watch = Watch::start(node.cgroups.folders("kubepods"), |path| before.contains_key(path));
    let counts = || {
        let (_, metrics) = agent.get("/metrics");
        let of = |name, labels: &[&str]| metric_in(&metrics, name, labels);
        (
            of("qosm_ticks_total", &[]),
            of("qosm_policy_evaluation_seconds_count", &["cpu-burst", "mode=\"active\""]),
            of("qosm_policy_swaps_total", &["switched"]),
        )
    };
    let (ticks_before, evaluations_before, _) = counts();
    for (swap, version) in (1..=SWAPS).zip(versions.iter().cycle()) {
        node.agent_config(&at_each_tick(version));
        wait_until("the next swap", || counts().2 >= f64::from(swap));
        let (ticks, ..) = counts();
        wait_until("ticks with this version", || counts().0 >= ticks + TICKS_BETWEEN);
    }
    let (ticks, evaluations, _) = counts();
    let (ticks, evaluations) = (ticks - ticks_before, evaluations - evaluations_before);
    // The current tick may be counted before or after its evaluation.
    assert!(
        evaluations + 1.0 >= ticks,
        "a version is evaluated at each tick: {evaluations} evaluations in {ticks} ticks"
    );
    assert_eq!(watch.written(), Vec::<String>::new(), "the same policy wants the same");
    assert_eq!(agent.policy("cpu-burst")["failures"], 0);
}

#[test]
fn a_version_that_fails_its_first_evaluation_never_counts() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    node.agent_config(&json!({"policies": [entry(&module("cpu-burst"))]}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    let first = digest(&agent);
    let ways = [
        ("trapping", Evaluation::TrapsFrom(1)),
        ("trapping-late", Evaluation::TrapsFrom(2)),
        ("looping", Evaluation::Loops),
    ];
    for (name, evaluation) in ways {
        let bad = guest::write(&node.path("."), name, evaluation).display().to_string();
        assert_eq!(agent.ask(&["policy", "swap", "cpu-burst", &bad]), None);
        let report = agent.policy("cpu-burst");
        let why = report["pendingUpdate"]["why"].as_str().unwrap_or_default();
        assert!(why.contains("first evaluation") && why.contains("evaluate"), "{report}");
        assert_eq!((&report["digest"], &report["health"]), (&json!(first), &json!("running")), "{report}");
    }
    let missing = node.path("missing.wasm").display().to_string();
    assert_eq!(agent.ask(&["policy", "swap", "cpu-burst", &missing]), None);
    assert!(agent.policy("cpu-burst")["pendingUpdate"]["why"].as_str().unwrap().contains("missing.wasm"));
    assert_eq!(agent.policy("cpu-burst")["failures"], 0);
    assert_eq!(node.cgroups.quota(APP), MAX);
    assert_eq!(agent.metric("qosm_policy_swaps_total", &["refused"]), 3.0);
    agent.kill();
    // The requested module is still missing; the last good one runs.
    let agent = Agent::start(&node);
    wait_until("what works to run", || {
        let report = agent.policy("cpu-burst");
        report["digest"] == json!(first)
            && report["health"] == "running"
            && report["pendingUpdate"]["why"].as_str().is_some_and(|why| why.contains("missing.wasm"))
    });
    assert!(
        agent.ask(&["policy", "swap", "cpu-burst", &module("cpu-burst")]).is_some(),
        "what runs can be asked for again"
    );
    assert_eq!(agent.policy("cpu-burst")["pendingUpdate"], Value::Null);
}

#[test]
fn a_version_that_fails_in_its_rollback_window_is_rolled_back() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    node.agent_config(&json!({"policies": [entry(&module("cpu-burst"))]}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    let first = digest(&agent);
    // The module is evaluated once without effect, then once with effect, which releases everything, and then fails.
    let bad = guest::write(&node.path("."), "failing", Evaluation::TrapsFrom(3)).display().to_string();
    agent.ask(&["policy", "swap", "cpu-burst", &bad]);
    wait_until("the version before", || {
        let report = agent.policy("cpu-burst");
        report["digest"] == json!(first)
            && report["pendingUpdate"]["why"].as_str().is_some_and(|why| why.contains("came back"))
    });
    wait_until("its settings", || node.cgroups.quota(APP) == MAX);
    assert_eq!(agent.metric("qosm_policy_swaps_total", &["rolled-back"]), 1.0);
    agent.let_it_run(5);
    assert_eq!(digest(&agent), first, "it is not tried again by itself");
    let (_, metrics) = agent.get("/metrics");
    assert!(metrics.contains("qosm_policy_behind{policy=\"cpu-burst\",mode=\"active\"} 1"), "{metrics}");
}

#[test]
fn the_agents_own_file_is_read_again_and_what_makes_no_sense_changes_nothing() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let memory = json!({"name": "memory-qos", "evaluationMillis": PATIENT_MILLIS});
    node.agent_config(&json!({"policies": [memory]}));
    let agent = Agent::start(&node);
    node.agent_config(&json!({"policies": [memory, quick()]}));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    node.write("agent.json", "{\"policies\": [{\"nam\": \"x\"}]}");
    wait_until("the mistake to be reported", || {
        agent.problems().iter().any(|problem| problem.contains("agent.json") && problem.contains("nam"))
    });
    agent.let_it_run(3);
    assert!(node.cgroups.quota(APP) > BASE);
    node.agent_config(&json!({"policies": [memory]}));
    wait_until("everything to be given back", || node.cgroups.knobs() == before);
    assert_eq!(agent.policy("cpu-burst"), Value::Null);
    assert!(!agent.problems().iter().any(|problem| problem.contains("agent.json")), "the mistake is mended");
}

#[test]
fn a_configuration_that_does_not_fit_leaves_the_policy_as_it_was() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    node.agent_config(&json!({"policies": [quick()]}));
    let agent = Agent::start(&node);
    node.wait_for_ceiling();
    let mut wrong = quick();
    wrong["config"] = json!({"profile": "fast", "lowerPercent": 0});
    node.agent_config(&json!({"policies": [wrong]}));
    // Until the module is compiled, that is the reported reason.
    wait_until("the mistakes to be reported", || {
        agent.policy("cpu-burst")["pendingUpdate"]["why"].as_str().is_some_and(|why| why.contains("config"))
    });
    let report = agent.policy("cpu-burst");
    let why = report["pendingUpdate"]["why"].as_str().unwrap();
    for part in ["config: lowerPercent: 0 is below 1", "config: profile: ", "write one of `responsive`, `koordinator`"]
    {
        assert!(why.contains(part), "{part}: {report}");
    }
    agent.let_it_run(3);
    let report = agent.policy("cpu-burst");
    assert_eq!((&report["health"], &report["failures"]), (&json!("running"), &json!(0)), "{report}");
    assert_eq!(node.cgroups.quota(APP), MAX);
    node.agent_config(&json!({"policies": [quick()]}));
    wait_until("all to be well", || agent.policy("cpu-burst")["pendingUpdate"] == Value::Null);
}
