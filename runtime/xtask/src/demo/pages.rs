//! The second act: pages on the wrong NUMA node move to the right one. It needs two nodes and cgroup v2; if this machine does not have
//! both, it runs in the VM, with the same program and the same kernel interfaces.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::interrupt::Interrupt;
use crate::setup::{self, Purpose};
use crate::vm::{self, Share};
use crate::workspace::{Workspace, this_program};

/// Name of the demo's pod in commands.
const POD: &str = "demo/redis";
const ROOT: &str = "/sys/fs/cgroup/qosm-demo";
const GROUP: &str = "kubepods/burstable/podu-redis/redis";
/// Memory of the pod's process, in MiB.
const MEBIBYTES: usize = 96;
/// Slow enough to watch.
const MEBIBYTES_PER_SECOND: u32 = 16;
/// Time limit, which allows for an emulated processor.
const PATIENCE: Duration = Duration::from_secs(180);
/// Width of the bar in characters.
const BAR: usize = 40;

/// The flags of the program that plays, and its path.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Path of the agent.
    #[arg(long, value_name = "FILE")]
    qosm: PathBuf,
    /// Folder of the default modules.
    #[arg(long, value_name = "FOLDER")]
    modules: PathBuf,
    /// Only allocates and holds the memory of the demo's pod.
    #[arg(long)]
    hold: bool,
}

/// Shows the act, on this machine or in the VM.
///
/// # Errors
///
/// If the VM is not available, or the act fails.
pub(crate) fn run(workspace: &Workspace) -> Result<ExitCode> {
    println!("\nSecond act: a pod whose CPUs are on one NUMA node and whose memory is on another.");
    if rustix::process::geteuid().is_root() && Topology::read().is_some_and(|topology| topology.is_enough()) {
        return play(&Args { qosm: workspace.binary(), modules: workspace.modules(), hold: false });
    }
    println!(
        "This machine cannot play it (it takes root, two NUMA nodes and cgroup v2), so it plays in a small VM; this takes a minute or two."
    );
    setup::install(workspace, &[Purpose::Test])?;
    let share = |host, guest: &str| Share { host, guest: guest.into() };
    let files = [
        share(workspace.binary(), "/bin/qosm"),
        share(this_program()?, "/bin/act"),
        share(workspace.modules(), "/policies"),
    ];
    let script = "exec /bin/act pages --qosm /bin/qosm --modules /policies\n";
    let limit = PATIENCE * 4;
    let interrupt = Interrupt::listen()?;
    Ok(ExitCode::from(vm::script_in_vm(workspace, &files, script, limit, &interrupt, |line| println!("{line}"))?))
}

/// NUMA nodes with both CPUs and memory: number and CPU list.
struct Topology(Vec<(u32, String)>);

impl Topology {
    fn read() -> Option<Self> {
        let mut nodes = Vec::new();
        for entry in fs::read_dir("/sys/devices/system/node").ok()?.flatten() {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else { continue };
            let cpus = fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default().trim().to_owned();
            let meminfo = fs::read_to_string(entry.path().join("meminfo")).unwrap_or_default();
            let free =
                meminfo.lines().find_map(|line| line.split_once("MemFree:")?.1.split_whitespace().next()?.parse().ok());
            if !cpus.is_empty() && free.is_some_and(|kib: usize| kib / 1024 > 2 * MEBIBYTES) {
                nodes.push((id, cpus));
            }
        }
        nodes.sort_unstable();
        Some(Self(nodes))
    }

    fn is_enough(&self) -> bool {
        self.0.len() > 1 && Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    }
}

