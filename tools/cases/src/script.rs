//! The case files of a folder.

use std::path::{Path, PathBuf};

use qosm_sdk::testing::{Case, CaseError, Driver, is_case_file, run_case};

/// A case file, with its content or the error of reading it.
#[derive(Clone, Debug)]
pub struct Script {
    /// Path of the file.
    pub path: PathBuf,
    /// The case in it.
    pub case: Result<Case, CaseError>,
}

impl Script {
    /// The file's name without `.yaml` or `.yml`.
    pub fn name(&self) -> String {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Plays the case.
    ///
    /// # Errors
    ///
    /// The first difference from the expectations, or why the file is no case.
    pub fn play(&self, driver: &mut impl Driver) -> Result<(), CaseError> {
        run_case(self.case.as_ref().map_err(Clone::clone)?, driver)
    }
}

/// The cases of a folder: every `*.yaml` and `*.yml`, in the order of their names; empty if there are none.
///
/// # Errors
///
/// If the folder cannot be listed.
pub fn scripts(folder: &Path) -> std::io::Result<Vec<Script>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if is_case_file(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(|error| CaseError::Unreadable(error.to_string()));
        Script { case: text.and_then(|text| Case::parse(&text)), path }
    };
    Ok(paths.into_iter().map(read).collect())
}
