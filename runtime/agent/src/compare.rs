//! Comparison: plays one recording through two versions of a policy side by side. Each version runs on its own simulated node, where it
//! sees the effect of its own decisions, so these can be followed over the whole recording; measurements stay as recorded. The same
//! input gives the same bytes on every machine.

use std::collections::BTreeMap;

use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_model::knob::{Knob, Level};
use serde::Serialize;

use crate::facts::Facts;
use crate::loaded::LoadedPolicy;
use crate::replay::line::TickLine;
use crate::replay::{EventLine, Outcome, Replay, ReplayError};
use crate::report::view::View;
use crate::report::{VersionReport, WireValue};
use crate::shadow::{Counts, Kind};
use crate::step::Mode;

/// A comparison of two versions in progress.
pub struct Comparison {
    policy: String,
    old: Replay,
    new: Replay,
    summary: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    ticks: u64,
    differing_ticks: u64,
    first_difference: Option<u64>,
    counts: BTreeMap<Knob, Counts>,
    events: Sides<u64>,
    requests: Sides<u64>,
    is_failing: bool,
}

/// A value for each version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// The value of the current version.
    pub old: T,
    /// The value of the candidate version.
    pub new: T,
}

/// The result of one tick.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonOutcome {
    /// 0 for the facts, then counted up.
    pub tick: u64,
    /// Milliseconds since the facts.
    pub time_millis: u64,
    /// Number of knobs on which both versions agree after this tick.
    pub agreements: u64,
    /// Knobs on which the versions differ, sorted by level.
    pub differences: Vec<ComparisonDifference>,
    /// Resources, evictions, migrations and classes that only one version asks for, one line of text each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Sides<Vec<String>>>,
    /// Events of pods that only one version would have sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Sides<Vec<EventLine>>>,
    /// Policies that do not run, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<Sides<BTreeMap<String, String>>>,
}

/// A knob that the versions see differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonDifference {
    /// `node`, `tier`, `pod` or `container`.
    pub level: &'static str,
    /// The target: the node, a tier, a pod, or a pod's container.
    pub subject: String,
    /// Name of the knob, with the device if the knob is per device.
    pub knob: String,
    /// `differs`, `only-old` or `only-new`.
    pub kind: &'static str,
    /// The old version's decision; `None` if it leaves the knob alone.
    pub old: Option<Decided>,
    /// The new version's decision; `None` if it leaves the knob alone.
    pub new: Option<Decided>,
}

/// What a version decided about one knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// The value in force; if it was refused, the requested value.
    pub value: WireValue,
    /// The policy whose lease wins.
    pub policy: String,
    /// The policy's reason.
    pub reason: String,
    /// Why the value is not in force; `None` if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// The result of the whole recording.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonSummary {
    /// The two versions.
    #[serde(flatten)]
    pub versions: Sides<VersionReport>,
    /// Number of ticks played, with the facts as the first.
    pub ticks: u64,
    /// Number of ticks after which a knob differed, or in which only one version made another request.
    pub differing_ticks: u64,
    /// The first tick that differed; `None` if none did.
    pub first_difference: Option<u64>,
    /// Counts by kind of knob, summed over ticks.
    pub knobs: BTreeMap<&'static str, ComparisonCounts>,
    /// Number of requests other than knobs that only one version made.
    pub requests: Sides<u64>,
    /// Number of events of pods that only one version would have sent.
    pub events: Sides<u64>,
    /// Number of evaluations that were discarded.
    pub failures: Sides<u64>,
    /// Whether both versions decided the same in all ticks, and all policies ran.
    pub same: bool,
}

/// Knobs of one kind, summed over ticks.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparisonCounts {
    /// Both versions decided the same.
    pub agreed: u64,
    /// Both versions decided about the knob, with different results.
    pub differed: u64,
    /// Only the old version decided about the knob.
    pub only_old: u64,
    /// Only the new version decided about the knob.
    pub only_new: u64,
}

