//! `qosm policy build`: from a policy's source to its module, and what a node would make of it.

use qosm_engine::Engine;

use super::inspect;
use super::subject::Subject;
use crate::Answer;
use crate::args::BuildArgs;

pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<Answer> {
    let subject = Subject::build(&args.dir, &args.toolchain)?;
    let answer = inspect::show(&subject.place, &subject.wasm, None, args.output.output)?;
    if let (Answer::Bad, Err(error)) = (&answer, subject.load(&Engine::new()?)) {
        for call in subject.refused_calls(&error) {
            eprintln!("  {call}");
        }
    }
    Ok(answer)
}
