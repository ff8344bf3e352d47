use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::core::Status;
use serde_json::json;

use super::*;

const MAPS: [(&str, &str); 1] = [("kube-system", "ack-slo-config")];

/// A cache, and the number of times that it woke the loop.
fn cache() -> (Cache, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let maps = MAPS.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    (
        Cache::new(
            &maps,
            Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }),
        ),
        woken,
    )
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).unwrap()
}

fn pod(name: &str, class: &str) -> DynamicObject {
    object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "labels": {"koordinator.sh/qosClass": class}, "managedFields": [{"manager": "kubectl"}]},
        "spec": {"nodeName": "here", "containers": [{"name": "app", "fieldOfANewerVersion": 1}]},
        "status": {"phase": "Running"},
    }))
}

fn list(cache: &Cache, watch: &Watch, objects: impl IntoIterator<Item = DynamicObject>) {
    cache.take(watch, Ok(Event::Init));
    for object in objects {
        cache.take(watch, Ok(Event::InitApply(object)));
    }
    cache.take(watch, Ok(Event::InitDone));
}

fn refused(code: u16) -> Error {
    Error::WatchStartFailed(kube::Error::Api(Box::new(Status { code, message: "no".into(), ..Status::default() })))
}

/// A cache whose watches have all listed, with these pods.
fn synced(pods: impl IntoIterator<Item = DynamicObject>) -> (Cache, Arc<AtomicUsize>) {
    let (cache, woken) = cache();
    list(&cache, &Watch::Node, [object(json!({"metadata": {"name": "here", "uid": "n", "labels": {"zone": "a"}}}))]);
    list(&cache, &Watch::PolicyModules, []);
    list(&cache, &Watch::ConfigMap(0), []);
    list(&cache, &Watch::Pods, pods);
    (cache, woken)
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.pods.iter().map(Pod::key).collect()
}

#[test]
fn nothing_is_reported_before_every_watch_has_answered() {
    let (cache, woken) = cache();
    list(&cache, &Watch::Pods, [pod("web", "LS")]);
    assert_eq!(cache.changed(), None);
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    cache.take(&Watch::Node, Err(refused(403)));
    let waits = cache.waits_for().unwrap();
    assert!(waits.contains("node (the API server answers 403"), "{waits}");
    assert!(waits.contains("ConfigMap kube-system/ack-slo-config"), "{waits}");

    let (cache, woken) = synced([pod("web", "LS")]);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    let snapshot = cache.changed().unwrap();
    assert_eq!(names(&snapshot), ["default/web"]);
    assert_eq!(snapshot.node.unwrap().labels["zone"], "a");
    // A field of a newer Kubernetes version is no problem.
    assert_eq!(snapshot.problems, []);
    assert_eq!(cache.changed(), None);
}

#[test]
fn a_new_list_forgets_nothing_before_it_is_complete() {
    let (cache, woken) = synced([pod("web", "LS"), pod("batch", "BE")]);
    cache.changed().unwrap();
    cache.take(&Watch::Pods, Ok(Event::Init));
    cache.take(&Watch::Pods, Ok(Event::InitApply(pod("web", "LS"))));
    assert_eq!(cache.changed(), None);
    cache.take(&Watch::Pods, Ok(Event::InitApply(pod("batch", "BE"))));
    cache.take(&Watch::Pods, Ok(Event::InitDone));
    assert_eq!(cache.changed(), None, "the list says what was known");
    assert_eq!(woken.load(Ordering::Relaxed), 1);

    list(&cache, &Watch::Pods, [pod("web", "LS")]);
    assert_eq!(names(&cache.changed().unwrap()), ["default/web"]);
}

#[test]
fn known_objects_count_while_the_api_server_is_away_and_the_reason_is_reported_once() {
    let (cache, _) = synced([pod("web", "LS")]);
    cache.changed().unwrap();
    cache.take(&Watch::Pods, Err(refused(401)));
    let snapshot = cache.changed().unwrap();
    assert_eq!(names(&snapshot), ["default/web"]);
    assert_eq!(snapshot.problems, []);
    let [problem] = &snapshot.api_errors[..] else { panic!("{:?}", snapshot.api_errors) };
    assert_eq!(problem.object, "watch of pod");
    assert!(problem.message.contains("401") && problem.message.contains("clocks"), "{problem}");
    cache.take(&Watch::Pods, Err(refused(401)));
    assert_eq!(cache.changed(), None);
    // The next event shows that it works again.
    cache.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(cache.changed().unwrap().api_errors, []);
}

