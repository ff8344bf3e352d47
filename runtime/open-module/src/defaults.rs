//! The modules that come with qosm.

use std::path::{Path, PathBuf};

/// The default modules, in the order in which they are listed.
pub const DEFAULTS: [&str; 3] = ["cpu-burst", "memory-locality", "memory-qos"];

/// The folder of the default modules: `said`, else beside the program, else the folder of packages.
pub fn default_dir(said: Option<&Path>) -> PathBuf {
    let beside = || {
        let binary = std::env::current_exe().ok()?;
        let prefix = binary.parent()?.parent()?;
        // The layouts of cargo and of installations.
        [prefix.join("policies"), prefix.join("lib/qosm/policies")].into_iter().find(|dir| dir.is_dir())
    };
    said.map(Path::to_path_buf).or_else(beside).unwrap_or_else(|| PathBuf::from("/usr/lib/qosm/policies"))
}
