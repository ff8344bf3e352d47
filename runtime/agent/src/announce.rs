//! Account, the part for `kubectl describe pod`: what a policy does for a pod, told when it begins and when it has ended.
//!
//! Not each write: a quota may move every second. What holds at any moment is told by `qosm explain`.

use std::collections::{BTreeMap, BTreeSet};

use qosm_cluster::kubernetes::PodEvent;
use qosm_model::pod::PodId;

use crate::agent::{Agent, Step};
use crate::report::Decision;

/// So many settings are named; a pod may have many containers.
const NAMED: usize = 6;

/// The pods and policies that were told of.
pub(crate) type Announced = BTreeSet<(PodId, String)>;

impl Agent {
    /// Tells the owners of the pods that this step wrote to.
    pub(crate) fn announce(&mut self, step: &Step) {
        let Some(outbox) = self.outbox.clone() else { return };
        if step.decisions.is_empty() {
            return;
        }
        let mut written: BTreeMap<(&str, &str, &str), Vec<&Decision>> = BTreeMap::new();
        for decision in &step.decisions {
            if let (Some(namespace), Some(pod)) = (&decision.namespace, &decision.pod) {
                written.entry((namespace, pod, &decision.policy)).or_default().push(decision);
            }
        }
        for ((namespace, name, policy), decisions) in written {
            let named = |given: &qosm_model::pod::Pod| given.namespace == namespace && given.name == name;
            let Some(entry) = self.pods.iter().find(|entry| named(&entry.given)) else { continue };
            let (id, key) = (entry.id, (entry.id, policy.to_owned()));
            let (reason, message) = match (self.holds_on(policy, id), self.announced.contains(&key)) {
                (true, false) => ("PolicyApplied", format!("{policy} set {}", told(&decisions))),
                // Also what an agent before this one began: it is its successor that ends it.
                (false, _) => ("PolicyReleased", format!("{policy} put back {}", told(&decisions))),
                _ => continue,
            };
            let event = PodEvent {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: entry.given.uid.clone(),
                is_warning: false,
                reason: reason.to_owned(),
                message,
                source: policy.to_owned(),
            };
            if !outbox.tell(event) {
                continue;
            }
            if reason == "PolicyApplied" {
                self.announced.insert(key);
            } else {
                self.announced.remove(&key);
            }
        }
    }

    fn holds_on(&self, policy: &str, pod: PodId) -> bool {
        let Some(entry) = self.pods.get(pod) else { return false };
        let by_policy = |stack: &[qosm_model::lease::Lease]| stack.iter().any(|lease| *lease.holder.policy == *policy);
        entry.targets().any(|target| self.held.of(target).any(|knob| by_policy(self.leases.stack(target, knob))))
    }
}

/// `app cpu.burst 0 -> 20000 (1000 % of the CPU limit); pod cpu.burst 0 -> 20000 (…)`.
fn told(decisions: &[&Decision]) -> String {
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
