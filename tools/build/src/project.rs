//! A folder that contains a policy.

use std::path::{Path, PathBuf};

use crate::error::BuildError;
use crate::go::Go;
use crate::opa::Opa;
use crate::rust::Rust;
use crate::toolchain::Way;

/// The source of a policy.
#[derive(Clone, Debug)]
pub struct Project {
    folder: PathBuf,
    language: Language,
}

/// Language of a policy, with what its toolchain says of the project.
#[derive(Clone, Debug)]
pub enum Language {
    /// A crate.
    Rust(Rust),
    /// A Go module.
    Go(Go),
    /// Modules for OPA.
    Rego(Opa),
}

/// Result of a build.
#[derive(Clone, Debug)]
pub struct Built {
    /// Path of the module's file.
    pub file: PathBuf,
    /// Content of the file.
    pub module: Vec<u8>,
    /// Whether the content differs from before the build.
    pub changed: bool,
}

impl Project {
    /// Opens a folder with a Cargo.toml, a go.mod, or .rego files.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says what is missing or wrong.
    pub fn open(folder: &Path) -> Result<Self, BuildError> {
        let unlisted = |source| BuildError::File { path: folder.to_path_buf(), action: "listed", source };
        let (mut is_rust, mut is_go, mut is_rego) = (false, false, false);
        for entry in std::fs::read_dir(folder).map_err(unlisted)? {
            let path = entry.map_err(unlisted)?.path();
            is_rust |= path.ends_with("Cargo.toml");
            is_go |= path.ends_with("go.mod");
            is_rego |= path.extension().is_some_and(|extension| extension == "rego");
        }
        let language = match (is_rust, is_go, is_rego) {
            (true, false, false) => Language::Rust(Rust::open(folder)?),
            (false, true, false) => Language::Go(Go::open(folder)?),
            (false, false, true) => Language::Rego(Opa::open(folder)?),
            (false, false, false) => return Err(BuildError::NoProject { folder: folder.to_path_buf() }),
            _ => return Err(BuildError::TwoLanguages { folder: folder.to_path_buf() }),
        };
        Ok(Self { folder: folder.to_path_buf(), language })
    }

    /// The policy's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The policy's language.
    pub fn language(&self) -> &Language {
        &self.language
    }

    /// The policy's name in its own files.
    pub fn name(&self) -> &str {
        match &self.language {
            Language::Rust(rust) => rust.name(),
            Language::Go(go) => go.name(),
            Language::Rego(opa) => opa.name(),
        }
    }

    /// The policy's version in its own files; `None` if they do not set one.
    pub fn version(&self) -> Option<&str> {
        match &self.language {
            Language::Rust(rust) => Some(rust.version()),
            // Only the module's `describe` knows it.
            Language::Go(_) => None,
            Language::Rego(opa) => opa.version(),
        }
    }

    /// The folder of its cases.
    pub fn cases(&self) -> PathBuf {
        self.folder.join("tests/cases")
    }

    /// Path of the built module: `target/NAME.wasm`, or `target/NAME.tar.gz`.
    pub fn file(&self) -> PathBuf {
        let extension = match self.language {
            Language::Rust(_) | Language::Go(_) => "wasm",
            Language::Rego(_) => "tar.gz",
        };
        self.folder.join("target").join(format!("{}.{extension}", self.name()))
    }

    /// Runs the native tests, with their output on standard error; only those whose name contains `filter`.
    ///
    /// # Errors
    ///
    /// [`BuildError::Failed`] if a test fails.
    pub fn test(&self, filter: Option<&str>) -> Result<(), BuildError> {
        match &self.language {
            Language::Rust(rust) => rust.test(&self.folder, filter),
            Language::Go(go) => go.test(&self.folder, filter),
            Language::Rego(opa) => opa.test(&self.folder, filter),
        }
    }

    /// Where the policy calls these built-in functions of OPA, each as `FILE:LINE calls NAME`. Empty for languages other than Rego.
    ///
    /// # Errors
    ///
    /// If OPA cannot be run or read.
    pub fn calls(&self, names: &[&str]) -> Result<Vec<String>, BuildError> {
        match &self.language {
            Language::Rego(opa) => opa.calls(&self.folder, names),
            Language::Rust(_) | Language::Go(_) => Ok(Vec::new()),
        }
    }

