//! What can go wrong between the agent and the kernel, and what it was about.

use std::io;

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::unit::Micros;
use rustix::io::Errno;

/// A failed exchange with the kernel. `path` is relative to a hierarchy's root for a cgroup, absolute for a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The cgroup is not there, or was removed and perhaps made anew since it was attached.
    #[error("cgroup `{path}` is gone")]
    Gone {
        /// The cgroup.
        path: String,
    },
    /// A target that was never attached, or was detached.
    #[error("{target:?} is attached to no cgroup")]
    NotAttached {
        /// The target.
        target: Target,
    },
    /// The kernel refused a value.
    #[error("the kernel refused `{value}` as {knob} in {path}: {errno}")]
    Refused {
        /// Whose knob.
        target: Target,
        /// Which knob.
        knob: Knob,
        /// What was written.
        value: String,
        /// The file.
        path: String,
        /// Name of the error number, e.g. `EINVAL`.
        errno: &'static str,
        /// What the system call returned.
        source: io::Error,
    },
    /// The kernel refused this knob on this target before; it is tried again after some more plans.
    #[error("{knob} in {path} is left alone for {plans_left} more plans: the kernel refused `{value}` with {errno}")]
    Parked {
        /// Whose knob.
        target: Target,
        /// Which knob.
        knob: Knob,
        /// The value that was refused.
        value: Value,
        /// The file.
        path: String,
        /// Name of the error number.
        errno: &'static str,
        /// Plans until it is tried again.
        plans_left: u64,
    },
    /// This kernel or this cgroup does not have it.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// A knob or signal, and where.
        what: String,
        /// What is missing.
        why: String,
    },
    /// The value is outside what the knob takes.
    #[error("{value} is out of range for {knob} in {path}: use {allowed}")]
    Range {
        /// Whose knob.
        target: Target,
        /// Which knob.
        knob: Knob,
        /// The value wanted.
        value: Value,
        /// The file.
        path: String,
        /// What is accepted.
        allowed: String,
    },
    /// A quota below the burst in force, which the kernel refuses; nobody wants a burst here, so it is not lowered.
    #[error("quota {quota} of cgroup `{path}` is below its burst of {burst}: lower the burst together with the quota")]
    BurstAboveQuota {
        /// Whose quota.
        target: Target,
        /// The cgroup.
        path: String,
        /// The burst in force.
        burst: Micros,
        /// The quota wanted.
        quota: Micros,
    },
    /// A weight for an idle cgroup, which the kernel refuses.
    #[error("{path} takes no weight while cpu.idle is 1: set cpu.idle to 0 first")]
    Idle {
        /// Whose weight.
        target: Target,
        /// The file.
        path: String,
    },
    /// A weight that only goes with `cpu.idle`, which was not set.
    #[error("{path} is left as it is, since cpu.idle was not set")]
    NotIdle {
        /// Whose weight.
        target: Target,
        /// The file.
        path: String,
    },
    /// A file that does not read as it should.
    #[error("{path} does not hold {expected}: `{text}`")]
    Parse {
        /// The file.
        path: String,
        /// What was looked for.
        expected: &'static str,
        /// What it holds, shortened.
        text: String,
    },
    /// No thread, epoll or inotify instance to wait for alarms with.
    #[error("alarms cannot be waited for")]
    Alarms(#[source] io::Error),
    /// A file that cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// What the system call returned.
        source: io::Error,
    },
    /// The hierarchy is mounted read-only.
    #[error("{path} is on a read-only mount: mount the cgroup hierarchies writable")]
    ReadOnly {
        /// The file or cgroup.
        path: String,
    },
    /// A cgroup that cannot be made, or whose controllers cannot be turned on.
    #[error("cannot make cgroup {path}")]
    Make {
        /// The directory or `cgroup.subtree_control` file.
        path: String,
        /// What the system call returned.
        source: io::Error,
    },
    /// A limit of a cgroup that was just made, or resized.
    #[error("the kernel refused the limit `{value}` in {path}")]
    Bound {
        /// The file.
        path: String,
        /// What was written.
        value: String,
        /// What the system call returned.
        source: io::Error,
    },
    /// A cgroup that cannot be removed.
    #[error("cannot remove cgroup {path}")]
    Remove {
        /// The directory.
        path: String,
        /// What the system call returned.
        source: io::Error,
    },
    /// A container ID that names no directory.
    #[error("`{id}` of container `{container}` is no container ID: {why}")]
    ContainerId {
        /// Name of the container.
        container: String,
        /// `containerStatuses[].containerID`.
        id: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path that can be no cgroup below a hierarchy's root.
    #[error("`{path}` is no path of a cgroup: {why}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Too many slow writes are under way already.
    #[error("{knob} in {path} was not written: too many slow writes are under way; try again later")]
    Busy {
        /// Whose knob.
        target: Target,
        /// Which knob.
        knob: Knob,
        /// The file.
        path: String,
    },
    /// Pages that cannot be begun to be moved.
    #[error("pages of cgroup `{path}` cannot be moved")]
    Migrate {
        /// The cgroup.
        path: String,
        /// What kept the thread from starting.
        source: io::Error,
    },
    /// No cgroup hierarchy that the host can use.
    #[error("no cgroup hierarchy with `cpu` or `memory` is mounted at or below {prefix}")]
    NoHierarchy {
        /// Where was looked.
        prefix: String,
    },
}

impl HostError {
    /// Name of the error number that the kernel gave, e.g. `EINVAL`; where it gave none, one word for what is wrong.
    pub fn errno_name(&self) -> &'static str {
        match self {
            Self::Refused { errno, .. } | Self::Parked { errno, .. } => errno,
            Self::Read { source, .. }
            | Self::Make { source, .. }
            | Self::Remove { source, .. }
            | Self::Bound { source, .. }
            | Self::Migrate { source, .. } => errno_name(source),
            Self::ReadOnly { .. } => "EROFS",
            Self::Gone { .. } => "ENOENT",
            Self::Unsupported { .. } => "unsupported",
            Self::Busy { .. } => "busy",
            _ => "invalid",
        }
    }

    /// Whether the cgroup itself is no longer there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// The name that manual pages use for an error number; `EIO` for one that has none here.
pub(crate) fn errno_name(error: &io::Error) -> &'static str {
    const NAMES: [(Errno, &str); 26] = [
        (Errno::INVAL, "EINVAL"),
        (Errno::NODEV, "ENODEV"),
        (Errno::NOENT, "ENOENT"),
        (Errno::ACCESS, "EACCES"),
        (Errno::PERM, "EPERM"),
        (Errno::ROFS, "EROFS"),
        (Errno::BUSY, "EBUSY"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::RANGE, "ERANGE"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::INTR, "EINTR"),
        (Errno::MFILE, "EMFILE"),
        (Errno::NFILE, "ENFILE"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::TOOBIG, "E2BIG"),
        (Errno::NXIO, "ENXIO"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::SRCH, "ESRCH"),
        (Errno::FAULT, "EFAULT"),
    ];
    let Some(errno) = Errno::from_io_error(error) else { return "EIO" };
    NAMES.iter().find(|(candidate, _)| *candidate == errno).map_or("EIO", |&(_, name)| name)
}

/// Whether an error is this number.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// Whether an error says that what was asked about is not there: `ENOENT` from a path, `ENODEV` from a kept descriptor.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    is(error, Errno::NOENT) || is(error, Errno::NODEV)
}

/// The beginning of a file, for a message.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(80).collect()
}
