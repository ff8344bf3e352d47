//! `qosm policy build`: from a policy's source to its module, and what a node would make of it.

use qosm_build::Project;

use super::{inspect, subject};
use crate::Answer;
use crate::args::BuildArgs;

pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<Answer> {
    let built = Project::open(&args.dir)?.build(args.toolchain.toolchain, &subject::refused)?;
    inspect::show(&subject::shown(&built.file), &built.module, None, args.output.output)
}
