//! What a pod and its containers request and are limited to, in bytes of the memory that counts for them.
//!
//! A pod that declares the class BE runs on reclaimed memory, so its batch resources count; every other pod's native ones do,
//! whatever its Kubernetes QoS. A limit of 0 is no limit.

use std::cmp::max;

use qosm_sdk::{Container, ContainerKind, ContainerState, PodFacts, QosClass};

use crate::formula::{MAX_BYTES, sum};

/// The extended resource of reclaimed memory, in today's spelling and in two older ones.
const BATCH_MEMORY: [&str; 3] =
    ["kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"];

/// A request and a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// 0 when not said.
    pub(crate) request: u64,
    /// `None` = unlimited.
    pub(crate) limit: Option<u64>,
}

/// Which memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Native,
    Batch,
}

/// What one container has.
pub(crate) fn of_container(pod: &PodFacts, container: &Container) -> Resources {
    memory(pod).of(container)
}

/// What the pod as a whole has.
///
/// The request is that of what runs now: regular containers and sidecars that have not ended, and the peak of ordinary init
/// containers only while one of them is still to run or to end. A pod-level request takes the place of both; the overhead
/// comes on top. The limit is the one that the kubelet gives the pod's cgroup: finite only where every container that stays
/// is limited, or the pod itself is.
pub(crate) fn of_pod(pod: &PodFacts) -> Resources {
    let memory = memory(pod);
    let staying = || pod.containers.iter().filter(|container| container.kind != ContainerKind::Init);
    let running = sum(staying().filter(|container| !ended(container)).map(|container| memory.of(container).request));
    let limits: Option<Vec<u64>> = staying().map(|container| memory.of(container).limit).collect();
    let limits = limits.filter(|limits| !limits.is_empty()).map(sum);
    if memory == Memory::Batch {
        // Batch resources have neither overhead nor a pod-level form, and ordinary init containers do not count.
        return Resources { request: running, limit: limits };
    }

    let requested = |container: &Container| if ended(container) { 0 } else { memory.of(container).request };
    let peak = if initialising(pod) { init_peak(pod, requested) } else { 0 };
    let limit = limits.map(|limits| max(limits, init_peak(pod, |container| memory.of(container).limit.unwrap_or(0))));
    let with_overhead = |bytes| sum([bytes, pod.memory_overhead_bytes]);
    Resources {
        request: with_overhead(pod.memory_request_bytes.unwrap_or(max(running, peak))),
        limit: finite(pod.memory_limit_bytes).or(limit).map(with_overhead),
    }
}

fn memory(pod: &PodFacts) -> Memory {
    if pod.declared_qos == Some(QosClass::Be) { Memory::Batch } else { Memory::Native }
}

impl Memory {
    fn of(self, container: &Container) -> Resources {
        let (request, limit) = match self {
            Self::Native => (container.memory_request_bytes, container.memory_limit_bytes),
            Self::Batch => BATCH_MEMORY
                .iter()
                .find_map(|name| container.extended_resources.iter().find(|resource| resource.name == *name))
                .map_or((None, None), |resource| (resource.request, resource.limit)),
        };
        Resources { request: request.unwrap_or(0).min(MAX_BYTES), limit: finite(limit) }
    }
}

fn finite(limit: Option<u64>) -> Option<u64> {
    limit.filter(|&limit| limit > 0).map(|limit| limit.min(MAX_BYTES))
}

fn ended(container: &Container) -> bool {
    container.state == ContainerState::Terminated
}

/// Whether ordinary init containers still matter. One that waits beside a started regular container has been, and its status
/// is gone.
fn initialising(pod: &PodFacts) -> bool {
    let any = |kind, state| pod.containers.iter().any(|container| container.kind == kind && container.state == state);
    any(ContainerKind::Init, ContainerState::Running)
        || any(ContainerKind::Init, ContainerState::Waiting) && !any(ContainerKind::Regular, ContainerState::Running)
}

/// The most that one ordinary init container takes together with the sidecars that were started before it.
fn init_peak(pod: &PodFacts, bytes: impl Fn(&Container) -> u64) -> u64 {
    let mut sidecars = 0;
    let mut peak = 0;
    for container in &pod.containers {
        match container.kind {
            ContainerKind::Sidecar => sidecars = sum([sidecars, bytes(container)]),
            ContainerKind::Init => peak = max(peak, sum([sidecars, bytes(container)])),
            ContainerKind::Regular => {}
        }
    }
    peak
}

#[cfg(test)]
mod tests;
