//! The engine's features for authors' tools: fuel, and instances without some of the grants.

use qosm_engine::{
    CONTRACT_VERSION, CallError, Cause, Columns, Compiler, Engine, Grants, Instance, Interface, Limits, Rule,
};
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, cpu, everything, pod, view};
use crate::guest;

/// The task of the worker that reads each sample of `cpu-stat`.
const READS: Micros = Micros(11);
/// The task of the worker that emits an event.
const EMITS: Micros = Micros(10);

fn fuel(engine: &Engine, columns: &Columns) -> Option<u64> {
    let module = engine.load(&guest::worker(), None, &Compiler::InProcess).unwrap();
    let mut worker = engine.instantiate(&module, "worker", &everything(), &Limits::default(), Vec::new()).unwrap();
    worker.configure("{}").unwrap();
    worker.evaluate(READS, Cause::Interval, columns).unwrap();
    worker.fuel()
}

#[test]
fn an_engine_that_counts_counts_the_same_each_time() {
    let metered = Engine::metered().unwrap();
    let few = fuel(&metered, &cpu([10, 11])).unwrap();
    assert!(few > 0);
    assert_eq!(fuel(&metered, &cpu([10, 11])), Some(few));
    assert!(fuel(&metered, &cpu([10, 11, 12, 13])).unwrap() > few, "more is more");
    assert_eq!(fuel(&ENGINE, &cpu([10, 11])), None);
}

fn partly(grants: &Grants) -> Instance {
    let module = ENGINE.load(&guest::worker(), None, &Compiler::InProcess).unwrap();
    let mut worker = ENGINE.instantiate_partly(&module, "worker", grants, &Limits::default(), Vec::new()).unwrap();
    worker.configure("{}").unwrap();
    worker
}

#[test]
fn what_is_not_granted_ends_the_call_that_uses_it() {
    let grants: Grants = Interface::ALL.into_iter().filter(|&interface| interface != Interface::PodEvent).collect();
    let mut worker = partly(&grants);
    worker.pods(&[view(&pod("web-1"), "{}")], &[]).unwrap();
    assert!(worker.evaluate(READS, Cause::Interval, &cpu([10])).is_ok());
    let error = worker.evaluate(EMITS, Cause::Interval, &cpu([10])).unwrap_err();
    let CallError::Broke(breach) = &error else { panic!("{error}") };
    assert!(matches!(breach.rule, Rule::NotGranted { .. }), "{error}");
    let import = format!("qosm:policy/pod-event@{CONTRACT_VERSION}#emit");
    assert!(error.to_string().contains(&format!("it calls `{import}`, which is not granted")), "{error}");
}

#[test]
fn a_module_without_any_grant_is_instantiated() {
    let error = partly(&Grants::default()).evaluate(READS, Cause::Interval, &cpu([10])).unwrap_err();
    assert!(error.to_string().contains("cpu-stat"), "{error}");
}
