use std::collections::BTreeMap;

use super::*;

fn map(namespace: Option<&str>, name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    ConfigMap { namespace: namespace.map(str::to_owned), name: name.to_owned(), data }
}

fn koordinator(data: &[(&str, &str)]) -> ConfigMap {
    map(Some("koordinator-system"), "slo-controller-config", data)
}

fn node(labels: &[(&str, &str)]) -> Node {
    let labels: BTreeMap<_, _> = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Node { labels, ..Node::default() }
}

fn messages(problems: &[(String, Problem)]) -> String {
    problems.iter().map(|(_, problem)| problem.to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_strategy_is_the_clusters_with_the_first_matching_nodes_merged_over_it() {
    let batch = node(&[("pool", "batch")]);
    for (text, expected) in [
        ("{}", "{}"),
        ("null", "{}"),
        (r#"{"clusterStrategy": null, "nodeStrategies": null}"#, "{}"),
        (r#"{"enable": true, "nodeConfigs": [{"enable": false}]}"#, "{}"),
        (r#"{"clusterStrategy": {"enable": true, "percent": 65}}"#, r#"{"enable":true,"percent":65}"#),
        (
            r#"{"clusterStrategy": {"enable": true, "percent": 65, "list": [1, 2], "deep": {"a": 1, "b": 2}},
                "nodeStrategies": [
                    {"name": "other", "nodeSelector": {"matchLabels": {"pool": "web"}}, "percent": 1},
                    {"name": "batch", "nodeSelector": {"matchLabels": {"pool": "batch"}},
                     "enable": false, "percent": null, "list": [3], "deep": {"b": 0, "c": null}},
                    {"name": "late", "nodeSelector": {}, "percent": 2}]}"#,
            r#"{"enable":false,"percent":65,"list":[3],"deep":{"a":1,"b":0}}"#,
        ),
        // An empty `policy` counts as absent, at any depth and in any letter case; so does an entry without a selector.
        (
            r#"{"clusterStrategy": {"policy": "auto", "lsClass": {"policy": "x", "n": 1}},
                "nodeStrategies": [{"policy": "none"}, {"nodeSelector": {}, "POLICY": "", "LSClass": {"Policy": "", "N": 0}}]}"#,
            r#"{"policy":"auto","lsClass":{"policy":"x","n":0}}"#,
        ),
        (r#"{"clusterStrategy": {"policy": ""}, "nodeStrategies": [null]}"#, "{}"),
        (
            r#"{"clusterStrategy": {"cpuSuppressPolicy": "cfsQuota", "cpuEvictPolicy": "evictByAllocatable", "other": "x"},
                "nodeStrategies": [{"nodeSelector": {}, "cpuSuppressPolicy": "", "CPUEvictPolicy": "", "other": ""}]}"#,
            r#"{"cpuSuppressPolicy":"cfsQuota","cpuEvictPolicy":"evictByAllocatable","other":""}"#,
        ),
        // Of several spellings of a name the last counts, as in Go's decoder; a later `null` takes the field away.
        (
            r#"{"clusterStrategy": {"percent": 1, "Percent": 2, "enable": true, "ENABLE": null,
                "list": [{"B": 1, "a": 2, "b": 3}], "deep": {"X": 1, "y": 2}, "Deep": {"x": 3}}}"#,
            r#"{"Percent":2,"list":[{"a":2,"b":3}],"Deep":{"x":3,"y":2}}"#,
        ),
        (r#"{"nodeStrategies": [{"nodeSelector": {"bad": 1}, "a": 1}, {"nodeSelector": {}, "a": 2}]}"#, r#"{"a":2}"#),
    ] {
        let (read, _) = ClusterConfig::read(&[koordinator(&[("key", text)])], &batch, None);
        let strategy = &read.get("key").unwrap().strategy;
        let (found, wanted): (Value, Value) =
            (serde_json::from_str(strategy).unwrap(), serde_json::from_str(expected).unwrap());
        assert_eq!(found, wanted, "{text}");
        assert_eq!(read.get("key").unwrap().text, text);
    }
}

#[test]
fn a_problem_of_a_policy_names_the_layer_that_the_field_is_from() {
    let text = r#"{"clusterStrategy": {"percent": 1, "beClass": {"cpuQOS": {"a": 1}, "blocks": [{"type": "x"}]}},
        "nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "web"}}, "percent": 2},
                           {"nodeSelector": {}, "Percent": 3, "beClass": {"cpuQOS": {"b": 2}}}]}"#;
    let (read, _) = ClusterConfig::read(&[koordinator(&[("key", text)])], &Node::default(), None);
    let field = |field: &str| {
        let problem = KeyProblem { key: "key".into(), field: field.into(), message: "it is wrong".into() };
        read.problem("mine", &problem).field.unwrap()
    };
    for (of, expected) in [
        ("percent", "key: nodeStrategies[1].percent"),
        ("beClass.cpuQOS.a", "key: clusterStrategy.beClass.cpuQOS.a"),
        ("beClass.cpuQOS.b", "key: nodeStrategies[1].beClass.cpuQOS.b"),
        ("beClass.blocks[0].type", "key: clusterStrategy.beClass.blocks[0].type"),
        // A missing field, one of a key with other layers, and the key itself.
        ("beClass.cpuQOS.c", "key: beClass.cpuQOS.c"),
        ("nodeConfigs[0].a", "key: nodeConfigs[0].a"),
        ("", "key"),
    ] {
        assert_eq!(field(of), expected);
    }
}

