//! The `qosm-policy` binary: what policies are written, tested and published with. `qosm policy …` runs it; no node needs it.

mod annotate;
mod args;
mod bench;
mod build;
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
use qosm_terminal::Answer;

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
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "qosm-policy", &mut std::io::stdout());
            Ok(Answer::Good)
        }
        Command::CompileModule => return qosm_engine::compile_child_main(),
    };
    qosm_terminal::end(answer, qosm_replay::is_usage)
}
