//! CPU Burst against its specification: the worked examples, the steps, the bounds, the share pool and the limiter.

use serde_json::{Value, json};

use crate::qosm::{container, limited, only, plan, pod, replay};

const BURST: &str = "koordinator.sh/cpuBurst";

/// A node with this kernel, with the steps of the specification.
fn node(kernel: &str, cpus: u32, pods: &[Value]) -> Value {
    json!({
        "host": {"cgroup": "v1", "driver": "cgroupfs", "kernel": kernel, "cpus": cpus},
        "policies": [{"name": "cpu-burst", "config": {"profile": "koordinator"}}],
        "pods": pods,
    })
}

/// One second in which the node's CPUs were busy for this long.
fn second(busy_usec: u64, containers: &[Value]) -> Value {
    json!({"windowMillis": 1000, "node": {"cpuUsageUsec": busy_usec}, "containers": containers})
}

fn sample(pod: &str, container: &str, usage_usec: u64, throttled: u64) -> Value {
    json!({
        "pod": format!("default/{pod}"), "container": container,
        "cpu": {"usageUsec": usage_usec, "nrPeriods": 10, "nrThrottled": throttled, "throttledUsec": throttled * 40_000},
    })
}

#[test]
fn a_burst_is_a_percentage_of_the_limit_and_the_pods_is_their_sum() {
    for (percent, bursts) in [(1000, [5_000_000, 3_000_000, 8_000_000]), (500, [2_500_000, 1_500_000, 4_000_000])] {
        let burst = json!({BURST: json!({"policy": "cpuBurstOnly", "cpuBurstPercent": percent}).to_string()});
        let web = pod("web", &burst, &json!([limited("a", "5"), limited("b", "3")]));
        let rows = plan(&node("alibaba", 16, &[web])).says_nothing_else().rows();
        assert_eq!(
            rows,
            [
                format!("container default/web/a cpu.burst {}", bursts[0]),
                format!("container default/web/b cpu.burst {}", bursts[1]),
                format!("pod default/web cpu.burst {}", bursts[2]),
            ]
        );
    }
}

/// On v1 the kernel refuses an init container a quota above that of its pod.
#[test]
fn a_starting_pod_does_not_keep_others_from_being_planned() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let mut starting = pod("starting", &json!({}), &json!([limited("a", "2")]));
    starting["spec"]["initContainers"] = json!([limited("init", "3")]);
    starting["status"] = json!({
        "phase": "Pending",
        "initContainerStatuses": [{
            "name": "init", "image": "init", "imageID": "", "ready": false, "restartCount": 0,
            "containerID": "containerd://1111", "state": {"running": {}},
        }],
    });
    let rows = plan(&node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2")])), starting])).rows();
    assert_eq!(rows, ["container default/web/a cpu.burst 200000", "pod default/web cpu.burst 200000"]);
}

#[test]
fn a_tiny_limit_has_a_base_of_1000_but_a_burst_of_its_own() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let web = pod("web", &auto, &json!([limited("a", "5m")]));
    let rows = plan(&node("alibaba", 16, &[web])).says_nothing_else().rows();
    assert_eq!(rows, ["container default/web/a cpu.burst 5000", "pod default/web cpu.burst 5000"]);
}

