use qosm_sdk::{IoDeviceInfo, IoVolume, PodId};

use super::*;
use crate::config::{ANNOTATION, BE, Kind, ROOT};

const SDA: IoDevice = IoDevice { major: 8, minor: 0 };
const LOGS: IoDevice = IoDevice { major: 253, minor: 0 };

fn devices() -> Vec<IoDeviceInfo> {
    let info = |device, names: &[&str], groups: &[&str]| IoDeviceInfo {
        device,
        names: names.iter().map(|&name| name.into()).collect(),
        partitions: Vec::new(),
        volume_groups: groups.iter().map(|&group| group.into()).collect(),
    };
    vec![info(SDA, &["sda"], &["data"]), info(LOGS, &["dm-0", "mapper/data-logs"], &[])]
}

fn block<T>(kind: Kind, name: &str, asks: T) -> Block<T> {
    Block { kind, name: name.into(), asks }
}

fn share(read_bps: Option<u64>, write_iops: Option<u64>, weight: Option<u32>) -> Share {
    Share { limits: IoLimits { read_bps, write_iops, ..IoLimits::NONE }, weight }
}

fn plan(be: &[Block<Share>], root: &[Block<Cost>], pods: &[(PodId, &[Block<Share>])]) -> Plan {
    let volumes = [IoVolume { pod: 1, name: "pvc-1".into(), device: LOGS }];
    let asker = |pod| Asker { pod, names_one_volume: true };
    let pods = pods.iter().map(|(pod, blocks)| (asker(*pod), Source { name: ANNOTATION, blocks }));
    let node = Node { devices: &devices(), volumes: &volumes };
    Plan::new(node, Source { name: BE, blocks: be }, Source { name: ROOT, blocks: root }, pods, Remarks::new())
}

fn remarks(plan: &Plan) -> Vec<(Option<Target>, String)> {
    plan.remarks.iter().map(|(target, said)| (*target, said.to_string())).collect()
}

#[test]
fn batch_and_pods_get_what_they_ask_for_with_the_reason() {
    let be = [block(Kind::Device, "/dev/sda", share(Some(10_485_760), Some(120), None))];
    let of_pod = [block(Kind::PodVolume, "pvc-1", share(Some(7), None, None))];
    let plan = plan(&be, &[], &[(1, &of_pod)]);
    let limits = IoLimits { read_bps: Some(10_485_760), write_iops: Some(120), ..IoLimits::NONE };
    let reason = "readBPS 10485760, writeIOPS 120 of /dev/sda (beClass.blkioQOS)".to_owned();
    let of_be = Setting { device: SDA, value: Value::Max(BATCH, limits), reason };
    let limits = IoLimits { read_bps: Some(7), ..IoLimits::NONE };
    let reason = "readBPS 7 of /dev/mapper/data-logs, volume pvc-1 (koordinator.sh/blkioQOS)".to_owned();
    let of_pod = Setting { device: LOGS, value: Value::Max(Target::Pod(1), limits), reason };
    assert_eq!(plan, Plan { settings: vec![of_be, of_pod], remarks: Remarks::new() });
}

#[test]
fn one_that_cannot_be_resolved_keeps_no_other_from_being_set() {
    let wanted = share(Some(7), None, None);
    let be = [block(Kind::Device, "/dev/sdq", wanted), block(Kind::Device, "/dev/sda", wanted)];
    let plan = plan(&be, &[block(Kind::Device, "sdq", Cost::default())], &[]);
    assert_eq!(plan.settings.len(), 1);
    assert_eq!(plan.settings[0].device, SDA);
    let why = "no device of this node is called";
    assert_eq!(
        remarks(&plan),
        [
            (None, format!("{ROOT}: {why} \"sdq\": there are /dev/sda, /dev/mapper/data-logs")),
            (Some(BATCH), format!("{BE}: {why} \"/dev/sdq\": there are /dev/sda, /dev/mapper/data-logs")),
        ]
    );
}

#[test]
fn what_was_said_before_comes_first() {
    let mut before = Remarks::new();
    before.entry(Some(BATCH)).or_default().add("one");
    let node = Node { devices: &devices(), volumes: &[] };
    let be = [block(Kind::VolumeGroup, "logs", share(Some(7), None, None))];
    let root = Source { name: ROOT, blocks: &[] };
    let plan = Plan::new(node, Source { name: BE, blocks: &be }, root, [], before);
    let said =
        "one. beClass.blkioQOS: no device of this node has data of volume group \"logs\": there are data".to_owned();
    assert_eq!(remarks(&plan), [(Some(BATCH), said)]);
}

