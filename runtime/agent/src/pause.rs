//! Pauses: a pod is left as it is, by annotation or by `qosm pause`, until a moment or for good.

use qosm_model::lease::Timestamp;
use qosm_model::pod::Pod;
use qosm_model::problem::Problem;

use crate::journal::StoredPause;

/// The annotation that pauses a pod: `true`, or the moment (RFC 3339) at which the pause ends.
pub(crate) const ANNOTATION: &str = "qosm.io/paused";
/// Former name of [`ANNOTATION`], used if the pod does not carry the new one.
const OLD_ANNOTATION: &str = "qosm.io/hold";

/// A pause of a pod: nothing is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When the pause ends; `None` if it lasts until it is ended by hand.
    pub until: Option<Timestamp>,
    /// Where it comes from.
    pub source: PauseSource,
}

/// Where a pause comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseSource {
    /// The pod's annotation.
    Annotation,
    /// `qosm pause`.
    Operator,
}

/// The name and the value of the annotation that a pod carries.
fn annotation(pod: &Pod) -> Option<(&'static str, &str)> {
    [ANNOTATION, OLD_ANNOTATION].into_iter().find_map(|name| Some((name, pod.annotations.get(name)?.as_str())))
}

/// Whether a pod carries the annotation, under either name.
pub(crate) fn is_annotated(pod: &Pod) -> bool {
    annotation(pod).is_some()
}

impl Pause {
    /// Whether it is in force.
    pub fn is_active_at(self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The pause that a pod's annotation asks for. A value that cannot be parsed pauses the pod, since its author wanted a pause,
    /// and is reported.
    pub fn from_annotation(pod: &Pod) -> (Option<Self>, Option<Problem>) {
        let Some((name, text)) = annotation(pod) else { return (None, None) };
        let pause = |until| Some(Self { until, source: PauseSource::Annotation });
        match text.trim() {
            "true" => (pause(None), None),
            "false" => (None, None),
            moment => match moment.parse::<jiff::Timestamp>() {
                Ok(until) => (pause(Some(Timestamp(until.as_millisecond()))), None),
                Err(_) => {
                    let problem = Problem {
                        object: format!("pod {}", pod.key()),
                        field: Some(format!("annotation {name}")),
                        message: format!(
                            "`{moment}` is neither `true`, `false` nor a moment like 2026-01-31T12:00:00Z; the pod is paused until this is corrected"
                        ),
                    };
                    (pause(None), Some(problem))
                }
            },
        }
    }
}

impl From<StoredPause> for Pause {
    fn from(stored: StoredPause) -> Self {
        Self { until: stored.until_millis.map(Timestamp), source: PauseSource::Operator }
    }
}

impl From<Pause> for StoredPause {
    fn from(pause: Pause) -> Self {
        Self { until_millis: pause.until.map(|until| until.0) }
    }
}
