//! The pods of all benches and their columns: as the host passes them to the engine, and as the same policy sees them when it is compiled
//! natively.
//!
//! Each pod has one container, so that the number of pod cgroups is as large as possible. Each has a CPU limit and requests everything that
//! the default modules do. Nothing is throttled and the node is idle, as in nearly all ticks of a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use cpu_burst::CpuBurst;
use qosm_agent::{LoadedPolicy, Sources};
use qosm_engine::{Cause, Columns, Engine, Instance, Limits, PodView, Staged};
use qosm_model::column::{BandwidthSample, CpuCounters, CpuSample, NodeSample};
use qosm_model::knob::Target;
use qosm_model::numa::{NumaColumn, NumaId, NumaNode, NumaSample, NumaTopology};
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerId, ContainerKind, ContainerState, KubeQos, Pod, PodId, PodLifecycle,
};
use qosm_model::unit::{Bytes, Micros, MilliCpu};
use qosm_sdk::{PodFacts, Session, mock};

/// Time between two ticks.
pub const WINDOW: Micros = Micros(1_000_000);
/// The kubelet's enforcement period.
const PERIOD: Micros = Micros(100_000);
const CPU_LIMIT: MilliCpu = MilliCpu(100);
/// The quota of [`CPU_LIMIT`] in one [`PERIOD`].
const QUOTA: Micros = Micros(10_000);
const CPUS: u32 = 64;
const MEMORY: Bytes = Bytes(512 << 30);

const CPU_BURST: &str = r#"{"policy":"auto"}"#;
const MEMORY_LOCALITY: &str = r#"{"policy":"bestEffort"}"#;
const MEMORY_QOS: &str = r#"{"minLimitPercent":60,"lowLimitPercent":80,"throttlingPercent":80,"wmarkRatio":95}"#;

/// `count` pods, each with one running container in a cgroup of its own.
pub fn pods(count: u32) -> Vec<Pod> {
    (1..=count).map(pod).collect()
}

