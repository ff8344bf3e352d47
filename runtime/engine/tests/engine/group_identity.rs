//! Group identities, as a component asks for them and sets them.

use qosm_engine::{CallError, Cause, Columns, Compiler, Limits, Staged};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::Tier;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, everything};
use crate::guest;

/// At a window of 1 it sets the identity of the tier BestEffort to -1, or to 2 where there are none; of 2 it gives that up.
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

fn run(support: Option<Result<(), &str>>, windows: &[u64]) -> Result<Staged, CallError> {
    let module = ENGINE.load(&guest::component(FIELDS), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "ranks", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    let group_identity = support.map(|support| support.map_err(Into::into));
    let columns = Columns { group_identity, ..Columns::default() };
    let mut staged = Ok(Staged::default());
    for window in windows {
        staged = instance.evaluate(Micros(*window), Cause::Interval, &columns);
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
