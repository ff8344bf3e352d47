//! The node's own settings, planned and replayed.

use serde_json::{Value, json};

use crate::qosm::{cluster_map, limited, plan, play, pod, replay, run};

/// A node of 64 GiB, and a cluster with this strategy.
fn facts(strategy: &Value) -> Value {
    json!({
        "host": {
            "cgroup": "v2", "memory": "64Gi", "nodeKnobs": {"vm.min_free_kbytes": 67_584, "vm.watermark_scale_factor": 10},
        },
        "policies": [{"name": "node-memory"}],
        "configMaps": [cluster_map("system-config", &json!({"clusterStrategy": strategy}))],
    })
}

/// A second in which this many GiB of memory are available.
fn second(available_gib: u64) -> Value {
    json!({"node": {"memoryAvailableBytes": available_gib << 30}})
}

#[test]
fn a_plan_says_what_would_be_set_and_where() {
    let planned = plan(&facts(&json!({"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150})));
    let rows = planned.decisions();
    let row = |knob: &str| rows.as_array().unwrap().iter().find(|row| row["knob"] == knob).unwrap().clone();
    let free = row("vm.min_free_kbytes");
    assert_eq!((&free["level"], &free["policy"]), (&json!("node"), &json!("node-memory")), "{free}");
    assert_eq!((&free["path"], &free["current"]), (&json!("/proc/sys/vm/min_free_kbytes"), &json!(67_584)), "{free}");
    assert_eq!(free["reason"], "minFreeKbytesFactor 100 of 67108864 KiB is 671088 KiB");
    assert_eq!(row("vm.watermark_scale_factor")["value"], 150);
    assert_eq!(rows.as_array().unwrap().len(), 2);
}

#[test]
fn the_printed_plan_has_the_node_beneath_the_pods() {
    let mut facts = facts(&json!({"watermarkScaleFactor": 150}));
    facts["policies"] = json!([{"name": "node-memory"}, {"name": "cpu-burst"}]);
    facts["pods"] = json!([pod(
        "web",
        &json!({"koordinator.sh/cpuBurst": r#"{"policy": "auto"}"#}),
        &json!([limited("app", "2")])
    )]);
    let printed = run(&["plan", "--facts", "-"], &facts.to_string()).stdout;
    let subjects: Vec<&str> = printed
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(1))
        .take_while(|word| *word != "of")
        .collect();
    let node = subjects.iter().position(|subject| *subject == "node").unwrap_or_else(|| unreachable!("{printed}"));
    assert!(node > 0 && subjects[..node].iter().all(|subject| subject.contains("web")), "{printed}");
}

#[test]
fn what_a_policy_cannot_use_of_the_strategy_is_a_problem_until_it_is_corrected() {
    let wrong = facts(&json!({"watermarkScaleFactor": 5000}));
    let problem = "ConfigMap koordinator-system/slo-controller-config: system-config: clusterStrategy.watermarkScaleFactor: it is 5000; ";
    plan(&wrong).says(1, &[&format!("problem: {problem}"), "Until then its last valid value counts"]);
    let mut right = second(40);
    right["configMaps"] = facts(&json!({"watermarkScaleFactor": 150}))["configMaps"].clone();
    let lines = play(&wrong, &[second(40), right]).lines();
    let problems: Vec<usize> = lines.iter().map(|line| line["problems"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(problems, [1, 0, 0], "a line lists the new ones: {lines:#?}");
    assert!(lines[0]["problems"][0].as_str().unwrap().starts_with(problem), "{lines:#?}");
}

#[test]
fn however_long_a_wrong_value_is_it_is_named_and_the_others_count() {
    let long = "x".repeat(5000);
    let planned = plan(&facts(&json!({"minFreeKbytesFactor": 100, "watermarkScaleFactor": long})));
    assert_eq!(planned.decisions()[0]["knob"], "vm.min_free_kbytes", "{planned:#?}");
    let message = format!(
        "system-config: clusterStrategy.watermarkScaleFactor: it is \"{}…; give a whole number, 10 to 400",
        &long[..99]
    );
    planned.says(1, &[&message, "(policy node-memory)"]);
}

#[test]
fn what_is_kept_free_rises_step_by_step_and_no_further_than_a_twentieth_of_memory() {
    let strategy = json!({"minFreeKbytesFactor": 600});
    let ticks = vec![second(40); 25];
    let rows = replay(&facts(&strategy), &ticks);
    let values: Vec<u64> = rows
        .iter()
        .flatten()
        .map(|row| row.strip_prefix("node - vm.min_free_kbytes ").unwrap().parse().unwrap())
        .collect();
    assert_eq!(values[..2], [235_356, 403_128]);
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
    assert_eq!(values.last(), Some(&3_355_443), "5 % of 64 GiB");
    let played = play(&facts(&strategy), &ticks);
    let adjusted = played.lines().iter().any(|line| line.to_string().contains("is at most 5 % of the node's"));
    assert!(adjusted, "{played:#?}");
}

#[test]
fn another_programs_word_counts_and_what_is_configured_no_longer_comes_back() {
    let strategy = json!({"watermarkScaleFactor": 150});
    let mut written = second(40);
    written["nodeKnobs"] = json!({"vm.watermark_scale_factor": 200});
    let played = play(&facts(&strategy), &[second(40), written, second(40)]);
    let lines = played.lines();
    let drift = lines[2]["events"].as_array().unwrap().iter().find(|event| event["reason"] == "KnobDrift").cloned();
    let drift = drift.unwrap_or_default();
    assert_eq!(drift["pod"], "node", "{played:#?}");
    assert!(
        drift["message"].as_str().unwrap().contains("another writer set vm.watermark_scale_factor to 200"),
        "{drift}"
    );
    assert_eq!(lines[3]["decisions"], json!([]), "hands off");

    let mut off = second(40);
    off["configMaps"] = json!([]);
    let rows = replay(&facts(&strategy), &[second(40), off]);
    assert_eq!(rows[0], ["node - vm.watermark_scale_factor 150"]);
    assert_eq!(rows[2], ["node - vm.watermark_scale_factor 10"], "the baseline");
}

#[test]
fn a_setting_that_is_none_is_refused_with_those_that_there_are() {
    let mut facts = facts(&json!({}));
    facts["host"]["nodeKnobs"] = json!({"vm.swappiness": 60});
    plan(&facts).says(2, &["vm.swappiness", "vm.min_free_kbytes, vm.watermark_scale_factor"]);
}

#[test]
fn batch_waits_for_free_memory_on_a_kernel_without_a_mark_for_it() {
    let mut facts = facts(&json!({}));
    facts["policies"] = json!([{"name": "node-memory", "config": {"watermarkRating": {"enable": true}}}]);
    let line = |free_mib: u64| {
        let mib = |mib: u64| mib << 20;
        json!({
            "node": {
                "memoryAvailableBytes": mib(8_000),
                "memory": {
                    "freeBytes": mib(free_mib), "availableBytes": mib(8_000), "minMarkBytes": mib(600), "lowMarkBytes": mib(1_600),
                    "highMarkBytes": mib(2_600),
                },
            },
            "groups": {"besteffort": {"memory": {"usageBytes": mib(20_480)}}},
        })
    };
    let rows = replay(&facts, &[line(3_000), line(1_000), line(2_000), line(2_600)]);
    assert_eq!(rows[1], [""; 0]);
    assert_eq!(rows[2], [format!("tier besteffort memory.high {}", (20_480_u64 - 1_024) << 20)]);
    assert_eq!(rows[3], [""; 0]);
    assert_eq!(rows[4], ["tier besteffort memory.high max"]);
}
