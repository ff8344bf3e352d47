//! The cgroup values of BE pods: CPU weight, CFS quota and memory limit of the pod and of each container.
//!
//! Koordinator: `pkg/koordlet/runtimehooks/hooks/batchresource/batch_resource.go`, `rule.go`, `pkg/koordlet/util/system/cgroup.go`.

use qosm_sdk::{ContainerKind, ContainerState, QosClass, Target};

use crate::amounts::Resource;
use crate::config::{PolicyConfig, ResourceSource};
use crate::decimal::Decimal;
use crate::extended_resources::{BatchResources, ResourceNames, Resources};
use crate::finding::Finding;
use crate::pod::{Container, Pod};

/// CFS period in microseconds if the cgroup's own is unknown.
const PERIOD_USEC: u64 = 100_000;
/// Smallest quota that the kernel accepts, in microseconds.
const MIN_QUOTA_USEC: u64 = 1000;
/// Bounds of `cpu.shares`.
const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;
/// A smaller change of the CPU normalisation ratio is ignored.
const RATIO_STEP: Decimal = Decimal::hundredths(1);

/// The values to hold on a cgroup, as leases: when they are released, the kubelet's values return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The pod or container.
    pub target: Target,
    /// `cpu.shares` of cgroup v1.
    pub shares: u64,
    /// CFS quota in microseconds per period; `None` = unlimited.
    pub quota_usec: Option<u64>,
    /// Memory limit in bytes; `None` = unlimited.
    pub memory_bytes: Option<u64>,
    /// Memory in use above the limit, in bytes; `None` if the use is not above it. The limit has to be lowered in steps then, with reclaim
    /// in between.
    pub above_limit_bytes: Option<u64>,
    /// The source of the values, for people.
    pub reason: String,
}

impl Setting {
    /// `cpu.weight` of cgroup v2.
    pub fn weight(&self) -> u64 {
        weight(self.shares)
    }
}

/// `cpu.shares` for a request in thousandths of a CPU.
pub fn shares(milli: u64) -> u64 {
    qosm_sdk::scale(milli, 1024, 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// `cpu.weight` for `cpu.shares`, as KEP-2254 converts them.
pub fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9999 / (MAX_SHARES - MIN_SHARES)
}

/// The CFS quota for a limit in thousandths of a CPU; `None` = unlimited, also for a limit of 0. If a CPU of this node does the work of
/// `ratio` CPUs of the fleet's reference, the quota is divided by `ratio`.
pub fn quota(milli: u64, period_usec: u64, ratio: Option<Decimal>) -> Option<u64> {
    if milli == 0 {
        return None;
    }
    let quota = qosm_sdk::scale(milli, period_usec, 1000).max(MIN_QUOTA_USEC);
    let ratio = ratio.filter(|ratio| *ratio > Decimal::ONE);
    Some(ratio.map_or(quota, |ratio| ratio.divide(quota)).max(MIN_QUOTA_USEC))
}

/// The ratio that applies from now on; a change by less than a hundredth is ignored.
pub fn settled_ratio(applied: Option<Decimal>, new: Option<Decimal>) -> Option<Decimal> {
    let value = |ratio: Option<Decimal>| ratio.unwrap_or(Decimal::ONE);
    if value(applied).abs_diff(value(new)) < RATIO_STEP { applied } else { new }
}

/// The inputs that apply to the quotas of all BE pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRule {
    /// Whether suppression sets the quota of the whole besteffort tier. Pods and containers get none then, since a child may not exceed its
    /// parent.
    pub is_the_tiers: bool,
    /// The CPU normalisation ratio; `None` if it is not above 1.
    pub ratio: Option<Decimal>,
}

impl QuotaRule {
    fn quota(self, milli: Option<u64>, period_usec: Option<u64>) -> Option<u64> {
        let milli = milli.filter(|_| !self.is_the_tiers)?;
        quota(milli, period_usec.filter(|period| *period > 0).unwrap_or(PERIOD_USEC), self.ratio)
    }
}

/// The settings of all BE pods, each pod before its containers.
pub fn settings(pods: &[Pod], policy: &PolicyConfig, rule: QuotaRule, findings: &mut Vec<Finding>) -> Vec<Setting> {
    let names = ResourceNames::new(policy);
    let mut settings = Vec::new();
    for pod in pods {
        // Only the class that the pod declares counts, not the one that follows from its Kubernetes QoS.
        if pod.is_active && pod.declared_qos == Some(QosClass::Be) {
            let resources = Resources::of(pod, policy.resource_source, &names, findings);
            add_pod(pod, &resources, policy.resource_source, rule, &mut settings);
        }
    }
    settings
}

