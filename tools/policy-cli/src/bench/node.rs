//! A synthetic node: pods of one container each, and their columns, which are the same on each run.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_engine::Columns;
use qosm_model::block_io::{BlockDevice, BlockDevices, DeviceNumber, PodVolume};
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, MemoryCounters, MemorySample, NodeSample, PressureCounters,
    PressureSample, Stall,
};
use qosm_model::cpu_topology::{Cpu, CpuManager, CpuSet, CpuTopology};
use qosm_model::knob::Target;
use qosm_model::layering::{ClusterConfig, ConfigMap};
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, NodeMemory};
use qosm_model::numa::{NumaColumn, NumaId, NumaNode, NumaSample, NumaTopology};
use qosm_model::object::PodObject;
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerId, ContainerKind, ContainerState, KubeQos, Node as KubernetesNode,
    NodeResource, Pod, PodId, PodLifecycle, Tier,
};
use qosm_model::resctrl::{Domain, DomainId, ResctrlColumn, Usage};
use qosm_model::unit::{Bytes, Micros, MilliCpu};

const CPUS: u32 = 64;
const MEMORY: Bytes = Bytes(256 << 30);
const WINDOW: u64 = 1_000_000;
const PERIOD: Micros = Micros(100_000);
/// Half a CPU for each container.
const LIMIT: MilliCpu = MilliCpu(500);
const QUOTA: Micros = Micros(50_000);
const MEMORY_LIMIT: u64 = 256 << 20;
/// Cache domains, one for each socket.
const DOMAINS: [DomainId; 2] = [DomainId(0), DomainId(1)];
/// Number of disks.
const DISKS: u32 = 8;
/// One pod in this many has a volume of its own.
const WITH_VOLUME: u32 = 4;
/// One container in this many uses all the CPU time of its quota.
const BUSY: u32 = 10;

/// The pods of a node, with their ids.
pub(super) struct Node {
    pods: Vec<Numbered>,
    bandwidth: Arc<[BandwidthSample]>,
    numa: Arc<NumaColumn>,
    resctrl: Arc<ResctrlColumn>,
    node_object: Arc<KubernetesNode>,
    pod_objects: Arc<[PodObject]>,
    cluster_config: Arc<ClusterConfig>,
    cpu_topology: Arc<CpuTopology>,
    cpu_sets: Arc<[CpuSet]>,
    block_devices: Arc<BlockDevices>,
}

/// A pod with its id and the ids of its containers.
type Numbered = (PodId, Pod, Vec<(ContainerId, Option<u32>)>);

impl Node {
    pub(super) fn new(containers: u32) -> Self {
        let numbers = 1..=containers;
        let row = |target| BandwidthSample { target, quota: Some(QUOTA), baseline_quota: Some(QUOTA), period: PERIOD };
        Self {
            pods: numbers.clone().map(|id| (PodId(id), pod(id), vec![(ContainerId(id), None)])).collect(),
            bandwidth: numbers
                .clone()
                .flat_map(|id| [row(Target::Pod(PodId(id))), row(Target::Container(ContainerId(id)))])
                .collect(),
            numa: Arc::new(NumaColumn {
                topology: NumaTopology::new((0..2).map(|id| (NumaId(id), numa_node(id))).collect()),
                samples: numbers.clone().map(numa_sample).collect(),
            }),
            cpu_topology: Arc::new(CpuTopology {
                cpus: (0..CPUS).map(cpu_place).collect(),
                manager: CpuManager::None,
                ..CpuTopology::default()
            }),
            block_devices: Arc::new(BlockDevices {
                devices: (0..DISKS).map(disk).collect(),
                volumes: numbers.clone().filter(|id| id.is_multiple_of(WITH_VOLUME)).map(volume).collect(),
            }),
            cpu_sets: Tier::ALL.map(|tier| CpuSet { target: Target::Tier(tier), cpus: (0..CPUS).collect() }).into(),
            resctrl: Arc::new(ResctrlColumn {
                domains: DOMAINS.map(cache_domain).to_vec(),
                containers: numbers
                    .map(|id| (ContainerId(id), DOMAINS.map(|domain| usage(domain, 1)).to_vec()))
                    .collect(),
                rest: DOMAINS.map(|domain| usage(domain, 64)).to_vec(),
                ..ResctrlColumn::default()
            }),
            node_object: Arc::new(node_object()),
            pod_objects: (1..=containers).map(|id| PodObject::of(PodId(id), &pod(id))).collect(),
            cluster_config: Arc::new(cluster_config()),
        }
    }

