//! CPU and memory of containers and pods: those that the node runs, those that the specification asks for, and how a
//! kubelet adds them up.
//!
//! With in-place resizes (KEP-1287) the kubelet may apply a specification at once, later or never.

use super::{Container, ContainerKind, Pod};
use crate::unit::{Bytes, MilliCpu};

/// Requests and limits of a container or pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// `requests.cpu`.
    pub cpu_request: Option<MilliCpu>,
    /// `limits.cpu`.
    pub cpu_limit: Option<MilliCpu>,
    /// `requests.memory`.
    pub memory_request: Option<Bytes>,
    /// `limits.memory`.
    pub memory_limit: Option<Bytes>,
}

/// Which resources to use during a resize that the kubelet has not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The resources that the node runs.
    Now,
    /// The resources of the specification, which the kubelet may write next.
    Next,
}

impl Moment {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::Now, Self::Next];
}

impl Container {
    /// Its own resources.
    pub fn resources(&self, moment: Moment) -> Resources {
        let now = Resources {
            cpu_request: self.cpu_request,
            cpu_limit: self.cpu_limit,
            memory_request: self.memory_request,
            memory_limit: self.memory_limit,
        };
        self.next.filter(|_| moment == Moment::Next).unwrap_or(now)
    }
}

impl Pod {
    /// `spec.resources`.
    pub fn resources(&self, moment: Moment) -> Resources {
        let now = Resources {
            cpu_request: self.cpu_request,
            cpu_limit: self.cpu_limit,
            memory_request: self.memory_request,
            memory_limit: self.memory_limit,
        };
        self.next.filter(|_| moment == Moment::Next).unwrap_or(now)
    }

    /// Whether the node runs other resources than the specification asks for.
    pub fn is_being_resized(&self) -> bool {
        self.next.is_some() || self.containers.iter().any(|container| container.next.is_some())
    }

    /// The resources that the kubelet writes to a container's cgroup: a container without its own limit gets the pod's
    /// (KEP-2837: `getCPULimit`, `getMemoryLimit` in `pkg/kubelet/kuberuntime`).
    pub fn resources_of(&self, container: &Container, moment: Moment) -> Resources {
        let (own, pod) = (container.resources(moment), self.resources(moment));
        Resources {
            cpu_limit: own.cpu_limit.filter(|limit| limit.0 > 0).or(pod.cpu_limit),
            memory_limit: own.memory_limit.filter(|limit| limit.0 > 0).or(pod.memory_limit),
            ..own
        }
    }

    /// The CPU request of the whole pod, overhead included. A limit without a request counts as the request.
    pub fn cpu_requested(&self, moment: Moment) -> MilliCpu {
        let sum = self.peak(|container| {
            let own = container.resources(moment);
            own.cpu_request.or(own.cpu_limit).unwrap_or_default().0
        });
        let own = self.resources(moment).cpu_request.map(|request| request.0);
        MilliCpu(own.unwrap_or(sum).saturating_add(self.cpu_overhead.0))
    }

    /// The CPU limit from which the kubelet computes the pod's quota, overhead included: the pod's own, else that of its
    /// containers together. `None` if a container has no limit, since then the pod has none (`ResourceConfigForPod`).
    pub fn cpu_limited(&self, moment: Moment) -> Option<MilliCpu> {
        let own = self.resources(moment).cpu_limit.map(|limit| limit.0);
        let limit = self.limited(own, |container| container.resources(moment).cpu_limit.map(|limit| limit.0))?;
        Some(MilliCpu(limit.saturating_add(self.cpu_overhead.0)))
    }

    /// The memory limit that the kubelet writes for the pod, by the rules of [`Self::cpu_limited`].
    pub fn memory_limited(&self, moment: Moment) -> Option<Bytes> {
        let own = self.resources(moment).memory_limit.map(|limit| limit.0);
        let limit = self.limited(own, |container| container.resources(moment).memory_limit.map(|limit| limit.0))?;
        Some(Bytes(limit.saturating_add(self.memory_overhead.0)))
    }

    fn limited(&self, own: Option<u64>, of: impl Fn(&Container) -> Option<u64>) -> Option<u64> {
        let own = own.filter(|limit| *limit > 0);
        let of_all = || {
            let is_limited = |container: &Container| of(container).is_some_and(|limit| limit > 0);
            let are_limited = !self.containers.is_empty() && self.containers.iter().all(is_limited);
            are_limited.then(|| self.peak(|container| of(container).unwrap_or_default()))
        };
        own.or_else(of_all)
    }

