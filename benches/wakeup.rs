//! How long a latency-sensitive thread waits for a CPU at wake-up while every CPU runs batch work: with only the weights that a kubelet
//! sets, with the minimum weight on the batch container, and with `cpu.idle` on it, as `cpu-identity` sets it.
//!
//! A process of a Burstable pod has a thread for each CPU. Each repeatedly sleeps for a millisecond, records how much later than requested
//! it ran, and computes for half a millisecond, like a server between two requests. For each CPU, a process spins in the container of a
//! BestEffort pod. All states take turns within one run, in a different order in each round; the result is their ratio. There is no
//! promised bound, since this measures the kernel's scheduler.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::{length, run_if_wanted};
use qosm_cluster::{Folder, Source as _};
use qosm_host::{Host, Wanted};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, Tier};
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The arguments that make this program batch work, or the thread that wakes.
const SPIN: &str = "--spin";
const WAKE: &str = "--wake";
/// Duration of a sleep, and of the computation after it.
const PAUSE: Duration = Duration::from_millis(1);
const WORK: Duration = Duration::from_micros(500);
/// The container of batch work, on this bench's host.
const BATCH: Target = Target::Container(ContainerId(1));
const TIER: Target = Target::Tier(Tier::BestEffort);

/// CPU settings of batch work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no batch work.
    Alone,
    /// No settings: its tier has the weight of the server's.
    Unweighted,
    /// `cpu.idle` on its container; its tier has the weight of the server's.
    IdleAlone,
    /// A kubelet's settings: its tier has the minimum weight.
    Kubelet,
    /// A kubelet's settings, and the minimum weight on its container.
    LeastWeight,
    /// A kubelet's settings, and `cpu.idle` on its container.
    Idle,
}

impl State {
    const ALL: [Self; 6] =
        [Self::Alone, Self::Unweighted, Self::IdleAlone, Self::Kubelet, Self::LeastWeight, Self::Idle];

    fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unweighted => "beside batch of the same weight",
            Self::IdleAlone => "beside idle batch of the same weight",
            Self::Kubelet => "beside batch in its tier",
            Self::LeastWeight => "beside batch of the least weight in it",
            Self::Idle => "beside idle batch in it",
        }
    }
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(SPIN) => loop {
            std::hint::spin_loop();
        },
        Some(WAKE) => return wake(),
        _ => {}
    }
    run_if_wanted("wakeup", run)
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Reads the number of sleeps from each line of standard input, and prints a line of latencies in nanoseconds.
fn wake() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let times: u32 = line.trim().parse().unwrap_or(0);
        let late = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(move || lateness(times))).collect();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect::<Option<Vec<_>>>()
        });
        let Some(late) = late else { return ExitCode::FAILURE };
        let late: String = late.concat().iter().map(|nanos| format!("{nanos} ")).collect();
        let mut out = std::io::stdout();
        if writeln!(out, "{late}").and_then(|()| out.flush()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// How much later than requested this thread ran after each sleep, in nanoseconds; `None` if it cannot sleep.
fn lateness(times: u32) -> Option<Vec<u128>> {
    (0..times)
        .map(|_| {
            let until = now() + PAUSE;
            clock_nanosleep_absolute(ClockId::Monotonic, &Timespec::try_from(until).ok()?).ok()?;
            let ran = now();
            while now() < ran + WORK {
                std::hint::spin_loop();
            }
            Some(ran.saturating_sub(until).as_nanos())
        })
        .collect()
}

/// The pods: a server, and batch work without requests.
fn manifests() -> serde_json::Value {
    let pod = |name: &str, resources: serde_json::Value| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "bench", "uid": format!("u-{name}")},
            "spec": {"containers": [{"name": "app", "resources": resources}]},
        })
    };
    let items = [pod("server", serde_json::json!({"requests": {"cpu": "1"}})), pod("batch", serde_json::json!({}))];
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A process of this program in a container's cgroups. It is killed on drop.
struct Process(Child);

