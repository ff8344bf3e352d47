//! The interface `block-io`, as a component uses it.

use qosm_engine::{CallError, Cause, Columns, Compiler, Limits, Staged};
use qosm_model::block_io::{BlockDevice, BlockDevices, DeviceNumber, PodVolume};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{PodId, Tier};
use qosm_model::setting::{Remark, Setting};
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, POD, everything, pod, view};
use crate::guest;

/// At a window of
///  1  it limits the tier besteffort on the device of the first volume that it reads, to the minor number in bytes per second;
///  2  it releases the limits on that device and another, twice;
///  3  it sets the pod's weight on two devices: the number of volumes, and the number of names of the first device;
///  4  it sets the cost model of the first device, and enables it;
///  5  it releases both;
///  6  it remarks on the cost model, and on the pod's `io.max` of one device;
///  7  it limits device 0:0; 8: sets no limit; 9: sets a weight of 0;
/// 10  it sets the weight of a pod that it was not given.
const FIELDS: &str = r#"
(import "qosm:policy/block-io@0.1.0" "read-devices" (func $devices (param i32)))
(import "qosm:policy/block-io@0.1.0" "read-volumes" (func $volumes (param i32)))
(import "qosm:policy/block-io@0.1.0" "set-max"
    (func $set_max (param i32 i32 i32 i32 i32 i64 i32 i64 i32 i64 i32 i64 i32 i32)))
(import "qosm:policy/block-io@0.1.0" "release-max" (func $release_max (param i32 i32 i32 i32)))
(import "qosm:policy/block-io@0.1.0" "set-weight" (func $set_weight (param i32 i32 i32 i32 i32 i32 i32)))
(import "qosm:policy/block-io@0.1.0" "set-cost-qos"
    (func $set_qos (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
(import "qosm:policy/block-io@0.1.0" "release-cost-qos" (func $release_qos (param i32 i32)))
(import "qosm:policy/block-io@0.1.0" "set-cost-model" (func $set_model (param i32 i32 i64 i64 i64 i64 i64 i64 i32 i32)))
(import "qosm:policy/block-io@0.1.0" "release-cost-model" (func $release_model (param i32 i32)))
(import "qosm:policy/block-io@0.1.0" "remark-cost" (func $remark_cost (param i32 i32)))
(import "qosm:policy/log@0.1.0" "remark" (func $remark (param i32 i32 i32 i32 i32 i32)))
(data (i32.const 4096) "quiet")
(data (i32.const 4104) "io.max 8:16")
(func $limit (param $minor i32) (param $some i32) (param $bytes i64)
    (call $set_max (i32.const 0) (i32.const 2) (i32.mul (i32.const 8) (i32.ne (local.get $minor) (i32.const 0))) (local.get $minor)
        (local.get $some) (local.get $bytes) (i32.const 0) (i64.const 0) (i32.const 0) (i64.const 0) (i32.const 1)
        (i64.const 4294967295) (i32.const 4096) (i32.const 5)))
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (local $row i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $volumes (i32.const 4200))
        ;; pod (4), name (8), device (4 and 4).
        (local.set $row (i32.load (i32.const 4200)))
        (call $limit (i32.load offset=16 (local.get $row)) (i32.const 1) (i64.load32_u offset=16 (local.get $row)))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then
        (call $release_max (i32.const 0) (i32.const 2) (i32.const 8) (i32.const 16))
        (call $release_max (i32.const 0) (i32.const 2) (i32.const 8) (i32.const 32))
        (call $release_max (i32.const 0) (i32.const 2) (i32.const 8) (i32.const 16))))
    (if (i64.eq (local.get 0) (i64.const 3)) (then
        (call $volumes (i32.const 4200))
        (call $set_weight (i32.const 1) (i32.const 1) (i32.const 8) (i32.const 16) (i32.load (i32.const 4204)) (i32.const 4096)
            (i32.const 5))
        (call $devices (i32.const 4200))
        ;; device (4 and 4), names (8).
        (call $set_weight (i32.const 1) (i32.const 1) (i32.const 8) (i32.const 32)
            (i32.load offset=12 (i32.load (i32.const 4200))) (i32.const 4096) (i32.const 5))))
    (if (i64.eq (local.get 0) (i64.const 4)) (then
        (call $set_model (i32.const 8) (i32.const 16) (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5)
            (i64.const 9223372036854775807) (i32.const 4096) (i32.const 5))
        (call $set_qos (i32.const 8) (i32.const 16) (i32.const 1) (i32.const 1) (i32.const 9500) (i32.const 3000)
            (i32.const 9505) (i32.const 4000) (i32.const 100) (i32.const 1000000) (i32.const 4096) (i32.const 5))))
    (if (i64.eq (local.get 0) (i64.const 5)) (then
        (call $release_qos (i32.const 8) (i32.const 16))
        (call $release_model (i32.const 8) (i32.const 16))))
    (if (i64.eq (local.get 0) (i64.const 6)) (then
        (call $remark_cost (i32.const 4096) (i32.const 5))
        (call $remark (i32.const 1) (i32.const 1) (i32.const 4104) (i32.const 11) (i32.const 4096) (i32.const 5))))
    (if (i64.eq (local.get 0) (i64.const 7)) (then (call $limit (i32.const 0) (i32.const 1) (i64.const 4096))))
    (if (i64.eq (local.get 0) (i64.const 8)) (then (call $limit (i32.const 16) (i32.const 0) (i64.const 0))))
    (if (i64.eq (local.get 0) (i64.const 9)) (then
        (call $set_weight (i32.const 1) (i32.const 1) (i32.const 8) (i32.const 16) (i32.const 0) (i32.const 4096) (i32.const 5))))
    (if (i64.eq (local.get 0) (i64.const 10)) (then
        (call $set_weight (i32.const 1) (i32.const 99) (i32.const 8) (i32.const 16) (i32.const 1) (i32.const 4096)
            (i32.const 5))))
    (i32.const 16))
