//! Pods, node and topology as other interfaces report them, cached until they change.

use std::collections::{BTreeMap, BTreeSet};

use cpu_sets::{
    AnnotationError, Cpu, CpuSet, MAX_ANNOTATION_BYTES, RESERVATION, RESOURCE_STATUS, Reservation, ResourceStatus,
    SYSTEM_QOS, SystemQos,
};
use qosm_sdk::{
    Container, ContainerId, ContainerKind, ContainerState, Host, NodeObjectFacts, PodFacts, PodId, QosClass, Topology,
};

use crate::assign::{Manager, Pod};
use crate::placement::Wish;
use crate::request::{CPUSET_SCHEDULER, NUMA_SPEC, NodeRules, RESOURCE_SPEC, Spec};

/// Extended resource of batch pods, in thousandths of a CPU. Source: koordinator `apis/extension/resource.go`.
const BATCH_CPU: &str = "kubernetes.io/batch-cpu";

/// The cached facts, with the generation of each source; `None` before the first read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pods: BTreeMap<PodId, Known>,
    objects_seen: Option<u64>,
    node_seen: Option<u64>,
    topology_seen: Option<u64>,
    pub(crate) rules: NodeRules,
    pub(crate) reservation: Reservation,
    pub(crate) system: SystemQos,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) manager: Option<Manager>,
    /// CPUs that the kubelet reserves, so that no pod may use them.
    pub(crate) reserved: CpuSet,
    /// CPUs that the kubelet gave away exclusively, and the container that has them.
    given_away: Vec<(Option<ContainerId>, CpuSet)>,
    /// Faults in the node's labels and annotations, until they are corrected.
    node_faults: BTreeSet<String>,
}

