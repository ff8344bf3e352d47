//! What a verb for authors works on: a project, which is built first, or a module from wherever.

use std::path::Path;

use anyhow::Context;
use qosm_build::Project;
use qosm_engine::{Engine, Module};
use qosm_model::protocol::Description;
use qosm_rego::Support;

use super::shelf;
use crate::args::SubjectArgs;
use crate::modules;

/// A module, and the project that it was built from.
pub(crate) struct Subject {
    /// Where the module is.
    pub(crate) place: String,
    pub(crate) wasm: Vec<u8>,
    pub(crate) project: Option<Project>,
}

impl Subject {
    pub(crate) fn open(args: &SubjectArgs) -> anyhow::Result<Self> {
        let folder = Path::new(&args.subject);
        if folder.is_dir() {
            let project = Project::open(folder)?;
            let built = project.build(args.toolchain.toolchain, &refused)?;
            return Ok(Self { place: shown(&built.file), wasm: built.module, project: Some(project) });
        }
        let (place, wasm, _) = shelf::module(&args.subject, args.module_dir.as_deref(), &args.registry)?;
        Ok(Self { place, wasm, project: None })
    }

    /// The module, and who it says it is.
    pub(crate) fn load(&self, engine: &Engine) -> anyhow::Result<(Module, Description)> {
        let load = || {
            let module = engine.load(&self.wasm, modules::personal_cache().as_ref(), &modules::compiler()?)?;
            let description = engine.describe(&module)?;
            anyhow::Ok((module, description))
        };
        load().with_context(|| format!("{} cannot be run", self.place))
    }
}

/// A file below this folder as a person would type it.
pub(super) fn shown(file: &Path) -> String {
    file.strip_prefix(".").unwrap_or(file).display().to_string()
}

/// Why a policy in Rego cannot call a built-in function, and what it can do instead.
pub(super) fn refused(name: &str) -> Option<String> {
    match qosm_rego::support(name) {
        Support::Works => None,
        Support::Refused { why, instead } => Some(format!("{why}; {instead}")),
        Support::Unknown { instead } => Some(instead),
    }
}
