//! Tests of when amounts are published, kept and withdrawn.

use super::*;

#[test]
fn stale_metrics_withdraw_everything_and_fresh_ones_bring_it_back() {
    let mut run = Run::enabled();
    run.node().zones = vec![Zone { id: 0, allocatable: Amounts::new(100_000, 100 * GIB) }];
    assert_eq!(batch(&run.minute()).0, Some(73_000));
    let usage = run.inputs.usage.take();
    for minute in 1..=15 {
        let seen = run.minute();
        assert_eq!(batch(&seen).0, Some(73_000), "{minute}");
        let expected = if minute <= 4 { Status::Offered } else { Status::Kept(Missing::Usage) };
        assert_eq!(seen.publication.status, expected, "{minute}");
    }
    let gone = run.step(SECOND_USEC);
    assert_eq!(gone.publication.published.offers, BTreeMap::new());
    assert_eq!(gone.publication.published.zones, BTreeMap::from([(0, Amounts::ZERO)]), "a zone is worth nothing");
    assert_eq!(gone.publication.published.origin, None);
    assert_eq!(gone.publication.due, Some(Due::Disappears { name: CPU.into() }));
    assert_eq!(
        gone.publication.status.to_string(),
        "withdrawn: use was last measured 901 s ago, which is more than 900 s"
    );
    run.node().extended.clear();
    assert_eq!(run.minute().publication.due, None, "once");
    run.inputs.usage = usage;
    assert_eq!(batch(&run.minute()).0, Some(73_000));
}

#[test]
fn what_was_never_measured_is_withdrawn_after_a_report() {
    let mut run = Run::enabled();
    run.inputs.usage = None;
    run.node().extended = BTreeMap::from([(CPU.to_owned(), 5000)]);
    let starting = run.step(0);
    assert_eq!((&starting.publication.status, &starting.publication.due), (&Status::Kept(Missing::Usage), &None));
    assert_eq!(run.step(MINUTE).publication.due, None);
    let gone = run.step(1);
    assert_eq!(gone.publication.status, Status::Withdrawn(Withdrawal::NeverMeasured));
    assert_eq!(gone.publication.due, Some(Due::Disappears { name: CPU.into() }));
}

