//! A pod's identity, whether it is active, and its containers' cgroups.

use qosm_model::pod::{ContainerCgroup, ContainerKind, ContainerState, KubeQos, QosClass};

use super::*;

fn metadata(metadata: &str) -> String {
    format!("kind: Pod\nmetadata: {metadata}\nspec: {{containers: [{{name: a}}]}}\n")
}

#[test]
fn identity_comes_from_the_manifest() {
    let text = metadata("{name: web, namespace: shop, uid: uid1, labels: {a: b}, annotations: {c: d}}");
    let pod = pod(&text);
    assert_eq!((pod.key().as_str(), pod.uid.as_str()), ("shop/web", "uid1"));
    assert_eq!((&pod.labels["a"], &pod.annotations["c"]), (&"b".to_owned(), &"d".to_owned()));
}

#[test]
fn what_is_missing_is_made() {
    let one = pod(&metadata("{name: web}"));
    assert_eq!(one.namespace, "default");
    assert_eq!(one.uid, pod(&metadata("{name: web, namespace: '', uid: ''}")).uid);
    assert_ne!(one.uid, pod(&metadata("{name: web, namespace: shop}")).uid);
    assert_ne!(one.uid, pod(&metadata("{name: web2}")).uid);
    insta::assert_snapshot!(one.uid, @"d53a1826-47e7-8500-af8c-3c039f2609b4");
}

#[test]
fn a_static_pods_uid_is_that_of_its_manifest() {
    let owner = "ownerReferences: [{apiVersion: v1, kind: Node, name: n1, uid: node-1}]";
    let uid = |annotations: &str| {
        pod(&metadata(&format!("{{name: etcd, uid: uid1, {owner}, annotations: {{{annotations}}}}}"))).uid
    };
    let source = "kubernetes.io/config.source: file";
    let mirror = "kubernetes.io/config.mirror: 2f5c1a, kubernetes.io/config.hash: 3a6b";
    assert_eq!(uid(&format!("{mirror}, {source}")), "3a6b");
    assert_eq!(uid(&format!("kubernetes.io/config.mirror: 2f5c1a, {source}")), "2f5c1a");
    assert_eq!(uid(&format!("kubernetes.io/config.hash: 3a6b, {source}")), "uid1");
}

#[test]
fn a_mirror_that_the_kubelet_did_not_make_keeps_its_own_uid() {
    let objects = read(&metadata(
        "{name: mallory, uid: uid1, annotations: {kubernetes.io/config.mirror: 3a6b, kubernetes.io/config.source: file}}",
    ));
    assert_eq!(objects.pods[0].uid, "uid1");
    let text = messages(&objects);
    assert!(
        text.contains(
            "pod default/mallory: annotation kubernetes.io/config.mirror: the kubelet did not make this mirror"
        ),
        "{text}"
    );
}

#[test]
fn a_misspelt_restart_policy_of_an_init_container_is_reported() {
    for (word, kind, said) in [
        ("Always", ContainerKind::Sidecar, ""),
        ("OnFailure", ContainerKind::Init, ""),
        ("Never", ContainerKind::Init, ""),
        ("''", ContainerKind::Init, ""),
        (
            "always",
            ContainerKind::Init,
            "pod default/web: spec.initContainers[0].restartPolicy: \"always\" is no restart policy; it counts as an init container \
             that runs to its end, write `Always` for a sidecar (in web.yaml, document 1)",
        ),
    ] {
        let init = format!("initContainers: [{{name: proxy, restartPolicy: {word}}}]");
        let objects =
            read(&format!("kind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: a}}], {init}}}\n"));
        assert_eq!((objects.pods[0].containers[0].kind, messages(&objects).as_str()), (kind, said), "{word}");
    }
}

