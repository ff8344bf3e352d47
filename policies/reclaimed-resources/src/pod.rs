//! Pods and their containers, and the effective request of a pod.

use std::collections::BTreeMap;

use qosm_sdk::{ContainerId, ContainerKind, ContainerState, ExtendedResource, PodId, QosClass};

use crate::amounts::Amounts;
use crate::class::PriorityClass;

/// A pod on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Id of the pod in settings.
    pub id: PodId,
    /// `metadata.uid`; identifies the pod in measurements, also across a restart of the agent.
    pub uid: String,
    /// Namespace and name, for messages.
    pub name: String,
    /// Whether its phase is Pending or Running.
    pub is_active: bool,
    /// The QoS class that the pod declares; `None` if it declares none.
    pub declared_qos: Option<QosClass>,
    /// The declared QoS class, or else the one that corresponds to its Kubernetes QoS.
    pub qos: QosClass,
    /// The priority class, see [`PriorityClass::of_pod`].
    pub priority: PriorityClass,
    /// `spec.overhead`.
    pub overhead: Amounts,
    /// `spec.resources.requests.cpu` in thousandths of a CPU; replaces the containers' requests.
    pub cpu_request_milli: Option<u64>,
    /// `spec.resources.requests.memory` in bytes; replaces the containers' requests.
    pub memory_request_bytes: Option<u64>,
    /// NUMA nodes in `numaNodeResources` of the annotation `scheduling.koordinator.sh/resource-status`.
    pub numa_nodes: Vec<u32>,
    /// The annotation `node.koordinator.sh/extended-resource-spec`.
    pub extended_resource_spec: Option<String>,
    /// The CFS period of the pod's cgroup in microseconds; `None` = 100 ms.
    pub period_usec: Option<u64>,
    /// Init containers, sidecars and regular containers, in the order of the specification.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Id of the container in settings.
    pub id: ContainerId,
    /// Name of the container in the pod.
    pub name: String,
    /// Whether it is a regular, sidecar or init container.
    pub kind: ContainerKind,
    /// State of the container.
    pub state: ContainerState,
    /// `requests.cpu` and `requests.memory`; 0 if not set.
    pub request: Amounts,
    /// All other resources.
    pub extended: Vec<ExtendedResource>,
    /// Memory in use in bytes, without page cache; `None` if unknown.
    pub memory_used_bytes: Option<u64>,
    /// The CFS period in microseconds; `None` = 100 ms.
    pub period_usec: Option<u64>,
}

impl Container {
    /// The extended resource under the first of the names that the container has.
    pub(crate) fn extended<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Option<&ExtendedResource> {
        names.into_iter().find_map(|name| self.extended.iter().find(|resource| resource.name == *name))
    }
}

impl Pod {
    /// The request that the scheduler counts for the pod: the sum of regular containers and sidecars, or more if an init container needs
    /// more together with the sidecars before it. A pod-level request replaces that; overhead is added.
    ///
    /// Kubernetes: `component-helpers/resource/helpers.go`.
    pub fn request(&self) -> Amounts {
        let request = self.effective(|container| container.request);
        Amounts::new(
            self.cpu_request_milli.unwrap_or(request.cpu_milli),
            self.memory_request_bytes.unwrap_or(request.memory_bytes),
        )
        .plus(self.overhead)
    }

    /// The request of a pair of extended resources, by the same rule but without overhead.
    pub(crate) fn extended_request(&self, cpu: &[String], memory: &[String]) -> Amounts {
        let of = |container: &Container, names| {
            container.extended(names).and_then(|resource| resource.request.or(resource.limit)).unwrap_or(0)
        };
        self.effective(|container| Amounts::new(of(container, cpu), of(container, memory)))
    }

    /// The regular containers and sidecars.
    pub(crate) fn staying(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|container| container.kind != ContainerKind::Init)
    }

    fn effective(&self, amounts: impl Fn(&Container) -> Amounts) -> Amounts {
        let (mut together, mut sidecars, mut peak) = (Amounts::ZERO, Amounts::ZERO, Amounts::ZERO);
        for container in &self.containers {
            let amounts = amounts(container);
            match container.kind {
                ContainerKind::Regular => together = together.plus(amounts),
                ContainerKind::Sidecar => {
                    sidecars = sidecars.plus(amounts);
                    peak = peak.max(sidecars);
                }
                ContainerKind::Init => peak = peak.max(sidecars.plus(amounts)),
            }
        }
        together.plus(sidecars).max(peak)
    }
}

/// Maximum length of that annotation in bytes: a pod's owner may write 256 KiB, which would take the time of an evaluation.
const MAX_STATUS_BYTES: usize = 4096;

