//! Properties that hold for all pods, configurations, measurements and times between evaluations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use qosm_sdk::{ContainerKind, ContainerState, ExtendedResource, QosClass};
use reclaimed_resources::amounts::Amounts;
use reclaimed_resources::class::PriorityClass;
use reclaimed_resources::config::{Config, Settings};
use reclaimed_resources::node::{Node, Zone};
use reclaimed_resources::pod::{Container, Pod};
use reclaimed_resources::strategy::MemoryView;
use reclaimed_resources::usage::tracker::{HostApplication, PodUsage, Usage};
use reclaimed_resources::usage::{MemoryUse, Sample};
use reclaimed_resources::{Inputs, Now, State, Status, saved_state, tick};

const SECOND: u64 = 1_000_000;
const GIB: u64 = 1 << 30;
const NAMES: [&str; 4] =
    ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"];

fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just("usage"), Just("maxUsageRequest"), Just("request")];
    let percents = (0..=100_u32, 0..=100_u32, option::of(0..200_u32), 0..=100_u32, 0..=100_u32);
    (policy, percents, any::<bool>(), 1..30_u32, 1..600_u32, any::<bool>()).prop_map(
        |(policy, (cpu, memory, cap, mid, unallocated), enable, degrade, window, is_static)| {
            let mut colocation = serde_json::json!({
                "enable": enable, "cpuReclaimThresholdPercent": cpu, "memoryReclaimThresholdPercent": memory,
                "memoryCalculatePolicy": policy, "midCPUThresholdPercent": mid, "midUnallocatedPercent": unallocated,
                "midStaticCPUReservedPercent": unallocated, "degradeTimeMinutes": degrade,
                "metricAggregateDurationSeconds": window,
            });
            if policy != "request" {
                colocation["cpuCalculatePolicy"] = policy.into();
            }
            if is_static {
                colocation["midReclaimMode"] = "static".into();
            }
            colocation["batchCPUThresholdPercent"] = cap.into();
            let config = serde_json::json!({ "colocation": colocation, "policy": { "coldStartSeconds": 60 } });
            serde_json::from_value::<Config>(config).unwrap().check().unwrap()
        },
    )
}

fn amounts() -> impl Strategy<Value = Amounts> {
    (0..200_000_u64, 0..200 * GIB).prop_map(|(cpu, memory)| Amounts::new(cpu, memory))
}

fn sample() -> impl Strategy<Value = Sample> {
    let memory = (0..50 * GIB, 0..GIB, 0..GIB).prop_map(|(without_cache, hot_cache, cold_cache)| MemoryUse {
        without_cache,
        hot_cache,
        cold_cache,
    });
    (0..4_000 * SECOND, memory).prop_map(|(cpu_usec, memory)| Sample { cpu_usec, memory })
}

fn class() -> impl Strategy<Value = PriorityClass> {
    use PriorityClass::{Batch, Free, Mid, None, Prod};
    prop_oneof![Just(Prod), Just(Mid), Just(Batch), Just(Free), Just(None)]
}

prop_compose! {
    fn pod()(
        number in 0..6_u32, priority in class(), is_active: bool, is_be: bool, request in amounts(), numa_nodes in vec(0..4_u32, 0..3),
        batch in option::of((0..9000_u64, option::of(0..9000_u64))), is_exclusive: bool,
    ) -> Pod {
        let extended = batch.map(|(request, limit)| ExtendedResource { name: NAMES[0].into(), request: Some(request), limit });
        Pod {
            id: number,
            uid: format!("pod-{number}"),
            name: format!("default/pod-{number}"),
            is_active,
            declared_qos: is_be.then_some(QosClass::Be),
            qos: if is_be { QosClass::Be } else if is_exclusive { QosClass::Lse } else { QosClass::Ls },
            priority,
            overhead: Amounts::ZERO,
            cpu_request_milli: None,
            memory_request_bytes: None,
            numa_nodes,
            extended_resource_spec: None,
            period_usec: None,
            containers: vec![Container {
                id: number,
                name: "app".into(),
                kind: ContainerKind::Regular,
                state: ContainerState::Running,
                request,
                extended: extended.into_iter().collect(),
                memory_used_bytes: None,
                period_usec: None,
            }],
        }
    }
}