/// A pod and its parsed annotations.
#[derive(Clone, Debug)]
struct Known {
    facts: PodFacts,
    /// `spec.resources.requests.cpu`, the pod-level request, in thousandths of a CPU.
    pod_request_milli: Option<u64>,
    status: ResourceStatus,
    /// Whether the annotation of `status` was once readable or absent.
    is_read: bool,
    spec: Spec,
    /// Whether the annotation `cpuset-scheduler` is `true`.
    asks: bool,
    /// Faults in the pod's annotations, until they are corrected.
    faults: BTreeSet<String>,
    /// The annotations as last read, which are parsed once.
    texts: [Option<String>; 4],
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
                    let known = Known {
                        facts,
                        pod_request_milli: None,
                        status: ResourceStatus::default(),
                        is_read: false,
                        spec: Spec::default(),
                        asks: false,
                        faults: BTreeSet::new(),
                        texts: [const { None }; 4],
                    };
                    self.pods.insert(known.facts.id, known);
                }
            }
        }
        self.objects_seen = None;
    }

    /// Reads the sources that have changed. If an annotation cannot be read, the previous value stays in force.
    pub(crate) fn read<H: Host>(&mut self, host: &mut H) {
        let generation = Some(host.pod_objects_generation());
        if self.objects_seen != generation {
            self.objects_seen = generation;
            for object in host.pod_objects() {
                if let Some(known) = self.pods.get_mut(&object.pod) {
                    known.pod_request_milli = object.cpu_request_milli;
                    known.read(&object.annotations);
                }
            }
        }
        let generation = Some(host.node_object_generation());
        if self.node_seen != generation {
            self.node_seen = generation;
            if let Some(object) = host.node_object() {
                self.read_node(&object);
            }
        }
        let generation = Some(host.cpu_topology_generation());
        if self.topology_seen != generation {
            self.topology_seen = generation;
            self.read_topology(&host.cpu_topology());
        }
    }

    fn read_node(&mut self, object: &NodeObjectFacts) {
        let labels = object.labels.iter().map(|(key, word)| (key.as_str(), word.as_str())).collect();
        let (rules, faults) = NodeRules::read(&labels);
        self.rules = rules;
        self.node_faults =
            faults.into_iter().map(|fault| format!("label `{}` of the node: {}", fault.key, fault.fault)).collect();
        let mut fault = |error: AnnotationError| {
            self.node_faults.insert(format!("the node's {error}; what it said before counts"));
        };
        match value(&object.annotations, RESERVATION).map_or(Ok(Reservation::default()), Reservation::parse) {
            Ok(reservation) => self.reservation = reservation,
            Err(error) => fault(error),
        }
        match value(&object.annotations, SYSTEM_QOS).map_or(Ok(SystemQos::default()), SystemQos::parse) {
            Ok(system) => self.system = system,
            Err(error) => fault(error),
        }
    }

    fn read_topology(&mut self, topology: &Topology) {
        let cpu = |cpu: &qosm_sdk::Cpu| Cpu { id: cpu.id, core: cpu.core, socket: cpu.socket, node: cpu.numa_node };
        self.cpus = topology.cpus.iter().filter(|cpu| cpu.online).map(cpu).collect();
        self.manager = Manager::of(topology.manager);
        self.reserved = topology.reserved.iter().copied().collect();
        let own = |own: &qosm_sdk::ExclusiveCpus| (own.container, own.cpus.iter().copied().collect());
        self.given_away = topology.exclusive.iter().map(own).collect();
    }

    /// Faults in the annotations and labels of the node and its pods, one line each.
    pub(crate) fn faults(&self) -> BTreeSet<String> {
        let of_pod = |known: &Known| {
            let Known { facts: PodFacts { namespace, name, .. }, faults, .. } = known;
            faults.iter().map(|fault| format!("pod {namespace}/{name}: {fault}")).collect::<Vec<_>>()
        };
        self.node_faults.iter().cloned().chain(self.pods.values().flat_map(of_pod)).collect()
    }

    /// Faults in the annotations of a pod.
    pub(crate) fn faults_of(&self, pod: PodId) -> impl Iterator<Item = &String> {
        self.pods.get(&pod).into_iter().flat_map(|known| &known.faults)
    }

    /// Whether it is unknown which CPUs the scheduler gave the pod: its annotation has never been readable.
    pub(crate) fn is_unknown(&self, pod: PodId) -> bool {
        self.pods.get(&pod).is_some_and(Known::is_unknown)
    }

    /// The active pods, for which CPUs are decided.
    pub(crate) fn pods(&self) -> BTreeMap<PodId, Pod> {
        let active = self.pods.values().filter(|known| known.facts.active);
        let pod = |known: &Known| Pod {
            class: known.class(),
            nodes: known.status.cpu_nodes.clone(),
            is_the_kubelets: self.is_the_kubelets(known),
            ..Pod::new(known.class(), known.facts.kube_qos)
        };
        active.map(|known| (known.facts.id, pod(known))).collect()
    }

    /// The active pods that were given CPUs by the scheduler, or (if `chooses`) ask this node for CPUs.
    pub(crate) fn wishes(&self, chooses: bool) -> Vec<Wish> {
        let active = self.pods.values().filter(|known| known.facts.active && !known.is_unknown());
        let wish = |known: &Known| Wish {
            id: known.facts.id,
            uid: known.facts.uid.clone(),
            given: known.status.cpus.clone(),
            request_milli: known.request_milli(),
            // The kubelet has chosen already. It rewrites its choice every ten seconds, so this policy does not compete with it.
            cpu_milli: (chooses && known.asks_for_cpus() && !self.is_the_kubelets(known)).then(|| known.cpu_milli()),
            spec: known.spec,
        };
        active.map(wish).filter(|wish| !wish.given.is_empty() || wish.cpu_milli.is_some()).collect()
    }

    /// Whether the pod asks for CPUs by the annotation `cpuset-scheduler` and is of a class for which that does not count.
    pub(crate) fn asks_in_vain(&self, pod: PodId) -> bool {
        let asks = |known: &Known| known.asks && !known.is_unknown() && known.status.cpus.is_empty();
        self.pods.get(&pod).is_some_and(|known| asks(known) && !known.is_pinnable() && !self.is_the_kubelets(known))
    }

    /// Whether the kubelet gave exclusive CPUs to a container of this pod.
    fn is_the_kubelets(&self, known: &Known) -> bool {
        self.given_away.iter().any(|(container, _)| container.is_some_and(|id| known.has(id)))
    }

    /// CPUs that the kubelet gave away exclusively, without those of pods that have moved to other CPUs.
    pub(crate) fn kubelets(&self, has_moved: impl Fn(PodId) -> bool) -> CpuSet {
        let owner = |container: ContainerId| self.pods.values().find(|known| known.has(container));
        let is_idle = |container: ContainerId| owner(container).is_some_and(|known| has_moved(known.facts.id));
        let kept = self.given_away.iter().filter(|(container, _)| !container.is_some_and(is_idle));
        kept.flat_map(|(_, cpus)| cpus.iter()).collect()
    }

    /// The running containers of a pod.
    pub(crate) fn running(&self, pod: PodId) -> Vec<ContainerId> {
        let containers = self.pods.get(&pod).into_iter().flat_map(|known| &known.facts.containers);
        let running = containers.filter(|container| container.state == ContainerState::Running);
        running.map(|container| container.id).collect()
    }

    /// `namespace/name`.
    pub(crate) fn name(&self, pod: PodId) -> String {
        match self.pods.get(&pod) {
            Some(Known { facts, .. }) => format!("{}/{}", facts.namespace, facts.name),
            None => format!("pod {pod}"),
        }
    }
}

