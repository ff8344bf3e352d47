//! `qosm policy`: policies as source, modules as files and as artefacts.

pub(crate) mod annotate;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod copy;
pub(crate) mod doc;
pub(crate) mod inspect;
pub(crate) mod lint;
pub(crate) mod ls;
pub(crate) mod new;
mod progress;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod run;
pub(crate) mod sbom;
mod schema;
mod shelf;
mod subject;
pub(crate) mod swap;
pub(crate) mod test;
pub(crate) mod verify;

use crate::Answer;
use crate::args::PolicyCommand;

pub(crate) fn run(command: &PolicyCommand) -> anyhow::Result<Answer> {
    match command {
        PolicyCommand::New(args) => new::run(args),
        PolicyCommand::Build(args) => build::run(args),
        PolicyCommand::Test(args) => test::run(args),
        PolicyCommand::Run(args) => run::run(args),
        PolicyCommand::Bench(args) => bench::run(args),
        PolicyCommand::Doc(args) => doc::run(args),
        PolicyCommand::Lint(args) => lint::run(args),
        PolicyCommand::Inspect(args) => inspect::run(args),
        PolicyCommand::Push(args) => push::run(args),
        PolicyCommand::Pull(args) => pull::run(args),
        PolicyCommand::Verify(args) => verify::run(args),
        PolicyCommand::Copy(args) => copy::run(args),
        PolicyCommand::Ls(args) => ls::run(args),
        PolicyCommand::Annotate(args) => annotate::run(args),
        PolicyCommand::Sbom(args) => sbom::run(args),
        PolicyCommand::Swap(args) => swap::run(args),
        PolicyCommand::Retry { policy, socket } => crate::get::retry(policy, socket),
    }
}
