use super::*;

const CPU: &str = "kubernetes.io/batch-cpu";
const MEMORY: &str = "kubernetes.io/batch-memory";

fn rules() -> PublicationRules {
    PublicationRules {
        names: [CPU, MEMORY, "example.com/other"].map(String::from).into(),
        max_percent_of_capacity: 100,
    }
}

/// A node of 4 CPUs and 8 GiB with these resources on top.
fn node(published: Option<&str>, resources: &[(&str, &str)]) -> NodeState {
    let own = [("cpu", "4"), ("memory", "8Gi")];
    let amounts: BTreeMap<_, _> =
        own.iter().chain(resources).map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect();
    NodeState {
        uid: "u".into(),
        version: "7".into(),
        allocatable: amounts.clone(),
        capacity: amounts,
        published: published.map(String::from),
        origin: None,
    }
}

fn resource(name: &str, amount: u64) -> ReportedResource {
    ReportedResource { name: name.into(), amount, ..ReportedResource::default() }
}

/// The patch without the fields that every patch has.
fn changed(publication: &Publication) -> Value {
    let Some(mut patch) = publication.patch.clone() else { return Value::Null };
    let metadata = patch["metadata"].as_object_mut().unwrap();
    assert_eq!((metadata.remove("uid"), metadata.remove("resourceVersion")), (Some("u".into()), Some("7".into())));
    assert_eq!(patch["status"]["capacity"], patch["status"]["allocatable"]);
    json!({"annotations": patch["metadata"]["annotations"], "amounts": patch["status"]["capacity"]})
}

#[test]
fn a_node_gets_what_its_report_names_and_loses_what_it_no_longer_does() {
    let both = format!("{CPU},{MEMORY}");
    for (case, node, wanted, expected) in [
        (
            "first",
            node(None, &[]),
            vec![resource(CPU, 1500), resource(MEMORY, 1 << 30)],
            json!({"annotations": {PUBLISHED: both}, "amounts": {CPU: "1500", MEMORY: "1073741824"}}),
        ),
        ("in force", node(Some(CPU), &[(CPU, "1500")]), vec![resource(CPU, 1500)], Value::Null),
        (
            "in force, as the API server spells it",
            node(Some(CPU), &[(CPU, "2k")]),
            vec![resource(CPU, 2000)],
            Value::Null,
        ),
        (
            "another amount",
            node(Some(CPU), &[(CPU, "1500")]),
            vec![resource(CPU, 900)],
            json!({"annotations": null, "amounts": {CPU: "900"}}),
        ),
        (
            "one of two",
            node(Some(&both), &[(CPU, "1500"), (MEMORY, "5")]),
            vec![resource(CPU, 1500)],
            json!({"annotations": {PUBLISHED: CPU}, "amounts": {MEMORY: null}}),
        ),
        (
            "none claims it",
            node(Some(&both), &[(CPU, "1500"), (MEMORY, "5")]),
            vec![],
            json!({"annotations": {PUBLISHED: null}, "amounts": {CPU: null, MEMORY: null}}),
        ),
        (
            "no longer allowed",
            node(Some("old.example.com/x"), &[("old.example.com/x", "3")]),
            vec![resource("old.example.com/x", 3)],
            json!({"annotations": {PUBLISHED: null}, "amounts": {"old.example.com/x": null}}),
        ),
        (
            "the kubelet registered the node anew",
            node(Some(CPU), &[(CPU, "0")]),
            vec![resource(CPU, 1500)],
            json!({"annotations": null, "amounts": {CPU: "1500"}}),
        ),
        ("nothing was published", node(None, &[(CPU, "1500")]), vec![], Value::Null),
        ("nothing", NodeState { uid: "u".into(), version: "7".into(), ..NodeState::default() }, vec![], Value::Null),
    ] {
        assert_eq!(changed(&publication(&node, &wanted, &rules())), expected, "{case}");
    }
}

