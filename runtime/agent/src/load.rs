//! From an operator's entry to a module that can be run: find the file, compile it or take it from the cache, ask it who it is.

use std::path::{Path, PathBuf};

use qosm_engine::{Compiler, Engine, EngineError, ModuleCache};

use crate::config::PolicyConfig;
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

/// Where the module of an entry is: the path that it names, or `<name>.wasm` among the default modules (of a
/// shadow, the name of the policy that it is compared with).
pub fn module_path(entry: &PolicyConfig, default_modules: &Path) -> PathBuf {
    match &entry.module {
        Some(path) => PathBuf::from(path),
        None => default_modules.join(format!("{}.wasm", entry.default_module())),
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
    let path = module_path(entry, default_modules);
    let policy = || entry.name.clone();
    let wasm =
        std::fs::read(&path).map_err(|source| LoadError::Read { policy: policy(), path: path.clone(), source })?;
    let failed = |source| LoadError::Module { policy: policy(), path: path.clone(), source: Box::new(source) };
    let module = engine.load(&wasm, cache, compiler).map_err(failed)?;
    let description = engine.describe(&module).map_err(failed)?;
    Ok(LoadedPolicy { config: entry.clone(), module, description })
}
