//! A paused pod is not written to.

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node};
use crate::waiting::wait_until;

#[test]
fn nothing_is_written_to_a_paused_pod() {
    let node = Node::busy(&json!({}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    assert!(agent.ask(&["pause", "default/web"]).unwrap().contains("paused until resumed"));
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("the pause to be reported", || agent.explain()["pod"]["paused"] == "by operator");
    agent.let_it_run(10);
    assert_eq!(node.cgroups.knobs(), before);
    assert_eq!(agent.metric("qosm_knob_writes_total", &[]), 0.0);

    // The pause outlives the agent.
    agent.terminate();
    let agent = Agent::start(&node);
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), before);

    assert!(agent.ask(&["resume", "default/web"]).unwrap().contains("resumed"));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);

    // A paused pod keeps its values even when the agent ends; `qosm restore` overrides the pause. The command's old name does the same.
    assert!(agent.ask(&["hold", "default/web", "--for", "1h"]).unwrap().contains("paused until 2"));
    wait_until("the pause to be reported", || agent.explain()["pod"]["paused"].is_string());
    agent.let_it_run(2);
    let held = node.cgroups.knobs();
    node.pod(&json!({}));
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), held);
    let log = agent.terminate();
    assert_eq!(node.cgroups.knobs(), held);
    assert!(log.contains("paused: left as it is"), "{log}");
    let (done, good) = node.restore(&[]);
    assert!(good, "{done}");
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_resume_fails_while_an_annotation_pauses_the_pod() {
    let node = Node::new();
    node.pod(&json!({"qosm.io/paused": true}));
    let agent = Agent::start(&node);
    wait_until("the pause to be reported", || agent.explain()["pod"]["paused"] == "by annotation");
    let error = agent.try_ask(&["resume", "default/web"]).unwrap_err();
    assert!(error.contains("default/web is still paused by annotation"), "{error}");
    node.pod(&json!({}));
    wait_until("the end of the pause", || agent.explain()["pod"]["paused"].is_null());
    assert!(agent.ask(&["resume", "default/web"]).unwrap().contains("resumed"));
    agent.terminate();
}
