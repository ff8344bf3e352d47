//! Calls cargo and reads its metadata.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::BuildError;

/// A cargo executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cargo {
    program: PathBuf,
}

/// A crate in the output of `cargo metadata`.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Name of the crate.
    pub name: String,
    /// Version of the crate.
    pub version: String,
    /// Path of its Cargo.toml.
    pub manifest_path: PathBuf,
    /// `rust-version`; `None` if the crate sets none.
    pub rust_version: Option<String>,
    /// The targets that the crate builds.
    pub targets: Vec<Target>,
}

/// A build target of a crate.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Name of the target.
    pub name: String,
    /// `lib`, `bin`, `test`, …
    pub kind: Vec<String>,
    /// `cdylib`, `rlib`, …
    pub crate_types: Vec<String>,
    /// Whether `cargo test` runs it by default.
    pub test: bool,
}

impl Package {
    /// The target of type `cdylib`, from which a module is built.
    pub fn cdylib(&self) -> Option<&Target> {
        self.targets.iter().find(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }
}

/// Output of `cargo metadata` for a workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

impl Cargo {
    /// The cargo that runs this program (`CARGO`), else the one on the `PATH`.
    pub fn here() -> Self {
        Self { program: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into() }
    }

    /// A cargo command that runs in `folder`.
    pub fn command(&self, folder: &Path) -> Command {
        let mut cargo = Command::new(&self.program);
        cargo.current_dir(folder).stdin(Stdio::null());
        // Compilers do not need the date of published artefacts, and several build scripts rerun when it changes.
        cargo.env_remove("SOURCE_DATE_EPOCH");
        // `cargo run` sets these variables about this program. Build scripts that read them (ring's does) would rerun whenever this program
        // and a user's own cargo take turns, and all crates that depend on them would be recompiled.
        for (name, _) in std::env::vars_os() {
            let is_about_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            if name.to_str().is_some_and(is_about_us) {
                cargo.env_remove(name);
            }
        }
        cargo
    }

    /// The crates of the workspace in a folder.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoCargo`], or cargo's message about an invalid Cargo.toml.
    pub fn packages(&self, folder: &Path) -> Result<Vec<Package>, BuildError> {
        Ok(self.metadata(folder)?.packages)
    }

    pub(crate) fn metadata(&self, folder: &Path) -> Result<Metadata, BuildError> {
        let mut cargo = self.command(folder);
        let printed = output(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
        serde_json::from_str(&printed).map_err(|source| BuildError::Answer { line: line(&cargo), source })
    }

    /// The rustc next to this cargo, else the one on the `PATH`.
    pub(crate) fn rustc(&self) -> PathBuf {
        let beside = self.program.with_file_name("rustc");
        if beside.is_file() { beside } else { PathBuf::from("rustc") }
    }
}

/// Runs a command that prints for people only: its standard output goes to standard error.
pub(crate) fn run(command: &mut Command) -> Result<(), BuildError> {
    let status = command
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .map_err(|source| not_started(command, source))?;
    if status.success() { Ok(()) } else { Err(BuildError::Failed { line: line(command), status }) }
}

/// Runs a command and returns what it printed to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, BuildError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| not_started(command, source))?;
    if !output.status.success() {
        // opa prints its errors to standard output.
        let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        let said = said.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        return Err(BuildError::Refused { line: line(command), status: output.status, said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn not_started(command: &Command, source: std::io::Error) -> BuildError {
    let program = Path::new(command.get_program());
    let is_missing = source.kind() == std::io::ErrorKind::NotFound;
    match program.file_name().and_then(|name| name.to_str()) {
        Some("cargo") if is_missing => BuildError::NoCargo { program: program.to_path_buf() },
        Some("go") if is_missing => BuildError::NoGo,
        Some("opa") if is_missing => BuildError::NoOpa,
        _ => BuildError::Start { line: line(command), source },
    }
}

/// The command as a user types it: the program by its name, without the path.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = program.file_name().into_iter().chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_told_with_what_to_install() {
        let gone = |name: &str| run(&mut Command::new(Path::new("/nowhere").join(name))).unwrap_err().to_string();
        assert!(gone("cargo").contains("https://rustup.rs"), "{}", gone("cargo"));
        assert!(gone("go").contains("https://go.dev/dl"), "{}", gone("go"));
        assert!(gone("opa").contains("go install"), "{}", gone("opa"));
        assert_eq!(gone("ld"), "`ld` cannot be started");
    }

    #[test]
    fn a_tool_that_fails_is_named_with_its_words() {
        let error = output(Command::new("sh").args(["-c", "echo no such luck >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("(exit status: 3): no such luck"), "{error}");
    }
}
