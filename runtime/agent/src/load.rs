//! Loads the module of an operator's entry: finds the bytes, compiles them or takes them from the cache, and reads the
//! description.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qosm_engine::{Compiler, Engine, EngineError, Module, ModuleCache};
use qosm_model::protocol::Description;
use qosm_registry::{Location, Pulled, ReferenceError, RegistryError};

use crate::config::PolicyConfig;
use crate::loaded::{Checked, LoadedPolicy};
use crate::module_reference::ModuleReference;

pub use crate::loaded::ModuleOrigin;

/// Why a module could not be loaded. Other modules are loaded all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The reference to the module is invalid.
    #[error("policy `{policy}`: module")]
    Reference {
        /// The policy.
        policy: String,
        /// What is wrong.
        source: ReferenceError,
    },
    /// `verification` is set for a module that is no artefact, and has no signatures.
    #[error(
        "policy `{policy}`: verification: {reference} is no artefact, and nothing signs it; name one with oci://, or take it away"
    )]
    Verification {
        /// The policy.
        policy: String,
        /// The module.
        reference: String,
    },
    /// The file cannot be read.
    #[error("policy `{policy}`: cannot read module {}; name an existing component with `module`, or build the default ones with `make build`", path.display())]
    Read {
        /// The policy.
        policy: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The confined agent may not read the file.
    #[error("policy `{policy}`: cannot read module {}; the agent is confined and may not read it: add its folder to `confinement.readPaths` of the agent's file, and start the agent anew", path.display())]
    OutOfReach {
        /// The policy.
        policy: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The artefact cannot be used, or is not trusted.
    #[error("policy `{policy}`: module {location}")]
    Artifact {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
        /// Why.
        source: Box<RegistryError>,
    },
    /// The artefact is being fetched.
    #[error("policy `{policy}`: module {location} is being fetched")]
    Pending {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
    },
    /// The last fetch of the artefact failed.
    #[error("policy `{policy}`: module {location}: {error}; tried again in {seconds} s")]
    Fetch {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
        /// What went wrong the last time.
        error: String,
        /// Seconds until it is tried again.
        seconds: u64,
    },
    /// The module is in a registry, and this command fetches nothing.
    #[error(
        "policy `{policy}`: module {location} is in a registry, and nothing is fetched here; name a file or `builtin:NAME`"
    )]
    NotFetched {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
    },
    /// The module is being compiled.
    #[error("policy `{policy}`: module {source_name} is being compiled")]
    Compiling {
        /// The policy.
        policy: String,
        /// The file or artefact.
        source_name: String,
    },
    /// The module cannot be run.
    #[error("policy `{policy}`: module {source_name}")]
    Module {
        /// The policy.
        policy: String,
        /// The file or artefact.
        source_name: String,
        /// Why.
        source: Box<EngineError>,
    },
}

impl LoadError {
    /// Whether the module is still being fetched or compiled.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. } | Self::Compiling { .. })
    }
}

/// A source of artefacts.
pub trait ArtifactSource {
    /// The module of an artefact.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    fn module(&mut self, entry: &PolicyConfig, location: &Location) -> Result<Pulled, LoadError>;
}

/// A source without artefacts, for commands that fetch nothing.
pub struct NoArtifacts;

impl ArtifactSource for NoArtifacts {
    fn module(&mut self, entry: &PolicyConfig, location: &Location) -> Result<Pulled, LoadError> {
        Err(LoadError::NotFetched {
            policy: entry.name.clone(),
            location: ModuleReference::Artifact(location.clone()).to_string(),
        })
    }
}

/// Loads the module of one entry: the file that it names, `<name>.wasm` among the default modules, or an artefact.
///
/// # Errors
///
/// [`LoadError`] names the policy and the file or artefact.
pub fn load(
    engine: &Engine,
    entry: &PolicyConfig,
    default_modules: &Path,
    artifacts: &mut dyn ArtifactSource,
    cache: Option<&ModuleCache>,
    compiler: &Compiler,
) -> Result<LoadedPolicy, LoadError> {
    load_by(entry, default_modules, artifacts, &mut |wasm| {
        let module = engine.load(wasm, cache, compiler)?;
        let description = engine.describe(&module)?;
        Ok(Some((module, description)))
    })
}

/// Compiles a module and reads its description; `None` = the module is still being compiled.
pub(crate) type Make<'m> = dyn FnMut(&[u8]) -> Result<Option<(Module, Description)>, EngineError> + 'm;

/// Like [`load`], with `make` in place of the engine.
#[expect(clippy::disallowed_methods, reason = "modules are files that the operator names by path")]
pub(crate) fn load_by(
    entry: &PolicyConfig,
    default_modules: &Path,
    artifacts: &mut dyn ArtifactSource,
    make: &mut Make<'_>,
) -> Result<LoadedPolicy, LoadError> {
    let policy = || entry.name.clone();
    let reference = entry.reference().map_err(|source| LoadError::Reference { policy: policy(), source })?;
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| {
            let (policy, path) = (policy(), path.to_path_buf());
            // Under Landlock every path out of reach fails like this.
            if source.kind() == std::io::ErrorKind::PermissionDenied && qosm_confinement::bounds_paths() {
                LoadError::OutOfReach { policy, path, source }
            } else {
                LoadError::Read { policy, path, source }
            }
        })
    };
    if entry.verification.is_some() && !matches!(reference, ModuleReference::Artifact(_)) {
        return Err(LoadError::Verification { policy: policy(), reference: reference.to_string() });
    }
    let (wasm, artifact) = match &reference {
        ModuleReference::File(path) => (read(path)?, None),
        ModuleReference::Builtin(name) => (read(&default_modules.join(format!("{name}.wasm")))?, None),
        ModuleReference::Artifact(location) => {
            let Pulled { module, digest, trusted, .. } = artifacts.module(entry, location)?;
            (module, Some((digest, trusted)))
        }
    };
    let failed =
        |source| LoadError::Module { policy: policy(), source_name: reference.to_string(), source: Box::new(source) };
    let Some((module, description)) = make(&wasm).map_err(failed)? else {
        return Err(LoadError::Compiling { policy: policy(), source_name: reference.to_string() });
    };
    let checked = Arc::new(Checked::of(entry, &description));
    let origin = ModuleOrigin { reference, artifact };
    Ok(LoadedPolicy { config: entry.clone(), module, description, origin, checked })
}
