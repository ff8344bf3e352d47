//! A node with two pods, and instances of policies on it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use qosm_engine::{
    CallError, Cause, Columns, Compiler, Engine, EngineError, Grants, Instance, Interface, Limits, Module, PodView,
    Staged,
};
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::application::{Application, ApplicationSample};
use qosm_model::block_io::{BlockDevice, BlockDevices, DeviceNumber, PodVolume};
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, MemoryCounters, MemorySample, NodeSample, PressureCounters,
    PressureSample, Stall,
};
use qosm_model::cpu_topology::{Cpu, CpuManager, CpuSet, CpuTopology, ExclusiveCpus};
use qosm_model::eviction::{EvictionOutcome, EvictionState};
use qosm_model::knob::{Knob, Target};
use qosm_model::layering::{ClusterConfig, ConfigMap};
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, NodeKnobSample, NodeMemory};
use qosm_model::node_resource::ResourceState;
use qosm_model::numa::{
    MigrationProgress, MigrationSample, MigrationState, NumaColumn, NumaId, NumaNode, NumaSample, NumaTopology,
    ProcessFailure,
};
use qosm_model::object::PodObject;
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerId, ContainerKind, ContainerState, ExtendedResource, KubeQos, Node,
    NodeResource, NodeZone, Pod, PodId, PodLifecycle, PodOwner, QosClass, RestartPolicy, Tier,
};
use qosm_model::resctrl::{ClassState, Domain, DomainId, ResctrlColumn, Usage};
use qosm_model::unit::{Bytes, Micros, MilliCpu};

pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap());

const DISK: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
pub(crate) const WEB: PodId = PodId(1);
pub(crate) const BATCH: PodId = PodId(2);
/// The containers of `WEB`, then that of `BATCH`.
pub(crate) const CONTAINERS: [ContainerId; 3] = [ContainerId(10), ContainerId(11), ContainerId(20)];

pub(crate) fn everything() -> Grants {
    Interface::ALL.into_iter().collect()
}

pub(crate) fn load(bundle: &[u8]) -> Result<Module, EngineError> {
    ENGINE.load(bundle, None, &Compiler::InProcess)
}

/// An error and its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Why a bundle is not loaded.
pub(crate) fn refusal(bundle: &[u8]) -> String {
    chain(&load(bundle).unwrap_err())
}

/// A policy with the configuration `{}` and both pods.
pub(crate) struct Tried {
    pub(crate) instance: Instance,
}

impl Tried {
    pub(crate) fn of(bundle: &[u8]) -> Self {
        Self::within(bundle, &Limits::default()).unwrap()
    }

    pub(crate) fn within(bundle: &[u8], limits: &Limits) -> Result<Self, CallError> {
        let module = load(bundle).unwrap_or_else(|error| panic!("{}", chain(&error)));
        let instance = match ENGINE.instantiate(&module, "tried", &everything(), limits, Vec::new()) {
            Ok(instance) => instance,
            Err(EngineError::Instantiate(error)) => return Err(error),
            Err(error) => panic!("{}", chain(&error)),
        };
        let mut tried = Self { instance };
        tried.instance.configure("{}")?;
        tried.tell(&[web(), batch()])?;
        Ok(tried)
    }

