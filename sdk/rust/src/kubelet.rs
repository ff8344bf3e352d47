//! The quotas that a kubelet writes for the limits of a pod: the baseline of the knob.

use crate::{Bandwidth, ContainerKind, ContainerState, PodFacts, Target, scale};

/// Default length of the enforcement period.
pub(crate) const PERIOD_USEC: u64 = 100_000;
/// The smallest quota that the kernel accepts.
const QUOTA_MIN_USEC: u64 = 1_000;

/// The CFS quota for a CPU limit.
pub(crate) fn quota(limit_milli: u64, period_usec: u64) -> u64 {
    scale(limit_milli, period_usec, 1000).max(QUOTA_MIN_USEC)
}

/// The CPU limit of a pod's own cgroup in thousandths of a CPU; `None` unless all containers are limited.
pub(crate) fn pod_limit_milli(pod: &PodFacts) -> Option<u64> {
    if let Some(limit) = pod.cpu_limit_milli.filter(|milli| *milli > 0) {
        return Some(limit);
    }
    let (mut together, mut beside, mut peak) = (0_u64, 0_u64, 0_u64);
    for container in &pod.containers {
        let limit = container.cpu_limit_milli.filter(|milli| *milli > 0)?;
        match container.kind {
            ContainerKind::Regular => together = together.saturating_add(limit),
            ContainerKind::Sidecar => {
                beside = beside.saturating_add(limit);
                peak = peak.max(beside);
            }
            ContainerKind::Init => peak = peak.max(beside.saturating_add(limit)),
        }
    }
    let limit = together.saturating_add(beside).max(peak);
    (limit > 0).then(|| limit.saturating_add(pod.cpu_overhead_milli))
}

/// The quota column as a kubelet leaves it: a row for each active pod and each of its running containers.
///
/// ```
/// use qosm_sdk::{Container, PodFacts, Target, mock};
///
/// let app = Container { cpu_limit_milli: Some(500), ..mock::container(7, "app") };
/// let web = PodFacts { containers: vec![app, mock::container(8, "proxy")], ..mock::pod(1, "default", "web") };
/// let rows = mock::bandwidth(&[web]).into_iter().map(|row| (row.target, row.quota_usec)).collect::<Vec<_>>();
/// assert_eq!(
///     rows,
///     [(Target::Pod(1), None), (Target::Container(7), Some(50_000)), (Target::Container(8), None)],
///     "a pod is limited if all of its containers are"
/// );
/// ```
pub fn bandwidth(pods: &[PodFacts]) -> Vec<Bandwidth> {
    let mut rows = Vec::new();
    let mut push = |target, limit_milli: Option<u64>| {
        let quota_usec = limit_milli.filter(|milli| *milli > 0).map(|milli| quota(milli, PERIOD_USEC));
        rows.push(Bandwidth { target, quota_usec, baseline_quota_usec: quota_usec, period_usec: PERIOD_USEC });
    };
    for pod in pods.iter().filter(|pod| pod.active) {
        push(Target::Pod(pod.id), pod_limit_milli(pod));
        for container in pod.containers.iter().filter(|container| container.state == ContainerState::Running) {
            push(Target::Container(container.id), pod.cpu_limit_of(container));
        }
    }
    rows
}
