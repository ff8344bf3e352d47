//! The events for pod owners.

use qosm_sdk::ProcessFailure;

use crate::nodes::{Pages, Way, list};

/// Maximum number of processes that a line names.
const MAX_FAILURES_REPORTED: usize = 8;
/// Length of a message in bytes above which lines are left out; the host accepts 4096 bytes.
const MAX: usize = 3_600;
/// Change of the local ratio above which another event is emitted, in percentage points.
const EVENT_MIN_POINTS: u64 = 10;

/// The outcome for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All remote pages were tried.
    Completed { way: Way, failures: Vec<ProcessFailure>, without_room: u64 },
    /// Nothing could be done.
    Failed(String),
    /// Nothing had to be done.
    Skipped(String),
}

/// The outcome for a pod's containers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Completed,
    Failed,
    Skipped,
}

impl Kind {
    /// The combined outcome: completed if one container is completed, else failed if one failed.
    pub(crate) fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        outcomes.fold(Self::Skipped, |kind, outcome| match (kind, outcome) {
            (_, Outcome::Completed { .. }) | (Self::Completed, _) => Self::Completed,
            (_, Outcome::Failed(_)) | (Self::Failed, _) => Self::Failed,
            (Self::Skipped, Outcome::Skipped(_)) => Self::Skipped,
        })
    }

    /// Reason of the event.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Completed => "MemoryLocalityCompleted",
            Self::Failed => "MemoryLocalityFailed",
            Self::Skipped => "MemoryLocalitySkipped",
        }
    }
}

/// The last event of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    pub(crate) kind: Kind,
    pub(crate) local_percent: u64,
}

impl Reported {
    /// Whether this outcome is worth an event after the one before.
    pub(crate) fn is_worth_an_event(self, before: Option<Self>) -> bool {
        before.is_none_or(|before| {
            self.kind != before.kind || self.local_percent.abs_diff(before.local_percent) > EVENT_MIN_POINTS
        })
    }
}

/// Message of the event. `pages` are those of the pod's containers that were not skipped.
pub(crate) fn message(outcomes: &[(&str, &Outcome)], pages: Pages) -> String {
    match Kind::of(outcomes.iter().map(|(_, outcome)| *outcome)) {
        Kind::Completed => completed(outcomes, pages),
        Kind::Failed => failed(outcomes),
        Kind::Skipped => {
            let reasons = outcomes.iter().filter_map(|(_, outcome)| match outcome {
                Outcome::Skipped(reason) => Some(reason.as_str()),
                _ => None,
            });
            distinct(reasons).join("; ")
        }
    }
}

fn completed(outcomes: &[(&str, &Outcome)], pages: Pages) -> String {
    let (mut completed, mut failed, mut skipped) = (0_u32, 0_u32, 0_u32);
    let mut text = String::new();
    for (name, outcome) in outcomes {
        let line = match outcome {
            Outcome::Completed { way, failures, without_room } => {
                completed += 1;
                format!("Container {name} completed: {}\n", way_of(way, failures, *without_room))
            }
            Outcome::Failed(error) => {
                failed += 1;
                format!("Container {name} failed: {error}\n")
            }
            Outcome::Skipped(reason) => {
                skipped += 1;
                format!("Container {name} skipped: {reason}\n")
            }
        };
        if text.len() + line.len() <= MAX {
            text.push_str(&line);
        }
    }
    let (percent, remote) = (pages.local_percent(), pages.remote);
    text + &format!(
        "Total: {completed} container(s) completed, {failed} failed, {skipped} skipped; cur local memory ratio {percent}, \
         rest remote memory pages {remote}"
    )
}

fn way_of(way: &Way, failures: &[ProcessFailure], without_room: u64) -> String {
    let mut text = if failures.is_empty() {
        "migrated memory ".to_owned()
    } else {
        let shown = failures.iter().take(MAX_FAILURES_REPORTED);
        let pids: String =
            shown.map(|failure| format!("failed pid: {}, error: {},", failure.pid, failure.error)).collect();
        format!("failed to migrate the following processes: {pids}")
    };
    text.push_str(&format!("from remote numa: {} to local numa: {}", list(&way.remote), list(&way.local)));
    if without_room > 0 {
        text.push_str(&format!(", local numa is short of memory for {without_room} pages"));
    }
    text
}

