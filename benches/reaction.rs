//! The promise: a throttled container gets more quota within 20 ms, whether it was busy before or completely idle, among 300 containers,
//! and this costs an idle node next to nothing.
//!
//! A process becomes busy, is throttled, and reports when it was halted; the bench reports when the quota in the kernel's file was raised.
//! Before, the process works a little (like a server that waits for requests), or it sleeps. The agent runs as shipped, in its own loop,
//! with the default cpu-burst module: with its alarms in both cases, then with its interval only. Both times are from the kernel's
//! monotonic clock.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::AgentConfig;
use qosm_agent::journal::Journal;
use qosm_agent::service::{self, Request};
use qosm_agent::{Agent, AgentOptions, Mode};
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::{length, modules, run_if_wanted};
use qosm_cluster::{Folder, Source as _};
use qosm_engine::{Compiler, Engine};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// Number of containers on the node, one in each pod. All but one are idle.
const CONTAINERS: usize = 300;
/// A limit of 200m: 20 ms in each 100 ms.
const QUOTA: u64 = 20_000;
const TRIALS: usize = 20;
/// A gap of this length between two reads of the clock counts as a halt, if the quota is used up. A scheduling delay may be mistaken for
/// one, which makes the reaction look slower, never faster.
const GAP: Duration = Duration::from_millis(3);
/// Part of the quota that has to be used up at a halt.
const USED_UP: Duration = Duration::from_micros(QUOTA * 85 / 100);
/// The loop's interval.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the alarms read the top cgroup of an idle node.
const IDLE_ROUND: Duration = Duration::from_millis(10);
/// Time limit for raising a quota.
const PATIENCE: Duration = Duration::from_secs(4);
/// The argument that makes this program the load; the next one is a [`Between`].
const LOAD: &str = "--load";

/// What the load does between its periods of work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    /// Wakes every 10 ms and does next to nothing.
    WorksALittle,
    /// Sleeps all the time.
    Sleeps,
}

impl Between {
    fn as_str(self) -> &'static str {
        match self {
            Self::WorksALittle => "works-a-little",
            Self::Sleeps => "sleeps",
        }
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(LOAD) {
        let sleeps = std::env::args().nth(2).as_deref() == Some(Between::Sleeps.as_str());
        return load(if sleeps { Between::Sleeps } else { Between::WorksALittle });
    }
    run_if_wanted("reaction", run)
}

/// Each line on standard input starts a period of work: the load spins until it was halted, prints the time of the halt, and continues for
/// the time in the line.
fn load(between: Between) -> ExitCode {
    let wait = match between {
        Between::WorksALittle => Duration::from_millis(10),
        Between::Sleeps => Duration::MAX,
    };
    let (spells, received) = channel();
    spawn(move || std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| spells.send(line)));
    loop {
        match received.recv_timeout(wait) {
            Ok(line) => {
                let halted = spin_until_halted();
                let mut out = std::io::stdout();
                if writeln!(out, "{halted}").and_then(|()| out.flush()).is_err() {
                    return ExitCode::FAILURE;
                }
                let more = Duration::from_millis(line.trim().parse().unwrap_or(0));
                let begun = Instant::now();
                while begun.elapsed() < more {}
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(300) {}
            }
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return ExitCode::SUCCESS,
        }
    }
}

/// The time of a halt for lack of quota, in nanoseconds of the monotonic clock.
fn spin_until_halted() -> u128 {
    let begun = used();
    let mut last = now();
    loop {
        let next = now();
        if next - last >= GAP && used() - begun >= USED_UP {
            return last.as_nanos();
        }
        last = next;
    }
}

/// CPU time of this thread so far.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Pods with a small CPU limit that request the quota loop of CPU Burst.
fn manifests() -> serde_json::Value {
    let pods: Vec<_> = (0..CONTAINERS).map(manifest).collect();
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": pods})
}

fn manifest(number: usize) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{number}"), "namespace": "bench", "uid": format!("u-web-{number}"),
            "annotations": {"koordinator.sh/cpuBurst": "{\"policy\": \"cfsQuotaBurstOnly\"}"},
        },
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}}}]},
    })
}