#[test]
fn of_a_device_with_two_names_the_stricter_of_each_limit_counts_and_that_is_said() {
    let be = [
        block(Kind::Device, "/dev/sda", share(Some(9), Some(4), Some(50))),
        block(Kind::VolumeGroup, "data", share(Some(7), None, Some(60))),
    ];
    let plan = plan(&be, &[block(Kind::Device, "sda", Cost::default())], &[]);
    let limits = IoLimits { read_bps: Some(7), write_iops: Some(4), ..IoLimits::NONE };
    let values: Vec<_> = plan.settings.iter().map(|setting| setting.value).skip(1).collect();
    assert_eq!(values, [Value::Max(BATCH, limits), Value::Weight(BATCH, 50)]);
    let why = "beClass.blkioQOS: /dev/sda and /dev/sda of volume group data are one device: of each number the stricter counts";
    assert_eq!(remarks(&plan), [(Some(BATCH), why.to_owned())]);

    let twice = [be[0].clone(), block(Kind::Device, "sda", be[0].asks)];
    let counted = [block(Kind::Device, "sda", Cost::default())];
    assert_eq!(remarks(&super::tests::plan(&twice, &counted, &[])), [], "nothing is lost");
}

#[test]
fn a_device_gets_a_latency_and_a_model() {
    let model = IoCostModel {
        read_bps: 1,
        read_seq_iops: 2,
        read_rand_iops: 3,
        write_bps: 4,
        write_seq_iops: 5,
        write_rand_iops: 6,
    };
    let default = Cost::default();
    let slow = Cost { latency: IoLatency { read_latency_usec: 2_000, ..default.latency }, model: Some(model) };
    let late = Cost { latency: IoLatency { write_permyriad: 9_900, ..default.latency }, model: None };
    let root = [block(Kind::Device, "sda", slow), block(Kind::Device, "/dev/sda", late)];
    let plan = plan(&[], &root, &[]);
    let [qos, of_model] = plan.settings.as_slice() else { panic!("{plan:?}") };
    let Value::Qos(enabled) = qos.value else { panic!("{qos:?}") };
    assert_eq!(
        enabled.to_string(),
        "enable=1 ctrl=user rpct=95.00 rlat=2000 wpct=99.00 wlat=3000 min=1.00 max=10000.00"
    );
    assert_eq!(qos.reason, "readLatency 2000 at 95 %, writeLatency 3000 at 99 % of /dev/sda (cgroupRoot.blkioQOS)");
    assert_eq!(
        (of_model.value, of_model.reason.as_str()),
        (Value::Model(model), "user model of /dev/sda (cgroupRoot.blkioQOS)")
    );
}

#[test]
fn a_weight_is_set_where_the_cost_counts_and_remarked_on_elsewhere() {
    let weighs = [block(Kind::Device, "sda", share(None, Some(9), Some(40)))];
    let without = plan(&weighs, &[], &[(1, &weighs)]);
    let limits = IoLimits { write_iops: Some(9), ..IoLimits::NONE };
    let values: Vec<_> = without.settings.iter().map(|setting| setting.value).collect();
    assert_eq!(values, [Value::Max(BATCH, limits), Value::Max(Target::Pod(1), limits)], "limits need no cost");
    let why = "ioWeightPercent 40 of /dev/sda is not set: it has an effect only where the cost of the device counts; \
               name it in cgroupRoot.blkioQOS";
    let said = |source| format!("{source}: {why}");
    let mut told = remarks(&without);
    told.sort_by(|(_, one), (_, other)| one.cmp(other));
    assert_eq!(told, [(Some(BATCH), said(BE)), (Some(Target::Pod(1)), said(ANNOTATION))]);

    // The cost of another disk does not help.
    let other = plan(&weighs, &[block(Kind::Device, "dm-0", Cost::default())], &[]);
    assert_eq!(remarks(&other), [(Some(BATCH), said(BE))]);

    let with = plan(&weighs, &[block(Kind::VolumeGroup, "data", Cost::default())], &[(1, &weighs)]);
    assert_eq!(remarks(&with), []);
    let place = |value: fn(&Value) -> bool| with.settings.iter().position(|setting| value(&setting.value)).unwrap();
    assert!(place(|value| matches!(value, Value::Qos(_))) < place(|value| matches!(value, Value::Weight(..))));
    let weights = with.settings.iter().filter(|setting| matches!(setting.value, Value::Weight(_, 40)));
    let reasons: Vec<_> = weights.map(|setting| setting.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "ioWeightPercent 40 of /dev/sda (beClass.blkioQOS)",
            "ioWeightPercent 40 of /dev/sda (koordinator.sh/blkioQOS)"
        ]
    );
}

#[test]
fn what_asks_for_nothing_is_not_looked_for() {
    assert_eq!(plan(&[block(Kind::Device, "sdq", Share::NONE)], &[], &[]), Plan::default());
}