    pub(super) fn pods(&self) -> &[Numbered] {
        &self.pods
    }

    /// The columns of a tick. A tenth of the containers is throttled and under pressure, a different tenth in each tick.
    pub(super) fn columns(&self, tick: u32) -> Columns {
        let ids = || self.pods.iter().map(|(PodId(id), ..)| *id);
        let is_busy = |id: u32| id.wrapping_add(tick).is_multiple_of(BUSY);
        let cpu = ids().map(|id| {
            let usage = Micros(if is_busy(id) { 500_000 } else { 40_000 + u64::from(id % 7) * 10_000 });
            let unthrottled = CpuCounters { usage, nr_periods: 10, ..CpuCounters::default() };
            let throttled = CpuCounters { nr_throttled: 5, throttled: Micros(150_000), ..unthrottled };
            let delta = if is_busy(id) { throttled } else { unthrottled };
            CpuSample { container: ContainerId(id), delta }
        });
        let memory = ids().map(|id| {
            let usage = MEMORY_LIMIT / if is_busy(id) { 1 } else { 2 };
            let memory = MemoryCounters {
                usage: Bytes(usage),
                anon: Bytes(usage / 2),
                file: Bytes(usage / 2),
                inactive_file: Bytes(usage / 4),
                high_events: u64::from(is_busy(id)),
                ..MemoryCounters::default()
            };
            MemorySample { container: ContainerId(id), memory }
        });
        let pressure = ids().map(|id| {
            let stall = |some| Stall { some: Micros(some), full: Micros(some / 2) };
            let some = if is_busy(id) { WINDOW / 5 } else { 0 };
            let delta = PressureCounters { cpu: stall(some), memory: stall(some / 4), io: stall(0) };
            PressureSample { container: ContainerId(id), delta }
        });
        Columns {
            node: Some(NodeSample {
                cpus: CPUS,
                memory_capacity: MEMORY,
                memory_allocatable: MEMORY,
                page_size: Bytes(4096),
                cpu_usage: Some(Micros(WINDOW * u64::from(CPUS) / 4)),
                memory_available: Some(Bytes(MEMORY.0 / 2)),
            }),
            node_memory: Some(NodeMemory {
                total: Some(MEMORY),
                free: Bytes(MEMORY.0 / 4),
                available: Bytes(MEMORY.0 / 2),
                active_file: Bytes(MEMORY.0 / 8),
                inactive_file: Bytes(MEMORY.0 / 8),
                min_mark: Some(Bytes(64 << 20)),
                low_mark: Some(Bytes(80 << 20)),
                high_mark: Some(Bytes(96 << 20)),
            }),
            node_pressure: Some(PressureCounters::default()),
            groups: Some(self.groups(tick).into()),
            cpu: Some(cpu.collect()),
            bandwidth: Some(Arc::clone(&self.bandwidth)),
            memory: Some(memory.collect()),
            pressure: Some(pressure.collect()),
            numa: Some(Arc::clone(&self.numa)),
            resctrl: Some(Arc::clone(&self.resctrl)),
            node_object: Some(Arc::clone(&self.node_object)),
            pod_objects: Some(Arc::clone(&self.pod_objects)),
            cluster_config: Some(Arc::clone(&self.cluster_config)),
            cpu_topology: Some(Arc::clone(&self.cpu_topology)),
            cpu_sets: Some(Arc::clone(&self.cpu_sets)),
            block_devices: Some(Arc::clone(&self.block_devices)),
            ..Columns::default()
        }
    }

    /// Use by tiers, pods, and everything outside of kubepods.
    fn groups(&self, tick: u32) -> Vec<GroupSample> {
        let row = |group, parts: u64| {
            let memory = GroupMemory {
                usage: Bytes(parts << 27),
                active_file: Bytes(parts << 24),
                inactive_file: Bytes(parts << 25),
            };
            let used = GroupCounters {
                cpu_usage: Some(Micros(parts * 50_000)),
                cpu_throttled: Some(Micros(0)),
                cpu_pressure: Some(Stall::default()),
                memory: Some(memory),
                max_events: Some(0),
                oom_kills: Some(0),
            };
            GroupSample { group, used }
        };
        let count = u64::try_from(self.pods.len()).unwrap_or(0);
        let tiers = Tier::ALL.map(|tier| row(Group::Tier(tier), count));
        let pods = self.pods.iter().map(|(id, ..)| row(Group::Pod(*id), u64::from(id.0.wrapping_add(tick) % 3 + 1)));
        tiers.into_iter().chain(pods).chain([row(Group::Outside, 10)]).collect()
    }
}

