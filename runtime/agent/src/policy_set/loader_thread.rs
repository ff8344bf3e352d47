//! The loader's thread: what makes it resolve the policy set again, and when.
#![expect(clippy::disallowed_methods, reason = "a thread of its own that loads modules, and looks when files change")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use qosm_cluster::PolicyModule;
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use tokio::sync::oneshot;

use super::ModuleLoader;
use super::resolved::{PolicySet, RolledBack, Running, Swapped};
use crate::config::PolicyConfig;
use crate::request::Request;
use crate::sources::Sources;

/// Interval at which an entry that could not be loaded is tried again: a file may come late, a compiler may have had no memory.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Shortest time between two resolutions without an event.
const MIN_RESOLVE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the agent's own file is checked for changes.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The part of the sources that determines the policy set.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    /// The PolicyModules.
    pub modules: Vec<PolicyModule>,
    /// Names of PolicyModules that cannot be read: the specification that was applied last is kept.
    pub unread: BTreeSet<String>,
    /// The node that PolicyModules may select.
    pub node: Node,
}

impl Desired {
    /// Compares specifications and the node's labels; statuses do not count.
    fn is_same_as(&self, other: &Self) -> bool {
        let of = |desired: &Self| {
            let written = |module: &PolicyModule| {
                let metadata = &module.metadata;
                (metadata.name.clone(), metadata.uid.clone(), metadata.generation, module.spec.clone())
            };
            let modules: Vec<_> = desired.modules.iter().map(written).collect();
            (modules, desired.unread.clone(), desired.node.name.clone(), desired.node.labels.clone())
        };
        of(self) == of(other)
    }

    fn names_modules(&self) -> bool {
        !self.modules.is_empty() || !self.unread.is_empty()
    }
}

/// Events that may change the policy set.
pub enum LoaderEvent {
    /// The sources have changed.
    Desired(Box<Desired>),
    /// A fetch has ended, successful or not.
    Fetched,
    /// A module that was not ready is compiled, or cannot be compiled.
    Compiled,
    /// `qosm policy swap`; `None` = the previous module. The reply comes before anything is fetched.
    Swap(String, Option<String>, oneshot::Sender<Result<Swapped, String>>),
    /// The running policies, and versions that failed.
    Running(BTreeMap<String, Running>, Vec<RolledBack>),
    /// `qosm policy retry`.
    Retry(String),
}

/// The policies in the agent's own file, which may change while the agent runs.
pub struct EntriesFile {
    path: PathBuf,
    read: Box<dyn FnMut() -> Result<Vec<PolicyConfig>, String> + Send>,
    seen: Option<(SystemTime, u64)>,
    problem: Option<Problem>,
}

impl EntriesFile {
    /// A file, and the function that reads its entries and applies command line flags to them.
    pub fn new(path: PathBuf, read: impl FnMut() -> Result<Vec<PolicyConfig>, String> + Send + 'static) -> Self {
        let seen = stamp(&path);
        Self { path, read: Box::new(read), seen, problem: None }
    }

    /// Reads the file if it has changed since the last poll; `None` = unchanged, `Some(None)` = invalid, which changes only the problems.
    fn poll(&mut self) -> Option<Option<Vec<PolicyConfig>>> {
        let now = stamp(&self.path);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        // A read of a FIFO without a writer would not return, and no policy would change any more.
        let is_other = std::fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file());
        let read = if is_other { Err("it is no regular file".to_owned()) } else { (self.read)() };
        match read {
            Ok(entries) => {
                self.problem = None;
                tracing::info!(file = %self.path.display(), policies = entries.len(), "read again");
                Some(Some(entries))
            }
            Err(message) => {
                tracing::warn!(file = %self.path.display(), error = message, "keeping the last valid file");
                self.problem = Some(Problem {
                    object: format!("file {}", self.path.display()),
                    field: None,
                    message: format!("{message}; keeping the last valid file"),
                });
                Some(None)
            }
        }
    }
}

fn stamp(path: &std::path::Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Handle that sends events to the loader's thread.
pub struct LoaderHandle {
    events: Sender<LoaderEvent>,
}

impl LoaderHandle {
    /// Starts the thread, which sends each policy set to the loop. An entry of `begun` that could not be loaded is tried again.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        loader: ModuleLoader,
        begun: &PolicySet,
        file: Option<EntriesFile>,
        (sender, events): (Sender<LoaderEvent>, Receiver<LoaderEvent>),
        requests: Sender<Request>,
    ) -> std::io::Result<Self> {
        let again = begun.is_incomplete().then(|| Instant::now() + RETRY_INTERVAL);
        let thread =
            LoaderThread { loader, file, requests, desired: None, is_deferred: false, again, resolved_at: None };
        std::thread::Builder::new().name("loader".to_owned()).spawn(move || thread.run(&events))?;
        Ok(Self { events: sender })
    }

    /// Asks for the policy set of these sources.
    pub(crate) fn resolve(&self, sources: &Sources) {
        self.send(LoaderEvent::Desired(Box::new(Desired {
            modules: sources.policy_modules.clone(),
            unread: sources.unread_modules.clone(),
            node: sources.node.clone(),
        })));
    }

    /// Sends an event of an operator or of the loop.
    pub(crate) fn send(&self, event: LoaderEvent) {
        // A thread that is gone has panicked, which was logged; the running policies continue.
        self.events.send(event).ok();
    }
}

