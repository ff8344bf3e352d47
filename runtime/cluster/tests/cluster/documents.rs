//! Texts: streams, lists, JSON, and broken documents.

use proptest::prelude::*;

use super::*;

const WEB: &str = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a}]}\n";
const DB: &str = "kind: Pod\nmetadata: {name: db}\nspec: {containers: [{name: a}]}\n";

fn names(objects: &Objects) -> Vec<String> {
    objects.pods.iter().map(Pod::key).chain(objects.config_maps.iter().map(|map| map.key())).collect()
}

#[test]
fn streams_lists_and_json_are_read() {
    let json = r#"{"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}"#;
    let item = r#"{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}"#;
    for (text, expected) in [
        (String::new(), vec![]),
        ("# nothing\n---\n---\n# nothing either\n".into(), vec![]),
        (WEB.into(), vec!["default/web"]),
        (format!("\u{feff}---\n{WEB}---\n# empty\n---\n{DB}"), vec!["default/web", "default/db"]),
        (format!("%YAML 1.2\n---\n{WEB}"), vec!["default/web"]),
        (format!("{WEB}...\n"), vec!["default/web"]),
        (WEB.replace('\n', "\r\n"), vec!["default/web"]),
        (format!("--- # first\n{WEB}--- {{kind: ConfigMap, metadata: {{name: c}}}}\n"), vec!["default/web", "c"]),
        (json.into(), vec!["default/web"]),
        (format!("{json}\n{}", json.replace("web", "db")), vec!["default/web", "default/db"]),
        (format!("{json}\n---\n{DB}"), vec!["default/web", "default/db"]),
        (format!(r#"{{"kind": "List", "apiVersion": "v1", "items": [{json}, {{"kind": "ConfigMap", "metadata": {{"name": "c"}}}}]}}"#), vec!["default/web", "c"]),
        (format!(r#"{{"kind": "PodList", "items": [{item}]}}"#), vec!["default/web"]),
        (r#"{"kind": "ConfigMapList", "items": [{"metadata": {"name": "c", "namespace": "n"}, "data": {"k": "v"}}]}"#.into(), vec!["n/c"]),
        (r#"{"kind": "List", "items": null}"#.into(), vec![]),
        (format!(r#"{{"kind": "List", "items": [{{"kind": "PodList", "items": [{item}]}}]}}"#), vec!["default/web"]),
    ] {
        let objects = read(&text);
        assert_eq!(names(&objects), expected, "{text}");
        assert_eq!(messages(&objects), "", "{text}");
    }
}

#[test]
fn a_node_is_read() {
    let text =
        "kind: Node\nmetadata: {name: edge-7, labels: {pool: batch}}\nstatus: {allocatable: {memory: 30Gi, cpu: 7}}\n";
    let node = read(text).node.unwrap();
    assert_eq!((node.name.as_str(), node.labels["pool"].as_str()), ("edge-7", "batch"));
    assert_eq!(node.memory_allocatable.map(|memory| memory.0), Some(30 << 30));
    let objects = read(
        "kind: Node\nmetadata: {name: edge-7}\nstatus: {allocatable: {memory: much}}\n---\nkind: Node\nmetadata: {name: other}\n",
    );
    assert_eq!(objects.node.as_ref().map(|node| (node.name.as_str(), node.memory_allocatable)), Some(("edge-7", None)));
    insta::assert_snapshot!(messages(&objects), @r"
    node edge-7: status.allocatable.memory: `much` is not a quantity: it does not begin with a number; all of the machine's memory counts, write e.g. `32Gi` (in web.yaml, document 1)
    node other: there is a Node in web.yaml, document 1 already, and one counts; what stands in web.yaml, document 2 is ignored, remove one of them
    ");
}

#[test]
fn pods_of_other_nodes_are_left_out_where_the_node_is_known() {
    let pod = |name: &str, spec: &str| {
        format!("kind: Pod\nmetadata: {{name: {name}}}\nspec: {{{spec}containers: [{{name: app}}]}}\n")
    };
    let pods = [pod("here", "nodeName: n1, "), pod("elsewhere", "nodeName: n2, "), pod("unbound", "")].join("---\n");
    let node = "kind: Node\nmetadata: {name: n1}\n";
    for text in [format!("{pods}---\n{node}"), format!("{node}---\n{pods}")] {
        let objects = read(&text);
        assert_eq!(names(&objects), ["default/here", "default/unbound"], "{text}");
        let said = messages(&objects);
        let expected = "pod default/elsewhere: spec.nodeName: it runs on node n2, and the Node here is n1; it is ignored, leave it out \
                        (`--field-selector spec.nodeName=n1`)";
        assert_eq!(said, expected);
    }
    assert_eq!(names(&read(&pods)).len(), 3, "nothing says which node this is");
}

#[test]
fn a_node_has_the_zones_of_the_topology_of_its_name() {
    let zones = "zones: [{name: node-0, type: Node, resources: [{name: cpu, capacity: 4}]}]";
    let topology = |name: &str| {
        format!(
            "apiVersion: topology.node.k8s.io/v1alpha2\nkind: NodeResourceTopology\nmetadata: {{name: {name}}}\n{zones}\n"
        )
    };
    let node = "kind: Node\nmetadata: {name: edge-7, annotations: {a: b}}\n";
    for text in [format!("{}---\n{node}", topology("edge-7")), format!("{node}---\n{}", topology("edge-7"))] {
        let objects = read(&text);
        assert_eq!(objects.node.unwrap().zones.len(), 1);
        assert_eq!(objects.problems, []);
    }
    insta::assert_snapshot!(messages(&read(&format!("{node}---\n{}", topology("other")))), @"NodeResourceTopology other: metadata.name: there is no Node of this name here; it is ignored, write the Node as well (in web.yaml, document 2)");
}

#[test]
fn a_policy_module_is_read_as_it_is_applied() {
    let text = "apiVersion: qosm.io/v1alpha1\nkind: PolicyModule\nmetadata: {name: burst}\nspec: {module: builtin:cpu-burst}\n";
    let objects = read(text);
    assert_eq!(objects.policy_modules.len(), 1);
    assert_eq!(messages(&objects), "");
    let objects = read(
        &format!("{text}  grant: [node]\n").replace("{module: builtin:cpu-burst}", "\n  module: builtin:cpu-burst"),
    );
    insta::assert_snapshot!(messages(&objects), @"PolicyModule burst: spec.grant: a PolicyModule has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)");
}

#[test]
fn a_policy_module_with_a_number_out_of_its_range_is_not_read() {
    let read = |field: &str| {
        read(&format!(
            "apiVersion: qosm.io/v1alpha1\nkind: PolicyModule\nmetadata: {{name: burst}}\nspec: {{module: builtin:cpu-burst, {field}}}\n"
        ))
    };
    for (good, bad, path, range) in [
        ("rollout: {percent: 100}", "rollout: {percent: 101}", "rollout.percent", "101 is not from 0 to 100"),
        ("intervalMillis: 100", "intervalMillis: 5", "intervalMillis", "5 is not from 100 to 3600000"),
        ("alarmGapMillis: 5", "alarmGapMillis: 0", "alarmGapMillis", "0 is not from 5 to 60000"),
        ("pollSeconds: 10", "pollSeconds: 0", "pollSeconds", "0 is not from 10 to 86400"),
        ("limits: {memoryMiB: 1}", "limits: {memoryMiB: 0}", "limits.memoryMiB", "0 is not from 1 to 1024"),
        (
            "limits: {evaluationMillis: 10000}",
            "limits: {evaluationMillis: 0}",
            "limits.evaluationMillis",
            "0 is not from 1 to 10000",
        ),
        (
            "verification: {keys: [{name: a, pem: b}], atLeast: 1}",
            "verification: {keys: [{name: a, pem: b}], atLeast: 0}",
            "verification.atLeast",
            "0 is not from 1 to 16",
        ),
    ] {
        assert_eq!((read(good).policy_modules.len(), messages(&read(good))), (1, String::new()), "{good}");
        let objects = read(bad);
        assert_eq!(objects.policy_modules.len(), 0, "{bad}");
        let expected = format!(
            "PolicyModule burst: spec.{path}: {range}; the PolicyModule is not read, mend the field (in web.yaml, document 1)"
        );
        assert_eq!(messages(&objects), expected);
    }
}

#[test]
fn configmap_data_is_text() {
    let text = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: ack-slo-config, namespace: kube-system}
data:
  cpu-burst-config: |
    {"clusterStrategy": {"policy": "auto"}}
  empty: ""
"#;
    let objects = read(text);
    assert_eq!(messages(&objects), "");
    assert_eq!(objects.config_maps[0].data["cpu-burst-config"], "{\"clusterStrategy\": {\"policy\": \"auto\"}}\n");
    assert_eq!(objects.config_maps[0].data["empty"], "");
    let objects =
        read("kind: ConfigMap\nmetadata: {name: ack-slo-config}\ndata: {cpu-burst-config: {clusterStrategy: {}}}\n");
    assert_eq!(objects.config_maps, []);
    insta::assert_snapshot!(messages(&objects), @"ConfigMap ack-slo-config: data.cpu-burst-config: invalid type: map, expected a string; the ConfigMap is not read, put the value in quotes, or write it as a block (`|`) (in web.yaml, document 1)");
    insta::assert_snapshot!(messages(&read("kind: ConfigMap\nmetadata: {name: c}\ndta: {}\n")), @"ConfigMap c: dta: Kubernetes 1.33 has no such field; it is ignored and the rest counts, check its spelling (in web.yaml, document 1)");
    insta::assert_snapshot!(messages(&read("kind: ConfigMap\n")), @"web.yaml, document 1: metadata.name: it is missing; the ConfigMap is not read, write a name");
}

#[test]
fn a_broken_document_does_not_take_the_others_along() {
    for bad in [
        "kind: Pod\nmetadata: {name: [",
        "\"unclosed",
        "a: b: c",
        "kind: Pod\nkind: Pod\n",
        "*unknown",
        "{\"kind\": \"Pod\",",
        "just text",
        "[1, 2]",
        "5",
        "metadata: {name: x}",
        "kind: 5",
        "kind: List\nitems: {}",
        "a: \u{1}",
        "kind: Pod\nspec:\n\t- x: [\n",
    ] {
        let objects = read(&format!("{WEB}---\n{bad}\n---\n{DB}"));
        assert_eq!(names(&objects), ["default/web", "default/db"], "{bad}");
        assert_eq!(objects.problems.len(), 1, "{bad}: {}", messages(&objects));
        assert!(messages(&objects).starts_with("web.yaml, document 2: "), "{bad}: {}", messages(&objects));
    }
}

#[test]
fn problems_name_the_line_of_the_file() {
    insta::assert_snapshot!(messages(&read(&format!("{WEB}---\n{DB}---\nkind: Pod\nmetadata:\n  name: 'web\n"))), @"web.yaml, document 3: it is not YAML (invalid indentation in multiline quoted scalar, at line 12, column 1); the document is not read, the others are");
    insta::assert_snapshot!(messages(&read("kind: Pod\nkind: Pod\n")), @"web.yaml, document 1: it is not YAML (duplicate mapping key: kind, at line 2, column 1); the document is not read, the others are");
    insta::assert_snapshot!(messages(&read("{\"kind\": \"Pod\", \"metadata\": {\"name\": ")), @"web.yaml, document 1: it is not JSON (EOF while parsing a value at line 1 column 37), and it is not YAML (unclosed bracket '{', at line 1, column 29); the document is not read, the others are");
    insta::assert_snapshot!(messages(&read("{\"kind\": \"List\"} {\"kind\": ")), @"web.yaml, document 2: it is not JSON (EOF while parsing a value at line 1 column 26, counted from where its document begins); the document is not read, the others are");
}

#[test]
fn a_bad_item_does_not_take_the_list_along() {
    let text = "
kind: List
items:
- kind: Pod
  metadata: {name: web}
  spec: {containers: [{name: a}]}
- kind: Pod
  metadata: {name: 5}
- kind: Deployment
  metadata: {name: x}
- 7
- kind: Pod
  metadata: {name: db}
  spec: {containers: [{name: a}]}
";
    let objects = read(text);
    assert_eq!(names(&objects), ["default/web", "default/db"]);
    insta::assert_snapshot!(messages(&objects), @r"
    web.yaml, document 1, item 2: metadata.name: invalid type: integer `5`, expected a string; the Pod is not read, mend the field
    web.yaml, document 1, item 3: kind: kind `Deployment` is not read here and ignored; known are Pod, ConfigMap, PolicyModule, Node, NodeResourceTopology and lists of them. Write the pods that a workload would make
    web.yaml, document 1, item 4: it is not an object; write `apiVersion`, `kind` and `metadata`
    ");
}

#[test]
fn lists_are_not_followed_for_ever() {
    let mut text = "{\"kind\": \"List\", \"items\": []}".to_owned();
    for _ in 0..6 {
        text = format!("{{\"kind\": \"List\", \"items\": [{text}]}}");
    }
    assert!(messages(&read(&text)).contains("lists are nested too deep"));
    let deep = "[".repeat(100_000);
    assert_eq!(read(&deep).problems.len(), 1);
    assert_eq!(read(&format!("{{\"kind\": {deep}")).problems.len(), 1);
}

#[test]
fn aliases_cannot_blow_up() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let objects = read(&format!("{WEB}---\n{bomb}"));
    assert_eq!(names(&objects), ["default/web"]);
    assert_eq!(objects.problems.len(), 1);
}

#[test]
fn of_two_objects_with_one_name_or_uid_the_first_counts() {
    let first = "kind: Pod\nmetadata: {name: web, uid: one}\nspec: {priority: 1, containers: [{name: a}]}\n";
    let same_name = "kind: Pod\nmetadata: {name: web, namespace: default, uid: two}\nspec: {priority: 2, containers: [{name: a}]}\n";
    let same_uid = "kind: Pod\nmetadata: {name: db, uid: one}\nspec: {priority: 3, containers: [{name: a}]}\n";
    let map = "kind: ConfigMap\nmetadata: {name: c}\n";
    let objects = read(&format!("{first}---\n{same_name}---\n{same_uid}---\n{map}---\n{map}"));
    assert_eq!(objects.pods.iter().map(|pod| pod.priority).collect::<Vec<_>>(), [Some(1)]);
    assert_eq!(objects.config_maps.len(), 1);
    insta::assert_snapshot!(messages(&objects), @r"
    pod default/web: it stands in web.yaml, document 1 already; what stands in web.yaml, document 2 is ignored, remove one of them
    pod default/db: pod default/web in web.yaml, document 1 has the same UID one; what stands in web.yaml, document 3 is ignored, remove one of them
    ConfigMap c: it stands in web.yaml, document 4 already; what stands in web.yaml, document 5 is ignored, remove one of them
    ");
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        read(&text);
    }

    #[test]
    fn no_text_that_looks_like_yaml_panics(text in "(kind: (Pod|List|ConfigMap|Node)\n|metadata:|items:|spec:|containers:|- |  |name: |[a-z0-9&*{}\\[\\]:,'\"|>#\n-]){0,40}") {
        read(&text);
    }

    #[test]
    fn a_truncated_text_is_reported_without_a_panic(at in 0usize..400) {
        let text = format!(
            "{WEB}---\n{{\"kind\": \"List\", \"items\": [{{\"kind\": \"Pod\", \"metadata\": {{\"name\": \"x\"}}, \"spec\": {{\"containers\": \
             [{{\"name\": \"a\", \"resources\": {{\"limits\": {{\"cpu\": \"1\"}}}}}}]}}}}]}}\n---\n{DB}"
        );
        let objects = read(text.get(..at).unwrap_or(&text));
        prop_assert!(objects.pods.len() <= 3);
    }
}
