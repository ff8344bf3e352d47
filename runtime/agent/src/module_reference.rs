//! How an entry names its module.

use std::fmt;
use std::path::PathBuf;

use qosm_registry::{Location, ReferenceError};

/// Where a module comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleReference {
    /// A default module by its name.
    Builtin(String),
    /// A file of this node.
    File(PathBuf),
    /// An artefact in a registry or in a folder of artefacts.
    Artifact(Location),
}

impl ModuleReference {
    /// Reads `builtin:NAME`, `file:///PATH`, `oci://REFERENCE`, `oci-layout:PATH[:TAG]`, or a path.
    ///
    /// # Errors
    ///
    /// What is wrong with the reference of an artefact.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        if let Some(name) = text.strip_prefix("builtin:") {
            Ok(Self::Builtin(name.to_owned()))
        } else if let Some(path) = text.strip_prefix("file://") {
            Ok(Self::File(PathBuf::from(path)))
        } else if Location::is_meant_by(text) {
            text.parse().map(Self::Artifact)
        } else {
            Ok(Self::File(PathBuf::from(text)))
        }
    }
}

impl fmt::Display for ModuleReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(name) => write!(f, "builtin:{name}"),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Artifact(location @ Location::Registry(_)) => write!(f, "oci://{location}"),
            Self::Artifact(location) => location.fmt(f),
        }
    }
}