#[test]
fn what_may_not_be_published_is_refused_with_the_way_out() {
    for (case, node, wanted, stands, message) in [
        ("not allowed", node(None, &[]), resource("cpu", 4), 0, "colocation.resourceNames"),
        ("another's", node(None, &[(CPU, "800")]), resource(CPU, 1500), 0, "koord-manager"),
        ("another's beside ours", node(Some(MEMORY), &[(CPU, "800")]), resource(CPU, 800), 0, "koord-manager"),
        ("no bound", node(None, &[]), resource("example.com/other", 4), 0, "ends neither in -cpu nor in -memory"),
        ("too much", node(Some(CPU), &[(CPU, "4k")]), resource(CPU, 4001), 4000, "maxPercentOfCapacity"),
    ] {
        let found = publication(&node, &[wanted], &rules());
        let answer = &found.answers[0];
        assert!(!answer.in_force && answer.amount == stands, "{case}: {answer:?}");
        assert!(answer.message.contains(message), "{case}: {answer:?}");
        let amounts = changed(&found)["amounts"].clone();
        assert!(["cpu", CPU, "example.com/other"].iter().all(|name| amounts.get(name).is_none()), "{case}: {amounts}");
    }
    // One that an earlier version published without a bound is withdrawn.
    let before = node(Some("example.com/other"), &[("example.com/other", "4")]);
    let found = publication(&before, &[resource("example.com/other", 4)], &rules());
    assert_eq!(changed(&found)["amounts"], json!({"example.com/other": null}));
    // An amount of 0 offers nothing, so it does not block the publication.
    let adopted = publication(&node(None, &[(CPU, "0")]), &[resource(CPU, 7)], &rules());
    assert_eq!(changed(&adopted)["amounts"][CPU], "7");
}

#[test]
fn no_more_is_published_than_the_node_has() {
    for (name, amount, percent, expected) in [
        (CPU, u64::MAX, 100, "4000"),
        (CPU, 4000, 100, "4000"),
        (CPU, 5000, 125, "5000"),
        (CPU, 5001, 125, "5000"),
        (MEMORY, u64::MAX, 50, "4294967296"),
        (MEMORY, 5, 1, "5"),
    ] {
        let rules = PublicationRules { max_percent_of_capacity: percent, ..rules() };
        let found = publication(&node(None, &[]), &[resource(name, amount)], &rules);
        assert_eq!(changed(&found)["amounts"][name], expected, "{name} {amount} at {percent} %");
    }
    let shrunk = NodeState { capacity: [("cpu".into(), "1".into())].into(), ..node(None, &[]) };
    let found = publication(&shrunk, &[resource(CPU, 4000), resource(MEMORY, 9)], &rules());
    assert_eq!(changed(&found)["amounts"], json!({CPU: "1000", MEMORY: "0"}));
    // Kubernetes' quantities end at 2^63 − 1.
    let vast = NodeState { capacity: [("memory".into(), i64::MAX.to_string())].into(), ..node(None, &[]) };
    for percent in [101, 1000] {
        let rules = PublicationRules { max_percent_of_capacity: percent, ..rules() };
        let found = publication(&vast, &[resource(MEMORY, u64::MAX)], &rules);
        assert_eq!(changed(&found)["amounts"], json!({MEMORY: i64::MAX.to_string()}), "{percent} %");
    }
}

#[test]
fn of_two_amounts_of_one_name_the_first_counts() {
    let found = publication(&node(None, &[]), &[resource(CPU, 1), resource(CPU, 2)], &rules());
    assert_eq!((changed(&found)["amounts"].clone(), found.answers.len()), (json!({CPU: "1"}), 1));
}

#[test]
fn amounts_before_others_took_their_part_stand_in_the_annotation() {
    let mut wanted = resource(CPU, 1000);
    wanted.origin = Some(1800);
    let text = r#"{"resources":{"kubernetes.io/batch-cpu":"1800"}}"#;
    let with = |origin: Option<&str>| NodeState { origin: origin.map(String::from), ..node(Some(CPU), &[(CPU, "1k")]) };
    for (case, origin, wanted, expected) in [
        ("new", None, &wanted, json!(text)),
        ("the same", Some(text), &wanted, Value::Null),
        ("gone", Some(text), &resource(CPU, 1000), Value::Null),
        ("of others", Some(r#"{"resources":{"example.com/other":"1"}}"#), &wanted, Value::Null),
        ("no JSON", Some("{"), &wanted, Value::Null),
    ] {
        let found = publication(&with(origin), std::slice::from_ref(wanted), &rules());
        assert_eq!(changed(&found)["annotations"][ORIGIN], expected, "{case}");
        assert_eq!(found.patch.is_some(), matches!(case, "new" | "gone"), "{case}");
    }
}

#[test]
fn an_earlier_version_of_a_node_is_told_from_a_later() {
    let version = |version: &str| NodeState { version: version.into(), ..node(None, &[]) };
    assert!(version("99").is_older_than(&version("100")));
    assert!(!version("100").is_older_than(&version("99")) && !version("9").is_older_than(&version("9")));
    assert!(!version("").is_older_than(&version("99")));
    assert!(!NodeState { uid: "other".into(), ..version("1") }.is_older_than(&version("99")));
}