fn add_pod(pod: &Pod, resources: &Resources, source: ResourceSource, rule: QuotaRule, settings: &mut Vec<Setting>) {
    if resources.is_empty() {
        return;
    }
    let whole = pod_resources(pod, resources);
    let used = pod.containers.iter().map(|container| container.memory_used_bytes);
    let used = used.fold(None, |sum: Option<u64>, used| match (sum, used) {
        (Some(sum), Some(used)) => Some(sum.saturating_add(used)),
        (sum, used) => sum.or(used),
    });
    let from = match (resources.is_annotated, source) {
        (true, _) => "annotation",
        (false, ResourceSource::Annotation) => "specification, as there is no annotation",
        (false, ResourceSource::Spec) => "specification",
    };
    settings.push(setting(Target::Pod(pod.id), &whole, used, pod.period_usec, rule, from));
    for container in pod.containers.iter().filter(|container| container.state == ContainerState::Running) {
        // A container that the annotation does not name keeps its values.
        if let Some(own) = resources.of_container(&container.name) {
            let target = Target::Container(container.id);
            settings.push(setting(target, own, container.memory_used_bytes, container.period_usec, rule, from));
        }
    }
}

fn setting(
    target: Target,
    resources: &BatchResources,
    used: Option<u64>,
    period_usec: Option<u64>,
    rule: QuotaRule,
    from: &str,
) -> Setting {
    let memory_bytes = resources.memory_limit;
    let shown =
        |resource: Resource, amount: Option<u64>| amount.map_or("none".into(), |amount| resource.show(amount.into()));
    let quota_usec = rule.quota(resources.cpu_limit, period_usec);
    let mut reason = format!(
        "batch CPU request {}, limit {}, batch memory limit {}, by the {from}",
        shown(Resource::Cpu, resources.cpu_request),
        shown(Resource::Cpu, resources.cpu_limit),
        shown(Resource::Memory, memory_bytes),
    );
    if rule.is_the_tiers && resources.cpu_limit.is_some() {
        reason.push_str("; no quota while suppression sets that of the tier");
    } else if let (Some(_), Some(ratio)) = (quota_usec, rule.ratio) {
        reason.push_str(&format!("; quota divided by CPU normalisation {ratio}"));
    }
    let above_limit_bytes =
        memory_bytes.zip(used).and_then(|(limit, used)| used.checked_sub(limit)).filter(|more| *more > 0);
    if let Some(more) = above_limit_bytes {
        reason.push_str(&format!("; {} more than the limit in use", Resource::Memory.show(more.into())));
    }
    Setting {
        target,
        shares: shares(resources.cpu_request.unwrap_or(0)),
        quota_usec,
        memory_bytes,
        above_limit_bytes,
        reason,
    }
}

/// The resources of the pod as a whole: the sums over regular containers and sidecars, unlimited if one of them is. While init containers
/// run, the limits are at least theirs, since a child may not exceed its parent.
fn pod_resources(pod: &Pod, resources: &Resources) -> BatchResources {
    let counts = |container: &&Container| resources.counts(&container.name);
    let of = |container: &Container| resources.of_container(&container.name).copied().unwrap_or_default();
    let staying: Vec<_> = pod.staying().filter(counts).map(of).collect();
    let request = staying.iter().filter_map(|one| one.cpu_request).fold(0, u64::saturating_add);
    let sum = |limit: fn(&BatchResources) -> Option<u64>, peak: Option<u64>| {
        let sum = staying.iter().try_fold(0_u64, |sum, one| Some(sum.saturating_add(limit(one)?)))?;
        Some(sum.max(peak?)).filter(|sum| *sum > 0)
    };
    let peaks = if is_initialising(pod) { init_peaks(pod, of) } else { [Some(0); 2] };
    BatchResources {
        cpu_request: Some(request).filter(|request| *request > 0),
        cpu_limit: sum(|one| one.cpu_limit, peaks[0]),
        memory_request: None,
        memory_limit: sum(|one| one.memory_limit, peaks[1]),
    }
}

/// Whether an ordinary init container is running.
fn is_initialising(pod: &Pod) -> bool {
    let is_running =
        |container: &Container| container.kind == ContainerKind::Init && container.state == ContainerState::Running;
    pod.containers.iter().any(is_running)
}

/// The largest limits of a running init container together with the sidecars before it; `None` = unlimited.
fn init_peaks(pod: &Pod, of: impl Fn(&Container) -> BatchResources) -> [Option<u64>; 2] {
    let limits: [fn(&BatchResources) -> Option<u64>; 2] = [|one| one.cpu_limit, |one| one.memory_limit];
    limits.map(|limit| {
        let (mut sidecars, mut peak) = (0_u64, 0_u64);
        for container in &pod.containers {
            let own = limit(&of(container));
            match container.kind {
                ContainerKind::Sidecar => sidecars = sidecars.saturating_add(own?),
                ContainerKind::Init if container.state == ContainerState::Running => {
                    peak = peak.max(sidecars.saturating_add(own?));
                }
                ContainerKind::Init | ContainerKind::Regular => {}
            }
        }
        Some(peak)
    })
}

#[cfg(test)]
mod tests;
