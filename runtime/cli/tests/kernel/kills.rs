//! `kill -9` at random moments, of agents and of restores, round after round, beside another writer of every knob: no knob is
//! lost, and none stays held.
//!
//! `QOSM_KILL_ROUNDS` sets the number of rounds (300; fewer in the VM, which is slow; `make soak` runs ten thousand),
//! `QOSM_KILL_SEED` the seed: the seed of a run is printed, and a run with that seed makes the same choices, although the
//! machine's timing may differ.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qosm_resctrl_fuse::{Clock, Mounted, Proc, Profile, Tree, mount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::PATIENCE;
use crate::agent::hears_terminate;
use crate::cgroups::Version;
use crate::guest::{self, Evaluation};
use crate::node::{APP, BASE, BURST, MEMORY, Node, PATIENT_MILLIS, POD, quick};

const ROUNDS: u32 = 300;
/// Number of rounds on an emulated processor, where the agent takes seconds to start.
const ROUNDS_IN_THE_VM: u32 = 25;
/// The shortest tick, in milliseconds.
const TICK: &str = "100";

/// Reproducible pseudo-random numbers (splitmix64).
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound
    }

    /// A random time up to `most` milliseconds, more often short than long.
    fn moment(&mut self, most: u64) -> Duration {
        let bound = self.below(most) + 1;
        Duration::from_millis(self.below(bound))
    }
}

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    rounds: u32,
    kills: u32,
    restores: u32,
    restores_killed: u32,
    clean_stops: u32,
    /// Rounds whose kill left something to restore.
    moved: u32,
    /// Writes of the other writer.
    others: u32,
    lost: u32,
    left: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("rounds", self.rounds),
            ("agents killed", self.kills),
            ("restores", self.restores),
            ("restores killed", self.restores_killed),
            ("clean stops", self.clean_stops),
            ("kills that left something to put back", self.moved),
            ("knobs written by another", self.others),
            ("knobs lost", self.lost),
            ("knobs left behind", self.left),
        ];
        rows.iter().try_for_each(|(name, count)| writeln!(f, "    {name:<40}{count:>8}"))
    }
}

/// A node with all knobs that qosm can set on this kernel.
struct World {
    node: Node,
    before: BTreeMap<PathBuf, String>,
    resctrl: Option<(Mounted, TempDir)>,
    /// Whether the container has a `cpuset.mems` of more than one NUMA node.
    has_nodes: bool,
}

impl World {
    fn new() -> Self {
        let mut node = Node::new();
        node.cgroups.set_weight(APP, if node.cgroups.version == Version::V1 { 51 } else { 2 });
        // Values as of a kubelet with MemoryQoS: the baseline is not always a new group's default.
        if node.cgroups.version == Version::V2 {
            for (group, bytes) in [("kubepods", 96), ("kubepods/burstable", 64), (POD, 24), (APP, 8)] {
                fs::write(node.cgroups.file(group, "memory.min"), (bytes << 20_u64).to_string()).unwrap();
            }
            // Memory that stays in use, so that a bound below it is lowered in steps.
            node.cgroups.load(APP, r#"x=$(head -c 24000000 /dev/zero | tr "\0" x); while :; do :; done"#);
        } else {
            node.cgroups.busy(APP);
        }
        let resctrl = Path::new("/dev/fuse").exists().then(|| {
            let point = tempfile::tempdir().unwrap();
            let tree = Tree::new(Profile::named("intel").unwrap(), Proc::new()).unwrap();
            (mount(Arc::new(Mutex::new(tree)), point.path(), Clock::Real).unwrap(), point)
        });
        if resctrl.is_some() {
            for name in ["self/mountinfo", "self/mounts", "mounts", "cpuinfo", "filesystems", "cmdline"] {
                let file = node.path("proc").join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, fs::read(Path::new("/proc").join(name)).unwrap()).unwrap();
            }
        }
        let class = json!({"lsClass": {"resctrlQOS": {"enable": true, "catRangeEndPercent": 50, "mbaPercent": 45}}});
        node.configure(&json!({"resource-qos-config": {"clusterStrategy": class}}));
        let has_nodes = spread_over_nodes(&node);
        let before = node.cgroups.knobs();
        Self { node, before, resctrl, has_nodes }
    }

