//! The promise: if the container runtime supports NRI, a container has its settings before its first instruction, also when fifty start at
//! once.
//!
//! Each container is a cgroup and a process that waits in it, as a runtime's does, until it is released. It then reads its CFS burst until
//! there is one, and reports how long that took. The agent runs as shipped, in its own loop, with the default cpu-burst module: connected
//! to a runtime's end of NRI, then notified of new cgroups, then with its interval only. In the latter two cases it knows the containers'
//! IDs beforehand; in a cluster, it learns them from the pods' status up to a second later.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::{AgentConfig, NriConfig};
use qosm_agent::journal::Journal;
use qosm_agent::nri::NriThread;
use qosm_agent::service::{self, Request};
use qosm_agent::{Agent, AgentOptions, Metrics, Mode};
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::{length, modules, run_if_wanted};
use qosm_cluster::{Folder, Source as _};
use qosm_engine::{Compiler, Engine};
use qosm_nri::fake_runtime::FakeRuntime;
use qosm_nri::{PodSandbox, RunningContainer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

/// Number of containers that run all the time, one in each pod.
const STANDING: usize = 250;
/// Number of containers that start at once, each in a separate pod.
const AT_ONCE: usize = 50;
const TRIALS: usize = 10;
/// The loop's interval.
const TICK: Duration = Duration::from_secs(1);
/// Time limit after which a container counts as one without a burst.
const PATIENCE: Duration = Duration::from_secs(5);
/// The argument that makes this program a container's process; the next one is the file of its burst.
const CONTAINER: &str = "--container";

/// How the agent learns of new containers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Nri,
    Inotify,
    Interval,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(CONTAINER) {
        return container(&arguments.next().unwrap_or_default());
    }
    run_if_wanted("start", run)
}

/// Waits for a line on standard input, then prints the microseconds until the container has a burst; 0 = at the first read.
fn container(file: &str) -> ExitCode {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).is_err() {
        return ExitCode::FAILURE;
    }
    let has_burst = || fs::read_to_string(file).is_ok_and(|text| !["", "0"].contains(&text.trim()));
    let begun = Instant::now();
    let mut micros = 0;
    while !has_burst() && begun.elapsed() < PATIENCE {
        // Fifty processes that read more often would take CPU time from the agent.
        sleep(Duration::from_millis(5));
        micros = begun.elapsed().as_micros();
    }
    println!("{micros}");
    ExitCode::SUCCESS
}

fn run() -> anyhow::Result<()> {
    let manifests = tempfile::tempdir().context("no folder for the pods")?;
    let file = manifests.path().join("pods.json");
    let write = |status: &dyn Fn(usize) -> Option<Value>| {
        let items: Vec<_> = (0..STANDING + AT_ONCE).map(|number| manifest(number, status(number))).collect();
        let fresh = manifests.path().join("pods.new");
        fs::write(&fresh, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
        fs::rename(fresh, &file)
    };
    write(&|_| None)?;
    let pods = Folder::open(manifests.path().to_owned(), Vec::new())?.poll().unwrap_or_default().pods;
    let tree = Tree::plant(pods)?;
    let mut figures = Figures::new();
    for (way, name) in [(Way::Nri, "nri"), (Way::Inotify, "inotify"), (Way::Interval, "interval")] {
        let mut measured = Measured::default();
        let mut agent = Running::start(&tree, manifests.path(), way)?;
        for trial in 0..length(TRIALS, 1) {
            write(&|number| (number >= STANDING).then(|| status(way, trial, number)))?;
            // At a varying moment between two ticks.
            sleep(TICK * 2 + TICK * u32::try_from(trial * 7 % TRIALS)? / u32::try_from(TRIALS)?);
            measured.add(&mut start_all(&tree, &mut agent, trial)?);
        }
        agent.end()?;
        println!("start/{name}");
        measured.print();
        figures.insert(format!("{name} millis"), Figure::of(measured.millis.clone()));
        figures.insert(format!("{name} p90 millis"), Figure::once(percentile(&measured.millis, 90)));
        if way == Way::Nri {
            figures.insert("nri wait millis".to_owned(), Figure::of(measured.waits.clone()));
            figures.insert("nri without percent".to_owned(), Figure::once(measured.without_percent()));
        }
    }
    figures::write("start", &figures)
}

fn manifest(number: usize, status: Option<Value>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name(number), "namespace": "bench", "uid": uid(number),
            "annotations": {"koordinator.sh/cpuBurst": "{\"policy\": \"cpuBurstOnly\"}"},
        },
        "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "200m", "memory": "64Mi"}}}]},
    });
    if let (Some(status), Some(pod)) = (status, pod.as_object_mut()) {
        pod.insert("status".to_owned(), status);
    }
    pod
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

