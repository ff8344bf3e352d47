//! Converts the host's columns into the inputs of the formulas.

use std::collections::BTreeMap;

use qosm_sdk::{
    ApplicationUse, ContainerId, Group, GroupMemory, GroupUse, Host, KubeQos, NoConfig, NodeObjectFacts, PodId,
    PodObjectFacts, Pods, Target, Tier,
};

use crate::Inputs;
use crate::amounts::Amounts;
use crate::class::{self, PriorityClass};
use crate::extended_resources::EXTENDED_RESOURCE_SPEC;
use crate::node::{Node, Zone};
use crate::pod::{self, Container, Pod};
use crate::usage::tracker::{HostApplication, PodUsage, Usage};
use crate::usage::{MemoryUse, Sample};

/// Annotation in which the scheduler names the NUMA nodes of a pod.
const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";

/// Reads all columns.
pub(super) fn read<H: Host>(host: &mut H, node: Option<&Node>, listed: &Pods<NoConfig>) -> Inputs {
    let objects: BTreeMap<PodId, PodObjectFacts> =
        host.pod_objects().into_iter().map(|object| (object.pod, object)).collect();
    let periods: BTreeMap<Target, u64> =
        host.bandwidth().into_iter().map(|row| (row.target, row.period_usec)).collect();
    let memory: BTreeMap<ContainerId, u64> = host
        .memory()
        .into_iter()
        .map(|sample| (sample.container, sample.usage_bytes.saturating_sub(sample.file_bytes)))
        .collect();
    let pods: Vec<Pod> = listed.iter().map(|pod| of_pod(pod, objects.get(&pod.id), &periods, &memory)).collect();
    let usage = usage(host, &pods, listed);
    Inputs { node: node.cloned(), pods: Some(pods), usage }
}

fn amount(of: &NodeObjectFacts, name: &str, allocatable: bool) -> u64 {
    let found = of.resources.iter().find(|amount| amount.name == name);
    // As in Kubernetes, allocatable defaults to capacity.
    amount_of(found.and_then(|found| if allocatable { found.allocatable.or(found.capacity) } else { found.capacity }))
}

/// A negative amount counts as 0.
fn amount_of(amount: Option<i64>) -> u64 {
    amount.and_then(|amount| u64::try_from(amount).ok()).unwrap_or(0)
}

/// Converts the Node object.
pub(super) fn node(object: &NodeObjectFacts) -> Node {
    let amounts = |allocatable| Amounts::new(amount(object, "cpu", allocatable), amount(object, "memory", allocatable));
    let extended = object.resources.iter().filter(|amount| !matches!(amount.name.as_str(), "cpu" | "memory"));
    let zone = |zone: &qosm_sdk::NodeZone| {
        let of = |name: &str| {
            amount_of(zone.resources.iter().find(|amount| amount.name == name).and_then(|found| found.allocatable))
        };
        Zone { id: zone.id, allocatable: Amounts::new(of("cpu"), of("memory")) }
    };
    Node {
        labels: object.labels.iter().cloned().collect(),
        annotations: object.annotations.iter().cloned().collect(),
        capacity: amounts(false),
        allocatable: amounts(true),
        extended: extended
            .filter_map(|amount| Some((amount.name.clone(), u64::try_from(amount.allocatable?).ok()?)))
            .collect(),
        zones: object.zones.iter().map(zone).collect(),
    }
}

fn of_pod(
    pod: &qosm_sdk::Pod<NoConfig>,
    object: Option<&PodObjectFacts>,
    periods: &BTreeMap<Target, u64>,
    memory: &BTreeMap<ContainerId, u64>,
) -> Pod {
    let annotation = |key: &str| {
        let annotations = object.into_iter().flat_map(|object| &object.annotations);
        annotations.into_iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str())
    };
    let label = pod.labels.iter().find(|(name, _)| name == class::PRIORITY_CLASS_LABEL).map(|(_, word)| word.as_str());
    let container = |own: &qosm_sdk::Container| Container {
        id: own.id,
        name: own.name.clone(),
        kind: own.kind,
        state: own.state,
        request: Amounts::new(own.cpu_request_milli.unwrap_or(0), own.memory_request_bytes.unwrap_or(0)),
        extended: own.extended_resources.clone(),
        memory_used_bytes: memory.get(&own.id).copied(),
        period_usec: periods.get(&Target::Container(own.id)).copied(),
    };
    Pod {
        id: pod.id,
        uid: pod.uid.clone(),
        name: format!("{}/{}", pod.namespace, pod.name),
        is_active: pod.active,
        declared_qos: pod.declared_qos,
        qos: pod.qos,
        priority: PriorityClass::of_pod(label, pod.priority, pod.qos),
        overhead: Amounts::new(pod.cpu_overhead_milli, pod.memory_overhead_bytes),
        cpu_request_milli: object.and_then(|object| object.cpu_request_milli),
        memory_request_bytes: pod.memory_request_bytes,
        numa_nodes: annotation(RESOURCE_STATUS).map(pod::numa_nodes).unwrap_or_default(),
        extended_resource_spec: annotation(EXTENDED_RESOURCE_SPEC).map(str::to_owned),
        period_usec: periods.get(&Target::Pod(pod.id)).copied(),
        containers: pod.containers.iter().map(container).collect(),
    }
}

