//! What follows from a pod's specification: the value that the kubelet, or the runtime for it, writes.

use qosm_host::Host;
use qosm_host::knob_table::{SpecifiedBy, row};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{KubeQos, Tier};
use qosm_model::unit::{Bytes, MilliCpu};

use crate::inputs::Inputs;
use crate::kubelet_memory;
use crate::ledger::resolved::number;
use crate::ledger::{Key, Ledger};

/// Time after a pod's memory was specified again in which a write of its bounds is taken for the kubelet's.
const RESIZE_MILLIS: i64 = 60_000;

impl Ledger {
    /// Whether a value is what the kubelet, or the runtime for it, writes for this pod as it is specified now.
    pub(super) fn is_specified(
        &self,
        host: &Host,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
        found: Value,
    ) -> bool {
        match row(knob).specified_by {
            None => false,
            Some(SpecifiedBy::Memory) => {
                is_kubelets_memory(host, inputs, self.memory_capacity, target, knob, found)
                    || is_being_resized(inputs, target)
            }
            Some(SpecifiedBy::MemoryLimit) => specified_memory(host, inputs, target) == Some(found),
            // The list that several containers share is the kubelet's own choice; people do not write it into one after the other.
            Some(SpecifiedBy::CpuManager) => matches!(target, Target::Container(_)),
            Some(SpecifiedBy::CpuLimit) => self.specified_quota(inputs, target) == Some(found),
            Some(SpecifiedBy::CpuRequest) => {
                requested(inputs, target).is_some_and(|request| host.requested_weights(request).contains(&found))
            }
        }
    }

    /// What comes back in the end of a knob that holds `written`. A CFS quota that is just what the pod's specification asks for is the
    /// kubelet's as much as qosm's: the kubelet that resizes the pod writes the same, which is not visible, and does not write it again.
    /// Where there was no quota at all, the kubelet sets none.
    pub(super) fn baseline_under(
        &self,
        inputs: &Inputs<'_>,
        (target, knob): Key,
        baseline: Value,
        written: Value,
    ) -> Value {
        let is_quota = row(knob).specified_by == Some(SpecifiedBy::CpuLimit);
        let is_limited = is_quota && baseline != Value::Max && baseline != written;
        if is_limited && self.specified_quota(inputs, target) == Some(written) { written } else { baseline }
    }

    fn specified_quota(&self, inputs: &Inputs<'_>, target: Target) -> Option<Value> {
        let period = self.quotas.get(target)?.period.0;
        let quota = |milli: u64| Value::Number(number(milli.saturating_mul(period) / 1000).max(1000));
        match target {
            Target::Container(id) => {
                let (entry, place) = inputs.pods.owner(id)?;
                entry.pod.containers.get(place)?.cpu_limit.filter(|limit| limit.0 > 0).map(|limit| quota(limit.0))
            }
            Target::Pod(id) => {
                let entry = inputs.pods.get(id)?;
                let total = entry
                    .pod
                    .containers
                    .iter()
                    .filter(|container| container.kind != qosm_model::pod::ContainerKind::Init)
                    .map(|container| container.cpu_limit.map(|limit| limit.0))
                    .sum::<Option<u64>>()?;
                (total > 0).then(|| quota(total.saturating_add(entry.pod.cpu_overhead.0)))
            }
            Target::Tier(_) => None,
        }
    }
}

fn is_kubelets_memory(
    host: &Host,
    inputs: &Inputs<'_>,
    capacity: Option<Bytes>,
    target: Target,
    knob: Knob,
    found: Value,
) -> bool {
    let allocatable = inputs.memory_allocatable.or(capacity);
    let ground = kubelet_memory::Ground { allocatable, page: host.page_size() };
    match target {
        Target::Container(id) => inputs.pods.owner(id).is_some_and(|(entry, place)| {
            let container = entry.pod.containers.get(place);
            container.is_some_and(|container| kubelet_memory::of_container(container, knob, found, ground))
        }),
        Target::Pod(id) => {
            inputs.pods.get(id).is_some_and(|entry| kubelet_memory::of_pod(&entry.pod, knob, found, ground))
        }
        Target::Tier(_) => false,
    }
}

/// The memory limit that the kubelet, or the runtime for it, writes.
fn specified_memory(host: &Host, inputs: &Inputs<'_>, target: Target) -> Option<Value> {
    let page = host.page_size().0.max(1);
    let bytes = |limit: Option<Bytes>| {
        let limit = limit.filter(|limit| limit.0 > 0);
        limit.map_or(Value::Max, |limit| Value::Number(number(limit.0 / page * page)))
    };
    match target {
        Target::Container(id) => {
            let (entry, place) = inputs.pods.owner(id)?;
            Some(bytes(entry.pod.containers.get(place)?.memory_limit))
        }
        Target::Pod(id) => {
            let pod = &inputs.pods.get(id)?.pod;
            let running = pod.containers.iter().filter(|one| one.kind != qosm_model::pod::ContainerKind::Init);
            let sum = running.map(|one| one.memory_limit.map(|limit| limit.0)).sum::<Option<u64>>();
            let sum = sum.filter(|sum| *sum > 0).map(|sum| Bytes(sum.saturating_add(pod.memory_overhead.0)));
            Some(bytes(pod.memory_limit.or(sum)))
        }
        Target::Tier(_) => None,
    }
}

/// Whether the memory of the target's pod was specified anew so short ago that the kubelet may still be at it.
fn is_being_resized(inputs: &Inputs<'_>, target: Target) -> bool {
    inputs.pods.resized(target).is_some_and(|then| inputs.now.wall.0.saturating_sub(then.0) <= RESIZE_MILLIS)
}

/// The CPU that a container, pod or tier requests: what the kubelet makes a weight of. `None` for the tier of all pods, whose weight
/// follows from the node.
fn requested(inputs: &Inputs<'_>, target: Target) -> Option<MilliCpu> {
    match target {
        Target::Container(id) => {
            let (entry, place) = inputs.pods.owner(id)?;
            let container = entry.pod.containers.get(place)?;
            Some(container.cpu_request.or(container.cpu_limit).unwrap_or_default())
        }
        Target::Pod(id) => Some(inputs.pods.get(id)?.pod.cpu_requested()),
        Target::Tier(Tier::Burstable) => {
            let burstable = inputs.pods.iter().filter(|entry| entry.pod.active);
            let requests = burstable.filter(|entry| entry.pod.kube_qos == KubeQos::Burstable);
            Some(MilliCpu(requests.map(|entry| entry.pod.cpu_requested().0).fold(0, u64::saturating_add)))
        }
        Target::Tier(Tier::BestEffort) => Some(MilliCpu(0)),
        Target::Tier(Tier::Guaranteed) => None,
    }
}
