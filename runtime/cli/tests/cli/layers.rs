//! From ConfigMaps, namespace lists and annotations to one configuration per pod, and the messages for unusable ones.

use serde_json::{Value, json};

use crate::qosm::{Run, cluster_map, limited, plan, pod, replay};

const BURST: &str = "koordinator.sh/cpuBurst";
const OLD_BURST: &str = "alibabacloud.com/cpuBurst";

/// A node with a kernel whose bursts show the configured percentage as it is: 1000 % of one CPU are 1000000 µs.
fn node(pods: &[Value], maps: &[Value]) -> Value {
    json!({
        "host": {"cgroup": "v1", "driver": "cgroupfs", "kernel": "alibaba"},
        "node": {"metadata": {"name": "n", "labels": {"pool": "web", "zone": "b"}}},
        "policies": [{"name": "cpu-burst", "config": {"profile": "koordinator"}}],
        "pods": pods,
        "configMaps": maps,
    })
}

fn web(annotations: &Value) -> Value {
    pod("web", annotations, &json!([limited("a", "1")]))
}

/// The container's burst in the plan; 0 if none is held.
#[track_caller]
fn burst(planned: &Run) -> u64 {
    let rows = planned.rows();
    let found = rows.iter().find_map(|row| row.strip_prefix("container default/web/a cpu.burst "));
    found.map_or(0, |burst| burst.parse().unwrap())
}

fn strategy(cluster: &Value, nodes: &Value) -> Value {
    cluster_map("cpu-burst-config", &json!({"clusterStrategy": cluster, "nodeStrategies": nodes}))
}

fn lists(body: &Value, namespace: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": "ack-slo-pod-config"}, "data": {"cpu-burst": body.to_string()}})
}

