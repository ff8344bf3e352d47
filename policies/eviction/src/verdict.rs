//! The reasons for a decision, as values and in English.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;
use crate::feature::{Feature, Kind, Resource};
use crate::input::Inputs;
use crate::order::Rank;
use crate::round::Amounts;
use crate::trigger::Trigger;

/// Reason of the event for an eviction that was carried out. Source: koordinator `pkg/koordlet/qosmanager/helpers/reason.go`.
pub const EVENT_EVICTED: &str = "evictPodSuccess";
/// Reason of the event for an eviction that failed.
pub const EVENT_FAILED: &str = "evictPodFail";
/// Prefix of each message.
pub const MESSAGE_PREFIX: &str = "trigger by koordlet feature ";

/// Why this pod is evicted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// Why pods have to leave: the threshold, and by how much it was exceeded.
    pub trigger: Trigger,
    /// Position among the candidates, from 1.
    pub place: usize,
    /// Number of candidates.
    pub candidates: usize,
    /// The sort key that gave it this position.
    pub rank: Rank,
    /// Amounts that the pod releases.
    pub freed: Amounts,
    /// What is still lacking after this pod; empty if it is the last one needed.
    pub lacking: BTreeMap<Resource, u64>,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trigger, place, candidates, rank, freed, lacking } = self;
        write!(f, "{trigger}; this pod is number {place} of {candidates} ({rank}) and releases ")?;
        let mut separator = "";
        for ((kind, resource), amount) in freed {
            let what = if *kind == Kind::Used { "used" } else { "requested" };
            write!(f, "{separator}{} of {} {what}", resource.show(*amount), resource.name())?;
            separator = ", ";
        }
        if freed.is_empty() {
            f.write_str("what is not measured")?;
        }
        separator = "; still to release: ";
        for (resource, amount) in lacking {
            write!(f, "{separator}{} of {}", resource.show(*amount), resource.name())?;
            separator = ", ";
        }
        Ok(())
    }
}

/// A condition that is reported when it begins and when it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// An invalid setting switches a feature off.
    Config(Feature),
    /// A feature cannot act because an input is missing.
    Missing(Feature),
    /// All candidates of a feature together release too little.
    NotEnough(Feature),
    /// The eviction of a pod was refused, by UID.
    Refused(String),
    /// A pod that was evicted is still there long after its grace period, by UID.
    Overdue(String),
}

/// A condition that began or ended, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The condition.
    pub condition: Condition,
    /// Whether it began (`true`) or ended.
    pub has_begun: bool,
    /// The text to log.
    pub text: String,
}

impl Report {
    /// The report of a condition that ended.
    pub(crate) fn ended(condition: &Condition, inputs: &Inputs) -> Self {
        let text = match condition {
            Condition::Config(feature) => format!("{feature}: its settings can be used again, or are gone"),
            Condition::Missing(feature) => format!("{feature}: what it needs is known again"),
            Condition::NotEnough(feature) => format!("{feature}: nothing is lacking any more"),
            Condition::Refused(uid) => {
                format!("{}: its eviction is no longer refused, or it is gone", pod(uid, inputs))
            }
            Condition::Overdue(uid) => format!("{} has left", pod(uid, inputs)),
        };
        Self { condition: condition.clone(), has_begun: false, text }
    }
}

/// Name of a pod, or its UID if the pod is gone.
fn pod(uid: &str, inputs: &Inputs) -> String {
    match inputs.pods.iter().find(|pod| pod.uid == uid) {
        Some(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        None => format!("pod {uid}"),
    }
}

/// The report of a condition that began.
pub(crate) fn begun(condition: &Condition, error: Option<&ConfigError>, detail: &str, inputs: &Inputs) -> Report {
    let text = match (condition, error) {
        (Condition::Config(feature), Some(error)) => format!("{feature} is off: {error}"),
        (Condition::Config(feature), None) => format!("{feature} is off: {detail}"),
        (Condition::Missing(feature), _) => format!("{feature} does nothing: {detail}"),
        (Condition::NotEnough(feature), _) => {
            format!("{feature}: all pods that it may evict release too little, {detail} are lacking")
        }
        (Condition::Refused(uid), _) => {
            format!("{}: its eviction was refused: {detail}; another pod may be chosen", pod(uid, inputs))
        }
        (Condition::Overdue(uid), _) => {
            let pod = pod(uid, inputs);
            format!("{pod} is still there long after it was evicted; it counts as released no longer")
        }
    };
    Report { condition: condition.clone(), has_begun: true, text }
}
