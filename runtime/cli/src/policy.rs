//! `qosm policy`: modules as files and as artefacts.

pub(crate) mod annotate;
pub(crate) mod copy;
pub(crate) mod inspect;
pub(crate) mod ls;
mod progress;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod sbom;
mod schema;
mod shelf;
pub(crate) mod swap;
pub(crate) mod verify;

use crate::Answer;
use crate::args::PolicyCommand;

pub(crate) fn run(command: &PolicyCommand) -> anyhow::Result<Answer> {
    match command {
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
