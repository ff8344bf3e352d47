//! Kubernetes objects and the cluster ConfigMap, as a component sees them.

use std::sync::Arc;

use qosm_engine::{Cause, Columns, Compiler, Instance, Limits, Staged};
use qosm_model::layering::{ClusterConfig, ConfigKey};
use qosm_model::object::PodObject;
use qosm_model::pod::{Node, NodeResource, PodId, PodLifecycle, PodOwner, RestartPolicy};
use qosm_model::unit::{Micros, MilliCpu};

use crate::contract::{ENGINE, POD, everything, pod, view};
use crate::guest;

/// Logs texts and saves numbers: at a window of 1 those of the node, at 2 of the pods, at 3 of the key `key`; above 3 the
/// generations.
const FIELDS: &str = r#"
(import "qosm:policy/node-object@0.1.0" "read" (func $node (param i32)))
(import "qosm:policy/node-object@0.1.0" "generation" (func $node_generation (result i64)))
(import "qosm:policy/pod-object@0.1.0" "read" (func $pod_objects (param i32)))
(import "qosm:policy/pod-object@0.1.0" "generation" (func $generation_of_pods (result i64)))
(import "qosm:policy/cluster-config@0.1.0" "read" (func $text (param i32 i32 i32)))
(import "qosm:policy/cluster-config@0.1.0" "strategy" (func $strategy (param i32 i32 i32)))
(import "qosm:policy/cluster-config@0.1.0" "generation" (func $config_generation (result i64)))
(import "qosm:policy/log@0.1.0" "write" (func $log (param i32 i32 i32)))
(import "qosm:policy/state@0.1.0" "save" (func $save (param i32 i32 i32)))
(data (i32.const 4096) "key")
(data (i32.const 4100) "none")
(func $say (param $at i32)
    (call $log (i32.const 1) (i32.load (local.get $at)) (i32.load offset=4 (local.get $at))))
(func $evaluate (param i64 i32 i32 i32) (result i32)
    (if (i64.eq (local.get 0) (i64.const 1)) (then
        (call $node (i32.const 4200))
        (if (i32.load8_u (i32.const 4200))
            (then
                (call $say (i32.const 4204))
                ;; The first label's value, and the first amount.
                (call $say (i32.add (i32.load (i32.const 4212)) (i32.const 8)))
                (call $say (i32.load (i32.const 4228)))
                (call $save (i32.add (i32.load (i32.const 4228)) (i32.const 8)) (i32.const 32) (i32.const 4400)))
            (else (call $log (i32.const 1) (i32.const 4100) (i32.const 4))))))
    (if (i64.eq (local.get 0) (i64.const 2)) (then
        (call $pod_objects (i32.const 4200))
        (call $save (i32.load (i32.const 4200)) (i32.mul (i32.load (i32.const 4204)) (i32.const 96)) (i32.const 4400))
        (if (i32.load (i32.const 4204)) (then
            (call $say (i32.add (i32.load (i32.const 4200)) (i32.const 52)))
            (call $say (i32.add (i32.load (i32.const 4200)) (i32.const 64)))))))
    (if (i64.eq (local.get 0) (i64.const 3)) (then
        (call $text (i32.const 4096) (i32.const 3) (i32.const 4200))
        (if (i32.load8_u (i32.const 4200))
            (then (call $say (i32.const 4204)))
            (else (call $log (i32.const 1) (i32.const 4100) (i32.const 4))))
        (call $strategy (i32.const 4096) (i32.const 3) (i32.const 4200))
        (call $say (i32.const 4200))))
    (if (i64.gt_u (local.get 0) (i64.const 3)) (then
        (i64.store (i32.const 4200) (call $node_generation))
        (i64.store (i32.const 4208) (call $generation_of_pods))
        (i64.store (i32.const 4216) (call $config_generation))
        (call $save (i32.const 4200) (i32.const 24) (i32.const 4400))))
    (i32.const 16))
"#;

const NODE: u64 = 1;
const PODS: u64 = 2;
const KEY: u64 = 3;
const GENERATIONS: u64 = 4;

fn instance() -> Instance {
    let module = ENGINE.load(&guest::component(FIELDS), None, &Compiler::InProcess).unwrap();
    let mut instance = ENGINE.instantiate(&module, "reader", &everything(), &Limits::default(), Vec::new()).unwrap();
    instance.configure("{}").unwrap();
    instance
}

