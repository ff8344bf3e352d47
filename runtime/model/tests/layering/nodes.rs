//! Selection of the strategy for a node.

use super::*;

fn on(labels: &[(&str, &str)], strategies: &str) -> (Value, Vec<String>) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let node = Node { labels, ..Node::default() };
    let text = format!(r#"{{"clusterStrategy": {{"cpuBurstPercent": 1}}, "nodeStrategies": {strategies}}}"#);
    let (layers, problems) = Layers::build(compiled(burst()), &[ack("cpu-burst-config", &text)], &node, None);
    (layers.classes()["cpuBurstPercent"].clone(), texts(&problems))
}

#[test]
fn selectors_match_as_kubernetes_has_them() {
    let labels: &[(&str, &str)] = &[("pool", "batch"), ("example.com/zone", "a"), ("empty", "")];
    for (selector, matches) in [
        (r#"{}"#, true),
        (r#"{"matchLabels": {}}"#, true),
        (r#"{"matchLabels": null, "matchExpressions": []}"#, true),
        (r#"{"matchLabels": {"pool": "batch"}}"#, true),
        (r#"{"matchlabels": {"pool": "batch"}}"#, true),
        (r#"{"matchLabels": {"pool": "Batch"}}"#, false),
        (r#"{"matchLabels": {"pool": "batch", "example.com/zone": "b"}}"#, false),
        (r#"{"matchLabels": {"empty": ""}}"#, true),
        (r#"{"matchLabels": {"missing": ""}}"#, false),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x", "batch"]}]}"#, true),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}"#, false),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["x"]}]}"#, true),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["batch"]}]}"#, false),
        (r#"{"matchExpressions": [{"key": "missing", "operator": "NotIn", "values": ["x"]}]}"#, true),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}"#, true),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "Exists", "values": []}]}"#, true),
        (r#"{"matchExpressions": [{"key": "missing", "operator": "Exists"}]}"#, false),
        (r#"{"matchExpressions": [{"key": "missing", "operator": "DoesNotExist"}]}"#, true),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "DoesNotExist"}]}"#, false),
        (
            r#"{"matchLabels": {"pool": "batch"}, "matchExpressions": [{"key": "example.com/zone", "operator": "Exists"}]}"#,
            true,
        ),
        (r#"{"matchLabels": {"pool": "batch"}, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}"#, false),
    ] {
        let (percent, problems) = on(labels, &format!(r#"[{{"nodeSelector": {selector}, "cpuBurstPercent": 2}}]"#));
        assert_eq!(percent, if matches { 2 } else { 1 }, "{selector}");
        assert_eq!(problems, Vec::<String>::new(), "{selector}");
    }
}

#[test]
fn a_selector_that_cannot_be_understood_is_skipped() {
    for (selector, part) in [
        (r#""pool=batch""#, "it is not a JSON object"),
        (r#"{"matchLabels": ["pool"]}"#, "matchLabels is not a JSON object"),
        (r#"{"matchLabels": {"pool": 5}}"#, "matchLabels.pool is not a string"),
        (r#"{"matchLabels": {"": "x"}}"#, "`` is not a label key"),
        (r#"{"matchLabels": {"a/b/c": "x"}}"#, "`a/b/c` is not a label key"),
        (r#"{"matchLabels": {"Example.com/pool": "x"}}"#, "is not a label key"),
        (r#"{"matchLabels": {"pool": "not a value"}}"#, "`not a value` is not a label value"),
        (r#"{"matchExpressions": {}}"#, "matchExpressions is not a list"),
        (r#"{"matchExpressions": [{"operator": "Exists"}]}"#, "matchExpressions[0]: key is missing"),
        (r#"{"matchExpressions": [{"key": "pool"}]}"#, "operator is missing"),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "Gt", "values": ["1"]}]}"#, "operator `Gt` is none of"),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "In"}]}"#, "In needs values"),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "Exists", "values": ["x"]}]}"#, "Exists takes no values"),
        (r#"{"matchExpressions": [{"key": "pool", "operator": "In", "values": [1]}]}"#, "values holds something else"),
        (r#"{"matchLabel": {"pool": "batch"}}"#, "matchLabel is neither matchLabels nor matchExpressions"),
    ] {
        let second = r#"{"nodeSelector": {}, "cpuBurstPercent": 3}"#;
        let (percent, problems) =
            on(&[], &format!(r#"[{{"nodeSelector": {selector}, "cpuBurstPercent": 2}}, {second}]"#));
        assert_eq!(percent, 3, "{selector}");
        assert_eq!(problems.len(), 1, "{selector}: {problems:?}");
        assert!(
            problems[0].contains("cpu-burst-config: nodeStrategies[0].nodeSelector: ") && problems[0].contains(part),
            "{problems:?}"
        );
    }
}

#[test]
fn the_first_match_wins_and_later_ones_are_not_merged_in() {
    let strategies = r#"[
        {"name": "gpu", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "cpuBurstPercent": 2},
        {"name": "first", "nodeSelector": {"matchLabels": {"pool": "batch"}}},
        {"name": "second", "nodeSelector": {"matchLabels": {"pool": "batch"}}, "cpuBurstPercent": 4}
    ]"#;
    let (percent, problems) = on(&[("pool", "batch")], strategies);
    assert_eq!(percent, 1);
    insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-config: cpu-burst-config: nodeStrategies[2].nodeSelector: `first` is for this node too and comes first, so this one has no effect here");
    assert_eq!(on(&[("gpu", "yes")], strategies), (json!(2), vec![]));
    assert_eq!(on(&[], strategies), (json!(1), vec![]));
}

#[test]
fn a_missing_selector_matches_nothing() {
    for strategy in [r#"{"cpuBurstPercent": 2}"#, r#"{"nodeSelector": null, "cpuBurstPercent": 2}"#] {
        let (percent, problems) = on(&[], &format!("[{strategy}]"));
        assert_eq!(percent, 1);
        insta::allow_duplicates! {
            insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-config: cpu-burst-config: nodeStrategies[0]: it has no nodeSelector and is therefore for no node; write `{}` to mean every node");
        }
    }
}

#[test]
fn no_strategies_is_fine() {
    for strategies in ["null", "[]", "[null]"] {
        assert_eq!(on(&[], strategies), (json!(1), vec![]), "{strategies}");
    }
}
