//! Resources of the node and evictions in case files: their states, and the expected requests.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use crate::mock::{Columns, EvictionRequest, ResourceChange};
use crate::{EvictionOutcome, EvictionState, Offer, PodId, ResourceState, Urgency};

/// State of a published resource.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a name that the operator does not allow
///     ticks:
///       - resourceStates: {example.com/gpu: {inForce: false, why: it may not be published here}}
///     ",
/// )?;
/// let Some(states) = &case.ticks[0].resource_states else { return Ok(()) };
/// assert!(!states["example.com/gpu"].in_force);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceStateRow {
    /// Whether the Node has the published amount.
    pub in_force: bool,
    /// The amount that the Node has.
    #[serde(default)]
    pub amount: u64,
    /// Why the resource is not in force.
    #[serde(default)]
    pub why: String,
}

/// State of an eviction.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a PodDisruptionBudget forbids it
///     pods: [{name: batch/job, containers: [{name: app}]}]
///     ticks:
///       - evictionStates: {batch/job: {outcome: refused, why: a budget allows none, ageMillis: 1500}}
///     ",
/// )?;
/// let Some(states) = &case.ticks[0].eviction_states else { return Ok(()) };
/// assert_eq!(states["batch/job"].outcome, "refused");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvictionStateRow {
    /// `pending`, `accepted`, `refused`, `gone` or `killed`.
    pub outcome: String,
    /// Why it has this outcome.
    #[serde(default)]
    pub why: String,
    /// Time since the outcome became known.
    #[serde(default)]
    pub age_millis: u64,
}

impl EvictionStateRow {
    fn outcome(&self) -> Option<EvictionOutcome> {
        match self.outcome.as_str() {
            "pending" => Some(EvictionOutcome::Pending),
            "accepted" => Some(EvictionOutcome::Accepted),
            "refused" => Some(EvictionOutcome::Refused),
            "gone" => Some(EvictionOutcome::Gone),
            "killed" => Some(EvictionOutcome::Killed),
            _ => None,
        }
    }
}

/// A resource that is published, changed or withdrawn.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: what the node's pods leave
///     ticks:
///       - published:
///           - {name: kubernetes.io/batch-cpu, amount: 12000, zones: {0: 8000, 1: 4000}, reason: a part of it}
///           - {name: kubernetes.io/batch-memory}   # without an amount: withdrawn
///         staleAfterSeconds: 300
///     ",
/// )?;
/// assert_eq!(case.ticks[0].published[0].zones[&1], 4000);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceExpectation {
    /// Name of the resource.
    pub name: String,
    /// The published amount; the resource is withdrawn when left out.
    pub amount: Option<u64>,
    /// The shares of NUMA nodes.
    #[serde(default)]
    pub zones: BTreeMap<u32, u64>,
    /// The amount before allocations of other schedulers were subtracted.
    pub origin: Option<u64>,
    /// A part of the reason; any when left out.
    pub reason: Option<String>,
}

impl fmt::Display for ResourceExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, amount: Some(amount), zones, origin, reason } = self else {
            return write!(f, "{} withdrawn", self.name);
        };
        write!(f, "{name} = {amount}")?;
        zones.iter().try_for_each(|(zone, share)| write!(f, ", zone {zone}: {share}"))?;
        origin.iter().try_for_each(|origin| write!(f, ", origin {origin}"))?;
        reason.iter().try_for_each(|reason| write!(f, " because {reason:?}"))
    }
}

/// A pod whose eviction is requested or withdrawn.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: memory is about to run out
///     ticks:
///       - evicted:
///           - {pod: batch/job, urgency: now, gracePeriodSeconds: 0, reason: MemoryUsage, message: a part of it}
///           - {pod: batch/other}   # without an urgency: taken back
///     ",
/// )?;
/// assert_eq!(case.ticks[0].evicted[0].urgency.as_deref(), Some("now"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvictionExpectation {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// `soon` or `now`; the request is withdrawn when left out.
    pub urgency: Option<String>,
    /// Seconds between SIGTERM and SIGKILL; by default the pod's own grace period.
    pub grace_period_seconds: Option<u32>,
    /// The reason; any when left out.
    pub reason: Option<String>,
    /// A part of the message; any when left out.
    pub message: Option<String>,
}