fn uid(number: usize) -> String {
    format!("u-web-{number}")
}

fn id(trial: usize, number: usize) -> String {
    format!("c-{trial}-{number}")
}

/// The status of a pod with a container that is about to start.
fn status(way: Way, trial: usize, number: usize) -> Value {
    if way == Way::Nri {
        return json!({"phase": "Pending", "containerStatuses": []});
    }
    let id = format!("containerd://{}", id(trial, number));
    json!({"phase": "Running", "containerStatuses": [{"name": "app", "containerID": id, "state": {"running": {}}}]})
}

#[derive(Default)]
struct Measured {
    /// Times from the first instruction to the first setting.
    millis: Vec<f64>,
    /// Times that the runtime waited for the agent.
    waits: Vec<f64>,
}

impl Measured {
    fn add(&mut self, more: &mut Self) {
        self.millis.append(&mut more.millis);
        self.waits.append(&mut more.waits);
    }

    fn without_percent(&self) -> f64 {
        let without = self.millis.iter().filter(|millis| **millis > 0.0).count();
        100.0 * figures::float(without) / figures::float(self.millis.len())
    }

    fn print(&self) {
        let of = |values: &[f64]| {
            format!(
                "median {:.1} ms, 90th percentile {:.1} ms, longest {:.1} ms",
                percentile(values, 50),
                percentile(values, 90),
                percentile(values, 100)
            )
        };
        println!(
            "    from the first instruction to the first setting: {} ({} starts)",
            of(&self.millis),
            self.millis.len()
        );
        println!("    without it at their first instruction: {:.1} %", self.without_percent());
        if !self.waits.is_empty() {
            println!("    the runtime waited: {}", of(&self.waits));
        }
    }
}

fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// An agent in its own loop, on a thread, with a runtime that it is connected to as a plug-in.
struct Running {
    requests: Sender<Request>,
    thread: JoinHandle<Result<(), service::ServiceError>>,
    runtime: Option<(tokio::runtime::Runtime, FakeRuntime, NriThread)>,
    _folder: TempDir,
}

impl Running {
    fn start(tree: &Tree, manifests: &Path, way: Way) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no folder for the journal")?;
        let engine = Engine::new()?;
        let policy = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
        let state = Dir::open_ambient_dir(folder.path(), ambient_authority())?;
        let metrics = Arc::new(Metrics::default());
        let mut agent = Agent::new(AgentOptions {
            host: tree.host()?,
            engine,
            policies: vec![policy],
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: Some(Journal::open(&state, folder.path(), "bench")?),
            metrics: Arc::clone(&metrics),
        })?;
        let watched = Folder::open(manifests.to_owned(), Vec::new())?;
        let (requests, received) = channel();
        if way != Way::Interval {
            let woken = requests.clone();
            agent.start_alarms(move || drop(woken.send(Request::Woken)))?;
        }
        let runtime = if way == Way::Nri { Some(runtime(folder.path(), metrics, requests.clone())?) } else { None };
        let thread = spawn(move || service::run(agent, watched, None, TICK, &received));
        Ok(Self { requests, thread, runtime, _folder: folder })
    }

    /// Announces that a container is about to start. Returns the time until the agent lets it start.
    fn announce(&mut self, container: &RunningContainer) -> Option<Duration> {
        let (tokio, runtime, _) = self.runtime.as_mut()?;
        let begun = Instant::now();
        tokio.block_on(runtime.start(container));
        Some(begun.elapsed())
    }

    fn stop(&mut self, container: &RunningContainer) {
        if let Some((tokio, runtime, _)) = self.runtime.as_mut() {
            tokio.block_on(runtime.stop(container));
        }
    }

    fn end(self) -> anyhow::Result<()> {
        drop(self.runtime);
        self.requests.send(Request::ShutDown { restore: true, reply: None }).ok();
        self.thread.join().map_err(|_| anyhow::anyhow!("the agent's loop failed"))??;
        Ok(())
    }
}