    /// Configures the policies at random.
    fn configure(&self, dice: &mut Dice) {
        let throttling = [5, 60, 90][usize::try_from(dice.below(3)).unwrap()];
        let minimum = 10 * dice.below(10);
        let burst = if dice.below(4) == 0 { json!({"policy": "cpuBurstOnly"}) } else { json!({"policy": "auto"}) };
        let memory = json!({"minLimitPercent": minimum, "lowLimitPercent": 90, "throttlingPercent": throttling});
        if dice.below(12) == 0 {
            self.node.pod(&json!({}));
        } else {
            self.node.pod(&json!({BURST: burst, MEMORY: memory}));
        }
        let (weight, idle) = match dice.below(3) {
            0 if self.node.cgroups.file(APP, "cpu.idle").exists() => (None, Some(true)),
            1 => (None, None),
            _ => (Some(250), None),
        };
        let module = guest::write(&self.node.path("."), "heavy", Evaluation::Weighs { weight, idle });
        let mut policies = vec![
            quick(),
            json!({"name": "memory-qos", "intervalMillis": 100, "evaluationMillis": PATIENT_MILLIS}),
            json!({
                "name": "heavy", "module": module, "grants": ["cpu-weight"], "priority": 1, "intervalMillis": 100,
                "evaluationMillis": PATIENT_MILLIS,
            }),
        ];
        let node = dice.below(3);
        if self.has_nodes && node < 2 {
            let module =
                guest::write(&self.node.path("."), "near", Evaluation::StaysOn { node: u32::try_from(node).unwrap() });
            policies.push(json!({
                "name": "near", "module": module, "grants": ["cpuset"], "priority": 2, "intervalMillis": 100,
                "evaluationMillis": PATIENT_MILLIS,
            }));
        }
        if self.resctrl.is_some() {
            policies.push(json!({"name": "llc-mba", "intervalMillis": 100, "evaluationMillis": PATIENT_MILLIS}));
        }
        // The agent yields a knob that another writer resets repeatedly, here for a second.
        self.node.agent_config(&json!({"policies": policies, "drift": {"handsOffSeconds": 1, "verifyOverTicks": 1}}));
    }

    fn place(&self) -> Vec<(&'static str, String)> {
        let point = self.resctrl.as_ref().map(|(_, point)| ("--resctrl", point.path().display().to_string()));
        point.into_iter().collect()
    }

