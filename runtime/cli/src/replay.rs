//! `qosm replay`: plays a recording through the policies.

use qosm_engine::Engine;
use qosm_replay::{Recording, play};
use qosm_terminal::Answer;

use crate::args::ReplayArgs;
use crate::{compare, plan};

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Answer> {
    if let Some(against) = &args.against {
        return compare::run(args, against);
    }
    let (facts, recording) = Recording::open(&args.recording)?;
    let engine = Engine::new()?;
    let policies = plan::load_entries(&engine, &args.modules, facts.policies.clone())?;
    play(&facts, recording, engine, policies, args.output)
}
