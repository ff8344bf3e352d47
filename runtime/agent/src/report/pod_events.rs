//! Events for `kubectl describe pod`: sent when a policy begins to hold knobs of a pod, and when it has released them.
//!
//! Single writes are not reported: a quota may move every second. `qosm explain` shows the current values.

use std::collections::BTreeMap;

use qosm_cluster::kubernetes::PodEvent;
use qosm_model::pod::PodId;

use crate::report::Decision;
use crate::report::view::View;
use crate::reporting::Reporting;

/// Maximum number of settings that an event names; a pod may have many containers.
const NAMED: usize = 6;

impl Reporting {
    /// Sends events for the pods that this step wrote to.
    pub(crate) fn emit_pod_events(&mut self, view: &View<'_>, decisions: &[Decision]) {
        let Some(outbox) = self.outbox.clone() else { return };
        if decisions.is_empty() {
            return;
        }
        let mut written: BTreeMap<(&str, &str, &str), Vec<&Decision>> = BTreeMap::new();
        for decision in decisions {
            if let (Some(namespace), Some(pod)) = (&decision.namespace, &decision.pod) {
                written.entry((namespace, pod, &decision.policy)).or_default().push(decision);
            }
        }
        for ((namespace, name, policy), decisions) in written {
            let named = |given: &qosm_model::pod::Pod| given.namespace == namespace && given.name == name;
            let Some(entry) = view.pods.iter().find(|entry| named(&entry.pod)) else { continue };
            let (id, key) = (entry.id, (entry.id, policy.to_owned()));
            let (reason, message) = match (holds_on(view, policy, id), self.applied_events.contains(&key)) {
                (true, false) => ("PolicyApplied", format!("{policy} set {}", reported(&decisions))),
                // Also for settings that an earlier agent began: this agent ends them.
                (false, _) => ("PolicyReleased", format!("{policy} put back {}", reported(&decisions))),
                _ => continue,
            };
            let event = PodEvent {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: entry.pod.uid.clone(),
                is_warning: false,
                reason: reason.to_owned(),
                message,
                source: policy.to_owned(),
            };
            if !outbox.send(event) {
                continue;
            }
            if reason == "PolicyApplied" {
                self.applied_events.insert(key);
            } else {
                self.applied_events.remove(&key);
            }
        }
    }
}

fn holds_on(view: &View<'_>, policy: &str, pod: PodId) -> bool {
    let Some(entry) = view.pods.get(pod) else { return false };
    let by_policy = |stack: &[qosm_model::lease::Lease]| stack.iter().any(|lease| *lease.holder.policy == *policy);
    let follows = |target, knob| {
        let held = view.ledger.held().get(&(target, knob));
        held.is_some_and(|held| held.follows.is_some() && *held.policy == *policy)
    };
    let is_held = |target, knob| by_policy(view.ledger.leases().stack(target, knob)) || follows(target, knob);
    entry.targets().any(|target| view.ledger.held().of(target).any(|knob| is_held(target, knob)))
}

/// `app cpu.burst 0 -> 20000 (1000 % of the CPU limit); pod cpu.burst 0 -> 20000 (…)`.
fn reported(decisions: &[&Decision]) -> String {
    // Containers first: that is where people look.
    let mut ordered: Vec<_> = decisions.to_vec();
    ordered.sort_by_key(|decision| decision.container.is_none());
    let one = |decision: &&Decision| {
        let place = decision.container.as_deref().map_or("pod".to_owned(), |name| format!("container {name}"));
        let from = decision.current.as_ref().map_or("?".to_owned(), ToString::to_string);
        format!("{place} {} {from} -> {} ({})", decision.knob, decision.value, decision.reason)
    };
    let mut text = ordered.iter().take(NAMED).map(one).collect::<Vec<_>>().join("; ");
    match ordered.len().saturating_sub(NAMED) {
        0 => {}
        more => text.push_str(&format!("; and {more} more")),
    }
    text
}