#[test]
fn a_name_that_cannot_be_one_refuses_the_pod() {
    for (text, field) in [
        (metadata("{namespace: shop}"), "metadata.name: it is missing"),
        (metadata("{generateName: web-}"), "metadata.name: it is missing"),
        (metadata("{name: ../../etc}"), "metadata.name: it is no name"),
        (metadata("{name: '..'}"), "metadata.name: it is no name"),
        (metadata("{name: web, namespace: 'a/b'}"), "metadata.namespace: it is no name"),
        (metadata("{name: web, uid: '../x'}"), "metadata.uid: it is no name"),
        (metadata("{name: \"we\\nb\"}"), "metadata.name: it is no name"),
        (with_spec("{containers: [{image: x}]}", ""), "spec.containers[0].name: it is missing"),
        (with_spec("{containers: [{name: a}, {name: b/c}]}", ""), "spec.containers[1].name: it is no name"),
        (
            with_spec("{initContainers: [{name: '.'}], containers: [{name: a}]}", ""),
            "spec.initContainers[0].name: it is no name",
        ),
    ] {
        let objects = read(&text);
        assert_eq!(objects.pods, [], "{text}");
        assert!(messages(&objects).contains(&format!(": {field}")), "{}", messages(&objects));
        assert!(messages(&objects).contains("web.yaml, document 1"), "{}", messages(&objects));
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named_and_refuses_the_pod_alone() {
    let other = "---\nkind: Pod\nmetadata: {name: other}\nspec: {containers: [{name: a}]}\n";
    for (bad, field) in [
        (
            metadata("{name: web, labels: {tier: 5}}"),
            "metadata.labels.tier: invalid type: integer `5`, expected a string",
        ),
        (metadata("{name: web, annotations: {a: {policy: auto}}}"), "metadata.annotations.a: invalid type: map"),
        (metadata("{name: web, annotations: {a: yes}}"), "metadata.annotations.a: invalid type: boolean"),
        (metadata("[web]"), "metadata: invalid type: sequence"),
        (with_spec("{containers: {a: b}}", ""), "spec.containers: invalid type: map"),
        (
            with_spec("{containers: [{name: a, resources: {limits: [1]}}]}", ""),
            "spec.containers[0].resources.limits: invalid type",
        ),
        (with_spec("{priority: high, containers: []}", ""), "spec.priority: invalid type: string \"high\""),
        (with_spec("{containers: [a]}", ""), "spec.containers[0]: invalid type: string"),
        ("apiVersion: v2\nkind: Pod\nmetadata: {name: web}\n".into(), "apiVersion: \"v2\" is not \"v1\""),
    ] {
        let objects = read(&format!("{bad}{other}"));
        assert_eq!(objects.pods.iter().map(Pod::key).collect::<Vec<_>>(), ["default/other"], "{bad}");
        assert!(messages(&objects).contains(&format!(": {field}")), "{}", messages(&objects));
        assert!(messages(&objects).contains("web.yaml, document 1"), "{}", messages(&objects));
    }
    insta::assert_snapshot!(messages(&read(&metadata("{name: web, annotations: {a: {policy: auto}}}"))), @"pod default/web: metadata.annotations.a: invalid type: map, expected a string; the Pod is not read, put the value in quotes, or write it as a block (`|`) (in web.yaml, document 1)");
}

#[test]
fn unknown_fields_are_reported_and_the_pod_is_read() {
    let text = "
kind: Pod
metadata: {name: web, lables: {a: b}}
spec:
  containers:
  - name: a
    resource: {limits: {cpu: 1}}
    resources: {limit: {cpu: 1}}
  restartPolice: Never
stats: {}
";
    let objects = read(text);
    assert_eq!(objects.pods.len(), 1);
    insta::assert_snapshot!(messages(&objects), @r"
    pod default/web: metadata.lables: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)
    pod default/web: spec.containers[0].resource: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)
    pod default/web: spec.containers[0].resources.limit: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)
    pod default/web: spec.restartPolice: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)
    pod default/web: stats: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)
    ");
}

#[test]
fn only_pending_and_running_pods_are_active() {
    for (status, active) in [
        ("", true),
        ("status: null", true),
        ("status: {}", true),
        ("status: {phase: null}", true),
        ("status: {phase: Pending}", true),
        ("status: {phase: Running}", true),
        ("status: {phase: Succeeded}", false),
        ("status: {phase: Failed}", false),
        ("status: {phase: Unknown}", false),
        ("status: {phase: ''}", false),
        ("status: {phase: running}", false),
    ] {
        assert_eq!(pod(&with_spec("{containers: [{name: a}]}", status)).active, active, "{status}");
    }
}

/// Kind, state and cgroup of each container of a pod with an init container `i`, a sidecar `s` and a regular container `r`.
fn containers(status: &str) -> Vec<(ContainerKind, ContainerState, ContainerCgroup)> {
    let spec = "{containers: [{name: r}], initContainers: [{name: i}, {name: s, restartPolicy: Always}]}";
    let pod = pod(&with_spec(spec, status));
    assert_eq!(pod.containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>(), ["i", "s", "r"]);
    pod.containers.into_iter().map(|container| (container.kind, container.state, container.cgroup)).collect()
}

#[test]
fn without_a_status_what_stays_runs_under_its_name() {
    let named = |name: &str| ContainerCgroup::Named(name.into());
    for status in ["", "status: {qosClass: Burstable}", "status: {phase: Running}"] {
        assert_eq!(
            containers(status),
            [
                (ContainerKind::Init, ContainerState::Terminated, named("i")),
                (ContainerKind::Sidecar, ContainerState::Running, named("s")),
                (ContainerKind::Regular, ContainerState::Running, named("r")),
            ]
        );
    }
}