prop_compose! {
    fn usage()(
        node in sample(), system in option::of(sample()), pods in vec((0..8_u32, class(), sample()), 0..6),
        hosts in vec((class(), sample()), 0..3), memory_stalled_usec in option::of(0..SECOND),
    ) -> Usage {
        let mut seen: Vec<PodUsage> = Vec::new();
        for (number, priority, sample) in pods {
            let uid = format!("pod-{number}");
            if seen.iter().all(|pod| pod.uid != uid) {
                seen.push(PodUsage { uid, priority, sample });
            }
        }
        let host_applications = hosts.into_iter().map(|(priority, sample)| HostApplication { priority, sample }).collect();
        Usage { node, system, pods: seen, host_applications, memory_stalled_usec }
    }
}

prop_compose! {
    fn inputs()(
        capacity in amounts(), kept in amounts(), pods in option::weighted(0.9, vec(pod(), 0..5)), usage in option::weighted(0.8, usage()),
        has_node in prop::bool::weighted(0.9), zones in 0..3_u32, window in prop_oneof![0..120 * SECOND, 0..4000 * SECOND],
    ) -> (Inputs, u64) {
        let zones = (0..zones).map(|id| Zone { id, allocatable: capacity.part(2) }).collect();
        let node = Node { capacity, allocatable: capacity.minus(kept), zones, ..Node::default() };
        let pods = pods.map(|mut pods| {
            pods.sort_by(|a, b| a.uid.cmp(&b.uid));
            pods.dedup_by(|a, b| a.uid == b.uid);
            pods
        });
        (Inputs { node: has_node.then_some(node), pods, usage }, window)
    }
}

