//! The running agent: a clock, the sources, requests from outside, and the loop between them.
//!
//! The agent does nothing before the sources have arrived and the policies that they name are loaded: an agent that does not know all
//! pods yet would take those of an earlier run for deleted.
#![expect(clippy::disallowed_methods, reason = "the service: the agent's clock and its waits are here")]

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qosm_cluster::Source;
use qosm_model::lease::Timestamp;
use qosm_model::problem::chain;
use qosm_model::unit::Micros;

use crate::agent::Agent;
use crate::ending::{LeftBehind, end};
use crate::journal::JournalError;
use crate::now::Now;
use crate::nri::RuntimeMessage;
use crate::policy_set::{LoaderEvent, LoaderHandle};
use crate::record::Recorder;
use crate::sources::Sources;

pub use crate::request::Request;

/// The loop ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The journal of an agent that ends before it has begun cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Not everything could be restored at the end.
    #[error("{0}; put it back with `qosm restore`, once these causes are removed")]
    LeftBehind(LeftBehind),
}

/// Shortest interval between two updates of the node's report. The outbox decides when it is written.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest time between two ticks.
const MIN_TICK: Duration = Duration::from_millis(1);

/// Delay after which an agent that still waits for its sources reports so.
const WAITING_REPORT_DELAY: Duration = Duration::from_secs(30);

/// Runs the loop until it receives [`Request::ShutDown`].
///
/// # Errors
///
/// [`ServiceError::LeftBehind`] when not all baselines could be restored at the end.
pub fn run(
    mut agent: Agent,
    mut source: impl Source,
    loader: Option<&LoaderHandle>,
    tick: Duration,
    requests: &Receiver<Request>,
) -> Result<(), ServiceError> {
    let clock = Instant::now();
    let mut recorders: Vec<Recorder> = Vec::new();
    let (mut next, mut next_report) = (clock, clock);
    let mut policy_set = Awaited::Unneeded;
    let mut announced: Vec<RuntimeMessage> = Vec::new();
    agent.wait_for(source.waits_for());
    loop {
        let mut now = read(clock);
        // Alarms come between two ticks and do not move them.
        let is_tick = Instant::now() >= next;
        if is_tick {
            // Missed ticks are skipped; later ones keep their pace.
            let mut meant = next;
            while next <= Instant::now() {
                meant = next;
                next += tick.max(MIN_TICK);
            }
            let meant = Micros(u64::try_from((meant - clock).as_micros()).unwrap_or(u64::MAX));
            now.late = Micros(now.monotonic.0.saturating_sub(meant.0));
        }
        // Read before the poll: a snapshot that arrives in between must not look like an empty node.
        let awaited = source.waits_for();
        if let Some(snapshot) = source.poll() {
            let sources = Sources::from(snapshot);
            if let Some(loader) = loader {
                loader.resolve(&sources);
                if sources.names_modules() || policy_set != Awaited::Unneeded {
                    // Policies that run already do not wait for new ones.
                    policy_set = policy_set.max(if agent.ticks() == 0 { Awaited::Missing } else { Awaited::Arrived });
                }
            }
            agent.update(sources, now);
            recorders.iter_mut().for_each(|recorder| recorder.sources(&agent));
        }
        // The runtime holds these containers back until the next step has given them their settings.
        let starting: Vec<_> =
            announced.drain(..).filter_map(|message| agent.take_runtime_message(message, now)).collect();
        if !starting.is_empty() {
            recorders.iter_mut().for_each(|recorder| recorder.sources(&agent));
        }
        let missing = (policy_set == Awaited::Missing).then(|| "the modules of the PolicyModules".to_owned());
        let awaited = awaited.or(missing);
        let is_ready = awaited.is_none();
        agent.wait_for(awaited);
        if is_ready {
            let step = if is_tick { agent.step(now) } else { agent.react(now) };
            recorders.retain_mut(|recorder| recorder.step(&agent, &step, now));
        }
        drop(starting);
        if let Some(loader) = loader
            && let Some((running, failed)) = agent.take_version_changes()
        {
            loader.send(LoaderEvent::Running(running, failed));
        }
        // A waiting agent is reported only once it has waited for long: a report without resources takes them off the Node.
        let is_telling = is_ready && !agent.awaits_publishers() || clock.elapsed() > WAITING_REPORT_DELAY;
        if is_telling && Instant::now() >= next_report {
            next_report = Instant::now() + REPORT_INTERVAL;
            agent.report_node(now);
        }
        loop {
            let alarm = agent.next_alarm(read(clock)).map(|due| clock + Duration::from_micros(due.0));
            let mut wait = alarm.map_or(next, |due| due.min(next)).saturating_duration_since(Instant::now());
            if !announced.is_empty() {
                wait = Duration::ZERO;
            }
            match requests.recv_timeout(wait) {
                Ok(Request::ShutDown { restore, reply }) => {
                    if restore {
                        // `qosm restore` ignores pauses; an uninstall does not.
                        if reply.is_some() {
                            agent.end_pauses();
                        }
                        agent.restore_at_the_end();
                    }
                    let before = agent.restorable();
                    let ended = end(&mut agent, || read(clock));
                    agent.send_final_report(read(clock));
                    if let Some(reply) = reply {
                        let _ = reply.send(agent.restored(before));
                    }
                    return ended;
                }
                Ok(Request::Record(lines)) => {
                    if let Some(recorder) = Recorder::start(&agent, lines, read(clock)) {
                        recorders.push(recorder);
                    }
                }
                // The next iteration reads the cause.
                Ok(Request::Woken) => {
                    if source.has_changes() {
                        break;
                    }
                }
                // A source may know the container's pod by now, so sources are polled first. One step serves all containers that wait.
                Ok(Request::Runtime(message)) if message.is_start() => announced.push(message),
                Ok(Request::Runtime(message)) if message.asks_for_a_step() => break,
                Ok(Request::Runtime(message)) => {
                    drop(agent.take_runtime_message(message, read(clock)));
                    recorders.iter_mut().for_each(|recorder| recorder.sources(&agent));
                }
                Ok(Request::PolicySet(newest)) => {
                    agent.apply_policy_set(*newest, read(clock));
                    if policy_set == Awaited::Missing {
                        policy_set = Awaited::Arrived;
                    }
                    next_report = Instant::now();
                    break;
                }
                Ok(Request::Swap(policy, module, reply)) => match loader {
                    Some(loader) => loader.send(LoaderEvent::Swap(policy, module, reply)),
                    None => drop(reply),
                },
                Ok(Request::Retry(policy, reply)) => {
                    if let Some(loader) = loader {
                        loader.send(LoaderEvent::Retry(policy.clone()));
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

/// State of the policy set from the [`LoaderHandle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Awaited {
    /// No source names a module: the policies are those given at the start.
    Unneeded,
    /// The first policy set was requested and has not arrived.
    Missing,
    /// A policy set has arrived; a newer one replaces it.
    Arrived,
}

fn read(clock: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Now {
        wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)),
        monotonic: Micros(u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)),
        uptime: uptime(),
        late: Micros(0),
    }
}

/// Time since boot, including the time suspended.
fn uptime() -> Option<Micros> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    Some(Micros(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1_000)))
}

