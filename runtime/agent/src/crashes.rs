//! Tests of the journal's guarantee: at whichever step an agent is killed, and whatever follows, every knob is back at its baseline once
//! an agent has ended in order or `qosm restore` has finished.
//!
//! The tests kill the agent itself between any two of its steps (a record written, a kernel file written, a record deleted), on a
//! simulated node that outlives it. Leases stand in for policies.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use proptest::prelude::*;
use qosm_engine::Engine;
use qosm_host::simulated::{Crash, Kernel, Simulation, Spec, Versions};
use qosm_host::{Host, LayoutOptions};
use qosm_model::column::MemoryCounters;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Holder, Priority, Timestamp};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::unit::{Bytes, Micros};

use crate::agent::{Agent, AgentOptions};
use crate::config::AgentConfig;
use crate::ending::{end, end_early};
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::restore::{Patience, restore, would_restore};
use crate::restored::Restored;
use crate::sources::Sources;
use crate::step::Mode;

const BOOT: &str = "boot";
const POD: &str = "kubepods/burstable/podu";
const GROUPS: [&str; 5] =
    ["kubepods", "kubepods/burstable", POD, "kubepods/burstable/podu/a", "kubepods/burstable/podu/b"];
const MIB: i64 = 1 << 20;

/// Settings that a policy may want, on the tier, the pod and its containers.
const SETTINGS: [(Target, Knob, Value); 20] = {
    const TIER: Target = Target::Tier(Tier::Burstable);
    const POD: Target = Target::Pod(PodId(1));
    const A: Target = Target::Container(ContainerId(1));
    const B: Target = Target::Container(ContainerId(2));
    [
        (A, Knob::CfsQuota, Value::Number(60_000)),
        (A, Knob::CfsQuota, Value::Number(150_000)),
        // More than the pod's quota: cgroup v1 refuses these.
        (B, Knob::CfsQuota, Value::Number(900_000)),
        (B, Knob::CfsQuota, Value::Number(910_000)),
        (POD, Knob::CfsQuota, Value::Number(400_000)),
        (A, Knob::CfsBurst, Value::Number(40_000)),
        (B, Knob::CfsBurst, Value::Number(20_000)),
        (POD, Knob::CfsBurst, Value::Number(100_000)),
        (TIER, Knob::MemoryMin, Value::Number(512 * MIB)),
        (POD, Knob::MemoryMin, Value::Number(256 * MIB)),
        (A, Knob::MemoryMin, Value::Number(64 * MIB)),
        (TIER, Knob::MemoryLow, Value::Number(128 * MIB)),
        (POD, Knob::MemoryLow, Value::Number(100 * MIB)),
        // Below the memory in use: the write is slow.
        (A, Knob::MemoryHigh, Value::Number(64 * MIB)),
        (A, Knob::MemoryHigh, Value::Number(900 * MIB)),
        (POD, Knob::MemoryHigh, Value::Number(300 * MIB)),
        (B, Knob::CpuWeight, Value::Number(250)),
        (A, Knob::CpuIdle, Value::Number(1)),
        (A, Knob::CpusetMems, Value::Number(0b01)),
        (B, Knob::OomGroup, Value::Number(1)),
    ]
};

/// One step of an agent's life.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// A policy wants one of the settings.
    Want(usize),
    /// The policy releases the setting.
    Release(usize),
    /// The agent runs one tick.
    Tick,
    /// The kubelet or systemd resets a cgroup to its baselines.
    Reset(usize),
    /// The pod is removed from the manifests, while its cgroups stay.
    PodGoes,
    /// The pod is added again.
    PodComes,
}

/// What works on the node next, and the number of steps after which it is killed; `None` if it ends in order.
#[derive(Clone, Debug)]
enum Life {
    Agent(Vec<Action>, Option<u64>),
    /// An agent that keeps its settings when it goes.
    Keeps(Vec<Action>),
    /// An agent that is asked to end before it begins.
    EndsEarly(Option<u64>),
    Restore(Option<u64>),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        6 => (0..SETTINGS.len()).prop_map(Action::Want),
        2 => (0..SETTINGS.len()).prop_map(Action::Release),
        6 => Just(Action::Tick),
        1 => (0..GROUPS.len()).prop_map(Action::Reset),
        1 => Just(Action::PodGoes),
        1 => Just(Action::PodComes),
    ];
    prop::collection::vec(action, 1..14)
}

