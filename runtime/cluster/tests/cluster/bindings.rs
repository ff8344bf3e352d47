//! `qosm.io/cgroup`: containers bound to existing cgroups.

use qosm_model::pod::{ContainerCgroup, ContainerState};

use super::*;

fn bound(annotation: &str) -> (Option<String>, Vec<ContainerCgroup>, String) {
    let annotation = serde_json::Value::from(annotation);
    let text = format!(
        "kind: Pod\nmetadata: {{name: web, annotations: {{qosm.io/cgroup: {annotation}}}}}\nspec: {{containers: [{{name: a}}, {{name: b}}]}}\n"
    );
    let objects = read(&text);
    let pod = &objects.pods[0];
    (pod.cgroup.clone(), pod.containers.iter().map(|container| container.cgroup.clone()).collect(), messages(&objects))
}

fn path(path: &str) -> ContainerCgroup {
    ContainerCgroup::Bound(path.into())
}

fn named(name: &str) -> ContainerCgroup {
    ContainerCgroup::Named(name.into())
}

#[test]
fn containers_and_the_pod_are_bound_by_name() {
    let (pod, containers, messages) = bound(r#"{"a": "system.slice/nginx.service", "b": "/demo/b/", "": "demo"}"#);
    assert_eq!(
        (pod.as_deref(), containers, messages.as_str()),
        (Some("demo"), vec![path("system.slice/nginx.service"), path("demo/b")], "")
    );
    let (pod, containers, messages) = bound(r#"{"pod": "demo"}"#);
    assert_eq!((pod.as_deref(), containers, messages.as_str()), (Some("demo"), vec![named("a"), named("b")], ""));
    let text = "kind: Pod\nmetadata: {name: web, annotations: {qosm.io/cgroup: '{\"pod\": \"demo\"}'}}\nspec: {containers: [{name: pod}]}";
    let bound = super::pod(text);
    assert_eq!((bound.cgroup, bound.containers[0].cgroup.clone()), (None, path("demo")));
}

#[test]
fn a_binding_counts_before_the_status() {
    let status = "status: {containerStatuses: [{name: a, containerID: 'docker://1', state: {running: {}}}]}";
    let text = with_spec("{containers: [{name: a}]}", status)
        .replace("uid: uid1", r#"annotations: {qosm.io/cgroup: '{"a": "x"}'}"#);
    assert_eq!(pod(&text).containers[0].cgroup, path("x"));
    let text = text.replace("{name: a, containerID", "{name: other, containerID");
    let container = pod(&text).containers[0].clone();
    assert_eq!((container.state, container.cgroup), (ContainerState::Running, path("x")), "nobody reports on it");
}

#[test]
fn what_leads_out_of_the_hierarchy_is_refused_alone() {
    for bad in ["", "/", "..", "../x", "x/../y", "x//y", "./x", "x/.", "//x", "x\\u0000y", "x\\ny"] {
        let (_, containers, messages) = bound(&format!(r#"{{"a": "{bad}", "b": "y"}}"#));
        assert_eq!(containers, [named("a"), path("y")], "{bad}");
        assert!(messages.starts_with(r#"pod default/web: annotation qosm.io/cgroup: "a": "#), "{bad}: {messages}");
    }
    let (_, containers, messages) = bound(r#"{"a": 5, "b": "y", "c": "z"}"#);
    assert_eq!(containers, [named("a"), path("y")]);
    insta::assert_snapshot!(messages, @r#"
    pod default/web: annotation qosm.io/cgroup: "a": 5 is no path below the hierarchy; the entry is ignored, write e.g. "system.slice/x.service" (in web.yaml, document 1)
    pod default/web: annotation qosm.io/cgroup: "c": the pod has no container of this name; the entry is ignored, known are a, b (in web.yaml, document 1)
    "#);
}

#[test]
fn what_is_no_object_is_ignored_as_a_whole() {
    for bad in ["", "{", "[]", "x", r#""x""#, "null"] {
        let (pod, containers, messages) = bound(bad);
        assert_eq!((pod, containers), (None, vec![named("a"), named("b")]), "{bad}");
        assert!(messages.contains("annotation qosm.io/cgroup: it is no JSON object"), "{bad}: {messages}");
    }
}
