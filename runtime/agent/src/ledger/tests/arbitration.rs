use super::*;

const QUOTA: Key = (APP, Knob::CfsQuota);

#[test]
fn the_highest_priority_wins_and_of_equals_the_name_that_sorts_first() {
    for (leases, expected) in [
        (&[("a", 1, 100_000), ("b", 2, 200_000)][..], 200_000),
        (&[("a", 2, 100_000), ("b", 1, 200_000)], 100_000),
        (&[("b", 1, 200_000), ("a", 1, 100_000)], 100_000),
        (&[("a", 1, 100_000), ("b", 1, 200_000), ("c", 9, 50_000)], 50_000),
    ] {
        let mut env = Env::new();
        for &(policy, priority, value) in leases {
            env.lease(policy, priority, QUOTA, n(value));
        }
        let applied = env.apply();
        assert_eq!((env.value(QUOTA), applied.decisions.len()), (n(expected), 1), "{leases:?}");
    }
}

/// Stages a lease as a policy does: the end of staging is when ties are looked for.
fn stage(env: &mut Env, policy: &str, priority: i32, value: i64) {
    let (holder, now) = (holder(policy, priority), Timestamp(0));
    env.ledger.begin_staging(&holder, false);
    let (target, knob) = QUOTA;
    let setting = qosm_model::setting::Setting::Hold { target, knob, value: n(value), reason: "".into() };
    env.ledger.stage(&holder, setting, &|_| None, now);
    env.ledger.end_staging(&holder);
}

fn ties(env: &Env) -> Vec<String> {
    env.ledger
        .ties()
        .map(|(tie, Priority(priority))| format!("{} {} {}, {priority}", tie.winner, tie.other, tie.knob))
        .collect()
}

#[test]
fn a_tie_is_where_leases_of_one_priority_want_different_values_and_one_is_in_force() {
    for (leases, expected) in [
        (&[("b", 1, 200_000), ("a", 1, 100_000)][..], &["a b cpu.quota, 1"][..]),
        (&[("a", 1, 100_000), ("b", 1, 100_000)], &[]),
        (&[("a", 1, 100_000), ("b", 2, 200_000)], &[]),
        (&[("c", 9, 50_000), ("a", 1, 100_000), ("b", 1, 200_000)], &[]),
        (&[("a", 1, 1000), ("b", 1, 2000), ("c", 1, 3000)], &["a b cpu.quota, 1", "a c cpu.quota, 1"]),
    ] {
        let mut env = Env::new();
        for &(policy, priority, value) in leases {
            stage(&mut env, policy, priority, value);
        }
        let priority = |policy: &str| leases.iter().find(|lease| lease.0 == policy).map(|lease| Priority(lease.1));
        assert_eq!(env.ledger.ties_changed(priority), !expected.is_empty(), "{leases:?}");
        assert_eq!(ties(&env), expected, "{leases:?}");
    }
}

#[test]
fn a_tie_is_told_once_and_ends_with_the_equal_priority() {
    let mut env = Env::new();
    let equal = |_: &str| Some(Priority(1));
    let mut news = Vec::new();
    // They agree from time to time.
    for value in [200_000, 100_000, 300_000, 100_000] {
        stage(&mut env, "a", 1, 100_000);
        stage(&mut env, "b", 1, value);
        news.push(env.ledger.ties_changed(equal));
    }
    assert_eq!((news, ties(&env).len()), (vec![true, false, false, false], 1));
    let raised = |policy: &str| Some(Priority(if policy == "b" { 2 } else { 1 }));
    stage(&mut env, "b", 2, 300_000);
    assert!(env.ledger.ties_changed(raised));
    assert_eq!(ties(&env), Vec::<String>::new());
    stage(&mut env, "a", 1, 100_000);
    assert!(!env.ledger.ties_changed(raised), "the lease of b counts");
}

#[test]
fn policies_that_change_their_minds_alike_in_one_step_do_not_tie() {
    let mut env = Env::new();
    for value in [100_000, 200_000] {
        stage(&mut env, "a", 1, value);
        stage(&mut env, "b", 1, value);
        assert!(!env.ledger.ties_changed(|_| Some(Priority(1))), "{value}");
    }
}

#[test]
fn a_lease_that_is_denied_ties_with_none() {
    let mut env = Env::new();
    stage(&mut env, "a", 1, 100_000);
    let (other, setting) = (
        holder("b", 1),
        qosm_model::setting::Setting::Hold { target: APP, knob: Knob::CfsQuota, value: n(200_000), reason: "".into() },
    );
    env.ledger.begin_staging(&other, false);
    env.ledger.stage(&other, setting, &|_| Some("not configured".into()), Timestamp(0));
    env.ledger.end_staging(&other);
    assert!(!env.ledger.ties_changed(|_| Some(Priority(1))));
}

#[test]
fn releasing_the_lease_on_top_brings_the_one_beneath_and_then_the_baseline() {
    let mut env = Env::new();
    env.lease("low", 1, QUOTA, n(100_000));
    env.lease("high", 2, QUOTA, n(200_000));
    env.apply();
    for (policy, expected) in [("high", n(100_000)), ("low", Value::Max)] {
        env.ledger.release(policy);
        env.apply();
        assert_eq!(env.value(QUOTA), expected, "{policy}");
    }
    assert_eq!(env.ledger.held().len(), 0);
}