#[test]
fn a_status_completes_the_pod() {
    let runtime = |id: &str| ContainerCgroup::Runtime(format!("containerd://{id}"));
    let status = "status:
  phase: Running
  initContainerStatuses:
  - {name: i, containerID: 'containerd://1', state: {terminated: {exitCode: 0}}}
  - {name: s, containerID: 'containerd://2', state: {running: {}}}
  containerStatuses:
  - {name: r, containerID: '', state: {waiting: {reason: ContainerCreating}}}
";
    assert_eq!(
        containers(status),
        [
            (ContainerKind::Init, ContainerState::Terminated, runtime("1")),
            (ContainerKind::Sidecar, ContainerState::Running, runtime("2")),
            (ContainerKind::Regular, ContainerState::Waiting, ContainerCgroup::Unknown),
        ]
    );
    // A crashing container between two runs, and a hand-written status without a state.
    let status = "status:
  containerStatuses: [{name: r, containerID: 'containerd://3', state: {waiting: {reason: CrashLoopBackOff}}}]
  initContainerStatuses: [{name: s, containerID: 'containerd://4'}]
";
    let waiting = (ContainerKind::Init, ContainerState::Waiting, ContainerCgroup::Unknown);
    assert_eq!(
        containers(status),
        [
            waiting.clone(),
            (ContainerKind::Sidecar, ContainerState::Running, runtime("4")),
            (ContainerKind::Regular, ContainerState::Waiting, runtime("3")),
        ]
    );
    for status in ["status: {phase: Pending}", "status: {containerStatuses: []}"] {
        let all = containers(status);
        assert!(
            all.iter().all(|(_, state, cgroup)| (*state, cgroup.clone()) == (waiting.1, waiting.2.clone())),
            "{status}"
        );
    }
}

#[test]
fn an_id_that_is_none_is_told() {
    for id in ["abc", "containerd://", "://abc", "containerd://../..", "containerd://a/b", "a b://c"] {
        let status =
            format!("status: {{containerStatuses: [{{name: a, containerID: '{id}', state: {{running: {{}}}}}}]}}");
        let objects = read(&with_spec("{containers: [{name: a}]}", &status));
        assert_eq!(objects.pods[0].containers[0].cgroup, ContainerCgroup::Unknown, "{id}");
        assert!(
            messages(&objects)
                .starts_with("pod shop/web: status.containerStatuses[0].containerID: it is not of the form"),
            "{id}"
        );
    }
}

