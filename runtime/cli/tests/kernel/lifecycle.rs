//! Requested ends, starts that take over, and cgroups that the agent creates itself.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node, POD, manifest};
use crate::waiting::wait_until;

#[test]
fn an_end_that_is_asked_for_restores_everything() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE && node.cgroups.burst(APP) > 0);
    let log = agent.terminate();
    assert_eq!(node.cgroups.knobs(), before, "{log}");
    assert!(log.contains("agent ends"), "{log}");
    assert!(!node.path("admin.sock").exists(), "the socket goes with the agent");
    assert_eq!(node.restore(&["--dry-run"]), ("nothing to restore\n".to_owned(), true));
}

#[test]
fn what_is_kept_is_taken_over_and_can_be_put_back_without_an_agent() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE * 2);
    agent.terminate();
    let kept = node.cgroups.quota(APP);
    assert!(kept > BASE * 2, "{kept}");

    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("the knob to be taken over", || !agent.held("container", "cpu.quota").is_null());
    let quota = agent.held("container", "cpu.quota");
    assert_eq!(quota["baseline"], BASE, "the baseline is what was there before qosm, not what qosm left: {quota}");
    assert!(node.cgroups.quota(APP) > BASE * 2, "it goes on from what is there");
    agent.terminate();

    let (would, good) = node.restore(&["--dry-run"]);
    assert!(good && would.contains("cpu.quota") && would.contains(APP) && would.contains("10000"), "{would}");
    assert!(node.cgroups.quota(APP) > BASE * 2, "a dry run does nothing");
    let (done, good) = node.restore(&["-o", "json"]);
    assert!(good && done.contains("restored"), "{done}");
    assert_eq!(node.cgroups.knobs(), before, "{done}");
    assert_eq!(node.restore(&[]), ("nothing to restore\n".to_owned(), true));
}

#[test]
fn a_start_restores_what_no_policy_wants_any_more() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE && node.cgroups.burst(POD) > 0);
    agent.terminate();
    assert_ne!(node.cgroups.knobs(), before);

    // Not configured any more.
    node.pod(&json!({}));
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("the baseline", || node.cgroups.knobs() == before);
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE && node.cgroups.burst(POD) > 0);
    agent.terminate();

    // The pod is gone; its cgroup still exists.
    fs::remove_file(node.path("pods/web.json")).unwrap();
    let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("the baseline", || node.cgroups.knobs() == before);
    agent.terminate();
    assert_eq!(node.restore(&["--dry-run"]), ("nothing to restore\n".to_owned(), true));
}

#[test]
fn restore_asks_an_agent_that_runs() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let mut agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    let rows = |report: &str| -> Vec<serde_json::Value> { serde_json::from_str(report).unwrap() };
    let (would, good) = node.restore(&["--dry-run", "-o", "json"]);
    assert!(good && rows(&would).iter().any(|row| row["outcome"] == "would-restore"), "{would}");
    assert!(agent.runs() && node.cgroups.quota(APP) > BASE, "a dry run does nothing");
    let (report, good) = node.restore(&["-o", "json"]);
    assert!(good && !rows(&report).is_empty(), "{report}");
    assert!(rows(&report).iter().all(|row| row["outcome"] == "restored"), "{report}");
    assert!(agent.wait_until_it_ends().success());
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_restore_of_another_state_folder_leaves_the_agent_that_answers_alone() {
    let (running, killed) = (Node::busy(&json!({BURST: {"policy": "auto"}})), Node::new());
    let mut agent = Agent::start(&running);
    wait_until("a burst", || running.cgroups.burst(APP) > 0);
    let before = killed.cgroups.knobs();
    killed.pod(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    let other = Agent::start(&killed);
    wait_until("a burst", || killed.cgroups.burst(APP) > 0);
    other.kill();
    fs::remove_file(killed.path("admin.sock")).unwrap();
    std::os::unix::fs::symlink(running.path("admin.sock"), killed.path("admin.sock")).unwrap();

    let (would, good) = killed.restore(&["--dry-run"]);
    assert!(good && would.contains(&format!("{}/", killed.cgroups.root)), "{would}");
    let (done, good) = killed.restore(&[]);
    assert!(good && done.contains("keeps its state elsewhere and runs on"), "{done}");
    assert_eq!(killed.cgroups.knobs(), before, "{done}");
    assert!(agent.runs() && running.cgroups.burst(APP) > 0, "{done}");
    agent.terminate();
}

#[test]
fn a_restore_of_a_state_folder_in_use_ends_no_other_agent() {
    let (one, other) = (Node::new(), Node::new());
    let (mut asked, mut user) = (Agent::start(&one), Agent::start(&other));
    fs::remove_file(other.path("admin.sock")).unwrap();
    std::os::unix::fs::symlink(one.path("admin.sock"), other.path("admin.sock")).unwrap();
    for flags in [&["--dry-run"][..], &[]] {
        let (said, good) = other.restore(flags);
        assert!(!good && said.contains("another agent runs with this state folder"), "{said}");
        assert!(asked.runs() && user.runs(), "{said}");
    }
    asked.terminate();
    user.terminate();
}

#[test]
fn the_environment_says_where_the_agent_listens_and_where_it_is_asked() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let agent = Agent::start_by_variable(&node);
    wait_until("the pod to be known", || {
        agent.ask_by_variable(&["get", "pods"]).is_some_and(|pods| pods.contains("default/web"))
    });
    let log = agent.terminate();
    assert!(!node.path("admin.sock").exists(), "the socket goes with the agent");
    // With the requested log level, the log has the spans and their durations.
    let took = |span: &str| log.lines().any(|line| line.contains(span) && line.contains("time.busy="));
    for span in ["tick{number=", "}:evaluate{policy=cpu-burst mode=\"active\"}", "}:apply:"] {
        assert!(took(span), "{span}: {log}");
    }
}