impl Comparison {
    /// Sets up two simulated nodes from the same facts. `policy` is the name under which both versions run; the other policies are the same
    /// on both nodes.
    ///
    /// # Errors
    ///
    /// As [`Replay::new`].
    pub fn new(
        facts: &Facts,
        engine: &Engine,
        policy: &str,
        old: Vec<LoadedPolicy>,
        new: Vec<LoadedPolicy>,
    ) -> Result<Self, ReplayError> {
        let stage = |policies| Replay::new(facts, Objects::default(), engine.clone(), policies, Mode::Enforce);
        Ok(Self { policy: policy.to_owned(), old: stage(old)?, new: stage(new)?, summary: Totals::default() })
    }

    /// Runs the first step, on the facts alone.
    pub fn open(&mut self) -> ComparisonOutcome {
        let (old, new) = (self.old.open(), self.new.open());
        self.compare(old, new)
    }

    /// Plays one line on both nodes.
    ///
    /// # Errors
    ///
    /// As [`Replay::play`].
    pub fn play(&mut self, line: &TickLine) -> Result<ComparisonOutcome, ReplayError> {
        let (old, new) = (self.old.play(line)?, self.new.play(line)?);
        Ok(self.compare(old, new))
    }

    fn compare(&mut self, old: Outcome, new: Outcome) -> ComparisonOutcome {
        let mut decided = Sides { old: decided(&self.old.agent().view()), new: decided(&self.new.agent().view()) };
        let mut keys: Vec<_> = decided.old.keys().chain(decided.new.keys()).cloned().collect();
        keys.sort_unstable();
        keys.dedup();
        let mut agreements = 0;
        let mut differences = Vec::new();
        for key in keys {
            let (old, new) = (decided.old.remove(&key), decided.new.remove(&key));
            let (level, subject, knob) = key;
            let kind = kind(old.as_ref(), new.as_ref());
            self.summary.counts.entry(knob.kind()).or_default().count(kind);
            match kind {
                None => agreements += 1,
                Some(kind) => differences.push(ComparisonDifference {
                    level: level.as_str(),
                    subject,
                    knob: knob.to_string(),
                    kind: word(kind),
                    old,
                    new,
                }),
            }
        }
        let (tick, time_millis) = (new.tick, new.time_millis);
        let requests = of_one(requests(&old), requests(&new));
        let events = of_one(old.events, new.events);
        let failing = Sides { old: old.failing, new: new.failing };
        let failing = (!failing.old.is_empty() || !failing.new.is_empty()).then_some(failing);
        let summary = &mut self.summary;
        summary.ticks += 1;
        summary.is_failing |= failing.is_some();
        if !differences.is_empty() || requests != Sides::default() {
            summary.differing_ticks += 1;
            summary.first_difference.get_or_insert(tick);
        }
        summary.requests.old += count(&requests.old);
        summary.requests.new += count(&requests.new);
        let requests = (requests != Sides::default()).then_some(requests);
        summary.events.old += count(&events.old);
        summary.events.new += count(&events.new);
        let events = (!events.old.is_empty() || !events.new.is_empty()).then_some(events);
        ComparisonOutcome { tick, time_millis, agreements, differences, requests, events, failing }
    }

    /// The result of all ticks so far.
    pub fn summary(&self) -> ComparisonSummary {
        let Totals { ticks, differing_ticks, first_difference, ref counts, events, requests, is_failing } =
            self.summary;
        let failures = |replay: &Replay| replay.agent().policy_reports().iter().map(|policy| policy.failures).sum();
        let counts = counts.iter().map(|(knob, counts)| {
            let Counts { agreed, differed, only_first, only_second } = *counts;
            (knob.kind_name(), ComparisonCounts { agreed, differed, only_old: only_first, only_new: only_second })
        });
        ComparisonSummary {
            versions: Sides {
                old: self.old.agent().version_of(&self.policy),
                new: self.new.agent().version_of(&self.policy),
            },
            ticks,
            differing_ticks,
            first_difference,
            knobs: counts.collect(),
            requests,
            events,
            failures: Sides { old: failures(&self.old), new: failures(&self.new) },
            same: differing_ticks == 0 && !is_failing,
        }
    }
}

