//! Strategies for [`mod@proptest`]: pods, the node and columns, for properties that hold for all of them (feature `proptest`).
//!
//! They generate only facts that a host can hand over, including unusual ones: ended pods, waiting containers, limits of 0 and above the
//! capacity of the node, missing samples. Ids are unique.
//!
//! ```
//! use proptest::prelude::*;
//! use qosm_sdk::mock::MockHost;
//! use qosm_sdk::{Session, mock, strategies};
//! # use qosm_sdk::{CpuBandwidth, Description, Host, NoConfig, Pod, PodId, Pods, Policy, Rejection, Target, Tick};
//! # #[derive(Default)]
//! # struct MyPolicy { pods: Pods<NoConfig> }
//! # impl Policy for MyPolicy {
//! #     type Config = ();
//! #     type PodConfig = NoConfig;
//! #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
//! #     fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, removed: &[PodId]) -> Vec<Rejection> {
//! #         self.pods.update(upserted, removed);
//! #         Vec::new()
//! #     }
//! #     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
//! #         for pod in self.pods.iter() { host.set_burst(Target::Pod(pod.id), 1, "any"); }
//! #         Ok(())
//! #     }
//! # }
//!
//! proptest! {
//!     fn it_stages_nothing_that_a_host_refuses(
//!         (pods, columns) in strategies::pods(0..5, Just("{}".to_owned()))
//!             .prop_flat_map(|pods| (Just(pods.clone()), strategies::columns(&pods))),
//!     ) {
//!         let mut host = MockHost::default();
//!         host.columns = columns;
//!         let mut policy = Session::<MyPolicy>::default();
//!         prop_assert_eq!(policy.pods(&mut host, pods, &[]), Ok(vec![]));
//!         prop_assert_eq!(policy.evaluate(&mut host, mock::tick(1_000)), Ok(()));
//!     }
//! }
//!
//! it_stages_nothing_that_a_host_refuses();
//! ```

use proptest::collection::{SizeRange, vec};
use proptest::option;
use proptest::prelude::*;

use crate::mock::{self, Columns};
use crate::{
    Container, ContainerId, ContainerKind, ContainerState, CpuSample, ExtendedResource, Group, GroupMemory, GroupUse,
    KubeQos, MemorySample, NodeAmount, NodeObjectFacts, NodeSample, NodeStall, PodFacts, PodId, PodObjectFacts,
    PressureSample, QosClass, RestartPolicy, Stall,
};

/// Window of the samples: one second.
const WINDOW_USEC: u64 = 1_000_000;
/// Enforcement periods in the window.
const PERIODS: u64 = 10;
/// Containers of pod 3 are 300, 301, …
const IDS_EACH: u32 = 100;

/// An amount of bytes: mostly plausible, sometimes 0, sometimes the largest that Kubernetes accepts.
///
/// ```
/// use proptest::strategy::{Strategy, ValueTree};
/// use proptest::test_runner::TestRunner;
///
/// let amount: u64 = qosm_sdk::strategies::amount().new_tree(&mut TestRunner::deterministic())?.current();
/// # let _ = amount;
/// # Ok::<(), proptest::test_runner::Reason>(())
/// ```
pub fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..1_u64 << 34, 1 => Just(0), 1 => 0..1_u64 << 63]
}

/// A CPU limit in thousandths of a CPU: mostly plausible, sometimes 0, sometimes very large.
fn milli_cpu() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..64_000_u64, 1 => Just(0), 1 => 0..1_u64 << 40]
}

/// A container of any kind and state, with any requests, limits and batch resources; its id is 0 and its name `any`.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(container in qosm_sdk::strategies::container())| {
///     prop_assert_eq!(container.name, "any");
/// });
/// ```
pub fn container() -> impl Strategy<Value = Container> {
    let kind = prop_oneof![1 => Just(ContainerKind::Init), 1 => Just(ContainerKind::Sidecar), 3 => Just(ContainerKind::Regular)];
    let state = prop_oneof![
        1 => Just(ContainerState::Waiting), 3 => Just(ContainerState::Running), 1 => Just(ContainerState::Terminated)
    ];
    let cpu = (option::of(0..64_000_u64), option::of(milli_cpu()));
    let memory = (option::of(amount()), option::of(amount()));
    let batch = (
        option::of((option::of(amount()), option::of(amount()))),
        option::of((option::of(amount()), option::of(amount()))),
    );
    (kind, state, cpu, memory, batch, option::weighted(0.1, 1..8_u32)).prop_map(
        |(kind, state, cpu, memory, batch, exclusive_cpus)| {
            let resource = |name: &str, amounts: Option<(Option<u64>, Option<u64>)>| {
                amounts.map(|(request, limit)| ExtendedResource { name: name.into(), request, limit })
            };
            let batch_cpu = resource("kubernetes.io/batch-cpu", batch.0);
            let batch_memory = resource("kubernetes.io/batch-memory", batch.1);
            Container {
                kind,
                state,
                cpu_request_milli: cpu.0,
                cpu_limit_milli: cpu.1,
                memory_request_bytes: memory.0,
                memory_limit_bytes: memory.1,
                extended_resources: batch_cpu.into_iter().chain(batch_memory).collect(),
                exclusive_cpus,
                ..mock::container(0, "any")
            }
        },
    )
}