    fn spawn(&self, flags: &[(&str, &str)]) -> Process {
        let place = self.place();
        let mut all: Vec<(&str, &str)> = place.iter().map(|(flag, value)| (*flag, value.as_str())).collect();
        all.push(("--tick-millis", TICK));
        all.extend(flags);
        let log = self.node.path("kills.log");
        let log = fs::File::create(&log).unwrap();
        Process(self.node.agent_command(&all).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn restore(&self, more: &[&str]) -> (String, bool) {
        let place = self.place();
        let mut flags: Vec<&str> = place.iter().flat_map(|(flag, value)| [*flag, value.as_str()]).collect();
        flags.extend(more);
        self.node.restore(&flags)
    }

    fn own_groups(&self) -> Vec<String> {
        let Some((_, point)) = &self.resctrl else { return Vec::new() };
        let names = fs::read_dir(point.path()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("qosm-")).collect()
    }

    /// The knobs that differ from their initial values, and qosm's leftovers.
    fn differences(&self) -> Vec<String> {
        let now = self.node.cgroups.knobs();
        let differs = |(path, text): (&PathBuf, &String)| {
            let found = now.get(path);
            (found != Some(text)).then(|| format!("{}: {:?} instead of {text:?}", path.display(), found))
        };
        self.before.iter().filter_map(differs).chain(self.own_groups()).collect()
    }
}

/// Allows the container memory on the first two NUMA nodes, as a runtime may write it. Returns `false` if there are none, or no
/// cpusets (v1 has them in a separate hierarchy, which these groups are not in).
fn spread_over_nodes(node: &Node) -> bool {
    let has_two = Path::new("/sys/devices/system/node/node1").exists();
    if !has_two || node.cgroups.version == Version::V1 {
        return false;
    }
    for above in ["", "kubepods", "kubepods/burstable", POD] {
        fs::write(node.cgroups.file(above, "cgroup.subtree_control"), "+cpuset").unwrap();
    }
    fs::write(node.cgroups.file(APP, "cpuset.mems"), "0-1").unwrap();
    true
}

/// A process that is killed when dropped.
struct Process(std::process::Child);

impl Process {
    fn signal(&self, signal: Signal) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Waits until the process handles SIGTERM: before its `main`, the signal would end it.
    fn wait_until_it_hears(&self) {
        let begun = Instant::now();
        while !hears_terminate(self.0.id()) {
            assert!(begun.elapsed() < PATIENCE, "it does not hear SIGTERM");
            sleep(Duration::from_millis(1));
        }
    }

    fn wait(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end:\n{}", self.tasks());
            sleep(Duration::from_millis(2));
        }
    }

    /// The state of each thread, as the kernel shows it.
    fn tasks(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).into_iter().flatten().flatten();
        let told = tasks.map(|task| {
            let read =
                |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_else(|error| error.to_string());
            let status = read("status");
            let lines = ["Name:", "State:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigCgt:"];
            let status: Vec<_> =
                status.lines().filter(|line| lines.iter().any(|name| line.starts_with(name))).collect();
            format!("{}\nin system call {}{}", status.join(", "), read("syscall"), read("stack"))
        });
        told.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another writer of the node's knobs, like a kubelet's sync or systemd's daemon-reload: it writes the initial values.
struct Other {
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u32>>,
}

impl Other {
    fn start(before: BTreeMap<PathBuf, String>, mut dice: Dice) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            let knobs: Vec<_> = before.into_iter().collect();
            let mut written = 0;
            while !end.load(Ordering::Relaxed) {
                sleep(dice.moment(400));
                let bound = u64::try_from(knobs.len()).unwrap();
                let (file, text) = &knobs[usize::try_from(dice.below(bound)).unwrap()];
                // The kernel may refuse the write: a quota below the burst in force, a weight of an idle group.
                written += u32::from(fs::write(file, text.trim()).is_ok());
            }
            written
        });
        Self { ends, thread: Some(thread) }
    }

    fn end(mut self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| unreachable!("{name} is no number: {text}")))
}

/// Prints text that is shown even if the test passes.
fn say(text: &str) {
    let _ = write!(std::io::stderr(), "{text}");
}

#[test]
fn whatever_is_killed_at_random_no_knob_is_lost_and_none_is_left_behind() {
    let in_vm = std::env::var_os("QOSM_TEST_VM").is_some();
    let rounds = number("QOSM_KILL_ROUNDS")
        .map_or(if in_vm { ROUNDS_IN_THE_VM } else { ROUNDS }, |rounds| u32::try_from(rounds).unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("QOSM_KILL_SEED").unwrap_or_else(|| u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20));
    say(&format!("{rounds} rounds of kill -9; to repeat them: QOSM_KILL_SEED={seed}\n"));
    let begun = Instant::now();
    let tally = play(rounds, seed, if in_vm { 4_000 } else { 700 });
    say(&format!("{tally}    {:<40}{:>8.1}\n", "seconds", begun.elapsed().as_secs_f64()));
    assert_eq!((tally.lost, tally.left), (0, 0), "QOSM_KILL_SEED={seed}");
    assert!(tally.kills > rounds / 3 && tally.moved > tally.kills / 10, "hardly anything happened: {tally}");
    assert!(rounds < 20 || (tally.restores > 0 && tally.clean_stops > 0 && tally.others > 0), "{tally}");
}