fn killed() -> impl Strategy<Value = Option<u64>> {
    (0..40_u64).prop_map(Some)
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let life = prop_oneof![
        8 => (actions(), killed()).prop_map(|(actions, killed)| Life::Agent(actions, killed)),
        2 => actions().prop_map(Life::Keeps),
        1 => killed().prop_map(Life::EndsEarly),
        3 => killed().prop_map(Life::Restore),
    ];
    prop::collection::vec(life, 1..6)
}

fn last() -> impl Strategy<Value = Life> {
    prop_oneof![
        actions().prop_map(|actions| Life::Agent(actions, None)),
        Just(Life::Restore(None)),
        Just(Life::EndsEarly(None)),
    ]
}

fn spec(kernel: Kernel, versions: Versions) -> Spec {
    let of = |files: &[(&str, &str)]| -> BTreeMap<String, String> {
        files.iter().map(|&(file, text)| (file.to_owned(), text.to_owned())).collect()
    };
    let is_v1 = versions == Versions::V1;
    let quota = |quota: &str| match is_v1 {
        true => ("cpu.cfs_quota_us".to_owned(), quota.to_owned()),
        false => ("cpu.max".to_owned(), format!("{quota} 100000")),
    };
    let mut cgroups: BTreeMap<String, BTreeMap<String, String>> =
        GROUPS.iter().map(|&path| (path.to_owned(), BTreeMap::new())).collect();
    for (path, own) in [(POD, "500000"), ("kubepods/burstable/podu/a", "46000"), ("kubepods/burstable/podu/b", "80000")]
    {
        let (file, text) = quota(own);
        cgroups.entry(path.to_owned()).or_default().insert(file, text);
    }
    for files in cgroups.values_mut().filter(|_| is_v1) {
        files.extend(of(&[("cpuset.mems", "0-1")]));
    }
    if !is_v1 {
        // What a kubelet with memory QoS has set.
        for (path, files) in [
            ("kubepods", &[("memory.min", "1073741824")] as &[_]),
            ("kubepods/burstable", &[("memory.min", "805306368")]),
            (POD, &[("memory.min", "134217728")]),
            (
                "kubepods/burstable/podu/a",
                &[("memory.min", "33554432"), ("memory.high", "838860800"), ("cpu.weight", "39")],
            ),
        ] {
            cgroups.entry(path.to_owned()).or_default().extend(of(files));
        }
    }
    Spec { versions, kernel, numa_nodes: 2, cgroups, ..Spec::default() }
}

fn node(spec: &Spec) -> Simulation {
    let mut simulation = Host::simulated(spec).unwrap().into_simulation().unwrap();
    for path in [POD, "kubepods/burstable/podu/a"] {
        let memory = MemoryCounters { usage: Bytes(500 << 20), ..MemoryCounters::default() };
        let _ = simulation.set_memory_counters(path, memory);
    }
    simulation.stall_slow_writes();
    simulation
}

/// The content of all files of the cgroups that the settings may change.
fn knobs(simulation: &Simulation) -> BTreeMap<(String, String), String> {
    let files = [
        "cpu.max",
        "cpu.max.burst",
        "cpu.cfs_quota_us",
        "cpu.cfs_burst_us",
        "cpu.weight",
        "cpu.shares",
        "cpu.idle",
        "memory.min",
        "memory.low",
        "memory.high",
        "memory.oom.group",
        "cpuset.mems",
    ];
    let mut knobs = BTreeMap::new();
    for path in GROUPS {
        for file in files {
            if let Ok(text) = simulation.read_file(path, file) {
                // `0-1` and an empty list both mean all memory nodes.
                let text = if file == "cpuset.mems" && text.trim() == "0-1" { "\n".to_owned() } else { text };
                knobs.insert((path.to_owned(), file.to_owned()), text);
            }
        }
    }
    knobs
}

fn open_journal(folder: &Path) -> Journal {
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
    Journal::open(&dir, folder, BOOT).unwrap()
}

fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new().unwrap()).clone()
}

