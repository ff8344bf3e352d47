use qosm_model::cpu_topology::Cpu;

use serde_json::{Value, json};

use super::object::{CPU_ALLOCS, CPU_MANAGER, CPU_TOPOLOGY, amount, change, is_own, object};
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

fn wanted(uid: &str, topology: ReportedTopology) -> Wanted {
    Wanted { uid: uid.to_owned(), topology, of_node: BTreeMap::new() }
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
    let made = object("n1", &wanted("uid-1", topology())).unwrap();
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
    let made = object("n1", &wanted("uid-1", topology())).unwrap();
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
    // A Node that was created anew owns the object of its predecessor.
    let again = object("n1", &wanted("uid-2", topology())).unwrap();
    assert_eq!(change(&there(&made), &again).unwrap()["metadata"]["ownerReferences"][0]["uid"], "uid-2");
}

#[test]
fn objects_of_others_are_none_of_the_controllers() {
    let mut made = object("n1", &wanted("uid-1", topology())).unwrap();
    assert!(is_own(&there(&made)));
    let mut taken_over = made.clone();
    taken_over["metadata"]["annotations"]["node.koordinator.sh/cpu-shared-pools"] = json!("[]");
    assert!(!is_own(&there(&taken_over)), "a koordlet has come");
    made["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Koordinator"});
    assert!(!is_own(&there(&made)));
}

#[test]
fn what_the_node_reserves_goes_along_and_away_again() {
    let mut of_node = wanted("uid-1", topology());
    of_node.of_node.insert(OF_NODE[0].to_owned(), r#"{"reservedCPUs":"0-1"}"#.to_owned());
    let made = object("n1", &of_node).unwrap();
    assert_eq!(made["metadata"]["annotations"][OF_NODE[0]], r#"{"reservedCPUs":"0-1"}"#);
    assert_eq!(change(&there(&made), &made), None);
    let without = object("n1", &wanted("uid-1", topology())).unwrap();
    let patch = change(&there(&made), &without).unwrap();
    assert_eq!(patch["metadata"]["annotations"][OF_NODE[0]], Value::Null);
}

#[test]
fn zones_are_those_with_cpus_and_no_more_than_a_scheduler_can_combine() {
    let mut many = topology();
    many.numa_nodes.push(ReportedNumaNode { id: 2, memory_bytes: 1 << 30, cores: Vec::new() });
    let made = object("n1", &wanted("u", many.clone())).unwrap();
    assert_eq!(made["zones"].as_array().unwrap().len(), 2, "a memory expander is no zone");
    let cpu = |id: u32| Cpu { id, core: id, socket: 0, numa_node: id, online: true };
    many.numa_nodes = (0..17).map(|id| ReportedNumaNode::of(id, 0, &[cpu(id)])).collect();
    assert!(object("n1", &wanted("u", many)).unwrap_err().starts_with("17 NUMA nodes have CPUs"));
}

#[test]
fn a_report_that_cannot_be_is_told() {
    let mut wrong = topology();
    wrong.numa_nodes[0].cores[0].threads = vec!["0-1".to_owned(), "1-2".to_owned()];
    assert!(object("n1", &wanted("u", wrong)).unwrap_err().contains("CPU 1 is there more than once"));
}

const START: Duration = Duration::ZERO;

fn node_with(uid: &str, annotations: Value) -> Event<NodeView> {
    let node = json!({"metadata": {"name": "n1", "uid": uid, "annotations": annotations}});
    Event::Apply(serde_json::from_value(node).unwrap())
}

fn node(uid: &str) -> Event<NodeView> {
    node_with(uid, json!({}))
}

fn status(status: Value) -> DynamicObject {
    let report = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": "n1"}, "status": status});
    serde_json::from_value(report).unwrap()
}

fn report(topology: Option<&ReportedTopology>) -> Event<DynamicObject> {
    Event::Apply(status(json!({"topology": topology})))
}

fn fewer() -> ReportedTopology {
    ReportedTopology { exclusive: Vec::new(), ..topology() }
}

/// Topologies of a controller that acts and has listed its own objects.
fn listed(own: &[&str]) -> Topologies {
    listed_by(NodeTopology::Publish, own)
}

fn listed_by(what: NodeTopology, own: &[&str]) -> Topologies {
    let mut topologies = Topologies::new(what);
    topologies.node(&node("uid-1"), START);
    list(&mut topologies, own, START);
    topologies
}

fn list(topologies: &mut Topologies, own: &[&str], at: Duration) {
    topologies.begin();
    assert_eq!(topologies.due(at), [Job::List]);
    assert_eq!(topologies.due(at), [], "one list is enough");
    topologies.done(Done::Listed(Ok(own.iter().map(ToString::to_string).collect())), at);
}

#[track_caller]
fn written(topologies: &mut Topologies, outcome: Result<Written, String>, at: Duration) -> Wanted {
    let [Job::Write { node, wanted }] = &topologies.due(at)[..] else { panic!("nothing is written") };
    topologies.done(Done::Written(node.clone(), wanted.clone(), outcome), at);
    wanted.clone()
}

#[track_caller]
fn removed(topologies: &mut Topologies, at: Duration) {
    assert_eq!(topologies.due(at), [Job::Remove { node: "n1".to_owned() }]);
    topologies.done(Done::Removed("n1".to_owned(), Ok(())), at);
    assert_eq!(topologies.due(at * 9), []);
}

#[test]
fn it_is_written_when_it_changes_and_looked_at_every_five_minutes() {
    let mut topologies = listed(&[]);
    assert_eq!(topologies.due(START), [], "nothing is reported");
    topologies.report(&report(Some(&topology())), START);
    written(&mut topologies, Ok(Written::AsWanted), START);
    topologies.report(&report(Some(&topology())), START);
    topologies.node(&node("uid-1"), START);
    assert_eq!(topologies.due(LOOK_AGAIN - Duration::from_secs(1)), []);
    written(&mut topologies, Ok(Written::AsWanted), LOOK_AGAIN);
    topologies.report(&report(Some(&fewer())), LOOK_AGAIN);
    written(&mut topologies, Ok(Written::AsWanted), LOOK_AGAIN);
    topologies.node(&node_with("uid-1", json!({"node.koordinator.sh/reservation": "{}", "other": "1"})), LOOK_AGAIN);
    let wanted = written(&mut topologies, Ok(Written::AsWanted), LOOK_AGAIN);
    assert_eq!(wanted.of_node.into_iter().collect::<Vec<_>>(), [(OF_NODE[0].to_owned(), "{}".to_owned())]);
}

#[test]
fn it_is_removed_a_minute_after_the_agent_sees_no_cpus_any_more_and_by_nothing_less() {
    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())), START);
    written(&mut topologies, Ok(Written::AsWanted), START);
    // An agent that restarts sees no CPUs for a moment.
    topologies.report(&report(None), START);
    assert_eq!(topologies.due(KEPT_FOR / 2), []);
    topologies.report(&report(Some(&topology())), KEPT_FOR / 2);
    assert_eq!(topologies.due(KEPT_FOR), [], "it still stands");
    // Events that change nothing: a module that is being fetched, an unreadable report, a deleted report.
    let fetching = status(json!({"policies": [{"name": "cpu-topology", "state": "fetching"}]}));
    for event in
        [Event::Apply(fetching), Event::Apply(status(json!({"topology": 5}))), Event::Delete(status(json!({})))]
    {
        topologies.report(&event, KEPT_FOR);
        assert_eq!(topologies.due(KEPT_FOR * 3), []);
    }
    topologies.report(&report(None), KEPT_FOR);
    topologies.report(&report(None), KEPT_FOR * 3 / 2);
    removed(&mut topologies, KEPT_FOR * 2);
}

