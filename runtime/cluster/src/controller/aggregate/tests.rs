use serde_json::json;

use super::*;
use crate::policy_module::Rollout;

fn module(spec: serde_json::Value, generation: i64) -> PolicyModule {
    serde_json::from_value(json!({
        "apiVersion": "qosm.io/v1alpha1", "kind": "PolicyModule",
        "metadata": {"name": "burst", "generation": generation}, "spec": spec,
    }))
    .unwrap()
}

fn nodes(names: &[&str]) -> BTreeMap<String, Node> {
    let node = |name: &&str| {
        let labels = [("zone".to_owned(), name[..1].to_owned())].into();
        ((*name).to_owned(), Node { name: (*name).to_owned(), labels, ..Node::default() })
    };
    names.iter().map(node).collect()
}

fn report(generation: i64, digest: &str, error: Option<&str>) -> ReportCounts {
    let policy = ReportedPolicy {
        name: "burst".into(),
        generation: Some(generation),
        digest: digest.into(),
        version: "cpu-burst@1".into(),
        state: RUNNING.into(),
        error: error.map(str::to_owned),
        ..ReportedPolicy::default()
    };
    ReportCounts { policies: vec![policy], ..ReportCounts::default() }
}

fn condition_text(status: &PolicyModuleStatus) -> Vec<String> {
    let line = |known: &Condition| format!("{} {} {}: {}", known.type_, known.status, known.reason, known.message);
    status.conditions.iter().map(line).collect()
}

fn now(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).unwrap())
}

#[test]
fn nodes_are_counted_by_what_they_run() {
    let module = module(json!({"module": "builtin:cpu-burst"}), 2);
    let reports = BTreeMap::from([
        ("a1".to_owned(), report(2, "sha256:new", None)),
        ("a2".to_owned(), report(1, "sha256:old", None)),
        ("b1".to_owned(), report(2, "sha256:new", None)),
        ("b2".to_owned(), report(1, "sha256:old", Some("generation 2 is not taken: no such file"))),
    ]);
    let status = count(&module, &nodes(&["a1", "a2", "b1", "b2", "b3"]), &reports, None, &now(1));
    assert_eq!((status.nodes, status.updated, status.failing), (4, 2, 1));
    let digests: Vec<_> = status.digests.iter().map(|count| (count.digest.as_str(), count.nodes)).collect();
    assert_eq!(digests, [("sha256:new", 2), ("sha256:old", 2)]);
    assert_eq!(
        condition_text(&status),
        [
            "Selected True NodesSelected: 5 of 5 nodes, 1 of them without an agent",
            "Progressing True RollingOut: 2 of 4 nodes run this generation, 4 are to",
            "Healthy False Failing: b2: generation 2 is not taken: no such file",
        ]
    );
}

#[test]
fn a_node_whose_report_is_old_is_silent_and_one_whose_agent_has_ended_is_not_counted() {
    let module = module(json!({"module": "builtin:cpu-burst"}), 2);
    let (hour, minutes) = (now(100_000).0, |minutes: i64| Some(now(100_000 - minutes * 60)));
    let at = |reported_at| ReportCounts { reported_at, ..report(2, "sha256:new", None) };
    let reports = BTreeMap::from([
        ("a1".to_owned(), at(minutes(0))),
        ("a2".to_owned(), at(minutes(64))),
        ("b1".to_owned(), at(minutes(66))),
        ("b2".to_owned(), ReportCounts { has_ended: true, ..at(minutes(0)) }),
        // This node's clock is ahead; another condition reports that.
        ("b3".to_owned(), at(minutes(-600))),
    ]);
    let status = count(&module, &nodes(&["a1", "a2", "b1", "b2", "b3"]), &reports, None, &Time(hour));
    assert_eq!((status.nodes, status.updated, status.failing), (4, 3, 0));
    assert_eq!(status.digests[0].nodes, 3);
    assert_eq!(condition_text(&status)[0], "Selected True NodesSelected: 5 of 5 nodes, 1 of them without an agent");
    assert_eq!(
        condition_text(&status)[2],
        "Healthy False NoReport: no report for an hour of b1: does the agent run there?"
    );
}

