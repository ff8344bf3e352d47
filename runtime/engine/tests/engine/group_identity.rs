//! Group identities and core scheduling groups, as a component reads their support and sets them.

use qosm_engine::{CallError, Cause, Columns, Compiler, Limits, Staged};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, Tier};
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, everything, pod, view};
use crate::guest;

/// At a window of 1 it sets the identity of the tier BestEffort to -1, or to 2 if identities are not supported; at 2 it
/// releases it.
const FIELDS: &str = r#"
(import "qosm:policy/cpu-identity@0.1.0" "read-support" (func $support (param i32)))
(import "qosm:policy/cpu-identity@0.1.0" "set-identity" (func $set (param i32 i32 i32 i32 i32)))
(import "qosm:policy/cpu-identity@0.1.0" "release-identity" (func $release (param i32 i32)))
(data (i32.const 4096) "colocation")
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $support (i32.const 4200))
        (call $set (i32.const 0) (i32.const 2)
            (select (i32.const 2) (i32.const -1) (i32.load8_u (i32.const 4200))) (i32.const 4096) (i32.const 10))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then (call $release (i32.const 0) (i32.const 2))))
    (i32.const 16))
"#;

/// At a window of 1 it puts container 10 into group 5, or into 6 if core scheduling is not supported; at 2 it takes it out.
const CORES: &str = r#"
(import "qosm:policy/cpu-identity@0.1.0" "read-core-scheduling" (func $support (param i32)))
(import "qosm:policy/cpu-identity@0.1.0" "set-core-group" (func $set (param i32 i64 i32 i32)))
(import "qosm:policy/cpu-identity@0.1.0" "release-core-group" (func $release (param i32)))
(data (i32.const 4096) "colocation")
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $support (i32.const 4200))
        (call $set (i32.const 10)
            (select (i64.const 6) (i64.const 5) (i32.load8_u (i32.const 4200))) (i32.const 4096) (i32.const 10))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then (call $release (i32.const 10))))
    (i32.const 16))
"#;

fn run(support: Option<Result<(), &str>>, windows: &[u64]) -> Result<Staged, CallError> {
    let group_identity = support.map(|support| support.map_err(Into::into));
    evaluated(FIELDS, &Columns { group_identity, ..Columns::default() }, windows)
}

fn evaluated(fields: &str, columns: &Columns, windows: &[u64]) -> Result<Staged, CallError> {
    let module = ENGINE.load(&guest::component(fields), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "ranks", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    instance.pods(&[view(&pod("job"), "{}")], &[]).unwrap();
    let mut staged = Ok(Staged::default());
    for window in windows {
        staged = instance.evaluate(Micros(*window), Cause::Interval, columns);
    }
    staged
}

const BEST_EFFORT: Target = Target::Tier(Tier::BestEffort);

#[test]
fn an_identity_is_set_where_there_are_such_and_given_up_once() {
    let hold = |rank: i64| Setting::Hold {
        target: BEST_EFFORT,
        knob: Knob::BvtWarp,
        value: Value::Number(rank),
        reason: "colocation".into(),
    };
    for (support, rank) in [(Some(Ok(())), -1), (Some(Err("this kernel has none")), 2), (None, 2)] {
        assert_eq!(run(support, &[1]).unwrap().settings, [hold(rank)], "{support:?}");
    }
    let release = Setting::Release { target: BEST_EFFORT, knob: Knob::BvtWarp };
    assert_eq!(run(None, &[1, 2]).unwrap().settings, [release]);
    assert_eq!(run(None, &[1, 2, 2]).unwrap().settings, []);
}

#[test]
fn a_container_is_put_into_a_core_group_and_taken_out_again() {
    let target = Target::Container(ContainerId(10));
    let hold = |group: i64| Setting::Hold {
        target,
        knob: Knob::CoreGroup,
        value: Value::Number(group),
        reason: "colocation".into(),
    };
    let columns = |core_scheduling| Columns { core_scheduling, ..Columns::default() };
    for (support, group) in [(Some(Ok(())), 5), (Some(Err("no core has two threads".into())), 6), (None, 6)] {
        let columns = columns(support);
        assert_eq!(evaluated(CORES, &columns, &[1]).unwrap().settings, [hold(group)]);
        let release = Setting::Release { target, knob: Knob::CoreGroup };
        assert_eq!(evaluated(CORES, &columns, &[1, 2]).unwrap().settings, [release]);
    }
}
