//! Messages between an agent and its page mover: one JSON document per packet, over a socket that preserves packets
//! (`SOCK_SEQPACKET`), so that a process that dies leaves no partial message.
//!
//! A request names a container by its cgroup. The mover finds the processes itself and accepts no PIDs.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use qosm_confinement::{SeccompMode, Status};
use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, ProcessFailure};
use qosm_model::unit::{Bytes, Micros};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::job::MigrationLimits;
use crate::core_scheduling::{CoreGroupProblem, CoreGroupReport};
use crate::error::known_errno;

/// Version of these messages; both sides must have the same.
pub(crate) const VERSION: u32 = 2;
/// Upper bound of a message, in bytes: a cgroup's path has at most 4096 characters, and failures name at most 32 processes.
const MAX: usize = 64 << 10;

/// Requests of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Request {
    /// Move a container's pages.
    #[serde(rename_all = "camelCase")]
    Move {
        /// The agent's ID of the request.
        id: u64,
        /// The container's cgroup, relative to the hierarchy with the memory controller.
        cgroup: String,
        from: Vec<u32>,
        to: Vec<u32>,
        limits: Limits,
    },
    /// Stop a migration; pages that were not moved stay.
    Cancel { id: u64 },
    /// Move processes to the core scheduling groups that their cgroups' notes name.
    CoreGroups,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Limits {
    bytes_per_second: u64,
    cpu_percent: u32,
    reserve_bytes: u64,
    pressure_percent: u32,
}

/// Answers of the mover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Event {
    /// The mover accepts requests from now on, and knows of none yet.
    Hello { version: u32, confinement: MoverConfinement },
    /// Progress of a request.
    Progress { id: u64, progress: Progress },
    /// Result of [`Request::CoreGroups`].
    CoreGroups(CoreGroupAnswer),
    /// The process that moves pages has ended; another starts after `seconds`.
    Ended { why: String, seconds: u64 },
}

/// [`CoreGroupReport`] in the protocol's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CoreGroupAnswer {
    groups: usize,
    processes: usize,
    leaving: usize,
    problems: Vec<(String, String)>,
    more_problems: usize,
}

impl From<CoreGroupReport> for CoreGroupAnswer {
    /// Keeps only as many problems as are sure to fit into a message, and counts the others.
    fn from(report: CoreGroupReport) -> Self {
        let mut left = MAX / 4;
        let mut fits = |problem: &CoreGroupProblem| {
            let length = problem.cgroup.len().saturating_add(problem.why.len());
            let is_short = length <= left;
            left = left.saturating_sub(length);
            is_short
        };
        let kept = report.problems.iter().take_while(|problem| fits(problem)).count();
        let more_problems = report.more_problems.saturating_add(report.problems.len().saturating_sub(kept));
        let CoreGroupReport { groups, processes, leaving, problems, .. } = report;
        let problems = problems.into_iter().take(kept).map(|problem| (problem.cgroup, problem.why)).collect();
        Self { groups, processes, leaving, problems, more_problems }
    }
}

impl From<CoreGroupAnswer> for CoreGroupReport {
    fn from(answer: CoreGroupAnswer) -> Self {
        let CoreGroupAnswer { groups, processes, leaving, problems, more_problems } = answer;
        let problems = problems.into_iter().map(|(cgroup, why)| CoreGroupProblem { cgroup, why }).collect();
        Self { groups, processes, leaving, problems, more_problems }
    }
}

/// How the mover is confined, for `qosm doctor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MoverConfinement {
    /// Its PID, as it sees it.
    pub pid: u32,
    /// Whether `execve` cannot give it privileges (`no_new_privs`).
    pub no_new_privileges: bool,
    /// Number of seccomp filters, 0 in strict mode; `None` without seccomp.
    pub seccomp_filters: Option<u32>,
    /// Effective capabilities, as a bit mask.
    pub capabilities: u64,
    /// The capability bounding set, as a bit mask.
    pub bounding_set: u64,
}

impl MoverConfinement {
    /// Reads the confinement of this process.
    pub(crate) fn read() -> io::Result<Self> {
        let status = Status::read()?;
        Ok(Self {
            pid: std::process::id(),
            no_new_privileges: status.no_new_privileges,
            seccomp_filters: match status.seccomp {
                SeccompMode::Off => None,
                SeccompMode::Strict => Some(0),
                SeccompMode::Filter(count) => Some(count),
            },
            capabilities: status.effective,
            bounding_set: status.bounding,
        })
    }
}

/// [`MigrationProgress`] in the protocol's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    state: String,
    processes: u64,
    processes_done: u64,
    processes_gone: u64,
    pages_found: u64,
    pages_moved: u64,
    pages_failed: Vec<(String, u64)>,
    pages_without_room: u64,
    failures: Vec<(u32, String)>,
    busy_usec: u64,
    why: String,
}

impl From<MigrationLimits> for Limits {
    fn from(limits: MigrationLimits) -> Self {
        Self {
            bytes_per_second: limits.bytes_per_second.0,
            cpu_percent: limits.cpu_percent,
            reserve_bytes: limits.reserve.0,
            pressure_percent: limits.pressure_percent,
        }
    }
}

impl From<Limits> for MigrationLimits {
    fn from(limits: Limits) -> Self {
        Self {
            bytes_per_second: Bytes(limits.bytes_per_second),
            cpu_percent: limits.cpu_percent.clamp(1, 100),
            reserve: Bytes(limits.reserve_bytes),
            pressure_percent: limits.pressure_percent,
        }
    }
}

