//! Modules: compiles each policy in `policies/` (the default ones), `examples/` and `sdk/templates/` to Wasm, and converts it to a
//! component.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use qosm_build::{BuildError, Cargo, Job, Package, Toolchain, Way, component};

use crate::command;
use crate::workspace::Workspace;

/// How to build the modules.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Compiler for Wasm. Default: the first one that is installed.
    #[arg(long, value_parser = PossibleValuesParser::new(Way::WORDS).try_map(|word| word.parse::<Way>()))]
    pub(crate) toolchain: Option<Way>,
    /// Folder to write to. Default: `policies` in the target directory, where an agent that runs from there finds its modules.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

/// The workspace's crates.
///
/// # Errors
///
/// If cargo fails, or its output has an unknown format.
pub(crate) fn packages(workspace: &Workspace) -> Result<Vec<Package>> {
    Ok(Cargo::here().packages(workspace.root())?)
}

/// A Rust that compiles to Wasm, if this machine has one.
pub(crate) fn toolchain(workspace: &Workspace, way: Option<Way>) -> Option<Toolchain> {
    Toolchain::find(&Cargo::here(), workspace.root(), env!("CARGO_PKG_RUST_VERSION"), way)
}

/// Builds all modules; a file with unchanged content is not touched. Modules of examples are for tests and not shipped, so they have a
/// separate folder, and are left out if `args` names a folder.
///
/// # Errors
///
/// If there is no compiler, a policy does not compile, or its exports do not match its WIT world.
pub(crate) fn build(workspace: &Workspace, args: &Args) -> Result<()> {
    build_those(workspace, args, |_| true)
}

/// Builds some of the default modules; the others stay as they are.
///
/// # Errors
///
/// As [`build`].
pub(crate) fn build_some(workspace: &Workspace, names: &[&str]) -> Result<()> {
    build_those(workspace, &Args::default(), |name| names.contains(&name))
}

fn build_those(workspace: &Workspace, args: &Args, is_wanted: impl Fn(&str) -> bool) -> Result<()> {
    command::heading("modules");
    let toolchain = toolchain(workspace, args.toolchain).ok_or(BuildError::NoTarget)?;
    let folder = args.to.clone().unwrap_or_else(|| workspace.modules());
    let mut folders = vec![(folder, policies(workspace)?)];
    if args.to.is_none() {
        folders.push((workspace.example_modules(), examples(workspace)?));
    }
    let cargo = Cargo::here();
    let job = Job { cargo: &cargo, folder: workspace.root(), shown_as: Some("/qosm"), target: workspace.target() };
    let mut cargo = toolchain.cargo_build(&job)?;
    let wanted = |policy: &&Package| is_wanted(&policy.name);
    for policy in folders.iter().flat_map(|(_, policies)| policies).filter(wanted) {
        cargo.args(["--package", &policy.name]);
    }
    command::run(&mut cargo)?;

    for (folder, policies) in &folders {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        if args.to.is_none() {
            remove_strangers(folder, policies)?;
        }
        for policy in policies.iter().filter(wanted) {
            let core = toolchain.core_module(&job, &policy.name);
            let bytes = std::fs::read(&core).with_context(|| format!("{} cannot be read", core.display()))?;
            let component = component(&policy.name, &bytes)?;
            let file = folder.join(format!("{}.wasm", policy.name));
            let word = if write_if_changed(&file, &component)? { "written" } else { "unchanged" };
            println!("    {} ({} bytes, {word})", file.display(), component.len());
        }
    }
    Ok(())
}

/// The names of the default modules. Without configuration an agent runs some of them; the others have to be configured.
///
/// # Errors
///
/// If cargo fails.
pub(crate) fn names(workspace: &Workspace) -> Result<Vec<String>> {
    Ok(policies(workspace)?.into_iter().map(|policy| policy.name).collect())
}

/// The default policies.
fn policies(workspace: &Workspace) -> Result<Vec<Package>> {
    let policies = policies_in(workspace, &["policies"])?;
    if policies.is_empty() {
        bail!("policies/ holds no policy: no crate there has crate-type `cdylib`");
    }
    Ok(policies)
}

/// The policies of examples and templates.
fn examples(workspace: &Workspace) -> Result<Vec<Package>> {
    policies_in(workspace, &["examples", "sdk/templates"])
}

/// Every crate of the workspace in these folders with a `cdylib` target.
fn policies_in(workspace: &Workspace, folders: &[&str]) -> Result<Vec<Package>> {
    let folders: Vec<_> = folders.iter().map(|folder| workspace.root().join(folder)).collect();
    let is_policy = |package: &Package| {
        folders.iter().any(|folder| package.manifest_path.starts_with(folder)) && package.cdylib().is_some()
    };
    Ok(packages(workspace)?.into_iter().filter(is_policy).collect())
}

/// Removes modules of policies that no longer exist; an agent with this folder would still load them.
fn remove_strangers(folder: &Path, policies: &[Package]) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be listed", folder.display()))? {
        let path = entry.with_context(|| format!("{} cannot be listed", folder.display()))?.path();
        let is_module = path.extension().is_some_and(|extension| extension == "wasm");
        let is_known = policies.iter().any(|policy| path.file_stem().is_some_and(|stem| stem == policy.name.as_str()));
        if is_module && !is_known {
            std::fs::remove_file(&path).with_context(|| format!("{} cannot be removed", path.display()))?;
        }
    }
    Ok(())
}

/// Replaces a file in one step, unless it has this content already. Returns whether it did.
fn write_if_changed(file: &Path, content: &[u8]) -> Result<bool> {
    if std::fs::read(file).is_ok_and(|old| old == content) {
        return Ok(false);
    }
    let fresh = file.with_extension("wasm.new");
    std::fs::write(&fresh, content).with_context(|| format!("{} cannot be written", fresh.display()))?;
    std::fs::rename(&fresh, file).with_context(|| format!("{} cannot be replaced", file.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_module_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.wasm");
        assert!(write_if_changed(&file, b"one").unwrap());
        assert!(!write_if_changed(&file, b"one").unwrap());
        assert!(write_if_changed(&file, b"two").unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
