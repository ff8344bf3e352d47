//! Pods as candidates for eviction.

use std::collections::BTreeMap;

use qosm_sdk::{Container, ContainerKind, KubeQos, QosClass};

use crate::feature::{Group, Resource};
use crate::input::Sample;
use crate::marks::{Marks, PriorityClass};

/// Pods of this priority (`system-cluster-critical`) or a higher one belong to the system and are never evicted.
pub const SYSTEM_PRIORITY: i32 = 2_000_000_000;
/// Grace period of a pod that specifies none, in seconds.
pub const DEFAULT_GRACE_SECONDS: u32 = 30;

/// A pod of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.priority`.
    pub priority: Option<i32>,
    /// The class of its label; `None` if it has none or an unknown one.
    pub class: Option<QosClass>,
    /// Kubernetes QoS of the pod.
    pub kube_qos: KubeQos,
    /// Whether the pod is pending or running. A pod that has succeeded or failed has nothing left to release.
    pub is_active: bool,
    /// Whether the pod is being deleted already.
    pub is_leaving: bool,
    /// Whether it is a static pod or the mirror of one.
    pub is_static: bool,
    /// Whether a DaemonSet owns the pod.
    pub is_of_daemon_set: bool,
    /// `metadata.creationTimestamp` in seconds since 1970.
    pub created_at: i64,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: Option<u32>,
    /// Labels and annotations about eviction.
    pub marks: Marks,
    /// Whether its label names a priority class, known or unknown.
    pub names_priority_class: bool,
    /// Batch and mid resources that the pod requests.
    pub requests: Requests,
    /// CPU use in millionths of a CPU; `None` if not measured.
    pub cpu: Option<Sample>,
    /// Memory use in bytes; `None` if not measured.
    pub memory: Option<Sample>,
    /// Memory events of the last window; `None` if unknown.
    pub memory_events: Option<MemoryEvents>,
}

/// `memory.events` of a pod and its containers, as differences over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Number of times that a limit of its own was hit.
    pub max: u64,
    /// Number of processes that the kernel's OOM killer killed.
    pub oom_kills: u64,
}

/// Batch and mid resources that a pod requests: the sum over its containers and sidecars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// `kubernetes.io/batch-cpu`, in thousandths of a CPU.
    pub batch_cpu: u64,
    /// `kubernetes.io/batch-memory`, in bytes.
    pub batch_memory: u64,
    /// `kubernetes.io/mid-cpu`, in thousandths of a CPU.
    pub mid_cpu: u64,
    /// `kubernetes.io/mid-memory`, in bytes.
    pub mid_memory: u64,
}

impl Requests {
    /// Adds up the requests. Ordinary init containers do not count. If a container has several names of one resource, the first one counts;
    /// a limit without a request counts as the request.
    ///
    /// If the node offers a resource under some of its names, the other names do not count: no scheduler places such a pod there, and
    /// the kubelet admits one that names its node without looking at them. `is_offered` says whether the node has a resource.
    ///
    /// Source: koordinator `apis/extension/resource.go`, `apis/extension/deprecated.go`; ACK's older names;
    /// `removeMissingExtendedResources` in kubernetes `pkg/kubelet/lifecycle/predicate.go`.
    pub fn of(containers: &[Container], is_offered: impl Fn(&str) -> bool) -> Self {
        let of = |resource: Resource| {
            let is_any_offered = resource.names().iter().any(|name| is_offered(name));
            sum(containers, |container| {
                let mut names = resource.names().iter().filter(|name| !is_any_offered || is_offered(name));
                names.find_map(|name| request(container, name)).unwrap_or(0)
            })
        };
        Self {
            batch_cpu: of(Resource::BatchCpu),
            batch_memory: of(Resource::BatchMemory),
            mid_cpu: of(Resource::MidCpu),
            mid_memory: of(Resource::MidMemory),
        }
    }

    /// The requested amount of a resource; 0 for resources other than batch and mid.
    pub fn amount(&self, resource: Resource) -> u64 {
        match resource {
            Resource::BatchCpu => self.batch_cpu,
            Resource::BatchMemory => self.batch_memory,
            Resource::MidCpu => self.mid_cpu,
            Resource::MidMemory => self.mid_memory,
            Resource::Cpu | Resource::Memory => 0,
        }
    }
}

/// What containers and sidecars request under one name.
pub(crate) fn requested_as(containers: &[Container], name: &str) -> u64 {
    sum(containers, |container| request(container, name).unwrap_or(0))
}

fn request(container: &Container, name: &str) -> Option<u64> {
    let found = container.extended_resources.iter().find(|resource| resource.name == name)?;
    found.request.or(found.limit)
}