#[test]
fn what_an_earlier_controller_left_is_removed_and_what_others_keep_is_not() {
    let mut topologies = listed(&["n1", "gone"]);
    assert_eq!(topologies.due(KEPT_FOR), [], "nothing is heard of the agent");
    topologies.report(&report(None), START);
    removed(&mut topologies, KEPT_FOR);

    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())), START);
    written(&mut topologies, Ok(Written::AnOthers), START);
    assert_eq!(topologies.due(LOOK_AGAIN - Duration::from_secs(1)), [], "it is looked at no sooner");
    topologies.report(&report(None), START);
    assert_eq!(topologies.due(LOOK_AGAIN * 2), [], "it is not removed");
}

#[test]
fn whoever_acts_again_asks_anew_what_stands() {
    let mut topologies = listed(&[]);
    topologies.report(&report(None), START);
    assert_eq!(topologies.due(KEPT_FOR), []);
    // Another controller acted meanwhile, and created an object.
    list(&mut topologies, &["n1"], KEPT_FOR);
    removed(&mut topologies, KEPT_FOR);
}

#[test]
fn a_withdrawal_removes_the_controllers_own_whatever_is_reported() {
    let mut topologies = listed_by(NodeTopology::Withdraw, &["n1"]);
    topologies.report(&report(Some(&topology())), START);
    removed(&mut topologies, START);
    topologies.report(&report(Some(&topology())), START);
    assert_eq!(topologies.due(LOOK_AGAIN), []);
}

#[test]
fn a_write_that_fails_is_tried_again_and_may_have_been_carried_out() {
    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())), START);
    written(&mut topologies, Err("no answer".to_owned()), START);
    assert_eq!(topologies.due(AFTER_FAILURE / 2), []);
    topologies.report(&report(None), START);
    removed(&mut topologies, KEPT_FOR);
}

#[test]
fn a_new_node_of_the_name_has_one_of_its_own() {
    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())), START);
    written(&mut topologies, Ok(Written::AsWanted), START);
    topologies.node(&node("uid-2"), START);
    assert_eq!(written(&mut topologies, Ok(Written::Made), START).uid, "uid-2");
    // An entry is dropped when its Node and its report are gone.
    topologies.report(&Event::Delete(status(json!({}))), START);
    topologies.node(&Event::Delete(serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap()), START);
    assert!(topologies.nodes.is_empty());
}

#[test]
fn the_node_of_an_object_that_was_made_is_told_since_shares_are_missing_there() {
    let mut topologies = listed(&[]);
    topologies.report(&report(Some(&topology())), START);
    let [Job::Write { node, wanted }] = &topologies.due(START)[..] else { panic!("nothing is written") };
    let done = |outcome| Done::Written(node.clone(), wanted.clone(), Ok(outcome));
    assert_eq!(topologies.done(done(Written::Made), START), Some("n1".to_owned()));
    assert_eq!(topologies.done(done(Written::AsWanted), START), None);
}
