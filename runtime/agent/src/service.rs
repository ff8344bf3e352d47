//! The running agent: a clock, the sources, requests from outside, and the loop between them.
//!
//! Nothing is done before the sources have arrived and the policies that they name are loaded: to an agent that does not know all
//! pods yet, those of an earlier run would look gone.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qosm_cluster::Source;
use qosm_model::lease::Timestamp;
use qosm_model::problem::chain;
use qosm_model::unit::Micros;
use tokio::sync::oneshot;

use crate::agent::Agent;
use crate::event::AgentEvent;
use crate::journal::JournalError;
use crate::policy::Now;
use crate::record::Recorder;
use crate::report::{ClassReport, DiffReport, Explanation, KnobReport, PodReport, PolicyReport, RefusalReport};
use crate::restore::Restored;
use crate::roster::{News, Recruits, Roster, Swapped};
use crate::sources::Sources;

/// What can be asked of a running agent. The list is closed: with the tick and the sources it is all that drives the loop.
pub enum Request {
    /// All pods.
    Pods(oneshot::Sender<Vec<PodReport>>),
    /// All policies.
    Policies(oneshot::Sender<Vec<PolicyReport>>),
    /// All held knobs, and all settings that are not in force.
    Knobs(oneshot::Sender<(Vec<KnobReport>, Vec<RefusalReport>)>),
    /// All classes of shares.
    Classes(oneshot::Sender<Vec<ClassReport>>),
    /// All events.
    Events(oneshot::Sender<Vec<AgentEvent>>),
    /// What is wrong with what was written.
    Problems(oneshot::Sender<Vec<String>>),
    /// All about one pod.
    Explain(String, oneshot::Sender<Option<Explanation>>),
    /// How a shadow would do otherwise, or why that cannot be told.
    Diff(String, oneshot::Sender<Result<DiffReport, String>>),
    /// Hold a pod (until a moment, or until lifted), or lift the hold (`None`). `false` = there is no such pod now.
    Hold(String, Option<Option<Timestamp>>, oneshot::Sender<Result<bool, String>>),
    /// Try a parked policy again. `false` = there is none of that name.
    Retry(String, oneshot::Sender<bool>),
    /// Send a recording, line by line, until the receiver is dropped or no longer keeps up.
    Record(SyncSender<String>),
    /// What a restore would put back.
    Restorable(oneshot::Sender<Vec<Restored>>),
    /// A trigger fired (see [`Agent::start_alarms`]), or a source has something new.
    Woken,
    /// Run another module for a policy; `None` = the one before. The reply comes before anything is fetched.
    Swap(String, Option<String>, oneshot::Sender<Result<Swapped, String>>),
    /// The policies that the PolicyModules come to.
    Roster(Box<Roster>),
    /// Whether the agent does its work.
    Health(oneshot::Sender<Result<(), String>>),
    /// End, and restore or keep as configured; `Some(true)` = restore whatever the configuration says.
    ShutDown {
        /// Restore even if the configuration says to keep.
        restore: bool,
        /// Told what became of each knob that was held.
        reply: Option<oneshot::Sender<Vec<Restored>>>,
    },
}

/// The loop could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The journal failed at the end.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// How often the fleet is told of what has changed, at most; what of it is written when is the outbox's business.
const REPORTED_EVERY: Duration = Duration::from_secs(5);

/// Less is no pace.
const LEAST_TICK: Duration = Duration::from_millis(1);

/// The fleet is told of an agent that has nothing to work on yet after so long.
const TOLD_OF_WAITING: Duration = Duration::from_secs(30);

