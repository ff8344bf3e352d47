//! Runs the verbs that query a running agent.

use qosm_terminal::Answer;

use crate::args::AskCommand;
use crate::{diff, explain, get, pause, record, top, ui};

pub(crate) fn run(command: &AskCommand) -> anyhow::Result<Answer> {
    match command {
        AskCommand::Top(args) => top::run(args),
        AskCommand::Ui(args) => ui::run(args),
        AskCommand::Record(args) => record::run(args),
        AskCommand::Get(args) => get::run(args),
        AskCommand::Diff(args) => diff::run(args),
        AskCommand::Explain(args) => explain::run(args),
        AskCommand::Pause(args) => pause::pause(args),
        AskCommand::Resume(args) => pause::resume(args),
    }
}