/// Shows the act on this kernel, and removes everything at the end.
///
/// # Errors
///
/// What could not be created or started, or that the pages did not move.
pub(crate) fn play(args: &Args) -> Result<ExitCode> {
    if args.hold {
        return hold();
    }
    let topology = Topology::read().filter(Topology::is_enough);
    let Some(Topology(nodes)) = topology else { bail!("it takes two NUMA nodes with room, and cgroup v2") };
    let [(from, from_cpus), (to, to_cpus), ..] = nodes.as_slice() else { bail!("it takes two NUMA nodes") };
    let group = Group::make()?;
    println!("1. A container on the CPUs of node {from} ({from_cpus}); its process takes {MEBIBYTES} MiB there.");
    group.write("cpuset.cpus", from_cpus)?;
    let _process = Holder::start(args)?;
    println!(
        "2. Its CPUs become those of node {to} ({to_cpus}), as a topology manager may decide. The memory stays behind:"
    );
    group.write("cpuset.cpus", to_cpus)?;
    let folder = tempfile::tempdir().context("no folder for the agent")?;
    let mut agent = Agent::start(args, folder.path())?;
    println!(
        "3. The agent runs, with its module `memory-locality`. The pod's annotation says\n     koordinator.sh/memoryLocality: {{\"policy\": \"bestEffort\"}}\n"
    );
    let event = watch(&mut agent)?;
    println!("\n4. The pod's event:\n\n     {}\n", event.replace('\n', "\n     "));
    println!("   and `qosm explain {POD}`:\n");
    println!("{}", agent.ask(&["explain", POD])?.trim_end());
    ensure!(event.contains("completed: migrated memory"), "the pages did not come home; see the agent's log above");
    Ok(ExitCode::SUCCESS)
}

/// Shows the share of local pages as it changes, until the pod gets its event.
fn watch(agent: &mut Agent) -> Result<String> {
    let begun = Instant::now();
    let mut last = None;
    loop {
        let pods: Value = serde_json::from_str(&agent.ask(&["get", "pods", "-o", "json"])?)?;
        let container = &pods[0]["locality"][0];
        if let Some(percent) = container["localPercent"].as_u64().filter(|percent| last != Some(*percent)) {
            last = Some(percent);
            println!("{}", bar(begun.elapsed(), percent, &container["migration"]));
        }
        let events: Value = serde_json::from_str(&agent.ask(&["get", "events", "-o", "json"])?)?;
        let event = events
            .as_array()
            .into_iter()
            .flatten()
            .find(|event| event["reason"].as_str().is_some_and(|reason| reason.starts_with("MemoryLocality")));
        if let Some(event) = event {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            return Ok(format!("{}: {}", text("reason"), text("message")));
        }
        ensure!(begun.elapsed() < PATIENCE, "the pod got no event about its memory; the agent's log:\n{}", agent.log());
        agent.check()?;
        sleep(Duration::from_millis(400));
    }
}

fn bar(time: Duration, percent: u64, migration: &Value) -> String {
    let filled = usize::try_from(percent).unwrap_or(0).min(100) * BAR / 100;
    let mut line = format!(
        "   {:5.1} s  [{}{}] {percent:3} % local",
        time.as_secs_f64(),
        "#".repeat(filled),
        ".".repeat(BAR - filled)
    );
    if let (Some(moved), Some(found)) = (migration["pagesMoved"].as_u64(), migration["pagesFound"].as_u64()) {
        let _ = write!(line, "   {moved} of {found} pages moved");
    }
    line
}

/// The pod's cgroups.
struct Group;