#[test]
fn a_failed_write_is_reported_until_it_succeeds() {
    let (cache, woken) = synced([]);
    cache.changed().unwrap();
    for _ in 0..3 {
        cache.written("events on pods", Err("403".into()));
    }
    cache.written("the node's report", Ok(()));
    let problem: Vec<_> = cache.changed().unwrap().api_errors.iter().map(ToString::to_string).collect();
    assert_eq!(problem, ["writing events on pods: 403; tried again"]);
    cache.written("events on pods", Ok(()));
    assert_eq!(cache.changed().unwrap().api_errors, []);
    assert_eq!(woken.load(Ordering::Relaxed), 3);
}

#[test]
fn an_expired_resource_version_is_no_problem() {
    let (cache, _) = synced([pod("web", "LS")]);
    cache.changed().unwrap();
    cache.take(&Watch::Pods, Err(refused(410)));
    let expired = Status { code: 410, ..Status::default() };
    cache.take(&Watch::Pods, Err(Error::WatchError(Box::new(expired))));
    assert_eq!(cache.changed(), None);
}

#[test]
fn pods_come_change_and_go() {
    let (cache, woken) = synced([]);
    cache.changed().unwrap();
    cache.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(names(&cache.changed().unwrap()), ["default/web"]);
    // A new resourceVersion alone is no change.
    cache.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(cache.changed(), None);
    cache.take(&Watch::Pods, Ok(Event::Apply(pod("web", "BE"))));
    assert!(cache.changed().is_some());
    cache.take(&Watch::Pods, Ok(Event::Delete(pod("web", "BE"))));
    assert_eq!(names(&cache.changed().unwrap()), [""; 0]);
    assert_eq!(woken.load(Ordering::Relaxed), 4);
}

#[test]
fn a_policy_module_that_cannot_be_read_stays_as_it_was() {
    let module = |interval: Value| {
        object(json!({
            "apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule", "metadata": {"name": "burst"},
            "spec": {"module": "builtin:cpu-burst", "intervalMillis": interval, "limits": {"memoryMiB": 8},
                "config": {"limits": {"cpu": 1}}},
        }))
    };
    let (cache, _) = synced([]);
    cache.take(&Watch::PolicyModules, Ok(Event::Apply(module(json!(500)))));
    let snapshot = cache.changed().unwrap();
    assert_eq!(snapshot.problems, []);
    assert_eq!(snapshot.policy_modules[0].spec.config["limits"]["cpu"], 1, "only Kubernetes' quantities are quoted");
    cache.take(&Watch::PolicyModules, Ok(Event::Apply(module(json!("often")))));
    let snapshot = cache.changed().unwrap();
    assert_eq!(snapshot.policy_modules[0].spec.interval_millis, Some(500));
    let problem = &snapshot.problems[0];
    assert_eq!(
        (problem.object.as_str(), problem.field.as_deref()),
        ("PolicyModule burst", Some("spec.intervalMillis"))
    );
    assert!(problem.message.ends_with("what was there before counts on"), "{problem}");
}

fn made(name: &str, uid: &str, created: &str, annotations: &Value) -> DynamicObject {
    object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": created, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "here", "uid": "n"}]},
        "spec": {"nodeName": "here", "containers": [{"name": "app"}]},
        "status": {"phase": "Running"},
    }))
}

fn mirrors(hash: &str) -> Value {
    json!({"kubernetes.io/config.mirror": hash, "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file"})
}

