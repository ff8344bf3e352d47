use qosm_model::cpu_topology::Cpu;

use super::*;
use crate::node_report::{ReportedExclusiveCpus, ReportedNumaNode};

/// Two NUMA nodes with two cores of two threads each.
fn topology() -> ReportedTopology {
    let cpu = |id: u32| Cpu { id, core: id % 4, socket: 0, numa_node: id % 4 / 2, online: true };
    let cpus: Vec<Cpu> = (0..8).map(cpu).collect();
    ReportedTopology {
        numa_nodes: [0, 1].map(|id| ReportedNumaNode::of(id, 8 << 30, &cpus)).into(),
        cpu_manager: "static".to_owned(),
        reserved: "0".to_owned(),
        exclusive: vec![ReportedExclusiveCpus {
            namespace: "default".to_owned(),
            name: "db".to_owned(),
            uid: "u1".to_owned(),
            cpus: "2-3".to_owned(),
        }],
    }
}

fn there(made: &Value) -> DynamicObject {
    let mut made = made.clone();
    made["metadata"]["resourceVersion"] = json!("7");
    serde_json::from_value(made).unwrap()
}

fn annotation(made: &Value, key: &str) -> Value {
    serde_json::from_str(made["metadata"]["annotations"][key].as_str().unwrap()).unwrap()
}

#[test]
fn the_object_is_what_koordinators_scheduler_reads() {
    let made = object("n1", "uid-1", &topology()).unwrap();
    assert_eq!(made["metadata"]["name"], "n1");
    assert_eq!(made["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Koordinator");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    let detail = annotation(&made, CPU_TOPOLOGY);
    assert_eq!(detail["detail"].as_array().unwrap().len(), 8);
    assert_eq!(detail["detail"][6], json!({"id": 6, "core": 2, "socket": 0, "node": 1}));
    assert_eq!(annotation(&made, CPU_MANAGER), json!({"policy": "static", "reservedCPUs": "0"}));
    assert_eq!(
        annotation(&made, CPU_ALLOCS),
        json!([{"namespace": "default", "name": "db", "uid": "u1", "cpuset": "2-3", "managedByKubelet": true}])
    );
    assert_eq!(made["zones"][1]["resources"], json!([amount("cpu", "4"), amount("memory", "8589934592")]));
}

#[test]
fn what_is_there_is_changed_where_it_differs_and_resources_of_others_stay() {
    let made = object("n1", "uid-1", &topology()).unwrap();
    assert_eq!(change(&there(&made), &made), None);
    let batch = amount("kubernetes.io/batch-cpu", "700");
    let mut other = made.clone();
    other["zones"][0]["resources"] = json!([batch, amount("memory", "8589934592"), amount("cpu", "4")]);
    other["metadata"]["annotations"]["qosm.io/published-resources"] = json!("kubernetes.io/batch-cpu");
    assert_eq!(change(&there(&other), &made), None, "the order says nothing, and other annotations stay");
    other["zones"][0]["resources"][2] = amount("cpu", "3");
    other["zones"].as_array_mut().unwrap().push(json!({"name": "node-2", "type": "Node"}));
    let patch = change(&there(&other), &made).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["zones"][0]["resources"], json!([amount("cpu", "4"), amount("memory", "8589934592"), batch]));
    assert_eq!(patch["zones"].as_array().unwrap().len(), 2);
    // A Node that was made anew owns the object of the old one's name.
    let again = object("n1", "uid-2", &topology()).unwrap();
    assert_eq!(change(&there(&made), &again).unwrap()["metadata"]["ownerReferences"][0]["uid"], "uid-2");
}

#[test]
fn objects_of_others_are_none_of_the_controllers() {
    let mut made = object("n1", "uid-1", &topology()).unwrap();
    assert!(is_own(&there(&made)));
    made["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Koordinator"});
    assert!(!is_own(&there(&made)));
}

const START: Duration = Duration::ZERO;

fn node(uid: &str) -> Event<NodeView> {
    let node = json!({"metadata": {"name": "n1", "uid": uid}});
    Event::Apply(serde_json::from_value(node).unwrap())
}

fn report(topology: Option<&ReportedTopology>) -> Event<DynamicObject> {
    let report = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": "n1"},
        "status": {"topology": topology}});
    Event::Apply(serde_json::from_value(report).unwrap())
}