    /// The maximum that the pod's containers have at the same time: the sum of regular containers and sidecars, or that
    /// of the largest init container and the sidecars before it.
    pub fn peak(&self, of: impl Fn(&Container) -> u64) -> u64 {
        let (mut running, mut most) = (0_u64, 0_u64);
        for container in &self.containers {
            let amount = of(container);
            if container.kind == ContainerKind::Init {
                most = most.max(running.saturating_add(amount));
            } else {
                running = running.saturating_add(amount);
            }
        }
        running.max(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{ContainerCgroup, ContainerState, KubeQos, PodLifecycle};

    fn container(kind: ContainerKind, cpu_limit: Option<u64>) -> Container {
        Container {
            name: "app".to_owned(),
            kind,
            state: ContainerState::Running,
            cgroup: ContainerCgroup::Unknown,
            cpu_request: None,
            cpu_limit: cpu_limit.map(MilliCpu),
            memory_request: None,
            memory_limit: cpu_limit.map(Bytes),
            extended_resources: Vec::new(),
            next: None,
        }
    }

    fn pod(containers: Vec<Container>) -> Pod {
        Pod {
            uid: "u".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            labels: Default::default(),
            annotations: Default::default(),
            priority: None,
            kube_qos: KubeQos::Burstable,
            active: true,
            host_pid: false,
            cgroup: None,
            containers,
            cpu_overhead: MilliCpu(7),
            memory_overhead: Bytes(0),
            memory_request: None,
            memory_limit: None,
            cpu_limit: None,
            cpu_request: None,
            next: None,
            resize: None,
            lifecycle: PodLifecycle::default(),
        }
    }

    #[test]
    fn a_pod_is_limited_where_all_its_containers_are_or_by_its_own_limit() {
        use ContainerKind::{Init, Regular, Sidecar};
        for (containers, own, expected) in [
            (vec![(Regular, Some(100)), (Regular, Some(200))], None, Some(307)),
            (vec![(Regular, Some(100)), (Regular, None)], None, None),
            (vec![(Regular, Some(100)), (Regular, Some(0))], None, None),
            // The kubelet requires a limit of every container, init containers included.
            (vec![(Init, None), (Regular, Some(200))], None, None),
            (vec![(Init, Some(900)), (Regular, Some(200))], None, Some(907)),
            (vec![(Sidecar, Some(50)), (Init, Some(900)), (Regular, Some(200))], None, Some(957)),
            (vec![(Regular, Some(100)), (Regular, None)], Some(500), Some(507)),
            (vec![(Regular, Some(100))], Some(500), Some(507)),
            (vec![], None, None),
        ] {
            let containers: Vec<_> = containers.into_iter().map(|(kind, limit)| container(kind, limit)).collect();
            let pod = Pod { cpu_limit: own.map(MilliCpu), ..pod(containers) };
            assert_eq!(pod.cpu_limited(Moment::Now).map(|limit| limit.0), expected, "{pod:?}");
        }
    }

    #[test]
    fn what_comes_next_is_told_from_what_is_there() {
        let next = Resources { cpu_limit: Some(MilliCpu(50)), memory_limit: Some(Bytes(50)), ..Resources::default() };
        let app = Container { next: Some(next), ..container(ContainerKind::Regular, Some(100)) };
        let pod = pod(vec![app.clone()]);
        assert!(pod.is_being_resized());
        for (moment, limit) in [(Moment::Now, 100), (Moment::Next, 50)] {
            assert_eq!(pod.cpu_limited(moment), Some(MilliCpu(limit + 7)));
            assert_eq!(pod.cpu_requested(moment), MilliCpu(limit + 7));
            assert_eq!(pod.resources_of(&app, moment).memory_limit, Some(Bytes(limit)));
        }
    }

    #[test]
    fn a_container_without_a_limit_has_its_pods() {
        let unlimited = container(ContainerKind::Regular, None);
        let limited = container(ContainerKind::Regular, Some(100));
        let pod = Pod {
            cpu_limit: Some(MilliCpu(500)),
            memory_limit: Some(Bytes(600)),
            ..pod(vec![unlimited.clone(), limited.clone()])
        };
        let of = |container| {
            let resources = pod.resources_of(container, Moment::Now);
            (resources.cpu_limit, resources.memory_limit)
        };
        assert_eq!(of(&unlimited), (Some(MilliCpu(500)), Some(Bytes(600))));
        assert_eq!(of(&limited), (Some(MilliCpu(100)), Some(Bytes(100))));
    }
}
