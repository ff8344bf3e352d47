//! `qosm demo resctrl`: two pods share a cache on an emulated machine, first without limits, then with the policy `llc-mba`.
//!
//! [`super::pods`] plays the kubelet and the containers, [`Agent`] runs `qosm` as an operator without Kubernetes does, and [`super::usage`]
//! measures.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use qosm_open_module::default_dir;
use qosm_resctrl_fuse::{Bytes, BytesPerSecond, Clock, Demand, Profile, Tid};
use qosm_terminal::{Answer, document, interrupt, print};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::pods::{self, Groups, Running, SPECS, Spec};
use super::usage::{self, Usage};
use super::{Emulation, profile};
use crate::args::DemoArgs;
use crate::qosm;

const POLICY: &str = "llc-mba";

/// Maximum time for the agent to compile the module, to answer, and to put the pods into their classes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Duration of a measurement of memory traffic.
const LOOK: Duration = Duration::from_secs(2);

/// The batch job's share of the cache and of the bandwidth under the policy, in percent.
const SHARE_OF_BATCH: u32 = 30;

/// Demand of a pod without limits, in percent of each cache and of the bandwidth behind it.
fn demand(spec: &Spec) -> u64 {
    if spec.class == "BE" { 100 } else { 60 }
}

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<Answer> {
    let machine = profile(&args.profile.profile)?;
    let config = args.policy_config.as_deref().map(|json| document::object(json, "--policy-config")).transpose()?;
    ensure!(rustix::process::geteuid().is_root(), "only root may make cgroups and mount: run it with sudo");
    let modules = default_dir(args.module_dir.as_deref());
    let module = modules.join(format!("{POLICY}.wasm"));
    ensure!(
        module.is_file(),
        "{} is not there: `make build` makes it, --module-dir says where it is",
        module.display()
    );

    let (asked, interrupted) = mpsc::channel();
    interrupt::listen(move || {
        let _ = asked.send(());
    })?;
    let patience = Patience(interrupted);
    let folder = tempfile::Builder::new().prefix("qosm-demo-").tempdir().context("no folder for the demo")?;

    // The values are dropped in reverse order: the agent, the processes, their cgroups, then the mount.
    let emulation = Emulation::mount(&folder.path().join("resctrl"), machine.clone(), Clock::Real)?;
    let mount = emulation.path().to_owned();
    tell(&format!(
        "\n1. A machine with resctrl, emulated ({}), mounted at {}.\n",
        args.profile.profile,
        mount.display()
    ))?;
    tell(&indented(&schemata(&mount)))?;

    let groups = Groups::make()?;
    tell("\n2. Two pods with processes in cgroups of their own: demo/web (LS) and demo/batch (BE).\n")?;
    let mut running = Vec::new();
    for spec in &SPECS {
        running.push(Running::start(&groups, spec)?);
    }
    want(&emulation, &machine, &running);
    tell(
        "   What they would take of each cache and of the memory behind it: web 60 %, batch all of it. The counters of the\n   \
         emulation move accordingly; no real cache does.\n",
    )?;

    let own = watch(&mount, &running)?;
    patience.sleep(Duration::from_secs(args.seconds))?;
    let before = usage::measure(&own, LOOK, |time| patience.sleep(time))?;
    // Remove the demo's monitor groups: from here on the agent counts with its own.
    for group in own.iter().filter(|group| **group != mount) {
        fs::remove_dir(group).with_context(|| format!("cannot remove {}", group.display()))?;
    }

    tell(&format!(
        "\n3. The agent: qosm with the policy `{POLICY}`, and a ConfigMap that holds class BE in {SHARE_OF_BATCH} % of the cache and of \
         the bandwidth.\n"
    ))?;
    let mut agent = Agent::start(folder.path(), &mount, &groups, &modules, &machine, config)?;
    agent.answers(&patience)?;
    let is_placed = agent.places(&emulation, &running, &patience)?;
    tell(&format!("   Its log is {}. The groups that there are now:\n", agent.log().display()))?;
    tell(&indented(&schemata(&mount)))?;
    patience.sleep(Duration::from_secs(args.seconds))?;
    let own: Vec<PathBuf> = running.iter().map(|running| mount.join(group_of(&emulation, running))).collect();
    let after = usage::measure(&own, LOOK, |time| patience.sleep(time))?;
    tell("\n4. What the pods had of the caches and of the memory bandwidth, without and with the policy:\n\n")?;
    tell(&indented(&table(&before, &after)))?;
    tell("\n5. `qosm explain demo/batch`:\n\n")?;
    tell(&indented(&agent.explain(&SPECS[1])?))?;
    if args.hold {
        hold(&agent, &mount, &patience)?;
    }

    agent.stop()?;
    let left = usage::of_qosm(&mount);
    drop(agent);
    drop(running);
    drop(groups);
    emulation.end()?;
    if left.is_empty() {
        tell("\n6. The agent has ended; no group of qosm's is left. Processes, cgroups and mount are gone, too.\n")?;
    } else {
        tell(&format!("\n6. The agent has ended and left groups behind: {}\n", left.join(", ")))?;
    }
    let shows = is_placed && left.is_empty() && is_held(&before, &after);
    if !shows {
        tell("This run does not show what it should: `batch` held in its part, and nothing left at the end.\n")?;
    }
    Ok(if shows { Answer::Good } else { Answer::Bad })
}

