//! Containers as the container runtime reports them, overlaid on their pods' status: the status follows a start by a second.

use std::collections::BTreeMap;

use qosm_model::pod::{ContainerCgroup, ContainerState, Pod};
use qosm_nri::RunningContainer;

/// Running containers as the runtime reports them.
#[derive(Debug, Default)]
pub(crate) struct RuntimeContainers {
    /// Name of the runtime in the container IDs of a pod's status.
    scheme: String,
    is_connected: bool,
    /// Container IDs, by UID of the pod and name of the container.
    running: BTreeMap<(String, String), String>,
}

impl RuntimeContainers {
    /// Records that a runtime of this name is connected.
    pub(crate) fn connected(&mut self, runtime: &str) {
        self.scheme = runtime.to_ascii_lowercase();
        self.is_connected = true;
    }

    /// Records that the runtime is disconnected: from now on a pod's status takes precedence. Containers that it does not show yet stay.
    pub(crate) fn disconnected(&mut self) {
        self.is_connected = false;
    }

    /// Replaces the running containers. Returns their IDs as in a pod's status, with their cgroups.
    pub(crate) fn synchronize(&mut self, running: &[RunningContainer]) -> Vec<(String, String)> {
        self.running.clear();
        running.iter().filter_map(|container| self.start(container)).collect()
    }

    /// Adds a starting container. Returns its ID as in a pod's status, with its cgroup; `None` if the runtime names no cgroup.
    pub(crate) fn start(&mut self, container: &RunningContainer) -> Option<(String, String)> {
        let id = self.shown(&container.id);
        self.running.insert((container.pod.uid.clone(), container.name.clone()), id.clone());
        Some((id, container.cgroup.clone()?))
    }

    /// Removes a container. Returns its ID as in a pod's status.
    pub(crate) fn stop(&mut self, id: &str) -> String {
        let id = self.shown(id);
        self.running.retain(|_, running| *running != id);
        id
    }

    /// Sets the ID and the state of containers whose status is behind. Containers that a manifest binds to a cgroup do not belong to
    /// the runtime.
    pub(crate) fn lay_over(&self, pods: &mut [Pod]) {
        if self.running.is_empty() {
            return;
        }
        for pod in pods.iter_mut().filter(|pod| pod.cgroup.is_none()) {
            for container in &mut pod.containers {
                let key = (pod.uid.clone(), container.name.clone());
                let Some(id) = self.running.get(&key) else { continue };
                let is_behind = match &container.cgroup {
                    ContainerCgroup::Unknown => true,
                    ContainerCgroup::Runtime(shown) => self.is_connected && shown != id,
                    ContainerCgroup::Bound(_) | ContainerCgroup::Named(_) => false,
                };
                if is_behind {
                    container.cgroup = ContainerCgroup::Runtime(id.clone());
                    container.state = ContainerState::Running;
                }
            }
        }
    }

    fn shown(&self, id: &str) -> String {
        format!("{}://{id}", self.scheme)
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::{Container, ContainerKind, KubeQos, PodLifecycle};
    use qosm_model::unit::{Bytes, MilliCpu};
    use qosm_nri::PodSandbox;

    use super::*;

    fn pod(cgroup: ContainerCgroup, state: ContainerState) -> Pod {
        Pod {
            uid: "uid".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            priority: None,
            kube_qos: KubeQos::Burstable,
            active: true,
            host_pid: false,
            cgroup: None,
            containers: vec![Container {
                name: "main".to_owned(),
                kind: ContainerKind::Regular,
                state,
                cgroup,
                cpu_request: None,
                cpu_limit: None,
                memory_request: None,
                memory_limit: None,
                extended_resources: Vec::new(),
                next: None,
            }],
            cpu_overhead: MilliCpu(0),
            memory_overhead: Bytes(0),
            memory_request: None,
            memory_limit: None,
            cpu_request: None,
            cpu_limit: None,
            next: None,
            resize: None,
            lifecycle: PodLifecycle::default(),
        }
    }

    fn started(id: &str) -> RunningContainer {
        RunningContainer {
            id: id.to_owned(),
            name: "main".to_owned(),
            cgroup: Some(format!("kubepods/burstable/poduid/{id}")),
            pod: PodSandbox { uid: "uid".to_owned(), ..PodSandbox::default() },
        }
    }

    #[test]
    fn the_runtime_knows_a_container_before_its_status_does() {
        let by_id = |id: &str| ContainerCgroup::Runtime(format!("containerd://{id}"));
        let (waiting, running, ended) = (ContainerState::Waiting, ContainerState::Running, ContainerState::Terminated);
        let mut runtime = RuntimeContainers::default();
        runtime.connected("containerd");
        let known = runtime.start(&started("new"));
        assert_eq!(known, Some(("containerd://new".to_owned(), "kubepods/burstable/poduid/new".to_owned())));
        let seen = |runtime: &RuntimeContainers, cgroup, state| {
            let mut pods = [pod(cgroup, state)];
            runtime.lay_over(&mut pods);
            let container = pods[0].containers.remove(0);
            (container.cgroup, container.state)
        };
        for (cgroup, state, expected) in [
            (ContainerCgroup::Unknown, waiting, (by_id("new"), running)),
            (by_id("old"), ended, (by_id("new"), running)),
            (by_id("old"), running, (by_id("new"), running)),
            // The status has caught up, and knows later of this container's end.
            (by_id("new"), running, (by_id("new"), running)),
            (by_id("new"), ended, (by_id("new"), ended)),
            (ContainerCgroup::Bound("x".to_owned()), waiting, (ContainerCgroup::Bound("x".to_owned()), waiting)),
        ] {
            assert_eq!(seen(&runtime, cgroup.clone(), state), expected, "{cgroup:?} {state:?}");
        }
        // Without a connection to the runtime, a status that names another container is right.
        runtime.disconnected();
        assert_eq!(seen(&runtime, by_id("newer"), running), (by_id("newer"), running));
        assert_eq!(seen(&runtime, ContainerCgroup::Unknown, waiting), (by_id("new"), running));
        assert_eq!(runtime.stop("new"), "containerd://new");
        assert_eq!(seen(&runtime, ContainerCgroup::Unknown, waiting), (ContainerCgroup::Unknown, waiting));
    }

    #[test]
    fn what_a_synchronization_does_not_name_does_not_run() {
        let mut runtime = RuntimeContainers::default();
        runtime.connected("CRI-O");
        runtime.start(&started("a"));
        assert_eq!(runtime.synchronize(&[]), []);
        let mut pods = [pod(ContainerCgroup::Unknown, ContainerState::Waiting)];
        runtime.lay_over(&mut pods);
        assert_eq!(pods[0].containers[0].cgroup, ContainerCgroup::Unknown);
        let known = runtime.synchronize(&[started("b")]);
        assert_eq!(known, [("cri-o://b".to_owned(), "kubepods/burstable/poduid/b".to_owned())]);
    }
}
