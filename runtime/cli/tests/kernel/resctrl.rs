//! Caches and memory bandwidth: real processes of real pods in classes of an emulated resctrl, which is a mounted file system
//! like the kernel's. Needs `/dev/fuse`, which the tests' VM does not have.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use qosm_resctrl_fuse::{Bytes, BytesPerSecond, Clock, Demand, Mounted, Proc, Profile, Tid, Tree, mount};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::agent::Agent;
use crate::node::{Node, PATIENT_MILLIS};
use crate::waiting::{wait_for, wait_until};

const QOS: &str = "koordinator.sh/qosClass";
const OWN: &str = "node.koordinator.sh/resctrl";
const MIB: u64 = 1 << 20;

/// A node with an emulated resctrl.
struct Machine {
    node: Node,
    mounted: Option<Mounted>,
    point: TempDir,
}

impl Machine {
    /// `None` in a VM without FUSE.
    fn new(profile: &str) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            assert!(std::env::var_os("QOSM_TEST_VM").is_some(), "these tests need /dev/fuse");
            let test = std::thread::current();
            // Not `println`, whose output libtest drops for a test that passes.
            let name = test.name().unwrap_or_default();
            let _ = writeln!(std::io::stdout(), "not run: {name}, for it takes /dev/fuse");
            return None;
        }
        let node = Node::empty();
        let point = tempfile::tempdir().unwrap();
        let tree = Tree::new(Profile::named(profile).unwrap(), Proc::new()).unwrap();
        let mounted = mount(Arc::new(Mutex::new(tree)), point.path(), Clock::Real).unwrap();
        let machine = Self { node, mounted: Some(mounted), point };
        machine.see_mounts();
        machine.policies(&json!({}));
        Some(machine)
    }

    /// Updates the node's `/proc`: the mounts, and the processor.
    fn see_mounts(&self) {
        for name in ["self/mountinfo", "self/mounts", "mounts", "cpuinfo", "filesystems", "cmdline"] {
            let file = self.node.path("proc").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, fs::read(Path::new("/proc").join(name)).unwrap()).unwrap();
        }
    }

    fn policies(&self, config: &Value) {
        self.node.agent_config(&json!({"policies": [{
            "name": "llc-mba", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS, "config": config,
        }]}));
    }

    /// Writes the cluster's strategy for classes.
    fn classes(&self, classes: &Value) {
        self.node.configure(&json!({"resource-qos-config": {"clusterStrategy": classes}}));
    }

    /// Creates a pod of a QoS class with one container, and a process in it that forks continuously.
    fn pod(&mut self, name: &str, class: &str, annotations: &Value) {
        self.node.cgroups.make(&group(name));
        self.node.cgroups.load(&group(name), "while :; do sleep 0.01 & wait; done");
        self.manifest(name, class, annotations);
    }

    fn manifest(&self, name: &str, class: &str, annotations: &Value) {
        let texts: serde_json::Map<String, Value> = annotations
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned).into()))
            .collect();
        let manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("u-{name}"),
                "labels": {QOS: class}, "annotations": texts,
            },
            "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}]},
        });
        self.node.write(&format!("pods/{name}.json"), &manifest.to_string());
    }

    fn agent(&self) -> Agent {
        let path = self.point.path().display().to_string();
        Agent::start_with(&self.node, &[("--resctrl", path.as_str())])
    }

    fn restore(&self, flags: &[&str]) -> (String, bool) {
        let path = self.point.path().display().to_string();
        self.node.restore(&[&["--resctrl", path.as_str()], flags].concat())
    }

    fn file(&self, path: &str) -> PathBuf {
        self.point.path().join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.file(path)).unwrap_or_default()
    }

    /// The control groups, without the root.
    fn groups(&self) -> BTreeSet<String> {
        let names = fs::read_dir(self.point.path()).unwrap().flatten();
        names
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| !matches!(name.as_str(), "info" | "mon_groups" | "mon_data"))
            .collect()
    }

    fn own(&self) -> BTreeSet<String> {
        self.groups().into_iter().filter(|name| name.starts_with("qosm-")).collect()
    }

    fn own_monitors(&self) -> usize {
        let names = fs::read_dir(self.file("mon_groups")).into_iter().flatten().flatten();
        names.filter(|entry| entry.file_name().to_str().unwrap().starts_with("qosm-")).count()
    }

    /// Whether all threads of a pod are in a group; the empty name is the root group.
    fn all_in(&self, pod: &str, name: &str) -> bool {
        let file = if name.is_empty() { "tasks".to_owned() } else { format!("{name}/tasks") };
        let tasks = self.text(&file);
        let there: BTreeSet<&str> = tasks.lines().collect();
        // The threads are read between two readings of the group, because processes end meanwhile.
        let threads = self.threads(pod);
        let tasks = self.text(&file);
        let then: BTreeSet<&str> = tasks.lines().collect();
        let still = self.threads(pod);
        !threads.is_empty()
            && threads.iter().all(|id| there.contains(id.as_str()) || then.contains(id.as_str()) || !still.contains(id))
    }

    fn threads(&self, pod: &str) -> BTreeSet<String> {
        let file = match self.node.cgroups.version {
            crate::cgroups::Version::V1 => self.node.cgroups.folders(&group(pod)).remove(0).join("tasks"),
            crate::cgroups::Version::V2 => self.node.cgroups.folders(&group(pod)).remove(0).join("cgroup.threads"),
        };
        fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
    }

    /// Sets the emulated demand of a pod's first process: the one that no other of its threads has forked, since process IDs
    /// repeat within minutes of forking.
    fn demand(&self, pod: &str, occupancy: u64, bandwidth: u64) {
        let threads = self.threads(pod);
        let parent = |id: &str| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
            Some(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned())
        };
        let is_first = |id: &&String| parent(id).is_some_and(|parent| !threads.contains(&parent));
        let id: u32 = threads.iter().find(is_first).unwrap().parse().unwrap();
        let demand = Demand { occupancy: Bytes(occupancy), bandwidth: BytesPerSecond(bandwidth), local_percent: 100 };
        self.mounted.as_ref().unwrap().tree().lock().unwrap().set_task_demand(Tid(id), 0, demand);
    }
}

