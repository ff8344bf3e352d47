//! Shares of caches and memory bandwidth: plans and replays of nodes in files.

use serde_json::{Value, json};

use crate::qosm::{plan, play};

fn pod(name: &str, class: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "labels": {"koordinator.sh/qosClass": class}, "annotations": annotations,
        },
        "spec": {"containers": [{"name": "app"}]},
    })
}

fn facts(pods: &[Value]) -> Value {
    let classes = json!({"clusterStrategy": {"beClass": {"resctrlQOS": {"enable": true}}}});
    json!({
        "host": {"cpus": 4},
        "policies": [{"name": "llc-mba", "config": {"profile": "dynamic", "maxBandwidthMBps": 10_000}}],
        "configMaps": [{
            "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
            "data": {"resource-qos-config": classes.to_string()},
        }],
        "pods": pods,
    })
}

/// A second in which BE and the other pods moved this many MB to and from memory.
fn second(be: u64, others: u64) -> Value {
    let moved = |megabytes: u64| json!([{"domain": 0, "totalBytes": megabytes * 1_000_000}]);
    json!({"resctrl": {
        "domains": [{"id": 0, "cacheWays": 11, "dividesBandwidth": true}],
        "classes": [{"policy": "llc-mba", "class": "be", "inForce": true, "usage": moved(be)}],
        "rest": moved(others),
    }})
}

#[test]
fn a_plan_says_which_classes_there_would_be_and_for_whom() {
    let own = json!({"node.koordinator.sh/resctrl": r#"{"llc":{"schemata":{"range":[20,80]}}}"#});
    let pods = [pod("report", "BE", &json!({})), pod("tuned", "LS", &own), pod("web", "LS", &json!({}))];
    let planned = plan(&facts(&pods));
    planned.says(
        0,
        &[
            "note: class be: ways 0-30 %, 100 % of the memory bandwidth, for default/report/app would be set by llc-mba: ",
            "note: class pods_l3-20-80: ways 20-80 %, for default/tuned/app would be set by llc-mba: ",
        ],
    );
    assert!(!planned.stderr.contains("default/web"), "{planned:#?}");
    assert_eq!(planned.decisions(), json!([]), "{planned:#?}");
}

#[test]
fn recorded_traffic_plays_again_to_the_same_steps() {
    let pods = [pod("report", "BE", &json!({})), pod("web", "LS", &json!({}))];
    let mut ticks = vec![second(100, 100); 2];
    ticks.extend(vec![second(4_000, 5_000); 6]);
    let played = play(&facts(&pods), &ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    assert_eq!(play(&facts(&pods), &ticks).stdout, played.stdout, "the same each time");
    let lines = played.lines();
    let shares = |line: &Value| line["classes"][0]["shares"].as_str().map(str::to_owned);
    let report: Vec<String> = lines.iter().filter_map(shares).collect();
    let all = "ways 0-30 %, 100 % of the memory bandwidth";
    assert_eq!(report[0], all, "{played:#?}");
    assert_eq!(report[1], format!("{all}; on domain 0: ways 0-30 %, 90 % of the memory bandwidth"), "{played:#?}");
    assert!(report.len() >= 3 && report[2].contains("80 %"), "a step each two seconds: {report:?}");
    let reason = lines.iter().filter_map(|line| line["classes"][0]["reason"].as_str()).nth(1).unwrap();
    assert!(reason.contains("9000 MB/s are 90 % of 10000 MB/s"), "{reason}");
}

#[test]
fn what_no_recording_can_say_is_refused_by_name() {
    let pods = [pod("report", "BE", &json!({}))];
    for (line, words) in [
        (json!({"resctrl": {"classes": [{"policy": "x", "class": "a/b", "inForce": true}]}}), ["resctrl", "`a/b`"]),
        (json!({"resctrl": {"domain": []}}), ["domain", "domains"]),
        (json!({"resctrl": {"classes": [{"policy": "x", "class": "a"}]}}), ["inForce", ""]),
    ] {
        let played = play(&facts(&pods), &[line]);
        assert_ne!(played.code, 0, "{played:#?}");
        played.says(played.code, &words);
    }
}
