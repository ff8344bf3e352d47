//! Lists of namespaces, in each namespace that may contain them.

use super::*;

fn word(maps: &[ConfigMap], namespace: &str) -> (Value, Vec<String>) {
    let (layers, problems) = build(burst(), maps);
    let pod = Pod { namespace: namespace.into(), ..pod() };
    (layers.for_pod(&pod).values["policy"].clone(), problems)
}

fn lists(home: &str, text: &str) -> ConfigMap {
    map(home, &[("cpu-burst", text)])
}

#[test]
fn both_homes_are_read_and_summed() {
    let maps = [
        lists("kube-system/ack-slo-pod-config", r#"{"enabledNamespaces": ["a"]}"#),
        lists("koordinator-system/ack-slo-pod-config", r#"{"enabledNamespaces": ["b"], "disabledNamespaces": ["c"]}"#),
        lists("ack-slo-pod-config", r#"{"ENABLEDNAMESPACES": ["d"], "disabledNamespaces": null}"#),
        ack("cpu-burst-config", r#"{"clusterStrategy": {"policy": "cpuBurstOnly"}}"#),
    ];
    for (namespace, expected) in [("a", "auto"), ("b", "auto"), ("c", "none"), ("d", "auto"), ("e", "cpuBurstOnly")] {
        assert_eq!(word(&maps, namespace), (json!(expected), vec![]), "{namespace}");
    }
}

#[test]
fn a_namespace_in_both_lists_is_disabled_and_reported() {
    let one = [lists("kube-system/ack-slo-pod-config", r#"{"enabledNamespaces": ["a"], "disabledNamespaces": ["a"]}"#)];
    let (policy, problems) = word(&one, "a");
    assert_eq!(policy, "none");
    insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-pod-config: cpu-burst: disabledNamespaces: namespace a is disabled here and enabled in ConfigMap kube-system/ack-slo-pod-config: namespace list; it counts as disabled, remove it from one of the lists");
    let two = [
        lists("kube-system/ack-slo-pod-config", r#"{"disabledNamespaces": ["a"]}"#),
        lists("koordinator-system/ack-slo-pod-config", r#"{"enabledNamespaces": ["a"]}"#),
    ];
    let (policy, problems) = word(&two, "a");
    assert_eq!((policy, problems.len()), (json!("none"), 1));
}

#[test]
fn an_unusable_list_is_reported_and_the_last_good_one_counts() {
    let good = [lists("kube-system/ack-slo-pod-config", r#"{"enabledNamespaces": ["default"]}"#)];
    let (before, _) = Layers::build(compiled(burst()), &good, &Node::default(), None);
    for (text, part) in [
        ("", "cpu-burst: the text is empty"),
        ("{", "cpu-burst: it is not JSON"),
        ("[]", "cpu-burst: it is not a JSON object"),
        (r#"{"enabledNamespaces": "default"}"#, "cpu-burst: enabledNamespaces: it is not a list"),
        (r#"{"disabledNamespaces": [1]}"#, "cpu-burst: disabledNamespaces: it holds something else than strings"),
    ] {
        let bad = [lists("kube-system/ack-slo-pod-config", text)];
        let (policy, problems) = word(&bad, "default");
        assert_eq!(policy, "none", "{text}");
        assert!(problems.len() == 1 && problems[0].contains(part), "{problems:?}");
        let (after, problems) = Layers::build(compiled(burst()), &bad, &Node::default(), Some(before.good_texts()));
        assert_eq!(after.for_pod(&pod()).values["policy"], "auto", "{text}");
        assert!(texts(&problems)[0].contains("its last good text counts on"));
    }
    let (after, problems) = Layers::build(compiled(burst()), &[], &Node::default(), Some(before.good_texts()));
    assert_eq!(after.for_pod(&pod()).values["policy"], "none");
    assert_eq!(problems, []);
}

#[test]
fn unknown_fields_are_reported() {
    let maps = [lists("kube-system/ack-slo-pod-config", r#"{"enabledNamespace": ["a"]}"#)];
    let (policy, problems) = word(&maps, "a");
    assert_eq!(policy, "none");
    insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-pod-config: cpu-burst: enabledNamespace: unknown field, ignored; did you mean `enabledNamespaces`?");
}

#[test]
fn names_that_can_be_no_namespace_are_reported_and_the_others_count() {
    let maps = [lists(
        "kube-system/ack-slo-pod-config",
        r#"{"enabledNamespaces": ["*", "team-*", "a"], "disabledNamespaces": ["Team-B"]}"#,
    )];
    let (policy, problems) = word(&maps, "a");
    assert_eq!(policy, "auto");
    insta::assert_snapshot!(problems.join("\n"), @r#"
    ConfigMap kube-system/ack-slo-pod-config: cpu-burst: enabledNamespaces: "*" can be no namespace; patterns are not known here, write each name
    ConfigMap kube-system/ack-slo-pod-config: cpu-burst: enabledNamespaces: "team-*" can be no namespace; patterns are not known here, write each name
    ConfigMap kube-system/ack-slo-pod-config: cpu-burst: disabledNamespaces: "Team-B" can be no namespace; names have no upper-case letters
    "#);
}
