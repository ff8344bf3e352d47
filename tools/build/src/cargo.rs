//! Cargo: how it is called, and what it says of packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::BuildError;

/// The cargo in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cargo {
    program: PathBuf,
}

/// A crate as `cargo metadata` tells it.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its Cargo.toml.
    pub manifest_path: PathBuf,
    /// The oldest Rust that compiles it, if it says so.
    pub rust_version: Option<String>,
    /// What it builds.
    pub targets: Vec<Target>,
}

/// Something that a crate builds.
#[derive(Clone, Debug, Deserialize)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// `lib`, `bin`, `test`, …
    pub kind: Vec<String>,
    /// `cdylib`, `rlib`, …
    pub crate_types: Vec<String>,
    /// Whether `cargo test` runs it unasked.
    pub test: bool,
}

impl Package {
    /// Its C-style library: what a module is made of.
    pub fn cdylib(&self) -> Option<&Target> {
        self.targets.iter().find(|target| target.crate_types.iter().any(|kind| kind == "cdylib"))
    }
}

/// What `cargo metadata` says of a workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
    pub(crate) target_directory: PathBuf,
}

impl Cargo {
    /// The one that runs this program (`CARGO`), else the one on the path.
    pub fn here() -> Self {
        Self { program: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()).into() }
    }

    /// A cargo command in a folder.
    pub fn command(&self, folder: &Path) -> Command {
        let mut cargo = Command::new(&self.program);
        cargo.current_dir(folder).stdin(Stdio::null());
        // The date of what is published concerns no compiler, and several build scripts would run again for it.
        cargo.env_remove("SOURCE_DATE_EPOCH");
        // What `cargo run` says of this program is nothing to the one that it runs: build scripts that ask for it (ring's does) would run
        // again at each change between here and a person's own cargo, and all that stands on them would be compiled anew.
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
    /// [`BuildError::NoCargo`], and what cargo says is wrong with a Cargo.toml.
    pub fn packages(&self, folder: &Path) -> Result<Vec<Package>, BuildError> {
        Ok(self.metadata(folder)?.packages)
    }

    pub(crate) fn metadata(&self, folder: &Path) -> Result<Metadata, BuildError> {
        let mut cargo = self.command(folder);
        let printed = output(cargo.args(["metadata", "--no-deps", "--format-version", "1"]))?;
        serde_json::from_str(&printed).map_err(|source| BuildError::Answer { line: line(&cargo), source })
    }

    /// The compiler beside it.
    pub(crate) fn rustc(&self) -> PathBuf {
        let beside = self.program.with_file_name("rustc");
        if beside.is_file() { beside } else { PathBuf::from("rustc") }
    }
}

/// Runs a command whose words, all of them, are for people: they go to standard error.
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
        // opa says to standard output what is wrong.
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

/// The command as a person would type it: programs by their names, since the path to cargo says nothing.
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