fn evaluate(instance: &mut Instance, task: u64, columns: &Columns) -> Staged {
    instance.evaluate(Micros(task), Cause::Interval, columns).unwrap()
}

fn said(staged: &Staged) -> Vec<&str> {
    staged.log.iter().map(|line| line.message.as_str()).collect()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn node() -> Node {
    Node {
        name: "edge-7".to_owned(),
        labels: [("pool".to_owned(), "batch".to_owned())].into(),
        resources: vec![NodeResource { name: "cpu".to_owned(), capacity: Some(8_000), allocatable: Some(-1) }],
        ..Node::default()
    }
}

#[test]
fn a_component_reads_the_node_object() {
    let mut instance = instance();
    assert_eq!(said(&evaluate(&mut instance, NODE, &Columns::default())), ["none"]);
    let columns = Columns { node_object: Some(Arc::new(node())), ..Columns::default() };
    let staged = evaluate(&mut instance, NODE, &columns);
    assert_eq!(said(&staged), ["edge-7", "batch", "cpu"]);
    let amount = staged.state.unwrap();
    assert_eq!((amount[0], number(&amount, 8)), (1, 8_000));
    assert_eq!((amount[16], number(&amount, 24)), (1, u64::MAX), "-1");
}

#[test]
fn a_component_reads_the_objects_of_the_pods_that_it_was_given() {
    let web = PodObject {
        pod: POD,
        annotations: [("a".to_owned(), "1".to_owned())].into(),
        cpu_request: Some(MilliCpu(1_500)),
        lifecycle: PodLifecycle {
            created: Some(60),
            deleting: true,
            grace_period: Some(5),
            mirror: true,
            owner: Some(PodOwner { kind: "DaemonSet".to_owned(), name: "agent".to_owned() }),
            restart_policy: RestartPolicy::Never,
        },
    };
    let stranger = PodObject { pod: PodId(99), ..web.clone() };
    let columns = Columns { pod_objects: Some([web, stranger].into()), ..Columns::default() };
    let mut instance = instance();
    let nothing = evaluate(&mut instance, PODS, &columns);
    assert_eq!((said(&nothing), nothing.state.as_deref().map(<[u8]>::len)), (vec![], Some(0)), "it was given none");

    let given = pod("web");
    instance.pods(&[view(&given, "{}")], &[]).unwrap();
    let staged = evaluate(&mut instance, PODS, &columns);
    assert_eq!(said(&staged), ["DaemonSet", "agent"]);
    let row = staged.state.unwrap();
    assert_eq!(row.len(), 96, "one row");
    assert_eq!((word(&row, 0), word(&row, 8)), (POD.0, 1), "the pod, and how many annotations it has");
    assert_eq!((row[16], number(&row, 24), row[32]), (1, 60, 1), "created, deleting");
    assert_eq!((row[36], word(&row, 40), row[44]), (1, 5, 1), "grace period, mirror");
    assert_eq!((row[72], number(&row, 80), row[88]), (1, 1_500, 2), "CPU request, restart policy");
}

#[test]
fn a_component_reads_the_keys_of_the_cluster_config_map() {
    let key = ConfigKey { text: "{\"a\": 1}".to_owned(), strategy: "{\"b\":2}".to_owned() };
    let config: ClusterConfig = [("key".to_owned(), key)].into_iter().collect();
    let mut instance = instance();
    assert_eq!(said(&evaluate(&mut instance, KEY, &Columns::default())), ["none", "{}"]);
    let columns = Columns { cluster_config: Some(Arc::new(config)), ..Columns::default() };
    assert_eq!(said(&evaluate(&mut instance, KEY, &columns)), ["{\"a\": 1}", "{\"b\":2}"]);
}

#[test]
fn a_generation_grows_when_what_it_is_of_is_another() {
    let mut instance = instance();
    let mut columns = Columns::default();
    let mut seen = Vec::new();
    let mut look = |columns: &Columns| {
        let state = evaluate(&mut instance, GENERATIONS, columns).state.unwrap();
        seen.push([0, 8, 16].map(|at| number(&state, at)));
    };
    look(&columns);
    columns.node_object = Some(Arc::new(node()));
    look(&columns);
    // Equal content in another allocation.
    columns.node_object = Some(Arc::new(node()));
    columns.pod_objects = Some([].into());
    look(&columns);
    columns.cluster_config = Some(Arc::default());
    columns.node_object = Some(Arc::new(Node { name: "other".to_owned(), ..node() }));
    look(&columns);
    assert_eq!(seen, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 1]]);
}
