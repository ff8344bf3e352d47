//! A node as in production: systemd manages the pods' cgroups, on cgroup v2, and the kubelet protects and throttles memory itself
//! (its MemoryQoS). `make test ARGS="--only node"` provides one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Instant;

use serde_json::{Value, json};

use crate::agent::{Agent, Module};
use crate::node::{BUSYBOX, NODE, Pod, component, kubectl, run};
use crate::waiting::{tell_if_slow, wait_until};
use crate::{PATIENCE, PAUSE};

/// Files of a cgroup that qosm or another program sets.
const SET: [&str; 9] = [
    "cpu.max",
    "cpu.max.burst",
    "cpu.weight",
    "cpu.idle",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.oom.group",
];

/// The content of these files in all cgroups of pods.
fn settings() -> BTreeMap<PathBuf, String> {
    fn collect(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
        for file in SET.map(|name| folder.join(name)) {
            if let Ok(text) = fs::read_to_string(&file) {
                found.insert(file, text);
            }
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                collect(&entry.path(), found);
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(Path::new("/sys/fs/cgroup/kubepods.slice"), &mut found);
    found
}

fn systemctl(args: &[&str]) -> String {
    run(Command::new("systemctl").args(args), "").unwrap()
}

/// systemd's properties of these cgroups, which it would write again.
fn units() -> String {
    let properties =
        "--property=Id,ActiveState,CPUQuotaPerSecUSec,CPUWeight,MemoryMin,MemoryLow,MemoryHigh,MemoryMax,DropInPaths";
    systemctl(&["show", "kubepods*", "cri-containerd-*", properties])
}

/// The values that `qosm plan` prints for the pods of the namespace `default` on this node, without files that this kernel lacks.
fn planned() -> BTreeMap<PathBuf, String> {
    let folder = tempfile::tempdir().unwrap();
    let [pods, node] = ["pods.json", "node.json"].map(|name| folder.path().join(name));
    fs::write(&pods, kubectl(&["get", "pods", "--output=json"])).unwrap();
    fs::write(&node, kubectl(&["get", "node", NODE, "--output=json"])).unwrap();
    let mut plan = Command::new(env!("CARGO_BIN_EXE_qosm"));
    plan.args(["plan", "--output", "json", "--policy", "cpu-burst", "--policy", "memory-qos", "--pods"]);
    // Knobs that this kernel lacks are refused, which is no failure here.
    let printed = plan.arg(pods).arg("--config").arg(node).output().unwrap().stdout;
    let planned: Value = serde_json::from_slice(&printed).unwrap();
    let native = planned["decisions"].as_array().unwrap().iter().filter(|row| row["support"].is_null());
    native
        .map(|row| {
            let value = row["value"].as_str().map_or_else(|| row["value"].to_string(), str::to_owned);
            (row["path"].as_str().unwrap().into(), value)
        })
        .collect()
}

/// The files that differ from the plan, as `file: what it holds, not what was planned`.
fn others(planned: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let is_other = |(file, value): (&PathBuf, &String)| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let found = text.split_whitespace().next().unwrap_or_default();
        (found != value).then(|| format!("{}: {found}, not {value}", file.display()))
    };
    planned.iter().filter_map(is_other).collect()
}

/// The same after the kubelet has written its tiers again: in their `memory.min` and `memory.low`, qosm may settle on the
/// kubelet's sum, which covers the groups in them.
fn short_of(planned: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let bytes = |file: &Path| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let is_covering = |file: &Path| {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return false };
        let groups = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path().join(name));
        let is_tier =
            folder.parent().is_some_and(|above| above.ends_with("kubepods.slice") || above.ends_with("cgroup"));
        is_tier && bytes(file).is_some_and(|own| own >= groups.filter_map(|group| bytes(&group)).sum())
    };
    let is_bound = |file: &Path| file.ends_with("memory.min") || file.ends_with("memory.low");
    let strict = planned.iter().filter(|(file, _)| !(is_bound(file) && is_covering(file)));
    others(&strict.map(|(file, value)| (file.clone(), value.clone())).collect())
}

/// The files whose content has changed, or that are gone or new.
fn changed(before: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let now = settings();
    let files: BTreeSet<&PathBuf> = before.keys().chain(now.keys()).collect();
    let is_changed = |file: &&&PathBuf| before.get(**file) != now.get(**file);
    let shown = |file: &&PathBuf| format!("{}: {:?}, before {:?}", file.display(), now.get(*file), before.get(*file));
    files.iter().filter(is_changed).map(shown).collect()
}

#[track_caller]
fn wait_for_the_plan(planned: &BTreeMap<PathBuf, String>, when: &str) {
    wait_for_nothing(&format!("{when} all is as planned"), || others(planned));
}

/// Polls until the list is empty.
#[track_caller]
fn wait_for_nothing(what: &str, left: impl Fn() -> Vec<String>) {
    let begun = Instant::now();
    loop {
        let left = left();
        if left.is_empty() {
            return tell_if_slow(what, begun.elapsed());
        }
        assert!(begun.elapsed() < PATIENCE, "not so: {what}: {left:#?}");
        sleep(PAUSE);
    }
}

