//! Resources of the node and evictions, as a component requests them and reads their states.

use std::sync::Arc;

use qosm_engine::{CallError, Cause, Columns, Compiler, Limits, Staged};
use qosm_model::eviction::{Eviction, EvictionOutcome, EvictionState, Urgency};
use qosm_model::node_resource::{Offer, ResourceState};
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, POD, everything, pod, view};
use crate::guest;

/// At a window of 1 it publishes, at 2 it withdraws and sets a time, at 3 it evicts, at 4 it withdraws the eviction, at 5
/// it publishes an invalid resource; at 6 and 7 it logs the `why` of the first state.
const FIELDS: &str = r#"
(import "qosm:policy/node-resource@0.1.0" "publish" (func $publish (param i32 i32 i64 i32 i32 i32 i64 i32 i32)))
(import "qosm:policy/node-resource@0.1.0" "withdraw" (func $withdraw (param i32 i32)))
(import "qosm:policy/node-resource@0.1.0" "stale-after" (func $stale (param i32)))
(import "qosm:policy/node-resource@0.1.0" "read-states" (func $states (param i32)))
(import "qosm:policy/eviction@0.1.0" "evict" (func $evict (param i32 i32 i32 i32 i32 i32 i32 i32)))
(import "qosm:policy/eviction@0.1.0" "withdraw" (func $back (param i32)))
(import "qosm:policy/eviction@0.1.0" "read-evictions" (func $evictions (param i32)))
(import "qosm:policy/log@0.1.0" "write" (func $log (param i32 i32 i32)))
(data (i32.const 4096) "kubernetes.io/batch-cpu")
(data (i32.const 4120) "cpu")
(data (i32.const 4128) "Idle")
;; Two shares of NUMA nodes: 0 has 8000, 1 has 4000.
(data (i32.const 4136) "\00\00\00\00\00\00\00\00\40\1f\00\00\00\00\00\00\01\00\00\00\00\00\00\00\a0\0f\00\00\00\00\00\00")
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $publish (i32.const 4096) (i32.const 23) (i64.const 12000) (i32.const 4136) (i32.const 2) (i32.const 1)
            (i64.const 14000) (i32.const 4128) (i32.const 4))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then
        (call $withdraw (i32.const 4096) (i32.const 23))
        (call $withdraw (i32.const 4096) (i32.const 23))
        (call $stale (i32.const 300))))
    (if (i64.eq (local.get 0) (i64.const 3)) (then
        (call $evict (i32.const 1) (i32.const 1) (i32.const 1) (i32.const 5) (i32.const 4128) (i32.const 4) (i32.const 4120)
            (i32.const 3))))
    (if (i64.eq (local.get 0) (i64.const 4)) (then (call $back (i32.const 1))))
    (if (i64.eq (local.get 0) (i64.const 5)) (then
        (call $publish (i32.const 4120) (i32.const 3) (i64.const 1) (i32.const 4136) (i32.const 0) (i32.const 0) (i64.const 0)
            (i32.const 4128) (i32.const 4))))
    (if (i64.eq (local.get 0) (i64.const 6)) (then
        (call $states (i32.const 4200))
        ;; name (8), amount (8), in-force (4), why.
        (call $log (i32.const 1) (i32.load offset=20 (i32.load (i32.const 4200))) (i32.load offset=24 (i32.load (i32.const 4200))))))
    (if (i64.eq (local.get 0) (i64.const 7)) (then
        (call $evictions (i32.const 4200))
        ;; uid (8), outcome (4), why.
        (call $log (i32.const 1) (i32.load offset=12 (i32.load (i32.const 4200))) (i32.load offset=16 (i32.load (i32.const 4200))))))
    (i32.const 16))
"#;

fn run(window: u64, before: &[u64]) -> Result<Staged, CallError> {
    let bytes = guest::component(FIELDS);
    let module = ENGINE.load(&bytes, None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "requests", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    let pod = pod("job");
    instance.pods(&[view(&pod, "{}")], &[]).unwrap();
    let name = "kubernetes.io/batch-cpu".parse().unwrap();
    let columns = Columns {
        resources: Some(Arc::new([ResourceState { name, amount: 7, in_force: false, why: "nobody answers".into() }])),
        evictions: Some(Arc::new([EvictionState {
            uid: "u1".into(),
            outcome: EvictionOutcome::Refused,
            why: "a budget".into(),
            age: Micros(1_500_000),
        }])),
        ..Columns::default()
    };
    for &window in before {
        instance.evaluate(Micros(window), Cause::Interval, &columns).unwrap();
    }
    instance.evaluate(Micros(window), Cause::Interval, &columns)
}

#[test]
fn a_resource_is_published_withdrawn_once_and_goes_stale_when_it_says() {
    let name: qosm_model::node_resource::ResourceName = "kubernetes.io/batch-cpu".parse().unwrap();
    let offer = Offer { amount: 12_000, zones: [(0, 8_000), (1, 4_000)].into(), origin: Some(14_000) };
    let published = Setting::Publish { name: name.clone(), offer, reason: "Idle".into() };
    assert_eq!(run(1, &[]).unwrap().settings, [published]);
    assert_eq!(run(2, &[1]).unwrap().settings, [Setting::Withdraw { name }, Setting::StaleAfter { seconds: 300 }]);
    assert_eq!(run(2, &[]).unwrap().settings, [Setting::StaleAfter { seconds: 300 }], "it published nothing");
}

#[test]
fn an_eviction_is_asked_for_and_taken_back() {
    let wanted = Eviction {
        pod: POD,
        urgency: Urgency::Now,
        grace_period: Some(5),
        reason: "Idle".into(),
        message: "cpu".into(),
    };
    assert_eq!(run(3, &[]).unwrap().settings, [Setting::Evict(wanted)]);
    assert_eq!(run(4, &[3]).unwrap().settings, [Setting::WithdrawEviction { pod: POD }]);
    // An earlier instance may have requested the eviction.
    assert_eq!(run(4, &[]).unwrap().settings, [Setting::WithdrawEviction { pod: POD }]);
}

#[test]
fn what_is_no_resource_ends_the_call_with_the_way_out() {
    let error = run(5, &[]).unwrap_err().to_string();
    assert!(error.contains("DOMAIN/NAME"), "{error}");
}

#[test]
fn how_they_fare_is_read() {
    for (window, why) in [(6, "nobody answers"), (7, "a budget")] {
        let log = run(window, &[]).unwrap().log;
        assert_eq!(log.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), [why]);
    }
}