#[test]
fn each_layer_wins_over_the_one_beneath_field_by_field() {
    let cluster = json!({"policy": "cpuBurstOnly", "cpuBurstPercent": 200});
    let matching = json!({"name": "web", "nodeSelector": {"matchLabels": {"pool": "web"}}, "cpuBurstPercent": 300});
    let other = json!({"nodeSelector": {"matchLabels": {"pool": "db"}}, "cpuBurstPercent": 400});
    let nothing = json!({});
    for (annotations, cluster, nodes, expected) in [
        (&nothing, &nothing, json!([]), 0),
        (&nothing, &json!({"policy": "cpuBurstOnly"}), json!([]), 1_000_000),
        (&nothing, &cluster, json!([]), 200_000),
        (&nothing, &cluster, json!([other.clone()]), 200_000),
        (&nothing, &cluster, json!([other, matching.clone()]), 300_000),
        (
            &nothing,
            &cluster,
            json!([{
                "nodeSelector": {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a", "c"]}]},
                "cpuBurstPercent": 700,
            }]),
            700_000,
        ),
        (&json!({BURST: r#"{"cpuBurstPercent":500}"#}), &cluster, json!([matching.clone()]), 500_000),
        (&json!({BURST: r#"{"policy":"none"}"#}), &cluster, json!([]), 0),
        // Empty and `null` count as not set; letter case does not matter; 0 counts as set.
        (&json!({BURST: r#"{"policy":"","CPUBurstPercent":null}"#}), &cluster, json!([]), 200_000),
        (&json!({BURST: r#"{"cpuburstpercent":600}"#}), &cluster, json!([]), 600_000),
        (&json!({BURST: r#"{"cpuBurstPercent":0}"#}), &cluster, json!([]), 0),
        (&json!({OLD_BURST: r#"{"cpuBurstPercent":800}"#}), &cluster, json!([]), 800_000),
    ] {
        let planned = plan(&node(&[web(annotations)], &[strategy(cluster, &nodes)]));
        assert_eq!(burst(&planned), expected, "{annotations} {cluster} {nodes}: {planned:#?}");
        assert_eq!((planned.code, planned.stderr.as_str()), (0, ""), "{annotations} {cluster} {nodes}");
    }
}

#[test]
fn the_first_strategy_that_matches_counts_and_later_ones_are_reported_to_be_idle() {
    let cluster = json!({"policy": "cpuBurstOnly", "cpuBurstPercent": 200});
    let strategies = json!([
        {"nodeSelector": {}},
        {"nodeSelector": {"matchLabels": {"pool": "web"}}, "cpuBurstPercent": 300},
    ]);
    let planned = plan(&node(&[web(&json!({}))], &[strategy(&cluster, &strategies)]));
    planned.says(1, &["slo-controller-config: cpu-burst-config: nodeStrategies[1]", "no effect"]);
    assert_eq!(burst(&planned), 200_000);
    // A strategy without a selector matches no node, which is reported as well.
    let strategies = json!([
        {"cpuBurstPercent": 900},
        {"nodeSelector": {"matchLabels": {"pool": "web"}}, "cpuBurstPercent": 300},
    ]);
    let planned = plan(&node(&[web(&json!({}))], &[strategy(&cluster, &strategies)]));
    planned.says(1, &["slo-controller-config: cpu-burst-config: nodeStrategies[0]", "no nodeSelector"]);
    assert_eq!(burst(&planned), 300_000);
}

#[test]
fn both_names_of_the_cluster_config_map_are_read() {
    let body = json!({"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 200}}).to_string();
    for (namespace, name) in [("koordinator-system", "slo-controller-config"), ("kube-system", "ack-slo-config")] {
        let map = json!({"metadata": {"namespace": namespace, "name": name}, "data": {"cpu-burst-config": body}});
        assert_eq!(burst(&plan(&node(&[web(&json!({}))], &[map])).says_nothing_else()), 200_000, "{name}");
    }
}

#[test]
fn namespace_lists_switch_on_and_off_from_either_namespace() {
    let on = json!({"enabledNamespaces": ["default"]});
    let off = json!({"disabledNamespaces": ["default"]});
    for home in ["kube-system", "koordinator-system"] {
        let none = strategy(&json!({"policy": "none"}), &json!([]));
        let all = strategy(&json!({"policy": "cpuBurstOnly"}), &json!([]));
        let enabled = plan(&node(&[web(&json!({}))], &[none, lists(&on, home)])).says_nothing_else();
        assert_eq!(burst(&enabled), 1_000_000);
        let disabled = plan(&node(&[web(&json!({}))], &[all.clone(), lists(&off, home)])).says_nothing_else();
        assert_eq!(burst(&disabled), 0);
        // The pod's annotation is above the list, but only if it sets the policy.
        let own = plan(&node(&[web(&json!({BURST: r#"{"policy":"auto"}"#}))], &[all.clone(), lists(&off, home)]));
        assert_eq!(burst(&own.says_nothing_else()), 1_000_000);
        let silent = plan(&node(&[web(&json!({BURST: r#"{"cpuBurstPercent":500}"#}))], &[all, lists(&off, home)]));
        assert_eq!(burst(&silent.says_nothing_else()), 0);
    }
    let both = json!({"enabledNamespaces": ["default"], "disabledNamespaces": ["default"]});
    let contradiction = plan(&node(&[web(&json!({}))], &[lists(&both, "kube-system")]));
    contradiction
        .says(1, &["problem: ConfigMap kube-system/ack-slo-pod-config: cpu-burst: disabledNamespaces", "default"]);
    assert_eq!(burst(&contradiction), 0, "off weighs more than on");
}

#[test]
fn an_annotation_that_cannot_be_used_is_reported_and_the_layer_beneath_counts() {
    let cluster = strategy(&json!({"policy": "cpuBurstOnly", "cpuBurstPercent": 200}), &json!([]));
    for (text, words) in [
        (r#"{"policy":"auto","cpuBurstPercent":"95"}"#, &["cpuBurstPercent", "a whole number"][..]),
        (r#"{"policy":"auto","cpuBurstPercent":95.5}"#, &["cpuBurstPercent", "95.5"]),
        (r#"{"policy":"auto","cpuBurstPercent":95.0}"#, &["cpuBurstPercent"]),
        (r#"{"policy":"auto","cpuBurstPercent":20000}"#, &["cpuBurstPercent", "10000"]),
        (r#"{"policy":"auto","cpuBurstPercent":-1}"#, &["cpuBurstPercent"]),
        (r#"{"policy":"auto","cfsQuotaBurstPercent":99}"#, &["cfsQuotaBurstPercent", "100"]),
        (r#"{"policy":"auto","cfsQuotaBurstPeriodSeconds":-2}"#, &["cfsQuotaBurstPeriodSeconds", "-1"]),
        (r#"{"policy":"auto""#, &["not JSON"]),
        (r#"["auto"]"#, &["not a JSON object"]),
        ("", &["empty"]),
    ] {
        let planned = plan(&node(&[web(&json!({BURST: text}))], std::slice::from_ref(&cluster)));
        planned.says(1, &["problem: pod default/web: annotation koordinator.sh/cpuBurst", "next lower layer"]);
        planned.says(1, words);
        assert_eq!(burst(&planned), 200_000, "{text}: {planned:#?}");
    }
}

#[test]
fn unknown_fields_and_those_of_operators_are_reported_and_the_rest_counts() {
    for (text, words) in [
        (r#"{"policy":"cpuBurstOnly","cpuBurstPercents":5}"#, "did you mean `cpuBurstPercent`?"),
        (r#"{"policy":"cpuBurstOnly","sharePoolThresholdPercent":5}"#, "only ConfigMaps can set it"),
    ] {
        let planned = plan(&node(&[web(&json!({BURST: text}))], &[]));
        planned.says(1, &["pod default/web: annotation koordinator.sh/cpuBurst", words]);
        assert_eq!(burst(&planned), 1_000_000, "{text}");
    }
    let both = json!({BURST: r#"{"policy":"cpuBurstOnly","cpuBurstPercent":300}"#, OLD_BURST: r#"{"policy":"auto"}"#});
    let planned = plan(&node(&[web(&both)], &[]));
    planned.says(1, &["pod default/web: annotation alibabacloud.com/cpuBurst: ignored"]);
    assert_eq!(burst(&planned), 300_000);
}

#[test]
fn a_config_map_key_that_cannot_be_used_is_reported_and_says_nothing() {
    for (text, words) in [
        (r#"{"clusterStrategy": {"policy": "auto""#, &["cpu-burst-config", "not JSON"][..]),
        ("", &["cpu-burst-config", "empty"]),
        (r#"{"clusterStrategy": {"cpuBurstPercent": 0.5}}"#, &["cpu-burst-config: clusterStrategy.cpuBurstPercent"]),
        (r#"{"clusterStrategy": {"sharePoolThresholdPercent": 101}}"#, &["sharePoolThresholdPercent", "101"]),
    ] {
        let map = cluster_map("cpu-burst-config", &json!(text));
        let planned = plan(&node(&[web(&json!({}))], &[map]));
        planned.says(1, &["problem: ConfigMap koordinator-system/slo-controller-config: "]);
        planned.says(1, words);
        assert_eq!(burst(&planned), 0, "{text}");
    }
    let stray = json!({"metadata": {"namespace": "default", "name": "slo-config"}, "data": {}});
    plan(&node(&[], &[stray])).says(1, &["ConfigMap default/slo-config", "ack-slo-config"]);
}

#[test]
fn a_key_that_breaks_keeps_its_last_good_text_and_one_that_is_gone_says_nothing() {
    let good = strategy(&json!({"policy": "cpuBurstOnly", "cpuBurstPercent": 200}), &json!([]));
    let broken = cluster_map("cpu-burst-config", &json!("{\"clusterStrategy\": {"));
    let facts = node(&[web(&json!({}))], &[good]);
    let ticks = [json!({"configMaps": [broken]}), json!({"configMaps": []})];
    let played = crate::qosm::play(&facts, &ticks);
    let lines = played.lines();
    assert_eq!(crate::qosm::report(&lines[0]["decisions"]).len(), 2, "{played:#?}");
    assert!(crate::qosm::report(&lines[1]["decisions"]).is_empty(), "{}", lines[1]);
    assert!(lines[1]["problems"][0].as_str().unwrap().contains("last good text"), "{}", lines[1]);
    assert_eq!(
        crate::qosm::report(&lines[2]["decisions"]),
        ["container default/web/a cpu.burst 0", "pod default/web cpu.burst 0"]
    );
}

#[test]
fn qos_classes_are_read_where_they_are_written() {
    // An LSR pod is left alone, wherever its class is set; an unknown class counts as none and is reported.
    for (field, key, class, expected) in [
        ("labels", "koordinator.sh/qosClass", "LSR", 0),
        ("labels", "alibabacloud.com/qosClass", "LSR", 0),
        ("annotations", "koordinator.sh/qosClass", "LSR", 0),
        ("annotations", "alibabacloud.com/qosClass", "LSR", 0),
        ("labels", "alibabacloud.com/qos", "BE", 0),
        ("labels", "koordinator.sh/qosClass", "LS", 1_000_000),
    ] {
        let mut web = web(&json!({BURST: r#"{"policy":"auto"}"#}));
        web["metadata"][field][key] = class.into();
        let planned = plan(&node(&[web], &[]));
        match expected {
            0 => planned
                .says(0, &["cpu.burst of default/web", "the policy leaves out pods of the classes LSE, LSR and BE"]),
            _ => assert_eq!((planned.code, planned.stderr.as_str()), (0, ""), "{field} {key}"),
        }
        assert_eq!(burst(&planned), expected, "{field} {key}");
    }
    let mut web = web(&json!({BURST: r#"{"policy":"auto"}"#}));
    web["metadata"]["labels"]["koordinator.sh/qosClass"] = "lsr".into();
    let planned = plan(&node(&[web], &[]));
    planned.says(1, &["pod default/web", "koordinator.sh/qosClass", "lsr"]);
    assert_eq!(burst(&planned), 1_000_000);
}

#[test]
fn a_pause_keeps_qosm_off_a_pod() {
    let mut held = web(&json!({BURST: r#"{"policy":"auto"}"#}));
    held["metadata"]["annotations"]["qosm.io/paused"] = "true".into();
    let planned = plan(&node(&[held.clone()], &[]));
    planned.says(0, &["note: default/web is paused: nothing is written to it"]);
    assert_eq!(burst(&planned), 0);
    held["metadata"]["annotations"]["qosm.io/paused"] = "2020-01-01T00:00:00Z".into();
    assert_eq!(burst(&plan(&node(&[held.clone()], &[])).says_nothing_else()), 1_000_000, "that pause has ended");
    held["metadata"]["annotations"]["qosm.io/paused"] = "tomorrow".into();
    let planned = plan(&node(&[held], &[]));
    planned.says(1, &["pod default/web: annotation qosm.io/paused", "tomorrow"]);
    assert_eq!(burst(&planned), 0);
}

#[test]
fn a_pause_that_ends_gives_the_pod_what_it_missed() {
    let mut held = web(&json!({BURST: r#"{"policy":"cpuBurstOnly"}"#}));
    held["metadata"]["annotations"]["qosm.io/paused"] = "1970-01-01T00:00:03Z".into();
    let seconds = vec![json!({"windowMillis": 1000}); 4];
    let played = replay(&node(&[held], &[]), &seconds);
    let written: Vec<usize> = (0..played.len()).filter(|&tick| !played[tick].is_empty()).collect();
    assert_eq!(written, [3], "{played:?}");
}
