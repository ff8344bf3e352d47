//! Errors of resctrl, the file or group that they concern, and the remedy.

use std::fmt;
use std::io;

use super::bandwidth::Percent;
use super::resource::BandwidthResource;
use super::schemata::SchemataError;
use crate::error::errno_name;

/// A failed operation on resctrl, or an invalid value. Paths are absolute paths on the node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResctrlError {
    /// resctrl cannot be mounted.
    #[error("cannot mount resctrl at {path} ({errno}): {way_out}")]
    Mount {
        /// The mount point.
        path: String,
        /// Name of the error number, e.g. `EBUSY`.
        errno: &'static str,
        /// The remedy.
        way_out: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// qosm's mount of resctrl cannot be unmounted.
    #[error("cannot unmount resctrl at {path} ({errno}): end its users, then run `umount {path}`")]
    Unmount {
        /// The mount point.
        path: String,
        /// Name of the error number.
        errno: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// A file or directory that cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file or directory.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// A file with unexpected content.
    #[error("{path} does not hold {expected}: `{text}`")]
    Parse {
        /// Path of the file.
        path: String,
        /// The expected content.
        expected: &'static str,
        /// The actual content, shortened.
        text: String,
    },
    /// Invalid schemata.
    #[error("{path} cannot be understood")]
    Schemata {
        /// Path of the file.
        path: String,
        /// The invalid line.
        source: SchemataError,
    },
    /// resctrl is mounted read-only.
    #[error(
        "{path} is on a read-only mount: mount resctrl writable, in Kubernetes the node's /sys/fs/resctrl as a volume"
    )]
    ReadOnly {
        /// The file or directory.
        path: String,
    },
    /// The group does not exist, or no longer exists.
    #[error("resctrl group {path} is gone")]
    Gone {
        /// The group.
        path: String,
    },
    /// The kernel refused a write.
    #[error("the kernel refused `{value}` in {path} ({errno}){status}")]
    Refused {
        /// Path of the file.
        path: String,
        /// The written value.
        value: String,
        /// Name of the error number.
        errno: &'static str,
        /// The kernel's explanation.
        status: Status,
        /// Error of the system call.
        source: io::Error,
    },
    /// The machine has no CLOSID left, so no control group can be created.
    #[error(
        "no CLOSID is left for resctrl group {path}: this machine has {limit}, one of them the root's, the others held by {}: \
         let groups with equal schemata be one, or remove one that is not needed",
        name_list(holders)
    )]
    Closids {
        /// The group that was not created.
        path: String,
        /// Maximum number of control groups, including the root.
        limit: u32,
        /// The existing control groups, without the root.
        holders: Vec<String>,
        /// Error of the system call.
        source: io::Error,
    },
    /// The machine has no RMID left, so no group can be created.
    #[error(
        "no RMID is left for resctrl group {path}: this machine has {limit}{}: {}",
        if *.in_limbo { ", some of them not free yet, for their cache lines are still there" } else { "" },
        if *.in_limbo { "try again later" } else { "remove a control or monitor group that is not needed" }
    )]
    Rmids {
        /// The group that was not created.
        path: String,
        /// Maximum number of groups, including the root.
        limit: u32,
        /// Whether RMIDs become free by themselves.
        in_limbo: bool,
        /// Error of the system call.
        source: io::Error,
    },
    /// All ways of a cache belong to exclusive groups.
    #[error(
        "no way is left for resctrl group {path}{status}: set `mode` of an exclusive group to `shareable`, or cut its schemata"
    )]
    Ways {
        /// The group that was not created.
        path: String,
        /// The kernel's explanation, which names the cache.
        status: Status,
        /// Error of the system call.
        source: io::Error,
    },
    /// A group that cannot be created for another reason.
    #[error("cannot make resctrl group {path} ({errno}){status}")]
    Make {
        /// The group.
        path: String,
        /// Name of the error number.
        errno: &'static str,
        /// The kernel's explanation.
        status: Status,
        /// Error of the system call.
        source: io::Error,
    },
    /// A group that cannot be removed.
    #[error("cannot remove resctrl group {path} ({errno}){status}")]
    Remove {
        /// The group.
        path: String,
        /// Name of the error number.
        errno: &'static str,
        /// The kernel's explanation.
        status: Status,
        /// Error of the system call.
        source: io::Error,
    },
    /// A group that still exists after it was removed: another program created it again, or this is not resctrl.
    #[error("resctrl group {path} is still there after it was removed: another agent may be at work on this node")]
    Remains {
        /// The group.
        path: String,
    },
    /// An invalid name of a group.
    #[error("`{name}` can be no name of a resctrl group: {why}")]
    Name {
        /// The name.
        name: String,
        /// Why it is invalid.
        why: &'static str,
    },
    /// An invalid range in percent.
    #[error(
        "{start}..{end} is no part of a cache in percent: the start has to be below the end, and the end at most 100"
    )]
    PercentRange {
        /// Its start.
        start: u8,
        /// Its end.
        end: u8,
    },
    /// An invalid share in percent.
    #[error("{percent} % is no share of the memory bandwidth: use 1 to 100")]
    Percent {
        /// The number.
        percent: u8,
    },
    /// The processor's values are not percentages, and the kernel refuses to set any.
    #[error(
        "{resource} cannot be limited here: the processor's delays are not linear, and the kernel takes none of them"
    )]
    NotLinear {
        /// The bandwidth resource.
        resource: BandwidthResource,
    },
    /// Percent of a bandwidth whose total is not configured.
    #[error(
        "{} % of {resource} cannot be converted to MB/s: configure the full bandwidth of a cache's cores, or mount resctrl without \
         mba_MBps",
        percent.value()
    )]
    FullBandwidth {
        /// The bandwidth resource.
        resource: BandwidthResource,
        /// The requested share.
        percent: Percent,
    },
}