fn sum(containers: &[Container], of: impl Fn(&Container) -> u64) -> u64 {
    let counts = containers.iter().filter(|container| container.kind != ContainerKind::Init);
    counts.fold(0_u64, |sum, container| sum.saturating_add(of(container)))
}

impl Pod {
    /// An active Burstable pod without class, requests and samples.
    pub fn new(uid: &str, name: &str) -> Self {
        Self {
            uid: uid.into(),
            namespace: "default".into(),
            name: name.into(),
            priority: None,
            class: None,
            kube_qos: KubeQos::Burstable,
            is_active: true,
            is_leaving: false,
            is_static: false,
            is_of_daemon_set: false,
            created_at: 0,
            grace_seconds: None,
            marks: Marks::default(),
            names_priority_class: false,
            requests: Requests::default(),
            cpu: None,
            memory: None,
            memory_events: None,
        }
    }

    /// Adds labels and annotations; those that cannot be read are returned as errors.
    pub fn with_marks(
        mut self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Vec<crate::marks::MarkError>) {
        let (marks, errors) = Marks::parse(labels, annotations);
        self.names_priority_class = Marks::names_class(labels);
        self.marks = marks;
        (self, errors)
    }

    /// Whether its label makes the pod batch.
    pub fn is_be(&self) -> bool {
        self.class == Some(QosClass::Be)
    }

    /// Priority class of the pod: from the label, else from the range of `spec.priority`, else from the QoS class (declared or
    /// Kubernetes').
    ///
    /// Source: koordinator `apis/extension/priority_utils.go`.
    pub fn priority_class(&self) -> PriorityClass {
        let of_value = || self.priority.filter(|_| !self.names_priority_class).and_then(PriorityClass::of_value);
        self.marks.class.or_else(of_value).unwrap_or(match (self.class, self.kube_qos) {
            (Some(QosClass::Be), _) | (None, KubeQos::BestEffort) => PriorityClass::Batch,
            _ => PriorityClass::Prod,
        })
    }

    /// `spec.priority`; if absent or 0, the default of the priority class.
    pub fn priority_value(&self) -> i32 {
        self.priority.filter(|priority| *priority != 0).unwrap_or_else(|| self.priority_class().default_value())
    }

    /// The priority among pods of equal priority.
    pub fn sub_priority(&self) -> i64 {
        self.marks.sub_priority.unwrap_or_else(|| self.priority_value().into())
    }

    /// The resource of the pod's priority class and the requested amount; `None` for classes other than batch and mid.
    pub fn class_request(&self, group: Group) -> Option<(Resource, u64)> {
        let Requests { batch_cpu, batch_memory, mid_cpu, mid_memory } = self.requests;
        match (self.priority_class(), group) {
            (PriorityClass::Batch, Group::Cpu) => Some((Resource::BatchCpu, batch_cpu)),
            (PriorityClass::Batch, Group::Memory) => Some((Resource::BatchMemory, batch_memory)),
            (PriorityClass::Mid, Group::Cpu) => Some((Resource::MidCpu, mid_cpu)),
            (PriorityClass::Mid, Group::Memory) => Some((Resource::MidMemory, mid_memory)),
            (PriorityClass::Prod | PriorityClass::Free, _) => None,
        }
    }

    /// Whether the pod must never be evicted, whatever its labels and annotations say.
    pub fn is_protected(&self, daemon_sets: bool) -> bool {
        self.is_static
            || self.priority_value() >= SYSTEM_PRIORITY
            || self.priority.is_some_and(|priority| priority >= SYSTEM_PRIORITY)
            || self.is_of_daemon_set && !daemon_sets
    }

