//! The memory requests and limits of pods and containers, in bytes.
//!
//! A pod that declares the class BE runs on reclaimed memory, so its batch resources count; for all other pods the native resources count,
//! whatever their Kubernetes QoS. A limit of 0 means no limit. A container without a limit is bounded by its pod (`spec.resources`,
//! KEP-2837), and otherwise by the node.

use std::cmp::max;
use std::fmt;

use qosm_sdk::{Container, ContainerKind, ContainerState, PodFacts, QosClass};

use crate::formula::{MAX_BYTES, sum};

/// The extended resource of reclaimed memory: the current name and two older ones.
const BATCH_MEMORY: [&str; 3] =
    ["kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"];

/// A memory amount below this is implausible: container runtimes refuse limits below some hundred KiB.
const PLAUSIBLE_BYTES: u64 = 1 << 20;

/// A request and a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    /// 0 if not set.
    pub(crate) request: u64,
    /// `None` = unlimited.
    pub(crate) limit: Option<u64>,
}

/// The kind of memory resource that counts for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Native,
    Batch,
}

/// The resources of a container; without a limit of its own, that of its pod.
pub(crate) fn of_container(pod: &PodFacts, container: &Container) -> Resources {
    let memory = memory(pod);
    let own = memory.of(container);
    let limit = match memory {
        Memory::Native => pod.memory_limit_of(container),
        // The pod's cgroup has the native limit even if its containers run on batch memory.
        Memory::Batch => own.limit.or(pod.memory_limit_bytes),
    };
    Resources { limit: finite(limit), ..own }
}

/// Name of the resource that a pod's containers have to request.
pub(crate) fn requested_name(pod: &PodFacts) -> &'static str {
    match memory(pod) {
        Memory::Native => "memory",
        Memory::Batch => BATCH_MEMORY[0],
    }
}

/// Whether the container has a limit of its own.
pub(crate) fn has_limit(pod: &PodFacts, container: &Container) -> bool {
    memory(pod).of(container).limit.is_some()
}

/// The part of the pod's request that a container without a request may count on; 0 if there is none.
pub(crate) fn left_of_pod_request(pod: &PodFacts, container: &Container) -> u64 {
    match memory(pod) {
        Memory::Native if memory(pod).of(container).request == 0 => pod.memory_request_of(container).min(MAX_BYTES),
        Memory::Native | Memory::Batch => 0,
    }
}

/// An implausibly small amount of memory, which probably lost its unit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LostUnit {
    /// Namespace and name.
    pod: String,
    container: Option<String>,
    /// `limits` or `requests`, and the resource.
    resource: String,
    bytes: u64,
}

impl fmt::Display for LostUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, container, resource, bytes } = self;
        write!(f, "pod {pod}")?;
        if let Some(container) = container {
            write!(f, ", container {container}")?;
        }
        write!(f, ": {resource} is {bytes}, which is {bytes} bytes; was {bytes}Mi meant?")
    }
}

/// Whether an amount is too small to run a container.
pub(crate) fn lacks_unit(bytes: u64) -> bool {
    (1..PLAUSIBLE_BYTES).contains(&bytes)
}

/// The amounts of a pod and its containers that are too small to run a container.
pub(crate) fn lost_units(pod: &PodFacts) -> Vec<LostUnit> {
    let memory = memory(pod);
    let mut found = Vec::new();
    let mut look = |container: Option<&str>, kind: &str, name: &str, bytes: Option<u64>| {
        if let Some(bytes) = bytes.filter(|bytes| lacks_unit(*bytes)) {
            let resource = format!("{kind} {name}");
            let container = container.map(str::to_owned);
            found.push(LostUnit { pod: format!("{}/{}", pod.namespace, pod.name), container, resource, bytes });
        }
    };
    if memory == Memory::Native {
        look(None, "requests", "memory", pod.memory_request_bytes);
        look(None, "limits", "memory", pod.memory_limit_bytes);
    }
    for container in pod.containers.iter().filter(|container| !ended(container)) {
        let (name, request, limit) = memory.asked(container);
        look(Some(&container.name), "limits", name, limit);
        // If request and limit are equal, one message is enough.
        look(Some(&container.name), "requests", name, request.filter(|_| request != limit));
    }
    found
}

/// The resources of the pod as a whole.
///
/// The request covers what runs now: regular containers and sidecars that have not ended, and the peak of ordinary init containers while
/// one of them is still waiting or running. A pod-level request replaces both; the overhead is added. The limit is finite only if every
/// regular container and sidecar has a limit, or the pod itself has one; a kubelet also requires one of ordinary init containers.
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
        let (_, request, limit) = self.asked(container);
        Resources { request: request.unwrap_or(0).min(MAX_BYTES), limit: finite(limit) }
    }

    /// Name, request and limit of the resource that counts, as in the specification.
    fn asked(self, container: &Container) -> (&str, Option<u64>, Option<u64>) {
        match self {
            Self::Native => ("memory", container.memory_request_bytes, container.memory_limit_bytes),
            Self::Batch => BATCH_MEMORY
                .iter()
                .find_map(|name| container.extended_resources.iter().find(|resource| resource.name == *name))
                .map_or((BATCH_MEMORY[0], None, None), |resource| {
                    (resource.name.as_str(), resource.request, resource.limit)
                }),
        }
    }
}

fn finite(limit: Option<u64>) -> Option<u64> {
    limit.filter(|&limit| limit > 0).map(|limit| limit.min(MAX_BYTES))
}

fn ended(container: &Container) -> bool {
    container.state == ContainerState::Terminated
}

/// Whether ordinary init containers still matter. If a regular container has started, a waiting init container has already run, and its
/// status is gone.
fn initialising(pod: &PodFacts) -> bool {
    let any = |kind, state| pod.containers.iter().any(|container| container.kind == kind && container.state == state);
    any(ContainerKind::Init, ContainerState::Running)
        || any(ContainerKind::Init, ContainerState::Waiting) && !any(ContainerKind::Regular, ContainerState::Running)
}

/// The largest amount of an ordinary init container together with the sidecars started before it.
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
