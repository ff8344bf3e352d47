use qosm_sdk::{ExtendedResource, mock};

use super::*;

const MIB: u64 = 1 << 20;

/// A container with its kind, state, request and limit in MiB.
fn container(kind: ContainerKind, state: ContainerState, request: Option<u64>, limit: Option<u64>) -> Container {
    Container {
        kind,
        state,
        memory_request_bytes: request.map(|mib| mib * MIB),
        memory_limit_bytes: limit.map(|mib| mib * MIB),
        ..mock::container(0, "any")
    }
}

fn app(request: Option<u64>, limit: Option<u64>) -> Container {
    container(ContainerKind::Regular, ContainerState::Running, request, limit)
}

fn sidecar(state: ContainerState, request: u64) -> Container {
    container(ContainerKind::Sidecar, state, Some(request), None)
}

fn init(state: ContainerState, request: u64) -> Container {
    container(ContainerKind::Init, state, Some(request), Some(request))
}

fn pod(containers: impl IntoIterator<Item = Container>) -> PodFacts {
    PodFacts { containers: containers.into_iter().collect(), ..mock::pod(1, "default", "any") }
}

fn batch(name: &str, request: Option<u64>, limit: Option<u64>) -> Container {
    Container {
        extended_resources: vec![ExtendedResource { name: name.into(), request, limit }],
        ..app(Some(7), Some(7))
    }
}

fn be(containers: impl IntoIterator<Item = Container>) -> PodFacts {
    PodFacts { declared_qos: Some(QosClass::Be), qos: QosClass::Be, ..pod(containers) }
}

#[test]
fn the_request_is_that_of_what_runs_now() {
    use ContainerState::{Running, Terminated, Waiting};
    for (containers, expected, what) in [
        (vec![], 0, "no container"),
        (vec![app(Some(100), None), app(None, None)], 100, "one without a request counts 0"),
        (vec![sidecar(Running, 50), app(Some(100), None)], 150, "a sidecar counts"),
        (vec![sidecar(Waiting, 50), app(Some(100), None)], 150, "a sidecar that waits counts"),
        (
            vec![container(ContainerKind::Regular, Waiting, Some(100), None), app(Some(100), None)],
            200,
            "a container that waits counts",
        ),
        (
            vec![container(ContainerKind::Regular, Terminated, Some(100), None), app(Some(30), None)],
            30,
            "a container that has ended does not",
        ),
        (
            vec![init(Running, 500), container(ContainerKind::Regular, Waiting, Some(100), None)],
            500,
            "the init peak counts while an init container runs",
        ),
        (
            vec![init(Waiting, 500), container(ContainerKind::Regular, Waiting, Some(100), None)],
            500,
            "and while one is still to run",
        ),
        (vec![init(Terminated, 500), app(Some(100), None)], 100, "and no longer"),
        (
            vec![init(Terminated, 500), init(Running, 40), container(ContainerKind::Regular, Waiting, Some(100), None)],
            100,
            "only those that are left count towards the peak",
        ),
        (vec![init(Waiting, 500), app(Some(100), None)], 100, "one that waits beside a started container has been"),
        (
            vec![
                sidecar(Running, 10),
                init(Running, 500),
                sidecar(Waiting, 20),
                container(ContainerKind::Regular, Waiting, Some(100), None),
            ],
            510,
            "the peak has the sidecars before it, not those after it",
        ),
        (
            vec![sidecar(Running, 10), init(Running, 50), container(ContainerKind::Regular, Waiting, Some(100), None)],
            110,
            "a small init container changes nothing",
        ),
    ] {
        assert_eq!(of_pod(&pod(containers)).request, expected * MIB, "{what}");
    }
}

#[test]
fn pod_level_resources_replace_and_the_overhead_comes_on_top() {
    let containers = || [app(Some(100), Some(200))];
    let plain = PodFacts { memory_overhead_bytes: 5 * MIB, ..pod(containers()) };
    assert_eq!(of_pod(&plain), Resources { request: 105 * MIB, limit: Some(205 * MIB) });
    let whole = PodFacts {
        memory_request_bytes: Some(300 * MIB),
        memory_limit_bytes: Some(400 * MIB),
        memory_overhead_bytes: 5 * MIB,
        ..pod(containers())
    };
    assert_eq!(of_pod(&whole), Resources { request: 305 * MIB, limit: Some(405 * MIB) });
    let initialising = PodFacts {
        memory_request_bytes: Some(300 * MIB),
        ..pod([
            init(ContainerState::Running, 500),
            container(ContainerKind::Regular, ContainerState::Waiting, None, None),
        ])
    };
    assert_eq!(of_pod(&initialising).request, 300 * MIB);
}

