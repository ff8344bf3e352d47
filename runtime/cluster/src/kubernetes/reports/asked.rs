//! Requests to the controller in a report: how often the report is rewritten, and how long the agent waits for an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::node_report::{
    ControllerAnswer, EvictionOutcome, NodePolicyReportStatus, REFRESH_INTERVAL, ReportedResource, STALE_AFTER_SECONDS,
};

/// Longest rewrite interval of a report with requests.
const MAX_PULSE: Duration = Duration::from_secs(300);
/// Number of writes before the report's resources become stale, so that one write may fail.
const PULSES: u32 = 3;
/// Shortest rewrite interval, whatever a policy requests.
const MIN_PULSE: Duration = Duration::from_secs(15);
/// First waits for an answer to an eviction and to a resource; each further wait is twice as long, up to `MAX_PAUSE`.
const FIRST_EVICTION_PAUSE: Duration = Duration::from_secs(1);
const FIRST_RESOURCE_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The interval after which an unchanged report is written again.
pub(super) fn pulse_of(report: &NodePolicyReportStatus) -> Duration {
    if report.resources.is_empty() && report.evictions.is_empty() {
        return REFRESH_INTERVAL;
    }
    let stale = report.resources_stale_after_seconds.unwrap_or(STALE_AFTER_SECONDS);
    (Duration::from_secs(stale.into()) / PULSES).clamp(MIN_PULSE, MAX_PULSE)
}

/// Whether a report requests an eviction that the previous one did not request, or requests one more urgently.
fn asks_more(before: &NodePolicyReportStatus, now: &NodePolicyReportStatus) -> bool {
    let is_known = |uid: &str, urgency| before.evictions.iter().any(|one| one.uid == uid && one.urgency >= urgency);
    now.evictions.iter().any(|one| !is_known(&one.uid, one.urgency))
}

/// Resources without their reasons, which may name a changing usage: only a changed amount is a change of the report.
pub(super) fn without_reasons(resources: &[ReportedResource]) -> Vec<ReportedResource> {
    resources.iter().map(|one| ReportedResource { reason: String::new(), ..one.clone() }).collect()
}

/// The requests in the last report, and whether all are answered.
#[derive(Debug, Default)]
pub(super) struct Asked {
    resources: Vec<(String, u64)>,
    /// By UID of the pod, whether the controller has nothing left to do for the eviction.
    evictions: BTreeMap<String, bool>,
    pause: Duration,
    waits: bool,
}

impl Asked {
    pub(super) fn of(report: &NodePolicyReportStatus) -> Self {
        Self {
            resources: report.resources.iter().map(|one| (one.name.clone(), one.amount)).collect(),
            evictions: report.evictions.iter().map(|one| (one.uid.clone(), false)).collect(),
            pause: if report.evictions.is_empty() { FIRST_RESOURCE_PAUSE } else { FIRST_EVICTION_PAUSE },
            waits: !report.resources.is_empty() || !report.evictions.is_empty(),
        }
    }

    /// Whether an answer is outstanding.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// The wait before the next check for an answer.
    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    /// Applies the controller's answer. A refused or pending eviction stays outstanding: the controller tries again.
    pub(super) fn take(&mut self, answer: Option<&ControllerAnswer>) {
        let resource = |(name, amount): &(String, u64)| {
            let is_it = |one: &&crate::node_report::ResourceAnswer| one.name == *name;
            answer
                .and_then(|answer| answer.resources.iter().find(is_it))
                .is_some_and(|one| one.in_force && one.amount == *amount)
        };
        for (uid, is_done) in &mut self.evictions {
            let mut answers = answer.into_iter().flat_map(|answer| &answer.evictions);
            let is_end = |outcome| matches!(outcome, EvictionOutcome::Accepted | EvictionOutcome::Gone);
            *is_done = answers.any(|one| one.uid == *uid && is_end(one.outcome));
        }
        self.waits = !(self.resources.iter().all(resource) && self.evictions.values().all(|is_done| *is_done));
    }

    /// Whether a report must not wait for its place among the fleet's writes: it requests a new eviction, or
    /// withdraws one that is not done.
    pub(super) fn is_pressing(&self, before: &NodePolicyReportStatus, now: &NodePolicyReportStatus) -> bool {
        let is_asked = |uid: &str| now.evictions.iter().any(|one| one.uid == uid);
        asks_more(before, now) || self.evictions.iter().any(|(uid, is_done)| !is_done && !is_asked(uid))
    }

