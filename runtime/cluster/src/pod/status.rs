//! A pod's status; a manifest without one describes a running pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1;
use qosm_model::pod::{ContainerCgroup, ContainerKind, ContainerState, KubeQos};

use super::in_force::{self, Told};
use super::resources::Reader;

/// The part of the status that the agent uses.
pub(super) struct Status {
    /// Whether the phase is Pending or Running, or missing.
    pub(super) active: bool,
    /// `status.qosClass`.
    pub(super) kube_qos: Option<KubeQos>,
    /// Containers by name; `None` if the status does not report containers.
    containers: Option<BTreeMap<String, Reported>>,
    /// The resources of the pod as a whole.
    pub(super) told: Told,
    /// The kubelet's state of an unfinished resize; `None` if there is none.
    pub(super) resize: Option<String>,
    /// Whether the kubelet has not seen the newest specification yet.
    pub(super) is_behind: bool,
}

/// The status of one container.
struct Reported {
    state: ContainerState,
    cgroup: ContainerCgroup,
    told: Told,
}

impl Status {
    /// Reads the status. `generation` is `metadata.generation`.
    pub(super) fn read(status: Option<v1::PodStatus>, generation: Option<i64>, reader: &mut Reader<'_>) -> Self {
        let status = status.unwrap_or_default();
        let resize = in_force::resize(&status);
        let is_behind = generation.zip(status.observed_generation).is_some_and(|(wished, seen)| seen < wished);
        let told = Told::read(status.resources.as_ref(), status.allocated_resources.as_ref(), "status", reader);
        let kube_qos = status.qos_class.as_deref().filter(|class| !class.is_empty()).and_then(|class| {
            let known = [KubeQos::Guaranteed, KubeQos::Burstable, KubeQos::BestEffort];
            let found = known.into_iter().find(|known| known.as_str() == class);
            if found.is_none() {
                let message =
                    "it is none of Guaranteed, Burstable, BestEffort; it is computed from the specification instead";
                reader.report("status.qosClass", message.into());
            }
            found
        });
        let lists = [
            ("status.initContainerStatuses", status.init_container_statuses),
            ("status.containerStatuses", status.container_statuses),
        ];
        // A pending pod without container statuses runs nothing; a running pod without them is a hand-written manifest.
        let is_pending = status.phase.as_deref() == Some("Pending");
        let mut containers = is_pending.then(BTreeMap::new);
        for (path, list) in lists {
            let Some(list) = list else { continue };
            let containers = containers.get_or_insert_default();
            for (index, report) in list.into_iter().enumerate() {
                let path = format!("{path}[{index}]");
                let cgroup = cgroup(&report, &format!("{path}.containerID"), reader);
                let told = Told::read(report.resources.as_ref(), report.allocated_resources.as_ref(), &path, reader);
                let state = state(report.state, &cgroup);
                containers.insert(report.name, Reported { state, cgroup, told });
            }
        }
        let active = status.phase.is_none_or(|phase| matches!(phase.as_str(), "Pending" | "Running"));
        Self { active, kube_qos, containers, told, resize, is_behind }
    }

    /// The resources in a container's status; `None` if there is no status.
    pub(super) fn told(&self, name: &str) -> Option<&Told> {
        self.containers.as_ref()?.get(name).map(|report| &report.told)
    }

    /// The state of a container, and its cgroup as the runtime named it. A container that the manifest binds to a cgroup needs no
    /// status: no runtime runs it.
    pub(super) fn container(
        &self,
        name: &str,
        kind: ContainerKind,
        is_bound: bool,
    ) -> (ContainerState, ContainerCgroup) {
        let report = self.containers.as_ref().map(|reports| reports.get(name));
        match report {
            Some(Some(report)) => (report.state, report.cgroup.clone()),
            Some(None) if !is_bound => (ContainerState::Waiting, ContainerCgroup::Unknown),
            _ => {
                let state = match kind {
                    ContainerKind::Init => ContainerState::Terminated,
                    ContainerKind::Regular | ContainerKind::Sidecar => ContainerState::Running,
                };
                (state, ContainerCgroup::Named(name.to_owned()))
            }
        }
    }
}

fn cgroup(report: &v1::ContainerStatus, path: &str, reader: &mut Reader<'_>) -> ContainerCgroup {
    let Some(id) = report.container_id.as_deref().filter(|id| !id.is_empty()) else {
        return ContainerCgroup::Unknown;
    };
    let is_word = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        text.bytes().all(fits) && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
    };
    if id.split_once("://").is_some_and(|(runtime, id)| is_word(runtime) && is_word(id)) {
        return ContainerCgroup::Runtime(id.to_owned());
    }
    reader.report(path, "it is not of the form `runtime://id`; the container's cgroup is unknown; correct it".into());
    ContainerCgroup::Unknown
}

fn state(state: Option<v1::ContainerState>, cgroup: &ContainerCgroup) -> ContainerState {
    let state = state.unwrap_or_default();
    if state.terminated.is_some() {
        ContainerState::Terminated
    } else if state.running.is_some() {
        ContainerState::Running
    } else if state.waiting.is_some() || *cgroup == ContainerCgroup::Unknown {
        ContainerState::Waiting
    } else {
        // An ID without a state: a hand-written status of a container that has started.
        ContainerState::Running
    }
}
