//! A pod on hold is not written to.

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node};
use crate::waiting::wait_until;

#[test]
fn nothing_is_written_to_a_pod_on_hold() {
    let node = Node::busy(&json!({}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    assert!(agent.ask(&["hold", "default/web"]).unwrap().contains("on hold until lifted"));
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("the hold to be told", || agent.explain()["pod"]["hold"] == "by operator");
    agent.let_it_run(10);
    assert_eq!(node.cgroups.knobs(), before);
    assert_eq!(agent.metric("qosm_knob_writes_total", &[]), 0.0);

    // It outlives the agent.
    agent.terminate();
    let agent = Agent::start(&node);
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), before);

    assert!(agent.ask(&["hold", "default/web", "--lift"]).unwrap().contains("lifted"));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);

    // A hold keeps what is there, also when the agent ends. A restore is asked for, and means all of it.
    assert!(agent.ask(&["hold", "default/web", "--for", "1h"]).unwrap().contains("on hold until 2"));
    wait_until("the hold to be told", || agent.explain()["pod"]["hold"].is_string());
    agent.let_it_run(2);
    let held = node.cgroups.knobs();
    node.pod(&json!({}));
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), held);
    let log = agent.terminate();
    assert_eq!(node.cgroups.knobs(), held);
    assert!(log.contains("on hold: left as it is"), "{log}");
    let (done, good) = node.restore(&[]);
    assert!(good, "{done}");
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_hold_ends_by_itself() {
    let node = Node::busy(&json!({}));
    let agent = Agent::start(&node);
    agent.ask(&["hold", "default/web", "--for", "2s"]).unwrap();
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("the end of the hold, and a raise", || node.cgroups.quota(APP) > BASE);
    assert!(agent.explain()["pod"]["hold"].is_null());
}

#[test]
fn the_annotation_holds_too() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}, "qosm.io/hold": true}));
    let before = node.cgroups.knobs();
    let agent = Agent::start(&node);
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), before);
    assert_eq!(agent.explain()["pod"]["hold"], "by annotation");
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
}
