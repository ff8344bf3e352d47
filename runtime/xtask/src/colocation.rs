//! `bench-colocation`: measures a latency-sensitive server alone, next to unmanaged batch work, and next to the same batch work under qosm:
//! `be-suppress` in the profile of Koordinator's loop, and `be-suppress` in its default profile with `cpu-identity`.
//!
//! The server, its load and the cgroups are those of the demo. [`batch`] is the batch work, [`phase`] measures one of the four phases,
//! [`report`] and [`plot`] present the results.

mod batch;
mod node;
mod phase;
mod plot;
mod report;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::demo::agent::Agent;
use crate::demo::cgroup::Groups;
use crate::demo::measure;
use crate::demo::server::Server;
use crate::interrupt::Interrupt;
use crate::setup::{self, Purpose};
use crate::workspace::Workspace;
use crate::{command, modules};

use self::batch::Batch;
use self::node::{BATCH, Mode, WEB};
use self::phase::{Kind, Phase};
use self::report::Setting;

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Duration of each phase in each round, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Number of rounds. Each round measures all phases, beginning with another one.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Average load of the server, in percent of the node's CPU.
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u32).range(5..=60))]
    load: u32,
    /// How batch work is limited. Default: by a CFS quota on fewer than 8 CPUs, else by a cpuset.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Succeeds whatever was measured, for a run that only checks that the bench works.
    #[arg(long)]
    no_check: bool,
    /// Uses the agent and the module in the target directory without building them.
    #[arg(long)]
    no_build: bool,
}

/// Builds what is needed, measures, and prints the results.
///
/// # Errors
///
/// If something cannot be built or started, the run is interrupted, or the server fails. All that the bench created is removed then, too.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "this bench makes cgroups of its own and needs root for that: run `sudo -E make bench-colocation`; nothing was measured"
    );
    if !args.no_build {
        setup::install(workspace, &[Purpose::Build])?;
        modules::build_some(workspace, &["be-suppress", "cpu-identity"])?;
        command::heading("the agent");
        command::run(workspace.cargo().args(["build", "--release", "--package", "qosm"]))?;
    }
    setup::install(workspace, &[Purpose::Demo])?;
    let interrupt = Interrupt::listen()?;
    let groups = Groups::make(&[WEB, BATCH])?;
    let (setting, phases) = measure_all(workspace, args, &groups, &interrupt)?;
    drop(groups);
    tell(workspace, &setting, &phases)?;
    let result = report::result(&phases);
    println!("{result}");
    Ok(if args.no_check || result.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures all phases. All processes end before their cgroups are removed.
fn measure_all(
    workspace: &Workspace,
    args: &Args,
    groups: &Groups,
    interrupt: &Interrupt,
) -> Result<(Setting, Vec<Phase>)> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mode = args.mode.unwrap_or_else(|| Mode::for_cpus(cpus));
    let (web, beside) = (groups.container(WEB), groups.container(BATCH));
    let server = Server::start(&web, interrupt)?;
    let node_share = f64::from(args.load) / 100.0 * cpus as f64;
    let rate_for = |cost: Duration| node_share / cost.as_secs_f64().max(1e-6);
    let alone = server.calibrate(&web)?;
    let cost = measure::calibrate(rate_for(alone), server.address(), &web, interrupt)?;
    let setting = Setting {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus,
        cgroup: groups.version(),
        mode,
        cost,
        rate: rate_for(cost),
        seconds: args.seconds * u64::from(args.rounds),
    };
    println!(
        "{cpus} CPUs; the server needs {} % of them: {:.1} visitors a second, {:.1} ms of CPU each. Beside it {} processes \
         compress pages as fast as they may.\n{} rounds of {} s each.",
        args.load,
        setting.rate,
        cost.as_secs_f64() * 1000.0,
        2 * cpus,
        args.rounds,
        args.seconds,
    );
    let log = workspace.target().join("colocation-agent.log");
    let mut phases: Vec<Phase> = Kind::ALL.map(Phase::new).into();
    for round in 0..args.rounds {
        for place in 0..phases.len() {
            // The order of the phases rotates, because the first finds the machine in another state than the last.
            let count = phases.len();
            let Some(phase) = phases.get_mut((place + usize::try_from(round)?) % count) else { continue };
            let mut agent = match phase.kind.policies() {
                Some(policies) => {
                    let node = node::node(&policies, mode);
                    Some(Agent::start(workspace, groups, &log, &node.start(), interrupt)?)
                }
                None => None,
            };
            let batch = (phase.kind != Kind::Alone).then(|| Batch::start(&beside, 2 * cpus)).transpose()?;
            phase.measure(&setting, args.seconds, &server, &beside, batch.as_ref(), agent.as_mut(), interrupt)?;
            println!("  round {}, {}", round + 1, phase.last_line());
            if let Some(mut agent) = agent {
                agent.stop()?;
            }
        }
    }
    Ok((setting, phases))
}

/// Writes table, JSON and picture to the terminal and to `target/colocation/`.
fn tell(workspace: &Workspace, setting: &Setting, phases: &[Phase]) -> Result<()> {
    let folder = workspace.target().join("colocation");
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let table = report::table(setting, phases);
    println!("\n{table}");
    let json = serde_json::to_string_pretty(&report::json(setting, phases))?;
    for (name, content) in [("colocation.txt", table), ("colocation.json", json + "\n")] {
        let file = folder.join(name);
        fs::write(&file, content).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    plot::draw(&folder.join("colocation.svg"), phases)?;
    println!("  The same as a picture, a table and JSON: {}/colocation.{{svg,txt,json}}\n", folder.display());
    Ok(())
}
