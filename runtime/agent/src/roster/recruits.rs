//! A recruiter on a thread of its own: what makes it muster anew, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use qosm_cluster::PolicyModule;
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use tokio::sync::oneshot;

use super::swaps::{Swapped, TakenBack};
use super::{Recruiter, Roster, Running};
use crate::config::PolicyConfig;
use crate::service::Request;
use crate::sources::Sources;

/// What could not be loaded is tried again so often: a file may come late, a compiler may have had no memory.
const TRIED_AGAIN: Duration = Duration::from_secs(60);
/// So much lies between two musters that nobody asked for.
const LEAST_GAP: Duration = Duration::from_secs(1);
/// The agent's own file is looked at so often.
const FILE_LOOKED_AT: Duration = Duration::from_secs(2);

/// What a roster is asked for.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// The PolicyModules.
    pub modules: Vec<PolicyModule>,
    /// Those that are there and cannot be read: what was taken of them goes on.
    pub unread: BTreeSet<String>,
    /// The node that they may select.
    pub node: Node,
}

impl Call {
    /// Statuses come and go; what counts is what people wrote, and the node's labels.
    fn asks_the_same(&self, other: &Self) -> bool {
        let of = |call: &Self| {
            let written = |module: &PolicyModule| {
                let metadata = &module.metadata;
                (metadata.name.clone(), metadata.uid.clone(), metadata.generation, module.spec.clone())
            };
            let modules: Vec<_> = call.modules.iter().map(written).collect();
            (modules, call.unread.clone(), call.node.name.clone(), call.node.labels.clone())
        };
        of(self) == of(other)
    }

    fn names_modules(&self) -> bool {
        !self.modules.is_empty() || !self.unread.is_empty()
    }
}

/// What makes for another roster.
pub enum News {
    /// The sources.
    Call(Box<Call>),
    /// An artefact has come, or was given up for now.
    Fetched,
    /// An operator wants another module for a policy; `None` = the one before. The reply comes before anything is fetched.
    Swap(String, Option<String>, oneshot::Sender<Result<Swapped, String>>),
    /// What runs by now, and versions that failed.
    Runs(BTreeMap<String, Running>, Vec<TakenBack>),
    /// An operator wants what failed of a policy to be tried again.
    Retry(String),
}

/// The agent's own file, as far as it names policies; it may change while the agent runs.
pub struct EntriesFile {
    path: PathBuf,
    read: Box<dyn FnMut() -> Result<Vec<PolicyConfig>, String> + Send>,
    seen: Option<(SystemTime, u64)>,
    problem: Option<Problem>,
}

impl EntriesFile {
    /// A file, and what reads the entries out of it (with what flags say of them).
    pub fn new(path: PathBuf, read: impl FnMut() -> Result<Vec<PolicyConfig>, String> + Send + 'static) -> Self {
        let seen = stamp(&path);
        Self { path, read: Box::new(read), seen, problem: None }
    }