fn runtime(
    folder: &Path,
    metrics: Arc<Metrics>,
    requests: Sender<Request>,
) -> anyhow::Result<(tokio::runtime::Runtime, FakeRuntime, NriThread)> {
    let socket = folder.join("nri.sock");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (runtime, thread) = tokio.block_on(async {
        let listener = UnixListener::bind(&socket)?;
        let thread = NriThread::start(&NriConfig { socket, ..NriConfig::default() }, metrics, requests)?;
        let mut runtime = FakeRuntime::new(listener.accept().await?.0);
        runtime.accept("containerd", &[]).await;
        anyhow::Ok((runtime, thread.context("NRI is on unless it is said otherwise")?))
    })?;
    Ok((tokio, runtime, thread))
}

/// Starts all containers one after the other, like runtimes, which call plug-ins for one container at a time.
fn start_all(tree: &Tree, agent: &mut Running, trial: usize) -> anyhow::Result<Measured> {
    let (mut measured, mut started) = (Measured::default(), Vec::new());
    for number in STANDING..STANDING + AT_ONCE {
        let mut container = Container::create(tree, trial, number)?;
        measured.waits.extend(agent.announce(&container.about).map(|wait| wait.as_secs_f64() * 1000.0));
        container.let_go()?;
        started.push(container);
    }
    for container in started {
        agent.stop(&container.about);
        measured.millis.push(container.end()?);
    }
    Ok(measured)
}

struct Container {
    about: RunningContainer,
    groups: Vec<PathBuf>,
    process: Child,
    input: Option<ChildStdin>,
}

impl Container {
    /// Creates the container's cgroup with its limit, and a process that waits in it.
    fn create(tree: &Tree, trial: usize, number: usize) -> anyhow::Result<Self> {
        let id = id(trial, number);
        let beside = tree.of_container(number)?;
        let groups: Vec<_> = beside.iter().map(|directory| directory.with_file_name(&id)).collect();
        for group in &groups {
            fs::create_dir(group).with_context(|| format!("cannot make {}", group.display()))?;
        }
        let file = |names: [&str; 2]| {
            let mut files = groups.iter().flat_map(|group| names.map(|name| group.join(name)));
            files.find(|file| file.exists()).context("the container's group has no CPU bandwidth")
        };
        let quota = file(["cpu.cfs_quota_us", "cpu.max"])?;
        let limit = if quota.ends_with("cpu.max") { "20000 100000" } else { "20000" };
        fs::write(&quota, limit).with_context(|| format!("cannot write {}", quota.display()))?;
        let burst = file(["cpu.cfs_burst_us", "cpu.max.burst"])?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg(CONTAINER)
            .arg(burst)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the container's process cannot be started")?;
        for file in groups.iter().map(|group| group.join("cgroup.procs")) {
            fs::write(&file, process.id().to_string()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let above = quota.parent().and_then(Path::parent).context("a container has no pod")?;
        let shown = above.display().to_string();
        let (_, below) = shown.split_once(tree.root().as_str()).context("a pod lies elsewhere")?;
        let cgroup = format!("{}{below}/{id}", tree.root().trim_start_matches('/'));
        let pod = PodSandbox { uid: uid(number), namespace: "bench".to_owned(), name: name(number) };
        let about = RunningContainer { id, name: "app".to_owned(), cgroup: Some(cgroup), pod };
        let input = process.stdin.take();
        Ok(Self { about, groups, process, input })
    }

    fn let_go(&mut self) -> anyhow::Result<()> {
        let mut input = self.input.take().context("the process has no input")?;
        writeln!(input).context("the process ended before it began")
    }

    /// Time without a setting, in milliseconds.
    fn end(mut self) -> anyhow::Result<f64> {
        let mut line = String::new();
        BufReader::new(self.process.stdout.take().context("the process has no output")?).read_line(&mut line)?;
        let micros: u32 = line.trim().parse().context("the process does not say how long it waited")?;
        Ok(f64::from(micros) / 1000.0)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        for group in &self.groups {
            if let Err(error) = fs::remove_dir(group) {
                eprintln!("warning: {} stays: {error}", group.display());
            }
        }
    }
}