/// Plays the rounds. `life` is the longest life of an agent, in milliseconds.
fn play(rounds: u32, seed: u64, life: u64) -> Tally {
    let world = World::new();
    let mut dice = Dice(seed);
    let mut tally = Tally::default();
    // The first agent compiles the modules, for a pod that opts in.
    world.configure(&mut dice);
    world.node.pod(&json!({BURST: {"policy": "auto"}}));
    let mut first = world.spawn(&[]);
    wait_until_it_moves(&world);
    first.signal(Signal::TERM);
    assert_eq!(first.wait(), Some(0));
    for round in 0..rounds {
        tally.rounds += 1;
        world.configure(&mut dice);
        let other = (dice.below(3) == 0).then(|| Other::start(world.before.clone(), Dice(dice.roll())));
        let restores = dice.below(5) != 0;
        let mut agent = world.spawn(if restores { &[] } else { &[("--on-shutdown", "keep")] });
        // Half of the agents end at any moment after their start, half after their first write.
        if dice.below(2) == 0 {
            sleep(dice.moment(life));
        } else {
            let begun = Instant::now();
            while world.differences().is_empty() && begun.elapsed() < Duration::from_millis(life * 4) {
                sleep(Duration::from_millis(2));
            }
            sleep(dice.moment(life / 3));
        }
        if dice.below(5) == 0 {
            // By SIGTERM, at any moment of its life, including the first.
            agent.wait_until_it_hears();
            agent.signal(Signal::TERM);
            let code = agent.wait();
            tally.others += other.map_or(0, Other::end);
            tally.clean_stops += 1;
            let code = if restores { code } else { world.restore(&[]).1.then_some(0) };
            tally = judge(&world, tally, round, seed, code == Some(0), &format!("a clean stop, exit code {code:?}"));
            continue;
        }
        agent.signal(Signal::KILL);
        agent.wait();
        tally.others += other.map_or(0, Other::end);
        tally.kills += 1;
        tally.moved += u32::from(!world.differences().is_empty());
        match dice.below(8) {
            // No restore: the next agent takes over.
            0..=4 if round + 1 < rounds => continue,
            5 => {
                let mut killed = Process(world.restore_command().spawn().unwrap());
                sleep(dice.moment(if in_slow(life) { 600 } else { 40 }));
                killed.signal(Signal::KILL);
                killed.wait();
                tally.restores_killed += 1;
                if dice.below(2) == 0 && round + 1 < rounds {
                    continue;
                }
            }
            _ => {}
        }
        let (report, good) = world.restore(&[]);
        tally.restores += 1;
        tally = judge(&world, tally, round, seed, good, &report);
    }
    tally
}

fn in_slow(life: u64) -> bool {
    life > 1_000
}

fn wait_until_it_moves(world: &World) {
    let begun = Instant::now();
    while world.node.cgroups.quota(APP) <= BASE && world.node.cgroups.burst(APP) <= 0 {
        assert!(begun.elapsed() < PATIENCE, "{}", fs::read_to_string(world.node.path("kills.log")).unwrap());
        sleep(Duration::from_millis(20));
    }
}

/// Checks that everything is as it was, and that the journal has nothing more to restore.
fn judge(world: &World, mut tally: Tally, round: u32, seed: u64, good: bool, how: &str) -> Tally {
    let differences = world.differences();
    let (known, _) = world.restore(&["--dry-run", "-o", "json"]);
    let list = known.find('[').zip(known.rfind(']')).map_or("", |(from, to)| &known[from..=to]);
    let known: Vec<Value> = serde_json::from_str(list).unwrap_or_else(|_| unreachable!("{known}"));
    if differences.is_empty() && good && known.is_empty() {
        return tally;
    }
    let count = u32::try_from(differences.len()).unwrap();
    if known.is_empty() {
        tally.lost += count.max(1);
    } else {
        tally.left += count.max(1);
    }
    let log = fs::read_to_string(world.node.path("kills.log")).unwrap_or_default();
    let tail: Vec<&str> = log.lines().rev().take(12).collect();
    say(&format!(
        "round {round} of QOSM_KILL_SEED={seed}: after {how}\n    not as it was: {differences:?}\n    the journal knows: {known:?}\n"
    ));
    say(&format!("    {}\n", tail.into_iter().rev().collect::<Vec<_>>().join("\n    ")));
    tally
}

impl World {
    fn restore_command(&self) -> std::process::Command {
        let mut command = self.node.restore_command();
        for (flag, value) in self.place() {
            command.args([flag, &value]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

#[test]
fn a_seed_makes_the_same_choices_each_time() {
    let rolls = |seed| {
        let mut dice = Dice(seed);
        (0..8).map(|_| dice.below(1000)).collect::<Vec<_>>()
    };
    assert_eq!(rolls(7), rolls(7));
    assert_ne!(rolls(7), rolls(8));
}
