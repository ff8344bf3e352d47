//! Precedence of layers, words of `policy`, and disabled classes.

use qosm_model::layering::Layer;

use super::*;

const MEMORY: &str = "koordinator.sh/memoryQOS";
const BURST: &str = "koordinator.sh/cpuBurst";

fn cluster(strategy: &str) -> ConfigMap {
    ack("resource-qos-config", &format!(r#"{{"clusterStrategy": {strategy}}}"#))
}

fn listed(enabled: &str, disabled: &str) -> ConfigMap {
    let text = format!(r#"{{"enabledNamespaces": [{enabled}], "disabledNamespaces": [{disabled}]}}"#);
    map("kube-system/ack-slo-pod-config", &[("memory-qos", &text), ("cpu-burst", &text)])
}

fn values(layers: &Layers, pod: &Pod) -> Value {
    let effective = layers.for_pod(pod);
    assert_eq!(effective.problems, []);
    Value::Object(effective.values)
}

#[test]
fn nothing_configured_means_hands_off_with_classes_and_defaults_without() {
    assert_eq!(values(&built(memory(), &[]), &pod()), json!({}));
    assert_eq!(values(&built(burst(), &[]), &pod()), Value::Object(burst().defaults));
}

#[test]
fn the_layers_lie_over_each_other_field_by_field() {
    let config = r#"{
        "clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 200, "cfsQuotaBurstPercent": 200},
        "nodeStrategies": [{"name": "edge", "nodeSelector": {}, "cfsQuotaBurstPercent": 150}]
    }"#;
    let layers = built(burst(), &[ack("cpu-burst-config", config), listed(r#""default""#, "")]);
    let effective = layers.for_pod(&annotated(BURST, r#"{"cfsQuotaBurstPeriodSeconds": 60}"#));
    assert_eq!(
        Value::Object(effective.values.clone()),
        json!({
            "policy": "auto", "cpuBurstPercent": 200, "cfsQuotaBurstPercent": 150, "cfsQuotaBurstPeriodSeconds": 60,
            "sharePoolThresholdPercent": 50,
        })
    );
    insta::assert_snapshot!(origins(&effective), @r"
    cfsQuotaBurstPercent <- ConfigMap kube-system/ack-slo-config: node strategy edge
    cfsQuotaBurstPeriodSeconds <- annotation koordinator.sh/cpuBurst
    cpuBurstPercent <- ConfigMap kube-system/ack-slo-config: clusterStrategy
    policy <- ConfigMap kube-system/ack-slo-pod-config: namespace list
    sharePoolThresholdPercent <- built-in default
    ");
}

#[test]
fn classes_follow_the_declared_class_else_kubernetes_qos() {
    let config = r#"{
        "lsrClass": {"memoryQOS": {"enable": true, "minLimitPercent": 1}},
        "lsClass": {"memoryQOS": {"enable": true, "minLimitPercent": 2}},
        "beClass": {"memoryQOS": {"enable": true, "minLimitPercent": 3}},
        "systemClass": {"memoryQOS": {"enable": true, "minLimitPercent": 4}}
    }"#;
    let layers = built(memory(), &[cluster(config)]);
    for (label, kube_qos, expected) in [
        (Some("LSE"), KubeQos::Burstable, 1),
        (Some("LSR"), KubeQos::Burstable, 1),
        (Some("LS"), KubeQos::Guaranteed, 2),
        (Some("BE"), KubeQos::Guaranteed, 3),
        (Some("SYSTEM"), KubeQos::BestEffort, 4),
        (Some("be"), KubeQos::Guaranteed, 1),
        (Some(""), KubeQos::Burstable, 2),
        (None, KubeQos::Guaranteed, 1),
        (None, KubeQos::Burstable, 2),
        (None, KubeQos::BestEffort, 3),
    ] {
        let mut pod = Pod { kube_qos, ..pod() };
        pod.labels.extend(label.map(|label| ("koordinator.sh/qosClass".to_owned(), label.to_owned())));
        assert_eq!(values(&layers, &pod)["minLimitPercent"], expected, "{label:?} {kube_qos:?}");
    }
}

#[test]
fn a_class_that_is_not_enabled_has_no_fields() {
    for class in [
        r#"{"minLimitPercent": 9}"#,
        r#"{"enable": false, "minLimitPercent": 9}"#,
        r#"{"enable": null, "minLimitPercent": 9}"#,
        "null",
        "{}",
    ] {
        for name in ["lsrClass", "lsClass", "beClass", "systemClass"] {
            let layers = built(memory(), &[cluster(&format!(r#"{{"{name}": {{"memoryQOS": {class}}}}}"#))]);
            for qos in ["LSR", "LS", "BE", "SYSTEM"] {
                let pod = Pod { labels: [("koordinator.sh/qosClass".into(), qos.into())].into(), ..pod() };
                assert_eq!(values(&layers, &pod), json!({}), "{name}: {class}");
            }
            assert_eq!(
                Value::Object(layers.classes()),
                json!({"lsrClass": {}, "lsClass": {}, "beClass": {}, "systemClass": {}})
            );
        }
    }
}

#[test]
fn an_enabled_class_has_the_defaults_beneath_its_fields() {
    let layers = built(memory(), &[cluster(r#"{"lsClass": {"memoryQOS": {"enable": true, "wmarkRatio": 0}}}"#)]);
    let expected = json!({"wmarkRatio": 0, "wmarkScalePermill": 20, "wmarkMinAdj": -25});
    assert_eq!(values(&layers, &pod()), expected);
    assert_eq!(Value::Object(layers.classes())["lsClass"], expected);
    assert_eq!(Value::Object(layers.classes())["beClass"], json!({}));
}

#[test]
fn a_node_strategy_can_enable_and_disable_a_class() {
    let with = |cluster: &str, node: &str| {
        let text = format!(
            r#"{{"clusterStrategy": {{"lsClass": {{"memoryQOS": {cluster}}}}},
                 "nodeStrategies": [{{"nodeSelector": {{}}, "lsClass": {{"memoryQOS": {node}}}}}]}}"#
        );
        values(&built(memory(), &[ack("resource-qos-config", &text)]), &pod())
    };
    assert_eq!(with(r#"{"enable": true, "minLimitPercent": 1}"#, r#"{"enable": false}"#), json!({}));
    assert_eq!(with(r#"{"minLimitPercent": 1}"#, r#"{"enable": true}"#)["minLimitPercent"], 1);
    assert_eq!(with(r#"{"enable": true, "minLimitPercent": 1}"#, r#"{"minLimitPercent": 2}"#)["minLimitPercent"], 2);
    assert_eq!(with(r#"{"enable": true, "minLimitPercent": 1}"#, r#"{"minLimitPercent": null}"#)["minLimitPercent"], 1);
    assert_eq!(with(r#"{"enable": true, "minLimitPercent": 1}"#, r#"{"minLimitPercent": 0}"#)["minLimitPercent"], 0);
}

#[test]
fn an_annotation_counts_although_the_class_is_disabled() {
    let layers = built(memory(), &[cluster(r#"{"lsClass": {"memoryQOS": {"enable": false, "lowLimitPercent": 9}}}"#)]);
    for (text, expected) in [
        (r#"{"minLimitPercent": 5}"#, json!({"minLimitPercent": 5})),
        (r#"{"policy": "default", "minLimitPercent": 5}"#, json!({"minLimitPercent": 5})),
        (
            r#"{"policy": "auto"}"#,
            json!({"policy": "auto", "wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25}),
        ),
        (r#"{"policy": "none"}"#, json!({"policy": "none"})),
        (r#"{"policy": "default"}"#, json!({})),
    ] {
        assert_eq!(values(&layers, &annotated(MEMORY, text)), expected, "{text}");
    }
}

#[test]
fn a_preset_starts_anew_and_takes_explicit_fields_on_top() {
    let config = r#"{"lsClass": {"memoryQOS": {"enable": true, "minLimitPercent": 9, "pageCacheEnable": true, "wmarkRatio": 1}}}"#;
    let layers = built(memory(), &[cluster(config)]);
    let effective = layers.for_pod(&annotated(MEMORY, r#"{"policy": "auto", "wmarkMinAdj": 0, "lowLimitPercent": 3}"#));
    assert_eq!(
        Value::Object(effective.values.clone()),
        json!({"policy": "auto", "wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": 0, "lowLimitPercent": 3})
    );
    insta::assert_snapshot!(origins(&effective), @r"
    lowLimitPercent <- annotation koordinator.sh/memoryQOS
    policy <- annotation koordinator.sh/memoryQOS
    wmarkMinAdj <- annotation koordinator.sh/memoryQOS
    wmarkRatio <- policy auto of annotation koordinator.sh/memoryQOS
    wmarkScalePermill <- policy auto of annotation koordinator.sh/memoryQOS
    ");
    let none = layers.for_pod(&annotated(MEMORY, r#"{"policy": "none", "minLimitPercent": 50}"#));
    assert_eq!(Value::Object(none.values), json!({"policy": "none"}));
}

#[test]
fn a_preset_is_that_of_the_pods_class() {
    let layers = built(memory(), &[]);
    for (qos, min_adj) in
        [("LSE", json!(-25)), ("LSR", json!(-25)), ("LS", json!(-25)), ("BE", json!(50)), ("SYSTEM", Value::Null)]
    {
        let mut pod = annotated(MEMORY, r#"{"policy": "auto"}"#);
        pod.labels.insert("koordinator.sh/qosClass".into(), qos.into());
        let values = values(&layers, &pod);
        assert_eq!(values.get("wmarkMinAdj").cloned().unwrap_or_default(), min_adj, "{qos}");
    }
}

#[test]
fn a_word_beside_the_switch_of_a_class_is_ignored_and_the_numbers_count() {
    for word in [r#""none""#, r#""auto""#, "5"] {
        let class =
            format!(r#"{{"lsClass": {{"memoryQOS": {{"enable": true, "policy": {word}, "minLimitPercent": 50}}}}}}"#);
        let (layers, problems) = build(memory(), &[cluster(&class)]);
        let effective = values(&layers, &pod());
        assert_eq!(
            effective,
            json!({"minLimitPercent": 50, "wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25}),
            "{word}"
        );
        assert_eq!(
            problems,
            [
                "ConfigMap kube-system/ack-slo-config: resource-qos-config: clusterStrategy.lsClass.memoryQOS.policy: ignored: only annotations can set it, a class has `enable`; the other fields count"
            ]
        );
    }
    // The empty word is no word.
    let class = r#"{"lsClass": {"memoryQOS": {"enable": true, "policy": ""}}}"#;
    built(memory(), &[cluster(class)]);
}

#[test]
fn the_empty_word_means_the_next_layer_with_a_value() {
    let config = ack("cpu-burst-config", r#"{"clusterStrategy": {"policy": "cpuBurstOnly"}}"#);
    {
        let pod = annotated(BURST, r#"{"policy": "", "cpuBurstPercent": 5}"#);
        let without = built(burst(), std::slice::from_ref(&config));
        assert_eq!(values(&without, &pod)["policy"], "cpuBurstOnly");
        assert_eq!(values(&without, &pod)["cpuBurstPercent"], 5);
        let with = built(burst(), &[config.clone(), listed(r#""default""#, "")]);
        assert_eq!(values(&with, &pod)["policy"], "auto");
        let effective = with.for_pod(&pod);
        let map = "kube-system/ack-slo-pod-config".to_owned();
        assert_eq!(effective.origins["policy"], Layer::NamespaceList { map });
    }
    let layers = built(burst(), &[ack("cpu-burst-config", r#"{"clusterStrategy": {"policy": ""}}"#)]);
    assert_eq!(values(&layers, &pod())["policy"], "none");
    assert_eq!(layers.for_pod(&pod()).origins["policy"], Layer::BuiltIn);
}

#[test]
fn namespace_lists_count_beneath_every_annotation() {
    for (namespaces, annotation, expected) in [
        (
            listed(r#""default""#, ""),
            "",
            json!({"policy": "auto", "wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25}),
        ),
        (
            listed(r#""default""#, ""),
            r#"{"wmarkRatio": 1}"#,
            json!({"policy": "auto", "wmarkRatio": 1, "wmarkScalePermill": 20, "wmarkMinAdj": -25}),
        ),
        (listed(r#""default""#, ""), r#"{"policy": "none"}"#, json!({"policy": "none"})),
        (listed("", r#""default""#), "", json!({"policy": "none"})),
        (listed("", r#""default""#), r#"{"policy": "default"}"#, json!({"policy": "none"})),
        (listed("", r#""default""#), r#"{"minLimitPercent": 5}"#, json!({"minLimitPercent": 5})),
        (
            listed("", r#""default""#),
            r#"{"policy": "auto"}"#,
            json!({"policy": "auto", "wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25}),
        ),
        (listed(r#""other""#, r#""others""#), "", json!({})),
    ] {
        let pod = if annotation.is_empty() { pod() } else { annotated(MEMORY, annotation) };
        assert_eq!(values(&built(memory(), &[namespaces]), &pod), expected, "{annotation}");
    }
}

#[test]
fn a_broken_annotation_falls_back_to_the_namespace_list_for_every_policy() {
    for (protocol, key) in [(memory(), MEMORY), (burst(), BURST)] {
        for text in ["", "{", r#"{"policy": 5}"#] {
            let effective = built(protocol.clone(), &[listed(r#""default""#, "")]).for_pod(&annotated(key, text));
            assert_eq!(effective.values["policy"], "auto", "{text}");
            assert_eq!(effective.problems.len(), 1, "{text}");
        }
    }
}

#[test]
fn a_preset_of_a_disabled_namespace_drops_what_lies_beneath() {
    let config = cluster(r#"{"lsClass": {"memoryQOS": {"enable": true, "minLimitPercent": 9}}}"#);
    let layers = built(memory(), &[config, listed("", r#""default""#)]);
    assert_eq!(values(&layers, &pod()), json!({"policy": "none"}));
    assert_eq!(layers.classes()["lsClass"]["minLimitPercent"], 9);
}

#[test]
fn a_class_without_a_switch_is_on_where_it_is_written() {
    let protocol = || Protocol { class_field: Some("memoryLocality".into()), node_only_fields: vec![], ..memory() };
    let values = |text: &str| built(protocol(), &[ack("resource-qos-config", text)]).for_pod(&pod()).values;
    let written = values(r#"{"clusterStrategy":{"lsClass":{"memoryLocality":{"policy":"auto"}}}}"#);
    assert_eq!(written["policy"], "auto");
    assert!(values(r#"{"clusterStrategy":{"beClass":{"memoryLocality":{"policy":"auto"}}}}"#).is_empty());
    assert!(values(r#"{"clusterStrategy":{"lsClass":{"memoryQOS":{"enable":true}}}}"#).is_empty());
}
