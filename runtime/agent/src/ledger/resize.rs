//! Stands in for the kubelet where the agent created a pod's cgroups: writes changed limits.

use qosm_host::knob_table::{Encoding, TABLE, row};
use qosm_host::{Executed, Host, HostError, Wanted};
use qosm_model::knob::Target;
use qosm_model::pod::Pod;
use qosm_model::problem::chain;

use crate::ledger::Ledger;
use crate::table::PodEntry;

impl Ledger {
    /// Writes the limits of a pod if they differ from `before`, and returns the outcome; `None` if they do not differ.
    pub(crate) fn resize(&mut self, host: &mut Host, entry: &PodEntry, before: &Pod) -> Option<Result<(), HostError>> {
        let given = &entry.pod;
        if bounds(given) == bounds(before) {
            return None;
        }
        let targets: Vec<Target> = entry.targets().collect();
        // With a burst in force a mainline kernel refuses a smaller quota, and with `cpu.idle` every kernel refuses a weight: both go
        // back to their baselines. The leases are written again in the next step.
        let in_the_way = || TABLE.iter().filter(|row| row.holds_back_partner).map(|row| row.knob);
        let in_the_way: Vec<Wanted> = targets
            .iter()
            .flat_map(|&target| in_the_way().map(move |knob| (target, knob)))
            .filter_map(|(target, knob)| {
                let held = self.held.get(&(target, knob))?;
                Some(Wanted { target, knob, value: held.baseline })
            })
            .collect();
        for lower in host.plan(&in_the_way).steps {
            let key = (lower.target, lower.knob);
            if let Ok(Executed::Done(shown)) = host.execute(&lower)
                && let Some(held) = self.held.get_mut(&key)
            {
                held.written = shown;
                self.dirty.insert(key);
            }
        }
        let resized = host.resize(given);
        if let Err(error) = &resized {
            tracing::warn!(pod = given.key(), error = chain(error), "changed limits cannot be written");
        }
        let weights: Vec<_> = self
            .held
            .keys()
            .filter(|(target, knob)| row(*knob).encoding == Encoding::Weight && targets.contains(target))
            .copied()
            .collect();
        for key in weights {
            if let Some(held) = self.held.get_mut(&key)
                && let Ok(weight) = host.read(key.0, key.1)
            {
                (held.baseline, held.written) = (weight, weight);
                self.dirty.insert(key);
            }
        }
        Some(resized)
    }
}

/// The resources that a kubelet turns into limits of cgroups.
fn bounds(pod: &Pod) -> impl PartialEq {
    let of_pod = (pod.cpu_limit, pod.memory_limit, pod.cpu_overhead, pod.memory_overhead);
    let containers = pod.containers.iter();
    let of_containers: Vec<_> =
        containers.map(|container| (container.cpu_request, container.cpu_limit, container.memory_limit)).collect();
    (of_pod, of_containers)
}