#[test]
fn a_lease_that_says_the_same_again_writes_nothing() {
    let mut env = Env::new();
    env.lease("a", 1, QUOTA, n(100_000));
    assert_eq!(env.apply().decisions.len(), 1);
    env.lease("a", 1, QUOTA, n(100_000));
    assert!(env.tick().decisions.is_empty());
}

#[test]
fn a_policy_that_declares_anew_releases_what_it_does_not_name() {
    let mut env = Env::new();
    let burst = (APP, Knob::CfsBurst);
    let (policy, now) = (holder("a", 1), Timestamp(0));
    env.lease("a", 1, QUOTA, n(100_000));
    env.lease("a", 1, burst, n(50_000));
    env.apply();
    let setting =
        |value| qosm_model::setting::Setting::Hold { target: APP, knob: Knob::CfsQuota, value, reason: "".into() };
    for (anew, expected) in [(false, n(50_000)), (true, n(0))] {
        env.ledger.begin_staging(&policy, anew);
        assert!(env.ledger.stage(&policy, setting(n(100_000)), &|_| None, now).is_none());
        env.ledger.end_staging(&policy);
        env.apply();
        assert_eq!(env.value(burst), expected, "anew: {anew}");
    }
    assert_eq!(env.value(QUOTA), n(100_000));
}

#[test]
fn a_lease_out_of_reach_does_not_count_until_it_is_within_reach() {
    let mut env = Env::new();
    let policy = holder("a", 1);
    let setting = || qosm_model::setting::Setting::Hold {
        target: APP,
        knob: Knob::CfsQuota,
        value: n(100_000),
        reason: "".into(),
    };
    for (why, expected, refused) in [(Some("not configured"), Value::Max, 1), (None, n(100_000), 0)] {
        env.ledger.begin_staging(&policy, false);
        env.ledger.stage(&policy, setting(), &|_| why.map(Into::into), Timestamp(0));
        env.ledger.end_staging(&policy);
        let applied = env.apply();
        assert_eq!((env.value(QUOTA), applied.refused.len()), (expected, refused), "{why:?}");
        assert_eq!(env.ledger.denied(|_| true).len(), refused);
    }
}

#[test]
fn a_denied_lease_of_high_priority_does_not_hide_one_beneath() {
    let mut env = Env::new();
    env.lease("low", 1, QUOTA, n(100_000));
    let policy = holder("high", 9);
    let setting =
        qosm_model::setting::Setting::Hold { target: APP, knob: Knob::CfsQuota, value: n(9000), reason: "".into() };
    env.ledger.begin_staging(&policy, false);
    env.ledger.stage(&policy, setting, &|_| Some("no".into()), Timestamp(0));
    env.apply();
    assert_eq!(env.value(QUOTA), n(100_000));
}

#[test]
fn nothing_is_written_to_a_paused_pod_and_what_it_missed_comes_afterwards() {
    let mut env = Env::new();
    let until = crate::pause::Pause { until: Some(Timestamp(10_000)), source: crate::pause::PauseSource::Operator };
    env.pods.set_operator_pause("default/web", Some(until));
    env.pods.update_pauses(Timestamp(0));
    env.lease("a", 1, QUOTA, n(100_000));
    assert!(env.apply().decisions.is_empty());
    env.seconds = 11;
    let changes = env.pods.update_pauses(Timestamp(11_000));
    env.ledger.resume(&changes.resumed);
    assert_eq!(env.apply().decisions.len(), 1);
    assert_eq!(env.value(QUOTA), n(100_000));
}

#[test]
fn a_protected_namespace_refuses_leases_and_says_why() {
    let mut env = Env::new();
    env.config.guard_rails.protected_namespaces.insert("default".to_owned());
    env.lease("a", 1, QUOTA, n(100_000));
    env.apply();
    assert_eq!(env.value(QUOTA), Value::Max);
    let why = env.ledger.refusals().values().map(|refusal| refusal.why.clone()).collect::<Vec<_>>();
    assert_eq!(why, ["namespace default is protected by the guard rails"]);
}

#[test]
fn a_namespace_that_becomes_protected_gets_its_baseline_back() {
    let mut env = Env::new();
    env.lease("a", 1, QUOTA, n(100_000));
    env.apply();
    env.config.guard_rails.protected_namespaces.insert("default".to_owned());
    env.ledger.touch(QUOTA);
    env.apply();
    assert_eq!(env.value(QUOTA), Value::Max);
}

#[test]
fn a_weight_waits_while_its_container_is_idle() {
    let mut env = Env::new();
    let (weight, idle) = ((APP, Knob::CpuWeight), (APP, Knob::CpuIdle));
    let baseline = env.value(weight);
    env.lease("a", 1, weight, n(250));
    env.apply();
    env.lease("b", 1, idle, n(1));
    env.apply();
    assert_eq!(env.value(weight), qosm_model::knob::IDLE_WEIGHT);
    assert_eq!(env.ledger.ruling(&env.pods, APP, Knob::CpuWeight).unwrap().holder.policy.as_ref(), "b");
    for (policy, expected) in [("b", n(250)), ("a", baseline)] {
        env.ledger.release(policy);
        env.apply();
        assert_eq!(env.value(weight), expected, "{policy} released");
    }
}
