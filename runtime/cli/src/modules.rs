//! From flags and files to loaded modules.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::PolicyConfig;
use qosm_engine::{Compiler, ModuleCache};

use crate::args::ModuleArgs;
use crate::print::Usage;

/// The default modules, in the order in which they are listed.
pub(crate) const DEFAULTS: [&str; 3] = ["cpu-burst", "memory-locality", "memory-qos"];

/// Where the default modules are: as said, else beside the binary, else where packages put them.
pub(crate) fn default_dir(said: Option<&Path>) -> PathBuf {
    let beside = || {
        let binary = std::env::current_exe().ok()?;
        let dir = binary.parent()?.parent()?.join("policies");
        dir.is_dir().then_some(dir)
    };
    said.map(Path::to_path_buf).or_else(beside).unwrap_or_else(|| PathBuf::from("/usr/lib/qosm/policies"))
}

/// The policies to run: those of the flags, else those of the file, else the default ones; with what the flags say of each.
pub(crate) fn entries(args: &ModuleArgs, from_file: Vec<PolicyConfig>) -> Result<Vec<PolicyConfig>, Usage> {
    entries_with_shadows(args, &[], from_file, true)
}

/// The same, with what is to be tried out beside them, and with or without default ones.
pub(crate) fn entries_with_shadows(
    args: &ModuleArgs,
    shadows: &[String],
    from_file: Vec<PolicyConfig>,
    with_defaults: bool,
) -> Result<Vec<PolicyConfig>, Usage> {
    let mut entries: Vec<PolicyConfig> = if !args.policies.is_empty() {
        args.policies
            .iter()
            .map(|text| {
                let (name, file) = match text.split_once('=') {
                    Some((name, file)) => (name, Some(file.to_owned())),
                    None => (text.as_str(), None),
                };
                // What the file says of a policy of that name (priority, grants, bounds) stays.
                let known = from_file.iter().find(|entry| entry.name == name).cloned();
                let mut entry = known.unwrap_or_else(|| PolicyConfig::builtin(name));
                if file.is_some() {
                    entry.module = file;
                }
                entry
            })
            .collect()
    } else if from_file.is_empty() && with_defaults {
        DEFAULTS.map(PolicyConfig::builtin).into()
    } else {
        from_file
    };
    for text in shadows {
        let (name, file) = split(text, "--shadow", "NAME=FILE")?;
        entries.push(PolicyConfig::shadow(name, file));
    }
    for text in &args.policy_config {
        let (name, json) = split(text, "--policy-config", "NAME=JSON")?;
        let config = object(json, &format!("--policy-config {name}"))?;
        entry_of(&mut entries, name, "--policy-config")?.config = config;
    }
    for text in &args.grants {
        let (name, grants) = split(text, "--grant", "NAME=INTERFACE,…")?;
        let grants = grants.split(',').map(str::trim).filter(|grant| !grant.is_empty()).map(str::to_owned);
        entry_of(&mut entries, name, "--grant")?.grants.get_or_insert_default().extend(grants);
    }
    Ok(entries)
}

/// A policy-level configuration.
pub(crate) fn object(json: &str, flag: &str) -> Result<serde_json::Map<String, serde_json::Value>, Usage> {
    serde_json::from_str(json).map_err(|error| Usage(format!("{flag}: not a JSON object: {error}")))
}

/// Whether the value of a flag means a module's file rather than a policy's name.
pub(crate) fn is_file(text: &str) -> bool {
    !text.contains('=') && (text.contains('/') || text.ends_with(".wasm") || text.ends_with(".tar.gz"))
}

fn split<'a>(text: &'a str, flag: &str, form: &str) -> Result<(&'a str, &'a str), Usage> {
    text.split_once('=').ok_or_else(|| Usage(format!("{flag} `{text}`: expected {form}")))
}

fn entry_of<'a>(entries: &'a mut [PolicyConfig], name: &str, flag: &str) -> Result<&'a mut PolicyConfig, Usage> {
    let known: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    entries
        .iter_mut()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Usage(format!("{flag} {name}: no policy of that name runs; there are: {}", known.join(", "))))
}

/// Compiles in a short-lived child of this very binary.
pub(crate) fn compiler() -> anyhow::Result<Compiler> {
    let program = std::env::current_exe().context("cannot find the qosm binary itself")?;
    Ok(Compiler::Child { program, args: vec!["compile-module".into()] })
}

/// The cache of compiled modules in a folder, made if it is not there.
pub(crate) fn cache(dir: &Path) -> anyhow::Result<ModuleCache> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let dir =
        Dir::open_ambient_dir(dir, ambient_authority()).with_context(|| format!("cannot open {}", dir.display()))?;
    ModuleCache::open(dir).context("the cache of compiled modules cannot be used")
}

/// A cache for commands that anybody runs: plans and replays. Without a home there is none, and modules are compiled each time.
pub(crate) fn personal_cache() -> Option<ModuleCache> {
    cache(&personal_folder()?.join("modules")).ok()
}

/// Where things of whoever typed the command are kept between commands.
pub(crate) fn personal_folder() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("qosm"))
}
