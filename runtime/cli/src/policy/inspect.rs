//! `qosm policy inspect`: what a module is, and what it may touch.

use qosm_open_module::{inspect, module};
use qosm_terminal::Answer;

use crate::args::InspectArgs;

pub(crate) fn run(args: &InspectArgs) -> anyhow::Result<Answer> {
    let (place, wasm, artefact) = module(&args.module, args.module_dir.as_deref(), &args.registry)?;
    inspect(&place, &wasm, artefact.as_ref(), args.output.output)
}