/// A pod of any class with up to four containers and a configuration from `config`; its id and those of its containers are 0.
///
/// ```
/// use proptest::prelude::*;
/// use qosm_sdk::strategies;
///
/// let asked = prop_oneof![Just("{}".to_owned()), (1..=100_u64).prop_map(|percent| format!(r#"{{"percent": {percent}}}"#))];
/// proptest!(|(pod in strategies::pod(asked))| {
///     prop_assert!(pod.containers.len() < 5 && pod.config.len() > 1);
/// });
/// ```
pub fn pod(config: impl Strategy<Value = String>) -> impl Strategy<Value = PodFacts> {
    let kube_qos = prop_oneof![Just(KubeQos::Guaranteed), Just(KubeQos::Burstable), Just(KubeQos::BestEffort)];
    let declared = option::of(prop_oneof![
        4 => Just(QosClass::Be), 4 => Just(QosClass::Ls), 1 => Just(QosClass::Lsr), 1 => Just(QosClass::Lse),
        1 => Just(QosClass::System)
    ]);
    let overhead = || prop_oneof![2 => Just(0), 1 => amount()];
    let of_the_pod =
        (option::weighted(0.1, amount()), option::weighted(0.1, amount()), option::weighted(0.1, 0..64_000_u64));
    let flags = (prop::bool::weighted(0.9), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let pod = (kube_qos, declared, flags, vec(container(), 0..5), (overhead(), overhead()), of_the_pod, config);
    pod.prop_map(|(kube_qos, declared_qos, flags, containers, overhead, of_the_pod, config)| {
        let qos = declared_qos.unwrap_or(match kube_qos {
            KubeQos::Guaranteed => QosClass::Lsr,
            KubeQos::Burstable => QosClass::Ls,
            KubeQos::BestEffort => QosClass::Be,
        });
        PodFacts {
            kube_qos,
            declared_qos,
            qos,
            active: flags.0,
            host_pid: flags.1,
            static_pod: flags.2,
            containers,
            cpu_overhead_milli: overhead.0,
            memory_overhead_bytes: overhead.1,
            memory_request_bytes: of_the_pod.0,
            memory_limit_bytes: of_the_pod.1,
            cpu_limit_milli: of_the_pod.2,
            config,
            ..mock::pod(0, "default", "any")
        }
    })
}

/// Pods of one node: pods and containers have unique ids and names.
///
/// ```
/// use proptest::prelude::*;
/// use qosm_sdk::strategies;
///
/// proptest!(|(pods in strategies::pods(2..=2, Just("{}".to_owned())))| {
///     prop_assert_eq!((pods[0].id, pods[1].id), (1, 2));
///     prop_assert!(pods[1].containers.iter().all(|container| container.id >= 200));
/// });
/// ```
pub fn pods(
    count: impl Into<SizeRange>,
    config: impl Strategy<Value = String>,
) -> impl Strategy<Value = Vec<PodFacts>> {
    vec(pod(config), count).prop_map(|mut pods| {
        for (pod, id) in pods.iter_mut().zip(1_u32..) {
            pod.id = id;
            pod.name = format!("pod-{id}");
            pod.uid = format!("uid-of-{}-{}", pod.namespace, pod.name);
            for (container, number) in pod.containers.iter_mut().zip(0_u32..) {
                container.id = id.saturating_mul(IDS_EACH).saturating_add(number);
                container.name = format!("container-{number}");
            }
        }
        pods
    })
}

/// A node of 1 to 128 CPUs; its use is mostly known.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(node in qosm_sdk::strategies::node())| {
///     prop_assert!(node.memory_allocatable_bytes <= node.memory_capacity_bytes);
///     prop_assert!(node.cpu_usage_usec.is_none_or(|used| used <= u64::from(node.cpus) * 1_000_000));
/// });
/// ```
pub fn node() -> impl Strategy<Value = NodeSample> {
    let share = || 0..=100_u64;
    (1..=128_u32, 1 << 28..1_u64 << 42, share(), option::weighted(0.9, share()), option::weighted(0.9, share()))
        .prop_map(|(cpus, memory_capacity_bytes, allocatable, used, available)| NodeSample {
            memory_allocatable_bytes: crate::percent_of(memory_capacity_bytes, allocatable),
            cpu_usage_usec: used.map(|percent| crate::percent_of(u64::from(cpus) * WINDOW_USEC, percent)),
            memory_available_bytes: available.map(|percent| crate::percent_of(memory_capacity_bytes, percent)),
            ..mock::node(cpus, memory_capacity_bytes)
        })
}

/// Use by a group over a second: up to 64 CPUs; each counter is mostly known.
///
/// ```
/// use proptest::prelude::*;
/// use qosm_sdk::Group;
///
/// proptest!(|(used in qosm_sdk::strategies::group_use(Group::Outside))| {
///     prop_assert!(used.cpu_usage_usec.is_none_or(|usec| usec <= 64_000_000));
///     prop_assert!(used.memory.is_none_or(|memory| memory.active_file_bytes + memory.inactive_file_bytes <= memory.usage_bytes));
/// });
/// ```
pub fn group_use(group: Group) -> impl Strategy<Value = GroupUse> {
    let mostly = |most: u64| option::weighted(0.9, 0..=most);
    let memory = (0..1_u64 << 40, 0..=100_u64, 0..=100_u64).prop_map(|(usage_bytes, file, active)| {
        let file_bytes = crate::percent_of(usage_bytes, file);
        let active_file_bytes = crate::percent_of(file_bytes, active);
        GroupMemory { usage_bytes, active_file_bytes, inactive_file_bytes: file_bytes - active_file_bytes }
    });
    let stall = (0..=WINDOW_USEC, 0..=100_u64)
        .prop_map(|(some_usec, full)| NodeStall { some_usec, full_usec: crate::percent_of(some_usec, full) });
    let known = (mostly(64 * WINDOW_USEC), mostly(16 * WINDOW_USEC), option::weighted(0.9, stall));
    (known, option::weighted(0.9, memory), mostly(9), mostly(9)).prop_map(
        move |((cpu_usage_usec, cpu_throttled_usec, cpu_pressure), memory, max_events, oom_kills)| GroupUse {
            cpu_usage_usec,
            memory,
            cpu_throttled_usec,
            cpu_pressure,
            max_events,
            oom_kills,
            ..mock::group_use(group)
        },
    )
}

/// The CPU sample of a container over a second: up to 64 CPUs used, any share of the periods throttled.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(sample in qosm_sdk::strategies::cpu(7))| {
///     prop_assert!(sample.container == 7 && sample.nr_throttled <= sample.nr_periods);
/// });
/// ```
pub fn cpu(container: ContainerId) -> impl Strategy<Value = CpuSample> {
    (0..64 * WINDOW_USEC, 0..=PERIODS, 0..=PERIODS, 0..16 * WINDOW_USEC).prop_map(
        move |(usage_usec, one, other, throttled_usec)| {
            let unthrottled = CpuSample { usage_usec, nr_periods: one.max(other), ..mock::cpu(container) };
            match one.min(other) {
                0 => unthrottled,
                nr_throttled => CpuSample { nr_throttled, throttled_usec, ..unthrottled },
            }
        },
    )
}

/// The memory sample of a container; no part exceeds the whole.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(sample in qosm_sdk::strategies::memory(7))| {
///     prop_assert!(sample.inactive_file_bytes <= sample.file_bytes);
///     prop_assert!(sample.anon_bytes + sample.file_bytes <= sample.usage_bytes);
/// });
/// ```
pub fn memory(container: ContainerId) -> impl Strategy<Value = MemorySample> {
    let rare = || prop_oneof![4 => Just(0_u64), 1 => 0..100_u64];
    (0..1_u64 << 38, 0..=100_u64, 0..=100_u64, rare(), rare(), rare()).prop_map(
        move |(usage_bytes, anon, inactive, high_events, max_events, oom_kills)| {
            let anon_bytes = crate::percent_of(usage_bytes, anon);
            let file_bytes = usage_bytes - anon_bytes;
            let inactive_file_bytes = crate::percent_of(file_bytes, inactive);
            let events = MemorySample { high_events, max_events, oom_kills, ..mock::memory(container) };
            MemorySample { usage_bytes, anon_bytes, file_bytes, inactive_file_bytes, ..events }
        },
    )
}

/// The pressure sample of a container over a second; `full` never exceeds `some`.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(sample in qosm_sdk::strategies::pressure(7))| {
///     prop_assert!(sample.memory.full_usec <= sample.memory.some_usec);
/// });
/// ```
pub fn pressure(container: ContainerId) -> impl Strategy<Value = PressureSample> {
    let stall = || {
        (0..=WINDOW_USEC, 0..=100_u64)
            .prop_map(|(some_usec, full)| Stall { some_usec, full_usec: crate::percent_of(some_usec, full) })
    };
    (stall(), stall(), stall()).prop_map(move |(cpu, memory, io)| PressureSample { container, cpu, memory, io })
}

/// A Node object with amounts of CPU and memory, and mostly with batch resources.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(node in qosm_sdk::strategies::node_object())| {
///     prop_assert!(node.resources.is_sorted_by(|one, other| one.name < other.name));
/// });
/// ```
pub fn node_object() -> impl Strategy<Value = NodeObjectFacts> {
    let size = || prop_oneof![4 => 0..1_i64 << 40, 1 => Just(0), 1 => Just(i64::MAX)];
    let amount = move |name: &'static str| {
        (option::weighted(0.9, size()), option::weighted(0.9, size()))
            .prop_map(move |(capacity, allocatable)| NodeAmount { name: name.into(), capacity, allocatable })
    };
    let names = ["cpu", "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "memory"];
    (names.map(amount), "[a-z]{0,8}").prop_map(|(resources, label)| NodeObjectFacts {
        labels: vec![("pool".into(), label)],
        resources: resources.into(),
        ..mock::node_object("any", 0, 0)
    })
}

/// A Pod object: with or without owner, of any age, being deleted or not.
///
/// ```
/// use proptest::prelude::*;
///
/// proptest!(|(object in qosm_sdk::strategies::pod_object(7))| {
///     prop_assert_eq!(object.pod, 7);
/// });
/// ```
pub fn pod_object(pod: PodId) -> impl Strategy<Value = PodObjectFacts> {
    let owner = option::of(prop_oneof![Just("ReplicaSet"), Just("DaemonSet"), Just("Job"), Just("Node")]);
    let restart = prop_oneof![Just(RestartPolicy::Always), Just(RestartPolicy::OnFailure), Just(RestartPolicy::Never)];
    let times = (option::weighted(0.9, 0..1_i64 << 33), option::weighted(0.9, 0..=3_600_u32));
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (owner, restart, times, flags, option::weighted(0.1, milli_cpu())).prop_map(
        move |(owner, restart_policy, (created_at_sec, grace_period_sec), (deleting, mirror), cpu_request_milli)| {
            PodObjectFacts {
                created_at_sec,
                deleting,
                grace_period_sec,
                mirror,
                owner_kind: owner.map(Into::into),
                owner_name: owner.map(str::to_lowercase),
                cpu_request_milli,
                restart_policy,
                ..mock::pod_object(pod)
            }
        },
    )
}

/// Columns of these pods over a second, and their objects: the node, quotas as a kubelet writes them, and samples of running containers,
/// some of which are missing. Without NUMA columns.
///
/// ```
/// use proptest::prelude::*;
/// use qosm_sdk::{Container, PodFacts, mock, strategies};
///
/// let web = PodFacts { containers: vec![mock::container(7, "app")], ..mock::pod(1, "default", "web") };
/// proptest!(|(columns in strategies::columns(&[web]))| {
///     prop_assert_eq!(columns.bandwidth.len(), 2);
///     prop_assert!(columns.cpu.iter().all(|sample| sample.container == 7));
/// });
/// ```
pub fn columns(pods: &[PodFacts]) -> impl Strategy<Value = Columns> + use<> {
    let containers = pods.iter().filter(|pod| pod.active).flat_map(|pod| &pod.containers);
    let running: Vec<ContainerId> = containers
        .filter(|container| container.state == ContainerState::Running)
        .map(|container| container.id)
        .collect();
    let bandwidth = mock::bandwidth(pods);
    let each = |id: &ContainerId| {
        let there = |weight| prop::bool::weighted(weight);
        (cpu(*id), memory(*id), pressure(*id), there(0.9), there(0.9), there(0.7))
    };
    let objects: Vec<_> = pods.iter().map(|pod| pod_object(pod.id)).collect();
    let rows = running.iter().map(each).collect::<Vec<_>>();
    (node(), rows, option::weighted(0.9, node_object()), objects).prop_map(move |(node, rows, node_object, objects)| {
        let mut columns = Columns {
            node: Some(node),
            bandwidth: bandwidth.clone(),
            node_object,
            pod_objects: objects,
            ..Columns::default()
        };
        for (cpu, memory, pressure, has_cpu, has_memory, has_pressure) in rows {
            columns.cpu.extend(has_cpu.then_some(cpu));
            columns.memory.extend(has_memory.then_some(memory));
            columns.pressure.extend(has_pressure.then_some(pressure));
        }
        columns
    })
}