/// A pod for each case that policies distinguish: the classes, with annotations of both policies and without.
fn pods() -> Vec<Pod> {
    let memory = r#"{"policy":"auto","minLimitPercent":50,"lowLimitPercent":100,"throttlingPercent":80}"#;
    let both = json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#, "koordinator.sh/memoryQOS": memory});
    let burstable = json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}});
    let guaranteed = json!({"limits": {"cpu": "100m", "memory": "48Mi"}});
    let of = |name: &str, metadata: Value, resources: &Value| {
        let app = json!({"name": "app", "image": BUSYBOX, "command": ["sleep", "100000"], "resources": resources});
        (name.to_owned(), metadata, json!({"containers": [app]}))
    };
    let class = |class: &str, annotations: &Value| json!({"labels": {"koordinator.sh/qosClass": class}, "annotations": annotations});
    Pod::create_each(&[
        of("qosm-ls", class("LS", &both), &burstable),
        of("qosm-guaranteed", class("LS", &both), &guaranteed),
        of("qosm-plain", json!({}), &burstable),
        of("qosm-be", class("BE", &json!({"koordinator.sh/memoryQOS": memory})), &json!({})),
    ])
}

fn modules() -> [Module; 2] {
    ["cpu-burst", "memory-qos"].map(|name| Module::apply(name, &json!({"module": format!("builtin:{name}")})))
}

#[test]
fn pods_get_what_a_plan_printed_whoever_starts_again_and_nothing_is_left() {
    let _modules = modules();
    let _pods = pods();
    // Whenever systemd reads its units again, it sets memory.oom.group of a container to 0 by the unit's OOMPolicy, where the kubelet had
    // set 1. That happens without qosm too.
    systemctl(&["daemon-reload"]);
    let (set, held_by_systemd) = (settings(), units());
    let planned = planned();
    let knobs = |name: &str| planned.keys().filter(|file| file.ends_with(name)).count();
    let is_whole = ["cpu.max.burst", "memory.min", "memory.low", "memory.high"].iter().all(|name| knobs(name) > 0);
    assert!(is_whole && !others(&planned).is_empty(), "{planned:#?}");

    let mut agent = Agent::start();
    wait_for_the_plan(&planned, "when the agent has begun");
    systemctl(&["daemon-reload"]);
    wait_for_the_plan(&planned, "after systemd has read its units again");
    for name in ["kubelet", "containerd"] {
        component("stop", name);
        component("start", name);
        wait_for_nothing(&format!("after {name} has begun again all is as planned"), || short_of(&planned));
    }
    agent.end();
    wait_for_nothing("every file is as it was", || changed(&set));
    assert_eq!(units(), held_by_systemd);
}

/// The agent's folder. It must survive the power cut: `/tmp` is emptied at each boot.
const KEPT: &str = "/var/lib/qosm-test-agent";

/// Runs last before the power is cut.
#[test]
fn the_power_goes_while_values_are_held() {
    std::mem::forget((modules(), pods()));
    let planned = planned();
    let agent = Agent::start_to_stay(Path::new(KEPT));
    wait_for_the_plan(&planned, "when the agent has begun");
    std::mem::forget(agent);
}

/// Runs after the next boot.
#[test]
fn the_power_is_back_and_values_come_and_go_as_before() {
    let names = ["qosm-ls", "qosm-guaranteed", "qosm-plain", "qosm-be"];
    let is_back = |name: &str| {
        let pod = kubectl(&["get", "pod", name, "--output=json"]);
        let status = serde_json::from_str::<Value>(&pod).unwrap()["status"]["containerStatuses"][0].clone();
        status["restartCount"].as_u64() >= Some(1) && status["state"]["running"].is_object()
    };
    wait_until("the kubelet runs the pods again", || names.iter().all(|name| is_back(name)));
    let (set, planned) = (settings(), planned());
    assert!(!others(&planned).is_empty(), "nothing of what was held is left: the groups are new");
    let mut agent = Agent::start_to_stay(Path::new(KEPT));
    wait_for_nothing("when the agent is back all is as planned", || short_of(&planned));
    agent.end();
    wait_for_nothing("every file is as the kubelet made it", || changed(&set));
    let journal = fs::read_dir(Path::new(KEPT).join("state")).into_iter().flatten().flatten().count();
    assert!(journal > 0, "it was on the disk");
    kubectl(&["delete", "pods", "--all", "--grace-period=1"]);
}

#[test]
fn a_resize_of_cpu_and_memory_counts_and_what_is_left_is_the_kubelets() {
    let _modules = modules();
    let pods = pods();
    let mut agent = Agent::start();
    wait_for_the_plan(&planned(), "when the agent has begun");
    let sizes = json!({"spec": {"containers": [{
        "name": "app", "resources": {"requests": {"memory": "40Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}},
    }]}});
    kubectl(&["patch", "pod", "qosm-ls", "--subresource=resize", "--patch", &sizes.to_string()]);
    let status = || pods[0].get()["status"]["containerStatuses"][0]["resources"]["limits"].clone();
    wait_until("the kubelet has carried it out", || status()["cpu"] == "300m" && status()["memory"] == "96Mi");
    let app = pods[0].cgroup("app");
    // Not by another plan: it lists only what is not in force. `memory.high` is 80 % of the way from request to limit, in whole pages.
    let files = ["cpu.max.burst", "memory.min", "memory.low", "memory.high"];
    let resized = ["30000", "20971520", "41943040", "88915968"];
    wait_for_nothing("the agent's values follow the resize", || {
        let found = files.map(|file| app.read(file).trim().to_owned());
        if found == resized { Vec::new() } else { vec![format!("{files:?}: {found:?}, not {resized:?}")] }
    });
    agent.end();
    let kubelets = (30_000, Some(96 << 20), 0);
    wait_until("what the kubelet wrote is there", || (app.quota(), app.memory_limit(), app.burst()) == kubelets);
}
