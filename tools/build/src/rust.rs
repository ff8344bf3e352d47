//! Policies in Rust: one crate, compiled and converted to a component.

use std::path::{Path, PathBuf};

use crate::cargo::{self, Cargo, Metadata, Package};
use crate::component::component;
use crate::error::BuildError;
use crate::toolchain::{Job, Toolchain, Way};

/// Settings of the profile `wasm`, for a workspace that does not define it. They are those of the default modules.
const PROFILE: [&str; 6] = [
    "profile.wasm.inherits=\"release\"",
    "profile.wasm.opt-level=3",
    "profile.wasm.lto=true",
    "profile.wasm.codegen-units=1",
    "profile.wasm.panic=\"abort\"",
    "profile.wasm.strip=true",
];

/// The oldest Rust for a crate without `rust-version`: that of the SDK.
const OLDEST: &str = "1.88";

/// A policy's crate.
#[derive(Clone, Debug)]
pub struct Rust {
    cargo: Cargo,
    package: Package,
    library: String,
    workspace: PathBuf,
    target: PathBuf,
}

impl Rust {
    pub(crate) fn open(folder: &Path) -> Result<Self, BuildError> {
        let cargo = Cargo::here();
        let Metadata { packages, workspace_root, target_directory } = cargo.metadata(folder)?;
        let manifest = folder.join("Cargo.toml");
        // cargo resolves symbolic links in the paths that it prints.
        let own = std::fs::canonicalize(&manifest).unwrap_or_else(|_| manifest.clone());
        let of_folder = packages.into_iter().find(|package| {
            package.manifest_path == own || std::fs::canonicalize(&package.manifest_path).is_ok_and(|path| path == own)
        });
        let package = of_folder.ok_or_else(|| BuildError::Workspace { manifest: manifest.clone() })?;
        let library = package.cdylib().ok_or(BuildError::NoPolicy { manifest })?.name.clone();
        Ok(Self { cargo, package, library, workspace: workspace_root, target: target_directory })
    }

    /// The package's name.
    pub fn name(&self) -> &str {
        &self.package.name
    }

    /// The package's version.
    pub fn version(&self) -> &str {
        &self.package.version
    }

    /// Runs `cargo test` in the policy's folder, with its output on standard error; only tests whose name contains `filter`.
    ///
    /// # Errors
    ///
    /// [`BuildError::Failed`] if a test fails or does not compile.
    pub fn test(&self, folder: &Path, filter: Option<&str>) -> Result<(), BuildError> {
        let mut cargo = self.cargo.command(folder);
        cargo.args(["test", "--quiet"]).args(filter);
        cargo::run(&mut cargo)
    }

    /// Compiles the crate. The compiler's output goes to standard error.
    pub(crate) fn build(&self, folder: &Path, way: Option<Way>) -> Result<Vec<u8>, BuildError> {
        let oldest = self.package.rust_version.as_deref().unwrap_or(OLDEST);
        let toolchain = Toolchain::find(&self.cargo, folder, oldest, way).ok_or(BuildError::NoTarget)?;
        // Remapping the folder would add a compiler flag that differs for each policy, and all crates would be recompiled.
        let job = Job { cargo: &self.cargo, folder: &self.workspace, shown_as: None, target: &self.target };
        let mut cargo = toolchain.cargo_build(&job)?;
        cargo.args(["--package", self.name()]);
        let manifest = self.workspace.join("Cargo.toml");
        let has_profile = std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("[profile.wasm]"));
        if !has_profile {
            cargo.args(PROFILE.iter().flat_map(|setting| ["--config", setting]));
        }
        cargo::run(&mut cargo)?;
        let core = toolchain.core_module(&job, &self.library);
        let bytes = std::fs::read(&core).map_err(|source| BuildError::File { path: core, action: "read", source })?;
        component(self.name(), &bytes)
    }
}