#[test]
fn a_mainline_kernel_gets_no_burst_above_the_quota_and_the_plan_says_so() {
    let burst = json!({BURST: r#"{"policy":"cpuBurstOnly"}"#});
    for version in ["v1", "v2"] {
        let web = pod("web", &burst, &json!([limited("a", "2")]));
        let mut facts = node("mainline", 8, &[web]);
        facts["host"]["cgroup"] = version.into();
        let plan = plan(&facts).says_nothing_else();
        assert_eq!(plan.rows(), ["container default/web/a cpu.burst 200000", "pod default/web cpu.burst 200000"]);
        for row in plan.decisions().as_array().unwrap() {
            assert_eq!(row["adjusted"]["wanted"], 2_000_000, "{row}");
            assert!(row["adjusted"]["why"].as_str().unwrap().contains("quota"), "{row}");
            let file = if version == "v1" { "cpu.cfs_burst_us" } else { "cpu.max.burst" };
            assert_eq!((&row["file"], &row["current"]), (&json!(file), &json!(0)), "{row}");
            assert!(row["path"].as_str().unwrap().ends_with(file), "{row}");
        }
    }
}

#[test]
fn a_kernel_without_the_file_is_reported_and_the_quota_loop_goes_on() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let mut facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2")]))]);
    facts["host"]["missingFiles"] = json!(["cpu.cfs_burst_us"]);
    let planned = plan(&facts);
    planned
        .says(1, &["not possible: cpu.burst of", "default/web/a (2000000)", "wanted by cpu-burst", "cpu.cfs_burst_us"]);
    assert!(planned.rows().is_empty(), "{planned:#?}");
    let played = replay(&facts, &[second(0, &[sample("web", "a", 1_900_000, 5)])]);
    assert_eq!(played[1], ["container default/web/a cpu.quota 240000", "pod default/web cpu.quota 240000"]);
}

#[test]
fn pods_without_a_limit_or_not_eligible_are_left_alone() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let mut pods = Vec::new();
    for class in ["LSR", "LSE", "BE"] {
        let mut pod = pod(&class.to_lowercase(), &auto, &json!([limited("a", "2")]));
        pod["metadata"]["labels"] = json!({"koordinator.sh/qosClass": class});
        pods.push(pod);
    }
    pods.push(pod("free", &auto, &json!([container("a", &json!({"cpu": "1"}), &json!({}))])));
    let mut ended = pod("ended", &auto, &json!([limited("a", "2")]));
    ended["status"] = json!({"phase": "Succeeded"});
    pods.push(ended);
    pods.push(pod("quiet", &json!({}), &json!([limited("a", "2")])));
    let planned = plan(&node("alibaba", 8, &pods));
    let asked =
        ["lsr", "lse", "be", "free"].map(|name| format!("not done: cpu.burst of default/{name}, wanted by cpu-burst"));
    planned.says(0, &asked.each_ref().map(String::as_str));
    assert!(planned.rows().is_empty() && planned.stderr.lines().count() == asked.len(), "{planned:#?}");
}

#[test]
fn ls_system_and_undeclared_pods_are_eligible_guaranteed_ones_too() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let guaranteed =
        json!([container("a", &json!({"cpu": "2", "memory": "1Gi"}), &json!({"cpu": "2", "memory": "1Gi"}))]);
    for (class, containers, tier) in [
        (Some("LS"), json!([limited("a", "2")]), "burstable/"),
        (Some("SYSTEM"), json!([limited("a", "2")]), "burstable/"),
        (None, json!([limited("a", "2")]), "burstable/"),
        (None, guaranteed, ""),
    ] {
        let mut web = pod("web", &auto, &containers);
        if let Some(class) = class {
            web["metadata"]["labels"] = json!({"koordinator.sh/qosClass": class});
        }
        let plan = plan(&node("alibaba", 8, &[web])).says_nothing_else();
        assert_eq!(plan.rows(), ["container default/web/a cpu.burst 2000000", "pod default/web cpu.burst 2000000"]);
        let path = format!("/sys/fs/cgroup/cpu/kubepods/{tier}poduid-web/a/cpu.cfs_burst_us");
        assert!(
            plan.decisions().as_array().unwrap().iter().any(|row| row["path"] == path.as_str()),
            "{path}: {plan:#?}"
        );
    }
}

/// Limit 2 CPUs, ceiling 300 %: seven steps up and five down.
#[test]
fn the_loop_takes_the_specified_steps() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2")]))]);
    let mut ticks = vec![second(1_000_000, &[sample("web", "a", 1_900_000, 1)]); 8];
    // From the first of these ticks on, the average of five seconds is above half of eight CPUs.
    ticks.extend(vec![second(32_000_000, &[sample("web", "a", 100_000, 0)]); 6]);
    let quotas = replay(&facts, &ticks);
    let expected = [
        240_000, 288_000, 345_600, 414_720, 497_664, 597_196, 600_000, 0, 480_000, 384_000, 307_200, 245_760, 200_000,
        0,
    ];
    assert!(quotas[0].is_empty(), "at the base there is nothing to write: {quotas:?}");
    for (tick, expected) in (1..).zip(expected) {
        let rows: Vec<String> = match expected {
            0 => Vec::new(),
            quota => {
                vec![format!("container default/web/a cpu.quota {quota}"), format!("pod default/web cpu.quota {quota}")]
            }
        };
        assert_eq!(quotas[tick], rows, "tick {tick}");
    }
}