fn group(pod: &str) -> String {
    format!("kubepods/besteffort/podu-{pod}/app")
}

fn memberships(agent: &Agent, pod: &str) -> Value {
    agent.json(&["explain", pod])["pod"]["classes"].clone()
}

const BOTH: fn() -> Value = || {
    json!({
        "lsClass": {"resctrlQOS": {"enable": true}},
        "beClass": {"resctrlQOS": {"enable": true, "catRangeEndPercent": 30, "mbaPercent": 45}},
    })
};

#[test]
fn classes_hold_their_pods_are_explained_and_leave_nothing_behind() {
    let Some(mut machine) = Machine::new("intel") else { return };
    fs::create_dir(machine.file("others")).unwrap();
    fs::write(machine.file("others/schemata"), "L3:0=3\n").unwrap();
    let (foreign, root) = (machine.text("others/schemata"), machine.text("schemata"));
    machine.classes(&BOTH());
    machine.pod("web", "LS", &json!({}));
    machine.pod("batch", "BE", &json!({}));
    machine.pod(
        "tuned",
        "BE",
        &json!({OWN: {"LLC": {"schemata": {"range": [50, 100]}}, "MB": {"schemata": {"percent": 20}}}}),
    );
    machine.pod("plain", "SYSTEM", &json!({}));
    let agent = machine.agent();
    wait_until("BE's group", || machine.all_in("batch", "qosm-llc-mba-be"));
    let schemata = machine.text("qosm-llc-mba-be/schemata");
    let ways = machine.text("info/L3/cbm_mask");
    let count = u64::from_str_radix(ways.trim(), 16).unwrap().count_ones();
    let be = (1_u64 << (count * 30).div_ceil(100)) - 1;
    assert!(schemata.contains(&format!("0={be:x}")) && schemata.contains("MB:0=50"), "{schemata}");
    wait_until("LS's group", || machine.all_in("web", "qosm-llc-mba-ls"));
    let own = wait_for("the group of the pod with shares of its own", || {
        let others = ["qosm-llc-mba-be", "qosm-llc-mba-ls"];
        machine.own().into_iter().find(|name| !others.contains(&name.as_str()))
    });
    wait_until("its threads", || machine.all_in("tuned", &own));
    assert!(machine.text(&format!("{own}/schemata")).contains("MB:0=20"));
    assert!(machine.all_in("plain", ""), "who is in no enabled class stays where it was");

    let report = memberships(&agent, "default/batch");
    let class = &report[0]["class"];
    assert_eq!(report[0]["container"], "app", "{report}");
    assert_eq!(class["policy"], "llc-mba", "{report}");
    assert_eq!(class["inForce"], true, "{report}");
    assert_eq!(class["group"], "qosm-llc-mba-be", "{report}");
    assert!(class["schemata"].as_str().unwrap().contains(&format!("0={be:x}")), "{report}");
    assert!(!report[0]["reason"].as_str().unwrap().is_empty(), "{report}");
    let text = agent.ask(&["explain", "default/batch"]).unwrap();
    assert!(text.contains("class be of llc-mba: ways 0-30 %, 45 % of the memory bandwidth"), "{text}");
    let classes = agent.ask(&["get", "classes"]).unwrap();
    assert!(classes.contains("qosm-llc-mba-be") && classes.contains("qosm-llc-mba-ls"), "{classes}");
    assert!(agent.metric("qosm_resctrl_classes", &["in-force"]) >= 3.0);
    assert!(agent.metric("qosm_resctrl_threads_moved_total", &[]) >= 3.0);

    // Classes that are no longer requested are released.
    machine.manifest("tuned", "BE", &json!({}));
    wait_until("it to be as its class again", || machine.all_in("tuned", "qosm-llc-mba-be"));
    wait_until("its group to go", || !machine.groups().contains(&own));
    machine.classes(&json!({"beClass": {"resctrlQOS": {"enable": true, "catRangeEndPercent": 60}}}));
    wait_until("LS to be in no class", || machine.all_in("web", "") && !machine.groups().contains("qosm-llc-mba-ls"));
    wait_until("BE's new ways", || machine.text("qosm-llc-mba-be/schemata") != schemata);

    agent.terminate();
    assert_eq!(machine.groups(), BTreeSet::from(["others".to_owned()]));
    assert_eq!(machine.own_monitors(), 0);
    assert_eq!(machine.text("others/schemata"), foreign);
    assert_eq!(machine.text("schemata"), root);
    assert!(machine.all_in("batch", ""));
}

