//! Memory QoS against its specification: the worked examples, the levels, the formulas, hands off.

use serde_json::{Value, json};

use crate::qosm::{cluster_map, container, limited, only, plan, play, pod, replay, report};

const MEMORY: &str = "koordinator.sh/memoryQOS";

fn node(pods: &[Value]) -> Value {
    json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs"},
        "node": {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": "30Gi"}}},
        "policies": [{"name": "memory-qos"}],
        "pods": pods,
    })
}

fn memory(name: &str, request: &str, limit: &str) -> Value {
    let of = |amount: &str| if amount.is_empty() { json!({}) } else { json!({"memory": amount}) };
    container(name, &of(request), &of(limit))
}

fn qos(body: &Value) -> Value {
    json!({MEMORY: body.to_string()})
}

#[test]
fn min_and_low_are_percentages_of_the_request_on_three_levels() {
    let web = pod(
        "web",
        &qos(&json!({"minLimitPercent": 100, "lowLimitPercent": 100})),
        &json!([memory("a", "100Mi", "1Gi")]),
    );
    let half = pod(
        "half",
        &qos(&json!({"minLimitPercent": 50})),
        &json!([memory("a", "100Mi", "1Gi"), memory("b", "28Mi", "")]),
    );
    let rows = plan(&node(&[web, half])).says_nothing_else().rows();
    assert_eq!(
        rows,
        [
            "container default/half/a memory.min 52428800",
            "container default/half/b memory.min 14680064",
            "container default/web/a memory.low 104857600",
            "container default/web/a memory.min 104857600",
            "pod default/half memory.min 67108864",
            "pod default/web memory.low 104857600",
            "pod default/web memory.min 104857600",
            "tier burstable memory.low 104857600",
            "tier burstable memory.min 171966464",
            "tier kubepods memory.low 104857600",
            "tier kubepods memory.min 171966464",
        ]
    );
}

#[test]
fn high_stands_between_request_and_limit() {
    for (request, limit, percent, expected) in [
        ("0", "100Mi", 80, Some("83886080")),
        ("2Gi", "6Gi", 80, Some("5583454208")),
        ("1Gi", "1Gi", 40, Some("1073741824")),
        // A missing request equals the limit, as the API server sets it.
        ("", "100Mi", 80, Some("104857600")),
        ("50Mi", "100Mi", 100, Some("104857600")),
        // No limit: the node's 30 GiB.
        ("2Gi", "", 50, Some("17179869184")),
        ("0", "0", 80, Some("25769803776")),
        // 0 removes the bound, which does not exist.
        ("1Gi", "2Gi", 0, None),
    ] {
        let web = pod("web", &qos(&json!({"throttlingPercent": percent})), &json!([memory("a", request, limit)]));
        let rows = plan(&node(&[web])).says_nothing_else().rows();
        let row = expected.map(|bytes| format!("container default/web/a memory.high {bytes}"));
        assert_eq!(rows, Vec::from_iter(row), "{request:?} to {limit:?} at {percent} %");
    }
}

#[test]
fn a_limit_of_0_or_without_its_unit_leaves_the_request() {
    for (limit, high, words) in [("0", 25_984_548_864_u64, ""), ("2048", 1_073_741_824, "was 2048Mi meant?")] {
        let body = qos(&json!({"minLimitPercent": 50, "throttlingPercent": 80}));
        let planned = plan(&node(&[pod("web", &body, &json!([memory("a", "1Gi", limit)]))]));
        planned.says(0, &[words]);
        assert_eq!(
            planned.rows(),
            [
                format!("container default/web/a memory.high {high}"),
                "container default/web/a memory.min 536870912".to_owned(),
                "pod default/web memory.min 536870912".to_owned(),
                "tier burstable memory.min 536870912".to_owned(),
                "tier kubepods memory.min 536870912".to_owned(),
            ]
        );
    }
}