fn pod(number: u32) -> Pod {
    Pod {
        uid: format!("00000000-0000-4000-8000-{number:012}"),
        namespace: "bench".to_owned(),
        name: format!("pod-{number}"),
        labels: BTreeMap::from([("app".to_owned(), "bench".to_owned())]),
        annotations: BTreeMap::new(),
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: vec![Container {
            name: "app".to_owned(),
            kind: ContainerKind::Regular,
            state: ContainerState::Running,
            cgroup: ContainerCgroup::Named("app".to_owned()),
            cpu_request: Some(MilliCpu(LIMIT.0 / 2)),
            cpu_limit: Some(LIMIT),
            memory_request: Some(Bytes(MEMORY_LIMIT / 2)),
            memory_limit: Some(Bytes(MEMORY_LIMIT)),
            extended_resources: Vec::new(),
            next: None,
        }],
        cpu_overhead: MilliCpu(0),
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

/// A Node object with labels and annotations as in a cloud, and with batch resources.
fn node_object() -> KubernetesNode {
    let resource = |name: &str, amount: i64| NodeResource {
        name: name.to_owned(),
        capacity: Some(amount),
        allocatable: Some(amount - amount / 10),
    };
    let memory = i64::try_from(MEMORY.0).unwrap_or(i64::MAX);
    let pairs = |kind: &str| (0..20).map(|number| (format!("bench/{kind}-{number}"), "x".repeat(32))).collect();
    KubernetesNode {
        name: "bench".to_owned(),
        labels: pairs("label"),
        annotations: pairs("annotation"),
        resources: vec![
            resource("cpu", i64::from(CPUS) * 1000),
            resource("kubernetes.io/batch-cpu", i64::from(CPUS) * 400),
            resource("kubernetes.io/batch-memory", memory / 3),
            resource("memory", memory),
        ],
        ..KubernetesNode::default()
    }
}

fn cluster_config() -> ClusterConfig {
    let text = r#"{"clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 65}}"#;
    let data = BTreeMap::from([
        ("colocation-config".to_owned(), r#"{"enable": true, "cpuReclaimThresholdPercent": 65}"#.to_owned()),
        ("resource-threshold-config".to_owned(), text.to_owned()),
    ]);
    let map = ConfigMap { namespace: None, name: "slo-controller-config".to_owned(), data };
    ClusterConfig::read(&[map], &KubernetesNode::default(), None).0
}

/// Two hardware threads for each core, and half of the CPUs on each socket.
fn cpu_place(id: u32) -> Cpu {
    let socket = id / (CPUS / 2);
    Cpu { id, core: id / 2, socket, numa_node: socket, online: true }
}

fn disk(number: u32) -> BlockDevice {
    BlockDevice {
        number: device(number),
        names: vec![format!("nvme{number}n1")],
        partitions: vec![format!("nvme{number}n1p1")],
        volume_groups: Vec::new(),
    }
}

fn device(number: u32) -> DeviceNumber {
    DeviceNumber { major: 259, minor: number }
}

fn volume(pod: u32) -> PodVolume {
    PodVolume { pod: PodId(pod), name: format!("pvc-{pod}"), device: device(pod / WITH_VOLUME % DISKS) }
}

fn numa_node(place: u32) -> NumaNode {
    NumaNode {
        cpus: (place * CPUS / 2..(place + 1) * CPUS / 2).collect(),
        memory: Bytes(MEMORY.0 / 2),
        free: Bytes(MEMORY.0 / 4),
        available: Bytes(MEMORY.0 / 4),
        distances: if place == 0 { vec![10, 20] } else { vec![20, 10] },
    }
}

/// A container that runs on the first NUMA node and has half of its memory on the second.
fn numa_sample(id: u32) -> NumaSample {
    NumaSample {
        container: ContainerId(id),
        identity: u64::from(id),
        cpu_nodes: vec![NumaId(0)],
        memory_nodes: vec![NumaId(0), NumaId(1)],
        pages: vec![(NumaId(0), 8192), (NumaId(1), 8192)],
    }
}

fn cache_domain(id: DomainId) -> Domain {
    Domain { id, cache_ways: 12, cache: Some(Bytes(48 << 20)), divides_bandwidth: true }
}

/// Use of one cache domain in proportion to `parts`.
fn usage(domain: DomainId, parts: u64) -> Usage {
    Usage {
        domain,
        occupancy: Some(Bytes(parts << 15)),
        local: Some(Bytes(parts << 22)),
        total: Some(Bytes(parts << 23)),
    }
}
