//! The default modules, built before the benches run.

use std::path::PathBuf;

use anyhow::Context;
use qosm_agent::LoadedPolicy;
use qosm_agent::config::PolicyConfig;
use qosm_agent::load;
use qosm_engine::{Compiler, Engine, ModuleCache};

/// The default modules, by the agent's names.
pub const DEFAULT: [&str; 3] = ["cpu-burst", "memory-locality", "memory-qos"];

/// The folder of the modules: `QOSM_MODULE_DIR`, else `policies/` in cargo's target directory.
///
/// # Errors
///
/// If the folder does not exist; the error says how to build it.
pub fn directory() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os("QOSM_MODULE_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => crate::target_directory()?.join("policies"),
    };
    anyhow::ensure!(
        folder.is_dir(),
        "there are no modules in {}: run `make build` first, or say in QOSM_MODULE_DIR where they are",
        folder.display()
    );
    Ok(folder)
}

/// Loads a default module as the agent does.
///
/// # Errors
///
/// As [`directory`], or the module cannot be read, compiled or described.
pub fn load(
    engine: &Engine,
    name: &str,
    cache: Option<&ModuleCache>,
    compiler: &Compiler,
) -> anyhow::Result<LoadedPolicy> {
    let folder = directory()?;
    load::load(engine, &PolicyConfig::builtin(name), &folder, &mut load::NoArtifacts, cache, compiler)
        .with_context(|| format!("no bench without the module `{name}`"))
}

/// An endless series of other versions of a loaded module. Each differs in a custom section, and so in its digest.
///
/// # Errors
///
/// As [`load()`].
pub fn others<'a>(
    engine: &'a Engine,
    of: &'a LoadedPolicy,
    compiler: &'a Compiler,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<LoadedPolicy>> + 'a> {
    let wasm = std::fs::read(directory()?.join(format!("{}.wasm", of.config.name)))?;
    Ok((0..u8::MAX).map(move |version| {
        // A custom section (0) of three bytes: a name of one byte, preceded by its length, and one byte of content.
        let wasm = [wasm.as_slice(), &[0, 3, 1, b'v', version]].concat();
        let module = engine.load(&wasm, None, compiler)?;
        Ok(LoadedPolicy { module, ..of.clone() })
    }))
}