/// The NUMA nodes in the annotation `scheduling.koordinator.sh/resource-status`; empty if it cannot be read, as for a pod without NUMA
/// placement. Negative and repeated numbers are ignored.
pub fn numa_nodes(resource_status: &str) -> Vec<u32> {
    if resource_status.len() > MAX_STATUS_BYTES {
        return Vec::new();
    }
    let Ok(fields) = crate::json::parse(resource_status) else { return Vec::new() };
    let Ok(Some(items)) = crate::json::list(&fields, "numaNodeResources") else { return Vec::new() };
    let mut nodes: Vec<u32> = items
        .iter()
        .filter_map(|item| crate::json::field(item.as_object()?, "node")?.as_u64())
        .filter_map(|node| u32::try_from(node).ok())
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// For each name of a resource, what the containers of active pods on this node request under the other names.
///
/// If one amount is published under several names, each pod requests it under one of them, and the amounts under the other names have to
/// shrink. Otherwise two schedulers, or one that counts names separately, would allocate it twice.
pub(crate) fn requested_elsewhere(pods: &[Pod], names: &[String]) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    if sums.len() < 2 {
        return sums;
    }
    for container in pods.iter().filter(|pod| pod.is_active).flat_map(Pod::staying) {
        let requested = |name: &String| {
            let resource = container.extended.iter().find(|resource| resource.name == *name)?;
            resource.request.or(resource.limit)
        };
        let most = names.iter().filter_map(requested).max().unwrap_or(0);
        for (name, sum) in &mut sums {
            *sum = sum.saturating_add(most - requested(name).unwrap_or(0).min(most));
        }
    }
    sums
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn container(name: &str, kind: ContainerKind, cpu: u64, memory: u64) -> Container {
        Container {
            id: 1,
            name: name.into(),
            kind,
            state: ContainerState::Running,
            request: Amounts::new(cpu, memory),
            extended: Vec::new(),
            memory_used_bytes: None,
            period_usec: None,
        }
    }

    pub(crate) fn pod(uid: &str, containers: Vec<Container>) -> Pod {
        Pod {
            id: 1,
            uid: uid.into(),
            name: format!("default/{uid}"),
            is_active: true,
            declared_qos: None,
            qos: QosClass::Ls,
            priority: PriorityClass::Prod,
            overhead: Amounts::ZERO,
            cpu_request_milli: None,
            memory_request_bytes: None,
            numa_nodes: Vec::new(),
            extended_resource_spec: None,
            period_usec: None,
            containers,
        }
    }

    pub(crate) fn extended(name: &str, request: Option<u64>, limit: Option<u64>) -> ExtendedResource {
        ExtendedResource { name: name.into(), request, limit }
    }

    #[test]
    fn a_request_is_what_the_scheduler_counts() {
        use ContainerKind::{Init, Regular, Sidecar};
        let sum = |containers: &[(ContainerKind, u64, u64)]| {
            let containers = containers.iter().map(|(kind, cpu, memory)| container("c", *kind, *cpu, *memory));
            pod("u", containers.collect()).request()
        };
        for (containers, expected) in [
            (&[] as &[_], Amounts::ZERO),
            (&[(Regular, 100, 10), (Regular, 200, 20)], Amounts::new(300, 30)),
            (&[(Init, 500, 5), (Regular, 100, 10)], Amounts::new(500, 10)),
            (&[(Sidecar, 50, 5), (Init, 500, 5), (Regular, 100, 10)], Amounts::new(550, 15)),
            (&[(Init, 500, 5), (Sidecar, 50, 5), (Regular, 100, 10)], Amounts::new(500, 15)),
            (&[(Sidecar, 50, 5), (Sidecar, 60, 6), (Regular, 100, 10)], Amounts::new(210, 21)),
        ] {
            assert_eq!(sum(containers), expected, "{containers:?}");
        }
        let mut whole = pod("u", vec![container("c", Regular, 100, 10)]);
        whole.overhead = Amounts::new(7, 3);
        assert_eq!(whole.request(), Amounts::new(107, 13));
        whole.cpu_request_milli = Some(1000);
        assert_eq!(whole.request(), Amounts::new(1007, 13));
        whole.memory_request_bytes = Some(100);
        assert_eq!(whole.request(), Amounts::new(1007, 103));
    }

    #[test]
    fn numa_nodes_are_read_and_what_cannot_be_is_no_placement() {
        for (text, nodes) in [
            (r#"{"cpuset":"0-3","numaNodeResources":[{"node":1,"resources":{"cpu":"4"}},{"node":0}]}"#, vec![0, 1]),
            (r#"{"numaNodeResources":[{"node":1},{"node":1}]}"#, vec![1]),
            (r#"{"numaNodeResources":[{"node":-1},{"node":2},{},7]}"#, vec![2]),
            (r#"{"cpuset":"0-3"}"#, vec![]),
            ("{", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(numa_nodes(text), nodes, "{text}");
        }
    }

    #[test]
    fn what_is_requested_under_another_name_is_counted_once() {
        let names = ["kubernetes.io/batch-cpu".to_owned(), "alibabacloud.com/reclaimed-cpu".to_owned()];
        let with =
            |extended: Vec<ExtendedResource>| Container { extended, ..container("c", ContainerKind::Regular, 0, 0) };
        let mut ended = pod("ended", vec![with(vec![extended(&names[0], Some(9000), None)])]);
        ended.is_active = false;
        let pods = [
            pod("new", vec![with(vec![extended(&names[0], Some(1000), Some(2000))])]),
            pod(
                "old",
                vec![with(vec![extended(&names[1], Some(300), None)]), with(vec![extended(&names[1], None, Some(40))])],
            ),
            pod("both", vec![with(vec![extended(&names[0], Some(500), None), extended(&names[1], Some(500), None)])]),
            pod("none", vec![with(vec![])]),
            ended,
        ];
        let sums = requested_elsewhere(&pods, &names);
        assert_eq!((sums[&names[0]], sums[&names[1]]), (340, 1000));
        assert_eq!(requested_elsewhere(&pods, &names[..1])[&names[0]], 0, "one name takes nothing from itself");
    }
}