#[test]
fn after_kill_9_the_next_agent_goes_on_and_restore_removes_all() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.classes(&BOTH());
    machine.pod("web", "LS", &json!({}));
    machine.pod("batch", "BE", &json!({}));
    let begin = |machine: &Machine| {
        let agent = machine.agent();
        wait_until("the groups", || {
            machine.all_in("batch", "qosm-llc-mba-be") && machine.all_in("web", "qosm-llc-mba-ls")
        });
        agent
    };
    begin(&machine).kill();
    let left = machine.own();
    assert!(!left.is_empty(), "nobody had the time to remove them");
    // A group of an earlier configuration, which no policy wants any more.
    fs::create_dir(machine.file("qosm-llc-mba-gone")).unwrap();
    let agent = begin(&machine);
    wait_until("the unwanted group to go", || machine.own() == left);
    agent.kill();

    let (report, good) = machine.restore(&["--dry-run"]);
    assert!(good && report.contains("qosm-llc-mba-be"), "{report}");
    assert_eq!(machine.own(), left, "a dry run leaves all as it is");
    let (report, good) = machine.restore(&[]);
    assert!(good && report.contains("qosm-llc-mba-be"), "{report}");
    assert_eq!(machine.groups(), BTreeSet::new());
    assert_eq!(machine.own_monitors(), 0);
    assert!(machine.all_in("batch", ""));
}

