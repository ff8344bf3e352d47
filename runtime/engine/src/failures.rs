//! Records modules that failed to compile, so that a restart does not spend a minute on each of them again.
//!
//! If a compiler ran out of memory or time, the agent tries the module once more after a minute: the node may have been
//! busy. After that, and after an error in the module, the module is not compiled for a day, or until `qosm policy
//! retry`. Failures apply to one engine: a new version of the agent tries again.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::CompileError;

/// Time until the second attempt.
const SECOND: Duration = Duration::from_secs(60);
/// Time until a permanent failure is tried again.
const EXPIRES: Duration = Duration::from_secs(24 * 60 * 60);
/// Attempts before a module counts as failed.
const ATTEMPTS: u32 = 2;
/// Number of failures that are kept; the oldest are dropped first.
const MAX: usize = 64;
/// Number of characters of a reason that are kept.
const WHY: usize = 500;

/// Failures by the names under which the cache stores modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Failures(BTreeMap<String, Failure>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// Time of the failure in seconds since the Unix epoch.
    at: u64,
    attempts: u32,
    why: String,
}

impl Failures {
    /// Parses the file that an earlier agent wrote; an invalid file counts as empty.
    pub(crate) fn parse(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The failure that keeps a module from being compiled at `now`; `None` if it may be compiled.
    pub(crate) fn active(&self, name: &str, now: SystemTime) -> Option<CompileError> {
        let failure = self.0.get(name)?;
        let wait = if failure.attempts < ATTEMPTS { SECOND } else { EXPIRES };
        // A clock that was set back must not extend the wait.
        let passed = seconds(now).checked_sub(failure.at)?;
        let left = wait.checked_sub(Duration::from_secs(passed)).filter(|left| !left.is_zero())?;
        Some(CompileError::Remembered { why: failure.why.clone(), left })
    }

    /// Whether a module failed once for lack of time or memory, and is tried once more.
    pub(crate) fn is_second(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|failure| failure.attempts + 1 == ATTEMPTS)
    }

    /// Records a failure. Returns `false` for failures that are not recorded because the module does not cause them, such
    /// as a compiler that cannot be started.
    pub(crate) fn note(&mut self, name: &str, error: &CompileError, now: SystemTime) -> bool {
        let attempts = match error {
            CompileError::Refused(_) | CompileError::TooLarge { .. } => ATTEMPTS,
            CompileError::Died { .. } | CompileError::TimedOut { .. } => match self.0.get(name) {
                Some(before) if before.attempts < ATTEMPTS => before.attempts + 1,
                _ => 1,
            },
            CompileError::Spawn { .. }
            | CompileError::Unconfined(_)
            | CompileError::Pipe(_)
            | CompileError::Remembered { .. } => return false,
        };
        let why = qosm_model::foreign::shown(&error.to_string(), WHY);
        self.0.insert(name.to_owned(), Failure { at: seconds(now), attempts, why });
        while self.0.len() > MAX {
            let oldest = self.0.iter().min_by_key(|(_, failure)| failure.at).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
        true
    }

    /// Drops the failures of the modules whose names begin with `prefix`. Returns whether there were any.
    pub(crate) fn forget(&mut self, prefix: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|name, _| !name.starts_with(prefix));
        self.0.len() < before
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn timed_out() -> CompileError {
        CompileError::TimedOut { after: Duration::from_secs(60) }
    }

    #[test]
    fn what_ran_out_of_time_is_tried_once_more_and_then_left_alone_for_a_day() {
        let mut failures = Failures::default();
        assert!(failures.active("a", at(0)).is_none() && !failures.is_second("a"));
        assert!(failures.note("a", &timed_out(), at(0)));
        assert!(failures.active("a", at(59)).is_some());
        assert!(failures.active("a", at(60)).is_none() && failures.is_second("a"));
        failures.note("a", &timed_out(), at(60));
        assert!(failures.active("a", at(60 + 3_600)).is_some() && !failures.is_second("a"));
        assert!(failures.active("a", at(60 + 24 * 3_600)).is_none());
        // After the failure expires, the count starts over.
        failures.note("a", &timed_out(), at(100_000));
        assert!(failures.active("a", at(100_000 + 60)).is_none());
    }

    #[test]
    fn what_is_refused_is_not_tried_again_at_once() {
        let mut failures = Failures::default();
        failures.note("a", &CompileError::Refused("bad".into()), at(0));
        let error = failures.active("a", at(3_600)).map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "bad; it is not tried again for 23 h, or until `qosm policy retry`");
        assert!(failures.active("b", at(0)).is_none());
        assert!(failures.active("a", UNIX_EPOCH).is_none(), "a clock that was set back");
    }

    #[test]
    fn a_failure_outlives_the_process_and_ends_on_request() {
        let mut failures = Failures::default();
        failures.note("aa-1.cwasm", &CompileError::Refused("bad".into()), at(0));
        let mut read = Failures::parse(&failures.text());
        assert_eq!(read, failures);
        assert!(read.forget("aa-") && !read.forget("aa-"));
        assert!(read.active("aa-1.cwasm", at(0)).is_none());
        assert_eq!(Failures::parse(b"{garbage"), Failures::default());
        let spawn = CompileError::Spawn { program: "x".into(), source: std::io::ErrorKind::NotFound.into() };
        assert!(!read.note("a", &spawn, at(0)));
        for number in 0..200 {
            read.note(&format!("{number}"), &timed_out(), at(number));
        }
        assert!(read.0.len() == MAX && read.active("199", at(199)).is_some());
    }
}
