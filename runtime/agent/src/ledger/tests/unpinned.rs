use super::*;

const CPUS: Key = (APP, Knob::CpusetCpus);
const QUOTAS: [Key; 2] = [(POD, Knob::CfsQuota), (APP, Knob::CfsQuota)];

fn cpus(list: &str) -> Value {
    Value::Cpus(list.parse().unwrap())
}

/// A pod with a quota of one CPU on a node of eight.
fn env() -> Env {
    let mut env = Env::like(&Spec { cpus: 8, ..Spec::default() }, None);
    for path in [POD_PATH, APP_PATH] {
        env.write(path, "cpu.max", "100000 100000");
    }
    env
}

fn lift(env: &mut Env, policy: &str) {
    for key in QUOTAS {
        env.lease(policy, 1, key, Value::Max);
    }
}

fn quotas(env: &mut Env) -> [Value; 2] {
    QUOTAS.map(|key| env.value(key))
}

#[test]
fn a_quota_is_lifted_once_the_cpus_that_are_to_limit_the_pod_are_accepted() {
    let mut env = env();
    lift(&mut env, "a");
    env.lease("a", 1, CPUS, cpus("14-15"));
    let refused: Vec<_> = env.apply().refused.into_iter().map(|decision| decision.knob).collect();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert_eq!(quotas(&mut env), [n(100_000); 2]);
    let why = env.ledger.refusals()[&QUOTAS[1]].why.clone();
    assert!(why.starts_with("only CPUs 14-15 would limit it then, which it does not get: "), "{why}");
    env.lease("a", 1, CPUS, cpus("2-3"));
    env.apply();
    env.tick();
    assert_eq!((quotas(&mut env), env.ledger.refusals().len()), ([Value::Max; 2], 0));
}

#[test]
fn a_lifted_quota_comes_back_when_other_cpus_are_refused() {
    let mut env = env();
    lift(&mut env, "a");
    env.lease("a", 1, CPUS, cpus("2-3"));
    env.apply();
    assert_eq!(quotas(&mut env), [Value::Max; 2]);
    env.lease("a", 1, CPUS, cpus("14-15"));
    env.apply();
    env.tick();
    assert_eq!(quotas(&mut env), [n(100_000); 2]);
    env.ledger.release("a");
    env.tick();
    assert_eq!((env.ledger.held().len(), env.ledger.refusals().len()), (0, 0));
}

#[test]
fn a_quota_that_another_policy_lifts_does_not_wait() {
    let mut env = env();
    lift(&mut env, "b");
    env.lease("a", 1, CPUS, cpus("14-15"));
    env.apply();
    assert_eq!(quotas(&mut env), [Value::Max; 2]);
}