fn pod(number: u32) -> Pod {
    let annotations = [
        ("koordinator.sh/cpuBurst", CPU_BURST),
        ("koordinator.sh/memoryLocality", MEMORY_LOCALITY),
        ("koordinator.sh/memoryQOS", MEMORY_QOS),
    ];
    Pod {
        uid: format!("00000000-0000-4000-8000-{number:012}"),
        namespace: "bench".to_owned(),
        name: format!("pod-{number}"),
        labels: BTreeMap::from([("app".to_owned(), "bench".to_owned())]),
        annotations: annotations.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: vec![container()],
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

fn container() -> Container {
    Container {
        name: "app".to_owned(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cgroup: ContainerCgroup::Named("app".to_owned()),
        cpu_request: Some(MilliCpu(CPU_LIMIT.0 / 2)),
        cpu_limit: Some(CPU_LIMIT),
        memory_request: Some(Bytes(64 << 20)),
        memory_limit: Some(Bytes(128 << 20)),
        extended_resources: Vec::new(),
        next: None,
    }
}

/// The state of a pod source that has only these pods.
pub fn sources(pods: &[Pod]) -> Sources {
    Sources { pods: pods.to_vec(), ..Sources::default() }
}

/// A running instance of a policy's module on `count` pods, after its first decision.
///
/// # Errors
///
/// If the module cannot be started, fails, or decides nothing, which would make later measurements meaningless.
pub fn instance(engine: &Engine, policy: &LoadedPolicy, count: u32) -> anyhow::Result<Instance> {
    let (instance, staged) = first_decision(engine, policy, &pods(count))?;
    anyhow::ensure!(!staged.settings.is_empty(), "policy `{}` wants nothing for {count} pods", policy.config.name);
    Ok(instance)
}

/// Starts a policy's module, passes it the pods and evaluates it once.
///
/// # Errors
///
/// If the module cannot be started or fails.
pub fn first_decision(engine: &Engine, policy: &LoadedPolicy, pods: &[Pod]) -> anyhow::Result<(Instance, Staged)> {
    let name = policy.config.name.as_str();
    let mut instance =
        engine.instantiate(&policy.module, name, &policy.config.granted()?, &Limits::default(), Vec::new())?;
    instance.configure("{}")?;
    let ids: Vec<[(ContainerId, Option<u32>); 1]> = (1..).zip(pods).map(|(id, _)| [(ContainerId(id), None)]).collect();
    let config = match name {
        "cpu-burst" => CPU_BURST,
        "memory-locality" => MEMORY_LOCALITY,
        _ => MEMORY_QOS,
    };
    let views: Vec<PodView<'_>> = (1..)
        .zip(pods)
        .zip(&ids)
        .map(|((id, pod), containers)| PodView { id: PodId(id), pod, containers, config, annotated: true })
        .collect();
    let answer = instance.pods(&views, &[])?;
    anyhow::ensure!(answer.rejections.is_empty(), "policy `{name}` rejects pods: {:?}", answer.rejections);
    let count = u32::try_from(pods.len()).context("more pods than there are ids")?;
    let staged = instance.evaluate(Micros(0), Cause::ConfigChanged, &columns(count))?;
    Ok((instance, staged))
}

/// The columns that the default modules read, for `count` pods with their containers.
pub fn columns(count: u32) -> Columns {
    Columns {
        node: Some(node()),
        cpu: Some(cpu(1, count)),
        bandwidth: Some(bandwidth(1, count)),
        numa: Some(Arc::new(numa(1, count))),
        ..Columns::default()
    }
}

/// Two NUMA nodes, and `count` containers from `first` on, which run on the first node and have half of their memory on the second.
pub fn numa(first: u32, count: u32) -> NumaColumn {
    // With fewer remote pages, memory-locality does not move a container.
    const PAGES: u64 = 16_384;
    let node = |place: u32| NumaNode {
        cpus: (place * CPUS / 2..(place + 1) * CPUS / 2).collect(),
        memory: Bytes(MEMORY.0 / 2),
        free: Bytes(MEMORY.0 / 4),
        available: Bytes(MEMORY.0 / 4),
        distances: if place == 0 { vec![10, 20] } else { vec![20, 10] },
    };
    let sample = |id| NumaSample {
        container: ContainerId(id),
        identity: u64::from(id),
        cpu_nodes: vec![NumaId(0)],
        memory_nodes: vec![NumaId(0), NumaId(1)],
        pages: vec![(NumaId(0), PAGES), (NumaId(1), PAGES)],
    };
    NumaColumn {
        topology: NumaTopology::new(vec![(NumaId(0), node(0)), (NumaId(1), node(1))]),
        samples: (first..first + count).map(sample).collect(),
    }
}

/// The node.
pub fn node() -> NodeSample {
    NodeSample {
        cpus: CPUS,
        memory_capacity: MEMORY,
        memory_allocatable: MEMORY,
        page_size: Bytes(4096),
        cpu_usage: Some(WINDOW),
        memory_available: Some(MEMORY),
    }
}

/// CPU samples of `count` containers from `first` on.
pub fn cpu(first: u32, count: u32) -> Arc<[CpuSample]> {
    let delta = CpuCounters { usage: Micros(20_000), nr_periods: 10, ..CpuCounters::default() };
    (first..first + count).map(|id| CpuSample { container: ContainerId(id), delta }).collect()
}

/// Quotas of `count` pods from `first` on; the row of each pod is followed by that of its container.
pub fn bandwidth(first: u32, count: u32) -> Arc<[BandwidthSample]> {
    let row = |target| BandwidthSample { target, quota: Some(QUOTA), baseline_quota: Some(QUOTA), period: PERIOD };
    (first..first + count)
        .flat_map(|id| [row(Target::Pod(PodId(id))), row(Target::Container(ContainerId(id)))])
        .collect()
}

/// CPU Burst compiled natively, with the same pods and columns as [`instance`].
pub struct Native {
    session: Session<CpuBurst>,
    host: mock::MockHost,
}

impl Native {
    /// Starts it on `count` of the pods, and runs the first evaluation.
    ///
    /// # Errors
    ///
    /// As [`instance`].
    pub fn start(count: u32) -> anyhow::Result<Self> {
        let mut native = Self { session: Session::default(), host: mock::MockHost::default() };
        native.session.configure(&mut native.host, "{}").map_err(anyhow::Error::msg)?;
        let pods = pods(count);
        let facts = (1..).zip(&pods).map(|(id, pod)| facts(id, pod)).collect();
        native.session.pods(&mut native.host, facts, &[]).map_err(anyhow::Error::msg)?;
        native.host.columns = mock::Columns {
            node: Some(native_node()),
            cpu: cpu(1, count).iter().map(native_cpu).collect(),
            bandwidth: bandwidth(1, count).iter().map(native_bandwidth).collect(),
            ..mock::Columns::default()
        };
        let tick = qosm_sdk::Tick { window_usec: 0, cause: qosm_sdk::Cause::ConfigChanged, alarms: Vec::new() };
        native.session.evaluate(&mut native.host, tick).map_err(anyhow::Error::msg)?;
        anyhow::ensure!(!native.host.commit().is_empty(), "the native policy wants nothing for {count} pods");
        Ok(native)
    }

    /// Runs one evaluation, a window after the last. Returns the number of settings that it stages.
    ///
    /// # Errors
    ///
    /// The policy's error.
    pub fn evaluate(&mut self) -> anyhow::Result<usize> {
        self.session.evaluate(&mut self.host, mock::tick(WINDOW.0 / 1000)).map_err(anyhow::Error::msg)?;
        Ok(self.host.staged().len())
    }
}

fn facts(id: u32, pod: &Pod) -> PodFacts {
    let containers = pod.containers.iter().map(|container| qosm_sdk::Container {
        cpu_request_milli: container.cpu_request.map(|milli| milli.0),
        cpu_limit_milli: container.cpu_limit.map(|milli| milli.0),
        memory_request_bytes: container.memory_request.map(|bytes| bytes.0),
        memory_limit_bytes: container.memory_limit.map(|bytes| bytes.0),
        ..mock::container(id, &container.name)
    });
    PodFacts { containers: containers.collect(), config: CPU_BURST.into(), ..mock::pod(id, &pod.namespace, &pod.name) }
}

fn native_node() -> qosm_sdk::NodeSample {
    let node = node();
    qosm_sdk::NodeSample {
        cpus: node.cpus,
        memory_capacity_bytes: node.memory_capacity.0,
        memory_allocatable_bytes: node.memory_allocatable.0,
        page_size_bytes: node.page_size.0,
        cpu_usage_usec: node.cpu_usage.map(|usage| usage.0),
        memory_available_bytes: node.memory_available.map(|available| available.0),
    }
}

fn native_cpu(sample: &CpuSample) -> qosm_sdk::CpuSample {
    qosm_sdk::CpuSample {
        usage_usec: sample.delta.usage.0,
        nr_periods: sample.delta.nr_periods,
        ..mock::cpu(sample.container.0)
    }
}

fn native_bandwidth(sample: &BandwidthSample) -> qosm_sdk::Bandwidth {
    let target = match sample.target {
        Target::Container(id) => qosm_sdk::Target::Container(id.0),
        Target::Pod(id) => qosm_sdk::Target::Pod(id.0),
        Target::Node | Target::Tier(_) => unreachable!("`bandwidth` makes no rows of tiers"),
    };
    qosm_sdk::Bandwidth {
        target,
        quota_usec: sample.quota.map(|quota| quota.0),
        baseline_quota_usec: sample.baseline_quota.map(|quota| quota.0),
        period_usec: sample.period.0,
    }
}
