use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::core::Status;
use serde_json::json;

use super::*;

const MAPS: [(&str, &str); 1] = [("kube-system", "ack-slo-config")];

/// A mirror, and how often it woke the loop.
fn mirror() -> (Mirror, Arc<AtomicUsize>) {
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let maps = MAPS.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    (
        Mirror::new(
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

fn list(mirror: &Mirror, watch: &Watch, objects: impl IntoIterator<Item = DynamicObject>) {
    mirror.take(watch, Ok(Event::Init));
    for object in objects {
        mirror.take(watch, Ok(Event::InitApply(object)));
    }
    mirror.take(watch, Ok(Event::InitDone));
}

fn refused(code: u16) -> Error {
    Error::WatchStartFailed(kube::Error::Api(Box::new(Status { code, message: "no".into(), ..Status::default() })))
}

/// All watches have answered; the pods are these.
fn synced(pods: impl IntoIterator<Item = DynamicObject>) -> (Mirror, Arc<AtomicUsize>) {
    let (mirror, woken) = mirror();
    list(&mirror, &Watch::Node, [object(json!({"metadata": {"name": "here", "labels": {"zone": "a"}}}))]);
    list(&mirror, &Watch::PolicyModules, []);
    list(&mirror, &Watch::ConfigMap(0), []);
    list(&mirror, &Watch::Pods, pods);
    (mirror, woken)
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    snapshot.pods.iter().map(Pod::key).collect()
}

#[test]
fn nothing_is_said_before_every_watch_has_answered() {
    let (mirror, woken) = mirror();
    list(&mirror, &Watch::Pods, [pod("web", "LS")]);
    assert_eq!(mirror.changed(), None);
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    mirror.take(&Watch::Node, Err(refused(403)));
    let waits = mirror.waits_for().unwrap();
    assert!(waits.contains("node (the API server answers 403"), "{waits}");
    assert!(waits.contains("ConfigMap kube-system/ack-slo-config"), "{waits}");

    let (mirror, woken) = synced([pod("web", "LS")]);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    let snapshot = mirror.changed().unwrap();
    assert_eq!(names(&snapshot), ["default/web"]);
    assert_eq!(snapshot.node.unwrap().labels["zone"], "a");
    // A field that only a newer Kubernetes knows is none of anybody's problems.
    assert_eq!(snapshot.problems, []);
    assert_eq!(mirror.changed(), None);
}

#[test]
fn a_new_list_forgets_nothing_before_it_is_complete() {
    let (mirror, woken) = synced([pod("web", "LS"), pod("batch", "BE")]);
    mirror.changed().unwrap();
    mirror.take(&Watch::Pods, Ok(Event::Init));
    mirror.take(&Watch::Pods, Ok(Event::InitApply(pod("web", "LS"))));
    assert_eq!(mirror.changed(), None);
    mirror.take(&Watch::Pods, Ok(Event::InitApply(pod("batch", "BE"))));
    mirror.take(&Watch::Pods, Ok(Event::InitDone));
    assert_eq!(mirror.changed(), None, "the list says what was known");
    assert_eq!(woken.load(Ordering::Relaxed), 1);

    list(&mirror, &Watch::Pods, [pod("web", "LS")]);
    assert_eq!(names(&mirror.changed().unwrap()), ["default/web"]);
}

#[test]
fn what_was_known_counts_while_the_api_server_is_away_and_the_reason_is_told_once() {
    let (mirror, _) = synced([pod("web", "LS")]);
    mirror.changed().unwrap();
    mirror.take(&Watch::Pods, Err(refused(401)));
    let snapshot = mirror.changed().unwrap();
    assert_eq!(names(&snapshot), ["default/web"]);
    assert_eq!(snapshot.problems, []);
    let [problem] = &snapshot.troubles[..] else { panic!("{:?}", snapshot.troubles) };
    assert_eq!(problem.object, "watch of pod");
    assert!(problem.message.contains("401") && problem.message.contains("clocks"), "{problem}");
    mirror.take(&Watch::Pods, Err(refused(401)));
    assert_eq!(mirror.changed(), None);
    // The next thing that arrives says that it works again.
    mirror.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(mirror.changed().unwrap().troubles, []);
}

#[test]
fn what_cannot_be_written_is_told_until_it_can() {
    let (mirror, woken) = synced([]);
    mirror.changed().unwrap();
    for _ in 0..3 {
        mirror.written("events on pods", Err("403".into()));
    }
    mirror.written("the node's report", Ok(()));
    let told: Vec<_> = mirror.changed().unwrap().troubles.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["writing events on pods: 403; tried again"]);
    mirror.written("events on pods", Ok(()));
    assert_eq!(mirror.changed().unwrap().troubles, []);
    assert_eq!(woken.load(Ordering::Relaxed), 3);
}

#[test]
fn a_place_that_the_api_server_has_forgotten_is_no_problem() {
    let (mirror, _) = synced([pod("web", "LS")]);
    mirror.changed().unwrap();
    mirror.take(&Watch::Pods, Err(refused(410)));
    let expired = Status { code: 410, ..Status::default() };
    mirror.take(&Watch::Pods, Err(Error::WatchError(Box::new(expired))));
    assert_eq!(mirror.changed(), None);
}

#[test]
fn pods_come_change_and_go() {
    let (mirror, woken) = synced([]);
    mirror.changed().unwrap();
    mirror.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(names(&mirror.changed().unwrap()), ["default/web"]);
    // A new resourceVersion alone is no change.
    mirror.take(&Watch::Pods, Ok(Event::Apply(pod("web", "LS"))));
    assert_eq!(mirror.changed(), None);
    mirror.take(&Watch::Pods, Ok(Event::Apply(pod("web", "BE"))));
    assert!(mirror.changed().is_some());
    mirror.take(&Watch::Pods, Ok(Event::Delete(pod("web", "BE"))));
    assert_eq!(names(&mirror.changed().unwrap()), [""; 0]);
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
    let (mirror, _) = synced([]);
    mirror.take(&Watch::PolicyModules, Ok(Event::Apply(module(json!(500)))));
    let snapshot = mirror.changed().unwrap();
    assert_eq!(snapshot.problems, []);
    assert_eq!(snapshot.policy_modules[0].spec.config["limits"]["cpu"], 1, "only Kubernetes' quantities are quoted");
    mirror.take(&Watch::PolicyModules, Ok(Event::Apply(module(json!("often")))));
    let snapshot = mirror.changed().unwrap();
    assert_eq!(snapshot.policy_modules[0].spec.interval_millis, Some(500));
    let problem = &snapshot.problems[0];
    assert_eq!(
        (problem.object.as_str(), problem.field.as_deref()),
        ("PolicyModule burst", Some("spec.intervalMillis"))
    );
    assert!(problem.message.ends_with("what was there before counts on"), "{problem}");
}
