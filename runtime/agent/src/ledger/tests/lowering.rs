//! A memory limit that is lowered below what is in use.

use super::*;

const LIMIT: Key = (APP, Knob::MemoryMax);
const MIB: i64 = 1 << 20;

/// A container that uses 100 MiB, of which the kernel can reclaim nothing.
fn env() -> Env {
    let mut env = Env::new();
    uses(&mut env, 100 * MIB);
    env
}

fn uses(env: &mut Env, bytes: i64) {
    env.host.simulated_mut().unwrap().overwrite(APP_PATH, "memory.current", &bytes.to_string()).unwrap();
}

#[test]
fn what_a_limit_reaches_on_its_way_is_held_and_its_baseline_comes_back() {
    let mut env = env();
    env.lease("a", 1, LIMIT, n(20 * MIB));
    let applied = env.apply();
    assert_eq!((applied.refused.len(), env.value(LIMIT)), (1, n(105 * MIB)));
    let held = env.ledger.held().get(&LIMIT).unwrap();
    assert_eq!((held.baseline, held.written), (Value::Max, n(105 * MIB)));
    assert!(env.tick().decisions.is_empty(), "it is no drift");
    env.ledger.release("a");
    env.tick();
    assert_eq!((env.value(LIMIT), env.ledger.held().len(), env.ledger.refusals().len()), (Value::Max, 0, 0));
}

#[test]
fn a_limit_that_is_nearer_already_stays_and_is_told_once() {
    let mut env = env();
    env.write(APP_PATH, "memory.max", &(102 * MIB).to_string());
    env.lease("a", 1, LIMIT, n(20 * MIB));
    let mut told = env.apply().notices.len();
    for second in 0..200 {
        uses(&mut env, (101 + second % 2) * MIB);
        told += env.tick().notices.len();
    }
    assert_eq!((env.value(LIMIT), env.ledger.held().len(), told), (n(102 * MIB), 0, 1));
}

#[test]
fn a_limit_comes_down_once_the_memory_does() {
    let mut env = env();
    env.lease("a", 1, LIMIT, n(20 * MIB));
    env.apply();
    uses(&mut env, 10 * MIB);
    for _ in 0..60 {
        env.tick();
    }
    assert_eq!((env.value(LIMIT), env.ledger.refusals().len()), (n(20 * MIB), 0));
}

#[test]
fn a_limit_that_takes_its_time_is_tried_once_a_minute_told_once_and_comes_down_in_the_end() {
    let mut env = env();
    env.host.simulated_mut().unwrap().stall_slow_writes();
    env.lease("a", 1, LIMIT, n(20 * MIB));
    let mut applied = env.apply();
    for second in 0..200 {
        uses(&mut env, (100 + second % 2) * MIB);
        let more = env.tick();
        applied.decisions.extend(more.decisions);
        applied.notices.extend(more.notices);
    }
    assert_eq!((applied.decisions.len(), applied.notices.len()), (1, 1));
    let held = env.ledger.held().get(&LIMIT).unwrap();
    assert!(held.baseline == Value::Max && held.pending.is_none(), "{held:?}");
    assert!(env.value(LIMIT) > n(100 * MIB) && env.value(LIMIT) < n(110 * MIB), "{}", env.value(LIMIT));
    uses(&mut env, 10 * MIB);
    let later: usize = (0..62).map(|_| env.tick().decisions.len()).sum();
    assert_eq!((env.value(LIMIT), env.ledger.refusals().len(), later), (n(20 * MIB), 0, 1));
    // Released while a write is under way.
    uses(&mut env, 19 * MIB);
    env.lease("a", 1, LIMIT, n(10 * MIB));
    env.apply();
    env.ledger.release("a");
    for _ in 0..4 {
        env.tick();
    }
    assert_eq!((env.value(LIMIT), env.ledger.held().len(), env.ledger.refusals().len()), (Value::Max, 0, 0));
}