impl Known {
    fn read(&mut self, annotations: &[(String, String)]) {
        let texts = [RESOURCE_STATUS, RESOURCE_SPEC, NUMA_SPEC, CPUSET_SCHEDULER]
            .map(|key| value(annotations, key).map(|text| text.chars().take(MAX_ANNOTATION_BYTES + 1).collect()));
        if self.is_read && texts == self.texts {
            return;
        }
        self.texts = texts;
        self.faults.clear();
        match value(annotations, RESOURCE_STATUS).map_or(Ok(ResourceStatus::default()), ResourceStatus::parse) {
            Ok(status) => (self.status, self.is_read) = (status, true),
            Err(error) if self.is_read => {
                self.faults.insert(format!("{error}; its former value counts until it is corrected"));
            }
            Err(error) => {
                self.faults.insert(format!("{error}; the pod's CPUs are not changed until it is corrected"));
            }
        }
        let mut fault = |error: AnnotationError| {
            self.faults.insert(format!("{error}; its former value counts until it is corrected"));
        };
        let numa = value(annotations, NUMA_SPEC).map_or(Ok(None), Spec::parse_numa);
        match value(annotations, RESOURCE_SPEC).map_or(Ok(Spec::default()), Spec::parse) {
            Ok(spec) => self.spec = Spec { numa: self.spec.numa, ..spec },
            Err(error) => fault(error),
        }
        match numa {
            Ok(numa) => self.spec.numa = numa,
            Err(error) => fault(error),
        }
        self.asks = value(annotations, CPUSET_SCHEDULER).is_some_and(|word| word.eq_ignore_ascii_case("true"));
    }

    /// Whether a container is one of this pod's.
    fn has(&self, container: ContainerId) -> bool {
        self.facts.containers.iter().any(|one| one.id == container)
    }

    /// Whether the annotation of `status` can be read neither now nor before; without a Pod object there is no annotation.
    fn is_unknown(&self) -> bool {
        !self.is_read && !self.faults.is_empty()
    }

    /// The declared class. A pod that declares none, but has or asks for CPUs of its own, is LSR.
    fn class(&self) -> Option<QosClass> {
        let is_pinned = self.asks || !self.status.cpus.is_empty();
        self.facts.declared_qos.or(is_pinned.then_some(QosClass::Lsr))
    }

    /// Whether pods of this class may have CPUs of their own.
    fn is_pinnable(&self) -> bool {
        matches!(self.class(), Some(QosClass::Lse | QosClass::Lsr))
    }

    /// Whether the pod asks this node for CPUs. It does not if a scheduler bound it to NUMA nodes without choosing CPUs: it shares those.
    fn asks_for_cpus(&self) -> bool {
        let is_placed = !self.status.cpus.is_empty() || !self.status.cpu_nodes.is_empty();
        !is_placed && self.is_pinnable()
    }

    /// CPUs that this node gives the pod, in thousandths of a CPU: the pod-level request, or else the sum of its regular and sidecar
    /// containers. Init containers do not count: they end, and CPUs of the pod's own last for its lifetime.
    fn cpu_milli(&self) -> u64 {
        let stays = |kind| matches!(kind, ContainerKind::Regular | ContainerKind::Sidecar);
        let staying = self.facts.containers.iter().filter(|container| stays(container.kind));
        self.pod_request_milli.unwrap_or_else(|| staying.map(cpu_request).sum())
    }

    /// The request that the scheduler counts, in thousandths of a CPU: with init containers and overhead, and for a pod of class BE also
    /// `batch-cpu`.
    fn request_milli(&self) -> u64 {
        let containers = &self.facts.containers;
        let own = self.pod_request_milli.unwrap_or_else(|| effective(containers, cpu_request));
        let batch = if self.class() == Some(QosClass::Be) { effective(containers, batch_cpu_request) } else { 0 };
        own.saturating_add(self.facts.cpu_overhead_milli).saturating_add(batch)
    }
}

/// The request of a pod's containers: the sum of regular containers and sidecars, or more if an init container needs more together with
/// the sidecars before it. Kubernetes: `component-helpers/resource/helpers.go`.
fn effective(containers: &[Container], request: impl Fn(&Container) -> u64) -> u64 {
    let (mut regular, mut sidecars, mut peak) = (0_u64, 0_u64, 0_u64);
    for container in containers {
        let request = request(container);
        match container.kind {
            ContainerKind::Regular => regular = regular.saturating_add(request),
            ContainerKind::Sidecar => sidecars = sidecars.saturating_add(request),
            ContainerKind::Init => peak = peak.max(sidecars.saturating_add(request)),
        }
    }
    regular.saturating_add(sidecars).max(peak)
}

fn cpu_request(container: &Container) -> u64 {
    container.cpu_request_milli.or(container.cpu_limit_milli).unwrap_or(0)
}

fn batch_cpu_request(container: &Container) -> u64 {
    let batch = container.extended_resources.iter().find(|resource| resource.name == BATCH_CPU);
    batch.and_then(|resource| resource.request.or(resource.limit)).unwrap_or(0)
}

fn value<'a>(annotations: &'a [(String, String)], key: &str) -> Option<&'a str> {
    annotations.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}
