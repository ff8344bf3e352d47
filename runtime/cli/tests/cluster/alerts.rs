//! The chart's alerts, tested by Prometheus' own tool: each fires for its condition, and for nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{rendered, root};
use crate::node::{run, said};

#[test]
fn each_alert_fires_for_what_it_is_about() {
    let objects = rendered(&["--set", "metrics.prometheusRule.enabled=true"]);
    let mut rules = objects.iter().find(|object| object["kind"] == "PrometheusRule").unwrap()["spec"].clone();
    let folder = tempfile::tempdir().unwrap();
    let promtool = |args: &[&str]| {
        let mut promtool = Command::new(said("QOSM_PROMTOOL"));
        run(promtool.args(args).current_dir(folder.path()), "").unwrap_or_else(|error| unreachable!("{error}"))
    };
    // The rules with their texts.
    fs::write(folder.path().join("whole.yaml"), rules.to_string()).unwrap();
    promtool(&["check", "rules", "whole.yaml"]);

    // Without the texts, so that the expected alerts need not repeat them.
    for rule in rules["groups"][0]["rules"].as_array_mut().unwrap() {
        rule["annotations"] = json!({});
    }
    fs::write(folder.path().join("rules.yaml"), rules.to_string()).unwrap();
    let played = fs::read_to_string(root().join("runtime/cli/tests/cluster/alerts.yaml")).unwrap();
    fs::write(folder.path().join("alerts.yaml"), &played).unwrap();
    promtool(&["test", "rules", "alerts.yaml"]);

    let names = |list: &Value, field: &str| -> BTreeSet<String> {
        list.as_array().into_iter().flatten().map(|one| one[field].as_str().unwrap().to_owned()).collect()
    };
    let played: Value = serde_saphyr::from_str(&played).unwrap();
    let fired = |test: &Value| -> Vec<String> {
        let checks = test["alert_rule_test"].as_array().into_iter().flatten();
        let firing = checks.filter(|check| check["exp_alerts"].as_array().is_some_and(|alerts| !alerts.is_empty()));
        firing.map(|check| check["alertname"].as_str().unwrap().to_owned()).collect()
    };
    let fired: BTreeSet<String> = played["tests"].as_array().unwrap().iter().flat_map(fired).collect();
    assert_eq!(fired, names(&rules["groups"][0]["rules"], "alert"), "alerts that are not played");
}