#[test]
fn a_field_beside_the_strategies_is_named_where_the_key_has_none() {
    let flat = r#"{"enable": true, "nodeStrategie": [], "clusterStrategy": {"enable": false}, "comment": null}"#;
    let maps =
        [koordinator(&[("resource-threshold-config", flat), ("colocation-config", flat), ("example.com/own", flat)])];
    let (read, problems) = ClusterConfig::read(&maps, &Node::default(), None);
    assert_eq!(read.get("resource-threshold-config").unwrap().strategy, r#"{"enable":false}"#);
    insta::assert_snapshot!(messages(&problems), @r"
    ConfigMap koordinator-system/slo-controller-config: resource-threshold-config: enable: unknown field, ignored; the other fields count; known here: clusterStrategy, nodeStrategies
    ConfigMap koordinator-system/slo-controller-config: resource-threshold-config: nodeStrategie: unknown field, ignored; the other fields count; did you mean `nodeStrategies`?
    ");
}

#[test]
fn a_text_that_cannot_be_read_leaves_the_last_one_that_could() {
    let read = |text: &str, previous: Option<&ClusterConfig>| {
        let previous = previous.map(ClusterConfig::good_texts);
        ClusterConfig::read(&[koordinator(&[("key", text), ("other", "{}")])], &Node::default(), previous)
    };
    let good = r#"{"clusterStrategy": {"a": 1}}"#;
    for broken in [
        "",
        " ",
        "{",
        "[]",
        "7",
        r#"{"clusterStrategy": []}"#,
        r#"{"nodeStrategies": {}}"#,
        r#"{"nodeStrategies": [1]}"#,
    ] {
        let (never, problems) = read(broken, None);
        assert_eq!((never.get("key"), never.get("other").is_some()), (None, true), "{broken}");
        assert_eq!(problems.len(), 1, "{broken}");
        assert!(messages(&problems).contains("says nothing"), "{}", messages(&problems));
        let (first, _) = read(good, None);
        let (kept, problems) = read(broken, Some(&first));
        assert_eq!(kept.get("key"), first.get("key"), "{broken}");
        assert!(messages(&problems).contains("its last good text counts on"), "{}", messages(&problems));
        // The last good text also survives a second bad reading.
        assert_eq!(read(broken, Some(&kept)).0.get("key"), first.get("key"), "{broken}");
    }
    for (depth, is_read) in [(64, true), (65, false)] {
        let text = format!(r#"{{"a": {}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
        assert_eq!(read(&text, None).0.get("key").is_some(), is_read, "{depth}");
    }
    let (first, _) = read(good, None);
    let (gone, problems) = ClusterConfig::read(&[koordinator(&[])], &Node::default(), Some(first.good_texts()));
    assert!(gone.get("key").is_none() && problems.is_empty(), "a key that is removed is removed");
    assert!(
        ClusterConfig::read(&[koordinator(&[("key", "{")])], &Node::default(), Some(gone.good_texts()))
            .0
            .get("key")
            .is_none()
    );
}

#[test]
fn a_last_good_text_follows_the_nodes_labels() {
    let text = r#"{"nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "batch"}}, "a": 1}]}"#;
    let (first, _) = ClusterConfig::read(&[koordinator(&[("key", text)])], &Node::default(), None);
    assert_eq!(first.get("key").unwrap().strategy, "{}");
    let batch = node(&[("pool", "batch")]);
    let (kept, _) = ClusterConfig::read(&[koordinator(&[("key", "{")])], &batch, Some(first.good_texts()));
    assert_eq!(kept.get("key").unwrap().strategy, r#"{"a":1}"#);
}

#[test]
fn koordinators_own_config_map_comes_before_the_products() {
    let text = |name: &str| format!(r#"{{"clusterStrategy": {{"from": "{name}"}}}}"#);
    let maps = [
        map(Some("kube-system"), "ack-slo-config", &[("key", &text("ack")), ("own", &text("ack"))]),
        map(None, "slo-controller-config", &[("key", &text("nowhere"))]),
        koordinator(&[("key", &text("home"))]),
        map(Some("default"), "slo-controller-config", &[("stray", "{}")]),
        map(Some("kube-system"), "ack-slo-pod-config", &[("lists", "{}")]),
    ];
    let (read, problems) = ClusterConfig::read(&maps, &Node::default(), None);
    assert_eq!(read.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["key", "own"]);
    assert_eq!((&read.get("key").unwrap().text, &read.get("own").unwrap().text), (&text("home"), &text("ack")));
    insta::assert_snapshot!(messages(&problems), @r"
    ConfigMap slo-controller-config: key: ignored: ConfigMap koordinator-system/slo-controller-config holds this key too, says something else and comes first; remove the key from one of them
    ConfigMap kube-system/ack-slo-config: key: ignored: ConfigMap koordinator-system/slo-controller-config holds this key too, says something else and comes first; remove the key from one of them
    ");
    // If the first ConfigMap cannot be read, the next one counts.
    let maps = [koordinator(&[("key", "{")]), map(Some("kube-system"), "ack-slo-config", &[("key", &text("ack"))])];
    assert_eq!(ClusterConfig::read(&maps, &Node::default(), None).0.get("key").unwrap().text, text("ack"));
}

#[test]
fn misspelt_keys_are_reported_and_keys_of_others_are_not() {
    for (written, meant) in [
        ("resource-threshold-confg", "resource-threshold-config"),
        ("colocation-cofig", "colocation-config"),
        ("sytem-config", "system-config"),
    ] {
        let (_, problems) = ClusterConfig::read(&[koordinator(&[(written, "{}")])], &Node::default(), None);
        let expected = format!(
            "ConfigMap koordinator-system/slo-controller-config: {written}: no policy reads this key; did you mean `{meant}`?"
        );
        assert_eq!((messages(&problems), problems[0].0.as_str()), (expected, ""));
    }
    for others in ["note", "cpu-qos", "my-own-config"] {
        let (_, problems) = ClusterConfig::read(&[koordinator(&[(others, "{}")])], &Node::default(), None);
        assert_eq!(messages(&problems), "", "{others}");
    }
}

#[test]
fn misspelt_fields_of_strategies_are_reported_and_unknown_ones_are_not() {
    let strategies = |fields: &str| {
        format!(r#"{{"clusterStrategy": {fields}, "nodeStrategies": [{{"nodeSelector": {{}}, {}]}}"#, &fields[1..])
    };
    let configs =
        |fields: &str| format!(r#"{{"nodeConfigs": [{{"nodeSelector": {{}}, {}], {}"#, &fields[1..], &fields[1..]);
    let said = |path: &str, meant: &str| {
        format!("{path}: unknown field, ignored; the other fields count; did you mean `{meant}`?")
    };
    for (key, text, expected) in [
        (
            "resource-threshold-config",
            strategies(r#"{"CPUSuppressPolicy": "cpuset", "cpuSupressThresholdPercent": 30}"#),
            ["clusterStrategy.", "nodeStrategies[0]."]
                .map(|path| said(&format!("{path}cpuSupressThresholdPercent"), "cpuSuppressThresholdPercent")),
        ),
        (
            "system-config",
            strategies(r#"{"minFreeKbytesFacto": 150}"#),
            ["clusterStrategy.", "nodeStrategies[0]."]
                .map(|path| said(&format!("{path}minFreeKbytesFacto"), "minFreeKbytesFactor")),
        ),
        (
            "colocation-config",
            configs(r#"{"cpuReclaimTresholdPercent": 70}"#),
            ["", "nodeConfigs[0]."]
                .map(|path| said(&format!("{path}cpuReclaimTresholdPercent"), "cpuReclaimThresholdPercent")),
        ),
    ] {
        let (_, problems) = ClusterConfig::read(&[koordinator(&[(key, &text)])], &Node::default(), None);
        let place = format!("ConfigMap koordinator-system/slo-controller-config: {key}: ");
        assert_eq!(messages(&problems), expected.map(|said| format!("{place}{said}")).join("\n"), "{text}");
        let others = text.replace("Percent\"", "OfAnotherVersion\"").replace("Facto\"", "OfAnotherVersion\"");
        let (_, problems) = ClusterConfig::read(&[koordinator(&[(key, &others)])], &Node::default(), None);
        assert_eq!(messages(&problems), "", "{others}");
    }
}

#[test]
fn the_name_of_a_node_strategy_is_a_string() {
    let text = r#"{"nodeStrategies": [{"name": 5, "nodeSelector": {}, "a": 1}]}"#;
    let (read, problems) = ClusterConfig::read(&[koordinator(&[("key", text)])], &Node::default(), None);
    assert_eq!(read.get("key").unwrap().strategy, r#"{"a":1}"#);
    assert!(messages(&problems).contains("nodeStrategies[0].name: it is not a string"), "{}", messages(&problems));
}
