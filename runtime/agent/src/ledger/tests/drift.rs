use super::*;

const WEIGHT: Key = (APP, Knob::CpuWeight);
const QUOTA: Key = (APP, Knob::CfsQuota);

/// A node on which a policy holds a quota of 200 ms.
fn held() -> Env {
    let mut env = Env::new();
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    env
}

fn reported(applied: &Applied) -> Vec<&str> {
    applied.notices.iter().map(|notice| notice.reason).collect()
}

#[test]
fn what_another_writer_leaves_decides_who_it_was() {
    for (text, reads, baseline) in [
        // Reset to the baseline: the lease is written again.
        ("max 100000", n(200_000), Value::Max),
        // What the limit of one CPU gives: the kubelet's, a new baseline.
        ("100000 100000", n(200_000), n(100_000)),
        // A person's: left alone.
        ("70000 100000", n(70_000), Value::Max),
    ] {
        let mut env = held();
        env.write(APP_PATH, "cpu.max", text);
        let applied = env.tick();
        assert_eq!(env.value(QUOTA), reads, "{text}");
        assert_eq!(env.ledger.held().get(&QUOTA).unwrap().baseline, baseline, "{text}");
        assert_eq!(reported(&applied), ["KnobDrift"], "{text}");
    }
}

#[test]
fn a_reset_before_the_write_is_read_back_is_seen_in_the_next_tick() {
    let mut env = Env::new();
    env.lease("a", 1, QUOTA, n(200_000));
    env.host.simulated_mut().unwrap().write_after_next("cpu.max", "max 100000");
    env.apply();
    assert_eq!(env.value(QUOTA), Value::Max);
    assert_eq!(reported(&env.tick()), ["KnobDrift"]);
    assert_eq!(env.value(QUOTA), n(200_000));
}

