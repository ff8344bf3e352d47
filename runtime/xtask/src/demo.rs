//! `make demo`: a real web server under a real CPU limit, first without a policy, then with CPU Burst; then [`pages`] on two NUMA nodes.
//!
//! [`cgroup`] plays the kubelet, [`server`] the container and [`load`] its visitors; [`agent`] starts the agent, [`measure`] measures,
//! [`report`] and [`plot`] present the results. If cgroups cannot be created, [`recorded`] replays a recorded run.

pub(crate) mod agent;
pub(crate) mod cgroup;
pub(crate) mod load;
pub(crate) mod measure;
pub(crate) mod pages;
mod plot;
mod recorded;
mod report;
pub(crate) mod server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{command, modules};
use agent::Agent;
use cgroup::Groups;
use measure::Phase;
use report::Setting;
use server::Server;

/// The container's CPU limit: 40 ms of CPU time in each 100 ms.
const LIMIT_MILLI: u32 = 400;
/// Average share of the limit that the load needs, as in an ordinary, well-sized container.
const UTILISATION: f64 = 0.66;

/// How to run the demo.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Duration of each of the two measured phases, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Keeps everything running at the end until Ctrl-C, to inspect it with `qosm explain` and the like.
    #[arg(long)]
    hold: bool,
    /// Writes what the module sees to this file, as a recording for `qosm replay`. The recorded run in the examples was made like this.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Replays the recorded run even if a real run is possible.
    #[arg(long)]
    recorded: bool,
    /// Shows only one act: the web server, or the pages.
    #[arg(long, value_enum)]
    only: Option<Act>,
    /// Uses the agent and the modules in the target directory without building them.
    #[arg(long)]
    no_build: bool,
}

/// The acts of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Act {
    /// CPU Burst on a web server.
    Burst,
    /// Memory locality on two NUMA nodes.
    Pages,
}

/// Builds what is needed, then shows one act after the other.
///
/// # Errors
///
/// If something cannot be built or started, or the run is interrupted. All that the demo created is removed then, too.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    if !args.no_build {
        build(workspace)?;
    }
    if args.only != Some(Act::Pages) {
        let shown = burst(workspace, args)?;
        if shown != ExitCode::SUCCESS || args.only.is_some() || args.hold {
            return Ok(shown);
        }
    }
    pages::run(workspace)
}

/// The modules of the two acts.
const MODULES: [&str; 2] = ["cpu-burst", "memory-locality"];

/// Builds the agent and these modules only. `runtime/features` gives its dependencies the features of the whole workspace, so that
/// `make build` and `make test` compile none of them again.
fn build(workspace: &Workspace) -> Result<()> {
    setup::install(workspace, &[Purpose::Build])?;
    modules::build_some(workspace, &MODULES)?;
    command::heading("the agent");
    command::run(workspace.cargo().args(["build", "--release", "--package", "qosm"]))?;
    println!("    {}", workspace.binary().display());
    Ok(())
}

