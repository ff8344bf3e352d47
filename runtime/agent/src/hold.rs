//! Holds: "do not touch this pod now", by annotation or by hand, with an end.

use qosm_model::lease::Timestamp;
use qosm_model::pod::Pod;
use qosm_model::problem::Problem;

use crate::journal::StoredHold;

/// The annotation that puts a pod on hold: `true`, or the moment (RFC 3339) at which the hold ends.
pub(crate) const ANNOTATION: &str = "qosm.io/hold";

/// A pod is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When it ends; `None` = when it is lifted.
    pub until: Option<Timestamp>,
    /// Who asked for it.
    pub source: HoldSource,
}

/// Who asked for a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldSource {
    /// The pod's annotation.
    Annotation,
    /// `qosm hold`.
    Operator,
}

impl Hold {
    /// Whether it is in force.
    pub fn holds_at(self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The hold that a pod's annotation asks for. A value that cannot be read holds the pod, since that is what its author
    /// wanted, and is reported.
    pub fn from_annotation(pod: &Pod) -> (Option<Self>, Option<Problem>) {
        let Some(text) = pod.annotations.get(ANNOTATION) else { return (None, None) };
        let hold = |until| Some(Self { until, source: HoldSource::Annotation });
        match text.trim() {
            "true" => (hold(None), None),
            "false" => (None, None),
            moment => match moment.parse::<jiff::Timestamp>() {
                Ok(until) => (hold(Some(Timestamp(until.as_millisecond()))), None),
                Err(_) => {
                    let problem = Problem {
                        object: format!("pod {}", pod.key()),
                        field: Some(format!("annotation {ANNOTATION}")),
                        message: format!(
                            "`{moment}` is neither `true`, `false` nor a moment like 2026-01-31T12:00:00Z; the pod is held until this is mended"
                        ),
                    };
                    (hold(None), Some(problem))
                }
            },
        }
    }
}

impl From<StoredHold> for Hold {
    fn from(stored: StoredHold) -> Self {
        Self { until: stored.until_millis.map(Timestamp), source: HoldSource::Operator }
    }
}

impl From<Hold> for StoredHold {
    fn from(hold: Hold) -> Self {
        Self { until_millis: hold.until.map(|until| until.0) }
    }
}