#[test]
fn a_quota_that_was_raised_before_goes_on_from_there() {
    let auto = json!({BURST: r#"{"policy":"auto"}"#});
    let mut facts = node("alibaba", 8, &[pod("web", &auto, &json!([limited("a", "1")]))]);
    facts["cgroups"] = json!([
        {"pod": "default/web", "files": {"cpu.cfs_quota_us": "200000"}},
        {"pod": "default/web", "container": "a", "files": {"cpu.cfs_quota_us": "200000"}},
    ]);
    let played = replay(&facts, &[second(0, &[sample("web", "a", 990_000, 1)])]);
    assert_eq!(only(&played[0], "cpu.burst")[0], "container default/web/a cpu.burst 1000000");
    assert_eq!(played[1], ["container default/web/a cpu.quota 240000", "pod default/web cpu.quota 240000"]);
}

#[test]
fn a_pod_gets_the_sum_of_its_containers() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let facts = node("mainline", 32, &[pod("web", &auto, &json!([limited("a", "2"), limited("b", "3")]))]);
    let both = second(0, &[sample("web", "a", 1_900_000, 1), sample("web", "b", 2_900_000, 2)]);
    let one = second(0, &[sample("web", "a", 1_900_000, 1), sample("web", "b", 100_000, 0)]);
    let played = replay(&facts, &[both, one]);
    assert_eq!(
        played[1],
        [
            "container default/web/a cpu.quota 240000",
            "container default/web/b cpu.quota 360000",
            "pod default/web cpu.quota 600000",
        ]
    );
    assert_eq!(played[2], ["container default/web/a cpu.quota 288000", "pod default/web cpu.quota 648000"]);
}

#[test]
fn a_pod_with_an_unlimited_container_stays_unlimited() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let free = container("free", &json!({}), &json!({}));
    let facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2"), free]))]);
    let played = replay(&facts, &[second(0, &[sample("web", "a", 1_900_000, 1)])]);
    assert_eq!(played[1], ["container default/web/a cpu.quota 240000"]);
}

/// Recordings show limits that no kubelet has written.
#[test]
fn a_pod_that_grew_comes_back_to_what_its_limits_give() {
    let web = |cpu: &str, policy: &str| {
        let containers = json!([limited("a", cpu), limited("b", "100m")]);
        pod("web", &json!({BURST: json!({"policy": policy}).to_string()}), &containers)
    };
    let tick = |throttled: u64, upserted: Option<Value>| {
        let mut tick = second(500_000, &[sample("web", "a", 10_000, 0), sample("web", "b", 10_000, throttled)]);
        tick["pods"] = json!({"upserted": upserted.as_slice()});
        tick
    };
    let loop_only = "cfsQuotaBurstOnly";
    let ticks = [tick(5, None), tick(0, Some(web("1", loop_only))), tick(0, None), tick(0, Some(web("1", "none")))];
    for version in ["v1", "v2"] {
        let mut facts = node("mainline", 8, &[web("100m", loop_only)]);
        facts["host"]["cgroup"] = version.into();
        let played = replay(&facts, &ticks);
        assert_eq!(played[2], ["container default/web/a cpu.quota 100000", "pod default/web cpu.quota 112000"]);
        assert_eq!(played[4], ["container default/web/b cpu.quota 10000", "pod default/web cpu.quota 110000"]);
    }
}

/// A defect of the reference agent: it limits again what a kubelet without CFS quota, or another program, left unlimited.
#[test]
fn an_unlimited_quota_is_not_limited_again() {
    for policy in ["none", "auto", "cfsQuotaBurstOnly"] {
        let annotation = json!({BURST: json!({"policy": policy}).to_string()});
        let mut facts = node("mainline", 8, &[pod("web", &annotation, &json!([limited("a", "2")]))]);
        facts["cgroups"] = json!([
            {"pod": "default/web", "files": {"cpu.cfs_quota_us": "-1"}},
            {"pod": "default/web", "container": "a", "files": {"cpu.cfs_quota_us": "-1"}},
        ]);
        let played = replay(&facts, &[second(0, &[sample("web", "a", 1_900_000, 0)])]);
        for rows in &played {
            assert!(only(rows, "cpu.quota").is_empty(), "{policy}: {played:?}");
        }
    }
}

#[test]
fn a_quota_above_the_ceiling_is_cut_in_one_step() {
    let web = |percent: u32| {
        let text = json!({"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": percent}).to_string();
        pod("web", &json!({BURST: text}), &json!([limited("a", "2")]))
    };
    let mut ticks = vec![second(0, &[sample("web", "a", 1_900_000, 1)]); 4];
    let mut narrowed = second(0, &[sample("web", "a", 100_000, 0)]);
    narrowed["pods"] = json!({"upserted": [web(150)]});
    ticks.push(narrowed);
    let played = replay(&node("mainline", 8, &[web(300)]), &ticks);
    let quotas = containers_quotas(&played);
    assert_eq!(quotas[4..], [Some(414_720), Some(300_000)], "{played:?}");
}