struct LoaderThread {
    loader: ModuleLoader,
    file: Option<EntriesFile>,
    requests: Sender<Request>,
    /// The newest request; `None` = no PolicyModules are known yet.
    desired: Option<Desired>,
    /// Whether an event arrived before the first request.
    is_deferred: bool,
    /// When to resolve without an event.
    again: Option<Instant>,
    /// When the set was resolved last.
    resolved_at: Option<Instant>,
}

impl LoaderThread {
    fn run(mut self, events: &Receiver<LoaderEvent>) {
        loop {
            let file = self.file.as_ref().map(|_| Instant::now() + FILE_POLL_INTERVAL);
            let due = [self.due(), file].into_iter().flatten().min();
            let wait = due.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let mut is_new = false;
            match events.recv_timeout(wait) {
                Ok(first) => {
                    // Of the requests that arrived during the last resolution, only the newest counts.
                    for event in std::iter::once(first).chain(events.try_iter()) {
                        is_new |= self.receive(event);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    is_new = self.due().is_some_and(|at| at <= Instant::now());
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            is_new |= self.poll_file();
            if is_new && self.resolve().is_err() {
                return;
            }
        }
    }

    /// When to resolve without an event: `MIN_RESOLVE_INTERVAL` after the last resolution or later, even if something is overdue.
    fn due(&self) -> Option<Instant> {
        let due = [self.again, self.loader.next_due()].into_iter().flatten().min()?;
        Some(self.resolved_at.map_or(due, |at| due.max(at + MIN_RESOLVE_INTERVAL)))
    }

    /// Handles an event. Returns whether the policy set may change.
    fn receive(&mut self, event: LoaderEvent) -> bool {
        match event {
            LoaderEvent::Desired(desired) => {
                let is_same = match &self.desired {
                    Some(last) => last.is_same_as(&desired),
                    // The initial set is already that of sources without PolicyModules.
                    None => !desired.names_modules() && !self.loader.remembers_modules(),
                };
                self.desired = Some(*desired);
                !is_same || std::mem::take(&mut self.is_deferred)
            }
            LoaderEvent::Fetched | LoaderEvent::Compiled => true,
            LoaderEvent::Swap(policy, module, reply) => {
                let swapped = self.loader.swap(&policy, module, self.desired.as_ref());
                let is_new = swapped.is_ok();
                // The requester may be gone; the swap counts all the same.
                reply.send(swapped).ok();
                is_new
            }
            LoaderEvent::Running(running, failed) => {
                self.loader.note_running(running);
                let is_new = !failed.is_empty();
                failed.into_iter().for_each(|one| self.loader.roll_back(one));
                is_new
            }
            LoaderEvent::Retry(policy) => self.loader.clear_rollback(&policy),
        }
    }

    fn poll_file(&mut self) -> bool {
        let Some(read) = self.file.as_mut().and_then(EntriesFile::poll) else { return false };
        if let Some(entries) = read {
            self.loader.replace_entries(entries);
        }
        true
    }

    /// Resolves a set and sends it to the loop. Returns an error if the loop has ended.
    fn resolve(&mut self) -> Result<(), ()> {
        // Before the sources have named the PolicyModules, those that were applied must not look deleted.
        self.resolved_at = Some(Instant::now());
        let Some(desired) = &self.desired else {
            self.is_deferred = true;
            return Ok(());
        };
        let mut set = self.loader.resolve(desired);
        set.problems.extend(self.file.as_ref().and_then(|file| file.problem.clone()));
        self.again = set.is_incomplete().then(|| Instant::now() + RETRY_INTERVAL);
        self.requests.send(Request::PolicySet(Box::new(set))).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_fifo_replaces_is_a_problem_and_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.yaml");
        std::fs::write(&path, "policies: []\n").unwrap();
        let mut file = EntriesFile::new(path.clone(), || unreachable!("the FIFO is read"));
        assert!(file.poll().is_none());
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert!(matches!(file.poll(), Some(None)));
        let problem = file.problem.unwrap();
        assert_eq!(problem.object, format!("file {}", path.display()));
        assert_eq!(problem.message, "it is no regular file; keeping the last valid file");
    }
}