impl From<MigrationProgress> for Progress {
    fn from(progress: MigrationProgress) -> Self {
        Self {
            state: progress.state.as_str().to_owned(),
            processes: progress.processes,
            processes_done: progress.processes_done,
            processes_gone: progress.processes_gone,
            pages_found: progress.pages_found,
            pages_moved: progress.pages_moved,
            pages_failed: progress.pages_failed.into_iter().map(|(errno, pages)| (errno.to_owned(), pages)).collect(),
            pages_without_room: progress.pages_without_room,
            failures: progress.failures.into_iter().map(|failure| (failure.pid, failure.error)).collect(),
            busy_usec: progress.busy.0,
            why: progress.why,
        }
    }
}

impl Progress {
    /// Converts to the model's type; `None` for an unknown state.
    pub(crate) fn into_model(self, token: u64) -> Option<MigrationProgress> {
        Some(MigrationProgress {
            token,
            state: MigrationState::ALL.into_iter().find(|state| state.as_str() == self.state)?,
            processes: self.processes,
            processes_done: self.processes_done,
            processes_gone: self.processes_gone,
            pages_found: self.pages_found,
            pages_moved: self.pages_moved,
            pages_failed: self.pages_failed.into_iter().map(|(errno, pages)| (known_errno(&errno), pages)).collect(),
            pages_without_room: self.pages_without_room,
            failures: self.failures.into_iter().map(|(pid, error)| ProcessFailure { pid, error }).collect(),
            busy: Micros(self.busy_usec),
            why: self.why,
        })
    }
}

pub(crate) fn numbers(nodes: &[NumaId]) -> Vec<u32> {
    nodes.iter().map(|id| id.0).collect()
}

/// One end of the connection.
pub(crate) struct Channel {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, buffer: vec![0; MAX] }
    }

    /// Sends a message. A closed socket is an error, and so is a message that the other side does not accept within a second.
    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() > MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        loop {
            match send(&self.socket, &text, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.wait(PollFlags::OUT, Duration::from_secs(1))? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The next message, if one arrives within this time.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other side has closed the socket, `InvalidData` for an invalid message.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self, within: Duration) -> io::Result<Option<T>> {
        if !self.wait(PollFlags::IN, within)? {
            return Ok(None);
        }
        match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            // `InvalidData` instead of the parser's kind: a truncated document is not a closed socket.
            Ok((_, length)) => serde_json::from_slice(self.buffer.get(..length).unwrap_or_default())
                .map(Some)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn wait(&self, what: PollFlags, within: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(within).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), what)];
        match poll(&mut polled, Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        (Channel::new(one), Channel::new(other))
    }

    #[test]
    fn what_is_sent_arrives_as_it_was() {
        let (agent, mut mover) = pair();
        let limits = Limits::from(MigrationLimits::default());
        let request =
            Request::Move { id: 7, cgroup: "kubepods/podx/c".to_owned(), from: vec![1], to: vec![0, 2], limits };
        agent.send(&request).unwrap();
        agent.send(&Request::Cancel { id: 7 }).unwrap();
        assert_eq!(mover.receive(Duration::from_secs(1)).unwrap(), Some(request));
        assert_eq!(mover.receive(Duration::from_secs(1)).unwrap(), Some(Request::Cancel { id: 7 }));
        assert_eq!(mover.receive::<Request>(Duration::ZERO).unwrap(), None);
        drop(agent);
        assert_eq!(mover.receive::<Request>(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_came_of_core_groups_is_the_same_on_the_other_side_as_far_as_it_fits() {
        let problem = |why: &str| CoreGroupProblem { cgroup: "kubepods/podx/c".to_owned(), why: why.to_owned() };
        let report =
            CoreGroupReport { groups: 2, processes: 7, leaving: 1, problems: vec![problem("no")], more_problems: 3 };
        let over = |report: &CoreGroupReport| {
            let text = serde_json::to_string(&Event::CoreGroups(report.clone().into())).unwrap();
            assert!(text.len() < MAX);
            match serde_json::from_str(&text).unwrap() {
                Event::CoreGroups(answer) => CoreGroupReport::from(answer),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(over(&report), report);
        let long = "\u{1}".repeat(10_000);
        let many = CoreGroupReport { problems: vec![problem(&long); 3], ..report };
        let arrived = over(&many);
        assert_eq!((arrived.problems.len(), arrived.more_problems), (1, 5));
    }

    #[test]
    fn progress_is_the_same_on_the_other_side() {
        let progress = MigrationProgress {
            token: 3,
            state: MigrationState::Paused,
            processes: 2,
            pages_found: 9,
            pages_moved: 4,
            pages_failed: vec![("EBUSY", 2)],
            failures: vec![ProcessFailure { pid: 5, error: "No such process".to_owned() }],
            busy: Micros(77),
            why: "memory pressure".to_owned(),
            ..MigrationProgress::default()
        };
        let sent: Progress =
            serde_json::from_str(&serde_json::to_string(&Progress::from(progress.clone())).unwrap()).unwrap();
        assert_eq!(sent.clone().into_model(3), Some(progress));
        assert_eq!(Progress { state: "flying".to_owned(), ..sent }.into_model(3), None);
    }

    #[test]
    fn what_is_no_message_is_refused_and_numbers_of_processes_are_not_taken() {
        let (agent, mut mover) = pair();
        for wrong in [
            r#"{"move":{"id":1,"pid":1,"cgroup":"x","from":[],"to":[],"limits":{}}}"#,
            r#"{"exec":{"command":"sh"}}"#,
            "[]",
            "{\"move\":",
            "no JSON",
        ] {
            send(&agent.socket, wrong.as_bytes(), SendFlags::NOSIGNAL).unwrap();
            let error = mover.receive::<Request>(Duration::from_secs(1)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{wrong}: {error}");
        }
    }
}
