//! Facts for tests to start from; override fields with `..`.

use crate::{
    Cause, Container, ContainerId, ContainerKind, ContainerState, Cpu, CpuManager, CpuSample, Group, GroupUse, KubeQos,
    MemorySample, NodeAmount, NodeObjectFacts, NodeSample, PodFacts, PodId, PodObjectFacts, PressureSample, QosClass,
    RestartPolicy, Stall, Tick, Topology,
};

/// An active Burstable pod without a declared class, containers and configuration.
///
/// ```
/// use qosm_sdk::{PodFacts, mock};
///
/// let web = PodFacts { config: r#"{"percent": 80}"#.into(), ..mock::pod(1, "default", "web") };
/// assert_eq!(web.uid, "uid-of-default-web");
/// ```
pub fn pod(id: PodId, namespace: &str, name: &str) -> PodFacts {
    PodFacts {
        id,
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-of-{namespace}-{name}"),
        declared_qos: None,
        qos: QosClass::Ls,
        kube_qos: KubeQos::Burstable,
        priority: None,
        active: true,
        host_pid: false,
        static_pod: false,
        labels: Vec::new(),
        containers: Vec::new(),
        cpu_overhead_milli: 0,
        memory_overhead_bytes: 0,
        memory_request_bytes: None,
        memory_limit_bytes: None,
        cpu_limit_milli: None,
        config: "{}".into(),
        annotated: false,
    }
}

/// A running regular container without requests and limits.
///
/// ```
/// use qosm_sdk::{Container, mock};
///
/// let app = Container { cpu_limit_milli: Some(500), ..mock::container(7, "app") };
/// assert_eq!(app.memory_limit_bytes, None);
/// ```
pub fn container(id: ContainerId, name: &str) -> Container {
    Container {
        id,
        name: name.into(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cpu_request_milli: None,
        cpu_limit_milli: None,
        memory_request_bytes: None,
        memory_limit_bytes: None,
        extended_resources: Vec::new(),
        exclusive_cpus: None,
    }
}

/// A node with these CPUs and this memory, all of it allocatable, and 4 KiB pages. Its use is unknown.
///
/// ```
/// use qosm_sdk::{NodeSample, mock};
///
/// let busy = NodeSample { cpu_usage_usec: Some(7_500_000), ..mock::node(8, 32 << 30) };
/// assert_eq!(busy.memory_allocatable_bytes, 32 << 30);
/// ```
pub fn node(cpus: u32, memory_bytes: u64) -> NodeSample {
    NodeSample {
        cpus,
        memory_capacity_bytes: memory_bytes,
        memory_allocatable_bytes: memory_bytes,
        page_size_bytes: 4096,
        cpu_usage_usec: None,
        memory_available_bytes: None,
    }
}

/// A Node object with these CPUs and this memory, all of it allocatable, and no other data.
///
/// ```
/// use qosm_sdk::{NodeObjectFacts, mock};
///
/// let batch = ("pool".to_owned(), "batch".to_owned());
/// let node = NodeObjectFacts { labels: vec![batch], ..mock::node_object("edge-7", 8, 32 << 30) };
/// assert_eq!(node.resources[1].capacity, Some(32 << 30));
/// ```
pub fn node_object(name: &str, cpus: u32, memory_bytes: u64) -> NodeObjectFacts {
    let memory = i64::try_from(memory_bytes).unwrap_or(i64::MAX);
    let amounts = [("cpu", i64::from(cpus).saturating_mul(1000)), ("memory", memory)];
    let amount = |(name, amount): (&str, i64)| NodeAmount {
        name: name.into(),
        capacity: Some(amount),
        allocatable: Some(amount),
    };
    NodeObjectFacts {
        name: name.into(),
        labels: Vec::new(),
        annotations: Vec::new(),
        resources: amounts.map(amount).into(),
        zones: Vec::new(),
    }
}

/// The object of a pod without an owner that is not being deleted.
///
/// ```
/// use qosm_sdk::{PodObjectFacts, mock};
///
/// let daemon = PodObjectFacts { owner_kind: Some("DaemonSet".into()), ..mock::pod_object(1) };
/// assert_eq!(daemon.grace_period_sec, Some(30));
/// ```
pub fn pod_object(pod: PodId) -> PodObjectFacts {
    PodObjectFacts {
        pod,
        annotations: Vec::new(),
        created_at_sec: None,
        deleting: false,
        grace_period_sec: Some(30),
        mirror: false,
        owner_kind: None,
        owner_name: None,
        cpu_request_milli: None,
        restart_policy: RestartPolicy::Always,
    }
}

/// An evaluation at the policy's interval.
///
/// ```
/// assert_eq!(qosm_sdk::mock::tick(1_000).window_usec, 1_000_000);
/// ```
pub fn tick(window_millis: u64) -> Tick {
    Tick { window_usec: window_millis.saturating_mul(1000), cause: Cause::Interval, alarms: Vec::new() }
}

/// A CPU sample with all counters at 0.
///
/// ```
/// use qosm_sdk::{CpuSample, mock};
///
/// let busy = CpuSample { usage_usec: 900_000, ..mock::cpu(7) };
/// assert_eq!((busy.container, busy.nr_throttled), (7, 0));
/// ```
pub fn cpu(container: ContainerId) -> CpuSample {
    CpuSample::zero(container)
}

/// A memory sample with all values at 0.
///
/// ```
/// use qosm_sdk::{MemorySample, mock};
///
/// let full = MemorySample { usage_bytes: 1 << 30, max_events: 3, ..mock::memory(7) };
/// assert_eq!((full.container, full.oom_kills), (7, 0));
/// ```
pub fn memory(container: ContainerId) -> MemorySample {
    MemorySample::zero(container)
}

/// A pressure sample without stalls.
///
/// ```
/// use qosm_sdk::{PressureSample, Stall, mock};
///
/// let waits = PressureSample { io: Stall { some_usec: 150_000, full_usec: 0 }, ..mock::pressure(7) };
/// assert_eq!((waits.container, waits.cpu.some_usec), (7, 0));
/// ```
pub fn pressure(container: ContainerId) -> PressureSample {
    let none = Stall { some_usec: 0, full_usec: 0 };
    PressureSample { container, cpu: none, memory: none, io: none }
}

/// Use of a group for which nothing is counted.
///
/// ```
/// use qosm_sdk::{Group, GroupUse, mock};
///
/// let busy = GroupUse { cpu_usage_usec: Some(900_000), ..mock::group_use(Group::Pod(1)) };
/// assert!(busy.memory.is_none());
/// ```
pub fn group_use(group: Group) -> GroupUse {
    GroupUse::zero(group)
}

/// A machine with `cpus` CPUs on one socket and one NUMA node, each its own core. The state of its CPU manager is unknown.
///
/// ```
/// let machine = qosm_sdk::mock::topology(8);
/// assert!(machine.cpus.iter().all(|cpu| cpu.online && cpu.core == cpu.id));
/// ```
pub fn topology(cpus: u32) -> Topology {
    let cpu = |id| Cpu { id, core: id, socket: 0, numa_node: 0, online: true };
    Topology {
        cpus: (0..cpus).map(cpu).collect(),
        manager: CpuManager::Unknown,
        reserved: Vec::new(),
        exclusive: Vec::new(),
    }
}