#[test]
fn only_root_may_talk_to_the_agent_and_there_is_one_a_state_folder() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let mut agent = Agent::start(&node);
    let mode = fs::metadata(node.path("admin.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let other = node.path("other.sock").display().to_string();
    let (code, said) = Agent::run_to_end(&node, &[("--admin-socket", &other)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use") && said.contains("another agent"), "{said}");

    fs::create_dir(node.path("other-state")).unwrap();
    let other = node.path("other-state").display().to_string();
    let (code, said) = Agent::run_to_end(&node, &[("--state-dir", &other)]);
    assert_eq!(code, Some(1), "{said}");
    let root = format!("/{}", node.cgroups.root);
    assert!(said.contains("another qosm agent") && said.contains(&root) && said.contains("--cgroup-root"), "{said}");

    let elsewhere = Node::empty();
    let socket = node.path("admin.sock").display().to_string();
    let (code, said) = Agent::run_to_end(&elsewhere, &[("--admin-socket", &socket)]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("admin.sock") && said.contains("another agent listens"), "{said}");

    assert!(agent.runs(), "the first one is not impressed");
    assert!(agent.ask(&["get", "pods"]).is_some());
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
}

#[test]
fn a_limit_that_the_kernel_refuses_is_a_problem_until_it_is_corrected() {
    let node = Node::empty();
    node.write("pods/web.json", &manifest(&json!({}), "1Gi").to_string());
    let agent = Agent::start_with(&node, &[("--create-cgroups", "")]);
    let is_told = || agent.ask(&["get", "problems"]).is_some_and(|problems| problems.contains("the kernel refuses"));
    wait_until("the problem", is_told);
    node.pod(&json!({}));
    wait_until("the quota", || node.cgroups.exists(APP) && node.cgroups.quota(APP) == BASE);
    wait_until("the problem's end", || !is_told());
}

#[test]
fn groups_are_made_resized_and_removed_for_pods_without_a_kubelet() {
    let node = Node::empty();
    node.pod(&json!({}));
    let agent = Agent::start_with(&node, &[("--create-cgroups", "")]);
    wait_until("the groups", || node.cgroups.exists(APP) && node.cgroups.quota(APP) == BASE);
    assert_eq!(node.cgroups.quota(POD), BASE);
    assert_eq!(node.cgroups.quota("kubepods/burstable"), -1);
    let limit =
        ["memory.limit_in_bytes", "memory.max"].map(|name| fs::read_to_string(node.cgroups.file(APP, name)).ok());
    assert!(limit.iter().flatten().any(|text| text.trim() == "67108864"), "{limit:?}");

    node.pod(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    wait_until("a burst", || node.cgroups.burst(APP) == BASE);
    // Resized in place, as a kubelet does: larger, then smaller than the burst in force.
    for (cpu, quota) in [("150m", 15_000), ("50m", 5_000)] {
        node.write("pods/web.json", &manifest(&json!({BURST: {"policy": "cpuBurstOnly"}}), cpu).to_string());
        wait_until("the resized quota", || node.cgroups.quota(APP) == quota && node.cgroups.quota(POD) == quota);
        wait_until("the burst to follow", || node.cgroups.burst(APP) == quota && node.cgroups.burst(POD) == quota);
    }
    fs::remove_file(node.path("pods/web.json")).unwrap();
    wait_until("the groups to be removed", || !node.cgroups.exists(POD));
    node.pod(&json!({}));
    wait_until("the groups", || node.cgroups.exists(APP));
    agent.terminate();
    assert!(!node.cgroups.exists("kubepods"), "what it made goes with it");
}

#[test]
fn groups_that_a_killed_agent_made_are_removed_by_a_restore_or_by_the_next_agent() {
    let node = Node::empty();
    node.pod(&json!({BURST: {"policy": "cpuBurstOnly"}}));
    let start = || {
        let agent = Agent::start_with(&node, &[("--create-cgroups", "")]);
        wait_until("a burst", || node.cgroups.exists(APP) && node.cgroups.burst(APP) == BASE);
        agent
    };
    start().kill();
    assert!(node.cgroups.exists(APP));
    let (done, good) = node.restore(&[]);
    assert!(good && !node.cgroups.exists("kubepods"), "{done}");

    start().kill();
    // The next agent finds its pod as the previous one left it, and treats the cgroups as its own.
    start().kill();
    fs::remove_file(node.path("pods/web.json")).unwrap();
    let agent = Agent::start_with(&node, &[("--create-cgroups", "")]);
    wait_until("the groups of a pod that is gone to be removed", || !node.cgroups.exists(POD));
    agent.terminate();
    assert!(!node.cgroups.exists("kubepods"));
}

#[test]
fn a_group_that_is_in_use_stays_when_the_agent_ends() {
    let mut node = Node::empty();
    node.pod(&json!({BURST: {"policy": "auto"}}));
    let agent = Agent::start_with(&node, &[("--create-cgroups", "")]);
    wait_until("the groups", || node.cgroups.exists(APP));
    node.cgroups.busy(APP);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    agent.terminate();
    assert_eq!((node.cgroups.quota(APP), node.cgroups.burst(APP)), (BASE, 0));
    assert_eq!((node.cgroups.quota(POD), node.cgroups.burst(POD)), (BASE, 0));
}

#[test]
fn the_lock_of_a_killed_agent_does_not_prevent_a_restore() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    agent.kill();
    let agent = Agent::start(&node);
    agent.kill();
    let (report, good) = node.restore(&[]);
    assert!(good, "{report}");
    assert_eq!(node.cgroups.knobs(), before, "{report}");
}

#[test]
fn the_journal_is_for_root_alone_also_where_it_was_not() {
    let node = Node::busy(&json!({}));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(node.path("state"), fs::Permissions::from_mode(0o755)).unwrap();
    let agent = Agent::start(&node);
    let state = fs::read_dir(node.path("state")).unwrap().flatten().map(|entry| entry.path());
    let journal = state.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "redb")).unwrap();
    assert_eq!((mode(&node.path("state")), mode(&journal)), (0o700, 0o600), "{}", agent.log());
    agent.terminate();
}

#[test]
fn an_agent_that_is_stopped_before_it_has_begun_puts_back_what_the_one_before_it_left() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    // Modules that must be compiled, which takes longer than any of these waits.
    fs::create_dir(node.path("compiled-anew")).unwrap();
    for (wait, keeps) in [(0, false), (30, false), (120, false), (30, true)] {
        let agent = Agent::start(&node);
        wait_until("a raise", || node.cgroups.quota(APP) > BASE && node.cgroups.burst(POD) > 0);
        agent.kill();
        let held = node.cgroups.knobs();
        assert_ne!(held, before);
        fs::remove_file(node.path("state/modules")).unwrap();
        std::os::unix::fs::symlink(node.path("compiled-anew"), node.path("state/modules")).unwrap();
        let agent = Agent::spawn(&node, if keeps { &[("--on-shutdown", "keep")] } else { &[] });
        agent.wait_until_it_hears();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let log = agent.terminate();
        assert_eq!(node.cgroups.knobs(), if keeps { held } else { before.clone() }, "after {wait} ms: {log}");
        if keeps {
            assert!(node.restore(&[]).1);
        }
        assert_eq!(node.restore(&["--dry-run"]), ("nothing to restore\n".to_owned(), true), "after {wait} ms: {log}");
    }
}
