//! Errors between the agent and the kernel, with the target and file that they are about.

use std::io;

use qosm_model::block_io::DeviceNumber;
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::unit::Micros;
use rustix::io::Errno;

/// A failed operation on the node. `path` is relative to a hierarchy's root for a cgroup, absolute for a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The cgroup does not exist, or was removed and perhaps created again since it was attached.
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
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The written value.
        value: String,
        /// Path of the file.
        path: String,
        /// Name of the error number, e.g. `EINVAL`.
        errno: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel recently refused this knob on this target; the write is retried after `plans_left` plans.
    #[error("{knob} in {path} is not written for {plans_left} more plans: the kernel refused `{value}` with {errno}")]
    BackedOff {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The value that was refused.
        value: Box<Value>,
        /// Path of the file.
        path: String,
        /// Name of the error number.
        errno: &'static str,
        /// Plans until the next try.
        plans_left: u64,
    },
    /// Another agent works on the same cgroups.
    #[error("another qosm agent{} works on the cgroups below {path}: stop it, or give each agent a --cgroup-root of its own", holder.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Locked {
        /// The cgroup root.
        path: String,
        /// PID of the other agent, if the kernel shows it.
        holder: Option<u32>,
    },
    /// The cgroup root cannot be locked.
    #[error("cannot lock the cgroup root {path}")]
    Lock {
        /// The cgroup root.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel or the cgroup does not support a knob or signal.
    #[error("{what} is not supported: {why}")]
    Unsupported {
        /// The knob or signal, and its cgroup.
        what: String,
        /// What is missing.
        why: String,
    },
    /// The value is outside the range of the knob.
    #[error("{value} is out of range for {knob} in {path}: use {allowed}")]
    Range {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The requested value.
        value: Box<Value>,
        /// Path of the file.
        path: String,
        /// The accepted values.
        allowed: String,
    },
    /// A quota below the burst in force, which the kernel refuses; without a lease on the burst, the burst is not
    /// lowered.
    #[error("quota {quota} of cgroup `{path}` is below its burst of {burst}: lower the burst together with the quota")]
    BurstAboveQuota {
        /// The quota's target.
        target: Target,
        /// The cgroup.
        path: String,
        /// The burst in force.
        burst: Micros,
        /// The requested quota.
        quota: Micros,
    },
    /// A block device that the node does not have, or no longer has.
    #[error("{knob} in {path} was not written: the node has no device {device}; `lsblk` lists those that it has")]
    NoDevice {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The device.
        device: DeviceNumber,
        /// Path of the file.
        path: String,
    },
    /// A partition: limits apply to whole disks only.
    #[error("{knob} in {path} was not written: {device} is a partition; name its disk, {disk}")]
    Partition {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// The partition.
        device: DeviceNumber,
        /// The disk that contains the partition.
        disk: DeviceNumber,
        /// Path of the file.
        path: String,
    },
    /// A weight or a cost for a device without an active cost model.
    #[error(
        "{knob} in {path} was not written: the kernel has no cost model for the device. A weight needs io.cost.qos of the same device first; \
         disks of device mapper (LVM, dm-crypt) have none, but the disks below have"
    )]
    NoCostModel {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// Path of the file.
        path: String,
    },
    /// A set of CPUs none of which the cgroup may use. cgroup v2 would accept it and let the cgroup run on all available CPUs.
    #[error("CPUs {cpus} leave {path} none: {above} has CPUs {there}; choose among these")]
    NoCpus {
        /// The knob's target.
        target: Target,
        /// Path of the file.
        path: String,
        /// The requested CPUs.
        cpus: Box<CpuSet>,
        /// The parent cgroup, or the node, in words.
        above: String,
        /// CPUs that are available there.
        there: Box<CpuSet>,
    },
    /// cgroup v1 refuses to take away a CPU that a child cgroup still has.
    #[error(
        "{path} is not set to CPUs {cpus}: `{below}` below it has CPUs {more} as well, and is not narrowed with it"
    )]
    WiderBelow {
        /// The knob's target.
        target: Target,
        /// Path of the file.
        path: String,
        /// The requested CPUs.
        cpus: Box<CpuSet>,
        /// The child cgroup.
        below: String,
        /// CPUs of the child beyond the requested ones.
        more: Box<CpuSet>,
    },
    /// A memory limit that cannot be lowered, since too much memory is in use and cannot be reclaimed.
    ///
    /// The text has no amount that differs with each try: it is one problem, told once.
    #[error("{path} is not lowered to {limit} yet: more is in use and cannot be reclaimed; it is tried again")]
    InUse {
        /// The knob's target.
        target: Target,
        /// Path of the file.
        path: String,
        /// The requested limit.
        limit: Box<Value>,
        /// Memory in use, in bytes.
        usage: u64,
        /// The limit in force.
        stands: Box<Value>,
    },
    /// A weight for a cgroup with `cpu.idle` 1, which the kernel refuses.
    #[error("{path} takes no weight while cpu.idle is 1: set cpu.idle to 0 first")]
    Idle {
        /// The weight's target.
        target: Target,
        /// Path of the file.
        path: String,
    },
    /// A weight that depends on `cpu.idle`, which could not be set.
    #[error("{path} is left as it is, since cpu.idle was not set")]
    NotIdle {
        /// The weight's target.
        target: Target,
        /// Path of the file.
        path: String,
    },
    /// qosm may not send signals to the processes of a cgroup.
    #[error("the processes of cgroup `{path}` cannot be ended: qosm needs CAP_KILL, and to run in their PID namespace")]
    Signal {
        /// The cgroup, or its file.
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
    /// The kernel gives no thread, epoll or inotify instance for alarms.
    #[error("alarms cannot be waited for")]
    Alarms(#[source] io::Error),
    /// The kernel gives no inotify instance.
    #[error("writes of other programs cannot be detected")]
    Writes(#[source] io::Error),
    /// A file or directory that cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path of the file.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The hierarchy is mounted read-only.
    #[error("{path} is on a read-only mount: mount the cgroup hierarchies writable")]
    ReadOnly {
        /// The file or cgroup.
        path: String,
    },
    /// A node-wide setting on a read-only mount.
    #[error(
        "{path} is on a read-only mount: ReadWritePaths={folder} in a drop-in of the agent's systemd unit makes it writable, and in a cluster \
         the chart's agent.hostAccess.nodeMemory what lies in /proc/sys/vm"
    )]
    NodeReadOnly {
        /// Path of the file.
        path: String,
        /// The folder that contains the file.
        folder: String,
    },
    /// A cgroup that cannot be created, or whose controllers cannot be enabled.
    #[error("cannot make cgroup {path}")]
    Make {
        /// The directory or `cgroup.subtree_control` file.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel refused a limit of a cgroup that was just created or resized.
    #[error("the kernel refused the limit `{value}` in {path}")]
    Bound {
        /// Path of the file.
        path: String,
        /// The written value.
        value: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// A cgroup that cannot be removed.
    #[error("cannot remove cgroup {path}")]
    Remove {
        /// The directory.
        path: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// A container ID that names no cgroup directory.
    #[error("`{id}` of container `{container}` is no container ID: {why}")]
    ContainerId {
        /// Name of the container.
        container: String,
        /// `containerStatuses[].containerID`.
        id: String,
        /// Why it is invalid.
        why: &'static str,
    },
    /// A path that cannot be a cgroup below a hierarchy's root.
    #[error("`{path}` is no path of a cgroup: {why}")]
    Path {
        /// The path.
        path: String,
        /// Why it is invalid.
        why: &'static str,
    },
    /// A cgroup that does not belong to the pod.
    #[error("cgroup `{path}` is not this pod's own: {why}")]
    NotOwn {
        /// The cgroup.
        path: String,
        /// The cgroup's owner, or its content.
        why: String,
    },
    /// A cgroup that another target is attached to.
    #[error("cgroup `{path}` is held already, for {by:?}")]
    Taken {
        /// The cgroup.
        path: String,
        /// The target that holds it.
        by: Target,
    },
    /// Too many slow writes are in progress.
    #[error("{knob} in {path} was not written: too many slow writes are under way; try again later")]
    Busy {
        /// The knob's target.
        target: Target,
        /// The knob.
        knob: Knob,
        /// Path of the file.
        path: String,
    },
    /// A page migration that cannot be started.
    #[error("pages of cgroup `{path}` cannot be moved")]
    Migrate {
        /// The cgroup.
        path: String,
        /// Why the thread did not start.
        source: io::Error,
    },
    /// No cgroup hierarchy that the host can use.
    #[error("no cgroup hierarchy with `cpu` or `memory` is mounted at or below {prefix}")]
    NoHierarchy {
        /// The directory that was searched.
        prefix: String,
    },
}

impl HostError {
    /// Name of the kernel's error number, e.g. `EINVAL`; for errors without one, a word such as `busy` or `invalid`.
    pub fn errno_name(&self) -> &'static str {
        match self {
            Self::Refused { errno, .. } | Self::BackedOff { errno, .. } => errno,
            Self::Read { source, .. }
            | Self::Make { source, .. }
            | Self::Remove { source, .. }
            | Self::Bound { source, .. }
            | Self::Migrate { source, .. } => errno_name(source),
            Self::ReadOnly { .. } | Self::NodeReadOnly { .. } => "EROFS",
            Self::Gone { .. } => "ENOENT",
            Self::Unsupported { .. } => "unsupported",
            Self::Busy { .. } => "busy",
            Self::InUse { .. } => "EBUSY",
            _ => "invalid",
        }
    }

    /// A missing feature of the host, in the same words for every cgroup; `None` for errors of a single cgroup.
    pub fn lacking(&self) -> Option<&str> {
        let Self::Unsupported { why, .. } = self else { return None };
        // Leave out the cgroup: a kernel without the file has it in no cgroup.
        let elsewhere = why.strip_prefix("there is no such file in cgroup `").and_then(|rest| rest.split_once("`; "));
        Some(elsewhere.map_or(why, |(_, needs)| needs))
    }

    /// Whether the cgroup itself is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }
}

/// The name of an error number as in manual pages; `EIO` if [`NAMES`] does not list it.
pub(crate) fn errno_name(error: &io::Error) -> &'static str {
    let Some(errno) = Errno::from_io_error(error) else { return "EIO" };
    NAMES.iter().find(|(candidate, _)| *candidate == errno).map_or("EIO", |&(_, name)| name)
}

/// The static name of an error number that another process sent; `EIO` if [`NAMES`] does not list it.
pub(crate) fn known_errno(name: &str) -> &'static str {
    NAMES.iter().find(|(_, known)| *known == name).map_or("EIO", |&(_, known)| known)
}

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

/// Whether an error has this error number.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

/// Whether an error means that the object does not exist: `ENOENT` from a path, `ENODEV` from an open descriptor.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    is(error, Errno::NOENT) || is(error, Errno::NODEV) || error.kind() == io::ErrorKind::NotFound
}

/// The first line of a file, at most 80 characters, for a message.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_lacks_does_not_name_a_cgroup() {
        let lacking = |why: &str| HostError::Unsupported { what: "memory.min".into(), why: why.into() };
        for (why, expected) in [
            ("there is no such file in cgroup `kubepods/podx`; needs Linux 4.18", "needs Linux 4.18"),
            ("the controller `memory` is not mounted", "the controller `memory` is not mounted"),
        ] {
            assert_eq!(lacking(why).lacking(), Some(expected));
        }
        assert_eq!(HostError::Gone { path: String::new() }.lacking(), None);
    }
}
