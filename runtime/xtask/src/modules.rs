//! Modules: each policy in `policies/` (the default ones), `examples/` and `sdk/templates/`, compiled to Wasm and made a component.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use wit_component::{ComponentEncoder, DecodedWasm};

use crate::command;
use crate::wasm::{self, Toolchain, Way};
use crate::workspace::Workspace;

/// How to build the modules.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Which compiler to take; the first that is there, if not said.
    #[arg(long)]
    pub(crate) toolchain: Option<Way>,
    /// The folder to write to; `policies` in the target directory, from which an agent that is run there takes its own, if not said.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
}

/// A crate as `cargo metadata` tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its Cargo.toml.
    pub(crate) manifest_path: PathBuf,
    /// What it builds.
    pub(crate) targets: Vec<Target>,
}

/// Something that a crate builds.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: String,
    /// `lib`, `bin`, `test`, …
    pub(crate) kind: Vec<String>,
    /// `cdylib`, `rlib`, …
    pub(crate) crate_types: Vec<String>,
    /// Whether `cargo test` runs it unasked.
    pub(crate) test: bool,
}

/// The workspace's crates.
///
/// # Errors
///
/// When cargo fails or prints something else than documented.
pub(crate) fn packages(workspace: &Workspace) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let printed = command::output(workspace.cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&printed).context("`cargo metadata` printed no JSON that is known")?;
    Ok(metadata.packages)
}

/// Builds all modules; a file whose content is the same is not touched. Those of examples are tested and not shipped, so they have a
/// folder of their own, and are left out where a folder is asked for.
///
/// # Errors
///
/// When no compiler is there, a policy does not compile, or what it exports is not what its WIT world says.
pub(crate) fn build(workspace: &Workspace, args: &Args) -> Result<()> {
    command::heading("modules");
    let Some(toolchain) = Toolchain::find(workspace, args.toolchain) else { return wasm::missing() };
    let folder = args.to.clone().unwrap_or_else(|| workspace.modules());
    let mut folders = vec![(folder, policies(workspace)?)];
    if args.to.is_none() {
        folders.push((workspace.example_modules(), examples(workspace)?));
    }
    let target = workspace.target().join(match toolchain {
        Toolchain::Installed => "wasm",
        Toolchain::FromSource { .. } => "wasm-from-source",
    });
    let mut cargo = toolchain.cargo_build(workspace, &target)?;
    for policy in folders.iter().flat_map(|(_, policies)| policies) {
        cargo.args(["--package", &policy.name]);
    }
    command::run(&mut cargo)?;

    for (folder, policies) in &folders {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        if args.to.is_none() {
            remove_strangers(folder, policies)?;
        }
        for policy in policies {
            let core = target.join(wasm::TARGET).join("wasm").join(format!("{}.wasm", policy.name.replace('-', "_")));
            let bytes = std::fs::read(&core).with_context(|| format!("{} cannot be read", core.display()))?;
            let component =
                component(&bytes).with_context(|| format!("policy `{}` makes no component", policy.name))?;
            let file = folder.join(format!("{}.wasm", policy.name));
            let word = if write_if_changed(&file, &component)? { "written" } else { "unchanged" };
            println!("    {} ({} bytes, {word})", file.display(), component.len());
        }
    }
    Ok(())
}

/// The names of the default modules.
///
/// # Errors
///
/// When cargo does not tell.
pub(crate) fn names(workspace: &Workspace) -> Result<Vec<String>> {
    Ok(policies(workspace)?.into_iter().map(|policy| policy.name).collect())
}

/// The default ones.
fn policies(workspace: &Workspace) -> Result<Vec<Package>> {
    let policies = policies_in(workspace, &["policies"])?;
    if policies.is_empty() {
        bail!("policies/ holds no policy: no crate there has crate-type `cdylib`");
    }
    Ok(policies)
}

/// Those that are there to be read.
fn examples(workspace: &Workspace) -> Result<Vec<Package>> {
    policies_in(workspace, &["examples", "sdk/templates"])
}

/// Every crate of the workspace in these folders that is a C-style library.
fn policies_in(workspace: &Workspace, folders: &[&str]) -> Result<Vec<Package>> {
    let folders: Vec<_> = folders.iter().map(|folder| workspace.root().join(folder)).collect();
    let is_policy = |package: &Package| {
        folders.iter().any(|folder| package.manifest_path.starts_with(folder))
            && package.targets.iter().any(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    };
    Ok(packages(workspace)?.into_iter().filter(is_policy).collect())
}

/// A core module with the WIT that wit-bindgen left in it, as a validated component.
fn component(core: &[u8]) -> Result<Vec<u8>> {
    let component = ComponentEncoder::default().validate(true).module(core)?.encode()?;
    let DecodedWasm::Component(resolve, world) = wit_component::decode(&component)? else {
        bail!("it is a WIT package, no component");
    };
    if resolve.worlds[world].exports.is_empty() {
        bail!("it exports nothing: does the crate call the SDK's export macro under `cfg(target_arch = \"wasm32\")`?");
    }
    Ok(component)
}

/// Modules of policies that are no more: an agent given this folder would still load them.
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

/// Replaces a file in one step, unless it already holds just that. Says whether it did.
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
    fn a_module_without_exports_is_refused() {
        let error = component(b"\0asm\x01\0\0\0").unwrap_err();
        assert!(error.to_string().contains("exports nothing"), "{error:#}");
    }

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
