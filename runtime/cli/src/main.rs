//! The `qosm` binary: arguments, wiring and output. The functions are in the crates below.

mod agent;
mod args;
mod ask;
mod author;
mod client;
mod compare;
mod completions;
mod confine;
mod controller;
mod diff;
mod doctor;
mod explain;
mod get;
mod host;
mod kubectl;
mod modules;
mod mover;
mod pause;
mod plan;
mod played;
mod policy;
mod record;
mod relay;
mod replay;
mod restore;
mod rollout;
mod seccomp;
mod top;
mod ui;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use qosm_terminal::interrupt::PendingSignals;
use qosm_terminal::manual;

use crate::args::{Cli, Command, RolloutCommand};

fn main() -> ExitCode {
    if kubectl::is_called() {
        return qosm_terminal::end(kubectl::run(), qosm_replay::is_usage);
    }
    completions::answer();
    // First of all: a signal that arrives during the start must not keep the agent from restoring what the previous one left.
    let stop = std::env::args_os().nth(1).filter(|verb| verb == "agent").map(|_| PendingSignals::catch());
    if let Some(answer) = author::help(&std::env::args_os().skip(1).collect::<Vec<_>>()) {
        return qosm_terminal::end(answer, |_| false);
    }
    let cli = Cli::parse();
    let answer = match cli.command {
        Command::Agent(args) => stop.unwrap_or_else(PendingSignals::catch).and_then(|stop| agent::run(*args, stop)),
        Command::Controller(args) => controller::run(&args),
        Command::Rollout(RolloutCommand::Status(args)) => rollout::status(&args),
        Command::Crds { name } => rollout::crds(name.as_deref()),
        Command::Plan(args) => plan::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Ask(command) => ask::run(&command),
        Command::Hold(args) => pause::hold(args),
        Command::Restore(args) => restore::run(&args),
        Command::Policy(command) => policy::run(&command),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(_) | Command::Resctrl(_) => author::emulation(),
        Command::Completions { shell } => completions::print(shell),
        Command::Manual(args) => manual::run(Cli::command(), &args),
        Command::SeccompProfile { install } => seccomp::install(&install),
        Command::Relay(args) => relay::run(&args.admin_socket),
        Command::MovePages(args) => mover::run(&args),
        Command::CompileModule => return qosm_engine::compile_child_main(),
    };
    qosm_terminal::end(answer, |error| qosm_replay::is_usage(error) || error.is::<qosm_cluster::FolderError>())
}