    /// Doubles the wait before the next check.
    pub(super) fn wait_longer(&mut self) {
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_report::{EvictionAnswer, ReportedEviction, ResourceAnswer, Urgency};

    fn eviction(uid: &str, urgency: Urgency) -> ReportedEviction {
        ReportedEviction { uid: uid.to_owned(), urgency, ..ReportedEviction::default() }
    }

    fn resource(amount: u64) -> ReportedResource {
        ReportedResource { name: "kubernetes.io/batch-cpu".to_owned(), amount, ..ReportedResource::default() }
    }

    #[test]
    fn a_report_that_asks_for_something_is_written_again_before_it_goes_stale() {
        let report = |resources: &[u64], stale, evictions: &[&str]| NodePolicyReportStatus {
            resources: resources.iter().map(|amount| resource(*amount)).collect(),
            resources_stale_after_seconds: stale,
            evictions: evictions.iter().map(|uid| eviction(uid, Urgency::Soon)).collect(),
            ..NodePolicyReportStatus::default()
        };
        for (report, seconds) in [
            (report(&[], None, &[]), 1800),
            (report(&[], Some(60), &[]), 1800),
            (report(&[7], None, &[]), 300),
            (report(&[7], Some(86_400), &[]), 300),
            (report(&[7], Some(300), &[]), 100),
            (report(&[7], Some(1), &[]), 15),
            (report(&[], None, &["u1"]), 300),
        ] {
            assert_eq!(pulse_of(&report), Duration::from_secs(seconds), "{report:?}");
        }
    }

    #[test]
    fn a_new_or_more_urgent_eviction_does_not_wait_for_the_fleet() {
        let report = |evictions: &[(&str, Urgency)]| NodePolicyReportStatus {
            evictions: evictions.iter().map(|(uid, urgency)| eviction(uid, *urgency)).collect(),
            ..NodePolicyReportStatus::default()
        };
        for (before, now, expected) in [
            (&[] as &[_], &[("u1", Urgency::Soon)] as &[_], true),
            (&[("u1", Urgency::Soon)], &[("u1", Urgency::Soon)], false),
            (&[("u1", Urgency::Soon)], &[("u1", Urgency::Now)], true),
            (&[("u1", Urgency::Now)], &[("u1", Urgency::Soon)], false),
            (&[("u1", Urgency::Now)], &[], false),
            (&[("u1", Urgency::Now)], &[("u2", Urgency::Soon)], true),
        ] {
            assert_eq!(Asked::default().is_pressing(&report(before), &report(now)), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn what_is_taken_back_does_not_wait_for_the_fleet_while_it_may_still_be_done() {
        let report = |uids: &[&str]| NodePolicyReportStatus {
            evictions: uids.iter().map(|uid| eviction(uid, Urgency::Soon)).collect(),
            ..NodePolicyReportStatus::default()
        };
        let answer = |outcome| ControllerAnswer {
            evictions: vec![EvictionAnswer { uid: "u1".to_owned(), outcome, message: String::new(), at: None }],
            ..ControllerAnswer::default()
        };
        for (answer, now, expected) in [
            (None, &["u1"] as &[_], false),
            (None, &[], true),
            (Some(answer(EvictionOutcome::Pending)), &[], true),
            (Some(answer(EvictionOutcome::Refused)), &[], true),
            (Some(answer(EvictionOutcome::Accepted)), &[], false),
            (Some(answer(EvictionOutcome::Gone)), &[], false),
        ] {
            let mut asked = Asked::of(&report(&["u1"]));
            asked.take(answer.as_ref());
            assert_eq!(asked.is_pressing(&report(&["u1"]), &report(now)), expected, "{answer:?} {now:?}");
        }
    }

    #[test]
    fn an_answer_is_waited_for_until_all_is_in_force_and_ever_longer() {
        let report = NodePolicyReportStatus {
            resources: vec![resource(7)],
            evictions: vec![eviction("u1", Urgency::Now)],
            ..NodePolicyReportStatus::default()
        };
        let answer = |amount, outcome| ControllerAnswer {
            resources: vec![ResourceAnswer {
                name: "kubernetes.io/batch-cpu".to_owned(),
                amount,
                in_force: true,
                ..ResourceAnswer::default()
            }],
            evictions: vec![EvictionAnswer { uid: "u1".to_owned(), outcome, message: String::new(), at: None }],
            ..ControllerAnswer::default()
        };
        for (answer, waits) in [
            (None, true),
            (Some(answer(7, EvictionOutcome::Refused)), true),
            (Some(answer(7, EvictionOutcome::Pending)), true),
            (Some(answer(6, EvictionOutcome::Accepted)), true),
            (Some(answer(7, EvictionOutcome::Accepted)), false),
            (Some(answer(7, EvictionOutcome::Gone)), false),
        ] {
            let mut asked = Asked::of(&report);
            asked.take(answer.as_ref());
            assert_eq!(asked.waits(), waits, "{answer:?}");
        }
        let mut asked = Asked::of(&report);
        let pauses: Vec<_> = (0..8)
            .map(|_| {
                let pause = asked.pause().as_secs();
                asked.take(None);
                asked.wait_longer();
                pause
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(!Asked::of(&NodePolicyReportStatus::default()).waits());
    }
}
