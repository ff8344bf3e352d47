use qosm_model::layering::ConfigMap;
use serde_json::{Value, json};

use super::*;
use crate::facts::read_objects;

fn sources(pods: &[Value], node: Value, text: &str) -> Sources {
    let mut sources = Sources::from(read_objects(pods, &[], Some(&node), "test"));
    sources.config_maps = vec![ConfigMap {
        namespace: Some("koordinator-system".to_owned()),
        name: "slo-controller-config".to_owned(),
        data: [("key".to_owned(), text.to_owned())].into(),
    }];
    sources
}

fn node(labels: &Value, annotations: &Value) -> Value {
    json!({"metadata": {"name": "here", "labels": labels, "annotations": annotations}})
}

#[test]
fn a_change_names_the_columns_that_are_others_now() {
    const STRATEGY: &str = r#"{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "batch"}}, "a": 1}]}"#;
    let plain = || node(&json!({}), &json!({}));
    let mut objects = Objects::default();
    let mut before = Sources::default();
    for (what, node, text, expected) in [
        ("the first", plain(), STRATEGY, &[Interface::NodeObject, Interface::ClusterConfig][..]),
        ("nothing", plain(), STRATEGY, &[]),
        ("an annotation", node(&json!({}), &json!({"a": "1"})), STRATEGY, &[Interface::NodeObject]),
        (
            "a label that a strategy selects",
            node(&json!({"pool": "batch"}), &json!({})),
            STRATEGY,
            &[Interface::NodeObject, Interface::ClusterConfig],
        ),
        (
            "a label that none does",
            node(&json!({"pool": "batch", "x": "y"}), &json!({})),
            STRATEGY,
            &[Interface::NodeObject],
        ),
        ("a text", node(&json!({"pool": "batch", "x": "y"}), &json!({})), "{}", &[Interface::ClusterConfig]),
        ("a text that cannot be read", node(&json!({"pool": "batch", "x": "y"}), &json!({})), "{", &[]),
    ] {
        let now = sources(&[], node, text);
        assert_eq!(objects.update(&before, &now), expected, "{what}");
        before = now;
    }
    assert_eq!(objects.config().get("key").map(|key| key.text.as_str()), Some("{}"));
    assert_eq!(objects.config_problems.len(), 1);
}

#[test]
fn a_column_that_is_the_same_is_shared() {
    let pod = |annotations: Value| json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"containers": [{"name": "app"}]}});
    let node = node(&json!({}), &json!({}));
    let mut objects = Objects::default();
    let mut table = PodTable::default();
    let mut before = Sources::default();
    let mut columns = Vec::new();
    for annotations in [json!({"a": "1"}), json!({"a": "1"}), json!({"a": "2"})] {
        let now = sources(&[pod(annotations)], node.clone(), "{}");
        table.update(now.pods.clone());
        objects.update(&before, &now);
        columns.push((objects.pods(&table), objects.node(&now.node, 4, Some(Bytes(4096)))));
        before = now;
    }
    assert!(Arc::ptr_eq(&columns[0].0, &columns[1].0), "nothing changed");
    assert_eq!((columns[1].0[0].annotations["a"].as_str(), columns[2].0[0].annotations["a"].as_str()), ("1", "2"));
    assert!(Arc::ptr_eq(&columns[0].1, &columns[2].1));
    let grown = objects.node(&before.node, 8, None);
    let amounts: Vec<_> = grown.resources.iter().map(|resource| (resource.name.as_str(), resource.capacity)).collect();
    assert_eq!(amounts, [("cpu", Some(8_000)), ("memory", None)], "what the machine does not tell is not made up");
}