fn sources(with_pod: bool) -> Sources {
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default", "uid": "u"},
        "spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "460m"}}},
            {"name": "b", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running"}}"#;
    if !with_pod {
        return Sources::default();
    }
    let objects = qosm_cluster::parse_objects(pod, "pod.json");
    assert_eq!((objects.pods.len(), objects.problems.len()), (1, 0), "{:?}", objects.problems);
    Sources::from(objects)
}

/// The node, between two lives.
struct World {
    simulation: Option<Simulation>,
    folder: tempfile::TempDir,
    before: BTreeMap<(String, String), String>,
    clock: u64,
}

impl World {
    fn new(spec: &Spec) -> Self {
        let simulation = node(spec);
        let before = knobs(&simulation);
        Self { simulation: Some(simulation), folder: tempfile::tempdir().unwrap(), before, clock: 1_000_000 }
    }

    fn host(&mut self) -> Host {
        Host::on_simulation(self.simulation.take().unwrap(), &LayoutOptions::default()).unwrap()
    }

    fn now(&mut self) -> Now {
        self.clock += 1_000_000;
        let millis = i64::try_from(self.clock / 1000).unwrap();
        Now {
            wall: Timestamp(millis),
            monotonic: Micros(self.clock),
            uptime: Some(Micros(self.clock)),
            late: Micros(0),
        }
    }

    /// Resets a cgroup's files, as another program does.
    fn reset(&self, host: &mut Host, path: &str) {
        let simulation = host.simulated_mut().unwrap();
        for ((of, file), text) in self.before.iter().filter(|((of, _), _)| of == path) {
            let _ = simulation.set_file(of, file, text.trim());
        }
    }

    /// Runs one life on the node. Returns what it left behind, if it ended in order.
    fn live(&mut self, life: &Life) -> Option<Vec<Restored>> {
        let patience = Patience { retries: 2, pause: Duration::ZERO, slow_writes: Duration::from_secs(60) };
        let (killed, is_agent) = match life {
            Life::Agent(_, killed) => (*killed, true),
            Life::Keeps(_) => (None, true),
            Life::EndsEarly(killed) | Life::Restore(killed) => (*killed, false),
        };
        let crash = killed.map_or(Crash::after(u64::MAX), Crash::after);
        let mut host = self.host();
        let mut journal = open_journal(self.folder.path());
        host.simulated_mut().unwrap().crash_at(crash.clone());
        journal.crash_at(crash.clone());
        if !is_agent {
            let left = match life {
                Life::Restore(_) => restore(&mut host, &journal, &patience).unwrap(),
                _ => match end_early(&mut host, &journal, &AgentConfig::default()) {
                    Ok(()) => Vec::new(),
                    Err(crate::service::ServiceError::LeftBehind(left)) => left.knobs,
                    Err(error) => unreachable!("{error}"),
                },
            };
            self.simulation = host.into_simulation();
            return killed.is_none().then(|| left.into_iter().filter(Restored::is_left_behind).collect());
        }
        let (Life::Agent(actions, _) | Life::Keeps(actions)) = life else { return None };
        let mut agent = Agent::new(AgentOptions {
            host,
            engine: engine(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: Some(journal),
            metrics: Arc::new(Metrics::default()),
        })
        .unwrap();
        let holder = Holder { policy: "wanted".into(), priority: Priority(0) };
        let now = self.now();
        agent.update(sources(true), now);
        for action in actions {
            if crash.has_come() {
                break;
            }
            let now = self.now();
            match *action {
                Action::Want(setting) => {
                    let (target, knob, value) = SETTINGS[setting];
                    agent.ledger().lease(&holder, (target, knob), value, now.wall);
                }
                Action::Release(setting) => {
                    let (target, knob, _) = SETTINGS[setting];
                    agent.ledger().unlease(&holder.policy, (target, knob));
                }
                Action::Tick => drop(agent.step(now)),
                Action::Reset(group) => self.reset(agent.host_mut(), GROUPS[group]),
                Action::PodGoes => agent.update(sources(false), now),
                Action::PodComes => agent.update(sources(true), now),
            }
        }
        let mut left = None;
        if matches!(life, Life::Agent(..)) && !crash.has_come() {
            agent.restore_at_the_end();
            // No policy runs here, so its leases are released directly.
            agent.ledger().release(&holder.policy);
            let now = self.now();
            let ended = end(&mut agent, || now);
            left = Some(match ended {
                Ok(()) => Vec::new(),
                Err(crate::service::ServiceError::LeftBehind(left)) => left.knobs,
                Err(error) => unreachable!("{error}"),
            });
        }
        let host = agent.into_host();
        self.simulation = host.into_simulation();
        left.filter(|_| killed.is_none())
    }

    /// Checks that all knobs have their first values and that the journal is empty.
    fn check(&mut self, story: &impl std::fmt::Debug) -> Result<(), TestCaseError> {
        let simulation = self.simulation.as_ref().unwrap();
        let after = knobs(simulation);
        let wrong = self.before.iter().filter(|(key, text)| after.get(*key) != Some(text));
        let found: Vec<String> = wrong.map(|(key, text)| format!("{key:?} {text:?} {:?}", after.get(key))).collect();
        let mut host = self.host();
        let journal = open_journal(self.folder.path());
        let known = would_restore(&mut host, &journal).unwrap();
        self.simulation = host.into_simulation();
        prop_assert!(found.is_empty(), "{story:?}: {found:?}; the journal knows {known:?}");
        prop_assert!(known.is_empty(), "{story:?}: left in the journal: {known:?}");
        Ok(())
    }
}

fn play(spec: &Spec, lives: &[Life], last: &Life) -> Result<(), TestCaseError> {
    let mut world = World::new(spec);
    for life in lives {
        world.live(life);
    }
    let left = world.live(last);
    prop_assert!(left.as_ref().is_none_or(Vec::is_empty), "{lives:?}, then {last:?}: {left:?}");
    world.check(&(lives, last))
}

/// The number of cases is `PROPTEST_CASES`, or this one, which takes some seconds.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_knob_is_lost_whenever_who_works_on_it_is_killed(lives in lives(), last in last()) {
        play(&spec(Kernel::Mainline, Versions::V2), &lives, &last)?;
    }

    #[test]
    fn no_knob_is_lost_on_cgroup_v1_either(lives in lives(), last in last()) {
        play(&spec(Kernel::Mainline, Versions::V1), &lives, &last)?;
    }
}

