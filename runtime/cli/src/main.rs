//! The `qosm` binary: arguments, wiring and output. What it does stands in the crates beneath.

mod agent;
mod args;
mod client;
mod controller;
mod diff;
mod doctor;
mod document;
mod emulation;
mod explain;
mod get;
mod host;
mod interrupt;
mod modules;
mod plan;
mod policy;
mod print;
mod record;
mod replay;
mod restore;
mod rollout;
mod seccomp;
mod versus;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, DemoCommand, ResctrlCommand, RolloutCommand};

/// The answer to what was asked.
pub(crate) enum Answer {
    /// Done.
    Good,
    /// It ran, and what it found is not good.
    Bad,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let answer = match cli.command {
        Command::Agent(args) => agent::run(*args),
        Command::Controller(args) => controller::run(&args),
        Command::Rollout(RolloutCommand::Status(args)) => rollout::status(&args),
        Command::Crds { name } => rollout::crds(name.as_deref()),
        Command::Plan(args) => plan::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Record(args) => record::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Hold(args) => get::hold(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Policy(command) => policy::run(&command),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(DemoCommand::Resctrl(args)) => emulation::demo(&args),
        Command::Resctrl(ResctrlCommand::Emulate(args)) => emulation::emulate(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "qosm", &mut std::io::stdout());
            Ok(Answer::Good)
        }
        Command::SeccompProfile { install } => seccomp::install(&install),
        Command::CompileModule => return qosm_engine::compile_child_main(),
    };
    match answer {
        Ok(Answer::Good) => ExitCode::SUCCESS,
        Ok(Answer::Bad) => ExitCode::from(1),
        Err(error) => {
            // A reader that has seen enough (`qosm get knobs | head`) is no failure.
            if print::is_closed_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            print::error(&error);
            ExitCode::from(if error.is::<print::Usage>() { 2 } else { 1 })
        }
    }
}