/// The use within the window; `None` if some part of it is unknown.
fn usage<H: Host>(host: &mut H, pods: &[Pod], listed: &Pods<NoConfig>) -> Option<Usage> {
    let cpu_usec = host.node().cpu_usage_usec?;
    let memory = host.node_memory()?;
    let memory =
        MemoryUse::of_node(memory.total_bytes, memory.available_bytes, memory.free_bytes, memory.active_file_bytes);
    let of = |row: &GroupUse| Some(Sample { cpu_usec: row.cpu_usage_usec?, memory: of_cgroup(row.memory?) });
    let groups = host.group_use();
    let known: BTreeMap<PodId, &Pod> = pods.iter().map(|pod| (pod.id, pod)).collect();
    let pod = |row: &GroupUse| {
        let Group::Pod(id) = row.group else { return None };
        let pod = known.get(&id)?;
        Some(PodUsage { uid: pod.uid.clone(), priority: pod.priority, sample: of(row)? })
    };
    let mut measured: Vec<PodUsage> = groups.iter().filter_map(pod).collect();
    // An application that was read only once counts with the group that its cgroup is in.
    let applications: Vec<(Option<Tier>, HostApplication)> =
        host.application_use().iter().filter_map(|row| Some((row.tier, application(row)?))).collect();
    measured.extend(unlisted(&groups, listed, &applications, of));
    let outside = applications.iter().filter(|(tier, _)| tier.is_none());
    let outside = outside.fold(Sample::default(), |sum, (_, application)| sum.plus(application.sample));
    Some(Usage {
        node: Sample { cpu_usec, memory },
        // If the kernel does not report it, it is what remains of the node's use.
        system: groups.iter().find(|row| row.group == Group::Outside).and_then(of).map(|all| all.minus(outside)),
        pods: measured,
        host_applications: applications.into_iter().map(|(_, application)| application).collect(),
        memory_stalled_usec: host.node_pressure().map(|pressure| pressure.memory.some_usec),
    })
}

/// The use of the Guaranteed and Burstable tiers beyond the listed pods, that is, of pods that the API server has forgotten while their
/// processes still run. Their class is unknown, so they count as high priority; unlisted pods of the BestEffort tier are batch by their
/// Kubernetes QoS. A new pod is measured as part of its tier before it is measured itself; the sample is empty while that is so.
fn unlisted(
    groups: &[GroupUse],
    pods: &Pods<NoConfig>,
    applications: &[(Option<Tier>, HostApplication)],
    of: impl Fn(&GroupUse) -> Option<Sample>,
) -> Option<PodUsage> {
    let tier = |tier| groups.iter().find(|row| row.group == Group::Tier(tier)).and_then(&of);
    let all = tier(Tier::Guaranteed)?;
    let is_best_effort: BTreeMap<PodId, bool> =
        pods.iter().map(|pod| (pod.id, pod.kube_qos == KubeQos::BestEffort)).collect();
    let listed = |best_effort: bool| {
        let mut rows = groups.iter().filter_map(|row| match row.group {
            Group::Pod(id) if (is_best_effort.get(&id) == Some(&true)) == best_effort => Some(of(row)),
            _ => None,
        });
        let of_pods = rows.try_fold(Sample::default(), |sum, row| Some(sum.plus(row?)))?;
        // Host applications whose cgroups are among those of the pods.
        let here = applications.iter().filter(|(tier, _)| match tier {
            Some(Tier::BestEffort) => best_effort,
            Some(Tier::Guaranteed | Tier::Burstable) => !best_effort,
            None => false,
        });
        Some(here.fold(of_pods, |sum, (_, application)| sum.plus(application.sample)))
    };
    let sample = match (listed(false), listed(true)) {
        (Some(others), Some(best_effort)) => {
            // The tier's counters may be below the sum of its pods, since they are read at different moments.
            let tier = tier(Tier::BestEffort).unwrap_or_default();
            all.minus(tier.plus(best_effort.minus(tier))).minus(others)
        }
        _ => Sample::default(),
    };
    Some(PodUsage { uid: String::new(), priority: PriorityClass::None, sample })
}

/// Converts a host application; `None` if some part of its use is unknown.
fn application(row: &ApplicationUse) -> Option<HostApplication> {
    Some(HostApplication {
        priority: row.priority.as_deref().map_or(PriorityClass::None, PriorityClass::by_name),
        sample: Sample { cpu_usec: row.cpu_usage_usec?, memory: of_cgroup(row.memory?) },
    })
}

fn of_cgroup(memory: GroupMemory) -> MemoryUse {
    MemoryUse::of_cgroup(memory.usage_bytes, memory.active_file_bytes, memory.inactive_file_bytes)
}