    /// Grace period of the pod in seconds.
    pub fn grace(&self) -> u32 {
        self.grace_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::ExtendedResource;

    use super::*;

    fn container(kind: ContainerKind, requests: &[(&str, u64)]) -> Container {
        let resource = |(name, request): &(&str, u64)| ExtendedResource {
            name: (*name).into(),
            request: Some(*request),
            limit: None,
        };
        Container {
            kind,
            extended_resources: requests.iter().map(resource).collect(),
            ..qosm_sdk::mock::container(1, "any")
        }
    }

    fn any(_: &str) -> bool {
        true
    }

    #[test]
    fn a_name_that_the_node_does_not_offer_counts_only_if_it_offers_none() {
        let containers = [container(
            ContainerKind::Regular,
            &[("kubernetes.io/batch-cpu", 5), ("alibabacloud.com/reclaimed-memory", 1 << 62)],
        )];
        for (offered, batch_cpu, batch_memory) in [
            (&["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"][..], 5, 0),
            (&["koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed-memory"], 0, 1 << 62),
            (&[], 5, 1 << 62),
        ] {
            let requests = Requests::of(&containers, |name| offered.contains(&name));
            assert_eq!(requests, Requests { batch_cpu, batch_memory, ..Requests::default() }, "{offered:?}");
        }
    }

    #[test]
    fn containers_and_sidecars_request_and_init_containers_do_not() {
        let containers = [
            container(
                ContainerKind::Regular,
                &[("kubernetes.io/batch-cpu", 1_000), ("kubernetes.io/batch-memory", 1 << 30)],
            ),
            container(ContainerKind::Sidecar, &[("kubernetes.io/batch-cpu", 200), ("kubernetes.io/mid-cpu", 7)]),
            container(ContainerKind::Init, &[("kubernetes.io/batch-cpu", 9_000), ("kubernetes.io/mid-memory", 9)]),
        ];
        let expected = Requests { batch_cpu: 1_200, batch_memory: 1 << 30, mid_cpu: 7, mid_memory: 0 };
        assert_eq!(Requests::of(&containers, any), expected);
        let older = [
            container(
                ContainerKind::Regular,
                &[("koordinator.sh/batch-cpu", 5), ("alibabacloud.com/reclaimed-cpu", 9)],
            ),
            container(
                ContainerKind::Regular,
                &[("alibabacloud.com/reclaimed-cpu", 20), ("koordinator.sh/batch-memory", 3)],
            ),
        ];
        assert_eq!(Requests::of(&older, any), Requests { batch_cpu: 25, batch_memory: 3, ..Requests::default() });
        assert_eq!(Requests::of(&[], any), Requests::default());

        // As Kubernetes and the policy `reclaimed-resources` count it.
        let mut limited =
            container(ContainerKind::Regular, &[("kubernetes.io/batch-cpu", 5), ("kubernetes.io/mid-cpu", 0)]);
        for (resource, limit) in limited.extended_resources.iter_mut().zip([Some(700), Some(9)]) {
            (resource.request, resource.limit) = (resource.request.filter(|request| *request == 0), limit);
        }
        assert_eq!(Requests::of(&[limited], any), Requests { batch_cpu: 700, ..Requests::default() });
    }

    #[test]
    fn the_priority_class_is_by_label_then_priority_then_qos() {
        use KubeQos::{BestEffort, Burstable, Guaranteed};
        for (label, priority, class, kube_qos, priority_class, value) in [
            (Some("koord-mid"), Some(5_100), Some(QosClass::Be), BestEffort, PriorityClass::Mid, 5_100),
            (Some("koord-free"), None, None, Burstable, PriorityClass::Free, 3_500),
            (Some("unknown"), Some(5_100), None, Burstable, PriorityClass::Prod, 5_100),
            (None, Some(5_100), None, Burstable, PriorityClass::Batch, 5_100),
            (None, Some(7_999), None, Burstable, PriorityClass::Mid, 7_999),
            (None, Some(100), Some(QosClass::Be), Burstable, PriorityClass::Batch, 100),
            (None, Some(0), Some(QosClass::Be), BestEffort, PriorityClass::Batch, 5_500),
            (None, None, Some(QosClass::Be), BestEffort, PriorityClass::Batch, 5_500),
            (None, None, None, BestEffort, PriorityClass::Batch, 5_500),
            (None, None, None, Burstable, PriorityClass::Prod, 9_500),
            (None, None, None, Guaranteed, PriorityClass::Prod, 9_500),
            (None, None, Some(QosClass::Ls), BestEffort, PriorityClass::Prod, 9_500),
            (None, None, Some(QosClass::System), BestEffort, PriorityClass::Prod, 9_500),
        ] {
            let labels = label
                .map(|label: &str| (crate::marks::PRIORITY_CLASS.to_owned(), label.to_owned()))
                .into_iter()
                .collect();
            let pod = Pod { priority, class, kube_qos, ..Pod::new("u", "p") };
            let (pod, _) = pod.with_marks(&labels, &BTreeMap::new());
            assert_eq!(
                (pod.priority_class(), pod.priority_value()),
                (priority_class, value),
                "{label:?} {priority:?} {class:?}"
            );
        }
    }

    #[test]
    fn what_belongs_to_the_system_is_never_evicted() {
        let pod = || Pod::new("u", "p");
        for (pod, daemon_sets, is_protected) in [
            (pod(), false, false),
            (Pod { is_static: true, ..pod() }, true, true),
            (Pod { priority: Some(1_999_999_999), ..pod() }, true, false),
            (Pod { priority: Some(2_000_000_000), ..pod() }, true, true),
            (Pod { priority: Some(2_000_001_000), ..pod() }, true, true),
            (Pod { is_of_daemon_set: true, ..pod() }, false, true),
            (Pod { is_of_daemon_set: true, ..pod() }, true, false),
        ] {
            assert_eq!(pod.is_protected(daemon_sets), is_protected, "{pod:?}");
        }
    }
}
