//! Names of qosm's groups, which have a prefix; groups of other programs cannot be named.

use std::fmt;

use super::error::ResctrlError;
use crate::backend::join;

/// Prefix of the directories of qosm's groups. Directories without it belong to other programs and are neither written
/// nor removed.
pub const PREFIX: &str = "qosm-";

/// Name of a group of qosm, without [`PREFIX`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

impl GroupName {
    /// Creates a name from letters, digits, `-`, `_` and `.`, such as a QoS class or a pod's UID.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Name`] if it is empty, too long for a directory, or has other characters.
    pub fn new(name: &str) -> Result<Self, ResctrlError> {
        const MAX_LENGTH: usize = 255 - PREFIX.len();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let why = match name {
            "" => "it is empty",
            _ if name.len() > MAX_LENGTH => "it is longer than a directory's name can be",
            _ if !name.bytes().all(is_plain) => "use letters, digits, `-`, `_` and `.`",
            _ => return Ok(Self(name.to_owned())),
        };
        Err(ResctrlError::Name { name: name.chars().take(80).collect(), why })
    }

    /// Makes a name from any text: replaces invalid characters by `_`, and truncates long names.
    pub(crate) fn made_of(text: &str) -> Self {
        const MAX_LENGTH: usize = 240;
        let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let mut name: String = text.chars().map(|char| if fits(char) { char } else { '_' }).take(MAX_LENGTH).collect();
        if name.is_empty() {
            name.push('_');
        }
        Self(name)
    }

    /// The group of a directory; `None` for groups of other programs.
    pub(crate) fn of_directory(directory: &str) -> Option<Self> {
        Self::new(directory.strip_prefix(PREFIX)?).ok()
    }

    /// The name without the prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn directory(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }
}

/// Prints the name of the directory, with the prefix.
impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.0)
    }
}

/// A group of qosm. The root group is not one; functions that also accept the root take `None` for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// A group with its own schemata, which uses a CLOSID and an RMID.
    Control(GroupName),
    /// A separately measured part of a control group, which uses an RMID.
    Monitor {
        /// The control group; `None` for the root.
        parent: Option<GroupName>,
        /// Its own name.
        name: GroupName,
    },
}

pub(crate) const MONITOR_GROUPS: &str = "mon_groups";

impl Group {
    /// The directory, relative to the root of resctrl.
    pub(crate) fn directory(&self) -> String {
        match self {
            Self::Control(name) => name.directory(),
            Self::Monitor { name, .. } => join(&join(&self.parent_directory(), MONITOR_GROUPS), &name.directory()),
        }
    }

    /// Directory of the group that gets its tasks when it is removed; empty for the root.
    pub(crate) fn parent_directory(&self) -> String {
        match self {
            Self::Monitor { parent: Some(parent), .. } => parent.directory(),
            Self::Control(_) | Self::Monitor { parent: None, .. } => String::new(),
        }
    }

    /// The control group that it is or belongs to; `None` for the root.
    pub fn control(&self) -> Option<&GroupName> {
        match self {
            Self::Control(name) => Some(name),
            Self::Monitor { parent, .. } => parent.as_ref(),
        }
    }
}

/// Prints the path relative to the root of resctrl, e.g. `qosm-be` or `qosm-be/mon_groups/qosm-x`.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.directory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_its_parent() {
        let long = "x".repeat(251);
        for name in ["", "a/b", "..\n", "a b", "ä", "a\0", &long] {
            assert!(matches!(GroupName::new(name), Err(ResctrlError::Name { .. })), "{name:?}");
        }
        for name in ["be", "..", "5f3c0a1e-8c55-4a3e-9d6a-0c5f1b6a7e11", "a_b.c"] {
            let group = GroupName::new(name).unwrap();
            assert_eq!(GroupName::of_directory(&group.to_string()), Some(group), "{name:?}");
        }
    }

    #[test]
    fn others_groups_have_no_name_here() {
        for directory in ["be", "qosm", "qosm-", "koordlet-x", "info", "QOSM-be"] {
            assert_eq!(GroupName::of_directory(directory), None, "{directory}");
        }
    }

    #[test]
    fn a_monitor_group_lies_in_its_control_group() {
        let name = |name: &str| GroupName::new(name).unwrap();
        let monitor = |parent: Option<&str>| Group::Monitor { parent: parent.map(name), name: name("x") };
        for (group, directory, parent) in [
            (Group::Control(name("be")), "qosm-be", ""),
            (monitor(Some("be")), "qosm-be/mon_groups/qosm-x", "qosm-be"),
            (monitor(None), "mon_groups/qosm-x", ""),
        ] {
            assert_eq!((group.to_string().as_str(), group.parent_directory().as_str()), (directory, parent));
        }
    }
}