/// Runs the loop until it is asked to end.
///
/// # Errors
///
/// [`ServiceError::Journal`] when baselines were restored at the end but the journal could not be brought up to date.
pub fn run(
    mut agent: Agent,
    mut source: impl Source,
    recruits: Option<&Recruits>,
    tick: Duration,
    requests: &Receiver<Request>,
) -> Result<(), ServiceError> {
    let clock = Instant::now();
    let mut recorders: Vec<Recorder> = Vec::new();
    let (mut next, mut next_report) = (clock, clock);
    let mut roster = Awaited::Unneeded;
    agent.waits_for = source.waits_for();
    loop {
        let mut now = read(clock);
        // An alarm comes between two ticks and does not move them.
        let is_tick = Instant::now() >= next;
        if is_tick {
            // Ticks that were missed are not made up for, and those to come keep their pace.
            let mut meant = next;
            while next <= Instant::now() {
                meant = next;
                next += tick.max(LEAST_TICK);
            }
            let meant = Micros(u64::try_from((meant - clock).as_micros()).unwrap_or(u64::MAX));
            now.late = Micros(now.monotonic.0.saturating_sub(meant.0));
        }
        // Asked first: what arrives between the two questions must not look like an empty node.
        let awaited = source.waits_for();
        if let Some(snapshot) = source.poll() {
            let sources = Sources::from(snapshot);
            if let Some(recruits) = recruits {
                recruits.call(&sources);
                if sources.names_modules() || roster != Awaited::Unneeded {
                    // Policies that run already do not wait for those that come.
                    roster = roster.max(if agent.ticks == 0 { Awaited::Missing } else { Awaited::Arrived });
                }
            }
            agent.update(sources, now);
            recorders.retain_mut(|recorder| recorder.sources(&agent));
        }
        let missing = (roster == Awaited::Missing).then(|| "the modules of the PolicyModules".to_owned());
        agent.waits_for = awaited.or(missing);
        if agent.waits_for.is_none() {
            let step = if is_tick { agent.step(now) } else { agent.react(now) };
            recorders.retain_mut(|recorder| recorder.step(&agent, &step, now));
        }
        if let Some(recruits) = recruits
            && let Some((running, failed)) = agent.news_of_versions()
        {
            recruits.send(News::Runs(running, failed));
        }
        // What is still empty is no news, unless it stays so.
        let is_telling = agent.waits_for.is_none() || clock.elapsed() > TOLD_OF_WAITING;
        if is_telling && Instant::now() >= next_report {
            next_report = Instant::now() + REPORTED_EVERY;
            agent.report(now);
        }
        loop {
            let alarm = agent.next_alarm(read(clock)).map(|due| clock + Duration::from_micros(due.0));
            let wait = alarm.map_or(next, |due| due.min(next)).saturating_duration_since(Instant::now());
            match requests.recv_timeout(wait) {
                Ok(Request::ShutDown { restore, reply }) => {
                    if restore {
                        // Whoever asks for a restore means all of it; an uninstall leaves pods on hold alone.
                        if reply.is_some() {
                            agent.lift_holds();
                        }
                        agent.config.on_shutdown = crate::config::OnShutdown::Restore;
                    }
                    let before = agent.restorable();
                    let step = agent.shut_down(read(clock))?;
                    tracing::info!(restored = step.decisions.len(), refused = step.refused.len(), "agent ends");
                    agent.say_farewell(read(clock));
                    if let Some(reply) = reply {
                        let _ = reply.send(agent.restored(before));
                    }
                    return Ok(());
                }
                Ok(Request::Record(lines)) => {
                    if let Some(recorder) = Recorder::start(&agent, lines, read(clock)) {
                        recorders.push(recorder);
                    }
                }
                // What it was is asked at the top of this loop.
                Ok(Request::Woken) => {
                    if source.has_news() {
                        break;
                    }
                }
                Ok(Request::Roster(newest)) => {
                    agent.enlist(*newest, read(clock));
                    if roster == Awaited::Missing {
                        roster = Awaited::Arrived;
                    }
                    next_report = Instant::now();
                    break;
                }
                Ok(Request::Swap(policy, module, reply)) => match recruits {
                    Some(recruits) => recruits.send(News::Swap(policy, module, reply)),
                    None => drop(reply),
                },
                Ok(Request::Retry(policy, reply)) => {
                    if let Some(recruits) = recruits {
                        recruits.send(News::Retry(policy.clone()));
                    }
                    reply.send(agent.retry(&policy)).ok();
                }
                Ok(request) => answer(&mut agent, request, read(clock)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(wait);
                    break;
                }
            }
        }
    }
}

/// A roster from the [`Recruits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// No source names a module: the policies are those of the start.
    Unneeded,
    /// The first was asked for.
    Missing,
    /// There is one; a newer one replaces it when it comes.
    Arrived,
}

fn read(clock: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Now {
        wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)),
        monotonic: Micros(u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)),
        late: Micros(0),
    }
}

/// Answers what only needs an answer. A requester who did not wait for it is no concern of ours.
fn answer(agent: &mut Agent, request: Request, now: Now) {
    match request {
        Request::Pods(reply) => drop(reply.send(agent.pod_reports(now))),
        Request::Policies(reply) => drop(reply.send(agent.policy_reports())),
        Request::Knobs(reply) => drop(reply.send((agent.knobs(), agent.refusals()))),
        Request::Classes(reply) => drop(reply.send(agent.class_reports())),
        Request::Events(reply) => drop(reply.send(agent.event_reports())),
        Request::Problems(reply) => drop(reply.send(agent.problems())),
        Request::Explain(pod, reply) => drop(reply.send(agent.explain(&pod, now))),
        Request::Diff(policy, reply) => drop(reply.send(agent.diff(&policy))),
        Request::Hold(pod, hold, reply) => {
            drop(reply.send(agent.set_hold(&pod, hold, now).map_err(|error| chain(&error))));
        }
        Request::Restorable(reply) => {
            drop(reply.send(agent.restorable().into_iter().map(|(.., restored)| restored).collect()));
        }
        Request::Health(reply) => drop(reply.send(agent.readiness())),
        Request::Woken
        | Request::Roster(_)
        | Request::Record(_)
        | Request::Retry(..)
        | Request::Swap(..)
        | Request::ShutDown { .. } => {}
    }
}