impl Process {
    fn start(role: &str, groups: &[PathBuf]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let process =
            Self(command.arg(role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no process")?);
        for group in groups {
            let file = group.join("cgroup.procs");
            fs::write(&file, process.0.id().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(process)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Sets a knob.
fn set(host: &mut Host, target: Target, knob: Knob, value: Value) -> anyhow::Result<()> {
    let plan = host.plan(&[Wanted { target, knob, value }]);
    if let Some((_, knob, error)) = plan.refused.into_iter().next() {
        return Err(error).with_context(|| format!("this kernel cannot have {knob}; nothing was measured"));
    }
    for step in &plan.steps {
        host.execute(step)?;
    }
    Ok(())
}

fn tell(host: &mut Host, state: State) -> anyhow::Result<()> {
    let tier = if matches!(state, State::Unweighted | State::IdleAlone) { 1024 } else { 2 };
    set(host, TIER, Knob::CpuWeight, Value::Shares(tier))?;
    set(host, BATCH, Knob::CpuIdle, Value::Number(i64::from(matches!(state, State::Idle | State::IdleAlone))))?;
    match state {
        State::LeastWeight => set(host, BATCH, Knob::CpuWeight, Value::Shares(2)),
        State::Unweighted | State::Kubelet | State::Alone => set(host, BATCH, Knob::CpuWeight, Value::Shares(1024)),
        State::Idle | State::IdleAlone => Ok(()),
    }
}

/// Wake-up latencies of a process in the server's container, in microseconds.
fn measure(groups: &[PathBuf], times: u32) -> anyhow::Result<Vec<f64>> {
    let mut server = Process::start(WAKE, groups)?;
    let mut input = server.0.stdin.take().context("no input")?;
    let output = server.0.stdout.take().context("no output")?;
    writeln!(input, "{times}")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let micros = line.split_whitespace().map(|nanos| Ok(nanos.parse::<f64>()? / 1000.0));
    micros.collect()
}

fn percentile(measured: &[f64], percent: usize) -> f64 {
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn run() -> anyhow::Result<()> {
    let (rounds, times) = (length(8, 1), length(1500, 20));
    let folder = tempfile::tempdir().context("no folder for the pods")?;
    fs::write(folder.path().join("pods.json"), manifests().to_string())?;
    let mut pods = Folder::open(folder.path().to_owned(), Vec::new())?.poll().unwrap_or_default().pods;
    pods.sort_by_key(|pod| pod.name != "server");
    let tree = Tree::plant(pods)?;
    let (server, batch) = (tree.of_container(0)?, tree.of_container(1)?);
    let mut host = tree.host()?;
    let pod = tree.pods(2).get(1).context("there is no batch pod")?;
    let container = pod.containers.first().context("the pod has no container")?;
    let path = host.container_path(pod, container)?.context("the container has no group")?;
    host.attach(BATCH, &path)?;
    let tier = host.tier_path(Tier::BestEffort);
    host.attach(TIER, &tier)?;

    let mut p99: [Vec<f64>; State::ALL.len()] = Default::default();
    let mut median: [Vec<f64>; State::ALL.len()] = Default::default();
    for round in 0..rounds {
        for turn in 0..State::ALL.len() {
            let place = (round + turn) % State::ALL.len();
            let state = State::ALL[place];
            tell(&mut host, state)?;
            let cpus = std::thread::available_parallelism()?.get();
            let spinners = if state == State::Alone { 0 } else { cpus };
            let batch = (0..spinners).map(|_| Process::start(SPIN, &batch)).collect::<anyhow::Result<Vec<_>>>()?;
            let late = measure(&server, times)?;
            drop(batch);
            p99[place].push(percentile(&late, 99));
            median[place].push(percentile(&late, 50));
        }
    }
    set(&mut host, BATCH, Knob::CpuIdle, Value::Number(0))?;

    println!("wakeup: how late a thread that slept for 1 ms runs, µs, medians of {rounds} rounds");
    let mut figures = Figures::new();
    for (place, state) in State::ALL.into_iter().enumerate() {
        let (median, p99) = (Figure::of(median[place].clone()), Figure::of(p99[place].clone()));
        println!("    {:<38} median {:>8.0}, 99th percentile {:>8.0}", state.name(), median.median, p99.median);
        figures.insert(format!("{} us", state.name()), median);
        figures.insert(format!("{} p99 us", state.name()), p99);
    }
    // Index 3 is the state that a kubelet leaves.
    for place in [4, 5] {
        let ratio = Figure::of(p99[place].iter().zip(&p99[3]).map(|(one, kubelet)| one / kubelet).collect());
        let name = State::ALL[place].name();
        println!(
            "    {name}: 99th percentile {:.2} × that with a kubelet's weights ({:.2}–{:.2})",
            ratio.median, ratio.lower, ratio.upper
        );
        figures.insert(format!("{name} over a kubelet's weights"), ratio);
    }
    figures::write("wakeup", &figures)
}
