//! Memory on the wrong NUMA node: the default module moves real pages of a real process. Needs two NUMA nodes and cgroup v2; the
//! VM of the tests has both.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cgroups::Version;
use crate::node::{Node, POD};
use crate::pinning;
use crate::waiting::{wait_for, wait_until};

const LOCALITY: &str = "koordinator.sh/memoryLocality";
const NODES: &str = "/sys/devices/system/node";
/// Upper bound of the lag of a cgroup's statistics: the kernel flushes them every two seconds.
const SETTLED: Duration = Duration::from_secs(5);

/// A node whose pod `default/web` has memory on one NUMA node, and its CPUs on another.
struct Astray {
    /// Dropped before the cgroups that they run in.
    hogs: Vec<(&'static str, Child)>,
    node: Node,
    from: u32,
    to: u32,
}

impl Astray {
    /// Creates the containers, each with this many MB. `None` if there is no second NUMA node, or no cgroup v2.
    fn new(test: &str, containers: &[(&'static str, u32)]) -> Option<Self> {
        let node = Node::empty();
        let (first, second) = (memory_free(0), memory_free(1));
        let (Some(first), Some(second), Version::V2) = (first, second, node.cgroups.version) else {
            assert!(std::env::var_os("QOSM_TEST_VM").is_none(), "this VM lacks its second NUMA node, or cgroup v2");
            // Not `println`, whose output libtest drops for a test that passes.
            let _ = writeln!(std::io::stdout(), "not run: {test}, for it takes two NUMA nodes and cgroup v2");
            return None;
        };
        // The source is the node with more free memory, so that the memory really comes from there.
        let (from, to) = if first > second { (0, 1) } else { (1, 0) };
        for (name, _) in containers {
            node.cgroups.make(&group(name));
        }
        let groups: Vec<_> = containers.iter().map(|(name, _)| group(name)).collect();
        node.cgroups.make_cpusets(&groups.iter().map(String::as_str).collect::<Vec<_>>());
        let mut astray = Self { hogs: Vec::new(), node, from, to };
        for (name, megabytes) in containers {
            astray.fill(name, *megabytes);
        }
        astray.speed(256);
        Some(astray)
    }

    /// Starts a process in a container that fills a buffer of this many MB on the first node and keeps it; then moves the
    /// container to the CPUs of the other.
    fn fill(&mut self, name: &'static str, megabytes: u32) {
        self.pin(name, self.from);
        let procs = self.node.cgroups.file(&group(name), "cgroup.procs");
        let script =
            format!("echo $$ > {}; exec dd if=/dev/zero bs={megabytes}000000 count=1 2>/dev/null", procs.display());
        // Nothing reads its output, so it keeps the buffer.
        let hog = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        self.hogs.push((name, hog));
        let least = u64::from(megabytes) * 1_000_000 / 4096 * 99 / 100;
        wait_until("the memory to be filled", || self.pages(name).0 >= least);
        self.pin(name, self.to);
        let (remote, local) = self.pages(name);
        assert!(local < remote, "{local} pages are local, {remote} remote");
    }

    fn pin(&self, name: &str, numa: u32) {
        let cpus = fs::read_to_string(format!("{NODES}/node{numa}/cpulist")).unwrap();
        fs::write(self.node.cgroups.file(&group(name), "cpuset.cpus"), cpus).unwrap();
    }

    /// A container's pages on the source node and on the target node.
    fn pages(&self, name: &str) -> (u64, u64) {
        let text = fs::read_to_string(self.node.cgroups.file(&group(name), "memory.numa_stat")).unwrap();
        let on = |numa: u32| -> u64 {
            let of = |line: &str| {
                let word = line.split(' ').find_map(|word| word.strip_prefix(&format!("N{numa}="))).unwrap();
                word.trim().parse::<u64>().unwrap() / 4096
            };
            text.lines().filter(|line| line.starts_with("anon ") || line.starts_with("file ")).map(of).sum()
        };
        (on(self.from), on(self.to))
    }

    fn local_percent(&self, name: &str) -> u64 {
        let (remote, local) = self.pages(name);
        local * 100 / (local + remote).max(1)
    }

    /// Limits the migration's speed and the memory reserve on the target.
    fn speed(&self, mib_per_second: u64) {
        self.limits(
            &json!({"mibPerSecond": mib_per_second, "cpuPercent": 100, "reserveMib": 4, "pressurePercent": 100}),
        );
    }

    fn limits(&self, limits: &Value) {
        self.policy(&json!({"minRemotePages": 100}), limits);
    }

    fn policy(&self, config: &Value, limits: &Value) {
        let policy = json!({"name": "memory-locality", "evaluationMillis": 2000, "config": config});
        self.node.agent_config(&json!({"policies": [policy], "pageMigration": limits}));
    }

    /// Writes the manifest of `default/web`.
    fn pod(&self, containers: &[&str], locality: &Value) {
        let containers: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
        let annotations = json!({LOCALITY: locality.to_string()});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "namespace": "default", "uid": "u-web", "annotations": annotations},
            "spec": {"containers": containers},
            "status": {"phase": "Running", "qosClass": "Burstable"},
        });
        self.node.write("pods/web.json", &pod.to_string());
    }

