//! The end of a running agent: held knobs are restored, retried if the kernel refuses, and reported if they stay.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use qosm_host::Host;
use qosm_model::lease::Timestamp;
use qosm_model::problem::chain;

use crate::agent::Agent;
use crate::config::AgentConfig;
use crate::journal::Journal;
use crate::ledger::is_paused;
use crate::now::Now;
use crate::restore::{Patience, Removal, remove_created, restore_some};
use crate::restored::{RESTORED, Restored, UNDER_WAY};
use crate::service::ServiceError;

/// Time between two checks whether a slow write has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Time within which the page mover must take processes out of their core scheduling groups.
const CORE_GROUPS: Duration = Duration::from_secs(5);

/// Knobs and groups that an agent could not restore at its end.
#[derive(Debug, Default)]
pub struct LeftBehind {
    /// Knobs that do not hold their baseline.
    pub knobs: Vec<Restored>,
    /// Why groups of resctrl could not be removed, or processes are still in core scheduling groups.
    pub groups: Option<String>,
}

impl LeftBehind {
    /// Whether nothing is left behind.
    pub fn is_empty(&self) -> bool {
        self.knobs.is_empty() && self.groups.is_none()
    }

    /// Logs each knob that is left behind, and returns an error if anything is.
    fn into_result(self) -> Result<(), ServiceError> {
        for row in &self.knobs {
            let why = row.why.as_deref().unwrap_or_default();
            tracing::error!(knob = row.knob, cgroup = row.cgroup, baseline = %row.value, why, "knob not put back");
        }
        if self.is_empty() { Ok(()) } else { Err(ServiceError::LeftBehind(self)) }
    }
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for knob in &self.knobs {
            let why = knob.why.as_deref().unwrap_or("no reason is known");
            write!(f, "{separator}{} of {} is not back at {}: {why}", knob.knob, knob.cgroup, knob.value)?;
            separator = "; ";
        }
        if let Some(groups) = &self.groups {
            write!(f, "{separator}{groups}")?;
        }
        Ok(())
    }
}

/// Restores everything, or keeps it if so configured.
#[expect(clippy::disallowed_methods, reason = "the end of the service waits for the kernel, and not for long")]
pub(crate) fn end(agent: &mut Agent, now: impl Fn() -> Now) -> Result<(), ServiceError> {
    let mut step = agent.shut_down(now());
    if agent.keeps_at_the_end() {
        tracing::info!(restored = 0, refused = 0, "agent ends");
        return Ok(());
    }
    let groups = agent.end_controls(now());
    let patience = Patience::AT_THE_END;
    let begun = Instant::now();
    let mut retries = patience.retries;
    loop {
        let left = left_behind(agent);
        let is_slow = left.iter().any(|row| row.outcome == UNDER_WAY) && begun.elapsed() < patience.slow_writes;
        let is_refused = left.iter().any(|row| row.outcome != UNDER_WAY);
        if is_refused && retries > 0 {
            // The kernel may accept the value a moment later: a container that has just ended still counts for a while.
            retries -= 1;
            std::thread::sleep(patience.pause);
        } else if is_slow {
            std::thread::sleep(LOOK_AGAIN);
        } else {
            break;
        }
        agent.restore_again(now(), &mut step);
    }
    let groups = both(groups, agent.finish_core_groups(CORE_GROUPS));
    agent.ended();
    let left = LeftBehind { knobs: left_behind(agent), groups };
    tracing::info!(restored = step.decisions.len(), refused = left.knobs.len(), "agent ends");
    left.into_result()
}

/// Ends an agent that is asked to end before it has begun: restores what the journal records, except for paused pods.
///
/// # Errors
///
/// [`ServiceError::Journal`] when the journal cannot be read or written, [`ServiceError::LeftBehind`] when not all baselines could be
/// restored.
#[expect(clippy::disallowed_methods, reason = "stands for the service's clock before there is a service")]
pub fn end_early(host: &mut Host, journal: &Journal, config: &AgentConfig) -> Result<(), ServiceError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let now = Timestamp(i64::try_from(now).unwrap_or(i64::MAX));
    let paused = journal.paused_cgroups()?;
    let restored = restore_some(host, journal, &Patience::AT_THE_END, |cgroup| !is_paused(&paused, cgroup, now))?;
    host.use_resctrl_at(config.resctrl.path.as_ref().map(ToString::to_string));
    // It is not known yet which group a paused pod is in: all groups stay, for the next agent or `qosm restore`.
    let groups = match paused.values().any(|until| now.0 < *until) {
        true => None,
        false => host.clear_classes().err().map(|error| chain(&error)),
    };
    let groups = both(groups, host.finish_core_groups(CORE_GROUPS));
    for Removal { cgroup, outcome } in remove_created(host, journal)? {
        if let Err(error) = outcome {
            tracing::warn!(cgroup, error = chain(&error), "a cgroup that qosm made stays: it is in use");
        }
    }
    let count = restored.iter().filter(|row| row.outcome == RESTORED).count();
    let knobs: Vec<Restored> = restored.into_iter().filter(Restored::is_left_behind).collect();
    tracing::info!(restored = count, refused = knobs.len(), "agent ends before it has begun");
    LeftBehind { knobs, groups }.into_result()
}

fn both(one: Option<String>, other: Result<(), String>) -> Option<String> {
    let all: Vec<String> = one.into_iter().chain(other.err()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn left_behind(agent: &Agent) -> Vec<Restored> {
    agent.unrestored().into_iter().filter(Restored::is_left_behind).collect()
}