#[test]
fn a_machine_without_resctrl_is_reported_and_other_policies_go_on() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.classes(&BOTH());
    machine.pod("batch", "BE", &json!({OWN: {"llc": {"schemata": {"range": [0, 20]}}}}));
    machine.node.agent_config(&json!({"policies": [
        crate::node::quick(), {"name": "llc-mba", "intervalMillis": 200, "evaluationMillis": PATIENT_MILLIS},
    ]}));
    // Without `--resctrl` the emulation does not count, and this machine has no resctrl.
    let agent = Agent::start(&machine.node);
    let report = wait_for("the class to be reported of", || {
        Some(memberships(&agent, "default/batch"))
            .filter(|report| report.as_array().is_some_and(|rows| !rows.is_empty()))
    });
    assert_eq!(report[0]["class"]["inForce"], false, "{report}");
    assert!(report[0]["class"]["why"].as_str().unwrap().contains("resctrl"), "{report}");
    let text = agent.ask(&["explain", "default/batch"]).unwrap();
    assert!(text.contains("not in force: "), "{text}");
    assert_eq!(agent.policy("cpu-burst")["health"], "running");
    assert_eq!(agent.policy("llc-mba")["health"], "running");
    assert!(machine.own().is_empty());
    agent.terminate();
}

#[test]
fn a_group_without_a_closid_is_reported_and_gets_one_when_it_is_free() {
    let Some(mut machine) = Machine::new("few-closids") else { return };
    let free: u32 = machine.text("info/MB/num_closids").trim().parse().unwrap();
    machine.classes(&json!({"beClass": {"resctrlQOS": {"enable": true}}}));
    // One group more than there are free CLOSIDs, beside the root and BE's class.
    let names: Vec<String> = (0..free - 1).map(|number| format!("own-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        machine.pod(name, "LS", &json!({OWN: {"llc": {"schemata": {"range": [0, 40 + 20 * number]}}}}));
    }
    machine.pod("batch", "BE", &json!({}));
    let agent = machine.agent();
    let unplaced = || -> Vec<String> {
        let classes = agent.json(&["get", "classes"]);
        let rows = classes.as_array().cloned().unwrap_or_default();
        rows.iter().filter(|class| class["inForce"] == false).map(|class| class["why"].to_string()).collect()
    };
    wait_until("all to be placed but one", || machine.own().len() + 1 == usize::try_from(free).unwrap());
    wait_until("one to be reported", || unplaced().len() == 1);
    assert!(unplaced()[0].contains("CLOSID"), "{:?}", unplaced());
    wait_until("its owner's event", || agent.json(&["get", "events"]).to_string().contains("own-"));
    fs::remove_file(machine.node.path("pods/own-0.json")).unwrap();
    wait_until("a place for it", || unplaced().is_empty());
    agent.terminate();
    assert!(machine.groups().is_empty());
}

#[test]
fn bad_input_is_reported_and_the_pod_has_what_its_class_has() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.classes(&BOTH());
    machine.pod("inverted", "BE", &json!({OWN: {"llc": {"schemata": {"range": [80, 20]}}}}));
    machine.pod("text", "BE", &json!({OWN: "{not json"}));
    machine.pod("good", "BE", &json!({OWN: {"mb": {"schemata": {"percent": 30}}}}));
    let agent = machine.agent();
    for pod in ["inverted", "text"] {
        wait_until("its class's shares", || machine.all_in(pod, "qosm-llc-mba-be"));
        let text = agent.ask(&["explain", &format!("default/{pod}")]).unwrap();
        assert!(text.contains(OWN) || text.contains("turned down"), "{text}");
    }
    wait_until("the good one's own group", || machine.own().len() >= 2);
    // An invalid class leaves the previous one in force.
    machine.classes(
        &json!({"beClass": {"resctrlQOS": {"enable": true, "catRangeStartPercent": 60, "catRangeEndPercent": 30}}}),
    );
    let problem = || agent.problems().into_iter().chain(agent.policy("llc-mba")["error"].as_str().map(str::to_owned));
    wait_until("it to be reported", || problem().any(|text| text.contains("catRange")));
    agent.terminate();
    assert!(machine.own().is_empty());
}

