//! Errors of core scheduling, and how to fix them.

use std::io;

use rustix::io::Errno;

use super::note::Note;
use crate::error;

/// A failed step of core scheduling, with the process or cgroup that it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum CoreSchedulingError {
    /// The kernel's ptrace rules forbid access to the process (`EPERM`).
    #[error(
        "process {pid} of cgroup `{cgroup}` is out of reach for core scheduling: qosm may not look into it; that takes \
         CAP_SYS_PTRACE, and a qosm that neither Landlock (`confinement.mode`) nor AppArmor or SELinux keeps from it"
    )]
    Refused {
        /// Its PID.
        pid: u32,
        /// Its cgroup.
        cgroup: String,
    },
    /// The process has ended (`ESRCH`). The next scan finds its successors.
    #[error("process {pid} of cgroup `{cgroup}` has ended meanwhile; there is nothing to do")]
    Ended {
        /// Its PID.
        pid: u32,
        /// Its cgroup.
        cgroup: String,
    },
    /// Any other error of the kernel about a process.
    #[error(
        "process {pid} of cgroup `{cgroup}` keeps its core scheduling cookie: the kernel answered {}",
        error::errno_name(source)
    )]
    Process {
        /// Its PID.
        pid: u32,
        /// Its cgroup.
        cgroup: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// Processes of another PID namespace.
    #[error(
        "{count} processes of cgroup `{cgroup}` are not in this PID namespace; run qosm on the host, or with `hostPID`"
    )]
    OutOfSight {
        /// The cgroup.
        cgroup: String,
        /// Number of these processes.
        count: usize,
    },
    /// The agent is a member of a cgroup that should get a cookie.
    #[error("qosm itself runs in cgroup `{cgroup}`, and has to run on every core")]
    Own {
        /// The cgroup.
        cgroup: String,
    },
    /// The agent was started with a cookie, so that it cannot give processes the default cookie.
    #[error(
        "qosm itself was started in a core scheduling group, so that it can take no process out of one; start it without"
    )]
    Inherited,
    /// The kernel refused to create or copy a cookie.
    #[error("the kernel gave no core scheduling cookie: {}", error::errno_name(.0))]
    Cookie(#[source] io::Error),
    /// A note on a cgroup cannot be read or written; without it, the next agent would not recognize the cookies as qosm's.
    #[error(
        "the note about core scheduling on cgroup `{cgroup}` (extended attribute {}) cannot be {verb}: {}; nothing is changed without it",
        note.attribute(),
        error::errno_name(source)
    )]
    Note {
        /// The cgroup.
        cgroup: String,
        /// Which of its notes.
        note: Note,
        /// `read` or `written`.
        verb: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

impl CoreSchedulingError {
    /// Classifies an error of a system call about a process.
    pub(super) fn of_process(pid: u32, cgroup: &str, source: io::Error) -> Self {
        let cgroup = cgroup.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::ACCESS) => Self::Refused { pid, cgroup },
            Some(Errno::SRCH) => Self::Ended { pid, cgroup },
            _ => Self::Process { pid, cgroup, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_process_and_the_way_out() {
        let error = |errno: Errno| CoreSchedulingError::of_process(4711, "kubepods/podu/c", errno.into());
        for (errno, expected) in [
            (
                Errno::PERM,
                "process 4711 of cgroup `kubepods/podu/c` is out of reach for core scheduling: qosm may not look into it; that \
                 takes CAP_SYS_PTRACE, and a qosm that neither Landlock (`confinement.mode`) nor AppArmor or SELinux keeps from it",
            ),
            (Errno::SRCH, "process 4711 of cgroup `kubepods/podu/c` has ended meanwhile; there is nothing to do"),
            (
                Errno::NOMEM,
                "process 4711 of cgroup `kubepods/podu/c` keeps its core scheduling cookie: the kernel answered ENOMEM",
            ),
        ] {
            assert_eq!(error(errno).to_string(), expected);
        }
        assert!(matches!(error(Errno::PERM), CoreSchedulingError::Refused { pid: 4711, .. }));
        assert!(matches!(error(Errno::SRCH), CoreSchedulingError::Ended { pid: 4711, .. }));
    }
}
