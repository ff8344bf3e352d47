//! From an operator's entry to a module that can be run: find the file, compile it or take it from the cache, ask it who it is.

use std::path::{Path, PathBuf};

use qosm_engine::{Compiler, Engine, EngineError, ModuleCache};

use crate::config::PolicyConfig;
use crate::module_reference::ModuleReference;
use crate::policy::LoadedPolicy;

/// A module could not be loaded. The others are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
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
    /// It is in a registry.
    #[error(
        "policy `{policy}`: module {reference}: modules are not pulled from registries yet; name one with `builtin:` or `file://`"
    )]
    Registry {
        /// The policy.
        policy: String,
        /// As the entry names it.
        reference: ModuleReference,
    },
    /// It is there, but cannot be run.
    #[error("policy `{policy}`: module {}", path.display())]
    Module {
        /// The policy.
        policy: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<EngineError>,
    },
}

/// Where the module of an entry is: the file that it names, or `<name>.wasm` among the default modules.
///
/// # Errors
///
/// [`LoadError::Registry`].
pub fn module_path(entry: &PolicyConfig, default_modules: &Path) -> Result<PathBuf, LoadError> {
    match entry.reference() {
        ModuleReference::File(path) => Ok(path),
        ModuleReference::Builtin(name) => Ok(default_modules.join(format!("{name}.wasm"))),
        reference @ ModuleReference::Oci(_) => Err(LoadError::Registry { policy: entry.name.clone(), reference }),
    }
}

/// Loads the module of one entry.
///
/// # Errors
///
/// [`LoadError`] names the policy and the file.
pub fn load(
    engine: &Engine,
    entry: &PolicyConfig,
    default_modules: &Path,
    cache: Option<&ModuleCache>,
    compiler: &Compiler,
) -> Result<LoadedPolicy, LoadError> {
    let path = module_path(entry, default_modules)?;
    let policy = || entry.name.clone();
    let wasm =
        std::fs::read(&path).map_err(|source| LoadError::Read { policy: policy(), path: path.clone(), source })?;
    let failed = |source| LoadError::Module { policy: policy(), path: path.clone(), source: Box::new(source) };
    let module = engine.load(&wasm, cache, compiler).map_err(failed)?;
    let description = engine.describe(&module).map_err(failed)?;
    Ok(LoadedPolicy { config: entry.clone(), module, description })
}
