//! The checkout, and the programs built from it.

use std::io;
use std::path::{Path, PathBuf};

use crate::page::Page;

/// Folders with pages of other projects.
const NOT_OURS: [&str; 2] = ["target", "node_modules"];

/// A checkout.
#[derive(Clone, Debug)]
pub struct Repository {
    root: PathBuf,
}

/// The programs and modules built from the checkout.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `qosm`.
    pub qosm: PathBuf,
    /// `qosm-policy`, next to `qosm`, which runs it for `qosm policy`.
    pub qosm_policy: PathBuf,
    /// `cargo xtask`.
    pub xtask: PathBuf,
    /// The folder of the default modules.
    pub modules: PathBuf,
}

impl Repository {
    /// The checkout in which this crate was compiled.
    pub fn here() -> Self {
        Self { root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../..") }
    }

    /// The root folder of the checkout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read; the error names it.
    pub fn text(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(self.root.join(path))
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
    }

    /// All Markdown pages, sorted by path.
    ///
    /// # Errors
    ///
    /// If a folder or page cannot be read.
    pub fn pages(&self) -> io::Result<Vec<Page>> {
        // Markdown files among sources are included in other pages.
        let paths = self.files("", ".md")?.into_iter().filter(|path| !path.contains("/src/"));
        paths.map(|path| Ok(Page::new(&path, &self.text(&path)?))).collect()
    }

    /// The sorted paths of all files below a folder that end with `suffix`, except hidden ones.
    ///
    /// # Errors
    ///
    /// If a folder cannot be read.
    pub fn files(&self, below: &str, suffix: &str) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        let mut folders = vec![below.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(self.root.join(&folder))? {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                let is_hidden = name.starts_with('.');
                if entry.file_type()?.is_dir() && !is_hidden && !NOT_OURS.contains(&name.as_str()) {
                    folders.push(path);
                } else if !is_hidden && name.ends_with(suffix) {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Programs {
    /// Finds the built programs: at `QOSM_BIN`, `QOSM_POLICY_BIN`, `QOSM_XTASK` and `QOSM_MODULES` (or `QOSM_MODULE_DIR`) if set, else in the target
    /// directory that contains this program.
    ///
    /// # Errors
    ///
    /// What is missing, and how to build it.
    pub fn find() -> Result<Self, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        // From target/debug/deps/book-….
        let built = this.ancestors().nth(2).ok_or("this program lies in no target directory")?;
        let variable = |names: &[&str]| names.iter().find_map(std::env::var_os).map(PathBuf::from);
        let qosm = variable(&["QOSM_BIN"]).unwrap_or_else(|| built.join("qosm"));
        let programs = Self {
            qosm_policy: variable(&["QOSM_POLICY_BIN"]).unwrap_or_else(|| qosm.with_file_name("qosm-policy")),
            qosm,
            xtask: variable(&["QOSM_XTASK"]).unwrap_or_else(|| built.join("xtask")),
            modules: variable(&["QOSM_MODULES", "QOSM_MODULE_DIR"])
                .or_else(|| Some(built.parent()?.join("policies")))
                .unwrap_or_default(),
        };
        let module = programs.modules.join("cpu-burst.wasm");
        if let Some(missing) =
            [&programs.qosm, &programs.qosm_policy, &programs.xtask, &module].into_iter().find(|file| !file.is_file())
        {
            return Err(format!("{} is missing: run `cargo build` and `cargo xtask modules` first", missing.display()));
        }
        Ok(programs)
    }
}