    /// Errors of OPA's strict checker and its type checker, each as `FILE:LINE: MESSAGE`; the project has to be built. Empty for
    /// languages other than Rego, whose compilers check types.
    ///
    /// # Errors
    ///
    /// If OPA cannot be run or read.
    pub fn check(&self) -> Result<Vec<String>, BuildError> {
        match &self.language {
            Language::Rego(opa) => opa.check(&self.folder),
            Language::Rust(_) | Language::Go(_) => Ok(Vec::new()),
        }
    }

    /// Builds the module. Compilers report file and line, on standard error or in the error.
    ///
    /// # Errors
    ///
    /// [`BuildError`]; the module's file is then unchanged.
    pub fn build(&self, way: Option<Way>) -> Result<Built, BuildError> {
        let file = self.file();
        let target = self.folder.join("target");
        let failed = |path: &Path, action| {
            let path = path.to_path_buf();
            move |source| BuildError::File { path, action, source }
        };
        let fresh = file.with_extension("new");
        let module = match &self.language {
            Language::Rust(rust) => {
                let module = rust.build(&self.folder, way)?;
                std::fs::create_dir_all(&target).map_err(failed(&target, "made"))?;
                module
            }
            Language::Go(go) => {
                std::fs::create_dir_all(&target).map_err(failed(&target, "made"))?;
                // Go runs in the project's folder.
                let absolute = std::path::absolute(&fresh).map_err(failed(&fresh, "written"))?;
                go.build(&self.folder, &absolute)?
            }
            Language::Rego(opa) => {
                std::fs::create_dir_all(&target).map_err(failed(&target, "made"))?;
                // OPA runs in the project's folder.
                let absolute = std::path::absolute(&fresh).map_err(failed(&fresh, "written"))?;
                let built = opa.build(&self.folder, &absolute);
                let module = built.and_then(|()| std::fs::read(&fresh).map_err(failed(&fresh, "read")));
                // The file does not exist if OPA failed.
                let _ = std::fs::remove_file(&fresh);
                module?
            }
        };
        let changed = std::fs::read(&file).ok().as_deref() != Some(module.as_slice());
        if changed {
            std::fs::write(&fresh, &module).map_err(failed(&fresh, "written"))?;
            std::fs::rename(&fresh, &file).map_err(failed(&file, "written"))?;
        } else {
            // Output of Go or OPA; a build in Rust leaves none.
            let _ = std::fs::remove_file(&fresh);
        }
        Ok(Built { file, module, changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_policy_is_told_apart_from_one_with_two() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(Project::open(folder.path()), Err(BuildError::NoProject { .. })));
        std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        for other in ["policy.rego", "go.mod"] {
            std::fs::write(folder.path().join(other), "").unwrap();
            assert!(matches!(Project::open(folder.path()), Err(BuildError::TwoLanguages { .. })), "{other}");
            std::fs::remove_file(folder.path().join(other)).unwrap();
        }
        let error = Project::open(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(error.ends_with("nowhere cannot be listed"), "{error}");
    }

    #[test]
    fn a_workspace_is_no_policy_and_a_crate_without_a_cdylib_neither() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, "[workspace]\nmembers = []\n").unwrap();
        assert!(matches!(Project::open(folder.path()), Err(BuildError::Workspace { .. })));
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        std::fs::write(&manifest, "[package]\nname = \"plain\"\n\n[workspace]\n").unwrap();
        assert!(matches!(Project::open(folder.path()), Err(BuildError::NoPolicy { .. })));
        std::fs::write(&manifest, "[package]\nname = \"plain\"\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[workspace]\n")
            .unwrap();
        let project = Project::open(folder.path()).unwrap();
        assert_eq!((project.name(), project.version()), ("plain", Some("0.0.0")));
        assert_eq!(project.file(), folder.path().join("target/plain.wasm"));
    }
}