"#;

const DISK: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
const OTHER: DeviceNumber = DeviceNumber { major: 8, minor: 32 };
const BATCH: Target = Target::Tier(Tier::BestEffort);

fn run(windows: &[u64]) -> Result<Staged, CallError> {
    let module = ENGINE.load(&guest::component(FIELDS), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "disks", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    instance.pods(&[view(&pod("job"), "{}")], &[]).unwrap();
    let volume = |pod| PodVolume { pod, name: "pvc-1".to_owned(), device: DISK };
    let device = BlockDevice {
        number: DISK,
        names: ["sdb", "mapper/data", "data/logs"].map(str::to_owned).into(),
        partitions: Vec::new(),
        volume_groups: Vec::new(),
    };
    // The first volume belongs to a pod of another policy.
    let volumes = [volume(PodId(99)), volume(POD)].into();
    let columns = Columns {
        block_devices: Some(BlockDevices { devices: [device].into(), volumes }.into()),
        ..Columns::default()
    };
    let mut staged = Ok(Staged::default());
    for window in windows {
        staged = instance.evaluate(Micros(*window), Cause::Interval, &columns);
    }
    staged
}

fn hold(target: Target, knob: Knob, value: &str) -> Setting {
    Setting::Hold { target, knob, value: value.parse().unwrap(), reason: "quiet".into() }
}

#[test]
fn limits_are_of_a_cgroup_and_a_device_and_given_up_once() {
    let limits = hold(BATCH, Knob::IoMax(DISK), "rbps=16 wbps=max riops=max wiops=max");
    assert_eq!(run(&[1]).unwrap().settings, [limits], "operations that no limit counts are none");
    let release = Setting::Release { target: BATCH, knob: Knob::IoMax(DISK) };
    assert_eq!(run(&[1, 2]).unwrap().settings, [release], "what is not held is not given up");
    assert_eq!(run(&[1, 2, 2]).unwrap().settings, []);
}

#[test]
fn weights_of_two_devices_are_two_settings_and_columns_are_of_known_pods() {
    let target = Target::Pod(POD);
    let weights = [(Knob::IoWeight(DISK), 1), (Knob::IoWeight(OTHER), 3)];
    let weights = weights.map(|(knob, weight)| Setting::Hold {
        target,
        knob,
        value: Value::Number(weight),
        reason: "quiet".into(),
    });
    assert_eq!(run(&[3]).unwrap().settings, weights);
}

#[test]
fn the_cost_model_is_the_nodes() {
    let model = "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=9223372036854775807";
    let qos = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.05 wlat=4000 min=1.00 max=10000.00";
    let wanted = [hold(Target::Node, Knob::IoCostModel(DISK), model), hold(Target::Node, Knob::IoCostQos(DISK), qos)];
    assert_eq!(run(&[4]).unwrap().settings, wanted);
    let release = |knob| Setting::Release { target: Target::Node, knob };
    let released = [release(Knob::IoCostQos(DISK)), release(Knob::IoCostModel(DISK))];
    assert_eq!(run(&[4, 5]).unwrap().settings, released);
}

#[test]
fn remarks_are_of_the_node_or_of_a_cgroups_device() {
    let remark = |target, knob| Remark { target, knob, reason: "quiet".into() };
    let remarks =
        [remark(Target::Node, Knob::IoCostQos(DeviceNumber::NONE)), remark(Target::Pod(POD), Knob::IoMax(DISK))];
    assert_eq!(run(&[6]).unwrap().remarks, remarks);
}

#[test]
fn what_no_device_takes_ends_the_call_with_the_way_out() {
    for (window, why) in [
        (7, "its `io.max` of device 0:0: it is no device; take one of `read-devices`"),
        (8, "its `io.max` of device 8:16: it limits nothing; give it up with `release-max`"),
        (9, "its `io.weight` of device 8:16: `weight` is 0, and should be within 1 and 10000"),
        (10, "it names pod number 99, which it was not given"),
    ] {
        let error = run(&[window]).unwrap_err().to_string();
        assert!(error.ends_with(why), "{error}");
    }
}
