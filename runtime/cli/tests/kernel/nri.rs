//! A container runtime that announces containers by NRI: real cgroups, a real agent, and the protocol over a socket.

use qosm_nri::fake_runtime::FakeRuntime;
use qosm_nri::{PodSandbox, RunningContainer};
use serde_json::json;
use tokio::net::UnixListener;

use crate::agent::Agent;
use crate::node::{BASE, BURST, Node, POD, manifest};
use crate::waiting::wait_until;

/// Maximum number of container starts until one is answered in time: a loaded machine may be late.
const STARTS: u32 = 50;

fn group(id: &str) -> String {
    format!("{POD}/{id}")
}

#[test]
fn a_container_has_its_settings_when_its_runtime_may_start_it() {
    let node = Node::empty();
    node.cgroups.make(POD);
    node.cgroups.set_quota(POD, BASE);
    // The pod's status never names a container: only the runtime does.
    let mut pod = manifest(&json!({BURST: {"policy": "auto"}}), "100m");
    pod["status"] = json!({"phase": "Pending", "containerStatuses": []});
    node.write("pods/web.json", &pod.to_string());
    let socket = node.path("nri.sock");
    node.agent_config(&json!({"nri": {"socket": socket}}));

    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = tokio.enter();
    let listener = UnixListener::bind(&socket).unwrap();
    // Without ticks that would set the knobs as well.
    let agent = Agent::start_with(&node, &[("--tick-millis", "60000")]);
    let mut runtime = tokio.block_on(async { FakeRuntime::new(listener.accept().await.unwrap().0) });
    let (plugin, _) = tokio.block_on(runtime.accept("containerd", &[]));
    assert_eq!(plugin, "00-qosm");
    wait_until("the policy to have been evaluated", || agent.policy("cpu-burst")["evaluations"] != 0);

    let started = (0..STARTS).find_map(|number| {
        let id = format!("c{number}");
        node.cgroups.make(&group(&id));
        node.cgroups.set_quota(&group(&id), BASE);
        let before = agent.metric("qosm_container_starts_total", &["in-time"]);
        let container = RunningContainer {
            id: id.clone(),
            name: "app".to_owned(),
            cgroup: Some(format!("{}/{}", node.cgroups.root, group(&id))),
            pod: PodSandbox { uid: "u-web".to_owned(), namespace: "default".to_owned(), name: "web".to_owned() },
        };
        assert!(tokio.block_on(runtime.start(&container)), "no start fails");
        let burst = node.cgroups.burst(&group(&id));
        let is_in_time = agent.metric("qosm_container_starts_total", &["in-time"]) > before;
        is_in_time.then_some((id, burst))
    });
    let (id, burst) = started.unwrap();
    assert_eq!(burst, BASE, "{id} starts with its burst, capped at its quota");
    let held = agent.held("container", "cpu.burst");
    assert_eq!((&held["value"], &held["baseline"]), (&json!(BASE), &json!(0)), "{held}");
    assert_eq!(agent.problems(), Vec::<String>::new());

    // The runtime ends: its containers keep their settings, and a problem says what is missing.
    drop((runtime, listener));
    wait_until("the agent to miss the runtime", || {
        agent.problems().iter().any(|problem| problem.contains("not connected by NRI"))
    });
    assert_eq!(node.cgroups.burst(&group(&id)), BASE);
    agent.terminate();
    assert_eq!(node.cgroups.burst(&group(&id)), 0);
}
