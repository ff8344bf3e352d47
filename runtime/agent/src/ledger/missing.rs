//! Features that this host lacks: reported once for all pods and containers.

use std::collections::{BTreeMap, BTreeSet};

use qosm_host::HostError;
use qosm_model::knob::{Knob, Target};

use crate::ledger::{Applied, Ledger};
use crate::table::PodTable;

/// Settings that need one missing kernel feature, by policy and cgroup.
#[derive(Default)]
struct Wanted<'a> {
    knobs: BTreeSet<Knob>,
    policies: BTreeSet<&'a str>,
    targets: BTreeSet<Target>,
}

/// The knobs that need one feature, and the feature: `memory.min, memory.low (needs …)`.
fn shown(why: &str, knobs: &BTreeSet<Knob>) -> String {
    let knobs: Vec<_> = knobs.iter().map(ToString::to_string).collect();
    format!("{} ({why})", knobs.join(", "))
}

impl Ledger {
    /// Notes that this host lacks a knob. `is_asked`: the pod asks for the policy by annotation.
    pub(super) fn note_missing(
        &mut self,
        pods: &PodTable,
        target: Target,
        knob: Knob,
        error: &HostError,
        is_asked: bool,
    ) {
        let Some(why) = error.lacking() else { return };
        if self.missing.logged.insert((why.to_owned(), knob)) {
            self.missing.unlogged.entry(why.to_owned()).or_default().insert(knob);
        }
        let Some(pod) = pods.of(target).filter(|_| is_asked).map(|entry| entry.id) else { return };
        if self.missing.reported.entry(pod).or_default().insert(knob) {
            self.missing.unreported.entry(pod).or_default().entry(why.to_owned()).or_default().insert(knob);
        }
    }

    /// Reports features found missing in this step: one log line for each feature, one event for each pod.
    pub(super) fn notify_missing(&mut self, pods: &PodTable, out: &mut Applied) {
        for (why, knobs) in std::mem::take(&mut self.missing.unlogged) {
            let knobs: Vec<_> = knobs.iter().map(ToString::to_string).collect();
            tracing::warn!(knobs = knobs.join(", "), error = why, "settings take no effect on this node");
        }
        for (pod, lacks) in std::mem::take(&mut self.missing.unreported) {
            let lacks: Vec<_> = lacks.iter().map(|(why, knobs)| shown(why, knobs)).collect();
            let message = format!("on this node these settings take no effect: {}", lacks.join("; "));
            out.notify(pods, Target::Pod(pod), "KnobRefused", message);
        }
    }

    /// Kernel features that policies need and this host lacks, one line each: the knobs, and the number of cgroups that need them.
    pub(crate) fn missing_features(&self) -> Vec<String> {
        let mut wanted: BTreeMap<&str, Wanted<'_>> = BTreeMap::new();
        for (&(target, knob), refusal) in &self.refusals {
            let Some(lacking) = &refusal.lacking else { continue };
            let missed = wanted.entry(lacking).or_default();
            missed.knobs.insert(knob);
            missed.policies.insert(&refusal.policy);
            missed.targets.insert(target);
        }
        let line = |(why, Wanted { knobs, policies, targets }): (&str, Wanted<'_>)| {
            let policies: Vec<_> = policies.into_iter().collect();
            let (many, count) = (if targets.len() == 1 { "" } else { "s" }, targets.len());
            let by = policies.join(", ");
            // Knobs of the node belong to no cgroup.
            let whose = match targets.contains(&Target::Node) {
                true => String::new(),
                false => format!(" for {count} cgroup{many}"),
            };
            format!("this node: no effect of {}; wanted by {by}{whose}", shown(why, &knobs))
        };
        wanted.into_iter().map(line).collect()
    }

    /// Number of settings that are not in force; each feature that the host lacks counts once.
    pub(crate) fn refusal_count(&self) -> usize {
        let lacking: BTreeSet<_> = self.refusals.values().filter_map(|refusal| refusal.lacking.as_deref()).collect();
        lacking.len() + self.refusals.values().filter(|refusal| refusal.lacking.is_none()).count()
    }
}