fn tell(text: &str) -> anyhow::Result<()> {
    print::text(text)
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("     {line}").trim_end().to_owned() + "\n").collect()
}

/// SIGINT and other termination signals. Every wait checks for them, so that the demo cleans up before it exits.
struct Patience(mpsc::Receiver<()>);

impl Patience {
    fn sleep(&self, time: Duration) -> anyhow::Result<()> {
        match self.0.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => bail!("interrupted"),
        }
    }
}

/// Sets the demand of the pods' processes.
fn want(emulation: &Emulation, machine: &Profile, running: &[Running]) {
    let Some(mut tree) = emulation.tree() else { return };
    for (spec, running) in SPECS.iter().zip(running) {
        for domain in &machine.l3_domains {
            let part = |all: u64| all / 100 * demand(spec);
            tree.set_task_demand(
                Tid(running.id()),
                domain.id,
                Demand {
                    occupancy: Bytes(part(domain.cache_size.0)),
                    bandwidth: BytesPerSecond(part(machine.memory_bandwidth.0)),
                    local_percent: 100,
                },
            );
        }
    }
}

/// Puts each pod into a monitor group before the agent starts; monitor groups limit nothing. Returns the root instead if the machine has
/// none.
fn watch(mount: &Path, running: &[Running]) -> anyhow::Result<Vec<PathBuf>> {
    let above = mount.join("mon_groups");
    if !above.is_dir() {
        return Ok(vec![mount.to_owned(); running.len()]);
    }
    let mut made = Vec::new();
    for (spec, running) in SPECS.iter().zip(running) {
        let group = above.join(format!("demo-{}", spec.name));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        // Processes that it starts later join the group too.
        fs::write(group.join("tasks"), running.id().to_string()).context("a process cannot be counted")?;
        made.push(group);
    }
    Ok(made)
}

/// The group that counts a pod's first process, relative to the mount.
fn group_of(emulation: &Emulation, running: &Running) -> PathBuf {
    let line = emulation.tree().and_then(|mut tree| tree.cpu_resctrl_groups(Tid(running.id())));
    usage::group_of(&line.unwrap_or_default())
}

fn schemata(mount: &Path) -> String {
    let mut text = String::new();
    for (name, schemata) in usage::schemata(mount) {
        let lines: Vec<_> = schemata.lines().map(str::trim).collect();
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name:20} {}", lines.join("   "));
    }
    text
}

fn table(before: &[Usage], after: &[Usage]) -> String {
    let cache = |usage: &Usage| {
        usage.occupancy.map_or_else(|| "not counted".to_owned(), |bytes| format!("{} MiB", (bytes + (1 << 19)) >> 20))
    };
    let traffic = |usage: &Usage| {
        usage.bandwidth.map_or_else(|| "not counted".to_owned(), |bytes| format!("{:.1} GB/s", bytes / 1e9))
    };
    let rows = SPECS.iter().zip(before.iter().zip(after)).map(|(spec, (before, after))| {
        vec![spec.pod(), spec.class.to_owned(), cache(before), cache(after), traffic(before), traffic(after)]
    });
    print::table(&["pod", "class", "cache before", "after", "memory before", "after"], rows)
}

/// Whether the batch job used less with the policy than without it, as far as the machine counts it.
fn is_held(before: &[Usage], after: &[Usage]) -> bool {
    let Some((before, after)) = before.get(1).zip(after.get(1)) else { return false };
    let cache = before.occupancy.zip(after.occupancy).map(|(before, after)| after < before);
    let traffic = before.bandwidth.zip(after.bandwidth).map(|(before, after)| after < before);
    match (cache, traffic) {
        // The machine counts nothing; the groups are all there is to see.
        (None, None) => true,
        (cache, traffic) => cache == Some(true) || traffic == Some(true),
    }
}

/// Keeps everything running until an interrupt.
fn hold(agent: &Agent, mount: &Path, patience: &Patience) -> anyhow::Result<()> {
    let (mount, socket) = (mount.display(), agent.socket().display().to_string());
    tell(&format!(
        "\nEverything keeps running until Ctrl-C. In another terminal, as root:\n  cat {mount}/qosm-*/schemata\n  \
         qosm explain demo/batch --admin-socket {socket}\n  qosm get pods --admin-socket {socket}\n  qosm doctor --resctrl {mount}\n"
    ))?;
    // An interrupt is the expected end.
    let _ = patience.sleep(Duration::from_secs(86_400));
    Ok(())
}