/// The first act: a real run, or else the recorded one.
fn burst(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let why_not = if args.recorded {
        Some("a recorded one was asked for".to_owned())
    } else if !rustix::process::geteuid().is_root() {
        Some("only root may make cgroups".to_owned())
    } else {
        None
    };
    if let Some(why_not) = why_not {
        recorded::run(workspace, &why_not)?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = Interrupt::listen()?;
    let groups = match Groups::make(&[agent::WEB]) {
        Ok(groups) => groups,
        Err(error) => {
            recorded::run(workspace, &format!("{error:#}"))?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    setup::install(workspace, &[Purpose::Demo])?;
    real(workspace, args, groups, &interrupt)
}

/// The real run. Values are dropped in reverse order: the agent, the server, then the cgroups.
fn real(workspace: &Workspace, args: &Args, groups: Groups, interrupt: &Interrupt) -> Result<ExitCode> {
    let web = groups.container(agent::WEB);
    let folder = workspace.target().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let quota = Duration::from_millis(u64::from(LIMIT_MILLI) / 10);
    let limit = format!("0.{} CPUs", LIMIT_MILLI / 100);

    println!("\n1. A container: cgroups of a pod `{}` in {}, as the kubelet makes them.", agent::POD, groups.version());
    println!("     {}", web.folder().display());
    println!("2. A server in it: Apache, which compresses a page for every visitor.");
    let server = Server::start(&web, interrupt)?;
    let rate_for = |cost: Duration| UTILISATION * f64::from(LIMIT_MILLI) / 1000.0 / cost.as_secs_f64().max(1e-6);
    // Concurrent requests cost more than a single one, so the cost is measured again under the load itself.
    let alone = server.calibrate(&web)?;
    let cost = measure::calibrate(rate_for(alone), server.address(), &web, interrupt)?;
    let rate = rate_for(cost);
    println!("     One page costs {:.1} ms of CPU time here.", cost.as_secs_f64() * 1000.0);
    web.limit(quota)?;
    println!(
        "3. A limit of {limit}, which is {} ms in every 100 ms, and a load of {rate:.1} visitors a second. On average they need\n   \
         {:.0} % of the limit. But they come when they like, and when four of them meet, their pages need more than the\n   \
         {} ms: the kernel stops the server until the next 100 ms begin. That is throttling, and the visitors wait.",
        quota.as_millis(),
        UTILISATION * 100.0,
        quota.as_millis(),
    );
    println!("4. The agent: qosm with its module `cpu-burst`, and the pod's manifest in a folder.");
    let log = folder.join("agent.log");
    let mut agent = {
        let start = agent::Start {
            config_map: agent::CONFIG_MAP,
            manifests: &[(agent::MANIFEST, agent::manifest("none", LIMIT_MILLI))],
            agent_config: r#"{"policies": [{"name": "cpu-burst"}]}"#,
            pod: agent::POD,
        };
        Agent::start(workspace, &groups, &log, &start, interrupt)?
    };
    println!("     It runs, and its log is {}.", log.display());

    let whole = Duration::from_secs(2 * (args.seconds + measure::SETTLE) + 1);
    let recorder = args.record.as_deref().map(|file| agent.record(file, whole)).transpose()?;

    let phase =
        |policy, agent: &mut Agent| measure::run(policy, rate, args.seconds, server.address(), &web, agent, interrupt);
    println!(
        "\nFirst with the annotation koordinator.sh/cpuBurst: {{\"policy\": \"none\"}}: the agent leaves the container alone."
    );
    let before = phase("none", &mut agent)?;
    println!(
        "\nNow the annotation says {{\"policy\": \"auto\"}}; nothing is restarted, and the same visitors come again. The kernel\n\
         may now save up unused time for a burst, and the module raises the quota while the container is throttled."
    );
    agent.set_policy("auto", LIMIT_MILLI)?;
    let after = phase("auto", &mut agent)?;
    println!("\nWhat the agent holds at this moment, and why (`qosm explain {}`):\n", agent::POD);
    match agent.ask(&["explain", agent::POD]) {
        Ok(text) => println!("{}", text.trim_end()),
        Err(error) => println!("    {error:#}"),
    }

    let setting = Setting {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        cgroup: groups.version(),
        limit_milli: LIMIT_MILLI,
        cost,
        rate,
    };
    tell(&folder, &setting, &before, &after)?;
    if let (Some(mut recorder), Some(file)) = (recorder, &args.record) {
        let ended =
            command::wait(&mut recorder, Duration::from_secs(10)).context("`qosm record` cannot be waited for")?;
        anyhow::ensure!(
            ended.is_some_and(|status| status.success()),
            "`qosm record` failed to write {}",
            file.display()
        );
        println!("  Recorded to {}.\n", file.display());
    }
    if args.hold {
        hold(workspace, &agent, &server, rate, interrupt);
    }

    agent.stop()?;
    let left = web.sample()?;
    println!(
        "The agent has ended and put back what it had found: quota {}, burst {}.",
        measure::millis(left.quota),
        measure::millis(left.burst)
    );
    drop(server);
    drop(groups);
    println!("Server and cgroups are gone again.\n");
    if !report::shows_the_effect(&before, &after) {
        println!(
            "This run does not show what it should: throttling nearly gone and waits shorter. The agent's log may tell why,\n\
             {}; so may a machine that is busy with other things. Try again once it is quiet.",
            log.display()
        );
        return Ok(ExitCode::FAILURE);
    }
    next_steps(workspace);
    Ok(ExitCode::SUCCESS)
}

/// Writes table, JSON and picture to the terminal and to `target/demo/`.
fn tell(folder: &Path, setting: &Setting, before: &Phase, after: &Phase) -> Result<()> {
    let table = report::table(setting, before, after);
    println!("\n{table}");
    let json = serde_json::to_string_pretty(&report::json(setting, &[before, after]))?;
    for (name, content) in [("demo.txt", table), ("demo.json", json + "\n")] {
        let file = folder.join(name);
        fs::write(&file, content).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    plot::draw(&folder.join("demo.svg"), &[before, after])?;
    println!("  The same as a picture, a table and JSON: {}/demo.{{svg,txt,json}}\n", folder.display());
    Ok(())
}

/// Keeps the load running too, since there is nothing to see on an idle container.
fn hold(workspace: &Workspace, agent: &Agent, server: &Server, rate: f64, interrupt: &Interrupt) {
    println!("Everything keeps running until Ctrl-C. In another terminal, as root:");
    for words in [format!("explain {}", agent::POD), "get knobs".to_owned(), "get policies".to_owned()] {
        println!("  {} {words} --admin-socket {}", workspace.binary().display(), agent.socket().display());
    }
    let _load = load::Load::start(server.address(), load::moments(rate, Duration::from_secs(3600), 0));
    // An interrupt is the expected end.
    let _ = interrupt.sleep(Duration::from_secs(3600));
}

fn next_steps(workspace: &Workspace) {
    let binary = workspace.binary();
    println!(
        "Next:\n  \
         make demo ARGS=--hold   keeps it running, to look at with `qosm explain {}`\n  \
         {2} doctor   what this machine offers\n  \
         {2} plan --help   what would be written for your pods\n  \
         {2} policy inspect {1}/cpu-burst.wasm   what the module may touch",
        agent::POD,
        workspace.modules().display(),
        binary.display(),
    );
}
