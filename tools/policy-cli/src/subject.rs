//! The subject of a verb for authors: a project, which is built first, or a module.

use std::path::Path;

use anyhow::bail;
use qosm_build::Project;
use qosm_engine::{BundleError, Engine, EngineError, Module};
use qosm_model::protocol::Description;
use qosm_open_module::{compiler, module, personal_cache};

use crate::args::{SubjectArgs, ToolchainArgs};

/// A module, and the project that it was built from, if any.
pub(crate) struct Subject {
    /// Where the module comes from.
    pub(crate) place: String,
    pub(crate) wasm: Vec<u8>,
    pub(crate) project: Option<Project>,
}

impl Subject {
    pub(crate) fn open(args: &SubjectArgs) -> anyhow::Result<Self> {
        let folder = Path::new(&args.subject);
        if folder.is_dir() {
            return Self::build(folder, &args.toolchain);
        }
        let (place, wasm, artefact) = module(&args.subject, args.module_dir.as_deref(), &args.registry)?;
        // Whoever has rules wants no module to run that they refuse, be it for a test.
        if let Some(refused) = artefact.and_then(|artefact| artefact.verification.refused) {
            bail!(
                "{place} is not trusted and is not run: {refused}; `qosm policy inspect` shows what is known about it"
            )
        }
        Ok(Self { place, wasm, project: None })
    }

    pub(crate) fn build(folder: &Path, args: &ToolchainArgs) -> anyhow::Result<Self> {
        let project = Project::open(folder)?;
        let built = project.build(args.toolchain)?;
        let place = built.file.strip_prefix(".").unwrap_or(&built.file).display().to_string();
        Ok(Self { place, wasm: built.module, project: Some(project) })
    }

    /// Loads the module, with its description.
    pub(crate) fn load(&self, engine: &Engine) -> anyhow::Result<(Module, Description)> {
        let load = || {
            let module = engine.load(&self.wasm, personal_cache().as_ref(), &compiler())?;
            let description = engine.describe(&module)?;
            anyhow::Ok((module, description))
        };
        load().map_err(|error| {
            let calls = self.refused_calls(&error).into_iter().map(|call| format!("\n  {call}")).collect::<String>();
            error.context(format!("{} cannot be run{calls}", self.place))
        })
    }

    /// Where the source calls built-in functions that no node provides. The engine's error lists only their names.
    pub(crate) fn refused_calls(&self, error: &anyhow::Error) -> Vec<String> {
        let Some(EngineError::Bundle { source: BundleError::Builtins(missing), .. }) = error.downcast_ref() else {
            return Vec::new();
        };
        let names: Vec<_> = missing.iter().map(|one| one.name.as_str()).collect();
        // If OPA cannot tell, only the names are reported.
        self.project.as_ref().and_then(|project| project.calls(&names).ok()).unwrap_or_default()
    }
}
