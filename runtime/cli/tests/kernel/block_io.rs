//! Limits, weights and the cost model of a disk on a real kernel: set, held, and restored. Only in a virtual machine: elsewhere
//! the cost model would be that of the machine that runs the tests.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cgroups::Version;
use crate::node::{Node, PATIENT_MILLIS, POD};
use crate::waiting::wait_until;

const BATCH: &str = "kubepods/besteffort";
/// The expected `io.cost.qos`: the share of requests that may be late, and their latencies.
const QOS: &str = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=5000 min=1.00 max=10000.00";

fn is_virtual(name: &str) -> bool {
    let is_virtual = std::env::var_os("QOSM_TEST_VM").is_some();
    if !is_virtual {
        let _ =
            writeln!(std::io::stdout(), "not run: {name}, for it sets the cost model of a disk of the machine itself");
    }
    is_virtual
}

/// The machine's disk: its name and its device number.
fn disk() -> (String, String) {
    let entries = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let size = |name: &String| fs::read_to_string(format!("/sys/block/{name}/size")).unwrap();
    let name = entries.filter(|name| !name.starts_with("loop")).find(|name| size(name).trim() != "0").unwrap();
    let numbers = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap().trim().to_owned();
    (name, numbers)
}

/// The disk's line in a file; empty if there is none.
fn line(file: &Path, numbers: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix(numbers)?.strip_prefix(' '));
    own.unwrap_or_default().to_owned()
}

fn root(file: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(file)
}

/// A node with the cgroup of batch pods, with the io controller enabled as by a kubelet, and a cluster that requests limits, a
/// weight and a latency of the disk.
fn node(disk: &str) -> Node {
    let node = Node::new();
    assert_eq!(node.cgroups.version, Version::V2);
    node.cgroups.make(BATCH);
    for above in ["", "kubepods", "kubepods/burstable"] {
        fs::write(node.cgroups.file(above, "cgroup.subtree_control"), "+io").unwrap();
    }
    node.configure(&json!({
        "resource-qos-config": {"clusterStrategy": {
            "beClass": {"blkioQOS": {"enable": true, "blocks": [
                {"name": format!("/dev/{disk}"), "type": "device", "ioCfg": {"readBPS": 1_048_576, "writeIOPS": 120, "ioWeightPercent": 20}},
                {"name": "/dev/nothing", "type": "device", "ioCfg": {"readBPS": 4096}},
            ]}},
            "cgroupRoot": {"blkioQOS": {"enable": true, "blocks": [
                {"name": format!("/dev/{disk}"), "type": "device", "ioCfg": {"writeLatency": 5000}},
            ]}},
        }},
    }));
    let policy = json!({"name": "block-io", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS});
    node.agent_config(&json!({"policies": [policy]}));
    let blocks = json!({"blocks": [{"name": disk, "type": "device", "ioCfg": {"writeBPS": 2_097_152}}]});
    let mut pod = crate::node::manifest(&json!({"koordinator.sh/blkioQOS": blocks}), "100m");
    pod["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LS"});
    node.write("pods/web.json", &pod.to_string());
    node
}

/// The requested settings, with the file of each.
fn wanted(node: &Node) -> [(PathBuf, &'static str); 4] {
    [
        (node.cgroups.file(BATCH, "io.max"), "rbps=1048576 wbps=max riops=max wiops=120"),
        (node.cgroups.file(BATCH, "io.weight"), "20"),
        (node.cgroups.file(POD, "io.max"), "rbps=max wbps=2097152 riops=max wiops=max"),
        (root("io.cost.qos"), QOS),
    ]
}

fn wait_for_all(node: &Node, numbers: &str) {
    for (file, text) in wanted(node) {
        wait_until(&format!("{}: {text}", file.display()), || line(&file, numbers) == text);
    }
}

/// Checks that nothing is left. The kernel keeps the line of a disk whose cost model was enabled once.
fn assert_nothing_is_left(node: &Node, numbers: &str) {
    for (file, _) in &wanted(node)[..3] {
        assert_eq!(line(file, numbers), "", "{}", file.display());
    }
    let qos = line(&root("io.cost.qos"), numbers);
    assert!(qos.starts_with("enable=0 ctrl=auto"), "{qos}");
}

#[test]
fn limits_weights_and_costs_of_a_disk_are_set_shown_and_given_back() {
    if !is_virtual("limits_weights_and_costs_of_a_disk_are_set_shown_and_given_back") {
        return;
    }
    let (name, numbers) = disk();
    let node = node(&name);
    let agent = Agent::start(&node);
    wait_for_all(&node, &numbers);
    let knobs = agent.json(&["get", "knobs"]);
    let held: Vec<String> = (knobs["held"].as_array().unwrap().iter())
        .map(|row| format!("{} {} {} {}", row["subject"], row["knob"], row["value"], row["baseline"]).replace('"', ""))
        .collect();
    for row in [
        format!("tier besteffort io.max {numbers} rbps=1048576 wbps=max riops=max wiops=120 default"),
        format!("tier besteffort io.weight {numbers} 20 default"),
        format!("node io.cost.qos {numbers} {QOS} default"),
    ] {
        assert!(held.contains(&row), "{row} is not in {held:#?}");
    }
    // A missing device is reported, and does not affect the other settings.
    let is_remark = |row: &Value| row["knob"] == "io.max" && row["why"].as_str().unwrap().contains("/dev/nothing");
    assert!(knobs["remarks"].as_array().unwrap().iter().any(is_remark), "{knobs}");

    // Another program's write for the same disk counts as drift; one for another disk is ignored.
    let file = node.cgroups.file(BATCH, "io.max");
    fs::write(&file, format!("{numbers} rbps=8192")).unwrap();
    let is_drifted = || {
        let knobs: Value = agent.json(&["get", "knobs"])["held"].clone();
        let is_it = |row: &Value| row["knob"] == format!("io.max {numbers}") && row["subject"] == "tier besteffort";
        knobs.as_array().unwrap().iter().any(|row| is_it(row) && row["state"] == "drifted")
    };
    wait_until("the other writer", is_drifted);
    agent.terminate();
    assert_eq!(line(&file, &numbers), "rbps=8192 wbps=max riops=max wiops=120");
    fs::write(&file, format!("{numbers} rbps=max wiops=max")).unwrap();
    assert_nothing_is_left(&node, &numbers);
}

#[test]
fn after_a_kill_a_restore_takes_limits_and_costs_away() {
    if !is_virtual("after_a_kill_a_restore_takes_limits_and_costs_away") {
        return;
    }
    let (name, numbers) = disk();
    let node = node(&name);
    let agent = Agent::start(&node);
    wait_for_all(&node, &numbers);
    agent.kill();
    let (said, is_content) = node.restore(&[]);
    assert!(is_content && said.contains("io.max") && said.contains("io.cost.qos"), "{said}");
    assert_nothing_is_left(&node, &numbers);
}