impl ResctrlError {
    /// Name of the kernel's error number, e.g. `ENOSPC`; `invalid` for errors without one.
    pub fn errno_name(&self) -> &'static str {
        match self {
            Self::Mount { errno, .. }
            | Self::Unmount { errno, .. }
            | Self::Refused { errno, .. }
            | Self::Make { errno, .. }
            | Self::Remove { errno, .. } => errno,
            Self::Read { source, .. }
            | Self::Closids { source, .. }
            | Self::Rmids { source, .. }
            | Self::Ways { source, .. } => errno_name(source),
            Self::ReadOnly { .. } => "EROFS",
            Self::Gone { .. } => "ENOENT",
            _ => "invalid",
        }
    }

    /// The error and its source in one line.
    pub(crate) fn full_message(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }

    /// Whether the group itself is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// Whether there are too many groups: another group may fit in after one is removed.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Closids { .. } | Self::Rmids { .. } | Self::Ways { .. })
    }
}

/// The text of `info/last_cmd_status` after a failure. Some refusals leave no text, so an empty text proves nothing;
/// the text may also belong to a later command of another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status(Option<String>);

impl Status {
    /// Parses the file: `ok` and an empty file give no text, several lines are joined.
    pub(crate) fn read(text: &[u8]) -> Self {
        const MAX_LENGTH: usize = 512;
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> = text.lines().map(str::trim_ascii).filter(|line| !line.is_empty()).collect();
        let text: String = lines.join("; ").chars().take(MAX_LENGTH).collect();
        Self((!text.is_empty() && text != "ok").then_some(text))
    }

    /// The text; `None` if there is none.
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(crate) fn starts_with(&self, beginning: &str) -> bool {
        self.text().is_some_and(|text| text.starts_with(beginning))
    }
}

/// Prints `: ` and the text, or nothing.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(text) => write!(f, ": {text}"),
            None => Ok(()),
        }
    }
}

fn name_list(names: &[String]) -> String {
    const MAX: usize = 16;
    match names {
        [] => "none".to_owned(),
        names if names.len() <= MAX => names.join(", "),
        names => format!("{} and {} more", names[..MAX].join(", "), names.len() - MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ok_is_no_status() {
        for (text, shown) in [
            ("ok\n", ""),
            ("", ""),
            ("Out of CLOSIDs\n", ": Out of CLOSIDs"),
            ("No task 7\nError while processing task 7\n", ": No task 7; Error while processing task 7"),
        ] {
            assert_eq!(Status::read(text.as_bytes()).to_string(), shown);
        }
        assert_eq!(Status::read(&[b'x'; 4096]).to_string().len(), 514);
    }

    #[test]
    fn exhaustion_says_who_holds_what() {
        let source = || io::Error::from_raw_os_error(28);
        let holders = vec!["mon-lab".to_owned(), "qosm-be".to_owned()];
        let error = ResctrlError::Closids { path: "/r/qosm-ls".to_owned(), limit: 3, holders, source: source() };
        assert_eq!(
            error.to_string(),
            "no CLOSID is left for resctrl group /r/qosm-ls: this machine has 3, one of them the root's, the others held by mon-lab, \
             qosm-be: let groups with equal schemata be one, or remove one that is not needed"
        );
        assert_eq!((error.errno_name(), error.is_exhausted()), ("ENOSPC", true));
        let rmids = |in_limbo| {
            ResctrlError::Rmids { path: "/r/qosm-ls".to_owned(), limit: 8, in_limbo, source: source() }.to_string()
        };
        assert_eq!(
            rmids(false),
            "no RMID is left for resctrl group /r/qosm-ls: this machine has 8: remove a control or monitor group that is not needed"
        );
        assert_eq!(
            rmids(true),
            "no RMID is left for resctrl group /r/qosm-ls: this machine has 8, some of them not free yet, for their cache lines are \
             still there: try again later"
        );
    }
}
