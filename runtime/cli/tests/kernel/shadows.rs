//! Shadows: nothing that they do, or fail to do, affects the kernel or the active policies.

use std::process::Command;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::journal::Journal;
use serde_json::{Value, json};

use crate::agent::{Agent, metric_in};
use crate::guest::{self, Evaluation};
use crate::node::{APP, BASE, BURST, MAX, MEMORY, Node, PATIENT_MILLIS, binary, module, quick};
use crate::waiting::{wait_for, wait_until};
use crate::watch::Watch;

/// A copy of a policy's entry as a shadow.
fn shadow(mut entry: Value, name: &str) -> Value {
    entry["name"] = json!(name);
    entry["mode"] = json!("shadow");
    entry
}

/// A shadow of [`quick`] with the responsive profile.
fn next() -> Value {
    let mut next = shadow(quick(), "next");
    next["shadowOf"] = json!("cpu-burst");
    next["config"]["profile"] = json!("responsive");
    next
}

#[test]
fn a_shadow_never_writes() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}, MEMORY: {"policy": "auto"}}));
    let memory = json!({"name": "memory-qos", "evaluationMillis": 2000});
    node.agent_config(&json!({"policies": [shadow(quick(), "cpu-burst"), shadow(memory, "memory-qos")]}));
    let before = node.cgroups.knobs();
    // Without the test's own cgroup: there a starting agent probes the kernel, in a scratch group.
    let watch = Watch::start(node.cgroups.folders("kubepods"), |path| before.contains_key(path));

    let decisions = node.path("decisions.jsonl");
    let agent = Agent::start_with(&node, &[("--decision-log", decisions.to_str().unwrap())]);
    let wants_more = || {
        let differences = agent.diff("cpu-burst")["differences"].clone();
        differences
            .as_array()
            .into_iter()
            .flatten()
            .any(|row| row["knob"] == "cpu.quota" && row["level"] == "container")
    };
    wait_until("the shadow to want a higher quota", wants_more);
    agent.let_it_run(10);
    let logged = std::fs::read_to_string(&decisions).unwrap();
    let logged: Vec<Value> = logged.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_quota = |line: &&Value| line["path"] == "cpu-burst/shadow" && line["result"]["knob"] == "cpu.quota";
    assert!(logged.iter().any(|line| is_quota(&line)), "what it would do is in the log of decisions: {logged:#?}");
    assert!(logged.iter().all(|line| line["kind"] == "shadow"), "{logged:#?}");
    let diff = agent.diff("cpu-burst");
    assert_eq!(diff["active"], Value::Null, "{diff}");
    for row in diff["differences"].as_array().unwrap() {
        assert_eq!((&row["kind"], &row["active"]), (&json!("only-shadow"), &Value::Null), "{row}");
        if row["knob"] == "cpu.quota" {
            assert_eq!(row["inForce"], BASE, "{row}");
            assert!(row["shadow"]["value"].as_i64() > Some(BASE), "{row}");
        }
    }
    let leases = agent.metric("qosm_leases", &["cpu-burst", "mode=\"shadow\""]);
    assert!(leases >= 2.0, "{leases}");
    // A module that takes longer to compile does not delay another one.
    wait_until("the other shadow", || {
        agent.metric("qosm_policy_evaluation_seconds_count", &["memory-qos", "mode=\"shadow\""]) >= 1.0
    });
    assert!(agent.metric("qosm_shadow_differences_total", &["cpu.quota", "only-shadow"]) >= 10.0);

    // No write, no journal record, no event for the pod's owner.
    assert_eq!(watch.written(), Vec::<String>::new());
    assert_eq!(node.cgroups.knobs(), before);
    assert_eq!(agent.metric("qosm_knob_writes_total", &[]), 0.0);
    assert_eq!(agent.json(&["get", "knobs"]), json!({"held": [], "refused": [], "remarks": []}));
    assert_eq!(agent.json(&["get", "events"]), json!([]));
    agent.kill();
    let (report, good) = node.restore(&["--dry-run", "-o", "json"]);
    assert!(good && report.trim() == "[]", "{report}");
    assert_eq!(watch.written(), Vec::<String>::new());

    // The watcher sees an active policy's writes.
    node.agent_config(&json!({"policies": [quick()]}));
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    assert!(watch.written().iter().any(|written| written.contains(APP)), "the watcher does not watch");
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn shadows_that_trap_loop_or_park_leave_the_active_one_on_time() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let made = |name: &str, evaluation| {
        let module = guest::write(&node.path("."), name, evaluation);
        json!({"name": name, "module": module, "mode": "shadow", "shadowOf": "cpu-burst", "intervalMillis": 200,
            "evaluationMillis": 150})
    };
    let mut stubborn = next();
    stubborn["name"] = json!("stubborn");
    // The schema accepts the value, the module does not: the default of the other bound is below it.
    stubborn["config"]["calmWindows"] = json!(90);
    node.agent_config(&json!({"policies": [
        quick(), made("trapping", Evaluation::TrapsFrom(3)), made("looping", Evaluation::Loops), made("idle", Evaluation::Idles), stubborn,
    ]}));
    let agent = Agent::start(&node);
    let counts = || {
        let (_, metrics) = agent.get("/metrics");
        let active = ["cpu-burst", "mode=\"active\""];
        let evaluations = metric_in(&metrics, "qosm_policy_evaluation_seconds_count", &active);
        (evaluations, metric_in(&metrics, "qosm_ticks_total", &[]))
    };
    let before_them = counts();
    node.wait_for_ceiling();
    wait_until("all shadows to have failed", || {
        ["trapping", "looping", "stubborn"].iter().all(|name| agent.policy(name)["failures"].as_u64() >= Some(2))
    });
    let (evaluations, ticks) = counts();
    let (evaluations, ticks) = (evaluations - before_them.0, ticks - before_them.1);
    // The first tick may be late, and another may be in progress.
    assert!(evaluations >= ticks - 2.0, "the active policy is evaluated at each tick: {evaluations} of {ticks}");
    for (name, word) in [("trapping", "evaluate"), ("looping", "evaluate"), ("stubborn", "calmWindowsMax")] {
        let report = wait_for("an error", || {
            let policy = agent.policy(name);
            policy["error"].is_string().then_some(policy)
        });
        assert!(report["error"].as_str().unwrap().contains(word) && report["mode"] == "shadow", "{report}");
    }
    assert_eq!(agent.policy("cpu-burst")["failures"], 0);
    // A shadow without settings leaves everything to the active policy.
    wait_until("the idle one to be compared", || {
        let idle = agent.diff("idle");
        let kinds: Vec<_> = idle["differences"].as_array().into_iter().flatten().map(|row| &row["kind"]).collect();
        kinds.len() == 4 && kinds.iter().all(|kind| *kind == "only-active")
    });
    // The agent is as healthy as before.
    wait_until("/readyz", || agent.get("/readyz").0.contains("200"));
    wait_until("the stubborn one to be parked", || agent.policy("stubborn")["health"] == "parked");
    let diff = agent.diff("stubborn");
    assert!(diff["differences"] == json!([]) && diff["totals"]["ticks"] == 0, "nothing to compare: {diff}");
    assert!(agent.ask(&["diff", "stubborn"]).is_none(), "a shadow that does not run is not fine");
    assert_eq!(node.cgroups.quota(APP), MAX);
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn the_difference_between_two_profiles_is_reported() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    // Slow enough to be observed.
    let slow = |mut entry: Value| {
        entry["intervalMillis"] = json!(1000);
        entry
    };
    node.agent_config(&json!({"policies": [slow(quick()), slow(next())]}));
    let agent = Agent::start(&node);
    let row = wait_for("a difference", || {
        let diff = agent.diff("next");
        let rows = diff["differences"].as_array()?.clone();
        rows.into_iter()
            .find(|row| row["kind"] == "differs" && row["subject"] == "default/web/app" && row["knob"] == "cpu.quota")
    });
    let steps = [12_000, 14_400, 17_280, 20_736, 24_883, 29_859, 30_000];
    let asked = |side: &str| row[side]["value"].as_i64().unwrap();
    assert!(steps.contains(&asked("active")) && asked("shadow") != asked("active"), "{row}");
    assert!(asked("shadow") > BASE && asked("shadow") <= MAX, "{row}");
    assert_eq!((&row["active"]["policy"], &row["shadow"]["policy"]), (&json!("cpu-burst"), &json!("next")), "{row}");
    assert!(row["shadow"]["reason"].as_str().unwrap().contains("throttled"), "{row}");
    // Both end at the same ceiling.
    node.wait_for_ceiling();
    let diff = wait_for("agreement", || Some(agent.diff("cpu-burst")).filter(|diff| diff["differences"] == json!([])));
    assert_eq!(diff["active"]["policy"], "cpu-burst", "{diff}");
    let quota = &diff["totals"]["knobs"]["cpu.quota"];
    assert!(quota["differed"].as_u64() > Some(0) && quota["agreed"].as_u64() > Some(0), "{diff}");
    assert!(diff["cost"]["evaluations"].as_u64() > Some(1) && diff["cost"]["failures"] == 0, "{diff}");
    let report = |knob: &str, name: &str| agent.metric(name, &["policy=\"next\"", &format!("knob=\"{knob}\"")]);
    assert!(report("cpu.quota", "qosm_shadow_agreements_total") > 0.0);
    assert!(report("cpu.quota", "qosm_shadow_differences_total") > 0.0);
    let policies = agent.ask(&["get", "policies"]).unwrap();
    assert!(policies.lines().any(|line| line.starts_with("next") && line.contains("shadow")), "{policies}");
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn what_a_shadow_saves_is_kept_apart() {
    let node = Node::busy(&json!({}));
    let saves = |name: &str| {
        let module = guest::write(&node.path("."), name, Evaluation::Saves);
        json!({"name": name, "module": module, "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS})
    };
    let mut next = shadow(saves("next"), "next");
    next["shadowOf"] = json!("saver");
    node.agent_config(&json!({"policies": [saves("saver"), next]}));
    let agent = Agent::start(&node);
    for name in ["saver", "next"] {
        let policy = format!("policy=\"{name}\"");
        let evaluations = || agent.metric("qosm_policy_evaluation_seconds_count", &[&policy]);
        wait_until("something to be saved", || evaluations() >= 2.0);
    }
    // A running agent locks its journal.
    agent.terminate();
    let folder = node.path("state");
    let state = Dir::open_ambient_dir(&folder, ambient_authority()).unwrap();
    let boot = std::fs::read_to_string(node.path("proc/sys/kernel/random/boot_id")).unwrap();
    let journal = Journal::open(&state, &folder, boot.trim()).unwrap();
    let saved = |name: &str| !journal.state(name).unwrap().bytes.is_empty();
    assert_eq!(["saver", "shadow/next", "next"].map(saved), [true, true, false]);
}

#[test]
fn a_shadow_that_is_not_there_is_reported_with_those_that_are() {
    let node = Node::new();
    node.agent_config(&json!({"policies": [quick(), next()]}));
    let _agent = Agent::start(&node);
    let mut command = Command::new(binary());
    let asked = command.args(["diff", "other", "--admin-socket"]).arg(node.path("admin.sock")).output().unwrap();
    let report = String::from_utf8(asked.stderr).unwrap();
    assert!(asked.status.code() == Some(1) && report.contains("`other`") && report.contains("next"), "{report}");
}

#[test]
fn a_shadow_of_a_policy_that_is_not_configured_ends_the_start() {
    let node = Node::new();
    let mut lost = next();
    lost["shadowOf"] = json!("cache");
    lost["module"] = json!(module("cpu-burst"));
    lost["grants"] = json!(["node", "cpu-stat", "cpu-bandwidth"]);
    node.agent_config(&json!({"policies": [quick(), lost]}));
    let (code, report) = Agent::run_to_end(&node, &[]);
    assert!(
        code == Some(1) && report.contains("`next`") && report.contains("`cache`") && report.contains("cpu-burst"),
        "{report}"
    );
}