/// A `/proc` of a node with idle CPUs. Otherwise the load of the bench's machine would decide whether a quota may be raised.
fn calm_proc(folder: &Path) -> anyhow::Result<()> {
    for name in ["self/mountinfo", "self/status", "meminfo", "stat"] {
        let (from, to) = (Path::new("/proc").join(name), folder.join(name));
        fs::create_dir_all(to.parent().unwrap_or(folder))?;
        let text = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        fs::write(&to, text)?;
    }
    Ok(())
}

fn run() -> anyhow::Result<()> {
    let manifests = tempfile::tempdir().context("no folder for the pod")?;
    fs::write(manifests.path().join("pods.json"), self::manifests().to_string())?;
    let pods = Folder::open(manifests.path().to_owned(), Vec::new())?.poll().unwrap_or_default().pods;
    let tree = Tree::plant(pods)?;
    let group = Group::find(tree.of_container(CONTAINERS / 2)?)?;
    let with_alarms = measure(&tree, manifests.path(), &group, true, Between::WorksALittle)?;
    println!("reaction/alarms");
    with_alarms.print();
    let from_idle = measure(&tree, manifests.path(), &group, true, Between::Sleeps)?;
    println!("reaction/alarms from complete idle");
    from_idle.print();
    let by_interval = measure(&tree, manifests.path(), &group, false, Between::WorksALittle)?;
    println!("reaction/interval");
    by_interval.print();
    let woken = woken_percent();
    println!("reaction/a thread that wakes as often as the alarms do, and does nothing: {woken:.3} % of one core");
    let figures = [
        ("alarm millis", with_alarms.figure()),
        ("alarm p90 millis", Figure::once(with_alarms.percentile(90))),
        ("idle alarm millis", from_idle.figure()),
        ("idle alarm p90 millis", Figure::once(from_idle.percentile(90))),
        ("interval millis", by_interval.figure()),
        ("idle cpu percent", Figure::once(with_alarms.idle_percent)),
        ("idle cpu percent, interval", Figure::once(by_interval.idle_percent)),
        ("idle cpu percent, woken", Figure::once(woken)),
    ];
    let figures: Figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    figures::write("reaction", &figures)
}

/// Cost of a hundred wake-ups a second on this machine, which the alarms cause on an idle node, in percent of one CPU. A virtual machine
/// pays ten times as much for a timer as hardware, for any program.
fn woken_percent() -> f64 {
    let (begun, before) = (Instant::now(), cpu_time());
    while begun.elapsed() < TICK * 5 {
        sleep(IDLE_ROUND);
    }
    (cpu_time() - before) / begun.elapsed().as_secs_f64() * 100.0
}

struct Measured {
    /// From the halt to the raised quota, in milliseconds.
    millis: Vec<f64>,
    /// CPU time of the agent while nothing runs, in percent of one CPU.
    idle_percent: f64,
}

impl Measured {
    fn figure(&self) -> Figure {
        Figure::of(self.millis.clone())
    }

    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.millis.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() * percent / 100).copied().unwrap_or(f64::NAN)
    }

    fn print(&self) {
        println!(
            "    from the first throttling to a raised quota: median {:.1} ms, 90th percentile {:.1} ms, longest {:.1} ms ({} trials)",
            self.percentile(50),
            self.percentile(90),
            self.percentile(100 - 100 / TRIALS),
            self.millis.len()
        );
        println!(
            "    on an idle node of {CONTAINERS} containers the agent takes {:.3} % of one core",
            self.idle_percent
        );
    }
}

/// An agent in its own loop, on a thread.
struct Running {
    requests: Sender<Request>,
    thread: Option<JoinHandle<Result<(), service::ServiceError>>>,
    _folder: TempDir,
}

