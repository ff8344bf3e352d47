//! Requests, limits, and the Kubernetes QoS class that follows from them.

use qosm_model::pod::{ExtendedResource, KubeQos};
use qosm_model::unit::{Bytes, MilliCpu};

use super::*;

fn container(resources: &str) -> qosm_model::pod::Container {
    let spec = format!("{{containers: [{{name: a, resources: {resources}}}]}}");
    pod(&with_spec(&spec, "")).containers.into_iter().next().unwrap()
}

#[test]
fn amounts_are_read_with_and_without_quotes() {
    for resources in [
        "{requests: {cpu: 1, memory: 1073741824}, limits: {cpu: 1.5, memory: 2147483648}}",
        "{requests: {cpu: '1', memory: 1Gi}, limits: {cpu: 1500m, memory: 2Gi}}",
        "{requests: {cpu: 1000m, memory: '1073741824'}, limits: {cpu: '1.5', memory: 2048Mi}}",
    ] {
        let container = container(resources);
        assert_eq!(container.cpu_request, Some(MilliCpu(1000)), "{resources}");
        assert_eq!(container.cpu_limit, Some(MilliCpu(1500)), "{resources}");
        assert_eq!(container.memory_request, Some(Bytes(1 << 30)), "{resources}");
        assert_eq!(container.memory_limit, Some(Bytes(2 << 30)), "{resources}");
    }
}

#[test]
fn amounts_are_rounded_up() {
    let container = container("{requests: {cpu: 0.0001, memory: 100m}, limits: {cpu: 100.1m, memory: 0.1Gi}}");
    assert_eq!((container.cpu_request, container.cpu_limit), (Some(MilliCpu(1)), Some(MilliCpu(101))));
    assert_eq!((container.memory_request, container.memory_limit), (Some(Bytes(1)), Some(Bytes(107_374_183))));
}

#[test]
fn a_missing_request_equals_the_limit() {
    let one = container("{limits: {cpu: 2, memory: 1Gi, example.com/gpu: 3}}");
    assert_eq!((one.cpu_request, one.memory_request), (Some(MilliCpu(2000)), Some(Bytes(1 << 30))));
    let gpu = ExtendedResource { name: "example.com/gpu".into(), request: Some(3), limit: Some(3) };
    assert_eq!(one.extended_resources, [gpu]);
    let zero = container("{requests: {memory: 0}, limits: {memory: 1Gi}}");
    assert_eq!(zero.memory_request, Some(Bytes(0)));
    let null = container("{requests: {memory: null}, limits: {memory: 1Gi}}");
    assert_eq!(null.memory_request, Some(Bytes(1 << 30)));
    let neither = container("{requests: {memory: 1Gi}}");
    assert_eq!((neither.memory_limit, neither.cpu_request, neither.cpu_limit), (None, None, None));
}

#[test]
fn all_other_resources_are_extended_ones() {
    let container = container(
        "{requests: {kubernetes.io/batch-cpu: 4k, kubernetes.io/batch-memory: 1Gi, ephemeral-storage: 1Ki}, \
          limits: {kubernetes.io/batch-cpu: 4000, kubernetes.io/batch-memory: 1073741824}}",
    );
    let resource = |name: &str, request, limit| ExtendedResource { name: name.into(), request, limit };
    assert_eq!(
        container.extended_resources,
        [
            resource("ephemeral-storage", Some(1024), None),
            resource("kubernetes.io/batch-cpu", Some(4000), Some(4000)),
            resource("kubernetes.io/batch-memory", Some(1 << 30), Some(1 << 30)),
        ]
    );
}