/// Answers a query. A client that left is ignored.
fn answer(agent: &mut Agent, request: Request, now: Now) {
    match request {
        Request::Pods(reply) => drop(reply.send(agent.pod_reports(now))),
        Request::Usage(reply) => drop(reply.send(agent.usage(now))),
        Request::Policies(reply) => drop(reply.send(agent.policy_reports())),
        Request::Knobs(reply) => drop(reply.send((agent.knobs(), agent.refusals(), agent.remarks_above_pods()))),
        Request::Resources(reply) => drop(reply.send(agent.resource_reports())),
        Request::Evictions(reply) => drop(reply.send(agent.eviction_reports())),
        Request::Classes(reply) => drop(reply.send(agent.class_reports())),
        Request::Events(reply) => drop(reply.send(agent.event_reports())),
        Request::Problems(reply) => {
            drop(reply.send(
                agent.problems().into_iter().chain(agent.missing_features()).chain(agent.refused_acts()).collect(),
            ));
        }
        Request::Confinement(reply) => drop(reply.send(agent.confinement())),
        Request::Explain(pod, reply) => drop(reply.send(agent.explain(&pod, now))),
        Request::Diff(policy, reply) => drop(reply.send(agent.diff(&policy))),
        Request::Pause(pod, until, reply) => {
            drop(reply.send(agent.set_pause(&pod, until, now).map_err(|error| chain(&error))));
        }
        Request::Restorable(reply) => {
            drop(reply.send(agent.restorable()));
        }
        Request::Health(reply) => drop(reply.send(agent.readiness())),
        Request::RuntimeLink(reply) => drop(reply.send(agent.runtime_link())),
        Request::Woken
        | Request::PolicySet(_)
        | Request::Record(_)
        | Request::Retry(..)
        | Request::Runtime(_)
        | Request::Swap(..)
        | Request::ShutDown { .. } => {}
    }
}