fn failed(outcomes: &[(&str, &Outcome)]) -> String {
    let errors: Vec<(&str, &str)> = outcomes
        .iter()
        .filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(error) => Some((*name, error.as_str())),
            _ => None,
        })
        .collect();
    let same = distinct(errors.iter().map(|(_, error)| *error));
    if let [error] = same.as_slice() {
        return (*error).to_owned();
    }
    let mut text = String::new();
    for (name, error) in errors {
        let line = format!("Container {name} failed: {error}\n");
        if text.len() + line.len() <= MAX {
            text.push_str(&line);
        }
    }
    text.trim_end().to_owned()
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known = Vec::new();
    for text in texts {
        if !known.contains(&text) {
            known.push(text);
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::NO_TARGET;

    fn way() -> Way {
        Way { remote: vec![0], local: vec![1], to: vec![1] }
    }

    fn moved() -> Outcome {
        Outcome::Completed { way: way(), failures: Vec::new(), without_room: 0 }
    }

    #[test]
    fn a_completed_migration_reads_as_in_the_product() {
        let gone = Outcome::Completed {
            way: way(),
            failures: vec![ProcessFailure { pid: 4711, error: "No such process".into() }],
            without_room: 0,
        };
        let outcomes = [("nginx", &moved()), ("redis", &gone)];
        assert_eq!(
            message(&outcomes, Pages { local: 98_000, remote: 1_999 }),
            "Container nginx completed: migrated memory from remote numa: 0 to local numa: 1\n\
             Container redis completed: failed to migrate the following processes: failed pid: 4711, \
             error: No such process,from remote numa: 0 to local numa: 1\n\
             Total: 2 container(s) completed, 0 failed, 0 skipped; cur local memory ratio 98, rest remote memory pages 1999"
        );
    }

    #[test]
    fn some_of_each_count_in_the_total() {
        let outcomes = [
            ("a", &moved()),
            ("b", &Outcome::Failed("Operation not permitted".into())),
            ("c", &Outcome::Skipped(NO_TARGET.into())),
        ];
        assert_eq!(
            message(&outcomes, Pages { local: 1, remote: 1 }),
            "Container a completed: migrated memory from remote numa: 0 to local numa: 1\n\
             Container b failed: Operation not permitted\n\
             Container c skipped: no target numa\n\
             Total: 1 container(s) completed, 1 failed, 1 skipped; cur local memory ratio 50, rest remote memory pages 1"
        );
    }

    #[test]
    fn a_pod_of_which_all_failed_or_were_skipped_has_a_short_message() {
        let (fail, skip) = (Outcome::Failed("x".into()), Outcome::Skipped(NO_TARGET.into()));
        assert_eq!(message(&[("a", &fail), ("b", &fail)], Pages::default()), "x");
        let other = Outcome::Failed("y".into());
        let two = message(&[("a", &fail), ("b", &other), ("c", &skip)], Pages::default());
        assert_eq!(two, "Container a failed: x\nContainer b failed: y");
        assert_eq!(message(&[("a", &skip), ("b", &skip)], Pages::default()), "no target numa");
    }

    #[test]
    fn the_kind_is_that_of_the_best() {
        let (fail, skip) = (Outcome::Failed("x".into()), Outcome::Skipped(NO_TARGET.into()));
        for (outcomes, kind) in [
            (&[&skip, &fail][..], Kind::Failed),
            (&[&fail, &skip][..], Kind::Failed),
            (&[&fail, &moved(), &skip][..], Kind::Completed),
            (&[&skip][..], Kind::Skipped),
            (&[][..], Kind::Skipped),
        ] {
            assert_eq!(Kind::of(outcomes.iter().copied()), kind, "{outcomes:?}");
        }
    }

    #[test]
    fn a_message_stays_within_its_bounds() {
        let many: Vec<ProcessFailure> =
            (0..100).map(|pid| ProcessFailure { pid, error: "No such process".into() }).collect();
        let outcome = Outcome::Completed { way: way(), failures: many, without_room: 7 };
        let outcomes: Vec<_> = (0..200).map(|_| ("a-container-of-some-length", &outcome)).collect();
        let text = message(&outcomes, Pages::default());
        assert!(text.len() < 4_096 && text.ends_with("rest remote memory pages 0"), "{}", text.len());
        assert!(text.contains("short of memory for 7 pages"), "{text}");
    }

    #[test]
    fn another_kind_or_more_than_ten_points_are_worth_an_event() {
        let reported = |kind, local_percent| Reported { kind, local_percent };
        for (now, before, news) in [
            (reported(Kind::Completed, 50), None, true),
            (reported(Kind::Completed, 50), Some(reported(Kind::Completed, 60)), false),
            (reported(Kind::Completed, 50), Some(reported(Kind::Completed, 61)), true),
            (reported(Kind::Completed, 61), Some(reported(Kind::Completed, 50)), true),
            (reported(Kind::Failed, 50), Some(reported(Kind::Completed, 50)), true),
        ] {
            assert_eq!(now.is_worth_an_event(before), news, "{now:?} {before:?}");
        }
    }
}
