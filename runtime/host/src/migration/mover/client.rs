//! The agent's side: a thread that sends requests and records progress. The loop never waits for it. If the mover ends,
//! a request stays pending until a mover answers it, it is cancelled, or no further mover can start.
#![expect(
    clippy::disallowed_methods,
    reason = "a thread of its own that reads from the page mover, and starts it again later each time"
)]

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use qosm_model::numa::{MigrationProgress, MigrationState};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::protocol::{Channel, Event, Request, VERSION, numbers};
use super::{MoverAddress, MoverState, Shared};
use crate::core_scheduling::CoreGroupReport;
use crate::migration::job::{Job, Run};

/// Interval at which events and requests are handled while a migration is under way.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval while no request is pending.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Initial pause between attempts to reach the mover, doubled each time up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// Requests from the loop to the thread.
enum Asked {
    Move(Job, Arc<Run>),
    CoreGroups,
}

/// The last answer about core scheduling groups that the loop has not taken yet.
type Answer = Arc<Mutex<Option<CoreGroupReport>>>;

/// The loop's handle on the thread.
pub(crate) struct Client {
    /// `None` if there is no mover and never will be.
    queue: Option<Sender<Asked>>,
    state: Shared,
    answer: Answer,
}

impl Client {
    pub(crate) fn start(address: MoverAddress) -> io::Result<Self> {
        if let MoverAddress::Absent(why) = address {
            return Ok(Self { queue: None, state: Shared::new(MoverState::Away(why)), answer: Answer::default() });
        }
        let (sender, queue) = mpsc::channel();
        let state = Shared::new(MoverState::Away("it has not answered yet".to_owned()));
        let link = Link {
            address,
            state: state.clone(),
            channel: None,
            pending: BTreeMap::new(),
            next: 0,
            retry: FIRST_RETRY,
            due: None,
            core_groups: CoreGroups::Idle,
            answer: Answer::default(),
        };
        let answer = Arc::clone(&link.answer);
        std::thread::Builder::new().name("qosm-mover".to_owned()).spawn(move || link.run(&queue))?;
        Ok(Self { queue: Some(sender), state, answer })
    }

