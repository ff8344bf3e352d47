//! How an entry names its module.

use std::fmt;
use std::path::PathBuf;

/// Where a module comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleReference {
    /// A default module by its name.
    Builtin(String),
    /// A file of this node.
    File(PathBuf),
    /// An artefact in a registry.
    Oci(String),
}

impl ModuleReference {
    /// Reads `builtin:NAME`, `file:///PATH`, `oci://REFERENCE`, or a path.
    pub fn parse(text: &str) -> Self {
        if let Some(name) = text.strip_prefix("builtin:") {
            Self::Builtin(name.to_owned())
        } else if let Some(path) = text.strip_prefix("file://") {
            Self::File(PathBuf::from(path))
        } else if let Some(reference) = text.strip_prefix("oci://") {
            Self::Oci(reference.to_owned())
        } else {
            Self::File(PathBuf::from(text))
        }
    }
}

impl fmt::Display for ModuleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Oci(reference) => write!(f, "oci://{reference}"),
        }
    }
}