/// One that knows what there is of its own.
fn listed(own: &[&str]) -> Topologies {
    listed_by(NodeTopology::Publish, own)
}

fn listed_by(what: NodeTopology, own: &[&str]) -> Topologies {
    let mut topologies = Topologies::new(what);
    topologies.node(&node("uid-1"));
    assert_eq!(topologies.due(START), [Job::List]);
    assert_eq!(topologies.due(START), [], "one list is enough");
    topologies.done(Done::Listed(Ok(own.iter().map(ToString::to_string).collect())), START);
    topologies
}

fn written(topologies: &mut Topologies, result: Result<Written, String>, at: Duration) {
    let [Job::Write { node, topology, .. }] = &topologies.due(at)[..] else { panic!("nothing is written") };
    topologies.done(Done::Written(node.clone(), topology.clone(), result), at);
}

#[test]
fn it_is_written_once_and_looked_at_every_five_minutes_and_removed_when_cpus_are_no_longer_reported() {
    let mut topologies = listed(&[]);
    assert_eq!(topologies.due(START), [], "nothing is reported");
    topologies.report(&report(Some(&topology())));
    written(&mut topologies, Ok(Written::AsReported), START);
    topologies.report(&report(Some(&topology())));
    assert_eq!(topologies.due(LOOK_AGAIN - Duration::from_secs(1)), []);
    written(&mut topologies, Ok(Written::AsReported), LOOK_AGAIN);
    // Another state is written at once.
    topologies.report(&report(Some(&ReportedTopology { exclusive: Vec::new(), ..topology() })));
    written(&mut topologies, Ok(Written::AsReported), LOOK_AGAIN);
    topologies.report(&report(None));
    assert_eq!(topologies.due(LOOK_AGAIN), [Job::Remove { node: "n1".to_owned() }]);
    topologies.done(Done::Removed("n1".to_owned(), Ok(())), LOOK_AGAIN);
    assert_eq!(topologies.due(LOOK_AGAIN * 9), []);
}

#[test]
fn what_an_earlier_controller_left_is_removed_and_what_others_keep_is_not() {
    let mut topologies = listed(&["n1", "gone"]);
    assert_eq!(topologies.due(START), [Job::Remove { node: "n1".to_owned() }]);

    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())));
    written(&mut topologies, Ok(Written::AnOthers), START);
    assert_eq!(topologies.due(LOOK_AGAIN - Duration::from_secs(1)), [], "it is looked at no sooner");
    topologies.report(&report(None));
    assert_eq!(topologies.due(LOOK_AGAIN * 2), [], "it is not removed");
}

#[test]
fn a_withdrawal_removes_the_controllers_own_whatever_is_reported() {
    let mut topologies = listed_by(NodeTopology::Withdraw, &["n1"]);
    topologies.report(&report(Some(&topology())));
    assert_eq!(topologies.due(START), [Job::Remove { node: "n1".to_owned() }]);
    topologies.done(Done::Removed("n1".to_owned(), Ok(())), START);
    topologies.report(&report(Some(&topology())));
    assert_eq!(topologies.due(LOOK_AGAIN), []);
}

#[test]
fn a_write_that_fails_is_tried_again_and_a_new_node_of_the_name_has_one_of_its_own() {
    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())));
    written(&mut topologies, Err("no".to_owned()), START);
    assert_eq!(topologies.due(AFTER_FAILURE / 2), []);
    written(&mut topologies, Ok(Written::AsReported), AFTER_FAILURE);
    topologies.node(&node("uid-2"));
    let [Job::Write { uid, .. }] = &topologies.due(AFTER_FAILURE)[..] else { panic!("nothing is written") };
    assert_eq!(uid, "uid-2");
}

#[test]
fn a_report_that_cannot_be_is_told_and_nothing_is_written() {
    let mut wrong = topology();
    wrong.numa_nodes[0].cores[0].threads = vec!["0-1".to_owned(), "1-2".to_owned()];
    assert!(object("n1", "u", &wrong).unwrap_err().contains("CPU 1 is there more than once"));
    let mut topologies = listed(&[]);
    let report = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": "n1"},
        "status": {"topology": {"numaNodes": 5}}});
    topologies.report(&Event::Apply(serde_json::from_value(report).unwrap()));
    assert_eq!(topologies.due(START), []);
}