#[test]
fn a_persons_value_is_left_alone_for_a_while_and_is_the_baseline_then() {
    let mut env = held();
    env.write(APP_PATH, "cpu.max", "70000 100000");
    env.tick();
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
fn who_resets_again_and_again_is_given_way_to() {
    let mut env = held();
    let mut written = 0;
    while env.value(QUOTA) == n(200_000) {
        env.write(APP_PATH, "cpu.max", "max 100000");
        env.tick();
        written += 1;
        assert!(written < 10, "never given way to");
    }
    assert_eq!(written, 4, "three repairs, and the fourth reset is a fight");
    assert_eq!(env.ledger.contests().count(), 1);
}

#[test]
fn what_is_reset_twice_within_a_second_is_one_reset() {
    let mut env = held();
    for _reload in 0..3 {
        for _ in 0..2 {
            env.write(APP_PATH, "cpu.max", "max 100000");
            env.later(0);
        }
        assert_eq!(env.value(QUOTA), n(200_000));
        env.later(30);
    }
    assert_eq!(env.ledger.contests().count(), 0);
}

#[test]
fn hands_are_off_for_twice_as_long_each_time() {
    let mut env = held();
    env.config.drift.hands_off_seconds = 640;
    let hands_off = 40;
    for _ in 0..4 {
        env.write(APP_PATH, "cpu.max", "max 100000");
        env.tick();
    }
    let until =
        |env: &Env| env.ledger.held().get(&QUOTA).unwrap().hands_off_until.map(|until| until.0 / 1000 - env.seconds);
    assert_eq!(until(&env), Some(hands_off));
    env.later(hands_off + 1);
    assert_eq!(env.value(QUOTA), n(200_000));
    env.write(APP_PATH, "cpu.max", "max 100000");
    env.tick();
    assert_eq!(until(&env), Some(2 * hands_off));
}

#[test]
fn what_is_left_alone_is_left_at_the_end_too() {
    let mut env = held();
    env.write(APP_PATH, "cpu.max", "70000 100000");
    env.tick();
    env.ledger.end();
    env.ledger.release("a");
    let mut left = Applied::default();
    env.with(|ledger, host, inputs| ledger.leave_to_others(host, inputs, &mut left));
    env.apply();
    assert_eq!((env.value(QUOTA), reported(&left)), (n(70_000), vec!["KnobLeftAsFound"]));
}

#[test]
fn a_knob_that_another_wrote_since_is_not_overwritten_by_its_baseline() {
    let mut env = held();
    env.write(APP_PATH, "cpu.max", "70000 100000");
    env.ledger.release("a");
    let applied = env.apply();
    assert_eq!((env.value(QUOTA), reported(&applied)), (n(70_000), vec!["KnobLeftAsFound"]));
    assert_eq!(env.ledger.held().len(), 0);
}

#[test]
fn the_weight_of_the_request_is_the_kubelets_and_any_other_a_persons() {
    for (weight, is_left) in [("20", false), ("77", true)] {
        let mut env = Env::new();
        env.lease("a", 1, WEIGHT, n(250));
        env.apply();
        env.write(APP_PATH, "cpu.weight", weight);
        env.later(60);
        let held = env.ledger.held().get(&WEIGHT).unwrap();
        assert_eq!(held.hands_off_until.is_some(), is_left, "{weight}: {:?}", held.drift);
    }
}

#[test]
fn a_lease_that_is_released_while_hands_are_off_ends_without_a_write() {
    let mut env = held();
    env.write(APP_PATH, "cpu.max", "70000 100000");
    env.tick();
    env.ledger.release("a");
    assert!(env.tick().decisions.is_empty());
    assert_eq!(env.value(QUOTA), n(70_000));
}

#[test]
fn a_quota_that_the_specification_asks_for_by_now_is_what_comes_back() {
    // The kubelet that resizes a pod writes what the policy holds already: that is not visible, and it is not written again.
    let comes_back = |env: &mut Env| {
        env.ledger.release("a");
        env.apply();
        env.value(QUOTA)
    };
    for (before, held, after) in [
        ("50000 100000", 100_000, n(100_000)),
        ("50000 100000", 90_000, n(50_000)),
        // Where the kubelet sets no quotas, it sets none after a resize.
        ("max 100000", 100_000, Value::Max),
    ] {
        let mut env = Env::new();
        env.write(APP_PATH, "cpu.max", before);
        env.lease("a", 1, QUOTA, n(held));
        env.apply();
        assert_eq!(comes_back(&mut env), after, "{held} over {before}");
    }

    let mut env = Env::new();
    env.write(APP_PATH, "cpu.max", "100000 100000");
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    env.pods.update(vec![limited_to("2")]);
    assert!(reported(&env.tick()).is_empty());
    assert_eq!(comes_back(&mut env), n(200_000));
}

#[test]
fn the_journal_knows_at_once_what_comes_back_of_a_quota_that_the_kubelet_may_have_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut env = Env::on(Versions::V2, Some(open_journal(folder.path())));
    env.write(APP_PATH, "cpu.max", "50000 100000");
    let baseline = |env: &Env| env.ledger.journal().unwrap().records().unwrap()[0].baseline;
    env.lease("a", 1, QUOTA, n(200_000));
    env.apply();
    assert_eq!(baseline(&env), n(50_000));
    env.pods.update(vec![limited_to("2")]);
    env.tick();
    assert_eq!(baseline(&env), n(200_000));
}

/// A tier above the pod, whose `memory.min` another owner keeps at `bytes`, with qosm's `held` in it.
mod tiers {
    use super::*;

    const TIER: Key = (Target::Tier(Tier::Burstable), Knob::MemoryMin);
    const TIER_PATH: &str = "kubepods/burstable";
    const POD_MIN: Key = (POD, Knob::MemoryMin);
    const MIB: i64 = 1 << 20;