#[test]
fn the_class_comes_from_its_places_in_order_and_a_wrong_word_is_reported() {
    for (metadata_rest, class) in [
        ("labels: {koordinator.sh/qosClass: LSE}", Some(QosClass::Lse)),
        ("labels: {alibabacloud.com/qosClass: LSR}", Some(QosClass::Lsr)),
        ("annotations: {koordinator.sh/qosClass: LS}", Some(QosClass::Ls)),
        ("annotations: {alibabacloud.com/qosClass: BE}", Some(QosClass::Be)),
        ("labels: {alibabacloud.com/qos: LS}", Some(QosClass::Ls)),
        ("labels: {koordinator.sh/qosClass: SYSTEM, alibabacloud.com/qosClass: BE}", Some(QosClass::System)),
        ("labels: {alibabacloud.com/qos: BE}, annotations: {koordinator.sh/qosClass: LS}", Some(QosClass::Ls)),
        ("labels: {other: BE}", None),
    ] {
        assert_eq!(pod(&metadata(&format!("{{name: web, {metadata_rest}}}"))).declared_qos(), class, "{metadata_rest}");
    }
    let objects = read(&metadata("{name: web, labels: {koordinator.sh/qosClass: be, alibabacloud.com/qosClass: BE}}"));
    assert_eq!(objects.pods[0].declared_qos(), None);
    insta::assert_snapshot!(messages(&objects), @r#"pod default/web: label koordinator.sh/qosClass: "be" is no QoS class; the pod counts as having none, write one of LSE, LSR, LS, BE, SYSTEM (in web.yaml, document 1)"#);
}

#[test]
fn a_key_in_another_spelling_is_reported_with_the_one_that_is_read() {
    for (rest, message) in [
        (
            "labels: {koordinator.sh/QoSClass: LS}",
            "label koordinator.sh/QoSClass: ignored: keys are compared letter by letter; write label koordinator.sh/qosClass",
        ),
        (
            "labels: {koordinator.sh/priorityclass: koord-batch}",
            "label koordinator.sh/priorityclass: ignored: keys are compared letter by letter; write label koordinator.sh/priority-class",
        ),
        ("labels: {koordinator.sh/core-sched-Policy: exclusive}", "write label koordinator.sh/core-sched-policy"),
        ("labels: {koordinator.sh/eviction-Enabled: 'true'}", "write label koordinator.sh/eviction-enabled"),
        ("annotations: {koordinator.sh/evictionPriority: '1'}", "write annotation koordinator.sh/eviction-priority"),
        (
            "annotations: {scheduling.koordinator.sh/resourceStatus: '{}'}",
            "write annotation scheduling.koordinator.sh/resource-status",
        ),
        (
            "annotations: {scheduling.koordinator.sh/Resource-Status: '{}'}",
            "write annotation scheduling.koordinator.sh/resource-status",
        ),
        ("annotations: {qosm.io/Paused: 'true'}", "write annotation qosm.io/paused"),
        ("annotations: {qosm.io/Hold: 'true'}", "write annotation qosm.io/hold"),
        (
            "annotations: {qosm.io/pause: 'true'}",
            "annotation qosm.io/pause: ignored: qosm does not read this key; did you mean `qosm.io/paused`?",
        ),
        ("annotations: {qosm.io/cgroups: '{}'}", "did you mean `qosm.io/cgroup`?"),
    ] {
        let told = messages(&read(&metadata(&format!("{{name: web, {rest}}}"))));
        assert!(told.starts_with("pod default/web: ") && told.contains(message), "{rest}: {told}");
        assert_eq!(told.lines().count(), 1, "{rest}: {told}");
    }
    for rest in [
        "labels: {koordinator.sh/priority-class: koord-batch, koordinator.sh/priority: '5', qosm.io/colocation: batch}",
        "annotations: {qosm.io/paused: 'false', qosm.io/published-resources: '{}', qosm.io/colocation-profile: batch, example.com/Paused: x}",
    ] {
        assert_eq!(messages(&read(&metadata(&format!("{{name: web, {rest}}}")))), "", "{rest}");
    }
}

#[test]
fn priority_and_kubernetes_qos_are_read() {
    let with = |spec: &str, status: &str| pod(&with_spec(spec, status));
    assert_eq!(with("{priority: -5, containers: [{name: a}]}", "").priority, Some(-5));
    assert_eq!(with("{containers: [{name: a}]}", "").priority, None);
    assert_eq!(with("{containers: [{name: a}]}", "status: {qosClass: Guaranteed}").kube_qos, KubeQos::Guaranteed);
    assert_eq!(with("{containers: [{name: a}]}", "status: {qosClass: ''}").kube_qos, KubeQos::BestEffort);
    let objects = read(&with_spec("{containers: [{name: a}]}", "status: {qosClass: guaranteed}"));
    assert_eq!(objects.pods[0].kube_qos, KubeQos::BestEffort);
    insta::assert_snapshot!(messages(&objects), @"pod shop/web: status.qosClass: it is none of Guaranteed, Burstable, BestEffort; it is computed from the specification instead (in web.yaml, document 1)");
}

#[test]
fn containers_of_one_name_and_no_containers_are_reported() {
    let objects = read(&with_spec("{initContainers: [{name: a}], containers: [{name: a}, {name: b}]}", ""));
    assert_eq!(objects.pods[0].containers.len(), 2);
    insta::assert_snapshot!(messages(&objects), @"pod shop/web: spec.containers[0].name: another container is called `a` already; this one is ignored, rename it (in web.yaml, document 1)");
    let objects = read("kind: Pod\nmetadata: {name: web}\n");
    assert_eq!((objects.pods.len(), objects.pods[0].containers.len()), (1, 0));
    insta::assert_snapshot!(messages(&objects), @"pod default/web: spec.containers: there are none, and Kubernetes wants at least one; nothing but the pod itself counts (in web.yaml, document 1)");
}

#[test]
fn the_documents_example_pods_are_read() {
    let text = r#"
apiVersion: v1
kind: Pod
metadata:
  name: apache-demo
  annotations:
    koordinator.sh/cpuBurst: '{"policy": "auto"}'   # Use this annotation to enable CPU Burst.
spec:
  containers:
  - command:
    - httpd
    - -D
    - FOREGROUND
    image: example.com/apache-2-4-51-for-slo-test:v0.1
    imagePullPolicy: Always
    name: apache
    resources:
      limits:
        cpu: "4"
        memory: 10Gi
      requests:
        cpu: "4"
        memory: 10Gi
  nodeName: $nodeName
  hostNetwork: False
  restartPolicy: Never
  schedulerName: default-scheduler
"#;
    let pod = pod(text);
    assert_eq!(pod.kube_qos, KubeQos::Guaranteed);
    assert_eq!(pod.containers[0].cpu_limit.map(|limit| limit.0), Some(4000));
    assert_eq!(pod.containers[0].memory_limit.map(|limit| limit.0), Some(10 << 30));
    assert_eq!(pod.annotations["koordinator.sh/cpuBurst"], r#"{"policy": "auto"}"#);
}