#[test]
fn a_pods_limit_is_finite_only_where_everything_that_stays_is_limited() {
    use ContainerState::{Running, Terminated};
    for (containers, pod_limit, expected, what) in [
        (vec![], None, None, "no container"),
        (vec![app(None, Some(100)), app(None, Some(50))], None, Some(150), "all limited"),
        (vec![app(None, Some(100)), app(None, None)], None, None, "one unlimited container"),
        (vec![app(None, Some(100)), app(None, Some(0))], None, None, "a limit of 0 is none"),
        (vec![sidecar(Running, 10), app(None, Some(100))], None, None, "an unlimited sidecar"),
        (vec![app(None, Some(100)), app(None, None)], Some(300), Some(300), "the pod itself is limited"),
        (vec![app(None, Some(100))], Some(0), Some(100), "a pod-level limit of 0 is none"),
        (vec![init(Terminated, 500), app(None, Some(100))], None, Some(500), "as the kubelet limits the pod's cgroup"),
    ] {
        let pod = PodFacts { memory_limit_bytes: pod_limit.map(|mib: u64| mib * MIB), ..pod(containers) };
        assert_eq!(of_pod(&pod).limit, expected.map(|mib: u64| mib * MIB), "{what}");
    }
}

#[test]
fn batch_memory_counts_for_a_declared_be_pod_only() {
    let containers = || [batch("kubernetes.io/batch-memory", Some(2048), Some(4096))];
    assert_eq!(of_pod(&be(containers())), Resources { request: 2048, limit: Some(4096) });
    assert_eq!(of_container(&be(containers()), &containers()[0]), Resources { request: 2048, limit: Some(4096) });
    // Its Kubernetes QoS is best effort too, but it declares no class.
    let undeclared = PodFacts { qos: QosClass::Be, kube_qos: qosm_sdk::KubeQos::BestEffort, ..pod(containers()) };
    assert_eq!(of_pod(&undeclared), Resources { request: 7 * MIB, limit: Some(7 * MIB) });
    assert_eq!(of_pod(&be([app(Some(100), Some(100))])), Resources::default());
}

#[test]
fn older_names_of_batch_memory_count_where_the_newer_ones_are_missing() {
    for (names, expected) in [
        (vec!["koordinator.sh/batch-memory"], 1),
        (vec!["alibabacloud.com/reclaimed-memory"], 1),
        (vec!["alibabacloud.com/reclaimed-memory", "koordinator.sh/batch-memory"], 2),
        (vec!["alibabacloud.com/reclaimed-memory", "koordinator.sh/batch-memory", "kubernetes.io/batch-memory"], 3),
        (vec!["kubernetes.io/batch-cpu"], 0),
    ] {
        let extended_resources = (1..)
            .zip(&names)
            .map(|(bytes, name)| ExtendedResource { name: (*name).into(), request: Some(bytes), limit: Some(bytes) })
            .collect();
        let container = Container { extended_resources, ..app(None, None) };
        assert_eq!(of_pod(&be([container])).request, expected, "{names:?}");
    }
}

#[test]
fn a_be_pod_has_neither_overhead_nor_init_peak_nor_pod_level_resources() {
    let name = "kubernetes.io/batch-memory";
    let part = |kind, request, limit| Container { kind, ..batch(name, request, limit) };
    let with = |extra: Container| PodFacts {
        memory_overhead_bytes: MIB,
        memory_request_bytes: Some(MIB),
        memory_limit_bytes: Some(MIB),
        ..be([extra, batch(name, Some(100), Some(200))])
    };
    let sidecar = with(part(ContainerKind::Sidecar, Some(10), Some(20)));
    assert_eq!(of_pod(&sidecar), Resources { request: 110, limit: Some(220) });
    let init = with(part(ContainerKind::Init, Some(1000), Some(1000)));
    assert_eq!(of_pod(&init), Resources { request: 100, limit: Some(200) });
    for unlimited in [None, Some(0)] {
        assert_eq!(of_pod(&with(part(ContainerKind::Sidecar, Some(10), unlimited))).limit, None);
    }
}

#[test]
fn sums_end_at_the_largest_value() {
    let huge = || Container {
        memory_request_bytes: Some(u64::MAX),
        memory_limit_bytes: Some(u64::MAX),
        ..mock::container(0, "any")
    };
    let pod = PodFacts { memory_overhead_bytes: u64::MAX, ..pod([huge(), huge()]) };
    assert_eq!(of_pod(&pod), Resources { request: MAX_BYTES, limit: Some(MAX_BYTES) });
}
