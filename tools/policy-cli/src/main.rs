//! The `qosm-policy` binary, with which authors write, test and publish policies. `qosm policy …` runs it; nodes do not need it.

mod annotate;
mod args;
mod bench;
mod build;
mod deliverable;
mod doc;
mod emulation;
mod lint;
mod new;
mod push;
mod qosm;
mod run;
mod sbom;
mod subject;
mod test;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use qosm_terminal::{Answer, manual, print};

use crate::args::{Cli, Command, DemoCommand, ResctrlCommand};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let answer = match cli.command {
        Command::New(args) => new::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doc(args) => doc::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Push(args) => push::run(&args),
        Command::Annotate(args) => annotate::run(&args),
        Command::Sbom(args) => sbom::run(&args),
        Command::Demo(DemoCommand::Resctrl(args)) => emulation::demo(&args),
        Command::Resctrl(ResctrlCommand::Emulate(args)) => emulation::emulate(&args),
        Command::Completions { shell } => completions(shell),
        Command::Manual(args) => manual::run(Cli::command(), &args),
        Command::CompileModule => return qosm_engine::compile_child_main(),
    };
    qosm_terminal::end(answer, qosm_replay::is_usage)
}

/// Generates the script in memory first, so that a reader that closes the pipe early causes no failure.
fn completions(shell: clap_complete::Shell) -> anyhow::Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "qosm-policy", &mut script);
    print::bytes(&script)?;
    Ok(Answer::Good)
}
