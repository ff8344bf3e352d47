//! `cargo xtask soak`: runs for hours what `make test` runs for minutes: `kill -9` at random moments, and a million ticks.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::root::RootAccess;
use crate::workspace::Workspace;
use crate::{command, modules, opa, rego, setup, test};

/// How long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds of `kill -9`; 0 = none.
    #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
    rounds: u32,
    /// Repeat the rounds of an earlier run: the seed that it printed.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Stories on a simulated node, in which everything may be killed between any two steps; 0 = none.
    #[arg(long, default_value_t = 20_000, value_name = "COUNT")]
    stories: u32,
    /// Ticks on a simulated node, during which no data may grow; 0 = none.
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT")]
    ticks: u64,
}

/// Runs the tests one after the other, all of them even if some fail.
///
/// # Errors
///
/// If something cannot be built, or there is no root.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let access = RootAccess::here();
    if args.rounds > 0 && access == RootAccess::None {
        anyhow::bail!("agents are killed on this machine's cgroups: run this as root, or say --rounds 0");
    }
    setup::install(workspace, &[setup::Purpose::Build, setup::Purpose::Rego])?;
    modules::build(workspace, &modules::Args::default())?;
    command::heading("binaries");
    command::run(workspace.cargo().args(["build", "--release", "--workspace"]))?;
    let mut good = true;
    if args.ticks > 0 {
        command::heading(&format!("{} ticks on a simulated node", args.ticks));
        good &= law(workspace, "ticks_leave_nothing_behind", &[("QOSM_SOAK_TICKS", args.ticks.to_string())])?;
    }
    if args.stories > 0 {
        command::heading(&format!("{} stories of kills on a simulated node", args.stories));
        good &= law(workspace, "no_knob_is_lost", &[("PROPTEST_CASES", args.stories.to_string())])?;
    }
    if args.rounds > 0 {
        command::heading(&format!("{} rounds of kill -9 on this machine's cgroups", args.rounds));
        good &= rounds(workspace, access, args)?;
    }
    println!("{}", if good { "nothing lost, nothing left behind, nothing grown" } else { "NOT good: see above" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the unit tests of this name, alone in their process and with higher counts than usual.
fn law(workspace: &Workspace, name: &str, more: &[(&str, String)]) -> Result<bool> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--release", "--workspace", "--lib", name, "--", "--test-threads=1", "--nocapture"]);
    cargo.env("PATH", opa::path(workspace)?).envs(more.iter().map(|(name, value)| (name, value)));
    let status = command::lines(&mut cargo, |line| {
        if !line.contains("running 0 tests") && !line.contains("0 passed") && !line.trim().is_empty() {
            println!("{line}");
        }
    })?;
    Ok(status.success())
}

fn rounds(workspace: &Workspace, access: RootAccess, args: &Args) -> Result<bool> {
    test::compile_staged(workspace, &[test::KERNEL])?;
    let programs = test::staged(workspace, test::KERNEL)?;
    let program = programs.iter().find(|program| program.package == "qosm").context("the agent has no kernel tests")?;
    let (binary, modules, bundles) = (workspace.binary(), workspace.modules(), rego::bundles(workspace));
    let (rounds, seed) = (args.rounds.to_string(), args.seed.map(|seed| seed.to_string()));
    let mut variables: Vec<(&str, &OsStr)> = vec![
        ("QOSM_BIN", binary.as_ref()),
        ("QOSM_MODULES", modules.as_ref()),
        ("QOSM_BUNDLES", bundles.as_ref()),
        ("QOSM_KILL_ROUNDS", rounds.as_ref()),
    ];
    variables.extend(seed.as_ref().map(|seed| ("QOSM_KILL_SEED", seed.as_ref())));
    let mut kills = access.command(&program.program, &variables).context("root is not to be had")?;
    kills.args(["--test-threads=1", "--nocapture", "whatever_is_killed_at_random"]).current_dir(&program.folder);
    Ok(command::lines(&mut kills, |line| println!("{line}"))?.success())
}
