//! From an operator's entry to a module that can be run: find the bytes, compile them or take them from the cache, ask the module who
//! it is.

use std::path::{Path, PathBuf};

use qosm_engine::{Compiler, Engine, EngineError, ModuleCache};
use qosm_model::digest::Digest;
use qosm_registry::{Location, Pulled, ReferenceError, RegistryError, Trusted};

use crate::config::PolicyConfig;
use crate::module_reference::ModuleReference;
use crate::policy::LoadedPolicy;

/// A module could not be loaded. The others are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is named in a way that makes no sense.
    #[error("policy `{policy}`: module")]
    Reference {
        /// The policy.
        policy: String,
        /// What is wrong.
        source: ReferenceError,
    },
    /// Signatures are those of artefacts.
    #[error(
        "policy `{policy}`: verification: {reference} is no artefact, and nothing signs it; name one with oci://, or take it away"
    )]
    Verification {
        /// The policy.
        policy: String,
        /// The module.
        reference: String,
    },
    /// There is no such file.
    #[error("policy `{policy}`: cannot read module {}; name an existing component with `module`, or build the default ones with `make build`", path.display())]
    Read {
        /// The policy.
        policy: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It could not be fetched, or is not to be believed.
    #[error("policy `{policy}`: module {location}")]
    Artifact {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
        /// Why.
        source: Box<RegistryError>,
    },
    /// It is on its way.
    #[error("policy `{policy}`: module {location} is being fetched")]
    Pending {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
    },
    /// It was asked for and did not come.
    #[error("policy `{policy}`: module {location}: {error}; tried again in {seconds} s")]
    Fetch {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
        /// What went wrong the last time.
        error: String,
        /// When it is tried again.
        seconds: u64,
    },
    /// Nobody here fetches artefacts.
    #[error(
        "policy `{policy}`: module {location} is in a registry, and nothing is fetched here; name a file or `builtin:NAME`"
    )]
    NoLibrary {
        /// The policy.
        policy: String,
        /// As the entry names it.
        location: String,
    },
    /// It is there, but cannot be run.
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
    /// Whether it is only a matter of time.
    pub fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

/// Where the module that runs came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOrigin {
    /// As the entry names it.
    pub reference: ModuleReference,
    /// For an artefact: the digest of its manifest, and why it is believed.
    pub artifact: Option<(Digest, Trusted)>,
}

impl ModuleOrigin {
    /// What names this very module, as far as anything does: an artefact by its digest.
    pub(crate) fn pinned(&self, config: &PolicyConfig) -> Option<String> {
        match (&self.reference, &self.artifact) {
            (ModuleReference::Artifact(Location::Registry(reference)), Some((digest, _))) => {
                let pinned = Location::Registry(reference.pinned(*digest));
                Some(ModuleReference::Artifact(pinned).to_string())
            }
            _ => config.module.clone(),
        }
    }
}

/// Whoever has artefacts.
pub trait Shelf {
    /// The module of an artefact.
    ///
    /// # Errors
    ///
    /// [`LoadError`].
    fn module(&mut self, entry: &PolicyConfig, location: &Location) -> Result<Pulled, LoadError>;
}

/// Nothing is fetched.
pub struct NoShelf;

impl Shelf for NoShelf {
    fn module(&mut self, entry: &PolicyConfig, location: &Location) -> Result<Pulled, LoadError> {
        Err(LoadError::NoLibrary {
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
    shelf: &mut dyn Shelf,
    cache: Option<&ModuleCache>,
    compiler: &Compiler,
) -> Result<LoadedPolicy, LoadError> {
    let policy = || entry.name.clone();
    let reference = entry.reference().map_err(|source| LoadError::Reference { policy: policy(), source })?;
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| LoadError::Read { policy: policy(), path: path.to_path_buf(), source })
    };
    if entry.verification.is_some() && !matches!(reference, ModuleReference::Artifact(_)) {
        return Err(LoadError::Verification { policy: policy(), reference: reference.to_string() });
    }
    let (wasm, artifact) = match &reference {
        ModuleReference::File(path) => (read(path)?, None),
        ModuleReference::Builtin(name) => (read(&default_modules.join(format!("{name}.wasm")))?, None),
        ModuleReference::Artifact(location) => {
            let Pulled { module, digest, trusted, .. } = shelf.module(entry, location)?;
            (module, Some((digest, trusted)))
        }
    };
    let failed =
        |source| LoadError::Module { policy: policy(), source_name: reference.to_string(), source: Box::new(source) };
    let module = engine.load(&wasm, cache, compiler).map_err(failed)?;
    let description = engine.describe(&module).map_err(failed)?;
    Ok(LoadedPolicy { config: entry.clone(), module, description, origin: ModuleOrigin { reference, artifact } })
}