    /// Starts an agent that sees the processes of this machine.
    #[track_caller]
    fn agent(&self) -> Agent {
        Agent::start_with(&self.node, &[("--proc", "/proc")])
    }

    fn kill(&mut self, name: &str) -> u32 {
        let place = self.hogs.iter().position(|(of, _)| *of == name).unwrap();
        let (_, mut hog) = self.hogs.remove(place);
        hog.kill().unwrap();
        hog.wait().unwrap();
        hog.id()
    }
}

impl Drop for Astray {
    fn drop(&mut self) {
        for (_, hog) in &mut self.hogs {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

fn group(container: &str) -> String {
    format!("{POD}/{container}")
}

fn memory_free(numa: u32) -> Option<u64> {
    let text = fs::read_to_string(Path::new(NODES).join(format!("node{numa}/meminfo"))).ok()?;
    text.lines().find(|line| line.contains(" MemFree:"))?.split_whitespace().nth(3)?.parse().ok()
}

/// The pod's events about its memory: reason and message of each.
fn report(agent: &Agent) -> Vec<(String, String)> {
    let events = agent.json(&["get", "events"]);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    let of_pod = events.as_array().unwrap().iter().filter(|event| event["pod"] == "default/web");
    of_pod
        .inspect(|event| assert_eq!((&event["kind"], &event["count"]), (&json!("Normal"), &json!(1)), "{event}"))
        .map(|event| (text(event, "reason"), text(event, "message")))
        .collect()
}

#[track_caller]
fn wait_for_event(agent: &Agent) -> (String, String) {
    let report = wait_for("an event", || Some(report(agent)).filter(|report| !report.is_empty()));
    assert_eq!(report.len(), 1, "{report:?}");
    report.into_iter().next().unwrap()
}

/// A message's text, and the two numbers at its end.
fn figures(message: &str) -> (String, u64, u64) {
    let (before, figures) = message.split_once("cur local memory ratio ").unwrap();
    let (ratio, rest) = figures.split_once(", rest remote memory pages ").unwrap();
    (before.to_owned(), ratio.parse().unwrap(), rest.parse().unwrap())
}

/// Moved pages, found pages and state of a container's latest migration.
fn progress(agent: &Agent, container: &str) -> Option<(u64, u64, String)> {
    let explanation = agent.explain();
    let rows = explanation["pod"]["locality"].as_array()?;
    let migration = rows.iter().find(|row| row["container"] == container)?["migration"].clone();
    let count = |field: &str| migration[field].as_u64();
    Some((count("pagesMoved")?, count("pagesFound")?, migration["state"].as_str()?.to_owned()))
}

#[track_caller]
fn wait_until_under_way(agent: &Agent, container: &str) {
    wait_until("pages to move", || {
        let far_enough = |moved: u64, found: u64| moved < found && moved * 5 > found;
        progress(agent, container).is_some_and(|(moved, found, state)| state == "moving" && far_enough(moved, found))
    });
}

#[test]
fn pages_come_home_and_the_pod_gets_an_event() {
    let Some(astray) = Astray::new("pages_come_home_and_the_pod_gets_an_event", &[("app", 40)]) else { return };
    let (from, to) = (astray.from, astray.to);
    assert!(astray.local_percent("app") < 50);
    // The migration takes 40 s, because the commands that observe it may be slow.
    astray.speed(1);
    astray.pod(&["app"], &json!({"policy": "BestEffort"}));
    let agent = astray.agent();
    wait_until_under_way(&agent, "app");
    let pods = agent.ask(&["get", "pods"]).unwrap();
    assert!(pods.contains(" %, moving: ") && pods.contains(" pages"), "{pods}");
    let explained = agent.ask(&["explain", "default/web"]).unwrap();
    let moved = format!("pages moved from {from} to {to}, 0 of 1 processes");
    assert!(explained.contains(&moved) && explained.contains("by memory-locality since"), "{explained}");
    assert_eq!(report(&agent), [], "nothing is reported before the last page was tried");

    let (reason, message) = wait_for_event(&agent);
    let (before, ratio, rest) = figures(&message);
    assert_eq!(reason, "MemoryLocalityCompleted", "{message}");
    assert_eq!(
        before,
        format!(
            "Container app completed: migrated memory from remote numa: {from} to local numa: {to}\n\
             Total: 1 container(s) completed, 0 failed, 0 skipped; "
        )
    );
    assert!(ratio >= 99 && rest < 100, "{message}");
    assert!(astray.local_percent("app") >= 99, "{:?}", astray.pages("app"));
    assert!(agent.metric("qosm_migration_pages_moved_total", &[]) > 9_000.0);
    for (when, least, most) in [("before", 0.0, 0.5), ("after", 0.99, 1.0)] {
        let share = agent.metric("qosm_migration_local_ratio_sum", &[when]);
        assert!((least..=most).contains(&share), "{when}: {share}");
        assert_eq!(agent.metric("qosm_migration_local_ratio_count", &[when]), 1.0);
    }
    wait_until("the event", || agent.ask(&["get", "events"]).unwrap().contains("MemoryLocalityCompleted"));

    // A single round is not repeated, wherever the pages go, and after each restart of the agent.
    astray.pin("app", from);
    agent.let_it_run(15);
    agent.terminate();
    let agent = astray.agent();
    agent.let_it_run(25);
    assert_eq!((report(&agent), progress(&agent, "app")), (Vec::new(), None));
    assert!(astray.local_percent("app") >= 99, "{:?}", astray.pages("app"));
}

#[test]
fn an_agent_that_was_killed_goes_on_where_it_was() {
    let Some(astray) = Astray::new("an_agent_that_was_killed_goes_on_where_it_was", &[("app", 24)]) else { return };
    astray.speed(2);
    astray.pod(&["app"], &json!({"policy": "bestEffort"}));
    let agent = astray.agent();
    wait_until_under_way(&agent, "app");
    agent.kill();
    sleep(SETTLED);
    let between = astray.local_percent("app");
    assert!((1..99).contains(&between), "{:?}", astray.pages("app"));
    sleep(SETTLED / 2);
    assert_eq!(astray.local_percent("app"), between, "nobody moves anything now");

    astray.speed(256);
    let agent = astray.agent();
    let (reason, message) = wait_for_event(&agent);
    let (_, ratio, _) = figures(&message);
    assert!(reason == "MemoryLocalityCompleted" && ratio >= 99, "{message}");
    assert!(astray.local_percent("app") >= 99, "{:?}", astray.pages("app"));
    agent.let_it_run(15);
    assert_eq!(report(&agent).len(), 1);
}

#[test]
fn of_two_containers_one_whose_process_is_killed_counts_as_completed() {
    let name = "of_two_containers_one_whose_process_is_killed_counts_as_completed";
    let Some(mut astray) = Astray::new(name, &[("app", 24), ("db", 24)]) else { return };
    let (from, to) = (astray.from, astray.to);
    astray.speed(2);
    astray.pod(&["app", "db"], &json!({"policy": "bestEffort"}));
    let agent = astray.agent();
    wait_until_under_way(&agent, "app");
    assert_eq!(progress(&agent, "db").map(|(moved, _, state)| (moved, state)), Some((0, "waiting".to_owned())));
    let pid = astray.kill("app");
    let (reason, message) = wait_for_event(&agent);
    let (before, ratio, _) = figures(&message);
    assert_eq!(reason, "MemoryLocalityCompleted", "{message}");
    assert_eq!(
        before,
        format!(
            "Container app completed: failed to migrate the following processes: failed pid: {pid}, \
             error: No such process,from remote numa: {from} to local numa: {to}\n\
             Container db completed: migrated memory from remote numa: {from} to local numa: {to}\n\
             Total: 2 container(s) completed, 0 failed, 0 skipped; "
        )
    );
    assert!(ratio >= 99 && astray.local_percent("db") >= 99, "{message}");
}

#[test]
fn a_target_without_room_is_reported_and_nothing_is_moved() {
    let Some(astray) = Astray::new("a_target_without_room_is_reported_and_nothing_is_moved", &[("app", 8)]) else {
        return;
    };
    astray.limits(&json!({"mibPerSecond": 256, "cpuPercent": 100, "reserveMib": 1_000_000, "pressurePercent": 100}));
    astray.pod(&["app"], &json!({"policy": "bestEffort"}));
    let agent = astray.agent();
    let (reason, message) = wait_for_event(&agent);
    assert_eq!(reason, "MemoryLocalityFailed", "{message}");
    let expected = format!("local numa {} is short of memory for ", astray.to);
    assert!(message.starts_with(&expected) && message.ends_with(" pages"), "{message}");
    assert!(astray.local_percent("app") < 10, "{:?}", astray.pages("app"));
    let explained = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(explained.contains("no room on the target for "), "{explained}");
}

#[test]
fn where_the_operator_asks_for_it_new_pages_stay_local_too() {
    let name = "where_the_operator_asks_for_it_new_pages_stay_local_too";
    let Some(astray) = Astray::new(name, &[("app", 16)]) else { return };
    let limits = json!({"mibPerSecond": 256, "cpuPercent": 100, "reserveMib": 4, "pressurePercent": 100});
    astray.policy(&json!({"minRemotePages": 100, "keepLocal": true, "keepLocalReservePercent": 2}), &limits);
    astray.pod(&["app"], &json!({"policy": "bestEffort"}));
    let mems = || fs::read_to_string(astray.node.cgroups.file(&group("app"), "cpuset.mems")).unwrap().trim().to_owned();
    assert_eq!(mems(), "");
    let all = fs::read_to_string("/sys/fs/cgroup/cpuset.mems.effective").unwrap().trim().to_owned();
    let agent = astray.agent();
    let (reason, message) = wait_for_event(&agent);
    assert_eq!(reason, "MemoryLocalityCompleted", "{message}");
    wait_until("the container to be held to its node", || mems() == astray.to.to_string());
    let explained = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(explained.contains("cpuset.mems"), "{explained}");

    // With other CPUs, and so another node, the lease is released, and a single round is not repeated.
    astray.pin("app", astray.from);
    // A cgroup with processes cannot have an empty `cpuset.mems`: it gets all nodes of its parent.
    wait_until("the bound to be given up", || mems() == all);
    agent.let_it_run(15);
    assert!(mems() == all && astray.local_percent("app") >= 99, "{:?}", astray.pages("app"));
    astray.pin("app", astray.to);
    wait_until("the container to be held to its node again", || mems() == astray.to.to_string());
    astray.pod(&["app"], &json!({"policy": "none"}));
    wait_until("the bound to be given up", || mems() == all);

    astray.pod(&["app"], &json!({"policy": "bestEffort"}));
    wait_until("the container to be held to its node again", || mems() == astray.to.to_string());
    agent.kill();
    assert_eq!(mems(), astray.to.to_string());
    let (report, good) = astray.node.restore(&[]);
    assert!(good && report.contains("cpuset.mems") && mems() == all, "{report}");
}

/// A pod requests exclusive CPUs and local memory, without naming any.
#[test]
fn a_pod_that_asks_gets_whole_cores_of_one_numa_node_and_its_memory_follows() {
    let name = "a_pod_that_asks_gets_whole_cores_of_one_numa_node_and_its_memory_follows";
    let Some(astray) = Astray::new(name, &[("app", 24)]) else { return };
    let cgroups = &astray.node.cgroups;
    let other = "kubepods/burstable/podu-first/app";
    cgroups.make(other);
    cgroups.make_cpusets(&[other]);
    let cpus_of = |numa: u32| fs::read_to_string(format!("{NODES}/node{numa}/cpulist")).unwrap().trim().to_owned();
    let of_group = |group: &str| fs::read_to_string(cgroups.file(group, "cpuset.cpus")).unwrap().trim().to_owned();
    let all = fs::read_to_string("/sys/devices/system/cpu/online").unwrap().trim().to_owned();
    fs::write(cgroups.file(&group("app"), "cpuset.cpus"), &all).unwrap();
    for limited in [POD, &group("app")] {
        cgroups.set_quota(limited, 200_000);
    }
    let before = (of_group(&group("app")), cgroups.knobs());

    // The scheduler has allocated a CPU of the memory's node: only the other node has two left.
    let given = cpus_of(astray.from).split(['-', ',']).next().unwrap().to_owned();
    let status = json!({"cpuset": given});
    pinning::pod(&astray.node, "first", "1", &json!({"scheduling.koordinator.sh/resource-status": status.to_string()}));
    let asks = json!({"cpuset-scheduler": "true", LOCALITY: json!({"policy": "bestEffort"}).to_string()});
    pinning::pod(&astray.node, "web", "2", &asks);
    let policy = |name: &str, config: Value| json!({"name": name, "evaluationMillis": 2000, "config": config});
    astray.node.agent_config(&json!({
        "policies": [policy("cpu-topology", json!({})), policy("memory-locality", json!({"minRemotePages": 100}))],
        "pageMigration": {"mibPerSecond": 256, "cpuPercent": 100, "reserveMib": 4, "pressurePercent": 100},
    }));
    let agent = astray.agent();
    wait_until("the CPUs", || of_group(other) == given && of_group(&group("app")) == cpus_of(astray.to));
    wait_until("the quotas", || [POD, &group("app")].iter().all(|limited| cgroups.quota(limited) == -1));
    // Before the pod had exclusive CPUs, all memory was local.
    let is_completed = |(reason, _): &(String, String)| reason == "MemoryLocalityCompleted";
    let (_, message) = wait_for("the pages to have followed", || report(&agent).into_iter().find(is_completed));
    let (_, ratio, _) = figures(&message);
    assert!(ratio >= 99, "{message}");
    assert!(astray.local_percent("app") >= 99, "{:?}", astray.pages("app"));
    let explained = agent.ask(&["explain", "default/web"]).unwrap();
    assert!(explained.contains("cpuset.cpus") && explained.contains("cpu-topology"), "{explained}");

    agent.terminate();
    assert_eq!((of_group(&group("app")), cgroups.knobs()), before);
}

#[test]
fn a_missing_capability_is_named() {
    let Some(astray) = Astray::new("a_missing_capability_is_named", &[("app", 8)]) else { return };
    astray.pod(&["app"], &json!({"policy": "bestEffort"}));
    // A capability missing in a thread's bounding set is missing in programs that it starts.
    let start = || {
        remove_capability_from_bounding_set(CapabilitySet::SYS_PTRACE).unwrap();
        remove_capability_from_bounding_set(CapabilitySet::SYS_NICE).unwrap();
        astray.agent()
    };
    let agent = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    let (reason, message) = wait_for_event(&agent);
    assert_eq!(reason, "MemoryLocalityFailed", "{message}");
    assert!(message.contains("(the page mover needs CAP_SYS_PTRACE and CAP_SYS_NICE)"), "{message}");
    assert!(astray.local_percent("app") < 50, "{:?}", astray.pages("app"));
}

#[test]
fn where_all_memory_is_near_there_is_no_target() {
    // Not pinned: on a machine with several NUMA nodes its CPUs are on all of them.
    let mut node = Node::new();
    let app = json!({LOCALITY: {"policy": "bestEffort"}});
    node.agent_config(&json!({"policies": [{"name": "memory-locality", "evaluationMillis": 2000}]}));
    node.cgroups.busy(crate::node::APP);
    node.pod(&app);
    let agent = Agent::start(&node);
    assert_eq!(wait_for_event(&agent), ("MemoryLocalitySkipped".to_owned(), "no target numa".to_owned()));
    agent.let_it_run(15);
    assert_eq!(report(&agent).len(), 1);

    // Bad values are reported by name; nothing else is affected.
    for interval in [json!(-5), json!("ten"), json!(1.5)] {
        node.pod(&json!({LOCALITY: {"policy": "bestEffort", "migrateIntervalMinutes": interval}}));
        wait_until("the bad interval to be reported", || {
            agent
                .problems()
                .iter()
                .any(|text| ["default/web", LOCALITY, "migrateIntervalMinutes"].iter().all(|word| text.contains(word)))
        });
        node.pod(&app);
        wait_until("the problem to be mended", || agent.problems().is_empty());
    }
    let begun = Instant::now();
    agent.terminate();
    assert!(begun.elapsed() < Duration::from_secs(30));
}
