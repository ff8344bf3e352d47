//! Kernels on which a bound is harmful, and groups that nothing bounds: plans for them.

use serde_json::{Value, json};

use crate::qosm::{container, only, plan, pod};

fn node(class: &str, resources: &Value, annotation: &Value) -> Value {
    let mut stress = pod(
        "stress",
        &json!({"koordinator.sh/memoryQOS": annotation.to_string()}),
        &json!([container("a", &json!({}), resources)]),
    );
    stress["metadata"]["labels"] = json!({"koordinator.sh/qosClass": class});
    json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs"},
        "node": {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": "30Gi"}}},
        "policies": [{"name": "memory-qos"}],
        "pods": [stress],
    })
}

fn report(facts: &Value, knob: &str) -> String {
    let rows = plan(facts).says_nothing_else().decisions();
    let found = rows.as_array().unwrap().iter().find(|row| row["level"] == "container" && row["knob"] == knob).cloned();
    let row = found.unwrap_or_default();
    assert_eq!(row["support"], "emulated", "{row}");
    row["emulation"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_plan_says_by_what_a_group_is_reclaimed_that_has_no_limit() {
    let auto = json!({"policy": "auto"});
    let be = node("BE", &json!({}), &auto);
    for knob in ["memory.wmark_ratio", "memory.wmark_min_adj"] {
        let report = report(&be, knob);
        assert!(report.starts_with("it has no limit, nor has any group above it"), "{report}");
        assert!(report.contains("watermarks, before the kernel takes from all groups alike"), "{report}");
    }
    let ls = report(&node("LS", &json!({}), &auto), "memory.wmark_ratio");
    assert!(ls.contains("more than 33071248178 of the node's") && !ls.contains("watermarks"), "LS comes later: {ls}");

    let mut below = be.clone();
    below["cgroups"] = json!([{"tier": "kubepods", "files": {"memory.max": "1048576000"}}]);
    let below = report(&below, "memory.wmark_ratio");
    assert!(below.contains("while kubepods uses more than 969932800 of its 1048576000 bytes"), "{below}");

    let own = report(&node("BE", &json!({"memory": "100Mi"}), &auto), "memory.wmark_ratio");
    assert!(own.starts_with("it is reclaimed from 99614720 down to 99405005 bytes of the 104857600"), "{own}");
    let throttled = json!({"policy": "auto", "throttlingPercent": 50});
    let planned = report(&node("LS", &json!({}), &throttled), "memory.wmark_ratio");
    assert!(planned.contains("of the 16106127360 that it may use"), "memory.high of the same plan: {planned}");
    let off = report(&node("LS", &json!({}), &json!({"wmarkRatio": 0, "wmarkMinAdj": -25})), "memory.wmark_min_adj");
    assert_eq!(off, "it is off");
}

#[test]
fn a_kernel_that_may_livelock_gets_no_memory_high_unless_the_operator_says_so() {
    let web = || node("LS", &json!({"memory": "100Mi"}), &json!({"throttlingPercent": 80, "minLimitPercent": 50}));
    let high = "container default/stress/a memory.high 104857600";
    for (release, asked, expected) in [
        ("5.8.18-300.fc33.x86_64", false, false),
        ("4.19.91-26.al7.x86_64", false, false),
        ("5.8.18", true, true),
        ("5.9.0", false, true),
        ("6.18.44", false, true),
    ] {
        let mut facts = web();
        facts["host"]["kernelRelease"] = release.into();
        facts["guardRails"] = json!({"memoryHighBeforeLinux59": asked});
        let planned = plan(&facts);
        assert_eq!(only(&planned.rows(), "memory.high") == [high], expected, "{release} {asked}: {planned:#?}");
        assert_eq!(only(&planned.rows(), "memory.min").len(), 4, "the rest goes on");
        if expected {
            planned.says_nothing_else();
        } else {
            planned.says(1, &["not possible: memory.high of default/stress/a", release, "memoryHighBeforeLinux59"]);
        }
    }
}
