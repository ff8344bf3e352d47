//! Settings of the node's kernel, as a component sets and reads them.

use qosm_engine::{CallError, Cause, Columns, Compiler, Limits, Staged};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node::NodeKnobSample;
use qosm_model::setting::{Remark, Setting};
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, everything};
use crate::guest;

/// At a window of 1 it sets `vm.min_free_kbytes`, at 2 it releases it, at 3 it sets `vm.watermark_scale_factor` to one
/// more than it reads, at 4 it remarks on a switch, at 5 it sets a value that no file can hold.
const FIELDS: &str = r#"
(import "qosm:policy/node-knobs@0.1.0" "set" (func $set (param i32 i64 i32 i32)))
(import "qosm:policy/node-knobs@0.1.0" "release" (func $release (param i32)))
(import "qosm:policy/node-knobs@0.1.0" "read" (func $read (param i32)))
(import "qosm:policy/node-knobs@0.1.0" "remark" (func $remark (param i32 i32 i32)))
(data (i32.const 4096) "colocation")
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $set (i32.const 0) (i64.const 80000) (i32.const 4096) (i32.const 10))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then
        (call $release (i32.const 0))
        (call $release (i32.const 1))))
    (if (i64.eq (local.get 0) (i64.const 3)) (then
        (call $read (i32.const 4200))
        ;; knob (8), value (8 and 8), baseline (8 and 8): the second state.
        (call $set (i32.const 1) (i64.add (i64.const 1) (i64.load offset=56 (i32.load (i32.const 4200)))) (i32.const 4096)
            (i32.const 10))))
    (if (i64.eq (local.get 0) (i64.const 4)) (then (call $remark (i32.const 2) (i32.const 4096) (i32.const 10))))
    (if (i64.eq (local.get 0) (i64.const 5)) (then
        (call $set (i32.const 0) (i64.const -1) (i32.const 4096) (i32.const 10))))
    (i32.const 16))
"#;

fn run(windows: &[u64]) -> Result<Staged, CallError> {
    let module = ENGINE.load(&guest::component(FIELDS), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "settings", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    let sample = NodeKnobSample { knob: Knob::WatermarkScaleFactor, value: 150, baseline: 10 };
    let columns = Columns { node_knobs: Some([sample].into()), ..Columns::default() };
    let mut staged = Ok(Staged::default());
    for window in windows {
        staged = instance.evaluate(Micros(*window), Cause::Interval, &columns);
    }
    staged
}

fn hold(knob: Knob, value: i64) -> Setting {
    Setting::Hold { target: Target::Node, knob, value: Value::Number(value), reason: "colocation".into() }
}

#[test]
fn a_setting_is_of_the_node_and_given_up_once() {
    assert_eq!(run(&[1]).unwrap().settings, [hold(Knob::MinFreeKbytes, 80_000)]);
    let release = Setting::Release { target: Target::Node, knob: Knob::MinFreeKbytes };
    assert_eq!(run(&[1, 2]).unwrap().settings, [release], "what is not held is not given up");
    assert_eq!(run(&[1, 2, 2]).unwrap().settings, []);
}

#[test]
fn what_a_setting_holds_is_read() {
    assert_eq!(run(&[3]).unwrap().settings, [hold(Knob::WatermarkScaleFactor, 151)]);
}

#[test]
fn a_remark_is_of_the_node() {
    let remark = Remark { target: Target::Node, knob: Knob::MemcgReaper, reason: "colocation".into() };
    assert_eq!(run(&[4]).unwrap().remarks, [remark]);
}

#[test]
fn what_no_file_can_hold_ends_the_call() {
    let error = run(&[5]).unwrap_err().to_string();
    assert!(error.contains("setting of the node"), "{error}");
}
