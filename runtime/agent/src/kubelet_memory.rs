//! What the kubelet's MemoryQoS writes for a pod as it is specified now (KEP-2570), so that a resize in place is not mistaken for
//! a write by an operator.
//!
//! ```text
//! memory.min, memory.low = request
//! memory.high            = (request + (limit or allocatable − request) × factor), down to a whole page
//! ```
//!
//! The factor is the kubelet's `memoryThrottlingFactor`, which is not known here: any multiple of 0.01 matches. Before Kubernetes 1.27,
//! `memory.high` was limit × factor.

use qosm_host::knob_table::{Group, row};
use qosm_model::knob::{Knob, Value};
use qosm_model::pod::{Container, ContainerKind, Moment, Pod, Resources};
use qosm_model::unit::Bytes;

/// The properties of a node that the kubelet's formula needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground {
    /// Allocatable memory of the node; `None` = not known.
    pub(crate) allocatable: Option<Bytes>,
    /// Size of a page.
    pub(crate) page: Bytes,
}

/// Whether `found` is what the kubelet writes into the file of a container with these resources.
pub(crate) fn of_container(resources: Resources, knob: Knob, found: Value, ground: Ground) -> bool {
    let limit = resources.memory_limit.filter(|limit| limit.0 > 0);
    let request = resources.memory_request.or(limit).unwrap_or_default();
    if row(knob).is_granted_from_above() {
        return is_page_of(found, request.0, ground);
    }
    row(knob).group == Group::Protection && is_high(found, request.0, limit.or(ground.allocatable), ground)
}

/// Whether `found` is what the kubelet writes into a pod's file.
pub(crate) fn of_pod(pod: &Pod, moment: Moment, knob: Knob, found: Value, ground: Ground) -> bool {
    if !row(knob).is_granted_from_above() {
        return false;
    }
    let request = |container: &Container| {
        let own = container.resources(moment);
        own.memory_request.or(own.memory_limit).unwrap_or_default().0
    };
    let of_running = |container: &Container| if container.kind == ContainerKind::Init { 0 } else { request(container) };
    let own = pod.resources(moment).memory_request.map(|bytes| bytes.0);
    let requests = [own.unwrap_or_else(|| pod.peak(request)), pod.peak(of_running)];
    let overhead = pod.memory_overhead.0;
    requests
        .into_iter()
        .flat_map(|request| [request, request.saturating_add(overhead)])
        .any(|request| is_page_of(found, request, ground))
}

/// Whether a file that was set to this number of bytes would show `found`: the exact number, or rounded down to whole pages.
fn is_page_of(found: Value, bytes: u64, ground: Ground) -> bool {
    let page = ground.page.0.max(1);
    u64::try_from(number(found)).is_ok_and(|found| found == bytes || found == bytes / page * page)
}

fn is_high(found: Value, request: u64, base: Option<Bytes>, ground: Ground) -> bool {
    let Some(base) = base else { return false };
    if found == Value::Max {
        // Without room between request and limit, the kubelet sets no bound.
        return base.0 <= request;
    }
    let Ok(found) = u64::try_from(number(found)) else { return false };
    let page = u128::from(ground.page.0.max(1));
    let (found, request, base) = (u128::from(found), u128::from(request), u128::from(base.0));
    let pages = |bytes: u128| bytes / page;
    (1..=100_u128).any(|percent| {
        let today = request + base.saturating_sub(request) * percent / 100;
        let before = base * percent / 100;
        // The kubelet computes in floating point: one page more or less is the same value.
        [today, before].into_iter().any(|bytes| pages(bytes).abs_diff(pages(found)) <= 1)
    })
}

fn number(value: Value) -> i64 {
    value.number().unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GROUND: Ground = Ground { allocatable: Some(Bytes(1024 * MIB)), page: Bytes(4096) };

    fn memory(request: Option<u64>, limit: Option<u64>) -> Resources {
        Resources { memory_request: request.map(Bytes), memory_limit: limit.map(Bytes), ..Resources::default() }
    }

    fn of(bytes: u64) -> Value {
        Value::Number(i64::try_from(bytes).unwrap())
    }

    #[test]
    fn what_the_kubelet_writes_for_a_container_is_known_from_other_numbers() {
        let burstable = memory(Some(100 * MIB), Some(200 * MIB));
        for (resources, knob, found, expected) in [
            (burstable, Knob::MemoryMin, of(100 * MIB), true),
            (burstable, Knob::MemoryLow, of(100 * MIB), true),
            (burstable, Knob::MemoryMin, of(100 * MIB + 4096), false),
            (burstable, Knob::MemoryMin, of(0), false),
            (burstable, Knob::MemoryHigh, of(190 * MIB), true),
            (burstable, Knob::MemoryHigh, of(180 * MIB), true),
            // limit × 0.8, as before Kubernetes 1.27.
            (burstable, Knob::MemoryHigh, of(160 * MIB), true),
            (burstable, Knob::MemoryHigh, of(190 * MIB + 40_960), false),
            (burstable, Knob::MemoryHigh, Value::Max, false),
            (memory(Some(100 * MIB), Some(100 * MIB)), Knob::MemoryHigh, Value::Max, true),
            // Without a limit it is the node's memory: 100 + 924 × 0.9, down to a page.
            (memory(Some(100 * MIB), None), Knob::MemoryHigh, of(976_851_763 / 4096 * 4096), true),
            (memory(None, Some(64 * MIB)), Knob::MemoryMin, of(64 * MIB), true),
            (memory(Some(1000), None), Knob::MemoryMin, of(0), true),
            (burstable, Knob::OomGroup, of(0), false),
        ] {
            assert_eq!(of_container(resources, knob, found, GROUND), expected, "{knob} {found} {resources:?}");
        }
    }
}