impl EvictionExpectation {
    pub(super) fn of(pod: String, request: EvictionRequest) -> Self {
        let told = |text: String| request.urgency.map(|_| text);
        Self {
            pod,
            urgency: request.urgency.map(|urgency| if urgency == Urgency::Now { "now" } else { "soon" }.into()),
            grace_period_seconds: request.grace_period_sec,
            reason: told(request.reason),
            message: told(request.message),
        }
    }

    /// Reduces reason and message of the found requests to what the case expects of them.
    pub(super) fn tell(expected: &[Self], found: &mut [Self]) {
        for one in found {
            let is_like = |other: &&Self| (&other.pod, &other.urgency) == (&one.pod, &one.urgency);
            let Some(told) = expected.iter().find(is_like) else { continue };
            if told.reason.is_none() {
                one.reason = None;
            }
            match (&told.message, &one.message) {
                (Some(part), Some(whole)) if !whole.contains(part) => {}
                (told, _) => one.message.clone_from(told),
            }
        }
    }
}

impl fmt::Display for EvictionExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(urgency) = &self.urgency else { return write!(f, "eviction of {} taken back", self.pod) };
        write!(f, "eviction of {} {urgency}", self.pod)?;
        self.grace_period_seconds.iter().try_for_each(|seconds| write!(f, " within {seconds} s"))?;
        self.reason.iter().try_for_each(|reason| write!(f, ", {reason}"))?;
        self.message.iter().try_for_each(|message| write!(f, ": {message:?}"))
    }
}

/// The resources that the policy published, and the states of resources and evictions.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    published: BTreeMap<String, (Offer, String)>,
    pub(super) stale_after: Option<u32>,
    pub(super) states: BTreeMap<String, ResourceStateRow>,
    pub(super) evictions: BTreeMap<String, EvictionStateRow>,
}

impl Requests {
    pub(super) fn change(&mut self, change: ResourceChange) {
        match change {
            ResourceChange::Publish { name, offer, reason } => drop(self.published.insert(name, (offer, reason))),
            ResourceChange::Withdraw { name } => drop(self.published.remove(&name)),
            ResourceChange::StaleAfter { seconds } => self.stale_after = Some(seconds),
        }
    }

    /// Resources that changed.
    pub(super) fn since(&self, before: &Self) -> Vec<ResourceExpectation> {
        let offer = |requests: &Self, name: &String| requests.published.get(name).map(|(offer, _)| offer.clone());
        let names =
            self.published.keys().chain(before.published.keys().filter(|name| !self.published.contains_key(*name)));
        let changed = names.filter(|name| offer(self, name) != offer(before, name));
        let expectation = |name: &String| match self.published.get(name) {
            Some((offer, reason)) => ResourceExpectation {
                name: name.clone(),
                amount: Some(offer.amount),
                zones: offer.zones.iter().map(|share| (share.zone, share.amount)).collect(),
                origin: offer.origin,
                reason: Some(reason.clone()),
            },
            None => ResourceExpectation {
                name: name.clone(),
                amount: None,
                zones: BTreeMap::new(),
                origin: None,
                reason: None,
            },
        };
        changed.map(expectation).collect()
    }

    /// Adds the states of resources and evictions to the columns. `uid` returns a pod's UID. Fails on the first unknown name or word.
    pub(super) fn show(&self, columns: &mut Columns, uid: impl Fn(&str) -> Option<String>) -> Result<(), String> {
        let states = self.states.iter().map(|(name, row)| ResourceState {
            name: name.clone(),
            amount: row.amount,
            in_force: row.in_force,
            why: row.why.clone(),
        });
        columns.resource_states = states.collect();
        for (pod, row) in &self.evictions {
            let outcome = row.outcome().ok_or_else(|| format!("`{}` is no outcome of an eviction", row.outcome))?;
            let pod_uid = uid(pod).ok_or_else(|| format!("there is no pod `{pod}`"))?;
            columns.evictions.push(EvictionState { pod_uid, outcome, why: row.why.clone(), age_msec: row.age_millis });
        }
        Ok(())
    }
}

/// The default UID of a pod in a case file.
pub(super) fn uid(name: &str) -> Option<String> {
    let (namespace, name) = name.split_once('/')?;
    Some(format!("uid-of-{namespace}-{name}"))
}

/// Converts eviction requests to expectations, with the pod's name.
pub(super) fn evictions(
    requests: Vec<EvictionRequest>,
    name: impl Fn(PodId) -> String,
) -> impl Iterator<Item = EvictionExpectation> {
    requests.into_iter().map(move |request| EvictionExpectation::of(name(request.pod), request))
}
