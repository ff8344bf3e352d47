//! Facts to begin a test with, to be completed with `..`.

use crate::{
    Cause, Container, ContainerId, ContainerKind, ContainerState, KubeQos, NodeSample, PodFacts, PodId, QosClass, Tick,
};

/// A Burstable pod that runs, declares no class, has no containers and that nobody configured.
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

/// A regular container that runs, without requests or limits.
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

/// A node with so many CPUs, 4 KiB pages and so much memory, all of it allocatable; its use is not known.
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

/// An evaluation because the policy's interval has passed.
///
/// ```
/// assert_eq!(qosm_sdk::mock::tick(1_000).window_usec, 1_000_000);
/// ```
pub fn tick(window_millis: u64) -> Tick {
    Tick { window_usec: window_millis.saturating_mul(1000), cause: Cause::Interval, alarms: Vec::new() }
}
