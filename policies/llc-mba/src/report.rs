//! Events for the owners of pods with their own shares.

use std::collections::BTreeMap;

use qosm_sdk::{ClassState, EventKind, PodEvent, PodId};

use crate::plan::{Plan, Tracked};
use crate::protocol::ANNOTATION;

/// Reason of the event.
const NOT_IN_FORCE: &str = "ResctrlNotInForce";
/// Maximum number of events per evaluation that the host accepts.
const EVENTS: usize = 256;
/// Maximum length of the explanation in characters; the host accepts messages of 4096 bytes.
const WHY_CHARS: usize = 700;

/// The last event of each pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    reported: BTreeMap<PodId, String>,
}

impl Report {
    /// Emits an event for each pod whose shares, or a part of them, are not in force, once for each reason. If there are more pods than events, the rest
    /// follows in the next evaluation.
    pub(crate) fn update(
        &mut self,
        plan: &Plan,
        states: &[ClassState],
        pods: &BTreeMap<PodId, Tracked>,
        host: &mut impl PodEvent,
    ) {
        self.reported.retain(|id, _| pods.get(id).is_some_and(|tracked| tracked.own.is_some() && tracked.pod.active));
        let mut left = EVENTS;
        for (&id, tracked) in pods.iter().filter(|(_, tracked)| tracked.own.is_some() && tracked.pod.active) {
            let mut is_partly = false;
            let why = if plan.crowded_out.contains(&id) {
                "pods of this node ask for too many different shares; give some of them equal ones, so that they share a class"
            } else {
                let class = plan.members.get(&id);
                let Some(state) = states.iter().find(|state| Some(&state.class) == class) else { continue };
                if state.in_force && state.why.is_empty() {
                    self.reported.remove(&id);
                    continue;
                }
                is_partly = state.in_force;
                state.why.as_str()
            };
            if left == 0 || self.reported.get(&id).is_some_and(|reported| reported == why) {
                continue;
            }
            left -= 1;
            let asked = tracked.own.as_ref().map(ToString::to_string).unwrap_or_default();
            let part = if is_partly { "not entirely" } else { "not" };
            let message = format!(
                "what annotation {ANNOTATION} asks for is {part} in force: {}; it asks for {}",
                cut(why),
                cut(&asked)
            );
            host.emit(id, EventKind::Warning, NOT_IN_FORCE, &message);
            self.reported.insert(id, why.to_owned());
        }
    }
}

fn cut(text: &str) -> String {
    let mut short: String = text.chars().take(WHY_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