#[test]
fn an_owner_of_a_pod_names_no_cgroup() {
    let bound = json!({"qosm.io/cgroup": r#"{"app": "system.slice/kubelet.service", "": "kubepods"}"#});
    let (cache, _) = synced([made("mallory", "u", "2026-01-01T00:00:00Z", &bound)]);
    let snapshot = cache.changed().unwrap();
    let pod = &snapshot.pods[0];
    assert_eq!(pod.cgroup, None);
    assert!(!matches!(pod.containers[0].cgroup, qosm_model::pod::ContainerCgroup::Bound(_)), "{pod:?}");
    let problem: Vec<_> = snapshot.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problem.len(), 1, "{problem:?}");
    assert!(
        problem[0].starts_with("pod default/mallory: annotation qosm.io/cgroup: it counts only in manifests"),
        "{problem:?}"
    );
}

#[test]
fn a_mirror_that_the_kubelet_did_not_make_keeps_its_own_uid() {
    let mut claims = mirrors("victim-uid");
    claims["kubernetes.io/config.source"] = "api".into();
    let (cache, _) = synced([made("mallory", "own-uid", "2026-01-01T00:00:00Z", &claims)]);
    let snapshot = cache.changed().unwrap();
    assert_eq!(snapshot.pods[0].uid, "own-uid");
    assert!(snapshot.problems[0].message.contains("the kubelet did not make this mirror"), "{:?}", snapshot.problems);
}

#[test]
fn a_mirror_of_another_node_object_keeps_its_own_uid() {
    let node = |uid: &str| object(json!({"metadata": {"name": "here", "uid": uid}}));
    let uid = |cache: &Cache| cache.changed().unwrap().pods[0].uid.clone();
    let (cache, _) = synced([made("etcd", "own-uid", "2026-01-01T00:00:00Z", &mirrors("hash"))]);
    assert_eq!(uid(&cache), "hash");
    // The Node registers again: the kubelet will recreate its mirrors, and this one is from before.
    cache.take(&Watch::Node, Ok(Event::Delete(node("n"))));
    assert_eq!(uid(&cache), "hash", "the last known Node counts meanwhile");
    cache.take(&Watch::Node, Ok(Event::Apply(node("n2"))));
    let snapshot = cache.changed().unwrap();
    assert_eq!((snapshot.pods[0].uid.as_str(), snapshot.pods[0].lifecycle.mirror), ("own-uid", false));
    insta::assert_snapshot!(snapshot.problems[0], @"pod default/etcd: annotation kubernetes.io/config.mirror: the kubelet did not make this mirror: the UID of the Node that owns it, n, is not that of this node; the pod's own UID counts, leave annotations of the kubelet to the kubelet (in the API server)");
    cache.take(&Watch::Node, Ok(Event::Apply(node("n"))));
    let snapshot = cache.changed().unwrap();
    assert_eq!((snapshot.pods[0].uid.as_str(), snapshot.problems.len()), ("hash", 0));
}

#[test]
fn of_two_pods_with_one_uid_the_one_comes_first_whose_it_is() {
    // Older and earlier in the alphabet, and still not the pod to which the API server gave the UID.
    let twin = made("a-mallory", "own-uid", "2020-01-01T00:00:00Z", &mirrors("victim-uid"));
    let victim = made("victim", "victim-uid", "2026-01-01T00:00:00Z", &json!({}));
    let (cache, _) = synced([twin, victim]);
    let snapshot = cache.changed().unwrap();
    assert_eq!(snapshot.pods.iter().map(|pod| pod.uid.as_str()).collect::<Vec<_>>(), ["victim-uid", "victim-uid"]);
    assert_eq!(names(&snapshot)[0], "default/victim");

    let older = made("z-etcd", "z", "2025-01-01T00:00:00Z", &mirrors("hash"));
    let younger = made("a-mallory", "a", "2026-01-01T00:00:00Z", &mirrors("hash"));
    let (cache, _) = synced([younger, older]);
    assert_eq!(names(&cache.changed().unwrap())[0], "default/z-etcd");
}

#[test]
fn a_nodes_zones_come_and_go_with_its_topology() {
    let topology = |name: &str| {
        object(json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name},
            "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]}],
        }))
    };
    let (cache, woken) = synced([]);
    let zones = || cache.changed().and_then(|snapshot| snapshot.node).map(|node| node.zones.len());
    assert_eq!(zones(), Some(0), "a cluster without the kind is not waited for");
    let before = woken.load(Ordering::Relaxed);
    list(&cache, &Watch::Topology, [topology("other"), topology("here")]);
    assert_eq!((zones(), woken.load(Ordering::Relaxed) - before), (Some(1), 1));
    list(&cache, &Watch::Topology, []);
    assert_eq!(zones(), Some(0));
}

#[test]
fn the_nodes_annotations_and_amounts_are_kept() {
    let (cache, _) = synced([]);
    let node = |batch: &str| {
        object(json!({
            "metadata": {"name": "here", "annotations": {"a": "1"}, "labels": {"zone": "a"}},
            "status": {"capacity": {"cpu": "8", "kubernetes.io/batch-cpu": batch}, "images": [{"names": ["x"]}]},
        }))
    };
    for (batch, expected) in [("5000", Some(5_000)), ("1e400", None)] {
        cache.take(&Watch::Node, Ok(Event::Apply(node(batch))));
        let snapshot = cache.changed().unwrap();
        let node = snapshot.node.unwrap();
        assert_eq!(node.annotations["a"], "1");
        let batch = node.resources.iter().find(|resource| resource.name == "kubernetes.io/batch-cpu");
        assert_eq!(batch.and_then(|resource| resource.capacity), expected);
        assert_eq!(snapshot.problems.len(), usize::from(expected.is_none()), "{:?}", snapshot.problems);
    }
    cache.changed();
    // A heartbeat changes nothing that counts.
    cache.take(&Watch::Node, Ok(Event::Apply(node("1e400"))));
    assert!(cache.changed().is_none());
}
