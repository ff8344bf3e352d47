//! What a policy sees.

use std::time::Duration;

use qosm_engine::{Cause, Columns, InheritedState, Interface, Limits, PodView};
use qosm_model::unit::{Bytes, Micros};
use serde_json::{Value, json};

use crate::node::{BATCH, ENGINE, Tried, WEB, batch, columns, everything, load, web};
use crate::opa;

const ALL: &str = "node, cpu-stat, memory-stat, pressure, numa-stat, page-migration, cpuset, resctrl-monitor, resctrl-allocation, \
     node-object, pod-object, cluster-config, cpu-topology, cpu-identity, block-io, node-resource, eviction";
const SHOWN: &str = "settings contains {\"state\": {\"input\": input, \"data\": data.limits}}";

/// The input and data that a policy with these grants sees.
fn shown(grants: &str) -> Value {
    Tried::of(&opa::build(&[
        ("policy.rego", &opa::text(grants, SHOWN)),
        ("data.json", r#"{"limits": {"big": 123456789012345678901, "share": 0.10}}"#),
    ]))
    .state()
}

#[test]
fn the_input_is_what_its_schema_says() {
    let schema = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rego/input.schema.json"));
    let schema: Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for grants in [
        ALL,
        "",
        "node",
        "cpu-stat",
        "resctrl-monitor",
        "resctrl-allocation",
        "node-object",
        "pod-object",
        "cluster-config",
        "cpu-identity",
        "block-io",
        "node-resource",
        "eviction",
    ] {
        let input = &shown(grants)["input"];
        let errors: Vec<_> =
            validator.iter_errors(input).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{grants}: {errors:#?}");
    }
    let broken = json!({"tick": {}, "config": {}, "state": {}, "pods": [{"id": 1}]});
    assert!(!validator.is_valid(&broken));
}

#[test]
fn all_that_was_measured_is_there() {
    let input = shown(ALL)["input"].take();
    assert_eq!(
        input["tick"],
        json!({
            "windowUsec": 1_000_000,
            "elapsedUsec": 1_000_000,
            "cause": "interval",
            "alarms": [
                {"trigger": "throttling", "container": "10"},
                {
                    "trigger": {"pressure": {
                        "scope": "pod", "resource": "memory", "full": false, "stallUsec": 150_000, "windowUsec": 1_000_000
                    }},
                    "pod": "1"
                },
                {"trigger": "containerStarted"},
            ],
        })
    );
    assert_eq!(
        input["pods"][0],
        json!({
            "id": "1", "namespace": "default", "name": "web", "uid": "uid-web", "declaredQos": "LS", "qos": "LS",
            "kubeQos": "Burstable", "priority": -3, "active": true, "hostPid": false, "staticPod": false,
            "labels": {"app": "web", "koordinator.sh/qosClass": "LS"},
            "containers": [
                {"id": "10", "name": "app", "kind": "regular", "state": "running", "cpuRequestMilli": 500,
                 "cpuLimitMilli": 1500, "memoryLimitBytes": 1 << 30, "extendedResources": {}},
                {"id": "11", "name": "log", "kind": "sidecar", "state": "running", "cpuRequestMilli": 500,
                 "cpuLimitMilli": 1500, "memoryLimitBytes": 1 << 30, "extendedResources": {}},
            ],
            "cpuOverheadMilli": 0, "memoryOverheadBytes": 0, "memoryRequestBytes": 1 << 29,
            "config": {"policy": "auto", "share": 1.5}, "annotated": true,
        })
    );
    let batch = &input["pods"][1];
    assert_eq!((&batch["qos"], &batch["kubeQos"], batch.get("priority")), (&json!("BE"), &json!("BestEffort"), None));
    assert_eq!(
        batch["containers"],
        json!([{
            "id": "20", "name": "job \"é\"", "kind": "regular", "state": "running", "cpuRequestMilli": 500,
            "extendedResources": {"kubernetes.io/batch-memory": {"request": 1 << 20}}, "exclusiveCpus": 2,
        }])
    );
    assert_eq!(
        input["node"],
        json!({
            "cpus": 8, "memoryCapacityBytes": 32_u64 << 30, "memoryAllocatableBytes": 30_u64 << 30, "pageSizeBytes": 4096,
            "cpuUsageUsec": 2_000_000,
            "memory": {
                "totalBytes": 32_u64 << 30, "freeBytes": 1 << 30, "availableBytes": 2_u64 << 30, "activeFileBytes": 3 << 20,
                "inactiveFileBytes": 4 << 20, "minMarkBytes": 1 << 26,
            },
            "pressure": {
                "cpu": {"someUsec": 0, "fullUsec": 0}, "memory": {"someUsec": 7000, "fullUsec": 3500}, "io": {"someUsec": 0, "fullUsec": 0},
            },
            "applications": {
                "etl": {
                    "qos": "BE", "priority": "koord-batch", "tier": "besteffort", "cpuUsageUsec": 4,
                    "memory": {"usageBytes": 3 << 20, "activeFileBytes": 0, "inactiveFileBytes": 1 << 20},
                },
                "sshd": {},
            },
            "groups": {
                "tiers": {"besteffort": {"cpuUsageUsec": 5}},
                "pods": {"1": {
                    "cpuUsageUsec": 6, "cpuThrottledUsec": 7, "cpuPressure": {"someUsec": 8, "fullUsec": 1},
                    "memory": {"usageBytes": 9 << 20, "activeFileBytes": 1 << 20, "inactiveFileBytes": 2 << 20},
                    "maxEvents": 2, "oomKills": 1,
                }},
                "outside": {},
            },
        })
    );
    assert_eq!(
        input["cpuTopology"],
        json!({
            "cpus": [
                {"id": 0, "core": 0, "socket": 1, "numaNode": 2, "online": true},
                {"id": 1, "core": 0, "socket": 1, "numaNode": 2, "online": false},
            ],
            "manager": "static", "reserved": [0],
            "exclusive": [{"container": "10", "cpus": [0]}, {"cpus": [1]}],
            "sets": {"tiers": {"besteffort": [1]}, "pods": {"2": [1]}, "containers": {}},
        })
    );
    assert_eq!(
        input["cpu"]["20"],
        json!({"usageUsec": 20_000, "nrPeriods": 10, "nrThrottled": 3, "throttledUsec": 40_000})
    );
    assert_eq!(
        input["bandwidth"],
        json!({
            "containers": {
                "10": {"quotaUsec": 150_000, "baselineQuotaUsec": 150_000, "periodUsec": 100_000},
                "11": {"quotaUsec": "max", "baselineQuotaUsec": "max", "periodUsec": 100_000},
            },
            "pods": {"1": {"quotaUsec": "max", "baselineQuotaUsec": "max", "periodUsec": 100_000}},
            "tiers": {"besteffort": {"quotaUsec": 50_000, "baselineQuotaUsec": "max", "periodUsec": 100_000}},
        })
    );
    assert_eq!(input["memory"]["11"]["usageBytes"], 11 << 20);
    assert_eq!(input["pressure"]["10"]["memory"], json!({"someUsec": 2000, "fullUsec": 1000}));
    assert_eq!(input["numa"]["nodes"][1]["availableBytes"], 4_u64 << 30);
    assert_eq!(
        input["numa"]["containers"],
        json!({"10": {
            "identity": u64::MAX.to_string(), "cpuNodes": [0], "memoryNodes": [0, 1],
            "pages": [{"node": 0, "pages": 100}, {"node": 1, "pages": 300}],
        }})
    );
    assert_eq!(
        input["migrations"]["10"],
        json!({
            "token": 4, "state": "moving", "pagesFound": 300, "pagesMoved": 100, "pagesFailed": {"EBUSY": 2},
            "pagesWithoutRoom": 0, "failures": [{"pid": 7, "error": "No such process"}], "why": "",
        })
    );
    assert_eq!(input["groupIdentity"], json!({"supported": false, "why": "this kernel has none"}));
    assert_eq!(input["coreScheduling"], json!({"supported": true}));
    let usage =
        |domain, bytes: u64| json!({"domain": domain, "occupancyBytes": bytes << 20, "totalBytes": bytes << 30});
    assert_eq!(
        input["resctrl"],
        json!({
            "domains": [
                {"id": 0, "cacheWays": 11, "cacheBytes": 33 << 20, "dividesBandwidth": true},
                {"id": 8, "cacheWays": 0, "dividesBandwidth": false},
            ],
            "classes": {"be": [usage(0, 1), usage(8, 2)]},
            "containers": {"10": [usage(0, 3), {"domain": 8}]},
            "rest": [usage(0, 20)],
            "states": {"be": {"inForce": true, "why": ""}, "ls": {"inForce": false, "why": "no class is left"}},
        })
    );
}

#[test]
fn what_objects_and_the_cluster_config_map_say_is_there() {
    let input = shown(ALL)["input"].take();
    assert_eq!(
        input["nodeObject"],
        json!({
            "name": "edge-7", "labels": {"pool": "batch"}, "annotations": {"note": "\"é\""},
            "resources": {"cpu": {"capacity": 8000, "allocatable": 7910}, "example.com/x": {"allocatable": i64::MAX}},
            "zones": [{"id": 1, "resources": {"cpu": {"capacity": 4000}}}],
        })
    );
    assert_eq!(
        input["podObjects"],
        json!({
            "1": {
                "annotations": {"a": "1"}, "createdAtSec": 1_700_000_000, "deleting": true, "gracePeriodSec": 0, "mirror": false,
                "ownerKind": "DaemonSet", "ownerName": "web", "cpuRequestMilli": 1500, "restartPolicy": "Always",
            },
            "2": {"annotations": {}, "deleting": false, "mirror": true, "restartPolicy": "Never"},
        })
    );
    let keys = &input["clusterConfig"];
    assert_eq!(
        keys["resource-threshold-config"],
        json!({"value": {"clusterStrategy": {"enable": true}}, "strategy": {"enable": true}})
    );
    assert_eq!(
        (&keys["colocation-config"]["strategy"], &keys["colocation-config"]["value"]["policy"]),
        (&json!({}), &json!(""))
    );
}

#[test]
fn devices_are_there_and_volumes_of_known_pods() {
    let input = shown(ALL)["input"].take();
    let disk = json!({"names": ["sdb"], "partitions": ["sdb1"], "volumeGroups": ["data"]});
    assert_eq!(input["blockDevices"], json!({"8:16": disk}));
    assert_eq!(input["podVolumes"], json!({"1": [{"name": "pvc-1", "device": "8:16"}]}));
}

#[test]
fn of_caches_and_memory_bandwidth_is_there_what_is_declared() {
    for (grants, there) in [
        ("resctrl-monitor", &["classes", "containers", "domains", "rest"][..]),
        ("resctrl-allocation", &["states"]),
        ("resctrl-allocation, resctrl-monitor", &["classes", "containers", "domains", "rest", "states"]),
    ] {
        let resctrl = shown(grants)["input"]["resctrl"].take();
        let found: Vec<_> = resctrl.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, there, "{grants}");
    }
}

#[test]
fn a_column_is_there_if_it_is_declared() {
    let columns = [
        "node",
        "cpu",
        "bandwidth",
        "memory",
        "pressure",
        "numa",
        "migrations",
        "resctrl",
        "nodeObject",
        "podObjects",
        "clusterConfig",
        "groupIdentity",
        "coreScheduling",
        "blockDevices",
        "podVolumes",
        "resources",
        "evictions",
    ];
    for (grants, there) in [
        ("", &[][..]),
        ("node", &["node"]),
        ("cpu-stat", &["cpu", "bandwidth"]),
        ("memory-stat", &["memory"]),
        ("pressure", &["pressure"]),
        ("numa-stat", &["numa"]),
        ("page-migration", &["migrations"]),
        ("resctrl-monitor", &["resctrl"]),
        ("resctrl-allocation", &["resctrl"]),
        ("node-object", &["nodeObject"]),
        ("pod-object", &["podObjects"]),
        ("cluster-config", &["clusterConfig"]),
        ("cpu-identity", &["groupIdentity", "coreScheduling"]),
        ("block-io", &["blockDevices", "podVolumes"]),
        ("node-resource", &["resources"]),
        ("eviction", &["evictions"]),
    ] {
        let input = &shown(grants)["input"];
        let found: Vec<_> = columns.into_iter().filter(|column| input.get(column).is_some()).collect();
        assert_eq!(found, there, "{grants}");
    }
}

#[test]
fn a_declared_column_that_was_not_measured_is_empty() {
    let mut tried = Tried::of(&opa::policy(ALL, "settings contains {\"state\": {\"input\": input}}"));
    let staged = tried.instance.evaluate(Micros(0), Cause::ConfigChanged, &Columns::default()).unwrap();
    let state: Value = serde_json::from_slice(&staged.state.unwrap()).unwrap();
    let input = &state["input"];
    assert_eq!((&input["cpu"], &input["tick"]["cause"]), (&json!({}), &json!("configChanged")));
    assert_eq!(input["bandwidth"], json!({"containers": {}, "pods": {}, "tiers": {}}));
    let resctrl = json!({"domains": [], "classes": {}, "containers": {}, "rest": [], "states": {}});
    assert_eq!(input["resctrl"], resctrl, "as on a machine that has none");
    assert_eq!((&input["podObjects"], &input["clusterConfig"]), (&json!({}), &json!({})));
    assert!(input.get("nodeObject").is_none());
    assert!(input.get("node").is_none(), "what a node has is not known before it was read");
}

#[test]
fn numbers_of_data_and_configuration_stay_what_they_are() {
    let rules =
        "settings contains {\"state\": {\"text\": json.marshal([data.limits, input.config, input.pods[0].config])}}";
    let bundle = opa::build(&[
        ("policy.rego", &opa::text("", rules)),
        ("data.json", r#"{"limits": {"big": 123456789012345678901}}"#),
    ]);
    let mut tried = Tried::of(&bundle);
    tried.instance.configure(r#"{"n": 9007199254740993}"#).unwrap();
    let text = tried.state()["text"].as_str().unwrap().to_owned();
    assert!(text.contains("123456789012345678901") && text.contains("9007199254740993"), "{text}");
}

#[test]
fn what_did_not_change_is_shown_again() {
    let rules = "settings contains {\"state\": {\"pods\": [pod.name | some pod in input.pods], \"n\": count(input.bandwidth.containers), \
                 \"data\": data.x, \"elapsed\": input.tick.elapsedUsec}}";
    let bundle = opa::build(&[("policy.rego", &opa::text("cpu-stat", rules)), ("data.json", r#"{"x": [1]}"#)]);
    let mut tried = Tried::of(&bundle);
    for seconds in 1..5_u64 {
        let expected = json!({"pods": ["web", "batch"], "n": 2, "data": [1], "elapsed": seconds * 1_000_000});
        assert_eq!(tried.state(), expected);
    }
    // Of two documents, the lower one changes, then the upper one alone.
    tried.instance.configure(r#"{"data": {"x": [2]}}"#).unwrap();
    assert_eq!((&tried.state()["data"], &tried.state()["n"]), (&json!([2]), &json!(2)));
    let mut fewer = columns();
    fewer.bandwidth = Some(fewer.bandwidth.unwrap()[..2].into());
    let staged = tried.instance.evaluate(Micros(1), Cause::Interval, &fewer).unwrap();
    let state: Value = serde_json::from_slice(&staged.state.unwrap()).unwrap();
    assert_eq!((&state["n"], &state["pods"]), (&json!(1), &json!(["web", "batch"])));
    // A pod changes, one goes, one stays.
    let (id, mut pod, containers) = web();
    pod.name = "web-2".to_owned();
    tried.tell(&[(id, pod, containers)]).unwrap();
    assert_eq!(tried.state()["pods"], json!(["web-2", "batch"]));
    tried.instance.pods(&[], &[WEB]).unwrap();
    assert_eq!(tried.state()["pods"], json!(["batch"]));
    tried.instance.pods(&[], &[BATCH]).unwrap();
    assert_eq!(tried.state()["pods"], json!([]));
    tried.tell(&[batch()]).unwrap();
    assert_eq!(tried.state()["pods"], json!(["batch"]));
    // A pod that is refused does not keep one that left in the same call.
    let (id, pod, _) = web();
    let config = format!("{{\"deep\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let refused = PodView { id, pod: &pod, containers: &[], config: &config, annotated: true };
    let error = tried.instance.pods(&[refused], &[BATCH]).unwrap_err();
    assert!(error.to_string().contains("nested too deep"), "{error}");
    assert_eq!(tried.state()["pods"], json!([]));
}

#[test]
fn data_of_the_configuration_lie_over_the_bundle() {
    let rules = "settings contains {\"state\": {\"data\": data.limits, \"config\": input.config}}";
    let bundle = opa::build(&[
        ("policy.rego", &opa::text("", rules)),
        ("data.json", r#"{"limits": {"cpu": 1, "memory": {"a": 1, "b": 2}}}"#),
    ]);
    let mut tried = Tried::of(&bundle);
    let config = r#"{"level": 3, "data": {"limits": {"memory": {"b": [5]}}, "more": 1}}"#;
    tried.instance.configure(config).unwrap();
    let expected = json!({"data": {"cpu": 1, "memory": {"a": 1, "b": [5]}}, "config": {"level": 3}});
    assert_eq!(tried.state(), expected);
    // An unusable configuration leaves the previous one in force.
    for (config, expected) in [
        (r#"{"data": [1]}"#, "the configuration's `data` cannot be used: it is a JSON array, not an object"),
        (r#"{"data": {"qosm": {}}}"#, "its key `qosm` is the policy's own package"),
        ("[]", "the configuration is not a JSON object"),
        ("{", "the configuration is not JSON"),
    ] {
        let error = tried.instance.configure(config).unwrap_err();
        assert_eq!(error.outcome(), "refused", "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(tried.evaluated().state.is_none(), "what it would save is what is saved");
    // Another configuration replaces the previous one completely.
    tried.instance.configure("{}").unwrap();
    assert_eq!(tried.state(), json!({"data": {"cpu": 1, "memory": {"a": 1, "b": 2}}, "config": {}}));
}

#[test]
fn with_classes_data_stand_in_the_operators_entry() {
    let fields = "protocol: {classField: tried, schema: {properties: {}}}";
    let rules = "settings contains {\"state\": {\"x\": data.x, \"config\": input.config}}";
    let mut tried = Tried::of(&opa::build(&[("policy.rego", &opa::with_metadata(fields, rules))]));
    tried.instance.configure(r#"{"policy": {"level": 1, "data": {"x": 7}}, "classes": {"lsClass": {}}}"#).unwrap();
    assert_eq!(tried.state(), json!({"x": 7, "config": {"policy": {"level": 1}, "classes": {"lsClass": {}}}}));
}

#[test]
fn what_is_saved_comes_back_also_to_the_next_instance() {
    let rules = "settings contains {\"state\": {\"n\": object.get(input.state, \"n\", 0) + 1}}";
    let module = load(&opa::policy("", rules)).unwrap();
    let start = |state: &[u8]| {
        let limits = Limits::default();
        let mut instance = ENGINE.instantiate(&module, "tried", &everything(), &limits, state.to_vec()).unwrap();
        instance.configure("{}").unwrap();
        instance
    };
    let next = |instance: &mut qosm_engine::Instance| {
        instance.evaluate(Micros(0), Cause::Interval, &Columns::default()).unwrap()
    };
    let mut first = start(b"");
    assert_eq!(next(&mut first).state.as_deref(), Some(&b"{\"n\":1}"[..]));
    assert_eq!(next(&mut first).state.as_deref(), Some(&b"{\"n\":2}"[..]));
    assert_eq!(next(&mut start(b"{\"n\":2}")).state.as_deref(), Some(&b"{\"n\":3}"[..]));
    for strange in [&b"\xff\x00"[..], b"[1]", b"not json"] {
        let staged = next(&mut start(strange));
        assert_eq!(staged.state.as_deref(), Some(&b"{\"n\":1}"[..]));
        assert!(staged.log[0].message.contains("what the module before saved is no JSON object"), "{:?}", staged.log);
    }
}

#[test]
fn the_first_evaluation_knows_how_old_is_what_was_saved() {
    let rules = "settings contains {\"state\": {\"age\": object.get(input, \"stateAgeUsec\", null)}}";
    let module = load(&opa::policy("", rules)).unwrap();
    for (bytes, age, told) in
        [(&b"{}"[..], Some(7), json!(7)), (b"{}", None, json!(null)), (b"not json", Some(7), json!(null))]
    {
        let inherited = InheritedState { bytes: bytes.to_vec(), age: age.map(Micros) };
        let mut instance = ENGINE.instantiate(&module, "tried", &everything(), &Limits::default(), inherited).unwrap();
        instance.configure("{}").unwrap();
        for told in [told, json!(null)] {
            let staged = instance.evaluate(Micros(0), Cause::Interval, &Columns::default()).unwrap();
            if let Some(state) = staged.state {
                assert_eq!(serde_json::from_slice::<serde_json::Value>(&state).unwrap(), json!({"age": told}));
            }
        }
    }
}

#[test]
fn time_stands_still_and_goes_with_the_windows() {
    let rules = "settings contains {\"state\": {\"same\": time.now_ns() == time.now_ns(), \"now\": time.now_ns()}}";
    let mut tried = Tried::of(&opa::policy("", rules));
    assert_eq!(tried.state(), json!({"same": true, "now": 1_000_000_000}));
    assert_eq!(tried.state()["now"], 2_000_000_000);
}

#[test]
fn memory_that_lies_idle_is_given_back() {
    let rules = "settings contains {\"state\": {\"n\": n}} if {\n\tn := count([x | some x in numbers.range(1, input.config.n)])\n}";
    let limits = Limits { memory: Bytes(256 << 20), evaluation: Duration::from_secs(10), ..Limits::default() };
    let mut tried = Tried::within(&opa::policy("", rules), &limits).unwrap();
    tried.instance.configure(r#"{"n": 200000}"#).unwrap();
    assert_eq!(tried.state()["n"], 200_000);
    let grown = tried.instance.memory();
    assert!(grown > Bytes(8 << 20), "{grown}");
    tried.instance.configure(r#"{"n": 3}"#).unwrap();
    assert_eq!(tried.state()["n"], 3);
    assert!(tried.instance.memory() < Bytes(1 << 20), "{}", tried.instance.memory());
    tried.instance.configure(r#"{"n": 4}"#).unwrap();
    assert_eq!(tried.state()["n"], 4, "it goes on with all facts that it got");
}

#[test]
fn a_policy_sees_the_columns_that_it_imports() {
    let module = load(&opa::policy("cpu-stat", SHOWN)).unwrap();
    assert_eq!(module.imports().iter().copied().collect::<Vec<_>>(), [Interface::CpuStat]);
}
