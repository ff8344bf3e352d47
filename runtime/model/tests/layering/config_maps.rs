//! Names and keys of ConfigMaps, and how unusable ones are treated.

use super::*;

fn percent(maps: &[ConfigMap]) -> (Value, Vec<String>) {
    let (layers, problems) = build(burst(), maps);
    (layers.classes()["cpuBurstPercent"].clone(), problems)
}

fn burst_in(home: &str, percent: u32) -> ConfigMap {
    map(home, &[("cpu-burst-config", &format!(r#"{{"clusterStrategy": {{"cpuBurstPercent": {percent}}}}}"#))])
}

#[test]
fn both_names_are_read_in_both_namespaces_and_without_one() {
    for name in ["slo-controller-config", "ack-slo-config"] {
        for home in ["koordinator-system/", "kube-system/", ""] {
            assert_eq!(percent(&[burst_in(&format!("{home}{name}"), 7)]), (json!(7), vec![]), "{home}{name}");
        }
    }
}

#[test]
fn koordinators_own_name_wins_and_a_conflict_is_reported() {
    let maps = [burst_in("kube-system/ack-slo-config", 1), burst_in("koordinator-system/slo-controller-config", 2)];
    let (value, problems) = percent(&maps);
    assert_eq!(value, 2);
    insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-config: cpu-burst-config: ignored: ConfigMap koordinator-system/slo-controller-config holds this key too, says something else and comes first; remove the key from one of them");
    let same = [burst_in("kube-system/ack-slo-config", 2), burst_in("koordinator-system/slo-controller-config", 2)];
    assert_eq!(percent(&same), (json!(2), vec![]));
}

#[test]
fn which_name_wins_is_decided_key_by_key() {
    let koordinator = map("koordinator-system/slo-controller-config", &[("resource-qos-config", "{}")]);
    assert_eq!(percent(&[koordinator, burst_in("kube-system/ack-slo-config", 3)]), (json!(3), vec![]));
}

#[test]
fn other_names_and_namespaces_are_reported() {
    let maps = [
        burst_in("default/slo-controller-config", 1),
        burst_in("default/ack-slo-config", 1),
        map("team-a/ack-slo-pod-config", &[]),
        burst_in("kube-system/slo-config", 1),
    ];
    let (value, problems) = percent(&maps);
    assert_eq!(value, 1000);
    insta::assert_snapshot!(problems.join("\n"), @r"
    ConfigMap default/slo-controller-config: ignored: expected in namespace koordinator-system; move it there
    ConfigMap default/ack-slo-config: ignored: expected in namespace kube-system; move it there
    ConfigMap team-a/ack-slo-pod-config: ignored: expected in namespace kube-system or koordinator-system; move it there
    ConfigMap kube-system/slo-config: ignored: no policy reads a ConfigMap of this name; known are slo-controller-config, ack-slo-config and ack-slo-pod-config
    ");
}

#[test]
fn the_same_configmap_twice_counts_once() {
    let (value, problems) =
        percent(&[burst_in("kube-system/ack-slo-config", 1), burst_in("kube-system/ack-slo-config", 2)]);
    assert_eq!(value, 1);
    assert!(problems.len() == 1 && problems[0].contains("was read before"), "{problems:?}");
}

#[test]
fn a_nearly_right_key_is_reported() {
    let (value, problems) = percent(&[ack("cpu-burst-cofnig", "{}")]);
    assert_eq!(value, 1000);
    insta::assert_snapshot!(problems.join("\n"), @"ConfigMap kube-system/ack-slo-config: cpu-burst-cofnig: no policy reads this key; did you mean `cpu-burst-config`?");
    let others = ["resource-qos-config", "resource-threshold-config", "system-config", "colocation-config", "note"];
    let map = map("kube-system/ack-slo-config", &others.map(|key| (key, "{")));
    assert_eq!(percent(&[map]), (json!(1000), vec![]));
}

#[test]
fn a_key_in_another_spelling_is_reported() {
    let lists = "kube-system/ack-slo-pod-config";
    for (home, meant, written) in [
        ("kube-system/ack-slo-config", "cpu-burst-config", &["CPU-BURST-CONFIG", "cpuBurstConfig", "cpu_burst_confg"]),
        (lists, "cpu-burst", &["CPU-Burst", "cpuBurst", "cpu-brst"]),
    ] {
        for written in written {
            let (_, problems) = percent(&[map(home, &[(written, "{}")])]);
            let said = format!("ConfigMap {home}: {written}: no policy reads this key; did you mean `{meant}`?");
            assert_eq!(problems, [said]);
        }
    }
    assert_eq!(percent(&[map(lists, &[("cpu-qos", "{}"), ("memory-qos", "{}")])]).1, Vec::<String>::new());
}

#[test]
fn a_key_in_the_wrong_configmap_is_reported() {
    let lists = map("kube-system/ack-slo-pod-config", &[("cpu-burst-config", "{}")]);
    let (_, problems) = percent(&[lists, ack("cpu-burst", "{}")]);
    insta::assert_snapshot!(problems.join("\n"), @r"
    ConfigMap kube-system/ack-slo-pod-config: cpu-burst-config: ignored: no policy reads this key here; put it into ConfigMap slo-controller-config or ack-slo-config
    ConfigMap kube-system/ack-slo-config: cpu-burst: ignored: no policy reads this key here; put it into ConfigMap ack-slo-pod-config
    ");
}

#[test]
fn misspelt_classes_and_features_are_reported() {
    let enabled = r#"{"memoryQOS": {"enable": true}}"#;
    for (strategy, field, said) in [
        (format!(r#"{{"lsClas": {enabled}}}"#), "lsClas", "did you mean `lsClass`?"),
        (format!(r#"{{"systemClas": {enabled}}}"#), "systemClas", "did you mean `systemClass`?"),
        (r#"{"cgroupRot": "/"}"#.to_owned(), "cgroupRot", "did you mean `cgroupRoot`?"),
        (
            r#"{"lsClass": {"memoryQSO": {"enable": true}}}"#.to_owned(),
            "lsClass.memoryQSO",
            "did you mean `memoryQOS`?",
        ),
        (r#"{"beClass": {"cpuQO": {"enable": true}}}"#.to_owned(), "beClass.cpuQO", "did you mean `cpuQOS`?"),
        (enabled.to_owned(), "memoryQOS", "it is a field of a class; put it into one, e.g. `lsClass`"),
    ] {
        let text = format!(r#"{{"clusterStrategy": {strategy}}}"#);
        let (_, problems) = build(memory(), &[ack("resource-qos-config", &text)]);
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let place = format!("resource-qos-config: clusterStrategy.{field}: ");
        assert!(problems[0].contains(&place) && problems[0].ends_with(said), "{text}: {problems:?}");
    }
}

#[test]
fn a_key_that_cannot_be_used_is_refused_with_the_field_named() {
    for (text, part) in [
        ("", "cpu-burst-config: the text is empty"),
        ("{", "cpu-burst-config: it is not JSON"),
        ("[]", "cpu-burst-config: it is not a JSON object"),
        (r#"{"clusterStrategy": "auto"}"#, "clusterStrategy: it is not a JSON object"),
        (
            r#"{"clusterStrategy": {"cpuBurstPercent": "9"}}"#,
            r#"clusterStrategy.cpuBurstPercent: `"9"` is not a whole number"#,
        ),
        (
            r#"{"clusterStrategy": {"cpuBurstPercent": 9.0}}"#,
            "clusterStrategy.cpuBurstPercent: 9.0 is not a whole number",
        ),
        (r#"{"clusterStrategy": {"cpuBurstPercent": 0}}"#, "clusterStrategy.cpuBurstPercent: 0 is below 1"),
        (r#"{"nodeStrategies": {}}"#, "nodeStrategies: it is not a list"),
        (r#"{"nodeStrategies": [5]}"#, "nodeStrategies[0]: it is not a JSON object"),
        (
            r#"{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"x": "y"}}, "cpuBurstPercent": 0}]}"#,
            "nodeStrategies[0].cpuBurstPercent: 0 is below 1",
        ),
    ] {
        let (value, problems) = percent(&[ack("cpu-burst-config", text)]);
        assert_eq!(value, 1000, "{text}");
        assert!(problems.len() == 1 && problems[0].contains(part), "{text}: {problems:?}");

        let (before, _) =
            Layers::build(compiled(burst()), &[burst_in("kube-system/ack-slo-config", 7)], &Node::default(), None);
        let bad = [ack("cpu-burst-config", text)];
        let (after, problems) = Layers::build(compiled(burst()), &bad, &Node::default(), Some(before.good_texts()));
        assert_eq!(after.classes()["cpuBurstPercent"], 7, "{text}");
        assert!(texts(&problems)[0].contains("its last good text counts on"), "{problems:?}");
        // A second time: the good text is kept for as long as the bad one is there.
        let (again, _) = Layers::build(compiled(burst()), &bad, &Node::default(), Some(after.good_texts()));
        assert_eq!(again.classes()["cpuBurstPercent"], 7, "{text}");
    }
}

#[test]
fn the_text_of_a_refusal() {
    let text = r#"{"clusterStrategy": {"lsClass": {"memoryQOS": {"enable": "yes", "wmarkRatio": 150}}}}"#;
    let (_, problems) = build(memory(), &[ack("resource-qos-config", text)]);
    insta::assert_snapshot!(problems.join("\n"), @r"
    ConfigMap kube-system/ack-slo-config: resource-qos-config: clusterStrategy.lsClass.memoryQOS.enable: it is not true or false; the whole key is refused and says nothing; write true or false
    ConfigMap kube-system/ack-slo-config: resource-qos-config: clusterStrategy.lsClass.memoryQOS.wmarkRatio: 150 is above 100; the whole key is refused and says nothing; write a whole number from 0 to 100
    ");
}

#[test]
fn a_refused_key_leaves_the_other_configmap_to_count() {
    let maps = [
        map("koordinator-system/slo-controller-config", &[("cpu-burst-config", "{")]),
        burst_in("kube-system/ack-slo-config", 3),
    ];
    let (value, problems) = percent(&maps);
    assert_eq!((value, problems.len()), (json!(3), 1));
}

#[test]
fn a_removed_key_or_configmap_means_defaults() {
    let (before, _) =
        Layers::build(compiled(burst()), &[burst_in("kube-system/ack-slo-config", 7)], &Node::default(), None);
    for maps in [vec![], vec![ack("other", "")]] {
        let (after, problems) = Layers::build(compiled(burst()), &maps, &Node::default(), Some(before.good_texts()));
        assert_eq!(after.classes()["cpuBurstPercent"], 1000);
        assert_eq!(problems, []);
        // A text that becomes invalid later does not restore a key that was removed before.
        let bad = [ack("cpu-burst-config", "{")];
        let (later, _) = Layers::build(compiled(burst()), &bad, &Node::default(), Some(after.good_texts()));
        assert_eq!(later.classes()["cpuBurstPercent"], 1000);
    }
}

#[test]
fn a_last_good_text_counts_only_where_it_fits_the_new_protocol() {
    let (before, _) =
        Layers::build(compiled(burst()), &[burst_in("kube-system/ack-slo-config", 7)], &Node::default(), None);
    let mut stricter = burst();
    stricter.schema["properties"]["cpuBurstPercent"]["minimum"] = json!(8);
    let (after, _) =
        Layers::build(compiled(stricter), &[ack("cpu-burst-config", "{")], &Node::default(), Some(before.good_texts()));
    assert_eq!(after.classes()["cpuBurstPercent"], 1000);
}

#[test]
fn other_features_fields_are_never_an_error() {
    let text = r#"{
        "clusterStrategy": {
            "policies": {"cpuPolicy": 5}, "cgroupRoot": [], "whatever": "x",
            "lsClass": {"cpuQOS": "nonsense", "blkioQOS": {"enable": 7}, "resctrlQOS": null,
                        "memoryQOS": {"enable": true, "minLimitPercent": 4}}
        }
    }"#;
    let layers = built(memory(), &[ack("resource-qos-config", text)]);
    assert_eq!(layers.classes()["lsClass"]["minLimitPercent"], 4);
}

#[test]
fn unknown_fields_within_our_object_are_reported_and_ignored() {
    let text = r#"{
        "clusterStrategy": {"lsClass": {"memoryQOS": {"enable": true, "minLimitPercen": 4, "colour": 1}}},
        "nodeStrategy": []
    }"#;
    let (layers, problems) = build(memory(), &[ack("resource-qos-config", text)]);
    assert_eq!(layers.classes()["lsClass"]["wmarkRatio"], 95);
    insta::assert_snapshot!(problems.join("\n"), @r"
    ConfigMap kube-system/ack-slo-config: resource-qos-config: clusterStrategy.lsClass.memoryQOS.minLimitPercen: unknown field, ignored; the other fields count; did you mean `minLimitPercent`?
    ConfigMap kube-system/ack-slo-config: resource-qos-config: clusterStrategy.lsClass.memoryQOS.colour: unknown field, ignored; the other fields count; known here: lowLimitPercent, minLimitPercent, pageCacheEnable, pageCacheLimitSize, policy, throttlingPercent, wmarkMinAdj, wmarkRatio, wmarkScalePermill
    ConfigMap kube-system/ack-slo-config: resource-qos-config: nodeStrategy: unknown field, ignored; the other fields count; did you mean `nodeStrategies`?
    ");
    let (layers, problems) =
        build(burst(), &[ack("cpu-burst-config", r#"{"clusterStrategy": {"cpuBurstPercnt": 4}}"#)]);
    assert_eq!(layers.classes()["cpuBurstPercent"], 1000);
    assert_eq!(problems.len(), 1);
}

#[test]
fn names_are_taken_in_any_letter_case_on_the_whole_way() {
    let text = r#"{"ClusterStrategy": {"LSCLASS": {"memoryqos": {"Enable": true, "MINLimitPercent": 4}},
                                       "lsClass": {"memoryQOS": {"lowLimitPercent": 5}}}}"#;
    let layers = built(memory(), &[ack("resource-qos-config", text)]);
    let class = &layers.classes()["lsClass"];
    assert_eq!((&class["minLimitPercent"], &class["lowLimitPercent"]), (&json!(4), &json!(5)));
}

#[test]
fn the_documents_own_examples_are_read() {
    let text = r#"{"clusterStrategy": {"lsClass": {"memoryQOS": {"enable": true}}, "beClass": {"memoryQOS": {"enable": true}}}}"#;
    let layers = built(memory(), &[ack("resource-qos-config", text)]);
    assert_eq!(
        Value::Object(layers.classes()),
        json!({
            "lsrClass": {}, "systemClass": {},
            "lsClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25},
            "beClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": 50},
        })
    );
    let text = r#"{
        "clusterStrategy": {
            "policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300, "sharePoolThresholdPercent": 50,
            "cfsQuotaBurstPeriodSeconds": -1
        }
    }"#;
    assert_eq!(built(burst(), &[ack("cpu-burst-config", text)]).classes()["policy"], "auto");
}

#[test]
fn a_null_key_counts_as_absent() {
    for text in ["null", "{}", r#"{"clusterStrategy": null}"#] {
        assert_eq!(percent(&[ack("cpu-burst-config", text)]), (json!(1000), vec![]), "{text}");
    }
}
