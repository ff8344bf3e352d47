//! `qosm policy build`: builds a policy's module, and reports how a node would see it.

use qosm_engine::Engine;
use qosm_open_module::inspect;
use qosm_terminal::Answer;

use crate::args::BuildArgs;
use crate::subject::Subject;

pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<Answer> {
    let subject = Subject::build(&args.dir, &args.toolchain)?;
    let answer = inspect(&subject.place, &subject.wasm, None, args.output.output)?;
    if let (Answer::Bad, Err(error)) = (&answer, subject.load(&Engine::new()?)) {
        for call in subject.refused_calls(&error) {
            eprintln!("  {call}");
        }
    }
    Ok(answer)
}