/// A quota that systemd rounded up, or that another agent left.
#[test]
fn a_quota_that_was_found_is_never_lowered() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPercent":150}"#});
    let mut facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2")]))]);
    facts["cgroups"] = json!([
        {"pod": "default/web", "files": {"cpu.cfs_quota_us": "900000"}},
        {"pod": "default/web", "container": "a", "files": {"cpu.cfs_quota_us": "900000"}},
    ]);
    let played = replay(&facts, &vec![second(32_000_000, &[sample("web", "a", 100_000, 0)]); 6]);
    assert!(containers_quotas(&played).iter().all(Option::is_none), "{played:?}");
}

/// The container's quotas, tick by tick; `None` = not written.
fn containers_quotas(played: &[Vec<String>]) -> Vec<Option<u64>> {
    let quota = |rows: &Vec<String>| {
        rows.iter().find_map(|row| row.strip_prefix("container default/web/a cpu.quota ")?.parse().ok())
    };
    played.iter().map(quota).collect()
}

/// 16 CPUs of which an LSR pod reserves 8; the threshold is half of the other 8.
#[test]
fn the_share_pool_leaves_out_what_is_reserved() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let eight = json!({"cpu": "8", "memory": "1Gi"});
    let mut reserved = pod("reserved", &json!({}), &json!([container("a", &eight, &eight)]));
    reserved["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LSR"});
    let facts = node("mainline", 16, &[pod("web", &auto, &json!([limited("a", "2")])), reserved]);
    for (reserved_usec, seconds, expected) in [
        (7_000_000, 5, Some(std::cmp::Ordering::Greater)), // 3 of 8: idle
        (6_250_000, 5, None),                              // 3.75 of 8: cooling, nothing moves
        (5_000_000, 3, Some(std::cmp::Ordering::Less)),    // 5 of 8: overload, until it is back at its limit
    ] {
        let used =
            |reserved| second(10_000_000, &[sample("web", "a", 1_900_000, 1), sample("reserved", "a", reserved, 0)]);
        // The quota is raised twice; then the average of five seconds is that of `reserved_usec`.
        let mut ticks = vec![used(7_000_000); 2];
        ticks.extend(vec![used(reserved_usec); seconds]);
        let quotas = containers_quotas(&replay(&facts, &ticks));
        let (last, before) = quotas.split_last().unwrap();
        let before = before.iter().rev().find_map(|quota| *quota).unwrap();
        assert_eq!(last.map(|last| last.cmp(&before)), expected, "{reserved_usec}: {quotas:?}");
    }
}

#[test]
fn without_a_measurement_nothing_moves() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "2")]))]);
    let no_container = second(0, &[]);
    let mut no_node = second(0, &[sample("web", "a", 1_900_000, 5)]);
    no_node["node"] = Value::Null;
    for tick in [no_container, no_node] {
        assert!(replay(&facts, std::slice::from_ref(&tick))[1].is_empty(), "{tick}");
    }
}

/// 10 s at 300 %: a capacity of 2000 percent-seconds. Twice the limit costs 100 a second.
#[test]
fn the_limiter_brings_a_spender_down_and_a_saver_up() {
    let annotation = json!({
        BURST: r#"{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPercent":300,"cfsQuotaBurstPeriodSeconds":10}"#
    });
    let facts = node("mainline", 32, &[pod("web", &annotation, &json!([limited("a", "2")]))]);
    // No container starts with more than half of the capacity: after eleven seconds at twice the limit the tokens are gone.
    let spending = vec![second(0, &[sample("web", "a", 4_000_000, 5)]); 40];
    let quota = |rows: &Vec<String>| -> Option<u64> {
        rows.iter().find_map(|row| row.strip_prefix("container default/web/a cpu.quota "))?.parse().ok()
    };
    let played = replay(&facts, &spending);
    let moves: Vec<u64> = played.iter().filter_map(quota).collect();
    assert_eq!(moves.first(), Some(&240_000), "{moves:?}");
    assert_eq!(moves.last(), Some(&200_000), "it ends at the base: {moves:?}");
    let top = moves.iter().copied().max().unwrap();
    let after_top: Vec<u64> = moves.iter().copied().skip_while(|&quota| quota != top).collect();
    assert!(after_top.is_sorted_by(|a, b| a > b), "it comes down by a fifth at a time: {moves:?}");

    let mut saving = spending;
    saving.extend(vec![second(0, &[sample("web", "a", 0, 0)]); 25]);
    saving.push(second(0, &[sample("web", "a", 2_000_000, 1)]));
    assert_eq!(quota(replay(&facts, &saving).last().unwrap()), Some(240_000), "25 idle seconds pay for a step");
}