#[test]
fn an_amount_that_is_none_is_told_and_not_set() {
    let spec = "{containers: [{name: a, resources: {requests: {cpu: -1, memory: lots}, limits: {cpu: 2, memory: 10GB, x/y: true}}}, \
                              {name: b, resources: {limits: {memory: 1Gi}}}]}";
    let objects = read(&with_spec(spec, ""));
    let [a, b] = objects.pods[0].containers.as_slice() else { unreachable!() };
    assert_eq!(
        (a.cpu_request, a.memory_request, a.cpu_limit, a.memory_limit),
        (None, None, Some(MilliCpu(2000)), None)
    );
    assert_eq!(a.extended_resources, []);
    assert_eq!(b.memory_limit, Some(Bytes(1 << 30)));
    insta::assert_snapshot!(messages(&objects), @r"
    pod shop/web: spec.containers[0].resources.requests.cpu: `-1` is not a quantity: it is negative; it counts as not set, write e.g. `500m` or `2` (in web.yaml, document 1)
    pod shop/web: spec.containers[0].resources.requests.memory: `lots` is not a quantity: it does not begin with a number; it counts as not set, write e.g. `512Mi` or `2Gi` (in web.yaml, document 1)
    pod shop/web: spec.containers[0].resources.limits.memory: `10GB` is not a quantity: `GB` is none of the suffixes n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, and no exponent; it counts as not set, write e.g. `512Mi` or `2Gi` (in web.yaml, document 1)
    pod shop/web: spec.containers[0].resources.limits.x/y: `true` is not a quantity: it does not begin with a number; it counts as not set, write e.g. `512Mi` or `2Gi` (in web.yaml, document 1)
    ");
}

#[test]
fn overhead_and_the_pods_own_resources_are_read() {
    let pod = pod(&with_spec(
        "{overhead: {cpu: 250m, memory: 120Mi}, resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi, cpu: 2}}, containers: [{name: a}]}",
        "",
    ));
    assert_eq!((pod.cpu_overhead, pod.memory_overhead), (MilliCpu(250), Bytes(120 << 20)));
    assert_eq!(
        (pod.memory_request, pod.memory_limit, pod.cpu_limit),
        (Some(Bytes(1 << 30)), Some(Bytes(2 << 30)), Some(MilliCpu(2000)))
    );
}

#[test]
fn a_pod_level_request_that_is_not_said_is_that_of_the_containers_else_the_limit() {
    for (resources, spec, expected) in [
        ("{limits: {memory: 4Gi}}", "containers: [{name: a}]", Some(4 << 30)),
        (
            "{limits: {memory: 4Gi}}",
            "containers: [{name: a, resources: {requests: {memory: 1Gi}}}, {name: b, resources: {limits: {memory: 1Gi}}}]",
            Some(2 << 30),
        ),
        (
            "{limits: {memory: 4Gi}}",
            "initContainers: [{name: i, resources: {requests: {memory: 3Gi}}}], containers: [{name: a, resources: {requests: {memory: 1Gi}}}]",
            Some(3 << 30),
        ),
        (
            "{limits: {memory: 9Gi}}",
            "initContainers: [{name: s, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}, \
              {name: i, resources: {requests: {memory: 3Gi}}}], containers: [{name: a, resources: {requests: {memory: 2Gi}}}]",
            Some(4 << 30),
        ),
        (
            "{limits: {memory: 9Gi}}",
            "initContainers: [{name: i, resources: {requests: {memory: 2Gi}}}, \
              {name: s, restartPolicy: Always, resources: {requests: {memory: 1Gi}}}], containers: [{name: a, resources: {requests: {memory: 2Gi}}}]",
            Some(3 << 30),
        ),
        ("{requests: {cpu: 1}}", "containers: [{name: a, resources: {requests: {memory: 1Gi}}}]", None),
        ("{}", "containers: [{name: a, resources: {requests: {memory: 1Gi}}}]", None),
    ] {
        let pod = pod(&with_spec(&format!("{{resources: {resources}, {spec}}}"), ""));
        assert_eq!(pod.memory_request.map(|request| request.0), expected, "{resources} {spec}");
    }
}

#[test]
fn kubernetes_qos_follows_the_upstream_rule() {
    use KubeQos::{BestEffort, Burstable, Guaranteed};
    let limits = "resources: {limits: {cpu: 1, memory: 1Gi}}";
    for (spec, expected) in [
        ("containers: [{name: a}]".to_owned(), BestEffort),
        ("containers: [{name: a, resources: {}}]".into(), BestEffort),
        ("containers: [{name: a, resources: {requests: {cpu: 0, memory: 0}}}]".into(), BestEffort),
        ("containers: [{name: a, resources: {requests: {kubernetes.io/batch-cpu: 1}, limits: {kubernetes.io/batch-cpu: 1}}}]".into(), BestEffort),
        ("containers: [{name: a, resources: {requests: {cpu: 1}}}]".into(), Burstable),
        ("containers: [{name: a, resources: {limits: {cpu: 1}}}]".into(), Burstable),
        ("containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]".into(), Guaranteed),
        ("containers: [{name: a, resources: {requests: {cpu: 1000m, memory: 1024Mi}, limits: {cpu: 1, memory: 1Gi}}}]".into(), Guaranteed),
        ("containers: [{name: a, resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]".into(), Burstable),
        ("containers: [{name: a, resources: {requests: {cpu: 0, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}}]".into(), Burstable),
        (format!("containers: [{{name: a, {limits}}}, {{name: b}}]"), Burstable),
        (format!("containers: [{{name: a, {limits}}}, {{name: b, {limits}}}]"), Guaranteed),
        (format!("initContainers: [{{name: i}}], containers: [{{name: a, {limits}}}]"), Burstable),
        (format!("initContainers: [{{name: i, {limits}}}], containers: [{{name: a, {limits}}}]"), Guaranteed),
        ("initContainers: [{name: i, resources: {requests: {cpu: 1}}}], containers: [{name: a}]".into(), Burstable),
        (format!("{limits}, containers: [{{name: a}}]"), Guaranteed),
        ("resources: {requests: {cpu: 1}}, containers: [{name: a}]".into(), Burstable),
        ("resources: {limits: {cpu: 1}}, containers: [{name: a}]".into(), Burstable),
        (format!("resources: {{}}, containers: [{{name: a, {limits}}}]"), Guaranteed),
    ] {
        assert_eq!(pod(&with_spec(&format!("{{{spec}}}"), "")).kube_qos, expected, "{spec}");
    }
}