#[test]
fn disabled_withdraws_at_once_and_a_policy_that_does_not_publish_touches_nothing_foreign() {
    let off = Status::Withdrawn(Withdrawal::Disabled);
    let mut run = Run::enabled();
    run.minute();
    run.settings = settings(r#"{"colocation":{"enable":false}}"#);
    let seen = run.minute();
    assert_eq!((&seen.publication.status, batch(&seen)), (&off, (None, None)));
    assert!(seen.publication.due.is_some());

    let mut foreign = Run::new(r#"{"policy":{"publish":false},"colocation":{"enable":true}}"#);
    foreign.node().extended = BTreeMap::from([(CPU.to_owned(), 5000)]);
    let seen = foreign.minute();
    assert_eq!((&seen.publication.status, seen.publication.due), (&off, None));
    let mut disabled = Run::new("{}");
    disabled.node().extended = BTreeMap::from([(CPU.to_owned(), 5000)]);
    assert_eq!(disabled.minute().publication.due, Some(Due::Disappears { name: CPU.into() }));
}

#[test]
fn what_is_not_known_changes_nothing() {
    let mut app = container("app", ContainerKind::Regular, 0, 0);
    app.extended = vec![extended(CPU, Some(1000), Some(1000))];
    let mut run = Run::enabled();
    run.add(Pod { declared_qos: Some(QosClass::Be), ..of_class(PriorityClass::Batch, pod("be", vec![app])) }, None);
    let before = run.minute();
    let whole = run.inputs.clone();
    for (inputs, missing) in [
        (Inputs { node: None, ..whole.clone() }, Missing::Node),
        (Inputs { node: Some(Node::default()), ..whole.clone() }, Missing::Node),
        (Inputs { pods: None, ..whole.clone() }, Missing::Pods),
    ] {
        run.inputs = inputs;
        let seen = run.step(SECOND_USEC);
        assert_eq!(seen.publication.status, Status::Kept(missing));
        assert_eq!((seen.publication.published, seen.publication.due), (before.publication.published.clone(), None));
        assert_eq!(seen.settings, if missing == Missing::Pods { None } else { before.settings.clone() });
    }
    run.inputs = Inputs { node: None, ..whole };
    run.inputs.usage = None;
    let gone = run.step(16 * MINUTE);
    assert_eq!(gone.publication.due, Some(Due::Disappears { name: CPU.into() }), "stale all the same");
}

#[test]
fn small_changes_wait_and_large_ones_do_not() {
    let mut run = Run::enabled();
    run.add(requesting("p", 0, 0), Some((3000, 0)));
    assert_eq!(run.minute().publication.due, Some(Due::Appears { name: CPU.into() }));
    run.usage().pods[0].sample = sample(33_000, 0);
    let seen = run.minute();
    assert_eq!(seen.publication.due, Some(Due::Changed { name: CPU.into(), from: 70_000, to: 55_000 }));
    run.usage().pods[0].sample = sample(18_000, 0);
    for minute in 1..=5 {
        let seen = run.minute();
        assert_eq!((&seen.publication.due, amount(&seen, CPU)), (&None, Some(55_000)), "{minute}");
    }
    let seen = run.minute();
    assert_eq!(seen.publication.due, Some(Due::Elapsed { seconds: 360 }));
}

#[test]
fn a_restart_neither_moves_nor_withdraws_an_amount() {
    let mut run = Run::enabled();
    run.add(requesting("p", 30_000, 0), Some((5000, GIB)));
    for _ in 0..20 {
        run.minute();
    }
    let before = run.minute();
    let bytes = saved_state::encode(&run.state, saved_state::MAX_BYTES);
    run.state = saved_state::decode(&bytes, Some(30_000_000)).unwrap();
    let usage = run.inputs.usage.take();
    let first = run.step(0);
    assert_eq!((&first.publication.due, batch(&first)), (&None, batch(&before)));
    assert_eq!(first.publication.status, Status::Offered, "averages are there");
    run.inputs.usage = usage;
    assert_eq!(batch(&run.minute()), batch(&before));
    // If the age of the state is unknown, averages are dropped: amounts stay until the node has been measured again, and pods count with
    // their requests.
    run.state = saved_state::decode(&bytes, None).unwrap();
    let first = run.step(0);
    assert_eq!((&first.publication.status, batch(&first)), (&Status::Kept(Missing::Usage), batch(&before)));
    assert_eq!(batch(&run.minute()), batch(&before));
}

#[test]
fn enforcing_does_not_depend_on_publishing() {
    let mut app = container("app", ContainerKind::Regular, 0, 0);
    app.extended = vec![extended(CPU, Some(1000), Some(1000))];
    let be =
        || Pod { declared_qos: Some(QosClass::Be), ..of_class(PriorityClass::Batch, pod("be", vec![app.clone()])) };
    for (config, settings) in [
        ("{}", 2),
        (r#"{"policy":{"publish":false}}"#, 2),
        (r#"{"policy":{"enforce":false}}"#, 0),
        (r#"{"threshold":{"enable":true,"cpuSuppressPolicy":"cfsQuota"}}"#, 2),
    ] {
        let mut run = Run::new(config);
        run.add(be(), None);
        let seen = run.minute().settings.unwrap();
        assert_eq!(seen.len(), settings, "{config}");
        assert!(seen.iter().all(|one| one.quota_usec.is_none() == config.contains("cfsQuota")), "{config}");
    }
}

#[test]
fn findings_are_told() {
    let mut run = Run::enabled();
    run.annotate(RESERVATION_ANNOTATION, "nothing");
    run.annotate("node.koordinator.sh/colocation-strategy", r#"{"degradeTimeMinutes":0}"#);
    let seen = run.minute();
    let findings: Vec<_> = seen.findings.iter().map(ToString::to_string).collect();
    assert_eq!(findings.len(), 2);
    assert!(
        findings[0].starts_with("node.koordinator.sh/colocation-strategy field degradeTimeMinutes is `0`; set"),
        "{}",
        findings[0]
    );
    assert!(findings[1].starts_with("node.koordinator.sh/reservation cannot be read"), "{}", findings[1]);
}