#[test]
fn a_paused_pod_stays_in_its_class() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.classes(&BOTH());
    machine.pod("batch", "BE", &json!({}));
    let agent = machine.agent();
    wait_until("its group", || machine.all_in("batch", "qosm-llc-mba-be"));
    assert!(agent.ask(&["pause", "default/batch"]).is_some());
    machine.manifest("batch", "LS", &json!({}));
    agent.let_it_run(5);
    assert!(machine.all_in("batch", "qosm-llc-mba-be"), "nothing is done to a paused pod");
    assert!(agent.ask(&["resume", "default/batch"]).is_some());
    wait_until("its new class", || machine.all_in("batch", "qosm-llc-mba-ls"));
    agent.terminate();
}

#[test]
fn be_is_narrowed_while_memory_is_short_and_gets_its_share_back() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.policies(&json!({"profile": "dynamic", "maxBandwidthMBps": 10_000, "stepSeconds": 0, "calmSeconds": 1}));
    machine.classes(&json!({
        "lsClass": {"resctrlQOS": {"enable": true}},
        "beClass": {"resctrlQOS": {"enable": true, "catRangeEndPercent": 80}},
    }));
    machine.pod("web", "LS", &json!({}));
    machine.pod("batch", "BE", &json!({}));
    machine.demand("web", 4 * MIB, 4_000_000_000);
    machine.demand("batch", 30 * MIB, 8_000_000_000);
    let agent = machine.agent();
    wait_until("the groups", || machine.all_in("batch", "qosm-llc-mba-be"));
    let full = machine.text("qosm-llc-mba-be/schemata");
    wait_until("BE to be narrowed", || machine.text("qosm-llc-mba-be/schemata") != full);
    let report = memberships(&agent, "default/batch");
    assert!(report[0]["class"]["reason"].as_str().unwrap().contains('%'), "the reason tells figures: {report}");
    machine.demand("batch", MIB, 100_000_000);
    wait_until("BE to have its share back", || machine.text("qosm-llc-mba-be/schemata") == full);
    agent.terminate();
    assert!(machine.own().is_empty());
}

#[test]
fn a_mount_that_goes_is_reported_and_one_that_comes_back_is_used() {
    let Some(mut machine) = Machine::new("intel") else { return };
    machine.classes(&BOTH());
    machine.pod("batch", "BE", &json!({}));
    let agent = machine.agent();
    wait_until("its group", || machine.all_in("batch", "qosm-llc-mba-be"));
    drop(machine.mounted.take());
    machine.see_mounts();
    let in_force = || memberships(&agent, "default/batch")[0]["class"]["inForce"].as_bool();
    wait_until("it to be reported", || in_force() == Some(false));
    assert_eq!(agent.policy("llc-mba")["health"], "running");
    let tree = Tree::new(Profile::named("amd").unwrap(), Proc::new()).unwrap();
    machine.mounted = Some(mount(Arc::new(Mutex::new(tree)), machine.point.path(), Clock::Real).unwrap());
    machine.see_mounts();
    wait_until("its group again", || machine.all_in("batch", "qosm-llc-mba-be") && in_force() == Some(true));
    std::thread::sleep(Duration::from_millis(10));
    agent.terminate();
    assert!(machine.own().is_empty());
}
