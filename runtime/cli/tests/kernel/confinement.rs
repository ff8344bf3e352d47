//! The agent's confinement: it holds for each thread, it prevents what it should, and the agent's work continues.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::node::{BASE, BURST, Node, module};
use crate::waiting::wait_until;

/// `CAP_DAC_OVERRIDE`, `CAP_SETGID`, `CAP_SETUID`.
const KEPT: u64 = 1 << 1 | 1 << 6 | 1 << 7;

/// A line of a thread's status.
fn line(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| unreachable!("{name}: {status}")).trim().to_owned()
}

fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(&line(status, name), 16).unwrap()
}

fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end meanwhile.
    tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok()).collect()
}

fn doctor(agent: &Agent) -> Value {
    agent.json(&["doctor"])["confinement"].clone()
}

/// A folder that no flag of the agent names, and that is no folder for temporary files.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn new() -> Self {
        let folder = PathBuf::from(format!("/run/qosm-test-elsewhere-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(module("cpu-burst"), folder.join("burst.wasm")).unwrap();
        Self(folder)
    }

    fn module(&self) -> String {
        self.0.join("burst.wasm").display().to_string()
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn every_thread_is_confined_and_the_work_goes_on() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = fs::read_to_string("/proc/self/status").unwrap();
    let agent = Agent::start(&node);
    wait_until("a quota is raised", || node.cgroups.quota(crate::node::APP) > BASE);
    let statuses = threads(agent.pid());
    assert!(statuses.len() > 3, "{statuses:?}");
    for status in &statuses {
        let name = line(status, "Name");
        assert_eq!(line(status, "NoNewPrivs"), "1", "{name}");
        assert_eq!(line(status, "Seccomp"), "2", "{name}");
        assert_eq!(set(status, "CapEff"), set(&before, "CapEff") & KEPT, "{name}");
        assert_eq!(set(status, "CapPrm"), set(&before, "CapPrm") & KEPT, "{name}");
        assert_eq!(set(status, "CapBnd"), set(&before, "CapBnd") & KEPT, "{name}");
    }
    let report = doctor(&agent);
    assert_eq!(report["agent"]["pid"], agent.pid());
    assert_eq!(report["agent"]["noNewPrivileges"], true);
    assert!(report["agent"]["landlockAbi"].as_i64() >= Some(1), "{report}");
    assert_eq!(report["agent"]["seccomp"], "filter");
    assert_eq!(report["agent"]["capabilities"], json!(["DAC_OVERRIDE", "SETGID", "SETUID"]));
    agent.terminate();
    assert_eq!(node.cgroups.quota(crate::node::APP), BASE);
}

#[test]
fn a_module_out_of_reach_is_reported_with_the_way_out_and_read_where_the_operator_says_so() {
    let elsewhere = Elsewhere::new();
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let agent = Agent::start(&node);
    let refused = agent.try_ask(&["policy", "swap", "cpu-burst", &elsewhere.module()]);
    let report = refused.unwrap_err();
    assert!(report.contains("confinement.readPaths") && report.contains(&elsewhere.module()), "{report}");
    agent.terminate();

    node.agent_config(&json!({"confinement": {"mode": "require", "readPaths": [elsewhere.0]}}));
    let agent = Agent::start(&node);
    agent.try_ask(&["policy", "swap", "cpu-burst", &elsewhere.module()]).unwrap();
    agent.terminate();
}

#[test]
fn a_confined_agent_compiles_in_a_child_that_is_ended_before_it_and_has_less() {
    let elsewhere = Elsewhere::new();
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    node.agent_config(&json!({"confinement": {"mode": "require", "readPaths": [elsewhere.0]}}));
    let agent = Agent::start(&node);
    let own = fs::read_to_string(format!("/proc/{}/oom_score_adj", agent.pid())).unwrap();
    // A module that is in no cache: it has an additional custom section with this process's ID as its name.
    let name = format!("{:08}", std::process::id());
    let mut module = fs::read(elsewhere.module()).unwrap();
    module.extend([&[0, 9, 8], name.as_bytes()].concat());
    fs::write(elsewhere.module(), module).unwrap();
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        let swapped = scope.spawn(|| agent.try_ask(&["policy", "swap", "cpu-burst", &elsewhere.module()]));
        while !swapped.is_finished() {
            seen.extend(compilers(agent.pid()));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        swapped.join().unwrap().unwrap();
    });
    let is_confined = |(_, status): &(String, String)| {
        set(status, "CapEff") == 0 && line(status, "Uid").starts_with("65534") && line(status, "Seccomp") == "2"
    };
    assert!(seen.iter().any(is_confined), "{seen:?}");
    assert!(seen.iter().all(|(score, _)| score.trim() == "1000"), "one was not the first to be ended: {seen:?}");
    assert_eq!(fs::read_to_string(format!("/proc/{}/oom_score_adj", agent.pid())).unwrap(), own);
    agent.terminate();
}

/// OOM score and status of each compiler child of an agent.
fn compilers(agent: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{agent}/task")).unwrap();
    let children = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok());
    let of = |child: &str| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{child}/{file}")).ok();
        // Before `exec`, the child is a copy of the agent.
        let is_compiler = read("cmdline")?.contains("compile-module");
        Some((read("oom_score_adj")?, read("status")?)).filter(|_| is_compiler)
    };
    children.flat_map(|list| list.split_whitespace().filter_map(of).collect::<Vec<_>>()).collect()
}

#[test]
fn an_operator_can_leave_it_off() {
    let node = Node::new();
    let before = fs::read_to_string("/proc/self/status").unwrap();
    let agent = Agent::start_with(&node, &[("--confine", "off")]);
    for status in threads(agent.pid()) {
        assert_eq!(set(&status, "CapEff"), set(&before, "CapEff"), "{}", line(&status, "Name"));
    }
    assert_eq!(doctor(&agent)["agent"]["landlockAbi"], Value::Null);
    let log = agent.terminate();
    assert!(log.contains("confinement is off"), "{log}");
}