#[test]
fn a_limiter_without_capacity_never_allows() {
    for body in [
        r#"{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPeriodSeconds":0}"#,
        r#"{"policy":"cfsQuotaBurstOnly","cfsQuotaBurstPercent":100,"cfsQuotaBurstPeriodSeconds":60}"#,
    ] {
        let facts = node("mainline", 8, &[pod("web", &json!({BURST: body}), &json!([limited("a", "2")]))]);
        let played = replay(&facts, &vec![second(0, &[sample("web", "a", 1_900_000, 9)]); 5]);
        assert!(played.iter().all(Vec::is_empty), "{body}: {played:?}");
    }
}

/// The default profile keeps the bounds of the other one, but gives what is missing at once and lowers the
/// quota when the container is calm.
#[test]
fn the_responsive_profile_raises_by_need_and_decays() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let mut facts = node("mainline", 32, &[pod("web", &auto, &json!([limited("a", "2")]))]);
    facts["policies"] = json!([{"name": "cpu-burst"}]);
    let mut busy = sample("web", "a", 2_000_000, 10);
    busy["cpu"]["throttledUsec"] = json!(3_000_000);
    let mut ticks = vec![second(2_000_000, &[busy])];
    ticks.extend(vec![second(500_000, &[sample("web", "a", 500_000, 0)]); 30]);
    let played = replay(&facts, &ticks);
    let quotas: Vec<u64> = played
        .iter()
        .flatten()
        .filter_map(|row| row.strip_prefix("container default/web/a cpu.quota ")?.parse().ok())
        .collect();
    let (first, last) = (quotas.first().copied().unwrap(), quotas.last().copied().unwrap());
    assert!((480_000..=600_000).contains(&first), "300 ms were missing in each period: {quotas:?}");
    assert_eq!(last, 200_000, "calm again, it ends at the base: {quotas:?}");
    assert!(quotas.iter().all(|quota| (200_000..=600_000).contains(quota)), "{quotas:?}");
}

/// The written quotas of `default/web/a`, tick by tick, beside a container with 4 exclusive CPUs of 8. `web` uses one CPU and is
/// throttled, the other container uses all 4.
fn beside_pinned(version: &str, facts_say: &str, first_line_says: &str) -> Vec<u64> {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    let four = json!({"cpu": "4", "memory": "1Gi"});
    let pinned = pod("pinned", &json!({}), &json!([container("a", &four, &four)]));
    let mut facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "1")])), pinned]);
    facts["host"]["cgroup"] = json!(version);
    let file = if version == "v1" { "cpuset.cpus" } else { "cpuset.cpus.effective" };
    let says = |cpus: &str| json!([{"pod": "default/pinned", "container": "a", "files": {file: cpus}}]);
    facts["cgroups"] = says(facts_say);
    let mut ticks =
        vec![second(5_000_000, &[sample("web", "a", 1_000_000, 5), sample("pinned", "a", 4_000_000, 0)]); 10];
    ticks[0]["cgroups"] = says(first_line_says);
    let played = replay(&facts, &ticks);
    let quota = |row: &String| row.strip_prefix("container default/web/a cpu.quota ")?.parse().ok();
    played.iter().flatten().filter_map(quota).collect()
}

#[test]
fn exclusive_cpus_are_outside_of_the_pool_however_late_they_come() {
    let climbs = [120_000, 144_000, 172_800, 207_360, 248_832, 298_598, 300_000];
    for version in ["v1", "v2"] {
        assert_eq!(beside_pinned(version, "2-5", "2-5"), climbs, "{version}: there from the start");
        assert_eq!(beside_pinned(version, "0-7", "2-5"), climbs, "{version}: after the container");
        assert_eq!(beside_pinned(version, "0-7", "0-7"), [0; 0], "{version}: 5 of 8 CPUs are in use");
    }
}

#[test]
fn cpus_reserved_for_the_system_are_no_part_of_the_pool() {
    let auto = json!({BURST: r#"{"policy":"cfsQuotaBurstOnly"}"#});
    // 3 CPUs are in use: less than half of 8, and more than half of 4.
    let ticks = vec![second(3_000_000, &[sample("web", "a", 1_000_000, 5)]); 2];
    for (cpus, raised) in [("0-7", true), ("4-7", false)] {
        let mut facts = node("mainline", 8, &[pod("web", &auto, &json!([limited("a", "1")]))]);
        facts["cgroups"] = json!([{"pod": "default/web", "container": "a", "files": {"cpuset.cpus": cpus}}]);
        assert_eq!(replay(&facts, &ticks).iter().any(|tick| !tick.is_empty()), raised, "{cpus}");
    }
}