/// A running agent. Dropping it stops it, and the agent then restores what it changed.
struct Agent {
    process: Child,
    /// Path of `qosm`.
    program: PathBuf,
    folder: PathBuf,
}

impl Agent {
    fn start(
        folder: &Path,
        mount: &Path,
        groups: &Groups,
        modules: &Path,
        machine: &Profile,
        policy_config: Option<serde_json::Map<String, serde_json::Value>>,
    ) -> anyhow::Result<Self> {
        let make = |name: &str| -> anyhow::Result<PathBuf> {
            let made = folder.join(name);
            fs::create_dir(&made).with_context(|| format!("cannot make {}", made.display()))?;
            Ok(made)
        };
        let (pods, state) = (make("pods")?, make("state")?);
        pods::write_manifests(&pods)?;
        let write = |name: &str, text: String| -> anyhow::Result<PathBuf> {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            Ok(file)
        };
        let config_map = write("config.json", config_map().to_string())?;
        let own = write(
            "agent.json",
            json!({
                "policies": [{"name": POLICY, "config": policy_config.unwrap_or_default()}],
                // The bandwidth of the emulated memory, so that percentages refer to it on AMD too.
                "resctrl": {"path": mount, "fullBandwidthMBps": machine.memory_bandwidth.0 / 1_000_000},
            })
            .to_string(),
        )?;
        let log = File::create(folder.join("agent.log")).context("no log for the agent")?;
        let program = qosm::find()?;
        let mut command = Command::new(&program);
        command.arg("agent").arg("--pods").arg(pods).arg("--config").arg(config_map).arg("--agent-config").arg(own);
        command.arg("--state-dir").arg(state).arg("--admin-socket").arg(folder.join("admin.sock"));
        command.arg("--module-dir").arg(modules).args(["--cgroup-root", &groups.root(), "--cgroup-driver", "cgroupfs"]);
        command.args(["--create-cgroups", "--metrics-listen", "none"]);
        // A process group of its own: Ctrl-C reaches only the demo, which then stops the agent.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let process = command.spawn().context("the agent cannot be started")?;
        Ok(Self { process, program, folder: folder.to_owned() })
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("agent.log")
    }

    fn explain(&self, spec: &Spec) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["explain", &spec.pod(), "--admin-socket"]).arg(self.socket()).stdin(Stdio::null());
        let explained = command.output().context("`qosm explain` cannot be started")?;
        ensure!(explained.status.success(), "{}", String::from_utf8_lossy(&explained.stderr).trim());
        Ok(String::from_utf8_lossy(&explained.stdout).into_owned())
    }

    /// Fails if the agent has exited.
    fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait().context("the agent cannot be waited for")? {
            bail!("the agent ended ({status}): {}", self.last_words());
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.trim().lines().last().unwrap_or("its log is empty").to_owned()
    }

    /// Waits until the agent answers.
    fn answers(&mut self, patience: &Patience) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.explain(&SPECS[1]).is_err() {
            self.check()?;
            ensure!(begun.elapsed() < PATIENCE, "the agent does not answer: {}", self.last_words());
            patience.sleep(Duration::from_millis(200))?;
        }
        Ok(())
    }

    /// Waits until the batch job is in one of qosm's groups. If the time runs out, prints the agent's last log line.
    fn places(&mut self, emulation: &Emulation, running: &[Running], patience: &Patience) -> anyhow::Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            self.check()?;
            let is_placed = running.get(1).is_some_and(|batch| is_of_qosm(&group_of(emulation, batch)));
            if is_placed {
                return Ok(true);
            }
            patience.sleep(Duration::from_millis(200))?;
        }
        tell(&format!("   It has not put demo/batch into a group: {}\n", self.last_words()))?;
        Ok(false)
    }

    /// Stops the agent with SIGTERM, as systemd does, and waits for its exit.
    fn stop(&mut self) -> anyhow::Result<()> {
        self.check()?;
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            match self.process.try_wait().context("the agent cannot be waited for")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the agent ended badly ({status}): {}", self.last_words()),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        bail!("the agent does not end: {}", self.last_words())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) && self.stop().is_err() {
            // Unmounting and removing the cgroups cleans up the rest.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Whether a group, or the control group that contains it, is qosm's.
fn is_of_qosm(group: &Path) -> bool {
    group.iter().next().is_some_and(|name| name.to_string_lossy().starts_with("qosm-"))
}

fn config_map() -> serde_json::Value {
    let classes = json!({"clusterStrategy": {
        "lsClass": {"resctrlQOS": {"enable": true}},
        "beClass": {"resctrlQOS": {
            "enable": true, "catRangeEndPercent": SHARE_OF_BATCH, "mbaPercent": SHARE_OF_BATCH,
        }},
    }});
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"resource-qos-config": classes.to_string()},
    })
}