    pub(crate) fn tell(&mut self, pods: &[(PodId, Pod, Vec<ContainerId>)]) -> Result<Staged, CallError> {
        let containers: Vec<Vec<_>> =
            pods.iter().map(|(.., ids)| ids.iter().map(|&id| (id, (id.0 == 20).then_some(2))).collect()).collect();
        let views: Vec<_> = pods
            .iter()
            .zip(&containers)
            .map(|((id, pod, _), containers)| PodView {
                id: *id,
                pod,
                containers,
                config: if *id == WEB { r#"{"policy":"auto","share":1.50}"# } else { "{}" },
                annotated: *id == WEB,
            })
            .collect();
        self.instance.pods(&views, &[])
    }

    pub(crate) fn evaluate(&mut self) -> Result<Staged, CallError> {
        self.instance.evaluate(Micros(1_000_000), Cause::Interval, &columns())
    }

    pub(crate) fn evaluated(&mut self) -> Staged {
        self.evaluate().unwrap_or_else(|error| panic!("{error}; log {:?}", self.instance.take_log()))
    }

    /// Evaluates the policy and returns the state that it saves.
    pub(crate) fn state(&mut self) -> serde_json::Value {
        let staged = self.evaluated();
        serde_json::from_slice(&staged.state.unwrap()).unwrap()
    }
}

fn container(name: &str, kind: ContainerKind) -> Container {
    Container {
        name: name.to_owned(),
        kind,
        state: ContainerState::Running,
        cgroup: ContainerCgroup::Unknown,
        cpu_request: Some(MilliCpu(500)),
        cpu_limit: Some(MilliCpu(1500)),
        memory_request: None,
        memory_limit: Some(Bytes(1 << 30)),
        extended_resources: Vec::new(),
        next: None,
    }
}

fn pod(name: &str, labels: &[(&str, &str)], containers: Vec<Container>) -> Pod {
    Pod {
        uid: format!("uid-{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        labels: labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
        annotations: BTreeMap::new(),
        priority: Some(-3),
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers,
        cpu_overhead: MilliCpu(0),
        memory_overhead: Bytes(0),
        memory_request: Some(Bytes(1 << 29)),
        memory_limit: None,
        cpu_limit: None,
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    }
}

pub(crate) fn web() -> (PodId, Pod, Vec<ContainerId>) {
    let containers = vec![container("app", ContainerKind::Regular), container("log", ContainerKind::Sidecar)];
    let pod = pod("web", &[("app", "web"), ("koordinator.sh/qosClass", "LS")], containers);
    (WEB, pod, CONTAINERS[..2].to_vec())
}

pub(crate) fn batch() -> (PodId, Pod, Vec<ContainerId>) {
    let mut only = container("job \"é\"", ContainerKind::Regular);
    (only.cpu_limit, only.memory_limit) = (None, None);
    only.extended_resources =
        vec![ExtendedResource { name: "kubernetes.io/batch-memory".to_owned(), request: Some(1 << 20), limit: None }];
    let pod = Pod { priority: None, kube_qos: KubeQos::BestEffort, ..pod("batch", &[("tier", "batch")], vec![only]) };
    (BATCH, pod, CONTAINERS[2..].to_vec())
}

/// Every column, with a sample of every container.
pub(crate) fn columns() -> Columns {
    let stall = |some| Stall { some: Micros(some), full: Micros(some / 2) };
    let cpu = |container: ContainerId| CpuSample {
        container,
        delta: CpuCounters {
            usage: Micros(u64::from(container.0) * 1000),
            nr_periods: 10,
            nr_throttled: 3,
            throttled: Micros(40_000),
        },
    };
    let memory = |container: ContainerId| MemorySample {
        container,
        memory: MemoryCounters {
            usage: Bytes(u64::from(container.0) << 20),
            anon: Bytes(1 << 20),
            file: Bytes(2 << 20),
            inactive_file: Bytes(1 << 19),
            high_events: 1,
            max_events: 2,
            oom_kills: 0,
        },
    };
    let pressure = |container: ContainerId| PressureSample {
        container,
        delta: PressureCounters { cpu: stall(1000), memory: stall(2000), io: stall(0) },
    };
    let quota = |target, quota: Option<u64>| BandwidthSample {
        target,
        quota: quota.map(Micros),
        baseline_quota: quota.map(Micros),
        period: Micros(100_000),
    };
    let bandwidth = [
        quota(Target::Pod(WEB), None),
        quota(Target::Container(CONTAINERS[0]), Some(150_000)),
        quota(Target::Container(CONTAINERS[1]), None),
        BandwidthSample { baseline_quota: None, ..quota(Target::Tier(Tier::BestEffort), Some(50_000)) },
    ];
    let numa_node = |free| NumaNode {
        cpus: vec![0, 1],
        memory: Bytes(8 << 30),
        free: Bytes(free),
        available: Bytes(free * 2),
        distances: vec![10, 20],
    };
    let numa = NumaColumn {
        topology: NumaTopology::new(vec![(NumaId(0), numa_node(1 << 30)), (NumaId(1), numa_node(2 << 30))]),
        samples: vec![NumaSample {
            container: CONTAINERS[0],
            identity: u64::MAX,
            cpu_nodes: vec![NumaId(0)],
            memory_nodes: vec![NumaId(0), NumaId(1)],
            pages: vec![(NumaId(0), 100), (NumaId(1), 300)],
        }],
    };
    let progress = MigrationProgress {
        token: 4,
        state: MigrationState::Moving,
        pages_found: 300,
        pages_moved: 100,
        pages_failed: vec![("EBUSY", 2)],
        failures: vec![ProcessFailure { pid: 7, error: "No such process".to_owned() }],
        ..MigrationProgress::default()
    };
    let pressed = Trigger::Pressure(Pressure {
        scope: Scope::Pod,
        resource: Resource::Memory,
        full: false,
        stall: Micros(150_000),
        window: Micros(1_000_000),
    });
    Columns {
        node: Some(NodeSample {
            cpus: 8,
            memory_capacity: Bytes(32 << 30),
            memory_allocatable: Bytes(30 << 30),
            page_size: Bytes(4096),
            cpu_usage: Some(Micros(2_000_000)),
            memory_available: None,
        }),
        node_memory: Some(NodeMemory {
            total: Some(Bytes(32 << 30)),
            free: Bytes(1 << 30),
            available: Bytes(2 << 30),
            active_file: Bytes(3 << 20),
            inactive_file: Bytes(4 << 20),
            min_mark: Some(Bytes(1 << 26)),
            ..NodeMemory::default()
        }),
        node_pressure: Some(PressureCounters { memory: stall(7_000), ..PressureCounters::default() }),
        groups: Some(groups().into()),
        applications: Some(applications().into()),
        cpu: Some(CONTAINERS.map(cpu).into()),
        bandwidth: Some(bandwidth.into()),
        memory: Some(CONTAINERS.map(memory).into()),
        pressure: Some(CONTAINERS.map(pressure).into()),
        numa: Some(numa.into()),
        migrations: Some([MigrationSample { container: CONTAINERS[0], progress }].into()),
        block_devices: Some(
            BlockDevices {
                devices: [BlockDevice {
                    number: DISK,
                    names: vec!["sdb".to_owned()],
                    partitions: vec!["sdb1".to_owned()],
                    volume_groups: vec!["data".to_owned()],
                }]
                .into(),
                volumes: [1, 99]
                    .map(|pod| PodVolume { pod: PodId(pod), name: "pvc-1".to_owned(), device: DISK })
                    .into(),
            }
            .into(),
        ),
        group_identity: Some(Err("this kernel has none".into())),
        core_scheduling: Some(Ok(())),
        node_knobs: Some([NodeKnobSample { knob: Knob::WatermarkScaleFactor, value: 150, baseline: 10 }].into()),
        resources: Some(
            [ResourceState {
                name: "kubernetes.io/batch-cpu".parse().unwrap(),
                amount: 7,
                in_force: false,
                why: "nobody answers".to_owned(),
            }]
            .into(),
        ),
        evictions: Some(
            [EvictionState {
                uid: "u1".to_owned(),
                outcome: EvictionOutcome::Refused,
                why: "a budget".to_owned(),
                age: Micros(1_500_000),
            }]
            .into(),
        ),
        resctrl: Some(resctrl().into()),
        node_object: Some(node_object().into()),
        pod_objects: Some([daemon(), bare()].into()),
        cluster_config: Some(cluster_config().into()),
        cpu_topology: Some(cpu_topology().into()),
        cpu_sets: Some(
            [Target::Tier(Tier::BestEffort), Target::Pod(BATCH)].map(|target| CpuSet { target, cpus: vec![1] }).into(),
        ),
        alarms: vec![
            Alarm { trigger: Trigger::Throttling, target: Some(Target::Container(CONTAINERS[0])) },
            Alarm { trigger: pressed, target: Some(Target::Pod(WEB)) },
            Alarm { trigger: Trigger::ContainerStarted, target: None },
        ],
    }
}

/// Two CPUs of one core; the kubelet assigned one exclusively to a container that is gone.
fn cpu_topology() -> CpuTopology {
    let cpu = |id| Cpu { id, core: 0, socket: 1, numa_node: 2, online: id == 0 };
    CpuTopology {
        cpus: vec![cpu(0), cpu(1)],
        manager: CpuManager::Static,
        reserved: vec![0],
        exclusive: vec![
            ExclusiveCpus { container: Some(CONTAINERS[0]), cpus: vec![0] },
            ExclusiveCpus { container: None, cpus: vec![1] },
        ],
    }
}

/// A tier with CPU time only, a pod with all counters, and everything outside.
fn groups() -> [GroupSample; 3] {
    let memory = GroupMemory { usage: Bytes(9 << 20), active_file: Bytes(1 << 20), inactive_file: Bytes(2 << 20) };
    let tier = GroupCounters { cpu_usage: Some(Micros(5)), ..GroupCounters::default() };
    let pod = GroupCounters {
        cpu_usage: Some(Micros(6)),
        cpu_throttled: Some(Micros(7)),
        cpu_pressure: Some(Stall { some: Micros(8), full: Micros(1) }),
        memory: Some(memory),
        max_events: Some(2),
        oom_kills: Some(1),
    };
    [
        GroupSample { group: Group::Tier(Tier::BestEffort), used: tier },
        GroupSample { group: Group::Pod(WEB), used: pod },
        GroupSample { group: Group::Outside, used: GroupCounters::default() },
    ]
}

fn applications() -> [ApplicationSample; 2] {
    let application = |name: &str, qos, priority: Option<&str>, tier| {
        let (priority, cgroup) = (priority.map(str::to_owned), name.to_owned());
        Arc::new(Application { name: name.to_owned(), qos, priority, tier, cgroup })
    };
    let memory = GroupMemory { usage: Bytes(3 << 20), active_file: Bytes(0), inactive_file: Bytes(1 << 20) };
    let used = GroupCounters { cpu_usage: Some(Micros(4)), memory: Some(memory), ..GroupCounters::default() };
    [
        ApplicationSample {
            application: application("etl", Some(QosClass::Be), Some("koord-batch"), Some(Tier::BestEffort)),
            used,
        },
        ApplicationSample { application: application("sshd", None, None, None), used: GroupCounters::default() },
    ]
}

fn node_object() -> Node {
    let resource = |name: &str, capacity, allocatable| NodeResource { name: name.to_owned(), capacity, allocatable };
    Node {
        name: "edge-7".to_owned(),
        labels: [("pool".to_owned(), "batch".to_owned())].into(),
        annotations: [("note".to_owned(), "\"é\"".to_owned())].into(),
        resources: vec![resource("cpu", Some(8_000), Some(7_910)), resource("example.com/x", None, Some(i64::MAX))],
        zones: vec![NodeZone { id: 1, resources: vec![resource("cpu", Some(4_000), None)] }],
        ..Node::default()
    }
}

fn daemon() -> PodObject {
    PodObject {
        pod: WEB,
        annotations: [("a".to_owned(), "1".to_owned())].into(),
        cpu_request: Some(MilliCpu(1_500)),
        lifecycle: PodLifecycle {
            created: Some(1_700_000_000),
            deleting: true,
            grace_period: Some(0),
            mirror: false,
            owner: Some(PodOwner { kind: "DaemonSet".to_owned(), name: "web".to_owned() }),
            restart_policy: RestartPolicy::Always,
        },
    }
}

fn bare() -> PodObject {
    let lifecycle = PodLifecycle { restart_policy: RestartPolicy::Never, mirror: true, ..PodLifecycle::default() };
    PodObject { pod: BATCH, annotations: BTreeMap::new(), cpu_request: None, lifecycle }
}

fn cluster_config() -> ClusterConfig {
    let maps = [ConfigMap {
        namespace: None,
        name: "slo-controller-config".to_owned(),
        data: [
            ("colocation-config".to_owned(), r#"{"big": 123456789012345678901, "policy": ""}"#.to_owned()),
            ("resource-threshold-config".to_owned(), r#"{"clusterStrategy": {"enable": true}}"#.to_owned()),
        ]
        .into(),
    }];
    ClusterConfig::read(&maps, &Node::default(), None).0
}

/// Two domains; the first container is counted, but on one domain not for long enough yet.
fn resctrl() -> ResctrlColumn {
    let usage = |domain, bytes: u64| Usage {
        domain: DomainId(domain),
        occupancy: Some(Bytes(bytes << 20)),
        local: None,
        total: Some(Bytes(bytes << 30)),
    };
    let unknown = Usage { domain: DomainId(8), occupancy: None, local: None, total: None };
    let domain = |id, cache_ways, cache| Domain { id: DomainId(id), cache_ways, cache, divides_bandwidth: id == 0 };
    let class = |name: &str| name.parse().unwrap();
    ResctrlColumn {
        domains: vec![domain(0, 11, Some(Bytes(33 << 20))), domain(8, 0, None)],
        classes: vec![(class("be"), vec![usage(0, 1), usage(8, 2)])],
        containers: vec![(CONTAINERS[0], vec![usage(0, 3), unknown])],
        rest: vec![usage(0, 20)],
        states: vec![
            ClassState { class: class("be"), in_force: true, why: String::new() },
            ClassState { class: class("ls"), in_force: false, why: "no class is left".to_owned() },
        ],
    }
}