    pub(crate) fn add(&self, job: Job, run: Arc<Run>) -> io::Result<()> {
        match (&self.queue, self.state()) {
            (Some(queue), _) => queue.send(Asked::Move(job, run)).map_err(|_| io::ErrorKind::BrokenPipe.into()),
            (None, MoverState::Away(why)) => {
                fail(&run, &why);
                Ok(())
            }
            (None, MoverState::Ready(_)) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    pub(crate) fn state(&self) -> MoverState {
        self.state.get()
    }

    /// Why there is no mover and never will be; `None` if there may be one.
    pub(crate) fn absent(&self) -> Option<String> {
        match (&self.queue, self.state()) {
            (None, MoverState::Away(why)) => Some(why),
            _ => None,
        }
    }

    /// Requests that processes are moved to their core scheduling groups. Returns `false` if there is no mover for it.
    pub(crate) fn reconcile_core_groups(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.send(Asked::CoreGroups).is_ok())
    }

    /// Takes the answer to the last request, if there is a new one.
    pub(crate) fn take_core_groups(&self) -> Option<CoreGroupReport> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// State of a request about core scheduling groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreGroups {
    /// No request.
    Idle,
    /// Not yet sent to the current mover.
    Asked,
    /// Sent to the current mover.
    Sent,
}

/// A migration request that has not ended.
struct Pending {
    request: Request,
    run: Arc<Run>,
    token: u64,
    /// The request was sent to the current mover.
    sent: bool,
    cancel_sent: bool,
    /// Progress by earlier movers.
    before: MigrationProgress,
}

struct Link {
    address: MoverAddress,
    state: Shared,
    channel: Option<Channel>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    retry: Duration,
    /// Time of the next attempt to connect.
    due: Option<Instant>,
    core_groups: CoreGroups,
    answer: Answer,
}

impl Link {
    /// Runs until the host is dropped.
    fn run(mut self, queue: &Receiver<Asked>) {
        loop {
            let is_idle = self.pending.is_empty() && self.core_groups == CoreGroups::Idle;
            let timeout = if is_idle { IDLE_POLL_INTERVAL } else { POLL_INTERVAL };
            match queue.recv_timeout(timeout) {
                Ok(asked) => {
                    self.take(asked);
                    while let Ok(asked) = queue.try_recv() {
                        self.take(asked);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.poll();
        }
    }

    fn take(&mut self, asked: Asked) {
        let Asked::Move(job, run) = asked else {
            self.core_groups = CoreGroups::Asked;
            return;
        };
        let id = self.next;
        self.next += 1;
        let request = Request::Move {
            id,
            cgroup: job.cgroup,
            from: numbers(&job.from),
            to: numbers(&job.to),
            limits: job.limits.into(),
        };
        let token = run.progress().token;
        let before = MigrationProgress { token, ..MigrationProgress::default() };
        self.pending.insert(id, Pending { request, run, token, sent: false, cancel_sent: false, before });
    }

    fn poll(&mut self) {
        self.reconnect();
        while let Some(channel) = &mut self.channel {
            match channel.receive::<Event>(Duration::ZERO) {
                Ok(Some(event)) => self.event(event),
                Ok(None) => break,
                Err(error) => self.disconnect(&error),
            }
        }
        self.send_requests();
    }

    /// Connects, if there is no connection and a retry is due.
    fn reconnect(&mut self) {
        if self.channel.is_some() || self.due.is_some_and(|due| Instant::now() < due) {
            return;
        }
        let gone = MoverAddress::Absent("it has ended; restart the agent to have another".to_owned());
        let reached = match std::mem::replace(&mut self.address, gone) {
            MoverAddress::Connected(socket) => Ok(Channel::new(socket)),
            MoverAddress::Listening(path) => {
                let connected = connect_to(&path).map_err(|error| format!("no answer at {}: {error}", path.display()));
                self.address = MoverAddress::Listening(path);
                connected
            }
            MoverAddress::Absent(why) => {
                self.address = MoverAddress::Absent(why.clone());
                Err(why)
            }
        };
        match reached {
            Ok(channel) => self.channel = Some(channel),
            Err(why) => self.away(why),
        }
    }

    /// Records that the mover is away. Pending requests wait for the next mover; without one, they fail.
    fn away(&mut self, why: String) {
        self.due = Some(Instant::now() + self.retry);
        self.retry = (self.retry * 2).min(MAX_RETRY);
        if self.state.get() != MoverState::Away(why.clone()) {
            tracing::warn!(why, "the page mover is away");
            self.state.set(MoverState::Away(why.clone()));
        }
        self.pause_pending(&why);
    }

    fn pause_pending(&mut self, why: &str) {
        if self.core_groups == CoreGroups::Sent {
            self.core_groups = CoreGroups::Asked;
        }
        if self.channel.is_none() && matches!(self.address, MoverAddress::Absent(_)) {
            for (_, pending) in std::mem::take(&mut self.pending) {
                if pending.run.is_cancelled() {
                    pending.run.end(MigrationState::Stopped, String::new());
                } else {
                    fail(&pending.run, why);
                }
            }
            return;
        }
        for pending in self.pending.values_mut() {
            if std::mem::take(&mut pending.sent) {
                pending.before = pending.run.progress();
            }
            pending.cancel_sent = false;
            pending.run.update(|progress| {
                if !progress.state.has_ended() {
                    progress.state = MigrationState::Paused;
                    progress.why = format!("the page mover is away: {why}");
                }
            });
        }
    }

    fn disconnect(&mut self, error: &io::Error) {
        self.channel = None;
        let why = match &self.address {
            MoverAddress::Absent(why) => why.clone(),
            _ => format!("the connection has ended: {error}"),
        };
        self.away(why);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Hello { version, .. } if version != VERSION => {
                self.channel = None;
                self.away(format!(
                    "it speaks version {version} of the protocol, the agent {VERSION}: install both from one release"
                ));
            }
            Event::Hello { confinement, .. } => {
                self.retry = FIRST_RETRY;
                self.due = None;
                tracing::info!(pid = confinement.pid, "the page mover is ready");
                self.pause_pending("it has just started");
                self.state.set(MoverState::Ready(confinement));
            }
            Event::Progress { id, progress } => {
                let Some(pending) = self.pending.get(&id).filter(|pending| pending.sent) else { return };
                let Some(progress) = progress.into_model(pending.token) else { return };
                let has_ended = progress.state.has_ended();
                let all = total(&pending.before, progress);
                pending.run.update(|known| *known = all);
                if has_ended {
                    self.pending.remove(&id);
                }
            }
            Event::CoreGroups(answer) => {
                if self.core_groups == CoreGroups::Sent {
                    self.core_groups = CoreGroups::Idle;
                    *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer.into());
                }
            }
            Event::Ended { why, seconds } => {
                let why = format!("it has ended ({why}); another starts in {seconds} s");
                tracing::warn!(why, "the page mover is away");
                self.state.set(MoverState::Away(why.clone()));
                self.pause_pending(&why);
            }
        }
    }

    /// Sends all requests that the mover does not know yet.
    fn send_requests(&mut self) {
        let is_ready = matches!(self.state.get(), MoverState::Ready(_));
        let channel = self.channel.as_ref().filter(|_| is_ready);
        let mut failure = None;
        if let Some(channel) = channel.filter(|_| self.core_groups == CoreGroups::Asked) {
            self.core_groups = CoreGroups::Sent;
            failure = channel.send(&Request::CoreGroups).err();
        }
        self.pending.retain(|&id, pending| {
            if pending.run.is_cancelled() && !(pending.sent && channel.is_some()) {
                pending.run.end(MigrationState::Stopped, String::new());
                return false;
            }
            let Some(channel) = channel.filter(|_| failure.is_none()) else { return true };
            let sent = if pending.run.is_cancelled() && !pending.cancel_sent {
                pending.cancel_sent = true;
                channel.send(&Request::Cancel { id })
            } else if pending.sent {
                return true;
            } else {
                pending.sent = true;
                pending.run.update(|progress| {
                    progress.state = MigrationState::Waiting;
                    progress.why = String::new();
                });
                channel.send(&pending.request)
            };
            failure = sent.err();
            true
        });
        if let Some(error) = failure {
            self.disconnect(&error);
        }
        if self.channel.is_none() || !is_ready {
            let why = match self.state.get() {
                MoverState::Away(why) => why,
                MoverState::Ready(_) => return,
            };
            self.pause_pending(&why);
        }
    }
}

/// Ends a run as failed, since there is no page mover and never will be.
fn fail(run: &Run, why: &str) {
    run.end(MigrationState::Failed, format!("there is no page mover: {why}"));
}

/// Sums the progress before and after a restart of the mover.
fn total(before: &MigrationProgress, mut now: MigrationProgress) -> MigrationProgress {
    now.pages_moved = now.pages_moved.saturating_add(before.pages_moved);
    // The new mover only finds pages that are left; pages moved earlier are in place.
    now.pages_found = now.pages_found.saturating_add(before.pages_moved);
    now.busy.0 = now.busy.0.saturating_add(before.busy.0);
    now
}

fn connect_to(path: &Path) -> io::Result<Channel> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(Channel::new(socket))
}

#[cfg(test)]
mod tests;
