use super::*;

const QUOTA: Key = (APP, Knob::CfsQuota);

fn held() -> Env {
    let mut env = Env::new();
    env.lease("a", 1, QUOTA, n(200_000));
    env.lease("a", 1, (POD, Knob::CfsQuota), n(300_000));
    env.apply();
    env
}

#[test]
fn a_pod_that_leaves_gets_all_its_baselines_back_and_leaves_nothing() {
    let mut env = held();
    env.ledger.release_targets(&[POD, APP]);
    env.apply();
    assert_eq!((env.value(QUOTA), env.value((POD, Knob::CfsQuota))), (Value::Max, Value::Max));
    for target in [POD, APP] {
        env.ledger.forget_target(&mut env.host, target);
    }
    assert_eq!(env.ledger.sizes().map(|(_, size)| size), [0; 7]);
    assert!(env.host.attached_path(APP).is_none());
}

#[test]
fn a_cgroup_that_vanished_is_forgotten_and_the_others_are_written() {
    let mut env = held();
    env.host.simulated_mut().unwrap().remove_cgroup(APP_PATH).unwrap();
    env.lease("a", 1, QUOTA, n(150_000));
    env.lease("a", 1, (POD, Knob::CfsQuota), n(250_000));
    let applied = env.tick();
    assert_eq!(applied.gone, [APP]);
    assert_eq!(env.value((POD, Knob::CfsQuota)), n(250_000));
    assert_eq!(env.ledger.held().of(APP).count(), 0);
}

#[test]
fn a_pod_whose_cgroup_is_made_again_gets_its_settings_again() {
    const OF_POD: Key = (POD, Knob::CfsQuota);
    let mut env = held();
    for path in [APP_PATH, POD_PATH] {
        env.host.simulated_mut().unwrap().remove_cgroup(path).unwrap();
    }
    env.lease("a", 1, OF_POD, n(250_000));
    env.lease("a", 1, (POD, Knob::CpuWeight), n(300));
    let mut applied = env.tick();
    applied.gone.sort_unstable();
    assert_eq!((applied.gone, applied.refused.len(), applied.notices.len()), (vec![POD, APP], 0, 0));
    assert_eq!(env.ledger.held().of(POD).count(), 0);
    env.host.create(POD_PATH).unwrap();
    env.ledger.open_cgroup(&mut env.host, POD, POD_PATH).unwrap();
    env.ledger.opened(&mut env.host, &[POD]);
    env.tick();
    assert_eq!((env.value(OF_POD), env.value((POD, Knob::CpuWeight))), (n(250_000), n(300)));
    env.ledger.release("a");
    env.apply();
    assert_eq!(env.value(OF_POD), Value::Max);
}

#[test]
fn a_policy_releases_its_own_leases_only() {
    let mut env = held();
    env.lease("b", 1, (APP, Knob::CpuWeight), n(300));
    env.apply();
    env.ledger.release("a");
    env.apply();
    assert_eq!((env.value(QUOTA), env.value((APP, Knob::CpuWeight))), (Value::Max, n(300)));
}

#[test]
fn what_could_not_be_put_back_keeps_its_cgroup_open_until_it_is() {
    let mut env = held();
    env.ledger.release_targets(&[APP]);
    // Nothing was applied yet.
    env.ledger.forget_target(&mut env.host, APP);
    assert_eq!(env.host.attached_path(APP), Some(APP_PATH));
    env.ledger.touch_held();
    env.ledger.release("a");
    env.apply();
    env.ledger.close_spares(&mut env.host);
    assert!(env.host.attached_path(APP).is_none());
}

#[test]
fn a_restore_names_each_held_knob_with_its_baseline() {
    let env = held();
    let rows = env.ledger.restorable();
    let shown: Vec<_> = rows.iter().map(|row| (row.knob.as_str(), row.value.to_string())).collect();
    assert_eq!(shown, [("cpu.quota", "max".to_owned()), ("cpu.quota", "max".to_owned())]);
    let unrestored = env.ledger.unrestored(&env.pods);
    assert_eq!(unrestored.len(), 2);
    assert!(unrestored.iter().all(crate::restored::Restored::is_left_behind));
}