/// One sequence of lives: a kill at each step of the first life (at every third without `PROPTEST_CASES`), and another within the next.
#[test]
fn a_kill_at_each_step_and_another_at_each_step_of_what_comes_after_it_lose_nothing() {
    let wants = |settings: &[usize]| {
        let mut actions: Vec<Action> = settings.iter().map(|&setting| Action::Want(setting)).collect();
        actions.extend([Action::Tick; 6]);
        actions
    };
    // One of each kind: a quota, a burst, a bound that comes down in steps, protection on three levels, memory nodes, idle.
    let actions = wants(&[1, 5, 7, 8, 9, 10, 13, 17, 18]);
    let spec = spec(Kernel::Mainline, Versions::V2);
    for killed in (0..40).step_by(if std::env::var_os("PROPTEST_CASES").is_some() { 1 } else { 3 }) {
        let first = Life::Agent(actions.clone(), Some(killed));
        for then in [0, 1, 2, 3, 5, 8, 13, 21, 34] {
            for second in
                [Life::Restore(Some(then)), Life::Agent(wants(&[0, 13]), Some(then)), Life::EndsEarly(Some(then))]
            {
                for last in [Life::Restore(None), Life::Agent(vec![Action::Tick], None)] {
                    if let Err(error) = play(&spec, &[first.clone(), second.clone()], &last) {
                        unreachable!("{error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_knob_at_its_baseline_that_the_next_agent_sets_again_is_not_lost() {
    let spec = spec(Kernel::Mainline, Versions::V2);
    let sets = || vec![Action::Want(1), Action::Tick, Action::Tick];
    let mut world = World::new(&spec);
    world.live(&Life::Agent(sets(), Some(2)));
    let mut host = world.host();
    world.reset(&mut host, GROUPS[3]);
    world.simulation = host.into_simulation();
    world.live(&Life::Keeps(sets()));
    world.live(&Life::Restore(None));
    world.check(&"set, reset, set, restored").unwrap();
}

/// Sizes of the agent's tables, which must not grow.
fn tables(agent: &Agent) -> Vec<(&'static str, usize)> {
    let view = agent.view();
    let leases = Knob::ALL.len().min(view.ledger.leases().held_by("wanted").count());
    view.ledger.sizes().into_iter().chain([("pods", view.pods.len()), ("leases", leases)]).collect()
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().nth(1).or(line.split_whitespace().next()).unwrap().parse().unwrap_or(0)
}

/// Runs an agent whose pods come and go, and whose knobs are set, refused, reset by other programs and released. `QOSM_SOAK_TICKS` sets
/// the number of ticks; if it is set, nothing else runs in this process, and memory and descriptors are checked as well.
#[test]
fn ticks_leave_nothing_behind_in_tables_journal_memory_or_descriptors() {
    let asked: Option<u64> = std::env::var("QOSM_SOAK_TICKS").ok().map(|ticks| ticks.parse().unwrap());
    let ticks = asked.unwrap_or(6_000);
    let spec = spec(Kernel::Mainline, Versions::V2);
    let mut world = World::new(&spec);
    let mut host = world.host();
    host.simulated_mut().unwrap().reclaim_for(Micros(1));
    let journal = open_journal(world.folder.path());
    let mut agent = Agent::new(AgentOptions {
        host,
        engine: engine(),
        policies: Vec::new(),
        load_failed: Vec::new(),
        config: AgentConfig::default(),
        mode: Mode::Enforce,
        create_cgroups: false,
        journal: Some(journal),
        metrics: Arc::new(Metrics::default()),
    })
    .unwrap();
    let holder = Holder { policy: "wanted".into(), priority: Priority(0) };
    let descriptors = || u64::try_from(std::fs::read_dir("/proc/self/fd").unwrap().count()).unwrap();
    let journal_size = |folder: &Path| std::fs::metadata(folder.join("journal-boot.redb")).unwrap().len();
    let mut early = None;
    let mut pod: Option<(String, PodId, ContainerId)> = None;
    for tick in 0..ticks {
        if tick % 20 == 0 {
            if let Some((path, ..)) = pod.take()
                && tick % 40 == 0
            {
                agent.host_mut().simulated_mut().unwrap().remove_cgroup(&path).unwrap();
            }
            let uid = format!("u{}", tick / 20 % 1_000_000);
            let path = format!("kubepods/burstable/pod{uid}");
            agent.host_mut().create(&format!("{path}/a")).unwrap();
            let text = format!(
                r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{uid}", "namespace": "default", "uid": "{uid}"}},
                "spec": {{"containers": [{{"name": "a", "resources": {{"requests": {{"cpu": "100m"}}}}}}]}}}}"#
            );
            let now = world.now();
            agent.update(Sources::from(qosm_cluster::parse_objects(&text, "pod.json")), now);
            let entry = agent.pods().iter().find(|entry| entry.pod.uid == uid).unwrap();
            pod = Some((path, entry.id, entry.containers[0].id));
        }
        let now = world.now();
        if let Some((path, id, container)) = &pod {
            let (quota, burst) = (100_000 + i64::try_from(tick % 7).unwrap() * 10_000, 20_000);
            for (target, knob, value) in [
                (Target::Container(*container), Knob::CfsQuota, quota),
                (Target::Container(*container), Knob::CfsBurst, burst),
                (Target::Pod(*id), Knob::MemoryMin, 64 * MIB + i64::try_from(tick % 3).unwrap() * MIB),
                // Below the kernel's minimum.
                (Target::Pod(*id), Knob::CfsQuota, 10 + i64::try_from(tick % 2).unwrap()),
            ] {
                let wanted = Value::Number(value);
                agent.ledger().lease(&holder, (target, knob), wanted, now.wall);
            }
            if tick % 5 == 0 {
                let _ = agent.host_mut().simulated_mut().unwrap().set_file(path, "memory.min", "0");
            }
        }
        agent.step(now);
        if tick == ticks / 5 {
            early = Some((status("VmRSS:"), descriptors(), journal_size(world.folder.path()), tables(&agent)));
        }
    }
    let late = (status("VmRSS:"), descriptors(), journal_size(world.folder.path()), tables(&agent));
    let early = early.unwrap();
    println!("    {ticks} ticks; after a fifth of them: {early:?}");
    println!("    at the end: {late:?}");
    for ((name, before), (_, after)) in early.3.into_iter().zip(late.3) {
        assert!(after <= before + 8, "{name} grew from {before} to {after}");
    }
    assert!(late.2 <= early.2 + (1 << 20), "the journal grew from {} to {}", early.2, late.2);
    if asked.is_some() {
        assert!(late.0 <= early.0 + 2048, "resident memory grew from {} to {} KiB", early.0, late.0);
        assert!(late.1 <= early.1 + 4, "descriptors grew from {} to {}", early.1, late.1);
    }
    let now = world.now();
    agent.ledger().release(&holder.policy);
    agent.restore_at_the_end();
    end(&mut agent, || now).unwrap();
    assert_eq!(agent.ledger().held().len(), 0);
}