impl Running {
    fn start(tree: &Tree, manifests: &Path, alarms: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the journal")?;
        let engine = Engine::new()?;
        // The quota is lowered as soon as the container is calm, so that each trial starts at the base.
        let config =
            serde_json::json!({"calmWindows": 1, "calmWindowsMax": 1, "lowerPercent": 100, "headroomPercent": 0});
        let mut policy = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
        policy.config.config = config.as_object().cloned().unwrap_or_default();
        policy.config.alarms = alarms;
        let state = Dir::open_ambient_dir(folder.path(), ambient_authority())?;
        let proc = folder.path().join("proc");
        calm_proc(&proc)?;
        let mut agent = Agent::new(AgentOptions {
            host: tree.host_with(&proc)?,
            engine,
            policies: vec![policy],
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: Some(Journal::open(&state, folder.path(), "bench")?),
            metrics: Arc::default(),
        })?;
        let watched = Folder::open(manifests.to_owned(), Vec::new())?;
        let (requests, received) = channel();
        let woken = requests.clone();
        agent.start_alarms(move || drop(woken.send(Request::Woken)))?;
        let thread = spawn(move || service::run(agent, watched, None, TICK, &received));
        Ok(Self { requests, thread: Some(thread), _folder: folder })
    }

    fn end(mut self) -> anyhow::Result<()> {
        self.requests.send(Request::ShutDown { restore: true, reply: None }).ok();
        let ended = self.thread.take().map(JoinHandle::join);
        ended.transpose().map_err(|_| anyhow::anyhow!("the agent's loop failed"))?.transpose()?;
        Ok(())
    }
}

fn measure(tree: &Tree, manifests: &Path, group: &Group, alarms: bool, between: Between) -> anyhow::Result<Measured> {
    let agent = Running::start(tree, manifests, alarms)?;
    sleep(TICK * 2);
    let (begun, before) = (Instant::now(), cpu_time());
    sleep(TICK * 5);
    let idle_percent = (cpu_time() - before) / begun.elapsed().as_secs_f64() * 100.0;
    let mut load = Load::start(group, between)?;
    sleep(TICK * 3);
    let mut millis = Vec::new();
    for trial in 0..length(TRIALS, 1) {
        // At a varying moment between two ticks.
        sleep(TICK * 3 + TICK * u32::try_from(trial * 7 % TRIALS)? / u32::try_from(TRIALS)?);
        group.wait_for_base()?;
        millis.push(load.spell(group)?);
    }
    drop(load);
    agent.end()?;
    Ok(Measured { millis, idle_percent })
}

/// The container's files.
struct Group {
    processes: Vec<PathBuf>,
    quota: PathBuf,
}

impl Group {
    fn find(directories: Vec<PathBuf>) -> anyhow::Result<Self> {
        let names = ["cpu.cfs_quota_us", "cpu.max"];
        let quota = directories.iter().flat_map(|directory| names.map(|name| directory.join(name)));
        let quota = quota.into_iter().find(|path| path.exists()).context("the bench's container has no quota")?;
        Ok(Self { processes: directories.iter().map(|directory| directory.join("cgroup.procs")).collect(), quota })
    }

    fn quota(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(&self.quota).with_context(|| format!("cannot read {}", self.quota.display()))?;
        let first = text.split_whitespace().next().unwrap_or_default();
        Ok(first.parse().unwrap_or(u64::MAX))
    }

    fn wait_for_base(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.quota()? > QUOTA {
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(30), "the quota does not come down again");
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

struct Load {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Load {
    fn start(group: &Group, between: Between) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([LOAD, between.as_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the load cannot be started")?;
        for file in &group.processes {
            fs::write(file, child.id().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let out = child.stdout.take().context("the load has no output")?;
        Ok(Self { child, lines: BufReader::new(out) })
    }

    /// Starts a period of work. Returns the milliseconds from the halt to the raised quota.
    fn spell(&mut self, group: &Group) -> anyhow::Result<f64> {
        let input = self.child.stdin.as_mut().context("the load has no input")?;
        writeln!(input, "1500")?;
        let begun = now();
        let mut raised = None;
        while raised.is_none() && now() - begun < PATIENCE {
            if group.quota()? > QUOTA {
                raised = Some(now());
            }
            sleep(Duration::from_micros(300));
        }
        let raised = raised.context("the quota was not raised")?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let halted: u64 = line.trim().parse().context("the load does not say when it was halted")?;
        // If the quota was raised before the halt, that raise prevented a halt, and the reported halt is a later one.
        Ok(raised.saturating_sub(Duration::from_nanos(halted)).as_secs_f64() * 1000.0)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// CPU time of this process so far, in seconds.
fn cpu_time() -> f64 {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default().as_secs_f64()
}
