//! Limits and costs of disks, planned and replayed.

use serde_json::{Value, json};

use crate::qosm::{cluster_map, limited, plan, pod, replay, run};

/// A node with two disks and a pod's volume, and a cluster with these settings.
fn facts(be: &Value, root: &Value) -> Value {
    let on = |blocks: &Value| json!({"blkioQOS": {"enable": true, "blocks": blocks}});
    json!({
        "host": {
            "blockDevices": [
                {"device": "8:0", "names": ["sda"], "partitions": ["sda1"], "costQos": "enable=1 ctrl=auto"},
                {"device": "8:16", "names": ["sdb"], "volumeGroups": ["data"]},
            ],
            "podVolumes": [{"pod": "default/db", "name": "pvc-1", "device": "8:16"}],
        },
        "policies": [{"name": "block-io"}],
        "configMaps": [cluster_map(
            "resource-qos-config",
            &json!({"clusterStrategy": {"beClass": on(be), "cgroupRoot": on(root)}}),
        )],
    })
}

fn device(name: &str, asked: &Value) -> Value {
    json!({"name": name, "type": "device", "ioCfg": asked})
}

/// The manifest of a database with a limit of its writes to a volume.
fn database() -> Value {
    let blocks = json!({"blocks": [{"name": "pvc-1", "type": "podvolume", "ioCfg": {"writeBPS": 1_048_576}}]});
    let mut pod = pod("db", &json!({"koordinator.sh/blkioQOS": blocks}), &json!([limited("app", "1")]));
    pod["metadata"]["labels"] = json!({"koordinator.sh/qosClass": "LS"});
    pod
}

#[test]
fn a_plan_says_what_would_be_set_of_each_disk_and_what_is_not_done() {
    let be = json!([
        device("/dev/sda", &json!({"readBPS": 1_048_576})),
        device("/dev/sda1", &json!({"readBPS": 4096})),
        device("/dev/sdz", &json!({"writeIOPS": 100})),
        {"name": "data", "type": "volumegroup", "ioCfg": {"writeIOPS": 100, "ioWeightPercent": 20}},
    ]);
    let mut facts = facts(&be, &json!([]));
    facts["pods"] = json!([database()]);
    let planned = plan(&facts);
    assert_eq!(
        planned.rows(),
        [
            "pod default/db io.max 8:16 rbps=max wbps=1048576 riops=max wiops=max",
            "tier besteffort io.max 8:0 rbps=1048576 wbps=max riops=max wiops=max",
            "tier besteffort io.max 8:16 rbps=max wbps=max riops=max wiops=100",
        ]
    );
    let remarks = planned.json()["remarks"].clone();
    let [remark] = remarks.as_array().unwrap().as_slice() else { unreachable!("{remarks}") };
    assert_eq!((&remark["subject"], &remark["knob"]), (&json!("tier besteffort"), &json!("io.max")));
    let printed = run(&["plan", "--facts", "-"], &facts.to_string());
    let said = printed.stderr.lines().find(|line| line.starts_with("not done: ")).unwrap_or_default();
    for why in [
        "io.max of tier besteffort, wanted by block-io",
        "/dev/sda1 is a partition",
        "name the disk /dev/sda",
        "/dev/sdz",
        "ioWeightPercent 20",
    ] {
        assert!(said.contains(why), "{why}: {}", printed.stderr);
    }
}

#[test]
fn what_was_there_of_a_disk_comes_back_and_a_new_disk_changes_nothing_of_the_others() {
    let cost = json!([device("/dev/sda", &json!({"readLatency": 2000}))]);
    let facts = facts(&json!([]), &cost);
    let disks = facts["host"]["blockDevices"].clone();
    let mut more = disks.clone();
    more.as_array_mut().unwrap().push(json!({"device": "8:32", "names": ["sdc"]}));
    let off = json!([cluster_map("resource-qos-config", &json!({"clusterStrategy": {}}))]);
    let rows = replay(&facts, &[json!({}), json!({"blockDevices": more}), json!({}), json!({"configMaps": off})]);
    let set =
        "node - io.cost.qos 8:0 enable=1 ctrl=user rpct=95.00 rlat=2000 wpct=95.00 wlat=3000 min=1.00 max=10000.00";
    assert_eq!(rows[0], [set]);
    // The recording's values of a disk are those without qosm.
    assert_eq!(rows[1..4], [[] as [&str; 0], [], []]);
    assert_eq!(rows[4], ["node - io.cost.qos 8:0 enable=1 ctrl=auto"]);
}
