//! `qosm policy`: modules in files and artefacts, and those that run on this node. Verbs for authors run in another program.

mod copy;
mod inspect;
mod ls;
mod pull;
mod swap;
mod verify;

use qosm_terminal::Answer;

use crate::args::PolicyCommand;
use crate::author;

pub(crate) fn run(command: &PolicyCommand) -> anyhow::Result<Answer> {
    match command {
        PolicyCommand::Inspect(args) => inspect::run(args),
        PolicyCommand::Pull(args) => pull::run(args),
        PolicyCommand::Verify(args) => verify::run(args),
        PolicyCommand::Copy(args) => copy::run(args),
        PolicyCommand::Ls(args) => ls::run(args),
        PolicyCommand::Swap(args) => swap::run(args),
        PolicyCommand::Retry { policy, socket } => crate::pause::retry(policy, socket),
        PolicyCommand::New(_)
        | PolicyCommand::Build(_)
        | PolicyCommand::Test(_)
        | PolicyCommand::Run(_)
        | PolicyCommand::Bench(_)
        | PolicyCommand::Doc(_)
        | PolicyCommand::Lint(_)
        | PolicyCommand::Push(_)
        | PolicyCommand::Annotate(_)
        | PolicyCommand::Sbom(_) => author::policy(),
    }
}