    /// The owner's `bytes` for the tier, and 16 MiB for the pod and so for the tier.
    fn held_over(bytes: i64) -> Env {
        let mut env = Env::new();
        env.config.drift.verify_over_ticks = 1;
        env.ledger.open_cgroup(&mut env.host, TIER.0, TIER_PATH).unwrap();
        env.owner_writes(bytes);
        env.lease("a", 1, POD_MIN, n(16 * MIB));
        env.lease("a", 1, TIER, n(16 * MIB));
        env.apply();
        assert_eq!(env.value(TIER), n(bytes + 16 * MIB));
        env
    }

    impl Env {
        fn owner_writes(&mut self, bytes: i64) {
            self.write(TIER_PATH, "memory.min", &bytes.to_string());
        }
    }

    #[test]
    fn a_sum_that_the_owner_writes_within_a_tick_is_a_baseline_as_well() {
        // A kubelet that starts again writes 0, and its sum a minute later: here while qosm puts its own value back.
        let mut env = held_over(112 * MIB);
        env.owner_writes(0);
        env.seconds += 1;
        env.with(|ledger, host, inputs| ledger.verify(host, inputs));
        env.owner_writes(112 * MIB);
        env.apply();
        assert_eq!(env.value(TIER), n(128 * MIB));
        env.ledger.release("a");
        env.apply();
        assert_eq!(env.value(TIER), n(112 * MIB));
    }

    #[test]
    fn a_lease_that_changes_does_not_hide_what_another_wrote() {
        let mut env = held();
        env.write(APP_PATH, "cpu.max", "70000 100000");
        env.lease("a", 1, QUOTA, n(300_000));
        let applied = env.apply();
        assert_eq!((env.value(QUOTA), reported(&applied)), (n(70_000), vec!["KnobDrift"]));
    }

    #[test]
    fn a_tier_that_is_synced_each_minute_gets_what_its_groups_need_each_time() {
        let mut env = held_over(0);
        let mut told = 0;
        for _ in 0..600 {
            // One sync is several writes.
            for _ in 0..2 {
                env.owner_writes(0);
                told += reported(&env.tick()).len();
                assert_eq!(env.value(TIER), n(16 * MIB));
            }
            env.later(58);
        }
        assert!(told <= 10, "told {told} times");
        assert_eq!(env.ledger.contests().count(), 1, "a problem as long as it lasts");
        env.later(3_600);
        env.tick();
        assert_eq!(env.ledger.contests().count(), 0);
    }

    #[test]
    fn a_tiers_quota_that_is_synced_each_minute_is_put_back_each_time() {
        const QUOTA: Key = (Target::Tier(Tier::BestEffort), Knob::CfsQuota);
        let mut env = Env::new();
        env.config.drift.verify_over_ticks = 1;
        env.host.create("kubepods/besteffort").unwrap();
        env.ledger.open_cgroup(&mut env.host, QUOTA.0, "kubepods/besteffort").unwrap();
        env.lease("a", 1, QUOTA, n(200_000));
        env.apply();
        for _ in 0..60 {
            env.write("kubepods/besteffort", "cpu.max", "max 100000");
            env.tick();
            assert_eq!(env.value(QUOTA), n(200_000));
            env.later(59);
        }
        assert_eq!(env.ledger.contests().count(), 1, "a problem as long as it lasts");
    }

    #[test]
    fn a_tier_that_is_written_over_all_the_time_is_left_alone() {
        let mut env = held_over(0);
        for _ in 0..20 {
            env.owner_writes(0);
            env.tick();
        }
        assert_eq!((env.value(TIER), env.ledger.contests().count()), (n(0), 1));
    }

    #[test]
    fn a_tier_settles_on_a_synced_value_that_covers_its_groups() {
        let mut env = held_over(112 * MIB);
        for _ in 0..6 {
            env.owner_writes(112 * MIB);
            env.later(60);
        }
        assert_eq!((env.value(TIER), env.ledger.contests().count()), (n(112 * MIB), 1));
    }
}
