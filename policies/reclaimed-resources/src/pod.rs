//! Pods and their containers, and what a pod requests as a whole.

use std::collections::BTreeMap;

use qosm_sdk::{ContainerId, ContainerKind, ContainerState, ExtendedResource, PodId, QosClass};

use crate::amounts::Amounts;
use crate::class::PriorityClass;

/// A pod on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// Names it in settings.
    pub id: PodId,
    /// `metadata.uid`; names it in usages, and beyond a restart of the agent.
    pub uid: String,
    /// Namespace and name, for people.
    pub name: String,
    /// Whether its phase is Pending or Running.
    pub is_active: bool,
    /// The QoS class that it declares.
    pub declared_qos: Option<QosClass>,
    /// That class, else what its Kubernetes QoS stands for.
    pub qos: QosClass,
    /// See [`PriorityClass::of_pod`].
    pub priority: PriorityClass,
    /// `spec.overhead`.
    pub overhead: Amounts,
    /// `spec.resources.requests.cpu` in thousandths; takes the place of the containers'.
    pub cpu_request_milli: Option<u64>,
    /// `spec.resources.requests.memory`.
    pub memory_request_bytes: Option<u64>,
    /// NUMA nodes in `numaNodeResources` of the annotation `scheduling.koordinator.sh/resource-status`.
    pub numa_nodes: Vec<u32>,
    /// The annotation `node.koordinator.sh/extended-resource-spec`.
    pub extended_resource_spec: Option<String>,
    /// The CFS period of its cgroup; `None` = 100 ms.
    pub period_usec: Option<u64>,
    /// Init containers, sidecars and regular containers, in the order of the specification.
    pub containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Names it in settings.
    pub id: ContainerId,
    /// Its name in the pod.
    pub name: String,
    /// What it is to its pod.
    pub kind: ContainerKind,
    /// Where it is in its life.
    pub state: ContainerState,
    /// `requests.cpu` and `requests.memory`; 0 when not said.
    pub request: Amounts,
    /// All other resources.
    pub extended: Vec<ExtendedResource>,
    /// Memory in use, without page cache; `None` when not known.
    pub memory_used_bytes: Option<u64>,
    /// Its CFS period; `None` = 100 ms.
    pub period_usec: Option<u64>,
}

impl Container {
    /// What an extended resource is requested at and limited to, by the first of several names that the container has.
    pub(crate) fn extended<'n>(&self, names: impl IntoIterator<Item = &'n String>) -> Option<&ExtendedResource> {
        names.into_iter().find_map(|name| self.extended.iter().find(|resource| resource.name == *name))
    }
}

impl Pod {
    /// What the scheduler counts for the pod: regular containers and sidecars together, or more where an init container
    /// needs more together with the sidecars before it; a pod-level request in place of that; overhead on top.
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

    /// What is requested of a pair of extended resources, by the same rule but without overhead.
    pub(crate) fn extended_request(&self, cpu: &[String], memory: &[String]) -> Amounts {
        let of = |container: &Container, names| {
            container.extended(names).and_then(|resource| resource.request.or(resource.limit)).unwrap_or(0)
        };
        self.effective(|container| Amounts::new(of(container, cpu), of(container, memory)))
    }

    /// Regular containers and sidecars that stay.
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

/// The NUMA nodes in the annotation `scheduling.koordinator.sh/resource-status`; none where it cannot be read, as a pod
/// without NUMA placement. Negative and repeated numbers do not count.
pub fn numa_nodes(resource_status: &str) -> Vec<u32> {
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

/// What of a resource each of its names is requested by on this node: for the names in their order, the sum over the pods'
/// containers of what is requested under another name alone.
///
/// Where one amount is published under several names, each pod takes it under the name that it uses, and the other names
/// have to shrink: two schedulers, or one that counts names apart, would give it away twice.
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