/// Key of a decision: level, subject, knob. Ids may differ between two agents; names do not.
type Place = (Level, String, Knob);

/// The decision about each knob that a policy asks for.
fn decided(view: &View<'_>) -> BTreeMap<Place, Decided> {
    let mut all = BTreeMap::new();
    for (target, knob, stack) in view.ledger.leases().held() {
        let Some(lease) = stack.first() else { continue };
        let refused = view.ledger.refusals().get(&(target, knob)).map(|refusal| refusal.why.clone());
        let value = match view.ledger.held().get(&(target, knob)) {
            Some(held) if refused.is_none() => held.written,
            _ => lease.value,
        };
        let subject = view.pods.subject(target);
        let decided = Decided {
            value: value.into(),
            policy: lease.holder.policy.to_string(),
            reason: lease.reason.to_string(),
            refused,
        };
        all.insert((subject.level, subject.shown(), knob), decided);
    }
    all
}

/// How two decisions about one knob differ; `None` if they do not. Policy and reason do not count, because the node is the same.
fn kind(old: Option<&Decided>, new: Option<&Decided>) -> Option<Kind> {
    match (old, new) {
        (Some(old), Some(new)) => {
            (old.value != new.value || old.refused.is_some() != new.refused.is_some()).then_some(Kind::Differs)
        }
        (Some(_), None) => Some(Kind::OnlyFirst),
        (None, Some(_)) => Some(Kind::OnlySecond),
        (None, None) => None,
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Differs => "differs",
        Kind::OnlyFirst => "only-old",
        Kind::OnlySecond => "only-new",
    }
}

/// A version's requests other than knobs. Reasons do not count as a difference.
fn requests(outcome: &Outcome) -> Vec<String> {
    let resources = outcome.resources.iter().map(ToString::to_string);
    let evictions = outcome.evictions.iter().map(ToString::to_string);
    let migrations = outcome.migrations.iter().map(ToString::to_string);
    let classes = outcome.classes.iter().map(ToString::to_string);
    resources.chain(evictions).chain(migrations).chain(classes).collect()
}

/// Removes the items that both versions have.
fn of_one<T: PartialEq>(old: Vec<T>, mut new: Vec<T>) -> Sides<Vec<T>> {
    let mut only_old = Vec::new();
    for item in old {
        match new.iter().position(|other| *other == item) {
            Some(place) => drop(new.remove(place)),
            None => only_old.push(item),
        }
    }
    Sides { old: only_old, new }
}

fn count<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::MaxWord;

    fn decided(value: i64, reason: &str, refused: Option<&str>) -> Decided {
        Decided {
            value: WireValue::Number(value),
            policy: "burst".to_owned(),
            reason: reason.to_owned(),
            refused: refused.map(str::to_owned),
        }
    }

    #[test]
    fn versions_differ_where_the_node_would() {
        let (ten, again) = (decided(10, "throttled", None), decided(10, "in other words", None));
        let refused = decided(10, "throttled", Some("EINVAL"));
        let unlimited = Decided { value: WireValue::Max(MaxWord::Max), ..ten.clone() };
        for (old, new, expected) in [
            (Some(&ten), Some(&again), None),
            (Some(&ten), Some(&unlimited), Some("differs")),
            (Some(&ten), Some(&refused), Some("differs")),
            (Some(&refused), Some(&refused), None),
            (Some(&ten), None, Some("only-old")),
            (None, Some(&ten), Some("only-new")),
        ] {
            assert_eq!(kind(old, new).map(word), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn what_both_tell_is_no_difference() {
        let event = |pod: &str| EventLine {
            pod: pod.to_owned(),
            kind: "Normal",
            reason: "Raised".to_owned(),
            message: String::new(),
            source: "burst".to_owned(),
        };
        let reported = of_one(vec![event("a"), event("a"), event("b")], vec![event("b"), event("a"), event("c")]);
        assert_eq!(reported, Sides { old: vec![event("a")], new: vec![event("c")] });
    }
}
