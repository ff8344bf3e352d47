//! Memory locality: plans of nodes in files, and the replay of a recorded migration.

use serde_json::{Value, json};

use crate::qosm::{plan, play, pod};

const LOCALITY: &str = "koordinator.sh/memoryLocality";

fn redis(locality: &Value) -> Value {
    pod("redis", &json!({LOCALITY: locality.to_string()}), &json!([{"name": "redis"}]))
}

fn facts(numa_nodes: &Value, locality: &Value) -> Value {
    json!({
        "host": {"cpus": 4, "numaNodes": numa_nodes},
        "policies": [{"name": "memory-locality"}],
        "pods": [redis(locality)],
        "cgroups": [{"pod": "default/redis", "container": "redis", "files": {
            "cpuset.cpus.effective": "2-3",
            "memory.numa_stat": "anon N0=233472000 N1=176128000\nfile N0=0 N1=0",
        }}],
    })
}

fn tick(migration: &Value, on_0: u64, on_1: u64) -> Value {
    let numa = json!({"cpuNodes": [1], "pages": {"0": on_0, "1": on_1}});
    json!({"containers": [{"pod": "default/redis", "container": "redis", "numa": numa, "migration": migration}]})
}

#[test]
fn a_plan_says_whose_pages_would_be_moved() {
    for nodes in [
        json!(2),
        json!([{"id": 0, "cpus": "0-1", "memory": "4Gi"}, {"id": 1, "cpus": "2-3", "memory": "4Gi", "distances": [21, 10]}]),
    ] {
        let planned = plan(&facts(&nodes, &json!({"policy": "bestEffort"})));
        planned.says(
            0,
            &["note: pages of default/redis/redis from NUMA node 0 to 1 would be moved by memory-locality: \
             43 % of its pages are local, 57000 are not"],
        );
        assert_eq!(planned.decisions(), json!([]), "{planned:#?}");
    }
    let planned = plan(&facts(&json!(1), &json!({"policy": "bestEffort"})));
    assert!(!planned.stderr.contains("moved"), "{planned:#?}");
}

#[test]
fn nodes_that_cannot_be_are_refused_by_name() {
    for (nodes, words) in [
        (json!(0), ["numaNodes", "1 to 1024"]),
        (json!("two"), ["number of NUMA nodes", "list"]),
        (json!([]), ["host.numaNodes", "at least one"]),
        (json!([{"id": 4000, "memory": "1Gi"}]), ["host.numaNodes", "4000"]),
        (json!([{"id": 0, "memory": "lots"}]), ["host.numaNodes", "number"]),
        (json!([{"id": 0, "memory": "1Gi", "distances": [10, 20]}]), ["host.numaNodes", "2 distances"]),
        (json!([{"id": 0, "memory": "1Gi", "cpu": "0"}]), ["cpu", "cpus"]),
    ] {
        let planned = plan(&facts(&nodes, &json!({"policy": "none"})));
        assert_ne!(planned.code, 0, "{planned:#?}");
        planned.says(planned.code, &words);
    }
    let ticks = [
        (json!({"numaNodes": {"7": {}}}), ["NUMA node 7", "0-1"]),
        (tick(&json!({"state": "done"}), 1, 1), ["", ""]),
        (tick(&json!({"state": "over"}), 1, 1), ["`over`", "waiting, moving, paused, done, failed, stopped"]),
    ];
    for (line, words) in ticks {
        let played = play(&facts(&json!(2), &json!({"policy": "none"})), &[line]);
        played.says(if words[0].is_empty() { 0 } else { 2 }, &words);
    }
}

#[test]
fn a_recorded_migration_plays_again() {
    let moving =
        tick(&json!({"state": "moving", "processes": 1, "pagesFound": 57_000, "pagesMoved": 20_000}), 37_000, 63_000);
    let done = tick(
        &json!({
            "state": "done", "processes": 2, "processesDone": 1, "processesGone": 1, "pagesFound": 57_000, "pagesMoved": 55_000,
            "pagesFailed": {"EBUSY": 2000}, "failures": [{"pid": 4711, "error": "No such process"}],
        }),
        2_000,
        98_000,
    );
    let played =
        play(&facts(&json!(2), &json!({"policy": "bestEffort"})), &[moving.clone(), moving, done.clone(), done]);
    assert_eq!(played.code, 0, "{played:#?}");
    let lines = played.lines();
    let asked: Vec<_> = lines.iter().filter(|line| line.get("migrations").is_some()).collect();
    assert_eq!(asked.len(), 1, "{played:#?}");
    assert_eq!(asked[0]["tick"], 0);
    assert_eq!(
        asked[0]["migrations"],
        json!([{
            "pod": "default/redis", "container": "redis", "from": [0], "to": [1], "policy": "memory-locality",
            "reason": "43 % of its pages are local, 57000 are not",
        }])
    );
    let report: Vec<_> = lines.iter().filter(|line| line.get("events").is_some()).collect();
    assert_eq!(report.len(), 1, "{played:#?}");
    assert_eq!((&report[0]["tick"], &report[0]["events"][0]["reason"]), (&json!(3), &json!("MemoryLocalityCompleted")));
    assert_eq!(
        report[0]["events"][0]["message"],
        "Container redis completed: failed to migrate the following processes: failed pid: 4711, \
         error: No such process,from remote numa: 0 to local numa: 1\n\
         Total: 1 container(s) completed, 0 failed, 0 skipped; cur local memory ratio 98, rest remote memory pages 2000"
    );
}

#[test]
fn a_bad_interval_is_reported_and_nothing_is_moved() {
    for interval in [json!(-5), json!("ten"), json!(1.5), json!([])] {
        let planned = plan(&facts(&json!(2), &json!({"policy": "bestEffort", "migrateIntervalMinutes": interval})));
        planned.says(1, &["problem: pod default/redis", LOCALITY, "migrateIntervalMinutes"]);
        assert!(!planned.stderr.contains("would be moved"), "{planned:#?}");
    }
}

#[test]
fn without_counts_of_pages_no_migration_is_reported() {
    let mut facts = facts(&json!(2), &json!({"policy": "bestEffort"}));
    facts["host"]["missingFiles"] = json!(["memory.numa_stat"]);
    let files = json!({"cpuset.cpus.effective": "2-3"});
    facts["cgroups"] = json!([{"pod": "default/redis", "container": "redis", "files": files}]);
    let planned = plan(&facts);
    assert_eq!((planned.code, &planned.json()["events"]), (0, &json!([])), "{planned:#?}");
    assert_eq!(planned.json()["migrations"], json!([]), "{planned:#?}");
}