#[test]
fn the_legacy_formula_can_be_chosen() {
    let web = pod("web", &qos(&json!({"throttlingPercent": 80})), &json!([memory("a", "50Mi", "100Mi")]));
    let mut facts = node(&[web]);
    for (formula, high) in [("current", 94_371_840), ("legacy", 83_886_080)] {
        facts["policies"] = json!([{"name": "memory-qos", "config": {"highFormula": formula}}]);
        assert_eq!(plan(&facts).says_nothing_else().rows(), [format!("container default/web/a memory.high {high}")]);
    }
}

/// The numbers of the reference agent's own test.
#[test]
fn be_pods_count_with_their_batch_memory() {
    for (min, throttling, rows) in
        [(100, 80, ["858992640", "1073741824", "1073741824"]), (50, 40, ["429494272", "1073741824", "536870912"])]
    {
        let batch = json!({"kubernetes.io/batch-memory": "1Gi"});
        let both = json!([container("a", &json!({}), &json!({})), container("b", &batch, &batch)]);
        let mut job = pod("job", &qos(&json!({"minLimitPercent": min, "throttlingPercent": throttling})), &both);
        job["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "BE"});
        let mut facts = node(&[job]);
        facts["node"]["status"]["allocatable"]["memory"] = "1Gi".into();
        let [high_a, high_b, protected] = rows;
        let planned = plan(&facts);
        planned.says(0, &["not done: memory.min of default/job/a"]);
        assert_eq!(
            planned.rows(),
            [
                format!("container default/job/a memory.high {high_a}"),
                format!("container default/job/b memory.high {high_b}"),
                format!("container default/job/b memory.min {protected}"),
                format!("pod default/job memory.min {protected}"),
                format!("tier besteffort memory.min {protected}"),
                format!("tier kubepods memory.min {protected}"),
            ]
        );
    }
}

#[test]
fn a_be_pod_gets_nothing_for_ordinary_memory() {
    let mut job = pod("job", &qos(&json!({"minLimitPercent": 100})), &json!([memory("a", "1Gi", "1Gi")]));
    job["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "BE"});
    let planned = plan(&node(&[job]));
    planned.says(0, &["not done: memory.min of default/job/a", "no kubernetes.io/batch-memory"]);
    assert!(planned.rows().is_empty());
}

#[test]
fn low_and_high_never_stand_below_min() {
    let body = json!({"minLimitPercent": 100, "lowLimitPercent": 20, "throttlingPercent": 1});
    let web = pod("web", &qos(&body), &json!([memory("a", "100Mi", "1Gi")]));
    let rows = plan(&node(&[web])).says_nothing_else().rows();
    // 100 MiB + 1 % of 924 MiB, in whole pages.
    assert_eq!(only(&rows, "memory.high"), ["container default/web/a memory.high 114544640"]);
    assert_eq!(
        only(&rows, "memory.low"),
        [
            "container default/web/a memory.low 104857600",
            "pod default/web memory.low 104857600",
            // A parent covers the protection of its children.
            "tier burstable memory.low 104857600",
            "tier kubepods memory.low 104857600",
        ]
    );
}

#[test]
fn auto_is_the_template_of_the_class() {
    for (class, adj) in [(None, -25), (Some("LS"), -25), (Some("BE"), 50), (Some("LSR"), -25)] {
        for version in ["v1", "v2"] {
            let mut web = pod("web", &qos(&json!({"policy": "auto"})), &json!([memory("a", "1Gi", "2Gi")]));
            if let Some(class) = class {
                web["metadata"]["labels"] = json!({"koordinator.sh/qosClass": class});
            }
            let mut facts = node(&[web]);
            facts["host"] = json!({"cgroup": version, "kernel": "alibaba", "driver": "cgroupfs"});
            let rows = plan(&facts).says_nothing_else().rows();
            let of = |subject: &str| {
                [
                    format!("{subject} memory.wmark_min_adj {adj}"),
                    format!("{subject} memory.wmark_ratio 95"),
                    format!("{subject} memory.wmark_scale_factor 20"),
                ]
            };
            assert_eq!(rows, [of("container default/web/a"), of("pod default/web")].concat(), "{class:?} {version}");
        }
    }
}

#[test]
fn a_kernel_without_the_files_is_reported_once_a_knob_and_nothing_is_written() {
    let body = json!({"policy": "auto", "minLimitPercent": 100});
    let web = pod("web", &qos(&body), &json!([memory("a", "1Gi", "2Gi")]));
    let mut facts = node(&[web]);
    facts["host"]["cgroup"] = "v1".into();
    let planned = plan(&facts);
    planned.says(
        1,
        &[
            "not possible: memory.min of ",
            "tier burstable (1073741824)",
            "default/web/a (1073741824)",
            "not possible: memory.wmark_ratio of default/web (95)",
            "Alibaba",
        ],
    );
    assert_eq!(planned.stderr.matches("not possible: memory.min").count(), 1, "{planned:#?}");
    assert!(planned.rows().is_empty(), "{planned:#?}");
}

#[test]
fn each_level_gets_what_it_has() {
    let body = json!({
        "priorityEnable": 1, "priority": 10, "oomKillGroup": 1, "wmarkRatio": 90, "pageCacheLimitPercent": 25,
        "pageCacheReclaimSync": true,
    });
    let web = pod("web", &qos(&body), &json!([memory("a", "1Gi", "2Gi")]));
    let mut facts = node(&[web]);
    facts["host"]["kernel"] = "alibaba".into();
    assert_eq!(
        plan(&facts).says_nothing_else().rows(),
        [
            "container default/web/a memory.oom.group 1",
            "container default/web/a memory.priority 10",
            "container default/web/a memory.use_priority_oom 1",
            "container default/web/a memory.wmark_ratio 90",
            "pod default/web memory.oom.group 1",
            "pod default/web memory.pagecache_limit.enable 1",
            "pod default/web memory.pagecache_limit.size 536870912",
            "pod default/web memory.pagecache_limit.sync 1",
            "pod default/web memory.priority 10",
            "pod default/web memory.use_priority_oom 1",
            "pod default/web memory.wmark_ratio 90",
        ]
    );
}

#[test]
fn tiers_take_their_switches_from_the_class_that_stands_for_them() {
    let map = json!({"clusterStrategy": {
        "lsrClass": {"memoryQOS": {"enable": true, "oomKillGroup": 1}},
        "lsClass": {"memoryQOS": {"enable": true, "priority": 7, "priorityEnable": 1}},
        "beClass": {"memoryQOS": {"enable": false, "priority": 3}},
    }});
    let mut facts = node(&[]);
    facts["host"]["kernel"] = "alibaba".into();
    facts["configMaps"] = json!([cluster_map("resource-qos-config", &map)]);
    assert_eq!(
        plan(&facts).says_nothing_else().rows(),
        [
            "tier burstable memory.priority 7",
            "tier burstable memory.use_priority_oom 1",
            "tier kubepods memory.oom.group 1",
        ]
    );
}

#[test]
fn a_class_that_is_not_enabled_means_hands_off() {
    let numbers = json!({"minLimitPercent": 100, "throttlingPercent": 80, "wmarkRatio": 90});
    for enable in [json!(false), Value::Null] {
        let mut class = numbers.clone();
        class["enable"] = enable;
        let map = json!({"clusterStrategy": {"lsClass": {"memoryQOS": class}}});
        let mut facts = node(&[pod("web", &json!({}), &json!([memory("a", "1Gi", "2Gi")]))]);
        facts["configMaps"] = json!([cluster_map("resource-qos-config", &map)]);
        // Values of the kubelet's own MemoryQoS stay.
        facts["cgroups"] = json!([{"pod": "default/web", "container": "a", "files": {"memory.min": "4096", "memory.high": "1610612736"}}]);
        assert!(plan(&facts).says_nothing_else().rows().is_empty());
    }
}

#[test]
fn an_annotation_counts_though_its_class_is_off() {
    let map = json!({"clusterStrategy": {"lsClass": {"memoryQOS": {"enable": false, "throttlingPercent": 80}}}});
    let mut facts = node(&[pod("web", &qos(&json!({"minLimitPercent": 100})), &json!([memory("a", "1Gi", "2Gi")]))]);
    facts["configMaps"] = json!([cluster_map("resource-qos-config", &map)]);
    let rows = plan(&facts).says_nothing_else().rows();
    assert_eq!(only(&rows, "memory.min").len(), 4, "{rows:?}");
    assert!(only(&rows, "memory.high").is_empty(), "{rows:?}");
}

#[test]
fn pods_and_containers_that_do_not_run_do_not_count() {
    let body = qos(&json!({"minLimitPercent": 100}));
    let mut ended = pod("ended", &body, &json!([memory("a", "1Gi", "1Gi")]));
    ended["status"] = json!({"phase": "Failed"});
    let mut pending = pod("pending", &body, &json!([memory("a", "1Gi", "1Gi")]));
    pending["status"] = json!({"phase": "Pending", "qosClass": "Burstable"});
    let rows = plan(&node(&[ended, pending])).says_nothing_else().rows();
    // The pending pod's group exists and its request counts; its container has no group yet.
    assert_eq!(
        rows,
        [
            "pod default/pending memory.min 1073741824",
            "tier burstable memory.min 1073741824",
            "tier kubepods memory.min 1073741824",
        ]
    );
}

#[test]
fn sidecars_and_overhead_count_for_the_pod() {
    let mut web = pod("web", &qos(&json!({"minLimitPercent": 100})), &json!([memory("a", "1Gi", "")]));
    let mut sidecar = memory("mesh", "256Mi", "");
    sidecar["restartPolicy"] = "Always".into();
    web["spec"]["initContainers"] = json!([sidecar]);
    web["spec"]["overhead"] = json!({"memory": "128Mi"});
    let rows = plan(&node(&[web])).says_nothing_else().rows();
    assert!(rows.contains(&"pod default/web memory.min 1476395008".to_owned()), "{rows:?}");
    assert!(rows.contains(&"tier kubepods memory.min 1476395008".to_owned()), "{rows:?}");
}

#[test]
fn what_is_taken_away_gives_back_what_was_there() {
    let web = |annotations: &Value| pod("web", annotations, &json!([memory("a", "1Gi", "2Gi")]));
    let body = qos(&json!({"minLimitPercent": 100, "throttlingPercent": 80}));
    let mut facts = node(&[web(&body)]);
    facts["cgroups"] = json!([
        {"pod": "default/web", "container": "a", "files": {"memory.high": "2000003072"}},
        {"tier": "burstable", "files": {"memory.min": "4096"}},
    ]);
    let played = replay(&facts, &[json!({"pods": {"upserted": [web(&json!({}))]}})]);
    assert_eq!(
        played[1],
        [
            "container default/web/a memory.high 2000003072",
            "container default/web/a memory.min 0",
            "pod default/web memory.min 0",
            "tier burstable memory.min 4096",
            "tier kubepods memory.min 0",
        ]
    );
}

#[test]
fn a_tier_that_lost_its_last_pod_is_given_back() {
    let body = qos(&json!({"minLimitPercent": 100}));
    let pods =
        [pod("one", &body, &json!([memory("a", "1Gi", "")])), pod("two", &body, &json!([memory("a", "2Gi", "")]))];
    let ticks = [json!({"pods": {"removed": ["default/two"]}}), json!({"pods": {"removed": ["default/one"]}})];
    let played = replay(&node(&pods), &ticks);
    let tiers =
        |rows: &[String]| -> Vec<String> { rows.iter().filter(|row| row.starts_with("tier")).cloned().collect() };
    assert_eq!(tiers(&played[1]), ["tier burstable memory.min 1073741824", "tier kubepods memory.min 1073741824"]);
    assert_eq!(tiers(&played[2]), ["tier burstable memory.min 0", "tier kubepods memory.min 0"]);
}

#[test]
fn guard_rails_bound_what_all_pods_are_promised() {
    let web = pod("web", &qos(&json!({"minLimitPercent": 100})), &json!([memory("a", "24Gi", "")]));
    let mut facts = node(&[web]);
    facts["guardRails"] = json!({"maxMemoryMinPercent": 50});
    let planned = plan(&facts).says_nothing_else();
    let rows = planned.decisions();
    let root = rows.as_array().unwrap().iter().find(|row| row["tier"] == "kubepods").cloned().unwrap();
    assert_eq!(root["value"], 16_u64 << 30, "{root}");
    assert_eq!(root["adjusted"]["wanted"], 24_u64 << 30, "{root}");
    assert!(root["adjusted"]["why"].as_str().unwrap().contains("maxMemoryMinPercent"), "{root}");
}

#[test]
fn a_protected_namespace_is_never_touched() {
    let mut web = pod("web", &qos(&json!({"minLimitPercent": 100})), &json!([memory("a", "1Gi", "")]));
    web["metadata"]["namespace"] = "kube-system".into();
    web["metadata"]["annotations"]["koordinator.sh/cpuBurst"] = r#"{"policy":"auto"}"#.into();
    web["spec"]["containers"][0]["resources"]["limits"] = limited("a", "2")["resources"]["limits"].clone();
    let mut facts = node(&[web]);
    facts["policies"] = json!([]);
    facts["guardRails"] = json!({"protectedNamespaces": ["kube-system"]});
    let planned = plan(&facts);
    planned.says(0, &["note: kube-system/web is in a protected namespace"]);
    assert_eq!(planned.rows(), [""; 0]);
}

/// The groups above a paused pod still count what it holds: otherwise its protection would be worth nothing.
#[test]
fn a_paused_pod_keeps_its_share_in_the_groups_above_it() {
    let containers = json!([memory("a", "1Gi", "")]);
    let web = |annotations| pod("web", &annotations, &containers);
    let mut held = web(json!({}));
    held["metadata"]["annotations"] = json!({"qosm.io/paused": "true"});
    let mut facts = node(&[web(qos(&json!({"minLimitPercent": 100})))]);
    facts["policies"] = json!([{"name": "memory-qos"}]);
    let ticks = [json!({"pods": {"upserted": [held]}}), json!({}), json!({"pods": {"upserted": [web(json!({}))]}})];
    let played: Vec<Vec<String>> = play(&facts, &ticks).lines().iter().map(|tick| report(&tick["decisions"])).collect();
    assert_eq!(played[1..3], [Vec::<String>::new(), Vec::new()], "{played:#?}");
    assert_eq!(
        played[3],
        [
            "container default/web/a memory.min 0",
            "pod default/web memory.min 0",
            "tier burstable memory.min 0",
            "tier kubepods memory.min 0",
        ]
    );
    // A pod that was paused from the start is not counted at all.
    assert_eq!(
        plan(&node(&[{
            let mut held = web(qos(&json!({"minLimitPercent": 100})));
            held["metadata"]["annotations"]["qosm.io/paused"] = "true".into();
            held
        }]))
        .rows(),
        [""; 0]
    );
}

/// Three knobs of a pod and of each of its containers, on a kernel that has none of them.
#[test]
fn a_missing_kernel_feature_is_one_event_for_a_pod() {
    let asked = qos(&json!({"minLimitPercent": 50, "lowLimitPercent": 50, "throttlingPercent": 80}));
    let web = |name: &str| pod(name, &asked, &json!([memory("a", "1Gi", "2Gi"), memory("b", "1Gi", "2Gi")]));
    let mut facts = node(&[web("web"), web("other")]);
    facts["host"]["cgroup"] = "v1".into();
    let planned = plan(&facts);
    let events: Vec<_> = planned.stderr.lines().filter(|line| line.contains("KnobRefused")).collect();
    assert_eq!(events.len(), 2, "{planned:#?}");
    for (event, name) in events.iter().zip(["web", "other"]) {
        assert!(
            event.starts_with(&format!(
                "event default/{name} KnobRefused: on this node these settings take no effect: "
            )),
            "{event}"
        );
        assert!(event.contains("memory.min, memory.low, memory.high (needs cgroup v2"), "{event}");
    }
}