    /// The entries, if the file was changed since the last look. A file that makes no sense changes nothing but the problems.
    fn poll(&mut self) -> Option<Option<Vec<PolicyConfig>>> {
        let now = stamp(&self.path);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        match (self.read)() {
            Ok(entries) => {
                self.problem = None;
                tracing::info!(file = %self.path.display(), policies = entries.len(), "read again");
                Some(Some(entries))
            }
            Err(message) => {
                tracing::warn!(file = %self.path.display(), error = message, "what was read before counts");
                self.problem = Some(Problem {
                    object: format!("file {}", self.path.display()),
                    field: None,
                    message: format!("{message}; what was read before counts"),
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

/// A recruiter on a thread of its own.
pub struct Recruits {
    news: Sender<News>,
}

impl Recruits {
    /// Starts the thread. Each roster is sent to the loop. `begun` says whether the roster of the start was complete.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        recruiter: Recruiter,
        begun: &Roster,
        file: Option<EntriesFile>,
        (news, heard): (Sender<News>, Receiver<News>),
        requests: Sender<Request>,
    ) -> std::io::Result<Self> {
        let again = begun.is_incomplete().then(|| Instant::now() + TRIED_AGAIN);
        let thread = Thread { recruiter, file, requests, last: None, missed: false, again, mustered: None };
        std::thread::Builder::new().name("recruits".to_owned()).spawn(move || thread.run(&heard))?;
        Ok(Self { news })
    }

    /// Asks for the roster of these sources.
    pub(crate) fn call(&self, sources: &Sources) {
        self.send(News::Call(Box::new(Call {
            modules: sources.policy_modules.clone(),
            unread: sources.unread_modules.clone(),
            node: sources.node.clone(),
        })));
    }

    /// Hands on what an operator or the loop has to say.
    pub(crate) fn send(&self, news: News) {
        // A thread that is gone was told of by its panic; what runs goes on.
        self.news.send(news).ok();
    }
}

struct Thread {
    recruiter: Recruiter,
    file: Option<EntriesFile>,
    requests: Sender<Request>,
    /// The newest call. Before the first nothing is known of PolicyModules.
    last: Option<Call>,
    /// Whether something came up before it.
    missed: bool,
    /// When to muster although nothing is new.
    again: Option<Instant>,
    /// When it did last.
    mustered: Option<Instant>,
}

impl Thread {
    fn run(mut self, heard: &Receiver<News>) {
        loop {
            let file = self.file.as_ref().map(|_| Instant::now() + FILE_LOOKED_AT);
            let due = [self.due(), file].into_iter().flatten().min();
            let wait = due.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
            let mut is_new = false;
            match heard.recv_timeout(wait) {
                Ok(first) => {
                    // Of calls that came while a module was compiled the newest counts.
                    for news in std::iter::once(first).chain(heard.try_iter()) {
                        is_new |= self.hear(news);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    is_new = self.due().is_some_and(|at| at <= Instant::now());
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            is_new |= self.look_at_file();
            if is_new && self.muster().is_err() {
                return;
            }
        }
    }

    /// When to muster although nothing is new; never at once again, whatever is overdue.
    fn due(&self) -> Option<Instant> {
        let due = [self.again, self.recruiter.next_due()].into_iter().flatten().min()?;
        Some(self.mustered.map_or(due, |at| due.max(at + LEAST_GAP)))
    }

    /// Whether the roster may be another now.
    fn hear(&mut self, news: News) -> bool {
        match news {
            News::Call(call) => {
                let is_same = match &self.last {
                    Some(last) => last.asks_the_same(&call),
                    // What the agent began with is the roster of a call that names nothing.
                    None => !call.names_modules() && !self.recruiter.remembers_modules(),
                };
                self.last = Some(*call);
                !is_same || std::mem::take(&mut self.missed)
            }
            News::Fetched => true,
            News::Swap(policy, module, reply) => {
                let swapped = self.recruiter.swap(&policy, module, self.last.as_ref());
                let is_new = swapped.is_ok();
                // Whoever asked may be gone; it is swapped all the same.
                reply.send(swapped).ok();
                is_new
            }
            News::Runs(running, failed) => {
                self.recruiter.note_running(running);
                let is_new = !failed.is_empty();
                failed.into_iter().for_each(|one| self.recruiter.take_back(one));
                is_new
            }
            News::Retry(policy) => self.recruiter.forgive(&policy),
        }
    }

    fn look_at_file(&mut self) -> bool {
        let Some(read) = self.file.as_mut().and_then(EntriesFile::poll) else { return false };
        if let Some(entries) = read {
            self.recruiter.replace_entries(entries);
        }
        true
    }

    /// Sends a roster; an error = nobody listens any more.
    fn muster(&mut self) -> Result<(), ()> {
        // Before the sources have said which PolicyModules there are, those that were taken must not look gone.
        self.mustered = Some(Instant::now());
        let Some(call) = &self.last else {
            self.missed = true;
            return Ok(());
        };
        let mut roster = self.recruiter.muster(call);
        roster.problems.extend(self.file.as_ref().and_then(|file| file.problem.clone()));
        self.again = roster.is_incomplete().then(|| Instant::now() + TRIED_AGAIN);
        self.requests.send(Request::Roster(Box::new(roster))).map_err(drop)
    }
}
