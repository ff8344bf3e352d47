use super::*;

fn files(applied: &Applied) -> Vec<(String, String)> {
    let row = |decision: &crate::report::Decision| (decision.level.clone(), decision.knob.clone());
    applied.decisions.iter().map(row).collect()
}

fn rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(level, knob)| ((*level).to_owned(), (*knob).to_owned())).collect()
}

#[test]
fn what_rises_goes_from_the_pod_down_and_what_falls_from_the_container_up() {
    for versions in [Versions::V1, Versions::V2] {
        let mut env = Env::on(versions, None);
        for (pod, app) in [(200_000, 100_000), (400_000, 300_000)] {
            env.lease("a", 1, (APP, Knob::CfsQuota), n(app));
            env.lease("a", 1, (POD, Knob::CfsQuota), n(pod));
            let applied = env.apply();
            let first_falls = rows(&[("container", "cpu.quota"), ("pod", "cpu.quota")]);
            let then_rises = rows(&[("pod", "cpu.quota"), ("container", "cpu.quota")]);
            assert_eq!(files(&applied), if pod == 200_000 { first_falls } else { then_rises });
        }
    }
}

#[test]
fn a_quota_rises_before_its_burst_and_falls_after_it() {
    let mut env = Env::new();
    let (quota, burst) = ((APP, Knob::CfsQuota), (APP, Knob::CfsBurst));
    env.lease("a", 1, quota, n(100_000));
    env.lease("a", 1, burst, n(100_000));
    env.apply();
    for (to, expected) in [(50_000, ["cpu.burst", "cpu.quota"]), (100_000, ["cpu.quota", "cpu.burst"])] {
        env.lease("a", 1, burst, n(to));
        env.lease("a", 1, quota, n(to));
        let written: Vec<_> = env.apply().decisions.into_iter().map(|decision| decision.knob).collect();
        assert_eq!(written, expected, "to {to}");
    }
}

#[test]
fn the_same_leases_in_any_order_come_to_the_same_writes() {
    let keys = [(APP, Knob::CfsQuota), (POD, Knob::CfsQuota), (APP, Knob::CfsBurst), (APP, Knob::CpuWeight)];
    let mut first = None;
    for turn in 0..keys.len() {
        let mut env = Env::new();
        for place in 0..keys.len() {
            let key = keys[(turn + place) % keys.len()];
            env.lease("a", 1, key, n(if key.1 == Knob::CpuWeight { 200 } else { 100_000 }));
        }
        let written = files(&env.apply());
        assert_eq!(*first.get_or_insert_with(|| written.clone()), written, "turn {turn}");
    }
}

#[test]
fn a_burst_is_cut_to_the_quota_in_force_and_follows_it() {
    let mut env = Env::new();
    let (quota, burst) = ((APP, Knob::CfsQuota), (APP, Knob::CfsBurst));
    env.lease("a", 1, quota, n(50_000));
    env.lease("b", 1, burst, n(900_000));
    env.apply();
    assert_eq!(env.value(burst), n(50_000));
    env.lease("a", 1, quota, n(100_000));
    env.apply();
    assert_eq!(env.value(burst), n(100_000), "with the quota, its partner is worked out");
    env.lease("a", 1, quota, n(300_000));
    env.apply();
    assert_eq!(env.value(burst), n(100_000), "above what the kubelet may write next it would be in its way");
}

#[test]
fn idle_goes_before_the_weight_both_ways() {
    let mut env = Env::new();
    env.lease("a", 1, (APP, Knob::CpuIdle), n(1));
    env.apply();
    env.lease("b", 1, (APP, Knob::CpuWeight), n(300));
    env.ledger.release("a");
    let written: Vec<_> = env.apply().decisions.into_iter().map(|decision| decision.knob).collect();
    assert_eq!(written, ["cpu.idle", "cpu.weight"]);
}
