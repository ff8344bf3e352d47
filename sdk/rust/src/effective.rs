//! Effective limits and requests of containers that set none of their own: those of the pod apply.
//!
//! With pod-level resources (`spec.resources`, KEP-2837) the kubelet writes the pod's limit into the cgroup of each container without a
//! limit: `getCPULimit` and `getMemoryLimit` of `pkg/kubelet/kuberuntime/kuberuntime_container_linux.go`.

use crate::{Container, ContainerKind, ContainerState, PodFacts};

/// Limits and requests of native resources, for a container within its pod. A limit of 0 counts as none.
impl PodFacts {
    /// The CPU limit of a container of this pod in thousandths of a CPU: its own, else the pod-level one; `None` = unlimited.
    ///
    /// ```
    /// use qosm_sdk::{Container, PodFacts, mock};
    ///
    /// let proxy = Container { cpu_limit_milli: Some(200), ..mock::container(8, "proxy") };
    /// let app = mock::container(7, "app");
    /// let web = PodFacts { cpu_limit_milli: Some(2000), ..mock::pod(1, "default", "web") };
    /// assert_eq!((web.cpu_limit_of(&app), web.cpu_limit_of(&proxy)), (Some(2000), Some(200)));
    /// ```
    pub fn cpu_limit_of(&self, container: &Container) -> Option<u64> {
        limit(container.cpu_limit_milli, self.cpu_limit_milli)
    }

    /// The memory limit of a container of this pod in bytes: its own, else the pod-level one; `None` = unlimited.
    ///
    /// ```
    /// use qosm_sdk::{PodFacts, mock};
    ///
    /// let web = PodFacts { memory_limit_bytes: Some(2 << 30), ..mock::pod(1, "default", "web") };
    /// assert_eq!(web.memory_limit_of(&mock::container(7, "app")), Some(2 << 30));
    /// ```
    pub fn memory_limit_of(&self, container: &Container) -> Option<u64> {
        limit(container.memory_limit_bytes, self.memory_limit_bytes)
    }

    /// The memory request of a container of this pod in bytes: its own, else the part of the pod-level request that the other containers do
    /// not request; 0 if neither is set.
    ///
    /// ```
    /// use qosm_sdk::{Container, PodFacts, mock};
    ///
    /// let proxy = Container { memory_request_bytes: Some(1 << 28), ..mock::container(8, "proxy") };
    /// let containers = vec![mock::container(7, "app"), proxy];
    /// let web = PodFacts { memory_request_bytes: Some(1 << 30), containers, ..mock::pod(1, "default", "web") };
    /// assert_eq!(web.memory_request_of(&web.containers[0]), 3 << 28);
    /// ```
    pub fn memory_request_of(&self, container: &Container) -> u64 {
        if let Some(own) = container.memory_request_bytes.filter(|bytes| *bytes > 0) {
            return own;
        }
        let counts = |other: &&Container| {
            other.kind != ContainerKind::Init && other.state != ContainerState::Terminated && other.id != container.id
        };
        let others = self.containers.iter().filter(counts).filter_map(|other| other.memory_request_bytes);
        let taken = others.fold(0, u64::saturating_add);
        self.memory_request_bytes.map_or(0, |request| request.saturating_sub(taken))
    }
}

fn limit(own: Option<u64>, of_pod: Option<u64>) -> Option<u64> {
    let finite = |limit: Option<u64>| limit.filter(|limit| *limit > 0);
    finite(own).or(finite(of_pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock;

    #[test]
    fn between_a_container_and_the_node_stands_its_pod() {
        for (own, of_pod, expected) in [
            (None, None, None),
            (None, Some(7), Some(7)),
            (Some(3), Some(7), Some(3)),
            (Some(3), None, Some(3)),
            (Some(0), Some(7), Some(7)),
            (Some(0), Some(0), None),
        ] {
            let container = Container { cpu_limit_milli: own, memory_limit_bytes: own, ..mock::container(1, "app") };
            let pod =
                PodFacts { cpu_limit_milli: of_pod, memory_limit_bytes: of_pod, ..mock::pod(1, "default", "web") };
            assert_eq!(pod.cpu_limit_of(&container), expected, "{own:?} in {of_pod:?}");
            assert_eq!(pod.memory_limit_of(&container), expected, "{own:?} in {of_pod:?}");
        }
    }

    #[test]
    fn whoever_requests_nothing_has_what_is_left_of_the_pods_request() {
        let container = |id, request| Container { memory_request_bytes: request, ..mock::container(id, "any") };
        let ended = Container { state: ContainerState::Terminated, ..container(9, Some(50)) };
        for (of_pod, containers, expected) in [
            (None, vec![container(1, None), container(2, Some(30))], 0),
            (Some(100), vec![container(1, None), container(2, Some(30))], 70),
            (Some(100), vec![container(1, None), container(2, None)], 100),
            (Some(100), vec![container(1, Some(20)), container(2, Some(30))], 20),
            (Some(100), vec![container(1, None), container(2, Some(130))], 0),
            (Some(100), vec![container(1, None), ended], 100),
        ] {
            let pod = PodFacts { memory_request_bytes: of_pod, containers, ..mock::pod(1, "default", "web") };
            assert_eq!(pod.memory_request_of(&pod.containers[0]), expected, "{pod:?}");
        }
    }
}