/// A node that is measured in windows of whole seconds and uses no more CPUs than it has.
fn measured() -> impl Strategy<Value = (Inputs, u64)> {
    let use_of = (0..100_u64, 0..100 * GIB);
    (use_of, option::weighted(0.9, Just(())), 1..200_u64).prop_map(|((cpus, bytes), is_measured, seconds)| {
        let memory = MemoryUse { without_cache: bytes, ..MemoryUse::default() };
        let usage = Usage { node: Sample { cpu_usec: cpus * seconds * SECOND, memory }, ..Usage::default() };
        let capacity = Amounts::new(100_000, 100 * GIB);
        let node = Node { capacity, allocatable: capacity, ..Node::default() };
        let inputs = Inputs { node: Some(node), pods: Some(Vec::new()), usage: is_measured.map(|()| usage) };
        (inputs, seconds * SECOND)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_beyond_the_capacity_never_stale_and_the_same_for_the_same(
        settings in settings(), steps in vec(inputs(), 1..25),
    ) {
        let (mut state, mut twin) = (State::default(), State::default());
        let (mut age, mut largest) = (None, Amounts::ZERO);
        for (inputs, window_usec) in steps {
            let now = Now { window_usec };
            let seen = tick(&mut state, &settings, &inputs, now);
            prop_assert_eq!(&seen, &tick(&mut twin, &settings, &inputs, now), "reproducible");

            largest = largest.max(inputs.node.as_ref().map_or(Amounts::ZERO, |node| node.capacity));
            for (index, name) in NAMES.iter().enumerate() {
                let amount = seen.publication.published.offers.get(*name).map_or(0, |offer| offer.amount);
                let most = if index % 2 == 0 { largest.cpu_milli } else { largest.memory_bytes };
                prop_assert!(amount <= most, "{name}: {amount} of {most}");
            }
            let is_measured = inputs.usage.is_some() && inputs.pods.is_some() && window_usec > 0;
            age = if is_measured { Some(0) } else { age.map(|age: u64| age + window_usec) };
            let strategy = settings.layers.effective(&Default::default(), &Default::default()).0;
            let is_stale = age.is_some_and(|age| age > strategy.degrade_minutes * 60 * SECOND);
            if is_stale || !strategy.enable {
                prop_assert!(seen.publication.published.offers.is_empty(), "nothing is left stale");
                prop_assert!(matches!(seen.publication.status, Status::Withdrawn(_)));
            }
            for one in seen.settings.unwrap_or_default() {
                let pods = inputs.pods.as_deref().unwrap_or_default();
                let is_be = |pod: &Pod| pod.is_active && pod.declared_qos == Some(QosClass::Be);
                let has_batch = |pod: &Pod| pod.containers.iter().any(|one| !one.extended.is_empty());
                prop_assert!(pods.iter().any(|pod| is_be(pod) && has_batch(pod)), "{one:?}");
            }
        }
    }

    #[test]
    fn a_change_is_due_exactly_when_what_is_published_changes_or_repeats(steps in vec(inputs(), 1..20)) {
        let settings = serde_json::from_str::<Config>(r#"{"colocation":{"enable":true}}"#).unwrap().check().unwrap();
        let mut state = State::default();
        let mut last = State::default().published;
        for (inputs, window_usec) in steps {
            let seen = tick(&mut state, &settings, &inputs, Now { window_usec }).publication;
            if seen.due.is_none() {
                prop_assert_eq!(&seen.published, &last);
            }
            last = seen.published;
        }
    }

    #[test]
    fn a_restart_at_once_goes_on_as_if_nothing_had_happened(before in vec(measured(), 1..30), after in vec(measured(), 1..10)) {
        let settings = serde_json::from_str::<Config>(r#"{"colocation":{"enable":true}}"#).unwrap().check().unwrap();
        let (strategy, _) = settings.layers.effective(&Default::default(), &Default::default());
        let mut state = State::default();
        for (inputs, window_usec) in &before {
            tick(&mut state, &settings, inputs, Now { window_usec: *window_usec });
        }
        // A state without any measurement waits again for its first report.
        prop_assume!(state.tracker.age_usec().is_some());
        let bytes = saved_state::encode(&state, saved_state::MAX_BYTES);
        let mut restored = saved_state::decode(&bytes, Some(0)).unwrap();
        for (inputs, window_usec) in &after {
            let now = Now { window_usec: *window_usec };
            let (kept, new) = (tick(&mut state, &settings, inputs, now), tick(&mut restored, &settings, inputs, now));
            prop_assert_eq!(kept.publication.status, new.publication.status);
            // A mean is saved with a precision of a thousandth of a CPU and a KiB.
            let near = |kept: Amounts, new: Amounts| {
                kept.cpu_milli.abs_diff(new.cpu_milli) <= 2 && kept.memory_bytes.abs_diff(new.memory_bytes) <= 2048
            };
            let averages = |state: &State| state.tracker.averages(&strategy, MemoryView::WithoutPageCache);
            match (averages(&state), averages(&restored)) {
                (Some(kept), Some(new)) => {
                    prop_assert!(near(kept.node, new.node) && near(kept.system, new.system), "{kept:?} {new:?}");
                }
                (kept, new) => prop_assert_eq!(kept, new),
            }
        }
    }

    #[test]
    fn any_numbers_are_taken_without_panic(
        capacity: (u64, u64), allocatable: (u64, u64), used: (u64, u64), request: (u64, u64), windows in vec(any::<u64>(), 1..5),
    ) {
        let config = r#"{"policy":{"coldStartSeconds":0},"colocation":{"enable":true,"cpuReclaimThresholdPercent":10000}}"#;
        let settings = serde_json::from_str::<Config>(config).unwrap().check().unwrap();
        let mut state = State::default();
        let both = |(cpu, memory)| Amounts::new(cpu, memory);
        let memory = MemoryUse { without_cache: used.1, hot_cache: used.0, cold_cache: used.1 };
        let sample = Sample { cpu_usec: used.0, memory };
        let pods = vec![Pod {
            containers: vec![],
            is_active: true,
            overhead: both(request),
            cpu_request_milli: Some(request.0),
            ..proptest_pod()
        }];
        let usage = Usage {
            node: sample,
            pods: vec![PodUsage { uid: "pod".into(), priority: PriorityClass::Prod, sample }],
            ..Usage::default()
        };
        let node = Node { capacity: both(capacity), allocatable: both(allocatable), ..Node::default() };
        let inputs = Inputs { node: Some(node), pods: Some(pods), usage: Some(usage) };
        for window_usec in windows {
            tick(&mut state, &settings, &inputs, Now { window_usec });
        }
        let bytes = saved_state::encode(&state, saved_state::MAX_BYTES);
        let _ = saved_state::decode(&bytes, Some(u64::MAX));
    }
}

fn proptest_pod() -> Pod {
    Pod {
        id: 1,
        uid: "pod".into(),
        name: "default/pod".into(),
        is_active: true,
        declared_qos: None,
        qos: QosClass::Ls,
        priority: PriorityClass::Prod,
        overhead: Amounts::ZERO,
        cpu_request_milli: None,
        memory_request_bytes: None,
        numa_nodes: Vec::new(),
        extended_resource_spec: None,
        period_usec: None,
        containers: Vec::new(),
    }
}