impl Group {
    fn make() -> Result<Self> {
        let group = Self;
        let mut path = PathBuf::from("/sys/fs/cgroup");
        for part in Path::new("qosm-demo").join(GROUP).iter() {
            let control = path.join("cgroup.subtree_control");
            fs::write(&control, "+cpuset +cpu +memory")
                .with_context(|| format!("cannot write {}", control.display()))?;
            path.push(part);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        Ok(group)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = Path::new(ROOT).join(GROUP).join(file);
        fs::write(&path, text).with_context(|| format!("cannot write `{text}` to {}", path.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let path = Path::new(ROOT).join(GROUP);
        for _ in 0..100 {
            // The kernel may count a killed process for a moment longer.
            if path.ancestors().take(5).all(|path| fs::remove_dir(path).is_ok() || !path.exists()) {
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }
}

/// The pod's process.
struct Holder(Child);

impl Holder {
    fn start(args: &Args) -> Result<Self> {
        let program = this_program()?;
        let enter = format!("echo $$ >{ROOT}/{GROUP}/cgroup.procs; exec \"$@\"");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &enter, "sh"]).arg(program).args(["pages", "--hold", "--qosm"]).arg(&args.qosm);
        command.arg("--modules").arg(&args.modules).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("the pod's process cannot be started")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).context("the pod's process says nothing")?;
        }
        let holder = Self(child);
        ensure!(line.starts_with("held"), "the pod's process ended before it had its memory");
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Allocates memory, prints a line, and keeps the memory until its input ends.
fn hold() -> Result<ExitCode> {
    let mut memory = vec![0_u8; MEBIBYTES << 20];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    black_box(&mut memory);
    println!("held");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    black_box(&memory);
    Ok(ExitCode::SUCCESS)
}

/// The agent, started as an operator without Kubernetes does.
struct Agent {
    process: Child,
    qosm: PathBuf,
    folder: PathBuf,
}

impl Agent {
    fn start(args: &Args, folder: &Path) -> Result<Self> {
        for name in ["pods", "state"] {
            fs::create_dir(folder.join(name)).context("the agent's folders")?;
        }
        let config = json!({
            // An emulated processor needs more time for an evaluation than the default limit.
            "policies": [{"name": "memory-locality", "evaluationMillis": 2000}],
            "pageMigration": {"mibPerSecond": MEBIBYTES_PER_SECOND, "cpuPercent": 50},
        });
        fs::write(folder.join("agent.json"), config.to_string()).context("the agent's file")?;
        fs::write(folder.join("pods/redis.json"), manifest().to_string()).context("the manifest")?;
        let log = fs::File::create(folder.join("agent.log")).context("the agent's log")?;
        let mut command = Command::new(&args.qosm);
        command.args([
            "agent",
            "--cgroup-driver",
            "cgroupfs",
            "--cgroup-root",
            "/qosm-demo",
            "--metrics-listen",
            "none",
        ]);
        command.arg("--pods").arg(folder.join("pods")).arg("--state-dir").arg(folder.join("state"));
        command
            .arg("--agent-config")
            .arg(folder.join("agent.json"))
            .arg("--admin-socket")
            .arg(folder.join("admin.sock"));
        command.arg("--module-dir").arg(&args.modules).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().with_context(|| format!("{} cannot be started", args.qosm.display()))?;
        let mut agent = Self { process, qosm: args.qosm.clone(), folder: folder.to_owned() };
        let begun = Instant::now();
        while agent.ask(&["get", "pods", "-o", "json"]).is_err() {
            agent.check()?;
            ensure!(begun.elapsed() < PATIENCE, "the agent does not answer:\n{}", agent.log());
            sleep(Duration::from_millis(200));
        }
        Ok(agent)
    }

    fn ask(&self, words: &[&str]) -> Result<String> {
        crate::command::output(
            Command::new(&self.qosm).args(words).arg("--admin-socket").arg(self.folder.join("admin.sock")),
        )
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default()
    }

    fn check(&mut self) -> Result<()> {
        match self.process.try_wait().context("the agent cannot be waited for")? {
            Some(status) => bail!("the agent ended ({status}):\n{}", self.log()),
            None => Ok(()),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        if !matches!(crate::command::wait(&mut self.process, Duration::from_secs(30)), Ok(Some(_))) {
            self.process.kill().ok();
            self.process.wait().ok();
        }
    }
}

fn manifest() -> Value {
    let (namespace, name) = POD.split_once('/').unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": namespace, "uid": "u-redis",
            "annotations": {"koordinator.sh/memoryLocality": "{\"policy\": \"bestEffort\"}"},
        },
        "spec": {"containers": [{"name": "redis", "resources": {"requests": {"cpu": "1", "memory": "128Mi"}}}]},
    })
}
