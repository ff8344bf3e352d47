//! The requests in a report, and the report's age by the API server's clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Deserialize;

use super::is_earlier;
use crate::kubernetes::events::CONTROLLER;
use crate::node_report::{ControllerAnswer, ReportedEviction, ReportedResource, STALE_AFTER_SECONDS};

/// Smallest and largest age in seconds that a report may name.
const STALE_BOUNDS: (u32, u32) = (1, 24 * 3600);
/// Evictions of an older report are not carried out: an agent that requests one rewrites its report every few minutes.
pub(super) const EVICTIONS_WITHIN: Duration = Duration::from_secs(600);

/// The requests in one report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Request {
    uid: String,
    version: String,
    /// When the agent wrote it, by the API server's clock.
    pub(super) written: Option<Timestamp>,
    pub(super) stale_after: Duration,
    pub(super) resources: Vec<ReportedResource>,
    pub(super) evictions: Vec<ReportedEviction>,
    /// The answer that the report holds; `None` if no controller has answered.
    pub(super) answer: Option<ControllerAnswer>,
}

impl Request {
    /// Reads a report. An unreadable report requests nothing.
    pub(super) fn read(report: &DynamicObject) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            resources: Vec<ReportedResource>,
            resources_stale_after_seconds: Option<u32>,
            evictions: Vec<ReportedEviction>,
            controller: Option<ControllerAnswer>,
        }
        let status = match report.data.get("status") {
            None => Status::default(),
            Some(status) => Status::deserialize(status)
                .inspect_err(|error| {
                    tracing::warn!(node = report.name_any(), %error, "report cannot be read; its requests are not carried out");
                })
                .unwrap_or_default(),
        };
        let entries = report.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(CONTROLLER));
        let (least, most) = STALE_BOUNDS;
        let stale_after = status.resources_stale_after_seconds.unwrap_or(STALE_AFTER_SECONDS).clamp(least, most);
        Self {
            uid: report.uid().unwrap_or_default(),
            version: report.resource_version().unwrap_or_default(),
            written: entries.filter_map(|entry| entry.time.as_ref()).map(|time| time.0).max(),
            stale_after: Duration::from_secs(stale_after.into()),
            resources: status.resources,
            evictions: status.evictions,
            answer: status.controller,
        }
    }

    /// Whether this is an earlier version of the same report; `false` if the versions cannot be compared.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        is_earlier((&self.uid, &self.version), (&other.uid, &other.version))
    }
}

/// The time by both clocks: the process's monotonic clock, and the API server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Now {
    /// Monotonic time since the controller's start.
    pub(in super::super) running: Duration,
    pub(in super::super) server: Timestamp,
}

/// How old a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Freshness {
    written: Option<Timestamp>,
    seen: Duration,
    age_then: Duration,
    /// Whether its age was told by clocks alone.
    is_by_clock: bool,
}

impl Freshness {
    /// Updates the freshness with a report that the watch just delivered. A report written since the previous delivery is no
    /// older than that delivery, whatever the clocks say; between two deliveries only the monotonic clock counts.
    pub(super) fn see(before: Option<Self>, written: Option<Timestamp>, now: Now) -> Self {
        if let Some(before) = before
            && before.written == written
        {
            return before;
        }
        let most = before.map_or(Duration::MAX, |before| now.running.saturating_sub(before.seen));
        let age_then = age(written, now.server).min(most);
        Self { written, seen: now.running, age_then, is_by_clock: before.is_none() }
    }

    /// Tells the age again once the API server's clock is known, if it was told by clocks alone.
    pub(super) fn tell_again(&mut self, now: Now) {
        if self.is_by_clock {
            self.age_then = age(self.written, now.server).saturating_sub(now.running.saturating_sub(self.seen));
        }
    }

    /// When the report reaches an age; `None` if the time overflows.
    pub(super) fn reaches(&self, age: Duration) -> Option<Duration> {
        self.seen.checked_add(age.saturating_sub(self.age_then))
    }

    /// Whether the report is younger than `age`.
    pub(super) fn is_younger(&self, age: Duration, now: Duration) -> bool {
        self.reaches(age).is_none_or(|then| now < then)
    }
}

fn age(written: Option<Timestamp>, server: Timestamp) -> Duration {
    let age = written.map_or(SignedDuration::ZERO, |written| server.duration_since(written));
    Duration::try_from(age).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(running: u64, server: i64) -> Now {
        Now { running: Duration::from_secs(running), server: Timestamp::from_second(server).unwrap() }
    }

    fn at(second: i64) -> Option<Timestamp> {
        Some(Timestamp::from_second(second).unwrap())
    }

    const LIMIT: Duration = Duration::from_secs(900);

    #[test]
    fn a_report_ages_by_the_running_clock_from_what_the_server_recorded() {
        let first = Freshness::see(None, at(10_000), now(50, 10_300));
        assert!(first.is_younger(LIMIT, Duration::from_secs(649)));
        assert!(!first.is_younger(LIMIT, Duration::from_secs(650)));
        assert_eq!(first.reaches(LIMIT), Some(Duration::from_secs(650)));
        // The same write again, after a jump of the clock, changes nothing.
        assert_eq!(Freshness::see(Some(first), at(10_000), now(60, 99_999)), first);
        // Nor does the controller's own answer: it is no write by the agent.
        assert_eq!(Freshness::see(Some(first), at(10_000), now(400, 10_650)), first);
    }

    #[test]
    fn a_clock_that_jumped_makes_no_fresh_report_stale() {
        let first = Freshness::see(None, at(10_000), now(50, 10_000));
        let second = Freshness::see(Some(first), at(10_300), now(350, 90_000));
        assert!(second.is_younger(LIMIT, Duration::from_secs(350)), "it was written since the last sight");
        assert!(!second.is_younger(LIMIT, Duration::from_secs(350 + 601)));
        let back = Freshness::see(Some(second), at(10_600), now(650, 5));
        assert!(
            back.is_younger(LIMIT, Duration::from_secs(1549)) && !back.is_younger(LIMIT, Duration::from_secs(1550))
        );
    }

    #[test]
    fn a_controller_whose_clock_is_wrong_tells_ages_again_once_it_knows_the_servers() {
        // It is an hour ahead, then an hour behind.
        for own in [13_610, 6_410] {
            let mut seen = Freshness::see(None, at(10_000), now(50, own));
            seen.tell_again(now(60, 10_020));
            assert_eq!(seen.reaches(LIMIT), Some(Duration::from_secs(940)), "{own}");
        }
        let mut second =
            Freshness::see(Some(Freshness::see(None, at(10_000), now(50, 10_000))), at(10_300), now(350, 90_000));
        let before = second;
        second.tell_again(now(360, 90_010));
        assert_eq!(second, before, "its age is told by the running clock");
    }

    #[test]
    fn a_report_that_was_old_already_when_the_controller_came_is_stale_at_once() {
        let seen = Freshness::see(None, at(10_000), now(1, 10_000 + 3600));
        assert!(!seen.is_younger(LIMIT, Duration::from_secs(1)));
        // The API server was unreachable for an hour, then the agent wrote again.
        let later = Freshness::see(Some(seen), at(13_700), now(105, 13_704));
        assert!(later.is_younger(LIMIT, Duration::from_secs(105)));
    }
}
