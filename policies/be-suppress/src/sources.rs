//! Pods, node and topology as other interfaces report them, cached until they change.

use std::collections::BTreeMap;

use qosm_sdk::{
    ContainerId, ContainerState, CpuManager, Host, KubeQos, Level, MilliCpu, NodeObjectFacts, PodFacts, PodId,
};

use crate::input::{Kubelet, Node, Pod};
use crate::{Cpu, CpuSet, Reservation, ResourceStatus, SystemQos};
use cpu_sets::{AnnotationError, RESERVATION, RESOURCE_STATUS, SYSTEM_QOS};

/// The cached facts, with the generation of each source; `None` before the first read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pods: BTreeMap<PodId, Known>,
    objects_seen: Option<u64>,
    node: Option<Node>,
    node_seen: Option<u64>,
    cpus: Vec<Cpu>,
    kubelet: Kubelet,
    /// CPUs that the kubelet gave to single containers.
    given: BTreeMap<ContainerId, CpuSet>,
    topology_seen: Option<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    facts: PodFacts,
    status: ResourceStatus,
    /// Text of the annotation that `status` was read from.
    text: Option<String>,
}

impl Sources {
    pub(crate) fn update_pods(&mut self, upserted: impl Iterator<Item = PodFacts>, removed: &[PodId]) {
        for id in removed {
            self.pods.remove(id);
        }
        for facts in upserted {
            match self.pods.get_mut(&facts.id) {
                Some(known) => known.facts = facts,
                None => {
                    let known = Known { facts, status: ResourceStatus::default(), text: None };
                    self.pods.insert(known.facts.id, known);
                }
            }
        }
        self.objects_seen = None;
    }

    /// Reads the sources that have changed. An annotation that cannot be read is logged, and the previous value stays in force.
    pub(crate) fn read<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.pod_objects_generation());
        if self.objects_seen != generation {
            self.objects_seen = generation;
            self.read_pods(host);
        }
        let generation = Some(host.node_object_generation());
        if self.node_seen != generation {
            self.node_seen = generation;
            let before = self.node.take().unwrap_or_default();
            self.node = host.node_object().map(|object| node(&object, before, host));
        }
        let generation = Some(host.cpu_topology_generation());
        if self.topology_seen != generation {
            self.topology_seen = generation;
            let topology = host.cpu_topology();
            let cpu = |cpu: &qosm_sdk::Cpu| Cpu { id: cpu.id, core: cpu.core, socket: cpu.socket, node: cpu.numa_node };
            self.cpus = topology.cpus.iter().filter(|cpu| cpu.online).map(cpu).collect();
            let exclusive = topology.exclusive.iter().flat_map(|own| &own.cpus).chain(&topology.reserved);
            let given = topology.exclusive.iter();
            let given = given.filter_map(|own| Some((own.container?, own.cpus.iter().copied().collect())));
            self.given = given.collect();
            self.kubelet =
                Kubelet { is_static: topology.manager == CpuManager::Static, exclusive: exclusive.copied().collect() };
        }
    }

    fn read_pods<H: Host>(&mut self, host: &mut H) {
        for object in host.pod_objects() {
            let Some(known) = self.pods.get_mut(&object.pod) else { continue };
            let text = value(&object.annotations, RESOURCE_STATUS);
            if known.text.as_deref() == text {
                continue;
            }
            known.text = text.map(str::to_owned);
            match text.map_or(Ok(ResourceStatus::default()), ResourceStatus::parse) {
                Ok(status) => known.status = status,
                Err(error) => {
                    let of = format!("pod {}/{}", known.facts.namespace, known.facts.name);
                    tell(host, &of, &error);
                }
            }
        }
    }

    pub(crate) fn node(&self) -> Option<Node> {
        self.node.clone()
    }

    pub(crate) fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    pub(crate) fn kubelet(&self) -> &Kubelet {
        &self.kubelet
    }

    pub(crate) fn pods(&self) -> Vec<Pod> {
        let pod = |known: &Known| Pod {
            class: known.facts.declared_qos,
            kube_qos: known.facts.kube_qos,
            is_active: known.facts.active,
            pinned: known.status.cpus.clone(),
            limited_to: self.limited_to(known),
            has_numa_nodes: known.status.has_numa_nodes,
            containers: running(&known.facts).collect(),
            ..Pod::new(known.facts.id)
        };
        self.pods.values().map(pod).collect()
    }

    fn limited_to(&self, known: &Known) -> CpuSet {
        if !known.status.cpus.is_empty() {
            return known.status.cpus.clone();
        }
        let given: Option<Vec<&CpuSet>> = running(&known.facts).map(|container| self.given.get(&container)).collect();
        given.unwrap_or_default().into_iter().fold(CpuSet::default(), |all, cpus| all.union(cpus))
    }

    /// The running containers of active pods in the suppressed tier.
    pub(crate) fn batch_containers(&self) -> Vec<ContainerId> {
        let is_batch = |known: &&Known| known.facts.active && known.facts.kube_qos == KubeQos::BestEffort;
        self.pods.values().filter(is_batch).flat_map(|known| running(&known.facts)).collect()
    }

    /// Whether a pod is in the suppressed tier.
    pub(crate) fn is_best_effort(&self, id: PodId) -> bool {
        self.pods.get(&id).is_some_and(|known| known.facts.kube_qos == KubeQos::BestEffort)
    }

    pub(crate) fn pod_name(&self, id: PodId) -> String {
        match self.pods.get(&id) {
            Some(Known { facts, .. }) => format!("{}/{}", facts.namespace, facts.name),
            None => format!("pod {id}"),
        }
    }
}

fn running(facts: &PodFacts) -> impl Iterator<Item = ContainerId> {
    let running = facts.containers.iter().filter(|container| container.state == ContainerState::Running);
    running.map(|container| container.id)
}

fn value<'a>(annotations: &'a [(String, String)], key: &str) -> Option<&'a str> {
    annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

fn tell<H: Host>(host: &mut H, of: &str, error: &AnnotationError) {
    host.log(Level::Warn, &format!("{of}: {error}; until it is mended, what it said before counts"));
}

fn node<H: Host>(object: &NodeObjectFacts, before: Node, host: &mut H) -> Node {
    let cpu = object.resources.iter().find(|amount| amount.name == "cpu");
    let milli = |amount: Option<i64>| amount.and_then(|amount| u64::try_from(amount).ok()).map(MilliCpu);
    let capacity = cpu.and_then(|cpu| milli(cpu.capacity)).unwrap_or_default();
    let allocatable = cpu.and_then(|cpu| milli(cpu.allocatable)).unwrap_or(capacity);
    let reservation = value(&object.annotations, RESERVATION).map_or(Ok(Reservation::default()), Reservation::parse);
    let system = value(&object.annotations, SYSTEM_QOS).map_or(Ok(SystemQos::default()), SystemQos::parse);
    let reservation = reservation.unwrap_or_else(|error| {
        tell(host, "the node", &error);
        before.reservation
    });
    let system = system.unwrap_or_else(|error| {
        tell(host, "the node", &error);
        before.system
    });
    Node { capacity, allocatable, reservation, system }
}
