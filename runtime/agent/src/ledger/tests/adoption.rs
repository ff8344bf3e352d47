use super::*;

const QUOTA: Key = (APP, Knob::CfsQuota);

/// The node after an agent that held a quota of 200 ms was killed; then another writer wrote this.
fn after_a_crash(folder: &std::path::Path, written: Option<&str>) -> Env {
    let mut env = Env::on(Versions::V2, Some(open_journal(folder)));
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    let Env { ledger, mut host, .. } = env;
    drop(ledger);
    if let Some(text) = written {
        host.simulated_mut().unwrap().set_file(APP_PATH, "cpu.max", text).unwrap();
    }
    for target in [POD, APP] {
        host.detach(target);
    }
    Env::of(host, Some(open_journal(folder)))
}

#[test]
fn what_no_policy_claims_any_more_is_restored_unless_another_process_wrote_it() {
    for (written, adopted, settled) in [
        (None, Some(Value::Max), Value::Max),
        (Some("max 100000"), None, Value::Max),
        (Some("70000 100000"), Some(Value::Max), n(70_000)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut env = after_a_crash(folder.path(), written);
        assert_eq!(env.ledger.held().get(&QUOTA).map(|held| held.baseline), adopted, "{written:?}");
        env.ledger.settle();
        env.apply();
        assert_eq!(env.value(QUOTA), settled, "{written:?}");
        assert!(env.ledger.journal().unwrap().records().unwrap().is_empty(), "{written:?}");
    }
}

#[test]
fn what_is_adopted_and_wanted_again_is_not_written_and_keeps_its_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = after_a_crash(folder.path(), None);
    env.lease("a", 1, QUOTA, n(200_000));
    env.ledger.settle();
    assert!(env.apply().decisions.is_empty());
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(QUOTA), Value::Max);
}

#[test]
fn what_another_process_wrote_while_no_agent_ran_is_drift() {
    for (written, reads, baseline) in [
        // A person's: left alone.
        ("70000 100000", n(70_000), Value::Max),
        // What the limit of one CPU gives: the kubelet's, a new baseline.
        ("100000 100000", n(200_000), n(100_000)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut env = after_a_crash(folder.path(), Some(written));
        env.lease("a", 1, QUOTA, n(200_000));
        env.ledger.settle();
        let notices = env.apply().notices;
        assert_eq!(notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(), ["KnobDrift"], "{written}");
        assert_eq!(env.value(QUOTA), reads, "{written}");
        assert_eq!(env.ledger.held().get(&QUOTA).unwrap().baseline, baseline, "{written}");
    }
}

#[test]
fn a_persons_value_is_left_alone_by_the_next_agent_for_the_hands_off_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = after_a_crash(folder.path(), Some("70000 100000"));
    env.lease("a", 1, QUOTA, n(200_000));
    env.ledger.settle();
    env.apply();
    let seconds = i64::from(env.config.drift.hands_off_seconds);
    env.later(seconds - 1);
    assert_eq!(env.value(QUOTA), n(70_000));
    env.later(2);
    assert_eq!(env.value(QUOTA), n(200_000));
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(QUOTA), n(70_000));
}

#[test]
fn until_all_policies_have_spoken_an_orphan_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = after_a_crash(folder.path(), None);
    env.tick();
    assert_eq!(env.value(QUOTA), n(200_000));
    assert!(!env.ledger.is_settled());
}

#[test]
fn a_cgroup_that_no_pod_claims_is_opened_restored_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = after_a_crash(folder.path(), None);
    let Env { host, ledger, .. } = env;
    drop(ledger);
    let mut host = host;
    for target in [POD, APP] {
        host.detach(target);
    }
    let mut ledger = Ledger::new(&mut host, Some(open_journal(folder.path())), false).unwrap();
    let mut pods = PodTable::default();
    ledger.settle();
    ledger.open_orphans(&mut host, &mut pods);
    assert_eq!(ledger.held().len(), 1);
    env = Env { ledger, host, pods, policies: env.policies, config: env.config, metrics: env.metrics, seconds: 1 };
    env.apply();
    let Env { ledger, host, .. } = &mut env;
    ledger.close_spares(host);
    assert_eq!(env.ledger.sizes().map(|(_, size)| size), [0; 7]);
    assert!(env.host.attached_at(APP_PATH).is_none());
}

#[test]
fn a_cgroup_made_anew_under_the_old_name_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = Env::on(Versions::V2, Some(open_journal(folder.path())));
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    let Env { ledger, mut host, .. } = env;
    drop(ledger);
    host.detach(APP);
    host.simulated_mut().unwrap().remove_cgroup(APP_PATH).unwrap();
    host.create(APP_PATH).unwrap();
    host.detach(POD);
    let env = Env::of(host, Some(open_journal(folder.path())));
    assert_eq!(env.ledger.held().len(), 0);
}