#[test]
fn a_report_is_read_as_far_as_it_is_counted() {
    let condition = json!({"type": "Ready", "status": "False", "reason": "Ended", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let object = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": "a1"},
        "spec": {"node": "a1"}, "status": {"reportedAt": "2026-01-01T00:00:00Z", "conditions": [condition], "later": 1}});
    let counted = ReportCounts::read(serde_json::from_value(object).unwrap());
    assert!(counted.has_ended);
    assert_eq!(counted.reported_at, Some(Time("2026-01-01T00:00:00Z".parse().unwrap())));
}

/// A node whose clock is hours behind is still alive.
#[test]
fn a_report_is_as_old_as_the_api_server_says() {
    let written = |manager: &str, time: &str| json!({"manager": manager, "operation": "Apply", "time": time});
    let object = json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport",
        "metadata": {"name": "a1", "managedFields": [
            written("qosm", "2026-01-01T08:00:00Z"), written("qosm", "2026-01-01T09:00:00Z"), written("kubectl", "2026-01-01T10:00:00Z")]},
        "spec": {"node": "a1"}, "status": {"reportedAt": "2026-01-01T00:00:00Z"}});
    let counted = ReportCounts::read(serde_json::from_value(object).unwrap());
    assert_eq!(counted.reported_at, Some(Time("2026-01-01T09:00:00Z".parse().unwrap())));
}

#[test]
fn a_selector_that_matches_no_node_and_an_invalid_one_are_reported() {
    let nodes = nodes(&["a1", "b1"]);
    let elsewhere = module(json!({"module": "builtin:x", "nodeSelector": {"matchLabels": {"zone": "c"}}}), 1);
    let status = count(&elsewhere, &nodes, &BTreeMap::new(), None, &now(1));
    assert_eq!(condition_text(&status)[0], "Selected False NoNodes: nodeSelector matches none of 2 nodes");

    let expression = json!({"key": "zone", "operator": "Near", "values": ["a"]});
    let nonsense = module(json!({"module": "builtin:x", "nodeSelector": {"matchExpressions": [expression]}}), 1);
    let fault = "matchExpressions[0] (zone): operator `Near` does not exist; write In, NotIn, Exists or DoesNotExist";
    // A node that ran it before keeps it.
    let reports =
        BTreeMap::from([("a1".to_owned(), report(1, "sha256:new", None)), ("b1".to_owned(), ReportCounts::default())]);
    let status = count(&nonsense, &nodes, &reports, None, &now(1));
    assert_eq!((status.nodes, status.updated, status.failing), (1, 1, 0));
    assert_eq!(
        condition_text(&status),
        [
            format!("Selected False InvalidSelector: nodeSelector: {fault}"),
            "Progressing False InvalidSelector: 1 of 1 nodes run this generation; no further node takes it".to_owned(),
            "Healthy True Running: 1 nodes run it, none complains".to_owned(),
        ]
    );
    let mut aggregate = Aggregate::default();
    aggregate.modules.objects.insert("burst".to_owned(), nonsense);
    // The node reports the selector as well.
    let problem = ReportedProblem {
        object: "PolicyModule burst".into(),
        field: Some("spec.nodeSelector".into()),
        message: invalid_selector(fault),
    };
    let reported = ReportCounts { problems: vec![problem], ..ReportCounts::default() };
    aggregate.reports.objects.insert("a1".to_owned(), reported);
    let rest = "nodes keep what they run, and no further node takes it; mend the selector";
    let expected = [("PolicyModule burst".to_owned(), format!("spec.nodeSelector: {fault}; {rest}"))];
    assert_eq!(aggregate.problems(&now(1)), BTreeMap::from(expected));
}

#[test]
fn a_set_operator_without_values_is_invalid() {
    for (operator, values, expected) in [
        ("In", json!(null), Err("matchExpressions[1] (zone): In needs values".to_owned())),
        ("NotIn", json!([]), Err("matchExpressions[1] (zone): NotIn needs values".to_owned())),
        ("NotIn", json!(["b"]), Ok(true)),
        ("DoesNotExist", json!(null), Ok(true)),
    ] {
        let expressions = json!([
            {"key": "pool", "operator": "DoesNotExist"}, {"key": "zone", "operator": operator, "values": values}]);
        let spec = json!({"module": "builtin:x", "nodeSelector": {"matchExpressions": expressions}});
        assert_eq!(module(spec, 1).spec.selects(&Node::default()), expected, "{operator}");
    }
}

#[test]
fn a_condition_keeps_its_time_while_it_stays_as_it_is() {
    let module = module(json!({"module": "builtin:cpu-burst"}), 1);
    let nodes = nodes(&["a1"]);
    let before = count(&module, &nodes, &BTreeMap::new(), None, &now(1));
    let reports = BTreeMap::from([("a1".to_owned(), report(1, "sha256:new", None))]);
    let after = count(&module, &nodes, &reports, Some(&before), &now(2));
    let times: Vec<_> = after.conditions.iter().map(|known| known.last_transition_time.0.as_second()).collect();
    assert_eq!(times, [2, 1, 1]);
}

#[test]
fn a_rollout_reaches_about_its_share_and_never_lets_a_node_go_again() {
    let nodes: Vec<String> = (0..1000).map(|number| format!("node-{number}")).collect();
    let reached = |percent| {
        let rollout = Rollout { percent, paused: false };
        nodes.iter().filter(|node| rollout.reaches("burst", node)).collect::<Vec<_>>()
    };
    assert_eq!((reached(0).len(), reached(100).len()), (0, 1000));
    let (tenth, half) = (reached(10), reached(50));
    assert!((70..=130).contains(&tenth.len()), "{}", tenth.len());
    assert!(tenth.iter().all(|node| half.contains(node)));
    assert!(!Rollout { percent: 100, paused: true }.reaches("burst", "node-1"));
    // Operators can compute it: the first 8 bytes of `printf burst/node-1 | sha256sum`, modulo 100.
    assert!(Rollout { percent: 100, paused: false }.reaches("burst", "node-1"));
}

#[test]
fn problems_of_many_nodes_about_one_object_are_one() {
    let mut aggregate = Aggregate::default();
    let problem = |message: &str| ReportedProblem {
        object: "ConfigMap kube-system/ack-slo-config".into(),
        field: Some("cpu-burst-config".into()),
        message: message.into(),
    };
    for (node, message) in [("a", "of another age"), ("b", "not JSON"), ("c", "not JSON"), ("gone", "from before")] {
        let has_ended = node == "gone";
        let counted = ReportCounts { problems: vec![problem(message)], has_ended, ..ReportCounts::default() };
        aggregate.reports.objects.insert(node.into(), counted);
    }
    let problems: Vec<_> = aggregate.problems(&now(1)).into_iter().collect();
    let about = "ConfigMap kube-system/ack-slo-config".to_owned();
    let expected = "cpu-burst-config: not JSON; cpu-burst-config: of another age".to_owned();
    assert_eq!(problems, [(about, expected)]);
}

#[test]
fn one_node_does_not_occupy_the_controller_with_what_it_reports() {
    let long = "x".repeat(100_000);
    let problem = |number| json!({"object": format!("ConfigMap x/{number}"), "message": long});
    let policy =
        |number| json!({"name": format!("p{number}"), "module": "m", "version": long, "digest": "d", "error": long});
    let problems: Vec<_> = (0..5000).map(problem).collect();
    let policies: Vec<_> = (0..5000).map(policy).collect();
    let object = json!({
        "apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport", "metadata": {"name": "a1"},
        "status": {"problems": problems, "policies": policies},
    });
    let counted = ReportCounts::read(serde_json::from_value(object).unwrap());
    assert_eq!((counted.problems.len(), counted.policies.len()), (MAX_PROBLEMS, MAX_POLICIES));
    let texts = counted.problems.iter().map(|problem| &problem.message);
    let texts =
        texts.chain(counted.policies.iter().flat_map(|policy| [&policy.version].into_iter().chain(&policy.error)));
    assert!(texts.into_iter().all(|text| text.chars().count() == MAX_TEXT + 1));
}
